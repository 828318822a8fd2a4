//! Congestion control of UDP channels: TFRC, TCP-friendly rate control (RFC 5348).
//!
//! Real-time sessions need a rate that changes smoothly, and never wait for a lost packet; the receiver sends one
//! report in each round trip. A window as in TCP would need an acknowledgement for every few packets on every edge
//! of every tree.
//!
//! The throughput equation and the loss history are [`proto_core::tfrc`]'s.
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
