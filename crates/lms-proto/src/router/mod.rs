//! The router machine: forwards requests and dmcasts, keeps the entries, speaks LMS-HIER.
//!
//! A driver
//!
//! 1. tells the router its interfaces ([`Router::set_interface`]) and, as routing changes, its
//!    entries ([`Router::install`], [`Router::remove`]);
//! 2. gives each captured packet to [`Router::forward`], and does what the [`Verdict`] says;
//! 3. under [`Policy::Hierarchy`] gives IGMP packets and LMS-HIER messages to
//!    [`Router::handle_packet`], sends what [`Router::poll_transmit`] writes until it is `None`, and
//!    calls [`Router::handle_timeout`] at [`Router::poll_timeout`];
//! 4. drains [`Router::poll_event`].
//!
//! All times are those of the driver's clock and must not run backwards.

mod config;
mod event;
mod forward;
mod hierarchy;
mod policy;
mod stats;
mod verdict;

use core::fmt;
use core::marker::PhantomData;
use core::net::Ipv4Addr;

use managed::ManagedSlice;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

pub use config::{Config, Policy, Rate};
pub use event::Event;
pub use stats::{DropReason, Stats};
pub use verdict::{Meta, Output, SecondCopy, Verdict};

use self::event::Events;
use crate::carrier::{Carrier, Ipv4Option};
use crate::hier::{self, Hierarchy};
use crate::table::{self, EntryId, GroupTable, HashKey, Index, InstallError, Limit, Replier, Slot};
use crate::{Iface, Instant, InterfaceConfig, Key};

/// Storage of a [`Router`]: lent, or owned with feature `alloc`. Nothing in it grows.
#[derive(Debug)]
pub struct Storage<'a> {
    /// The group table's.
    pub table: table::Storage<'a>,
    /// One for each interface number the router may be told of.
    pub interfaces: ManagedSlice<'a, Interface>,
    /// Index from address to interface: a power of two, at least five fourths as many as
    /// interfaces.
    pub addresses: ManagedSlice<'a, Slot>,
    /// LMS-HIER's; may be empty unless the policy is [`Policy::Hierarchy`].
    pub hierarchy: hier::Storage<'a>,
}

#[cfg(feature = "alloc")]
impl Storage<'static> {
    /// Storage on the heap for `groups` entries and interface numbers below `iface_limit`, with
    /// room for two offers a group from 1,024 neighbours and more.
    pub fn with_capacity(groups: usize, iface_limit: usize) -> Self {
        use alloc::vec;
        let hierarchy = hier::Capacity {
            // Some more: a removed entry leaves when its links have been told.
            entries: groups + groups / 8 + 16,
            neighbours: 2 * groups + 256,
            peers: 2 * iface_limit + 1_024,
            branches: 2 * groups + 256,
            interfaces: iface_limit,
        };
        Storage {
            table: table::Storage::with_capacity(groups, iface_limit),
            interfaces: vec![Interface::default(); iface_limit].into(),
            addresses: vec![Slot::default(); table::slots_for(iface_limit)].into(),
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
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Interface {
    config: Option<InterfaceConfig>,
}

/// Why a command about an interface is refused; nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum InterfaceError {
    /// The number is beyond what the storage was made for.
    Limit,
    /// The address is not a unicast address.
    Address,
}

impl fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InterfaceError::Limit => "the interface number is beyond the router's limit",
            InterfaceError::Address => "the interface's address is not a unicast address",
        })
    }
}

impl core::error::Error for InterfaceError {}

/// Why a replier cannot be set by hand; nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReplierError {
    /// There is no entry with this key.
    NoEntry,
    /// The interface is not downstream in the entry.
    NotDownstream,
}

impl fmt::Display for ReplierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReplierError::NoEntry => "there is no such entry",
            ReplierError::NotDownstream => "the replier's interface is not downstream there",
        })
    }
}

impl core::error::Error for ReplierError {}

/// The router machine. `C` is what carries LMS's option.
#[derive(Debug)]
pub struct Router<'a, C: Carrier = Ipv4Option> {
    policy: Policy,
    request_limit: Limit,
    dmcast_limit: Limit,
    table: GroupTable<'a>,
    interfaces: ManagedSlice<'a, Interface>,
    addresses: Index<'a>,
    address_hash: HashKey,
    hierarchy: Hierarchy<'a>,
    events: Events,
    rng: ChaCha8Rng,
    stats: Stats,
    carrier: PhantomData<C>,
}

impl<'a> Router<'a> {
    /// A router with no interfaces and no entries, whose messages travel in IPv4 options.
    pub fn new(config: Config, storage: Storage<'a>, seed: [u8; 32], now: Instant) -> Self {
        Router::with_carrier(config, storage, seed, now)
    }
}

