//! IGMP and MLD proxying (RFC 4605): one upstream interface, the rest downstream.

use core::net::Ipv4Addr;

use managed::ManagedSlice;

use super::{DropReason, Event, FilterMode, Member, Querier, Role};
use crate::{Family, Iface, Instant, InterfaceConfig, Key, Meta, Transmit};

/// What the router must act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyEvent<A = Ipv4Addr> {
    /// Where packets of this group go changed: ask [`Proxy::downstream`] again for its `(*, G)`
    /// and for each `(S, G)` that packets come of.
    Changed {
        /// The group.
        group: A,
    },
    /// This router became the querier of a downstream link, or another router did: ask again for every group.
    Role {
        /// The interface.
        iface: Iface,
        /// The role.
        role: Role<A>,
    },
}

/// The machine: merges the memberships of the downstream interfaces, reports them upstream as a host, and says where
/// packets go.
///
/// A packet from upstream goes to each downstream interface with receivers on which this router is the querier; one from downstream goes upstream as well (RFC 4605 §4.2), for which a route of its
/// own is the driver's choice. The merged state is EXCLUDE where any interface's is: it
/// excludes what all of these exclude and no interface includes. Else it is INCLUDE of all that any interface includes
/// (§4.1).
///
/// Work for one packet grows with the number of downstream interfaces and the sources of one
/// group, not with the number of groups.
#[derive(Debug)]
pub struct Proxy<'a, A = Ipv4Addr> {
    upstream: Member<'a, A>,
    /// In order of their interfaces.
    downstream: ManagedSlice<'a, Querier<'a, A>>,
    /// Where the next round of polling starts, so that no interface starves another.
    turn: usize,
    last_now: Instant,
}

impl<'a, A: Family> Proxy<'a, A> {
    /// A proxy of machines that are configured for their interfaces. Two queriers for one
    /// interface make no sense: one of them gets its packets.
    pub fn new(
        upstream: Member<'a, A>,
        mut downstream: ManagedSlice<'a, Querier<'a, A>>,
        now: Instant,
    ) -> Self {
        downstream.sort_unstable_by_key(|querier| querier.config().iface);
        Proxy {
            upstream,
            downstream,
            turn: 0,
            last_now: now,
        }
    }

