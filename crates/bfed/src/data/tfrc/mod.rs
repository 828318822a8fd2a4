//! Congestion control of UDP channels: TFRC, TCP-friendly rate control (RFC 5348).
//!
//! Real-time sessions need a rate that changes smoothly, and never wait for a lost packet; the receiver sends one
//! report in each round trip. A window as in TCP would need an acknowledgement for every few packets on every edge
//! of every tree.
//!
//! | RFC 5348 | implementation |
//! | --- | --- |
//! | §4.2 initial rate | a burst of the initial window, then one segment a second until the first report |
//! | §4.3 feedback | complete; data-limited intervals as in step 4 |
//! | §4.4 nofeedback timer | halves the rate, down to one segment in 64 s |
//! | §4.5 oscillations | omitted (optional) |
//! | §4.6 bursts | at most 10 ms of the rate, or two packets |
//! | §5.2 a loss is detected after three later packets | yes; packets reordered further count as lost |
//! | §5.4 average of eight loss intervals | yes; history discounting (§5.5) omitted (optional) |
//! | §6.2 reports | once in a round trip while packets arrive, at once for the first packet and for a new loss event |
//! | §6.3.1 first interval | the one that corresponds to the rate received |

mod receiver;
mod sender;

pub use receiver::Receiver;
pub use sender::Sender;

/// Returns the rate of a TCP in bytes a second (RFC 5348 §3.1): segments of `size` bytes, a round-trip time of
/// `rtt` seconds, loss event rate `p`.
pub(super) fn tcp_rate(size: f64, rtt: f64, p: f64) -> f64 {
    let timeout = 12.0 * libm::sqrt(p * 3.0 / 8.0) * p * (1.0 + 32.0 * p * p);
    size / (rtt * (libm::sqrt(p * 2.0 / 3.0) + timeout))
}

#[cfg(test)]
mod tests {
    use super::tcp_rate;

    /// Compares with values calculated by hand from the equation with t_RTO = 4 R, b = 1.
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
