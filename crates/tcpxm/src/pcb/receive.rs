//! Data and the FIN on their way in; windows and blocks on their way out.

use proto_core::time::{Duration, Instant};

use super::fin::PeerFin;
use super::stamps::Stamps;
use super::{Leaving, Note, Pcb, Record, State, Timer};
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
/// Largest delay between the two paths of a group's data, in milliseconds of the sender. Below 34 Gbit/s
/// sequence numbers do not wrap in this time.
const PATHS_APART_MS: u32 = 1000;
/// An acknowledgement is deferred at most for so long, and while at most so many bytes or a quarter of the receive buffer
/// are unacknowledged: the sender has as much to send meanwhile, and then sends as much at once.
const DEFERRAL: Duration = Duration::from_millis(5);
const MAX_DEFERRED: u64 = 512 << 10;

/// Whether an acknowledgement is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Owed {
    Nothing,
    /// When the delayed acknowledgement's timer fires, if no other segment carries it before.
    Later,
    /// Because enough segments have arrived since the last one; it may be deferred ([`Pcb::defer_ack`]).
    Enough,
    Now,
}

/// Reception of the group that the sender offered.
#[derive(Debug)]
struct Membership {
    record: Record,
    /// The sender asked for the group to be left.
    left: bool,
}

/// Receiving state.
#[derive(Debug)]
pub(crate) struct Receive {
    /// The peer's initial sequence number.
    irs: Seq,
    pub(crate) data: Reassembly,
    /// The advertised window reaches to this offset.
    edge: u64,
    pub(super) fin: PeerFin,
    pub(super) stamps: Stamps,
    last_ack_sent: u64,
    owed: Owed,
    /// An acknowledgement was deferred since the last one.
    is_deferred: bool,
    unacked: u32,
    /// Segments that are acknowledged at once.
    quick: u32,
    /// Most recent out-of-order range first (RFC 2018 §4).
    recent_early: u64,
    /// Which of the other ranges comes next in an acknowledgement.
    sack_turn: usize,
    /// A duplicate to report (RFC 2883).
    duplicate: Option<(u64, u64)>,
    /// None without a group.
    membership: Option<Membership>,
    /// The application does not read any more.
    shut: bool,
}

