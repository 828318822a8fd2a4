//! Data and the FIN on their way in; windows and blocks on their way out.

use proto_core::time::Instant;

use super::{Fin, Leaving, Note, Pcb, Record, State, Timer};
use crate::config::Config;
use crate::error::{Error, Failure};
use crate::group::Flow;
use crate::reassembly::{Insert, Reassembly};
use crate::seq::{Seq, SynNumber};
use crate::wire::{Feedback, GroupOption, Options, Run, Segment};

/// Duplicates of recent data begin at most this far back, or as far as the receive buffer is long.
const MIN_RECENT: usize = 1 << 20;
/// After a sign of loss this many segments are acknowledged one by one (`TCP_MAX_QUICKACKS` of Linux): a sender
/// that repairs may have space for one, and in a group all others wait.
const QUICK: u32 = 16;

/// Whether an acknowledgement is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Owed {
    Nothing,
    /// When the delayed acknowledgement's timer fires, if no other segment carries it before.
    Later,
    Now,
}

/// Receiving state.
pub(crate) struct Receive {
    pub(super) irs: Seq,
    pub(crate) data: Reassembly,
    /// The advertised window reaches to this offset.
    pub(super) edge: u64,
    /// Offset of the peer's FIN, once received.
    pub(super) fin_at: Option<u64>,
    pub(crate) fin_taken: bool,
    /// The last segment of a group's receiver had a FIN, which does not count yet.
    pub(super) fin_claimed: bool,
    /// Timestamp to echo, and when it was taken (RFC 7323 §4.3).
    pub(super) ts_recent: Option<(u32, Instant)>,
    pub(super) last_ack_sent: u64,
    pub(super) owed: Owed,
    pub(super) unacked: u32,
    /// Segments that are acknowledged at once.
    pub(super) quick: u32,
    /// Most recent out-of-order range first (RFC 2018 §4).
    pub(super) recent_early: u64,
    /// Which of the other ranges comes next in an acknowledgement.
    pub(super) sack_turn: usize,
    /// A duplicate to report (RFC 2883).
    pub(super) duplicate: Option<(u64, u64)>,
    pub(crate) record: Option<Record>,
    /// The sender asked for the group to be left.
    pub(crate) left_group: bool,
    /// The application does not read any more.
    pub(crate) shut: bool,
}

impl Receive {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            irs: Seq(0),
            data: Reassembly::new(config.capacity()),
            edge: 0,
            fin_at: None,
            fin_taken: false,
            fin_claimed: false,
            ts_recent: None,
            last_ack_sent: 0,
            owed: Owed::Nothing,
            unacked: 0,
            quick: 0,
            recent_early: 0,
            sack_turn: 0,
            duplicate: None,
            record: None,
            left_group: false,
            shut: false,
        }
    }

    /// Returns the next expected offset: after the FIN once that was received.
    pub(crate) fn next(&self) -> u64 {
        self.data.next() + u64::from(self.fin_taken)
    }
}

impl Pcb {
    /// One segment that came by multicast: only its data counts (TCP-XM §2.1; acknowledgement,
    /// window and control bits belong to unicast).
    pub(crate) fn handle_multicast(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
    ) -> Result<(), Error> {
        let flags = segment.flags;
        if flags.syn || flags.fin || flags.rst || flags.urg || segment.payload.is_empty() {
            return Err(Error::GroupControl);
        }
        if !self.state.may_receive() || self.receive.record.is_none() {
            return Err(Error::Closed);
        }
        if self.is_stale(now, segment) || self.is_from_the_future(now, segment) {
            return Err(Error::Paws);
        }
        let next = self.receive.next();
        let start = self.receive.irs.offset_of(segment.seq, next);
        let end = start + segment.payload.len() as i64;
        if start >= (self.receive.edge as i64).max(next as i64 + 1) || !self.is_recent(start) {
            return Err(Error::Window);
        }
        if end <= next as i64 || (start >= 0 && self.is_early_duplicate(start as u64, end as u64)) {
            // TCP-XM §2.4, first rule. An acknowledgement is owed nevertheless: that of the original may be
            // lost, and the sender would wait for it.
            self.record(segment, true);
            self.owe_later(now);
            return Err(Error::Duplicate);
        }
        self.note_timestamp(now, segment, start);
        self.take_data(now, segment, start, true)
    }

