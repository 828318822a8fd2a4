//! The group table: multicast forwarding entries with the state LMS adds to them (LMS §6.4.1).
//!
//! A lookup touches two cache lines: one of a keyed open-addressed index, and the entry, which has
//! all that a packet needs. `(S, G)` is looked up first, then `(*, G)`. Whether an interface is
//! downstream is one bit: in the entry for interfaces below 48, else in a third line, which is
//! fetched together with the entry. Nothing depends on the number of groups or interfaces. The lines that a batch of
//! packets needs are fetched together by [`Router::look_ahead`](crate::Router::look_ahead).
//!
//! All storage is borrowed or owned ([`Storage`]); nothing grows. Per group it is
//! [`bytes_per_group`]: 64 bytes an entry (128 for IPv6), 8 bytes for each 48 interfaces beyond the first 48, and
//! at most 10 bytes of index (a power of two of 4-byte slots, 5/4 to 5/2 a group). 100,000 groups
//! with up to 48 interfaces take 6.9 MB. There are 16,777,214 groups at most.
//!
//! What LMS adds to an entry is the replier (the paper's four bytes, and its address), two token buckets,
//! and eight bytes of credit: how many repairs the requests turned here still let pass, until when, and
//! until when those in the classic form.
//!
//! Entries come in the order in which they were installed into free places, whatever the seed.

mod changes;
mod credit;
mod ifaces;
mod index;
mod look_ahead;
#[cfg(all(test, feature = "alloc"))]
mod tests;

use core::net::Ipv4Addr;

use managed::ManagedSlice;
use proto_core::TokenBucket;

pub use changes::Changes;
pub(crate) use credit::{CREDIT_TICK, Credit, CreditLimit, tick};
pub use ifaces::{IFACES_PER_WORD, IfaceWord};
use ifaces::{Set, SetMut};
pub(crate) use index::Index;
pub use index::Slot;
#[doc(hidden)]
pub use index::min_slots;
pub(crate) use look_ahead::{Ahead, LOOK_AHEAD};
pub(crate) use proto_core::hash::{HashKey, Prefix};

use crate::hier::PeerId;
use crate::{Duration, Family, Iface, Instant, Key, LinkAddr, NextHop};

/// Handle of a forwarding entry, stable until the entry is removed; then it is used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryId(pub(crate) u32);

impl EntryId {
    /// The handle as an index: dense, below the table's capacity.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The handle of entry `index`.
    pub const fn from_index(index: u32) -> Self {
        EntryId(index)
    }
}

/// The destination of requests that turn: an interface, a cost, and the neighbour on it if known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Replier<A = Ipv4Addr> {
    /// The interface, downstream in its entry.
    pub iface: Iface,
    /// The replier's cost, smaller is better; 0xffff is no offer.
    pub cost: u16,
    /// The neighbour; `None`: the request goes to the whole link.
    pub neighbour: Option<Neighbour<A>>,
}

/// A neighbour on a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Neighbour<A = Ipv4Addr> {
    /// Its address.
    pub addr: A,
    /// Its link address; `None` in an entry's state where the neighbour table keeps it.
    pub link: Option<LinkAddr>,
}

/// Where the link address of an entry's neighbour is.
#[derive(Clone, Copy, Debug)]
enum NeighbourLink {
    /// It is unknown, or there is no neighbour.
    Unknown,
    /// It was configured or drawn with the replier.
    Known(LinkAddr),
    /// The neighbour was elected: the neighbour table has it.
    Peer(PeerId),
}

/// A multicast forwarding entry with what LMS adds to it: one cache line for IPv4, two for IPv6.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Entry<A = Ipv4Addr> {
    key: Key<A>,
    pub(crate) parent: Iface,
    /// The paper's four bytes: interface ([`Iface::UNSET`] for none) and cost of the replier.
    replier_iface: Iface,
    replier_cost: u16,
    /// Downstream interfaces below 48.
    downstream: IfaceWord,
    pub(crate) requests: TokenBucket,
    pub(crate) dmcasts: TokenBucket,
    /// `0.0.0.0`: no neighbour, requests go to the link.
    neighbour: A,
    neighbour_link: NeighbourLink,
    /// The replier was configured: neither hierarchy nor random choice changes it.
    pub(crate) pinned: bool,
    /// When a replier drawn at random is drawn again: seconds of the driver's clock modulo 2^32. Of
    /// an entry that is not used: the next such entry.
    redraw_at_s_or_next_free: u32,
    pub(crate) credit: Credit,
}

