//! Who coordinates the gateway: this process alone, or etcd.

use bfed::{Coordinator, InMemory, NodeId, SessionName};

#[cfg(feature = "etcd")]
use super::etcd::Store;
use super::lease::Lease;

/// What a coordinator outside of the process has to say.
#[cfg(feature = "etcd")]
pub(crate) use super::etcd::{News, Resignation};

/// Nobody is outside.
#[cfg(not(feature = "etcd"))]
#[derive(Debug)]
pub(crate) enum News {}

/// Nobody stands by.
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
        #[cfg(feature = "etcd")]
        if let Coordinated::Etcd(store) = self {
            store.hear(news);
        }
        #[cfg(not(feature = "etcd"))]
        match news {}
    }

    /// Whether a store outside of the process answers, if there is one.
    pub(crate) fn answers(&self) -> Option<bool> {
        match self {
            Coordinated::Memory(_) => None,
            #[cfg(feature = "etcd")]
            Coordinated::Etcd(store) => Some(store.answers()),
        }
    }

    /// The lease of the term in which this control node is the active one, if it has one.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match self {
            Coordinated::Memory(_) => None,
            #[cfg(feature = "etcd")]
            Coordinated::Etcd(store) => store.lease(),
        }
    }

    /// Steps down if the lease of the term is over; returns whether it was.
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
}
