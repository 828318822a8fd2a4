//! The sections of the configuration, one function each.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::time::Duration;

use daemon_kit::reader::{At, Section};
use daemon_kit::value::{INTERFACE, interface, spelled};
use linux_net::packet::Backend;
use lms_xdp::Mode;

use super::value::{
    PATTERN, ROUTED_GROUP, SOURCE, UNICAST, UNICAST4, UNICAST6, pattern, routed_group, source,
    unicast, unicast4, unicast6,
};
use super::{
    Capture, Config, DEFAULT_SOCKET, Daemon, IgmpProxy, InterfaceRule, Limits, Pattern, Policy,
    Replier, Source, StaticReplier, StaticRoute,
};

const REFRESH: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(18);
const SECONDS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
const TENTHS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(25);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Kernel,
    Static,
    IgmpProxy,
}

pub(super) fn config(root: &Section<'_, '_>) -> Config {
    let (replier, limits) = (
        replier(root.section("replier")),
        limits(root.section("limits")),
    );
    Config {
        daemon: Daemon::read(root, DEFAULT_SOCKET),
        source: source_section(root.section("source"), root.sections("route")),
        interfaces: interfaces(root.sections("interface")),
        replier,
        limits,
        capture: capture(root.section("capture")),
        ipv6: root.flag("ipv6", true),
    }
}

fn source_section(section: Section<'_, '_>, routes: Vec<Section<'_, '_>>) -> Source {
    let kinds = [
        ("kernel", Kind::Kernel),
        ("static", Kind::Static),
        ("igmp-proxy", Kind::IgmpProxy),
    ];
    let kind = section.choice("kind", &kinds, Kind::Kernel);
    if kind.is_some_and(|kind| kind != Kind::Static)
        && let Some(route) = routes.first()
    {
        let instead = "write kind = \"static\" in [source], or leave [[route]] out";
        let wrong = "is only for static routes";
        route.complain_whole(wrong, instead);
    }
    let routes = static_routes(routes);
    match kind {
        // What belongs to a kind is judged once the kind is known.
        None => Source::Kernel,
        Some(Kind::Kernel) => {
            section.finish();
            Source::Kernel
        }
        Some(Kind::Static) => {
            section.finish();
            Source::Static(routes)
        }
        Some(Kind::IgmpProxy) => Source::IgmpProxy(igmp_proxy(section)),
    }
}

fn static_routes(sections: Vec<Section<'_, '_>>) -> Vec<StaticRoute> {
    let mut routes = Vec::new();
    let mut seen = HashMap::new();
    for (i, section) in sections.into_iter().enumerate() {
        let from = section.require("source", SOURCE, source);
        let group = section.require("group", ROUTED_GROUP, routed_group);
        let upstream = section.require("upstream", INTERFACE, interface);
        let list = "a list of interface names, such as [\"eth1\", \"eth2\"]";
        if !section.has("downstream") {
            section.complain(
                section.offset(),
                "downstream",
                "is missing",
                format!("write {list}"),
            );
        }
        let downstream = section
            .list("downstream", list, interface)
            .map(|at| at.value);
        if let (Some(up), Some(down)) = (&upstream, &downstream) {
            for same in down.iter().filter(|down| down.value == up.value) {
                let wrong = format!("{:?} is the upstream interface too", same.value);
                section.complain(
                    same.offset,
                    "downstream",
                    wrong,
                    "write only interfaces that lead to members",
                );
            }
        }
        check_family(&section, from.as_ref(), group.as_ref());
        if let (Some(from), Some(group)) = (&from, &group)
            && let Some(first) = seen.insert((from.value, group.value), i + 1)
        {
            let wrong = format!("is the same source and group as route[{first}]");
            section.complain(group.offset, "group", wrong, "write one [[route]] for both");
        }
        if section.finish()
            && let (Some(from), Some(group), Some(upstream)) = (from, group, upstream)
        {
            routes.push(StaticRoute {
                source: from.value,
                group: group.value,
                upstream: upstream.value,
                downstream: downstream
                    .into_iter()
                    .flatten()
                    .map(|at| at.value)
                    .collect(),
            });
        }
    }
    routes
}

