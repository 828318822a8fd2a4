//! `[[peer]]` and its policies.

use std::cell::Cell;
use std::collections::BTreeMap;

use bfed::routing::policy::{Action, Changes, Match, Policy, Rule};
use bfed::{
    BnNum, Cost, Costs, GatewayId, Metric, NetworkRange, PeerConfig, PeerId, Prefix, Table, Tables,
};
use daemon_kit::reader::{Section, shown};
use daemon_kit::value::{boolean, text};
use toml::de::DeValue;

use super::Peer;
use super::endpoint::{ENDPOINT, Endpoint};
use super::machine::{duration, network, tables, whole};
use super::sections::Links;

pub(super) fn peers(
    root: &Section<'_, '_>,
    machine: &bfed::Config,
    links: &Links,
) -> BTreeMap<PeerId, Peer> {
    let mut peers: BTreeMap<PeerId, Peer> = BTreeMap::new();
    for section in root.sections("peer") {
        let offset = section.offset_of("network");
        let Some(peer) = peer(&section, links) else {
            section.finish();
            continue;
        };
        let gateway = peer.machine.gateway;
        if gateway == machine.gateway {
            section.complain(
                offset,
                "network",
                format!("{gateway} is this gateway itself"),
                "",
            );
        } else if peers.values().any(|other| other.machine.gateway == gateway) {
            let wrong = format!("there are two peers {gateway}");
            section.complain(offset, "network", wrong, "leave one out");
        }
        if peers.len() >= machine.limits.max_peers {
            section.complain_whole("is beyond limits.peers", "raise limits.peers");
        }
        section.finish();
        // A peer keeps its number when other peers are added or removed: a reload does not end its session.
        peers.insert(identifier(gateway, &peers), peer);
    }
    peers
}

/// Returns a number for the peer that depends on its gateway only, unless another peer has the number.
fn identifier(gateway: GatewayId, taken: &BTreeMap<PeerId, Peer>) -> PeerId {
    let mixed = gateway.network.get().wrapping_mul(0x9e37_79b1) ^ gateway.number.rotate_left(16);
    let mut id = PeerId(mixed);
    while taken.contains_key(&id) {
        id = PeerId(id.0.wrapping_add(1));
    }
    id
}

fn peer(section: &Section<'_, '_>, links: &Links) -> Option<Peer> {
    let network = network(section, "network");
    let number = section.number("number", 0..=u32::MAX, 1);
    let address = section.get("address", ENDPOINT, Endpoint::read);
    if let Some(at) = address
        .as_ref()
        .filter(|at| !links.gateway_has_key && !at.value.is_local())
    {
        let wrong = format!(
            "{} is not on loopback, and there is no gateway.key-file",
            at.value
        );
        section.complain(
            at.offset,
            "address",
            wrong,
            "write key-file = \"...\" in [gateway]",
        );
    }
    let address: Option<Endpoint> = address.map(|at| at.value);
    let tls_name = section.get("tls-name", "the name in the peer's certificate", text);
    let id = GatewayId::new(network.map_or(1, |at| at.value.get()), number)?;
    let mut machine = PeerConfig::new(id);
    machine.dial = address.is_some();
    costs(section, &mut machine);
    machine.rate_bps = section
        .get("rate", "a bit rate, such as \"100M\"", rate)
        .map(|at| at.value);
    machine.data_prefixes = prefixes(section, address.as_ref());
    machine.networks = networks(section);
    machine.transport = links.read(section);
    machine.max_routes = section.number("max-routes", 1..=1_000_000, 4096_u32) as usize;
    let pauses = std::time::Duration::from_secs(1)..=std::time::Duration::from_secs(86_400);
    machine.rest_after_limit = duration(
        section
            .duration("retry-after", pauses, machine.rest_after_limit.into())
            .value,
    );
    if let Some(mediator) = section.get("mediator", "where clients find its mediator", text) {
        if mediator.value.len() > bfed::wire::reader::MAX_TEXT_LEN {
            let wrong = format!("is longer than {} bytes", bfed::wire::reader::MAX_TEXT_LEN);
            section.complain(mediator.offset, "mediator", wrong, "");
        }
        machine.mediator = mediator.value;
    }
    machine.max_hops = match section.number("max-hops", 1..=255, 0_u8) {
        0 => None,
        hops => Some(hops),
    };
    machine.import = policy(section, "import-default", "import");
    machine.export = policy(section, "export-default", "export");
    Some(Peer {
        machine,
        address,
        tls_name: tls_name.map(|at| at.value),
    })
}

/// `networks`: those to which the peer may announce routes; any by default.
fn networks(section: &Section<'_, '_>) -> Vec<NetworkRange> {
    let wants = "networks, single or in a range, such as [7, \"10-19\"]";
    let named = Cell::new(false);
    let listed = section.list("networks", wants, |value| {
        named.set(true);
        let wrong = || format!("{} is no network and no range of networks", shown(value));
        let number = |text: &str| {
            text.trim()
                .parse()
                .ok()
                .and_then(BnNum::new)
                .ok_or_else(wrong)
        };
        let (first, last) = match value {
            DeValue::String(range) => match range.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(range)?, number(range)?),
            },
            _ => {
                let one = whole(value).ok().and_then(BnNum::new).ok_or_else(wrong)?;
                (one, one)
            }
        };
        match first <= last {
            true => Ok(NetworkRange { first, last }),
            false => Err(format!("{} ends before it begins", shown(value))),
        }
    });
    let Some(listed) = listed else {
        return Vec::new();
    };
    if !named.get() {
        let wrong = "names none, so no route of the peer would count";
        let instead = format!("write {wants}, or leave it out for any network");
        section.complain(listed.offset, "networks", wrong, instead);
    }
    listed.value.into_iter().map(|at| at.value).collect()
}

