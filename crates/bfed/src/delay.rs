//! The delay of a link, measured by echoes and made fit for routing: smoothed, damped and bounded (compare RFC 8570
//! sections 5 and 6, and RFC 9616 section 4).
//!
//! The lowest of the last [`WINDOW`] round trips counts. It is the delay of the path without the queues on it, so the
//! traffic that a cost attracts does not change that cost. Half of it, within [`MIN_COST`] and [`MAX_COST`], is the
//! measured cost. It replaces the cost in use if it differs enough and the cost in use is old enough:
//!
//! | | |
//! | --- | --- |
//! | difference | more than a quarter of the cost in use, and more than [`MIN_CHANGE_US`] |
//! | time since the last change | at least [`MIN_HOLD`] after the first change; doubles with each further one up to [`MAX_HOLD`], and starts again after eight such times without a change |
//!
//! With the default [`Damping`](crate::routing::Damping), a link that changes as often as this allows costs a route
//! at most 2,500 of the 6,000 points at which a neighbour suppresses it.

use proto_core::time::{Duration, Instant};

use crate::types::Cost;

/// Time between two echoes.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);
/// Round trips that are compared.
pub(crate) const WINDOW: usize = 12;
/// Round trips without which a new session changes no cost. They are measured without a pause.
pub(crate) const FIRST: usize = 3;
/// Longest round trip that is told from a longer one; an echo that is not answered counts as this.
pub(crate) const MAX_ROUND_TRIP: Duration = Duration::from_secs(2);
/// Lowest measured cost, in microseconds: below it, the scheduling of the two processes decides.
pub(crate) const MIN_COST: Cost = Cost(1_000);
/// Highest measured cost, in microseconds: half of [`MAX_ROUND_TRIP`].
pub(crate) const MAX_COST: Cost = Cost(1_000_000);
/// Cost of a link that is to be measured, and has not been, in microseconds.
pub(crate) const UNMEASURED: Cost = Cost(100_000);
/// Changes up to this are ignored, in microseconds.
pub(crate) const MIN_CHANGE_US: u32 = 2_000;
/// Shortest time between two changes of the cost.
pub(crate) const MIN_HOLD: Duration = Duration::from_secs(60);
/// Longest time for which a changed cost is kept.
pub(crate) const MAX_HOLD: Duration = Duration::from_secs(16 * 60);

/// Number of such times without a change after which the next starts with [`MIN_HOLD`] again.
const QUIET: u32 = 8;

/// The measured delay of a link, as it is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkDelay {
    /// Last round trip between the control nodes; `None` before the first.
    pub round_trip: Option<Duration>,
    /// Cost in use in the tables for latency, in microseconds; `None` before the first measurement.
    pub cost: Option<Cost>,
}

/// Turns round trips into a cost.
#[derive(Debug, Default)]
pub(crate) struct Estimator {
    /// Round trips of this session: a ring of which the first `min(taken, WINDOW)` are set.
    samples: [Duration; WINDOW],
    taken: usize,
    shown: LinkDelay,
    /// When the cost changed last, and how long it is kept.
    changed: Option<(Instant, Duration)>,
}

impl Estimator {
    /// Forgets the round trips of the last session. The cost stays in use: a session that breaks and returns changes
    /// no routes and shortens no time between changes.
    pub(crate) fn restart(&mut self) {
        self.taken = 0;
    }

    /// Returns whether a new session needs more round trips before its cost counts.
    pub(crate) fn is_starting(&self) -> bool {
        self.taken < FIRST
    }

    /// Returns what is shown.
    pub(crate) fn shown(&self) -> LinkDelay {
        self.shown
    }

    /// Takes a round trip. Returns the new cost if it has changed.
    pub(crate) fn take(&mut self, now: Instant, round_trip: Duration) -> Option<Cost> {
        let round_trip = round_trip.min(MAX_ROUND_TRIP);
        self.shown.round_trip = Some(round_trip);
        self.samples[self.taken % WINDOW] = round_trip;
        // Stays in a range in which it keeps its place in the ring.
        self.taken = if self.taken + 1 == 2 * WINDOW {
            WINDOW
        } else {
            self.taken + 1
        };
        if self.is_starting() {
            return None;
        }
        let lowest = self.samples.iter().take(self.taken).min()?;
        let half_us = u32::try_from(lowest.total_micros() / 2).unwrap_or(MAX_COST.0);
        let cost = Cost(half_us).clamp(MIN_COST, MAX_COST);
        if !self.replaces(now, cost) {
            return None;
        }
        let hold = match self.changed {
            Some((at, hold)) if now < at + hold * QUIET => (hold * 2).min(MAX_HOLD),
            _ => MIN_HOLD,
        };
        self.changed = Some((now, hold));
        self.shown.cost = Some(cost);
        Some(cost)
    }

    /// Returns whether a measured cost replaces the one in use.
    fn replaces(&self, now: Instant, cost: Cost) -> bool {
        let Some(used) = self.shown.cost else {
            return true;
        };
        let is_kept = self.changed.is_some_and(|(at, hold)| now < at + hold);
        !is_kept && cost.0.abs_diff(used.0) > (used.0 / 4).max(MIN_CHANGE_US)
    }
}

#[cfg(test)]
mod tests;
