//! Brings session, timers and queues in line with a control block that has changed.
//!
//! Nothing here walks the members of a group: their windows meet in a tournament tree.

use proto_core::time::Instant;

use super::{Endpoint, timer_key};
use crate::error::Failure;
use crate::event::ConnId;
use crate::group::{Blocked, Buffer, Flow, Mode};
use crate::mintree::MinTree;
use crate::pcb::{Note, Pcb, State};
use crate::store::Store;

impl<S: Store> Endpoint<S> {
    /// A block, its flow and its store.
    pub(super) fn parts(&mut self, index: u32) -> Option<(&mut Pcb, &mut Flow, &mut Buffer<S>)> {
        let pcb = self.pcbs.get_mut(index)?;
        let session = self.sessions.get_mut(pcb.slot.session)?;
        let flow = session.flows.get_mut(pcb.slot.flow as usize)?;
        Some((pcb, flow, &mut session.store))
    }

    /// Brings everything in line with the state of a block.
    pub(super) fn sync(&mut self, index: u32) {
        self.settle_handshake(index);
        self.fall_back_if_due(index);
        self.fail_if_unreached(index);
        self.collect(index);
        self.choose_representative(index);
        self.sync_windows(index);
        self.leave_if_ended(index);
        let Some((pcb, flow, _)) = self.parts(index) else {
            return;
        };
        if pcb.waits_for_window(flow) {
            let now = self.now;
            if let Some((pcb, _, _)) = self.parts(index) {
                pcb.arm_persist(now);
            }
        }
        self.sync_queues(index);
        let Some(pcb) = self.pcbs.get(index) else {
            return;
        };
        let (session, flow) = (pcb.slot.session, pcb.slot.flow);
        if pcb.is_gone() {
            self.remove(index);
        }
        self.schedule(session, flow);
    }

    /// Updates timers, output and events of one control block.
    pub(super) fn sync_queues(&mut self, index: u32) {
        let Some((pcb, flow, _)) = self.parts(index) else {
            return;
        };
        let next = pcb.timers.next().map_or(MinTree::NONE, timer_key);
        let (queue, has_events) = (pcb.has_output(flow), pcb.has_events());
        self.timers.set(index as usize, next);
        if queue {
            self.ready.push(index);
        }
        if has_events {
            self.with_events.push(index);
        }
    }

    /// The block's counters go to the endpoint's.
    fn collect(&mut self, index: u32) {
        let Some(pcb) = self.pcbs.get_mut(index) else {
            return;
        };
        let counters = core::mem::take(&mut pcb.counters);
        let stats = &mut self.stats;
        stats.retransmissions += u64::from(counters.retransmissions);
        stats.timeouts += u64::from(counters.timeouts);
        stats.probes += u64::from(counters.probes);
        stats.undone += u64::from(counters.undone);
        stats.challenges_suppressed += u64::from(counters.suppressed);
        stats.fall_backs += u64::from(counters.fall_backs);
        stats.fall_forwards += u64::from(counters.fall_forwards);
        stats.black_holes += u64::from(counters.holes);
    }

    /// Updates the control block's part in the intersection of windows, and in what may leave the store.
    fn sync_windows(&mut self, index: u32) {
        let Some(pcb) = self.pcbs.get_mut(index) else {
            return;
        };
        let Some(session) = self.sessions.get_mut(pcb.slot.session) else {
            return;
        };
        let flow = &mut session.flows[pcb.slot.flow as usize];
        let member = pcb.slot.member as usize;
        let una = pcb.send.board.una();
        let (limit, una) = match pcb.state() {
            State::SynSent | State::SynReceived => (0, una),
            state if state.sends() => (pcb.send_limit(), una),
            _ => (MinTree::NONE, MinTree::NONE),
        };
        let slot = flow.slot(pcb.slot.member);
        flow.limits.set(slot, limit);
        flow.unas.set(slot, una);
        let alone = pcb.multicast.mode == Mode::UnicastOnly && session.group.is_some();
        let needed = if alone && session.store.is_rereadable() {
            MinTree::NONE
        } else {
            una
        };
        if session.unas.get(member) != needed || alone {
            session.unas.set(member, needed);
            session.release(una);
        }
        let flow = &mut session.flows[pcb.slot.flow as usize];
        let least = flow.unas.min();
        if least != MinTree::NONE {
            flow.log.release(least);
            flow.repairs.release(least);
        }
        if let Some(smoothed) = pcb.send.rtt.smoothed() {
            flow.quantum = smoothed / 24;
        }
        if pcb.state().sends() && una == flow.nxt && !pcb.slot.idle {
            pcb.slot.idle = true;
            flow.idle.push(index);
        }
        if session.wants_room && session.is_writable() {
            session.wants_room = false;
            match &mut session.group {
                // Reported once, however often there was space since the application asked.
                Some(group) => {
                    if !core::mem::replace(&mut group.writable_due, true) {
                        self.groups_with_events.push_back(pcb.slot.session);
                    }
                }
                None => pcb.note(Note::Writable),
            }
        }
    }

