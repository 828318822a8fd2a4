//! REGISTER: a data node registers with its control node. HEARTBEAT: both prove every 250 ms that they are alive.
//!
//! ```text
//!  REGISTER (data node)                  HEARTBEAT (either)
//! +-------------------------------+     +-------------------------------+
//! |  node                         |     |  epoch of the control node    |
//! +-------------------------------+     |  that is known (8)            |
//! |  boot: random, new at start   |     +-------------------------------+
//! +-------------------------------+     |  sequence: + 1 for each       |
//! |  most sessions                |     +-------------------------------+
//! +-------------------------------+     |  flags: 1 draining: no new    |
//! |  highest epoch that it obeyed |     |  sessions; 2 complete         |
//! |  (8)                          |     +-------------------------------+
//! +-------------------------------+
//! ```
//!
//! *Complete*, from the control node: since this stream began, each session that the data node should carry has
//! been requested or refreshed. The data node releases all others.

use super::reader::{Field, Reader, Writer};
use super::{Body, ParseError, Type};
use crate::types::NodeId;

message! {
    /// A REGISTER.
    #[derive(Copy)]
    Register = Register {
        /// The data node.
        node: NodeId,
        /// Random, new at every start: a new value means that its sessions are lost.
        boot: u32,
        /// Most sessions that it carries.
        max_sessions: u32,
        /// The highest epoch of a control node that it has obeyed.
        epoch: u64,
    }
}

/// A HEARTBEAT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Heartbeat {
    /// From a control node: its epoch. From a data node: the highest that it has obeyed.
    pub epoch: u64,
    /// Increases by 1 with each.
    pub sequence: u32,
    /// From a data node: it wants no new sessions.
    pub draining: bool,
    /// From a control node: the data node releases sessions that were neither requested nor refreshed on this
    /// stream.
    pub complete: bool,
}

impl Body for Heartbeat {
    fn parse_body(kind: Type, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (epoch, sequence, flags) = (reader.get()?, reader.u32()?, reader.u32()?);
        match kind {
            Type::Heartbeat if flags <= 3 => Ok(Heartbeat {
                epoch,
                sequence,
                draining: flags & 1 != 0,
                complete: flags & 2 != 0,
            }),
            Type::Heartbeat => Err(ParseError::Reserved),
            _ => Err(ParseError::Type),
        }
    }

    fn emit_body(&self, writer: &mut Writer<'_>) -> Type {
        self.epoch.emit(writer);
        writer.u32(self.sequence);
        writer.u32(u32::from(self.draining) | u32::from(self.complete) << 1);
        Type::Heartbeat
    }
}

whole_messages!(Heartbeat);
