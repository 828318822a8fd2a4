//! LMS-HIER at a router: the table of downstream neighbours, the election of a replier for each
//! multicast forwarding entry, and the messages that keep both alive (LMS §6.7.1).
//!
//! Neighbours below offer to be the replier of an entry at a cost: hosts by the auxiliary data of
//! IGMPv3 reports, routers by UPDATE messages. The offer with the lowest cost is elected; on equal
//! cost an elected neighbour stays elected, else the lowest address is. The entry's parent receives the
//! cost (UPDATE: the best below plus [`Config::own_cost`]), and each link below with offers receives
//! the elected neighbour (ELECTED; none, where it is on another link).
//!
//! All of it is soft state: refreshed every [`Config::refresh`], expired after [`hold_time`] of it. A
//! neighbour that goes silent is therefore replaced within one hold time, in the very call
//! that notices. Refreshes are spread evenly over the refresh time, up to 64 entries a message:
//! 100,000 entries on one link are 174 messages a second. Changes are advertised at once
//! ([`Config::gather`] later, to share messages), but not twice within [`Config::damping`], nor
//! faster than [`Config::messages_per_s`]. The withdrawal of the last offer is sent three times.
//!
//! # Driving the machine
//!
//! The router machine embeds it: `install` and `remove` follow the multicast forwarding entries,
//! `handle_packet` takes each LMS-HIER or IGMP packet, and after each call of either sort
//! `poll_event` is drained. `elected` on the path of a request is two loads. Then
//! `poll_transmit` until `None`, and `handle_timeout` at `poll_timeout`. After a call of
//! `handle_timeout` `poll_timeout` may lie in the past still: one call does a bounded number of
//! steps.
//!
//! # Security model
//!
//! A message counts only with TTL 1, from a source on the subnet of its interface, about an
//! entry that exists and has that interface downstream, and, from a router, with a sequence
//! number newer than the last of the same boot; an earlier boot number is a replay. Each
//! refusal has its own counter, see [`DropReason`]. An attacker on the link itself who forges the
//! addresses of other hosts is believed: LMS has no keys, and receivers verify repairs.
//!
//! # Memory
//!
//! Bytes a slot, tested in `tests/hier/memory.rs`: entry 72, neighbour (one offer) 80, peer 112,
//! advert 80, stream 88. An entry with one neighbour needs one of each of the first two and two
//! adverts: 312 bytes.
//!
//! # Example
//!
//! ```
//! use core::net::Ipv4Addr;
//! use lms_proto::hier::{Config, Cost, Hierarchy, StaticStorage};
//! use lms_proto::{Iface, Instant, InterfaceConfig, Key};
//!
//! // 4 entries, 16 offers of up to 8 neighbours, 2 interfaces; no heap.
//! let mut memory = StaticStorage::<4, 16, 8, 12, 4>::default();
//! let now = Instant::ZERO;
//! let mut hierarchy = Hierarchy::new(Config::default(), memory.lend(), [7; 32], now);
//! let (up, down) = (Iface(0), Iface(1));
//! for (iface, address) in [(up, [10, 0, 0, 2]), (down, [10, 0, 1, 1])] {
//!     let config = InterfaceConfig::ipv4(address.into(), 24);
//!     hierarchy.set_interface(now, iface, config).unwrap();
//! }
//! let key = Key::new(Ipv4Addr::new(10, 9, 9, 9), Ipv4Addr::new(232, 1, 1, 1));
//! let id = hierarchy.install(now, key, up).unwrap();
//! hierarchy.set_replier(now, key, down, Ipv4Addr::new(10, 0, 1, 5), None, Cost(3)).unwrap();
//! assert_eq!(hierarchy.elected(id).unwrap().cost, Cost(3));
//!
//! // The parent receives: cost 3, plus 1 of this router.
//! let mut buffer = [0; 1500];
//! let now = hierarchy.poll_timeout().unwrap();
//! let transmit = hierarchy.poll_transmit(now, &mut buffer).unwrap();
//! assert_eq!(transmit.iface, up);
//! ```

