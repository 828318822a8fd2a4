//! Acknowledgements: windows, round trips, losses, congestion.

use proto_core::time::{Duration, Instant};

use super::send::Undo;
use super::{Fin, Note, Pcb, Recovery, Timer};
use crate::cc::Ack;
use crate::error::Error;
use crate::group::Flow;
use crate::ranges::Span;
use crate::recovery::prr::Progress;
use crate::recovery::scoreboard::{DetectView, Lost};
use crate::recovery::{Delivered, Disorder, Prr};
use crate::seq::{SynNumber, stamp_before};
use crate::wire::Segment;

/// Time for which the amount in flight counts, at least; three round trips if those are longer (RFC 7661 §4.2).
const CARRIED: Duration = Duration::from_secs(1);
/// After this many recoveries without a duplicate the reordering window shrinks again.
const QUIET_RECOVERIES: u8 = 16;

impl Pcb {
    /// RFC 9293 §3.10.7.4, fifth step, with RFC 5961 §5.
    pub(super) fn take_ack(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        start: i64,
        flow: &mut Flow,
    ) -> Result<(), Error> {
        let una = self.send.board.una();
        let fin_sent = matches!(self.send.fin, Fin::Sent | Fin::Lost);
        let fin_acked = self.send.fin == Fin::Acked;
        let highest = flow.reach() as i64 + i64::from(fin_sent || fin_acked);
        let ack = self.send.iss.offset_of(segment.ack, una);
        let oldest = una as i64 - self.send.window.max_window.max(1 << 16) as i64;
        if ack > highest || ack < oldest {
            self.challenge(now);
            return Err(Error::AckChallenged);
        }
        if ack < una as i64 {
            return Ok(());
        }
        let ack = ack as u64;
        flow.skip_to(ack, now);
        let window_before = self.send.window.edge;
        self.update_window(segment, start, flow);
        let data_ack = ack.min(flow.nxt);
        if fin_sent && ack > flow.nxt {
            self.send.fin = Fin::Acked;
            self.send.progress = now;
        }
        let sacks = self.sack_spans(segment, data_ack, flow);
        if sacks.duplicate > 0 {
            self.reported_duplicate(data_ack, sacks.duplicate, flow);
        }
        let duplicate = segment.payload.is_empty()
            && data_ack == una
            && self.send.window.edge == window_before
            && !segment.flags.fin
            && una < flow.nxt;
        self.acknowledge(now, segment, data_ack, sacks.as_slice(), duplicate, flow);
        self.end_probe(data_ack, sacks.duplicate > 0, duplicate);
        self.judge_hole(now, self.send.board.una() - una, flow);
        if self.send.fin == Fin::Acked && fin_sent {
            self.fin_acknowledged(now);
        }
        self.arm_after_ack(now, flow);
        Ok(())
    }

    /// RFC 9293 §3.10.7.4: SND.WND, SND.WL1, SND.WL2.
    pub(super) fn update_window(&mut self, segment: &Segment<'_>, start: i64, flow: &Flow) {
        let una = self.send.board.una();
        let ack = self.send.iss.offset_of(segment.ack, una);
        if ack < una as i64 {
            return;
        }
        let (start, ack) = (start.max(0) as u64, ack as u64);
        let shift = if segment.flags.syn {
            0
        } else {
            self.handshake.agreed.send_shift
        };
        let window = u64::from(segment.window) << shift;
        if self.send.window.update((start, ack), window, flow.nxt) && window > 0 {
            self.timers.stop(Timer::Persist);
        }
    }

