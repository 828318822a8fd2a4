//! Congestion control of a sender: TFMCC, TCP-friendly multicast congestion control (RFC 4654).
//!
//! Each receiver measures its loss event rate and its round-trip time, and computes the rate that a TCP would have
//! there. The source follows the receiver with the lowest rate, the *limiting receiver*, which answers once in a
//! round trip. In feedback rounds the others tell their rate after a random time, shorter for lower rates, and do
//! not when another has told a rate that is as low. So the feedback of 10,000 receivers is a few packets a round.
//!
//! Relays aggregate feedback: they pass on that of the receiver with the lowest [rank](Receiver::rank), and so are
//! one receiver to the source.
//!
//! Loss counts where a packet that the source sent to the group did not arrive, whoever repairs it.
//!
//! | RFC 4654 | implementation |
//! | --- | --- |
//! | §2.1 throughput equation, §4.3 loss event rate | [`proto_core::tfrc`], with Ethernet frames as packet size |
//! | §3.1, §4.1 packets | [`wire::pace`](crate::wire::pace), apart from data as in NORM (RFC 5740 §4.2.3) |
//! | §3.2 maximum round-trip time | decays by a tenth a round in which feedback came; initially 100 ms, not 500: a source that knows nothing sends ten packets in that time |
//! | §3.3 rate | follows the limiting receiver, upward by no more than an eighth, or a packet, in the longest round-trip time; never upward while the application is the limit |
//! | §3.3 lost limiting receiver | forgotten after ten of its feedback intervals |
//! | §3.4 feedback rounds | as long as leaves about five answers of the estimated number of receivers: eight times the longest round-trip time for 10,000 |
//! | §3.5 round-trip times of receivers | up to 16 echoes in a packet, that of the limiting receiver first |
//! | §3.6 slow start | twice the lowest rate at which packets came, doubling at most once in the longest round-trip time |
//! | §4.2 round-trip time | echoes, and one-way delays in between |
//! | §4.5 feedback timers | biased by a quarter; cancelled by a rate that is at most a tenth higher |
//! | history discounting (RFC 5348 §5.5) | omitted (optional) |
//!
//! | bound | value |
//! | --- | --- |
//! | state of a source | about 600 bytes, however many receivers there are |
//! | state of a receiver | about 300 bytes |
//! | PACE | one in 5 ms at most, and 1 % of the rate |
//! | FEEDBACK of a receiver | one in 5 ms at most |
//! | round-trip times | 100 µs to 10 s |

mod receiver;
mod sender;

pub use receiver::Receiver;
pub use sender::{FeedbackError, Limiting, Sender};

use proto_core::time::Duration;

/// Shortest time between two packets of either kind.
const LEAST_INTERVAL: Duration = Duration::from_millis(5);
/// How long a receiver may hold the rate below the lowest that the source wants.
pub const TOO_SLOW: Duration = Duration::from_secs(5);
/// Bounds of a round-trip time, seconds.
const ROUND_TRIP_S: core::ops::RangeInclusive<f64> = 0.000_1..=10.0;
/// A rate this much higher than the lowest one is not told (§4.5).
const SUPPRESSED: f64 = 0.9;
/// Receivers that a source expects which does not know better (§3.4).
pub const MANY: u32 = 10_000;
/// Share of the feedback timer that the rate decides, not chance (§4.5).
const BIAS: f64 = 0.25;
/// Rank above that of all rates.
const LOSSLESS: u64 = 1 << 62;
/// Answers that a feedback round aims at.
const ANSWERS: f64 = 4.64;

fn seconds(duration: Duration) -> f64 {
    duration.total_micros() as f64 / 1e6
}

fn duration(seconds: f64) -> Duration {
    Duration::from_micros((seconds * 1e6).clamp(0.0, 1e12) as u64)
}

fn clamp_round_trip(seconds: f64) -> f64 {
    seconds.clamp(*ROUND_TRIP_S.start(), *ROUND_TRIP_S.end())
}

/// Returns how long a feedback round is, in seconds: about [`ANSWERS`] of `receivers` answer before the first answer
/// can be known to them.
fn round_length(max_round_trip_s: f64, receivers: u32) -> f64 {
    let rounds = libm::log(f64::from(receivers.max(1))) / libm::log(ANSWERS);
    max_round_trip_s * (rounds / (1.0 - BIAS)).max(1.0)
}
