//! The router's entries and subnets in the maps.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use aya::maps::lpm_trie::Key as Prefix;
use lms_proto::fast_path::{Port, Record};
use lms_proto::table::EntryId;
use lms_proto::{Iface, InterfaceConfig, Key, LinkAddr, Router};

use crate::MapError;
use crate::program::{FastPath, record_key};
use crate::sys::Value;

/// By length and bits of a prefix: the number of the interface whose subnet it is, [`Iface::UNSET`] if that is unclear.
pub(crate) type Subnets = BTreeMap<(u8, Ipv4Addr), u32>;

/// What is in the map of records.
#[derive(Debug)]
pub struct Published {
    /// By slot.
    entries: Vec<Option<(Key<Ipv4Addr>, Record)>>,
    len: usize,
    refused: u64,
    pub(crate) subnets: Subnets,
}

/// Length and bits of a prefix of `len` bits.
fn subnet(address: Ipv4Addr, len: u8) -> (u8, Ipv4Addr) {
    let mask = u32::MAX
        .checked_shl(32 - u32::from(len.min(32)))
        .unwrap_or(0);
    (len, Ipv4Addr::from_bits(address.to_bits() & mask))
}

/// Whether the subnet of an interface is its alone, and has no other address of this router than its own.
pub(crate) fn is_apart(subnets: &Subnets, iface: Iface, port: &Port) -> bool {
    let own = subnet(port.address, port.prefix_len);
    let is_own = |prefix: (u8, Ipv4Addr)| prefix == own || prefix == (32, port.address);
    let is_in = |(len, address)| len >= port.prefix_len && subnet(address, port.prefix_len) == own;
    subnets.get(&own) == Some(&u32::from(iface.0))
        && subnets
            .keys()
            .all(|&prefix| is_own(prefix) || !is_in(prefix))
}

/// A link of the router: the number of its interface and its subnet.
pub type Link = (Iface, InterfaceConfig);

impl Published {
    pub(crate) fn new(groups: usize) -> Published {
        Published {
            entries: vec![None; groups],
            len: 0,
            refused: 0,
            subnets: BTreeMap::new(),
        }
    }

    #[inline]
    fn get(&self, slot: usize) -> Option<(Key<Ipv4Addr>, Record)> {
        self.entries.get(slot).copied().flatten()
    }

    /// How many entries the program forwards.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How often the kernel did not take a record: the map is full, or there is no memory. Such entries stay with the
    /// router.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

impl FastPath {
    /// What is published.
    pub fn published(&self) -> &Published {
        &self.published
    }

    /// Publishes what has changed in the router's entries since the last call. An entry is replaced in one step: there is no
    /// moment without it. `resolve` knows the link addresses of configured repliers.
    pub fn publish(
        &mut self,
        router: &mut Router<'_, Ipv4Addr>,
        mut resolve: impl FnMut(Iface, Ipv4Addr) -> Option<LinkAddr>,
    ) {
        let changes = router.take_changes();
        if changes.all {
            self.publish_slots(0..self.published.entries.len(), router, &mut resolve);
        } else {
            let slots = changes.entries.iter().map(|id| id.index());
            self.publish_slots(slots, router, &mut resolve);
        }
    }

    /// Publishes all entries anew: what `resolve` of [`FastPath::publish`] knows has changed.
    pub fn publish_all(
        &mut self,
        router: &mut Router<'_, Ipv4Addr>,
        mut resolve: impl FnMut(Iface, Ipv4Addr) -> Option<LinkAddr>,
    ) {
        router.take_changes();
        self.publish_slots(0..self.published.entries.len(), router, &mut resolve);
    }

    /// First removes what is gone from these slots, then publishes what is in them: an entry may have moved from one slot to
    /// another.
    fn publish_slots(
        &mut self,
        slots: impl Iterator<Item = usize> + Clone,
        router: &mut Router<'_, Ipv4Addr>,
        resolve: &mut impl FnMut(Iface, Ipv4Addr) -> Option<LinkAddr>,
    ) {
        for slot in slots.clone() {
            let Some((key, _)) = self.published.get(slot) else {
                continue;
            };
            let after = router.record(EntryId::from_index(slot as u32), &mut *resolve);
            if after.is_none_or(|(new, _)| new != key) {
                self.withdraw(slot, key, router);
            }
        }
        for slot in slots {
            let after = router.record(EntryId::from_index(slot as u32), &mut *resolve);
            if let Some(after) = after.filter(|after| self.published.get(slot) != Some(*after)) {
                self.publish_one(slot, after, router);
            }
        }
    }

    /// Removes the record of an entry. The entry may still be there: its packets are the router's from now on.
    fn withdraw(&mut self, slot: usize, key: Key<Ipv4Addr>, router: &mut Router<'_, Ipv4Addr>) {
        // It is not there where the kernel refused to take it.
        let _ = self.records.remove(&record_key(key));
        self.published.entries[slot] = None;
        self.published.len -= 1;
        let id = EntryId::from_index(slot as u32);
        let entry = router.table().get(id);
        if entry.is_some_and(|entry| entry.key() == key)
            && let Some(words) = self.shared.words(slot as u32)
        {
            router.set_words(id, words);
        }
    }

