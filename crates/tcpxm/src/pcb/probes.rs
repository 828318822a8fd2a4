//! Probes: for the end of a flight and for lost repairs (RFC 8985 §7), and for a closed window (RFC 9293 §3.8.6.1).

use proto_core::time::{Duration, Instant};

use super::fin::Fin;
use super::{Pcb, Plan, Timer};
use crate::error::Failure;
use crate::group::Flow;
use crate::seq::stamp_before;
use crate::wire::Segment;

/// The probe for lost data that was sent and is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Sent {
    #[default]
    None,
    /// The end of a flight, up to `end`, was sent again with this timestamp. The acknowledgement of `end` ends the
    /// episode (RFC 8985 §7.4), and so does recovery.
    Tail { end: u64, stamp: u32 },
    /// During recovery a repair was sent again, and nothing has arrived since.
    Repair,
}

/// Probes of one peer.
#[derive(Default, Debug)]
pub(crate) struct Probes {
    sent: Sent,
    /// A probe for lost data is to be sent.
    tail_due: bool,
    /// A segment is to be sent that the peer answers with its window.
    window_due: bool,
    persist_backoff: u8,
    /// When the peer was first asked for its window without an answer since.
    asked: Option<Instant>,
}

impl Probes {
    /// Whether a probe is to be sent.
    pub(super) fn are_due(&self) -> bool {
        self.tail_due || self.window_due
    }

    /// Returns whether a probe for lost data was due; it no longer is.
    pub(super) fn take_tail(&mut self) -> bool {
        core::mem::take(&mut self.tail_due)
    }

    /// Makes a probe due that the peer answers with its window.
    pub(super) fn ask_window(&mut self) {
        self.window_due = true;
    }

    /// Returns whether a probe of the window was due; it no longer is.
    pub(super) fn take_window(&mut self) -> bool {
        core::mem::take(&mut self.window_due)
    }

    /// Something sent has arrived.
    pub(super) fn has_arrived(&mut self) {
        if self.sent == Sent::Repair {
            self.sent = Sent::None;
        }
    }

    /// Recovery begins: the probe that was sent does not count any more.
    pub(super) fn forget(&mut self) {
        self.sent = Sent::None;
    }
}

impl Pcb {
    /// RFC 8985 §7.2: a probe comes before the timeout, or takes its place, where SACK can answer it.
    ///
    /// RFC 8985 has no probes in fast recovery, where data sent after a repair shows that the repair is lost.
    /// In a group nothing may be sent after it while another receiver holds the group back, and the timeout
    /// would stop the whole group. So there is one probe for each silence there too, as the probe timeout of
    /// RFC 9002 §6.2 continues during recovery.
    pub(super) fn arm_tail(&mut self, now: Instant, flow: &Flow) {
        let loss = &self.send.loss;
        let due = self.send.probes.sent == Sent::None
            && (loss.in_fast_recovery() || !loss.in_recovery() && !self.send.board.has_sacked());
        if !due || !self.handshake.agreed().sack {
            self.timers.stop(Timer::Tail);
            return;
        }
        let at = now + self.probe_timeout(flow);
        let at = self.timers.at(Timer::Rto).map_or(at, |rto| at.min(rto));
        self.timers.set(Timer::Tail, at);
    }

    fn probe_timeout(&self, flow: &Flow) -> Duration {
        let Some(smoothed) = self.send.rtt.smoothed() else {
            return Duration::from_secs(1);
        };
        let mut pto = smoothed * 2 + Duration::from_millis(2);
        // A repair is acknowledged at once (RFC 5681 §4.2).
        let lone = self.send.board.pipe(flow.nxt) <= u64::from(flow.payload);
        if lone && !self.send.loss.in_recovery() {
            pto += self.limits.peer_ack_delay;
        }
        pto
    }