    /// Handles consecutive multicast segments, with the same effect as [`Pcb::handle_multicast`] for each, if
    /// they are exactly the next ones and nothing is missing. Otherwise returns false and does nothing.
    pub(crate) fn handle_run(&mut self, now: Instant, first: &Segment<'_>, run: &Run<'_>) -> bool {
        let flags = first.flags;
        let data = &self.receive.data;
        let next = data.next();
        let start = self.receive.irs.offset_of(first.seq, next);
        let end = next + run.data_len() as u64;
        let fits = start == next as i64 && end <= self.receive.edge && end <= data.limit();
        let whole = data.early().is_empty() && self.receive.fin_at.is_none();
        let plain = !(flags.syn || flags.fin || flags.rst || flags.urg);
        let accepts = self.state.may_receive() && !self.receive.shut;
        if !(fits && whole && plain && accepts)
            || self.is_stale(now, first)
            || self.is_from_the_future(now, first)
        {
            return false;
        }
        let Some(record) = &mut self.receive.record else {
            return false;
        };
        let (mut seq, mut at) = (first.seq, next);
        for payload in run.payloads() {
            record.push(seq, payload.len(), true);
            self.receive.data.insert(at, payload);
            seq = seq.plus(payload.len() as u32);
            at += payload.len() as u64;
        }
        self.note_timestamp(now, first, start);
        self.has_advanced(run.len as u32);
        if self.receive.unacked >= u32::from(self.limits.ack_every) || self.receive.quick > 0 {
            self.owe_now();
        } else {
            self.owe_later(now);
        }
        self.receive.quick = self.receive.quick.saturating_sub(run.len as u32);
        true
    }

    /// Records that `segments` were in order.
    fn has_advanced(&mut self, segments: u32) {
        self.note(Note::Readable);
        self.receive.unacked += segments;
    }

    fn is_early_duplicate(&self, start: u64, end: u64) -> bool {
        let early = self.receive.data.early();
        early
            .iter()
            .any(|held| held.start <= start && end <= held.end)
    }

    /// Whether a segment that begins there can be a duplicate of recent data. Anyone can send older data: it
    /// must not count as received.
    fn is_recent(&self, start: i64) -> bool {
        let back = self.receive.data.capacity().max(MIN_RECENT) as i64;
        start >= self.receive.next() as i64 - back
    }

    fn record(&mut self, segment: &Segment<'_>, multicast: bool) {
        if let Some(record) = &mut self.receive.record
            && !segment.payload.is_empty()
        {
            record.push(segment.seq, segment.payload.len(), multicast);
        }
    }

    /// The sender continues by unicast alone: leaves the group at once. The acknowledgement without the
    /// feedback option confirms it.
    pub(super) fn leave_group(&mut self) {
        if self.handshake.passive && self.receive.record.is_some() {
            if !self.receive.left_group && !self.receive.fin_taken {
                self.note(Note::Leave);
            }
            self.receive.left_group = true;
            self.owe_now();
        }
    }

    /// A unicast segment of which nothing is new (TCP-XM §2.4, second rule).
    pub(super) fn take_duplicate(&mut self, now: Instant, segment: &Segment<'_>, start: i64) {
        let by_multicast = self
            .receive
            .record
            .as_ref()
            .is_some_and(|record| record.came_by_multicast(segment.seq));
        if self.is_recent(start) {
            self.record(segment, false);
        }
        if self.state == State::TimeWait {
            // RFC 9293 §3.10.7.4: the other side's FIN again.
            self.timers.set(Timer::Linger, now + self.limits.time_wait);
        }
        if by_multicast {
            self.owe_later(now);
            return;
        }
        if start >= 0 && !segment.payload.is_empty() {
            let start = start as u64;
            self.receive.duplicate = Some((start, start + segment.payload.len() as u64));
        }
        self.owe_now();
    }

    /// RFC 9293 §3.10.7.4, seventh and eighth steps.
    pub(super) fn take_data(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        start: i64,
        multicast: bool,
    ) -> Result<(), Error> {
        if !self.state.may_receive() {
            self.owe_now();
            return Err(if self.state == State::TimeWait {
                Error::TimeWait
            } else {
                Error::Closed
            });
        }
        let skip = usize::try_from(-start.min(0)).unwrap_or(usize::MAX);
        let payload = segment.payload.get(skip..).unwrap_or(&[]);
        let start = start.max(0) as u64;
        let end = start + payload.len() as u64;
        if self.receive.shut && end > self.receive.data.next() {
            // RFC 9293 §3.6.1: data for an application that is gone.
            self.reset_due = true;
            self.fail(Failure::Aborted);
            return Err(Error::Closed);
        }
        if self.receive.fin_at.is_some_and(|fin| end > fin) {
            self.owe_now();
            return Err(Error::Closed);
        }
        let mut result = Ok(());
        if !payload.is_empty() {
            let early = self.is_early_duplicate(start, end);
            let by_multicast = early && !multicast && {
                let record = self.receive.record.as_ref();
                record.is_some_and(|record| record.came_by_multicast(segment.seq))
            };
            // A receiver of multicast gets lost data by unicast.
            let record = self.receive.record.as_ref();
            if !multicast && record.is_some_and(Record::is_multicast_last) {
                self.receive.quick = self.receive.quick.max(1);
            }
            self.record(segment, multicast);
            result = self.store(now, start, payload, by_multicast);
        }
        if segment.flags.fin && result != Err(Error::ReassemblyFull) {
            self.receive.fin_at.get_or_insert(end);
        }
        if self.receive.fin_at == Some(self.receive.data.next()) && !self.receive.fin_taken {
            self.take_fin(now);
        } else if segment.flags.fin {
            self.owe_now();
        }
        result
    }

