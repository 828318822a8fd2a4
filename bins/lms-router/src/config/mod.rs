//! The configuration in TOML, validated as a whole; every problem is reported.
//!
//! Each key's meaning, unit, bounds and default stand beside its field here, and in the example
//! configuration `lms-router.toml`, which a test reads through [`Config::parse`](Configuration::parse).

mod sections;
mod value;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::time::Duration;

use daemon_kit::daemon::Configuration;
use daemon_kit::host::HostCheck;
use daemon_kit::reader::Section;
pub use daemon_kit::settings::Daemon;
use linux_net::packet::Backend;
pub use value::Pattern;

/// Default path of the status socket.
pub const DEFAULT_SOCKET: &str = "/run/polycast/lms-router.sock";

/// A whole configuration that `check` accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[daemon]` and `[metrics]`.
    pub daemon: Daemon,
    /// `[source]`: where multicast routes come from.
    pub source: Source,
    /// `[[interface]]`: the first whose pattern fits an interface decides about it.
    pub interfaces: Vec<InterfaceRule>,
    /// `[replier]`.
    pub replier: Replier,
    /// `[limits]`.
    pub limits: Limits,
    /// `[capture]`.
    pub capture: Capture,
    /// `ipv6`: whether the router forwards IPv6 too, where the host has it. A reload does not change it.
    pub ipv6: bool,
}

/// Where multicast routes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The kernel's own routes, followed over netlink; some routing daemon owns them.
    Kernel,
    /// The routes of the configuration; another program forwards the data.
    Static(Vec<StaticRoute>),
    /// IGMP on every downstream link decides; this process owns the kernel's multicast routing.
    IgmpProxy(IgmpProxy),
}

impl Source {
    /// The word in the configuration.
    pub fn kind(&self) -> &'static str {
        match self {
            Source::Kernel => "kernel",
            Source::Static(_) => "static",
            Source::IgmpProxy(_) => "igmp-proxy",
        }
    }
}

/// `[[route]]`, with `source.kind = "static"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticRoute {
    /// `source`: `None` (written `"*"`) for any.
    pub source: Option<IpAddr>,
    /// `group`, of the same family.
    pub group: IpAddr,
    /// `upstream`: the interface that leads to the source.
    pub upstream: String,
    /// `downstream`: the interfaces that lead to members.
    pub downstream: Vec<String>,
}

/// `[source]` with `kind = "igmp-proxy"` (RFC 4605; timers as in RFC 3376 §8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgmpProxy {
    /// `upstream`: the one interface that leads to all sources.
    pub upstream: String,
    /// `downstream`: the others, all by default.
    pub downstream: Vec<Pattern>,
    /// `query-interval`, 125 s.
    pub query_interval: Duration,
    /// `response-interval`, 10 s: time that hosts have to answer a general query.
    pub response_interval: Duration,
    /// `last-member-interval`, 1 s: the same after a leave.
    pub last_member_interval: Duration,
    /// `robustness`, 2: number of consecutive lost messages that are tolerated.
    pub robustness: u8,
}

/// `[[interface]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceRule {
    /// `name`.
    pub name: Pattern,
    /// `use`: with `false` the router does not use the interface.
    pub enabled: bool,
    /// `address` of this router in turning points for this interface; by default the interface's primary address.
    pub address: Option<Ipv4Addr>,
    /// `ipv6`: the same for IPv6; by default the first address that is not link-local.
    pub ipv6: Option<Ipv6Addr>,
}

/// How the replier of a group is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Hosts and routers report costs, the lowest wins.
    Hierarchy,
    /// Any downstream interface, drawn at random.
    Random,
    /// The repliers of the configuration.
    Static,
    /// Up to `copies` copies of a request, each up or to a random child, at random.
    SearchParty,
}

impl Policy {
    /// The word in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Hierarchy => "hierarchy",
            Policy::Random => "random",
            Policy::Static => "static",
            Policy::SearchParty => "search-party",
        }
    }
}

/// `[replier]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replier {
    /// `policy`.
    pub policy: Policy,
    /// `cost`: what this router adds to its best downstream cost, 1 to 1000.
    pub cost: u16,
    /// `refresh`: how often soft state is refreshed, 100 ms to 18 s; state that is not
    /// refreshed for 3.5 times as long expires.
    pub refresh: Duration,
    /// `copies`: of a request, with `search-party`; 1 or 2.
    pub copies: u8,
    /// `[[replier.static]]`, with `policy = "static"`.
    pub fixed: Vec<StaticReplier>,
}

/// `[[replier.static]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticReplier {
    /// `source`: `None` (written `"*"`) for any.
    pub source: Option<IpAddr>,
    /// `group`, of the same family.
    pub group: IpAddr,
    /// `interface`: where the replier is.
    pub interface: String,
    /// `neighbour`: the host or router on that link; the whole link when absent.
    pub neighbour: Option<IpAddr>,
}

