//! The address family as a parameter.

use core::fmt;
use core::hash::Hash;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proto_core::hash::{HashKey, Prefix};
use proto_core::slab::TableKey;

mod sealed {
    pub trait Sealed {}
    impl Sealed for core::net::Ipv4Addr {}
    impl Sealed for core::net::Ipv6Addr {}
}

/// An IPv4 or IPv6 address: what machines and codecs that serve both families are generic over.
pub trait Address:
    sealed::Sealed + Copy + Ord + Hash + fmt::Debug + fmt::Display + Into<IpAddr> + 'static
{
    /// The bytes of an address on the wire.
    type Octets: AsRef<[u8]> + AsMut<[u8]> + Copy + Default + Eq + fmt::Debug;

    /// The address whose bits are all 0.
    const UNSPECIFIED: Self;
    /// Bits of an address.
    const BITS: u8;
    /// Whether each interface has a link-local address beside its others.
    const HAS_LINK_LOCAL: bool;
    /// Bytes of an address.
    const LEN: usize = Self::BITS as usize / 8;

    /// The address as on the wire.
    fn octets(self) -> Self::Octets;

    /// The address that these bytes are.
    fn from_octets(octets: Self::Octets) -> Self;

    /// The address, if it is one of this family.
    fn from_ip(address: IpAddr) -> Option<Self>;

    /// The address at the start of `bytes`, if they are long enough.
    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut octets = Self::Octets::default();
        octets.as_mut().copy_from_slice(bytes.get(..Self::LEN)?);
        Some(Self::from_octets(octets))
    }

    /// Whether all bits are 0.
    fn is_unspecified(self) -> bool {
        self == Self::UNSPECIFIED
    }

    /// Whether this is a group.
    fn is_multicast(self) -> bool;

    /// Whether packets to this group stay on their link: 224.0.0.0/24; scopes 1 and 2 of IPv6 and the reserved
    /// scope 0.
    fn is_link_local_group(self) -> bool;

    /// Whether the address has a meaning on its own link only: 169.254.0.0/16, fe80::/10.
    fn is_link_local(self) -> bool;

    /// Whether the address can be that of a host which is not this one (RFC 6890): neither unspecified nor of
    /// loopback, multicast or reserved.
    fn is_host(self) -> bool;

    /// Whether an interface may have the address: neither unspecified nor multicast nor broadcast.
    fn is_unicast(self) -> bool;

    /// Whether the first `len` bits of both addresses are the same; more than [`Address::BITS`] count as all.
    fn shares_prefix(self, other: Self, len: u8) -> bool;

    /// Whether the address is none of a host on its subnet of this prefix length: for IPv4 the subnet's own and its
    /// broadcast address (prefixes of 31 and 32 bits have neither, RFC 3021), for IPv6 the anycast address
    /// of the subnet's routers (RFC 4291 §2.6.1; prefixes of 127 and 128 bits have none, RFC 6164).
    fn is_reserved(self, prefix_len: u8) -> bool;

    /// Starts the hash of a pair of addresses.
    fn hash_pair(self, second: Self, key: &HashKey) -> Prefix;

    /// The hash of the address with a number.
    fn hash_numbered(self, number: u32, key: &HashKey) -> u64;

    /// The hash of the first `len` bits, 1 to [`Address::BITS`], and of `len`.
    fn hash_subnet(self, len: u8, key: &HashKey) -> u64;
}

impl Address for Ipv4Addr {
    type Octets = [u8; 4];

    const UNSPECIFIED: Self = Ipv4Addr::UNSPECIFIED;
    const BITS: u8 = 32;
    const HAS_LINK_LOCAL: bool = false;

    #[inline]
    fn octets(self) -> [u8; 4] {
        Ipv4Addr::octets(&self)
    }

    #[inline]
    fn from_octets(octets: [u8; 4]) -> Self {
        octets.into()
    }

