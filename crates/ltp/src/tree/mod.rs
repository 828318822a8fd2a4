//! LTP through a tree of DyRAM relays: the same machines, another helper.
//!
//! A [`Root`] is a sender and its attachment to the relay nearest to it, a [`Leaf`] a receiver and
//! its. Both have one UDP socket and speak to two sides: with their relay in DyRAM packets, with each
//! other by unicast in plain LTP packets (the first byte tells them apart).
//!
//! | LTP packet | with the relay |
//! | --- | --- |
//! | DATA | DyRAM DATA of the same sequence; the payload is the LTP packet |
//! | REPAIR that the relay asked for | DyRAM REPAIR, likewise |
//! | SYNC, DIGESTS, other REPAIRs to the group | CAST: the LTP packet, then the source's UDP port (2 bytes), so that leaves know where to ask |
//! | REQUEST for packets | NACKs; the acknowledgement in them is the first packet that may be missing |
//! | everything else | plain LTP by unicast between source and receiver |
//!
//! Where IP multicast carries the data ([`Root::over_multicast`]), DATA and CAST go to the group, and
//! relays listen to them there; everything else is as above.
//!
//! A leaf asks its relay; the relay elects another leaf, or asks upward; the source is the last that
//! is asked. After [`crate::ReceiverConfig::attempts_before_source`] requests in vain a leaf asks the
//! source itself, so a dead relay costs time and nothing else.

mod leaf;
mod root;

pub use leaf::Leaf;
pub use root::{Root, STALLED};

pub use dyram::wire::Stalled;
pub use dyram::{AttachmentEvent, Parents};

use core::net::SocketAddr;

use dyram::wire::{Body, Repr};
use dyram::{Seq, SessionKey};
use proto_core::time::Duration;

/// Bytes that a relay's packets take beside the LTP packet, over IPv4: [`crate::SenderConfig`]'s
/// `max_packet_len` must leave them free.
pub const OVERHEAD: usize = dyram::wire::HEADER_LEN_V4 + PORT_LEN;

const PORT_LEN: usize = 2;
/// How often acknowledgements go to the relay.
const ACK_INTERVAL: Duration = Duration::from_millis(100);
/// How often they do when there is nothing new in them.
const ACK_REPEAT: Duration = Duration::from_millis(1000);
/// Packets asked for in one go; more are asked for again by the relay.
const ABSENT: usize = 65;

/// A packet to send from the one UDP socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Where to.
    pub destination: SocketAddr,
    /// Bytes used of the buffer.
    pub len: usize,
}

impl From<Transmit> for crate::Transmit {
    fn from(transmit: Transmit) -> Self {
        crate::Transmit {
            destination: crate::Destination::Unicast(transmit.destination),
            len: transmit.len,
            segment_len: None,
        }
    }
}

impl From<dyram::Transmit> for Transmit {
    fn from(transmit: dyram::Transmit) -> Self {
        Transmit {
            destination: transmit.destination,
            len: transmit.len,
        }
    }
}

/// Whether a packet is one of a relay's, not plain LTP.
fn is_dyram(packet: &[u8]) -> bool {
    packet.first() == Some(&1)
}

/// Length of the headers before the LTP packet.
fn header_len(key: &SessionKey) -> usize {
    if key.source.is_ipv4() {
        dyram::wire::HEADER_LEN_V4
    } else {
        dyram::wire::HEADER_LEN_V6
    }
}

/// Writes the headers before an LTP packet that stands behind their place already.
fn wrap(
    buffer: &mut [u8],
    key: SessionKey,
    child: u16,
    session: u32,
    sequence: Seq,
    body: Body<'_>,
    len: usize,
) -> usize {
    let repr = Repr {
        key,
        session,
        child,
        sequence,
        body,
    };
    let total = repr.header_len() + len;
    repr.emit_header(buffer, total);
    total
}

/// A list of packets as a first one and a mask: what a NACK or an ABSENT can name at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Named {
    first: u32,
    mask: u64,
}

impl Named {
    /// Adds a packet if it can be named with the others.
    fn add(&mut self, sequence: u32) -> bool {
        match sequence.wrapping_sub(self.first) {
            0 => true,
            ahead @ 1..=64 => {
                self.mask |= 1 << (ahead - 1);
                true
            }
            _ => false,
        }
    }

    fn only(first: u32) -> Self {
        Named { first, mask: 0 }
    }
}
