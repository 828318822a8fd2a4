//! Receivers that hold their group below the configured rate are detected and served separately (an addition to
//! TCP-XM; `docs/decisions/0006-detached-receivers.md`).
//!
//! Forty times a second the receivers that hold back the next segment are counted. After a second in which the
//! group had data and stayed below the rate, receivers are detached that often held it back and whose path or
//! application shows why, provided that this frees others:
//!
//! | | kept the next segment back | and |
//! | --- | --- | --- |
//! | straggler | in at least one of eight looks | in trouble |
//! | free | in less than half of the looks | not in trouble |
//! | neither | | |
//!
//! A receiver is limited if it had a timeout, closed its window, has a queue before it, or had losses and is
//! left with a window that cannot carry the rate. A bottleneck that all share limits all: none is free, and
//! none is detached. (Where round trips differ many times over, the farthest receiver recovers so slowly from a
//! loss that it limits the group, and is treated so.)
//!
//! Detaching is final. The receiver leaves the multicast group, which floods its link until then, and its
//! position in the stream falls behind the others; it could return only by being faster than they are.

use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};

use super::Endpoint;
use crate::error::{CommandError, Failure};
use crate::event::ConnId;
use crate::group::{Flow, RATE_CHECK, RATE_SAMPLE, Reception, Watch};
use crate::pcb::{Leaving, Note, Pcb};
use crate::store::Store;

/// Round trips that are longer than five quarters of the shortest one by this much have waited in a
/// queue, or for a delayed acknowledgement.
const QUEUE: Duration = Duration::from_millis(5);
/// A delayed acknowledgement waits for two segments, and no longer than this.
const DELAYED_ACK: Duration = Duration::from_millis(200);

impl<S: Store> Endpoint<S> {
    /// Checks which receivers hold a group back, if it is time.
    pub(super) fn check_rate(&mut self, session: u32, now: Instant) {
        let Some(session_ref) = self.sessions.get_mut(session) else {
            return;
        };
        let Some(group) = &mut session_ref.group else {
            return;
        };
        let (Some(rate), Some(watch)) = (group.min_rate_bps, &mut group.watch) else {
            return;
        };
        if now < watch.next || group.open == 0 {
            let next = watch.next;
            if group.open > 0 {
                self.set_session_timer(session, next);
            }
            return;
        }
        watch.next = now + RATE_SAMPLE;
        let main = &session_ref.flows[0];
        let (nxt, payload) = (main.nxt, u64::from(main.payload));
        let waits = main.unsent > 0 && main.members > 1;
        let wanted = nxt + main.unsent.min(payload);
        let blocked = waits && main.limits.min() < wanted;
        watch.looks += u8::from(blocked);
        let over = now - watch.since >= RATE_CHECK;
        let (since, sent) = (watch.since, watch.sent);
        let old = *watch;
        if over {
            *watch = Watch::begin(now, nxt);
        }
        if blocked {
            self.blame(session, wanted);
        }
        self.set_session_timer(session, now + RATE_SAMPLE);
        if !over {
            return;
        }
        let us = (now - since).total_micros().max(1);
        let slow = ((nxt - sent) * 8).saturating_mul(1_000_000) / us < rate;
        let pair = Duration::from_micros(2 * payload * us / (nxt - sent).max(1));
        if slow && waits {
            let limits = Limits {
                rate_bps: rate,
                extra: QUEUE + pair.min(DELAYED_ACK),
                looks: old.looks,
            };
            self.detach_stragglers(session, &limits);
        } else if slow {
            self.drop_holder(session);
        }
        self.forget_trouble(session);
    }

    /// Counts the receivers that hold back the next segment.
    fn blame(&mut self, session: u32, wanted: u64) {
        let Some(session) = self.sessions.get(session) else {
            return;
        };
        let limits = &session.flows[0].limits;
        for (member, index) in session.members.iter().enumerate() {
            if limits.get(member) < wanted
                && let Some(index) = index
                && let Some(pcb) = self.pcbs.get_mut(*index)
            {
                pcb.send.window_limit.looks = pcb.send.window_limit.looks.saturating_add(1);
            }
        }
    }

    fn forget_trouble(&mut self, session: u32) {
        for index in self.member_indexes(session) {
            if let Some(pcb) = self.pcbs.get_mut(index) {
                pcb.send.window_limit = Default::default();
            }
        }
    }

    fn detach_stragglers(&mut self, session: u32, limits: &Limits) {
        let mut stragglers = Vec::new();
        let mut anybody_free = false;
        for index in self.member_indexes(session) {
            let Some(pcb) = self.pcbs.get(index) else {
                continue;
            };
            if pcb.slot.flow != 0 || !pcb.state().sends() {
                continue;
            }
            let held = pcb.send.window_limit.looks;
            let trouble = in_trouble(pcb, limits);
            if held > 0 && u16::from(held) * 8 >= u16::from(limits.looks) && trouble {
                stragglers.push(index);
            }
            anybody_free |= !trouble && u16::from(held) * 2 < u16::from(limits.looks);
        }
        if anybody_free {
            for index in stragglers {
                self.separate(index);
            }
        }
    }

