//! The router machine: forwards requests and dmcasts, keeps the entries, speaks LMS-HIER.
//!
//! A driver
//!
//! 1. sets the router's interfaces ([`Router::set_interface`]) and, as routing changes, its
//!    entries ([`Router::install`], [`Router::remove`]);
//! 2. gives each captured packet to [`Router::forward`], and does what the [`Verdict`] says; a driver that captures several
//!    packets at a time first shows them all to [`Router::look_ahead`], which reads their entries together;
//! 3. under [`Policy::Hierarchy`] gives IGMP packets and LMS-HIER messages to
//!    [`Router::handle_packet`], sends what [`Router::poll_transmit`] writes until it is `None`, and
//!    calls [`Router::handle_timeout`] at [`Router::poll_timeout`];
//! 4. drains [`Router::poll_event`], and for [`Event::SourceWanted`] looks for the source
//!    ([`Router::source_seen`]).
//!
//! # What a dmcast must show
//!
//! A dmcast makes the router multicast a packet that claims to be the source's, so it counts only as
//! an answer: a request that this router turned lets [`Config::repairs_per_request`] of them pass
//! for [`Config::repair_time`], from any direction; each spends one. A request that is forwarded
//! towards the source, or that another router has turned, lets none pass here. Under
//! [`Policy::SearchParty`] each turned copy counts. What was open is lost with the entry, and with a
//! restart: the receiver asks again.
//!
//! The turning-point interface is a number that only this router can read ([`NUMBER_ROTATION`]), and a cookie proves that
//! this router wrote it. A dmcast in the classic form has no cookie: it passes only for [`Config::repair_time`] after a
//! request in that form has turned, which requests in other forms do not prolong. Its wrong numbers have a limit for each
//! interface that they arrive on (64 at once, 10 a second), above which dmcasts in that form that arrive there are dropped.
//! The outer source is a unicast address, not of this router and not of another of its links than the one it arrived on. The
//! inner packet is a whole UDP datagram without IPv4 options, from the entry's own source; for a shared tree, `(*, G)`, from
//! a source that the driver has seen in the last [`SOURCE_LIFETIME`].
//!
//! All times are those of the driver's clock and must not run backwards.

mod config;
mod cookies;
mod event;
mod forward;
mod hierarchy;
mod look_ahead;
mod numbers;
mod policy;
mod sources;
mod stats;
mod storage;
mod subnets;
mod verdict;

use core::net::Ipv4Addr;
use core::num::NonZeroU16;

use managed::ManagedSlice;
use proto_core::{RateLimit, TokenBucket};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

pub use config::{Config, Policy, Rate};
pub use event::Event;
pub use igmp::Meta;
pub use numbers::NUMBER_ROTATION;
pub use sources::{SOURCE_LIFETIME, SeenSource};
pub use stats::{DropReason, Drops, Stats};
pub use verdict::{Output, SecondCopy, Verdict};

pub(crate) use self::cookies::Cookies;
use self::event::Events;
pub(crate) use self::forward::check_dmcast;
pub(crate) use self::numbers::Numbers;
use self::sources::Sources;
use self::subnets::Subnets;
use crate::hier::{self, Hierarchy};
use crate::table::{
    self, CreditLimit, EntryId, GroupTable, HashKey, Index, InstallError, Replier, Slot,
};
use crate::{Family, Iface, Instant, InterfaceConfig, Key};

/// Storage of a [`Router`]: borrowed (see [`router_storage!`](crate::router_storage)), or owned with feature `alloc`. Nothing in it grows.
#[derive(Debug)]
pub struct Storage<'a, A = Ipv4Addr> {
    /// The group table's.
    pub table: table::Storage<'a, A>,
    /// One for each interface number.
    pub interfaces: ManagedSlice<'a, Interface<A>>,
    /// Index from address to interface: a power of two, at least five fourths as many as
    /// interfaces.
    pub addresses: ManagedSlice<'a, Slot>,
    /// Index from subnet to interface, as large as `addresses`.
    pub subnets: ManagedSlice<'a, Slot>,
    /// One for each source that may be seen in shared trees at a time; may be empty where there is no
    /// `(*, G)` entry.
    pub sources: ManagedSlice<'a, SeenSource<A>>,
    /// LMS-HIER's; may be empty unless the policy is [`Policy::Hierarchy`].
    pub hierarchy: hier::Storage<'a, A>,
}

