//! The strategy of recovery: to which peer a request goes, and when it is repeated.
//!
//! | strategy | first requests go to | after [`ReceiverConfig::attempts_before_source`] unanswered ones to |
//! | --- | --- | --- |
//! | source | the source | the source |
//! | LMS | the group, with the option | the source |
//! | DyRAM | the relay | the source |

#[cfg(test)]
mod tests;

use proto_core::round_trip::{RoundTrip, TimeoutLimits};
use proto_core::time::{Duration, Instant};

use super::gaps::Arrival;
use crate::config::{Assist, ReceiverConfig};
use crate::wire::request::REPAIR_ALONE;

/// After a request of a receiver below, a replier requests for the receivers below for this time.
const REQUESTS_FOR_OTHERS: Duration = Duration::from_secs(10);
/// Unanswered requests to the source after which this receiver asks it to confirm its heartbeat.
const DOUBT_AFTER: u8 = 2;
/// Longer samples of the round-trip time count as this.
const MAX_SAMPLE: Duration = Duration::from_secs(60);

/// The peer that a request goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Source,
    Group,
    Relay,
}

#[derive(Debug)]
enum Strategy {
    Source,
    Lms {
        /// Until then requests of this host also serve receivers below it.
        for_others_until: Instant,
    },
    Dyram {
        /// Time that the relay may need for a repair.
        delay: Duration,
        window: RequestWindow,
    },
}

/// Round trips, and the strategy.
#[derive(Debug)]
pub(super) struct Recovery {
    strategy: Strategy,
    source_trip: RoundTrip,
    group_trip: RoundTrip,
    attempts_before_source: u8,
    max_outstanding: u32,
    /// Bounds of the timeout, in microseconds.
    timeout_us: (u32, u32),
}

impl Recovery {
    pub(super) fn new(config: &ReceiverConfig, now: Instant) -> Self {
        let trip = RoundTrip::new(TimeoutLimits {
            initial: config.initial_timeout,
            min: config.min_timeout,
            max: config.max_timeout.max(config.min_timeout),
            granularity: Duration::ZERO,
        });
        let strategy = match config.assist {
            Assist::None => Strategy::Source,
            Assist::Lms => Strategy::Lms {
                for_others_until: Instant::ZERO,
            },
            Assist::Dyram => Strategy::Dyram {
                delay: config.initial_timeout / 2,
                window: RequestWindow::new(now),
            },
        };
        Recovery {
            strategy,
            source_trip: trip,
            group_trip: trip,
            attempts_before_source: config.attempts_before_source,
            max_outstanding: config.max_outstanding,
            timeout_us: (micros(config.min_timeout), micros(config.max_timeout)),
        }
    }

    #[inline]
    pub(super) fn is_lms(&self) -> bool {
        matches!(self.strategy, Strategy::Lms { .. })
    }

    pub(super) fn is_source(&self) -> bool {
        matches!(self.strategy, Strategy::Source)
    }

    pub(super) fn is_dyram(&self) -> bool {
        matches!(self.strategy, Strategy::Dyram { .. })
    }

    /// Returns the target of a request after that number of attempts.
    pub(super) fn target(&self, attempts: u8) -> Target {
        match self.strategy {
            _ if attempts >= self.attempts_before_source => Target::Source,
            Strategy::Source => Target::Source,
            Strategy::Lms { .. } => Target::Group,
            Strategy::Dyram { .. } => Target::Relay,
        }
    }

    /// Returns the time until a request is repeated; the first one has number 1.
    pub(super) fn timeout(&self, number: u32, target: Target) -> Duration {
        match (target, &self.strategy) {
            (Target::Source, Strategy::Source) => self.source_trip.timeout(number),
            // Earlier attempts did not go to the source.
            (Target::Source, _) => {
                let before = u32::from(self.attempts_before_source);
                self.source_trip
                    .timeout(number.saturating_sub(before).max(1))
            }
            (_, Strategy::Dyram { delay, .. }) => self.relay_timeout(*delay, number),
            _ => self.group_trip.timeout(number),
        }
    }

    fn relay_timeout(&self, delay: Duration, number: u32) -> Duration {
        let (min, max) = self.timeout_us;
        let (min, max) = (u64::from(min), u64::from(max.max(min)));
        let (min, max) = (Duration::from_micros(min), Duration::from_micros(max));
        let base = (delay * 2).clamp(min, max);
        (base * (1 << number.saturating_sub(1).min(8))).min(max)
    }

    /// Whether that number of unanswered requests for packets puts in doubt that these were ever sent.
    pub(super) fn is_doubtful(&self, attempts: u8) -> bool {
        attempts >= self.attempts_before_source.saturating_add(DOUBT_AFTER)
    }

    /// Returns the number of attempts that requests for digests begin with. Only LMS receivers are asked
    /// before the source, and not about digests that were wrong before.
    pub(super) fn first_digest_attempt(&self, may_ask_group: bool) -> u32 {
        if self.is_lms() && may_ask_group {
            0
        } else {
            u32::from(self.attempts_before_source)
        }
    }

    /// Returns the target of a request for digests, its number counted from 1.
    pub(super) fn digest_target(&self, number: u32) -> Target {
        if number > u32::from(self.attempts_before_source) || !self.is_lms() {
            Target::Source
        } else {
            Target::Group
        }
    }

