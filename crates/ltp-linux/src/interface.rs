//! The interface and the address that this host uses for a group.

use std::io;
use std::net::{IpAddr, SocketAddr};

use linux_net::inet;
use linux_net::link::{Interface, UnknownInterface, find_named, list};

/// No interface, or no address on it, leads to a group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceError {
    /// The routing table has no route; the interface must be named.
    #[error("no route leads to {0}: name the interface")]
    NoRoute(IpAddr),
    /// No interface has that name or address.
    #[error(transparent)]
    Unknown(#[from] UnknownInterface),
    /// The address belongs to another interface, or to none.
    #[error("{address} is not an address of interface {interface}")]
    OtherAddress {
        /// The address that was asked for.
        address: IpAddr,
        /// The interface.
        interface: String,
    },
    /// The interface has no address of the group's version of IP that can be used.
    #[error("interface {interface} has no usable {version} address: give it one (`ip address`)")]
    NoAddress {
        /// The interface.
        interface: String,
        /// IPv4 or IPv6.
        version: &'static str,
    },
    /// The zone of the group's address is another interface than the one that is named, or none.
    #[error("zone {zone} of the group is {}: name the interface in one of the two places", match interface {
        Some(interface) => format!("not interface {interface}"),
        None => "no interface of this host".to_owned(),
    })]
    OtherZone {
        /// The zone: an interface's index.
        zone: u32,
        /// The interface that is named.
        interface: Option<String>,
    },
    /// The interface is down.
    #[error("interface {0} is down: `ip link set {0} up`")]
    Down(String),
    /// The routing table cannot be asked.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// This host's end of the way to a group.
#[derive(Debug, Clone)]
pub(crate) struct Local {
    pub(crate) interface: Interface,
    /// This host's address on it.
    pub(crate) address: IpAddr,
}

impl Local {
    /// Finds the interface and the address to use towards `destination`: those that are named, by the
    /// interface's name or address or the zone of the destination, else those that the routing table gives for
    /// `routed_by`.
    pub(crate) fn find(
        destination: SocketAddr,
        routed_by: IpAddr,
        interface: Option<&str>,
        address: Option<IpAddr>,
    ) -> Result<Local, InterfaceError> {
        let zone = match destination {
            SocketAddr::V6(destination) => Some(destination.scope_id()).filter(|zone| *zone != 0),
            SocketAddr::V4(_) => None,
        };
        let found = match (interface, zone, address) {
            (Some(name), _, _) => find_named(name)?,
            (None, Some(zone), _) => in_zone(zone)?,
            (None, None, Some(address)) => find_named(&address.to_string())?,
            (None, None, None) => find_named(&routed(routed_by)?.to_string())?,
        };
        if let Some(zone) = zone.filter(|zone| *zone != found.index) {
            return Err(InterfaceError::OtherZone {
                zone,
                interface: Some(found.name),
            });
        }
        let own = |address: &IpAddr| {
            // All of 127.0.0.0/8 belongs to the loopback interface.
            found.has(*address) || found.is_loopback && address.is_loopback()
        };
        let of_version = |address: &IpAddr| address.is_ipv4() == destination.is_ipv4();
        let named = || interface.and_then(|name| name.parse().ok());
        let named = || named().filter(|address| own(address) && of_version(address));
        let address = match address {
            Some(address) if own(&address) => address,
            Some(address) => {
                return Err(InterfaceError::OtherAddress {
                    address,
                    interface: found.name,
                });
            }
            None => named()
                .or_else(|| usable(&found, destination.ip()))
                .ok_or_else(|| InterfaceError::NoAddress {
                    interface: found.name.clone(),
                    version: if destination.is_ipv4() {
                        "IPv4"
                    } else {
                        "IPv6"
                    },
                })?,
        };
        if !found.is_up {
            return Err(InterfaceError::Down(found.name));
        }
        Ok(Local {
            interface: found,
            address,
        })
    }
}

/// Returns the index of the interface with a name: what a zone in an IPv6 address stands for.
///
/// # Errors
/// [`InterfaceError::Unknown`]: no interface has that name; the error names those that there are.
pub fn zone_index(name: &str) -> Result<u32, InterfaceError> {
    let all = list().map_err(io::Error::other)?;
    let found = all.iter().find(|interface| interface.name == name);
    found.map(|found| found.index).ok_or_else(|| {
        InterfaceError::Unknown(UnknownInterface {
            wanted: name.to_owned(),
            known: all.into_iter().map(|interface| interface.name).collect(),
        })
    })
}

/// Returns the interface with an index.
fn in_zone(zone: u32) -> Result<Interface, InterfaceError> {
    let all = list().map_err(io::Error::other)?;
    let found = all.into_iter().find(|interface| interface.index == zone);
    found.ok_or(InterfaceError::OtherZone {
        zone,
        interface: None,
    })
}

/// Returns the address of an interface to send to `destination` from.
fn usable(interface: &Interface, destination: IpAddr) -> Option<IpAddr> {
    match destination {
        IpAddr::V4(_) => interface.addresses.first().map(|own| own.address.into()),
        // The kernel knows which addresses are preferred (RFC 6724).
        IpAddr::V6(group) => {
            let route = inet::route(destination, interface.index).ok();
            let chosen = route.map(|route| route.source);
            let chosen = chosen.filter(|source| interface.has(*source));
            chosen.or_else(|| interface.ipv6_source(group).map(IpAddr::V6))
        }
    }
}

/// Returns the address that the kernel would send from.
fn routed(destination: IpAddr) -> Result<IpAddr, InterfaceError> {
    let route = inet::route(destination, 0).ok();
    let source = route.map(|route| route.source);
    let source = source.filter(|source| !source.is_unspecified());
    source.ok_or(InterfaceError::NoRoute(destination))
}
