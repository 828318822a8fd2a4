//! The configuration in TOML. All problems are reported at once. The example `examples/gateway.toml`, which a test reads,
//! has the meaning, unit and default of each key.

mod authorisation;
mod endpoint;
mod machine;
mod peers;
mod sections;
mod tokens;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bfed::{DataConfig, PeerId};
use control_stream::tls::Credentials;
use daemon_kit::daemon::Configuration;
use daemon_kit::host::HostCheck;
use daemon_kit::reader::Section;
use daemon_kit::settings::{Daemon, differing};

use crate::data::Congestion;
use crate::native::{AccessConfig, NetworkConfig, TokensConfig};

pub use endpoint::Endpoint;

/// Default path of the status socket.
pub const DEFAULT_SOCKET: &str = "/run/polycast/bfed-gateway.sock";

/// The parts of a gateway that a process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Mode {
    /// Control node and data nodes in one process.
    Whole,
    /// A control node; data nodes are other processes.
    Control,
    /// Data nodes.
    Data,
}

impl Mode {
    /// Returns whether the process has a control node.
    #[must_use]
    pub fn controls(self) -> bool {
        self != Mode::Data
    }

    /// Returns whether the process has data nodes.
    #[must_use]
    pub fn forwards(self) -> bool {
        self != Mode::Control
    }

    /// Returns the verb.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Whole => "run",
            Mode::Control => "control",
            Mode::Data => "data",
        }
    }
}

/// A whole configuration that `check` accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Configuration of the control node: `[gateway]`, `[[name]]`, `[authorisation]`, `[timers]`, `[limits]`.
    pub machine: bfed::Config,
    /// `gateway.listen`: listening address for peers.
    pub listen: Option<SocketAddr>,
    /// `gateway.key-file`: this gateway's certificate and the authority's, or a secret.
    pub key_file: Option<PathBuf>,
    /// `links.key-file`: the certificate, or secret, of data nodes; by default that of `[gateway]`.
    pub links_key_file: Option<PathBuf>,
    /// `links.congestion`: congestion control of QUIC.
    pub(crate) links_congestion: Congestion,
    /// `links.repair`: lost packets of real-time sessions are sent again.
    pub(crate) links_repair: bool,
    /// `[[peer]]`, by identifier.
    pub peers: BTreeMap<PeerId, Peer>,
    /// `[cluster]`.
    pub cluster: Cluster,
    /// `[data]`.
    pub data: Data,
    /// `[network]`.
    pub network: NetworkConfig,
    /// `[tokens]`.
    pub tokens: TokensConfig,
    /// `timers.shutdown`: time limit of a shutdown.
    pub shutdown: Duration,
    /// `[etcd]`.
    pub etcd: Option<Etcd>,
    /// `status.page`.
    pub page: Option<SocketAddr>,
    /// `[daemon]` and `[metrics]`.
    pub daemon: Daemon,
}

/// `[[peer]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Configuration of the control node.
    pub machine: bfed::PeerConfig,
    /// `address`: where to connect to it; without one the peer connects.
    pub address: Option<Endpoint>,
    /// `tls-name`: name in its certificate; by default the name or address of `address`.
    pub tls_name: Option<String>,
}

/// `[cluster]`: the control node and its data nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// `listen`: the control node's listening address for data nodes of other processes.
    pub listen: Option<SocketAddr>,
    /// `control`: addresses of control nodes, for data nodes.
    pub control: Vec<Endpoint>,
    /// `tls-name`: name in a control node's certificate.
    pub tls_name: Option<String>,
    /// `key-file`: key file of the cluster's streams; by default that of `[gateway]`.
    pub key_file: Option<PathBuf>,
    /// `nodes`: the names in data nodes' certificates. A certificate without any of them may not register.
    pub nodes: Vec<String>,
}

/// `[data]`: the data nodes of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// `listen`: address, and the port of the first node; each further node has the next port.
    pub listen: SocketAddr,
    /// `nodes`: number of data nodes, each on its own thread.
    pub nodes: usize,
    /// `first-node`: the number of the first; each further node has the next number.
    pub first_node: u32,
    /// Configuration of each, except number and addresses.
    pub machine: DataConfig,
    /// `limits.streams`: most TCP channels of a node.
    pub max_streams: usize,
}

/// `[etcd]`: the store of a gateway that spans machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etcd {
    /// `endpoints`.
    pub endpoints: Vec<String>,
    /// `prefix` of all its keys.
    pub prefix: String,
    /// `name` of this control node in the election.
    pub name: String,
    /// `lease`: time that a silent control node stays elected.
    pub lease: Duration,
    /// TLS, for `https` endpoints.
    pub tls: Option<EtcdTls>,
}

/// TLS to etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTls {
    /// `key-file`: this control node's certificate, and the authority of etcd's.
    pub key_file: PathBuf,
    /// `tls-name`: name in etcd's certificate; by default the endpoint's.
    pub name: Option<String>,
}

impl Config {
    /// Reads the credentials of the cluster's streams, if there are any.
    ///
    /// # Errors
    /// The wrong key, and why: the file cannot be used, or does not distinguish data nodes from peers.
    pub fn cluster_credentials(&self) -> Result<Option<Credentials>, (&'static str, String)> {
        let own = self.cluster.key_file.as_deref();
        let key = match own {
            Some(_) => "cluster.key-file",
            None => "gateway.key-file",
        };
        let Some(path) = own.or(self.key_file.as_deref()) else {
            return Ok(None);
        };
        let credentials = Credentials::read(path).map_err(|why| (key, why))?;
        let listens = self.cluster.listen.is_some();
        if listens && credentials.has_names() && self.cluster.nodes.is_empty() {
            let why = "is missing, and any certificate of the authority could register as a data node; \
                       write the names in the data nodes' certificates";
            return Err(("cluster.nodes", why.to_owned()));
        }
        let shared = own.is_none() || own == self.key_file.as_deref();
        if listens && !credentials.has_names() && shared {
            let why = "is missing or the same, and the secret in gateway.key-file is known to peers, \
                       who could register as data nodes; write the path of another secret, or of certificates";
            return Err(("cluster.key-file", why.to_owned()));
        }
        Ok(Some(credentials))
    }

