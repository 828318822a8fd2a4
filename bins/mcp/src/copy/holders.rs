//! Finds hosts that acknowledge nothing. All hosts receive the data in step, so each of them stops all.
//!
//! | a receiver | is | and then |
//! | --- | --- | --- |
//! | has acknowledged nothing for [`NAMED`] while data is on its way to it | silent | it is named |
//! | has done so for [`GIVEN_UP`], and another host has not | stuck | it fails, and is tried again when the others are done |
//!
//! A receiver that is still connecting is named as well, but its connection ends the attempt, and knows why.

use std::time::{Duration, Instant};

/// Interval of the checks.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// Interval in the first [`START`] of the data: slow start shows for a few moments what the links carry.
pub(super) const START_LOOK: Duration = Duration::from_millis(20);
pub(super) const START: Duration = Duration::from_secs(1);
/// Time without acknowledgement after which a host is named.
const NAMED: Duration = Duration::from_secs(2);
/// Time without acknowledgement after which a host no longer delays the others.
const GIVEN_UP: Duration = Duration::from_secs(5);

/// State of one receiver of the data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Bytes that it has acknowledged.
    pub(crate) acknowledged: u64,
    /// Its connection is not open yet.
    pub(crate) is_connecting: bool,
    /// Data, or the attempt to connect, is unacknowledged.
    pub(crate) is_due: bool,
    /// It accepts nothing more before it acknowledges something.
    pub(crate) is_full: bool,
    /// Bytes that may be on their way to it: the lower of its window and its congestion window.
    pub(crate) window: u64,
    /// Smoothed, once measured.
    pub(crate) round_trip: Option<Duration>,
    /// Each byte is sent to it by unicast, by multicast, or both.
    pub(crate) is_unicast: bool,
    pub(crate) is_multicast: bool,
    /// Data is sent to it and to the others at the same time.
    pub(crate) in_step: bool,
}

/// The reason why the others wait for a receiver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Finding {
    /// It has acknowledged nothing for this long.
    Silent(Duration),
    /// As [`Finding::Silent`], for long enough to fail until the next round.
    Stuck(Duration),
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    is_connecting: bool,
    acknowledged: u64,
    /// The time of the last change, or when it had nothing to acknowledge.
    moved: Instant,
    /// It was named since then.
    named: bool,
}

/// Observations of the receivers of one data connection.
#[derive(Debug)]
pub(super) struct Holders {
    seen: Vec<Option<Seen>>,
}

impl Holders {
    pub(super) fn new(receivers: usize) -> Holders {
        Holders {
            seen: vec![None; receivers],
        }
    }

    /// Checks the receivers, `None` for those that have ended. Returns what to report.
    pub(super) fn look(&mut self, now: Instant, all: &[Option<Reach>]) -> Vec<(usize, Finding)> {
        for (seen, reach) in self.seen.iter_mut().zip(all) {
            *seen = reach.map(|reach| update(*seen, reach, now));
        }
        self.silent(now, all)
    }

    fn silent(&mut self, now: Instant, all: &[Option<Reach>]) -> Vec<(usize, Finding)> {
        let for_long = |seen: &Option<Seen>, limit| seen.is_some_and(|s| now - s.moved >= limit);
        // A network that is down for all hosts is no reason to fail one.
        let anybody_else = self.seen.iter().flatten().any(|s| now - s.moved < NAMED);
        let mut found = Vec::new();
        for (receiver, reach) in all.iter().enumerate() {
            if !reach.is_some_and(|reach| reach.in_step) {
                continue;
            }
            let seen = &mut self.seen[receiver];
            let for_too_long = anybody_else && for_long(seen, GIVEN_UP);
            let named = for_long(seen, NAMED);
            if let Some(seen) = seen {
                let stuck = for_too_long && !seen.is_connecting;
                let silent = now - seen.moved;
                if stuck {
                    found.push((receiver, Finding::Stuck(silent)));
                } else if named && !std::mem::replace(&mut seen.named, true) {
                    found.push((receiver, Finding::Silent(silent)));
                }
            }
        }
        found
    }
}

