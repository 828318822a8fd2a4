//! Keep-alive probes and challenge acknowledgements.

use proto_core::time::{Duration, Instant};
use proto_core::{RateLimit, TokenBucket};

use super::{Pcb, State, Timer};
use crate::error::Failure;
use crate::group::Flow;

/// Unanswered probes after which the connection fails.
const MAX_KEEP_ALIVE_PROBES: u8 = 9;

/// Signs of life of the peer, and the rate of answers to segments that may be forged.
#[derive(Debug)]
pub(crate) struct Liveness {
    last_received: Instant,
    /// Keep-alive probes in a row without an answer.
    unanswered: u8,
    challenge: TokenBucket,
}

impl Liveness {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last_received: now,
            unanswered: 0,
            challenge: TokenBucket::FULL,
        }
    }

    /// The peer has sent an acceptable segment.
    pub(super) fn received(&mut self, now: Instant) {
        self.last_received = now;
        self.unanswered = 0;
    }

    /// Returns when the last acceptable segment came.
    pub(super) fn last_received(&self) -> Instant {
        self.last_received
    }
}

impl Pcb {
    /// Sends a challenge ACK, at a limited rate (RFC 5961 §7). The rate is the connection's own: a shared one
    /// would leak other connections' traffic.
    pub(super) fn challenge(&mut self, now: Instant) {
        let rate = u32::from(self.limits.challenges);
        if self
            .liveness
            .challenge
            .take(now, &RateLimit::new(rate, rate))
        {
            self.owe_now();
        } else {
            self.counters.suppressed += 1;
        }
    }

    pub(super) fn arm_keep_alive(&mut self, now: Instant) {
        if let Some(idle) = self.limits.keep_alive
            && self.state.is_synchronized()
        {
            self.timers.set(Timer::KeepAlive, now + idle);
        }
    }

    /// The keep-alive timer fired: a probe, or the end (RFC 9293 §3.8.4).
    pub(super) fn keep_alive(&mut self, now: Instant, flow: &Flow) {
        let Some(idle) = self.limits.keep_alive else {
            return;
        };
        if self.has_outstanding(flow) || self.state == State::TimeWait {
            self.arm_keep_alive(now);
            return;
        }
        if self.liveness.unanswered >= MAX_KEEP_ALIVE_PROBES {
            self.fail(Failure::Timeout);
            return;
        }
        self.liveness.unanswered += 1;
        self.send.probes.ask_window();
        let pause = idle.min(Duration::from_secs(75));
        self.timers.set(Timer::KeepAlive, now + pause);
    }
}
