//! Interfaces and their IPv4 addresses: [`list`] them, follow them with a [`Watcher`], change
//! them with an [`Editor`].

mod edit;
mod watch;

use std::net::{Ipv4Addr, Ipv6Addr};

pub use edit::{EditError, Editor, LinkCounters, Neighbour, WireEnd};
pub use watch::{LinkEvent, Watcher};

use crate::error::OpenError;

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
}

/// An IPv4 address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub address: Ipv4Addr,
    /// Length of the link's prefix, bits.
    pub prefix_len: u8,
}

impl Address {
    /// Another address is on the same link.
    pub fn is_neighbour(&self, other: Ipv4Addr) -> bool {
        let shift = 32 - u32::from(self.prefix_len.min(32));
        (u32::from(self.address) ^ u32::from(other))
            .checked_shr(shift)
            .unwrap_or(0)
            == 0
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

/// Returns the interface with a name, or with an IPv4 or IPv6 address (as users write `--interface`).
///
/// # Errors
/// [`OpenError::NoInterface`] when no interface has that name or address; else as [`list`].
pub fn find(name_or_address: &str) -> Result<Interface, OpenError> {
    let address: Option<Ipv4Addr> = name_or_address.parse().ok();
    let index = match name_or_address.parse::<Ipv6Addr>() {
        Ok(address) => watch::holder(&mut watch::open(&[])?, address)?,
        Err(_) => None,
    };
    list()?
        .into_iter()
        .find(|interface| {
            interface.name == name_or_address
                || index == Some(interface.index)
                || address.is_some_and(|a| interface.addresses.iter().any(|own| own.address == a))
        })
        .ok_or(OpenError::NoInterface {
            what: "finding the interface",
        })
}