impl<'a, C: Carrier> Router<'a, C> {
    /// A router with no interfaces and no entries.
    pub fn with_carrier(
        config: Config,
        storage: Storage<'a>,
        seed: [u8; 32],
        now: Instant,
    ) -> Self {
        let Storage {
            table,
            mut interfaces,
            addresses,
            hierarchy,
        } = storage;
        let mut rng = ChaCha8Rng::from_seed(seed);
        interfaces.fill(Interface::default());
        let mut hierarchy_seed = [0; 32];
        rng.fill_bytes(&mut hierarchy_seed);
        Router {
            policy: config.policy,
            request_limit: Limit::new(config.request_rate),
            dmcast_limit: Limit::new(config.dmcast_rate),
            table: GroupTable::new(table, (rng.next_u64(), rng.next_u64())),
            interfaces,
            addresses: Index::new(addresses),
            address_hash: HashKey::random(&mut rng),
            hierarchy: Hierarchy::new(config.hierarchy, hierarchy, hierarchy_seed, now),
            events: Events::default(),
            rng,
            stats: Stats::default(),
            carrier: PhantomData,
        }
    }

    /// Changes the configuration: limits count from now on, a replier that the old policy chose
    /// gives way to the new one's (one set by hand stays). Walks all entries.
    pub fn set_config(&mut self, now: Instant, config: Config) {
        self.request_limit = Limit::new(config.request_rate);
        self.dmcast_limit = Limit::new(config.dmcast_rate);
        let before = core::mem::replace(&mut self.policy, config.policy);
        self.hierarchy_set_config(now, before, config.hierarchy);
        if before == config.policy {
            return;
        }
        for id in self.table.handles() {
            if let Some(entry) = self.table.get_mut(id).filter(|entry| !entry.pinned) {
                entry.set_replier(None, None);
            }
            self.choose_replier(id);
        }
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The entries.
    pub fn table(&self) -> &GroupTable<'a> {
        &self.table
    }

    /// What an interface was set to.
    pub fn interface(&self, iface: Iface) -> Option<InterfaceConfig> {
        self.interfaces
            .get(usize::from(iface.0))
            .and_then(|interface| interface.config)
    }

    /// All interfaces that are set, by number.
    pub fn interfaces(&self) -> impl Iterator<Item = (Iface, InterfaceConfig)> + '_ {
        let numbered = self.interfaces.iter().enumerate();
        numbered.filter_map(|(i, interface)| Some((Iface(i as u16), interface.config?)))
    }

    /// Adds an interface, or changes one.
    pub fn set_interface(
        &mut self,
        now: Instant,
        iface: Iface,
        config: InterfaceConfig,
    ) -> Result<(), InterfaceError> {
        let i = usize::from(iface.0);
        let a = config.address;
        if a.is_unspecified() || a.is_multicast() || a.is_broadcast() {
            return Err(InterfaceError::Address);
        }
        if i >= self.interfaces.len().min(self.addresses.capacity()) {
            return Err(InterfaceError::Limit);
        }
        self.hierarchy_set_interface(now, iface, config)?;
        self.forget_address(iface);
        self.interfaces[i].config = Some(config);
        self.addresses
            .insert(hash_address(self.address_hash, a), u32::from(iface.0));
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
        let hash_of = |i: u32| {
            let config = interfaces
                .get(i as usize)
                .and_then(|interface| interface.config);
            config.map_or(0, |config| hash_address(key, config.address))
        };
        let hash = hash_address(key, old.address);
        self.addresses.remove(hash, u32::from(iface.0), hash_of);
        self.interfaces[usize::from(iface.0)].config = None;
    }

    /// Whether `address` is that of one of the interfaces.
    #[inline]
    fn is_own_address(&self, address: Ipv4Addr, arrival: Iface) -> bool {
        let of = |iface: usize| {
            self.interfaces
                .get(iface)
                .and_then(|interface| interface.config)
        };
        let is = |iface: usize| of(iface).is_some_and(|config| config.address == address);
        // A dmcast comes in where the request went out: mostly this answers it.
        is(usize::from(arrival.0))
            || self
                .addresses
                .find(hash_address(self.address_hash, address), |i| is(i as usize))
                .is_some()
    }

    /// Adds an entry, or changes parent and downstream interfaces of the one with this key (its
    /// replier stays if its interface does).
    pub fn install(
        &mut self,
        now: Instant,
        key: Key,
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
    pub fn remove(&mut self, now: Instant, key: Key) -> bool {
        self.hierarchy_remove(now, key);
        self.table.remove(key).is_some()
    }

    /// Sets the replier of an entry by hand; no policy moves it until it is set to `None`, or its
    /// interface leaves the entry. The parent is told its cost where the neighbour is named.
    pub fn set_replier(
        &mut self,
        now: Instant,
        key: Key,
        replier: Option<Replier>,
    ) -> Result<(), ReplierError> {
        let id = self.table.find(key).ok_or(ReplierError::NoEntry)?;
        if replier.is_some_and(|replier| !self.table.is_downstream(id, replier.iface)) {
            return Err(ReplierError::NotDownstream);
        }
        self.hierarchy_pin(now, id, replier);
        let entry = self.table.get_mut(id).ok_or(ReplierError::NoEntry)?;
        entry.pinned = replier.is_some();
        entry.set_replier(replier, None);
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
        }
        self.choose_replier(id);
    }

    /// Lets the policy choose anew where nothing is pinned.
    fn choose_replier(&mut self, id: EntryId) {
        if self.table.get(id).is_some_and(|entry| !entry.pinned) {
            self.hierarchy_choose(id);
        }
    }

    /// What happened since the last call; drain until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }
}

#[inline]
fn hash_address(key: HashKey, address: Ipv4Addr) -> u64 {
    key.hash(u64::from(address.to_bits()))
}
