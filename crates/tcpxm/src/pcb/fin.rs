//! The ends of both directions: FINs, and the close of the application (RFC 9293 §3.6).

use proto_core::time::Instant;

use super::{Note, Pcb, Plan, State, Timer};
use crate::error::Failure;
use crate::group::Flow;
use crate::seq::SynNumber;

/// Where our FIN is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fin {
    /// Not sent.
    No,
    /// To be sent again.
    Lost,
    /// Sent and not acknowledged.
    Sent,
    Acked,
}

/// Where the peer's FIN is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PeerFin {
    /// Not received.
    No,
    /// It ends the stream at this offset; data before it is missing.
    At(u64),
    /// The last segment of a group's receiver had it. It does not count until the receiver confirms it.
    Claimed,
    /// Accepted: nothing follows.
    Taken,
}

impl Pcb {
    /// Whether all data is out and the FIN is not.
    pub(crate) fn fin_waits(&self, flow: &Flow) -> bool {
        self.send.fin == Fin::No && self.state.may_send() && flow.is_complete()
    }

    /// Whether the FIN is to be sent for the first time, within the window, or again.
    pub(super) fn fin_is_due(&self, flow: &Flow) -> bool {
        match self.send.fin {
            Fin::No => self.fin_waits(flow) && self.send.window.edge() > flow.nxt,
            Fin::Lost => true,
            Fin::Sent | Fin::Acked => false,
        }
    }

    pub(super) fn fin(&mut self, now: Instant, flow: &Flow) -> Plan {
        if self.send.fin == Fin::No {
            self.send.progress = now;
        } else {
            self.counters.retransmissions += 1;
        }
        self.send.fin = Fin::Sent;
        self.set_state(now, self.state.after_fin_sent());
        if !self.timers.is_set(Timer::Rto) {
            self.arm_rto(now);
            self.arm_tail(now, flow);
        }
        let mut plan = self.pure_ack(now, flow);
        plan.seq = self.send.iss.at(flow.nxt);
        plan.flags.fin = true;
        plan
    }

    pub(super) fn fin_acknowledged(&mut self, now: Instant) {
        self.note(Note::Delivered);
        self.set_state(now, self.state.after_fin_acked());
    }

    /// Handles a receiver's FIN at the sender of a group. If accepted at once, a forged one would stop the
    /// group: the receiver drops what acknowledges a FIN that it has not sent, and its own segments come from
    /// before that FIN. So it is accepted when the receiver continues after it, or sends it again with nothing
    /// between; or when the receiver has everything.
    pub(super) fn weigh_fin(&mut self, now: Instant, has_fin: bool, start: i64) {
        let next = self.receive.next() as i64;
        if !self.state.may_receive() {
            return;
        }
        let here = has_fin && start == next;
        let claimed = self.receive.fin == PeerFin::Claimed;
        self.receive.fin = if here { PeerFin::Claimed } else { PeerFin::No };
        let confirmed = claimed && (here || start == next + 1);
        if confirmed || (here && self.state == State::FinWait2) {
            self.take_fin(now);
        }
    }

    pub(super) fn take_fin(&mut self, now: Instant) {
        self.receive.fin = PeerFin::Taken;
        self.owe_now();
        self.note(Note::Finished);
        if self.receive.is_member() {
            self.note(Note::Leave);
        }
        self.set_state(now, self.state.after_fin_received());
    }

    pub(super) fn set_state(&mut self, now: Instant, state: State) {
        if state == self.state {
            return;
        }
        self.state = state;
        match state {
            State::TimeWait => {
                self.timers.stop_all();
                self.timers.set(Timer::Linger, now + self.limits.time_wait);
                self.closed.make_due();
            }
            State::Closed => {
                self.become_closed();
            }
            // The application does not read any more: the peer has this long to close too.
            State::FinWait2 if self.receive.is_shut() => {
                self.timers.set(Timer::Linger, now + self.limits.time_wait);
            }
            _ => {}
        }
    }

    /// The application will not read any more (RFC 9293 §3.9.1.4, CLOSE; RFC 1122 §4.2.2.13: unread
    /// data is a reason for a reset).
    pub(crate) fn shut_reading(&mut self) {
        let unread = self.receive.data.readable() > 0;
        self.receive.shut();
        if unread && self.state.is_synchronized() && self.state != State::TimeWait {
            self.reset_due = true;
            self.fail(Failure::Aborted);
        }
    }
}