    /// A connection that has ended, or is in TIME-WAIT, no longer holds the others back.
    fn leave_if_ended(&mut self, index: u32) {
        let Some(pcb) = self.pcbs.get_mut(index) else {
            return;
        };
        if pcb.slot.removed || !matches!(pcb.state(), State::Closed | State::TimeWait) {
            return;
        }
        pcb.slot.removed = true;
        let (session, flow) = (pcb.slot.session, pcb.slot.flow as usize);
        let member = pcb.slot.member;
        let settled = pcb.handshake.is_settled();
        if pcb.handshake.is_passive() && !settled {
            self.half_open_count -= 1;
        }
        let group = pcb
            .multicast
            .group
            .filter(|_| pcb.multicast.mode.multicasts() && settled);
        let Some(session_ref) = self.sessions.get_mut(session) else {
            return;
        };
        let flow = &mut session_ref.flows[flow];
        flow.members -= 1;
        flow.forget_representative(member);
        flow.remove_unicast(index);
        if let Some(group) = group.filter(|_| session_ref.group.is_some()) {
            flow.remove_listener(group);
        }
        session_ref.release(MinTree::NONE);
        if let Some(state) = &mut session_ref.group {
            state.open -= 1;
            if !settled {
                state.waiting -= 1;
            }
            if state.open == 0 {
                state.closed.make_due();
                self.groups_with_events.push_back(session);
            }
            self.check_ready(session);
        }
    }

    /// Lets a flow send if it can, or arranges for the moment when it can.
    pub(super) fn schedule(&mut self, session: u32, flow: u32) {
        let now = self.now;
        let half_window = self.half_window(session, flow);
        let Some(session_ref) = self.sessions.get_mut(session) else {
            return;
        };
        let must_wait = session_ref.must_wait(flow, now);
        let Some(flow_ref) = session_ref.flows.get_mut(flow as usize) else {
            return;
        };
        if flow_ref.queued {
            return;
        }
        let verdict = flow_ref.sendable(now, half_window);
        if flow_ref.burst.is_some() || (verdict.is_ok() && !must_wait) {
            flow_ref.queued = true;
            self.flows_ready.push_back((session, flow));
            return;
        }
        match verdict {
            Ok(_) => {
                flow_ref.starved = Some((now, flow_ref.nxt));
                if !core::mem::replace(&mut flow_ref.waiting, true) {
                    session_ref.turns.waiting.push_back(flow);
                }
                self.give_turn(session);
            }
            Err(Blocked::Window) => self.blocked(session, flow, now),
            // Windows of which half was carried may grow meanwhile.
            Err(Blocked::Trial) => {
                flow_ref.limited_at = flow_ref.nxt;
                flow_ref.starved = Some((now, flow_ref.nxt));
            }
            Err(Blocked::Pace) => {
                flow_ref.holder = None;
                if let Some(at) = flow_ref.spread.next(now)
                    && !core::mem::replace(&mut flow_ref.spreading, true)
                {
                    session_ref.turns.spreading.insert((at, flow));
                    self.set_session_timer(session, at);
                }
            }
            Err(Blocked::Nagle | Blocked::Empty) => flow_ref.starved = Some((now, flow_ref.nxt)),
        }
    }

    /// If the session's rate allows, the flow that has waited longest sends its next burst. Flows that are
    /// blocked meanwhile are skipped and scheduled later by what blocks them.
    pub(super) fn give_turn(&mut self, session: u32) {
        let now = self.now;
        loop {
            let Some(session_ref) = self.sessions.get_mut(session) else {
                return;
            };
            if session_ref.turns.waiting.is_empty() || session_ref.turns.given.is_some() {
                return;
            }
            if let Some(at) = session_ref.turns.cap.next(now) {
                self.set_session_timer(session, at);
                return;
            }
            let Some(number) = session_ref.turns.waiting.pop_front() else {
                return;
            };
            let half_window = self.half_window(session, number);
            let Some(flow) = self.flow(session, number) else {
                continue;
            };
            flow.waiting = false;
            if !flow.queued && flow.sendable(now, half_window).is_ok() {
                flow.queued = true;
                self.flows_ready.push_back((session, number));
                if let Some(session) = self.sessions.get_mut(session) {
                    session.turns.given = Some(number);
                }
                return;
            }
            self.schedule(session, number);
        }
    }

    /// A flow has sent its burst, or cannot: it queues again if it has to, and the next one follows.
    pub(super) fn end_turn(&mut self, session: u32, number: u32) {
        let Some(session_ref) = self.sessions.get_mut(session) else {
            return;
        };
        let turns = &mut session_ref.turns;
        turns.given = turns.given.filter(|&given| given != number);
        if let Some(flow) = session_ref.flows.get_mut(number as usize) {
            flow.queued = false;
        }
        self.schedule(session, number);
        self.give_turn(session);
    }

