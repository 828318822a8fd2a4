//! `[data]`, `[cluster]`, `[etcd]` and the addresses of pages.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bfed::wire::transport::Transport;
use bfed::{DataConfig, NodeId};
use daemon_kit::reader::{At, Section};
use daemon_kit::value::{LISTEN, listen, text};

use super::endpoint::Endpoint;
use super::machine::DataLimits;
use super::{Cluster, Data, Etcd, EtcdTls};
use crate::data::Congestion;

/// `[links]`: links to the data nodes of peers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Links {
    /// There is a `gateway.key-file`.
    pub(super) gateway_has_key: bool,
    /// `key-file`, by default that of `[gateway]`.
    pub(super) key_file: Option<PathBuf>,
    /// `transport`, by default QUIC where there is a key.
    pub(super) transport: Transport,
    /// `congestion`.
    pub(super) congestion: Congestion,
    /// `repair`.
    pub(super) repair: bool,
}

pub(super) fn links(section: Section<'_, '_>, gateway_key: Option<&PathBuf>) -> Links {
    let key_file = section.get("key-file", "the path of a key file", text);
    let key_file = key_file.map(|at| at.value.into());
    let key_file = key_file.or_else(|| gateway_key.cloned());
    let transport = match key_file.is_some() {
        true => Transport::Quic,
        false => Transport::Plain,
    };
    let mut links = Links {
        gateway_has_key: gateway_key.is_some(),
        key_file,
        transport,
        congestion: Congestion::default(),
        repair: section.flag("repair", true),
    };
    links.transport = links.read(&section);
    let words = [("bbr", Congestion::Bbr), ("cubic", Congestion::Cubic)];
    let congestion = section.choice("congestion", &words, links.congestion);
    links.congestion = congestion.unwrap_or(links.congestion);
    section.finish();
    links
}

impl Links {
    /// Reads the `transport` of a section: of all links, or of those to one peer.
    pub(super) fn read(&self, section: &Section<'_, '_>) -> Transport {
        let words = [("quic", Transport::Quic), ("plain", Transport::Plain)];
        let chosen = section.choice("transport", &words, self.transport);
        let chosen = chosen.unwrap_or(self.transport);
        if chosen == Transport::Quic && self.key_file.is_none() && section.has("transport") {
            section.complain(
                section.offset_of("transport"),
                "transport",
                "is \"quic\", which needs a key file",
                "write key-file = \"...\" in [gateway], or transport = \"plain\"",
            );
        }
        chosen
    }
}

/// A section with one address.
pub(super) fn address(section: Section<'_, '_>, key: &'static str) -> Option<SocketAddr> {
    let address = section.get(key, LISTEN, listen);
    section.finish();
    address.map(|at| at.value)
}

pub(super) fn data(section: Section<'_, '_>, machine: &bfed::Config, limits: DataLimits) -> Data {
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 4141));
    let address = section.get(
        "listen",
        "this host's address and a port, such as \"192.0.2.1:4141\"",
        |value| {
            let address = listen(value)?;
            match address.ip().is_unspecified() || address.ip().is_multicast() {
                // Peers send to this address.
                true => Err(format!(
                    "{address} is not an address that peers can send to"
                )),
                false => Ok(address),
            }
        },
    );
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(64));
    let nodes = section.number("nodes", 1..=64, cores as u32) as usize;
    let first_node = section.number("first-node", 1..=u32::MAX - 64, 1);
    let mtu: u32 = section.number("mtu", 1280..=65_535, 1500);
    let address = address.map_or(default, |at| at.value);
    if address.port() != 0 && usize::from(address.port()) + nodes > 65_536 {
        let wrong = format!("leaves no ports for {nodes} nodes");
        section.complain(
            section.offset_of("listen"),
            "listen",
            wrong,
            "write a lower port",
        );
    }
    section.finish();
    let mut node = DataConfig::new(NodeId(first_node));
    node.max_sessions = limits.sessions;
    node.soft_state_lifetime = machine.soft_state_lifetime;
    node.heartbeat_interval = machine.heartbeat_interval;
    node.max_queue = machine.limits.max_queue;
    node.plane = limits.plane;
    node.plane.mtu = mtu as usize;
    Data {
        listen: address,
        nodes,
        first_node,
        machine: node,
        max_streams: limits.streams,
    }
}