/// Source and group must be of one family.
fn check_family(
    section: &Section<'_, '_>,
    source: Option<&At<Option<IpAddr>>>,
    group: Option<&At<IpAddr>>,
) {
    let (Some(source), Some(group)) = (source, group) else {
        return;
    };
    if let Some(address) = source.value
        && address.is_ipv4() != group.value.is_ipv4()
    {
        let wrong = format!("{address} is not of the address family of the group");
        let instead = "write two IPv4 or two IPv6 addresses";
        section.complain(source.offset, "source", wrong, instead);
    }
}

fn igmp_proxy(section: Section<'_, '_>) -> IgmpProxy {
    let upstream = section.require("upstream", INTERFACE, interface);
    let list = "a list of interface names or patterns, such as [\"eth1\", \"lan*\"]";
    let downstream = section.list("downstream", list, pattern).map(|at| at.value);
    if let (Some(up), Some(down)) = (&upstream, &downstream) {
        for same in down.iter().filter(|down| down.value.0 == up.value) {
            let wrong = format!("{:?} is the upstream interface too", up.value);
            section.complain(same.offset, "downstream", wrong, "leave it out here");
        }
    }
    let query = section.duration("query-interval", SECONDS, Duration::from_secs(125));
    let response = section.duration("response-interval", TENTHS, Duration::from_secs(10));
    if response.value >= query.value {
        let wrong = format!(
            "{} is not shorter than query-interval",
            spelled(response.value)
        );
        let instead = format!("write a duration below {}", spelled(query.value));
        section.complain(
            response.offset.max(query.offset),
            "response-interval",
            wrong,
            instead,
        );
    }
    let proxy = IgmpProxy {
        upstream: upstream.map(|at| at.value).unwrap_or_default(),
        downstream: match downstream {
            Some(patterns) => patterns.into_iter().map(|at| at.value).collect(),
            None => vec![Pattern("*".to_owned())],
        },
        query_interval: query.value,
        response_interval: response.value,
        last_member_interval: section
            .duration("last-member-interval", TENTHS, Duration::from_secs(1))
            .value,
        robustness: section.number("robustness", 1..=7, 2u8),
    };
    section.finish();
    proxy
}

fn interfaces(sections: Vec<Section<'_, '_>>) -> Vec<InterfaceRule> {
    let mut rules: Vec<InterfaceRule> = Vec::new();
    for section in sections {
        let name = section.require("name", PATTERN, pattern);
        let enabled = section.flag("use", true);
        let address = section
            .get("address", UNICAST4, unicast4)
            .map(|at| at.value);
        let ipv6 = section.get("ipv6", UNICAST6, unicast6).map(|at| at.value);
        if let Some(name) = &name
            && let Some(i) = rules
                .iter()
                .position(|rule| shadows(&rule.name, &name.value))
        {
            let wrong = format!(
                "{:?} never applies, interface[{}] comes first",
                name.value.0,
                i + 1
            );
            section.complain(name.offset, "name", wrong, "write the narrower name first");
        }
        section.finish();
        if let Some(name) = name {
            rules.push(InterfaceRule {
                name: name.value,
                enabled,
                address,
                ipv6,
            });
        }
    }
    rules
}

/// Whether every name that fits `second` fits `first` too.
fn shadows(first: &Pattern, second: &Pattern) -> bool {
    first == second
        || first
            .0
            .strip_suffix('*')
            .is_some_and(|prefix| second.0.starts_with(prefix))
}

fn replier(section: Section<'_, '_>) -> Replier {
    let policies = [
        Policy::Hierarchy,
        Policy::Random,
        Policy::Static,
        Policy::SearchParty,
    ]
    .map(|p| (p.name(), p));
    let known = section.choice("policy", &policies, Policy::Hierarchy);
    let policy = known.unwrap_or(Policy::Hierarchy);
    let refresh = section.duration("refresh", REFRESH, Duration::from_secs(10));
    let copies = section.number("copies", 1..=2, 2u8);
    if known.is_some_and(|policy| policy != Policy::SearchParty) && section.has("copies") {
        let wrong = "is only for policy \"search-party\"";
        section.complain(section.offset_of("copies"), "copies", wrong, "leave it out");
    }
    let fixed = static_repliers(&section, known);
    let cost = section.number("cost", 1..=1000, 1u16);
    section.finish();
    Replier {
        policy,
        cost,
        refresh: refresh.value,
        copies,
        fixed,
    }
}

