//! Exploration of small worlds: all orders of delivery, loss, duplication and timeouts.
//!
//! A simulation shows one run for each seed. [`explore`] visits every state that a small world of real machines can reach,
//! and either reports how many there are or returns the shortest run that breaks a property.
//!
//! A world of packets implements [`Nodes`]: its machines, what connects them, and its properties. [`Network`] makes it a
//! [`World`] by the packets in flight and the [`Faults`]. What has no packets (threads around a ring) implements [`World`]
//! itself.
//!
//! | property | where it stands | when it is checked |
//! | --- | --- | --- |
//! | nothing bad happens | [`Nodes::check`] | in every state |
//! | something good happens in the end | [`Nodes::check_end`] | where no packet or timer is left, and where a bound cuts the search; after a run from there without faults |
//! | no machine panics | | in every action |
//! | each run ends | [`Nodes::has_ended`], [`Faults::settle`] | at the end; and no run may come back to a state that it was in |
//!
//! ```
//! use std::convert::Infallible;
//!
//! use netsim::explore::{self, Bounds, Faults, Fingerprint, Network, Nodes, Outbox, START};
//! use netsim::{Duration, Instant};
//!
//! /// Node 0 sends a number to node 1 until that is acknowledged.
//! #[derive(Debug)]
//! struct Pair {
//!     retry_at: Option<Instant>,
//!     received: Vec<u8>,
//! }
//!
//! impl Nodes for Pair {
//!     type Packet = u8;
//!     type Command = Infallible;
//!
//!     fn count(&self) -> usize {
//!         2
//!     }
//!     fn handle_packet(&mut self, _: Instant, node: usize, packet: &u8, out: &mut Outbox<u8>) {
//!         if node == 0 {
//!             self.retry_at = None;
//!             return;
//!         }
//!         // Not again: the packet may be a copy.
//!         if self.received.is_empty() {
//!             self.received.push(*packet);
//!         }
//!         out.send(0, *packet);
//!     }
//!     fn handle_timeout(&mut self, now: Instant, node: usize, out: &mut Outbox<u8>) {
//!         if node == 0 && self.retry_at.is_some_and(|at| at <= now) {
//!             self.retry_at = Some(now + Duration::from_secs(1));
//!             out.send(1, 7);
//!         }
//!     }
//!     fn poll_timeout(&self, node: usize) -> Option<Instant> {
//!         self.retry_at.filter(|_| node == 0)
//!     }
//!     fn fingerprint(&self, fingerprint: &mut Fingerprint) {
//!         fingerprint.debug(self);
//!     }
//!     fn check(&self, _: Instant) -> Result<(), String> {
//!         let is_twice = self.received.len() > 1;
//!         if is_twice { Err("delivered twice".into()) } else { Ok(()) }
//!     }
//!     fn has_ended(&self) -> bool {
//!         self.retry_at.is_none()
//!     }
//!     fn check_end(&mut self, _: Instant) -> Result<(), String> {
//!         let is_there = self.has_ended() && self.received == [7];
//!         if is_there { Ok(()) } else { Err("not delivered".into()) }
//!     }
//! }
//!
//! let faults = Faults {
//!     losses: 2,
//!     duplicates: 1,
//!     max_delay: Duration::from_secs(2),
//!     max_lateness: Duration::ZERO,
//!     horizon: Duration::from_secs(5),
//!     settle: Duration::from_secs(60),
//! };
//! let pair = || Pair { retry_at: Some(START), received: Vec::new() };
//! let report = explore::explore(|| Network::new(pair(), faults), Bounds::default()).unwrap();
//! assert!(report.is_complete);
//! ```
//!
//! # How to keep a world small
//!
//! The number of states doubles with each packet that is in flight at one time, and multiplies with each fault. Small
//! `max_delay` and `horizon` bound it, and so do machines with small tables and no packets to nodes that ignore them.
//! [`Fingerprint`] says what a machine's `Debug` has to show.
//!
//! A counterexample names its choices: [`replay`] returns the world as it is after them.

mod fingerprint;
mod network;
mod search;

pub use self::fingerprint::Fingerprint;
pub use self::network::{Action, Faults, Network, Nodes, Outbox, START};
pub use self::search::{Bounds, Counterexample, Report, explore, replay};

/// A world whose runs are explored.
///
/// It is deterministic: equal actions lead from equal states to equal states. It need not be `Clone`; a state is reached
/// again by its actions.
pub trait World {
    /// One step.
    type Action;

    /// Adds the actions that are possible in the present state.
    fn actions(&self, actions: &mut Vec<Self::Action>);

    /// Whether a run may end in the present state although there are actions: none of them has to come.
    fn may_end(&self) -> bool;

    /// Executes one of these actions.
    fn apply(&mut self, action: &Self::Action);

    /// Describes one of these actions before it is executed.
    fn describe(&self, action: &Self::Action) -> String;

    /// Adds the whole state.
    fn fingerprint(&self, fingerprint: &mut Fingerprint);

    /// Checks what holds in every state.
    ///
    /// # Errors
    ///
    /// What is wrong.
    fn check(&self) -> Result<(), String>;

    /// Runs from the present state without faults until nothing more happens, and checks what holds then. The world is
    /// not used again.
    ///
    /// # Errors
    ///
    /// What is wrong.
    fn finish(&mut self, trace: &mut Trace) -> Result<(), String>;
}

/// The actions of [`World::finish`] in words, where these are wanted.
#[derive(Debug, Default)]
pub struct Trace {
    lines: Option<Vec<String>>,
}

impl Trace {
    fn recording() -> Self {
        let lines = Some(Vec::new());
        Trace { lines }
    }

    /// Notes an action.
    pub fn note(&mut self, describe: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(describe());
        }
    }

    fn lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
