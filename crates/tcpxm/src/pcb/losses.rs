//! Losses to one peer: how they are found, what they cost, and their repair.

use core::net::IpAddr;

use proto_core::time::{Duration, Instant};

use super::{Pcb, Timer};
use crate::cc::Saved;
use crate::group::{Flow, Mode};
use crate::ranges::Span;
use crate::recovery::prr::Progress;
use crate::recovery::scoreboard::{DetectView, Lost};
use crate::recovery::{Carried, Delivered, Disorder, Prr};
use crate::seq::stamp_before;
use crate::wire::Segment;

/// Copies of the first flight to forty receivers take this long at 100 Mbit/s.
const COPIES_APART: Duration = Duration::from_millis(50);
/// After this many recoveries without a duplicate the reordering window shrinks again.
const QUIET_RECOVERIES: u8 = 16;

/// How losses were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// By duplicate or selective acknowledgements: fast recovery.
    ByAcknowledgements,
    /// By a timeout, or because the path takes no segments of that length: everything is sent again.
    ByTimeout,
}

/// The repair of losses, which together are one congestion event.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    found: Found,
    /// Ends when this offset is acknowledged.
    end: u64,
    /// One retransmission is sent whatever the window says.
    force_one: bool,
}

/// The window before the current losses were detected, and how to find out that there were none.
#[derive(Debug)]
struct Undo {
    saved: Saved,
    /// Timestamp of the first segment that was sent again for them, and its end.
    first: Option<(u32, u64)>,
    /// Bytes sent again for them that the receiver has not reported to be duplicates.
    again: u64,
    /// Later reports than the acknowledgement of this offset are about something else.
    until: u64,
}

/// The losses of the current window, and their repair.
#[derive(Debug)]
pub(crate) struct Losses {
    recovery: Option<Recovery>,
    /// Limits the bytes in flight during fast recovery, where SACK reports which arrive.
    prr: Prr,
    /// Losses are likely, but not certain yet.
    disorder: Option<Disorder>,
    /// What reductions of the window start from.
    carried: Carried,
    duplicate_acks: u8,
    /// The cost of the current losses, in case that there were none.
    undo: Option<Undo>,
    /// The reordering window is widened next when this offset is acknowledged.
    widen_at: u64,
    /// Recoveries since the last duplicate.
    quiet_recoveries: u8,
    /// Timestamp of the last retransmission.
    last_stamp: Option<u32>,
}

impl Losses {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            recovery: None,
            prr: Prr::default(),
            disorder: None,
            carried: Carried::new(now),
            duplicate_acks: 0,
            undo: None,
            widen_at: 0,
            quiet_recoveries: 0,
            last_stamp: None,
        }
    }

    /// Whether losses are being repaired.
    pub(crate) fn in_recovery(&self) -> bool {
        self.recovery.is_some()
    }

    /// Whether losses are being repaired that acknowledgements revealed.
    pub(super) fn in_fast_recovery(&self) -> bool {
        let found = self.recovery.map(|recovery| recovery.found);
        found == Some(Found::ByAcknowledgements)
    }

    /// Whether losses are being repaired that a timeout found.
    pub(super) fn is_after_timeout(&self) -> bool {
        self.in_recovery() && !self.in_fast_recovery()
    }

    /// Repairs begin; data from `end` on is not part of them.
    fn begin(&mut self, found: Found, end: u64) {
        self.recovery = Some(Recovery {
            found,
            end,
            force_one: true,
        });
    }

    /// Sets whether one retransmission is sent whatever the window says.
    pub(super) fn force_one(&mut self, force_one: bool) {
        if let Some(recovery) = &mut self.recovery {
            recovery.force_one = force_one;
        }
    }

    /// Returns the limit of the bytes in flight, if losses set one that counts with CUBIC and NewReno.
    pub(super) fn window(&self) -> Option<u64> {
        self.in_fast_recovery().then(|| self.prr.window())
    }

    /// Records that this much was in flight until now; it counts for `period`.
    pub(super) fn record_flight(&mut self, now: Instant, flight: u64, period: Duration) {
        self.carried.record(now, flight, period);
    }

    /// Returns the most that was in flight lately.
    pub(super) fn carried(&self) -> u64 {
        self.carried.most()
    }

    /// Whether an echoed timestamp is not from before the last retransmission.
    pub(super) fn is_current(&self, echo: u32) -> bool {
        self.last_stamp
            .is_none_or(|again| !stamp_before(echo, again))
    }

    /// Bytes are sent again with this timestamp; the peer has everything before `una`.
    pub(super) fn sent_again(&mut self, span: Span, stamp: u32, una: u64) {
        self.prr.sent_again(span.len());
        self.last_stamp = Some(stamp);
        if let Some(undo) = &mut self.undo
            && self.recovery.is_some()
        {
            // After another hole the echo would be that of the segment that fills it.
            if undo.again == 0 && span.start == una {
                undo.first = Some((stamp, span.end));
            }
            undo.again += span.len();
        }
    }
}