    /// Adds a downstream interface that appeared later, or replaces its machine; hands the machine
    /// back if the storage is borrowed. Query every group again.
    #[cfg(feature = "alloc")]
    pub fn add_downstream(
        &mut self,
        now: Instant,
        querier: Querier<'a, A>,
    ) -> Option<Querier<'a, A>> {
        let iface = querier.config().iface;
        self.remove_downstream(now, iface);
        let ManagedSlice::Owned(queriers) = &mut self.downstream else {
            return Some(querier);
        };
        let at = queriers.partition_point(|q| q.config().iface < iface);
        queriers.insert(at, querier);
        None
    }

    /// Removes a downstream interface and its memberships; false where there is none, or the memory
    /// is borrowed. Query every group again.
    #[cfg(feature = "alloc")]
    pub fn remove_downstream(&mut self, now: Instant, iface: Iface) -> bool {
        let ManagedSlice::Owned(queriers) = &mut self.downstream else {
            return false;
        };
        let Ok(at) = queriers.binary_search_by_key(&iface, |q| q.config().iface) else {
            return false;
        };
        let gone = queriers.remove(at);
        for (group, _) in gone.groups() {
            self.report_upstream(now, group);
        }
        true
    }

    /// Changes this router's addresses on an interface and keeps the memberships; false where no machine has the
    /// interface.
    pub fn set_interface(
        &mut self,
        now: Instant,
        iface: Iface,
        interface: InterfaceConfig<A>,
    ) -> bool {
        self.last_now = now;
        match self
            .downstream
            .binary_search_by_key(&iface, |q| q.config().iface)
        {
            Ok(at) => self.downstream[at].set_interface(now, interface),
            Err(_) if iface == self.parent() => self.upstream.set_interface(now, interface),
            Err(_) => return false,
        }
        true
    }

    /// The upstream machine, to look at.
    pub fn upstream(&self) -> &Member<'a, A> {
        &self.upstream
    }

    /// The downstream machines, to look at.
    pub fn queriers(&self) -> &[Querier<'a, A>] {
        &self.downstream
    }

    /// Handles a membership packet, a whole IP packet, from any interface.
    ///
    /// # Errors
    /// The packet was dropped and counted by the machine of its interface;
    /// [`DropReason::WrongInterface`] when no machine has that interface.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        self.last_now = now;
        match self
            .downstream
            .binary_search_by_key(&meta.iface, |q| q.config().iface)
        {
            Ok(at) => self.downstream[at].handle_packet(now, meta, packet),
            Err(_) => self.upstream.handle_packet(now, meta, packet),
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.last_now = now;
        self.upstream.handle_timeout(now);
        for querier in self.downstream.iter_mut() {
            if querier.poll_timeout().is_some_and(|at| at <= now) {
                querier.handle_timeout(now);
            }
        }
    }

    /// Returns the next event; drain until `None` after every other call. This also reports changes upstream.
    pub fn poll_event(&mut self) -> Option<ProxyEvent<A>> {
        for querier in self.downstream.iter_mut() {
            let iface = querier.config().iface;
            match querier.poll_event() {
                None => {}
                Some(Event::Role(role)) => return Some(ProxyEvent::Role { iface, role }),
                Some(Event::Changed { group }) => {
                    self.report_upstream(self.last_now, group);
                    return Some(ProxyEvent::Changed { group });
                }
            }
        }
        None
    }

    /// Merges the memberships of a group (RFC 4605 §4.1).
    fn report_upstream(&mut self, now: Instant, group: A) {
        let downstream = &self.downstream;
        let excluding = downstream
            .iter()
            .find(|q| q.mode(group) == FilterMode::Exclude);
        // What does not fit upstream is counted there.
        let _ = match excluding {
            Some(first) => {
                let unwanted = |s: &A| !downstream.iter().any(|q| q.wants(*s, group));
                let sources = first.sources(group, false).filter(unwanted);
                self.upstream.set(now, group, FilterMode::Exclude, sources)
            }
            None => {
                let sources = downstream.iter().flat_map(|q| q.sources(group, true));
                self.upstream.set(now, group, FilterMode::Include, sources)
            }
        };
    }

    /// Returns the upstream interface.
    pub fn parent(&self) -> Iface {
        self.upstream.config().iface
    }

    /// Returns the interfaces that packets from upstream go to: those of one source, or with `(*, G)` those of every source
    /// that no membership names.
    pub fn downstream(&self, key: Key<A>) -> impl Iterator<Item = Iface> {
        self.downstream
            .iter()
            .filter(|querier| querier.role() == Role::Querier)
            .filter(move |querier| match key.is_any_source() {
                true => querier.mode(key.group) == FilterMode::Exclude,
                false => querier.wants(key.source, key.group),
            })
            .map(|querier| querier.config().iface)
    }

    /// Returns the groups with receivers; a group comes once for each interface.
    pub fn groups(&self) -> impl Iterator<Item = A> {
        self.downstream
            .iter()
            .flat_map(|querier| querier.groups().map(|(group, _)| group))
    }

    /// Returns the sources of a group for which a route `(S, G)` differs from `(*, G)`: an interface includes or excludes
    /// them. A source comes once for each interface.
    pub fn sources(&self, group: A) -> impl Iterator<Item = A> {
        self.downstream
            .iter()
            .flat_map(move |q| q.sources(group, true).chain(q.sources(group, false)))
    }

    /// Writes the next report or query to send, a whole IP packet; 1,500 bytes of `buffer` serve.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit<A>> {
        if let Some(transmit) = self.upstream.poll_transmit(now, buffer) {
            return Some(transmit);
        }
        let count = self.downstream.len();
        for _ in 0..count {
            let at = self.turn % count;
            if let Some(transmit) = self.downstream[at].poll_transmit(now, buffer) {
                return Some(transmit);
            }
            self.turn = at + 1;
        }
        None
    }

    /// When to call `handle_timeout` and `poll_transmit`.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let queriers = self.downstream.iter().filter_map(Querier::poll_timeout);
        queriers.chain(self.upstream.poll_timeout()).min()
    }
}

proto_core::impl_machine! {
    impl['a, A: Family] Proxy<'a, A> { Meta = Meta; Transmit = Transmit<A>; Event = ProxyEvent<A>; Error = DropReason; }
}
