//! What an administrator decides about a gateway.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use proto_core::time::Duration;

use crate::prefix::Prefix;
use crate::routing::{Damping, Policy};
use crate::types::{BnNum, Cost, GatewayId, Metric, Table, Tables};
use crate::wire::reader::MAX_TEXT_LEN;

/// A cost for each table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Costs([Cost; Table::COUNT]);

impl Costs {
    /// The same cost in every table.
    #[must_use]
    pub const fn uniform(cost: Cost) -> Self {
        Costs([cost; Table::COUNT])
    }

    /// The cost in `table`.
    #[must_use]
    pub const fn get(&self, table: Table) -> Cost {
        self.0[table.number() as usize]
    }

    /// These, but for `tables`, where it is `cost`.
    #[must_use]
    pub fn with(mut self, tables: Tables, cost: Cost) -> Self {
        for table in tables.iter() {
            self.0[usize::from(table.number())] = cost;
        }
        self
    }
}

/// How sessions are spread over data nodes (§5.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Assignment {
    /// One after another.
    RoundRobin,
    /// To the node that forwards least, then to that with the fewest sessions.
    #[default]
    LeastLoaded,
}

/// Bounds of a control node's tables. What happens at each is told with it, and counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Peers. Adding one more is refused.
    pub max_peers: usize,
    /// Data nodes. One more is not registered.
    pub max_nodes: usize,
    /// Sessions whose trees go through this gateway. One more is answered by NO_ROUTE.
    pub max_sessions: usize,
    /// Of those, sessions that one peer joined: fewer than a data node carries, so that no peer can take
    /// all of one. One more is answered by NO_ROUTE.
    pub max_sessions_per_peer: usize,
    /// Messages that wait to be sent to one peer or node, updates of routes apart. One more ends the
    /// peering with the reason "too slow"; a data node is taken for dead.
    pub max_queue: usize,
    /// Sessions whose SROUTE costs are known. One more replaces the one that expires first; costs that a
    /// peer asked for, and that only pass through here, are not kept then.
    pub max_sroutes: usize,
    /// SROUTE requests on the way. One more is answered by "no route".
    pub max_requests: usize,
    /// Clients that wait for one session's answer. One more is answered by NO_ROUTE.
    pub max_waiting: usize,
    /// Sessions that nobody can have, remembered for [`Config::refusal_time`] and, for longer, that they
    /// were refused. One more replaces the one that is forgotten first.
    pub max_refused: usize,
    /// JOINs for new sessions that a peer, or all clients together, may send in a second; twice as
    /// many at once. One more is answered by NO_ROUTE.
    pub new_sessions_per_second: u32,
    /// Routes whose flaps are remembered. One more is not.
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

/// A gateway's control node.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Who it is.
    pub gateway: GatewayId,
    /// The tables that it keeps. Sessions of other tables find no route.
    pub tables: Tables,
    /// What it costs from here to the middle of this network; infinite in tables for sessions that
    /// this network cannot publish.
    pub origin: Costs,
    /// What it costs to cross this network; infinite where it is no transit (§5.1).
    pub transit: Costs,
    /// How long a peer may be silent, in seconds: 0 for ever, else at least 3.
    pub hold_time_s: u16,
    /// How long peers are asked to keep routes and trees while this gateway restarts, in seconds; 0
    /// if not at all (RFC 4724).
    pub restart_time_s: u16,
    /// It has just restarted, and its data nodes went on: it asks its peers for patience, and sends
    /// no routes until it has theirs.
    pub restarting: bool,
    /// Changes of routes are gathered for so long before a peer is told.
    pub advertisement_interval: Duration,
    /// First delay before a lost peer is called again; doubles up to a minute.
    pub retry_delay: Duration,
    /// Time between refreshes of soft state (§5.3.4).
    pub refresh_interval: Duration,
    /// How long soft state lives without a refresh.
    pub soft_state_lifetime: Duration,
    /// How long a JOIN waits for its TRANSLATION.
    pub join_timeout: Duration,
    /// How long an SROUTE_REQUEST waits for its response; what the owner's gateways give each other
    /// is half of it.
    pub sroute_timeout: Duration,
    /// How long a session that nobody can have is answered without asking again, and a gateway that
    /// refused it is passed over; twice as long each time, up to 16 times.
    pub refusal_time: Duration,
    /// Time between heartbeats in the cluster; a data node is dead after four without any.
    pub heartbeat_interval: Duration,
    /// How sessions are spread over data nodes.
    pub assignment: Assignment,
    /// DNS names of networks that are known without asking (§3.1).
    pub names: BTreeMap<String, BnNum>,
    /// Whether and how flapping routes are damped.
    pub damping: Option<Damping>,
    /// Bounds of the tables.
    pub limits: Limits,
}

