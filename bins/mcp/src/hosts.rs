//! The hosts to copy to.

use std::fmt;
use std::io::Read;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;

use mcp_control::PORT;

/// A host as the user wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The text that the user wrote, used in messages.
    pub(crate) text: String,
    /// Name or address.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Target {
    /// The name or address that the host must prove, without the interface of a link-local one.
    pub(crate) fn name(&self) -> &str {
        self.host.split('%').next().unwrap_or(&self.host)
    }

    /// Returns the address, if the host was written as one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.name().parse().ok()
    }
}

/// Version of IP for looking up names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// Either; IPv4 first.
    Either,
    V4,
    V6,
}

impl Family {
    fn of(address: IpAddr) -> Family {
        if address.is_ipv4() {
            Family::V4
        } else {
            Family::V6
        }
    }

    /// Returns the version that all these addresses have: the data goes to all hosts in one group.
    pub(crate) fn common(addresses: impl Iterator<Item = IpAddr>) -> Result<Family, String> {
        addresses
            .map(Family::of)
            .try_fold(Family::Either, |common, family| {
                if common == Family::Either || common == family {
                    return Ok(family);
                }
                Err(
                    "IPv4 and IPv6 do not go together in one copy: name all hosts, and the group, \
                 by addresses of one, or by names that have both"
                        .to_owned(),
                )
            })
    }

    fn takes(self, address: &SocketAddr) -> bool {
        match self {
            Family::Either => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        }
    }
}

/// Parses `HOST[:PORT]`; an IPv6 address without a port may stand without brackets.
pub(crate) fn target(text: &str) -> Result<Target, String> {
    let text = text.trim();
    let bracketed = text.strip_prefix('[').map(|rest| {
        let parts = match rest.split_once(']') {
            Some((host, "")) => Some((host, None)),
            Some((host, port)) => port.strip_prefix(':').map(|port| (host, Some(port))),
            None => None,
        };
        parts.ok_or_else(|| format!("{text}: write [ADDRESS] or [ADDRESS]:PORT"))
    });
    let is_v6 = |host: &str| {
        host.split('%')
            .next()
            .is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok())
    };
    let (host, port) = match bracketed {
        Some(parts) => {
            let (host, port) = parts?;
            if !is_v6(host) {
                return Err(format!("{text}: {host:?} is no IPv6 address"));
            }
            (host, port)
        }
        None if is_v6(text) => (text, None),
        None => match text.rsplit_once(':') {
            None => (text, None),
            Some((host, port)) => (host, Some(port)),
        },
    };
    let port = match port {
        None => PORT,
        Some(port) => port
            .parse()
            .ok()
            .filter(|&port| port > 0)
            .ok_or_else(|| format!("{text}: no port after the colon"))?,
    };
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    let colon = host.contains(':') && !is_v6(host);
    if host.is_empty() || host.starts_with('-') || host.contains(odd) || colon {
        return Err(format!("{text:?} is no host: write a name or an address"));
    }
    Ok(Target {
        text: text.to_owned(),
        host: host.to_owned(),
        port,
    })
}

/// Reads a file of hosts, one a line; `#` starts a comment.
pub(crate) fn read(path: &Path) -> Result<Vec<Target>, String> {
    let shown = path.display();
    let text = if path.as_os_str() == "-" {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| format!("--hosts-file {shown}: {error}"))?;
    let mut targets = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if !line.is_empty() {
            let parsed = target(line);
            let wrong = |message| format!("--hosts-file {shown}, line {}: {message}", number + 1);
            targets.push(parsed.map_err(wrong)?);
        }
    }
    Ok(targets)
}

/// Returns the addresses of a host, IPv4 first.
pub(crate) async fn resolve(target: &Target, family: Family) -> Result<Vec<SocketAddr>, String> {
    let found = tokio::net::lookup_host((target.host.as_str(), target.port)).await;
    let found = found.map_err(|error| format!("cannot be resolved: {error}"))?;
    let mut addresses: Vec<_> = found.filter(|address| family.takes(address)).collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    if addresses.is_empty() {
        let version = if family == Family::V6 { 6 } else { 4 };
        return Err(format!("has no IPv{version} address, as the others have"));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_as_people_write_them() {
        let parsed = target("alpha").expect("a name");
        assert_eq!((parsed.host.as_str(), parsed.port), ("alpha", PORT));
        let parsed = target(" 10.0.0.1:99 ").expect("an address");
        assert_eq!((parsed.host.as_str(), parsed.port), ("10.0.0.1", 99));
        for (text, host, port) in [
            ("::1", "::1", PORT),
            ("[::1]", "::1", PORT),
            ("[2001:db8::7]:99", "2001:db8::7", 99),
            ("fe80::1%eth0", "fe80::1%eth0", PORT),
            ("[fe80::1%eth0]:99", "fe80::1%eth0", 99),
        ] {
            let parsed = target(text).expect(text);
            assert_eq!((parsed.host.as_str(), parsed.port), (host, port));
            assert!(parsed.address().is_some_and(|address| address.is_ipv6()));
        }
        for wrong in [
            "",
            ":99",
            "a:",
            "a:0",
            "a:70000",
            "a b",
            "-x",
            "a/b",
            "::1::2",
            "[::1",
            "[::1]99",
            "[::1]:",
            "[alpha]:99",
            "a:b:c",
            "[]",
        ] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_hosts_of_a_copy_speak_one_version_of_ip() {
        let common = |texts: &[&str]| {
            let all = texts.iter().map(|text| target(text).expect("a host"));
            Family::common(all.filter_map(|target| target.address()))
        };
        assert_eq!(common(&["alpha", "beta:1"]), Ok(Family::Either));
        assert_eq!(common(&["alpha", "10.0.0.1"]), Ok(Family::V4));
        assert_eq!(
            common(&["[::1]:1", "alpha", "fe80::1%eth0"]),
            Ok(Family::V6)
        );
        assert!(common(&["::1", "10.0.0.1"]).is_err());
    }

    #[test]
    fn a_file_of_hosts_takes_comments() {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), "# all\nalpha\n\n beta:99 # busy\n").expect("written");
        let hosts = read(file.path()).expect("hosts");
        let names: Vec<_> = hosts.iter().map(|host| host.text.as_str()).collect();
        assert_eq!(names, ["alpha", "beta:99"]);
        std::fs::write(file.path(), "alpha\na:b\n").expect("written");
        let error = read(file.path()).expect_err("a bad line");
        assert!(error.contains("line 2"), "{error}");
    }
}
