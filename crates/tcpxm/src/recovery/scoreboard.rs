//! The bytes in flight to one receiver (RFC 2018, RFC 6675), and which of them are lost (RFC 8985).
//!
//! Each byte between `una` and the end of the sent data is in exactly one of these states:
//!
//! | state | kept in | when it was sent | counts as in flight |
//! | --- | --- | --- | --- |
//! | sent once, not acknowledged | nowhere: what the others leave | the log | yes |
//! | selectively acknowledged | `sacked` | | no |
//! | lost, to be sent again | `lost` | | no |
//! | sent again, not acknowledged | `again` | with the entry | yes |

mod resent;
#[cfg(test)]
mod tests;

use proto_core::time::{Duration, Instant};

use super::log::SentLog;
use crate::ranges::{Ranges, Span};
use resent::{Again, Resent};

/// Limit of selectively acknowledged ranges; others are found later by the cumulative acknowledgement.
pub(crate) const MAX_SACKED: usize = 256;
/// Limit of lost ranges; others stay in flight until they are found lost again.
const MAX_LOST: usize = MAX_SACKED + 2;

/// The most recently sent byte range known to have been delivered (RFC 8985 §6.2, step 2).
#[derive(Clone, Copy, Debug)]
struct Newest {
    time: Instant,
    end: u64,
    rtt: Duration,
}

/// The result of one acknowledgement.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Delivered {
    /// Bytes that the cumulative acknowledgement moved on by.
    pub(crate) acked: u64,
    /// Bytes that were known for the first time to have arrived, selectively or cumulatively.
    pub(crate) newly: u64,
    /// Round-trip time of the newest byte that was never sent again.
    pub(crate) rtt: Option<Duration>,
    /// Some of the newly delivered bytes at or after the given offset arrived on their first transmission, or were
    /// sent again by multicast.
    pub(crate) first_try: Option<u64>,
    /// Some of the newly delivered bytes, wherever they are, arrived on their first sending.
    pub(crate) any_first_try: bool,
}

/// The state of the bytes in flight to one receiver.
#[derive(Clone, Default, Debug)]
pub(crate) struct Scoreboard {
    una: u64,
    sacked: Ranges<MAX_SACKED>,
    lost: Ranges<MAX_LOST>,
    again: Resent,
    /// Each byte before it, from `una` on, is in one of these three.
    settled: u64,
    newest: Option<Newest>,
    /// Behind the last byte that arrived on its first sending: all before were sent earlier.
    first_high: u64,
    /// Behind the last byte that was ever sent again: round trips are measured beyond (Karn's rule,
    /// RFC 6298 §3).
    again_high: u64,
    /// A byte range arrived after one that was sent later: the path reorders (RFC 8985 §6.2).
    reordering: bool,
    /// The reordering window in quarters of the least round-trip time (RFC 8985 §6.2, step 4).
    quarters: u8,
    /// Duplicate acknowledgements without SACK, in bytes that left the network (RFC 5681 §3.2).
    inflated: u64,
}

impl Scoreboard {
    pub(crate) fn new() -> Self {
        Self {
            quarters: 1,
            ..Self::default()
        }
    }

    /// First byte that was not cumulatively acknowledged.
    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    /// Bytes selectively acknowledged, or known by duplicate acknowledgements to have left.
    pub(crate) fn gone(&self) -> u64 {
        self.sacked.bytes() + self.inflated
    }

    /// Bytes of the stream known to have arrived.
    pub(crate) fn arrived(&self) -> u64 {
        self.una + self.gone()
    }

    pub(crate) fn has_sacked(&self) -> bool {
        !self.sacked.is_empty()
    }

    /// Whether bytes were sent again that are not acknowledged.
    pub(crate) fn has_resent(&self) -> bool {
        !self.again.is_empty()
    }

