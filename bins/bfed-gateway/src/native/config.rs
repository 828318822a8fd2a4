//! The section `[network]` of a configuration.
//!
//! | key | kinds | default | |
//! | --- | --- | --- | --- |
//! | `kind` | | `"none"` | `"none"`, `"ip"`, `"ssm"` or `"http"` |
//! | `interface` | ip, ssm | by the routes | interface of groups, by name or address |
//! | `export` | ip, ssm | `[]`: none | prefixes of groups of this network whose sessions peers may have |
//! | `groups` | ip, ssm | `"239.255.0.0/18"`, `"232.98.0.0/16"` | pool of groups; gateways and data nodes on other machines need others |
//! | `port` | ip, ssm | 5004 | UDP port of channels in groups of the pool |
//! | `ttl` | ip, ssm | 16 | TTL of datagrams |
//! | `dscp` | ip, ssm | 0 | class of service, 0 to 63 |
//! | `max-payload` | ip, ssm | 0: as the MTU allows | most bytes in a datagram |
//! | `receive-buffer` | ip, ssm | 4 MiB | receive buffer of a channel, in bytes |
//! | `mediator` | ip | `"239.255.98.102:25190"`, `"[ff15::6266]:25190"` | the mediator's group |
//! | | ssm | `"0.0.0.0:25190"` | where the mediator listens |
//! | | http | `"127.0.0.1:8080"` | where the mediator's server listens |
//! | `listen` | http | `"127.0.0.1:8081"` | the first data node's server; the others on the ports that follow |
//! | `host` | http | that of `listen` | host that readers know the servers by |
//! | `ask` | http | `mediator` | URL of the mediator, for data nodes on other machines |
//! | `origin` | http | the first data node | URL of the server that sources of this network send to |
//! | `max-connections` | http | 4096 | of each server |
//! | `publish` | http | `["127.0.0.0/8", "::1/128"]` | prefixes of hosts that may be the source of a session |
//! | `queue` | http | 4 MiB | most bytes queued for one reader |
//! | `idle-timeout` | http | `"10s"` | a reader of a bulk session that takes nothing for that long is cut off |
//! | `max-clients`, `requests-per-second` | all | 16384, 1000 | bounds of the mediator |
//! | `cost` | all | not told | cost of this gateway for sessions of its network |

use std::net::SocketAddr;

use bfed::Prefix;
use bfed_client::Url;
use daemon_kit::reader::{Section, shown};
use daemon_kit::value::{LISTEN, listen, text};
use toml::de::DeValue;

use super::{
    ClientLimits, Groups, GroupsConfig, HttpConfig, IpConfig, Link, NetworkConfig, SsmConfig,
};

#[derive(Clone, Copy)]
enum Kind {
    None,
    Ip,
    Ssm,
    Http,
}

impl NetworkConfig {
    /// Reads the section. Problems are recorded in it; the result is usable in any case.
    #[must_use]
    pub fn read(section: Section<'_, '_>) -> NetworkConfig {
        let kinds = [
            ("none", Kind::None),
            ("ip", Kind::Ip),
            ("ssm", Kind::Ssm),
            ("http", Kind::Http),
        ];
        let config = match section.choice("kind", &kinds, Kind::None) {
            None | Some(Kind::None) => NetworkConfig::None,
            Some(Kind::Ip) => NetworkConfig::Ip(ip(&section)),
            Some(Kind::Ssm) => NetworkConfig::Ssm(ssm(&section)),
            Some(Kind::Http) => NetworkConfig::Http(http(&section)),
        };
        section.finish();
        config
    }
}

fn link(section: &Section<'_, '_>) -> Link {
    let default = Link::default();
    let wanted = "the name of an interface or one of its addresses, such as \"eth0\"";
    let payload = section.number("max-payload", 0..=65_000u16, 0);
    Link {
        interface: section.get("interface", wanted, text).map(|at| at.value),
        ttl: section.number("ttl", 1..=255u8, default.ttl),
        dscp: section.number("dscp", 0..=63u8, default.dscp),
        max_payload: (payload > 0).then_some(payload),
        receive_buffer: section.number("receive-buffer", 4096u32..=1 << 30, 4 << 20) as usize,
    }
}

fn groups(section: &Section<'_, '_>, default: &str, specific: bool) -> Groups {
    let expected = format!("a prefix of groups, such as {default:?}");
    let read = |value: &DeValue<'_>| {
        let groups = Groups::parse(&text(value)?)?;
        let in_range = match groups.first() {
            std::net::IpAddr::V4(first) => first.octets()[0] == 232,
            std::net::IpAddr::V6(first) => first.segments()[0] & 0xfff0 == 0xff30,
        };
        match specific && !in_range {
            true => Err("source-specific groups are in 232.0.0.0/8 and ff3x::/32".to_owned()),
            false => Ok(groups),
        }
    };
    let found = section.get("groups", &expected, read);
    // The defaults are right.
    match (found, Groups::parse(default)) {
        (Some(found), _) => found.value,
        (None, Ok(default)) => default,
        (None, Err(error)) => unreachable!("{error}"),
    }
}

