//! LMS-HIER inside the router: it follows the entries and sets their repliers.
//!
//! It is inactive unless the policy is [`Policy::Hierarchy`].

use super::{Event, InterfaceError, Policy, Router};
use crate::hier::{self, Changed, Cost, Elected, Hierarchy};
use crate::table::{EntryId, InstallError, Neighbour, Replier};
use crate::{Family, Iface, Instant, InterfaceConfig, Key, Meta, NextHop, Transmit};

impl<'a, A: Family> Router<'a, A> {
    /// An IGMP packet or an LMS-HIER message arrived, a whole IPv4 packet. Does nothing unless the
    /// policy is [`Policy::Hierarchy`].
    ///
    /// # Errors
    /// The whole packet was refused; only the counter of the reason, in [`Hierarchy::stats`], has changed.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &[u8],
    ) -> Result<(), hier::DropReason> {
        if self.policy != Policy::Hierarchy {
            return Ok(());
        }
        let table = &self.table;
        let is_downstream = |key, iface| {
            table
                .find(key)
                .is_some_and(|id| table.is_downstream(id, iface))
        };
        let result = self
            .hierarchy
            .handle_packet_with(now, meta, packet, is_downstream);
        self.hierarchy_apply();
        result
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.hierarchy.handle_timeout(now);
        self.hierarchy_apply();
    }

    /// The next message to send, a whole IPv4 packet; `buffer` should have room for 1,068 bytes.
    /// Drain until `None`.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit<A>> {
        self.hierarchy.poll_transmit(now, buffer)
    }

    /// When to call [`Router::handle_timeout`] and then [`Router::poll_transmit`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.hierarchy.poll_timeout()
    }

    /// LMS-HIER: neighbours, offers, counters.
    pub fn hierarchy(&self) -> &Hierarchy<'a, A> {
        &self.hierarchy
    }

    /// Puts into the entries what the hierarchy has elected.
    pub(super) fn hierarchy_apply(&mut self) {
        while let Some(Changed { key, elected, .. }) = self.hierarchy.poll_event() {
            let Some(id) = self.table.find(key) else {
                continue;
            };
            self.set_elected(id, elected);
            let replier = self.table.get(id).and_then(|entry| entry.replier());
            if !self.events.push(Event::Elected { key, replier }) {
                self.stats.events_lost += 1;
            }
        }
    }

    fn set_elected(&mut self, id: EntryId, elected: Option<Elected>) {
        let replier = elected.map(|Elected { iface, cost, peer }| Replier {
            iface,
            cost: cost.0,
            neighbour: match self.hierarchy.next_hop(peer) {
                NextHop::Neighbour { addr, .. } => Some(Neighbour { addr, link: None }),
                NextHop::Group | NextHop::Routed => None,
            },
        });
        if let Some(entry) = self.table.get_mut(id).filter(|entry| !entry.pinned) {
            entry.set_replier(replier, elected.map(|elected| elected.peer));
            self.table.changed(id);
        }
    }

    /// Gives an entry without a pinned replier the elected one.
    pub(super) fn hierarchy_choose(&mut self, id: EntryId) {
        let Some(key) = self.table.get(id).map(|entry| entry.key()) else {
            return;
        };
        if let Some(known) = self.hierarchy.find(key) {
            let elected = self.hierarchy.elected(known);
            let elected = elected.filter(|elected| self.table.is_downstream(id, elected.iface));
            self.set_elected(id, elected);
        }
    }

    /// Under a policy that knows it the hierarchy has all interfaces and entries, else none.
    pub(super) fn hierarchy_set_config(
        &mut self,
        now: Instant,
        before: Policy,
        config: hier::Config,
    ) {
        let (was, is) = (
            before == Policy::Hierarchy,
            self.policy == Policy::Hierarchy,
        );
        if was && is {
            if *self.hierarchy.config() != config {
                self.hierarchy.set_config(now, config);
            }
            return;
        }
        self.hierarchy.set_config(now, config);
        for id in self.table.handles() {
            let Some((key, parent)) = self.table.get(id).map(|e| (e.key(), e.parent)) else {
                continue;
            };
            if is {
                // An entry for which there is no room has no replier, as when it is installed.
                let _ = self.hierarchy.install(now, key, parent);
                let pinned = self.table.get(id).filter(|entry| entry.pinned);
                let pin = pinned.and_then(|entry| entry.replier());
                self.hierarchy_pin(now, id, pin);
            } else if was {
                self.hierarchy.remove(now, key);
            }
        }
        if is {
            for i in 0..self.interfaces.len() {
                if let Some(config) = self.interfaces[i].config {
                    // As above.
                    let _ = self.hierarchy.set_interface(now, Iface(i as u16), config);
                }
            }
        }
        self.hierarchy_apply();
    }

    pub(super) fn hierarchy_set_interface(
        &mut self,
        now: Instant,
        iface: Iface,
        config: InterfaceConfig<A>,
    ) -> Result<(), InterfaceError> {
        if self.policy != Policy::Hierarchy {
            return Ok(());
        }
        let result = self.hierarchy.set_interface(now, iface, config);
        self.hierarchy_apply();
        result.map_err(|_| InterfaceError::Limit)
    }

    pub(super) fn hierarchy_remove_interface(&mut self, now: Instant, iface: Iface) {
        self.hierarchy.remove_interface(now, iface);
        self.hierarchy_apply();
    }

    pub(super) fn hierarchy_remove_parent(&mut self, now: Instant, key: Key<A>) {
        if self.hierarchy.find(key).is_some() {
            // Where there is no room for the withdrawal, the offer expires at the old parent.
            let _ = self.hierarchy.install(now, key, Iface::UNSET);
        }
    }

    /// Before the table changes: offers from interfaces that leave the entry are forgotten.
    pub(super) fn hierarchy_install(
        &mut self,
        now: Instant,
        key: Key<A>,
        parent: Iface,
        downstream: &[Iface],
    ) -> Result<(), InstallError> {
        if self.policy != Policy::Hierarchy {
            return Ok(());
        }
        self.hierarchy
            .install(now, key, parent)
            .map_err(|_| InstallError::Full)?;
        if let Some(id) = self.table.find(key) {
            for gone in self
                .table
                .downstream(id)
                .filter(|iface| !downstream.contains(iface))
            {
                self.hierarchy.remove_downstream(now, key, gone);
            }
        }
        Ok(())
    }

    pub(super) fn hierarchy_remove(&mut self, now: Instant, key: Key<A>) {
        self.hierarchy.remove(now, key);
    }

    /// A replier set by hand is an offer like others to the parent; the one set before is not.
    pub(super) fn hierarchy_pin(&mut self, now: Instant, id: EntryId, replier: Option<Replier<A>>) {
        let Some(entry) = self
            .table
            .get(id)
            .filter(|_| self.policy == Policy::Hierarchy)
        else {
            return;
        };
        let key = entry.key();
        if let Some(Replier {
            iface,
            neighbour: Some(old),
            ..
        }) = entry.replier().filter(|_| entry.pinned)
        {
            self.hierarchy.clear_replier(now, key, iface, old.addr);
        }
        if let Some(Replier {
            iface,
            cost,
            neighbour: Some(new),
        }) = replier
        {
            // With full tables the parent is not notified; the pin holds nevertheless.
            let _ = self
                .hierarchy
                .set_replier(now, key, iface, new.addr, new.link, Cost(cost));
        }
    }
}

proto_core::impl_machine! {
    impl['a, A: Family] Router<'a, A> {
        Meta = Meta; Transmit = Transmit<A>; Event = Event<A>; Error = hier::DropReason;
    }
}