    fn store(
        &mut self,
        now: Instant,
        start: u64,
        payload: &[u8],
        came_by_multicast: bool,
    ) -> Result<(), Error> {
        let had_hole = !self.receive.data.early().is_empty();
        match self.receive.data.insert(start, payload) {
            Insert::Advanced => {
                self.has_advanced(1);
                // RFC 5681 §4.2: at once when a hole is (partly) filled, else for every second
                // segment, else soon.
                let quick = had_hole || self.receive.quick > 0;
                if quick || self.receive.unacked >= u32::from(self.limits.ack_every) {
                    self.owe_now();
                } else {
                    self.owe_later(now);
                }
                if !had_hole {
                    self.receive.quick = self.receive.quick.saturating_sub(1);
                }
                Ok(())
            }
            Insert::Early => {
                self.receive.quick = QUICK;
                self.receive.recent_early = start;
                self.owe_now();
                Ok(())
            }
            Insert::Old if came_by_multicast => {
                self.owe_later(now);
                Err(Error::Duplicate)
            }
            Insert::Old => {
                self.owe_now();
                if !self.receive.data.has(start) {
                    // There is no space for it.
                    return Err(Error::Window);
                }
                self.receive.duplicate = Some((start, start + payload.len() as u64));
                Err(Error::Duplicate)
            }
            Insert::Full => {
                self.owe_now();
                Err(Error::ReassemblyFull)
            }
        }
    }

    /// Handles a receiver's FIN at the sender of a group. If accepted at once, a forged one would stop the
    /// group: the receiver drops what acknowledges a FIN that it has not sent, and its own segments come from
    /// before that FIN. So it is accepted when the receiver continues after it, or sends it again with nothing
    /// between; or when the receiver has everything.
    pub(super) fn weigh_fin(&mut self, now: Instant, has_fin: bool, start: i64) {
        let next = self.receive.next() as i64;
        if self.receive.fin_taken || !self.state.may_receive() {
            return;
        }
        let here = has_fin && start == next;
        let claimed = core::mem::replace(&mut self.receive.fin_claimed, here);
        let confirmed = claimed && (here || start == next + 1);
        if confirmed || (here && self.state == State::FinWait2) {
            self.take_fin(now);
        }
    }

