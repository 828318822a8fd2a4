//! Timers that fire.

use proto_core::time::Instant;

use super::{Fin, Owed, Pcb, Recovery, State, Timer};
use crate::error::Failure;
use crate::group::Flow;
use crate::recovery::Delivered;

impl Pcb {
    /// Time has passed. Says whether silly window avoidance is to be overridden: data goes out
    /// although it is less than a segment (RFC 9293 §3.8.6.2.1).
    pub(crate) fn handle_timeout(&mut self, now: Instant, flow: &Flow) -> bool {
        if self.timers.fired(Timer::DelayedAck, now) && self.receive.owed == Owed::Later {
            self.receive.owed = Owed::Now;
        }
        if self.timers.fired(Timer::Rack, now) {
            let flight = self.send.board.pipe(flow.nxt);
            let lost = self.detect(now, flow, flight);
            if lost > 0 {
                self.proportion(&Delivered::default(), lost, flow);
            }
        }
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

    /// The probe's time counts from the last sending; the timer is not moved at each of them.
    fn tail_expired(&mut self, now: Instant, flow: &Flow) {
        if !self.has_outstanding(flow) || self.is_after_timeout() {
            return;
        }
        let pto = self.probe_timeout(flow);
        let at = flow.last_sent.map_or(now, |last| last + pto);
        let at = self.timers.at(Timer::Rto).map_or(at, |rto| at.min(rto));
        if at > now {
            self.timers.set(Timer::Tail, at);
            return;
        }
        self.send.probes.tail_due = true;
        self.arm_rto(now);
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
        let carried = self.carried(flow);
        let first = self.send.rtt.backoff() == 0;
        let lost = self
            .send
            .board
            .lose_all(flow.nxt, self.multicast.reception.highest());
        self.count_losses(&lost, flow);
        if self.send.fin == Fin::Sent {
            self.send.fin = Fin::Lost;
        }
        if first {
            self.may_undo();
        }
        self.send.cc.on_timeout(carried, first);
        self.send.window_limit.timeout = true;
        self.send.loss.phase = Some((flow.nxt, Recovery::Timeout));
        self.send.loss.force_one = true;
        self.send.probes.ends_at = None;
        self.send.probes.tail_due = false;
        self.send.loss.duplicate_acks = 0;
        self.timers.stop(Timer::Tail);
        self.timers.stop(Timer::Rack);
        self.send.rtt.back_off();
        self.arm_rto(now);
    }

    /// The peer's window keeps everything back: ask where it is (RFC 9293 §3.8.6.1).
    pub(crate) fn arm_persist(&mut self, now: Instant) {
        if !self.timers.is_set(Timer::Persist) {
            self.send.probes.persist_backoff = 0;
            self.timers
                .set(Timer::Persist, now + self.send.rtt.base_rto());
        }
    }

    fn persist_expired(&mut self, now: Instant, flow: &Flow) -> bool {
        let waits = flow.unsent > 0 || (flow.closing && self.send.fin == Fin::No);
        if !waits || self.send.board.una() < flow.nxt || !self.state.sends() {
            return false;
        }
        if self.send.window.edge > flow.nxt {
            return true;
        }
        // A peer that answers may keep its window closed for as long as it likes (MUST-37).
        if now >= self.liveness.last_received + self.limits.user_timeout
            && self.send.probes.persist_backoff > 0
        {
            self.abort(Failure::Timeout);
            return false;
        }
        self.send.probes.window_due = true;
        self.send.probes.persist_backoff = (self.send.probes.persist_backoff + 1).min(10);
        let pause = self.send.rtt.base_rto() * (1 << self.send.probes.persist_backoff);
        let pause = pause.min(self.limits.max_rto);
        self.timers.set(Timer::Persist, now + pause);
        false
    }

    /// The application lets go of a connection whose other side may never close.
    pub(crate) fn linger(&mut self, now: Instant) {
        if self.state == State::FinWait2 {
            self.timers.set(Timer::Linger, now + self.limits.time_wait);
        }
    }
}
