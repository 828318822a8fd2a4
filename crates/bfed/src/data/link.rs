//! The rate limit of a link (§3.1), and how sessions share it.
//!
//! Sessions that wait for a link with a rate limit take turns: deficit round robin (Shreedhar and Varghese:
//! "Efficient Fair Queueing using Deficit Round Robin", 1995) with [`QUANTUM`] bytes a turn. The flows of one
//! session share its turns. While a session waits, packets for other sessions wait for their turns.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};

use super::cursor::Cursor;
use super::queue::{Ages, Timing};
use super::{EdgeId, Plane};
use crate::types::PeerId;

/// Longest burst: a tenth of a second.
const BURST: Duration = Duration::from_millis(100);

/// Bytes that a session may send in its turn: one packet of the usual MTU. A longer packet takes several turns.
const QUANTUM: usize = 1500;

/// A session that waits for a link.
#[derive(Debug, Default)]
struct Waiting {
    /// Bytes left of its turns.
    deficit: usize,
    /// Its turn has started.
    served: bool,
    /// Its edges with packets to send.
    edges: VecDeque<EdgeId>,
}

/// One link, shared by all edges to a peer.
#[derive(Debug)]
struct Link {
    /// `None` at index 0, and for a link without edges.
    peer: Option<PeerId>,
    /// Rate limit in bit/s; 0 for none.
    rate_bps: u64,
    /// When all packets sent so far have passed at that rate.
    busy_until: Instant,
    edges: u32,
    /// Waiting sessions by the number of their first flow, and the order of their turns.
    waiting: BTreeMap<u32, Waiting>,
    turns: VecDeque<u32>,
    /// Ages of the frames that came from the peer.
    ages: Ages,
}

/// The link to a peer: its sessions' edges, and the frames that came from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkStatus {
    /// The peer.
    pub peer: PeerId,
    /// Ways in and out of flows over it.
    pub edges: u32,
    /// How old frames of real-time sessions were on arrival, since the link has had edges; each fragment of a frame counts.
    pub ages: Ages,
}

impl Link {
    fn new(peer: Option<PeerId>, rate_bps: u64, now: Instant) -> Self {
        Link {
            peer,
            rate_bps,
            busy_until: now,
            edges: 0,
            waiting: BTreeMap::new(),
            turns: VecDeque::new(),
            ages: Ages::default(),
        }
    }
}

/// Links by index; index 0 is the native network, which has no limit.
#[derive(Debug)]
pub(super) struct Links {
    all: Vec<Link>,
    /// Indices of links with waiting packets.
    busy: BTreeSet<u32>,
}

impl Links {
    pub(super) fn new() -> Self {
        Links {
            all: vec![Link::new(None, 0, Instant::ZERO)],
            busy: BTreeSet::new(),
        }
    }

    fn place_of(&self, peer: PeerId) -> Option<usize> {
        self.all.iter().position(|link| link.peer == Some(peer))
    }

    /// Adds an edge to the link to `peer`, which gets a rate limit of `rate_bps` if it is new. Returns the index of the
    /// link.
    pub(super) fn add(&mut self, now: Instant, peer: PeerId, rate_bps: u64) -> u32 {
        let known = self.place_of(peer);
        let free = || self.all.iter().skip(1).position(|link| link.peer.is_none());
        let at = known
            .or_else(|| free().map(|at| at + 1))
            .unwrap_or(self.all.len());
        if known.is_none() {
            let link = Link::new(Some(peer), rate_bps, now);
            if at == self.all.len() {
                self.all.push(link);
            } else {
                self.all[at] = link;
            }
        }
        self.all[at].edges += 1;
        at as u32
    }

    /// Returns the peer at the other end of a link.
    pub(super) fn peer(&self, at: u32) -> Option<PeerId> {
        self.all.get(at as usize)?.peer
    }