    /// When the most recently sent bytes known to have arrived were sent, and the offset after them if they were sent
    /// once.
    pub(crate) fn newest(&self) -> Option<(Instant, Option<u64>)> {
        let newest = self.newest?;
        let once = newest.end > self.again_high && newest.end == self.first_high;
        Some((newest.time, once.then_some(newest.end)))
    }

    /// Bytes lost and not yet sent again.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost.bytes()
    }

    /// Bytes in flight (RFC 6675 §4, "pipe"), when everything before `nxt` was sent.
    pub(crate) fn pipe(&self, nxt: u64) -> u64 {
        (nxt - self.una).saturating_sub(self.gone() + self.lost.bytes())
    }

    /// Handles a cumulative acknowledgement and selective ones, all within the sent data.
    pub(crate) fn acknowledge(
        &mut self,
        ack: u64,
        sacks: &[Span],
        view: &AckView<'_>,
    ) -> Delivered {
        let mut delivered = Delivered {
            acked: ack.saturating_sub(self.una),
            ..Delivered::default()
        };
        if delivered.acked > 0 {
            self.deliver(Span::new(self.una, ack), view, &mut delivered);
            self.una = ack;
            self.sacked.remove_below(ack);
            self.lost.remove_below(ack);
            self.inflated = self.inflated.saturating_sub(delivered.acked);
        }
        for sack in sacks {
            let span = sack.clip(self.una, u64::MAX);
            if span.is_empty() || self.sacked.covers(span) {
                continue;
            }
            self.deliver(span, view, &mut delivered);
            if self.sacked.insert(span).is_some() {
                self.remove_lost(span);
            } else {
                self.settled = self.settled.min(span.start);
            }
        }
        delivered
    }

    /// The bytes of `span` have arrived; some of them may have been known to.
    fn deliver(&mut self, span: Span, view: &AckView<'_>, delivered: &mut Delivered) {
        let highest_sacked = self.sacked.last().map_or(0, |held| held.end);
        let mut newly = 0;
        let mut first_try_end = None;
        for gap in self.sacked.gaps(span.start, span.end) {
            newly += gap.len();
            // The highest part that was sent only once carries the time of its sending.
            let mut end = gap.end;
            while end > gap.start {
                let last = end - 1;
                if let Some(again) = self.again.holding(last) {
                    end = again.start.max(gap.start);
                } else if let Some(lost) = self.lost.holding(last) {
                    end = lost.start.max(gap.start);
                } else {
                    first_try_end = Some(end);
                    break;
                }
            }
        }
        delivered.newly += newly;
        if let Some(end) = first_try_end {
            self.reordering |= end < highest_sacked;
            delivered.any_first_try = true;
            if end > view.multicast_from {
                delivered.first_try = delivered.first_try.max(Some(end));
            }
            self.first_high = self.first_high.max(end);
            if let Some((time, _)) = view.log.times_of(end - 1) {
                let rtt = view.now - time;
                if end > self.again_high {
                    delivered.rtt = Some(delivered.rtt.map_or(rtt, |other| other.min(rtt)));
                }
                self.advance_newest(time, end, rtt);
            }
        }
        self.deliver_again(span, view, delivered);
    }

    /// Retransmitted data that has arrived: its time counts only if the acknowledgement cannot be for the first
    /// transmission (RFC 8985 §6.2, step 2).
    fn deliver_again(&mut self, span: Span, view: &AckView<'_>, delivered: &mut Delivered) {
        let cumulative = span.start == self.una;
        for at in 0..self.again.within(span).len() {
            let again = self.again.within(span)[at];
            let part = again.span.clip(span.start, span.end);
            if again.shared {
                // It shows that multicast works as well as a first sending does.
                delivered.any_first_try = true;
                delivered.first_try = delivered.first_try.max(Some(part.end));
            }
            let last = self.newest.map(|newest| newest.rtt);
            if view.is_certain(again.time, cumulative, last) {
                self.advance_newest(again.time, part.end, view.now - again.time);
            }
        }
        let forgotten = self.again.cut(span);
        self.unsettle(forgotten);
    }

    /// Bytes from there on may be in none of the lists any more.
    fn unsettle(&mut self, from: Option<u64>) {
        self.settled = self.settled.min(from.unwrap_or(u64::MAX));
    }

    fn remove_lost(&mut self, span: Span) {
        self.lost.remove(span);
        if self.lost.as_slice().len() >= MAX_LOST {
            // A part may have been removed too.
            self.settled = self.una;
        }
    }

    fn advance_newest(&mut self, time: Instant, end: u64, rtt: Duration) {
        let newer = self
            .newest
            .is_none_or(|newest| (newest.time, newest.end) < (time, end));
        if newer {
            self.newest = Some(Newest { time, end, rtt });
        }
    }

    /// How long a later sending may overtake an earlier one (RFC 8985 §6.2, step 4).
    fn reordering_window(
        &self,
        in_recovery: bool,
        segment: u64,
        min_rtt: Option<Duration>,
        smoothed: Option<Duration>,
    ) -> Duration {
        let three_gone = self.gone() >= 3 * segment;
        if !self.reordering && (in_recovery || three_gone) {
            return Duration::ZERO;
        }
        let quarter = min_rtt.map_or(Duration::ZERO, |least| least / 4);
        let window = quarter * u32::from(self.quarters);
        smoothed.map_or(window, |smoothed| window.min(smoothed))
    }

    /// Detects losses, and returns when to check again (RFC 8985 §6.2, step 5).
    pub(crate) fn detect(&mut self, view: &DetectView<'_>) -> (Lost, Option<Instant>) {
        let Some(newest) = self.newest else {
            return (Lost::default(), None);
        };
        let window = self.reordering_window(
            view.in_recovery,
            view.segment,
            view.min_rtt,
            view.smoothed_rtt,
        );
        let window = window.max(view.copies_apart.unwrap_or_default());
        let patience = newest.rtt + window;
        let before = self.lost.bytes();
        let mut timer: Option<Instant> = None;
        let mut sooner = |at: Instant| timer = Some(timer.map_or(at, |other| other.min(at)));

        // First sendings: those before the newest delivered one form a prefix of the stream. Where
        // that was a repair, they have to be certainly earlier.
        let tick = Duration::from_micros(1);
        let upper = self.first_high.max(view.log.sent_by(newest.time - tick));
        let upper = upper.min(view.nxt);
        let expired = view.log.sent_by(view.now - patience).min(upper);
        let mut run = Run::default();
        self.settled = self.settled.max(self.una);
        loop {
            let Some(hole) = self.next_hole(self.settled, upper) else {
                self.settled = self.settled.max(upper);
                break;
            };
            self.settled = hole.start;
            if hole.start >= expired {
                if let Some((_, time)) = view.log.times_of(hole.start) {
                    sooner(time + patience);
                }
                break;
            }
            let hole_end = hole.end.min(expired);
            if self.lost.insert(Span::new(hole.start, hole_end)).is_none() {
                break;
            }
            if hole_end > view.highest {
                run.add(Span::new(hole.start, hole_end), &self.sacked);
            }
            self.settled = hole_end;
        }
        // Second sendings, each with a time of its own.
        let lost = &mut self.lost;
        self.again.retain(|again| {
            if (again.time, again.span.end) >= (newest.time, newest.end) {
                return true;
            }
            let due = again.time + patience;
            if due > view.now {
                sooner(due);
                return true;
            }
            lost.insert(again.span).is_none()
        });
        let bytes = self.lost.bytes() - before;
        (run.lost(bytes), timer)
    }

    /// Returns the first range in `[from, upper)` that was sent once and not acknowledged.
    fn next_hole(&self, from: u64, upper: u64) -> Option<Span> {
        let mut at = from;
        while at < upper {
            let known = self
                .sacked
                .holding(at)
                .or_else(|| self.lost.holding(at))
                .or_else(|| self.again.holding(at));
            if let Some(known) = known {
                at = known.end;
                continue;
            }
            let end = [
                self.sacked.gaps(at, upper).next().map(|gap| gap.end),
                self.lost.gaps(at, upper).next().map(|gap| gap.end),
                self.again.next_start(at),
            ];
            let end = end.into_iter().flatten().min().unwrap_or(upper).min(upper);
            return Some(Span::new(at, end));
        }
        None
    }

    /// The retransmission timer expired: all that is not selectively acknowledged is lost
    /// (RFC 8985 §6.3). Selective acknowledgements that the receiver has taken back are forgotten
    /// (RFC 2018 §8).
    pub(crate) fn lose_all(&mut self, nxt: u64, highest: u64) -> Lost {
        if self
            .sacked
            .first()
            .is_some_and(|span| span.start <= self.una)
        {
            self.sacked.clear();
        }
        self.inflated = 0;
        let mut run = Run::default();
        let mut at = self.una.max(highest);
        while let Some(hole) = self.next_hole(at, nxt) {
            run.add(hole, &self.sacked);
            at = hole.end;
        }
        self.again.clear();
        self.settled = self.una;
        let before = self.lost.bytes();
        self.lost.clear();
        for gap in self.sacked.gaps(self.una, nxt) {
            if self.lost.insert(gap).is_none() {
                break;
            }
        }
        run.lost(self.lost.bytes().saturating_sub(before))
    }

    /// Marks the segment at the left edge as lost: three duplicate acknowledgements, or a partial
    /// one, from a receiver without SACK (RFC 5681 §3.2, RFC 6582 §3.2).
    pub(crate) fn lose_first(&mut self, segment: u64, nxt: u64) -> u64 {
        let span = Span::new(self.una, (self.una + segment).min(nxt));
        self.again
            .retain(|again| again.span.clip(span.start, span.end).is_empty());
        self.settled = self.una;
        self.lost.insert(span).unwrap_or(0)
    }

    /// A duplicate acknowledgement from a receiver without SACK: one more segment has left.
    pub(crate) fn inflate(&mut self, segment: u64, nxt: u64) {
        let flight = (nxt - self.una).saturating_sub(segment);
        self.inflated = (self.inflated + segment).min(flight);
    }

    pub(crate) fn deflate(&mut self) {
        self.inflated = 0;
    }

    /// Returns the next range to send again at or after an offset, at most `max` bytes; `None` also while too many
    /// retransmissions are unacknowledged.
    pub(crate) fn next_lost(&self, offset: u64, max: u64) -> Option<Span> {
        if self.again.is_full() {
            return None;
        }
        let lost = self.lost.as_slice().iter();
        let lost = lost
            .map(|lost| lost.clip(offset, u64::MAX))
            .find(|lost| !lost.is_empty())?;
        Some(lost.clip(0, lost.start + max))
    }

    /// The last `max` bytes in flight, for a tail loss probe (RFC 8985 §7.3).
    pub(crate) fn tail(&self, nxt: u64, max: u64) -> Span {
        let start = self.una.max(nxt.saturating_sub(max));
        Span::new(start, nxt)
    }

    /// The first `max` bytes that the receiver lacks, as far as it has said.
    pub(crate) fn head(&self, nxt: u64, max: u64) -> Span {
        let first = self.sacked.first().map_or(nxt, |span| span.start);
        Span::new(self.una, first.min(nxt).min(self.una + max).max(self.una))
    }

    /// These bytes were sent again now.
    pub(crate) fn sent_again(&mut self, span: Span, now: Instant) {
        self.record_again(span, now, false);
    }

    /// These bytes were sent again at this time, to a group.
    pub(crate) fn sent_to_group(&mut self, span: Span, time: Instant) {
        self.record_again(span, time, true);
    }

    fn record_again(&mut self, span: Span, now: Instant, shared: bool) {
        self.remove_lost(span);
        self.again_high = self.again_high.max(span.end);
        let forgotten = self.again.insert(Again {
            span,
            time: now,
            shared,
        });
        self.unsettle(forgotten);
    }

    /// A duplicate reached the receiver (RFC 2883): it was delayed, not lost. The window grows by a quarter, at
    /// most once a round trip (the caller ensures that).
    pub(crate) fn widen_reordering(&mut self) {
        self.reordering = true;
        self.quarters = self.quarters.saturating_add(1).min(64);
    }

    /// Data that was not sent again yet counts as in flight and unacknowledged again.
    pub(crate) fn forget_lost(&mut self) {
        self.lost.clear();
        self.settled = self.una;
    }

    /// Many recoveries without a duplicate: back to a quarter.
    pub(crate) fn narrow_reordering(&mut self) {
        self.quarters = 1;
    }
}