#[cfg(feature = "alloc")]
impl<A: Family> Storage<'static, A> {
    /// Storage on the heap for `groups` entries and interface numbers below `iface_limit`, with
    /// room for two offers a group from 1,024 neighbours and more, and for a quarter as many
    /// sources of shared trees as groups.
    pub fn with_capacity(groups: usize, iface_limit: usize) -> Self {
        use alloc::vec;
        let hierarchy = hier::Capacity {
            // Some more: a removed entry stays until its withdrawals are sent.
            entries: groups + groups / 8 + 16,
            neighbours: 2 * groups + 256,
            peers: 2 * iface_limit + 1_024,
            branches: 2 * groups + 256,
            interfaces: iface_limit,
        };
        Storage {
            table: table::Storage::with_capacity(groups, iface_limit),
            interfaces: vec![Interface::default(); iface_limit].into(),
            addresses: vec![Slot::default(); table::min_slots(iface_limit)].into(),
            subnets: vec![Slot::default(); table::min_slots(iface_limit)].into(),
            sources: vec![SeenSource::default(); groups / 4 + 16].into(),
            hierarchy: hier::Storage::owned(hierarchy),
        }
    }

    /// The same with another capacity for LMS-HIER.
    pub fn with_hierarchy(self, capacity: hier::Capacity) -> Self {
        Storage {
            hierarchy: hier::Storage::owned(capacity),
            ..self
        }
    }
}

/// One interface of a router, empty until it is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface<A = Ipv4Addr> {
    config: Option<InterfaceConfig<A>>,
    /// Dmcasts with wrong interface numbers that may still arrive here.
    pub(crate) wrong_numbers: TokenBucket,
}

impl<A> Default for Interface<A> {
    fn default() -> Self {
        Interface {
            config: None,
            wrong_numbers: TokenBucket::FULL,
        }
    }
}

/// Dmcasts with wrong interface numbers, for each interface that they arrive on.
const WRONG_NUMBERS: Rate = Rate {
    per_second: 10,
    burst: 64,
};

proto_core::errors! {
    /// Why a command about an interface is refused; nothing has changed then.
    pub enum InterfaceError {
        /// The number is beyond what the storage was made for.
        Limit = "the interface number is beyond the router's limit",
        /// The address is not a unicast address.
        Address = "the interface's address is not a unicast address",
    }
}

proto_core::errors! {
    /// Why a replier cannot be set by hand; nothing has changed then.
    pub enum ReplierError {
        /// There is no entry with this key.
        NoEntry = "there is no such entry",
        /// The interface is not downstream in the entry.
        NotDownstream = "the replier's interface is not downstream there",
    }
}

/// The router machine of one address family; a router that forwards both has two.
#[derive(Debug)]
pub struct Router<'a, A = Ipv4Addr> {
    pub(crate) policy: Policy,
    pub(crate) udp_port: Option<NonZeroU16>,
    pub(crate) request_limit: RateLimit,
    pub(crate) dmcast_limit: RateLimit,
    pub(crate) wrong_number_limit: RateLimit,
    pub(crate) credit_limit: CreditLimit,
    pub(crate) table: GroupTable<'a, A>,
    pub(crate) interfaces: ManagedSlice<'a, Interface<A>>,
    addresses: Index<'a>,
    address_hash: HashKey,
    subnets: Subnets<'a, A>,
    sources: Sources<'a, A>,
    numbers: Numbers,
    cookies: Cookies,
    pub(crate) hierarchy: Hierarchy<'a, A>,
    events: Events<A>,
    rng: ChaCha8Rng,
    stats: Stats,
}

impl<'a, A: Family> Router<'a, A> {
    /// A router with no interfaces and no entries.
    pub fn new(config: Config, storage: Storage<'a, A>, seed: [u8; 32], now: Instant) -> Self {
        let Storage {
            table,
            mut interfaces,
            addresses,
            subnets,
            sources,
            hierarchy,
        } = storage;
        let mut rng = ChaCha8Rng::from_seed(seed);
        interfaces.fill(Interface::default());
        let mut hierarchy_seed = [0; 32];
        rng.fill_bytes(&mut hierarchy_seed);
        Router {
            policy: config.policy,
            udp_port: config.udp_port,
            request_limit: config.request_rate.into(),
            dmcast_limit: config.dmcast_rate.into(),
            wrong_number_limit: WRONG_NUMBERS.into(),
            credit_limit: CreditLimit::new(config.repairs_per_request, config.repair_time),
            table: GroupTable::new(table, (rng.next_u64(), rng.next_u64())),
            interfaces,
            addresses: Index::new(addresses),
            address_hash: HashKey::random(&mut rng),
            subnets: Subnets::new(subnets, HashKey::random(&mut rng)),
            sources: Sources::new(sources, HashKey::random(&mut rng)),
            numbers: Numbers::new(&mut rng),
            cookies: Cookies::new(&mut rng),
            hierarchy: Hierarchy::new(config.hierarchy, hierarchy, hierarchy_seed, now),
            events: Events::default(),
            rng,
            stats: Stats::default(),
        }
    }