    /// The segment's SACK blocks as stream offsets; a report of a duplicate (RFC 2883 §4) is taken
    /// out.
    fn sack_spans(&mut self, segment: &Segment<'_>, ack: u64, flow: &Flow) -> Sacks {
        let mut spans = Sacks::default();
        if !self.handshake.agreed.sack {
            return spans;
        }
        let blocks = segment.options.sack.as_slice();
        for (index, (from, to)) in blocks.iter().enumerate() {
            let from = self.send.iss.offset_of(*from, ack);
            let to = self.send.iss.offset_of(*to, ack);
            if from >= to || to > flow.nxt as i64 || from < 0 {
                continue;
            }
            let span = Span::new(from as u64, to as u64);
            let within_second = blocks.get(1).is_some_and(|(a, b)| {
                let a = self.send.iss.offset_of(*a, ack);
                let b = self.send.iss.offset_of(*b, ack);
                index == 0 && a <= from && to <= b && b > ack as i64
            });
            if index == 0 && (span.end <= ack || within_second) {
                spans.duplicate = span.len();
            } else {
                spans.push(span);
            }
        }
        spans
    }

    fn acknowledge(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        ack: u64,
        sacks: &[Span],
        duplicate: bool,
        flow: &Flow,
    ) {
        let send = &mut self.send;
        let flight = send.board.pipe(flow.nxt);
        let min_rtt = send.rtt.min();
        let multicast_from = self.multicast.reception.multicast_from();
        let delivered = send
            .board
            .acknowledge(ack, sacks, multicast_from, &flow.log, now, min_rtt);
        if delivered.newly > 0 || delivered.acked > 0 {
            send.progress = now;
            send.probes.repair_sent = false;
        }
        let round_trips = send.rtt.smoothed().map_or(CARRIED, |rtt| rtt * 3);
        send.loss
            .carried
            .record(now, flight, round_trips.max(CARRIED));
        if self.is_spurious(segment, ack, &delivered) {
            self.undo(ack, flow);
        }
        if let Some(end) = delivered.first_try {
            self.multicast.reception.multicast_success(end);
        }
        if delivered.newly > 0 {
            let (una, first_try) = (self.send.board.una(), delivered.any_first_try);
            self.multicast
                .unreached
                .delivered(now, una, flow.nxt, first_try);
        }
        self.take_rtt(now, &delivered, segment, flow);
        if let Some(smoothed) = self.send.rtt.smoothed() {
            let longest = self.send.window_limit.round_trip.max(smoothed);
            self.send.window_limit.round_trip = longest;
        }
        if delivered.acked > 0 {
            self.send.rtt.reset_back_off();
            self.send.loss.duplicate_acks = 0;
        }
        self.leave_recovery(ack, flow.nxt);
        if self.handshake.agreed.sack {
            let lost = self.detect(now, flow, flight);
            self.note_disorder(&delivered, flight, flow);
            self.proportion(&delivered, lost, flow);
        } else {
            self.without_sack(duplicate, &delivered, flow, flight);
        }
        self.grow(now, &delivered, flow, flight);
    }

    /// RFC 6298 §3: never from retransmissions, unless a timestamp identifies them (RFC 7323 §4.1).
    fn take_rtt(
        &mut self,
        now: Instant,
        delivered: &Delivered,
        segment: &Segment<'_>,
        flow: &Flow,
    ) {
        if let Some(rtt) = delivered.rtt {
            self.send.rtt.sample(rtt);
        } else if let (true, true, Some((_, echo))) = (
            delivered.acked > 0,
            self.handshake.agreed.timestamps,
            segment.options.timestamps,
        ) && echo != 0
            && self
                .send
                .loss
                .last_stamp
                .is_none_or(|again| !stamp_before(echo, again))
        {
            // An echo from before the last retransmission would count the wait for it as well.
            let elapsed_ms = flow.stamp_at(now).wrapping_sub(echo);
            if elapsed_ms < 1 << 20 {
                self.send.rtt.sample_coarse(elapsed_ms);
            }
        }
    }

    /// RFC 8985 §7.4: a necessary probe repaired a loss that was not detected otherwise.
    fn end_probe(&mut self, ack: u64, reported: bool, duplicate: bool) {
        let Some(end) = self.send.probes.ends_at else {
            return;
        };
        if ack > end && !reported && self.send.loss.phase.is_none() {
            self.send.cc.on_loss(self.send.loss.carried.most());
        }
        if ack > end || (ack == end && (reported || duplicate)) {
            self.send.probes.ends_at = None;
        }
    }

