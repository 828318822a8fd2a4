//! NO_ROUTE: a session will not come, and why (§5.2.1).
//!
//! ```text
//! +---------------+-----------------------
//! |  reason       |  session's name ...
//! +---------------+-----------------------
//! ```

use super::reader::name_len;
use super::{HEADER_LEN, ParseError, Type, body, header};
use crate::name::SessionName;

numbered! {
    /// Why a session does not come.
    Reason {
        /// No route to any gateway of the owner.
        Unreachable = 1 "unreachable",
        /// The owner knows no such session.
        NoSession = 2 "no_session",
        /// As many sessions as may be, or no data node is free.
        Limit = 3 "limit",
        /// The tree would loop.
        Loop = 4 "loop",
        /// The gateways towards the owner do not answer.
        Timeout = 5 "timeout",
        /// The owner's DNS name stands for no network.
        UnknownOwner = 6 "unknown_owner",
        /// The session belongs to the client's own network: subscribe there (§5.2.1).
        Local = 7 "local",
        /// The administrator forbids it, or the network cannot carry it.
        Policy = 8 "policy",
    }
}

/// A NO_ROUTE.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// Why.
    pub reason: Reason,
    /// The session.
    pub session: SessionName,
}

impl Repr {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not a NO_ROUTE, or its reason is unknown.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::NoRoute)?;
        let reason = Reason::from_number(reader.u8()?).ok_or(ParseError::Value)?;
        let session = reader.name()?;
        reader.end()?;
        Ok(Repr { reason, session })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + 1 + name_len(&self.session)
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Repr::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::NoRoute, self.buffer_len());
        writer.u8(self.reason as u8);
        writer.name(&self.session);
    }
}
