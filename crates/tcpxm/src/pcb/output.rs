//! Segments of one connection other than new data: handshake, repairs, probes, the FIN, acknowledgements.

use proto_core::time::Instant;

use super::fin::Fin;
use super::{Leaving, Pcb, State, Timer};
use crate::group::Flow;
use crate::ranges::Span;
use crate::seq::{Seq, SynNumber};
use crate::wire::{Flags, Options};

/// A segment to be written: the header, and which bytes of the store follow it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) options: Options,
    pub(crate) data: Option<Span>,
}

const ACK: Flags = Flags {
    syn: false,
    fin: false,
    rst: false,
    psh: false,
    ack: true,
    urg: false,
};

impl Pcb {
    /// The next segment that only concerns this connection; `None` when there is nothing to send
    /// now. In the order of urgency.
    pub(crate) fn poll(&mut self, now: Instant, flow: &Flow) -> Option<Plan> {
        if core::mem::take(&mut self.reset_due) {
            return Some(self.reset(flow));
        }
        if self.handshake.take_syn() {
            return Some(self.syn(flow, now));
        }
        if !self.state.is_synchronized() {
            return None;
        }
        if self.multicast.leaving == Leaving::Due {
            self.multicast.leaving = Leaving::Told;
            return Some(self.pure_ack(now, flow));
        }
        if let Some(span) = self.lost_to_repair(flow) {
            return Some(self.repair(now, flow, span));
        }
        if self.send.probes.take_tail()
            && let Some(plan) = self.tail_probe(now, flow)
        {
            return Some(plan);
        }
        if self.fin_is_due(flow) {
            return Some(self.fin(now, flow));
        }
        if self.send.probes.take_window() {
            // An acknowledgement from before the peer's position makes the peer report it (RFC 9293 §3.10.7.4,
            // first step). No byte of the stream is sent into a closed window.
            let mut plan = self.pure_ack(now, flow);
            plan.seq = self.send.iss.at(self.send.board.una()).minus(1);
            return Some(plan);
        }
        if self.receive.owes_now() {
            return Some(self.pure_ack(now, flow));
        }
        None
    }

    /// Whether [`Pcb::poll`] has something.
    pub(crate) fn has_output(&self, flow: &Flow) -> bool {
        self.reset_due
            || self.handshake.syn_is_due()
            || (self.state.is_synchronized()
                && (self.multicast.leaving == Leaving::Due
                    || self.lost_to_repair(flow).is_some()
                    || self.send.probes.are_due()
                    || self.fin_is_due(flow)
                    || self.receive.owes_now()))
    }

    /// A segment of data, for this peer, by unicast.
    pub(crate) fn data(&mut self, now: Instant, flow: &Flow, span: Span) -> Plan {
        let ack = self.send.iss;
        let options = self.options(now, flow, false);
        let window = self.window_field();
        if self.receive.data.early().is_empty() {
            self.ack_sent();
        }
        Plan {
            seq: ack.at(span.start),
            ack: self.receive.ack_number(),
            flags: Flags {
                psh: flow.pushes(span.end),
                ..ACK
            },
            window,
            options,
            data: Some(span),
        }
    }

    /// Sends lost bytes again.
    pub(crate) fn repair(&mut self, now: Instant, flow: &Flow, span: Span) -> Plan {
        self.send.loss.force_one(false);
        self.send.board.sent_again(span, now);
        self.again(now, flow, span)
    }

    /// Lost bytes are sent again to the group.
    pub(crate) fn repair_to_group(&mut self, now: Instant, flow: &Flow, span: Span) {
        self.repair(now, flow, span);
        self.send.board.sent_to_group(span, now);
    }

    pub(super) fn again(&mut self, now: Instant, flow: &Flow, span: Span) -> Plan {
        self.counters.retransmissions += 1;
        self.send.retransmissions += 1;
        let una = self.send.board.una();
        self.send.loss.sent_again(span, flow.stamp_at(now), una);
        if !self.timers.is_set(Timer::Rto) {
            self.arm_rto(now);
        }
        if self.send.loss.in_fast_recovery() {
            self.send.probes.take_tail();
            self.arm_tail(now, flow);
        }
        self.data(now, flow, span)
    }

    /// SND.NXT: after the last octet sent, including the FIN.
    fn send_next(&self, flow: &Flow) -> Seq {
        let fin = self.send.fin != Fin::No;
        self.send.iss.at(flow.nxt + u64::from(fin))
    }

    pub(super) fn pure_ack(&mut self, now: Instant, flow: &Flow) -> Plan {
        let options = self.options(now, flow, true);
        let window = self.window_field();
        self.ack_sent();
        Plan {
            seq: self.send_next(flow),
            ack: self.receive.ack_number(),
            flags: ACK,
            window,
            options,
            data: None,
        }
    }

    fn reset(&mut self, flow: &Flow) -> Plan {
        Plan {
            seq: self.send_next(flow),
            ack: self.receive.ack_number(),
            flags: Flags { rst: true, ..ACK },
            window: 0,
            options: Options {
                tag: self.empty_tag(),
                ..Options::default()
            },
            data: None,
        }
    }

    /// The user gives up (RFC 9293 §3.10.5, ABORT).
    pub(crate) fn abort(&mut self, failure: crate::error::Failure) {
        // TIME-WAIT and states before synchronisation need no reset.
        self.reset_due |= matches!(
            self.state,
            State::SynReceived
                | State::Established
                | State::FinWait1
                | State::FinWait2
                | State::CloseWait
                | State::Closing
                | State::LastAck
        );
        self.fail(failure);
    }

    /// New data is about to be sent while nothing is outstanding: after an idle time the window starts anew
    /// (RFC 5681 §4.1).
    pub(crate) fn end_idle(&mut self, now: Instant, flow: &Flow) {
        if let Some(last) = flow.last_sent
            && now - last.max(self.send.progress) > self.send.rtt.rto()
        {
            self.send.cc.on_idle();
        }
    }

    /// New data was sent while nothing was outstanding.
    pub(crate) fn begin_outstanding(&mut self, now: Instant, flow: &Flow) {
        self.send.progress = now;
        self.send.cc.on_restart(now, self.send.board.una());
        self.timers.stop(Timer::Persist);
        self.arm_rto(now);
        self.arm_tail(now, flow);
    }
}
