//! TCP channels that are to be opened: now, or again after a failure.

use alloc::collections::BTreeMap;
use core::net::SocketAddr;

use proto_core::time::{Duration, Instant};

use super::edge::Edge;
use super::{EdgeId, Plane};

/// Dials requested between two calls of `handle_timeout`: a call takes the driver time, and heartbeats must not
/// wait for thousands of them.
const DIALS_PER_TIMEOUT: usize = 64;
/// A TCP channel that lasted this long has not failed.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Most doublings of the delay of one second after which a failed TCP channel is dialled again.
const MAX_BACKOFF: u8 = 4;

/// Paces the dials of a data node.
#[derive(Debug)]
pub(super) struct Dialer {
    /// Failed channels by the time of the next attempt.
    redial: BTreeMap<(Instant, EdgeId), SocketAddr>,
    /// Dials left until `handle_timeout` is called.
    allowance: usize,
}

impl Dialer {
    pub(super) fn new() -> Self {
        Dialer {
            redial: BTreeMap::new(),
            allowance: DIALS_PER_TIMEOUT,
        }
    }

    /// Schedules another attempt: one second after the first and the second failure in a row, then after twice as long
    /// each time, up to 16 seconds, until a channel has lasted for [`STABLE_AFTER`].
    pub(super) fn failed(&mut self, now: Instant, id: EdgeId, edge: &mut Edge, to: SocketAddr) {
        let rest = &mut edge.rest;
        if rest
            .dialled_at
            .take()
            .is_some_and(|at| at + STABLE_AFTER <= now)
        {
            rest.fails = 0;
        }
        let doublings = rest.fails.saturating_sub(1).min(MAX_BACKOFF);
        rest.fails = rest.fails.saturating_add(1);
        let at = now + Duration::from_secs(1 << doublings);
        self.redial.insert((at, id), to);
    }

    /// Renews the allowance, and moves attempts that are due to the plane's dials.
    pub(super) fn handle_timeout(&mut self, now: Instant, plane: &mut Plane) {
        self.allowance = DIALS_PER_TIMEOUT;
        while plane.dials.len() < DIALS_PER_TIMEOUT
            && let Some(first) = self
                .redial
                .first_entry()
                .filter(|first| first.key().0 <= now)
        {
            let ((_, edge), to) = first.remove_entry();
            plane.dials.push_back((edge, to));
        }
    }

    /// Returns the next channel to dial.
    pub(super) fn poll(&mut self, plane: &mut Plane) -> Option<(EdgeId, SocketAddr)> {
        while self.allowance > 0
            && let Some((edge, to)) = plane.dials.pop_front()
        {
            if plane.edge(edge).is_some() {
                self.allowance -= 1;
                return Some((edge, to));
            }
        }
        None
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.redial.first_key_value().map(|((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests;
