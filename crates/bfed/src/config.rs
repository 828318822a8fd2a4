//! Configuration of a gateway.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use proto_core::time::Duration;

use crate::authorise;
use crate::prefix::Prefix;
use crate::routing::{Damping, Policy};
use crate::types::{BnNum, Cost, GatewayId, Metric, Table, Tables};
use crate::wire::reader::MAX_TEXT_LEN;
use crate::wire::transport::Transport;

/// A cost for each table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Costs([Cost; Table::COUNT]);

impl Costs {
    /// Creates equal costs for all tables.
    #[must_use]
    pub const fn uniform(cost: Cost) -> Self {
        Costs([cost; Table::COUNT])
    }

    /// Returns the cost in `table`.
    #[must_use]
    pub const fn get(&self, table: Table) -> Cost {
        self.0[table.number() as usize]
    }

    /// Sets the cost in `tables`.
    #[must_use]
    pub fn with(mut self, tables: Tables, cost: Cost) -> Self {
        for table in tables.iter() {
            self.0[usize::from(table.number())] = cost;
        }
        self
    }
}

/// How sessions are assigned to data nodes (§5.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Assignment {
    /// Round robin.
    RoundRobin,
    /// To the node with the lowest rate, then to the one with the fewest sessions.
    #[default]
    LeastLoaded,
}

/// Limits of a control node's tables. What happens at each limit is documented and counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Peers. Adding another is refused.
    pub max_peers: usize,
    /// Data nodes. Another is not registered.
    pub max_nodes: usize,
    /// Sessions whose trees include this gateway. Another is answered with NO_ROUTE.
    pub max_sessions: usize,
    /// Sessions that one peer joined: fewer than a data node carries, so that no peer can use a whole one. Another
    /// is answered with NO_ROUTE.
    pub max_sessions_per_peer: usize,
    /// Messages that wait for one peer or node, without updates of routes. Another ends the peering with the reason
    /// "too slow"; a data node counts as failed.
    pub max_queue: usize,
    /// Sessions whose SROUTE costs are known. Another replaces the one that expires first; at the limit, costs that
    /// are only forwarded are not kept.
    pub max_sroutes: usize,
    /// Pending SROUTE requests. Another is answered with "no route".
    pub max_requests: usize,
    /// Clients that wait for an answer about one session. Another is answered with NO_ROUTE.
    pub max_waiting: usize,
    /// Refused sessions that are remembered, for [`Config::refusal_time`] and a while longer. Another replaces the
    /// one that expires first.
    pub max_refused: usize,
    /// JOINs for new sessions that a peer, or all clients together, may send in a second; the burst is twice as
    /// many. Another is answered with NO_ROUTE.
    pub new_sessions_per_second: u32,
    /// Flapping routes that are remembered. Another is not.
    pub max_flapping: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_peers: 256,
            max_nodes: 256,
            max_sessions: 65_536,
            max_sessions_per_peer: 8_192,
            max_queue: 32_768,
            max_sroutes: 65_536,
            max_requests: 4_096,
            max_waiting: 64,
            max_refused: 4_096,
            new_sessions_per_second: 5_000,
            max_flapping: 16_384,
        }
    }
}

