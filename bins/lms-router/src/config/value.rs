//! Parsers of values that only the router has: addresses, patterns of names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use daemon_kit::reader::shown;
use daemon_kit::value::text;
use lms_proto::Address as _;
use toml::de::DeValue;

fn address(value: &DeValue<'_>) -> Result<IpAddr, String> {
    let DeValue::String(text) = value else {
        return Err(format!("{} is not an IP address in quotes", shown(value)));
    };
    text.parse()
        .map_err(|_| format!("{text:?} is not an IP address"))
}

pub(crate) const UNICAST: &str = "a host's address, such as \"192.0.2.1\" or \"fe80::1\"";
pub(crate) fn unicast(value: &DeValue<'_>) -> Result<IpAddr, String> {
    let address = address(value)?;
    if address.is_multicast() {
        return Err(format!("{address} is a multicast address"));
    }
    let is_host = match address {
        IpAddr::V4(address) => address.is_unicast() && !address.is_loopback(),
        IpAddr::V6(address) => address.is_host(),
    };
    if !is_host {
        return Err(format!(
            "{address} is not the address of a host on a network"
        ));
    }
    Ok(address)
}

pub(crate) const UNICAST4: &str = "a host's IPv4 address, such as \"192.0.2.1\"";
pub(crate) fn unicast4(value: &DeValue<'_>) -> Result<Ipv4Addr, String> {
    match unicast(value)? {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(address) => Err(format!("{address} is not an IPv4 address")),
    }
}

pub(crate) const UNICAST6: &str = "a host's IPv6 address, such as \"2001:db8::1\"";
pub(crate) fn unicast6(value: &DeValue<'_>) -> Result<Ipv6Addr, String> {
    match unicast(value)? {
        IpAddr::V6(address) if address.is_unicast_link_local() => Err(format!(
            "{address} is link-local: no other link can reach it"
        )),
        IpAddr::V6(address) => Ok(address),
        IpAddr::V4(address) => Err(format!("{address} is not an IPv6 address")),
    }
}

pub(crate) const ROUTED_GROUP: &str =
    "a multicast address that routers forward, such as \"239.1.2.3\" or \"ff3e::1234\"";
pub(crate) fn routed_group(value: &DeValue<'_>) -> Result<IpAddr, String> {
    let address = address(value)?;
    if !address.is_multicast() {
        return Err(format!("{address} is not a multicast address"));
    }
    let stays = match address {
        IpAddr::V4(group) => group.is_link_local_group(),
        IpAddr::V6(group) => group.is_link_local_group(),
    };
    if stays {
        return Err(format!("{address} never leaves its link"));
    }
    Ok(address)
}

pub(crate) const SOURCE: &str = "the source's address, or \"*\" for any source";
pub(crate) fn source(value: &DeValue<'_>) -> Result<Option<IpAddr>, String> {
    match value {
        DeValue::String(text) if text == "*" => Ok(None),
        other => unicast(other).map(Some),
    }
}

/// An interface name, or a prefix followed by `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(pub String);

impl Pattern {
    /// Whether `name` fits.
    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => self.0 == name,
        }
    }
}

pub(crate) const PATTERN: &str =
    "the name of a network interface, such as \"eth0\", or a pattern such as \"eth*\"";
pub(crate) fn pattern(value: &DeValue<'_>) -> Result<Pattern, String> {
    let name = text(value)?;
    let stem = name.strip_suffix('*').unwrap_or(&name);
    if stem.len() > 15 {
        return Err(format!("{name:?} is longer than 15 characters"));
    }
    if stem.contains(|c: char| c == '/' || c.is_whitespace() || c == '*') {
        return Err(format!("{name:?} is not the name of a network interface"));
    }
    Ok(Pattern(name))
}