fn limits(section: &Section<'_, '_>) -> ClientLimits {
    let default = ClientLimits::default();
    ClientLimits {
        clients: section.number("max-clients", 1u32..=1 << 20, default.clients as u32) as usize,
        requests_per_second: section.number(
            "requests-per-second",
            1..=1_000_000u32,
            default.requests_per_second,
        ),
    }
}

fn cost(section: &Section<'_, '_>) -> Option<u32> {
    let none = u32::MAX;
    let cost = section.number("cost", 0..=none - 1, none);
    Some(cost).filter(|&cost| cost != none)
}

/// Reads a list of prefixes; `None` if the key is absent.
fn prefixes(
    section: &Section<'_, '_>,
    key: &'static str,
    wants: &str,
    fits: impl Fn(&Prefix) -> Result<(), String>,
) -> Option<Vec<Prefix>> {
    let listed = section.list(key, wants, |value| {
        let text = text(value)?;
        let prefix = text.parse::<Prefix>();
        let prefix = prefix.map_err(|wrong| format!("{text:?} is {wrong}"))?;
        fits(&prefix).map(|()| prefix)
    });
    listed.map(|at| at.value.into_iter().map(|at| at.value).collect())
}

/// `export`: groups of this network that peers may have.
fn export(section: &Section<'_, '_>) -> Vec<Prefix> {
    let wants = "prefixes of groups, such as [\"239.1.0.0/16\"]";
    let is_multicast = |prefix: &Prefix| match prefix.address().is_multicast() {
        true => Ok(()),
        false => Err(format!("{prefix} is not a prefix of groups")),
    };
    prefixes(section, "export", wants, is_multicast).unwrap_or_default()
}

/// `publish`: hosts that may be sources.
fn publish(section: &Section<'_, '_>) -> Option<Vec<Prefix>> {
    let wants = "address prefixes, such as [\"192.0.2.0/24\"]";
    prefixes(section, "publish", wants, |_| Ok(()))
}

fn data(section: &Section<'_, '_>, default: &str, specific: bool) -> GroupsConfig {
    GroupsConfig {
        link: link(section),
        groups: groups(section, default, specific),
        port: section.number("port", 1..=65_535u16, bfed_client::DEFAULT_PORT),
        export: export(section),
    }
}

fn ip(section: &Section<'_, '_>) -> IpConfig {
    let data = data(section, "239.255.0.0/18", false);
    let default = match data.groups.is_ipv4() {
        true => bfed_client::MEDIATOR_V4,
        false => bfed_client::MEDIATOR_V6,
    };
    let wanted = format!("a group and a port, such as \"{default}\"");
    let group = section.get("mediator", &wanted, |value| {
        let group = listen(value)?;
        match group.ip().is_multicast() && group.port() != 0 {
            true if group.is_ipv4() != data.groups.is_ipv4() => {
                Err(format!("{group} is not of the address family of groups"))
            }
            true if data.groups.contains(group.ip()) => Err(format!("{group} is in the pool")),
            true => Ok(group),
            false => Err(format!("{} is not a group and a port", shown(value))),
        }
    });
    IpConfig {
        data,
        mediator: group.map_or(default, |at| at.value),
        limits: limits(section),
        cost: cost(section),
    }
}

fn ssm(section: &Section<'_, '_>) -> SsmConfig {
    let data = data(section, "232.98.0.0/16", true);
    let any: SocketAddr = match data.groups.is_ipv4() {
        true => ([0; 4], bfed_client::MEDIATOR_PORT).into(),
        false => ([0u16; 8], bfed_client::MEDIATOR_PORT).into(),
    };
    let address = section.get("mediator", LISTEN, |value| {
        let address = listen(value)?;
        match address.ip().is_multicast() {
            true => Err(format!(
                "{address} is a group's: only its source can send there"
            )),
            false => Ok(address),
        }
    });
    SsmConfig {
        data,
        mediator: address.map_or(any, |at| at.value),
        limits: limits(section),
        cost: cost(section),
    }
}

