//! The configuration file. It is validated as a whole, and every problem is reported. The example `dyram-relay.toml`,
//! which a test reads, documents meaning, unit and default of each key.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use daemon_kit::daemon::Configuration;
use daemon_kit::host::HostCheck;
use daemon_kit::reader::{At, Section, shown};
pub use daemon_kit::settings::Daemon;
use daemon_kit::settings::differing;
use daemon_kit::value::{INTERFACE, interface, listen};
use dyram::storage::{Limits, MAX_ENTRIES};
use dyram::{Carriage, DefaultReplier, MAX_PARENTS, RelayId};
use linux_net::inet::scoped;
use toml::de::DeValue;

use crate::zone::{Zone, Zoned, differing as differing_zone};

/// Default path of the status socket.
pub const DEFAULT_SOCKET: &str = "/run/polycast/dyram-relay.sock";
/// Largest number of groups to listen to: each has a socket.
pub const MAX_GROUPS: usize = 16;
/// Largest number of children of all sessions together.
const MAX_CHILDREN: usize = 1 << 22;

const SHORT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(10);
const REFRESH: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(65);
const ACKS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
const STALL: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(3600);
const LONG: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

/// A valid configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Configuration of the machine: `[relay]` without `listen`, `[recovery]` and `[timers]`.
    pub relay: dyram::Config,
    /// `relay.listen`, without its zone.
    pub listen: SocketAddr,
    /// The zone of the link-local addresses in `relay.listen` and `relay.parents`, which is one interface.
    pub zone: Option<Zone>,
    /// `[multicast]`, if IP multicast carries the data.
    pub multicast: Option<Multicast>,
    /// `timers.drain`.
    pub drain: Duration,
    /// `[limits]`.
    pub limits: Limits,
    /// `[daemon]` and `[metrics]`.
    pub daemon: Daemon,
}

/// `[multicast]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multicast {
    /// `interface` on which the groups are joined.
    pub interface: String,
    /// `groups`, with the port of the data.
    pub groups: Vec<SocketAddr>,
}

impl Config {
    /// Returns the value of `relay.carriage`.
    #[must_use]
    pub fn carriage(&self) -> &'static str {
        match self.relay.carriage {
            Carriage::Relays => "relays",
            Carriage::Multicast => "multicast",
        }
    }

    /// Returns the kernel's number of the interface that link-local addresses are of, 0 where none is named.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn interface(&self) -> Result<u32, String> {
        self.zone.as_ref().map_or(Ok(0), Zone::index)
    }

    /// Returns whether the addresses of `next` need another zone than the running socket has.
    fn needs_zone_of(&self, next: &Config) -> bool {
        next.zone.is_some() && next.zone != self.zone
    }

    /// Returns the key whose address has the zone.
    pub(crate) fn zone_key(&self) -> &'static str {
        match self.listen {
            SocketAddr::V6(listen) if listen.ip().is_unicast_link_local() => "relay.listen",
            _ => "relay.parents",
        }
    }
}

impl Configuration for Config {
    fn read(root: &Section<'_, '_>) -> Config {
        let (mut relay, listen, zone) = relay(root.section("relay"));
        let multicast = multicast(root, relay.carriage, listen);
        recovery(root.section("recovery"), &mut relay);
        let drain = timers(root.section("timers"), &mut relay);
        let limits = limits(root.section("limits"), &mut relay);
        Config {
            relay,
            listen,
            zone,
            multicast,
            drain,
            limits,
            daemon: Daemon::read(root, DEFAULT_SOCKET),
        }
    }

    fn check_host(&self, host: &mut HostCheck) {
        match self.interface() {
            Ok(interface) => host.address("relay.listen", Some(scoped(self.listen, interface))),
            Err(problem) => host.complain(self.zone_key(), problem),
        }
        if let Some(multicast) = &self.multicast {
            host.interface("multicast.interface", &multicast.interface);
        }
    }

    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn needs_restart(&self, next: &Config) -> Vec<&'static str> {
        let (l, m) = (&self.limits, &next.limits);
        let other_zone = self.needs_zone_of(next).then(|| next.zone_key());
        differing([
            ("relay.id", self.relay.id != next.relay.id),
            (
                "relay.listen",
                self.listen != next.listen || other_zone == Some("relay.listen"),
            ),
            ("relay.parents", other_zone == Some("relay.parents")),
            ("relay.carriage", self.relay.carriage != next.relay.carriage),
            ("multicast", self.multicast != next.multicast),
            ("limits.sessions", l.sessions != m.sessions),
            ("limits.children", l.children != m.children),
            ("limits.nack-states", l.nack_states != m.nack_states),
            ("limits.window", l.window != m.window),
        ])
        .chain(self.daemon.differences(&next.daemon))
        .collect()
    }

    fn reloaded(&self, next: Config) -> Config {
        let from = match self.needs_zone_of(&next) {
            true => self,
            false => &next,
        };
        let parents = from.relay.parents.clone();
        Config {
            relay: dyram::Config {
                id: self.relay.id,
                carriage: self.relay.carriage,
                parents,
                ..next.relay
            },
            drain: next.drain,
            ..self.clone()
        }
    }
}

