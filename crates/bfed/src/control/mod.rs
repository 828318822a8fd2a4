//! The control node of a gateway (§4): peerings, routing, trees, coordination of data nodes. It never carries data.
//!
//! # Driving the machine
//!
//! ```text
//! loop {
//!     while let Some(event) = node.poll_event() { handle it, see Event }
//!     while let Some(transmit) = node.poll_transmit(now, &mut buffer) { write it to transmit.conn }
//!     wait for a stream, a message, a client, or until node.poll_timeout()
//!     a stream to a peer opened:       node.connected(now, conn, peer, dialled)
//!     a stream from a data node:       node.node_connected(now, conn, identity)
//!     bytes, split by wire::Frames:    node.handle_packet(now, &conn, message)
//!         if Frames returns an error:  node.handle_packet(now, &conn, frames.partial())
//!     a stream ended:                  node.disconnected(now, conn)
//!     a client's JOIN or LEAVE, from NativeNet::poll_upcall:  node.join(..), node.leave(..)
//!     always:                          node.handle_timeout(now)
//! }
//! ```
//!
//! The driver calls `blocked` when a stream takes no more bytes, and `writable` when it does again; in between the
//! machine writes nothing for it. `buffer` has room for [`MAX_MESSAGE_LEN`](crate::wire::MAX_MESSAGE_LEN) bytes.
//! The driver authenticates streams (TLS with certificates of both sides, or loopback), and knows from that which
//! peer is at the other end.

mod addresses;
mod authorisation;
mod clients;
mod cluster;
mod echo;
mod input;
mod joins;
mod node_requests;
mod output;
mod peers;
mod refusals;
mod shares;
mod sroute_costs;
mod sroute_store;
mod sroutes;
mod status;
mod streams;
mod teardown;
mod upstream;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use core::net::IpAddr;

use proto_core::time::{Duration, Instant};
use proto_core::{RateLimit, TokenBucket};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use crate::authorise::Authoriser;
use crate::config::{Config, ConfigError, PeerConfig};
use crate::coordination::{COMING, Coordinator, InMemory, Nodes};
use crate::error::Stats;
use crate::event::Event;
use crate::routing::Rib;
use crate::session::Session;
use crate::tree::{Slot, Trees};
use crate::types::PeerId;

pub use status::{PeerStatus, RouteStatus, TreeStatus};
use streams::{StreamOwner, Streams};

/// Trees examined in one call of `handle_timeout` because routes or nodes have changed.
const TREES_PER_CALL: usize = 64;
/// Networks whose trees are marked in one call because their routes have changed.
const NETWORKS_PER_CALL: usize = 64;

/// A configured peer.
#[derive(Debug)]
struct PeerState {
    config: PeerConfig,
    session: Session,
    /// Another one each time the peer's routes and trees are discarded; no other peer has had it.
    incarnation: u32,
    /// Another one with each established session; no other peer has had it.
    sessions: u32,
    /// Until then its routes and trees are kept although it is disconnected or has not sent its full table (RFC
    /// 4724), and longer while its data nodes are alive.
    stale_until: Option<Instant>,
    /// Restart time that it announced when it was connected.
    restart_time: Duration,
    /// Address of the other end of its stream, if known.
    address: Option<IpAddr>,
    /// When the next routes are announced.
    announce_at: Option<Instant>,
    announcing: bool,
    /// Its streams are refused until then because it announced too many routes.
    refused_until: Option<Instant>,
    bucket: TokenBucket,
    echoes: echo::Echoes,
}

impl PeerState {
    /// Returns whether its trees are valid.
    fn is_alive(&self) -> bool {
        self.session.is_established() || self.stale_until.is_some()
    }
}

/// What a control node waits for after its start, or after it has become the active one.
#[derive(Debug)]
struct Startup {
    /// Known data nodes may reconnect until then: their sessions wait for them.
    nodes_until: Option<Instant>,
    /// Known sessions may be joined again until then; `None` once all that survived are known.
    complete_from: Option<Instant>,
    /// After a restart, routes are announced to peers from then on at the latest.
    deferral_until: Option<Instant>,
}

/// Random and running numbers.
#[derive(Debug)]
struct Numbers {
    rng: ChaCha12Rng,
    boot: u32,
    request: u32,
    /// The last incarnation or session of a peer.
    term: u32,
}

impl Numbers {
    /// Returns the number of the next request, which is not 0.
    fn next_request(&mut self) -> u32 {
        self.request = self.request.wrapping_add(1).max(1);
        self.request
    }

    /// Returns the number of a peer's next incarnation or session. A peer may get the number of another that was
    /// removed, whose trees are still to be examined.
    fn next_term(&mut self) -> u32 {
        self.term = self.term.wrapping_add(1);
        self.term
    }

    fn jitter(&mut self) -> u32 {
        self.rng.next_u32()
    }
}