fn http(section: &Section<'_, '_>) -> HttpConfig {
    let local = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let address = |key: &'static str, default| {
        let found = section.get(key, LISTEN, |value| {
            let address = listen(value)?;
            match address.ip().is_multicast() {
                true => Err(format!("{address} is a group's")),
                false => Ok(address),
            }
        });
        found.map_or(default, |at| at.value)
    };
    let url = |key: &'static str| {
        let wanted = "a URL such as \"http://10.0.0.1:8080/\"";
        let read = |value: &DeValue<'_>| {
            text(value)?
                .parse::<Url>()
                .map_err(|error| error.to_string())
        };
        section.get(key, wanted, read).map(|at| at.value)
    };
    let host = section.get("host", "a name or an address", |value| {
        let host = text(value)?;
        let probe = format!("http://{host}:80/").parse::<Url>();
        match probe.is_ok_and(|url| url.path() == "/") {
            true => Ok(host),
            false => Err(format!("{host:?} is not a host")),
        }
    });
    let config = HttpConfig::new(
        address("listen", local(8081)),
        address("mediator", local(8080)),
    );
    let seconds = std::time::Duration::from_secs;
    HttpConfig {
        host: host.map(|at| at.value),
        ask: url("ask").map(|url| match url.path() {
            "/" => url.with_path("/mediator").unwrap_or(url),
            _ => url,
        }),
        origin: url("origin"),
        publish: publish(section).unwrap_or_else(|| config.publish.clone()),
        max_connections: section.number("max-connections", 1u32..=1 << 20, 4096) as usize,
        queue: section.number("queue", 65_536u32..=1 << 30, 4 << 20) as usize,
        idle_timeout: section
            .duration(
                "idle-timeout",
                seconds(1)..=seconds(600),
                config.idle_timeout,
            )
            .value,
        limits: limits(section),
        cost: cost(section),
        ..config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon_kit::reader;

    fn read(text: &str) -> Result<NetworkConfig, String> {
        let parsed = reader::parse(text, |root| NetworkConfig::read(root.section("network")));
        parsed.map_err(|problems| {
            problems
                .iter()
                .map(|problem| format!("{problem}\n"))
                .collect()
        })
    }

    #[test]
    fn an_empty_section_is_no_network() {
        assert_eq!(read(""), Ok(NetworkConfig::None));
        assert_eq!(read("[network]\nkind = \"none\""), Ok(NetworkConfig::None));
    }

    #[test]
    fn each_kind_has_its_defaults() {
        let Ok(NetworkConfig::Ip(ip)) = read("[network]\nkind = \"ip\"") else {
            panic!();
        };
        assert_eq!(
            (ip.mediator, ip.cost, ip.data.port),
            (bfed_client::MEDIATOR_V4, None, 5004)
        );
        assert!(!ip.data.groups.contains(ip.mediator.ip()));
        let text = "[network]\nkind = \"ip\"\ngroups = \"ff18::8000:0/112\"\ncost = 7\ndscp = 34";
        let Ok(NetworkConfig::Ip(ip)) = read(text) else {
            panic!();
        };
        assert_eq!(
            (ip.mediator, ip.cost, ip.data.link.dscp),
            (bfed_client::MEDIATOR_V6, Some(7), 34)
        );
        let Ok(NetworkConfig::Ssm(ssm)) =
            read("[network]\nkind = \"ssm\"\nmediator = \"10.0.0.1:99\"")
        else {
            panic!();
        };
        assert_eq!(ssm.mediator, "10.0.0.1:99".parse().unwrap());
    }

    #[test]
    fn wrong_values_are_reported() {
        for (text, complaint) in [
            ("kind = \"ipx\"", "unknown"),
            (
                "kind = \"ip\"\ngroups = \"10.0.0.0/8\"",
                "not a prefix of groups",
            ),
            ("kind = \"ip\"\nmediator = \"10.0.0.1:5\"", "not a group"),
            ("kind = \"ip\"\nmediator = \"239.255.0.5:5\"", "in the pool"),
            ("kind = \"ip\"\nmediator = \"[ff15::1]:5\"", "family"),
            ("kind = \"ssm\"\ngroups = \"239.0.0.0/16\"", "232.0.0.0/8"),
            (
                "kind = \"ssm\"\nmediator = \"239.1.1.1:5\"",
                "source can send",
            ),
            ("kind = \"ip\"\nttl = 0", "too small"),
            (
                "kind = \"ip\"\nexport = [\"10.0.0.0/8\"]",
                "not a prefix of groups",
            ),
            (
                "kind = \"http\"\npublish = [\"10.0.0.1/8\"]",
                "not an address prefix",
            ),
            ("kind = \"http\"\nexport = []", "unknown"),
            ("kind = \"ip\"\ncolour = 0", "unknown"),
        ] {
            let problems = read(&format!("[network]\n{text}")).unwrap_err();
            assert!(problems.contains(complaint), "{text}: {problems}");
        }
    }
}
