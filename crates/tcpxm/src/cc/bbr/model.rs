//! The model of the path: the bandwidth, the shortest round trip, the aggregation of acknowledgements
//! (draft-ietf-ccwg-bbr-03 §5.5).

use proto_core::time::{Duration, Instant};

use super::rate::{Delivery, Sample, per_second};

/// MinRTTFilterLen.
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);
/// ProbeRTTInterval.
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// Half of ExtraAckedFilterLen, in round trips.
const EXTRA_ACKED_ROUNDS: u64 = 5;

/// Round trips, counted by data (§5.5.1).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Rounds {
    next_delivered: u64,
    pub(super) count: u64,
    /// The present acknowledgement begins a round.
    pub(super) started: bool,
}

impl Rounds {
    pub(super) fn update(&mut self, sample: &Sample, delivered: u64) {
        self.started = sample.prior_delivered >= self.next_delivered;
        if self.started {
            self.next_delivered = delivered;
            self.count += 1;
        }
    }

    /// The next round ends when data sent from now on arrives.
    pub(super) fn restart(&mut self, delivered: u64) {
        self.next_delivered = delivered;
    }
}

/// The largest rate of the present probing cycle and the one before, in bytes a second (§5.5.5).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct MaxBandwidth([u64; 2]);

impl MaxBandwidth {
    pub(super) fn get(&self) -> u64 {
        self.0[0].max(self.0[1])
    }

    pub(super) fn update(&mut self, sample: &Sample) {
        if sample.rate >= self.get() || !sample.app_limited {
            self.0[1] = self.0[1].max(sample.rate);
        }
    }

    /// A cycle is over.
    pub(super) fn advance(&mut self) {
        if self.0[1] > 0 {
            self.0 = [self.0[1], 0];
        }
    }
}

/// The shortest round trip (§5.5.7).
#[derive(Clone, Copy, Debug)]
pub(super) struct MinRtt {
    value: Duration,
    stamp: Instant,
    /// The shortest one since the last ProbeRTT.
    recent: Duration,
    pub(super) recent_stamp: Instant,
    /// No sample was as short as that for [`PROBE_RTT_INTERVAL`].
    pub(super) expired: bool,
}

impl MinRtt {
    pub(super) fn new() -> Self {
        Self {
            value: Duration::MAX,
            stamp: Instant::ZERO,
            recent: Duration::MAX,
            recent_stamp: Instant::ZERO,
            expired: false,
        }
    }

    pub(super) fn get(&self) -> Option<Duration> {
        (self.value < Duration::MAX).then_some(self.value)
    }

    pub(super) fn update(&mut self, now: Instant, rtt: Option<Duration>) {
        let known = self.recent < Duration::MAX;
        self.expired = known && now > self.recent_stamp + PROBE_RTT_INTERVAL;
        if let Some(rtt) = rtt
            && (rtt < self.recent || self.expired)
        {
            self.recent = rtt.max(Duration::from_micros(1));
            self.recent_stamp = now;
        }
        let old = now > self.stamp + MIN_RTT_FILTER;
        if self.recent < self.value || (old && known) {
            self.value = self.recent;
            self.stamp = self.recent_stamp;
        }
    }
}

/// How much more than the bandwidth says is acknowledged at once (§5.5.9).
#[derive(Clone, Copy, Debug)]
pub(super) struct Aggregation {
    since: Instant,
    delivered: u64,
    /// Largest of the present half of the filter's rounds, and of the one before.
    most: [u64; 2],
    round: u64,
}

impl Aggregation {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::ZERO,
            delivered: 0,
            most: [0; 2],
            round: 0,
        }
    }

    pub(super) fn get(&self) -> u64 {
        self.most[0].max(self.most[1])
    }

    pub(super) fn update(&mut self, ack: &Delivery, bandwidth: u64, window: u64, round: u64) {
        if round >= self.round + EXTRA_ACKED_ROUNDS {
            self.most = [0, self.most[0]];
            self.round = round;
        }
        let mut expected = bytes_in(bandwidth, ack.now - self.since);
        if self.delivered <= expected {
            (self.delivered, expected) = (0, 0);
            self.since = ack.now;
        }
        self.delivered += ack.newly;
        let extra = self.delivered.saturating_sub(expected).min(window);
        self.most[0] = self.most[0].max(extra);
    }
}