fn static_repliers(section: &Section<'_, '_>, policy: Option<Policy>) -> Vec<StaticReplier> {
    let mut repliers: Vec<StaticReplier> = Vec::new();
    for (i, entry) in section.sections("static").into_iter().enumerate() {
        if i == 0 && policy.is_some_and(|policy| policy != Policy::Static) {
            let instead = "write policy = \"static\" in [replier], or leave [[replier.static]] out";
            entry.complain_whole("is only for policy \"static\"", instead);
        }
        let from = entry.require("source", SOURCE, source);
        let group = entry.require("group", ROUTED_GROUP, routed_group);
        let name = entry.require("interface", INTERFACE, interface);
        let neighbour = entry.get("neighbour", UNICAST, unicast).map(|at| at.value);
        check_family(&entry, from.as_ref(), group.as_ref());
        if let (Some(group), Some(neighbour)) = (&group, &neighbour)
            && neighbour.is_ipv4() != group.value.is_ipv4()
        {
            let wrong = format!("{neighbour} is not of the address family of the group");
            let instead = "write an address of the same family";
            entry.complain(entry.offset_of("neighbour"), "neighbour", wrong, instead);
        }
        if let (Some(from), Some(group)) = (&from, &group) {
            let same = |r: &StaticReplier| r.source == from.value && r.group == group.value;
            if let Some(first) = repliers.iter().position(same) {
                let wrong = format!("is the same source and group as static[{}]", first + 1);
                entry.complain(group.offset, "group", wrong, "write one replier a group");
            }
        }
        if entry.finish()
            && let (Some(from), Some(group), Some(name)) = (from, group, name)
        {
            repliers.push(StaticReplier {
                source: from.value,
                group: group.value,
                interface: name.value,
                neighbour,
            });
        }
    }
    repliers
}

fn limits(section: Section<'_, '_>) -> Limits {
    let rate = 1..=10_000_000;
    let limits = Limits {
        groups: section.number("groups", 1..=1_000_000, 4096),
        neighbours: section.number("neighbours", 1..=4_000_000, 16_384),
        interfaces: section.number("interfaces", 2..=1024, 64),
        requests_per_s: section.number("requests-per-second", rate.clone(), 100_000),
        dmcasts_per_s: section.number("dmcasts-per-second", rate.clone(), 100_000),
        group_requests_per_s: section.number("group-requests-per-second", rate.clone(), 2_000),
        group_dmcasts_per_s: section.number("group-dmcasts-per-second", rate, 20_000),
        repairs_per_request: section.number("repairs-per-request", 1..=u16::MAX, 2_048),
    };
    section.finish();
    limits
}

fn capture(section: Section<'_, '_>) -> Capture {
    let backends = [
        ("ring", (Backend::Ring, false)),
        ("xdp", (Backend::Ring, true)),
        ("pnet", (Backend::Pnet, false)),
    ];
    let backend = section.choice("backend", &backends, (Backend::Ring, false));
    let (backend, has_xdp) = backend.unwrap_or_default();
    let modes = [
        ("auto", Mode::Auto),
        ("native", Mode::Native),
        ("generic", Mode::Generic),
    ];
    let mode = section
        .choice("xdp-mode", &modes, Mode::Auto)
        .unwrap_or_default();
    let frames = section.power_of_two("frames", 64..=1 << 20, 1024);
    let packet_bytes = match section.number("packet-bytes", 576..=65_535, 0u32) {
        0 => None,
        bytes => Some(bytes),
    };
    let guard = section.flag("guard", true);
    let port = section.number("udp-port", 0..=u16::MAX, lms_proto::wire::udp::PORT);
    section.finish();
    Capture {
        backend,
        xdp: has_xdp.then_some(mode),
        frames,
        packet_bytes,
        guard,
        udp_port: NonZeroU16::new(port),
    }
}
