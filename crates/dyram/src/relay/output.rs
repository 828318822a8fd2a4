//! Packets that a relay itself sends: NACKs, ABSENT, ACKs, and the session protocol.

use proto_core::time::Instant;

use super::answer::units;
use super::table::{NEVER, Owner, Phase};
use super::{Leave, Relay, Reply};
use crate::event::Event;
use crate::types::{Addr, RawKey};
use crate::wire::{Body, Join, Joined, NO_CHILD, Nack, Path, Role, Status, emit};
use crate::{MAX_CONTROL_LEN, Seq, SessionKey, Transmit};

impl Relay<'_> {
    /// Writes the next packet to send into the buffer. Drain until `None`. A buffer shorter than
    /// [`MAX_CONTROL_LEN`] gets no packet.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.now = self.now.max(now);
        if buffer.len() < MAX_CONTROL_LEN {
            return None;
        }
        if let Some(reply) = self.replies.pop_front() {
            return Some(self.answer(&reply, buffer));
        }
        if let Some(leave) = self.leaves.pop_front() {
            let Leave {
                to,
                key,
                child,
                token,
            } = leave;
            return Some(emit(
                to.into(),
                key,
                0,
                child,
                Seq(0),
                Body::Leave(token),
                buffer,
            ));
        }
        if let Some(notice) = self.send_notice(buffer) {
            return Some(notice);
        }
        while let Some(entry) = self.tables.wheel.ready() {
            let sent = match self.tables.owner(entry) {
                Owner::State(state) => self.send_states(now, state, buffer),
                Owner::Timer(session) | Owner::Output(session) => {
                    self.send_session(now, entry, session, buffer)
                }
            };
            if sent.is_some() {
                return sent;
            }
        }
        None
    }

    fn answer(&self, reply: &Reply, buffer: &mut [u8]) -> Transmit {
        let session = self
            .tables
            .find(&self.secrets, &RawKey::from(reply.key))
            .map(|number| self.tables.session(number));
        let parent = session.and_then(|session| session.parent.as_ref());
        let mut path = parent.map_or_else(Path::new, |parent| parent.path.clone());
        // No child is accepted where the path is full.
        let _ = path.push(self.config.id);
        let live = session.and_then(|session| Some((session.id?, session.track.newest()?)));
        let live = live.filter(|_| reply.status == Status::Joined);
        let from_source = session.is_some_and(|session| session.has_source);
        let repair_us = session.map_or(0, |session| {
            let answer = session.answer.within().total_micros() as u32;
            let own = session.below.far_us.saturating_mul(2).max(answer);
            let decide = self.config.decide.0.total_micros() as u32;
            let above = parent.map_or(0, |parent| parent.answer_after().total_micros() as u32);
            own.saturating_add(decide).saturating_add(above)
        });
        let joined = Joined {
            status: reply.status,
            live: live.is_some(),
            attached: from_source || parent.is_some_and(|p| p.is_joined() && p.attached),
            token: self.secrets.token(reply.to, &reply.key),
            stamp: reply.stamp,
            repair_us,
            refresh_ms: self.config.refresh.total_millis() as u16,
            path,
        };
        let (id, next) = live.map_or((0, Seq(0)), |(id, newest)| (id, newest.plus(1)));
        let body = Body::Joined(joined);
        emit(
            reply.to.into(),
            reply.key,
            id,
            reply.child,
            next,
            body,
            buffer,
        )
    }

    /// Writes a NACK (or ABSENT) for one state and for those that follow in the ready list and ask the same.
    fn send_states(&mut self, now: Instant, first: u16, buffer: &mut [u8]) -> Option<Transmit> {
        let number = self.tables.session_of(first);
        let entry = *self.tables.state(first);
        let session = self.tables.session(number);
        let (key, id) = (session.name(), session.id);
        let to = match entry.phase {
            Phase::AskReplier => self
                .tables
                .is_member(number, entry.replier)
                .then(|| self.tables.child(number, entry.replier).address.into()),
            _ => self.above(number),
        };
        let own_number = session
            .parent
            .as_ref()
            .map_or(NO_CHILD, |parent| parent.child());
        let folded = session.acks.folded;
        let mut mask = 0;
        let mut repeats = 0;
        let mut next = Some(first);
        while let Some(state) = next {
            let other = *self.tables.state(state);
            let ahead = other.seq.since(entry.seq);
            let alike = self.tables.session_of(state) == number
                && (other.phase, other.replier) == (entry.phase, entry.replier);
            if state != first && !(alike && (1..=64).contains(&ahead)) {
                break;
            }
            if state != first {
                mask |= 1 << (ahead - 1);
            }
            repeats = repeats.max(u16::from(other.tries));
            next = self
                .tables
                .wheel
                .ready_after(state)
                .filter(|&entry| matches!(self.tables.owner(entry), Owner::State(_)));
            self.was_asked(now, state, to.is_some());
        }
        let (key, id, to) = (key?, id?, to?);
        let body = match entry.phase {
            Phase::SayAbsent => Body::Absent(mask),
            phase => Body::Nack(Nack {
                mask,
                ack: folded.filter(|_| phase == Phase::AskParent),
                repeats,
            }),
        };
        if entry.phase == Phase::AskParent && folded.is_some() {
            self.tables.session_mut(number).ack_sent = true;
        }
        Some(emit(to, key, id, own_number, entry.seq, body, buffer))
    }

    /// The NACK of this state was sent: waits for the answer.
    fn was_asked(&mut self, now: Instant, state: u16, sent: bool) {
        let upward = match self.tables.state(state).phase {
            Phase::AskReplier => {
                let entry = self.tables.state_mut(state);
                entry.phase = Phase::Asked;
                entry.asked = units(now);
                self.stats.asked_repliers = self.stats.asked_repliers.wrapping_add(1);
                false
            }
            Phase::AskParent => {
                self.tables.state_mut(state).phase = Phase::Upstream;
                if sent {
                    self.stats.asked_parent = self.stats.asked_parent.wrapping_add(1);
                }
                true
            }
            _ => {
                self.tables.free_state(state);
                return;
            }
        };
        let until = now + self.answer_within(state, upward);
        if upward {
            self.tables.state_mut(state).tries += 1;
        }
        self.tables.wheel.set(state, until);
    }

    /// Writes MOVE, JOIN, FEEDBACK or ACK, whichever the session has to send.
    fn send_session(
        &mut self,
        now: Instant,
        entry: u16,
        number: u16,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let session = self.tables.session(number);
        let key = session.name();
        if let (Some(from), Some(key)) = (session.moving, key) {
            let sent = self.send_move(number, key, from, buffer);
            if sent.is_some() {
                return sent;
            }
        }
        let joins = self.tables.session(number).parent.as_ref();
        if let (true, Some(key)) = (joins.is_some_and(|parent| parent.due() <= now), key) {
            return self.send_join(now, number, key, buffer);
        }
        self.tables.wheel.remove(entry);
        if self.tables.session(number).feedbacks.due() <= now {
            // Acknowledgements are folded when their own timer expires.
            let feedback = self.send_feedback(now, number, buffer);
            self.set_timer(number);
            return feedback;
        }
        let ack_interval = self.config.ack_interval;
        let above = self.above(number);
        let session = self.tables.session_mut(number);
        if session.acks.due > now {
            return None;
        }
        session.acks.due = if core::mem::take(&mut session.fold_again) {
            now + ack_interval
        } else {
            NEVER
        };
        let news = session.acks.folded.filter(|_| !session.ack_sent);
        let told = (news, session.id, key, above);
        let own_number = session
            .parent
            .as_ref()
            .map_or(NO_CHILD, |parent| parent.child());
        let (Some(ack), Some(id), Some(key), Some(above)) = told else {
            // There is no parent yet: try again later.
            if news.is_some() {
                session.acks.due = now + ack_interval;
            }
            self.set_timer(number);
            return None;
        };
        session.ack_sent = true;
        self.set_timer(number);
        Some(emit(above, key, id, own_number, ack, Body::Ack, buffer))
    }

    fn send_move(
        &mut self,
        number: u16,
        key: SessionKey,
        from: u16,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let mut children = from..self.tables.limits.children as u16;
        let child = children.find(|&child| self.tables.is_member(number, child));
        let session = self.tables.session_mut(number);
        session.moving = child.map(|child| child + 1);
        let to: Addr = match child {
            Some(child) => self.tables.child(number, child).address,
            // The source goes last; until then it is served here.
            None => session
                .above
                .filter(|_| session.has_source && session.children == 0)?,
        };
        let token = self.secrets.token(to, &key);
        Some(emit(
            to.into(),
            key,
            0,
            NO_CHILD,
            Seq(0),
            Body::Move(token),
            buffer,
        ))
    }

    fn send_join(
        &mut self,
        now: Instant,
        number: u16,
        key: SessionKey,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let parent = self.tables.session(number).parent.as_ref();
        // A single parent is its own successor.
        if self.config.parents.len() > 1 && parent.is_some_and(|p| p.gives_up()) {
            self.leave_upward(number);
        }
        let parents = &self.config.parents;
        let session = self.tables.session_mut(number);
        let (far_us, receivers) = (session.below.far_us, session.below.receivers);
        let parent = session.parent.as_mut()?;
        let Some(to) = parent.address(parents) else {
            session.parent = None;
            return None;
        };
        let was_joined = parent.is_joined();
        let Some(stamp) = parent.next_try(now, parents, &mut self.secrets) else {
            let is_first_round = parent.has_tried_all(parents);
            self.refresh_above(number);
            if was_joined {
                self.notify(Event::ParentLost(key, to));
            } else if is_first_round {
                self.notify(Event::Unanswered(key, to));
            }
            return None;
        };
        let join = Join {
            role: Role::Relay,
            token: parent.token(),
            stamp,
            far_us: parent.round_trip_us().saturating_add(far_us),
            receivers,
            relay: self.config.id,
            round_trip_us: parent.round_trip_us(),
        };
        let child = parent.child();
        self.set_timer(number);
        Some(emit(to, key, 0, child, Seq(0), Body::Join(join), buffer))
    }
}
