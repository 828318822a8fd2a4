//! Bounds that losses set (draft-ietf-ccwg-bbr-03 §5.5.10): short-term ones, which the next probe forgets, and the
//! long-term one on bytes in flight.

use super::model::percent;
use super::rate::Sample;

/// Beta: what is left after a round with losses, in percent.
const BETA: u64 = 70;
/// Headroom: what Cruise leaves to other flows, in percent.
const HEADROOM: u64 = 15;
/// LossThresh: more lost than this share, in percent, is too much.
const LOSS_THRESHOLD: u64 = 2;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bandwidth_low: u64,
    pub(super) inflight_low: u64,
    pub(super) inflight_high: u64,
    /// Most of the present loss round.
    bandwidth_latest: u64,
    pub(super) inflight_latest: u64,
    next_delivered: u64,
    /// The present acknowledgement begins a round of losses.
    pub(super) round_started: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            bandwidth_low: u64::MAX,
            inflight_low: u64::MAX,
            inflight_high: u64::MAX,
            bandwidth_latest: 0,
            inflight_latest: 0,
            next_delivered: 0,
            round_started: false,
        }
    }
}

impl Bounds {
    /// BBRUpdateLatestDeliverySignals.
    pub(super) fn observe(&mut self, sample: &Sample, delivered: u64) {
        self.bandwidth_latest = self.bandwidth_latest.max(sample.rate);
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
        self.round_started = sample.delivered > 0 && sample.prior_delivered >= self.next_delivered;
        if self.round_started {
            self.next_delivered = delivered;
        }
    }

    /// BBRAdvanceLatestDeliverySignals.
    pub(super) fn advance(&mut self, sample: &Sample) {
        if self.round_started {
            self.bandwidth_latest = sample.rate;
            self.inflight_latest = sample.delivered;
        }
    }

    /// BBRAdaptLowerBoundsFromCongestion, at the end of a round that lost too much.
    pub(super) fn adapt(&mut self, bandwidth: u64, window: u64) {
        let low = self.bandwidth_low.min(bandwidth);
        self.bandwidth_low = self.bandwidth_latest.max(percent(low, BETA));
        let low = self.inflight_low.min(window);
        self.inflight_low = self.inflight_latest.max(percent(low, BETA));
    }

    pub(super) fn reset_low(&mut self) {
        (self.bandwidth_low, self.inflight_low) = (u64::MAX, u64::MAX);
    }

    /// BBRResetCongestionSignals.
    pub(super) fn reset_signals(&mut self) {
        (self.bandwidth_latest, self.inflight_latest) = (0, 0);
    }

    /// IsInflightTooHigh: more was lost than a path that loses [`LOSS_THRESHOLD`] loses by chance, by two standard
    /// deviations. Without them, one or two segments of a short flight would be too much, which a path that loses 1 %
    /// loses all the time.
    pub(super) fn loses_too_much(sample: &Sample, segment: u64) -> bool {
        let expected = percent(sample.in_flight_at_sending, LOSS_THRESHOLD);
        let deviation = expected.saturating_mul(segment).isqrt();
        sample.lost > expected.saturating_add(2 * deviation)
    }

    /// The long-term bound after too many losses. `target`: the bandwidth's product, as far as the window allows.
    pub(super) fn reduce(&mut self, in_flight: u64, target: u64) {
        self.inflight_high = in_flight.max(percent(target, BETA));
    }

    /// BBRInflightWithHeadroom.
    pub(super) fn with_headroom(&self, segment: u64) -> u64 {
        if self.inflight_high == u64::MAX {
            return u64::MAX;
        }
        let headroom = percent(self.inflight_high, HEADROOM).max(segment);
        self.inflight_high.saturating_sub(headroom)
    }

    /// Takes back reductions.
    pub(super) fn widen_to(&mut self, before: &Bounds) {
        self.bandwidth_low = self.bandwidth_low.max(before.bandwidth_low);
        self.inflight_low = self.inflight_low.max(before.inflight_low);
        self.inflight_high = self.inflight_high.max(before.inflight_high);
    }
}