fn relay(section: Section<'_, '_>) -> (dyram::Config, SocketAddr, Option<Zone>) {
    let wants = "the relay's identifier like an IPv4 address, such as \"192.0.2.1\"";
    let id = section.require("id", wants, |value| match value {
        DeValue::String(text) => match text.parse::<Ipv4Addr>() {
            Ok(id) if id.to_bits() != 0 => Ok(RelayId(id.to_bits())),
            Ok(_) => Err("0.0.0.0 is not a valid identifier".to_owned()),
            Err(_) => Err(format!("{text:?} is not an identifier")),
        },
        other => Err(format!("{} is not a text in quotes", shown(other))),
    });
    let mut config = dyram::Config::new(id.map_or(RelayId(1), |at| at.value));
    let Zoned { address, zone } = listen_address(&section);
    let zone = parents(&section, address, zone, &mut config);
    let choices = [
        ("relays", Carriage::Relays),
        ("multicast", Carriage::Multicast),
    ];
    if let Some(carriage) = section.choice("carriage", &choices, Carriage::Relays) {
        config.carriage = carriage;
    }
    section.finish();
    (config, address, zone)
}

fn listen_address(section: &Section<'_, '_>) -> Zoned {
    let wants = "an address and a port, such as \"192.0.2.1:4143\", \"[2001:db8::1]:4143\" or \"[fe80::1%eth0]:4143\"";
    let given = section.get("listen", wants, |value| {
        let zoned = Zoned::read(value)?;
        match zoned.address.ip().is_multicast() {
            true => Err(format!("{} is a multicast address", zoned.address)),
            false => Ok(zoned),
        }
    });
    let default = Zoned {
        address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 4143)),
        zone: None,
    };
    given.map_or(default, |at| at.value)
}

/// Reads the parents of a relay at `address`; returns the zone of all link-local addresses.
fn parents(
    section: &Section<'_, '_>,
    address: SocketAddr,
    zone: Option<Zone>,
    config: &mut dyram::Config,
) -> Option<Zone> {
    let wants = "up to 4 relays such as [\"192.0.2.1:4143\", \"[2001:db8::1]:4143\", \"[fe80::1%eth0]:4143\"]";
    let parents = section.list("parents", wants, |value| {
        let zoned = Zoned::read(value)?;
        let parent = zoned.address;
        let ip = parent.ip();
        if ip.is_multicast() || ip.is_unspecified() || parent.port() == 0 {
            return Err(format!("{parent} is not the address of a relay"));
        }
        if ip.is_ipv4() != address.is_ipv4() {
            return Err(format!(
                "{parent} has another address family than listen, {address}"
            ));
        }
        if parent == address {
            return Err(format!("{parent} is this relay"));
        }
        Ok(zoned)
    });
    let list = parents.map_or_else(Vec::new, |at| at.value);
    if let Some((other, first)) = differing_zone(zone.as_ref(), &list) {
        let wrong = format!("{} is not of interface {first}", other.value.address);
        let instead = format!("write the zone %{first} in all link-local addresses");
        section.complain(other.offset, "parents", wrong, instead);
    }
    for (index, At { value, offset }) in list.iter().enumerate() {
        let parent = value.address;
        let mut before = list[..index].iter();
        if before.any(|other| other.value.address == parent) {
            section.complain(
                *offset,
                "parents",
                format!("{parent} is listed twice"),
                "remove one",
            );
        } else if config.parents.push(parent).is_err() {
            let wrong = format!("more than {MAX_PARENTS} parents");
            section.complain(*offset, "parents", wrong, "remove some");
            break;
        }
    }
    zone.or_else(|| list.into_iter().find_map(|at| at.value.zone))
}