/// Configuration of a control node.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The gateway.
    pub gateway: GatewayId,
    /// Its routing tables. Sessions of other tables find no route.
    pub tables: Tables,
    /// Cost from here to the middle of this network; infinite in tables for sessions that this network cannot
    /// publish.
    pub origin: Costs,
    /// Cost of crossing this network; infinite where it carries no transit (§5.1).
    pub transit: Costs,
    /// How long a peer may be silent, in seconds: 0 for no limit, else at least 3.
    pub hold_time_s: u16,
    /// How long peers keep routes and trees while this gateway restarts, in seconds; 0 for not at all (RFC 4724).
    pub restart_time_s: u16,
    /// The gateway has just restarted, and its data nodes have gone on: it announces no routes until it has its
    /// peers' tables.
    pub restarting: bool,
    /// How long changes of routes are collected before they are announced.
    pub advertisement_interval: Duration,
    /// First delay before a lost peer is dialled again; doubles up to a minute.
    pub retry_delay: Duration,
    /// Time between refreshes of soft state (§5.3.4).
    pub refresh_interval: Duration,
    /// How long soft state lives without a refresh.
    pub soft_state_lifetime: Duration,
    /// How long to wait for the TRANSLATION after a JOIN.
    pub join_timeout: Duration,
    /// How long to wait for an SROUTE_RESPONSE; gateways of the owner give each other half of it.
    pub sroute_timeout: Duration,
    /// How long a refused session is refused from memory, and a gateway that refused it is excluded; doubles each
    /// time, up to 16 times.
    pub refusal_time: Duration,
    /// Time between heartbeats in the cluster; a data node without four in a row has failed.
    pub heartbeat_interval: Duration,
    /// How sessions are spread over data nodes.
    pub assignment: Assignment,
    /// DNS names of networks that need not be resolved (§3.1).
    pub names: BTreeMap<String, BnNum>,
    /// Damping of flapping routes; `None` for none.
    pub damping: Option<Damping>,
    /// Which sessions may be published, joined and carried; all by default.
    pub authorisation: authorise::Rules,
    /// Limits of the tables.
    pub limits: Limits,
}

impl Config {
    /// Returns the default configuration of a gateway.
    #[must_use]
    pub fn new(gateway: GatewayId) -> Self {
        Config {
            gateway,
            tables: Tables::ALL,
            origin: Costs::uniform(Cost::ZERO),
            transit: Costs::uniform(Cost::ZERO),
            hold_time_s: 90,
            restart_time_s: 120,
            restarting: false,
            advertisement_interval: Duration::from_millis(100),
            retry_delay: Duration::from_secs(1),
            refresh_interval: Duration::from_secs(30),
            soft_state_lifetime: Duration::from_secs(105),
            join_timeout: Duration::from_secs(5),
            sroute_timeout: Duration::from_secs(2),
            refusal_time: Duration::from_secs(5),
            heartbeat_interval: Duration::from_millis(250),
            assignment: Assignment::default(),
            names: BTreeMap::new(),
            damping: Some(Damping::default()),
            authorisation: authorise::Rules::default(),
            limits: Limits::default(),
        }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// The first error found.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.tables.is_empty() {
            return Err(ConfigError::NoTable);
        }
        if (1..3).contains(&self.hold_time_s) {
            return Err(ConfigError::HoldTime);
        }
        let times = [
            self.retry_delay,
            self.refresh_interval,
            self.join_timeout,
            self.sroute_timeout,
            self.refusal_time,
            self.heartbeat_interval,
        ];
        if times.contains(&Duration::ZERO) || self.soft_state_lifetime < self.refresh_interval * 2 {
            return Err(ConfigError::Times);
        }
        let limits = &self.limits;
        let least = limits
            .max_queue
            .min(limits.max_requests)
            .min(limits.max_waiting);
        if least.min(limits.max_sroutes).min(limits.max_refused) == 0 {
            return Err(ConfigError::Limits);
        }
        let rules = &self.authorisation.rules;
        let mut numbered = rules.iter().enumerate();
        let is_wrong = |(at, rule): (usize, &authorise::Rule)| {
            let taken = rules[..at].iter().any(|other| other.name == rule.name);
            taken || rule.name.is_empty() || rule.name == authorise::DEFAULT
        };
        if rules.len() > authorise::MAX_RULES || numbered.any(is_wrong) {
            return Err(ConfigError::Rules);
        }
        Ok(())
    }
}

/// A range of networks: the first and the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkRange {
    /// The first.
    pub first: BnNum,
    /// The last.
    pub last: BnNum,
}