/// Newly detected losses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Lost {
    pub(crate) bytes: u64,
    /// The longest run of them that were sent for the first time, with nothing received between them, and
    /// nothing by multicast after them.
    pub(crate) in_a_row: u64,
    /// Behind the last of those; 0: there are none.
    pub(crate) end: u64,
}

/// Counts bytes in a row.
#[derive(Default)]
struct Run {
    /// Behind the last bytes counted.
    end: Option<u64>,
    bytes: u64,
    longest: u64,
}

impl Run {
    /// Adds lost bytes that follow those before.
    fn add(&mut self, span: Span, sacked: &Ranges<MAX_SACKED>) {
        let arrived = |end: u64| {
            let missing: u64 = sacked.gaps(end, span.start).map(Span::len).sum();
            missing < span.start - end
        };
        if self.end.is_some_and(arrived) {
            self.bytes = 0;
        }
        self.end = Some(span.end);
        self.bytes += span.len();
        self.longest = self.longest.max(self.bytes);
    }

    fn lost(&self, bytes: u64) -> Lost {
        Lost {
            bytes,
            in_a_row: self.longest,
            end: self.end.unwrap_or(0),
        }
    }
}

/// What an acknowledgement is judged by.
pub(crate) struct AckView<'a> {
    pub(crate) now: Instant,
    /// Data was sent by multicast alone from this offset on.
    pub(crate) multicast_from: u64,
    pub(crate) log: &'a SentLog,
    pub(crate) min_rtt: Option<Duration>,
    /// The segment that moved the cumulative acknowledgement on was sent before this time, by its timestamp.
    pub(crate) sent_before: Option<Instant>,
}

