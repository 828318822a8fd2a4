//! The kernel's multicast routes: follow those of another program with a [`Watcher`], or own
//! them with a [`Table`].
//!
//! Each version of IP has a table of its own: the type parameter of everything here, IPv4 unless it is given.
//! [`Watcher::open`] and [`Table::open`] are for IPv4, [`Watcher::open_for`] and [`Table::open_for`] for either.
//!
//! One program at a time owns multicast routing in a network namespace (pimd, smcroute, mrouted,
//! or us). A watcher never takes it; a table refuses to start where it is taken.

mod structures;
mod table;
mod watch;

use std::net::Ipv4Addr;

pub(crate) use structures::Structures;
pub use table::{Counters, Table, TableError, Upcall, UpcallKind};
pub use watch::{MrouteEvent, Watcher, WatcherConfig};

/// A multicast route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route<A = Ipv4Addr> {
    /// The source; 0.0.0.0 or :: for any, (*, G).
    pub source: A,
    /// The group.
    pub group: A,
    /// Interface that leads to the source, by index.
    pub input: u32,
    /// Interfaces it forwards to, by index.
    pub outputs: Vec<u32>,
}