/// Configuration of a peer (§3.1).
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct PeerConfig {
    /// The peer, as its OPEN must say. A gateway of the same network is an internal peer.
    pub gateway: GatewayId,
    /// Whether this side dials. Both sides may; one connection is kept.
    pub dial: bool,
    /// Cost of the link.
    pub link: Costs,
    /// Whether the cost of the link in the tables for latency is measured, and [`PeerConfig::link`] decides in the
    /// other tables only. Until the peer has answered, and where it cannot, it is 100 ms.
    pub measure_latency: bool,
    /// Rate limit of the link in bit/s (§3.1).
    pub rate_bps: Option<u64>,
    /// Most routes that it may announce in one table; more end the session and refuse its streams for a while.
    pub max_routes: usize,
    /// How long its streams are refused after too many routes.
    pub rest_after_limit: Duration,
    /// Networks to whose gateways it may announce routes; empty: to any. Other routes of it are kept as rejected ones,
    /// and counted.
    pub networks: Vec<NetworkRange>,
    /// Addresses that its JOINs and TRANSLATIONs may name: where its data nodes are. Empty: its own address only,
    /// if the driver [sets it](crate::ControlNode::set_peer_address).
    pub data_prefixes: Vec<Prefix>,
    /// Policy for the routes that it announces.
    pub import: Policy,
    /// Policy for the routes announced to it.
    pub export: Policy,
    /// Address of its mediator for clients, if it is in the same network: the text of a REDIRECT.
    pub mediator: String,
    /// How data nodes send to the peer's and expect packets from there. The peer must be configured likewise.
    pub transport: Transport,
    /// For the driver: most hops that packets of the peering may have crossed (RFC 5082); `None` accepts any
    /// number, as for an overlay link.
    pub max_hops: Option<u8>,
}

impl PeerConfig {
    /// Returns the default configuration of a peer.
    #[must_use]
    pub fn new(gateway: GatewayId) -> Self {
        PeerConfig {
            gateway,
            dial: true,
            link: Costs::uniform(Cost(1)),
            measure_latency: false,
            rate_bps: None,
            max_routes: 4096,
            rest_after_limit: Duration::from_secs(300),
            networks: Vec::new(),
            data_prefixes: Vec::new(),
            import: Policy::accept_all(),
            export: Policy::accept_all(),
            mediator: String::new(),
            transport: Transport::Plain,
            max_hops: None,
        }
    }

    /// Returns the lowest TTL or hop limit with which packets of this peering may arrive, if
    /// [`PeerConfig::max_hops`] is set; both sides send with 255 (RFC 5082 §3).
    #[must_use]
    pub fn min_ttl(&self) -> Option<u8> {
        self.max_hops.map(|hops| 255 - hops.saturating_sub(1))
    }

    /// Returns whether the peer may announce routes to gateways of a network.
    #[must_use]
    pub fn may_announce(&self, network: BnNum) -> bool {
        let within = |range: &NetworkRange| (range.first..=range.last).contains(&network);
        self.networks.is_empty() || self.networks.iter().any(within)
    }

    pub(crate) fn check(&self, own: GatewayId) -> Result<(), ConfigError> {
        let free = |table: Table| {
            table.metric() != Metric::Bandwidth && self.link.get(table) == Cost::ZERO
        };
        if self.gateway == own {
            Err(ConfigError::OwnPeer)
        } else if Table::all().any(free) {
            Err(ConfigError::FreeLink)
        } else if self.mediator.len() > MAX_TEXT_LEN {
            Err(ConfigError::Mediator)
        } else if self.max_routes == 0 || self.max_hops == Some(0) {
            Err(ConfigError::Limits)
        } else {
            Ok(())
        }
    }
}

proto_core::errors! {
    /// Why a configuration is wrong.
    pub enum ConfigError {
        /// No routing table.
        NoTable = "there is no routing table",
        /// A hold time of one or two seconds.
        HoldTime = "the hold time is 0 or at least 3 seconds",
        /// A time is 0, or soft state lives for less than two refreshes.
        Times = "a time is 0, or soft state expires before its second refresh",
        /// A limit is 0.
        Limits = "a limit is 0",
        /// Too many authorisation rules, or one without a name of its own.
        Rules = "there are too many authorisation rules, or one has no name of its own",
        /// A peer that is this gateway itself.
        OwnPeer = "a peer is this gateway itself",
        /// Two peers are the same gateway.
        SamePeer = "two peers are the same gateway",
        /// A link that costs nothing: trees could loop.
        FreeLink = "a link costs nothing",
        /// A mediator's address is too long.
        Mediator = "a mediator's address is too long",
        /// More peers than the limit.
        TooManyPeers = "there are too many peers",
        /// The gateway's own identity cannot change while it runs.
        Identity = "the gateway's identity cannot change while it runs",
    }
}
