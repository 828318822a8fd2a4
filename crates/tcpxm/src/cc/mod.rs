//! Congestion control: how many bytes may be in flight to one receiver.
//!
//! Slow start is common to CUBIC and NewReno: appropriate byte counting (RFC 3465, L = 8, as the
//! initial window is ten segments) that leaves early when round trips grow (HyStart++, RFC 9406).

mod average;
mod bbr;
mod cubic;
mod hystart;

use alloc::boxed::Box;

use proto_core::time::{Duration, Instant};

use average::Average;
use bbr::{Bbr, SavedBounds};
use cubic::Cubic;
use hystart::HyStart;

pub(crate) use bbr::{Delivery, Newest};

/// Which controller keeps a connection's congestion window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum CongestionControl {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// NewReno (RFC 5681, RFC 6582).
    NewReno,
    /// BBR, version 3 (draft-ietf-ccwg-bbr-03). All data is paced, whatever
    /// [`Config::pacing`](crate::Config::pacing) says.
    Bbr,
}

/// An acknowledgement, as the controller sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) now: Instant,
    /// Bytes newly known to have arrived.
    pub(crate) bytes: u64,
    /// Whether the congestion window, and nothing else, held back sending; or that of another receiver
    /// of the group did, and this one is not twice what is in flight yet.
    pub(crate) limited: bool,
    pub(crate) smoothed_rtt: Option<Duration>,
    /// A fresh sample, if this acknowledgement gave one.
    pub(crate) rtt: Option<Duration>,
    /// The stream offset acknowledged up to, and the one behind the last byte sent.
    pub(crate) una: u64,
    pub(crate) nxt: u64,
}

/// The congestion window of one receiver, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    window: u64,
    /// Slow start ends here.
    threshold: u64,
    segment: u64,
    /// Bytes acknowledged in congestion avoidance that have not yet made a segment.
    credit: u64,
    hystart: HyStart,
    cubic: Option<Cubic>,
    average: Average,
    /// Keeps the window in place of the others.
    bbr: Option<Box<Bbr>>,
}

/// A controller's window before a reduction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    window: u64,
    threshold: u64,
    cubic: Option<Cubic>,
    bounds: Option<SavedBounds>,
}

/// Segments at the start (RFC 6928).
pub(crate) const INITIAL_SEGMENTS: u64 = 10;

impl Controller {
    pub(crate) fn new(kind: CongestionControl, segment: u64) -> Self {
        Self {
            window: initial(segment),
            threshold: u64::MAX,
            segment,
            credit: 0,
            hystart: HyStart::default(),
            cubic: match kind {
                CongestionControl::Cubic => Some(Cubic::default()),
                CongestionControl::NewReno | CongestionControl::Bbr => None,
            },
            average: Average::default(),
            bbr: (kind == CongestionControl::Bbr)
                .then(|| Box::new(Bbr::new(initial(segment), segment))),
        }
    }

    /// Whether BBR keeps the window.
    pub(crate) fn is_bbr(&self) -> bool {
        self.bbr.is_some()
    }

    /// Returns the rate at which new data is to be sent, in bits a second, and the bytes sent at once; `None`: as fast
    /// as windows allow.
    pub(crate) fn pacing(&self) -> Option<(u64, u64)> {
        let bbr = self.bbr.as_deref()?;
        Some((bbr.pacing_rate().saturating_mul(8).max(1), bbr.quantum()))
    }

    /// Returns the bandwidth that BBR has measured, in bits a second.
    pub(crate) fn bandwidth_bps(&self) -> Option<u64> {
        let measured = self.bbr.as_deref()?.measured_bandwidth();
        (measured > 0).then_some(measured.saturating_mul(8))
    }

    /// Takes an acknowledgement, or a detection of losses, for BBR.
    pub(crate) fn on_delivery(&mut self, delivery: &Delivery) {
        if let Some(bbr) = &mut self.bbr {
            bbr.on_ack(delivery);
        }
    }

