//! The router's entries and subnets in the maps.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use aya::maps::lpm_trie::Key as Prefix;
use lms_proto::fast_path::Record;
use lms_proto::table::EntryId;
use lms_proto::{Iface, InterfaceConfig, Key, LinkAddr, Router};

use crate::MapError;
use crate::program::{FastPath, record_key};
use crate::sys::Value;

/// What is in the map of records.
#[derive(Debug)]
pub struct Published {
    /// By slot.
    entries: Vec<Option<(Key<Ipv4Addr>, Record)>>,
    len: usize,
    refused: u64,
    subnets: BTreeMap<(u8, Ipv4Addr), u32>,
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
            let table = router.table();
            let end = table.capacity().min(self.published.entries.len());
            for slot in 0..end {
                self.publish_one(router, EntryId::from_index(slot as u32), &mut resolve);
            }
            return;
        }
        for id in changes.entries {
            self.publish_one(router, id, &mut resolve);
        }
    }

    /// Publishes all entries anew: what `resolve` of [`FastPath::publish`] knows has changed.
    pub fn publish_all(
        &mut self,
        router: &mut Router<'_, Ipv4Addr>,
        mut resolve: impl FnMut(Iface, Ipv4Addr) -> Option<LinkAddr>,
    ) {
        router.take_changes();
        for slot in 0..self.published.entries.len() {
            self.publish_one(router, EntryId::from_index(slot as u32), &mut resolve);
        }
    }

    fn publish_one(
        &mut self,
        router: &mut Router<'_, Ipv4Addr>,
        id: EntryId,
        resolve: &mut impl FnMut(Iface, Ipv4Addr) -> Option<LinkAddr>,
    ) {
        let slot = id.index();
        let Some(&before) = self.published.entries.get(slot) else {
            return;
        };
        let after = router.record(id, resolve);
        if before == after {
            return;
        }
        if let Some((key, _)) = before
            && after.is_none_or(|(new, _)| new != key)
        {
            // It is not there where a map of the same key was refused.
            let _ = self.records.remove(&record_key(key));
            self.published.entries[slot] = None;
            self.published.len -= 1;
            // The entry may be the same, and its packets the router's from now on.
            if router
                .table()
                .get(id)
                .is_some_and(|entry| entry.key() == key)
                && let Some(words) = self.shared.words(slot as u32)
            {
                router.set_words(id, words);
            }
        }
        let Some((key, record)) = after else { return };
        let is_new = self.published.entries[slot].is_none();
        if is_new && let Some(words) = router.words(id) {
            self.shared.set_words(slot as u32, words);
        }
        if self
            .records
            .insert(record_key(key), Value(record), 0)
            .is_err()
        {
            self.published.refused += 1;
            return;
        }
        self.published.len += usize::from(is_new);
        self.published.entries[slot] = after;
    }

    /// Whether packets of an entry may be forwarded by the program.
    pub fn is_published(&self, id: EntryId) -> bool {
        let entry = self.published.entries.get(id.index());
        entry.is_some_and(Option::is_some)
    }

    /// Sets the subnets and addresses of all interfaces.
    ///
    /// # Errors
    /// [`MapError`] by the kernel's answer.
    pub fn set_links(&mut self, links: impl IntoIterator<Item = Link>) -> Result<(), MapError> {
        let unclear = u32::from(Iface::UNSET.0);
        let mut wanted = BTreeMap::new();
        for (iface, config) in links {
            let own = config.address;
            // An interface without a subnet has its address alone.
            if (1..32).contains(&config.prefix_len) {
                let bits = own.to_bits() & u32::MAX << (32 - u32::from(config.prefix_len));
                let subnet = (config.prefix_len, Ipv4Addr::from_bits(bits));
                wanted
                    .entry(subnet)
                    .and_modify(|number| *number = unclear)
                    .or_insert(u32::from(iface.0));
            }
            wanted.insert((32, own), unclear);
        }
        let before = std::mem::take(&mut self.published.subnets);
        for (&(len, subnet), &number) in &wanted {
            let prefix = Prefix::new(len.into(), subnet.octets());
            self.links.insert(&prefix, number, 0)?;
        }
        for (len, subnet) in before
            .into_keys()
            .filter(|subnet| !wanted.contains_key(subnet))
        {
            // A subnet that is not there need not be removed.
            let _ = self.links.remove(&Prefix::new(len.into(), subnet.octets()));
        }
        self.published.subnets = wanted;
        Ok(())
    }
}