mod config;
mod election;
mod receive;
pub(crate) mod replay;
mod send;
pub(crate) mod state;
mod stats;

use core::fmt;
use core::net::Ipv4Addr;
use core::num::NonZeroU32;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

pub use self::config::{
    Capacity, Config, MAX_REFRESH, MIN_REFRESH, StaticStorage, Storage, hold_time, refresh_time,
};
pub use self::receive::sender_version;
pub use self::state::{Advert, Entry, Neighbour, Peer, Stream};
pub use self::stats::{DropReason, Drops, Stats};
pub use crate::wire::hier::Cost;
pub use proto_core::slab::Slot;

use self::state::{neighbour_key, peer_key, stream_key};
use crate::wire::hier::Kind;
use crate::{Family, Iface, Instant, InterfaceConfig, Key, LinkAddr, Meta, NextHop, Transmit};
use proto_core::slab::{NIL, Slab};

/// Expiries in one call of `handle_timeout`.
const STEPS: usize = 256;

/// Identifies an entry from its installation to its removal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryId(u32);

/// Identifies a neighbouring host or router while one of its offers is elected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(NonZeroU32);

impl PeerId {
    /// The slot's number and one: the largest number is none.
    fn new(slot: u32) -> Option<Self> {
        NonZeroU32::new(slot.wrapping_add(1)).map(PeerId)
    }

    fn slot(self) -> u32 {
        self.0.get() - 1
    }
}

/// The elected replier of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Elected {
    /// The interface it is on.
    pub iface: Iface,
    /// What it costs.
    pub cost: Cost,
    /// The neighbour; [`Hierarchy::next_hop`] says where to send to. A router that keeps a copy of
    /// this value keeps the right next hop, also when the neighbour's link address changes.
    pub peer: PeerId,
}

/// One neighbour's offer, for `status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer<A = Ipv4Addr> {
    /// The interface it came from.
    pub iface: Iface,
    /// Whose it is.
    pub address: A,
    /// What it costs.
    pub cost: Cost,
    /// When it runs out; `None` for one that was configured.
    pub expires: Option<Instant>,
}

proto_core::errors! {
    /// A bound of the storage is reached; nothing changed.
    pub enum Full {
        /// No more entries.
        Entries = "no room for another multicast forwarding entry",
        /// No more offers, in this entry or at all.
        Neighbours = "no room for another neighbour's offer",
        /// No more neighbouring hosts and routers.
        Peers = "no room for another neighbour",
        /// No more adverts.
        Adverts = "no room for another advert",
        /// No more interfaces.
        Interfaces = "no room for another interface",
    }
}

/// Why a command was refused; nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CommandError {
    /// A bound is reached.
    Full(Full),
    /// There is no such entry: install it first.
    UnknownEntry,
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Full(full) => full.fmt(f),
            CommandError::UnknownEntry => f.write_str("no such multicast forwarding entry"),
        }
    }
}

impl core::error::Error for CommandError {}

/// An entry whose elected replier became another, costs something else, or is no more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Changed<A = Ipv4Addr> {
    /// The entry.
    pub id: EntryId,
    /// Its name.
    pub key: Key<A>,
    /// The elected replier.
    pub elected: Option<Elected>,
}

/// The machine. See the [module's documentation](self).
#[derive(Debug)]
pub struct Hierarchy<'a, A = Ipv4Addr> {
    config: Config,
    entries: Slab<'a, Entry<A>>,
    neighbours: Slab<'a, Neighbour<A>>,
    peers: Slab<'a, Peer<A>>,
    adverts: Slab<'a, Advert>,
    streams: Slab<'a, Stream<A>>,
    /// Peers without offers, longest idle first: the order of eviction.
    idle_head: u32,
    idle_tail: u32,
    changed_head: u32,
    /// A neighbour that may be elected has another link address.
    links_changed: bool,
    boot: u32,
    sequence: u32,
    rng: ChaCha8Rng,
    stats: Stats,
}