    /// Data is about to be sent from this offset on while nothing is in flight.
    pub(crate) fn on_restart(&mut self, now: Instant, offset: u64) {
        if let Some(bbr) = &mut self.bbr {
            bbr.restart(now, offset);
        }
    }

    /// The segment size is known, or has changed.
    pub(crate) fn set_segment(&mut self, segment: u64) {
        if let Some(bbr) = &mut self.bbr {
            bbr.set_segment(segment, initial(segment));
        }
        if self.window == initial(self.segment) && self.threshold == u64::MAX {
            self.window = initial(segment);
        }
        self.segment = segment;
        self.window = self.window.max(segment);
    }

    /// Bytes that may be in flight.
    pub(crate) fn window(&self) -> u64 {
        self.bbr.as_ref().map_or(self.window, |bbr| bbr.window())
    }

    /// Records the window in its average.
    pub(crate) fn observe(&mut self, now: Instant, smoothed_rtt: Duration) {
        let in_slow_start = self.in_slow_start();
        let window = self.window();
        self.average
            .observe(now, window, in_slow_start, smoothed_rtt);
    }

    /// Returns the bytes that may be in flight to a receiver that follows the rate of another one: what its own
    /// window is on average, if that is more than the window. A receiver on a path of its own would have that rate.
    pub(crate) fn follower_window(&self) -> u64 {
        match &self.bbr {
            Some(bbr) => bbr.window(),
            None => self.window.max(self.average.get()),
        }
    }

    /// Returns the long-run rate of this receiver in bytes a second, as far as it is known.
    pub(crate) fn long_run_rate(&self, smoothed_rtt: Option<Duration>) -> Option<u64> {
        let rate = match &self.bbr {
            Some(bbr) => bbr.bandwidth(),
            None => {
                self.average.get().saturating_mul(1_000_000) / smoothed_rtt?.total_micros().max(1)
            }
        };
        (rate > 0).then_some(rate)
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        match &self.bbr {
            Some(bbr) => bbr.in_startup(),
            None => self.window < self.threshold,
        }
    }

    /// New data was acknowledged outside of recovery.
    pub(crate) fn on_ack(&mut self, ack: Ack) {
        if self.in_slow_start() {
            let growth = self.hystart.on_ack(&ack);
            if growth.ends_slow_start {
                self.threshold = self.window;
            }
            if ack.limited {
                let grown = ack.bytes.min(8 * self.segment) / growth.divisor;
                self.window = (self.window + grown).min(self.threshold);
            }
            return;
        }
        if let Some(cubic) = &mut self.cubic {
            self.window = cubic.on_ack(&ack, self.window, self.segment);
        } else if ack.limited {
            // RFC 5681 §3.1: one segment a window.
            self.credit += ack.bytes;
            if self.credit >= self.window {
                self.credit -= self.window;
                self.window += self.segment;
            }
        }
    }

    /// The state before a reduction, in case the reduction was unnecessary.
    pub(crate) fn save(&self) -> Saved {
        Saved {
            window: self.window,
            threshold: self.threshold,
            cubic: self.cubic,
            bounds: self.bbr.as_ref().map(|bbr| bbr.save()),
        }
    }

    /// Nothing was lost: the reduction is taken back (RFC 4015 §3.2).
    pub(crate) fn restore(&mut self, saved: &Saved) {
        self.window = self.window.max(saved.window);
        self.threshold = self.threshold.max(saved.threshold);
        self.cubic = saved.cubic;
        if let (Some(bbr), Some(bounds)) = (&mut self.bbr, &saved.bounds) {
            bbr.restore(bounds);
        }
    }

