//! The timers of one connection.

use proto_core::timer::TimerId;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Timer {
    /// Retransmission (RFC 6298), of SYN and FIN too.
    Rto,
    /// Tail loss probe (RFC 8985 §7).
    Tail,
    /// A loss may be certain then (RFC 8985 §6.2).
    Rack,
    /// Repairs wait until then: for other receivers that lack the same data, or for their time (pacing).
    Repair,
    /// Zero-window probe, and the override of silly window avoidance (RFC 9293 §3.8.6).
    Persist,
    /// Delayed acknowledgement.
    DelayedAck,
    /// Keep-alive (RFC 9293 §3.8.4).
    KeepAlive,
    /// End of TIME-WAIT, or of an orphan in FIN-WAIT-2.
    Linger,
}

impl TimerId for Timer {
    fn index(self) -> usize {
        self as usize
    }
}

pub(crate) type Timers = proto_core::timer::Timers<Timer, 8>;
