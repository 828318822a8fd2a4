//! Addresses as users write them: groups, hosts and relays, of both versions of IP.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs as _};
use std::str::FromStr;

use ltp_linux::Group;

/// The default port of `dyram-relay`.
const RELAY_PORT: u16 = 4143;

/// Parses `ADDR:PORT` of a multicast group: `239.1.2.3:5000`, `[ff3e::1234]:5000`, `[ff15::1%eth0]:5000`, or a host
/// name that stands for a group.
///
/// # Errors
/// A sentence: what is wrong with it, and what to write.
pub fn group(text: &str) -> Result<SocketAddr, String> {
    const EXAMPLE: &str = "write a group and a port, such as 239.1.2.3:5000 or [ff3e::1234]:5000";
    let (host, port) = match split_port(text) {
        Ok((host, Some(port))) => (host, port),
        Ok((_, None)) => return Err(format!("the port is missing: {EXAMPLE}")),
        Err(Unsplit::NoBrackets) => {
            return Err(format!(
                "an IPv6 address and a port need brackets: {EXAMPLE}"
            ));
        }
        Err(Unsplit::Malformed) => return Err(EXAMPLE.to_owned()),
    };
    let address = match literal(host, port)? {
        Some(address) => address,
        None if is_host_name(host) => resolve(host, port, |ip| ip.is_multicast())
            .map_err(|error| format!("{error}: {EXAMPLE}"))?,
        None => return Err(EXAMPLE.to_owned()),
    };
    let checked = Group::new(address).check();
    checked.map_err(|error| format!("{error}: {EXAMPLE}"))?;
    Ok(address)
}

/// Parses the address of a host.
///
/// # Errors
/// A sentence: it is no address, or has a zone.
pub fn host(text: &str) -> Result<IpAddr, String> {
    if text.contains('%') {
        return Err(format!(
            "{text}: write the address without a zone; --interface names the interface"
        ));
    }
    let example = "write an address, such as 192.0.2.1 or 2001:db8::1";
    text.parse().map_err(|_| example.to_owned())
}

/// Why a text was not cut into a host and a port.
enum Unsplit {
    /// An IPv6 address without brackets, perhaps with a port.
    NoBrackets,
    Malformed,
}

/// Cuts `HOST:PORT`, `[IPV6]:PORT`, `HOST` or an IPv6 address alone. Port 0 passes.
fn split_port(text: &str) -> Result<(&str, Option<u16>), Unsplit> {
    let parse = |port: &str| {
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        port.parse()
            .ok()
            .filter(|_| digits)
            .ok_or(Unsplit::Malformed)
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or(Unsplit::Malformed)?;
        if !host.contains(':') {
            return Err(Unsplit::Malformed);
        }
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(parse(port)?))),
            None if after.is_empty() => Ok((host, None)),
            None => Err(Unsplit::Malformed),
        };
    }
    match text.split_once(':') {
        None => Ok((text, None)),
        Some((_, rest)) if rest.contains(':') => {
            let address = text.split('%').next().unwrap_or_default();
            match address.parse::<Ipv6Addr>() {
                // It may be an address, or one and a port: `ff3e::1:5000` is both.
                Ok(_) => Ok((text, None)),
                Err(_) => Err(Unsplit::NoBrackets),
            }
        }
        Some((host, port)) => Ok((host, Some(parse(port)?))),
    }
}

/// Reads an address with its zone, by name or number; `None`: it is no address.
fn literal(host: &str, port: u16) -> Result<Option<SocketAddr>, String> {
    let (address, zone) = match host.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (host, None),
    };
    let Some(zone) = zone else {
        return Ok(address.parse().ok().map(|ip| SocketAddr::new(ip, port)));
    };
    let Ok(ip) = address.parse::<Ipv6Addr>() else {
        return Err(format!("{host}: only an IPv6 address has a zone"));
    };
    let scope = match zone.parse() {
        Ok(index) if index != 0 => index,
        _ => ltp_linux::zone_index(zone).map_err(|error| format!("zone of {host}: {error}"))?,
    };
    Ok(Some(SocketAddrV6::new(ip, port, 0, scope).into()))
}

/// Whether a text can be a host name: letters, digits, dots, hyphens, and one letter at least.
fn is_host_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    text.chars().all(plain) && text.contains(|c: char| c.is_ascii_alphabetic())
}

/// Returns the first address of a name that `wanted` takes.
fn resolve(host: &str, port: u16, wanted: impl Fn(IpAddr) -> bool) -> Result<SocketAddr, String> {
    let found = (host, port).to_socket_addrs();
    let mut found = found.map_err(|error| format!("{host}: {error}"))?;
    let first = found.find(|address| wanted(address.ip()));
    first.ok_or_else(|| format!("{host} has no such address"))
}

/// A relay by host name or address, and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayName {
    host: String,
    port: u16,
}

impl fmt::Display for RelayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for RelayName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "write a relay's host and port, such as dyram://192.0.2.1:4143 or \
                               dyram://[2001:db8::1]:4143";
        let no_port = || format!("{text:?} has no port: {EXAMPLE}");
        let (host, port) = match split_port(text) {
            Ok((host, port)) => (host, port.unwrap_or(RELAY_PORT)),
            Err(Unsplit::NoBrackets) => {
                return Err(format!(
                    "{text:?}: an IPv6 address needs brackets: {EXAMPLE}"
                ));
            }
            Err(Unsplit::Malformed) => return Err(no_port()),
        };
        if port == 0 {
            return Err(no_port());
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let is_name = !host.is_empty() && host.chars().all(plain);
        if !is_name && literal(host, port)?.is_none() {
            return Err(format!("{text:?} is no relay: {EXAMPLE}"));
        }
        Ok(RelayName {
            host: host.to_owned(),
            port,
        })
    }
}