fn multicast(root: &Section<'_, '_>, carriage: Carriage, address: SocketAddr) -> Option<Multicast> {
    let given = root.has("multicast");
    let section = root.section("multicast");
    if carriage == Carriage::Relays {
        if given {
            let instead = "write carriage = \"multicast\" in [relay], or remove [multicast]";
            root.complain(
                section.offset(),
                "multicast",
                "requires carriage \"multicast\"",
                instead,
            );
        }
        return None;
    }
    let name = section.require("interface", INTERFACE, interface);
    let wants = "groups with their ports, such as [\"239.1.2.3:5000\"] or [\"[ff15::1234]:5000\"]";
    if !section.has("groups") {
        section.complain(
            section.offset(),
            "groups",
            "is missing",
            format!("write {wants}"),
        );
    }
    let groups = section.list("groups", wants, |value| {
        if let DeValue::String(text) = value
            && text.contains('%')
        {
            return Err(format!("{text} has a zone; interface names the interface"));
        }
        let group = listen(value)?;
        if !group.ip().is_multicast() || group.port() == 0 {
            return Err(format!("{group} is not a group with a port"));
        }
        if group.is_ipv4() != address.is_ipv4() {
            return Err(format!(
                "{group} has another address family than listen, {address}"
            ));
        }
        Ok(group)
    });
    let groups = groups.map_or_else(Vec::new, |at| at.value);
    if let Some(beyond) = groups.get(MAX_GROUPS) {
        let wrong = format!("more than {MAX_GROUPS} groups");
        section.complain(beyond.offset, "groups", wrong, "run another relay for some");
    }
    section.finish();
    Some(Multicast {
        interface: name?.value,
        groups: groups.into_iter().map(|at| at.value).collect(),
    })
}

fn recovery(section: Section<'_, '_>, config: &mut dyram::Config) {
    let choices = [
        ("first", DefaultReplier::First),
        ("spread", DefaultReplier::Spread),
    ];
    if let Some(replier) = section.choice("default-replier", &choices, DefaultReplier::First) {
        config.default_replier = replier;
    }
    config.early_detection = section.flag("early-detection", true);
    config.replier_tries = section.number("replier-tries", 0..=16, config.replier_tries);
    config.parent_tries = section.number("parent-tries", 1..=16, config.parent_tries);
    section.finish();
}

fn timers(section: Section<'_, '_>, config: &mut dyram::Config) -> Duration {
    let read = |key, range, default: dyram::Duration| {
        let at = section.duration(key, range, default.into());
        (machine(at.value), at.offset)
    };
    let (least, _) = read("decide-min", SHORT, config.decide.0);
    let (most, offset) = read("decide-max", SHORT, config.decide.1);
    if least > most {
        let wrong = "is below decide-min";
        section.complain(offset, "decide-max", wrong, "write decide-min or more");
    }
    config.decide = (least, most);
    config.hold_min = read("hold-min", SHORT, config.hold_min).0;
    config.refresh = read("refresh", REFRESH, config.refresh).0;
    config.ack_interval = read("ack-interval", ACKS, config.ack_interval).0;
    config.takeover = read("takeover", LONG, config.takeover).0;
    let (stall, offset) = read("stall-timeout", STALL, config.stall_timeout);
    if stall < config.refresh {
        let wrong = "is below refresh";
        section.complain(offset, "stall-timeout", wrong, "write refresh or more");
    }
    config.stall_timeout = stall;
    let drain = section
        .duration("drain", LONG, Duration::from_secs(10))
        .value;
    section.finish();
    drain
}

fn machine(duration: Duration) -> dyram::Duration {
    dyram::Duration::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

fn limits(section: Section<'_, '_>, config: &mut dyram::Config) -> Limits {
    let default = Limits::default();
    let read = |key, range: RangeInclusive<u32>, default: usize| {
        section.number(key, range, default as u32) as usize
    };
    let power_of_two = |key, range: RangeInclusive<u32>, default: usize| {
        section.power_of_two(key, range, default as u32) as usize
    };
    let limits = Limits {
        sessions: read("sessions", 1..=16_128, default.sessions),
        children: read("children", 1..=65_534, default.children),
        nack_states: power_of_two("nack-states", 2..=32_768, default.nack_states),
        window: power_of_two("window", 64..=1 << 20, default.window),
    };
    let each = usize::from(config.children_per_host);
    config.children_per_host = read("children-per-host", 1..=65_534, each) as u16;
    let most = MAX_ENTRIES / (limits.nack_states + 2);
    if limits.sessions > most {
        let wrong = format!(
            "{} sessions with this number of NACK states exceed the table of timers",
            limits.sessions
        );
        let instead = format!("write at most {most}, or fewer nack-states");
        section.complain(section.offset_of("sessions"), "sessions", wrong, instead);
    }
    if limits.sessions * limits.children > MAX_CHILDREN {
        let wrong = format!("more than {MAX_CHILDREN} children of all sessions");
        let instead = format!("write at most {}", MAX_CHILDREN / limits.sessions);
        section.complain(section.offset_of("children"), "children", wrong, instead);
    }
    section.finish();
    limits
}
