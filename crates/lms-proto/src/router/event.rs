//! Events for the driver.

use core::net::Ipv4Addr;

use heapless::Deque;

use crate::table::Replier;
use crate::{Iface, Key};

/// Longest queue of events; then the oldest are dropped.
const WAITING: usize = 64;

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<A = Ipv4Addr> {
    /// LMS-HIER elected another replier for an entry, or the elected one costs something else.
    Elected {
        /// The entry.
        key: Key<A>,
        /// The new replier.
        replier: Option<Replier<A>>,
    },
    /// A request names a source of a shared tree that was not seen for a while. A driver that sees
    /// its datagrams to the group arrive on `parent` says so by
    /// [`Router::source_seen`](super::Router::source_seen); until then its repairs are dropped.
    SourceWanted {
        /// The source, and the group of the shared tree.
        key: Key<A>,
        /// Where its datagrams arrive.
        parent: Iface,
    },
}

/// The events that wait for [`Router::poll_event`](super::Router::poll_event).
#[derive(Clone, Debug)]
pub(super) struct Events<A> {
    waiting: Deque<Event<A>, WAITING>,
}

impl<A> Default for Events<A> {
    fn default() -> Self {
        Events {
            waiting: Deque::new(),
        }
    }
}

impl<A> Events<A> {
    /// Adds an event; returns `false` if the oldest was dropped.
    pub(super) fn push(&mut self, event: Event<A>) -> bool {
        let full = self.waiting.is_full();
        if full {
            self.waiting.pop_front();
        }
        // The queue has a free place.
        let _ = self.waiting.push_back(event);
        !full
    }

    pub(super) fn pop(&mut self) -> Option<Event<A>> {
        self.waiting.pop_front()
    }
}
