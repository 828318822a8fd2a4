//! Finds the host that limits the rate of the data, and decides whether it is served separately
//! (`docs/decisions/0025-min-rate-auto.md`).
//!
//! Twenty times a second (fifty times in the first) the windows of all receivers in step are sampled. A window divided by the round-trip time is
//! what a path takes: of the host that limits the rate it is what its link or its disk takes, of the others an upper
//! estimate of what they could take. Over the last [`WINDOW`] (eight round trips, if those are longer):
//!
//! | figure | of the host that limits | of each of the others |
//! | --- | --- | --- |
//! | window used up | in at least half of the samples | |
//! | acknowledges | something in the second half of the period, and two thirds of what it takes | |
//! | what it takes | the most of all samples: one lost packet does not lower it | the median |
//!
//! The host is named where the others could take [`NAMED`] hundredths of its rate. It is served separately where they
//! could take twice its rate, where that saves time ([`WORTH`]), and where the link of this host has carried already
//! what the copies for the others and the separate one will need at the present rate: the others are not slower for it.
//! A host that multicast does not reach has a copy of its own already, and [`NAMED`] is enough.
//!
//! A host that lies about its own state changes its own figures alone. The others count by the lowest of their
//! figures, so none of them is made to look slow, or the others fast, by a lie of another.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Reach;

/// Period of the samples that count.
const WINDOW: Duration = Duration::from_millis(300);
/// The longest period, for paths with long round trips.
const MAX_WINDOW: Duration = Duration::from_secs(3);
/// Round trips that the period has at least, of the longest path without queues.
const ROUND_TRIPS: u32 = 8;
/// Time after the first acknowledgement of a receiver in which its round-trip time is not known well.
const SETTLE: Duration = Duration::from_millis(200);
/// Fewest samples of a period.
const MIN_SAMPLES: usize = 6;
/// Samples that are kept of a receiver.
const MAX_SAMPLES: usize = 128;
/// A host is named when the others could take this multiple of its rate, in hundredths. A host that unicast serves
/// anyway is served separately from then on: it costs no other copy.
const NAMED: u64 = 125;
/// As [`NAMED`], for a separate copy to a host that multicast serves.
const SEPARATE: u64 = 200;
/// How long the copy would still take at the present rate for a separate copy to be worth it.
const WORTH: Duration = Duration::from_secs(1);
/// Shortest round-trip time that counts: measurements are no finer than the delays of two hosts.
pub(crate) const MIN_ROUND_TRIP: Duration = Duration::from_millis(1);

/// The receiver that limits the rate of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) receiver: usize,
    /// Bits of data per second that it takes.
    pub(crate) rate_bps: u64,
    /// Upper estimate of what all of the others could take.
    pub(crate) others_bps: u64,
    /// The others finish sooner when it is served separately.
    pub(crate) is_worth_separating: bool,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    takes_bps: u64,
    is_full: bool,
    acknowledged: u64,
}

/// Samples of one receiver.
#[derive(Debug, Default)]
struct Path {
    began: Option<Instant>,
    acknowledged: u64,
    samples: VecDeque<Sample>,
    /// Smoothed rate of a receiver that is served separately.
    separate_bps: u64,
    /// The shortest round-trip time: without queues.
    shortest: Option<Duration>,
    is_unicast: bool,
    is_multicast: bool,
}

/// Samples of the receivers of one data connection.
#[derive(Debug)]
pub(crate) struct Limiting {
    paths: Vec<Path>,
    looked: Option<Instant>,
    /// Bytes that this host had sent at the look before the last one, and at the last.
    sent: [u64; 2],
    /// The most that this host's link has carried between two looks, bits per second of all copies.
    carried_bps: u64,
    current: Option<Limit>,
}

impl Limiting {
    pub(crate) fn new(receivers: usize) -> Limiting {
        Limiting {
            paths: (0..receivers).map(|_| Path::default()).collect(),
            looked: None,
            sent: [0; 2],
            carried_bps: 0,
            current: None,
        }
    }

    /// Returns the receiver that limits the rate now.
    pub(crate) fn current(&self) -> Option<Limit> {
        self.current
    }

    /// Forgets all samples: a receiver has left the others, and each of them may take more now.
    pub(crate) fn restart(&mut self) {
        for path in &mut self.paths {
            path.samples.clear();
        }
        self.current = None;
    }

