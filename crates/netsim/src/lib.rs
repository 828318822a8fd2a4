//! A deterministic network simulator for sans-IO machines.
//!
//! Nodes exchange packets over links in virtual time. All randomness comes from one 32-byte seed, and each link and
//! direction has a generator of its own: the same seed gives the same run, packet for packet, and another link does
//! not change the random numbers of the others.
//!
//! ```
//! use netsim::{Io, LinkConfig, Node, Port, Sim};
//! use proto_core::time::{Duration, Instant};
//!
//! /// Sends one packet at the start and counts the replies.
//! struct Ping { start: Option<Instant>, pongs: u32 }
//! struct Echo;
//!
//! impl Node for Ping {
//!     fn handle_packet(&mut self, _now: Instant, _port: Port, _packet: &[u8], _io: &mut Io<'_>) {
//!         self.pongs += 1;
//!     }
//!     fn handle_timeout(&mut self, _now: Instant, io: &mut Io<'_>) {
//!         self.start = None;
//!         io.send(Port(0), b"ping");
//!     }
//!     fn poll_timeout(&self) -> Option<Instant> {
//!         self.start
//!     }
//! }
//! impl Node for Echo {
//!     fn handle_packet(&mut self, _now: Instant, port: Port, _packet: &[u8], io: &mut Io<'_>) {
//!         io.forward(port); // the same bytes, no copy
//!     }
//! }
//!
//! let mut sim: Sim = Sim::new([7; 32]);
//! let ping = sim.add_node(Box::new(Ping { start: Some(Instant::ZERO), pongs: 0 }));
//! let echo = sim.add_node(Box::new(Echo));
//! sim.add_link(ping, echo, LinkConfig::new().delay(Duration::from_millis(5)));
//! sim.run_until(Instant::from_secs(1));
//! assert_eq!(sim.get::<Ping>(ping).pongs, 1);
//! ```
//!
//! # Running a machine as a node
//!
//! Wrap it, and let [`Node::handle_packet`] call the machine's `handle_packet`, then drain its
//! `poll_transmit` into [`Io::send`] and its `poll_event` into the test; [`Node::handle_timeout`]
//! does the same after the machine's `handle_timeout`; [`Node::poll_timeout`] is the machine's.
//! The simulator asks for the next timeout after every call and keeps at most one live timer a
//! node in its queue. [`Sim::with_node`] runs commands on a machine at the present instant.
//!
//! # Module layout
//!
//! | feature | type |
//! | --- | --- |
//! | nodes of one type, or boxed nodes of any type | [`Sim<N>`], [`Sim<Box<dyn Node>>`](Sim) |
//! | rate, delay, jitter, queue, MTU, loss, reordering, duplication, corruption of a link | [`LinkConfig`] |
//! | losses decided by a test | [`Sim::script`] |
//! | failure and recovery of links and nodes at set times | [`Sim::fail_link`], [`Sim::fail_node`] ... |
//! | random or given distribution trees, with addresses and routes | [`tree::Tree`] |
//! | a shared segment; IPv4 and UDP headers | [`Hub`], [`ip`] |
//! | streams that open, close and break | [`streams`] |
//! | the rules for every machine | [`conformance`] |
//! | all runs of a small world | [`explore`](mod@explore) |
//! | captures for Wireshark; a digest of a whole run | [`Sim::capture`], [`Sim::trace_hash`] |
//!
//! # Units and limits
//!
//! Virtual time is stored in nanoseconds and shown to nodes as [`Instant`], with a resolution of one microsecond; a
//! timer never fires early. Payload bytes are stored once, however many copies of a packet are in flight. A node
//! takes at most 128 bytes besides itself, a link 320 bytes (600 with a rate or other limits), an event in flight
//! 64; `tests/memory.rs` checks these numbers.
#![forbid(unsafe_code)]

pub mod conformance;
mod core;
pub mod explore;
pub mod ip;
mod link;
mod node;
mod packet;
mod pcap;
mod queue;
mod rng;
mod script;
mod sim;
pub mod streams;
mod trace;
pub mod tree;

pub use link::{LinkConfig, LinkStats, Loss, QueueLimit, Reorder};
pub use node::{Hub, Io, LinkId, Node, NodeId, Port};
pub use proto_core::Machine;
pub use proto_core::time::{Duration, Instant};
pub use rng::{Rng, derive_seed};
pub use script::Disposition;
pub use sim::{Sim, SimStats};
pub use trace::{Direction, Filter, Record};
