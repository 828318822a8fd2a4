//! The lookup table from (sender, flow label) or native channel to the edge on which a packet arrives, and to its
//! shortcut: one keyed hash, one or two probes, one cache line for each slot.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::edge::Edge;
use super::shortcut::Shortcut;
use super::{EdgeId, PathId};
use crate::native::ChannelId;
use crate::types::{ConnId, FlowLabel};

/// Sender and label of a packet. The last word contains the kind of sender, and is never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key([u64; 3]);

impl Key {
    #[inline]
    pub(super) fn datagram(from: SocketAddr, label: FlowLabel) -> Self {
        let ip = match from.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let rest = u64::from(from.port()) << 32 | u64::from(label.get());
        Key([(ip >> 64) as u64, ip as u64, rest])
    }

    #[inline]
    pub(super) fn stream(conn: ConnId, label: FlowLabel) -> Self {
        Key([conn.0, 0, 1 << 63 | u64::from(label.get())])
    }

    /// A packet on a QUIC path; ports leave these bits of [`Key::datagram`] free.
    #[inline]
    pub(super) fn path(path: PathId, label: FlowLabel) -> Self {
        Key([path.0, 0, 1 << 61 | u64::from(label.get())])
    }

    /// Compares word by word: a wider comparison would wait until the words are in memory.
    #[inline]
    fn is(&self, other: &Key) -> bool {
        let ([a, b, c], [x, y, z]) = (self.0, other.0);
        (a ^ x) | (b ^ y) | (c ^ z) == 0
    }

    /// Only datagrams are counted at their edge.
    #[inline]
    pub(super) fn is_datagram(&self) -> bool {
        self.0[2] >> 61 == 0
    }

    #[inline]
    pub(super) fn native(channel: ChannelId) -> Self {
        Key([channel.0, 0, 1 << 62])
    }
}

/// Indices of the edge and the flow of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) edge: u32,
    pub(super) flow: u32,
}

impl Entry {
    /// Returns the entry for packets that arrive on the edge.
    pub(super) fn new(id: EdgeId, edge: &Edge) -> Self {
        Entry {
            edge: id.index,
            flow: edge.flow,
        }
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Place {
    key: Key,
    entry: Entry,
    shortcut: Shortcut,
}

const _: () = assert!(size_of::<Place>() == 64);

const FREE: Place = Place {
    key: Key([0; 3]),
    entry: Entry { edge: 0, flow: 0 },
    shortcut: Shortcut::CLOSED,
};

/// Where a key was found; valid until the table changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) place: u32,
    pub(super) entry: Entry,
}

impl Place {
    #[inline]
    fn is_free(&self) -> bool {
        self.key.0[2] == 0
    }
}

/// An open-addressing hash table, at most half full. Peers choose their labels, so the hash is keyed with a secret
/// that they cannot observe: they cannot cause collisions on purpose.
///
/// The hash is not the keyed hash of `proto_core`, because it is computed for each packet. To forward one copy takes 196
/// instructions (callgrind, bench `hot_paths`, "forward one copy, 1 flows"), 12 of them for this hash; SipHash-1-3 of the
/// 24 bytes has seven rounds of 14 operations.
#[derive(Debug)]
pub(super) struct Table {
    secret: [u64; 3],
    places: Vec<Place>,
    len: usize,
    /// Prefetched results, in the order in which they will be requested; cleared by every change.
    ahead: Vec<(Key, Found)>,
    /// Number of prefetched results requested so far.
    taken: usize,
}

/// Folds both halves of the product: every bit of the factors changes half of the result.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Table {
    pub(super) fn new(secret: [u64; 3]) -> Self {
        Table {
            secret,
            places: vec![FREE; 16],
            len: 0,
            ahead: Vec::new(),
            taken: 0,
        }
    }

    #[inline]
    fn home(&self, key: &Key) -> usize {
        let [a, b, c] = key.0;
        let [x, y, z] = self.secret;
        let address = fold(a ^ x, b ^ y);
        fold(address ^ c, z | 1) as usize & (self.places.len() - 1)
    }

