//! Timers that fire.

use proto_core::time::Instant;

use super::fin::Fin;
use super::{Pcb, State, Timer};
use crate::error::Failure;
use crate::group::Flow;

impl Pcb {
    /// Time has passed. Says whether silly window avoidance is to be overridden: data goes out
    /// although it is less than a segment (RFC 9293 §3.8.6.2.1).
    pub(crate) fn handle_timeout(&mut self, now: Instant, flow: &Flow) -> bool {
        if self.timers.fired(Timer::DelayedAck, now) {
            self.receive.end_delay();
        }
        if self.timers.fired(Timer::Rack, now) {
            self.reordering_expired(now, flow);
        }
        // From now on they are due.
        self.timers.fired(Timer::Repair, now);
        if self.timers.fired(Timer::Tail, now) {
            self.tail_expired(now, flow);
        }
        if self.timers.fired(Timer::Rto, now) {
            self.rto_expired(now, flow);
        }
        if self.timers.fired(Timer::KeepAlive, now) {
            self.keep_alive(now, flow);
        }
        if self.timers.fired(Timer::Linger, now) {
            self.become_closed();
        }
        self.timers.fired(Timer::Persist, now) && self.persist_expired(now, flow)
    }

    fn rto_expired(&mut self, now: Instant, flow: &Flow) {
        if !self.state.is_synchronized() {
            self.syn_expired(now);
            return;
        }
        if now >= self.send.progress + self.limits.user_timeout {
            self.abort(Failure::Timeout);
            return;
        }
        if !self.has_outstanding(flow) {
            return;
        }
        self.counters.timeouts += 1;
        self.suspect_hole();
        self.lose_outstanding(now, flow);
        if self.send.fin == Fin::Sent {
            self.send.fin = Fin::Lost;
        }
        self.send.probes.take_tail();
        self.send.rtt.back_off();
        self.arm_rto(now);
    }

    /// The application lets go of a connection whose other side may never close.
    pub(crate) fn linger(&mut self, now: Instant) {
        if self.state == State::FinWait2 {
            self.timers.set(Timer::Linger, now + self.limits.time_wait);
        }
    }
}