    /// Changes the configuration: limits count from now on, a replier that the old policy chose
    /// gives way to the new one's (one set by hand stays). Walks all entries.
    pub fn set_config(&mut self, now: Instant, config: Config) {
        self.udp_port = config.udp_port;
        self.request_limit = config.request_rate.into();
        self.dmcast_limit = config.dmcast_rate.into();
        self.credit_limit = CreditLimit::new(config.repairs_per_request, config.repair_time);
        let before = core::mem::replace(&mut self.policy, config.policy);
        self.hierarchy_set_config(now, before, config.hierarchy);
        if before == config.policy {
            return;
        }
        for id in self.table.handles() {
            if let Some(entry) = self.table.get_mut(id).filter(|entry| !entry.pinned) {
                entry.set_replier(None, None);
                self.table.changed(id);
            }
            self.choose_replier(id);
        }
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The entries.
    pub fn table(&self) -> &GroupTable<'a, A> {
        &self.table
    }

    /// What an interface was set to.
    pub fn interface(&self, iface: Iface) -> Option<InterfaceConfig<A>> {
        self.config(usize::from(iface.0)).copied()
    }

    #[inline]
    fn config(&self, iface: usize) -> Option<&InterfaceConfig<A>> {
        self.interfaces.get(iface)?.config.as_ref()
    }