    /// Detaches a receiver from its group, as [`GroupConfig::min_rate_bps`](crate::GroupConfig::min_rate_bps) does:
    /// from now on it is sent to at its own pace, and [`Event::Detached`](crate::Event::Detached) follows. Returns
    /// `false`, and changes nothing, where it is not in step with another receiver, where its connection is not
    /// open, or where the group's store keeps data in memory alone: a receiver that falls behind would fill it.
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`].
    pub fn detach(&mut self, now: Instant, id: ConnId) -> Result<bool, CommandError> {
        self.advance(now);
        let pcb = self.pcb(id)?;
        let session = self.sessions.get(pcb.slot.session);
        let may = session.is_some_and(|session| {
            session.group.is_some()
                && session.store.is_rereadable()
                && session.flows[0].members > 1
                && pcb.slot.flow == 0
                && pcb.state().sends()
        });
        if may {
            self.separate(id.index);
        }
        Ok(may)
    }

    /// From now on this receiver is sent to at its own pace.
    fn separate(&mut self, index: u32) {
        let Some(pcb) = self.pcbs.get_mut(index) else {
            return;
        };
        let Some(session) = self.sessions.get_mut(pcb.slot.session) else {
            return;
        };
        let number = session.flows.len() as u32;
        let main_number = core::mem::replace(&mut pcb.slot.flow, number);
        let main = &mut session.flows[main_number as usize];
        main.members -= 1;
        main.forget_representative(pcb.slot.member);
        pcb.send.follows = false;
        main.remove_unicast(index);
        if let Some(group) = pcb
            .multicast
            .group
            .filter(|_| pcb.multicast.mode.multicasts())
        {
            main.remove_listener(group);
            pcb.multicast.leaving = Leaving::Due;
        }
        let slot = main.slot(pcb.slot.member);
        main.limits.clear(slot);
        main.unas.clear(slot);
        let mut flow = Flow::new(main.payload, main.stamp_base, main.nagle);
        flow.payload = flow.payload.min(pcb.max_payload());
        flow.headers = main.headers;
        flow.nxt = main.nxt;
        flow.unsent = main.unsent;
        flow.closing = main.closing;
        flow.log = main.log.clone();
        flow.last_sent = main.last_sent;
        flow.first = pcb.slot.member;
        flow.members = 1;
        flow.detached = true;
        flow.unicast.push(index);
        pcb.multicast.mode = pcb.multicast.mode.after_detaching();
        pcb.multicast.group = None;
        pcb.slot.idle = false;
        pcb.multicast.reception = Reception::new();
        pcb.note(Note::Mode);
        pcb.note(Note::Detached);
        let session_index = pcb.slot.session;
        session.flows.push(flow);
        self.stats.detached += 1;
        self.sync(index);
        self.schedule(session_index, main_number);
    }

    /// A detached receiver's answers no longer have feedback: it has left the group, and segments need not ask
    /// it to leave any more.
    pub(super) fn has_left(&mut self, index: u32) {
        if let Some((pcb, flow, _)) = self.parts(index)
            && pcb.multicast.leaving == Leaving::Told
        {
            pcb.multicast.leaving = Leaving::No;
            flow.payload = pcb.max_payload();
        }
    }

    /// A bounded store is full of data that only a detached receiver lacks: the others cannot wait.
    fn drop_holder(&mut self, session: u32) {
        let Some(session_ref) = self.sessions.get(session) else {
            return;
        };
        if session_ref.store.is_rereadable() || session_ref.store.room() > 0 {
            return;
        }
        let holder = session_ref.unas.argmin();
        let holder = holder.and_then(|member| session_ref.members[member]);
        if let Some(index) = holder
            && let Some(pcb) = self.pcbs.get_mut(index)
            && session_ref.flows[pcb.slot.flow as usize].detached
        {
            pcb.abort(Failure::TooSlow);
            self.sync(index);
        }
    }
}

/// Limits by which a receiver is measured.
struct Limits {
    rate_bps: u64,
    /// Allowed excess of round trips over five quarters of the shortest one.
    extra: Duration,
    /// Looks that found the group held back.
    looks: u8,
}

/// Whether a receiver's path or application shows that it cannot sustain the rate.
fn in_trouble(pcb: &Pcb, limits: &Limits) -> bool {
    let send = &pcb.send;
    if send.window_limit.timeout || send.window_limit.closed {
        return true;
    }
    let (Some(smoothed), Some(least)) = (send.rtt.smoothed(), send.rtt.min()) else {
        return false;
    };
    let bits = send.cc.window().saturating_mul(8_000_000);
    let carries = bits / smoothed.total_micros().max(1) >= limits.rate_bps;
    let queued = send.window_limit.round_trip > least + least / 4 + limits.extra;
    queued || (send.window_limit.cut && !carries)
}