    fn take_fin(&mut self, now: Instant) {
        self.receive.fin_taken = true;
        self.owe_now();
        self.note(Note::Finished);
        if self.receive.record.is_some() && !self.receive.left_group {
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
                self.note(Note::Closed);
            }
            State::Closed => {
                self.become_closed();
            }
            // The application does not read any more: the peer has this long to close too.
            State::FinWait2 if self.receive.shut => {
                self.timers.set(Timer::Linger, now + self.limits.time_wait);
            }
            _ => {}
        }
    }

    /// Options of a segment; SACK blocks only without data.
    pub(super) fn options(&mut self, now: Instant, flow: &Flow, with_sack: bool) -> Options {
        let mut options = Options::default();
        if self.handshake.agreed.timestamps {
            let echo = self.receive.ts_recent.map_or(0, |(value, _)| value);
            options.timestamps = Some((flow.stamp_at(now), echo));
        }
        options.tag = self.empty_tag();
        if self.multicast.leaving != Leaving::No {
            options.group = Some(GroupOption::Leave);
        }
        if let Some(record) = &self.receive.record
            && !self.receive.left_group
        {
            let percent = record.percent();
            options.feedback = Some(Feedback { percent });
        }
        if with_sack && self.handshake.agreed.sack {
            self.put_sack(&mut options);
        }
        options
    }

    /// RFC 2018 §4: the most recent block first; the others in turn, since not all fit. RFC 2883 §4: before
    /// them, once, a duplicate.
    fn put_sack(&mut self, options: &mut Options) {
        let irs = self.receive.irs;
        let mut put = |start: u64, end: u64| options.sack.push((irs.at(start), irs.at(end)));
        if let Some((start, end)) = self.receive.duplicate.take() {
            put(start, end);
        }
        let early = self.receive.data.early();
        if early.is_empty() {
            return;
        }
        let recent = early.partition_point(|held| held.end <= self.receive.recent_early);
        let recent = recent.min(early.len() - 1);
        put(early[recent].start, early[recent].end);
        let others = early.len() - 1;
        let turn = self.receive.sack_turn;
        for n in 0..others.min(3) {
            let at = (recent + 1 + (turn + n) % others) % early.len();
            put(early[at].start, early[at].end);
        }
        self.receive.sack_turn = if others > 0 { (turn + 2) % others } else { 0 };
        options.shrink_to_fit();
    }

    /// Returns the window field. Its right edge never moves back by as much as the field can express (RFC 9293
    /// §3.8.6), and forward only in steps worth a segment (§3.8.6.2.2, silly window avoidance).
    pub(super) fn window_field(&mut self) -> u16 {
        let shift = self.handshake.agreed.receive_shift;
        let next = self.receive.next();
        let target = self.window_target();
        let step = u64::from(self.limits.our_mss).min(self.receive.data.capacity() as u64 / 2);
        if target >= self.receive.edge + step || self.receive.edge == 0 {
            self.receive.edge = target;
        }
        let window = self.receive.edge.saturating_sub(next);
        // Rounding up keeps the offered window. Where the buffer has no space for that, the field returns less
        // than a unit, as RFC 7323 §2.4 allows; data that uses it is accepted nevertheless.
        let mut field = window.div_ceil(1 << shift);
        if next + (field << shift) > self.receive.data.limit() {
            field = window >> shift;
        }
        let field = field.min(0xffff);
        self.receive.edge = self.receive.edge.max(next + (field << shift));
        field as u16
    }

    /// Where the window could reach to: one unit of the scale is kept back, so that rounding up
    /// never offers more than there is.
    fn window_target(&self) -> u64 {
        let unit = (1u64 << self.handshake.agreed.receive_shift) - 1;
        let reach = 0xffff << self.handshake.agreed.receive_shift;
        let next = self.receive.next();
        (self.receive.data.limit() - unit).min(next + reach)
    }

    /// The window in a SYN is never scaled (RFC 7323 §2.2).
    pub(super) fn syn_window(&mut self) -> u16 {
        let window = self.receive.data.limit().min(0xffff);
        self.receive.edge = self.receive.edge.max(window);
        window as u16
    }

    /// The application has taken data: does the other side have to know at once?
    pub(crate) fn after_read(&mut self) {
        if !self.state.may_receive() {
            return;
        }
        let gain = self.window_target().saturating_sub(self.receive.edge);
        let left = self.receive.edge.saturating_sub(self.receive.next());
        let capacity = self.receive.data.capacity() as u64;
        let segment = u64::from(self.limits.our_mss).min(capacity / 2);
        if gain >= capacity / 4 || (left < 2 * segment && gain >= segment) {
            self.owe_now();
        }
    }

    /// The application will not read any more (RFC 9293 §3.9.1.4, CLOSE; RFC 1122 §4.2.2.13: unread
    /// data is a reason for a reset).
    pub(crate) fn shut_reading(&mut self) {
        let unread = self.receive.data.readable() > 0;
        self.receive.shut = true;
        self.receive.data.discard();
        if unread && self.state.is_synchronized() && self.state != State::TimeWait {
            self.reset_due = true;
            self.fail(Failure::Aborted);
        }
    }

    /// An acknowledgement left, with or without data.
    pub(super) fn ack_sent(&mut self) {
        self.receive.last_ack_sent = self.receive.next();
        self.receive.unacked = 0;
        self.receive.owed = Owed::Nothing;
        self.timers.stop(Timer::DelayedAck);
    }

    /// Whether all data is out and the FIN is not.
    pub(crate) fn fin_waits(&self, flow: &Flow) -> bool {
        self.send.fin == Fin::No && self.state.may_send() && flow.is_complete()
    }

    /// Whether the FIN is to be sent for the first time, within the window, or again.
    pub(super) fn fin_is_due(&self, flow: &Flow) -> bool {
        match self.send.fin {
            Fin::No => self.fin_waits(flow) && self.send.window.edge > flow.nxt,
            Fin::Lost => true,
            Fin::Sent | Fin::Acked => false,
        }
    }
}
