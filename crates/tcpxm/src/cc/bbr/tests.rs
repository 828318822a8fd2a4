//! The state machine on a path in miniature: a rate, a delay, a queue.

use super::*;

const SEGMENT: u64 = 1_000;
const RTT: Duration = Duration::from_millis(20);
/// Bytes a second; 20 segments in a round trip.
const RATE: u64 = 1_000_000;

/// A path that delivers [`RATE`] at most. Time passes in steps of a millisecond.
struct Path {
    bbr: Bbr,
    now: Instant,
    /// What may still be sent in this step.
    credit: u64,
    nxt: u64,
    /// Sending time and end of each segment in flight, and when it arrives.
    flight: std::collections::VecDeque<(Instant, u64, Instant)>,
    free_at: Instant,
    /// One in this many segments is lost; 0: none.
    lose: u64,
    rate: u64,
    /// Acknowledgements wait for the next multiple of this, or for a random time up to it.
    lump: Duration,
    random: bool,
}

impl Path {
    fn new() -> Self {
        let mut bbr = Bbr::new(10 * SEGMENT, SEGMENT);
        bbr.restart(Instant::ZERO, 0);
        Self {
            bbr,
            now: Instant::ZERO,
            credit: 0,
            nxt: 0,
            flight: Default::default(),
            free_at: Instant::ZERO,
            lose: 0,
            rate: RATE,
            lump: Duration::ZERO,
            random: false,
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(1);
        while self.flight.front().is_some_and(|front| front.2 <= self.now) {
            let (sent, end, _) = self.flight.pop_front().unwrap();
            let lost = self.lose > 0 && (end / SEGMENT).is_multiple_of(self.lose);
            self.acknowledge(sent, end, lost);
        }
        self.credit += self.bbr.pacing_rate() / 1_000;
        self.credit = self
            .credit
            .min(self.bbr.quantum().max(self.bbr.pacing_rate() / 500));
        while self.credit >= SEGMENT && self.in_flight() + SEGMENT <= self.bbr.window() {
            self.credit -= SEGMENT;
            self.nxt += SEGMENT;
            let takes = Duration::from_micros(SEGMENT * 1_000_000 / self.rate);
            self.free_at = self.free_at.max(self.now) + takes;
            let arrives = self.acknowledged_at(self.free_at + RTT);
            self.flight.push_back((self.now, self.nxt, arrives));
        }
    }

    /// When the acknowledgement of data arrives that arrived at the path's end at this time.
    fn acknowledged_at(&self, at: Instant) -> Instant {
        let lump = self.lump.total_micros() as i64;
        if lump == 0 {
            return at;
        }
        let us = at.total_micros();
        let held = if self.random {
            at + Duration::from_micros(self.nxt.wrapping_mul(0x9e37_79b9_7f4a_7c15) % lump as u64)
        } else {
            Instant::from_micros((us + lump - 1) / lump * lump)
        };
        let last = self.flight.back().map_or(Instant::ZERO, |last| last.2);
        held.max(last + Duration::from_micros(200))
    }

    fn in_flight(&self) -> u64 {
        self.flight.len() as u64 * SEGMENT
    }

    fn acknowledge(&mut self, sent: Instant, end: u64, lost: bool) {
        let newest = Newest {
            sent,
            end: Some(end),
        };
        let delivery = Delivery {
            now: self.now,
            newly: if lost { 0 } else { SEGMENT },
            lost: if lost { SEGMENT } else { 0 },
            newest: (!lost).then_some(newest),
            in_flight: self.in_flight(),
            nxt: self.nxt,
            rtt: (!lost).then_some(self.now - sent),
            smoothed_rtt: Some(RTT),
            starved: None,
            follows: false,
            window_limited: self.in_flight() + 2 * SEGMENT > self.bbr.window(),
        };
        self.bbr.on_ack(&delivery);
    }

    /// Runs until a state is reached; the time that took in milliseconds.
    fn run_to(&mut self, state: State, most_ms: u64) -> u64 {
        for ms in 0..most_ms {
            if self.bbr.state == state {
                return ms;
            }
            self.step();
        }
        panic!("{:?} instead of {state:?}", self.bbr);
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.step();
        }
    }
}

#[test]
fn startup_finds_the_bandwidth_and_drain_removes_its_queue() {
    let mut path = Path::new();
    assert!(path.bbr.in_startup());
    path.run_to(State::Drain, 1_000);
    assert!(path.in_flight() > 30 * SEGMENT, "a queue");
    path.run_to(State::Cruise, 1_000);
    assert!(path.in_flight() <= path.bbr.inflight(100) + 2 * SEGMENT);
    let bandwidth = path.bbr.bandwidth();
    assert!(
        (RATE * 95 / 100..=RATE * 105 / 100).contains(&bandwidth),
        "{bandwidth}"
    );
}