    /// A loss, for the first time since the window was last reduced. `carried`: the most that was in
    /// flight lately. That is what is reduced (RFC 5681 §3.1, RFC 9438 §4.6), and not the window: what
    /// is in flight to one receiver of a group is what the narrowest window of all lets go, and this one
    /// may be twice that.
    pub(crate) fn on_loss(&mut self, carried: u64) {
        let floor = 2 * self.segment;
        let used = self.window.min(carried.max(self.segment));
        self.threshold = match &mut self.cubic {
            Some(cubic) => cubic.on_loss(used, self.segment),
            None => used / 2,
        }
        .max(floor);
        self.window = self.threshold;
        self.credit = 0;
    }

    /// The retransmission timer expired: everything in flight is lost (RFC 5681 §3.1).
    pub(crate) fn on_timeout(&mut self, carried: u64, first: bool) {
        if let Some(bbr) = &mut self.bbr {
            bbr.on_timeout();
        }
        if first {
            self.on_loss(carried);
        }
        self.window = self.segment;
        self.hystart = HyStart::default();
    }

    /// The connection was idle for a retransmission timeout (RFC 5681 §4.1).
    pub(crate) fn on_idle(&mut self) {
        self.window = self.window.min(initial(self.segment));
        if let Some(cubic) = &mut self.cubic {
            cubic.forget_epoch();
        }
    }
}