impl<'a, A: Family> Hierarchy<'a, A> {
    /// A hierarchy with no interface and no entry.
    pub fn new(config: Config, storage: Storage<'a, A>, seed: [u8; 32], _now: Instant) -> Self {
        let mut rng = ChaCha8Rng::from_seed(seed);
        Hierarchy {
            config: config.clamped(),
            entries: Slab::new(storage.entries, &mut rng),
            neighbours: Slab::new(storage.neighbours, &mut rng),
            peers: Slab::new(storage.peers, &mut rng),
            adverts: Slab::new(storage.adverts, &mut rng),
            streams: Slab::new(storage.streams, &mut rng),
            idle_head: NIL,
            idle_tail: NIL,
            changed_head: NIL,
            links_changed: false,
            boot: rng.next_u32(),
            sequence: 0,
            rng,
            stats: Stats::default(),
        }
    }

    /// The configuration, with every value inside its bounds.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes the configuration. Everything is advertised again, at the maximum rate of messages.
    pub fn set_config(&mut self, now: Instant, config: Config) {
        self.config = config.clamped();
        let mut from = 0;
        while let Some(advert) = self.adverts.next_used(from) {
            self.touch(now, advert);
            from = advert + 1;
        }
    }

    /// Adds an interface, or changes its address: then the offers received on it are removed.
    ///
    /// # Errors
    /// [`Full::Interfaces`] when there is no room for another interface.
    pub fn set_interface(
        &mut self,
        now: Instant,
        iface: Iface,
        config: InterfaceConfig<A>,
    ) -> Result<(), Full> {
        if let Some(stream) = self.streams.find(stream_key(iface, Kind::Update)) {
            if self.streams[stream].config == config {
                return Ok(());
            }
            self.remove_interface(now, iface);
        }
        for kind in [Kind::Update, Kind::Elected] {
            let stream = Stream {
                iface,
                kind,
                config,
                ..Stream::default()
            };
            if self.streams.insert(stream).is_err() {
                self.remove_interface(now, iface);
                return Err(Full::Interfaces);
            }
        }
        let mut from = 0;
        while let Some(advert) = self.adverts.next_used(from) {
            if self.adverts[advert].iface == iface {
                self.touch(now, advert);
            }
            from = advert + 1;
        }
        Ok(())
    }

    /// Removes an interface and all offers received on it.
    pub fn remove_interface(&mut self, now: Instant, iface: Iface) {
        for kind in [Kind::Update, Kind::Elected] {
            if let Some(stream) = self.streams.find(stream_key(iface, kind)) {
                self.silence(stream);
                self.streams.remove(stream);
            }
        }
        let mut from = 0;
        while let Some(n) = self.neighbours.next_used(from) {
            if self.neighbours[n].iface == iface {
                self.remove_neighbour(now, n);
            }
            from = n + 1;
        }
        let mut from = 0;
        while let Some(advert) = self.adverts.next_used(from) {
            if self.adverts[advert].iface == iface {
                self.adverts[advert].withdrawals = 0;
                self.adverts.cancel(advert);
                self.release_advert(advert);
            }
            from = advert + 1;
        }
        let mut from = 0;
        while let Some(peer) = self.peers.next_used(from) {
            if self.peers[peer].iface == iface {
                self.remove_from_idle(peer);
                self.peers.remove(peer);
            }
            from = peer + 1;
        }
    }

    /// Adds an entry, or gives it another parent; `Iface::UNSET` where it has none.
    ///
    /// # Errors
    /// [`Full::Entries`] when there is no room for a new entry; [`Full::Adverts`] when there is none for the
    /// advert to the parent.
    pub fn install(&mut self, now: Instant, key: Key<A>, parent: Iface) -> Result<EntryId, Full> {
        if let Some(e) = self.entries.find(key) {
            let advert = match self.find_advert(e, parent, Kind::Update) {
                Some(advert) => advert,
                None if self.adverts.is_full() => return Err(Full::Adverts),
                None => self.add_advert(e, parent, Kind::Update),
            };
            self.entries[e].is_leaving = false;
            self.set_parent(now, e, parent, advert);
            return Ok(EntryId(e));
        }
        if self.adverts.is_full() {
            return Err(Full::Adverts);
        }
        let entry = Entry {
            key,
            parent,
            ..Entry::default()
        };
        let e = self.entries.insert(entry).map_err(|_| Full::Entries)?;
        self.add_advert(e, parent, Kind::Update);
        Ok(EntryId(e))
    }

