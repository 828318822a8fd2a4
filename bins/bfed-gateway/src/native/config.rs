//! The section `[network]` of a configuration. `docs/manual/native-networks.md` lists its keys and defaults.

use std::net::SocketAddr;

use bfed::{Prefix, SessionName};
use bfed_client::Url;
use cli::transfer::Assist;
use cli::units::BitRate;
use daemon_kit::reader::{Section, shown};
use daemon_kit::value::{LISTEN, MODE, boolean, listen, mode, text};
use ltp_linux::{Group, Rate};
use media::rtp::{Format, MAX_PAYLOAD_TYPE};
use toml::de::DeValue;

use super::http::{MoqConfig, RelayConfig, TlsConfig};
use super::{
    ClientLimits, ExternalConfig, Groups, GroupsConfig, HttpConfig, Link, LtpConfig,
    MulticastConfig, NetworkConfig, SapConfig,
};

#[derive(Clone, Copy)]
enum Kind {
    None,
    Ip,
    Ssm,
    Http,
    Moq,
    Ltp,
    External,
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
            ("moq", Kind::Moq),
            ("ltp", Kind::Ltp),
            ("external", Kind::External),
        ];
        let config = match section.choice("kind", &kinds, Kind::None) {
            None | Some(Kind::None) => NetworkConfig::None,
            Some(Kind::Ip) => NetworkConfig::Ip(ip(&section)),
            Some(Kind::Ssm) => NetworkConfig::Ssm(ssm(&section)),
            Some(Kind::Http) => NetworkConfig::Http(http(&section)),
            Some(Kind::Moq) => NetworkConfig::Http(HttpConfig {
                moq: Some(moq(&section)),
                ..http(&section)
            }),
            Some(Kind::Ltp) => NetworkConfig::Ltp(ltp(&section)),
            Some(Kind::External) => NetworkConfig::External(external(&section)),
        };
        section.finish();
        config
    }
}

fn interface(section: &Section<'_, '_>) -> Option<String> {
    let wanted = "the name of an interface or one of its addresses, such as \"eth0\"";
    section.get("interface", wanted, text).map(|at| at.value)
}

fn link(section: &Section<'_, '_>) -> Link {
    let default = Link::default();
    let payload = section.number("max-payload", 0..=65_000u16, 0);
    Link {
        interface: interface(section),
        ttl: section.number("ttl", 1..=255u8, default.ttl),
        dscp: section.number("dscp", 0..=63u8, default.dscp),
        max_payload: (payload > 0).then_some(payload),
        receive_buffer: section.number("receive-buffer", 4096u32..=1 << 30, 4 << 20) as usize,
        rtp: rtp(section),
    }
}

