//! SEGMENT ARRIVES (RFC 9293 §3.10.7): what is checked before data and acknowledgements count.

use proto_core::RateLimit;
use proto_core::time::{Duration, Instant};

use super::{Birth, Note, Owed, Pcb, Record, State, Timer};
use crate::config::{Config, GroupPolicy};
use crate::error::{Error, Failure};
use crate::group::Flow;
use crate::reassembly::Landing;
use crate::seq::{SynNumber, stamp_before};
use crate::wire::{GroupOption, Segment};

/// A segment was dropped: why, and whether a reset answers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dropped {
    pub(crate) error: Error,
    pub(crate) reset: bool,
}

impl From<Error> for Dropped {
    fn from(error: Error) -> Self {
        Self {
            error,
            reset: false,
        }
    }
}

const fn with_reset(error: Error) -> Dropped {
    Dropped { error, reset: true }
}

/// A remembered timestamp is not held against segments after this (RFC 7323 §5.5).
const TS_LIFETIME: Duration = Duration::from_secs(24 * 24 * 3600);
/// A group's data comes by two paths, and the copies on one may be behind those on the other by so
/// many of the sender's milliseconds. Below 34 Gbit/s sequence numbers do not come round meanwhile.
const PATHS_APART_MS: u32 = 1000;
/// How far the clocks of both sides, and the delays of what they send, may drift apart.
const CLOCKS_APART: Duration = Duration::from_secs(10);
/// Smaller maximum segment sizes than this are not believed: they serve only to make us send
/// headers.
const MIN_MSS: u16 = 88;
const MAX_KEEP_ALIVE_PROBES: u8 = 9;

impl Pcb {
    /// A block for a SYN that reached a listener (RFC 9293 §3.10.7.2). Data with the SYN is left for
    /// its retransmission.
    pub(crate) fn accept(config: &Config, birth: Birth, syn: &Segment<'_>, now: Instant) -> Self {
        let mut pcb = Self::new(config, birth, State::SynReceived, now);
        pcb.passive = true;
        pcb.unborn = true;
        pcb.negotiate(syn, now);
        pcb.offer.timestamps = pcb.agreed.timestamps;
        pcb.offer.sack = pcb.agreed.sack;
        pcb.offer.shift = pcb
            .offer
            .shift
            .filter(|_| syn.options.window_scale.is_some());
        if let Some(GroupOption::Named(offered)) = syn.options.group
            && offered.is_ipv4() == pcb.key.remote.is_ipv4()
        {
            pcb.offer.group = match config.groups {
                GroupPolicy::Accept => Some(offered),
                GroupPolicy::Refuse => None,
                GroupPolicy::Propose(other) => {
                    (other.is_ipv4() == offered.is_ipv4()).then_some(other)
                }
            };
            pcb.group = pcb.offer.group;
            pcb.receive.record = pcb.group.map(|_| Record::new());
        }
        pcb.timers.set(Timer::Rto, now + pcb.send.rtt.rto());
        pcb
    }

