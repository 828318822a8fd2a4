//! The control node of a gateway (§4): peerings, routing, trees, data coordination. It never carries
//! data.
//!
//! # How to drive it
//!
//! ```text
//! loop {
//!     while let Some(event) = node.poll_event() { do what it says, see Event }
//!     while let Some(transmit) = node.poll_transmit(now, &mut buffer) { write it to transmit.conn }
//!     wait for a stream, a message, a client, or until node.poll_timeout()
//!     a stream to a peer is there:     node.connected(now, conn, peer, dialled)
//!     a stream from a data node:       node.node_connected(now, conn, identity)
//!     bytes:  wire::Frames cuts them:  node.handle_packet(now, conn, message)
//!         where Frames gives an error: node.handle_packet(now, conn, frames.partial())
//!     a stream ended:                  node.disconnected(now, conn)
//!     a client's JOIN or LEAVE, from NativeNet::poll_upcall:  node.join(..), node.leave(..)
//!     in any case:                     node.handle_timeout(now)
//! }
//! ```
//!
//! A stream that takes no more bytes is `blocked`, and later `writable`; meanwhile nothing is written
//! for it. `buffer` has room for [`MAX_MESSAGE_LEN`](crate::wire::MAX_MESSAGE_LEN) bytes. The driver
//! authenticates streams (TLS with both sides' certificates, or loopback) and knows by that which
//! peer it talks to.

mod addresses;
mod asks;
mod clients;
mod cluster;
mod input;
mod joins;
mod output;
mod peers;
mod refusals;
mod shares;
mod sroute_store;
mod sroutes;
mod status;
mod upstream;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use core::net::IpAddr;

use proto_core::time::{Duration, Instant};
use proto_core::{RateLimit, TokenBucket};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use crate::config::{Config, ConfigError, PeerConfig};
use crate::coordination::{COMING, Coordinator, InMemory, Nodes};
use crate::error::Stats;
use crate::event::Event;
use crate::routing::Rib;
use crate::session::Session;
use crate::tree::{Slot, Trees};
use crate::types::{ConnId, NodeId, NodeIdentity, PeerId};
use crate::wire::Message;

pub use status::{PeerStatus, RouteStatus, TreeStatus};

/// Trees that are looked at in one call of `handle_timeout` because routes or nodes have changed.
const TREES_PER_CALL: usize = 64;
/// Networks whose trees are marked in one call, because routes have changed.
const NETWORKS_PER_CALL: usize = 64;

/// A configured peer.
#[derive(Debug)]
struct PeerState {
    config: PeerConfig,
    session: Session,
    /// + 1 each time the peer's routes and trees were given up.
    incarnation: u32,
    /// + 1 with each established session.
    sessions: u32,
    /// Its routes and trees are kept until then, though it is away or has not said all (RFC 4724), and
    /// as long as its data nodes are heard.
    stale_until: Option<Instant>,
    /// How long it asked for patience when it was there.
    restart_time: Duration,
    /// Where its stream comes from or goes to, if the driver has said so.
    address: Option<IpAddr>,
    /// When the next routes are told.
    tell_at: Option<Instant>,
    telling: bool,
    /// It has announced too many routes: its streams are refused until then.
    resting_until: Option<Instant>,
    bucket: TokenBucket,
}

impl PeerState {
    /// Whether its trees stand.
    fn is_alive(&self) -> bool {
        self.session.is_established() || self.stale_until.is_some()
    }
}

/// Whose a stream is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StreamOf {
    Peer(PeerId),
    /// A data node that has registered.
    Node(NodeId),
    /// A data node that has to register until then.
    Unregistered(NodeIdentity, Instant),
}

/// A gateway's control node.
#[derive(Debug)]
pub struct ControlNode<C: Coordinator = InMemory> {
    config: Config,
    coordinator: C,
    rng: ChaCha12Rng,
    boot: u32,
    peers: BTreeMap<PeerId, PeerState>,
    streams: BTreeMap<ConnId, StreamOf>,
    /// Streams that end: what is said last, and until when it may be.
    closing: BTreeMap<ConnId, (Message, Instant)>,
    /// Streams that something may wait for.
    hot: BTreeSet<ConnId>,
    last_hot: Option<ConnId>,
    rib: Rib,
    trees: Trees,
    nodes: Nodes,
    shares: shares::Shares,
    sroutes: sroute_store::Store,
    /// Sessions that nobody can have.
    refused: refusals::Refusals,
    /// Owners' names that are being resolved, for which trees.
    resolving: BTreeMap<String, BTreeSet<Slot>>,
    /// New sessions of clients.
    bucket: TokenBucket,
    events: VecDeque<Event>,
    stats: Stats,
    next_request: u32,
    heartbeat_at: Instant,
    /// Data nodes of before come until then: a session waits for its own.
    nodes_until: Option<Instant>,
    /// Sessions of before may still come back to this control node until then.
    complete_from: Option<Instant>,
    /// After a restart: peers are told routes from then on at the latest.
    deferral_until: Option<Instant>,
    /// The coordinator says that this is the active control node.
    active: bool,
    now: Instant,
}

