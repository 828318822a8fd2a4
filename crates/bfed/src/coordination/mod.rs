//! Data coordination (§5.3): which data node carries which session, and whether it lives.

mod nodes;

use alloc::collections::BTreeMap;

pub(crate) use nodes::{COMING, Node, Nodes};

use crate::name::SessionName;
use crate::types::NodeId;

/// Remembers which data node carries which session, beyond the life of a control node, and says who
/// is the active one of several. In memory by default ([`InMemory`]); a driver keeps it in etcd where
/// a gateway spans machines.
///
/// Calls return at once; what a store learns later (a lost lease, a session that another control node
/// had assigned) it has at hand at the next call, and the driver says so to the machine with
/// [`ControlNode::coordinator_changed`](crate::ControlNode::coordinator_changed).
pub trait Coordinator {
    /// Whether this control node is the active one. A standby neither calls peers nor answers.
    fn is_active(&self) -> bool;

    /// The fencing number of this control node's term: higher than that of every term before. Data
    /// nodes obey the highest that they have seen.
    fn epoch(&self) -> u64;

    /// Whether another control node was the active one before this one's term: peers may still keep what
    /// it had, and data nodes go on.
    fn succeeds(&self) -> bool {
        false
    }

    /// Which data node carries the session, as far as is known.
    fn assigned(&self, session: &SessionName) -> Option<NodeId>;

    /// The session is carried by that data node from now on.
    fn assign(&mut self, session: &SessionName, node: NodeId);

    /// Nobody carries the session any more.
    fn release(&mut self, session: &SessionName);
}

/// The coordinator of a gateway of one control node: it is always the active one. Holds a name and a
/// number for each session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InMemory {
    epoch: u64,
    assigned: BTreeMap<SessionName, NodeId>,
}

impl InMemory {
    /// With that fencing number: it must grow with every start where data nodes outlive the control
    /// node (the time of day does).
    #[must_use]
    pub const fn new(epoch: u64) -> Self {
        InMemory {
            epoch,
            assigned: BTreeMap::new(),
        }
    }

    /// How many sessions are assigned.
    #[must_use]
    pub fn len(&self) -> usize {
        self.assigned.len()
    }

    /// Whether none is.
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
}