    fn from_ip(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }
    }

    #[inline]
    fn is_multicast(self) -> bool {
        Ipv4Addr::is_multicast(&self)
    }

    #[inline]
    fn is_link_local_group(self) -> bool {
        self.to_bits() >> 8 == 0xe0_0000
    }

    #[inline]
    fn is_link_local(self) -> bool {
        Ipv4Addr::is_link_local(&self)
    }

    #[inline]
    fn is_host(self) -> bool {
        (1..224).contains(&(self.to_bits() >> 24)) && !self.is_loopback()
    }

    #[inline]
    fn is_unicast(self) -> bool {
        !(self.is_unspecified() || Ipv4Addr::is_multicast(&self) || self.is_broadcast())
    }

    #[inline]
    fn shares_prefix(self, other: Self, len: u8) -> bool {
        (self.to_bits() ^ other.to_bits()) & mask(len) == 0
    }

    #[inline]
    fn is_reserved(self, prefix_len: u8) -> bool {
        let host = self.to_bits() & !mask(prefix_len);
        prefix_len < 31 && (host == 0 || host == !mask(prefix_len))
    }

    #[inline]
    fn hash_pair(self, second: Self, key: &HashKey) -> Prefix {
        key.prefix(u64::from(self.to_bits()) << 32 | u64::from(second.to_bits()))
    }

    #[inline]
    fn hash_numbered(self, number: u32, key: &HashKey) -> u64 {
        key.hash(u64::from(number) << 32 | u64::from(self.to_bits()))
    }

    #[inline]
    fn hash_subnet(self, len: u8, key: &HashKey) -> u64 {
        key.hash(u64::from(len) << 32 | u64::from(self.to_bits() >> (32 - u32::from(len))))
    }
}

#[inline]
fn mask(prefix_len: u8) -> u32 {
    let shift = 32 - u32::from(prefix_len.min(32));
    u32::MAX.checked_shl(shift).unwrap_or(0)
}

impl Address for Ipv6Addr {
    type Octets = [u8; 16];

    const UNSPECIFIED: Self = Ipv6Addr::UNSPECIFIED;
    const BITS: u8 = 128;
    const HAS_LINK_LOCAL: bool = true;

    #[inline]
    fn octets(self) -> [u8; 16] {
        Ipv6Addr::octets(&self)
    }

    #[inline]
    fn from_octets(octets: [u8; 16]) -> Self {
        octets.into()
    }

    fn from_ip(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        }
    }

    #[inline]
    fn is_multicast(self) -> bool {
        Ipv6Addr::is_multicast(&self)
    }

    #[inline]
    fn is_link_local_group(self) -> bool {
        Ipv6Addr::is_multicast(&self) && self.segments()[0] & 0xf <= 2
    }

    #[inline]
    fn is_link_local(self) -> bool {
        self.is_unicast_link_local()
    }

    #[inline]
    fn is_host(self) -> bool {
        self.is_unicast() && !self.is_loopback() && self.to_ipv4_mapped().is_none()
    }

    #[inline]
    fn is_unicast(self) -> bool {
        !(Ipv6Addr::is_unspecified(&self) || Ipv6Addr::is_multicast(&self))
    }

    #[inline]
    fn shares_prefix(self, other: Self, len: u8) -> bool {
        (self.to_bits() ^ other.to_bits()) & mask6(len) == 0
    }

    #[inline]
    fn is_reserved(self, prefix_len: u8) -> bool {
        prefix_len < 127 && self.to_bits() & !mask6(prefix_len) == 0
    }

    #[inline]
    fn hash_pair(self, second: Self, key: &HashKey) -> Prefix {
        let ([a, b], [c, d]) = (halves(self), halves(second));
        key.prefix(a).then(b).then(c).then(d)
    }

    #[inline]
    fn hash_numbered(self, number: u32, key: &HashKey) -> u64 {
        let [a, b] = halves(self);
        key.prefix(a).then(b).hash_with(number)
    }

    #[inline]
    fn hash_subnet(self, len: u8, key: &HashKey) -> u64 {
        Ipv6Addr::from_bits(self.to_bits() & mask6(len)).hash_numbered(len.into(), key)
    }
}