    /// Returns the time until a request for digests is repeated.
    pub(super) fn digest_timeout(&self, number: u32, target: Target) -> Duration {
        if target == Target::Source {
            let before = u32::from(self.attempts_before_source);
            self.source_trip
                .timeout(number.saturating_sub(before).max(1))
        } else {
            self.group_trip.timeout(number)
        }
    }

    /// Whether that number of unanswered requests puts in doubt that the digests exist.
    pub(super) fn is_digest_doubtful(&self, number: u32) -> bool {
        number > u32::from(self.attempts_before_source) + u32::from(DOUBT_AFTER)
    }

    /// Returns the nonce of a request for packets: this receiver's identifier, for the source; to the group,
    /// whether the repair may come to this receiver alone.
    pub(super) fn nonce(&self, target: Target, id: u64, now: Instant) -> u64 {
        match (target, &self.strategy) {
            (Target::Source, _) => id,
            (_, Strategy::Lms { for_others_until }) if now >= *for_others_until => REPAIR_ALONE,
            _ => 0,
        }
    }

    /// Notes a request of a receiver below.
    pub(super) fn requested_from_below(&mut self, now: Instant) {
        if let Strategy::Lms { for_others_until } = &mut self.strategy {
            *for_others_until = now + REQUESTS_FOR_OTHERS;
        }
    }

    /// Forgets requests of receivers below.
    pub(super) fn forget_requests_from_below(&mut self) {
        if let Strategy::Lms { for_others_until } = &mut self.strategy {
            *for_others_until = Instant::ZERO;
        }
    }

    /// Returns how many packets may be outstanding.
    pub(super) fn max_outstanding(&self) -> u32 {
        match &self.strategy {
            Strategy::Dyram { window, .. } => u32::from(window.packets).min(self.max_outstanding),
            _ => self.max_outstanding,
        }
    }

    /// Learns from a packet that was requested.
    pub(super) fn arrived(&mut self, arrival: &Arrival, now: Instant) {
        if let Strategy::Dyram { window, .. } = &mut self.strategy
            && arrival.attempts == 1
        {
            window.repaired(self.max_outstanding);
        }
        if arrival.answers {
            let sample = (now - arrival.sent).min(MAX_SAMPLE);
            if arrival.by_source {
                self.source_trip.sample(sample);
            } else {
                self.group_trip.sample(sample);
            }
        }
    }

    /// Notes that packets are requested again.
    pub(super) fn repeats(&mut self, now: Instant) {
        let Strategy::Dyram { delay, .. } = self.strategy else {
            return;
        };
        let wait = self.relay_timeout(delay, 1);
        if let Strategy::Dyram { window, .. } = &mut self.strategy {
            window.repeated(now, wait);
        }
    }

    /// Sets the time that the relay may need for a repair: requests to it are repeated after twice that.
    pub(super) fn set_relay_delay(&mut self, new: Duration) {
        if let Strategy::Dyram { delay, .. } = &mut self.strategy {
            *delay = new;
        }
    }

    pub(super) fn source_trip(&self) -> &RoundTrip {
        &self.source_trip
    }

    pub(super) fn sample_source(&mut self, sample: Duration) {
        self.source_trip.sample(sample.min(MAX_SAMPLE));
    }

    pub(super) fn group_trip(&self) -> Option<Duration> {
        self.group_trip.smoothed()
    }
}

/// Packets requested at first; a relay has 64 NACK states for a session by default.
const START: u16 = 32;
/// Packets that may always be requested.
const MIN: u16 = 8;

/// How many packets may be requested from a relay at a time.
///
/// A relay has NACK states for a few dozen packets, and drops further NACKs without an answer. The window
/// grows with each repair that answers a first request, and halves when packets must be requested again, as
/// TCP's congestion window does (RFC 5681).
#[derive(Clone, Copy, Debug)]
struct RequestWindow {
    packets: u16,
    threshold: u16,
    /// Repairs since the window last grew, above the threshold.
    repairs: u16,
    /// When it was last halved, in milliseconds; wraps.
    halved_ms: u32,
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.total_micros()).unwrap_or(u32::MAX)
}

fn milliseconds(now: Instant) -> u32 {
    now.total_millis() as u32
}

impl RequestWindow {
    fn new(now: Instant) -> Self {
        RequestWindow {
            packets: START,
            threshold: u16::MAX,
            repairs: 0,
            halved_ms: milliseconds(now),
        }
    }

    /// A packet came that was requested once.
    fn repaired(&mut self, max: u32) {
        let max = u16::try_from(max).unwrap_or(u16::MAX);
        self.repairs = self.repairs.saturating_add(1);
        if self.packets < self.threshold || self.repairs >= self.packets {
            self.packets = self.packets.saturating_add(1).min(max);
            self.repairs = 0;
        }
    }

    /// A packet must be requested again. Halves once in `wait`, the time that an answer takes.
    fn repeated(&mut self, now: Instant, wait: Duration) {
        let since = milliseconds(now).wrapping_sub(self.halved_ms);
        if u64::from(since) >= wait.total_millis() {
            self.halved_ms = milliseconds(now);
            self.threshold = (self.packets / 2).max(MIN);
            self.packets = self.threshold;
            self.repairs = 0;
        }
    }
}