    fn publish_one(
        &mut self,
        slot: usize,
        (key, record): (Key<Ipv4Addr>, Record),
        router: &mut Router<'_, Ipv4Addr>,
    ) {
        let Some(before) = self.published.entries.get(slot).copied() else {
            return;
        };
        let words = router.words(EntryId::from_index(slot as u32));
        if before.is_none()
            && let Some(words) = words
        {
            self.shared.set_words(slot as u32, words);
        }
        let result = self.records.insert(record_key(key), Value(record), 0);
        if result.is_err() {
            self.published.refused += 1;
            // The old record no longer holds.
            if before.is_some() {
                self.withdraw(slot, key, router);
            }
            return;
        }
        self.published.len += usize::from(before.is_none());
        self.published.entries[slot] = Some((key, record));
    }

    /// Whether packets of an entry may be forwarded by the program: its handle, and its source and group.
    #[inline]
    pub fn is_published<A: Into<IpAddr> + Copy>(&self, id: EntryId, key: Key<A>) -> bool {
        let entry = self.published.get(id.index());
        entry.is_some_and(|(published, _)| {
            IpAddr::V4(published.source) == key.source.into()
                && IpAddr::V4(published.group) == key.group.into()
        })
    }

    /// Sets the subnets and addresses of all interfaces.
    ///
    /// # Errors
    /// [`MapError`] by the kernel's answer.
    pub fn set_links(&mut self, links: impl IntoIterator<Item = Link>) -> Result<(), MapError> {
        let unclear = u32::from(Iface::UNSET.0);
        let mut wanted = Subnets::new();
        for (iface, config) in links {
            let own = config.address;
            // An interface without a subnet has its address alone.
            if (1..32).contains(&config.prefix_len) {
                wanted
                    .entry(subnet(own, config.prefix_len))
                    .and_modify(|number| *number = unclear)
                    .or_insert(u32::from(iface.0));
            }
            wanted.insert((32, own), unclear);
        }
        // A subnet that gets a neighbour within it must not be taken for one that is alone, not for a moment.
        self.set_apart(|iface, port| port.is_apart == 1 && is_apart(&wanted, iface, port))?;
        // New ones first: an address that is on a link now is never taken for one that is on none.
        for (&(len, subnet), &number) in &wanted {
            let prefix = Prefix::new(len.into(), subnet.octets());
            self.links.insert(&prefix, number, 0)?;
            self.published.subnets.insert((len, subnet), number);
        }
        let gone = self.published.subnets.keys().copied();
        let gone: Vec<_> = gone.filter(|subnet| !wanted.contains_key(subnet)).collect();
        for (len, subnet) in gone {
            // One that is not there need not be removed.
            let _ = self.links.remove(&Prefix::new(len.into(), subnet.octets()));
            self.published.subnets.remove(&(len, subnet));
        }
        self.set_apart(|iface, port| is_apart(&wanted, iface, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNCLEAR: u32 = Iface::UNSET.0 as u32;

    /// Interface 1 with 10.0.1.1/24, beside these.
    fn beside(others: &[(u8, [u8; 4], u32)]) -> bool {
        let port = Port {
            address: [10, 0, 1, 1].into(),
            prefix_len: 24,
            ..Port::NONE
        };
        let own = [(24, [10, 0, 1, 0], 1), (32, [10, 0, 1, 1], UNCLEAR)];
        let all = own.iter().chain(others);
        let subnets = all.map(|&(len, bits, number)| ((len, bits.into()), number));
        is_apart(&subnets.collect(), Iface(1), &port)
    }

    #[test]
    fn a_subnet_is_apart_while_no_prefix_of_this_router_lies_within_it() {
        assert!(beside(&[]));
        assert!(beside(&[
            (24, [10, 0, 2, 0], 2),
            (32, [10, 0, 2, 1], UNCLEAR)
        ]));
        // Around it: the longer prefix decides.
        assert!(beside(&[
            (16, [10, 0, 0, 0], 2),
            (32, [10, 0, 0, 9], UNCLEAR)
        ]));
        // An address of another interface, a smaller subnet, and the same subnet on two interfaces.
        assert!(!beside(&[(32, [10, 0, 1, 9], UNCLEAR)]));
        assert!(!beside(&[(25, [10, 0, 1, 128], 2)]));
        assert!(!beside(&[(24, [10, 0, 1, 0], UNCLEAR)]));
    }

    #[test]
    fn an_interface_without_an_address_or_of_another_number_is_not_apart() {
        let subnets = Subnets::from([((24, [10, 0, 1, 0].into()), 2)]);
        assert!(!is_apart(&subnets, Iface(1), &Port::NONE));
        let port = Port {
            address: [10, 0, 1, 1].into(),
            prefix_len: 24,
            ..Port::NONE
        };
        assert!(!is_apart(&subnets, Iface(1), &port));
    }
}
