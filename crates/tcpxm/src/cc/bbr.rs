//! BBR, version 3 (Cardwell et al., "BBR Congestion Control", draft-ietf-ccwg-bbr-03): the rate follows a model of
//! the path, its bandwidth and shortest round trip, and not single losses.
//!
//! | state | pacing | window | ends |
//! | --- | --- | --- | --- |
//! | Startup | 2.77 | 2 | when the bandwidth no longer grows, or too much is lost |
//! | Drain | 0.5 | 2 | when the queue that Startup made is gone |
//! | ProbeBW: Down | 0.9 | 2 | when there is room below the bounds |
//! | ProbeBW: Cruise | 1 | 2 | after 2 to 3 s, or as many round trips as Reno would need |
//! | ProbeBW: Refill | 1 | 2 | after a round trip |
//! | ProbeBW: Up | 1.25 | 2.25 | when the bandwidth no longer grows, or too much is lost |
//! | ProbeRTT | 1 | 0.5 | 200 ms and a round trip after the window was reached |
//!
//! Differences to the draft: the state at the time of sending is looked up in a history (see [`rate`]); losses are
//! examined for each acknowledgement instead of each packet, and lower the bounds if they are more than 2 % with some
//! certainty (`docs/decisions/0027-bbr.md`); no packet conservation in the first round of a
//! recovery, as pacing spreads repairs already. A receiver that follows the rate of another one
//! (`docs/decisions/0026-representative.md`) has no phase of ProbeRTT, and only its bandwidth bounds its window.

mod bounds;
mod model;
mod probe;
mod rate;
#[cfg(test)]
mod tests;

use proto_core::time::{Duration, Instant};

use bounds::Bounds;
use model::{
    Aggregation, FullBandwidth, MaxBandwidth, MinRtt, Rounds, bytes_in, first_rate, percent,
};
use probe::Probe;
use rate::{Sample, Sampler};

pub(crate) use rate::{Delivery, Newest};

const STARTUP_PACING: u64 = 277;
const DRAIN_PACING: u64 = 50;
/// Percent of a window: DefaultCwndGain, and that of ProbeBW: Up.
const WINDOW: u64 = 200;
const UP_WINDOW: u64 = 225;
/// BBRPacingMarginPercent: paced below the bandwidth.
const PACING_MARGIN: u64 = 99;
/// MinPipeCwnd, in segments.
const MIN_SEGMENTS: u64 = 4;
const PROBE_RTT_WINDOW: u64 = 50;
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// StartupFullLossCnt: acknowledgements of a round that report losses.
const STARTUP_LOSSES: u8 = 6;
/// Most bytes sent at once, and the time that they take (§5.6.3).
const MAX_QUANTUM: u64 = 64 << 10;
const QUANTUM_TIME: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    fn is_probe_bandwidth(self) -> bool {
        matches!(
            self,
            State::Down | State::Cruise | State::Refill | State::Up
        )
    }

    /// Whether sending beyond the estimate is the purpose: losses then say nothing about the lower bounds.
    fn is_probing(self) -> bool {
        matches!(self, State::Startup | State::Refill | State::Up)
    }

    fn pacing(self) -> u64 {
        match self {
            State::Startup => STARTUP_PACING,
            State::Drain => DRAIN_PACING,
            State::Down => 90,
            State::Cruise | State::Refill | State::ProbeRtt => 100,
            State::Up => 125,
        }
    }

    fn window(self) -> u64 {
        match self {
            State::Up => UP_WINDOW,
            State::ProbeRtt => PROBE_RTT_WINDOW,
            _ => WINDOW,
        }
    }
}

/// ProbeRTT in progress.
#[derive(Clone, Copy, Default, Debug)]
struct ProbeRtt {
    /// When it ends, once the window was reached.
    until: Option<Instant>,
    round_done: bool,
    window_before: u64,
}

/// What a spurious detection of losses takes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedBounds(Bounds);

/// The controller of one receiver.
#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    state: State,
    segment: u64,
    window: u64,
    pacing_rate: u64,
    sampler: Sampler,
    rounds: Rounds,
    bandwidth: MaxBandwidth,
    min_rtt: MinRtt,
    aggregation: Aggregation,
    full: FullBandwidth,
    bounds: Bounds,
    probe: Probe,
    probe_rtt: ProbeRtt,
    /// Acknowledgements of the present loss round that reported losses.
    loss_events: u8,
    has_rtt: bool,
    /// Nothing was in flight when the present flight began.
    idle_restart: bool,
    /// Another receiver governs the rate.
    follows: bool,
    /// Losses that are found before this round may be of data that was sent to probe.
    settled: u64,
}

