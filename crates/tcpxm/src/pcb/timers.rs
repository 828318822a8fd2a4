//! The timers of one connection.

use proto_core::time::Instant;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Timer {
    /// Retransmission (RFC 6298), of SYN and FIN too.
    Rto,
    /// Tail loss probe (RFC 8985 §7).
    Tail,
    /// A loss may be certain then (RFC 8985 §6.2).
    Rack,
    /// Zero-window probe, and the override of silly window avoidance (RFC 9293 §3.8.6).
    Persist,
    /// Delayed acknowledgement.
    DelayedAck,
    /// Keep-alive (RFC 9293 §3.8.4).
    KeepAlive,
    /// End of TIME-WAIT, or of an orphan in FIN-WAIT-2.
    Linger,
}

const COUNT: usize = 7;

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Timers([Option<Instant>; COUNT]);

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = Some(at);
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(crate) fn stop_all(&mut self) {
        self.0 = [None; COUNT];
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize].is_some()
    }

    /// When the timer fires.
    pub(crate) fn at(&self, timer: Timer) -> Option<Instant> {
        self.0[timer as usize]
    }

    /// Whether the timer's time has come; stops it if so.
    pub(crate) fn fired(&mut self, timer: Timer, now: Instant) -> bool {
        let due = self.0[timer as usize].is_some_and(|at| at <= now);
        if due {
            self.0[timer as usize] = None;
        }
        due
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }
}
