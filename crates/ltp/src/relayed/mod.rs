//! LTP through a tree of DyRAM relays.
//!
//! A [`Sender`] is an [`ltp::Sender`](crate::Sender) and its attachment to the nearest relay, a [`Receiver`] an
//! [`ltp::Receiver`](crate::Receiver) and its attachment. Each has one UDP socket, for DyRAM packets from and
//! to its relay and for plain LTP packets by unicast between receivers and source; the first byte tells them
//! apart.
//!
//! | LTP packet | with the relay |
//! | --- | --- |
//! | DATA | DyRAM DATA of the same sequence; the payload is the LTP packet |
//! | REPAIR that the relay requested | DyRAM REPAIR, likewise |
//! | SYNC, DIGESTS, other REPAIRs to the group | CAST: the LTP packet, then the source's UDP port (2 bytes), to which receivers send requests |
//! | REQUEST for packets | NACKs; the acknowledgement in them is the first packet that may be missing |
//! | FEEDBACK | FEEDBACK: the rate, the LTP packet; relays pass on the lowest. By unicast without a relay |
//! | all others | plain LTP by unicast between source and receiver |
//!
//! Where IP multicast carries the data ([`Sender::over_multicast`]), DATA and CAST go to the group, where
//! relays also receive them; the rest is as above.
//!
//! A receiver sends requests to its relay; the relay elects another receiver to repair, or requests upward,
//! at last from the source. After [`crate::ReceiverConfig::attempts_before_source`] unanswered requests a
//! receiver sends them to the source itself, so that a dead relay costs time but no data.

mod receiver;
mod sender;

pub use receiver::{Event as ReceiverEvent, Receiver};
pub use sender::{Event as SenderEvent, MAX_STALLED, Sender};

pub use dyram::wire::Stalled;
pub use dyram::{AttachmentEvent, Parents};

use core::net::SocketAddr;

use dyram::wire::{Body, Repr};
use dyram::{Attachment, Seq, SessionKey};
use proto_core::time::Duration;

use crate::{Destination, Transmit, wire};

/// Bytes that the headers of a relay add to an LTP packet, over IPv4:
/// [`SenderConfig::max_packet_len`](crate::SenderConfig::max_packet_len) must leave them free.
pub const OVERHEAD: usize = dyram::wire::HEADER_LEN_V4 + PORT_LEN;
/// The same over IPv6.
pub const OVERHEAD_V6: usize = dyram::wire::HEADER_LEN_V6 + PORT_LEN;

const PORT_LEN: usize = 2;
/// Smallest buffer that is used, without headers.
const MIN_BUFFER: usize = 400;
/// Time between two acknowledgements to the relay.
const ACK_INTERVAL: Duration = Duration::from_millis(100);
/// The same while they do not change.
const ACK_REPEAT: Duration = Duration::from_millis(1000);
/// Most packets that are answered with ABSENT at once; the relay requests the others again.
const MAX_ABSENT: usize = 65;

/// Whether a packet is one of a relay, not plain LTP.
fn is_dyram(packet: &[u8]) -> bool {
    packet.first() == Some(&1)
}

/// Returns the version of the LTP packet in a datagram, which a relay may have wrapped; `None` where there is none.
pub fn version(datagram: &[u8]) -> Option<u8> {
    if !is_dyram(datagram) {
        return wire::version(datagram);
    }
    let packet = dyram::wire::Packet::new_checked(datagram).ok()?;
    match Repr::parse(&packet).body {
        Body::Data(inner) | Body::Repair(inner) | Body::Cast(inner) => wire::version(inner),
        _ => None,
    }
}

fn unicast(transmit: dyram::Transmit) -> Transmit {
    packet_to(transmit.destination, transmit.len)
}

fn packet_to(destination: SocketAddr, len: usize) -> Transmit {
    Transmit::packet(Destination::Unicast(destination), len)
}

/// Returns the length of the headers before the LTP packet.
fn header_len(key: &SessionKey) -> usize {
    if key.source.is_ipv4() {
        dyram::wire::HEADER_LEN_V4
    } else {
        dyram::wire::HEADER_LEN_V6
    }
}

/// Writes the headers before an LTP packet of `len` bytes that already stands after their place. Returns the
/// length of the whole.
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

/// Packets that the relay requested and that are not stored here.
#[derive(Default, Debug)]
struct Absent(heapless::Vec<u32, MAX_ABSENT>);

impl Absent {
    /// Adds a packet. Without room the relay waits for an answer, and then requests again.
    fn push(&mut self, sequence: u32) {
        let _ = self.0.push(sequence);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes an ABSENT for the first packets, if a relay serves this host.
    fn poll_transmit(
        &mut self,
        attachment: &mut Attachment,
        session: u32,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        if attachment.relay().is_none() {
            self.0.clear();
        }
        let first = *self.0.first()?;
        let mut named = Named::only(first);
        self.0.retain(|&sequence| !named.add(sequence));
        let transmit = attachment.send(session, Seq(first), Body::Absent(named.mask), buffer)?;
        Some(unicast(transmit))
    }
}

/// Packets that one NACK or ABSENT names: the first, and a mask of the 64 after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Named {
    first: u32,
    mask: u64,
}

impl Named {
    /// Adds a packet. Returns false if it cannot be named with the others.
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
