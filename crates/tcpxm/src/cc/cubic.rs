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