/// Whether the bandwidth still grows (§5.3.1.2).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct FullBandwidth {
    pub(super) base: u64,
    rounds: u8,
    /// It did not grow for three rounds.
    pub(super) now: bool,
    /// That was so at least once.
    pub(super) reached: bool,
}

impl FullBandwidth {
    pub(super) fn restart(&mut self, base: u64) {
        (self.base, self.rounds, self.now) = (base, 0, false);
    }

    pub(super) fn update(&mut self, sample: &Sample, round_started: bool) {
        if self.now || !round_started || sample.app_limited {
            return;
        }
        if sample.rate >= self.base + self.base / 4 {
            self.restart(sample.rate);
            return;
        }
        self.rounds += 1;
        self.now = self.rounds >= 3;
        self.reached |= self.now;
    }
}

/// Bytes that a bandwidth carries in a time.
pub(super) fn bytes_in(bandwidth: u64, time: Duration) -> u64 {
    let bytes = u128::from(bandwidth) * u128::from(time.total_micros()) / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// A share of a number, in percent.
pub(super) fn percent(of: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

/// The pacing rate before the bandwidth is known (§5.6.2).
pub(super) fn first_rate(window: u64, rtt: Option<Duration>, gain: u64) -> u64 {
    let us = rtt.map_or(1_000, |rtt| rtt.total_micros());
    percent(per_second(window, us), gain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: u64, app_limited: bool) -> Sample {
        Sample {
            rate,
            app_limited,
            ..Sample::default()
        }
    }

    #[test]
    fn the_bandwidth_is_the_largest_of_two_cycles() {
        let mut bandwidth = MaxBandwidth::default();
        bandwidth.update(&sample(100, false));
        bandwidth.advance();
        bandwidth.advance();
        assert_eq!(
            bandwidth.get(),
            100,
            "a cycle without a sample does not count"
        );
        bandwidth.update(&sample(60, false));
        bandwidth.update(&sample(70, true));
        assert_eq!(bandwidth.get(), 100);
        bandwidth.advance();
        assert_eq!(bandwidth.get(), 60, "less of a limited sample says nothing");
        bandwidth.update(&sample(70, true));
        assert_eq!(bandwidth.get(), 70, "more does");
    }

    #[test]
    fn the_shortest_round_trip_is_forgotten_after_ten_seconds() {
        let mut min = MinRtt::new();
        let rtt = |ms| Some(Duration::from_millis(ms));
        min.update(Instant::from_secs(1), rtt(20));
        min.update(Instant::from_secs(5), rtt(30));
        assert_eq!((min.get(), min.expired), (rtt(20), false));
        min.update(Instant::from_secs(7), rtt(40));
        assert_eq!((min.get(), min.expired), (rtt(20), true));
        min.update(Instant::from_secs(12), rtt(50));
        assert_eq!(min.get(), rtt(40));
    }

    #[test]
    fn three_rounds_without_a_quarter_more_fill_the_path() {
        let mut full = FullBandwidth::default();
        for (rate, started, limited) in [
            (100, true, false),
            (126, true, false),
            (140, true, false),
            (140, false, false),
            (140, true, true),
            (140, true, false),
        ] {
            full.update(&sample(rate, limited), started);
        }
        assert!(!full.now);
        full.update(&sample(150, false), true);
        assert!(full.now && full.reached);
        full.restart(0);
        assert!(!full.now && full.reached);
    }

    #[test]
    fn acknowledgements_in_lumps_allow_for_a_lump_more() {
        let mut aggregation = Aggregation::new();
        let lump = |ms| Delivery {
            now: Instant::from_millis(ms),
            newly: 10_000,
            lost: 0,
            newest: None,
            in_flight: 0,
            nxt: 0,
            rtt: None,
            smoothed_rtt: None,
            starved: None,
            follows: false,
            window_limited: false,
        };
        // 1000 bytes a millisecond in lumps of 10 ms.
        for step in 1..=20 {
            aggregation.update(&lump(10 * step), 1_000_000, 50_000, 0);
        }
        assert_eq!(aggregation.get(), 10_000);
        for round in 1..=10 {
            aggregation.update(
                &Delivery {
                    newly: 0,
                    ..lump(1_000 + round)
                },
                1_000_000,
                50_000,
                round as u64,
            );
        }
        assert_eq!(aggregation.get(), 0);
    }
}