#[inline]
fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

#[inline]
fn mask6(prefix_len: u8) -> u128 {
    let shift = 128 - u32::from(prefix_len.min(128));
    u128::MAX.checked_shl(shift).unwrap_or(0)
}

/// An address with a number, such as that of an interface, as the key of a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Numbered<A> {
    /// The number.
    pub number: u32,
    /// The address.
    pub address: A,
}

impl<A> Numbered<A> {
    /// The key of an address with this number.
    pub const fn new(number: u32, address: A) -> Self {
        Self { number, address }
    }
}

impl<A: Address> TableKey for Numbered<A> {
    #[inline]
    fn hash(&self, key: &HashKey) -> u64 {
        self.address.hash_numbered(self.number, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_ipv4_addresses() {
        let of = |a: [u8; 4]| Ipv4Addr::from(a);
        assert!(of([224, 0, 0, 255]).is_link_local_group());
        assert!(!of([224, 0, 1, 0]).is_link_local_group());
        for other in [[0, 1, 2, 3], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
            assert!(!of(other).is_host(), "{other:?}");
        }
        assert!(of([10, 0, 0, 1]).is_host());
        assert!(of([127, 0, 0, 1]).is_unicast() && !of([255; 4]).is_unicast());
        assert!(of([10, 0, 0, 0]).is_reserved(24) && of([10, 0, 0, 255]).is_reserved(24));
        assert!(!of([10, 0, 0, 0]).is_reserved(31) && !of([10, 0, 1, 0]).is_reserved(8));
        assert!(of([10, 0, 0, 1]).shares_prefix(of([192, 0, 0, 1]), 0));
        assert!(!of([10, 0, 0, 1]).shares_prefix(of([10, 0, 0, 2]), 200));
    }

    #[test]
    fn kinds_of_ipv6_addresses() {
        let of = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        for link_local in ["ff00::1", "ff01::1", "ff02::16", "ff12::1"] {
            assert!(of(link_local).is_link_local_group(), "{link_local}");
        }
        for wider in ["ff03::1", "ff15::1", "ff3e::1", "fe80::1"] {
            assert!(!of(wider).is_link_local_group(), "{wider}");
        }
        for other in ["::", "::1", "ff02::1", "::ffff:10.0.0.1"] {
            assert!(!of(other).is_host(), "{other}");
        }
        assert!(of("2001:db8::1").is_host() && of("fe80::1").is_link_local());
        assert!(of("2001:db8::").is_reserved(64) && !of("2001:db8::").is_reserved(127));
        assert!(of("2001:db8::1").shares_prefix(of("2001:db8::2"), 64));
        assert!(!of("2001:db8::1").shares_prefix(of("2001:db8:0:1::1"), 64));
        assert!(of("::1").shares_prefix(of("8000::"), 0));
    }

    #[test]
    fn every_word_of_an_address_is_hashed() {
        let key = HashKey(1, 2);
        let base = Ipv6Addr::from_bits(u128::MAX / 3);
        let flipped = (0..128).map(|bit| Ipv6Addr::from_bits(base.to_bits() ^ 1 << bit));
        for other in flipped {
            assert_ne!(base.hash_numbered(1, &key), other.hash_numbered(1, &key));
            let pair = |a: Ipv6Addr, b| a.hash_pair(b, &key).hash();
            assert_ne!(pair(base, base), pair(base, other));
            assert_ne!(pair(base, base), pair(other, base));
            let same = base.shares_prefix(other, 64);
            let hashes = [base, other].map(|a| a.hash_subnet(64, &key));
            assert_eq!(same, hashes[0] == hashes[1]);
        }
        assert_ne!(base.hash_numbered(1, &key), base.hash_numbered(2, &key));
        assert_ne!(base.hash_subnet(64, &key), base.hash_subnet(63, &key));
    }
}