/// `data-prefixes`: addresses of the peer's data nodes; by default its own address.
fn prefixes(section: &Section<'_, '_>, own: Option<&Endpoint>) -> Vec<Prefix> {
    let wants = "address prefixes, such as [\"192.0.2.0/24\"]";
    let listed = section.list("data-prefixes", wants, |value| {
        let text = text(value)?;
        text.parse::<Prefix>()
            .map_err(|wrong| format!("{text:?} is {wrong}"))
    });
    match listed {
        None => {
            // That of a name is known as soon as it is connected.
            let own = own.and_then(Endpoint::address);
            own.map(|own| Prefix::host(own.ip())).into_iter().collect()
        }
        Some(listed) => {
            if listed.value.is_empty() {
                let wrong = "names none: no session could come or go";
                section.complain(
                    listed.offset,
                    "data-prefixes",
                    wrong,
                    format!("write {wants}"),
                );
            }
            listed.value.into_iter().map(|at| at.value).collect()
        }
    }
}

fn rate(value: &DeValue<'_>) -> Result<u64, String> {
    let DeValue::String(text) = value else {
        return Err(format!("{} is not a bit rate in quotes", shown(value)));
    };
    match text.parse::<cli::units::Rate>().map(|rate| rate.bits()) {
        Ok(Some(rate)) if rate > 0 => Ok(rate),
        _ => Err(format!("{text:?} is not a bit rate")),
    }
}

fn costs(section: &Section<'_, '_>, machine: &mut PeerConfig) {
    let uniform = section.number("cost", 1..=u32::MAX - 1, 1);
    let mut costs = Costs::uniform(Cost(uniform));
    let metrics = [
        ("latency-cost", Metric::Latency),
        ("bandwidth-cost", Metric::Bandwidth),
    ];
    for (key, metric) in metrics {
        let cost = section.number(key, 1..=u32::MAX - 1, uniform);
        let of = Table::all().filter(|table| table.metric() == metric);
        costs = costs.with(of.fold(Tables::NONE, Tables::with), Cost(cost));
    }
    machine.link = costs;
    let configured = ["cost", "latency-cost"].iter().any(|key| section.has(key));
    let measured = section
        .get("measure-latency", "true or false", boolean)
        .map_or(!configured, |at| at.value);
    if measured && section.has("latency-cost") {
        let offset = section.offset_of("measure-latency");
        let wrong = "is true, and yet latency-cost is configured";
        section.complain(offset, "measure-latency", wrong, "leave one of them out");
    }
    machine.measure_latency = measured;
}

fn policy(section: &Section<'_, '_>, default: &'static str, rules: &'static str) -> Policy {
    let accept = Action::Accept(Changes::default());
    let words = [("accept", accept), ("reject", Action::Reject)];
    let otherwise = section.choice(default, &words, accept).unwrap_or(accept);
    let rules = section.sections(rules).into_iter().map(rule).collect();
    Policy { rules, otherwise }
}

fn number(section: &Section<'_, '_>, key: &'static str) -> Option<u32> {
    section.get(key, "a whole number", whole).map(|at| at.value)
}

fn rule(section: Section<'_, '_>) -> Rule {
    let passes = number(&section, "passes").and_then(BnNum::new);
    let to = number(&section, "network").and_then(BnNum::new);
    let gateway = number(&section, "gateway");
    if gateway.is_some() && to.is_none() {
        let instead = "write network = NUMBER too";
        let offset = section.offset_of("gateway");
        section.complain(offset, "gateway", "is of no network", instead);
    }
    let destination = gateway.and_then(|number| to.map(|network| GatewayId { network, number }));
    let narrowed = ["metrics", "multi-source", "content"]
        .iter()
        .any(|key| section.has(key));
    let tables = tables(&section, "metrics");
    let when = Match {
        tables: narrowed.then_some(tables),
        network: to.filter(|_| destination.is_none()),
        destination,
        passes,
        tag: number(&section, "tag"),
        longer_than: number(&section, "longer-than").map(|len| len as usize),
    };
    let changes = Changes {
        preference: number(&section, "preference"),
        add_cost: Cost(number(&section, "add-cost").unwrap_or(0)),
        add_tag: number(&section, "add-tag"),
        remove_tag: number(&section, "remove-tag"),
    };
    let accepts = section.require("accept", "true or false", boolean);
    let rejects = accepts.as_ref().is_some_and(|at| !at.value);
    if let Some(at) = accepts.filter(|at| !at.value && changes != Changes::default()) {
        let wrong = "is false, and yet the route is to be changed";
        section.complain(at.offset, "accept", wrong, "leave the changes out");
    }
    section.finish();
    let then = if rejects {
        Action::Reject
    } else {
        Action::Accept(changes)
    };
    Rule { when, then }
}
