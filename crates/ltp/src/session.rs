//! Types at the interface between driver and machines.

use core::fmt;
use core::net::SocketAddr;

use lms_proto::{LmsOption, TurningPoint};

/// Names one run of one source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u32);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// How a packet arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Path {
    /// Its destination was the group.
    Group,
    /// Its destination was this host.
    Unicast,
}

/// What the driver knows of a packet beside its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// Source address and port of the datagram.
    pub source: SocketAddr,
    /// How it arrived.
    pub path: Path,
    /// The LMS option that it carried.
    pub option: Option<LmsOption>,
    /// This host may answer requests: it is the elected replier of its link, or the request came
    /// in a frame addressed to it alone, or it is alone on its link. Only read with requests.
    pub elected: bool,
}

impl Meta {
    /// A packet without option that came to the group.
    pub fn group(source: SocketAddr) -> Self {
        Meta {
            source,
            path: Path::Group,
            option: None,
            elected: false,
        }
    }

    /// A packet that came to this host.
    pub fn unicast(source: SocketAddr) -> Self {
        Meta {
            source,
            path: Path::Unicast,
            option: None,
            elected: false,
        }
    }
}

/// Where a packet is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// Multicast to the group.
    Group,
    /// Multicast to the group, with this option.
    Request(LmsOption),
    /// To this address.
    Unicast(SocketAddr),
    /// Wrapped by the driver: an IPIP packet to that router, whose outer header carries the option
    /// and whose inner UDP packet goes from the source's address and port to the group.
    Dmcast(TurningPoint),
    /// To the DyRAM relay that helps: a request becomes NACKs, a repair is wrapped
    /// ([`crate::relayed`] does both).
    Relay,
}

impl Destination {
    /// Returns the address of a unicast packet.
    #[must_use]
    pub fn unicast(&self) -> Option<SocketAddr> {
        match self {
            Destination::Unicast(address) => Some(*address),
            _ => None,
        }
    }
}

/// A packet to send; its bytes are in the buffer that was given to `poll_transmit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Where to.
    pub destination: Destination,
    /// Bytes used of the buffer.
    pub len: usize,
    /// The bytes are several packets of this length, the last may be shorter (UDP segmentation
    /// offload); `None`: one packet.
    pub segment_len: Option<usize>,
}

impl Transmit {
    /// One packet.
    pub(crate) fn packet(destination: Destination, len: usize) -> Self {
        Transmit {
            destination,
            len,
            segment_len: None,
        }
    }

    /// The packets, when the driver sends them one by one.
    pub fn packets<'b>(&self, buffer: &'b [u8]) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        buffer[..self.len].chunks(self.segment_len.unwrap_or(self.len).max(1))
    }
}

proto_core::errors! {
    /// A configuration that cannot work.
    pub enum ConfigError {
        /// Block length and packet length do not fit: a block must be 1 to 64 packets.
        Geometry = "a block must be 1 to 64 packets; change block or packet length",
        /// The store must hold whole blocks, at least two, and no less than the window.
        Store = "the store must hold at least two whole blocks, and the window",
        /// A table that may not be empty is.
        Storage = "a table that may not be empty is",
        /// Parity needs digests of blocks, and a heap.
        Parity = "parity needs digests of blocks, and a build with a heap",
        /// The content is longer than 2^32 blocks.
        Length = "the content is longer than 2^32 blocks",
    }
}
