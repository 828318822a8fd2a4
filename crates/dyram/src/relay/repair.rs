//! The repair service: subcast to the children that lost the packet (DyRAM §3.2.3).

use proto_core::time::Instant;

use super::table::Phase;
use super::{Fanout, Origin, Relay, Verdict};
use crate::config::Carriage;
use crate::stats::DropReason;
use crate::track::Arrival;
use crate::types::Addr;
use crate::wire::{NO_CHILD, Packet};

impl Relay<'_> {
    pub(super) fn repair(
        &mut self,
        now: Instant,
        number: u16,
        from: Addr,
        packet: &mut Packet<&mut [u8]>,
    ) -> Result<Verdict, DropReason> {
        if self.tables.session(number).id != Some(packet.session()) {
            return Err(DropReason::OtherSession);
        }
        match self.origin(number, from, packet.child())? {
            Origin::Above => self.repair_from_above(now, number, packet),
            Origin::Child(child) => self.repair_from_below(now, number, child, packet),
        }
    }

    /// Forwards a repair of the replier that was asked to the children that lost the packet, and to the parent if it asked.
    fn repair_from_below(
        &mut self,
        now: Instant,
        number: u16,
        child: u16,
        packet: &mut Packet<&mut [u8]>,
    ) -> Result<Verdict, DropReason> {
        let state = self
            .tables
            .find_state(number, packet.sequence())
            .ok_or(DropReason::Unrequested)?;
        let entry = *self.tables.state(state);
        if entry.phase != Phase::Asked || entry.replier != child {
            return Err(DropReason::Unrequested);
        }
        self.stats.repaired_below = self.stats.repaired_below.wrapping_add(1);
        let session = self.tables.session_mut(number);
        session.answer.sample(entry.asked, now);
        let parent = session.parent.as_ref();
        packet.set_child(parent.map_or(NO_CHILD, |parent| parent.child()));
        self.mark_repaired(now, state);
        Ok(Verdict::Send(Fanout {
            session: number,
            state: Some(state),
            up: entry.for_parent,
        }))
    }

    /// Forwards a repair from above: to all children if this relay lost the packet, else to those that asked.
    fn repair_from_above(
        &mut self,
        now: Instant,
        number: u16,
        packet: &Packet<&mut [u8]>,
    ) -> Result<Verdict, DropReason> {
        let seq = packet.sequence();
        let state = self.tables.find_state(number, seq);
        let pending = state.filter(|&state| self.tables.state(state).phase != Phase::Repaired);
        let lost = self.tables.is_lost(number, seq);
        if pending.is_none() && !lost {
            return Err(DropReason::Unrequested);
        }
        self.stats.repaired_above = self.stats.repaired_above.wrapping_add(1);
        let mut all = false;
        if lost {
            let (track, window) = self.tables.track(number);
            if track.arrive(window, seq) == Arrival::Recovered {
                self.stats.recovered = self.stats.recovered.wrapping_add(1);
            }
            // Where IP multicast carries the data, the children may have what this relay lost.
            all = self.config.carriage == Carriage::Relays;
        }
        if let Some(state) = pending {
            if all {
                self.tables.subcast_to_all(state);
            }
            self.mark_repaired(now, state);
        }
        let state = pending.filter(|_| !all);
        let wanted = state.is_some_and(|state| self.tables.subcast(state).iter().any(|&w| w != 0));
        if !all && !wanted {
            return Ok(Verdict::Done);
        }
        Ok(Verdict::Send(Fanout {
            session: number,
            state,
            up: false,
        }))
    }
}
