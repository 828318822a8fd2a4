//! Delivery rate samples (draft-ietf-ccwg-bbr-03 §4.1).
//!
//! The draft stores the state of the connection with each packet. Here a short history of that state is kept
//! instead, and the state at the time of sending is looked up: when data was sent is known from the log that all
//! receivers of a group share. Acknowledgements within a sixteenth of a round trip share a point, so that a
//! sample spans at most that much more than a round trip.

use proto_core::time::{Duration, Instant};

/// Points of the history. Beyond it each second one is removed.
const MAX_POINTS: usize = 24;

/// The state of delivery at the time of an acknowledgement.
#[derive(Clone, Copy, Default, Debug)]
struct Point {
    time: Instant,
    /// When the most recently sent data that had arrived by then was sent.
    sent: Instant,
    delivered: u64,
    lost: u64,
    /// Stream offset less the bytes in flight.
    arrived: u64,
    app_limited: bool,
}

/// The most recently sent data that an acknowledgement covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    pub(crate) sent: Instant,
    /// Behind its last byte; `None` if it was sent again.
    pub(crate) end: Option<u64>,
}

/// What one acknowledgement says about delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) now: Instant,
    /// Bytes newly known to have arrived, and to be lost.
    pub(crate) newly: u64,
    pub(crate) lost: u64,
    /// Present if it is more recent than that of the acknowledgement before.
    pub(crate) newest: Option<Newest>,
    /// Bytes in flight after the acknowledgement, and the offset after the last byte sent.
    pub(crate) in_flight: u64,
    pub(crate) nxt: u64,
    pub(crate) rtt: Option<Duration>,
    pub(crate) smoothed_rtt: Option<Duration>,
    /// When data to send, or a window other than this one, was last missing, and the offset reached then.
    pub(crate) starved: Option<(Instant, u64)>,
    /// Another receiver governs the rate, and this one's window has not limited it.
    pub(crate) follows: bool,
    /// The congestion window limited the flow.
    pub(crate) window_limited: bool,
}

/// A sample.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sample {
    /// Bytes a second; 0 where the interval was too short to say.
    pub(super) rate: u64,
    pub(super) delivered: u64,
    pub(super) prior_delivered: u64,
    pub(super) lost: u64,
    pub(super) in_flight_at_sending: u64,
    pub(super) app_limited: bool,
}

/// The sampler of one receiver.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    pub(super) delivered: u64,
    lost: u64,
    /// Sending time of the newest data that has arrived.
    sent: Instant,
    points: [Point; MAX_POINTS],
    len: usize,
}

impl Default for Sampler {
    fn default() -> Self {
        Self {
            delivered: 0,
            lost: 0,
            sent: Instant::ZERO,
            points: [Point::default(); MAX_POINTS],
            len: 0,
        }
    }
}

impl Sampler {
    /// Data is sent while nothing is in flight: the time in between is not part of any sample.
    pub(super) fn restart(&mut self, now: Instant, offset: u64) {
        self.sent = now;
        self.push(now, offset, false, Duration::ZERO);
    }

    /// Takes an acknowledgement. `min_rtt`: a shorter interval is no sample (draft §4.1.2.3).
    pub(super) fn acknowledge(
        &mut self,
        ack: &Delivery,
        min_rtt: Option<Duration>,
    ) -> Option<Sample> {
        self.delivered += ack.newly;
        self.lost += ack.lost;
        if ack.newly == 0 {
            return None;
        }
        let sample = ack
            .newest
            .and_then(|newest| self.sample(ack, newest, min_rtt));
        if let Some(newest) = ack.newest {
            self.sent = self.sent.max(newest.sent);
        }
        let arrived = ack.nxt - ack.in_flight;
        let starved = ack.starved.is_some_and(|(_, offset)| arrived < offset);
        let quantum = ack.smoothed_rtt.unwrap_or(Duration::ZERO) / 16;
        self.push(ack.now, arrived, starved || ack.follows, quantum);
        sample
    }

    fn sample(
        &mut self,
        ack: &Delivery,
        newest: Newest,
        min_rtt: Option<Duration>,
    ) -> Option<Sample> {
        let points = &self.points[..self.len];
        let at = points
            .partition_point(|point| point.time <= newest.sent)
            .checked_sub(1)?;
        let point = points[at];
        // Later acknowledgements are of data sent later.
        self.points.copy_within(at..self.len, 0);
        self.len -= at;
        let send_elapsed = newest.sent.max(point.sent) - point.sent;
        let elapsed = send_elapsed.max(ack.now - point.time);
        let delivered = self.delivered - point.delivered;
        let us = elapsed.total_micros();
        let certain = us > 0 && min_rtt.is_none_or(|least| elapsed >= least);
        let in_between = ack
            .starved
            .is_some_and(|(time, _)| point.time <= time && time <= newest.sent);
        let in_flight = match newest.end {
            Some(end) if end > point.arrived => end - point.arrived,
            _ => ack.in_flight + ack.newly,
        };
        Some(Sample {
            rate: if certain {
                per_second(delivered, us)
            } else {
                0
            },
            delivered,
            prior_delivered: point.delivered,
            lost: self.lost - point.lost,
            in_flight_at_sending: in_flight,
            app_limited: point.app_limited || in_between || ack.follows,
        })
    }

