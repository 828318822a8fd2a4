//! Zones of link-local IPv6 addresses (RFC 4007 §11), by name or number, as in `[fe80::1%eth0]:4143`.

use std::fmt;
use std::net::SocketAddr;

use daemon_kit::reader::At;
use daemon_kit::value::{interface, listen};
use linux_net::link;
use toml::de::DeValue;

/// The interface that a link-local address is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zone {
    /// By name.
    Name(String),
    /// By the kernel's number.
    Index(u32),
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Zone::Name(name) => f.write_str(name),
            Zone::Index(index) => index.fmt(f),
        }
    }
}

impl Zone {
    fn read(text: &str) -> Result<Zone, String> {
        match text.parse() {
            Ok(index) if index != 0 => Ok(Zone::Index(index)),
            _ => interface(&DeValue::String(text.into())).map(Zone::Name),
        }
    }

    /// Returns the kernel's number of the interface.
    ///
    /// # Errors
    /// There is no such interface; the error names those that there are.
    pub fn index(&self) -> Result<u32, String> {
        let all = link::list().map_err(|error| error.to_string())?;
        let mut found = all.iter().filter(|interface| match self {
            Zone::Name(name) => interface.name == *name,
            Zone::Index(index) => interface.index == *index,
        });
        found.next().map(|found| found.index).ok_or_else(|| {
            let names = all.iter().map(|interface| &*interface.name);
            let names = names.collect::<Vec<_>>().join(", ");
            format!("no interface is called or has the number {self}: there are {names}")
        })
    }
}

/// An address and port without its zone, and the zone.
#[derive(Clone, Debug)]
pub(crate) struct Zoned {
    pub(crate) address: SocketAddr,
    pub(crate) zone: Option<Zone>,
}

impl Zoned {
    /// Reads an address, of which link-local ones have a zone and others have none.
    pub(crate) fn read(value: &DeValue<'_>) -> Result<Zoned, String> {
        let cut = match value {
            DeValue::String(text) => cut(text),
            _ => None,
        };
        let Some((plain, zone)) = cut else {
            let address = listen(value)?;
            return match is_link_local(address) {
                true => Err(format!(
                    "{address} is a link-local address without the interface that it is of"
                )),
                false => Ok(Zoned {
                    address,
                    zone: None,
                }),
            };
        };
        let address = listen(&DeValue::String(plain.into()))?;
        if !is_link_local(address) {
            return Err(format!(
                "{address} is not a link-local address, and has no zone such as %{zone}"
            ));
        }
        let zone = Some(Zone::read(zone)?);
        Ok(Zoned { address, zone })
    }
}

/// Cuts the zone out of `[ADDRESS%ZONE]:PORT`.
fn cut(text: &str) -> Option<(String, &str)> {
    let (address, rest) = text.split_once('%')?;
    let (zone, port) = rest.split_once(']')?;
    Some((format!("{address}]{port}"), zone))
}

fn is_link_local(address: SocketAddr) -> bool {
    match address {
        SocketAddr::V4(_) => false,
        SocketAddr::V6(address) => address.ip().is_unicast_link_local(),
    }
}

/// Returns the first of these addresses whose zone differs from that of `first`, or of one before it.
pub(crate) fn differing<'a>(
    first: Option<&'a Zone>,
    addresses: &'a [At<Zoned>],
) -> Option<(&'a At<Zoned>, &'a Zone)> {
    let zone = first.or_else(|| addresses.iter().find_map(|at| at.value.zone.as_ref()))?;
    let differs = |at: &&At<Zoned>| at.value.zone.as_ref().is_some_and(|other| other != zone);
    addresses.iter().find(differs).map(|other| (other, zone))
}