impl Config {
    /// What is usual, for that gateway.
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
            limits: Limits::default(),
        }
    }

    /// Whether a machine can run with it.
    ///
    /// # Errors
    /// What is wrong.
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
        Ok(())
    }
}

/// A peering (§3.1).
#[derive(Clone, PartialEq, Debug)]
pub struct PeerConfig {
    /// Who the peer is; its OPEN must say the same. A gateway of the own network is an internal peer.
    pub gateway: GatewayId,
    /// Whether this side calls. Both sides may; one connection is kept.
    pub dial: bool,
    /// What the link costs.
    pub link: Costs,
    /// The most that the link may carry, in bit/s (§3.1).
    pub rate_bps: Option<u64>,
    /// Most routes in one table that it may announce; more end the peering for a while.
    pub max_routes: usize,
    /// How long the peering rests after too many routes.
    pub rest_after_limit: Duration,
    /// Where its data nodes may be: addresses that its JOINs and TRANSLATIONs may name. Empty: its own
    /// address alone, where the driver [says it](crate::ControlNode::set_peer_address).
    pub data_prefixes: Vec<Prefix>,
    /// Which of its routes are taken, and how.
    pub import: Policy,
    /// Which routes it is told.
    pub export: Policy,
    /// Where clients find its mediator, if it is of this network: the text of a REDIRECT.
    pub mediator: String,
    /// For the driver: the most hops that packets of the peering may have crossed (RFC 5082); `None`
    /// accepts any, as an overlay link may.
    pub max_hops: Option<u8>,
}

impl PeerConfig {
    /// What is usual, towards that gateway.
    #[must_use]
    pub fn new(gateway: GatewayId) -> Self {
        PeerConfig {
            gateway,
            dial: true,
            link: Costs::uniform(Cost(1)),
            rate_bps: None,
            max_routes: 4096,
            rest_after_limit: Duration::from_secs(300),
            data_prefixes: Vec::new(),
            import: Policy::accept_all(),
            export: Policy::accept_all(),
            mediator: String::new(),
            max_hops: None,
        }
    }

    /// The lowest TTL or hop limit that packets of this peering may arrive with, where
    /// [`PeerConfig::max_hops`] is set; both sides send with 255 (RFC 5082 §3).
    #[must_use]
    pub fn min_ttl(&self) -> Option<u8> {
        self.max_hops.map(|hops| 255 - hops.saturating_sub(1))
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

/// What is wrong with a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConfigError {
    /// No table at all.
    NoTable,
    /// A hold time of one or two seconds.
    HoldTime,
    /// A time is 0, or soft state lives for less than two refreshes.
    Times,
    /// A limit is 0.
    Limits,
    /// A peer that is this gateway itself.
    OwnPeer,
    /// Two peers are the same gateway.
    SamePeer,
    /// A link that costs nothing: trees could loop.
    FreeLink,
    /// A mediator's address is too long.
    Mediator,
    /// More peers than the limit.
    TooManyPeers,
    /// The gateway's own identity cannot change while it runs.
    Identity,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfigError::NoTable => "there is no routing table",
            ConfigError::HoldTime => "the hold time is 0 or at least 3 seconds",
            ConfigError::Times => "a time is 0, or soft state expires before its second refresh",
            ConfigError::Limits => "a limit is 0",
            ConfigError::OwnPeer => "a peer is this gateway itself",
            ConfigError::SamePeer => "two peers are the same gateway",
            ConfigError::FreeLink => "a link costs nothing",
            ConfigError::Mediator => "a mediator's address is too long",
            ConfigError::TooManyPeers => "there are too many peers",
            ConfigError::Identity => "the gateway's identity cannot change while it runs",
        })
    }
}

impl core::error::Error for ConfigError {}