const NO_ENTRY: u32 = u32::MAX;

impl<A: Family> Default for Entry<A> {
    fn default() -> Self {
        Entry {
            key: Key::any_source(A::UNSPECIFIED),
            parent: Iface::UNSET,
            replier_iface: Iface::UNSET,
            replier_cost: u16::MAX,
            downstream: IfaceWord::default(),
            requests: TokenBucket::FULL,
            dmcasts: TokenBucket::FULL,
            neighbour: A::UNSPECIFIED,
            neighbour_link: NeighbourLink::Unknown,
            pinned: false,
            redraw_at_s_or_next_free: NO_ENTRY,
            credit: Credit::default(),
        }
    }
}

impl<A: Family> Entry<A> {
    /// Returns whether the slot is in use: every entry has a group.
    fn is_used(&self) -> bool {
        !self.key.group.is_unspecified()
    }

    /// Returns source and group of the entry.
    pub fn key(&self) -> Key<A> {
        self.key
    }

    /// Returns the interface that leads to the source, [`Iface::UNSET`] for none.
    pub fn parent(&self) -> Iface {
        self.parent
    }

    /// Returns the replier, if there is one.
    pub fn replier(&self) -> Option<Replier<A>> {
        self.replier_iface.is_set().then(|| Replier {
            iface: self.replier_iface,
            cost: self.replier_cost,
            neighbour: (!self.neighbour.is_unspecified()).then_some(Neighbour {
                addr: self.neighbour,
                link: self.known_link(),
            }),
        })
    }

    #[inline]
    fn known_link(&self) -> Option<LinkAddr> {
        match self.neighbour_link {
            NeighbourLink::Known(link) => Some(link),
            NeighbourLink::Unknown | NeighbourLink::Peer(_) => None,
        }
    }

    #[inline]
    pub(crate) fn replier_iface(&self) -> Iface {
        self.replier_iface
    }

    /// The elected neighbour; it knows better than [`Entry::fixed_next_hop`] where to send.
    #[inline]
    pub(crate) fn peer(&self) -> Option<PeerId> {
        match self.neighbour_link {
            NeighbourLink::Peer(peer) => Some(peer),
            NeighbourLink::Unknown | NeighbourLink::Known(_) => None,
        }
    }

    /// Returns the next hop of requests on the replier's link, as configured or drawn.
    #[inline]
    pub(crate) fn fixed_next_hop(&self) -> NextHop<A> {
        if self.neighbour.is_unspecified() {
            NextHop::Group
        } else {
            NextHop::Neighbour {
                addr: self.neighbour,
                link: self.known_link(),
            }
        }
    }

    /// Returns whether a replier is to be drawn: there is none, or the last draw has expired.
    pub(crate) fn is_draw_due(&self, now: Instant) -> bool {
        let late_s = (now.secs() as u32).wrapping_sub(self.redraw_at_s_or_next_free) as i32;
        !self.pinned && (!self.replier_iface.is_set() || late_s >= 0)
    }

    /// Sets a replier drawn at random, which holds for `hold`, rounded up to whole seconds; 68 years at
    /// most.
    pub(crate) fn set_drawn(&mut self, now: Instant, replier: Option<Replier<A>>, hold: Duration) {
        let hold_s = hold
            .total_micros()
            .div_ceil(1_000_000)
            .clamp(1, (1 << 31) - 1);
        self.redraw_at_s_or_next_free = (now.secs() as u32).wrapping_add(hold_s as u32);
        self.set_replier(replier, None);
    }

    /// Sets the replier; `peer` is the elected neighbour, whose link address the neighbour table has.
    pub(crate) fn set_replier(&mut self, replier: Option<Replier<A>>, peer: Option<PeerId>) {
        let neighbour = replier.and_then(|replier| replier.neighbour);
        self.replier_iface = replier.map_or(Iface::UNSET, |replier| replier.iface);
        self.replier_cost = replier.map_or(u16::MAX, |replier| replier.cost);
        self.neighbour = neighbour.map_or(A::UNSPECIFIED, |neighbour| neighbour.addr);
        let link = neighbour.and_then(|neighbour| neighbour.link);
        self.neighbour_link = match (peer, link) {
            (Some(peer), _) => NeighbourLink::Peer(peer),
            (None, Some(link)) => NeighbourLink::Known(link),
            (None, None) => NeighbourLink::Unknown,
        };
    }
}