/// `rtp`: payload types whose packets tell their priority.
fn rtp(section: &Section<'_, '_>) -> Vec<(u8, Format)> {
    let wants = "payload types and their formats, such as [\"96 h264\", \"97 vp8\"]";
    let listed = section.list("rtp", wants, |value| {
        let text = text(value)?;
        let (number, format) = text.split_once(' ').unwrap_or((&text, ""));
        let number = number.parse().ok();
        let number = number.filter(|number| *number <= MAX_PAYLOAD_TYPE);
        let number = number.ok_or(format!("{text:?} has no payload type from 0 to 127"))?;
        match format.trim() {
            "h264" => Ok((number, Format::H264)),
            "vp8" => Ok((number, Format::Vp8)),
            other => Err(format!("{other:?} is not a format: h264, vp8")),
        }
    });
    let listed = listed.map(|at| at.value).unwrap_or_default();
    listed.into_iter().map(|at| at.value).collect()
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

/// Reads an address that is not a group's; otherwise the error is `why`.
fn unicast(
    section: &Section<'_, '_>,
    key: &'static str,
    default: SocketAddr,
    why: &str,
) -> SocketAddr {
    let found = section.get(key, LISTEN, |value| {
        let address = listen(value)?;
        match address.ip().is_multicast() {
            true => Err(format!("{address} is a group's{why}")),
            false => Ok(address),
        }
    });
    found.map_or(default, |at| at.value)
}

/// `announce` and `learn-from`: announcements by SAP.
fn sap(section: &Section<'_, '_>, announce: bool) -> SapConfig {
    let announces = section.get("announce", "true or false", boolean);
    SapConfig {
        announce: announces.map_or(announce, |at| at.value),
        learn_from: hosts(section, "learn-from").unwrap_or_default(),
    }
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

/// `publish` and `list`: hosts that may be sources, and that may list the sessions.
fn hosts(section: &Section<'_, '_>, key: &'static str) -> Option<Vec<Prefix>> {
    let wants = "address prefixes, such as [\"192.0.2.0/24\"]";
    prefixes(section, key, wants, |_| Ok(()))
}

/// `origins`: pages in browsers that may publish.
fn origins(section: &Section<'_, '_>) -> Vec<String> {
    let wants = "origins of pages, such as [\"https://studio.example\"]";
    let listed = section.list("origins", wants, |value| {
        let text = text(value)?;
        let wrong = || format!("{text:?} is not an origin, such as \"https://studio.example\"");
        let url = text.parse::<url::Url>().map_err(|_| wrong())?;
        // As browsers write it: without the port where that is the scheme's own, and without a slash.
        let origin = url.origin().ascii_serialization();
        let is_whole = url.path() == "/" && url.query().is_none() && url.username().is_empty();
        match is_whole && ["http", "https"].contains(&url.scheme()) {
            true => Ok(origin),
            false => Err(wrong()),
        }
    });
    let listed = listed.map(|at| at.value).unwrap_or_default();
    listed.into_iter().map(|at| at.value).collect()
}

fn data(section: &Section<'_, '_>, default: &str, specific: bool) -> GroupsConfig {
    grouped(section, link(section), default, specific)
}

fn grouped(section: &Section<'_, '_>, link: Link, default: &str, specific: bool) -> GroupsConfig {
    GroupsConfig {
        link,
        groups: groups(section, default, specific),
        port: section.number("port", 1..=65_535u16, bfed_client::DEFAULT_PORT),
        export: export(section),
    }
}

/// The pool of networks of any source.
const ANY_SOURCE: &str = "239.255.0.0/18";

fn ip(section: &Section<'_, '_>) -> MulticastConfig {
    let data = data(section, ANY_SOURCE, false);
    any_source(section, data, sap(section, true))
}

/// A network with the mediator on a group.
fn any_source(section: &Section<'_, '_>, data: GroupsConfig, sap: SapConfig) -> MulticastConfig {
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
    MulticastConfig {
        data,
        mediator: group.map_or(default, |at| at.value),
        sap,
        limits: limits(section),
        cost: cost(section),
    }
}

fn ssm(section: &Section<'_, '_>) -> MulticastConfig {
    let data = data(section, "232.98.0.0/16", true);
    let any: SocketAddr = match data.groups.is_ipv4() {
        true => ([0; 4], bfed_client::MEDIATOR_PORT).into(),
        false => ([0u16; 8], bfed_client::MEDIATOR_PORT).into(),
    };
    MulticastConfig {
        data,
        mediator: unicast(section, "mediator", any, ": only its source can send there"),
        sap: sap(section, false),
        limits: limits(section),
        cost: cost(section),
    }
}

/// A listener, its certificate and its key: all or none.
fn tls(section: &Section<'_, '_>, keys: [&'static str; 3]) -> Option<TlsConfig> {
    let file = |key: &'static str| section.get(key, "the path of a PEM file", text);
    let found = section.get(keys[0], LISTEN, listen);
    let (certificate, key) = (file(keys[1]), file(keys[2]));
    match (found, certificate, key) {
        (Some(listen), Some(certificate), Some(key)) => Some(TlsConfig {
            listen: listen.value,
            certificate: certificate.value.into(),
            key: key.value.into(),
        }),
        (None, None, None) => None,
        _ => {
            let [listen, certificate, key] = keys;
            section.complain(
                section.offset_of(listen),
                listen,
                "is incomplete",
                format!("write {listen}, {certificate} and {key}, or none of them"),
            );
            None
        }
    }
}

fn moq(section: &Section<'_, '_>) -> MoqConfig {
    let default = MoqConfig::default();
    let seconds = std::time::Duration::from_secs;
    let config = MoqConfig {
        listener: tls(section, ["moq-listen", "moq-certificate", "moq-key"]),
        is_pinned: section.flag("moq-pin", default.is_pinned),
        clients: section.number("moq-clients", 1u32..=1 << 20, 1024) as usize,
        per_address: section.number("moq-clients-per-address", 1u32..=1 << 20, 32) as usize,
        memory: section.number("moq-memory", 1u64 << 20..=1 << 36, default.memory),
        max_age: section
            .duration(
                "moq-max-age",
                std::time::Duration::from_millis(100)..=seconds(60),
                default.max_age,
            )
            .value,
        relay: relay(section),
    };
    if config.listener.is_none() && config.relay.is_none() {
        section.complain(
            section.offset_of("kind"),
            "kind",
            "\"moq\" has neither a listener nor a relay",
            "write moq-listen with a certificate, or relay",
        );
    }
    config
}

fn relay(section: &Section<'_, '_>) -> Option<RelayConfig> {
    let wanted = "a URL such as \"https://relay.example:443/live\"";
    let url = section.get("relay", wanted, |value| {
        let text = text(value)?;
        let url = text
            .parse::<url::Url>()
            .map_err(|error| error.to_string())?;
        match url.scheme() == "https" && url.has_host() {
            true => Ok(url),
            false => Err(format!("{text:?} is no https URL")),
        }
    });
    let file = |key: &'static str| {
        let found = section.get(key, "the path of a file", text);
        found.map(|at| at.value.into())
    };
    let (authority, token) = (file("relay-authority"), file("relay-token-file"));
    let wanted = "names of sessions, such as [\"bfed://1/239.1.2.3/5004\"]";
    let publish = section.list("relay-publish", wanted, |value| {
        let text = text(value)?;
        SessionName::parse(&text).map_err(|error| format!("{text:?}: {error}"))
    });
    let publish = publish.map(|at| at.value.into_iter().map(|at| at.value).collect());
    Some(RelayConfig {
        url: url?.value,
        authority,
        token,
        publish: publish.unwrap_or_default(),
    })
}

fn http(section: &Section<'_, '_>) -> HttpConfig {
    let local = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let address = |key: &'static str, default| unicast(section, key, default, "");
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
        tls: tls(section, ["tls-listen", "tls-certificate", "tls-key"]),
        ask: url("ask").map(|url| match url.path() {
            "/" => url.with_path("/mediator").unwrap_or(url),
            _ => url,
        }),
        origin: url("origin"),
        publish: hosts(section, "publish").unwrap_or_else(|| config.publish.clone()),
        origins: origins(section),
        list: hosts(section, "list").unwrap_or_else(|| config.list.clone()),
        hls_memory: section.number("hls-memory", 1u32 << 20..=1 << 30, 16 << 20) as usize,
        hls_sessions: section.number("hls-sessions", 0u32..=10_000, 16) as usize,
        hls_sessions_per_client: section.number("hls-sessions-per-client", 1u32..=10_000, 4)
            as usize,
        hls_part: section
            .duration(
                "hls-part",
                std::time::Duration::from_millis(100)..=seconds(2),
                config.hls_part,
            )
            .value,
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

fn ltp(section: &Section<'_, '_>) -> LtpConfig {
    let defaults = Link::default();
    let link = Link {
        interface: interface(section),
        ttl: section.number("ttl", 1..=255u8, defaults.ttl),
        ..defaults
    };
    let data = grouped(section, link, ANY_SOURCE, false);
    let first = SocketAddr::new(data.groups.first(), data.port);
    if let Err(wrong) = Group::new(first).check() {
        let offset = section.offset_of("groups");
        section.complain(offset, "groups", wrong.to_string(), "write other groups");
    }
    let silent = SapConfig {
        announce: false,
        learn_from: Vec::new(),
    };
    let default = LtpConfig::new(any_source(section, data, silent));
    let wanted = "\"none\", \"lms\", \"lms+udp\", \"dyram://RELAY:PORT\" or \"dyram+multicast://RELAY:PORT\"";
    let assist = section.get("assist", wanted, |value| text(value)?.parse::<Assist>());
    let wanted = "\"auto\", \"unlimited\", or bits a second such as \"100M\"";
    let rate = section.get("rate", wanted, |value| match text(value)?.as_str() {
        "auto" => Ok(Rate::Congestion),
        "unlimited" => Ok(Rate::Unlimited),
        bits => {
            let bits = bits.parse::<BitRate>().map_err(|error| error.to_string())?;
            Ok(Rate::Fixed(bits.0))
        }
    });
    let key = section.get("key-file", "the path of a file with a key", text);
    let seconds = std::time::Duration::from_secs;
    let time = |key: &'static str, default| {
        let range = seconds(1)..=seconds(3600);
        section.duration(key, range, default).value
    };
    LtpConfig {
        key_file: key.map(|at| at.value.into()),
        assist: assist.map_or(Assist::None, |at| at.value),
        lms_port: section.number("lms-port", 1..=65_535u16, default.lms_port),
        rate: rate.map_or(default.rate, |at| at.value),
        receivers: section.number("receivers", 0..=10_000u32, default.receivers),
        connect_timeout: time("connect-timeout", default.connect_timeout),
        timeout: time("timeout", default.timeout),
        idle_timeout: time("idle-timeout", default.idle_timeout),
        buffer: section.number("buffer", 1u64 << 20..=1 << 32, default.buffer),
        sessions: section.number("sessions", 1u32..=1024, default.sessions as u32) as usize,
        ..default
    }
}

fn external(section: &Section<'_, '_>) -> ExternalConfig {
    let wants = "an absolute path, such as \"/run/polycast/external\"";
    let directory = section.get("directory", wants, |value| {
        let path = std::path::PathBuf::from(text(value)?);
        // The address of a Unix socket holds 107 bytes, 13 of them for the name of the socket.
        match path.as_os_str().len() {
            _ if !path.is_absolute() => Err(format!("{path:?} is not an absolute path")),
            0..=94 => Ok(path),
            _ => Err(format!("{path:?} is longer than 94 bytes")),
        }
    });
    let default = ExternalConfig::default();
    let group = section.get("socket-group", "the name of a group of users", text);
    ExternalConfig {
        directory: directory.map_or(default.directory, |at| at.value),
        mode: section
            .get("socket-mode", MODE, mode)
            .map_or(default.mode, |at| at.value),
        group: group.map(|at| at.value),
        queue: section.number("queue", 65_536u32..=1 << 30, 4 << 20) as usize,
        limits: limits(section),
        cost: cost(section),
    }
}
