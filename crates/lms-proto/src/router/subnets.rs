//! Which link an address belongs to, found in as many steps as the interfaces have different prefix
//! lengths, at most 32 or 128.

use core::marker::PhantomData;

use managed::ManagedSlice;

use crate::table::{HashKey, Index, Slot};
use crate::{Family, Iface, InterfaceConfig};

/// The subnets of the interfaces. A prefix of no length says nothing about where other addresses are: it
/// counts as one of all bits, the interface's own address.
#[derive(Debug)]
pub(super) struct Subnets<'a, A> {
    index: Index<'a>,
    key: HashKey,
    /// How many interfaces have a prefix of this length, from 1 bit on.
    lengths: [u16; 128],
    /// Which of them are not 0: bit 0 stands for 1 bit.
    used: u128,
    family: PhantomData<A>,
}

impl<'a, A: Family> Subnets<'a, A> {
    pub(super) fn new(slots: ManagedSlice<'a, Slot>, key: HashKey) -> Self {
        Subnets {
            index: Index::new(slots),
            key,
            lengths: [0; 128],
            used: 0,
            family: PhantomData,
        }
    }

    /// How many interfaces fit.
    pub(super) fn capacity(&self) -> usize {
        self.index.capacity()
    }

    pub(super) fn insert(&mut self, iface: Iface, config: InterfaceConfig<A>) {
        let length = length(config);
        self.lengths[usize::from(length - 1)] += 1;
        self.used |= 1 << (length - 1);
        let hash = config.address.hash_subnet(length, &self.key);
        self.index.insert(hash, u32::from(iface.0));
    }

    /// Takes the subnet of an interface out; `config_of` answers what any interface is set to.
    pub(super) fn remove(
        &mut self,
        iface: Iface,
        config: InterfaceConfig<A>,
        config_of: impl Fn(u32) -> Option<InterfaceConfig<A>>,
    ) {
        let place = length(config) - 1;
        self.lengths[usize::from(place)] -= 1;
        if self.lengths[usize::from(place)] == 0 {
            self.used &= !(1 << place);
        }
        let key = self.key;
        let hash_of = |config: InterfaceConfig<A>| config.address.hash_subnet(length(config), &key);
        self.index.remove(hash_of(config), u32::from(iface.0), |i| {
            config_of(i).map_or(0, hash_of)
        });
    }

    /// Whether an address is that of any interface, or lies on its subnet.
    #[inline]
    pub(super) fn contain(
        &self,
        address: A,
        config_of: impl Fn(u32) -> Option<InterfaceConfig<A>>,
    ) -> bool {
        let mut used = self.used;
        while used != 0 {
            let wanted = used.trailing_zeros() as u8 + 1;
            used &= used - 1;
            let is = |i: u32| {
                config_of(i).is_some_and(|config| {
                    length(config) == wanted && config.address.shares_prefix(address, wanted)
                })
            };
            if self
                .index
                .find(address.hash_subnet(wanted, &self.key), is)
                .is_some()
            {
                return true;
            }
        }
        false
    }
}

/// The length that a subnet counts with: from 1 bit to all.
#[inline]
fn length<A: Family>(config: InterfaceConfig<A>) -> u8 {
    match config.prefix_len {
        0 => A::BITS,
        length => length.min(A::BITS),
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use alloc::vec;
    use core::net::Ipv4Addr;

    use super::*;

    const CONFIGS: [InterfaceConfig; 5] = [
        config([10, 1, 0, 1], 24),
        config([10, 1, 7, 1], 24),
        config([172, 16, 0, 1], 12),
        config([192, 0, 2, 1], 0),
        config([198, 51, 100, 1], 32),
    ];

    const fn config(address: [u8; 4], prefix_len: u8) -> InterfaceConfig {
        InterfaceConfig::ipv4(
            Ipv4Addr::new(address[0], address[1], address[2], address[3]),
            prefix_len,
        )
    }

    fn config_of(iface: u32) -> Option<InterfaceConfig> {
        CONFIGS.get(iface as usize).copied()
    }

    fn subnets(interfaces: &[u16]) -> Subnets<'static, Ipv4Addr> {
        let mut subnets = Subnets::new(vec![Slot::default(); 16].into(), HashKey(1, 2));
        for &iface in interfaces {
            subnets.insert(Iface(iface), CONFIGS[usize::from(iface)]);
        }
        subnets
    }

    fn contained(subnets: &Subnets<'_, Ipv4Addr>) -> [bool; 6] {
        let addresses = [
            [10, 1, 0, 77],
            [10, 1, 7, 77],
            [172, 31, 255, 1],
            [192, 0, 2, 1],
            [198, 51, 100, 1],
            [10, 2, 0, 77],
        ];
        addresses.map(|address| subnets.contain(address.into(), config_of))
    }

    #[test]
    fn addresses_lie_on_the_subnets_of_the_interfaces() {
        assert_eq!(contained(&subnets(&[])), [false; 6]);
        assert_eq!(
            contained(&subnets(&[0, 1, 2, 3, 4])),
            [true, true, true, true, true, false]
        );
        let other = Ipv4Addr::new(192, 0, 2, 2);
        assert!(
            !subnets(&[3]).contain(other, config_of),
            "no prefix is the own address"
        );
    }

    #[test]
    fn an_interface_that_goes_takes_its_subnet_along() {
        let mut subnets = subnets(&[0, 1, 2]);
        subnets.remove(Iface(0), CONFIGS[0], config_of);
        assert_eq!(
            contained(&subnets),
            [false, true, true, false, false, false]
        );
        assert_eq!(subnets.used.count_ones(), 2);
        subnets.remove(Iface(1), CONFIGS[1], config_of);
        assert_eq!(
            contained(&subnets),
            [false, false, true, false, false, false]
        );
        assert_eq!(
            subnets.used,
            1 << 11,
            "lengths of no interface are not looked for"
        );
        subnets.remove(Iface(2), CONFIGS[2], config_of);
        assert_eq!((contained(&subnets), subnets.used), ([false; 6], 0));
        subnets.insert(Iface(0), CONFIGS[0]);
        assert!(contained(&subnets)[0]);
    }
}