    /// Flows whose own pace lets them go on.
    pub(super) fn resume_spread(&mut self, session: u32, now: Instant) {
        loop {
            let Some(session_ref) = self.sessions.get_mut(session) else {
                return;
            };
            let Some(&(at, number)) = session_ref.turns.spreading.first() else {
                return;
            };
            if at > now {
                self.set_session_timer(session, at);
                return;
            }
            session_ref.turns.spreading.pop_first();
            if let Some(flow) = self.flow(session, number) {
                flow.spreading = false;
            }
            self.schedule(session, number);
        }
    }

    /// Informs the member whose windows block the flow: its congestion window may grow, or its closed window
    /// will be probed.
    fn blocked(&mut self, session: u32, flow: u32, now: Instant) {
        let Some(index) = self.narrowest(session, flow) else {
            return;
        };
        let Some((pcb, flow, _)) = self.parts(index) else {
            return;
        };
        if !pcb.state().sends() {
            return;
        }
        if pcb.send_limit() < pcb.send.window.edge() {
            pcb.send.window.limit_at(flow.nxt);
            flow.limited_at = flow.nxt;
            self.held_back_by(index, now);
            return;
        }
        flow.starved = Some((now, flow.nxt));
        // In recovery its own window fills up behind a hole, which is the network's fault.
        pcb.send.window_limit.closed |= !pcb.send.loss.in_recovery();
        if pcb.send.board.una() >= flow.nxt {
            pcb.arm_persist(now);
            let next = pcb.timers.next().map_or(MinTree::NONE, timer_key);
            self.timers.set(index as usize, next);
        }
    }

    /// Returns the control block with the smallest window.
    pub(super) fn narrowest(&self, session: u32, flow: u32) -> Option<u32> {
        let session = self.sessions.get(session)?;
        let flow = session.flows.get(flow as usize)?;
        let member = flow.first as usize + flow.limits.argmin()?;
        session.members.get(member).copied().flatten()
    }

    pub(super) fn half_window(&self, session: u32, flow: u32) -> u64 {
        let narrowest = self.narrowest(session, flow);
        let pcb = narrowest.and_then(|index| self.pcbs.get(index));
        pcb.map_or(u64::MAX, |pcb| (pcb.send.window.largest() / 2).max(1))
    }

    pub(super) fn flow(&mut self, session: u32, flow: u32) -> Option<&mut Flow> {
        self.sessions.get_mut(session)?.flows.get_mut(flow as usize)
    }

    pub(super) fn set_session_timer(&mut self, session: u32, at: Instant) {
        let key = timer_key(at).min(self.session_timers.get(session as usize));
        self.session_timers.set(session as usize, key);
    }

    /// Forgets a block.
    pub(super) fn remove(&mut self, index: u32) {
        if let Some(pcb) = self.pcbs.get_mut(index)
            && pcb.state() != State::Closed
        {
            pcb.become_closed();
            self.leave_if_ended(index);
        }
        let Some(pcb) = self.pcbs.remove(index) else {
            return;
        };
        self.keys.remove(&pcb.key);
        self.timers.clear(index as usize);
        if let Some(listener) = self.listeners.get_mut(&pcb.key.local_port) {
            let id = ConnId {
                index,
                generation: pcb.generation,
            };
            listener.complete.retain(|&other| other != id);
        }
        let Some(session) = self.sessions.get_mut(pcb.slot.session) else {
            return;
        };
        if session.members[pcb.slot.member as usize].take().is_some() {
            session.present -= 1;
        }
        let group_done = session
            .group
            .as_ref()
            .is_none_or(|group| group.closed.is_taken());
        if group_done && session.present == 0 {
            self.remove_session(pcb.slot.session);
        }
    }

    pub(super) fn remove_session(&mut self, session: u32) {
        self.sessions.remove(session);
        self.session_timers.clear(session as usize);
    }

    /// Whether a receiver's mode has to change for its losses (TCP-XM §2.5).
    fn fall_back_if_due(&mut self, index: u32) {
        let Some((pcb, flow, _)) = self.parts(index) else {
            return;
        };
        let mode = pcb
            .multicast
            .mode
            .after_losses(pcb.multicast.reception.losses());
        if mode != pcb.multicast.mode && pcb.multicast.mode == Mode::Multicast {
            pcb.multicast.reception.fall_back(flow.nxt);
            pcb.counters.fall_backs += 1;
            self.set_mode(index, mode);
        }
    }

    /// Fails a receiver that multicast, the only permitted way, does not reach.
    fn fail_if_unreached(&mut self, index: u32) {
        let now = self.now;
        let Some((pcb, flow, _)) = self.parts(index) else {
            return;
        };
        if pcb.multicast.mode != Mode::MulticastOnly || !pcb.state().sends() {
            return;
        }
        let (una, payload) = (pcb.send.board.una(), u64::from(flow.payload));
        let percent = pcb.multicast.reception.percent();
        let elapsed = pcb.multicast.unreached.elapsed(now, una, payload, percent);
        if elapsed >= pcb.limits.multicast_timeout {
            pcb.abort(Failure::NoMulticast);
        }
    }
}