    /// All interfaces that are set, by number.
    pub fn interfaces(&self) -> impl Iterator<Item = (Iface, InterfaceConfig<A>)> + '_ {
        let numbered = self.interfaces.iter().enumerate();
        numbered.filter_map(|(i, interface)| Some((Iface(i as u16), interface.config?)))
    }

    /// Adds an interface, or changes one.
    ///
    /// # Errors
    /// [`InterfaceError::Address`] when the address is not unicast; [`InterfaceError::Limit`] when the number is
    /// beyond the storage, or the hierarchy has no room for another interface.
    pub fn set_interface(
        &mut self,
        now: Instant,
        iface: Iface,
        config: InterfaceConfig<A>,
    ) -> Result<(), InterfaceError> {
        let i = usize::from(iface.0);
        let a = config.address;
        if !a.is_unicast() {
            return Err(InterfaceError::Address);
        }
        let room = self.addresses.capacity().min(self.subnets.capacity());
        if i >= self.interfaces.len().min(room) {
            return Err(InterfaceError::Limit);
        }
        self.hierarchy_set_interface(now, iface, config)?;
        self.forget_address(iface);
        self.interfaces[i].config = Some(config);
        self.addresses
            .insert(a.hash_numbered(0, &self.address_hash), u32::from(iface.0));
        self.subnets.insert(iface, config);
        Ok(())
    }

    /// Removes an interface: it leaves all entries; where it was the parent, the entry has none
    /// until it is installed again. Walks all entries.
    pub fn remove_interface(&mut self, now: Instant, iface: Iface) {
        if !iface.is_set() {
            return;
        }
        self.forget_address(iface);
        for id in self.table.handles() {
            if let Some(entry) = self.table.get_mut(id).filter(|entry| entry.parent == iface) {
                entry.parent = Iface::UNSET;
                let key = entry.key();
                self.table.changed(id);
                self.hierarchy_remove_parent(now, key);
            }
            if self.table.remove_downstream(id, iface) {
                self.check_replier(id);
            }
        }
        self.hierarchy_remove_interface(now, iface);
    }

    fn forget_address(&mut self, iface: Iface) {
        let Some(old) = self.interface(iface) else {
            return;
        };
        let (key, interfaces) = (self.address_hash, &self.interfaces);
        let config_of = |i: u32| interfaces.get(i as usize)?.config;
        let hash_of =
            |i: u32| config_of(i).map_or(0, |config| config.address.hash_numbered(0, &key));
        let hash = old.address.hash_numbered(0, &key);
        self.addresses.remove(hash, u32::from(iface.0), hash_of);
        self.subnets.remove(iface, old, config_of);
        self.interfaces[usize::from(iface.0)].config = None;
    }

    /// Whether `address` is that of one of the interfaces.
    #[inline]
    fn is_own_address(&self, address: A, arrival: Iface) -> bool {
        let is = |iface: usize| {
            let config = self.config(iface);
            config.is_some_and(|config| config.address == address)
        };
        // A dmcast comes in where the request went out: mostly this answers it.
        is(usize::from(arrival.0))
            || self
                .addresses
                .find(address.hash_numbered(0, &self.address_hash), |i| {
                    is(i as usize)
                })
                .is_some()
    }

    /// Whether a packet from `address` may come in by `arrival`: a host's address, not this router's,
    /// and not of another of its links.
    #[inline]
    fn may_come_from(&self, address: A, arrival: Iface) -> bool {
        if !address.is_host() {
            return false;
        }
        let here = self.config(usize::from(arrival.0));
        if let Some(here) = here.filter(|here| here.on_link(address)) {
            return !here.is_reserved(address) && !self.is_own_address(address, arrival);
        }
        // The subnets have this router's own addresses too.
        let config_of = |i: u32| self.config(i as usize).copied();
        !address.is_link_local() && !self.subnets.contain(address, config_of)
    }

    /// A datagram of this source to this group arrived on `iface`: the kernel has seen the source.
    /// Its repairs may enter the shared tree of the group for [`SOURCE_LIFETIME`]. False where
    /// nothing was recorded: there is no shared tree with this parent, the source is no host,
    /// or there is no room.
    pub fn source_seen(&mut self, now: Instant, iface: Iface, key: Key<A>) -> bool {
        let shared = self.table.find(Key::any_source(key.group));
        let parent = shared.and_then(|id| self.table.get(id)).map(|e| e.parent);
        parent == Some(iface)
            && iface.is_set()
            && key.source.is_host()
            && self.sources.note(now, key)
    }

    /// Adds an entry, or changes parent and downstream interfaces of the one with this key (its
    /// replier stays if its interface does).
    ///
    /// # Errors
    /// As [`GroupTable::install`]; also [`InstallError::Full`] when the hierarchy has no room for the entry.
    pub fn install(
        &mut self,
        now: Instant,
        key: Key<A>,
        parent: Iface,
        downstream: &[Iface],
    ) -> Result<EntryId, InstallError> {
        self.table.check(key, parent, downstream)?;
        self.hierarchy_install(now, key, parent, downstream)?;
        let id = self.table.install(key, parent, downstream)?;
        self.check_replier(id);
        self.hierarchy_apply();
        Ok(id)
    }

    /// Removes an entry; false where there was none.
    pub fn remove(&mut self, now: Instant, key: Key<A>) -> bool {
        self.hierarchy_remove(now, key);
        self.table.remove(key).is_some()
    }

    /// Sets the replier of an entry by hand; no policy moves it until it is set to `None`, or its
    /// interface leaves the entry. The parent is notified of its cost if the neighbour is given.
    ///
    /// # Errors
    /// [`ReplierError::NoEntry`] when no entry has this key; [`ReplierError::NotDownstream`] when the replier's
    /// interface is not downstream in the entry.
    pub fn set_replier(
        &mut self,
        now: Instant,
        key: Key<A>,
        replier: Option<Replier<A>>,
    ) -> Result<(), ReplierError> {
        let id = self.table.find(key).ok_or(ReplierError::NoEntry)?;
        if replier.is_some_and(|replier| !self.table.is_downstream(id, replier.iface)) {
            return Err(ReplierError::NotDownstream);
        }
        self.hierarchy_pin(now, id, replier);
        let entry = self.table.get_mut(id).ok_or(ReplierError::NoEntry)?;
        entry.pinned = replier.is_some();
        entry.set_replier(replier, None);
        self.table.changed(id);
        self.choose_replier(id);
        self.hierarchy_apply();
        Ok(())
    }

    /// Takes the replier back where its interface has left the entry.
    fn check_replier(&mut self, id: EntryId) {
        let Some(entry) = self.table.get(id) else {
            return;
        };
        let iface = entry.replier_iface();
        if !iface.is_set() || self.table.is_downstream(id, iface) {
            return;
        }
        if let Some(entry) = self.table.get_mut(id) {
            entry.pinned = false;
            entry.set_replier(None, None);
            self.table.changed(id);
        }
        self.choose_replier(id);
    }

    /// Lets the policy choose anew where nothing is pinned.
    fn choose_replier(&mut self, id: EntryId) {
        if self.table.get(id).is_some_and(|entry| !entry.pinned) {
            self.hierarchy_choose(id);
        }
    }

    /// The secrets: key of the table, cookies, numbers.
    pub(crate) fn secrets(&self) -> (Cookies, Numbers) {
        (self.cookies, self.numbers)
    }

    /// What happened since the last call; drain until `None`.
    pub fn poll_event(&mut self) -> Option<Event<A>> {
        self.events.pop()
    }
}