proto_core::errors! {
    /// Why an entry cannot be installed; nothing has changed then.
    pub enum InstallError {
        /// The table holds as many entries as it was made for.
        Full = "the group table is full",
        /// The group is not a multicast address, or is link-local (224.0.0.0/24, scope 2 of IPv6), which no router
        /// forwards.
        Group = "the group is not a routable multicast address",
        /// The source is neither unicast nor [`Key::ANY_SOURCE`].
        Source = "the source is not a unicast address",
        /// An interface number is beyond [`GroupTable::iface_limit`].
        Iface = "the interface number is beyond the table's limit",
        /// The parent is among the downstream interfaces.
        ParentIsDownstream = "the parent is also a downstream interface",
    }
}

/// The most bytes of table storage for each group, of a table sized by [`Storage::with_capacity`]
/// for interface numbers below `iface_limit` and 8 groups or more.
pub const fn bytes_per_group<A>(iface_limit: usize) -> usize {
    let slots = size_of::<Slot>() * 5 / 2 + 1;
    size_of::<Entry<A>>() + words_beyond_entry(iface_limit) * size_of::<IfaceWord>() + slots
}

/// Returns the words of [`Storage::downstream`] for `groups` entries and interface numbers below `iface_limit`.
#[doc(hidden)]
pub const fn words_for(groups: usize, iface_limit: usize) -> usize {
    groups * words_beyond_entry(iface_limit)
}

const fn words_beyond_entry(iface_limit: usize) -> usize {
    iface_limit.div_ceil(IFACES_PER_WORD).saturating_sub(1)
}

/// Storage of a [`GroupTable`].
#[derive(Debug)]
pub struct Storage<'a, A = Ipv4Addr> {
    /// The entries: as many groups at most.
    pub entries: ManagedSlice<'a, Entry<A>>,
    /// The index: a power of two, at least five fourths of the number of entries, else fewer
    /// groups fit.
    pub slots: ManagedSlice<'a, Slot>,
    /// Downstream sets beyond interface 47: for each entry equally many words, 48 interface
    /// numbers a word. Empty where all numbers are below 48: those stand in the entries.
    pub downstream: ManagedSlice<'a, IfaceWord>,
}

#[cfg(feature = "alloc")]
impl<A: Family> Storage<'static, A> {
    /// Storage on the heap for `groups` entries and interface numbers below `iface_limit`.
    pub fn with_capacity(groups: usize, iface_limit: usize) -> Self {
        use alloc::vec;
        let words = words_beyond_entry(iface_limit);
        Storage {
            entries: vec![Entry::default(); groups].into(),
            slots: vec![Slot::default(); min_slots(groups)].into(),
            downstream: vec![IfaceWord::default(); groups * words].into(),
        }
    }
}

/// The hash of a source and a group in a table, and its state after them: the start of longer hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct KeyHash {
    pub(crate) prefix: Prefix,
    pub(crate) hash: u64,
}

#[inline]
fn prefix<A: Family>(hash_key: HashKey, key: Key<A>) -> Prefix {
    key.source.hash_pair(key.group, &hash_key)
}

/// The group table.
#[derive(Debug)]
pub struct GroupTable<'a, A = Ipv4Addr> {
    entries: ManagedSlice<'a, Entry<A>>,
    downstream: ManagedSlice<'a, IfaceWord>,
    words: usize,
    index: Index<'a>,
    hash_key: HashKey,
    capacity: usize,
    len: usize,
    any_source_len: usize,
    /// Entries from here on were never used; removed ones before it hang on `free`.
    fresh: u32,
    free: u32,
    changes: Changes,
}

