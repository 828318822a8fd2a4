//! The kernel's multicast routes: follow those of another program with a [`Watcher`], or own
//! them with a [`Table`].
//!
//! One program at a time owns multicast routing in a network namespace (pimd, smcroute, mrouted,
//! or us). A watcher never takes it; a table refuses to start where it is taken.

mod table;
mod watch;

use std::net::Ipv4Addr;

pub use table::{Counters, Table, TableError, Upcall, UpcallKind};
pub use watch::{MrouteEvent, Watcher, WatcherConfig};

/// A multicast route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The source; 0.0.0.0 for any, (*, G).
    pub source: Ipv4Addr,
    /// The group.
    pub group: Ipv4Addr,
    /// Interface that leads to the source, by index.
    pub input: u32,
    /// Interfaces it forwards to, by index.
    pub outputs: Vec<u32>,
}
