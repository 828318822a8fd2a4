//! The NACK service: collects losses and elects repliers (DyRAM §3.2.2, §3.2.3).

use proto_core::time::Instant;

use super::table::{NEVER, NONE, Phase, Set, has_bit};
use super::{Origin, Relay};
use crate::Seq;
use crate::config::{Carriage, DefaultReplier};
use crate::stats::DropReason;
use crate::types::Addr;
use crate::wire::{Nack, Packet};

/// Returns the packets that a sequence number and a mask name, the sequence number first.
#[must_use = "iterators do nothing unless consumed"]
pub fn packets(first: Seq, mask: u64) -> impl Iterator<Item = Seq> {
    let mut rest = mask;
    let more = core::iter::from_fn(move || {
        let bit = rest.checked_sub(1).map(|_| rest.trailing_zeros())?;
        rest &= rest - 1;
        Some(first.plus(1 + bit))
    });
    core::iter::once(first).chain(more)
}

impl Relay<'_> {
    pub(super) fn nack(
        &mut self,
        now: Instant,
        number: u16,
        from: Addr,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DropReason> {
        let nack = Nack::read(packet);
        let origin = self.origin(number, from, packet.child())?;
        self.same_session(number, packet.session())?;
        let Origin::Child(child) = origin else {
            for seq in packets(packet.sequence(), nack.mask) {
                self.nack_from_parent(number, seq);
            }
            return Ok(());
        };
        if let Some(ack) = nack.ack {
            self.note_ack(number, child, ack);
        }
        for seq in packets(packet.sequence(), nack.mask) {
            self.stats.nacked = self.stats.nacked.wrapping_add(1);
            if let Err(reason) = self.nack_from_child(now, number, child, seq) {
                self.stats.drops.count(reason);
            }
        }
        Ok(())
    }

    /// Checks that the packet has the running session identifier.
    pub(super) fn same_session(&self, number: u16, id: u32) -> Result<(), DropReason> {
        match self.tables.session(number).id {
            Some(running) if running == id => Ok(()),
            _ => Err(DropReason::OtherSession),
        }
    }

    /// Handles one packet of a child's NACK.
    fn nack_from_child(
        &mut self,
        now: Instant,
        number: u16,
        child: u16,
        seq: Seq,
    ) -> Result<(), DropReason> {
        let newest = self.tables.session(number).track.newest();
        if newest.is_some_and(|newest| newest.before(seq)) {
            return Err(DropReason::NotSent);
        }
        let acked = has_bit(self.tables.set(number, Set::Acked), child);
        if acked && seq.before(self.tables.child(number, child).ack) {
            return Err(DropReason::Acknowledged);
        }
        if let Some(state) = self.tables.find_state(number, seq) {
            return self.repeated_nack(now, state, child);
        }
        let state = self
            .tables
            .new_state(number, seq)
            .ok_or(DropReason::NackStatesFull)?;
        add(self.tables.subcast_mut(state), child);
        if self.lost_by_all(number, seq) {
            // No child has it.
            self.ask_parent(state);
        } else {
            self.decide_later(now, state);
        }
        Ok(())
    }

    /// Whether all children lost a packet because this relay did. Where IP multicast carries the data, children may
    /// have what this relay lost.
    fn lost_by_all(&self, number: u16, seq: Seq) -> bool {
        self.config.carriage == Carriage::Relays && self.tables.is_lost(number, seq)
    }

    /// Handles a NACK for a packet that has a state.
    fn repeated_nack(&mut self, now: Instant, state: u16, child: u16) -> Result<(), DropReason> {
        let known = has_bit(self.tables.subcast(state), child);
        let entry = *self.tables.state(state);
        if entry.phase == Phase::Repaired {
            if known {
                return Err(DropReason::Suppressed);
            }
            // The repair did not reach this child: a new round for it alone.
            self.tables.subcast_mut(state).fill(0);
            add(self.tables.subcast_mut(state), child);
            self.tables.state_mut(state).tries = 0;
            self.decide_later(now, state);
            return Ok(());
        }
        add(self.tables.subcast_mut(state), child);
        if entry.phase == Phase::SayAbsent {
            // ABSENT has not been sent: a NACK for this child goes up instead and means the same to the parent.
            self.ask_parent(state);
        } else if entry.replier == child {
            match entry.phase {
                Phase::Deciding => {
                    self.tables.state_mut(state).replier = self.elect(state, child);
                }
                Phase::AskReplier | Phase::Asked => self.move_on(state),
                _ => {}
            }
        } else if known {
            return Err(DropReason::Suppressed);
        }
        Ok(())
    }

    /// Collects NACKs for the delay to decide. The default replier is elected now, another one as soon as it turns out
    /// to have lost the packet.
    fn decide_later(&mut self, now: Instant, state: u16) {
        let number = self.tables.session_of(state);
        let start = self.first_replier(state);
        let replier = self.elect(state, start);
        let entry = self.tables.state_mut(state);
        entry.phase = Phase::Deciding;
        entry.replier = replier;
        let until = now + self.delay_to_decide(number);
        self.tables.wheel.set(state, until);
    }

    fn first_replier(&self, state: u16) -> u16 {
        let children = self.tables.session(self.tables.session_of(state)).children;
        match self.config.default_replier {
            DefaultReplier::First => 0,
            DefaultReplier::Spread => {
                (self.tables.state(state).seq.0 % u32::from(children.max(1))) as u16
            }
        }
    }

    /// Returns the next child that did not lose the packet, from `from` on and once around.
    fn elect(&self, state: u16, from: u16) -> u16 {
        let start = self.first_replier(state);
        let found = self.tables.candidate(state, from);
        if start == 0 || (found != NONE && from >= start) {
            return found;
        }
        let found = if from >= start {
            self.tables.candidate(state, 0)
        } else {
            found
        };
        if found < start { found } else { NONE }
    }

    /// The replier lacks the packet or is silent: asks the next one, or the parent.
    pub(super) fn move_on(&mut self, state: u16) {
        let after = self.tables.state(state).replier.saturating_add(1);
        let next = self.elect(state, after);
        let tries = self.tables.state(state).tries + 1;
        self.tables.state_mut(state).tries = tries;
        self.tables.state_mut(state).replier = next;
        if tries < self.config.replier_tries.max(1) && next != NONE {
            self.ask_replier(state);
        } else {
            self.ask_parent(state);
        }
    }

    /// Ends the delay to decide: asks the elected replier, or the parent.
    pub(super) fn decide(&mut self, state: u16) {
        let number = self.tables.session_of(state);
        let replier = self.tables.state(state).replier;
        if replier != NONE && self.tables.is_member(number, replier) {
            self.ask_replier(state);
        } else {
            self.ask_parent(state);
        }
    }

    fn ask_replier(&mut self, state: u16) {
        self.tables.state_mut(state).phase = Phase::AskReplier;
        self.tables.wheel.make_ready(state);
    }

    /// No child has the packet: asks the parent or, if only the parent asked for it, answers ABSENT.
    pub(super) fn ask_parent(&mut self, state: u16) {
        let number = self.tables.session_of(state);
        let entry = self.tables.state(state);
        let no_child_asked = self.tables.subcast(state).iter().all(|&word| word == 0);
        let seq = entry.seq;
        if entry.for_parent && no_child_asked && !self.lost_by_all(number, seq) {
            self.tables.state_mut(state).phase = Phase::SayAbsent;
        } else {
            let entry = self.tables.state_mut(state);
            entry.phase = Phase::AskParent;
            entry.for_parent = false;
            entry.replier = NONE;
            entry.tries = 0;
        }
        self.tables.wheel.make_ready(state);
    }

    /// Handles one packet of a NACK from the parent, which elected this relay as replier.
    fn nack_from_parent(&mut self, number: u16, seq: Seq) {
        if let Some(state) = self.tables.find_state(number, seq) {
            match self.tables.state(state).phase {
                // This relay's own NACK to the parent is the answer.
                Phase::AskParent | Phase::Upstream | Phase::SayAbsent => {}
                Phase::Deciding | Phase::AskReplier | Phase::Asked => {
                    self.tables.state_mut(state).for_parent = true;
                }
                _ => {
                    self.tables.subcast_mut(state).fill(0);
                    self.tables.state_mut(state).tries = 0;
                    self.decide_for_parent(state);
                }
            }
            return;
        }
        match self.tables.new_state(number, seq) {
            Some(state) => self.decide_for_parent(state),
            None => self.stats.drops.count(DropReason::NackStatesFull),
        }
    }

    /// Asks the default replier at once, since no child has asked.
    fn decide_for_parent(&mut self, state: u16) {
        let number = self.tables.session_of(state);
        let seq = self.tables.state(state).seq;
        let replier = self.elect(state, self.first_replier(state));
        let entry = self.tables.state_mut(state);
        entry.for_parent = true;
        entry.replier = replier;
        if self.lost_by_all(number, seq) {
            self.ask_parent(state);
        } else {
            self.decide(state);
        }
    }

    pub(super) fn absent(
        &mut self,
        number: u16,
        from: Addr,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DropReason> {
        self.same_session(number, packet.session())?;
        let origin = self.origin(number, from, packet.child())?;
        for seq in packets(packet.sequence(), packet.absent_mask()) {
            let Some(state) = self.tables.find_state(number, seq) else {
                continue;
            };
            let entry = *self.tables.state(state);
            match (entry.phase, origin) {
                // The last replier lacks it.
                (Phase::Upstream, Origin::Above) => {
                    self.stats.given_up = self.stats.given_up.wrapping_add(1);
                    self.tables.free_state(state);
                }
                (Phase::Asked, Origin::Child(child)) if entry.replier == child => {
                    self.stats.absent = self.stats.absent.wrapping_add(1);
                    add(self.tables.subcast_mut(state), child);
                    self.move_on(state);
                }
                _ => self.stats.drops.count(DropReason::Unrequested),
            }
        }
        Ok(())
    }

    pub(super) fn ack(
        &mut self,
        number: u16,
        from: Addr,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DropReason> {
        let Origin::Child(child) = self.origin(number, from, packet.child())? else {
            return Err(DropReason::WrongWay);
        };
        self.same_session(number, packet.session())?;
        self.note_ack(number, child, packet.sequence());
        Ok(())
    }

    /// Records that a child has everything before `ack`. Acknowledgements only advance.
    fn note_ack(&mut self, number: u16, child: u16, ack: Seq) {
        let newest = self.tables.session(number).track.newest();
        if newest.is_none_or(|newest| newest.plus(1).before(ack)) {
            self.stats.drops.count(DropReason::NotSent);
            return;
        }
        let acked = has_bit(self.tables.set(number, Set::Acked), child);
        if acked && !self.tables.child(number, child).ack.before(ack) {
            return;
        }
        let advanced = self.stall_clock(self.now);
        let entry = self.tables.child_mut(number, child);
        (entry.ack, entry.advanced) = (ack, advanced);
        self.tables.set_acked(number, child);
        let due = self.now + self.config.ack_interval;
        let session = self.tables.session_mut(number);
        if session.acks.due == NEVER {
            session.acks.due = due;
            self.set_timer(number);
        }
    }
}

fn add(list: &mut [u64], child: u16) {
    list[usize::from(child) / 64] |= 1 << (child % 64);
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    #[test]
    fn a_mask_names_the_packets_after_the_first() {
        let of = |first, mask| {
            packets(Seq(first), mask)
                .map(|seq| seq.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(7, 0), [7]);
        assert_eq!(of(u32::MAX, 0b101), [u32::MAX, 0, 2]);
        assert_eq!(of(0, 1 << 63), [0, 64]);
        assert_eq!(of(0, u64::MAX).len(), 65);
    }
}
