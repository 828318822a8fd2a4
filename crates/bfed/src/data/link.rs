//! The bound on what a link carries (§3.1).

use alloc::vec;
use alloc::vec::Vec;

use smoltcp::time::{Duration, Instant};

use crate::types::PeerId;

/// A tenth of a second may be sent at once.
const BURST: Duration = Duration::from_millis(100);

/// One link, which all edges to a peer share.
#[derive(Debug)]
struct Link {
    /// None at place 0, and where no edge is left.
    peer: Option<PeerId>,
    /// 0 if it has no bound.
    rate_bps: u64,
    /// When all that was sent has passed at that rate.
    busy_until: Instant,
    edges: u32,
}

/// Links by their place; at place 0 stands the native network, which has no bound.
#[derive(Debug)]
pub(super) struct Links(Vec<Link>);

impl Links {
    pub(super) fn new() -> Self {
        let native = Link {
            peer: None,
            rate_bps: 0,
            busy_until: Instant::ZERO,
            edges: 0,
        };
        Links(vec![native])
    }

    fn place_of(&self, peer: PeerId) -> Option<usize> {
        self.0.iter().position(|link| link.peer == Some(peer))
    }

    /// One more edge over the link to `peer`, which carries `rate_bps` at most; its place.
    pub(super) fn add(&mut self, now: Instant, peer: PeerId, rate_bps: u64) -> u32 {
        let known = self.place_of(peer);
        let free = || self.0.iter().skip(1).position(|link| link.peer.is_none());
        let at = known
            .or_else(|| free().map(|at| at + 1))
            .unwrap_or(self.0.len());
        if known.is_none() {
            let link = Link {
                peer: Some(peer),
                rate_bps,
                busy_until: now,
                edges: 0,
            };
            if at == self.0.len() {
                self.0.push(link);
            } else {
                self.0[at] = link;
            }
        }
        self.0[at].rate_bps = rate_bps;
        self.0[at].edges += 1;
        at as u32
    }

    /// One edge fewer.
    pub(super) fn remove(&mut self, at: u32) {
        if let Some(link) = self.0.get_mut(at as usize).filter(|_| at > 0) {
            link.edges -= 1;
            if link.edges == 0 {
                link.peer = None;
            }
        }
    }

    /// The link to `peer` has another bound from now on.
    pub(super) fn set_rate(&mut self, peer: PeerId, rate_bps: u64) {
        if let Some(at) = self.place_of(peer) {
            self.0[at].rate_bps = rate_bps;
        }
    }

    /// A link to `peer` is there, and has no bound.
    pub(super) fn is_unbounded(&self, peer: PeerId) -> bool {
        let at = self.place_of(peer);
        at.is_some_and(|at| self.0[at].rate_bps == 0)
    }

    /// Something bounds what the link at that place carries.
    #[inline]
    pub(super) fn is_bounded(&self, at: u32) -> bool {
        self.0
            .get(at as usize)
            .is_some_and(|link| link.rate_bps > 0)
    }

    /// When the next packet may go; at once where there is no bound.
    #[inline]
    pub(super) fn next_send(&self, at: u32) -> Option<Instant> {
        let link = self.0.get(at as usize).filter(|link| link.rate_bps > 0)?;
        Some(link.busy_until - BURST)
    }

    /// A packet of so many bytes goes.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, at: u32, len: usize) {
        if let Some(link) = self.0.get_mut(at as usize).filter(|link| link.rate_bps > 0) {
            let micros = (len as u64 * 8).saturating_mul(1_000_000) / link.rate_bps;
            link.busy_until = link.busy_until.max(now) + Duration::from_micros(micros);
        }
    }
}
