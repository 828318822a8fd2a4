//! NOTIFICATION: why a peering, or a data node's connection, ends. The last message on it.
//!
//! ```text
//! +---------------+---------------+
//! |  reason       |  length       |  text for people, UTF-8, at most 128 bytes
//! +---------------+---------------+
//! ```

use alloc::string::String;

use super::reader::clip;
use super::{HEADER_LEN, ParseError, Type, body, header};

numbered! {
    /// Why a session ends.
    Reason {
        /// A message that cannot be read.
        BadMessage = 1 "bad_message",
        /// No version that both speak.
        Version = 2 "version",
        /// Not the gateway that is configured here.
        BadPeer = 3 "bad_peer",
        /// Nothing was heard for the hold time.
        HoldTimer = 4 "hold_timer",
        /// A message at the wrong time.
        OutOfOrder = 5 "out_of_order",
        /// No table in common.
        Tables = 6 "tables",
        /// An attribute that must be known is not, or a route that cannot be told apart.
        BadUpdate = 7 "bad_update",
        /// More routes than the limit.
        PrefixLimit = 8 "prefix_limit",
        /// It reads too slowly: too much waits to be sent.
        TooSlow = 9 "too_slow",
        /// The administrator's wish: the peering is closed, the program ends.
        Shutdown = 10 "shutdown",
        /// Another connection with the same peer is kept.
        Collision = 11 "collision",
        /// The peering's configuration changed.
        Reconfigured = 12 "reconfigured",
        /// Of two control nodes this is the older one.
        Fenced = 13 "fenced",
        /// The peer does not answer in time to an OPEN.
        OpenTimer = 14 "open_timer",
        /// Nothing is heard of the peer's data nodes.
        Silent = 15 "silent",
    }
}

/// A NOTIFICATION.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// Why.
    pub reason: Reason,
    /// The details, for people; at most [`MAX_TEXT_LEN`](super::reader::MAX_TEXT_LEN) bytes.
    pub text: String,
}

impl Repr {
    /// A reason with details, cut to what fits.
    #[must_use]
    pub fn new(reason: Reason, text: &str) -> Self {
        Repr {
            reason,
            text: clip(text),
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// It is not a NOTIFICATION, or its reason is unknown.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::Notification)?;
        let reason = Reason::from_number(reader.u8()?).ok_or(ParseError::Value)?;
        let text = reader.text()?;
        reader.end()?;
        Ok(Repr { reason, text })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + 2 + self.text.len()
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Repr::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::Notification, self.buffer_len());
        writer.u8(self.reason as u8);
        writer.text(&self.text);
    }
}
