//! STATISTICS: how much went through a data node; the load that sessions are assigned by (§5.3.1).
//!
//! ```text
//! +---------------------------------------------------------------+
//! |  sessions (4)                                                 |
//! +---------------------------------------------------------------+
//! |  bit/s forwarded, over the last interval (8)                  |
//! +---------------------------------------------------------------+
//! |  sessions that changed: a list, at most 12, of                |
//! |    packets received (8), bytes received (8), copies sent (8), |
//! |    copies dropped (8), session's name                         |
//! +---------------------------------------------------------------+
//! ```

use alloc::vec::Vec;

use super::reader::name_len;
use super::{HEADER_LEN, ParseError, Type, body, header};
use crate::name::SessionName;

/// Most sessions of one message.
pub const MAX_ENTRIES: usize = 12;

/// Counters of one session at one data node, since it was assigned there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// Packets received from the tree.
    pub packets: u64,
    /// Their payload in bytes.
    pub bytes: u64,
    /// Copies sent.
    pub copies: u64,
    /// Copies dropped for lack of room.
    pub dropped: u64,
    /// The session.
    pub session: SessionName,
}

/// A STATISTICS message.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// How many sessions the node has.
    pub sessions: u32,
    /// What it forwarded in the last interval, in bit/s.
    pub rate_bps: u64,
    /// Some of its sessions; over several messages all of them.
    pub entries: Vec<Entry>,
}

impl Repr {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not a STATISTICS message, or a field is out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::Statistics)?;
        let (sessions, rate_bps) = (reader.u32()?, reader.u64()?);
        let entries = reader.list(MAX_ENTRIES, |reader| {
            Ok(Entry {
                packets: reader.u64()?,
                bytes: reader.u64()?,
                copies: reader.u64()?,
                dropped: reader.u64()?,
                session: reader.name()?,
            })
        })?;
        reader.end()?;
        Ok(Repr {
            sessions,
            rate_bps,
            entries,
        })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        let entries: usize = self
            .entries
            .iter()
            .map(|entry| 32 + name_len(&entry.session))
            .sum();
        HEADER_LEN + 14 + entries
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Repr::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::Statistics, self.buffer_len());
        writer.u32(self.sessions);
        writer.u64(self.rate_bps);
        writer.list(&self.entries, |writer, entry| {
            writer.u64(entry.packets);
            writer.u64(entry.bytes);
            writer.u64(entry.copies);
            writer.u64(entry.dropped);
            writer.name(&entry.session);
        });
    }
}
