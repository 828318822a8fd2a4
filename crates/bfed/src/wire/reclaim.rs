//! REFRESH: the session is still needed (§5.3.4); RECLAIM: the session, or one edge of it, is gone.
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

use super::reader::{Field, Reader, Writer};
use super::subscribe::Edge;
use super::{Body, ParseError, Type};
use crate::name::SessionName;

/// What a data node releases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReclaimTarget {
    /// The whole session.
    All,
    /// One edge that it was sent to.
    Receiver(Edge),
    /// The edge that it was, or was to be, received from.
    Source(Edge),
}

impl Field for ReclaimTarget {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let kind = reader.u8()?;
        reader.reserved(3)?;
        Ok(match kind {
            0 => ReclaimTarget::All,
            1 => ReclaimTarget::Receiver(reader.get()?),
            2 => ReclaimTarget::Source(reader.get()?),
            _ => return Err(ParseError::Value),
        })
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        let (kind, edge) = match self {
            ReclaimTarget::All => (0, None),
            ReclaimTarget::Receiver(edge) => (1_u32, Some(edge)),
            ReclaimTarget::Source(edge) => (2, Some(edge)),
        };
        writer.u32(kind << 24);
        if let Some(edge) = edge {
            edge.emit(writer);
        }
    }
}

/// A REFRESH or a RECLAIM.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// The control node's epoch.
    pub epoch: u64,
    /// What is released; `None` in a REFRESH.
    pub what: Option<ReclaimTarget>,
    /// The session.
    pub session: SessionName,
}

impl Body for Repr {
    fn parse_body(kind: Type, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(Repr {
            epoch: reader.get()?,
            what: match kind {
                Type::Refresh => None,
                Type::Reclaim => Some(reader.get()?),
                _ => return Err(ParseError::Type),
            },
            session: reader.get()?,
        })
    }

    fn emit_body(&self, writer: &mut Writer<'_>) -> Type {
        self.epoch.emit(writer);
        if let Some(what) = self.what {
            what.emit(writer);
        }
        self.session.emit(writer);
        match self.what {
            Some(_) => Type::Reclaim,
            None => Type::Refresh,
        }
    }
}

whole_messages!(Repr);