impl<'a, A: Family> GroupTable<'a, A> {
    /// Creates an empty table. `hash_key` comes from the machine's generator.
    pub fn new(storage: Storage<'a, A>, hash_key: (u64, u64)) -> Self {
        let Storage {
            mut entries,
            slots,
            downstream,
        } = storage;
        entries.fill(Entry::default());
        let index = Index::new(slots);
        let capacity = entries.len().min(index.capacity()).min(NO_ENTRY as usize);
        GroupTable {
            words: downstream.len().checked_div(entries.len()).unwrap_or(0),
            entries,
            downstream,
            index,
            hash_key: HashKey(hash_key.0, hash_key.1),
            capacity,
            len: 0,
            any_source_len: 0,
            fresh: 0,
            free: NO_ENTRY,
            changes: Changes::default(),
        }
    }

    /// Returns the largest number of entries.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the limit of interface numbers: lower ones fit into a downstream set.
    pub fn iface_limit(&self) -> usize {
        ((self.words + 1) * IFACES_PER_WORD).min(usize::from(Iface::UNSET.0))
    }

    #[inline]
    pub(crate) fn prefix(&self, key: Key<A>) -> Prefix {
        prefix(self.hash_key, key)
    }

    #[inline]
    pub(crate) fn hash(&self, key: Key<A>) -> KeyHash {
        let prefix = self.prefix(key);
        KeyHash {
            prefix,
            hash: prefix.hash(),
        }
    }

    /// Returns the entry with exactly this key.
    #[inline]
    pub fn find(&self, key: Key<A>) -> Option<EntryId> {
        self.find_hashed(key, self.hash(key).hash)
    }

    #[inline]
    fn find_hashed(&self, key: Key<A>, hash: u64) -> Option<EntryId> {
        let is = |value: u32| {
            self.entries
                .get(value as usize)
                .is_some_and(|e| e.key == key)
        };
        self.index.find(hash, is).map(EntryId)
    }

    /// Returns the entry of packets with this source and group: `(S, G)`, else `(*, G)`.
    #[inline]
    pub fn lookup(&self, key: Key<A>) -> Option<EntryId> {
        self.lookup_hashed(key, self.hash(key).hash)
    }

    /// [`GroupTable::lookup`] with the hash of the key ([`GroupTable::hash`]).
    #[inline]
    pub(crate) fn lookup_hashed(&self, key: Key<A>, hash: u64) -> Option<EntryId> {
        match self.find_hashed(key, hash) {
            None if self.any_source_len > 0 => self.find(Key::any_source(key.group)),
            found => found,
        }
    }

    /// Returns an entry with its downstream set.
    #[inline]
    pub(crate) fn entry_and_set(&mut self, id: EntryId) -> Option<(&mut Entry<A>, Set<'_>)> {
        let at = id.index() * self.words;
        let entry = self.entries.get_mut(id.index())?;
        let set = Set {
            first: entry.downstream,
            rest: self.downstream.get(at..at + self.words).unwrap_or(&[]),
        };
        Some((entry, set))
    }

    /// Returns the entry of a handle; `None` once it is removed.
    #[inline]
    pub fn get(&self, id: EntryId) -> Option<&Entry<A>> {
        self.entries.get(id.index()).filter(|entry| entry.is_used())
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry<A>> {
        self.entries
            .get_mut(id.index())
            .filter(|entry| entry.is_used())
    }

    #[inline]
    fn set(&self, id: EntryId) -> Set<'_> {
        let at = id.index() * self.words;
        let first = self.entries.get(id.index()).map(|entry| entry.downstream);
        Set {
            first: first.unwrap_or_default(),
            rest: self.downstream.get(at..at + self.words).unwrap_or(&[]),
        }
    }