    /// Samples the receivers, `None` for those that have ended. `stream_len`: bytes that all of them get;
    /// `sent`: those that this host has sent in all copies.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        all: &[Option<Reach>],
        stream_len: u64,
        sent: u64,
    ) -> Option<Limit> {
        self.count_carried(now, all, sent);
        for (path, reach) in self.paths.iter_mut().zip(all) {
            path.sample(now, *reach);
        }
        self.current = self.find(now, stream_len);
        self.current
    }

    /// Measures what the link has carried: what each receiver has acknowledged that had a copy of its own, and what
    /// the most advanced of the others has. Receivers may have changed to multicast meanwhile: it is no more than was
    /// sent since the look before the last one.
    fn count_carried(&mut self, now: Instant, all: &[Option<Reach>], sent: u64) {
        let [before, last] = self.sent;
        self.sent = [last, sent];
        let Some(since) = self.looked.replace(now) else {
            self.sent = [sent; 2];
            return;
        };
        let (mut alone, mut together) = (0u64, 0);
        for (path, reach) in self.paths.iter_mut().zip(all) {
            let Some(reach) = reach else { continue };
            let progress = reach.acknowledged.saturating_sub(path.acknowledged);
            if reach.is_unicast || path.is_unicast {
                alone += progress;
            } else {
                together = progress.max(together);
            }
            if !reach.in_step {
                let fresh = per_second(progress, now - since);
                path.separate_bps = match path.separate_bps {
                    0 => fresh,
                    before => before / 8 * 7 + fresh / 8,
                };
            }
        }
        let carried = (alone + together).min(sent.saturating_sub(before));
        self.carried_bps = self.carried_bps.max(per_second(carried, now - since));
    }

    fn find(&self, now: Instant, stream_len: u64) -> Option<Limit> {
        let in_step = || {
            self.paths
                .iter()
                .enumerate()
                .filter(|(_, p)| p.began.is_some())
        };
        let longest = in_step().filter_map(|(_, path)| path.shortest).max()?;
        let window = (longest * ROUND_TRIPS).clamp(WINDOW, MAX_WINDOW);
        if !in_step().all(|(_, path)| path.covers(now, window)) {
            return None;
        }
        let (receiver, path) = in_step().min_by_key(|(_, path)| path.most(now, window))?;
        let others = || in_step().filter(|&(at, _)| at != receiver).map(|(_, p)| p);
        let others_bps = others().map(|path| path.median(now, window)).min()?;
        let rate_bps = path.most(now, window).max(1);
        if others_bps.saturating_mul(100) < rate_bps.saturating_mul(NAMED)
            || !path.is_mostly_full(now, window)
            || !path.advances(now, window)
            || rate_bps.saturating_mul(2) > path.advance_bps(now, window).saturating_mul(3)
        {
            return None;
        }
        let left = stream_len.saturating_sub(path.acknowledged);
        let separate: u64 = self.paths.iter().map(|path| path.separate_bps).sum();
        let load = |copies: u64| rate_bps.saturating_mul(copies).saturating_add(separate);
        let needed = load(copies(others()) + 1);
        let present = load(copies(in_step().map(|(_, path)| path)));
        let times = if path.is_unicast { NAMED } else { SEPARATE };
        let is_worth_separating = others_bps.saturating_mul(100) >= rate_bps.saturating_mul(times)
            && left.saturating_mul(8) / rate_bps >= WORTH.as_secs()
            && needed <= self.carried_bps.max(present);
        Some(Limit {
            receiver,
            rate_bps,
            others_bps,
            is_worth_separating,
        })
    }
}

impl Path {
    fn sample(&mut self, now: Instant, reach: Option<Reach>) {
        let Some(reach) = reach else {
            *self = Path::default();
            return;
        };
        if !reach.in_step {
            *self = Path {
                acknowledged: reach.acknowledged,
                separate_bps: self.separate_bps,
                ..Path::default()
            };
            return;
        }
        self.is_unicast = reach.is_unicast;
        self.is_multicast = reach.is_multicast;
        self.acknowledged = reach.acknowledged;
        if reach.acknowledged == 0 {
            return;
        }
        let began = *self.began.get_or_insert(now);
        self.shortest = self.shortest.into_iter().chain(reach.round_trip).min();
        let Some(round_trip) = reach.round_trip.filter(|_| now - began >= SETTLE) else {
            return;
        };
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        let round_trip = round_trip.max(MIN_ROUND_TRIP);
        self.samples.push_back(Sample {
            at: now,
            takes_bps: per_second(reach.window, round_trip),
            is_full: reach.is_full,
            acknowledged: reach.acknowledged,
        });
    }