pub(super) fn cluster(section: Section<'_, '_>, gateway_has_key: bool) -> Cluster {
    let key_file = section.get("key-file", "the path of a key file", text);
    let has_key = gateway_has_key || key_file.is_some();
    let outside = |address: SocketAddr| !address.ip().is_loopback() && !has_key;
    let here = section.get("listen", LISTEN, listen);
    if let Some(at) = here.as_ref().filter(|at| outside(at.value)) {
        let wrong = format!(
            "{} is reachable from outside, and there is no cluster.key-file",
            at.value
        );
        section.complain(
            at.offset,
            "listen",
            wrong,
            "write key-file = \"...\" in [cluster] or in [gateway]",
        );
    }
    let wants =
        "where control nodes listen, such as [\"192.0.2.1:4142\", \"control.example.org:4142\"]";
    let control = section.list("control", wants, Endpoint::read);
    let control = control.map_or_else(Vec::new, |at| at.value);
    let insecure = |at: &&At<Endpoint>| !at.value.is_local() && !has_key;
    for at in control.iter().filter(insecure) {
        let wrong = format!(
            "{} is not on loopback, and there is no cluster.key-file",
            at.value
        );
        section.complain(
            at.offset,
            "control",
            wrong,
            "write key-file = \"...\" in [cluster] or in [gateway]",
        );
    }
    let tls_name = section.get("tls-name", "the name in a control node's certificate", text);
    let wants = "names in data nodes' certificates, such as [\"data1.example.org\"]";
    let nodes = section.list("nodes", wants, text);
    if let Some(at) = nodes.as_ref().filter(|_| !has_key) {
        let wrong = "means nothing without a key-file";
        section.complain(
            at.offset,
            "nodes",
            wrong,
            "write key-file = \"...\" in [cluster] or in [gateway], or leave it out",
        );
    }
    let nodes = nodes.map_or_else(Vec::new, |at| at.value);
    section.finish();
    Cluster {
        key_file: key_file.map(|at| at.value.into()),
        nodes: nodes.into_iter().map(|at| at.value).collect(),
        listen: here.map(|at| at.value),
        control: control.into_iter().map(|at| at.value).collect(),
        tls_name: tls_name.map(|at| at.value),
    }
}

pub(super) fn etcd(root: &Section<'_, '_>) -> Option<Etcd> {
    let given = root.has("etcd");
    let section = root.section("etcd");
    if !given {
        return None;
    }
    if !cfg!(feature = "etcd") {
        let instead = "build it with `--features etcd`, or leave [etcd] out";
        section.complain_whole("this program was built without etcd", instead);
    }
    let wants = "where etcd listens, such as [\"http://127.0.0.1:2379\"]";
    let endpoints = section.list("endpoints", wants, text);
    let empty = endpoints.as_ref().is_none_or(|at| at.value.is_empty());
    if empty {
        let offset = section.offset_of("endpoints");
        section.complain(offset, "endpoints", "names none", format!("write {wants}"));
    }
    let prefix = section.get(
        "prefix",
        "a prefix of keys, such as \"/polycast/1.1/\"",
        text,
    );
    let key_file = section.get("key-file", "the path of a PEM file", text);
    let tls_name = section.get("tls-name", "the name in etcd's certificate", text);
    let secure = |at: &At<String>| at.value.starts_with("https://");
    let listed = endpoints.as_ref().map_or(&[][..], |at| &at.value);
    if let Some(at) = listed.iter().find(|at| secure(at) != key_file.is_some()) {
        let (wrong, instead) = match key_file {
            Some(_) => ("is not https, and there is a key-file", "write https://..."),
            None => ("wants a key-file", "write key-file = \"...\" in [etcd]"),
        };
        section.complain(
            at.offset,
            "endpoints",
            format!("{:?} {wrong}", at.value),
            instead,
        );
    }
    if let Some(at) = tls_name.as_ref().filter(|_| key_file.is_none()) {
        let instead = "write key-file = \"...\", or leave it out";
        section.complain(
            at.offset,
            "tls-name",
            "means nothing without a key-file",
            instead,
        );
    }
    let name = section.require("name", "this control node's name, such as \"a\"", text);
    let range = Duration::from_secs(1)..=Duration::from_secs(60);
    let lease = section.duration("lease", range, Duration::from_secs(2));
    section.finish();
    Some(Etcd {
        endpoints: endpoints?.value.into_iter().map(|at| at.value).collect(),
        prefix: prefix.map_or_else(|| "/polycast/bfed/".to_owned(), |at| at.value),
        name: name?.value,
        lease: lease.value,
        tls: key_file.map(|at| EtcdTls {
            key_file: at.value.into(),
            name: tls_name.map(|at| at.value),
        }),
    })
}