    /// Returns the links that have edges: one for each peer at most.
    pub(super) fn status(&self) -> impl Iterator<Item = LinkStatus> + '_ {
        self.all.iter().filter_map(|link| {
            Some(LinkStatus {
                peer: link.peer?,
                edges: link.edges,
                ages: link.ages,
            })
        })
    }

    /// Counts the age of a frame that came over a link.
    pub(super) fn arrived(&mut self, now: Instant, at: u32, timing: &Timing) {
        if let Some(link) = self.all.get_mut(at as usize).filter(|_| at > 0) {
            link.ages.delivered(now, timing);
        }
    }

    /// Removes an edge from a link.
    pub(super) fn remove(&mut self, at: u32) {
        if let Some(link) = self.all.get_mut(at as usize).filter(|_| at > 0) {
            link.edges -= 1;
            if link.edges == 0 {
                link.peer = None;
            }
        }
    }

    /// Sets the rate limit of the link to `peer`. Returns edges that need not wait any more.
    pub(super) fn set_rate(&mut self, peer: PeerId, rate_bps: u64) -> Vec<EdgeId> {
        let Some(at) = self.place_of(peer) else {
            return Vec::new();
        };
        let link = &mut self.all[at];
        link.rate_bps = rate_bps;
        if rate_bps > 0 {
            return Vec::new();
        }
        self.busy.remove(&(at as u32));
        link.turns.clear();
        let waiting = core::mem::take(&mut link.waiting).into_values();
        waiting.flat_map(|one| one.edges).collect()
    }

    /// Returns whether packets wait for a link.
    #[inline]
    pub(super) fn is_waited_for(&self, at: u32) -> bool {
        let link = self.all.get(at as usize);
        link.is_some_and(|link| !link.turns.is_empty())
    }

    /// Adds an edge with packets to send, which must not be waiting yet.
    pub(super) fn wait(&mut self, at: u32, session: u32, id: EdgeId) {
        if let Some(link) = self.all.get_mut(at as usize) {
            let waiting = link.waiting.entry(session).or_default();
            if waiting.edges.is_empty() {
                link.turns.push_back(session);
            }
            waiting.edges.push_back(id);
            self.busy.insert(at);
        }
    }

    /// Removes a waiting edge.
    pub(super) fn leave(&mut self, at: u32, session: u32, id: EdgeId) {
        let Some(link) = self.all.get_mut(at as usize) else {
            return;
        };
        let Some(waiting) = link.waiting.get_mut(&session) else {
            return;
        };
        waiting.edges.retain(|other| *other != id);
        if waiting.edges.is_empty() {
            link.waiting.remove(&session);
            link.turns.retain(|other| *other != session);
        }
        if link.turns.is_empty() {
            self.busy.remove(&at);
        }
    }

    /// Returns the first link with waiting packets, from an index on.
    pub(super) fn busy(&self, from: u32) -> Option<u32> {
        self.busy.range(from..).next().copied()
    }

    /// Returns the edge whose turn it is, while the link may send.
    pub(super) fn turn(&mut self, now: Instant, at: u32) -> Option<EdgeId> {
        if self.next_send(at).is_some_and(|next| next > now) {
            return None;
        }
        let link = self.all.get_mut(at as usize)?;
        let waiting = link.waiting.get_mut(link.turns.front()?)?;
        if !core::mem::replace(&mut waiting.served, true) {
            waiting.deficit += QUANTUM;
        }
        waiting.edges.front().copied()
    }

    /// Takes `len` bytes from the turn of the present session. If it has fewer left, the turn passes to the next
    /// session.
    pub(super) fn afford(&mut self, at: u32, len: usize) -> bool {
        let Some(link) = self.all.get_mut(at as usize) else {
            return false;
        };
        let session = link.turns.front();
        let Some(waiting) = session.and_then(|session| link.waiting.get_mut(session)) else {
            return false;
        };
        if waiting.deficit < len {
            waiting.served = false;
            link.turns.rotate_left(1);
            return false;
        }
        waiting.deficit -= len;
        // The next packet of the session may belong to another flow.
        waiting.edges.rotate_left(1);
        true
    }

    /// Returns when the next waiting packet may be sent.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.busy.iter().filter_map(|&at| self.next_send(at)).min()
    }

    /// Returns whether there is a link to `peer` without a rate limit.
    pub(super) fn is_unbounded(&self, peer: PeerId) -> bool {
        let at = self.place_of(peer);
        at.is_some_and(|at| self.all[at].rate_bps == 0)
    }

    /// Returns whether a link has a rate limit.
    #[inline]
    pub(super) fn is_bounded(&self, at: u32) -> bool {
        self.all
            .get(at as usize)
            .is_some_and(|link| link.rate_bps > 0)
    }

    /// Returns when the next packet may be sent, `None` without a limit.
    #[inline]
    pub(super) fn next_send(&self, at: u32) -> Option<Instant> {
        let link = self.all.get(at as usize).filter(|link| link.rate_bps > 0)?;
        Some(link.busy_until - BURST)
    }

    /// Counts a packet of `len` bytes.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, at: u32, len: usize) {
        if let Some(link) = self
            .all
            .get_mut(at as usize)
            .filter(|link| link.rate_bps > 0)
        {
            let micros = (len as u64 * 8).saturating_mul(1_000_000) / link.rate_bps;
            link.busy_until = link.busy_until.max(now) + Duration::from_micros(micros);
        }
    }
}

impl Plane {
    /// Counts the age of a frame on arrival, for the link that it came over.
    #[cold]
    pub(super) fn count_age(&mut self, now: Instant, cursor: &Cursor) {
        if let Some(edge) = self.edges.get(cursor.from.entry.edge) {
            self.links.arrived(now, edge.link, &cursor.timing);
        }
    }

    /// Returns the links to peers that sessions use: one for each peer at most.
    pub fn links(&self) -> impl Iterator<Item = LinkStatus> + '_ {
        self.links.status()
    }
}

#[cfg(test)]
mod tests;
