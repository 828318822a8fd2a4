//! New data on its way to one or several receivers in step.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::net::IpAddr;

use proto_core::time::{Duration, Instant};

use super::repairs::Repairs;
use super::turns::Pace;
use crate::mintree::MinTree;
use crate::ranges::Span;
use crate::recovery::SentLog;

/// Segments of a burst: this many go to one destination before the next one's turn, so that a driver can pass
/// them to the system in one call.
pub(crate) const BURST_SEGMENTS: u64 = 16;
/// While several receivers get unicast copies that may turn out to be needless, this many segments are
/// in flight at most: enough for feedback to be believed.
const TRIAL_SEGMENTS: u64 = super::mode::FALL_FORWARD_SEGMENTS;
/// Fewer copies than this are no reason to wait.
const TRIAL_COPIES: usize = 3;
/// Time after the first data in which a receiver must join the group; the sender does not wait longer.
const TRIAL: Duration = Duration::from_millis(250);
/// Segments are not cut shorter than this for small windows.
const LEAST_SEGMENT: u64 = 64;

/// A group address that some receivers of the flow listen to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupAddress {
    pub(crate) address: IpAddr,
    /// Receivers that data goes there for.
    pub(crate) listeners: u32,
}

/// New data that is being copied out: to each group, then to each receiver that needs unicast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    pub(crate) span: Span,
    /// How many destinations are done.
    destination: usize,
    /// Next byte for the present destination.
    at: u64,
    /// Bytes of a segment of it.
    segment: u64,
    /// Its last segment is pushed.
    pushes: bool,
}

/// Where a copy goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copy {
    Group(IpAddr),
    /// Index of a protocol control block.
    Unicast(u32),
}

/// Synchronised receivers of one session: they are all sent the same new data at the same time. A
/// plain connection, a receiver of a `UnicastOnly` group and a detached one are alone in theirs.
///
/// Building one segment reads most of the fields, so they stand side by side instead of in parts.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Behind the last byte sent.
    pub(crate) nxt: u64,
    /// Unsent bytes in the store.
    pub(crate) unsent: u64,
    /// No more bytes will follow those in the store.
    pub(crate) closing: bool,
    pub(crate) log: SentLog,
    /// Bytes of a full segment: the least over all receivers.
    pub(crate) payload: u16,
    /// Largest overhead of a data segment in an IP packet over all receivers, which a rate includes.
    pub(crate) headers: u16,
    /// Added to milliseconds to make timestamps: one clock for the whole session.
    pub(crate) stamp_base: u32,
    pub(crate) last_sent: Option<Instant>,
    /// Round trip that sets the grain of the log.
    pub(crate) quantum: Duration,
    /// The member of [`Flow::slot`] 0: a flow of one receiver has no slots for others.
    pub(crate) first: u32,
    /// By slot: how far a member's windows reach. The least is the intersection (TCP-XM §2.1, step 12).
    pub(crate) limits: MinTree,
    /// By slot: first unacknowledged byte.
    pub(crate) unas: MinTree,
    /// Blocks that need unicast copies.
    pub(crate) unicast: Vec<u32>,
    pub(crate) groups: Vec<GroupAddress>,
    /// Blocks with nothing outstanding, whose timers start with the next byte sent.
    pub(crate) idle: Vec<u32>,
    pub(crate) burst: Option<Burst>,
    /// Behind the last byte that was pushed.
    pushed: u64,
    pub(crate) members: u32,
    /// Some member's congestion window held all back when this offset was reached.
    pub(crate) limited_at: u64,
    /// When there was nothing to send although windows allowed it, or it had to wait for a reason other than a
    /// congestion window, and the offset reached then.
    pub(crate) starved: Option<(Instant, u64)>,
    /// The member whose congestion control governs the rate of all; `None` with one receiver, and before any has
    /// acknowledged data.
    pub(crate) representative: Option<u32>,
    /// Another member whose congestion window holds the flow back, and since when.
    pub(crate) holder: Option<(u32, Instant)>,
    /// The receiver that governed the rate until one took over that held the flow back.
    pub(crate) replaced: Option<u32>,
    /// Lost data that several receivers may lack.
    pub(crate) repairs: Repairs,
    /// Bytes that are sent at once.
    pub(crate) quantum_bytes: u64,
    /// Silly window avoidance is overridden once.
    pub(crate) override_once: bool,
    pub(crate) nagle: bool,
    /// Until when feedback on the first segments is waited for, once there is data.
    trial_end: Option<Instant>,
    /// Its one receiver was detached from the group, and may have received more from it than was sent here.
    pub(crate) detached: bool,
    /// Spreads data over the round trip (pacing).
    pub(crate) spread: Pace,
    /// With BBR, spreads repairs by unicast to members that do not govern the rate: new data does not wait for them.
    pub(crate) aside: Pace,
    /// In the session's list of flows that wait for that.
    pub(crate) spreading: bool,
    /// In the session's queue for its rate.
    pub(crate) waiting: bool,
    pub(crate) queued: bool,
}

