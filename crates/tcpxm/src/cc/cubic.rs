//! CUBIC (RFC 9438), in segments and seconds.

use proto_core::time::{Duration, Instant};

use super::Ack;

const BETA: f64 = 0.7;
const C: f64 = 0.4;

#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// When congestion avoidance began; time during which the window limited nothing is not counted.
    start: Instant,
    last_ack: Instant,
    /// Time to grow back to `w_max`.
    k: f64,
    /// Estimate of what Reno would have, in segments (§4.3).
    w_est: f64,
}

/// State of one connection.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Cubic {
    /// Window before the last reduction, in segments.
    w_max: f64,
    epoch: Option<Epoch>,
    /// Growth below a whole byte.
    fraction: f64,
}

impl Cubic {
    /// The window at the last loss, and how much of it was used.
    pub(super) fn on_loss(&mut self, window: u64, segment: u64) -> u64 {
        let w = window as f64 / segment as f64;
        // §4.7, fast convergence: a flow that lost again below its last maximum gives way.
        self.w_max = if w < self.w_max {
            w * (1.0 + BETA) / 2.0
        } else {
            w
        };
        self.epoch = None;
        (window as f64 * BETA) as u64
    }

    pub(super) fn forget_epoch(&mut self) {
        self.epoch = None;
    }

    /// The window after an acknowledgement in congestion avoidance.
    pub(super) fn on_ack(&mut self, ack: &Ack, window: u64, segment: u64) -> u64 {
        let w = window as f64 / segment as f64;
        let mut epoch = self.epoch.unwrap_or_else(|| {
            self.w_max = self.w_max.max(w);
            Epoch {
                start: ack.now,
                last_ack: ack.now,
                k: libm::cbrt((self.w_max - w) / C),
                w_est: w,
            }
        });
        if !ack.limited {
            // §5.8: time in which the application held back does not count.
            epoch.start += ack.now - epoch.last_ack;
            epoch.last_ack = ack.now;
            self.epoch = Some(epoch);
            return window;
        }
        epoch.last_ack = ack.now;
        let rtt = seconds(ack.smoothed_rtt.unwrap_or(Duration::ZERO));
        let t = seconds(ack.now - epoch.start);
        let acked = ack.bytes as f64 / segment as f64;
        // §4.3: alpha makes Reno's share equal; once past w_max it is Reno's own.
        let alpha = if epoch.w_est < self.w_max {
            3.0 * (1.0 - BETA) / (1.0 + BETA)
        } else {
            1.0
        };
        epoch.w_est += alpha * acked / w;
        let at = |t: f64| C * (t - epoch.k) * (t - epoch.k) * (t - epoch.k) + self.w_max;
        let grown = if at(t) < epoch.w_est {
            epoch.w_est.max(w)
        } else {
            let target = at(t + rtt).clamp(w, 1.5 * w);
            w + (target - w) / w * acked
        };
        self.epoch = Some(epoch);
        let bytes = (grown - w) * segment as f64 + self.fraction;
        let whole = libm::floor(bytes);
        self.fraction = bytes - whole;
        window + whole as u64
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.total_micros() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1_000;

    /// A connection that has just lost, and acknowledgements with a smoothed round trip.
    struct Flow {
        cubic: Cubic,
        window: u64,
        rtt: Duration,
    }

    impl Flow {
        fn after_loss_at(window: u64, rtt_ms: u64) -> Self {
            let mut cubic = Cubic::default();
            let window = cubic.on_loss(window, SEGMENT);
            Flow {
                cubic,
                window,
                rtt: Duration::from_millis(rtt_ms),
            }
        }

        fn ack(&mut self, millis: i64, bytes: u64, limited: bool) {
            let ack = Ack {
                now: Instant::from_millis(millis),
                bytes,
                limited,
                smoothed_rtt: Some(self.rtt),
                rtt: None,
                una: 0,
                nxt: 0,
            };
            self.window = self.cubic.on_ack(&ack, self.window, SEGMENT);
        }

        /// The last digits depend on the rounding of roots.
        fn assert_window(&self, expected: u64) {
            let window = self.window;
            assert!(window.abs_diff(expected) <= 2, "{window}, not {expected}");
        }
    }

    #[test]
    fn the_window_follows_the_cubic_function() {
        // W(t) = 0.4 (t - K)^3 + 100 with K = 4.217 s, a round trip ahead.
        let mut flow = Flow::after_loss_at(100_000, 100);
        assert_eq!(flow.window, 70_000);
        let expected = [
            (0, 70_529),
            (10, 87_885),
            (20, 96_204),
            (30, 99_442),
            (42, 100_000),
            (60, 104_176),
            (80, 124_177),
        ];
        for round in 0..=80 {
            flow.ack(100 * round, flow.window, true);
            if let Some((_, window)) = expected.iter().find(|(at, _)| *at == round) {
                flow.assert_window(*window);
            }
        }
    }

    #[test]
    fn on_short_round_trips_it_grows_as_reno_does() {
        let mut flow = Flow::after_loss_at(20_000, 10);
        let expected = [(1, 14_529), (10, 19_293), (20, 28_633), (40, 48_632)];
        flow.ack(0, 0, true);
        for round in 1..=40 {
            for _ in 0..10 {
                flow.ack(10 * round, flow.window / 10, true);
            }
            if let Some((_, window)) = expected.iter().find(|(at, _)| *at == round) {
                flow.assert_window(*window);
            }
        }
    }

    #[test]
    fn growth_below_a_byte_adds_up() {
        let mut flow = Flow::after_loss_at(100_000, 100);
        flow.ack(0, 0, true);
        for _ in 0..1_000 {
            flow.ack(1_000, 100, true);
        }
        flow.assert_window(82_941);
    }

    #[test]
    fn it_grows_by_half_a_window_for_each_window_at_most() {
        let mut flow = Flow::after_loss_at(100_000, 100);
        flow.ack(0, 0, true);
        flow.ack(100_000, 10_000, true);
        assert_eq!(flow.window, 75_000);
    }

    #[test]
    fn time_in_which_the_window_limits_nothing_does_not_count() {
        let mut flow = Flow::after_loss_at(100_000, 100);
        flow.ack(0, 0, true);
        for round in 1..=50 {
            flow.ack(100 * round, 5_000, false);
        }
        assert_eq!(flow.window, 70_000);
        for round in 50..=70 {
            flow.ack(100 * round, flow.window, true);
        }
        flow.assert_window(96_204);
        // So does all before an idle period.
        flow.cubic.forget_epoch();
        assert!(flow.cubic.epoch.is_none());
    }

    #[test]
    fn who_loses_again_below_its_maximum_gives_way() {
        let mut cubic = Cubic::default();
        assert_eq!(cubic.on_loss(100_000, SEGMENT), 70_000);
        assert_eq!(cubic.w_max, 100.0);
        assert_eq!(cubic.on_loss(100_000, SEGMENT), 70_000);
        assert_eq!(cubic.w_max, 100.0, "not below");
        assert_eq!(cubic.on_loss(80_000, SEGMENT), 56_000);
        assert_eq!(cubic.w_max, 68.0);
    }
}
