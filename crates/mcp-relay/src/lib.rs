//! Links between the hosts of one copy of `mcp`: a feeder serves blocks to a child over kernel TCP.
//!
//! The sender of the copy arranges each link and hands its secret to both ends over their control connections
//! ([`mcp_control::wire::relay`]). The feeder connects to the child's control port, both prove that they know the secret,
//! and the child asks for blocks (the messages: [`mcp_control::wire::link`]). The child verifies each block against
//! the digest that the sender named, so a link needs no trust in the feeder.
//!
//! | module | contents |
//! | --- | --- |
//! | [`feeder`] | connects to a child and serves it: one thread that reads requests, one that answers |
//! | [`child`] | accepts a feeder, asks it, and reads its blocks |
//! | `handshake`, `channel` | both ends: the timeouts of the handshake; records, sealed or not |
//!
//! # Units and bounds
//!
//! | what | bound |
//! | --- | --- |
//! | requested blocks of a link | [`MAX_REQUESTS`] blocks, [`MAX_REQUESTED_BYTES`]; a child that asks for more is disconnected |
//! | memory of a feeder, for each link | one block, one record, and 256 requests |
//! | memory of a child, for each link | the blocks that it has requested |
//! | a connection, and the handshake on it | [`HANDSHAKE`] each |
//! | a write | [`WRITE`] |
//!
//! [`MAX_REQUESTS`]: mcp_control::limits::MAX_REQUESTS
//! [`MAX_REQUESTED_BYTES`]: mcp_control::limits::MAX_REQUESTED_BYTES
#![forbid(unsafe_code)]

mod channel;
pub mod child;
pub mod feeder;
mod handshake;

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use mcp_control::wire::relay::{LinkId, LinkSecret};

/// Timeout of a connection, and of the handshake on it.
pub const HANDSHAKE: Duration = Duration::from_secs(5);
/// Timeout of a write: the other end has read nothing for this long.
pub const WRITE: Duration = Duration::from_secs(30);

/// A link as the sender has arranged it, known to both ends.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The link.
    pub link: LinkId,
    /// Its secret.
    pub secret: LinkSecret,
    /// Whether data on the link is sealed.
    pub sealed: bool,
}

/// Closes a link from another thread. When the last clone is dropped, the link is closed too.
#[derive(Clone, Debug)]
pub struct Closer(Arc<Open>);

#[derive(Debug)]
struct Open(TcpStream);

impl Closer {
    /// Returns what closes this connection.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new(stream: &TcpStream) -> io::Result<Closer> {
        Ok(Closer(Arc::new(Open(stream.try_clone()?))))
    }

    /// Closes the link: reads at both ends return its end.
    pub fn close(&self) {
        self.0.close();
    }
}

impl Open {
    fn close(&self) {
        // It may be closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.close();
    }
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