    /// The state after an acknowledgement. It replaces that after the one before unless they are `quantum` apart: of
    /// what arrives in a lump, nothing counts as arrived after it.
    fn push(&mut self, time: Instant, arrived: u64, app_limited: bool, quantum: Duration) {
        let mut point = Point {
            time,
            sent: self.sent,
            delivered: self.delivered,
            lost: self.lost,
            arrived,
            app_limited,
        };
        if let [.., before, last] = &mut self.points[..self.len]
            && last.time < before.time + quantum
        {
            point.app_limited |= last.app_limited;
            *last = point;
            return;
        }
        if self.len == MAX_POINTS {
            // The newest stays.
            for at in 0..MAX_POINTS / 2 {
                self.points[at] = self.points[2 * at + 1];
            }
            self.len = MAX_POINTS / 2;
        }
        self.points[self.len] = point;
        self.len += 1;
    }
}

/// Bytes a second, of bytes in microseconds.
pub(super) fn per_second(bytes: u64, us: u64) -> u64 {
    bytes.saturating_mul(1_000_000) / us.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::from_millis(millis)
    }

    fn ack(now_ms: i64, newly: u64, sent_ms: i64, end: u64, nxt: u64) -> Delivery {
        Delivery {
            now: at(now_ms),
            newly,
            lost: 0,
            newest: Some(Newest {
                sent: at(sent_ms),
                end: Some(end),
            }),
            in_flight: nxt - end,
            nxt,
            rtt: None,
            smoothed_rtt: Some(Duration::from_millis(16)),
            starved: None,
            follows: false,
            window_limited: true,
        }
    }

    #[test]
    fn the_rate_is_what_arrived_between_sending_and_acknowledgement() {
        let mut sampler = Sampler::default();
        sampler.restart(at(0), 0);
        let first = sampler
            .acknowledge(&ack(100, 1_000, 0, 1_000, 10_000), None)
            .unwrap();
        assert_eq!((first.rate, first.delivered), (10_000, 1_000));
        for step in 1..10 {
            sampler.acknowledge(
                &ack(100 + 10 * step, 1_000, 0, 1_000 * (step as u64 + 1), 10_000),
                None,
            );
        }
        // Sent when 1000 bytes had arrived.
        let later = sampler
            .acknowledge(&ack(200, 1_000, 100, 11_000, 20_000), None)
            .unwrap();
        assert_eq!((later.delivered, later.prior_delivered), (10_000, 1_000));
        assert_eq!(later.rate, 100_000);
        assert_eq!(later.in_flight_at_sending, 10_000);
    }

    #[test]
    fn compressed_acknowledgements_do_not_exceed_the_rate_of_sending() {
        let mut sampler = Sampler::default();
        sampler.restart(at(0), 0);
        sampler.acknowledge(&ack(100, 1_000, 0, 1_000, 10_000), None);
        sampler.acknowledge(&ack(180, 8_000, 80, 9_000, 20_000), None);
        let sample = sampler
            .acknowledge(&ack(181, 1_000, 90, 10_000, 20_000), None)
            .unwrap();
        assert!(sample.rate <= 10_000 * 1_000 / 90, "{sample:?}");
    }

    #[test]
    fn of_a_lump_nothing_counts_as_delivered_after_it() {
        let mut sampler = Sampler::default();
        sampler.restart(at(0), 0);
        // Twenty acknowledgements in four milliseconds, then data, and the next lump ten milliseconds later.
        let mut end = 0;
        for lump in 0..3 {
            let began = 10 * (lump + 1);
            for step in 0..20 {
                end += 1_000;
                let ack = ack(began + step / 5, 1_000, began - 6, end, 100_000);
                if let Some(sample) = sampler.acknowledge(&ack, None) {
                    assert!(sample.rate <= 2_000_000, "{sample:?}");
                }
            }
        }
        let last = ack(40, 1_000, 34, end + 1_000, 100_000);
        let sample = sampler.acknowledge(&last, None).unwrap();
        assert_eq!((sample.delivered, sample.rate), (1_000, 100_000));
    }

    #[test]
    fn an_interval_below_the_shortest_round_trip_is_no_rate() {
        let mut sampler = Sampler::default();
        sampler.restart(at(0), 0);
        let sample = sampler.acknowledge(
            &ack(10, 1_000, 0, 1_000, 10_000),
            Some(Duration::from_millis(11)),
        );
        assert_eq!(sample.unwrap().rate, 0);
    }

    #[test]
    fn what_is_sent_after_data_was_missing_is_limited_by_the_application() {
        let mut sampler = Sampler::default();
        sampler.restart(at(0), 0);
        let starved = Some((at(50), 1_000));
        let limited = |sampler: &mut Sampler, ack: Delivery| {
            let sample = sampler.acknowledge(&Delivery { starved, ..ack }, None);
            sample.unwrap().app_limited
        };
        assert!(!limited(&mut sampler, ack(40, 500, 0, 500, 1_000)));
        assert!(limited(&mut sampler, ack(160, 1_500, 60, 2_000, 4_000)));
        assert!(!limited(&mut sampler, ack(300, 1_000, 170, 4_000, 9_000)));
    }

    #[test]
    fn losses_since_sending_count() {
        let mut sampler = Sampler::default();
        sampler.restart(at(0), 0);
        let lossy = |now, sent, end, lost| Delivery {
            lost,
            ..ack(now, 1_000, sent, end, 20_000)
        };
        sampler.acknowledge(&lossy(100, 0, 1_000, 500), None);
        let sample = sampler.acknowledge(&lossy(200, 100, 3_000, 700), None);
        assert_eq!(sample.unwrap().lost, 700);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut sampler = Sampler::default();
        sampler.restart(at(0), 0);
        for step in 1..1_000 {
            sampler.acknowledge(&ack(2 * step, 10, 0, 10 * step as u64, 20_000), None);
        }
        assert!(sampler.len <= MAX_POINTS);
        let sample = sampler
            .acknowledge(&ack(2_100, 10, 2_000, 10_010, 20_000), None)
            .unwrap();
        assert!(sample.delivered < 1_000, "{sample:?}");
    }
}
