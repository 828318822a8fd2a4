//! Who coordinates the gateway: this process alone, or etcd.

use std::collections::BTreeMap;

use bfed::{Coordinator, InMemory, NodeId, SessionName};

#[cfg(feature = "etcd")]
use super::etcd::Store;

/// What a coordinator outside of the process has to say.
#[derive(Debug)]
#[cfg_attr(not(feature = "etcd"), allow(unused, reason = "nobody is outside"))]
pub(crate) enum News {
    /// This control node is the active one, or is again after the store forgot it.
    Elected {
        /// The number of its term.
        epoch: u64,
        /// What was assigned when its term began.
        assigned: BTreeMap<SessionName, NodeId>,
    },
    /// Another one is.
    Deposed,
    /// The store answers, or does not.
    Reachable(bool),
}

/// The coordinator of a control node.
#[derive(Debug)]
pub(crate) enum Coordinated {
    /// Nobody else: assignments live as long as the process.
    Memory(InMemory),
    /// etcd.
    #[cfg(feature = "etcd")]
    Etcd(Store),
}

/// The time of day in milliseconds: it grows from start to start.
fn since_1970() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

impl Coordinated {
    /// In memory; the time of day is the fencing number.
    pub(crate) fn memory() -> Self {
        Coordinated::Memory(InMemory::new(since_1970()))
    }

    /// Takes news in.
    pub(crate) fn hear(&mut self, news: News) {
        match (self, news) {
            #[cfg(feature = "etcd")]
            (Coordinated::Etcd(store), News::Elected { epoch, assigned }) => {
                store.elected(epoch, assigned);
            }
            #[cfg(feature = "etcd")]
            (Coordinated::Etcd(store), News::Deposed) => store.deposed(),
            _ => {}
        }
    }

    fn one(&self) -> &dyn Coordinator {
        match self {
            Coordinated::Memory(memory) => memory,
            #[cfg(feature = "etcd")]
            Coordinated::Etcd(store) => store,
        }
    }

    fn one_mut(&mut self) -> &mut dyn Coordinator {
        match self {
            Coordinated::Memory(memory) => memory,
            #[cfg(feature = "etcd")]
            Coordinated::Etcd(store) => store,
        }
    }
}

impl Coordinator for Coordinated {
    fn is_active(&self) -> bool {
        self.one().is_active()
    }

    fn epoch(&self) -> u64 {
        self.one().epoch()
    }

    fn assigned(&self, session: &SessionName) -> Option<NodeId> {
        self.one().assigned(session)
    }

    fn assign(&mut self, session: &SessionName, node: NodeId) {
        self.one_mut().assign(session, node);
    }

    fn release(&mut self, session: &SessionName) {
        self.one_mut().release(session);
    }
}
