//! Which link an address belongs to, found in as many steps as the interfaces have different prefix
//! lengths, at most 32.

use core::net::Ipv4Addr;

use managed::ManagedSlice;

use crate::table::{HashKey, Index, Slot};
use crate::{Iface, InterfaceConfig};

/// The subnets of the interfaces. A prefix of no length says nothing about where an address is, and
/// is left out.
#[derive(Debug)]
pub(super) struct Subnets<'a> {
    index: Index<'a>,
    key: HashKey,
    /// How many interfaces have a prefix of this length, from 1 bit on.
    lengths: [u16; 32],
}

impl<'a> Subnets<'a> {
    pub(super) fn new(slots: ManagedSlice<'a, Slot>, key: HashKey) -> Self {
        Subnets {
            index: Index::new(slots),
            key,
            lengths: [0; 32],
        }
    }

    /// How many interfaces fit.
    pub(super) fn capacity(&self) -> usize {
        self.index.capacity()
    }

    fn hash(&self, config: InterfaceConfig) -> u64 {
        hash(self.key, config.prefix_len.min(32), config.address)
    }

    pub(super) fn insert(&mut self, iface: Iface, config: InterfaceConfig) {
        if let Some(length) = self.length_mut(config) {
            *length += 1;
            self.index.insert(self.hash(config), u32::from(iface.0));
        }
    }

    /// Takes the subnet of an interface out; `config_of` answers what any interface is set to.
    pub(super) fn remove(
        &mut self,
        iface: Iface,
        config: InterfaceConfig,
        config_of: impl Fn(u32) -> Option<InterfaceConfig>,
    ) {
        if let Some(length) = self.length_mut(config) {
            *length -= 1;
            let key = self.key;
            let hash_of = |i: u32| {
                config_of(i).map_or(0, |config| {
                    hash(key, config.prefix_len.min(32), config.address)
                })
            };
            self.index
                .remove(self.hash(config), u32::from(iface.0), hash_of);
        }
    }

    fn length_mut(&mut self, config: InterfaceConfig) -> Option<&mut u16> {
        let length = usize::from(config.prefix_len.min(32)).checked_sub(1)?;
        self.lengths.get_mut(length)
    }

    /// Whether an address lies on the subnet of any interface.
    #[inline]
    pub(super) fn contain(
        &self,
        address: Ipv4Addr,
        config_of: impl Fn(u32) -> Option<InterfaceConfig>,
    ) -> bool {
        let mut used = self.lengths.iter().zip(1..=32).filter(|(n, _)| **n > 0);
        used.any(|(_, length)| {
            let is = |i: u32| {
                config_of(i).is_some_and(|config| {
                    config.prefix_len.min(32) == length && config.on_link(address)
                })
            };
            self.index
                .find(hash(self.key, length, address), is)
                .is_some()
        })
    }
}

/// The hash of the subnet of this length that an address lies on.
#[inline]
fn hash(key: HashKey, length: u8, address: Ipv4Addr) -> u64 {
    let network = address.to_bits() >> (32 - u32::from(length.clamp(1, 32)));
    key.hash(u64::from(length) << 32 | u64::from(network))
}