fn update(seen: Option<Seen>, reach: Reach, now: Instant) -> Seen {
    let mut seen = seen.unwrap_or(Seen {
        is_connecting: reach.is_connecting,
        acknowledged: reach.acknowledged,
        moved: now,
        named: false,
    });
    let has_connected = seen.is_connecting && !reach.is_connecting;
    seen.is_connecting = reach.is_connecting;
    if has_connected || reach.acknowledged != seen.acknowledged || !reach.is_due {
        seen.acknowledged = reach.acknowledged;
        seen.moved = now;
        seen.named = false;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the checks for `millis`; returns the findings with their times.
    fn run(
        holders: &mut Holders,
        began: Instant,
        millis: std::ops::Range<u64>,
        reach: impl Fn(usize, u64) -> Reach,
    ) -> Vec<(u64, usize, Finding)> {
        let mut found = Vec::new();
        for at in millis.step_by(100) {
            let all: Vec<_> = (0..3).map(|n| Some(reach(n, at))).collect();
            let now = began + Duration::from_millis(at);
            let found_now = holders.look(now, &all);
            found.extend(found_now.into_iter().map(|(n, finding)| (at, n, finding)));
        }
        found
    }

    fn fine(at: u64) -> Reach {
        Reach {
            acknowledged: at * 1000,
            is_connecting: false,
            is_due: true,
            is_full: false,
            window: 100_000,
            round_trip: Some(Duration::from_millis(10)),
            is_unicast: false,
            is_multicast: true,
            in_step: true,
        }
    }

    #[test]
    fn a_silent_receiver_is_named_and_then_given_up() {
        let began = Instant::now();
        let mut holders = Holders::new(3);
        let found = run(&mut holders, began, 0..5100, |n, at| match n {
            1 => Reach {
                acknowledged: 0,
                ..fine(0)
            },
            // Nothing is left to send to it.
            2 => Reach {
                is_due: false,
                ..fine(0)
            },
            _ => fine(at),
        });
        let named = Finding::Silent(Duration::from_secs(2));
        let stuck = Finding::Stuck(Duration::from_secs(5));
        assert_eq!(found, [(2000, 1, named), (5000, 1, stuck)]);
    }

    #[test]
    fn a_receiver_that_is_connecting_is_left_to_its_connection() {
        let mut holders = Holders::new(3);
        let found = run(&mut holders, Instant::now(), 0..9_100, |n, at| match n {
            1 => Reach {
                is_connecting: at < 6_000,
                acknowledged: 0,
                ..fine(0)
            },
            _ => fine(at),
        });
        let named = Finding::Silent(Duration::from_secs(2));
        assert_eq!(found, [(2000, 1, named), (8000, 1, named)]);
    }

    #[test]
    fn no_receiver_fails_where_all_are_silent_or_it_is_alone() {
        let began = Instant::now();
        let mut holders = Holders::new(3);
        let found = run(&mut holders, began, 0..20_000, |_, _| fine(0));
        assert!(
            found
                .iter()
                .all(|(_, _, f)| matches!(f, Finding::Silent(_)))
        );
        let mut holders = Holders::new(1);
        for at in 0..200 {
            let now = began + Duration::from_millis(at * 100);
            let found = holders.look(now, &[Some(fine(0))]);
            assert!(!found.iter().any(|(_, f)| matches!(f, Finding::Stuck(_))));
        }
    }

    #[test]
    fn detached_receivers_do_not_delay_others() {
        let began = Instant::now();
        let mut holders = Holders::new(3);
        let found = run(&mut holders, began, 0..20_000, |n, at| Reach {
            acknowledged: if n == 1 { 0 } else { at },
            is_full: true,
            in_step: false,
            ..fine(0)
        });
        assert_eq!(found, []);
    }
}