    /// Adapts the configuration to a mode: where control and data nodes are one process, nothing survives a restart, so
    /// peers are not asked to wait for it.
    #[must_use]
    pub fn fit(mut self, mode: Mode) -> Config {
        if mode == Mode::Whole && self.cluster.listen.is_none() {
            self.machine.restart_time_s = 0;
        }
        self
    }

    /// Returns what decides about clients.
    #[must_use]
    pub fn access(&self) -> AccessConfig<'_> {
        AccessConfig {
            tokens: &self.tokens,
            rules: &self.machine.authorisation,
            names: &self.machine.names,
        }
    }

    /// Returns the peers for the control node.
    #[must_use]
    pub fn machine_peers(&self) -> BTreeMap<PeerId, bfed::PeerConfig> {
        let settings = |(id, peer): (&PeerId, &Peer)| (*id, peer.machine.clone());
        self.peers.iter().map(settings).collect()
    }
}

impl Configuration for Config {
    fn read(root: &Section<'_, '_>) -> Config {
        let (mut machine, gateway) = machine::gateway(root.section("gateway"));
        machine::names(root, &mut machine);
        let shutdown = machine::timers(root.section("timers"), &mut machine);
        let limits = machine::limits(root.section("limits"), &mut machine);
        let links = sections::links(root.section("links"), gateway.key_file.as_ref());
        let peers = peers::peers(root, &machine, &links);
        let data = sections::data(root.section("data"), &machine, limits);
        let page = sections::address(root.section("status"), "page");
        let network = NetworkConfig::read(root.section("network"));
        let rules = root.section("authorisation");
        machine.authorisation = authorisation::authorisation(rules, &network);
        Config {
            listen: gateway.listen,
            cluster: sections::cluster(root.section("cluster"), gateway.key_file.is_some()),
            key_file: gateway.key_file,
            links_key_file: links.key_file,
            links_congestion: links.congestion,
            links_repair: links.repair,
            peers,
            data,
            tokens: tokens::tokens(root.section("tokens"), &network),
            network,
            shutdown,
            etcd: sections::etcd(root),
            page,
            daemon: Daemon::read(root, DEFAULT_SOCKET),
            machine,
        }
    }

    fn check_host(&self, host: &mut HostCheck) {
        host.address("status.page", self.page);
        host.address("gateway.listen", self.listen);
        host.address("cluster.listen", self.cluster.listen);
        host.address("data.listen", Some(self.data.listen));
        if let Some(why) = self
            .key_file
            .as_deref()
            .and_then(|path| Credentials::read(path).err())
        {
            host.complain("gateway.key-file", why);
        } else if let Err((key, why)) = self.cluster_credentials() {
            host.complain(key, why);
        }
        let links = self.links_key_file.as_deref();
        if let Some(why) = links
            .filter(|path| Some(*path) != self.key_file.as_deref())
            .and_then(|path| Credentials::read(path).err())
        {
            host.complain("links.key-file", why);
        }
        let link = match &self.network {
            NetworkConfig::None => None,
            NetworkConfig::Ip(config) => Some(&config.data.link),
            NetworkConfig::Ssm(config) => Some(&config.data.link),
            NetworkConfig::External(config) => {
                if let Err(why) = config.gid() {
                    host.complain("network.socket-group", why);
                }
                None
            }
            NetworkConfig::Http(config) => {
                host.address("network.listen", Some(config.listen));
                if let Some(tls) = &config.tls {
                    host.address("network.tls-listen", Some(tls.listen));
                }
                if let Some(moq) = config.moq.as_ref().and_then(|moq| moq.listener.as_ref()) {
                    host.address("network.moq-listen", Some(moq.listen));
                }
                None
            }
        };
        if let Err(why) = self.tokens.own_token() {
            host.complain("tokens.token-file", why);
        }
        if let Some(interface) = link.and_then(|link| link.interface.as_deref()) {
            host.interface("network.interface", interface);
        }
    }

    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn needs_restart(&self, next: &Config) -> Vec<&'static str> {
        let (a, b) = (&self.machine, &next.machine);
        let data = (&self.data, &next.data);
        differing([
            ("gateway.network", a.gateway.network != b.gateway.network),
            ("gateway.number", a.gateway.number != b.gateway.number),
            ("gateway.listen", self.listen != next.listen),
            ("gateway.key-file", self.key_file != next.key_file),
            ("links.key-file", self.links_key_file != next.links_key_file),
            (
                "links.congestion",
                self.links_congestion != next.links_congestion,
            ),
            ("links.repair", self.links_repair != next.links_repair),
            ("cluster", self.cluster != next.cluster),
            ("data", data.0 != data.1),
            ("network", self.network != next.network),
            ("etcd", self.etcd != next.etcd),
            ("status.page", self.page != next.page),
        ])
        .chain(self.daemon.differences(&next.daemon))
        .collect()
    }

    fn reloaded(&self, next: Config) -> Config {
        let mut machine = next.machine;
        machine.gateway = self.machine.gateway;
        Config {
            machine,
            peers: next.peers,
            tokens: next.tokens,
            shutdown: next.shutdown,
            ..self.clone()
        }
    }
}
