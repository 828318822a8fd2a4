//! Interfaces and their addresses: [`list`] them, follow them with a [`Watcher`], change
//! them with an [`Editor`].

mod edit;
mod watch;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use edit::{EditError, Editor, LinkCounters, Neighbour, WireEnd};
pub use watch::{LinkEvent, Watcher};

use crate::error::OpenError;
use crate::family::Family;

/// An interface, as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its number in this network namespace; never 0.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Largest IP packet it carries in one piece, bytes.
    pub mtu: u32,
    /// Its Ethernet address, where it has one of six bytes.
    pub link_address: Option<[u8; 6]>,
    /// The administrator switched it on.
    pub is_up: bool,
    /// It is up and has a carrier.
    pub is_running: bool,
    /// It carries multicast.
    pub is_multicast: bool,
    /// It is the loopback interface.
    pub is_loopback: bool,
    /// A link between two.
    pub is_point_to_point: bool,
    /// Its IPv4 addresses; the first is the one it sends from.
    pub addresses: Vec<Address>,
    /// Its IPv6 addresses, in the kernel's order.
    pub ipv6: Vec<Ipv6Address>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address<A = Ipv4Addr> {
    /// The address.
    pub address: A,
    /// Length of the link's prefix, bits.
    pub prefix_len: u8,
}

/// An IPv6 address of an interface, and how far duplicate address detection (RFC 4862 §5.4) is with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Address {
    /// The address.
    pub address: Address<Ipv6Addr>,
    /// Detection has not ended (a [`Watcher`] learns of the address when it has, [`list`] before): packets cannot be sent from it yet, unless it is optimistic (RFC 4429).
    pub is_tentative: bool,
    /// Another host has it: it is never used.
    pub is_duplicate: bool,
}

impl Ipv6Address {
    /// Packets can be sent from it.
    pub fn is_usable(&self) -> bool {
        !self.is_tentative && !self.is_duplicate
    }

    /// It is of link-local scope, fe80::/10.
    pub fn is_link_local(&self) -> bool {
        self.address.address.is_unicast_link_local()
    }
}

impl<A: Family> Address<A> {
    /// Another address is on the same link.
    pub fn is_neighbour(&self, other: A) -> bool {
        let bits = |address: A| match address.into() {
            IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let ((own, width), (other, _)) = (bits(self.address), bits(other));
        let shift = width - u32::from(self.prefix_len).min(width);
        (own ^ other).checked_shr(shift).unwrap_or(0) == 0
    }
}

impl Interface {
    /// Whether an address is one of its own.
    pub fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.addresses.iter().any(|own| own.address == address),
            IpAddr::V6(address) => self.ipv6.iter().any(|own| own.address.address == address),
        }
    }

    /// The IPv6 address that packets to `destination` leave from: a link-local one for destinations of link-local or
    /// smaller scope, else a wider one, of the destination's prefix if there is one; `None` when none is usable.
    pub fn ipv6_source(&self, destination: Ipv6Addr) -> Option<Ipv6Addr> {
        let narrow = crate::family::needs_zone(destination);
        let usable = || self.ipv6.iter().filter(|own| own.is_usable());
        let of_scope = || usable().filter(|own| own.is_link_local() == narrow);
        let near = of_scope().find(|own| own.address.is_neighbour(destination));
        let found = near.or_else(|| of_scope().next());
        // A group of wider scope can be sent to from a link-local address, on the link alone.
        let found = found.or_else(|| usable().next());
        found.map(|own| own.address.address)
    }
}

/// Returns all interfaces, by index.
///
/// # Errors
/// [`OpenError`] when the netlink socket cannot be opened or the tables cannot be read.
pub fn list() -> Result<Vec<Interface>, OpenError> {
    Ok(watch::dump(&mut watch::open(&[])?)?.into_values().collect())
}

/// Finds an interface as [`find`] does.
///
/// # Errors
/// There is none, or it cannot be looked up; the error names the interfaces that there are.
pub fn find_named(name_or_address: &str) -> Result<Interface, UnknownInterface> {
    find(name_or_address).map_err(|_| UnknownInterface {
        wanted: name_or_address.to_owned(),
        known: list()
            .unwrap_or_default()
            .into_iter()
            .map(|interface| interface.name)
            .collect(),
    })
}

/// No interface of this host has that name or address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no interface is called or has the address {wanted}: there are {}", known.join(", "))]
pub struct UnknownInterface {
    /// The name or address.
    pub wanted: String,
    /// The names of this host's interfaces, by index.
    pub known: Vec<String>,
}

/// Returns the interface with a name, or with an IPv4 or IPv6 address (as users write `--interface`); of a link-local
/// address that several have, the first.
///
/// # Errors
/// [`OpenError::NoInterface`] when no interface has that name or address; else as [`list`].
pub fn find(name_or_address: &str) -> Result<Interface, OpenError> {
    let address: Option<IpAddr> = name_or_address.parse().ok();
    list()?
        .into_iter()
        .find(|interface| {
            interface.name == name_or_address || address.is_some_and(|a| interface.has(a))
        })
        .ok_or(OpenError::NoInterface {
            what: "finding the interface",
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(address: &str, prefix_len: u8) -> Ipv6Address {
        Ipv6Address {
            address: Address {
                address: address.parse().unwrap(),
                prefix_len,
            },
            is_tentative: false,
            is_duplicate: false,
        }
    }

    #[test]
    fn neighbours_share_the_prefix() {
        let address = |prefix_len| Address {
            address: Ipv4Addr::new(10, 1, 2, 3),
            prefix_len,
        };
        let other = Ipv4Addr::new(10, 1, 3, 4);
        assert!(address(23).is_neighbour(other) && address(0).is_neighbour(other));
        assert!(!address(24).is_neighbour(other) && !address(32).is_neighbour(other));
        let own = own("fd00:1::1", 64).address;
        assert!(own.is_neighbour("fd00:1::ffff:0:1".parse().unwrap()));
        assert!(!own.is_neighbour("fd00:1:0:1::1".parse().unwrap()));
    }

    #[test]
    fn the_source_has_the_scope_of_the_destination() {
        let mut interface = Interface::default();
        let from = |interface: &Interface, to: &str| {
            let source = interface.ipv6_source(to.parse().unwrap());
            source.map(|source| source.to_string())
        };
        assert_eq!(from(&interface, "ff3e::1"), None);
        interface.ipv6 = vec![own("fe80::1", 64)];
        assert_eq!(from(&interface, "ff3e::1").as_deref(), Some("fe80::1"));
        interface
            .ipv6
            .extend([own("fd00:1::1", 64), own("fd00:2::1", 64)]);
        assert_eq!(from(&interface, "ff3e::1").as_deref(), Some("fd00:1::1"));
        assert_eq!(from(&interface, "fd00:2::9").as_deref(), Some("fd00:2::1"));
        assert_eq!(from(&interface, "ff12::1").as_deref(), Some("fe80::1"));
        assert_eq!(from(&interface, "fe80::9").as_deref(), Some("fe80::1"));
        interface.ipv6[1].is_tentative = true;
        assert_eq!(from(&interface, "ff3e::1").as_deref(), Some("fd00:2::1"));
    }
}
