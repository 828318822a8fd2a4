//! Congestion control of UDP channels: TFRC, TCP-friendly rate control (RFC 5348).
//!
//! Why this one: real-time sessions want a rate that changes smoothly and never wait for a lost
//! packet, and a report a round-trip is all that the receiver sends. A window as in TCP would need an
//! acknowledgement for every few packets on every edge of every tree.
//!
//! | RFC 5348 | here |
//! | --- | --- |
//! | §4.2 initial rate | a burst of the initial window, then a segment a second until the first report |
//! | §4.3 feedback | all of it; data-limited intervals as in step 4 |
//! | §4.4 nofeedback timer | halves the rate, down to a segment in 64 s |
//! | §4.5 oscillations | left out (optional) |
//! | §4.6 bursts | at most 10 ms of the rate, or two packets |
//! | §5.2 a loss is known after three later packets | yes; what is reordered further counts as lost |
//! | §5.4 average of eight loss intervals | yes; history discounting (§5.5) left out (optional) |
//! | §6.2 reports | once a round-trip while packets come, at once for the first packet and for a new loss event |
//! | §6.3.1 first interval | the one that gives the rate received |

mod receiver;
mod sender;

pub use receiver::Receiver;
pub use sender::Sender;

/// Bytes a second that a TCP would send (RFC 5348 §3.1): segments of `size` bytes, a round-trip of
/// `rtt` seconds, loss event rate `p`.
pub(super) fn tcp_rate(size: f64, rtt: f64, p: f64) -> f64 {
    let timeout = 12.0 * libm::sqrt(p * 3.0 / 8.0) * p * (1.0 + 32.0 * p * p);
    size / (rtt * (libm::sqrt(p * 2.0 / 3.0) + timeout))
}

#[cfg(test)]
mod tests {
    use super::tcp_rate;

    /// Against values worked out by hand from the equation with t_RTO = 4 R, b = 1.
    #[test]
    fn the_throughput_equation() {
        let close = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 0.01, "{got} {want}");
        close(tcp_rate(1460.0, 0.1, 0.0001), 1460.0 / 0.1 / 0.008_172);
        close(tcp_rate(1460.0, 0.1, 0.01), 1460.0 / 0.1 / 0.089_022);
        close(
            tcp_rate(1000.0, 1.0, 1.0),
            1000.0 / (0.816_497 + 7.348_469 * 33.0),
        );
    }
}
