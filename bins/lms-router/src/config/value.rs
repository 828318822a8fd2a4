//! Parsers of values that only the router has: IPv4 addresses, patterns of names.

use std::net::Ipv4Addr;

use daemon_kit::reader::shown;
use daemon_kit::value::text;
use toml::de::DeValue;

fn address(value: &DeValue<'_>) -> Result<Ipv4Addr, String> {
    let DeValue::String(text) = value else {
        return Err(format!("{} is not an IPv4 address in quotes", shown(value)));
    };
    text.parse()
        .map_err(|_| format!("{text:?} is not an IPv4 address"))
}

pub(crate) const UNICAST: &str = "a host's IPv4 address, such as \"192.0.2.1\"";
pub(crate) fn unicast(value: &DeValue<'_>) -> Result<Ipv4Addr, String> {
    let address = address(value)?;
    if address.is_multicast() {
        return Err(format!("{address} is a multicast address"));
    }
    if address.is_unspecified() || address.is_broadcast() || address.is_loopback() {
        return Err(format!(
            "{address} is not the address of a host on a network"
        ));
    }
    Ok(address)
}

pub(crate) const ROUTED_GROUP: &str =
    "a multicast address from 224.0.1.0 to 239.255.255.255, such as \"239.1.2.3\"";
pub(crate) fn routed_group(value: &DeValue<'_>) -> Result<Ipv4Addr, String> {
    let address = address(value)?;
    if !address.is_multicast() {
        return Err(format!("{address} is not a multicast address"));
    }
    if address.octets()[..3] == [224, 0, 0] {
        return Err(format!("{address} never leaves its link"));
    }
    Ok(address)
}

pub(crate) const SOURCE: &str = "the source's IPv4 address, or \"*\" for any source";
pub(crate) fn source(value: &DeValue<'_>) -> Result<Ipv4Addr, String> {
    match value {
        DeValue::String(text) if text == "*" => Ok(Ipv4Addr::UNSPECIFIED),
        other => unicast(other),
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
