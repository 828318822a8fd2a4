//! LIVENESS: a data node says whether a peer's data nodes are heard, whenever that changes.
//!
//! ```text
//! +---------------------------------------------------------------+
//! |  peer                                                         |
//! +---------------+-----------------------------------------------+
//! |  state: 0 not watched, 1 alive, 2 silent                      |  (1 byte)
//! +---------------+
//! ```

use super::{HEADER_LEN, ParseError, Type, body, header};
use crate::types::PeerId;

numbered! {
    /// What is known of a peer's data nodes.
    State {
        /// No session comes from there or goes there.
        Unknown = 0 "unknown",
        /// Something is heard of them.
        Alive = 1 "alive",
        /// They were heard once, and are not any more.
        Silent = 2 "silent",
    }
}

/// A LIVENESS message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// Whose data nodes.
    pub peer: PeerId,
    /// What is known of them.
    pub state: State,
}

impl Repr {
    /// Length of the message in bytes.
    pub const LEN: usize = HEADER_LEN + 5;

    /// Reads a message.
    ///
    /// # Errors
    /// It is not a LIVENESS message, or its state is unknown.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::Liveness)?;
        let (peer, state) = (PeerId(reader.u32()?), reader.u8()?);
        reader.end()?;
        let state = State::from_number(state).ok_or(ParseError::Value)?;
        Ok(Repr { peer, state })
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Repr::LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::Liveness, Self::LEN);
        writer.u32(self.peer.0);
        writer.u8(self.state as u8);
    }
}