impl Pcb {
    /// An acknowledgement up to `ack` was taken: recovery may end, or begin. `flight`: bytes that were in flight
    /// until then. Returns the number of bytes newly lost.
    pub(super) fn revise_losses(
        &mut self,
        now: Instant,
        ack: u64,
        duplicate: bool,
        delivered: &Delivered,
        flow: &Flow,
        flight: u64,
    ) -> u64 {
        if delivered.acked > 0 {
            self.send.loss.duplicate_acks = 0;
        }
        self.leave_recovery(ack, flow.nxt);
        if self.handshake.agreed().sack {
            let lost = self.detect(now, flow, flight);
            self.note_disorder(delivered, flight, flow);
            self.proportion(delivered, lost, flow);
            lost
        } else {
            let before = self.send.board.lost_bytes();
            self.without_sack(duplicate, delivered, flow, flight);
            self.send.board.lost_bytes().saturating_sub(before)
        }
    }

    /// The reordering timer fired: what it waited for is lost.
    pub(super) fn reordering_expired(&mut self, now: Instant, flow: &Flow) {
        let flight = self.send.board.pipe(flow.nxt);
        let lost = self.detect(now, flow, flight);
        if lost > 0 {
            self.proportion(&Delivered::default(), lost, flow);
            self.deliver(now, &Delivered::default(), None, lost, flow);
        }
    }

    /// The retransmission timer fired: everything outstanding is lost.
    pub(super) fn lose_outstanding(&mut self, now: Instant, flow: &Flow) {
        let in_flight = self.send.board.pipe(flow.nxt);
        let carried = self.send.loss.carried().max(in_flight);
        let highest = self.multicast.reception.highest();
        let lost = self.send.board.lose_all(flow.nxt, highest);
        self.count_losses(&lost, flow);
        let first = self.send.rtt.backoff() == 0;
        if first {
            self.may_undo();
        }
        self.deliver(now, &Delivered::default(), None, lost.bytes, flow);
        self.send.cc.on_timeout(carried, first);
        if self.send.board.lost_bytes() > self.send.cc.window() {
            // The window holds back repairs, so that it grows with their acknowledgements (RFC 5681 §3.1).
            self.send.window.limit_at(flow.nxt);
        }
        self.send.window_limit.timeout = true;
        self.send.loss.duplicate_acks = 0;
        self.send_all_again(flow.nxt);
    }

    /// Starts to send everything up to `nxt` again.
    pub(super) fn send_all_again(&mut self, nxt: u64) {
        self.send.loss.begin(Found::ByTimeout, nxt);
        self.send.probes.forget();
        self.timers.stop(Timer::Tail);
        self.timers.stop(Timer::Rack);
        self.timers.stop(Timer::Repair);
    }

    /// How much later than one copy of the data another one may arrive, where there are two: that by unicast waits for
    /// those of all other receivers.
    fn copies_apart(&self) -> Option<Duration> {
        let two = self.multicast.mode == Mode::UnicastGroup
            && self.multicast.reception.percent() != Some(0);
        let round_trip = self.send.rtt.smoothed().unwrap_or_default();
        two.then(|| round_trip.max(COPIES_APART))
    }

