//! Repair of lost packets of real-time sessions, within their deadlines.
//!
//! A link of datagrams is repaired by its two data nodes alone. The one upstream numbers its packets and keeps them for a while;
//! the one downstream asks for numbers that are missing, as long as an answer can come in time, and sends later packets on
//! when those before them have arrived or are given up. So packets leave each data node in the order of the source, as
//! readers of a stream of bytes need them, and each link repairs its own losses.
//!
//! | event | downstream | upstream |
//! | --- | --- | --- |
//! | a packet with a later number than the next one | the packets between are missing; it waits | |
//! | 2 ms later | asks for them (REPAIR_REQUEST) | sends them again, unless they would come too late |
//! | 1.25 round trips and 5 ms later | asks again, five times at most | sends them again |
//! | no answer can come in time | gives them up, and forwards the packets that wait | |
//! | 25 ms after a packet without another | | sends the number of that packet (TAIL), so that its loss is noticed |
//!
//! Where there is no time for an answer, [parity] restores lost packets.
//!
//! A node that sends the session on to other data nodes uses at most half of the time that is left, so that their links can
//! be repaired as well.
//!
//! Only packets with a class are repaired: their deadlines are known, and their receiver is of a release that has classes.
//!
//! # Bounds
//!
//! | of | bound |
//! | --- | --- |
//! | packets kept to be sent again | their lifetime; 256 KiB for each edge, [`MAX_BYTES`] for all, with those that wait |
//! | packets that wait for missing ones | until the missing ones are given up; 256 KiB for each edge |
//! | missing packets | 256 for each edge; the oldest ones are given up |
//! | answers and parity | a quarter of the bytes sent on the edge, and 64 KiB; answers for one packet 8, and one in three quarters of a round trip |
//! | packets and parity that are kept to restore others | 96 packets, 8 blocks and 192 KiB for each edge, for 2 s after the last parity |
//! | requests | five for each missing packet |
//!
//! A receiver that asks for everything gets a quarter more than others, at its own address. A sender that lies about numbers
//! delays its own sessions, by no more than their frames' lifetimes. A number that is far from the others begins a new count, so
//! that a forged one costs the packets that are missing then.

mod downstream;
mod gaps;
mod parity;
mod store;
mod upstream;

use core::ops::AddAssign;

use proto_core::time::Duration;

use self::gaps::Outcome;
use super::Plane;
use crate::types::PeerId;

pub(super) use self::gaps::Gaps;
pub(super) use self::store::Store;

/// Most bytes of packets that are kept, or wait, on all edges.
pub const MAX_BYTES: usize = 64 << 20;
/// The round-trip time of a path until it is measured.
const DEFAULT_RTT: Duration = Duration::from_millis(100);

/// The bytes that all edges share.
#[derive(Debug, Default)]
pub(super) struct Pool {
    bytes: usize,
}

impl Pool {
    fn fits(&self, len: usize) -> bool {
        self.bytes + len <= MAX_BYTES
    }

    fn add(&mut self, len: usize) {
        self.bytes += len;
    }

    pub(super) fn remove(&mut self, len: usize) {
        self.bytes -= len;
    }
}

/// Lost packets of real-time sessions on the link to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repairs {
    /// Packets from the peer that came when they were sent again.
    pub repaired: u64,
    /// Packets from the peer that parity restored.
    pub restored: u64,
    /// Packets from the peer that did not come in time.
    pub late: u64,
    /// Packets that were asked of the peer, each time they were.
    pub asked: u64,
    /// Packets that were sent to the peer again.
    pub answered: u64,
    /// Parity packets that were queued for the peer.
    pub parity: u64,
}

impl Repairs {
    /// Returns how many packets from the peer were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.repaired + self.restored + self.late
    }

    fn count(&mut self, outcome: Outcome) {
        self.repaired += outcome.repaired;
        self.restored += outcome.restored;
        self.late += outcome.late;
    }
}

impl AddAssign for Repairs {
    fn add_assign(&mut self, other: Repairs) {
        self.repaired += other.repaired;
        self.restored += other.restored;
        self.parity += other.parity;
        self.late += other.late;
        self.asked += other.asked;
        self.answered += other.answered;
    }
}

impl Plane {
    /// Returns the repairs on the links to all peers that have had any.
    pub fn repairs(&self) -> impl Iterator<Item = (PeerId, Repairs)> {
        self.repairs.iter().map(|(peer, repairs)| (*peer, *repairs))
    }

    /// Returns the bytes of packets that are kept, or wait, on all edges.
    #[must_use]
    pub fn repair_bytes(&self) -> usize {
        self.pool.bytes
    }

    fn count(&mut self, link: u32, count: impl FnOnce(&mut Repairs)) {
        if let Some(peer) = self.links.peer(link) {
            count(self.repairs.entry(peer).or_default());
        }
    }

    /// Forgets what an edge that is removed keeps.
    pub(super) fn forget_repairs(&mut self, rest: &super::edge::Rest) {
        let stored = rest.store.as_ref().map_or(0, |store| store.bytes());
        let held = rest.gaps.as_ref().map_or(0, |gaps| gaps.bytes());
        self.pool.remove(stored + held);
    }
}