impl ControlNode<InMemory> {
    /// The control node of a gateway in one process.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn new(config: Config, seed: [u8; 32], now: Instant) -> Result<Self, ConfigError> {
        let epoch = u64::try_from(now.total_millis()).unwrap_or(0) + 1;
        Self::with_coordinator(config, InMemory::new(epoch), seed, now)
    }
}

impl<C: Coordinator> ControlNode<C> {
    /// A control node that shares its gateway with others: see [`Coordinator`].
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn with_coordinator(
        config: Config,
        coordinator: C,
        seed: [u8; 32],
        now: Instant,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let mut rng = ChaCha12Rng::from_seed(seed);
        let deferral = Duration::from_secs(config.restart_time_s.into());
        Ok(ControlNode {
            rib: Rib::new(&config),
            sroutes: sroute_store::Store::new(&config.limits),
            boot: rng.next_u32(),
            next_request: rng.next_u32() | 1,
            peers: BTreeMap::new(),
            streams: BTreeMap::new(),
            closing: BTreeMap::new(),
            hot: BTreeSet::new(),
            last_hot: None,
            trees: Trees::default(),
            nodes: Nodes::default(),
            shares: shares::Shares::new(now),
            refused: refusals::Refusals::default(),
            resolving: BTreeMap::new(),
            bucket: TokenBucket::FULL,
            events: VecDeque::new(),
            stats: Stats::default(),
            heartbeat_at: now + config.heartbeat_interval,
            nodes_until: Some(now + config.heartbeat_interval * COMING),
            complete_from: (config.restarting || coordinator.succeeds())
                .then_some(now + config.soft_state_lifetime),
            deferral_until: config.restarting.then_some(now + deferral),
            active: coordinator.is_active(),
            rng,
            config,
            coordinator,
            now,
        })
    }

    /// The coordinator.
    pub fn coordinator(&self) -> &C {
        &self.coordinator
    }

    /// The coordinator, for the driver to bring it news; then
    /// [`coordinator_changed`](Self::coordinator_changed).
    pub fn coordinator_mut(&mut self) -> &mut C {
        &mut self.coordinator
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters.
    pub fn stats(&mut self) -> &Stats {
        self.stats.routes = self.rib.stats;
        &self.stats
    }

    /// What the driver has to do or to tell; drain until `None` after each call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Time has passed. Does a bounded piece of what is due, and says so by `poll_timeout`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if !self.active {
            return;
        }
        self.time_of_peers(now);
        self.time_of_streams(now);
        self.time_of_nodes(now);
        self.rib.handle_timeout(now);
        self.time_of_sroutes(now);
        for _ in 0..TREES_PER_CALL {
            let Some(slot) = self.trees.expired(now) else {
                break;
            };
            self.time_of_tree(now, slot);
        }
        self.look_at_trees(now);
        self.time_of_shares(now);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.active {
            return None;
        }
        let work = !self.trees.pending.is_empty() || self.rib.has_changed();
        if work || self.rib.news || !self.hot.is_empty() {
            return Some(self.now);
        }
        let peers = self.peers.values().flat_map(|peer| {
            [peer.session.poll_timeout(), peer.stale_until, peer.tell_at]
                .into_iter()
                .flatten()
        });
        let streams = self.streams.values().filter_map(|of| match of {
            StreamOf::Unregistered(_, until) => Some(*until),
            _ => None,
        });
        let closing = self.closing.values().map(|(_, until)| *until);
        let heartbeat = (!self.nodes.map.is_empty()).then_some(self.heartbeat_at);
        let others = [
            self.nodes.poll_timeout(self.config.heartbeat_interval),
            heartbeat,
            self.rib.poll_timeout(),
            self.sroutes.poll_timeout(),
            self.trees.poll_timeout(),
            self.shares.poll_timeout(),
            self.deferral_until,
            self.nodes_until,
        ];
        peers
            .chain(streams)
            .chain(closing)
            .chain(others.into_iter().flatten())
            .min()
    }

    /// The number of a question.
    fn number(&mut self) -> u32 {
        self.next_request = self.next_request.wrapping_add(1).max(1);
        self.next_request
    }

    /// How many sessions a peer, or the clients together, may begin: twice the rate at once.
    fn new_session_limit(&self) -> RateLimit {
        let rate = self.config.limits.new_sessions_per_second.max(1);
        RateLimit::new(rate, rate.saturating_mul(2))
    }

    fn jitter(&mut self) -> u32 {
        self.rng.next_u32()
    }

    /// Routes, peers or nodes have changed: a bounded number of trees is looked at. The trees of a network
    /// whose routes changed are marked while no more wait than one call looks at. Where routes alone
    /// decide as before, only the trees that something else decides are.
    fn look_at_trees(&mut self, now: Instant) {
        if core::mem::take(&mut self.rib.news) {
            self.news_of_routes(now);
        }
        for _ in 0..NETWORKS_PER_CALL {
            if self.trees.pending.len() >= TREES_PER_CALL {
                break;
            }
            let Some((table, network, altered)) = self.rib.poll_changed() else {
                break;
            };
            self.trees.mark_network(table, network, altered);
        }
        for _ in 0..TREES_PER_CALL {
            let Some(slot) = self.trees.poll_pending() else {
                break;
            };
            self.stats.trees_examined += 1;
            self.advance(now, slot);
        }
    }
}
