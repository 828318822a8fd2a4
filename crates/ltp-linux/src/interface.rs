//! The interface and the address that this host uses for a group.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};

use linux_net::link::{Interface, UnknownInterface, find_named};

/// No interface, or no address on it, leads to a group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceError {
    /// The routing table has no route; the interface must be named.
    #[error("no route leads to {0}: name the interface")]
    NoRoute(Ipv4Addr),
    /// No interface has that name or address.
    #[error(transparent)]
    Unknown(#[from] UnknownInterface),
    /// The address belongs to another interface, or to none.
    #[error("{address} is not an address of interface {interface}")]
    OtherAddress {
        /// The address that was asked for.
        address: Ipv4Addr,
        /// The interface.
        interface: String,
    },
    /// The interface has no IPv4 address.
    #[error("interface {0} has no IPv4 address: give it one")]
    NoAddress(String),
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
    pub(crate) address: Ipv4Addr,
}

impl Local {
    /// Finds the interface and the address to use towards `destination`: those that are named, by the
    /// interface's name or address, else those that the routing table gives.
    pub(crate) fn find(
        destination: SocketAddrV4,
        interface: Option<&str>,
        address: Option<Ipv4Addr>,
    ) -> Result<Local, InterfaceError> {
        let found = match (interface, address) {
            (Some(name), _) => find_named(name)?,
            (None, Some(address)) => find_named(&address.to_string())?,
            (None, None) => find_named(&routed(destination)?.to_string())?,
        };
        let own = |address: &Ipv4Addr| {
            let listed = found.addresses.iter().any(|a| a.address == *address);
            // All of 127.0.0.0/8 belongs to the loopback interface.
            listed || found.is_loopback && address.is_loopback()
        };
        let named = || interface.and_then(|name| name.parse().ok()).filter(own);
        let first = || found.addresses.first().map(|a| a.address);
        let address = match address {
            Some(address) if own(&address) => address,
            Some(address) => {
                return Err(InterfaceError::OtherAddress {
                    address,
                    interface: found.name,
                });
            }
            None => named()
                .or_else(first)
                .ok_or_else(|| InterfaceError::NoAddress(found.name.clone()))?,
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

/// Returns the address that the kernel would send from.
fn routed(destination: SocketAddrV4) -> Result<Ipv4Addr, InterfaceError> {
    let no_route = || InterfaceError::NoRoute(*destination.ip());
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(destination).map_err(|_| no_route())?;
    match socket.local_addr()?.ip() {
        IpAddr::V4(address) if !address.is_unspecified() => Ok(address),
        _ => Err(no_route()),
    }
}