    fn set_parent(&mut self, now: Instant, e: u32, parent: Iface, advert: u32) {
        let old = core::mem::replace(&mut self.entries[e].parent, parent);
        if old != parent {
            // The offer is withdrawn at the old parent and made to the new one.
            if let Some(advert) = self.find_advert(e, old, Kind::Update) {
                self.touch(now, advert);
                self.release_advert(advert);
            }
        }
        self.touch(now, advert);
    }

    /// Removes an entry and every offer for it; the withdrawal is sent to the links that
    /// knew it. The entry's slot is free once they have been.
    pub fn remove(&mut self, now: Instant, key: Key<A>) {
        let Some(e) = self.entries.find(key) else {
            return;
        };
        self.entries[e].is_leaving = true;
        while self.entries[e].root != NIL {
            self.remove_neighbour(now, self.entries[e].root);
        }
        if let Some(advert) = self.find_advert(e, self.entries[e].parent, Kind::Update) {
            self.release_advert(advert);
        }
        self.release_entry(e);
    }

    /// Removes every offer for an entry that came from one interface, as when that is no longer
    /// downstream. Takes as long as the entry has neighbours.
    pub fn remove_downstream(&mut self, now: Instant, key: Key<A>, iface: Iface) {
        let Some(e) = self.entries.find(key) else {
            return;
        };
        // A removal reorders the heap: look for some, remove these, start again.
        loop {
            let mut found = [NIL; 64];
            let mut count = 0;
            let mut at = self.entries[e].root;
            while at != NIL && count < found.len() {
                if self.neighbours[at].iface == iface {
                    found[count] = at;
                    count += 1;
                }
                at = election::next(&self.neighbours, at).unwrap_or(NIL);
            }
            for n in &found[..count] {
                self.remove_neighbour(now, *n);
            }
            if count < found.len() {
                return;
            }
        }
    }

    /// Adds an offer by configuration; it holds until [`Hierarchy::clear_replier`], whatever that
    /// neighbour says itself. [`Cost::WITHDRAWN`] takes it away.
    ///
    /// # Errors
    /// [`CommandError::UnknownEntry`] when no entry has this key; [`CommandError::Full`] when there is no room
    /// for another offer, neighbour or advert.
    pub fn set_replier(
        &mut self,
        now: Instant,
        key: Key<A>,
        iface: Iface,
        address: A,
        link: Option<LinkAddr>,
        cost: Cost,
    ) -> Result<(), CommandError> {
        let e = self.find(key).ok_or(CommandError::UnknownEntry)?.0;
        if !cost.is_offer() {
            self.clear_replier(now, key, iface, address);
            return Ok(());
        }
        let known = self.peers.find(peer_key(iface, address));
        let old = known.and_then(|peer| self.neighbours.find(neighbour_key(e, peer)));
        // A neighbour that replaces its own offer needs no room. All is checked before anything changes.
        if old.is_none() {
            self.check_room(e, iface).map_err(CommandError::Full)?;
        }
        let peer = self
            .peer(iface, address)
            .ok_or(CommandError::Full(Full::Peers))?;
        if link.is_some() {
            self.set_link(peer, link);
        }
        if let Some(n) = old {
            self.remove_neighbour(now, n);
        }
        self.add(now, e, peer, cost, None);
        Ok(())
    }

    /// Takes away what [`Hierarchy::set_replier`] added.
    pub fn clear_replier(&mut self, now: Instant, key: Key<A>, iface: Iface, address: A) {
        let Some(EntryId(e)) = self.find(key) else {
            return;
        };
        let Some(peer) = self.peers.find(peer_key(iface, address)) else {
            return;
        };
        if let Some(n) = self.neighbours.find(neighbour_key(e, peer)) {
            self.remove_neighbour(now, n);
        }
    }

    /// The entry of this name.
    pub fn find(&self, key: Key<A>) -> Option<EntryId> {
        let e = self.entries.find(key)?;
        (!self.entries[e].is_leaving).then_some(EntryId(e))
    }

