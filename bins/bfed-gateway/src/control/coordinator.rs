//! The coordinator of the gateway: this process alone, or etcd.

use bfed::{Coordinator, InMemory, NodeId, SessionName};

#[cfg(feature = "etcd")]
use super::etcd::Store;
use super::lease::Lease;

/// An event of a coordinator outside of the process.
#[cfg(feature = "etcd")]
pub(crate) use super::etcd::{Resignation, StoreEvent};

/// There is no coordinator outside of the process.
#[cfg(not(feature = "etcd"))]
#[derive(Debug)]
pub(crate) enum StoreEvent {}

/// There is no standby.
#[cfg(not(feature = "etcd"))]
pub(crate) enum Resignation {}

#[cfg(not(feature = "etcd"))]
impl Resignation {
    pub(crate) fn give(self, _: std::time::Duration) -> std::future::Ready<()> {
        match self {}
    }
}

/// The coordinator of a control node.
#[derive(Debug)]
pub(crate) enum Coordinated {
    /// This process: assignments last as long as it does.
    Memory(InMemory),
    /// etcd.
    #[cfg(feature = "etcd")]
    Etcd(Store),
}

/// Returns the time of day in milliseconds, which grows from start to start.
fn since_1970() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

impl Coordinated {
    /// Creates one in memory, with the time of day as the fencing number.
    pub(crate) fn memory() -> Self {
        Coordinated::Memory(InMemory::new(since_1970()))
    }

    /// Handles an event.
    pub(crate) fn handle_event(&mut self, event: StoreEvent) {
        #[cfg(feature = "etcd")]
        if let Coordinated::Etcd(store) = self {
            store.handle_event(event);
        }
        #[cfg(not(feature = "etcd"))]
        match event {}
    }

    /// Returns whether the store outside of the process answers; `None` without one.
    pub(crate) fn answers(&self) -> Option<bool> {
        match self {
            Coordinated::Memory(_) => None,
            #[cfg(feature = "etcd")]
            Coordinated::Etcd(store) => Some(store.answers()),
        }
    }

    /// Returns the lease of the current term, if there is one.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match self {
            Coordinated::Memory(_) => None,
            #[cfg(feature = "etcd")]
            Coordinated::Etcd(store) => store.lease(),
        }
    }

    /// Steps down if the lease of the term has expired; returns whether it had.
    pub(crate) fn step_down_in_time(&mut self) -> bool {
        if self.lease().is_none_or(Lease::holds) {
            return false;
        }
        #[cfg(feature = "etcd")]
        if let Coordinated::Etcd(store) = self {
            store.step_down();
        }
        true
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

    fn succeeds(&self) -> bool {
        self.one().succeeds()
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

    fn retain(&mut self, keep: &dyn Fn(&SessionName) -> bool) {
        self.one_mut().retain(keep);
    }
}
