//! Who coordinates the gateway: this process alone, or etcd.

use bfed::{Coordinator, InMemory, NodeId, SessionName};

/// What a coordinator outside of the process has to say.
#[derive(Debug)]
pub(crate) enum News {}

/// The coordinator of a control node.
#[derive(Debug)]
pub(crate) enum Coordinated {
    /// Nobody else: assignments live as long as the process.
    Memory(InMemory),
}

impl Coordinated {
    /// In memory; the time of day is the fencing number.
    pub(crate) fn memory() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let millis = since.map_or(1, |since| since.as_millis());
        Coordinated::Memory(InMemory::new(u64::try_from(millis).unwrap_or(u64::MAX)))
    }

    /// Takes news in.
    pub(crate) fn hear(&mut self, news: News) {
        match news {}
    }
}

impl Coordinator for Coordinated {
    fn is_active(&self) -> bool {
        match self {
            Coordinated::Memory(memory) => memory.is_active(),
        }
    }

    fn epoch(&self) -> u64 {
        match self {
            Coordinated::Memory(memory) => memory.epoch(),
        }
    }

    fn assigned(&self, session: &SessionName) -> Option<NodeId> {
        match self {
            Coordinated::Memory(memory) => memory.assigned(session),
        }
    }

    fn assign(&mut self, session: &SessionName, node: NodeId) {
        match self {
            Coordinated::Memory(memory) => memory.assign(session, node),
        }
    }

    fn release(&mut self, session: &SessionName) {
        match self {
            Coordinated::Memory(memory) => memory.release(session),
        }
    }
}
