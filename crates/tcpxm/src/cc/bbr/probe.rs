//! ProbeBW: the cycle of probing for bandwidth (draft-ietf-ccwg-bbr-03 §5.3.3).

use proto_core::time::{Duration, Instant};

use super::bounds::Bounds;
use super::model::percent;
use super::rate::{Delivery, Sample};
use super::{Bbr, State};

/// Round trips in which Reno would have probed, at most.
const MAX_RENO_ROUNDS: u64 = 63;
const MIN_WAIT: Duration = Duration::from_secs(2);
/// The wait is longer by up to this many microseconds, at random.
const RANDOM_WAIT_US: u64 = 1_000_000;
/// Most doublings of the growth of the bound.
const MAX_UP_ROUNDS: u32 = 30;

/// Which part of a probe acknowledgements are about.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    #[default]
    None,
    Refilling,
    Starting,
    Feedback,
    Stopping,
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Probe {
    phase: Phase,
    /// When the present cycle began, and how long it lasts before the next probe.
    began: Instant,
    wait: Duration,
    /// Round trips since the last probe.
    rounds: u64,
    up_rounds: u32,
    /// Bytes acknowledged of those that let the bound grow by a segment.
    up_acked: u64,
    /// Bytes for a segment more.
    up_bytes: u64,
    /// Losses of the present samples are those of a probe.
    samples: bool,
    dice: u64,
}

impl Probe {
    /// What arrives from now on was not sent for a probe.
    pub(super) fn stop(&mut self) {
        self.phase = Phase::Stopping;
    }

    /// A generator is enough: flows must not probe at the same time, and nothing else depends on it.
    fn random(&mut self, now: Instant, delivered: u64) -> u64 {
        let seed = (now.total_micros() as u64).rotate_left(32) ^ delivered;
        self.dice = (self.dice ^ seed)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.dice >> 33
    }
}

impl Bbr {
    /// BBRUpdateProbeBWCyclePhase.
    pub(super) fn probe_bandwidth(&mut self, ack: &Delivery, sample: &Sample) {
        if !self.full.reached {
            return;
        }
        self.adapt_long_term(ack, sample);
        if !self.state.is_probe_bandwidth() {
            return;
        }
        self.probe.rounds += u64::from(self.rounds.started);
        match self.state {
            State::Down if self.is_time_to_probe(ack) => self.begin_refill(),
            State::Down if self.is_time_to_cruise(ack) => self.begin_cruise(),
            State::Cruise if self.is_time_to_probe(ack) => self.begin_refill(),
            State::Refill if self.rounds.started => self.begin_up(sample),
            State::Up => {
                if self.is_time_to_go_down(ack, sample) {
                    self.begin_down(ack);
                }
            }
            State::Down | State::Cruise | State::Refill => {}
            State::Startup | State::Drain | State::ProbeRtt => {}
        }
    }

    pub(super) fn begin_down(&mut self, ack: &Delivery) {
        if self.state == State::Up {
            self.probing_ends();
        }
        self.bounds.reset_signals();
        self.probe.up_bytes = u64::MAX;
        let delivered = self.sampler.delivered;
        self.probe.rounds = self.probe.random(ack.now, delivered) & 1;
        let more = self.probe.random(ack.now, delivered) % RANDOM_WAIT_US;
        self.probe.wait = MIN_WAIT + Duration::from_micros(more);
        self.probe.began = ack.now;
        self.probe.phase = Phase::Stopping;
        self.rounds.restart(delivered);
        self.state = State::Down;
    }

    pub(super) fn begin_cruise(&mut self) {
        self.state = State::Cruise;
    }

    fn begin_refill(&mut self) {
        self.bounds.reset_low();
        self.probe.up_rounds = 0;
        self.probe.up_acked = 0;
        self.probe.phase = Phase::Refilling;
        self.rounds.restart(self.sampler.delivered);
        self.state = State::Refill;
    }

    fn begin_up(&mut self, sample: &Sample) {
        self.probe.samples = true;
        self.probe.phase = Phase::Starting;
        self.rounds.restart(self.sampler.delivered);
        self.full.restart(sample.rate);
        self.state = State::Up;
        self.raise_slope();
    }

    fn is_time_to_probe(&self, ack: &Delivery) -> bool {
        let target = self.target() / self.segment.max(1);
        ack.now > self.probe.began + self.probe.wait
            || self.probe.rounds >= target.min(MAX_RENO_ROUNDS)
    }

    fn is_time_to_cruise(&self, ack: &Delivery) -> bool {
        ack.in_flight <= self.bounds.with_headroom(self.segment)
            && ack.in_flight <= self.inflight(100)
    }

    fn is_time_to_go_down(&mut self, ack: &Delivery, sample: &Sample) -> bool {
        if ack.window_limited && self.window >= self.bounds.inflight_high {
            // The bound and not the path limits the bandwidth.
            self.full.restart(sample.rate);
            return false;
        }
        self.full.now
    }

    /// What is in flight at most without a queue.
    fn target(&self) -> u64 {
        self.product(100).min(self.window)
    }

    /// BBRAdaptLongTermModel.
    fn adapt_long_term(&mut self, ack: &Delivery, sample: &Sample) {
        if self.probe.phase == Phase::Starting && self.rounds.started {
            self.probe.phase = Phase::Feedback;
        }
        if self.probe.phase == Phase::Stopping && self.rounds.started {
            self.probe.samples = false;
            self.probe.phase = Phase::None;
            if self.state.is_probe_bandwidth() && !sample.app_limited {
                self.bandwidth.advance();
            }
        }
        if Bounds::loses_too_much(sample, self.segment) {
            if self.probe.samples {
                self.reduce_inflight(ack, sample);
            }
            return;
        }
        if self.bounds.inflight_high == u64::MAX {
            return;
        }
        let in_flight = sample.in_flight_at_sending;
        self.bounds.inflight_high = self.bounds.inflight_high.max(in_flight);
        if self.state == State::Up {
            self.raise_inflight(ack);
        }
    }

    /// BBRHandleInflightTooHigh.
    fn reduce_inflight(&mut self, ack: &Delivery, sample: &Sample) {
        self.probe.samples = false;
        if !sample.app_limited {
            let target = self.target();
            self.bounds.reduce(sample.in_flight_at_sending, target);
        }
        if self.state == State::Up {
            self.begin_down(ack);
        }
    }

    /// BBRRaiseInflightHiSlope.
    fn raise_slope(&mut self) {
        let growth = self.segment << self.probe.up_rounds;
        self.probe.up_rounds = (self.probe.up_rounds + 1).min(MAX_UP_ROUNDS);
        let segments = self.window / growth.max(1);
        self.probe.up_bytes = segments.max(1) * self.segment;
    }

    /// BBRProbeInflightHiUpward.
    fn raise_inflight(&mut self, ack: &Delivery) {
        if !ack.window_limited || self.window < self.bounds.inflight_high {
            return;
        }
        self.probe.up_acked += ack.newly;
        let segments = self.probe.up_acked / self.probe.up_bytes;
        if segments > 0 {
            self.probe.up_acked -= segments * self.probe.up_bytes;
            let high = self.bounds.inflight_high + segments * self.segment;
            // The window cannot use more.
            self.bounds.inflight_high =
                high.min(percent(self.window, 200).max(self.bounds.inflight_high));
        }
        if self.rounds.started {
            self.raise_slope();
        }
    }
}
