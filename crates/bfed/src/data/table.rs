//! From (sender, flow label) to the edge it comes on: one keyed hash, a probe or two.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher13;

use super::EdgeId;
use crate::types::{ConnId, FlowLabel};

/// Who sent a packet, and the label it bears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key([u64; 3]);

impl Key {
    pub(super) fn datagram(from: SocketAddr, label: FlowLabel) -> Self {
        let ip = match from.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let rest = u64::from(from.port()) << 32 | u64::from(label.get());
        Key([(ip >> 64) as u64, ip as u64, rest])
    }

    pub(super) fn stream(conn: ConnId, label: FlowLabel) -> Self {
        Key([conn.0, 0, 1 << 63 | u64::from(label.get())])
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    key: Key,
    edge: EdgeId,
}

/// An open hash table, at most half full; its hash is keyed, because peers choose labels.
#[derive(Debug)]
pub(super) struct Table {
    hasher: SipHasher13,
    places: Vec<Option<Place>>,
    len: usize,
}

impl Table {
    pub(super) fn new(key: [u8; 16]) -> Self {
        Table {
            hasher: SipHasher13::new_with_key(&key),
            places: vec![None; 16],
            len: 0,
        }
    }

    fn home(&self, key: &Key) -> usize {
        let mut bytes = [0; 24];
        for (at, word) in key.0.iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        self.hasher.hash(&bytes) as usize & (self.places.len() - 1)
    }

    /// Where the key is, or the free place where it would be.
    fn find(&self, key: &Key) -> usize {
        let mut at = self.home(key);
        while self.places[at].is_some_and(|place| place.key != *key) {
            at = (at + 1) & (self.places.len() - 1);
        }
        at
    }

    pub(super) fn get(&self, key: &Key) -> Option<EdgeId> {
        self.places[self.find(key)].map(|place| place.edge)
    }

    pub(super) fn insert(&mut self, key: Key, edge: EdgeId) {
        if 2 * (self.len + 1) > self.places.len() {
            let twice = vec![None; 2 * self.places.len()];
            for place in core::mem::replace(&mut self.places, twice)
                .into_iter()
                .flatten()
            {
                let at = self.find(&place.key);
                self.places[at] = Some(place);
            }
        }
        let at = self.find(&key);
        self.len += usize::from(self.places[at].is_none());
        self.places[at] = Some(Place { key, edge });
    }

    /// Removes the key if it leads to `edge`: it may have been given to another since.
    pub(super) fn remove(&mut self, key: &Key, edge: EdgeId) {
        let mut hole = self.find(key);
        if self.places[hole].is_none_or(|place| place.edge != edge) {
            return;
        }
        self.places[hole] = None;
        self.len -= 1;
        // What was pushed past the hole moves back into it.
        let mask = self.places.len() - 1;
        let mut at = (hole + 1) & mask;
        while let Some(place) = self.places[at] {
            let home = self.home(&place.key);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.places[hole] = self.places[at].take();
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
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    extern crate std;

    #[test]
    fn like_a_map() {
        let (mut table, mut map) = (Table::new([3; 16]), BTreeMap::new());
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let label = (state >> 33) as u32 % 600 + 1;
            let key = Key::datagram(([10, 0, 0, 1], 9).into(), FlowLabel::new(label).unwrap());
            let edge = EdgeId {
                index: label,
                generation: 0,
            };
            if state >> 62 == 0 {
                table.remove(&key, edge);
                map.remove(&label);
            } else {
                table.insert(key, edge);
                map.insert(label, edge);
            }
            assert_eq!(table.get(&key), map.get(&label).copied());
        }
        assert_eq!(table.len(), map.len());
        for label in 1..=600 {
            let key = Key::datagram(([10, 0, 0, 1], 9).into(), FlowLabel::new(label).unwrap());
            assert_eq!(table.get(&key), map.get(&label).copied());
        }
    }
}