    /// RFC 8985 §6: detects losses; returns the number of bytes newly lost.
    fn detect(&mut self, now: Instant, flow: &Flow, flight: u64) -> u64 {
        let view = DetectView {
            now,
            nxt: flow.nxt,
            log: &flow.log,
            in_recovery: self.send.loss.in_recovery(),
            segment: u64::from(flow.payload),
            min_rtt: self.send.rtt.min(),
            smoothed_rtt: self.send.rtt.smoothed(),
            highest: self.multicast.reception.highest(),
            copies_apart: self.copies_apart(),
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

    /// Something is newly known to be lost.
    fn enter_recovery(&mut self, lost: &Lost, flight: u64, flow: &Flow) {
        self.count_losses(lost, flow);
        if self.send.loss.in_recovery() {
            return;
        }
        self.send.loss.begin(Found::ByAcknowledgements, flow.nxt);
        self.may_undo();
        self.send.cc.on_loss(self.send.loss.carried().max(flight));
        let since = self.send.loss.disorder.take().unwrap_or(Disorder {
            flight,
            nxt: flow.nxt,
            delivered: 0,
        });
        let pipe = self.send.board.pipe(flow.nxt);
        self.send.loss.prr = Prr::begin(&since, pipe, u64::from(flow.payload));
        self.send.window_limit.cut = true;
        self.timers.stop(Timer::Tail);
        self.send.probes.forget();
    }

    /// Counts losses of multicast data (TCP-XM §2.5), before a recovery starts for them.
    fn count_losses(&mut self, lost: &Lost, flow: &Flow) {
        let segments = lost.in_a_row.div_ceil(u64::from(flow.payload));
        let sent = (lost.end, flow.nxt);
        let begins = !self.send.loss.in_recovery();
        let una = self.send.board.una();
        self.multicast
            .reception
            .multicast_losses(segments, una, sent, begins);
    }

    /// RFC 5681 §3.2 and RFC 6582 §3.2, for peers without SACK.
    fn without_sack(&mut self, duplicate: bool, delivered: &Delivered, flow: &Flow, flight: u64) {
        let segment = u64::from(flow.payload);
        if duplicate && self.send.loss.is_after_timeout() {
            // It answers a segment that arrived twice (RFC 6582 §4.1).
            return;
        }
        if duplicate {
            self.send.loss.duplicate_acks = self.send.loss.duplicate_acks.saturating_add(1);
            // Limited transmit (RFC 3042) and the inflation of fast recovery: each duplicate says
            // that a segment has left the network.
            self.send.board.inflate(segment, flow.nxt);
            if self.send.loss.duplicate_acks == 3 && !self.send.loss.in_recovery() {
                self.send.board.lose_first(segment, flow.nxt);
                // Data sent after the duplicates is still to be acknowledged.
                self.enter_recovery(&Lost::default(), flight, flow);
            }
        } else if delivered.acked > 0 && self.send.loss.in_fast_recovery() {
            // A partial acknowledgement: the next segment is lost too.
            self.send.board.lose_first(segment, flow.nxt);
            self.send.loss.force_one(true);
        }
    }

    /// An acknowledgement has made a loss likely; the reordering timer will decide.
    fn note_disorder(&mut self, delivered: &Delivered, flight: u64, flow: &Flow) {
        if self.send.loss.in_recovery() || !self.timers.is_set(Timer::Rack) {
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

    /// RFC 9937 §6: how much is sent for each delivered byte during recovery.
    fn proportion(&mut self, delivered: &Delivered, lost: u64, flow: &Flow) {
        if !self.send.loss.in_fast_recovery() {
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

    /// Lost bytes at or after an offset that the congestion window lets go (RFC 6675 §5).
    fn lost_from(&self, flow: &Flow, offset: u64) -> Option<Span> {
        if self.send.board.lost_bytes() == 0 || self.timers.is_set(Timer::Repair) {
            return None;
        }
        let span = self
            .send
            .board
            .next_lost(offset, self.repair_payload(flow))?;
        let fits = self.send.board.pipe(flow.nxt) + span.len()
            <= self.send.flight_window(self.handshake.agreed().sack);
        let forced = |recovery: Recovery| recovery.force_one;
        (fits || self.send.loss.recovery.is_some_and(forced)).then_some(span)
    }

    /// The first lost bytes that may be sent again.
    pub(super) fn lost_to_repair(&self, flow: &Flow) -> Option<Span> {
        self.lost_from(flow, 0)
    }

    /// Lost bytes at or after an offset that other receivers of its group may lack too, and the group. What a timeout
    /// found goes by unicast, and at once.
    pub(crate) fn lost_to_share(&self, flow: &Flow, offset: u64) -> Option<(IpAddr, Span)> {
        let group = self.multicast.group?;
        let shares = self.multicast.mode.multicasts()
            && flow.is_shared(group)
            && self.state.sends()
            && self.send.loss.in_fast_recovery();
        let span = self.lost_from(flow, offset).filter(|_| shares)?;
        Some((group, span))
    }

    /// These lost bytes were sent again at this time, to all receivers.
    pub(crate) fn was_repaired(&mut self, at: Instant, flow: &Flow, span: Span) {
        self.send.loss.force_one(false);
        self.send.board.sent_to_group(span, at);
        let una = self.send.board.una();
        self.send.loss.sent_again(span, flow.stamp_at(at), una);
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
        if let Some(recovery) = self.send.loss.recovery
            && ack >= recovery.end
        {
            self.send.loss.recovery = None;
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

    /// Before a reduction of the window. Data to a group sometimes takes two paths: a copy dropped by a queue
    /// is a sign of congestion even if the other one arrives.
    fn may_undo(&mut self) {
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

    /// RFC 3522: an acknowledgement of the first segment that was sent again echoes an earlier
    /// timestamp than that carried; so it answers the original, which was not lost.
    pub(super) fn is_spurious(
        &self,
        segment: &Segment<'_>,
        ack: u64,
        delivered: &Delivered,
    ) -> bool {
        let first = self.send.loss.undo.as_ref().and_then(|undo| undo.first);
        let echo = segment
            .options
            .timestamps
            .filter(|_| self.handshake.agreed().timestamps);
        let (Some((stamp, end)), Some((_, echo))) = (first, echo) else {
            return false;
        };
        let covers = ack >= end && ack - delivered.acked < end;
        covers && echo != 0 && stamp_before(echo, stamp)
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

    /// Segments that seemed lost were late: the window is restored (RFC 4015), and the reordering window is
    /// widened.
    pub(super) fn undo(&mut self, ack: u64, flow: &Flow) {
        let Some(undo) = self.send.loss.undo.take() else {
            return;
        };
        self.counters.undone += 1;
        self.send.cc.restore(&undo.saved);
        self.send.board.forget_lost();
        self.send.loss.recovery = None;
        self.send.probes.has_arrived();
        self.send.board.deflate();
        self.widen(ack, flow);
    }

    fn widen(&mut self, ack: u64, flow: &Flow) {
        if ack >= self.send.loss.widen_at {
            self.send.loss.widen_at = flow.nxt;
            self.send.loss.quiet_recoveries = 0;
            self.send.board.widen_reordering();
        }
    }
}