    fn leave_recovery(&mut self, ack: u64, nxt: u64) {
        if self
            .send
            .loss
            .undo
            .as_ref()
            .is_some_and(|undo| ack > undo.until)
        {
            self.send.loss.undo = None;
        }
        if let Some((end, _)) = self.send.loss.phase
            && ack >= end
        {
            self.send.loss.phase = None;
            self.send.loss.force_one = false;
            self.send.board.deflate();
            if let Some(undo) = &mut self.send.loss.undo {
                undo.until = nxt;
            }
            // RFC 8985 §6.2, step 4.
            self.send.loss.quiet_recoveries = self.send.loss.quiet_recoveries.saturating_add(1);
            if self.send.loss.quiet_recoveries == QUIET_RECOVERIES {
                self.send.board.narrow_reordering();
            }
        }
    }

    /// RFC 3522: an acknowledgement of the first segment that was sent again echoes an earlier
    /// timestamp than that carried; so it answers the original, which was not lost.
    fn is_spurious(&self, segment: &Segment<'_>, ack: u64, delivered: &Delivered) -> bool {
        let first = self.send.loss.undo.as_ref().and_then(|undo| undo.first);
        let echo = segment
            .options
            .timestamps
            .filter(|_| self.handshake.agreed.timestamps);
        let (Some((stamp, end)), Some((_, echo))) = (first, echo) else {
            return false;
        };
        let covers = ack >= end && ack - delivered.acked < end;
        covers && echo != 0 && stamp_before(echo, stamp)
    }

    /// Segments that seemed lost were late: the window is restored (RFC 4015), and the reordering window is
    /// widened.
    fn undo(&mut self, ack: u64, flow: &Flow) {
        let Some(undo) = self.send.loss.undo.take() else {
            return;
        };
        self.counters.undone += 1;
        self.send.cc.restore(&undo.saved);
        self.send.board.forget_lost();
        self.send.loss.phase = None;
        self.send.loss.force_one = false;
        self.send.board.deflate();
        self.widen(ack, flow);
    }

    /// An acknowledgement has made a loss likely; the reordering timer will decide.
    fn note_disorder(&mut self, delivered: &Delivered, flight: u64, flow: &Flow) {
        if self.send.loss.phase.is_some() || !self.timers.is_set(Timer::Rack) {
            self.send.loss.disorder = None;
            return;
        }
        let nxt = flow.nxt;
        let disorder = self.send.loss.disorder.get_or_insert(Disorder {
            flight,
            nxt,
            delivered: 0,
        });
        disorder.delivered += delivered.newly;
    }

    /// The most that was in flight lately.
    pub(super) fn carried(&self, flow: &Flow) -> u64 {
        let now = self.send.board.pipe(flow.nxt);
        self.send.loss.carried.most().max(now)
    }

    /// RFC 9937 §6: how much is sent for each delivered byte during recovery.
    pub(super) fn proportion(&mut self, delivered: &Delivered, lost: u64, flow: &Flow) {
        if !matches!(self.send.loss.phase, Some((_, Recovery::Fast))) {
            return;
        }
        self.send.loss.prr.acknowledged(&Progress {
            newly: delivered.newly,
            safe: delivered.acked > 0 && lost == 0,
            pipe: self.send.board.pipe(flow.nxt),
            threshold: self.send.cc.window(),
            nxt: flow.nxt,
        });
    }

    /// RFC 8985 §6: detects losses; returns the number of bytes newly lost.
    pub(super) fn detect(&mut self, now: Instant, flow: &Flow, flight: u64) -> u64 {
        let view = DetectView {
            now,
            nxt: flow.nxt,
            log: &flow.log,
            in_recovery: self.send.loss.phase.is_some(),
            segment: u64::from(flow.payload),
            min_rtt: self.send.rtt.min(),
            smoothed_rtt: self.send.rtt.smoothed(),
            highest: self.multicast.reception.highest(),
        };
        let (lost, again) = self.send.board.detect(&view);
        match again {
            Some(at) => self.timers.set(Timer::Rack, at.max(now)),
            None => self.timers.stop(Timer::Rack),
        }
        if lost.bytes > 0 {
            self.send.loss.prr.lost(lost.bytes);
            self.enter_recovery(&lost, flight, flow);
        }
        lost.bytes
    }