/// Why a flow does not send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blocked {
    /// All is sent.
    Empty,
    /// Some receiver's window, or ours for its network.
    Window,
    /// It is not known yet which receivers get the group's data.
    Trial,
    /// A small segment waits for company (RFC 9293 §3.7.4).
    Nagle,
    /// Its own pace.
    Pace,
}

impl Flow {
    pub(crate) fn new(payload: u16, stamp_base: u32, nagle: bool) -> Self {
        Self {
            nxt: 0,
            unsent: 0,
            closing: false,
            log: SentLog::default(),
            payload,
            headers: 0,
            stamp_base,
            last_sent: None,
            quantum: Duration::ZERO,
            first: 0,
            limits: MinTree::new(),
            unas: MinTree::new(),
            unicast: Vec::new(),
            groups: Vec::new(),
            idle: Vec::new(),
            burst: None,
            pushed: 0,
            members: 0,
            limited_at: 0,
            starved: None,
            representative: None,
            holder: None,
            replaced: None,
            repairs: Repairs::default(),
            quantum_bytes: u64::MAX,
            override_once: false,
            nagle,
            trial_end: None,
            detached: false,
            spread: Pace::default(),
            aside: Pace::default(),
            spreading: false,
            waiting: false,
            queued: false,
        }
    }

    /// The place of one of its members in the trees.
    pub(crate) fn slot(&self, member: u32) -> usize {
        member.saturating_sub(self.first) as usize
    }

    /// Whether the rate follows another receiver than this member.
    pub(crate) fn is_governed_by_another(&self, member: u32) -> bool {
        self.representative.is_some_and(|other| other != member)
    }

    /// A member has left: the rate is not its any more.
    pub(crate) fn forget_representative(&mut self, member: u32) {
        self.representative = self.representative.filter(|&other| other != member);
        self.holder = self.holder.filter(|&(other, _)| other != member);
        self.replaced = self.replaced.filter(|&other| other != member);
    }

    /// The timestamp clock: milliseconds (RFC 7323 §4.1), the same for all receivers.
    pub(crate) fn stamp_at(&self, now: Instant) -> u32 {
        self.stamp_base.wrapping_add(now.total_millis() as u32)
    }

    /// Returns a time before which the segment with this timestamp was sent; `None`: no segment had it lately.
    pub(crate) fn sent_before(&self, now: Instant, stamp: u32) -> Option<Instant> {
        let age_ms = self.stamp_at(now).wrapping_sub(stamp);
        (age_ms < 1 << 20).then(|| Instant::from_millis(now.total_millis() + 1 - i64::from(age_ms)))
    }

    /// Behind the last byte that a receiver can have: of a detached one only the store's end is known.
    pub(crate) fn reach(&self) -> u64 {
        if self.detached {
            self.nxt + self.unsent
        } else {
            self.nxt
        }
    }

    /// A detached receiver has everything up to `ack`: what it received from the group is not sent again.
    pub(crate) fn skip_to(&mut self, ack: u64, now: Instant) {
        let end = ack.min(self.reach());
        if end > self.nxt {
            self.unsent -= end - self.nxt;
            self.nxt = end;
            self.log.push(end, now, self.quantum);
        }
    }

    /// All data has left, and no more will come: time for the FIN.
    pub(crate) fn is_complete(&self) -> bool {
        self.closing && self.unsent == 0 && self.burst.is_none()
    }

    /// How much new data may go now: whole segments, or a last short one.
    /// `half_window`: half of the largest window that the receiver in the way ever offered.
    pub(crate) fn sendable(&self, now: Instant, half_window: u64) -> Result<Span, Blocked> {
        let payload = self.segment(half_window);
        if self.unsent == 0 || self.members == 0 {
            return Err(Blocked::Empty);
        }
        let room = self.limits.min();
        let room = if room == MinTree::NONE { 0 } else { room };
        let trial = self.trial_limit(now);
        let blocked = if trial < room {
            Blocked::Trial
        } else {
            Blocked::Window
        };
        let room = room.min(trial).saturating_sub(self.nxt);
        let all_acked = self.unas.min() >= self.nxt;
        let whole = room.min(self.unsent) / payload * payload;
        let len = if whole > 0 {
            let paced = self.quantum_bytes / payload;
            let most = payload * BURST_SEGMENTS.min(paced.max(1));
            // A short last segment may ride along, unless it has to wait for more data.
            if room >= self.unsent && whole < most && !self.nagle_waits(false) {
                self.unsent
            } else {
                whole.min(most)
            }
        } else if self.unsent <= room {
            if self.nagle_waits(all_acked) && !self.override_once {
                return Err(Blocked::Nagle);
            }
            self.unsent
        } else if room > 0 && ((room >= half_window && all_acked) || self.override_once) {
            // RFC 9293 §3.8.6.2.1, third and fourth case.
            room
        } else {
            return Err(blocked);
        };
        if !self.spread.allows(now) {
            return Err(Blocked::Pace);
        }
        Ok(Span::new(self.nxt, self.nxt + len))
    }