impl Bbr {
    pub(super) fn new(window: u64, segment: u64) -> Self {
        Self {
            state: State::Startup,
            segment,
            window,
            pacing_rate: first_rate(window, None, STARTUP_PACING),
            sampler: Sampler::default(),
            rounds: Rounds::default(),
            bandwidth: MaxBandwidth::default(),
            min_rtt: MinRtt::new(),
            aggregation: Aggregation::new(),
            full: FullBandwidth::default(),
            bounds: Bounds::default(),
            probe: Probe::default(),
            probe_rtt: ProbeRtt::default(),
            loss_events: 0,
            has_rtt: false,
            idle_restart: false,
            follows: false,
            settled: 0,
        }
    }

    pub(super) fn set_segment(&mut self, segment: u64, window: u64) {
        if self.sampler.delivered == 0 {
            self.window = window;
        }
        self.segment = segment;
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }

    pub(super) fn in_startup(&self) -> bool {
        self.state == State::Startup
    }

    /// The estimate of the bandwidth, in bytes a second.
    pub(super) fn bandwidth(&self) -> u64 {
        self.bandwidth.get().min(self.bounds.bandwidth_low)
    }

    /// The estimate without the bounds that recent losses set.
    pub(super) fn measured_bandwidth(&self) -> u64 {
        self.bandwidth.get()
    }

    /// Bytes a second.
    pub(super) fn pacing_rate(&self) -> u64 {
        self.pacing_rate
    }

    /// Most bytes sent at once.
    pub(super) fn quantum(&self) -> u64 {
        let most = bytes_in(self.pacing_rate, QUANTUM_TIME).min(MAX_QUANTUM);
        most.max(2 * self.segment)
    }

    pub(super) fn save(&self) -> SavedBounds {
        SavedBounds(self.bounds)
    }

    /// The losses since then were none.
    pub(super) fn restore(&mut self, saved: &SavedBounds) {
        self.bounds.widen_to(&saved.0);
        self.loss_events = 0;
    }

    /// Data is about to be sent while nothing is in flight (§5.4.1).
    pub(super) fn restart(&mut self, now: Instant, offset: u64) {
        self.sampler.restart(now, offset);
        if self.sampler.delivered == 0 {
            return;
        }
        self.idle_restart = true;
        self.aggregation = Aggregation::new();
        if self.state.is_probe_bandwidth() {
            self.pacing_rate = percent(self.bandwidth(), PACING_MARGIN);
        }
    }

    /// The retransmission timer expired (§5.6.4.4): acknowledgements let the window grow again.
    pub(super) fn on_timeout(&mut self) {
        self.window = self.segment;
    }

    /// BBRUpdateOnACK.
    pub(super) fn on_ack(&mut self, ack: &Delivery) {
        self.follows = ack.follows;
        let sample = self.sampler.acknowledge(ack, self.min_rtt.get());
        let sample = sample.unwrap_or(Sample {
            app_limited: true,
            prior_delivered: 0,
            ..Sample::default()
        });
        self.rounds.update(&sample, self.sampler.delivered);
        self.update_bandwidth(ack, &sample);
        self.aggregation
            .update(ack, self.bandwidth(), self.window, self.rounds.count);
        self.check_startup(&sample);
        if self.state == State::Drain && ack.in_flight <= self.inflight(100) {
            self.begin_down(ack);
        }
        self.probe_bandwidth(ack, &sample);
        self.min_rtt.update(ack.now, ack.rtt);
        self.check_probe_rtt(ack);
        self.bounds.advance(&sample);
        if ack.newly > 0 {
            self.idle_restart = false;
        }
        self.set_pacing_rate(ack.smoothed_rtt);
        self.set_window(ack);
    }

    /// BBRUpdateLatestDeliverySignals and BBRUpdateCongestionSignals.
    fn update_bandwidth(&mut self, ack: &Delivery, sample: &Sample) {
        self.bounds.observe(sample, self.sampler.delivered);
        self.bandwidth.update(sample);
        if ack.lost > 0 {
            self.loss_events = self.loss_events.saturating_add(1);
        }
        if !self.bounds.round_started {
            return;
        }
        let lossy = Bounds::loses_too_much(sample, self.segment);
        let often = self.loss_events >= STARTUP_LOSSES;
        if self.state == State::Startup && lossy && often && !self.full.reached {
            self.full.reached = true;
            self.full.now = true;
            self.bounds.inflight_high = self.inflight(WINDOW).max(self.bounds.inflight_latest);
        }
        if lossy && !self.state.is_probing() && self.rounds.count >= self.settled {
            self.bounds.adapt(self.bandwidth.get(), self.window);
        }
        self.loss_events = 0;
    }