    /// RFC 5681 §3.2 and RFC 6582 §3.2, for peers without SACK.
    fn without_sack(&mut self, duplicate: bool, delivered: &Delivered, flow: &Flow, flight: u64) {
        let segment = u64::from(flow.payload);
        if duplicate {
            self.send.loss.duplicate_acks = self.send.loss.duplicate_acks.saturating_add(1);
            // Limited transmit (RFC 3042) and the inflation of fast recovery: each duplicate says
            // that a segment has left the network.
            self.send.board.inflate(segment, flow.nxt);
            if self.send.loss.duplicate_acks == 3 && self.send.loss.phase.is_none() {
                self.send.board.lose_first(segment, flow.nxt);
                // Data sent after the duplicates is still to be acknowledged.
                self.enter_recovery(&Lost::default(), flight, flow);
            }
        } else if delivered.acked > 0 && matches!(self.send.loss.phase, Some((_, Recovery::Fast))) {
            // A partial acknowledgement: the next segment is lost too.
            self.send.board.lose_first(segment, flow.nxt);
            self.send.loss.force_one = true;
        }
    }

    /// Something is newly known to be lost.
    fn enter_recovery(&mut self, lost: &Lost, flight: u64, flow: &Flow) {
        self.count_losses(lost, flow);
        if self.send.loss.phase.is_none() {
            self.send.loss.phase = Some((flow.nxt, Recovery::Fast));
            self.send.loss.force_one = true;
            self.may_undo();
            self.send
                .cc
                .on_loss(self.send.loss.carried.most().max(flight));
            let since = self.send.loss.disorder.take().unwrap_or(Disorder {
                flight,
                nxt: flow.nxt,
                delivered: 0,
            });
            let pipe = self.send.board.pipe(flow.nxt);
            self.send.loss.prr = Prr::begin(&since, pipe, u64::from(flow.payload));
            self.send.window_limit.cut = true;
            self.timers.stop(Timer::Tail);
            self.send.probes.ends_at = None;
            self.send.probes.repair_sent = false;
        }
    }

    /// Counts losses of multicast data (TCP-XM §2.5), before a recovery starts for them.
    pub(super) fn count_losses(&mut self, lost: &Lost, flow: &Flow) {
        let segments = lost.in_a_row.div_ceil(u64::from(flow.payload.max(1)));
        let sent = (lost.end, flow.nxt);
        let begins = self.send.loss.phase.is_none();
        let una = self.send.board.una();
        self.multicast
            .reception
            .multicast_losses(segments, una, sent, begins);
    }

    fn grow(&mut self, now: Instant, delivered: &Delivered, flow: &Flow, flight: u64) {
        let fast = matches!(self.send.loss.phase, Some((_, Recovery::Fast)));
        if delivered.newly == 0 || fast {
            return;
        }
        let una = self.send.board.una();
        let before = una.saturating_sub(delivered.acked);
        // Receivers that lose packets independently limit the group in turn: if only the narrowest window grew,
        // all would shrink to what the losses of all together allow one. The path has carried half of what the
        // window may become, which RFC 7661 §4.3 calls a validated window; a loss reduces what was carried, and
        // not this window (§4.4.1).
        let shared = before < flow.limited_at && self.send.cc.window() < 2 * flight;
        self.send.cc.on_ack(Ack {
            now,
            bytes: delivered.newly,
            limited: before < self.send.window.limited_at || shared,
            smoothed_rtt: self.send.rtt.smoothed(),
            rtt: delivered.rtt,
            una,
            nxt: flow.nxt,
        });
    }

    /// Before a reduction of the window. Data to a group sometimes takes two paths: a copy dropped by a queue
    /// is a sign of congestion even if the other one arrives.
    pub(super) fn may_undo(&mut self) {
        if self.multicast.mode.multicasts() {
            self.send.loss.undo = None;
            return;
        }
        self.send.loss.undo = Some(Undo {
            saved: self.send.cc.save(),
            first: None,
            again: 0,
            until: u64::MAX,
        });
    }