#[test]
fn the_states_of_a_probe_follow_each_other_and_find_more_bandwidth() {
    let mut path = Path::new();
    path.run_to(State::Down, 2_000);
    path.run_to(State::Cruise, 2_000);
    assert_eq!(path.bbr.pacing_rate(), path.bbr.bandwidth() * 99 / 100);
    path.rate = 2 * RATE;
    path.run_to(State::Refill, 3_000);
    path.run_to(State::Up, 100);
    path.run_to(State::Down, 3_000);
    let bandwidth = path.bbr.bandwidth();
    assert!(bandwidth > RATE * 3 / 2, "{bandwidth}");
}

#[test]
fn less_bandwidth_is_noticed_after_two_cycles() {
    let mut path = Path::new();
    path.run_to(State::Cruise, 2_000);
    path.rate = RATE / 2;
    path.run(10_000);
    let bandwidth = path.bbr.bandwidth();
    assert!(bandwidth < RATE * 6 / 10, "{bandwidth}");
}

#[test]
fn one_loss_in_a_hundred_lowers_nothing_and_one_in_four_does() {
    let mut path = Path::new();
    path.run_to(State::Cruise, 2_000);
    path.lose = 100;
    path.run(6_000);
    let before = path.bbr.bandwidth();
    assert!(before > RATE * 9 / 10, "{before}");
    assert_eq!(path.bbr.bounds.inflight_low, u64::MAX);
    path.lose = 4;
    path.run(6_000);
    assert!(
        path.bbr.bounds.inflight_high < 40 * SEGMENT,
        "{:?}",
        path.bbr.bounds
    );
}

#[test]
fn every_five_seconds_the_queue_is_drained_to_see_the_round_trip() {
    let mut path = Path::new();
    path.run_to(State::ProbeRtt, 7_000);
    path.run(60);
    assert!(path.bbr.window() <= 11 * SEGMENT);
    path.run_to(State::Cruise, 400);
    assert!(path.bbr.window() > 20 * SEGMENT, "the window is restored");
}

#[test]
fn a_receiver_that_follows_does_not_drain_the_queue() {
    let mut path = Path::new();
    path.run_to(State::Cruise, 2_000);
    path.bbr.follows = true;
    path.bbr.min_rtt.expired = true;
    let ack = Delivery {
        now: path.now,
        newly: 0,
        lost: 0,
        newest: None,
        in_flight: 0,
        nxt: path.nxt,
        rtt: None,
        smoothed_rtt: None,
        starved: None,
        follows: true,
        window_limited: false,
    };
    path.bbr.check_probe_rtt(&ack);
    assert_eq!(path.bbr.state, State::Cruise);
    path.bbr.follows = false;
    path.bbr.check_probe_rtt(&ack);
    assert_eq!(path.bbr.state, State::ProbeRtt);
}

#[test]
fn a_timeout_leaves_a_segment_and_acknowledgements_bring_the_window_back() {
    let mut path = Path::new();
    path.run_to(State::Cruise, 2_000);
    path.bbr.on_timeout();
    assert_eq!(path.bbr.window(), SEGMENT);
    path.run(200);
    assert!(path.bbr.window() > 20 * SEGMENT);
}

#[test]
fn bounds_come_back_when_nothing_was_lost() {
    let mut path = Path::new();
    path.run_to(State::Cruise, 2_000);
    let saved = path.bbr.save();
    path.bbr.bounds.bandwidth_low = RATE / 2;
    assert!(path.bbr.bandwidth() < RATE);
    path.bbr.restore(&saved);
    assert!(path.bbr.bandwidth() > RATE * 9 / 10);
}

#[test]
fn late_acknowledgements_and_lumps_of_them_tell_no_more_than_the_path_takes() {
    for (lump_ms, random) in [
        (5, false),
        (10, false),
        (25, false),
        (5, true),
        (10, true),
        (40, true),
    ] {
        // Samples are coarser where lumps are further apart than a round trip.
        let limit = if lump_ms > 20 && !random { 14 } else { 13 };
        let mut path = Path::new();
        path.lump = Duration::from_millis(lump_ms);
        path.random = random;
        let (mut most, mut least) = (0, u64::MAX);
        for step in 0..40_000 {
            path.step();
            let bandwidth = path.bbr.bandwidth();
            most = most.max(bandwidth);
            if step > 5_000 {
                least = least.min(bandwidth);
            }
        }
        std::println!("{lump_ms} ms, random: {random}: {least} to {most}");
        assert!(
            most <= RATE * limit / 10,
            "{lump_ms} ms, random: {random}: {most}"
        );
        assert!(least >= RATE / 2, "{lump_ms} ms, random: {random}: {least}");
    }
}
