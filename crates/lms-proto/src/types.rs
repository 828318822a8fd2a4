//! Addresses of hosts.

use core::net::Ipv4Addr;

/// Whether an address can be that of a host which is not this one: not in 0.0.0.0/8 or 127.0.0.0/8,
/// and below 224.0.0.0 (RFC 6890).
pub(crate) fn is_host(address: Ipv4Addr) -> bool {
    (1..224).contains(&address.octets()[0]) && !address.is_loopback()
}