    /// A receiver reported duplicates of this many bytes: something was sent again that was only late. When all
    /// of it was, nothing was lost (RFC 3708).
    pub(super) fn reported_duplicate(&mut self, ack: u64, bytes: u64, flow: &Flow) {
        if let Some(undo) = &mut self.send.loss.undo
            && undo.again > 0
        {
            undo.again = undo.again.saturating_sub(bytes);
            if undo.again == 0 {
                self.undo(ack, flow);
            }
        }
        self.widen(ack, flow);
    }

    fn widen(&mut self, ack: u64, flow: &Flow) {
        if ack >= self.send.loss.widen_at {
            self.send.loss.widen_at = flow.nxt;
            self.send.loss.quiet_recoveries = 0;
            self.send.board.widen_reordering();
        }
    }

    fn fin_acknowledged(&mut self, now: Instant) {
        self.note(Note::Delivered);
        self.set_state(now, self.state.after_fin_acked());
    }

    /// Timers after an acknowledgement.
    fn arm_after_ack(&mut self, now: Instant, flow: &Flow) {
        if !self.state.sends() || !self.has_outstanding(flow) {
            self.timers.stop(Timer::Rto);
            self.timers.stop(Timer::Tail);
            self.timers.stop(Timer::Rack);
            return;
        }
        if self.send.progress == now || !self.timers.is_set(Timer::Rto) {
            self.arm_rto(now);
            self.arm_tail(now, flow);
        }
    }

    /// RFC 6298 §5, no later than the user timeout.
    pub(super) fn arm_rto(&mut self, now: Instant) {
        let at = now + self.send.rtt.rto();
        let end = self.send.progress + self.limits.user_timeout;
        self.timers.set(Timer::Rto, at.min(end.max(now)));
    }

    /// RFC 8985 §7.2: a probe comes before the timeout, or takes its place, where SACK can answer it.
    ///
    /// RFC 8985 has no probes in fast recovery, where data sent after a repair shows that the repair is lost.
    /// In a group nothing may be sent after it while another receiver holds the group back, and the timeout
    /// would stop the whole group. So there is one probe for each silence there too, as the probe timeout of
    /// RFC 9002 §6.2 continues during recovery.
    pub(super) fn arm_tail(&mut self, now: Instant, flow: &Flow) {
        let due = match self.send.loss.phase {
            None => self.send.probes.ends_at.is_none() && !self.send.board.has_sacked(),
            Some((_, Recovery::Fast)) => !self.send.probes.repair_sent,
            Some((_, Recovery::Timeout)) => false,
        };
        if !due || !self.handshake.agreed.sack {
            self.timers.stop(Timer::Tail);
            return;
        }
        let at = now + self.probe_timeout(flow);
        let at = self.timers.at(Timer::Rto).map_or(at, |rto| at.min(rto));
        self.timers.set(Timer::Tail, at);
    }

    /// Whether losses are repaired that a timeout found.
    pub(super) fn is_after_timeout(&self) -> bool {
        matches!(self.send.loss.phase, Some((_, Recovery::Timeout)))
    }

    pub(super) fn probe_timeout(&self, flow: &Flow) -> Duration {
        let Some(smoothed) = self.send.rtt.smoothed() else {
            return Duration::from_secs(1);
        };
        let mut pto = smoothed * 2 + Duration::from_millis(2);
        // A repair is acknowledged at once (RFC 5681 §4.2).
        let lone = self.send.board.pipe(flow.nxt) <= u64::from(flow.payload);
        if lone && self.send.loss.phase.is_none() {
            pto += self.limits.peer_ack_delay;
        }
        pto
    }
}

/// The SACK blocks of one segment.
#[derive(Default)]
struct Sacks {
    spans: [Span; 4],
    len: usize,
    /// Bytes of a duplicate that it reports.
    duplicate: u64,
}

impl Sacks {
    fn push(&mut self, span: Span) {
        self.spans[self.len] = span;
        self.len += 1;
    }

    fn as_slice(&self) -> &[Span] {
        &self.spans[..self.len]
    }
}