/// RFC 6928: ten segments, at most 14600 bytes, at least two segments.
fn initial(segment: u64) -> u64 {
    (INITIAL_SEGMENTS * segment).min((2 * segment).max(14600))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1000;

    fn ack(now_ms: i64, bytes: u64, limited: bool) -> Ack {
        Ack {
            now: Instant::from_millis(now_ms),
            bytes,
            limited,
            smoothed_rtt: Some(Duration::from_millis(50)),
            rtt: None,
            una: 0,
            nxt: 0,
        }
    }

    #[test]
    fn initial_window_is_that_of_rfc_6928() {
        assert_eq!(initial(1000), 10_000);
        assert_eq!(initial(1460), 14_600);
        assert_eq!(initial(9000), 18_000);
    }

    #[test]
    fn slow_start_doubles_and_new_reno_adds_a_segment() {
        let mut controller = Controller::new(CongestionControl::NewReno, SEGMENT);
        for _ in 0..10 {
            controller.on_ack(ack(0, SEGMENT, true));
        }
        assert_eq!(controller.window(), 20_000);
        controller.on_loss(20_000);
        assert_eq!(controller.window(), 10_000);
        for _ in 0..10 {
            controller.on_ack(ack(50, SEGMENT, true));
        }
        assert_eq!(controller.window(), 11_000);
        controller.on_ack(ack(60, 50 * SEGMENT, false));
        assert_eq!(
            controller.window(),
            11_000,
            "not limited by the window: no growth"
        );
        controller.on_timeout(11_000, true);
        assert_eq!((controller.window(), controller.threshold), (1000, 5500));
    }

    #[test]
    fn a_new_segment_size_changes_a_window_that_was_not_used() {
        let mut controller = Controller::new(CongestionControl::NewReno, SEGMENT);
        controller.set_segment(500);
        assert_eq!(controller.window(), 5_000);
        controller.on_ack(ack(0, 500, true));
        controller.set_segment(SEGMENT);
        assert_eq!(controller.window(), 5_500, "it has grown");
        controller.on_loss(20_000);
        controller.window = initial(SEGMENT);
        controller.set_segment(500);
        assert_eq!(controller.window(), 10_000, "it has lost");
        controller.set_segment(20_000);
        assert_eq!(controller.window(), 20_000, "a segment at least");
    }

    #[test]
    fn an_acknowledgement_of_much_counts_for_eight_segments() {
        let mut controller = Controller::new(CongestionControl::NewReno, SEGMENT);
        controller.on_ack(ack(0, 30 * SEGMENT, true));
        assert_eq!(controller.window(), 18_000);
        controller.on_ack(ack(0, 30 * SEGMENT, false));
        assert_eq!(controller.window(), 18_000);
    }

    #[test]
    fn a_queue_slows_slow_start_down_to_a_quarter_and_ends_it() {
        let mut controller = Controller::new(CongestionControl::NewReno, SEGMENT);
        let mut una = 0;
        let mut round = |controller: &mut Controller, rtt_ms| {
            let before = controller.window();
            for _ in 0..10 {
                una += 1;
                controller.on_ack(Ack {
                    rtt: Some(Duration::from_millis(rtt_ms)),
                    una,
                    nxt: una + 10,
                    ..ack(0, SEGMENT, true)
                });
            }
            controller.window() - before
        };
        assert_eq!(round(&mut controller, 80), 10_000);
        assert!(round(&mut controller, 100) > 2_500);
        assert_eq!(round(&mut controller, 100), 2_500);
        for _ in 0..3 {
            assert!(controller.in_slow_start());
            round(&mut controller, 100);
        }
        round(&mut controller, 100);
        assert!(!controller.in_slow_start());
    }

    #[test]
    fn new_reno_keeps_what_was_acknowledged_beyond_a_window() {
        let mut controller = Controller::new(CongestionControl::NewReno, SEGMENT);
        controller.on_loss(20_000);
        assert_eq!(controller.window(), 5_000);
        controller.on_ack(ack(0, 8 * SEGMENT, true));
        assert_eq!((controller.window(), controller.credit), (6_000, 3_000));
        controller.on_ack(ack(0, 3 * SEGMENT, true));
        assert_eq!((controller.window(), controller.credit), (7_000, 0));
    }

    #[test]
    fn a_window_is_never_below_two_segments_after_a_loss_and_comes_back_if_there_was_none() {
        let mut controller = Controller::new(CongestionControl::Cubic, SEGMENT);
        let saved = controller.save();
        controller.on_loss(1_000);
        assert_eq!(controller.window(), 2_000);
        controller.restore(&saved);
        assert_eq!(controller.window(), 10_000);
        assert!(controller.in_slow_start());
    }

    #[test]
    fn after_an_idle_time_the_window_is_the_first_one_at_most() {
        let mut controller = Controller::new(CongestionControl::Cubic, SEGMENT);
        controller.window = 200_000;
        controller.on_loss(200_000);
        controller.on_ack(ack(0, SEGMENT, true));
        controller.on_idle();
        assert_eq!(controller.window(), 10_000);
        assert!(controller.in_slow_start());
        controller.on_timeout(10_000, false);
        controller.on_idle();
        assert_eq!(controller.window(), 1_000);
    }

    #[test]
    fn cubic_returns_to_the_window_of_the_last_loss_and_passes_it() {
        let mut controller = Controller::new(CongestionControl::Cubic, SEGMENT);
        controller.window = 200_000;
        controller.on_loss(200_000);
        assert_eq!(controller.window(), 140_000);
        // K = cbrt(60 / 0.4) = 5.3 s.
        let mut at = 0;
        let mut when_back = None;
        while at < 9000 {
            let bytes = controller.window() / 5;
            controller.on_ack(ack(at, bytes, true));
            at += 10;
            if when_back.is_none() && controller.window() >= 199_000 {
                when_back = Some(at);
            }
        }
        let when_back = when_back.unwrap();
        assert!((3000..=5600).contains(&when_back), "{when_back} ms");
        assert!(controller.window() > 210_000, "{}", controller.window());
    }

    #[test]
    fn cubic_converges_faster_after_two_losses() {
        let mut controller = Controller::new(CongestionControl::Cubic, SEGMENT);
        controller.window = 100_000;
        controller.on_loss(100_000);
        controller.on_loss(70_000);
        assert_eq!(controller.window(), 49_000);
    }

    #[test]
    fn what_was_in_flight_is_reduced_and_not_a_window_that_is_not_used() {
        for (kind, expected) in [
            (CongestionControl::Cubic, 35_000),
            (CongestionControl::NewReno, 25_000),
        ] {
            let mut controller = Controller::new(kind, SEGMENT);
            controller.window = 100_000;
            controller.on_loss(50_000);
            assert_eq!(controller.window(), expected);
        }
    }
}