    /// How far data goes while it is not known which receivers get the group's data: each segment costs one
    /// copy for each receiver until then.
    fn trial_limit(&self, now: Instant) -> u64 {
        let over = self.trial_end.is_some_and(|end| now >= end);
        if over || self.groups.is_empty() || self.unicast.len() < TRIAL_COPIES {
            return u64::MAX;
        }
        let in_flight = TRIAL_SEGMENTS * u64::from(self.payload);
        self.unas.min().saturating_add(in_flight)
    }

    fn nagle_waits(&self, all_acked: bool) -> bool {
        self.nagle && !self.closing && !all_acked
    }

    /// Bytes of a segment of new data: two fit the largest window that the receiver in the way ever
    /// offered, or else each would wait for its delayed acknowledgement.
    fn segment(&self, half_window: u64) -> u64 {
        u64::from(self.payload).min(half_window.max(LEAST_SEGMENT))
    }

    /// Whether a segment that ends there is the last that its receiver gets for now: the receiver
    /// should pass it on at once, and say how far its window reaches then (RFC 9293 §3.9.1.2).
    pub(crate) fn pushes(&self, end: u64) -> bool {
        match &self.burst {
            Some(burst) => burst.pushes && end == burst.span.end,
            None => end == self.nxt && self.unsent == 0,
        }
    }

    /// These bytes leave now, in as many copies as there are destinations. How many bytes of IP packets
    /// all copies are.
    pub(crate) fn begin_burst(&mut self, span: Span, now: Instant, half_window: u64) -> u64 {
        let segment = self.segment(half_window);
        let pushes = span.len() == self.unsent || span.end - self.pushed >= half_window;
        if pushes {
            self.pushed = span.end;
        }
        self.burst = Some(Burst {
            span,
            destination: 0,
            at: span.start,
            segment,
            pushes,
        });
        self.nxt = span.end;
        self.unsent -= span.len();
        self.override_once = false;
        self.trial_end.get_or_insert(now + TRIAL);
        self.log.push(span.end, now, self.quantum);
        self.last_sent = Some(now);
        let copies = self
            .groups
            .iter()
            .filter(|group| group.listeners > 0)
            .count();
        let copies = copies + self.unicast.len();
        let segments = span.len().div_ceil(segment);
        let bytes = span.len() + u64::from(self.headers) * segments;
        self.spread.spend(now, bytes);
        copies as u64 * bytes
    }

    /// The position of the current burst for the destination of the last copy: the next segment.
    pub(crate) fn peek_copy(&self) -> Option<Span> {
        let burst = self.burst.as_ref()?;
        let end = burst.span.end.min(burst.at + burst.segment);
        let span = Span::new(burst.at, end);
        (!span.is_empty()).then_some(span)
    }

    /// That segment was copied.
    pub(crate) fn pass_copy(&mut self) {
        if let Some(burst) = &mut self.burst {
            burst.at = burst.span.end.min(burst.at + burst.segment);
        }
    }

    /// Returns the next copy of a segment of the current burst. Segments that all receivers have acknowledged
    /// meanwhile are left out: they may have left the store.
    pub(crate) fn next_copy(&mut self) -> Option<(Copy, Span)> {
        let mut burst = self.burst?;
        let wanted = self.unas.min();
        loop {
            burst.at = burst.at.max(wanted);
            let copy = match self.groups.get(burst.destination) {
                Some(group) if group.listeners == 0 => None,
                Some(group) => Some(Copy::Group(group.address)),
                None => {
                    let index = burst.destination - self.groups.len();
                    let Some(&pcb) = self.unicast.get(index) else {
                        self.burst = None;
                        return None;
                    };
                    Some(Copy::Unicast(pcb))
                }
            };
            if let Some(copy) = copy
                && burst.at < burst.span.end
            {
                let end = burst.span.end.min(burst.at + burst.segment);
                let span = Span::new(burst.at, end);
                burst.at = end;
                self.burst = Some(burst);
                return Some((copy, span));
            }
            burst.destination += 1;
            burst.at = burst.span.start;
        }
    }

    /// A receiver's data goes to this group from now on. Groups come before data does.
    pub(crate) fn add_listener(&mut self, address: IpAddr) {
        match self
            .groups
            .iter_mut()
            .find(|group| group.address == address)
        {
            Some(group) => group.listeners += 1,
            None => self.groups.push(GroupAddress {
                address,
                listeners: 1,
            }),
        }
    }

    /// Whether more than one receiver listens to a group.
    pub(crate) fn is_shared(&self, address: IpAddr) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|group| group.address == address && group.listeners > 1)
    }

    pub(crate) fn remove_listener(&mut self, address: IpAddr) {
        if let Some(group) = self
            .groups
            .iter_mut()
            .find(|group| group.address == address)
        {
            group.listeners = group.listeners.saturating_sub(1);
        }
    }

    /// Removes a receiver from the list without dropping another's copy of the current burst.
    pub(crate) fn remove_unicast(&mut self, pcb: u32) {
        let Some(index) = self.unicast.iter().position(|&other| other == pcb) else {
            return;
        };
        self.unicast.remove(index);
        let place = self.groups.len() + index;
        if let Some(burst) = &mut self.burst {
            if burst.destination > place {
                burst.destination -= 1;
            } else if burst.destination == place {
                burst.at = burst.span.start;
            }
        }
    }
}
