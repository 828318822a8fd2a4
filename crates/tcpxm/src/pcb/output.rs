//! Segments of one connection other than new data: handshake, repairs, probes, the FIN, acknowledgements.

use proto_core::time::Instant;

use super::{Fin, Leaving, Owed, Pcb, Recovery, State, Timer};
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
        if self.reset_due {
            self.reset_due = false;
            return Some(self.reset(flow));
        }
        if self.handshake.syn_due {
            self.handshake.syn_due = false;
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
            self.send.loss.force_one = false;
            self.send.board.sent_again(span, now);
            return Some(self.again(now, flow, span));
        }
        if core::mem::take(&mut self.send.probes.tail_due)
            && let Some(plan) = self.tail_probe(now, flow)
        {
            return Some(plan);
        }
        if self.fin_is_due(flow) {
            return Some(self.fin(now, flow));
        }
        if core::mem::take(&mut self.send.probes.window_due) {
            // An acknowledgement from before the peer's position makes the peer report it (RFC 9293 §3.10.7.4,
            // first step). No byte of the stream is sent into a closed window.
            let mut plan = self.pure_ack(now, flow);
            plan.seq = self.send.iss.at(self.send.board.una()).minus(1);
            return Some(plan);
        }
        if self.receive.owed == Owed::Now {
            return Some(self.pure_ack(now, flow));
        }
        None
    }

    /// Whether [`Pcb::poll`] has something.
    pub(crate) fn has_output(&self, flow: &Flow) -> bool {
        self.reset_due
            || self.handshake.syn_due
            || (self.state.is_synchronized()
                && (self.multicast.leaving == Leaving::Due
                    || self.lost_to_repair(flow).is_some()
                    || self.send.probes.tail_due
                    || self.send.probes.window_due
                    || self.fin_is_due(flow)
                    || self.receive.owed == Owed::Now))
    }

    /// Lost bytes that the congestion window lets go (RFC 6675 §5): all retransmissions are unicast.
    fn lost_to_repair(&self, flow: &Flow) -> Option<Span> {
        if self.send.board.lost_bytes() == 0 || !self.state.sends() {
            return None;
        }
        let span = self.send.board.next_lost(self.repair_payload(flow))?;
        let fits = self.send.board.pipe(flow.nxt) + span.len()
            <= self.send.flight_window(self.handshake.agreed.sack);
        (fits || self.send.loss.force_one).then_some(span)
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
            ack: self.receive.irs.at(self.receive.next()),
            flags: Flags {
                psh: flow.pushes(span.end),
                ..ACK
            },
            window,
            options,
            data: Some(span),
        }
    }

    fn again(&mut self, now: Instant, flow: &Flow, span: Span) -> Plan {
        self.counters.retransmissions += 1;
        self.send.retransmissions += 1;
        self.send.loss.prr.sent_again(span.len());
        let stamp = flow.stamp_at(now);
        self.send.loss.last_stamp = Some(stamp);
        if let Some(undo) = &mut self.send.loss.undo
            && self.send.loss.phase.is_some()
        {
            // After another hole the echo would be that of the segment that fills it.
            if undo.again == 0 && span.start == self.send.board.una() {
                undo.first = Some((stamp, span.end));
            }
            undo.again += span.len();
        }
        if !self.timers.is_set(Timer::Rto) {
            self.arm_rto(now);
        }
        if matches!(self.send.loss.phase, Some((_, Recovery::Fast))) {
            self.send.probes.tail_due = false;
            self.arm_tail(now, flow);
        }
        self.data(now, flow, span)
    }

    /// RFC 8985 §7.3: the last segment again. New data would do as well, but a group would send that to all
    /// receivers.
    fn tail_probe(&mut self, now: Instant, flow: &Flow) -> Option<Plan> {
        self.counters.probes += 1;
        if self.send.loss.phase.is_some() {
            return self.repair_probe(now, flow);
        }
        let span = self.send.board.tail(flow.nxt, self.repair_payload(flow));
        if matches!(self.send.fin, Fin::Sent | Fin::Lost) {
            return Some(self.fin(now, flow));
        }
        if span.is_empty() {
            return None;
        }
        self.send.probes.ends_at = Some(flow.nxt);
        self.send.board.sent_again(span, now);
        Some(self.again(now, flow, span))
    }

    /// In fast recovery: the first bytes that the receiver lacks, once more. Their acknowledgement shows
    /// which other repairs are lost.
    fn repair_probe(&mut self, now: Instant, flow: &Flow) -> Option<Plan> {
        self.send.probes.repair_sent = true;
        let span = self.send.board.head(flow.nxt, self.repair_payload(flow));
        if span.is_empty() {
            return None;
        }
        self.send.board.sent_again(span, now);
        Some(self.again(now, flow, span))
    }

    fn fin(&mut self, now: Instant, flow: &Flow) -> Plan {
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

    /// SND.NXT: after the last octet sent, including the FIN.
    fn send_next(&self, flow: &Flow) -> Seq {
        let fin = self.send.fin != Fin::No;
        self.send.iss.at(flow.nxt + u64::from(fin))
    }

    fn pure_ack(&mut self, now: Instant, flow: &Flow) -> Plan {
        let options = self.options(now, flow, true);
        let window = self.window_field();
        self.ack_sent();
        Plan {
            seq: self.send_next(flow),
            ack: self.receive.irs.at(self.receive.next()),
            flags: ACK,
            window,
            options,
            data: None,
        }
    }

    fn reset(&mut self, flow: &Flow) -> Plan {
        Plan {
            seq: self.send_next(flow),
            ack: self.receive.irs.at(self.receive.next()),
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

    /// New data was sent while nothing was outstanding.
    pub(crate) fn begin_outstanding(&mut self, now: Instant, flow: &Flow) {
        self.send.progress = now;
        if flow
            .last_sent
            .is_some_and(|last| now - last > self.send.rtt.rto())
        {
            self.send.cc.on_idle();
        }
        self.timers.stop(Timer::Persist);
        self.arm_rto(now);
        self.arm_tail(now, flow);
    }
}