    fn check_startup(&mut self, sample: &Sample) {
        // The rate of one that follows no longer grows when that of the group does not.
        let sample = Sample {
            app_limited: sample.app_limited && !self.follows,
            ..*sample
        };
        self.full.update(&sample, self.rounds.started);
        if self.state == State::Startup && self.full.reached {
            self.state = State::Drain;
            self.rounds.restart(self.sampler.delivered);
            self.probing_ends();
        }
    }

    /// What was sent to probe is acknowledged within a round, and its losses are found in the one after.
    fn probing_ends(&mut self) {
        self.settled = self.rounds.count + 2;
    }

    /// The product of bandwidth and delay, times a gain in percent.
    fn product(&self, gain: u64) -> u64 {
        match self.min_rtt.get() {
            Some(rtt) => percent(bytes_in(self.bandwidth(), rtt), gain),
            None => self.window,
        }
    }

    /// BBRInflight: the product with what keeps senders and receivers that work in lumps busy (§5.6.4.2).
    fn inflight(&self, gain: u64) -> u64 {
        let least = (MIN_SEGMENTS * self.segment).max(3 * self.quantum());
        let more = if self.state == State::Up {
            2 * self.segment
        } else {
            0
        };
        self.product(gain).max(least).saturating_add(more)
    }

    fn probe_rtt_window(&self) -> u64 {
        self.product(PROBE_RTT_WINDOW)
            .max(MIN_SEGMENTS * self.segment)
    }

    /// §5.3.4.3.
    fn check_probe_rtt(&mut self, ack: &Delivery) {
        let due = self.min_rtt.expired && !self.idle_restart && !self.follows;
        if self.state != State::ProbeRtt && due {
            self.probe_rtt = ProbeRtt {
                window_before: self.window,
                ..ProbeRtt::default()
            };
            self.state = State::ProbeRtt;
            self.probe.stop();
            self.rounds.restart(self.sampler.delivered);
        }
        if self.state != State::ProbeRtt {
            return;
        }
        match self.probe_rtt.until {
            None if ack.in_flight <= self.probe_rtt_window() => {
                self.probe_rtt.until = Some(ack.now + PROBE_RTT_TIME);
                self.rounds.restart(self.sampler.delivered);
            }
            None => {}
            Some(until) => {
                self.probe_rtt.round_done |= self.rounds.started;
                if self.probe_rtt.round_done && ack.now > until {
                    self.end_probe_rtt(ack);
                }
            }
        }
        if self.follows && self.state == State::ProbeRtt {
            self.end_probe_rtt(ack);
        }
    }

    fn end_probe_rtt(&mut self, ack: &Delivery) {
        self.min_rtt.recent_stamp = ack.now;
        self.window = self.window.max(self.probe_rtt.window_before);
        self.bounds.reset_low();
        if self.full.reached {
            self.begin_down(ack);
            self.begin_cruise();
        } else {
            self.state = State::Startup;
        }
    }

    fn set_pacing_rate(&mut self, smoothed: Option<Duration>) {
        if !self.has_rtt && smoothed.is_some() {
            self.has_rtt = true;
            self.pacing_rate = first_rate(self.window, smoothed, STARTUP_PACING);
        }
        let rate = percent(self.bandwidth(), self.state.pacing());
        let rate = percent(rate, PACING_MARGIN);
        if rate > 0 && (self.full.reached || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    /// BBRSetCwnd.
    fn set_window(&mut self, ack: &Delivery) {
        let most = self
            .product(self.state.window())
            .saturating_add(self.aggregation.get());
        let most = most.max(self.inflight(self.state.window()));
        let grown = self.window.saturating_add(ack.newly);
        if self.full.reached {
            self.window = grown.min(most);
        } else if self.window < most
            || self.sampler.delivered < super::INITIAL_SEGMENTS * self.segment
        {
            self.window = grown;
        }
        let least = MIN_SEGMENTS * self.segment;
        // After a timeout it grows to that from one segment.
        let cap = self.cap().max(least);
        self.window = self.window.min(cap).max(self.segment);
        if ack.newly > 0 {
            self.window = self.window.max(least);
        }
        if self.state == State::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
    }

    /// BBRBoundCwndForModel.
    fn cap(&self) -> u64 {
        if self.follows {
            return u64::MAX;
        }
        let high = match self.state {
            State::Cruise | State::ProbeRtt => self.bounds.with_headroom(self.segment),
            State::Down | State::Refill | State::Up => self.bounds.inflight_high,
            State::Startup | State::Drain => u64::MAX,
        };
        high.min(self.bounds.inflight_low)
    }
}
