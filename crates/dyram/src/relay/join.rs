//! The session protocol: children and parent (DyRAM §3.2.1).

use proto_core::time::Instant;

use super::table::{Child, Owner, Set};
use super::{FAR_SHIFT, Relay, Reply};
use crate::attach::{Outcome, Parent};
use crate::config::Carriage;
use crate::event::{Event, Full};
use crate::stats::DropReason;
use crate::types::{Addr, RawKey};
use crate::wheel::{tick_of, time_since};
use crate::wire::{Join, Joined, NO_CHILD, Packet, Role, Status};
use crate::{Meta, SessionKey};

impl Relay<'_> {
    pub(super) fn join(
        &mut self,
        now: Instant,
        found: Option<u16>,
        meta: &Meta,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DropReason> {
        if self.replies.is_full() {
            return Err(DropReason::JoinFlood);
        }
        let (key, from) = (packet.key(), Addr::from(meta.source));
        let join = Join::read(packet);
        if meta.group {
            return Err(DropReason::WrongWay);
        }
        if join.role == Role::Source && meta.source.ip() != key.source {
            return Err(DropReason::NotSource);
        }
        let proven = join.token == self.secrets.token(from, &key);
        let (status, child) = if self.refuses(found, join.role) {
            if let Some(number) = found.filter(|_| proven && join.role == Role::Source) {
                self.source_gone(number, key, from);
            }
            (Status::Draining, NO_CHILD)
        } else if !proven {
            (Status::Challenge, NO_CHILD)
        } else if self.is_circular(found, &join) {
            self.notify(Event::Loop(key, join.relay));
            (Status::Loop, NO_CHILD)
        } else {
            self.accept(now, found, key, from, packet.child(), &join)
        };
        let reply = Reply {
            to: from,
            key,
            status,
            child,
            stamp: join.stamp,
        };
        // There is room: it was checked first.
        let _ = self.replies.push_back(reply);
        Ok(())
    }

    /// Whether a JOIN is refused because this relay drains. The source is served while there are children.
    fn refuses(&self, found: Option<u16>, role: Role) -> bool {
        let has_children = found.is_some_and(|number| self.tables.session(number).children > 0);
        self.draining && !(role == Role::Source && has_children)
    }

    /// Whether the relay that joins is above this relay, or is this relay.
    fn is_circular(&self, found: Option<u16>, join: &Join) -> bool {
        if join.relay.0 == 0 {
            return false;
        }
        let above = found.and_then(|number| self.tables.session(number).parent.as_ref());
        join.relay == self.config.id || above.is_some_and(|p| p.path.contains(&join.relay))
    }

    /// Handles a JOIN with the token of its address.
    fn accept(
        &mut self,
        now: Instant,
        found: Option<u16>,
        key: SessionKey,
        from: Addr,
        child: u16,
        join: &Join,
    ) -> (Status, u16) {
        let number = match found {
            Some(number) => {
                let parent = self.tables.session(number).parent.as_ref();
                if parent.is_some_and(|parent| parent.path.is_full()) {
                    return self.refuse(key, from, Full::Path);
                }
                number
            }
            None => match self.tables.open(&self.secrets, RawKey::from(key), now) {
                Some(number) => {
                    self.notify(Event::Opened(key));
                    number
                }
                None => return self.refuse(key, from, Full::Sessions),
            },
        };
        if join.role == Role::Source {
            return (self.accept_source(now, number, key, from, join), NO_CHILD);
        }
        match self.accept_child(now, number, key, from, child, join) {
            Ok(child) => (Status::Joined, child),
            Err(full) => self.refuse(key, from, full),
        }
    }

    fn accept_source(
        &mut self,
        now: Instant,
        number: u16,
        key: SessionKey,
        from: Addr,
        join: &Join,
    ) -> Status {
        if self.has_other_source(now, number, from) {
            let session = self.tables.session_mut(number);
            if !core::mem::replace(&mut session.collided, true) {
                self.notify(Event::SourceRefused(key, from.into()));
            }
            self.stats.refused = self.stats.refused.wrapping_add(1);
            return Status::Full;
        }
        self.tables.session_mut(number).source_us = join.far_us.min(4_000_000);
        self.source_registers(now, number, key, from);
        Status::Joined
    }

    /// Adds a child, or refreshes it. Returns its number, or the limit that it exceeds.
    fn accept_child(
        &mut self,
        now: Instant,
        number: u16,
        key: SessionKey,
        from: Addr,
        child: u16,
        join: &Join,
    ) -> Result<u16, Full> {
        let entry = Child {
            address: from,
            heard: self.refresh_clock(now),
            far: (join.far_us >> FAR_SHIFT).min(u32::from(u16::MAX)) as u16,
            receivers: join.receivers.clamp(1, u32::from(u16::MAX)) as u16,
            ..Child::default()
        };
        let known = Some(child)
            .filter(|&child| self.tables.child_at(number, child, from))
            .or_else(|| self.tables.child_by_address(number, from));
        let child = match known {
            Some(child) => {
                let &Child { ack, advanced, .. } = self.tables.child(number, child);
                *self.tables.child_mut(number, child) = Child {
                    ack,
                    advanced,
                    ..entry
                };
                child
            }
            None if self.is_host_full(number, from) => return Err(Full::Host),
            None => match self.tables.add_child(number, entry) {
                Some(child) => {
                    self.stats.joined = self.stats.joined.wrapping_add(1);
                    self.notify(Event::ChildJoined(key, from.into()));
                    child
                }
                None => return Err(Full::Children),
            },
        };
        self.tables
            .set_relay(number, child, join.role == Role::Relay);
        let far_us = u32::from(entry.far) << FAR_SHIFT;
        let session = self.tables.session_mut(number);
        session.below.far_us = session.below.far_us.max(far_us);
        let near_us = match join.round_trip_us {
            0 => far_us,
            round_trip_us => round_trip_us.min(far_us),
        };
        session.below.near_us[0] = session.below.near_us[0].max(near_us);
        self.update_parent(number, now);
        Ok(child)
    }

    /// Refuses a JOIN because a table is full.
    fn refuse(&mut self, key: SessionKey, from: Addr, full: Full) -> (Status, u16) {
        self.stats.refused = self.stats.refused.wrapping_add(1);
        self.notify(Event::ChildRefused(key, from.into(), full));
        (Status::Full, NO_CHILD)
    }

    /// Whether the session has as many children at this IP address as one host may have, including those that stalled
    /// and left.
    fn is_host_full(&self, number: u16, from: Addr) -> bool {
        let sets = [Set::Members, Set::Stalled];
        let there = self.tables.at_host(number, &sets, from);
        there >= usize::from(self.config.children_per_host)
            && !self.tables.has_left_stalled(number, from)
    }

    /// Whether a source with this name at another address is served: two sources would take the session from each other
    /// at each refresh. A source that is silent for [`crate::Config::takeover`] does not count.
    fn has_other_source(&self, now: Instant, number: u16, from: Addr) -> bool {
        let session = self.tables.session(number);
        let recent = |heard: u32| time_since(now, heard) < self.config.takeover;
        let alive =
            recent(session.heard.source) || session.id.is_some() && recent(session.heard.run);
        session.has_source && session.above != Some(from) && alive
    }

    fn source_registers(&mut self, now: Instant, number: u16, key: SessionKey, from: Addr) {
        let session = self.tables.session_mut(number);
        let first = !session.has_source || session.above != Some(from);
        session.heard.source = tick_of(now) as u32;
        if first {
            self.leave_parent(number);
            let session = self.tables.session_mut(number);
            session.has_source = true;
            session.above = Some(from);
            session.collided = false;
            session.expect_another_run();
            self.notify(Event::SourceArrived(key, from.into()));
        }
        self.update_parent(number, now);
    }

    pub(super) fn leave(
        &mut self,
        number: u16,
        from: Addr,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DropReason> {
        let (key, child) = (packet.key(), packet.child());
        if packet.token() != self.secrets.token(from, &key) {
            return Err(DropReason::BadToken);
        }
        if self.tables.child_at(number, child, from) {
            self.stats.left = self.stats.left.wrapping_add(1);
            self.child_gone(number, key, child);
            self.update_parent(number, self.now);
        } else if child != NO_CHILD || !self.source_gone(number, key, from) {
            return Err(DropReason::NotFromChild);
        }
        Ok(())
    }

    /// The source at this address leaves. Returns whether it was registered.
    fn source_gone(&mut self, number: u16, key: SessionKey, from: Addr) -> bool {
        let session = self.tables.session_mut(number);
        let was_here = session.has_source && session.above == Some(from);
        if was_here {
            session.has_source = false;
            self.notify(Event::SourceLost(key));
            self.update_parent(number, self.now);
        }
        was_here
    }

    pub(super) fn child_gone(&mut self, number: u16, key: SessionKey, child: u16) {
        let address = self.tables.child(number, child).address;
        self.tables.remove_child(number, child);
        self.tables.session_mut(number).feedbacks.forget(child);
        if self.draining && self.tables.session(number).children == 0 {
            self.start_moving(number);
        }
        self.notify(Event::ChildGone(key, address.into()));
    }

    pub(super) fn joined(
        &mut self,
        now: Instant,
        number: u16,
        from: Addr,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DropReason> {
        let own = self.config.id;
        let parents = &self.config.parents;
        let key = packet.key();
        let session = self.tables.session_mut(number);
        let parent = session.parent.as_mut().ok_or(DropReason::NotFromParent)?;
        let address = parent.address(parents).ok_or(DropReason::NotFromParent)?;
        if Addr::from(address) != from {
            return Err(DropReason::NotFromParent);
        }
        let joined = Joined::read(packet);
        let outcome = parent
            .handle_joined(now, parents, own, packet.child(), &joined)
            .ok_or(DropReason::BadToken)?;
        match outcome {
            Outcome::Attached => self.notify(Event::Attached(key, address)),
            Outcome::Refused => self.notify(Event::Refused(key, address)),
            Outcome::Loop(relay) => self.notify(Event::Loop(key, relay)),
            Outcome::Refreshed | Outcome::Challenged => {}
        }
        // The parent says which run it forwards; a packet of a forger cannot.
        let other = self.tables.session(number).id != Some(packet.session());
        if joined.live && other && self.config.carriage == Carriage::Relays {
            self.begin(now, number, packet.session());
        }
        self.update_parent(number, now);
        Ok(())
    }

    /// Handles MOVE: the parent drains, and the next one is tried.
    pub(super) fn moved(
        &mut self,
        now: Instant,
        number: u16,
        from: Addr,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DropReason> {
        if !self.is_above(number, from) {
            return Err(DropReason::NotFromParent);
        }
        let parents = &self.config.parents;
        let session = self.tables.session_mut(number);
        let parent = session.parent.as_ref().ok_or(DropReason::NotFromParent)?;
        if packet.token() != parent.token() {
            return Err(DropReason::BadToken);
        }
        if parents.len() > 1 {
            self.leave_upward(number);
            let parents = &self.config.parents;
            if let Some(parent) = &mut self.tables.session_mut(number).parent {
                parent.try_next(now, parents);
            }
            self.notify(Event::ParentLost(packet.key(), from.into()));
        }
        self.update_parent(number, now);
        Ok(())
    }

    /// Starts to look for a parent if the session needs one, and leaves it otherwise.
    pub(super) fn seek_parent(&mut self, number: u16, now: Instant) {
        let wanted = !self.config.parents.is_empty();
        let session = self.tables.session_mut(number);
        if session.has_source || session.children == 0 || !wanted {
            if session.parent.is_some() {
                self.leave_parent(number);
            }
        } else if session.parent.is_none() {
            session.parent = Some(Parent::new(now));
        }
    }

    /// Leaves the parent, which stops sending at once.
    fn leave_parent(&mut self, number: u16) {
        self.leave_upward(number);
        self.tables.session_mut(number).parent = None;
    }

    /// Queues a LEAVE to the parent, if it has accepted this relay.
    pub(super) fn leave_upward(&mut self, number: u16) {
        let session = self.tables.session(number);
        let joined = session.parent.as_ref().filter(|parent| parent.is_joined());
        let (Some(parent), Some(key)) = (joined, session.name()) else {
            return;
        };
        if let Some(to) = parent.address(&self.config.parents) {
            let leave = super::Leave {
                to: to.into(),
                key,
                child: parent.child(),
                token: parent.token(),
            };
            // If the queue is full, the parent removes this relay after three refreshes.
            let _ = self.leaves.push_back(leave);
        }
    }

    /// Adapts parent and timer of a session after a change.
    pub(super) fn update_parent(&mut self, number: u16, now: Instant) {
        self.seek_parent(number, now);
        self.refresh_above(number);
        self.set_timer(number);
    }

    pub(super) fn set_timer(&mut self, number: u16) {
        let timer = self.tables.entry(Owner::Timer(number));
        let session = self.tables.session(number);
        let parent = session.parent.as_ref().map(|parent| parent.due());
        let soonest = session.sweep_due.min(session.acks.due);
        let soonest = soonest.min(session.feedbacks.due());
        let at = parent.map_or(soonest, |due| due.min(soonest));
        self.tables.wheel.set(timer, at);
    }
}