    /// The probe's time counts from the last sending; the timer is not moved at each of them. It is stopped when
    /// nothing is outstanding, and by a timeout.
    pub(super) fn tail_expired(&mut self, now: Instant, flow: &Flow) {
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

    /// RFC 8985 §7.3: the last segment again. New data would do as well, but a group would send that to all
    /// receivers.
    pub(super) fn tail_probe(&mut self, now: Instant, flow: &Flow) -> Option<Plan> {
        self.counters.probes += 1;
        if self.send.loss.in_recovery() {
            return self.repair_probe(now, flow);
        }
        let span = self.send.board.tail(flow.nxt, self.repair_payload(flow));
        let with_fin = matches!(self.send.fin, Fin::Sent | Fin::Lost);
        if span.is_empty() {
            return with_fin.then(|| self.fin(now, flow));
        }
        self.send.probes.sent = Sent::Tail {
            end: flow.nxt,
            stamp: flow.stamp_at(now),
        };
        self.send.board.sent_again(span, now);
        let mut plan = self.again(now, flow, span);
        if with_fin {
            // A FIN alone would not show that the last data is lost.
            self.send.fin = Fin::Sent;
            plan.flags.fin = true;
        }
        Some(plan)
    }

    /// In fast recovery: the first bytes that the receiver lacks, once more. Their acknowledgement shows
    /// which other repairs are lost.
    fn repair_probe(&mut self, now: Instant, flow: &Flow) -> Option<Plan> {
        self.send.probes.sent = Sent::Repair;
        let span = self.send.board.head(flow.nxt, self.repair_payload(flow));
        if span.is_empty() {
            return None;
        }
        self.send.board.sent_again(span, now);
        Some(self.again(now, flow, span))
    }

    /// An acknowledgement up to `ack` arrived: if it echoes the timestamp of the probe, the first sending was lost,
    /// which no other acknowledgement would show.
    pub(super) fn count_probed_loss(&mut self, segment: &Segment<'_>, ack: u64, flow: &Flow) {
        let Sent::Tail { end, stamp } = self.send.probes.sent else {
            return;
        };
        let una = self.send.board.una();
        let echo = segment.options.timestamps.map(|(_, echo)| echo);
        let echo = echo.filter(|_| self.handshake.agreed().timestamps);
        let was_needed = echo.is_some_and(|echo| !stamp_before(echo, stamp));
        if was_needed && una < end && ack >= end {
            let begins = !self.send.loss.in_recovery();
            self.multicast
                .reception
                .multicast_losses(1, una, (end, flow.nxt), begins);
        }
    }

    /// RFC 8985 §7.4: a necessary probe repaired a loss that was not detected otherwise. `arrived_twice`: the
    /// acknowledgement reports a duplicate, or is one.
    pub(super) fn end_probe(&mut self, ack: u64, arrived_twice: bool) {
        let Sent::Tail { end, .. } = self.send.probes.sent else {
            return;
        };
        if ack > end && !arrived_twice {
            self.send.cc.on_loss(self.send.loss.carried());
        }
        if ack > end || (ack == end && arrived_twice) {
            self.send.probes.sent = Sent::None;
        }
    }

    /// The peer's window keeps everything back: ask where it is (RFC 9293 §3.8.6.1).
    pub(crate) fn arm_persist(&mut self, now: Instant) {
        if !self.timers.is_set(Timer::Persist) {
            self.send.probes.persist_backoff = 0;
            self.send.probes.asked = None;
            self.timers
                .set(Timer::Persist, now + self.send.rtt.base_rto());
        }
    }

    pub(super) fn persist_expired(&mut self, now: Instant, flow: &Flow) -> bool {
        if !self.waits_to_send(flow) {
            return false;
        }
        if self.send.window.edge() > flow.nxt {
            return true;
        }
        // A peer that answers may keep its window closed for as long as it likes (MUST-37).
        let answered = self.liveness.last_received();
        let unanswered = |asked: &Instant| *asked > answered;
        let asked = self.send.probes.asked.filter(unanswered).unwrap_or(now);
        let end = asked + self.limits.user_timeout;
        if now >= end {
            self.abort(Failure::Timeout);
            return false;
        }
        self.send.probes.asked = Some(asked);
        self.send.probes.window_due = true;
        self.send.probes.persist_backoff = (self.send.probes.persist_backoff + 1).min(10);
        let pause = self.send.rtt.base_rto() * (1 << self.send.probes.persist_backoff);
        let at = now + pause.min(self.limits.max_rto);
        self.timers.set(Timer::Persist, at.min(end));
        false
    }
}