    fn set_mut(&mut self, id: EntryId) -> SetMut<'_> {
        let at = id.index() * self.words;
        let rest = self.downstream.get_mut(at..at + self.words);
        SetMut {
            first: &mut self.entries[id.index()].downstream,
            rest: rest.unwrap_or(&mut []),
        }
    }

    /// Returns whether `iface` is downstream in the entry.
    #[inline]
    pub fn is_downstream(&self, id: EntryId, iface: Iface) -> bool {
        self.set(id).contains(iface)
    }

    /// Returns the number of downstream interfaces of the entry.
    pub fn downstream_len(&self, id: EntryId) -> usize {
        self.set(id).len()
    }

    /// Returns the `n`-th downstream interface, counted from 0 without `except`.
    pub fn nth_downstream(&self, id: EntryId, n: usize, except: Iface) -> Option<Iface> {
        let set = self.set(id);
        let skip = set.contains(except) && n >= set.rank(except);
        set.nth(n + usize::from(skip))
    }

    /// Returns the downstream interfaces of the entry, smallest first.
    pub fn downstream(&self, id: EntryId) -> impl Iterator<Item = Iface> + '_ {
        self.set(id).iter()
    }

    /// Returns all entries, in an order that depends only on the commands.
    pub fn iter(&self) -> impl Iterator<Item = (EntryId, &Entry<A>)> + '_ {
        let entries = self.entries[..self.fresh as usize].iter().enumerate();
        entries
            .filter(|(_, entry)| entry.is_used())
            .map(|(i, entry)| (EntryId(i as u32), entry))
    }

    /// Returns all handles in use or used before.
    pub(crate) fn handles(&self) -> impl Iterator<Item = EntryId> + use<A> {
        (0..self.fresh).map(EntryId)
    }

    /// Adds an entry, or changes parent and downstream interfaces of the one with this key.
    ///
    /// # Errors
    /// [`InstallError`] when the group, the source or an interface number is not allowed, the parent is also
    /// downstream, or there is no room for a new entry.
    pub fn install(
        &mut self,
        key: Key<A>,
        parent: Iface,
        downstream: &[Iface],
    ) -> Result<EntryId, InstallError> {
        self.check(key, parent, downstream)?;
        let id = match self.find(key) {
            Some(id) => id,
            None => self.add(key),
        };
        self.entries[id.index()].parent = parent;
        self.set_mut(id).assign(downstream);
        self.changed(id);
        Ok(id)
    }

    /// Checks whether [`GroupTable::install`] would succeed.
    pub(crate) fn check(
        &self,
        key: Key<A>,
        parent: Iface,
        downstream: &[Iface],
    ) -> Result<(), InstallError> {
        let Key { source, group } = key;
        if !group.is_multicast() || group.is_link_local_group() {
            return Err(InstallError::Group);
        }
        if !source.is_unicast() && !key.is_any_source() {
            return Err(InstallError::Source);
        }
        if downstream
            .iter()
            .any(|iface| usize::from(iface.0) >= self.iface_limit())
        {
            return Err(InstallError::Iface);
        }
        if downstream.contains(&parent) {
            return Err(InstallError::ParentIsDownstream);
        }
        if self.len == self.capacity && self.find(key).is_none() {
            return Err(InstallError::Full);
        }
        Ok(())
    }

    fn add(&mut self, key: Key<A>) -> EntryId {
        let id = if self.free == NO_ENTRY {
            self.fresh += 1;
            EntryId(self.fresh - 1)
        } else {
            let id = EntryId(self.free);
            self.free = self.entries[id.index()].redraw_at_s_or_next_free;
            id
        };
        self.entries[id.index()] = Entry {
            key,
            ..Entry::default()
        };
        self.index.insert(self.prefix(key).hash(), id.0);
        self.len += 1;
        self.any_source_len += usize::from(key.is_any_source());
        id
    }

    /// Removes the entry with this key; its handle is free for another.
    pub fn remove(&mut self, key: Key<A>) -> Option<EntryId> {
        let id = self.find(key)?;
        let (hash_key, entries) = (self.hash_key, &self.entries);
        let hash_of = |value: u32| prefix(hash_key, entries[value as usize].key).hash();
        self.index
            .remove(prefix(hash_key, key).hash(), id.0, hash_of);
        self.entries[id.index()] = Entry {
            redraw_at_s_or_next_free: self.free,
            ..Entry::default()
        };
        self.free = id.0;
        self.changed(id);
        self.len -= 1;
        self.any_source_len -= usize::from(key.is_any_source());
        Some(id)
    }

    /// Removes an interface from an entry's downstream set; returns whether it was in it.
    pub(crate) fn remove_downstream(&mut self, id: EntryId, iface: Iface) -> bool {
        let was_in = self.set_mut(id).remove(iface);
        if was_in {
            self.changed(id);
        }
        was_in
    }

    /// Notes that parent, downstream interfaces or replier of an entry changed, or the entry itself.
    pub(crate) fn changed(&mut self, id: EntryId) {
        self.changes.note(id);
    }

    /// Returns which entries changed since the last call.
    pub(crate) fn take_changes(&mut self) -> Changes {
        core::mem::take(&mut self.changes)
    }
}