    fn within(&self, now: Instant, window: Duration) -> impl Iterator<Item = &Sample> {
        let samples = self.samples.iter().rev();
        samples.take_while(move |sample| now - sample.at <= window)
    }

    /// Whether the samples go back to the start of the period.
    fn covers(&self, now: Instant, window: Duration) -> bool {
        let oldest = self.samples.front();
        oldest.is_some_and(|oldest| now - oldest.at >= window)
            && self.within(now, window).count() >= MIN_SAMPLES
    }

    fn most(&self, now: Instant, window: Duration) -> u64 {
        let takes = self.within(now, window).map(|sample| sample.takes_bps);
        takes.max().unwrap_or(0)
    }

    fn median(&self, now: Instant, window: Duration) -> u64 {
        let takes = self.within(now, window).map(|sample| sample.takes_bps);
        let mut takes: Vec<u64> = takes.collect();
        takes.sort_unstable();
        takes.get(takes.len() / 2).copied().unwrap_or(0)
    }

    /// Whether it has acknowledged something in the second half of the period: a silent host is no slow one.
    fn advances(&self, now: Instant, window: Duration) -> bool {
        let oldest = self.within(now, window / 2).last();
        oldest.is_some_and(|oldest| self.acknowledged > oldest.acknowledged)
    }

    /// Returns the rate at which it has acknowledged data. What limits the rate takes about that.
    fn advance_bps(&self, now: Instant, window: Duration) -> u64 {
        let oldest = self.within(now, window).last();
        oldest.map_or(0, |oldest| {
            let progress = self.acknowledged.saturating_sub(oldest.acknowledged);
            per_second(progress, now - oldest.at)
        })
    }

    fn is_mostly_full(&self, now: Instant, window: Duration) -> bool {
        let full = self.within(now, window).filter(|sample| sample.is_full);
        full.count() * 2 >= self.within(now, window).count()
    }
}

