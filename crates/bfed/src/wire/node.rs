//! REGISTER and HEARTBEAT: a data node and its control node find each other, and hear that the other
//! lives, every 250 ms.
//!
//! ```text
//!  REGISTER (data node)                  HEARTBEAT (either)
//! +-------------------------------+     +-------------------------------+
//! |  node                         |     |  epoch of the control node    |
//! +-------------------------------+     |  that is known (8)            |
//! |  boot: random, new at start   |     +-------------------------------+
//! +-------------------------------+     |  sequence: + 1 for each       |
//! |  most sessions                |     +-------------------------------+
//! +-------------------------------+     |  flags: 1 drains: no new      |
//! |  highest epoch that it obeyed |     |  sessions, please; 2 complete |
//! |  (8)                          |     +-------------------------------+
//! +-------------------------------+
//! ```
//!
//! *Complete*, from control: since this stream began, each session that the data node is to have has been
//! asked for or refreshed. What the data node has beside is forgotten, and it releases it.

use super::{HEADER_LEN, ParseError, Type, body, header};
use crate::types::NodeId;

/// A REGISTER.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Register {
    /// Which data node it is.
    pub node: NodeId,
    /// Random, new at every start: another one says that its sessions are gone.
    pub boot: u32,
    /// How many sessions it takes.
    pub max_sessions: u32,
    /// The highest epoch of a control node that it has obeyed.
    pub epoch: u64,
}

impl Register {
    /// Length of the message in bytes.
    pub const LEN: usize = HEADER_LEN + 20;

    /// Reads a message.
    ///
    /// # Errors
    /// It is not a REGISTER.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::Register)?;
        let register = Register {
            node: NodeId(reader.u32()?),
            boot: reader.u32()?,
            max_sessions: reader.u32()?,
            epoch: reader.u64()?,
        };
        reader.end()?;
        Ok(register)
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Register::LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::Register, Self::LEN);
        writer.u32(self.node.0);
        writer.u32(self.boot);
        writer.u32(self.max_sessions);
        writer.u64(self.epoch);
    }
}

/// A HEARTBEAT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Heartbeat {
    /// From control: its epoch. From a data node: the highest that it has obeyed.
    pub epoch: u64,
    /// One more with each.
    pub sequence: u32,
    /// From a data node: it wants no new sessions.
    pub draining: bool,
    /// From control: sessions that were neither asked for nor refreshed on this stream are forgotten.
    pub complete: bool,
}

impl Heartbeat {
    /// Length of the message in bytes.
    pub const LEN: usize = HEADER_LEN + 16;

    /// Reads a message.
    ///
    /// # Errors
    /// It is not a HEARTBEAT.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::Heartbeat)?;
        let (epoch, sequence, flags) = (reader.u64()?, reader.u32()?, reader.u32()?);
        reader.end()?;
        if flags > 3 {
            return Err(ParseError::Reserved);
        }
        Ok(Heartbeat {
            epoch,
            sequence,
            draining: flags & 1 != 0,
            complete: flags & 2 != 0,
        })
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Heartbeat::LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::Heartbeat, Self::LEN);
        writer.u64(self.epoch);
        writer.u32(self.sequence);
        writer.u32(u32::from(self.draining) | u32::from(self.complete) << 1);
    }
}
