//! The data nodes of a cluster in the view of the control node.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use proto_core::time::{Duration, Instant};

use crate::config::Assignment;
use crate::tree::Slot;
use crate::types::{ConnId, NodeId, NodeIdentity, PeerId};
use crate::wire::Message;
use crate::wire::liveness::State as Liveness;
use crate::wire::node::{Heartbeat, Register};

/// Missing heartbeats after which a data node has failed.
const MISSED: u32 = 4;
/// Heartbeat intervals in which a data node reconnects: first to its failed control node, then to the successor.
pub(crate) const COMING: u32 = 2 * MISSED;

/// A data node.
#[derive(Debug)]
pub(crate) struct Node {
    /// `None` for a moment after its stream broke.
    pub(crate) conn: Option<ConnId>,
    pub(crate) blocked: bool,
    pub(crate) identity: NodeIdentity,
    pub(crate) boot: u32,
    max_sessions: u32,
    pub(crate) draining: bool,
    /// Its rate lately, in bit/s.
    pub(crate) rate_bps: u64,
    /// Sessions assigned to it since it last reported its rate.
    pub(crate) unmeasured: u64,
    pub(crate) received_at: Instant,
    /// The sessions that it carries.
    pub(crate) sessions: BTreeSet<Slot>,
    pub(crate) queue: VecDeque<Message>,
    pub(crate) sequence: u32,
    /// Whether the sessions from before its stream began have been refreshed.
    pub(crate) refreshed: bool,
    /// Whether all its sessions have been requested or refreshed since its stream began.
    pub(crate) complete: bool,
    /// State of peers' data nodes as it reported.
    pub(crate) peer_states: BTreeMap<PeerId, Liveness>,
}

impl Node {
    pub(crate) fn new(
        now: Instant,
        conn: ConnId,
        identity: NodeIdentity,
        register: &Register,
    ) -> Self {
        Node {
            conn: Some(conn),
            identity,
            blocked: false,
            boot: register.boot,
            max_sessions: register.max_sessions,
            draining: false,
            rate_bps: 0,
            unmeasured: 0,
            received_at: now,
            sessions: BTreeSet::new(),
            queue: VecDeque::new(),
            sequence: 0,
            refreshed: true,
            complete: false,
            peer_states: BTreeMap::new(),
        }
    }

    pub(crate) fn heartbeat(&mut self, epoch: u64) {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        self.queue.push_back(Message::Heartbeat(Heartbeat {
            epoch,
            sequence,
            draining: false,
            complete: self.complete,
        }));
    }

    fn takes_more(&self) -> bool {
        self.conn.is_some() && !self.draining && self.sessions.len() < self.max_sessions as usize
    }

    /// Returns whether it was drained and carries no session: the end of its stream is no failure.
    pub(crate) fn has_left(&self) -> bool {
        self.draining && self.conn.is_none() && self.sessions.is_empty()
    }
}

/// All data nodes of the cluster.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) map: BTreeMap<NodeId, Node>,
    /// When the next heartbeats are due.
    pub(crate) heartbeat_at: Instant,
    /// The node that was assigned a session last.
    last: Option<NodeId>,
}

impl Nodes {
    pub(crate) fn new(heartbeat_at: Instant) -> Self {
        Nodes {
            map: BTreeMap::new(),
            heartbeat_at,
            last: None,
        }
    }

    /// Picks a node for one more session.
    pub(crate) fn pick(&mut self, how: Assignment) -> Option<NodeId> {
        let free = || self.map.iter().filter(|(_, node)| node.takes_more());
        let picked = match how {
            Assignment::RoundRobin => {
                let after = free().find(|(id, _)| Some(**id) > self.last);
                after.or_else(|| free().next()).map(|(&id, _)| id)
            }
            Assignment::LeastLoaded => {
                // The rate of a new session is unknown: until its node reports a rate, the session counts as much
                // as the average session of all nodes.
                let nodes = || self.map.values();
                let (rate, sessions) = nodes().fold((0_u64, 0_u64), |(rate, count), node| {
                    let count = count + node.sessions.len() as u64;
                    (rate.saturating_add(node.rate_bps), count)
                });
                let each = (rate / sessions.max(1)).max(1);
                let load = |node: &Node| {
                    let expected = node
                        .rate_bps
                        .saturating_add(each.saturating_mul(node.unmeasured));
                    (expected, node.sessions.len())
                };
                free()
                    .min_by_key(|(id, node)| (load(node), **id))
                    .map(|(&id, _)| id)
            }
        };
        self.last = picked.or(self.last);
        picked
    }

    /// Returns the state of a peer's data nodes as all nodes see it: one that receives from them is enough.
    pub(crate) fn liveness(&self, peer: PeerId) -> Liveness {
        let reports = self
            .map
            .values()
            .filter_map(|node| node.peer_states.get(&peer));
        let worse = |one: Liveness, other: &Liveness| match (one, *other) {
            (Liveness::Alive, _) | (_, Liveness::Alive) => Liveness::Alive,
            (Liveness::Silent, _) | (_, Liveness::Silent) => Liveness::Silent,
            _ => Liveness::Unknown,
        };
        reports.fold(Liveness::Unknown, worse)
    }

    /// Returns a data node that has been silent for too long; after its stream broke, one interval is too long.
    pub(crate) fn dead(&self, now: Instant, interval: Duration) -> Option<NodeId> {
        self.map
            .iter()
            .find(|(_, node)| node.dies_at(interval) <= now)
            .map(|(&id, _)| id)
    }

    pub(crate) fn poll_timeout(&self, interval: Duration) -> Option<Instant> {
        let death = self.map.values().map(|node| node.dies_at(interval)).min()?;
        Some(death.min(self.heartbeat_at))
    }
}

impl Node {
    fn dies_at(&self, interval: Duration) -> Instant {
        self.received_at + interval * if self.conn.is_some() { MISSED } else { 1 }
    }
}