/// `[limits]`: table sizes, which a reload does not change, and rates. The burst of a rate is a tenth of a second, at
/// least 10 packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `groups`: multicast routes.
    pub groups: u32,
    /// `neighbours`: (group, downstream neighbour) pairs whose cost is known.
    pub neighbours: u32,
    /// `interfaces`.
    pub interfaces: u16,
    /// `requests-per-second`: all groups together.
    pub requests_per_s: u32,
    /// `dmcasts-per-second`: all groups together.
    pub dmcasts_per_s: u32,
    /// `group-requests-per-second`.
    pub group_requests_per_s: u32,
    /// `group-dmcasts-per-second`.
    pub group_dmcasts_per_s: u32,
    /// `repairs-per-request`.
    pub repairs_per_request: u16,
}

/// `[capture]`: how packets come into the process. Reloads do not change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// `backend`: `ring`, `xdp`, or `pnet` where the kernel has no packet rings. With `xdp` packets come in by the ring
    /// too: those that the program leaves.
    pub backend: Backend,
    /// With `backend = "xdp"`: `xdp-mode`, where the program runs.
    pub xdp: Option<lms_xdp::Mode>,
    /// `frames`, a power of two: packets that may wait; with `pnet` on each interface.
    pub frames: u32,
    /// `packet-bytes`: the longest packet taken whole; the largest MTU at the start by default.
    pub packet_bytes: Option<u32>,
    /// `guard`: keep the kernel from also seeing requests and dmcasts, as far as
    /// [`linux_net::nft`] can; the counter `unguarded` counts those that it could not hide.
    pub guard: bool,
    /// `udp-port`: requests and dmcasts travel in datagrams to it too; `None` (written 0): they do not.
    pub udp_port: Option<NonZeroU16>,
}

impl Config {
    /// Returns whether a static replier is a neighbour, whose link address must be resolved.
    pub fn names_neighbours(&self) -> bool {
        let mut fixed = self.replier.fixed.iter();
        fixed.any(|fixed| fixed.neighbour.is_some())
    }

    /// Returns the first rule that matches the interface `name`.
    pub fn interface(&self, name: &str) -> Option<&InterfaceRule> {
        self.interfaces.iter().find(|rule| rule.name.matches(name))
    }

    /// Returns whether the router uses the interface `name`.
    pub fn uses(&self, name: &str) -> bool {
        self.interface(name).is_none_or(|rule| rule.enabled)
    }
}

impl Configuration for Config {
    fn read(root: &Section<'_, '_>) -> Config {
        sections::config(root)
    }

    fn check_host(&self, host: &mut HostCheck) {
        match &self.source {
            Source::Kernel => {}
            Source::Static(routes) => {
                for (number, route) in (1..).zip(routes) {
                    host.interface(&format!("route[{number}].upstream"), &route.upstream);
                    for name in &route.downstream {
                        host.interface(&format!("route[{number}].downstream"), name);
                    }
                }
            }
            Source::IgmpProxy(proxy) => host.interface("source.upstream", &proxy.upstream),
        }
        for (number, replier) in (1..).zip(&self.replier.fixed) {
            host.interface(
                &format!("replier.static[{number}].interface"),
                &replier.interface,
            );
        }
    }

    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn needs_restart(&self, next: &Config) -> Vec<&'static str> {
        let mut keys: Vec<_> = self.daemon.differences(&next.daemon).collect();
        let mut differ = |key, differs: bool| {
            if differs {
                keys.push(key);
            }
        };
        differ("source.kind", self.source.kind() != next.source.kind());
        if let (Source::IgmpProxy(a), Source::IgmpProxy(b)) = (&self.source, &next.source) {
            differ("source (igmp-proxy)", a != b);
        }
        let (a, b) = (&self.limits, &next.limits);
        differ("limits.groups", a.groups != b.groups);
        differ("limits.neighbours", a.neighbours != b.neighbours);
        differ("limits.interfaces", a.interfaces != b.interfaces);
        let (a, b) = (&self.capture, &next.capture);
        differ("capture.backend", (a.backend, a.xdp) != (b.backend, b.xdp));
        differ("capture.frames", a.frames != b.frames);
        differ("capture.packet-bytes", a.packet_bytes != b.packet_bytes);
        differ("capture.guard", a.guard != b.guard);
        differ("capture.udp-port", a.udp_port != b.udp_port);
        differ("ipv6", self.ipv6 != next.ipv6);
        keys
    }

    fn reloaded(&self, mut next: Config) -> Config {
        next.daemon = self.daemon.clone();
        if self.source.kind() != next.source.kind() || matches!(self.source, Source::IgmpProxy(_)) {
            next.source = self.source.clone();
        }
        next.limits.groups = self.limits.groups;
        next.limits.neighbours = self.limits.neighbours;
        next.limits.interfaces = self.limits.interfaces;
        next.capture = self.capture.clone();
        next.ipv6 = self.ipv6;
        next
    }
}