/// A gateway's control node.
#[derive(Debug)]
pub struct ControlNode<C: Coordinator = InMemory> {
    config: Config,
    coordinator: C,
    numbers: Numbers,
    peers: BTreeMap<PeerId, PeerState>,
    streams: Streams,
    rib: Rib,
    trees: Trees,
    nodes: Nodes,
    shares: shares::Shares,
    sroutes: sroute_store::Store,
    /// Decides which sessions may be published, joined and carried.
    authoriser: Authoriser,
    /// Sessions that were refused lately.
    refused: refusals::Refusals,
    /// Owners' names that are being resolved, and the trees that wait for them.
    resolving: BTreeMap<String, BTreeSet<Slot>>,
    /// Rate of new sessions of clients.
    bucket: TokenBucket,
    events: VecDeque<Event>,
    stats: Stats,
    startup: Startup,
    /// Whether this is the active control node, as the coordinator says.
    active: bool,
    now: Instant,
}

impl ControlNode<InMemory> {
    /// Creates the control node of a gateway in one process.
    ///
    /// # Errors
    /// The configuration is wrong.
    pub fn new(config: Config, seed: [u8; 32], now: Instant) -> Result<Self, ConfigError> {
        let epoch = u64::try_from(now.total_millis()).unwrap_or(0) + 1;
        Self::with_coordinator(config, InMemory::new(epoch), seed, now)
    }
}

impl<C: Coordinator> ControlNode<C> {
    /// Creates a control node that shares its gateway with others, see [`Coordinator`].
    ///
    /// # Errors
    /// The configuration is wrong.
    pub fn with_coordinator(
        config: Config,
        coordinator: C,
        seed: [u8; 32],
        now: Instant,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let mut rng = ChaCha12Rng::from_seed(seed);
        let deferral = Duration::from_secs(config.restart_time_s.into());
        let numbers = Numbers {
            boot: rng.next_u32(),
            request: rng.next_u32(),
            term: 0,
            rng,
        };
        let startup = Startup {
            nodes_until: Some(now + config.heartbeat_interval * COMING),
            complete_from: (config.restarting || coordinator.succeeds())
                .then_some(now + config.soft_state_lifetime),
            deferral_until: config.restarting.then_some(now + deferral),
        };
        Ok(ControlNode {
            rib: Rib::new(&config),
            sroutes: sroute_store::Store::new(&config.limits),
            numbers,
            peers: BTreeMap::new(),
            streams: Streams::default(),
            trees: Trees::default(),
            nodes: Nodes::new(now),
            shares: shares::Shares::new(now),
            authoriser: Authoriser::new(config.authorisation.clone(), config.names.clone()),
            refused: refusals::Refusals::default(),
            resolving: BTreeMap::new(),
            bucket: TokenBucket::FULL,
            events: VecDeque::new(),
            stats: Stats::default(),
            startup,
            active: coordinator.is_active(),
            config,
            coordinator,
            now,
        })
    }

    /// Returns the coordinator.
    pub fn coordinator(&self) -> &C {
        &self.coordinator
    }

    /// Returns the coordinator for the driver to update; call [`coordinator_changed`](Self::coordinator_changed)
    /// afterwards.
    pub fn coordinator_mut(&mut self) -> &mut C {
        &mut self.coordinator
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters.
    pub fn stats(&mut self) -> &Stats {
        self.stats.routes = self.rib.stats;
        &self.stats
    }

    /// Returns the next event; drain until `None` after each call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Handles the passing of time. Does a bounded part of the work that is due; `poll_timeout` asks for the rest.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if !self.active {
            return;
        }
        self.expire_peers(now);
        self.expire_streams(now);
        self.expire_nodes(now);
        self.rib.handle_timeout(now);
        self.expire_sroutes(now);
        for _ in 0..TREES_PER_CALL {
            let Some(slot) = self.trees.expired(now) else {
                break;
            };
            self.expire_tree(now, slot);
        }
        self.process_pending_trees(now);
        self.update_shares(now);
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.active {
            return None;
        }
        let work = !self.trees.pending.is_empty() || self.rib.has_changed();
        if work || self.rib.any_changed || self.streams.is_ready() {
            return Some(self.now);
        }
        let peers = self.peers.values().flat_map(|peer| {
            [
                peer.session.poll_timeout(),
                peer.stale_until,
                peer.announce_at,
                peer.echoes.poll_timeout(),
            ]
            .into_iter()
            .flatten()
        });
        let others = [
            self.streams.poll_timeout(),
            self.nodes.poll_timeout(self.config.heartbeat_interval),
            self.rib.poll_timeout(),
            self.sroutes.poll_timeout(),
            self.trees.poll_timeout(),
            self.shares.poll_timeout(),
            self.startup.deferral_until,
            self.startup.nodes_until,
        ];
        peers.chain(others.into_iter().flatten()).min()
    }

    /// Returns how many sessions a peer, or all clients together, may start; the burst is twice the rate.
    fn new_session_limit(&self) -> RateLimit {
        let rate = self.config.limits.new_sessions_per_second.max(1);
        RateLimit::new(rate, rate.saturating_mul(2))
    }

    /// Examines a bounded number of trees because routes, peers or nodes have changed. Trees of a network whose
    /// routes changed are marked while fewer wait than one call examines. Where routes alone lead to the same peer
    /// as before, only trees that also depend on something else are marked.
    fn process_pending_trees(&mut self, now: Instant) {
        if core::mem::take(&mut self.rib.any_changed) {
            self.schedule_announcements(now);
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
