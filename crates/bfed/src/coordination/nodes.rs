//! The data nodes of a cluster, as the control node sees them.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use proto_core::time::{Duration, Instant};

use crate::config::Assignment;
use crate::tree::Slot;
use crate::types::{ConnId, NodeId, NodeIdentity, PeerId};
use crate::wire::Message;
use crate::wire::liveness::State as Liveness;
use crate::wire::node::{Heartbeat, Register};

/// Heartbeats that may be missing before a data node is dead.
const MISSED: u32 = 4;
/// Heartbeats in which a data node calls the control node that it had, which is dead, and then the one
/// that succeeds it.
pub(crate) const COMING: u32 = 2 * MISSED;

/// A data node.
#[derive(Debug)]
pub(crate) struct Node {
    /// None for a moment after its stream broke.
    pub(crate) conn: Option<ConnId>,
    pub(crate) blocked: bool,
    pub(crate) identity: NodeIdentity,
    pub(crate) boot: u32,
    max_sessions: u32,
    pub(crate) draining: bool,
    /// What it forwarded lately, in bit/s.
    pub(crate) rate_bps: u64,
    /// Sessions that it was given since it said so, and still has.
    pub(crate) unmeasured: u64,
    pub(crate) heard_at: Instant,
    /// The sessions that it carries.
    pub(crate) sessions: BTreeSet<Slot>,
    pub(crate) queue: VecDeque<Message>,
    pub(crate) sequence: u32,
    /// It has been told which of the sessions that it had before its stream began live.
    pub(crate) refreshed: bool,
    /// It has been asked for all that it is to have, since its stream began.
    pub(crate) complete: bool,
    /// What it says of peers' data nodes.
    pub(crate) hears: BTreeMap<PeerId, Liveness>,
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
            heard_at: now,
            sessions: BTreeSet::new(),
            queue: VecDeque::new(),
            sequence: 0,
            refreshed: true,
            complete: false,
            hears: BTreeMap::new(),
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

    /// Whether it was drained and carries no session: the end of its stream is no failure.
    pub(crate) fn has_left(&self) -> bool {
        self.draining && self.conn.is_none() && self.sessions.is_empty()
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) map: BTreeMap<NodeId, Node>,
    /// Who was given a session last.
    last: Option<NodeId>,
}

impl Nodes {
    /// The node for one more session.
    pub(crate) fn pick(&mut self, how: Assignment) -> Option<NodeId> {
        let free = || self.map.iter().filter(|(_, node)| node.takes_more());
        let picked = match how {
            Assignment::RoundRobin => {
                let after = free().find(|(id, _)| Some(**id) > self.last);
                after.or_else(|| free().next()).map(|(&id, _)| id)
            }
            Assignment::LeastLoaded => {
                // What a session will forward is not known when it is given away: until its node has said
                // what it forwards now, the session counts as much as the others of all nodes on average.
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

    /// What all together know of a peer's data nodes: one that hears something is enough.
    pub(crate) fn liveness(&self, peer: PeerId) -> Liveness {
        let said = self.map.values().filter_map(|node| node.hears.get(&peer));
        let worse = |one: Liveness, other: &Liveness| match (one, *other) {
            (Liveness::Alive, _) | (_, Liveness::Alive) => Liveness::Alive,
            (Liveness::Silent, _) | (_, Liveness::Silent) => Liveness::Silent,
            _ => Liveness::Unknown,
        };
        said.fold(Liveness::Unknown, worse)
    }

    /// A data node from which nothing was heard for too long; one whose stream broke, after one
    /// interval.
    pub(crate) fn dead(&self, now: Instant, interval: Duration) -> Option<NodeId> {
        self.map
            .iter()
            .find(|(_, node)| node.dies_at(interval) <= now)
            .map(|(&id, _)| id)
    }

    pub(crate) fn poll_timeout(&self, interval: Duration) -> Option<Instant> {
        self.map.values().map(|node| node.dies_at(interval)).min()
    }
}

impl Node {
    fn dies_at(&self, interval: Duration) -> Instant {
        self.heard_at + interval * if self.conn.is_some() { MISSED } else { 1 }
    }
}