    /// Returns the elected replier of an entry; O(1).
    pub fn elected(&self, id: EntryId) -> Option<Elected> {
        let entry = self.entries.get(id.0)?;
        let (iface, cost) = (entry.replier_iface, entry.replier_cost);
        let peer = PeerId::new(entry.replier_peer)?;
        cost.is_offer().then_some(Elected { iface, cost, peer })
    }

    /// Where packets to a neighbour go; [`NextHop::Group`] where it is not known any more.
    pub fn next_hop(&self, peer: PeerId) -> NextHop<A> {
        match self.peers.get(peer.slot()) {
            Some(peer) => NextHop::Neighbour {
                addr: peer.address,
                link: peer.link,
            },
            None => NextHop::Group,
        }
    }

    /// Returns the next entry whose elected replier changed; drain until `None`.
    pub fn poll_event(&mut self) -> Option<Changed<A>> {
        while self.changed_head != NIL {
            let e = self.changed_head;
            let entry = &mut self.entries[e];
            self.changed_head = core::mem::replace(&mut entry.next_changed, NIL);
            entry.is_changed = false;
            if entry.is_leaving {
                self.release_entry(e);
                continue;
            }
            let key = entry.key;
            return Some(Changed {
                id: EntryId(e),
                key,
                elected: self.elected(EntryId(e)),
            });
        }
        None
    }

    /// Returns the entries: key, parent, elected replier, number of offers.
    pub fn entries(&self) -> impl Iterator<Item = (Key<A>, Iface, Option<Elected>, usize)> {
        self.entries
            .iter()
            .filter(|(_, entry)| !entry.is_leaving)
            .map(|(e, entry)| {
                let count = entry.neighbour_count as usize;
                (entry.key, entry.parent, self.elected(EntryId(e)), count)
            })
    }

    /// The offers for one entry, in no particular order.
    pub fn offers(&self, id: EntryId) -> impl Iterator<Item = Offer<A>> {
        let mut at = self.entries.get(id.0).map_or(NIL, |entry| entry.root);
        core::iter::from_fn(move || {
            let n = self.neighbours.get(at)?;
            at = election::next(&self.neighbours, at).unwrap_or(NIL);
            let Neighbour {
                iface,
                address,
                cost,
                expires,
                ..
            } = *n;
            Some(Offer {
                iface,
                address,
                cost,
                expires,
            })
        })
    }

    /// Offers in all entries together.
    pub fn offer_count(&self) -> usize {
        self.neighbours.len()
    }

    /// Neighbouring hosts and routers known, those without offers included.
    pub fn peer_count(&self) -> usize {
        self.peers.len()
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Expires silent neighbours and schedules delayed changes, up to 256 of each; `poll_timeout` returns
    /// the time of the others.
    pub fn handle_timeout(&mut self, now: Instant) {
        for _ in 0..STEPS {
            match self.neighbours.next_due() {
                Some((at, n)) if at <= now => self.expire(now, n),
                _ => break,
            }
        }
        for _ in 0..STEPS {
            match self.adverts.next_due() {
                Some((at, advert)) if at <= now => {
                    self.adverts.cancel(advert);
                    self.touch(now, advert);
                }
                _ => break,
            }
        }
    }

    fn expire(&mut self, now: Instant, n: u32) {
        match self.neighbours[n].expires {
            Some(expires) if expires <= now => {
                self.stats.expired += 1;
                self.remove_neighbour(now, n);
            }
            Some(expires) => self.neighbours.schedule(n, expires),
            None => self.neighbours.cancel(n),
        }
    }

    /// When to call `handle_timeout` and `poll_transmit`.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let dues = [
            self.neighbours.next_due(),
            self.adverts.next_due(),
            self.streams.next_due(),
        ];
        dues.into_iter().flatten().map(|(at, _)| at).min()
    }
}

proto_core::impl_machine! {
    impl['a, A: Family] Hierarchy<'a, A> { Meta = Meta; Transmit = Transmit<A>; Event = Changed<A>; Error = DropReason; }
}