/// Returns how many copies of the data these receivers need: one for each that needs unicast, and one for all that
/// multicast reaches.
fn copies<'p>(paths: impl Iterator<Item = &'p Path>) -> u64 {
    let (mut unicast, mut multicast) = (0, false);
    for path in paths {
        unicast += u64::from(path.is_unicast);
        multicast |= path.is_multicast;
    }
    unicast + u64::from(multicast)
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    let us = time.as_micros().max(1);
    u64::try_from(u128::from(bytes) * 8_000_000 / us).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 100_000_000;
    const LOOK_MS: u64 = 50;

    /// A receiver that multicast serves, with a path of 10 ms that takes this much, of which the group uses `rate`.
    fn path(takes_bps: u64, rate: u64, at_ms: u64) -> Reach {
        Reach {
            acknowledged: rate / 8 * at_ms / 1000 + 1,
            is_connecting: false,
            is_due: true,
            is_full: takes_bps <= rate,
            in_step: true,
            window: takes_bps / 8 / 100,
            round_trip: Some(Duration::from_millis(10)),
            is_unicast: false,
            is_multicast: true,
        }
    }

    /// Looks until `millis`; returns the last result, and when a separation was first worth it.
    fn run(
        limiting: &mut Limiting,
        millis: u64,
        reach: impl Fn(u64) -> Vec<Option<Reach>>,
    ) -> (Option<Limit>, Option<u64>) {
        let (began, mut worth, mut last) = (Instant::now(), None, None);
        for at in (0..millis).step_by(LOOK_MS as usize) {
            let now = began + Duration::from_millis(at);
            last = limiting.look(now, &reach(at), LEN, at * 1_000_000);
            if last.is_some_and(|limit| limit.is_worth_separating) {
                worth = worth.or(Some(at));
            }
        }
        (last, worth)
    }

    /// The link carries this for a moment at first.
    fn burst(limiting: &mut Limiting, bps: u64) {
        limiting.carried_bps = bps;
    }

    const SLOW: u64 = 5_000_000;
    const FAST: u64 = 90_000_000;

    fn one_slow(at: u64) -> Vec<Option<Reach>> {
        [FAST, SLOW, FAST]
            .map(|takes| Some(path(takes, SLOW, at)))
            .to_vec()
    }

    #[test]
    fn a_host_below_half_is_found_after_the_first_moments() {
        let mut limiting = Limiting::new(3);
        burst(&mut limiting, 2 * SLOW);
        let (last, worth) = run(&mut limiting, 3000, one_slow);
        let limit = last.expect("one limits");
        assert_eq!(
            (limit.receiver, limit.rate_bps, limit.others_bps),
            (1, SLOW, FAST)
        );
        let earliest = (SETTLE + WINDOW).as_millis() as u64;
        let worth = worth.expect("worth it");
        assert!((earliest..earliest + 200).contains(&worth), "{worth} ms");
    }

    #[test]
    fn a_host_that_acknowledges_much_less_than_it_could_take_limits_nothing() {
        for (takes, limits) in [(SLOW * 14 / 10, true), (SLOW * 2, false)] {
            let narrow = |at| Reach {
                is_full: true,
                ..path(takes, SLOW, at)
            };
            let mut limiting = Limiting::new(2);
            let all = |at| vec![Some(narrow(at)), Some(path(FAST, SLOW, at))];
            let (last, _) = run(&mut limiting, 3000, all);
            assert_eq!(last.is_some(), limits, "{takes}");
        }
    }

    #[test]
    fn a_copy_more_needs_a_link_that_has_carried_it() {
        let mut limiting = Limiting::new(3);
        let (last, worth) = run(&mut limiting, 3000, one_slow);
        assert_eq!(worth, None, "the link has carried one copy at most");
        assert!(last.is_some(), "it is named all the same");
        // Where unicast serves it, it has that copy already.
        let unicast = |at| {
            let mut all = one_slow(at);
            for reach in all.iter_mut().flatten().skip(1).take(1) {
                (reach.is_unicast, reach.is_multicast) = (true, false);
            }
            all
        };
        let mut limiting = Limiting::new(3);
        assert!(run(&mut limiting, 3000, unicast).1.is_some());
    }

    #[test]
    fn the_link_has_carried_what_was_sent_and_acknowledged() {
        let unicast = |at_ms| Reach {
            is_unicast: true,
            ..path(FAST, SLOW, at_ms)
        };
        let began = Instant::now();
        let carried = |sent: u64, multicast_from: u64| {
            let mut limiting = Limiting::new(2);
            for at in (0..200).step_by(50) {
                let reach = if at >= multicast_from {
                    path(FAST, SLOW, at)
                } else {
                    unicast(at)
                };
                let now = began + Duration::from_millis(at);
                limiting.look(now, &[Some(reach); 2], LEN, sent * at);
            }
            // In tenths of SLOW: bytes of a millisecond are whole.
            (limiting.carried_bps * 10 + SLOW / 2) / SLOW
        };
        assert_eq!(carried(1_000_000, 1000), 20, "two copies");
        assert_eq!(carried(1_000_000, 0), 10, "one");
        // Unicast at the start of a period: no more than was sent then and before.
        assert_eq!(carried(1_000_000, 150), 20);
        assert_eq!(carried(SLOW / 8 / 4000, 1000), 5);
    }

    #[test]
    fn what_separate_hosts_take_counts_as_load() {
        let with_separate = |at| {
            let mut all = one_slow(at);
            all.push(Some(Reach {
                in_step: false,
                is_unicast: true,
                is_multicast: false,
                ..path(8 * SLOW, 8 * SLOW, at)
            }));
            all
        };
        let mut limiting = Limiting::new(4);
        burst(&mut limiting, 9 * SLOW);
        assert_eq!(run(&mut limiting, 5000, with_separate).1, None);
        let mut limiting = Limiting::new(4);
        burst(&mut limiting, 11 * SLOW);
        assert!(run(&mut limiting, 5000, with_separate).1.is_some());
    }

    #[test]
    fn a_bottleneck_that_all_share_is_no_host_s() {
        let mut limiting = Limiting::new(3);
        burst(&mut limiting, 10 * FAST);
        let (last, worth) = run(&mut limiting, 3000, |at| {
            vec![Some(path(SLOW, SLOW, at)); 3]
        });
        assert_eq!((last, worth), (None, None));
    }

    #[test]
    fn a_host_above_half_is_named_and_stays() {
        let mut limiting = Limiting::new(3);
        burst(&mut limiting, 10 * FAST);
        let rate = FAST * 6 / 10;
        let (last, worth) = run(&mut limiting, 3000, |at| {
            [FAST, rate, FAST]
                .map(|takes| Some(path(takes, rate, at)))
                .to_vec()
        });
        assert_eq!(worth, None);
        assert_eq!(last.map(|limit| limit.receiver), Some(1));
    }

    #[test]
    fn the_only_host_and_the_last_in_step_are_never_found() {
        for others in [None, Some(false)] {
            let mut limiting = Limiting::new(2);
            burst(&mut limiting, 10 * FAST);
            let (last, _) = run(&mut limiting, 3000, |at| {
                let other = others.map(|in_step| Reach {
                    in_step,
                    ..path(FAST, FAST, at)
                });
                vec![Some(path(SLOW, SLOW, at)), other]
            });
            assert_eq!(last, None, "{others:?}");
        }
    }

    #[test]
    fn one_loss_and_the_pause_after_it_are_no_evidence() {
        for (reduced, for_ms) in [(FAST / 2, 200), (FAST / 20, 250)] {
            let mut limiting = Limiting::new(3);
            burst(&mut limiting, 10 * FAST);
            let (_, worth) = run(&mut limiting, 5000, |at| {
                let hit = (2000..2000 + for_ms).contains(&at);
                let takes = if hit { reduced } else { FAST };
                [FAST, takes, FAST]
                    .map(|takes| Some(path(takes, takes.min(FAST), at)))
                    .to_vec()
            });
            assert_eq!(worth, None, "{reduced} for {for_ms} ms");
        }
    }

    #[test]
    fn the_end_of_a_copy_is_not_worth_a_separation() {
        let mut limiting = Limiting::new(3);
        burst(&mut limiting, 10 * FAST);
        let (_, worth) = run(&mut limiting, 3000, |at| {
            let mut all = one_slow(at);
            for reach in all.iter_mut().flatten() {
                reach.acknowledged = LEN - SLOW / 8 / 2 - (3000 - at);
            }
            all
        });
        assert_eq!(worth, None);
    }

    #[test]
    fn a_silent_host_is_not_slow() {
        let mut limiting = Limiting::new(3);
        burst(&mut limiting, 10 * FAST);
        let (last, worth) = run(&mut limiting, 3000, |at| {
            let mut all = one_slow(at);
            for reach in all.iter_mut().flatten() {
                reach.acknowledged = 1;
            }
            all
        });
        assert_eq!((last, worth), (None, None));
    }

    /// It claims a window without end, or none: neither makes another host look slow.
    #[test]
    fn a_host_that_lies_gets_no_other_separated() {
        for claims in [1, 1000 * FAST] {
            let mut limiting = Limiting::new(3);
            burst(&mut limiting, 10 * FAST);
            let (last, _) = run(&mut limiting, 5000, |at| {
                let mut all = vec![Some(path(FAST, FAST, at)); 3];
                all[2] = Some(path(claims, FAST, at));
                all
            });
            assert!(last.is_none_or(|limit| limit.receiver == 2), "{last:?}");
        }
        // A slow host counts against the slowest of the others, whatever one of them claims.
        let mut limiting = Limiting::new(3);
        burst(&mut limiting, 10 * FAST);
        let (_, worth) = run(&mut limiting, 5000, |at| {
            [SLOW, SLOW * 3 / 2, 1000 * FAST]
                .map(|takes| Some(path(takes, SLOW, at)))
                .to_vec()
        });
        assert_eq!(worth, None);
    }

    #[test]
    fn samples_are_bounded_and_forgotten_when_a_host_leaves() {
        let mut limiting = Limiting::new(3);
        burst(&mut limiting, 2 * SLOW);
        run(&mut limiting, 30_000, one_slow);
        let most = limiting.paths.iter().map(|path| path.samples.len()).max();
        assert_eq!(most, Some(MAX_SAMPLES));
        limiting.restart();
        assert_eq!(limiting.current(), None);
        assert!(limiting.paths.iter().all(|path| path.samples.is_empty()));
    }
}
