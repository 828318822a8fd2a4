//! `[gateway]`, `[[name]]`, `[timers]`, `[limits]`: the configuration of the machines.

use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use bfed::data::PlaneConfig;
use bfed::routing::Damping;
use bfed::{Assignment, BnNum, Content, Cost, Costs, GatewayId, Metric, Table, Tables};
use daemon_kit::reader::{At, Section, shown};
use daemon_kit::value::{LISTEN, boolean, text};
use toml::de::DeValue;

const TIME: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(3600);
const SHORT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);
const LONG: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(65_535);

/// The other keys of `[gateway]`.
pub(super) struct Gateway {
    pub(super) listen: Option<SocketAddr>,
    pub(super) key_file: Option<PathBuf>,
}

pub(super) fn duration(duration: Duration) -> bfed::Duration {
    bfed::Duration::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

/// Reads the number of a network.
pub(super) fn network(section: &Section<'_, '_>, key: &'static str) -> Option<At<BnNum>> {
    let number = section.require(key, "a network's number, from 1 on", whole)?;
    let found = BnNum::new(number.value);
    if found.is_none() {
        section.complain(number.offset, key, "is 0", "write a number from 1 on");
    }
    found.map(|value| At {
        value,
        offset: number.offset,
    })
}

/// Reads a number of 32 bits.
pub(super) fn whole(value: &DeValue<'_>) -> Result<u32, String> {
    let wrong = || format!("{} is not a whole number below 2^32", shown(value));
    match value {
        DeValue::Integer(number) => {
            u32::from_str_radix(number.as_str(), number.radix()).map_err(|_| wrong())
        }
        _ => Err(wrong()),
    }
}

pub(super) fn gateway(section: Section<'_, '_>) -> (bfed::Config, Gateway) {
    let network = network(&section, "network").map_or(1, |at| at.value.get());
    let number = section.number("number", 0..=u32::MAX, 1);
    // The network's number is not 0.
    let id = GatewayId::new(network, number).unwrap_or(const { GatewayId::new(1, 1).unwrap() });
    let mut config = bfed::Config::new(id);
    config.tables = tables(&section, "tables");
    let transit = section.get("transit", "true or false", boolean);
    let crossing = Cost(section.number("transit-cost", 0..=u32::MAX - 1, 0));
    let is_transit = transit.is_none_or(|at| at.value);
    config.transit = Costs::uniform(if is_transit { crossing } else { Cost::INFINITE });
    config.origin = Costs::uniform(Cost(section.number("origin-cost", 0..=u32::MAX - 1, 0)));
    let hold = section.duration("hold-time", LONG, Duration::from_secs(90));
    config.hold_time_s = seconds(&section, "hold-time", &hold);
    if (1..3).contains(&config.hold_time_s) {
        let instead = "write 3s or more, or 0s for no limit";
        section.complain(hold.offset, "hold-time", "is too short", instead);
    }
    let restart = section.duration("restart-time", LONG, Duration::from_secs(120));
    config.restart_time_s = seconds(&section, "restart-time", &restart);
    let ways = [
        ("least-loaded", Assignment::LeastLoaded),
        ("round-robin", Assignment::RoundRobin),
    ];
    let way = section.choice("assignment", &ways, Assignment::LeastLoaded);
    config.assignment = way.unwrap_or_default();
    let damping = section.get("damping", "true or false", boolean);
    config.damping = damping.is_none_or(|at| at.value).then(Damping::default);
    let listen = section.get("listen", LISTEN, daemon_kit::value::listen);
    let key_file = section.get("key-file", "the path of a key file", text);
    let loopback = listen.as_ref().is_none_or(|at| at.value.ip().is_loopback());
    if let Some(at) = listen.as_ref().filter(|_| !loopback && key_file.is_none()) {
        let wrong = format!(
            "{} is reachable from outside, and there is no key-file",
            at.value
        );
        let instead = "write key-file = \"...\", or an address of loopback";
        section.complain(at.offset, "listen", wrong, instead);
    }
    section.finish();
    let gateway = Gateway {
        listen: listen.map(|at| at.value),
        key_file: key_file.map(|at| at.value.into()),
    };
    (config, gateway)
}

fn seconds(section: &Section<'_, '_>, key: &'static str, at: &At<Duration>) -> u16 {
    if at.value.subsec_nanos() != 0 {
        section.complain(
            at.offset,
            key,
            "is not whole seconds",
            "write whole seconds",
        );
    }
    u16::try_from(at.value.as_secs()).unwrap_or(u16::MAX)
}

/// The names of metrics.
pub(super) const METRICS: [(&str, Metric); 3] = [
    ("hops", Metric::Hops),
    ("latency", Metric::Latency),
    ("bandwidth", Metric::Bandwidth),
];

/// The tables of some metrics, and of one or both capabilities.
pub(super) fn tables(section: &Section<'_, '_>, key: &'static str) -> Tables {
    let wants = "some of [\"hops\", \"latency\", \"bandwidth\"]";
    let named = Cell::new(false);
    let metrics = section.list(key, wants, |value| {
        named.set(true);
        let word = text(value)?;
        let found = METRICS.iter().find(|(name, _)| *name == word);
        found
            .map(|(_, metric)| *metric)
            .ok_or_else(|| format!("{word:?} is no metric"))
    });
    if let Some(at) = metrics.as_ref().filter(|_| !named.get()) {
        section.complain(at.offset, key, "names none", format!("write {wants}"));
    }
    let multi = section
        .get("multi-source", "true or false", boolean)
        .map(|at| at.value);
    let contents = [
        ("bulk-data", Content::Bulk),
        ("real-time", Content::RealTime),
    ];
    let content = section
        .has("content")
        .then(|| section.choice("content", &contents, Content::Bulk));
    if content.is_none() {
        section.choice("content", &contents, Content::Bulk);
    }
    Table::all()
        .filter(|table| {
            let named =
                |at: &At<Vec<At<Metric>>>| at.value.iter().any(|m| m.value == table.metric());
            metrics.as_ref().is_none_or(named)
                && multi.is_none_or(|multi| multi || !table.multi_source())
                && content
                    .flatten()
                    .is_none_or(|content| content == table.content())
        })
        .fold(Tables::NONE, Tables::with)
}

pub(super) fn names(root: &Section<'_, '_>, config: &mut bfed::Config) {
    for section in root.sections("name") {
        let host = section.require("host", "a DNS name, such as \"bn.example.org\"", text);
        let network = network(&section, "network");
        if let Some(host) = &host
            && config.names.contains_key(&host.value.to_lowercase())
        {
            section.complain(host.offset, "host", "is there twice", "leave one out");
        }
        section.finish();
        if let (Some(host), Some(network)) = (host, network) {
            config
                .names
                .insert(host.value.to_lowercase(), network.value);
        }
    }
}

pub(super) fn timers(section: Section<'_, '_>, config: &mut bfed::Config) -> Duration {
    let read = |key, range, default: bfed::Duration| {
        duration(section.duration(key, range, default.into()).value)
    };
    config.advertisement_interval = read("advertisement", SHORT, config.advertisement_interval);
    config.retry_delay = read("retry", TIME, config.retry_delay);
    config.refresh_interval = read("refresh", TIME, config.refresh_interval);
    config.soft_state_lifetime = read("lifetime", TIME, config.soft_state_lifetime);
    config.join_timeout = read("join", TIME, config.join_timeout);
    config.sroute_timeout = read("cost-timeout", TIME, config.sroute_timeout);
    config.refusal_time = read("negative-ttl", TIME, config.refusal_time);
    config.heartbeat_interval = read("heartbeat", TIME, config.heartbeat_interval);
    if config.soft_state_lifetime < config.refresh_interval * 2 {
        let wrong = "is below two times refresh";
        section.complain(
            section.offset_of("lifetime"),
            "lifetime",
            wrong,
            "write more",
        );
    }
    let shutdown = section.duration("shutdown", SHORT, Duration::from_secs(5));
    section.finish();
    shutdown.value
}

/// The limits of data nodes.
pub(super) struct DataLimits {
    pub(super) sessions: u32,
    pub(super) streams: usize,
    pub(super) plane: PlaneConfig,
}

pub(super) fn limits(section: Section<'_, '_>, config: &mut bfed::Config) -> DataLimits {
    let read = |key, most: u32, default: usize| {
        section.number(key, 1..=most, u32::try_from(default).unwrap_or(most)) as usize
    };
    let limits = &mut config.limits;
    limits.max_peers = read("peers", 4096, limits.max_peers);
    limits.max_nodes = read("nodes", 4096, limits.max_nodes);
    limits.max_sessions = read("sessions", 1 << 20, limits.max_sessions);
    limits.max_sessions_per_peer = read("sessions-per-peer", 1 << 20, limits.max_sessions_per_peer);
    limits.max_queue = read("queue", 1 << 20, limits.max_queue);
    limits.max_sroutes = read("sroutes", 1 << 20, limits.max_sroutes);
    limits.max_requests = read("requests", 1 << 20, limits.max_requests);
    limits.max_waiting = read("waiting-clients", 1 << 16, limits.max_waiting);
    limits.max_refused = read("refused", 1 << 20, limits.max_refused);
    limits.max_flapping = read("flapping", 1 << 20, limits.max_flapping);
    let rate = read(
        "new-sessions-per-second",
        1_000_000,
        limits.new_sessions_per_second as usize,
    );
    limits.new_sessions_per_second = u32::try_from(rate).unwrap_or(u32::MAX);
    // `data.mtu` sets its MTU.
    let mut plane = PlaneConfig::default();
    let delay = section.duration("real-time-delay", TIME, plane.real_time_delay.into());
    let stall = section.duration("idle-timeout", TIME, plane.stall_timeout.into());
    let sessions: u32 = section.number("sessions-per-node", 1..=1 << 20, 10_000);
    plane.max_edges = read("edges-per-node", 1 << 24, plane.max_edges);
    let queue = plane.max_queue_bytes as u32;
    plane.max_queue_bytes = section.number("receiver-queue", 524_288..=1 << 30, queue) as usize;
    plane.real_time_delay = duration(delay.value);
    plane.stall_timeout = duration(stall.value);
    let data = DataLimits {
        sessions,
        // A session that passes through has an upstream and a downstream stream.
        streams: read("streams-per-node", 1 << 21, 2 * sessions as usize),
        plane,
    };
    section.finish();
    data
}