    /// One segment that came by unicast.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        flow: &mut Flow,
        out: &mut Landing<'_>,
    ) -> Result<(), Dropped> {
        match self.state {
            State::Closed => Err(with_reset(Error::NoConnection)),
            State::SynSent => self.in_syn_sent(now, segment),
            _ => self.in_later_states(now, segment, flow, out),
        }
    }

    /// RFC 9293 §3.10.7.3.
    fn in_syn_sent(&mut self, now: Instant, segment: &Segment<'_>) -> Result<(), Dropped> {
        let flags = segment.flags;
        let acked = flags.ack && segment.ack == self.send.iss.plus(1);
        if flags.ack && !acked {
            let error = Error::AckChallenged;
            return Err(Dropped {
                error,
                reset: !flags.rst,
            });
        }
        if flags.rst {
            if !acked {
                return Err(Error::ResetWindow.into());
            }
            self.fail(Failure::Refused);
            return Ok(());
        }
        if !flags.syn {
            return Err(Error::NoAck.into());
        }
        self.negotiate(segment, now);
        self.last_heard = now;
        if !acked {
            // Simultaneous open: both have sent a SYN, each is answered with a SYN-ACK. There is no
            // group in it: the other side sends as well.
            self.state = State::SynReceived;
            self.syn_due = true;
            self.offer.timestamps &= self.agreed.timestamps;
            self.offer.sack &= self.agreed.sack;
            self.offer.shift = self
                .offer
                .shift
                .filter(|_| segment.options.window_scale.is_some());
            return Ok(());
        }
        self.group = segment.options.group.and_then(GroupOption::address);
        self.owe_now();
        self.establish(now, segment);
        Ok(())
    }

    /// The handshake is complete.
    fn establish(&mut self, now: Instant, segment: &Segment<'_>) {
        self.state = State::Established;
        self.syn_due = false;
        self.unborn = false;
        self.timers.stop(Timer::Rto);
        self.send.progress = now;
        let echo = segment
            .options
            .timestamps
            .filter(|_| self.agreed.timestamps);
        if self.send.rtt.backoff() == 0 {
            self.send.rtt.sample(now - self.opened);
        } else if echo.is_none() {
            self.send.rtt.after_syn_timeout();
        } else {
            self.send.rtt.reset_back_off();
        }
        self.send.cc.set_segment(u64::from(self.max_payload()));
        self.note(if self.passive {
            Note::Incoming
        } else {
            Note::Connected
        });
        if self.passive && self.receive.record.is_some() {
            self.note(Note::Join);
        }
        self.arm_keep_alive(now);
    }

    /// Reads a SYN's options, and takes its sequence number and window.
    fn negotiate(&mut self, syn: &Segment<'_>, now: Instant) {
        let options = &syn.options;
        self.receive.irs = syn.seq;
        self.agreed.timestamps = self.offer.timestamps && options.timestamps.is_some();
        self.agreed.sack = self.offer.sack && options.sack_permitted;
        // RFC 7323 §2.2: scaling needs the option in both directions.
        if let (Some(ours), Some(theirs)) = (self.offer.shift, options.window_scale) {
            self.agreed.receive_shift = ours;
            self.agreed.send_shift = theirs;
        }
        let default = if self.key.remote.is_ipv4() { 536 } else { 1220 };
        self.agreed.mss = options.mss.unwrap_or(default).max(MIN_MSS);
        if let Some((value, _)) = options.timestamps
            && self.agreed.timestamps
        {
            self.receive.ts_recent = Some((value, now));
        }
        // A window in a SYN is never scaled.
        self.send.edge = u64::from(syn.window);
        self.send.max_window = self.send.edge;
    }

    /// RFC 9293 §3.10.7.4, with the checks of RFC 5961 and RFC 7323.
    fn in_later_states(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        flow: &mut Flow,
        out: &mut Landing<'_>,
    ) -> Result<(), Dropped> {
        let flags = segment.flags;
        let start = self.receive.irs.offset_of(segment.seq, self.receive.next());
        if flags.rst {
            return self.take_reset(now, start).map_err(Dropped::from);
        }
        if flags.syn {
            return self.take_syn(now, segment, start, flow);
        }
        if !flags.ack {
            return Err(Error::NoAck.into());
        }
        let whole = segment;
        let bare;
        let segment = if self.one_way {
            bare = self.without_data(segment);
            &bare
        } else {
            segment
        };
        self.check_timestamp(now, segment)?;
        self.check_sequence(now, segment, start)?;
        if self.state == State::SynReceived {
            self.complete_handshake(now, segment)?;
        }
        self.last_heard = now;
        self.keep_alive_probes = 0;
        self.note_timestamp(now, segment, start);
        self.take_ack(now, segment, start, flow)?;
        if segment.options.group == Some(GroupOption::Leave) {
            self.leave_group();
        }
        self.arm_keep_alive(now);
        if self.one_way {
            let data = !whole.payload.is_empty();
            self.weigh_fin(now, flags.fin && !data, start);
            return if data {
                Err(Error::GroupData.into())
            } else {
                Ok(())
            };
        }
        if !segment.payload.is_empty() || flags.fin {
            self.take_data(now, segment, start, false, out)?;
        }
        Ok(())
    }

    /// What counts of a segment from a receiver of our group. A FIN that comes again after it was taken
    /// is a duplicate, and answered.
    fn without_data<'a>(&self, segment: &Segment<'a>) -> Segment<'a> {
        let mut bare = *segment;
        bare.payload = &[];
        bare.flags.fin &= self.receive.fin_taken;
        bare
    }

    /// RFC 5961 §3.2: only the very next sequence number resets.
    fn take_reset(&mut self, now: Instant, start: i64) -> Result<(), Error> {
        if self.state == State::TimeWait {
            return Err(Error::TimeWait);
        }
        let next = self.receive.next() as i64;
        if start == next {
            let refused = self.state == State::SynReceived && !self.passive;
            self.fail(if refused {
                Failure::Refused
            } else {
                Failure::Reset
            });
            return Ok(());
        }
        // At the right edge stands what follows a full window.
        if start > next && start <= self.receive.edge as i64 {
            self.challenge(now);
            return Err(Error::ResetChallenged);
        }
        Err(Error::ResetWindow)
    }

    fn take_syn(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        start: i64,
        flow: &Flow,
    ) -> Result<(), Dropped> {
        if self.state == State::SynReceived && start == -1 {
            if segment.flags.ack && segment.ack == self.send.iss.plus(1) {
                // The answer to our SYN-ACK in a simultaneous open.
                self.establish(now, segment);
                self.owe_now();
                self.update_window(segment, -1, flow);
                return Ok(());
            }
            // A SYN sent again: our answer was lost.
            self.syn_due = true;
            return Err(Error::Duplicate.into());
        }
        // RFC 5961 §4.2.
        self.challenge(now);
        Err(Error::SynChallenged.into())
    }

    /// RFC 7323 §5.3, R1. A missing timestamp is let pass: dropping would not stop a forger, who
    /// could as well send one, and some middleboxes take the option away.
    fn check_timestamp(&mut self, now: Instant, segment: &Segment<'_>) -> Result<(), Error> {
        if self.is_stale(now, segment) {
            self.owe_for_unacceptable(now, segment);
            return Err(Error::Paws);
        }
        Ok(())
    }

    /// Whether the timestamp is from before the last one, by more than two paths to the receiver of a
    /// group may be apart.
    pub(super) fn is_stale(&self, now: Instant, segment: &Segment<'_>) -> bool {
        let apart_ms = if self.receive.record.is_some() {
            PATHS_APART_MS
        } else {
            0
        };
        match (segment.options.timestamps, self.receive.ts_recent) {
            (Some((value, _)), Some((recent, when))) if self.agreed.timestamps => {
                stamp_before(value.wrapping_add(apart_ms), recent) && now - when < TS_LIFETIME
            }
            _ => false,
        }
    }

    /// Whether the timestamp of a group segment is one that the sender's clock, which counts
    /// milliseconds, cannot show yet. Taken over, it would make all that follows look old.
    pub(super) fn is_from_the_future(&self, now: Instant, segment: &Segment<'_>) -> bool {
        match (segment.options.timestamps, self.receive.ts_recent) {
            (Some((value, _)), Some((recent, when))) if self.agreed.timestamps => {
                let most = now - when + CLOCKS_APART;
                let most_ms = u32::try_from(most.total_millis()).unwrap_or(u32::MAX);
                !stamp_before(value, recent) && value.wrapping_sub(recent) > most_ms
            }
            _ => false,
        }
    }

    /// RFC 9293 §3.10.7.4, first step, and §3.4 for the four cases.
    fn check_sequence(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        start: i64,
    ) -> Result<(), Error> {
        let len = i64::from(segment.sequence_len());
        let next = self.receive.next() as i64;
        let edge = (self.receive.edge as i64).max(next);
        if len == 0 {
            // A pure acknowledgement overtaken by data is still news; one from before our last
            // acknowledgement is a probe. One at the right edge follows a window that is full, and in
            // part lost.
            let oldest = (self.receive.last_ack_sent as i64).min(next);
            if (oldest..=edge).contains(&start) {
                return Ok(());
            }
        } else if start < edge && start + len > next {
            return Ok(());
        } else if start == next {
            // No window, but its acknowledgement is valid (RFC 9293 §3.10.7.4: "special allowance").
            self.owe_now();
            return Ok(());
        }
        if len > 0 && start + len <= next {
            self.take_duplicate(now, segment, start);
            return Err(Error::Duplicate);
        }
        self.owe_for_unacceptable(now, segment);
        Err(Error::Window)
    }

    fn complete_handshake(&mut self, now: Instant, segment: &Segment<'_>) -> Result<(), Dropped> {
        if segment.ack != self.send.iss.plus(1) {
            return Err(with_reset(Error::AckChallenged));
        }
        self.establish(now, segment);
        Ok(())
    }

    /// RFC 7323 §4.3: the timestamp of the segment that our next acknowledgement is caused by.
    pub(super) fn note_timestamp(&mut self, now: Instant, segment: &Segment<'_>, start: i64) {
        if let Some((value, _)) = segment.options.timestamps
            && self.agreed.timestamps
            && start <= self.receive.last_ack_sent as i64
            && self
                .receive
                .ts_recent
                .is_none_or(|(recent, _)| !stamp_before(value, recent))
        {
            self.receive.ts_recent = Some((value, now));
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

    /// What cannot be accepted is answered with where we are; what has no data only so often, so
    /// that two sides never answer each other for ever.
    fn owe_for_unacceptable(&mut self, now: Instant, segment: &Segment<'_>) {
        if segment.payload.is_empty() && !segment.flags.fin {
            self.challenge(now);
        } else {
            self.owe_now();
        }
    }

    /// A challenge ACK, within its rate (RFC 5961 §7). The rate is the connection's own: a shared
    /// one would tell a third party about others' traffic.
    pub(super) fn challenge(&mut self, now: Instant) {
        let rate = u32::from(self.limits.challenges);
        if self.challenge.take(now, &RateLimit::new(rate, rate)) {
            self.owe_now();
        } else {
            self.counters.suppressed += 1;
        }
    }

    pub(super) fn arm_keep_alive(&mut self, now: Instant) {
        if let Some(idle) = self.limits.keep_alive
            && self.state.is_synchronized()
        {
            self.timers.set(Timer::KeepAlive, now + idle);
        }
    }

    /// The keep-alive timer fired: a probe, or the end (RFC 9293 §3.8.4).
    pub(super) fn keep_alive(&mut self, now: Instant, flow: &Flow) {
        let Some(idle) = self.limits.keep_alive else {
            return;
        };
        if self.has_outstanding(flow) || self.state == State::TimeWait {
            self.arm_keep_alive(now);
            return;
        }
        if self.keep_alive_probes >= MAX_KEEP_ALIVE_PROBES {
            self.fail(Failure::Timeout);
            return;
        }
        self.keep_alive_probes += 1;
        self.send.window_probe_due = true;
        let pause = idle.min(Duration::from_secs(75));
        self.timers.set(Timer::KeepAlive, now + pause);
    }
}