impl RelayName {
    /// Returns its address, of the group's version of IP.
    ///
    /// # Errors
    /// A sentence: it has none, or one that no host has.
    pub fn resolve(&self, group: SocketAddr) -> Result<SocketAddr, String> {
        let of_version = |ip: IpAddr| ip.is_ipv4() == group.is_ipv4();
        let address = match literal(&self.host, self.port)? {
            Some(address) => Some(address).filter(|address| of_version(address.ip())),
            None => {
                let found = (self.host.as_str(), self.port).to_socket_addrs();
                let mut found = found.map_err(|error| format!("relay {self}: {error}"))?;
                found.find(|address| of_version(address.ip()))
            }
        };
        let (version, other) = if group.is_ipv4() {
            ("IPv4", "an IPv6")
        } else {
            ("IPv6", "an IPv4")
        };
        match address.map(|address| (address, address.ip())) {
            None => Err(format!(
                "relay {self} has no {version} address, and the group is an {version} one: name another relay, or \
                 {other} group"
            )),
            Some((_, ip)) if ip.is_multicast() || ip.is_unspecified() => Err(format!(
                "relay {self}: that is the address of no host (the group goes to --group)"
            )),
            Some((address, _)) => Ok(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn groups_are_written_in_every_form() {
        assert_eq!(group("239.1.2.3:5000"), Ok(at("239.1.2.3:5000")));
        assert_eq!(group("[ff3e::1234]:5000"), Ok(at("[ff3e::1234]:5000")));
        let lo = ltp_linux::zone_index("lo").expect("lo");
        let zoned = Ok(SocketAddrV6::new("ff15::1".parse().expect("ip"), 5000, 0, lo).into());
        assert_eq!(group("[ff15::1%lo]:5000"), zoned);
        assert_eq!(group(&format!("[ff15::1%{lo}]:5000")), zoned);
    }

    #[test]
    fn wrong_groups_are_refused_with_a_hint() {
        for (text, hint) in [
            ("239.1.2.3", "the port is missing"),
            ("[ff3e::1234]", "the port is missing"),
            ("ff3e::1234", "the port is missing"),
            ("ff3e::1:2:3:4:5:6:5000", "brackets"),
            ("[ff3e::1234:5000", "[ff3e::1234]:5000"),
            ("[ff3e::1234]5000", "[ff3e::1234]:5000"),
            ("[ff3e::1234]:x", "[ff3e::1234]:5000"),
            ("[ff3e::1234]:+5", "[ff3e::1234]:5000"),
            ("[239.1.2.3]:5000", "[ff3e::1234]:5000"),
            ("[ff15::1%none9]:5000", "no interface is called"),
            ("[ff15::1%]:5000", "no interface is called"),
            ("239.1.2.3%lo:5000", "only an IPv6 address has a zone"),
            ("[2001:db8::1]:5000", "not a multicast address (ff00::/8)"),
            ("10.0.0.1:5000", "not a multicast address (224"),
            ("[ff02::1]:5000", "ff01::/16 and ff02::/16"),
            ("[ff10::1]:5000", "scope is 0"),
            ("224.0.0.5:5000", "routing protocols"),
            ("239.1.2:5000", "239.1.2.3:5000"),
            ("localhost:5000", "has no such address"),
            ("", "the port is missing"),
        ] {
            let error = group(text).expect_err(text);
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn relays_are_of_the_groups_version() {
        let (v4, v6) = (at("239.1.2.3:1"), at("[ff3e::1]:1"));
        for (text, group, address) in [
            ("127.0.0.1:7", v4, "127.0.0.1:7"),
            ("[::1]:7", v6, "[::1]:7"),
            ("[::1]", v6, "[::1]:4143"),
            ("::1", v6, "[::1]:4143"),
            ("localhost:7", v4, "127.0.0.1:7"),
        ] {
            let name: RelayName = text.parse().expect(text);
            assert_eq!(name.resolve(group), Ok(at(address)), "{text}");
        }
        for (text, group) in [("127.0.0.1:7", v6), ("[::1]:7", v4)] {
            let name: RelayName = text.parse().expect(text);
            let error = name.resolve(group).expect_err(text);
            assert!(error.contains("address, and the group is"), "{error}");
        }
        for text in ["239.1.2.3:1", "0.0.0.0:1"] {
            let name: RelayName = text.parse().expect(text);
            assert!(name.resolve(v4).is_err(), "{text}");
        }
        let zoned: RelayName = "[fe80::1%lo]:7".parse().expect("a relay");
        let lo = ltp_linux::zone_index("lo").expect("lo");
        let address = SocketAddrV6::new("fe80::1".parse().expect("ip"), 7, 0, lo);
        assert_eq!(zoned.resolve(v6), Ok(address.into()));
        assert_eq!(zoned.to_string(), "[fe80::1%lo]:7");
    }

    #[test]
    fn hosts_have_no_zone() {
        assert_eq!(
            host("192.0.2.1").map(|ip| ip.to_string()).as_deref(),
            Ok("192.0.2.1")
        );
        assert_eq!(host("2001:db8::1").map(|ip| ip.is_ipv6()), Ok(true));
        assert!(
            host("fe80::1%eth0")
                .expect_err("a zone")
                .contains("--interface")
        );
        assert!(
            host("example.org")
                .expect_err("a name")
                .contains("2001:db8::1")
        );
    }
}