impl Receive {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            irs: Seq(0),
            data: Reassembly::new(config.capacity()),
            edge: 0,
            fin: PeerFin::No,
            stamps: Stamps::default(),
            last_ack_sent: 0,
            owed: Owed::Nothing,
            is_deferred: false,
            unacked: 0,
            quick: 0,
            recent_early: 0,
            sack_turn: 0,
            duplicate: None,
            membership: None,
            shut: false,
        }
    }

    /// The peer's stream begins after this sequence number.
    pub(super) fn synchronize(&mut self, irs: Seq) {
        self.irs = irs;
    }

    pub(super) fn irs(&self) -> Seq {
        self.irs
    }

    /// Returns the next expected offset: after the FIN once that was received.
    pub(crate) fn next(&self) -> u64 {
        self.data.next() + u64::from(self.fin_is_taken())
    }

    /// Returns the sequence number of the next expected byte.
    pub(super) fn ack_number(&self) -> Seq {
        self.irs.at(self.next())
    }

    /// Returns the offset of a sequence number near the next expected one.
    pub(super) fn offset_of(&self, seq: Seq) -> i64 {
        self.irs.offset_of(seq, self.next())
    }

    /// Returns the offset that the advertised window reaches to.
    pub(super) fn edge(&self) -> u64 {
        self.edge
    }

    /// Returns the next expected offset when the last acknowledgement left.
    pub(super) fn last_ack_sent(&self) -> u64 {
        self.last_ack_sent
    }

    /// Whether the peer's FIN was accepted.
    pub(crate) fn fin_is_taken(&self) -> bool {
        self.fin == PeerFin::Taken
    }

    /// Whether the application does not read any more.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut
    }

    /// Whether an acknowledgement is due at once.
    pub(super) fn owes_now(&self) -> bool {
        self.owed >= Owed::Enough
    }

    /// The application will not read any more.
    pub(super) fn shut(&mut self) {
        self.shut = true;
        self.data.discard();
    }

    /// An acknowledgement was delayed for long enough.
    pub(super) fn end_delay(&mut self) {
        if self.owed != Owed::Nothing {
            self.owed = Owed::Now;
        }
    }

    /// The sender's group was accepted.
    pub(super) fn join(&mut self) {
        self.membership = Some(Membership {
            record: Record::new(),
            left: false,
        });
    }

    /// Whether there is a group that was not left.
    pub(super) fn is_member(&self) -> bool {
        self.membership.as_ref().is_some_and(|group| !group.left)
    }

    /// Returns how the last segments came, also after the group was left; `None` without a group.
    pub(super) fn record(&self) -> Option<&Record> {
        self.membership.as_ref().map(|group| &group.record)
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
        if !self.state.may_receive() {
            return Err(Error::Closed);
        }
        if self.is_stale(now, segment) || self.receive.stamps.is_from_the_future(now, segment) {
            return Err(Error::Paws);
        }
        let next = self.receive.next();
        let start = self.receive.irs.offset_of(segment.seq, next);
        let end = start + segment.payload.len() as i64;
        if start >= (self.receive.edge as i64).max(next as i64 + 1) || !self.is_recent(start) {
            return Err(Error::Window);
        }
        if end <= next as i64 {
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
        let fits = start == next as i64 && end <= self.receive.edge;
        let whole = data.early().is_empty() && self.receive.fin == PeerFin::No;
        let plain = !(flags.syn || flags.fin || flags.rst || flags.urg);
        let accepts = self.state.may_receive() && !self.receive.shut;
        if !(fits && whole && plain && accepts)
            || self.is_stale(now, first)
            || self.receive.stamps.is_from_the_future(now, first)
            || !self.is_run_authentic(start, run)
        {
            return false;
        }
        let Some(group) = &mut self.receive.membership else {
            return false;
        };
        let (mut seq, mut at) = (first.seq, next);
        for (_, payload) in run.segments() {
            group.record.push(seq, payload.len(), true);
            self.receive.data.insert(at, payload);
            seq = seq.plus(payload.len() as u32);
            at += payload.len() as u64;
        }
        self.note_timestamp(now, first, start);
        self.has_advanced(run.len as u32);
        if self.receive.quick > 0 {
            self.owe_now();
        } else {
            self.owe_for_count(now);
        }
        self.receive.quick = self.receive.quick.saturating_sub(run.len as u32);
        true
    }

    /// Records that `segments` were in order.
    fn has_advanced(&mut self, segments: u32) {
        self.note(Note::Readable);
        self.receive.unacked += segments;
    }

    /// Whether a segment that begins there can be a duplicate of recent data. Anyone can send older data: it
    /// must not count as received.
    fn is_recent(&self, start: i64) -> bool {
        let back = self.receive.data.capacity().max(MIN_RECENT) as i64;
        start >= self.receive.next() as i64 - back
    }

    fn record(&mut self, segment: &Segment<'_>, multicast: bool) {
        if let Some(group) = &mut self.receive.membership
            && !segment.payload.is_empty()
        {
            group
                .record
                .push(segment.seq, segment.payload.len(), multicast);
        }
    }

    /// Whether the timestamp is from before the last one, by more than two paths to the receiver of a
    /// group may be apart.
    pub(super) fn is_stale(&self, now: Instant, segment: &Segment<'_>) -> bool {
        let apart_ms = if self.receive.membership.is_some() {
            PATHS_APART_MS
        } else {
            0
        };
        self.receive.stamps.is_stale(now, segment, apart_ms)
    }

    /// RFC 7323 §4.3: the timestamp of the segment that our next acknowledgement is caused by.
    pub(super) fn note_timestamp(&mut self, now: Instant, segment: &Segment<'_>, start: i64) {
        if self.handshake.agreed().timestamps && start <= self.receive.last_ack_sent as i64 {
            self.receive.stamps.take(now, segment);
        }
    }

    /// An acknowledgement at once.
    pub(super) fn owe_now(&mut self) {
        self.receive.owed = Owed::Now;
    }

    /// An acknowledgement soon.
    pub(super) fn owe_later(&mut self, now: Instant) {
        if self.receive.owed == Owed::Nothing {
            self.receive.owed = Owed::Later;
            self.timers
                .set(Timer::DelayedAck, now + self.limits.delayed_ack);
        }
    }

    /// An acknowledgement of data in order: when there is enough of it, or soon.
    fn owe_for_count(&mut self, now: Instant) {
        if self.receive.unacked < u32::from(self.limits.ack_every) {
            self.owe_later(now);
        } else {
            self.receive.owed = self.receive.owed.max(Owed::Enough);
        }
    }

    /// More data has arrived that is handled next: an acknowledgement that is due only for the number of segments may
    /// wait for it, as long as the sender is not kept waiting. Returns whether this connection has nothing to send then.
    pub(crate) fn defer_ack(&mut self, now: Instant, flow: &Flow) -> bool {
        let unacked = self.receive.next() - self.receive.last_ack_sent;
        let most = MAX_DEFERRED.min(self.receive.data.capacity() as u64 / 4);
        if self.receive.owed != Owed::Enough || unacked >= most {
            return false;
        }
        self.receive.owed = Owed::Later;
        if self.has_output(flow) {
            self.receive.owed = Owed::Enough;
            return false;
        }
        if !core::mem::replace(&mut self.receive.is_deferred, true) {
            self.timers.set(Timer::DelayedAck, now + DEFERRAL);
        }
        true
    }

    /// The sender continues by unicast alone: leaves the group at once. The acknowledgement without the
    /// feedback option confirms it.
    pub(super) fn leave_group(&mut self) {
        let Some(group) = &mut self.receive.membership else {
            return;
        };
        group.left = true;
        self.note(Note::Leave);
        self.owe_now();
    }

    /// A unicast segment of which nothing is new (TCP-XM §2.4, second rule).
    pub(super) fn take_duplicate(&mut self, now: Instant, segment: &Segment<'_>, start: i64) {
        if self.is_recent(start) {
            self.record(segment, false);
        }
        if self.state == State::TimeWait {
            // RFC 9293 §3.10.7.4: the other side's FIN again.
            self.timers.set(Timer::Linger, now + self.limits.time_wait);
        }
        let bytes = (start >= 0 && !segment.payload.is_empty())
            .then(|| (start as u64, start as u64 + segment.payload.len() as u64));
        self.owe_for_duplicate(now, segment.seq, bytes);
    }

    /// Data came again, these bytes of the stream. By multicast as well: an acknowledgement is owed soon (TCP-XM §2.4).
    /// By unicast alone: at once, with a report (RFC 2883).
    fn owe_for_duplicate(&mut self, now: Instant, seq: Seq, bytes: Option<(u64, u64)>) {
        let record = self.receive.record();
        if record.is_some_and(|record| record.came_by_multicast(seq)) {
            self.owe_later(now);
            return;
        }
        if bytes.is_some() {
            self.receive.duplicate = bytes;
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
        if let PeerFin::At(fin) = self.receive.fin
            && end > fin
        {
            self.owe_now();
            return Err(Error::Closed);
        }
        let mut result = Ok(());
        if !payload.is_empty() {
            // A receiver of multicast gets lost data by unicast.
            let record = self.receive.record();
            if !multicast && record.is_some_and(Record::is_multicast_last) {
                self.receive.quick = self.receive.quick.max(1);
            }
            self.record(segment, multicast);
            result = self.store(now, segment.seq, start, payload);
        }
        if segment.flags.fin
            && result != Err(Error::ReassemblyFull)
            && self.receive.fin == PeerFin::No
        {
            self.receive.fin = PeerFin::At(end);
        }
        if self.receive.fin == PeerFin::At(self.receive.data.next()) {
            self.take_fin(now);
        } else if segment.flags.fin {
            self.owe_now();
        }
        result
    }

    fn store(&mut self, now: Instant, seq: Seq, start: u64, payload: &[u8]) -> Result<(), Error> {
        let had_hole = !self.receive.data.early().is_empty();
        match self.receive.data.insert(start, payload) {
            Insert::Advanced => {
                self.has_advanced(1);
                // RFC 5681 §4.2: at once when a hole is (partly) filled, else for every second
                // segment, else soon.
                let quick = had_hole || self.receive.quick > 0;
                if quick {
                    self.owe_now();
                } else {
                    self.owe_for_count(now);
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
            Insert::Old if !self.receive.data.has(start) => {
                // There is no space for it.
                self.owe_now();
                Err(Error::Window)
            }
            Insert::Old => {
                let bytes = (start, start + payload.len() as u64);
                self.owe_for_duplicate(now, seq, Some(bytes));
                Err(Error::Duplicate)
            }
            Insert::Full => {
                self.owe_now();
                Err(Error::ReassemblyFull)
            }
        }
    }

    /// Options of a segment; SACK blocks only without data.
    pub(super) fn options(&mut self, now: Instant, flow: &Flow, with_sack: bool) -> Options {
        let mut options = Options::default();
        if self.handshake.agreed().timestamps {
            options.timestamps = Some((flow.stamp_at(now), self.receive.stamps.echo()));
        }
        options.tag = self.empty_tag();
        if self.multicast.leaving != Leaving::No {
            options.group = Some(GroupOption::Leave);
        }
        if let Some(group) = &self.receive.membership
            && !group.left
        {
            let percent = group.record.percent();
            options.feedback = Some(Feedback { percent });
        }
        if with_sack && self.handshake.agreed().sack {
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
        let recent = early.partition_point(|held| held.end <= self.receive.recent_early);
        let Some(held) = early.get(recent) else {
            return;
        };
        put(held.start, held.end);
        let others = early.len() - 1;
        let turn = self.receive.sack_turn;
        for n in 0..others.min(3) {
            let at = (recent + 1 + (turn + n) % others) % early.len();
            put(early[at].start, early[at].end);
        }
        self.receive.sack_turn = turn.wrapping_add(2);
        options.shrink_to_fit();
    }

    /// Returns the window field. Its right edge never moves back by as much as the field can express (RFC 9293
    /// §3.8.6), and forward only in steps worth a segment (§3.8.6.2.2, silly window avoidance).
    pub(super) fn window_field(&mut self) -> u16 {
        let shift = self.handshake.agreed().receive_shift;
        let next = self.receive.next();
        let target = self.window_target();
        let step = u64::from(self.limits.our_mss).min(self.receive.data.capacity() as u64 / 2);
        if target >= self.receive.edge + step {
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
        let shift = self.handshake.agreed().receive_shift;
        let unit = (1u64 << shift) - 1;
        let reach = 0xffff << shift;
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
        // Less than a segment does not move the window.
        if gain >= segment && (gain >= capacity / 4 || left < 2 * segment) {
            self.owe_now();
        }
    }

    /// An acknowledgement left, with or without data.
    pub(super) fn ack_sent(&mut self) {
        self.receive.last_ack_sent = self.receive.next();
        self.receive.unacked = 0;
        self.receive.owed = Owed::Nothing;
        self.receive.is_deferred = false;
        self.timers.stop(Timer::DelayedAck);
    }
}