impl AckView<'_> {
    /// Whether what was sent again at this time has arrived, and not what was sent first (RFC 8985 §6.2, step 2). The
    /// timestamp tells for data that the cumulative acknowledgement covers. For other data the RFC's bound, the
    /// shortest round trip, says little on a path whose queue is many times as long: `last`, the round trip of the
    /// newest delivery before, has to pass nearly.
    fn is_certain(&self, sent_again: Instant, cumulative: bool, last: Option<Duration>) -> bool {
        let Some(least) = self.min_rtt else {
            return false;
        };
        let rtt = self.now - sent_again;
        match (self.sent_before.filter(|_| cumulative), last) {
            (Some(before), _) => sent_again < before && rtt >= least,
            (None, last) => rtt >= least.max(last.map_or(least, |last| last - last / 4)),
        }
    }
}

/// Input of loss detection.
pub(crate) struct DetectView<'a> {
    pub(crate) now: Instant,
    /// Behind the last byte sent.
    pub(crate) nxt: u64,
    pub(crate) log: &'a SentLog,
    pub(crate) in_recovery: bool,
    /// Bytes of a full segment.
    pub(crate) segment: u64,
    pub(crate) min_rtt: Option<Duration>,
    pub(crate) smoothed_rtt: Option<Duration>,
    /// Behind the last byte that is known to have come by multicast.
    pub(crate) highest: u64,
    /// Each byte goes by unicast and by multicast: one of the copies may be this much later.
    pub(crate) copies_apart: Option<Duration>,
}