    /// Returns the slot of the key, or the free slot for it.
    #[inline(always)]
    fn find(&self, key: &Key) -> usize {
        let mut at = self.home(key);
        while !self.places[at].key.is(key) && !self.places[at].is_free() {
            at = (at + 1) & (self.places.len() - 1);
        }
        at
    }

    #[inline(always)]
    fn at(&self, key: &Key) -> Option<Found> {
        let mut at = self.home(key);
        loop {
            let place = &self.places[at];
            if place.key.is(key) {
                let (place, entry) = (at as u32, place.entry);
                return Some(Found { place, entry });
            }
            if place.is_free() {
                return None;
            }
            at = (at + 1) & (self.places.len() - 1);
        }
    }

    #[inline(always)]
    pub(super) fn get(&mut self, key: &Key) -> Option<Found> {
        match self.ahead.get(self.taken) {
            Some((next, found)) if next.is(key) => {
                self.taken += 1;
                Some(*found)
            }
            _ => self.at(key),
        }
    }

    /// Returns the shortcut where a key was found.
    #[inline(always)]
    pub(super) fn shortcut_of(&mut self, found: Found) -> &mut Shortcut {
        &mut self.places[found.place as usize].shortcut
    }

    /// Returns the shortcut in a slot if it still belongs to the entry.
    pub(super) fn shortcut_at(&mut self, place: u32, entry: Entry) -> Option<&mut Shortcut> {
        let place = self.places.get_mut(place as usize)?;
        (place.entry == entry && !place.is_free()).then_some(&mut place.shortcut)
    }

    /// Returns the shortcut for a key if it belongs to the entry.
    pub(super) fn shortcut(&self, key: &Key, entry: Entry) -> Option<&Shortcut> {
        let place = &self.places[self.find(key)];
        (place.entry == entry && !place.is_free()).then_some(&place.shortcut)
    }

    /// Returns the shortcut for a key, mutable, if it belongs to the entry.
    pub(super) fn shortcut_mut(&mut self, key: &Key, entry: Entry) -> Option<&mut Shortcut> {
        let at = self.find(key);
        self.shortcut_at(at as u32, entry)
    }

    /// Returns the entry for a key.
    pub(super) fn entry(&self, key: &Key) -> Option<Entry> {
        self.at(key).map(|found| found.entry)
    }

    /// Clears the prefetched results.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.ahead.clear();
        self.taken = 0;
    }

    /// Looks a key up, for [`Table::get`] to return in the same order.
    #[inline]
    pub(super) fn prefetch(&mut self, key: Key) {
        if let Some(found) = self.at(&key) {
            self.ahead.push((key, found));
        }
    }

    /// Returns the prefetched results, each with whether its shortcut is open.
    #[inline]
    pub(super) fn ahead(&self) -> impl Iterator<Item = (&Key, Entry, bool)> {
        let ahead = self.ahead.iter();
        ahead.map(|(key, found)| {
            let place = &self.places[found.place as usize];
            (key, found.entry, place.shortcut.is_open())
        })
    }

    pub(super) fn insert(&mut self, key: Key, entry: Entry) {
        self.forget();
        if 2 * (self.len + 1) > self.places.len() {
            let twice = vec![FREE; 2 * self.places.len()];
            let before = core::mem::replace(&mut self.places, twice);
            for place in before.into_iter().filter(|place| !place.is_free()) {
                let at = self.find(&place.key);
                self.places[at] = place;
            }
        }
        let at = self.find(&key);
        self.len += usize::from(self.places[at].is_free());
        self.places[at] = Place {
            key,
            entry,
            shortcut: Shortcut::CLOSED,
        };
    }

    /// Removes the key if it leads to `edge`: another edge may have replaced it.
    pub(super) fn remove(&mut self, key: &Key, edge: u32) {
        let mut hole = self.find(key);
        if self.places[hole].is_free() || self.places[hole].entry.edge != edge {
            return;
        }
        self.forget();
        self.places[hole] = FREE;
        self.len -= 1;
        // Entries that were displaced by this one move back.
        let mask = self.places.len() - 1;
        let mut at = (hole + 1) & mask;
        while !self.places[at].is_free() {
            let home = self.home(&self.places[at].key);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.places[hole] = core::mem::replace(&mut self.places[at], FREE);
                hole = at;
            }
            at = (at + 1) & mask;
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests;
