//! REFRESH: the session lives (§5.3.4); RECLAIM: the session, or one edge of it, is gone.
//!
//! ```text
//!  REFRESH                               RECLAIM
//! +-------------------------------+     +-------------------------------+
//! |  epoch (8)                    |     |  epoch (8)                    |
//! +-------------------------------+     +-------------------------------+
//! |  session's name               |     |  what: 0 all of it,           |
//! +-------------------------------+     |    1 its receiver: an edge    |
//!                                       |    2 its source     follows   |
//!                                       |  (1), 0 (3)                   |
//!                                       +-------------------------------+
//!                                       |  edge (see wire::subscribe)   |
//!                                       +-------------------------------+
//!                                       |  session's name               |
//!                                       +-------------------------------+
//! ```

use super::reader::name_len;
use super::subscribe::{Edge, edge_len, emit_edge, parse_edge};
use super::{HEADER_LEN, Header, ParseError, Type, body, header};
use crate::name::SessionName;

/// What is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReclaimTarget {
    /// The whole session.
    All,
    /// One edge that it was sent to.
    Receiver(Edge),
    /// The edge that it was, or was to be, received from.
    Source(Edge),
}

/// A REFRESH or a RECLAIM.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// The control node's epoch.
    pub epoch: u64,
    /// What is gone; `None` in a REFRESH.
    pub what: Option<ReclaimTarget>,
    /// The session.
    pub session: SessionName,
}

impl Repr {
    /// Reads a message of either type.
    ///
    /// # Errors
    /// It is neither, or a field is out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let refresh = Header::new_checked(bytes)?.type_number() == Type::Refresh as u8;
        let mut reader = body(
            bytes,
            if refresh {
                Type::Refresh
            } else {
                Type::Reclaim
            },
        )?;
        let epoch = reader.u64()?;
        let mut what = None;
        if !refresh {
            let kind = reader.u8()?;
            reader.reserved(3)?;
            what = Some(match kind {
                0 => ReclaimTarget::All,
                1 => ReclaimTarget::Receiver(parse_edge(&mut reader)?),
                2 => ReclaimTarget::Source(parse_edge(&mut reader)?),
                _ => return Err(ParseError::Value),
            });
        }
        let session = reader.name()?;
        reader.end()?;
        Ok(Repr {
            epoch,
            what,
            session,
        })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        let what = match &self.what {
            None => 0,
            Some(ReclaimTarget::All) => 4,
            Some(ReclaimTarget::Receiver(edge) | ReclaimTarget::Source(edge)) => 4 + edge_len(edge),
        };
        HEADER_LEN + 8 + what + name_len(&self.session)
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Repr::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let kind = if self.what.is_none() {
            Type::Refresh
        } else {
            Type::Reclaim
        };
        let mut writer = header(buffer, kind, self.buffer_len());
        writer.u64(self.epoch);
        match &self.what {
            None => {}
            Some(ReclaimTarget::All) => writer.u32(0),
            Some(ReclaimTarget::Receiver(edge)) => {
                writer.u32(1 << 24);
                emit_edge(edge, &mut writer);
            }
            Some(ReclaimTarget::Source(edge)) => {
                writer.u32(2 << 24);
                emit_edge(edge, &mut writer);
            }
        }
        writer.name(&self.session);
    }
}
