//! Data coordination (§5.3): assignment of sessions to data nodes, and the nodes' liveness.

mod nodes;

use alloc::collections::BTreeMap;

pub(crate) use nodes::{COMING, Node, Nodes};

use crate::name::SessionName;
use crate::types::NodeId;

/// Stores which data node carries which session beyond the life of a control node, and elects the active control
/// node. In memory by default ([`InMemory`]); the driver uses etcd where a gateway spans machines.
///
/// Calls return at once. What a store learns later (a lost lease, a session that another control node assigned) is
/// available at the next call, after the driver has called
/// [`ControlNode::coordinator_changed`](crate::ControlNode::coordinator_changed).
pub trait Coordinator {
    /// Returns whether this control node is the active one. A standby neither dials peers nor answers.
    fn is_active(&self) -> bool;

    /// Returns the fencing number of this control node's term, higher than those of all previous terms. Data nodes
    /// obey the highest that they have seen.
    fn epoch(&self) -> u64;

    /// Returns whether another control node was active before: peers may keep its state, and data nodes go on
    /// forwarding.
    fn succeeds(&self) -> bool {
        false
    }

    /// Returns the data node that is known to carry the session.
    fn assigned(&self, session: &SessionName) -> Option<NodeId>;

    /// Assigns the session to a data node.
    fn assign(&mut self, session: &SessionName, node: NodeId);

    /// Removes the assignment of a session.
    fn release(&mut self, session: &SessionName);

    /// Removes the assignments of all sessions but those to keep. Called once all sessions are known that survived a
    /// start or a takeover: the others ended meanwhile.
    fn retain(&mut self, keep: &dyn Fn(&SessionName) -> bool);
}

/// The coordinator of a gateway with one control node, which is always active. Takes a name and a number for each
/// session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InMemory {
    epoch: u64,
    assigned: BTreeMap<SessionName, NodeId>,
}

impl InMemory {
    /// Creates a coordinator with a fencing number, which must grow with every start if data nodes outlive the
    /// control node (the time of day does).
    #[must_use]
    pub const fn new(epoch: u64) -> Self {
        InMemory {
            epoch,
            assigned: BTreeMap::new(),
        }
    }

    /// Returns the number of assigned sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.assigned.len()
    }

    /// Returns whether no session is assigned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.assigned.is_empty()
    }
}

impl Coordinator for InMemory {
    fn is_active(&self) -> bool {
        true
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn assigned(&self, session: &SessionName) -> Option<NodeId> {
        self.assigned.get(session).copied()
    }

    fn assign(&mut self, session: &SessionName, node: NodeId) {
        self.assigned.insert(session.clone(), node);
    }

    fn release(&mut self, session: &SessionName) {
        self.assigned.remove(session);
    }

    fn retain(&mut self, keep: &dyn Fn(&SessionName) -> bool) {
        self.assigned.retain(|session, _| keep(session));
    }
}
