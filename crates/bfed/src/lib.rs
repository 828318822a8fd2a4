//! Broadcast Federation: islands of broadcast joined into one (Seshadri: "A Scalable Architecture for
//! Broadcast Federation", UC Berkeley).
//!
//! A viewer in one network gets a session that lives in another, whatever multicast each of them
//! speaks. Each network has gateways; a gateway is one [`ControlNode`], which knows its peers, routes
//! and trees and never carries data, and any number of [`DataNode`]s, which carry it. A [`NativeNet`]
//! speaks the network's own broadcast. All three are plain state machines: no socket, clock, thread
//! or entropy of their own.
//!
//! ```
//! use bfed::{Config, ControlNode, ConnId, Duration, Event, GatewayId, Instant, PeerConfig, PeerId};
//!
//! // Two gateways of two networks, a stream between them.
//! let ids = [GatewayId::new(1, 1).unwrap(), GatewayId::new(2, 1).unwrap()];
//! let mut now = Instant::ZERO;
//! let mut gateways = ids.map(|id| ControlNode::new(Config::new(id), [id.network.get() as u8; 32], now).unwrap());
//! for (own, other) in [(0, 1), (1, 0)] {
//!     gateways[own].add_peer(now, PeerId(7), PeerConfig::new(ids[other])).unwrap();
//!     gateways[own].connected(now, ConnId(1), PeerId(7), own == 0);
//! }
//! let mut buffer = [0; bfed::wire::MAX_MESSAGE_LEN];
//! while gateways[0].routes().count() == 0 {
//!     for (own, other) in [(0, 1), (1, 0)] {
//!         while let Some(event) = gateways[own].poll_event() {
//!             println!("{own}: {event:?}");
//!         }
//!         while let Some(transmit) = gateways[own].poll_transmit(now, &mut buffer) {
//!             gateways[other].handle_packet(now, transmit.conn, &buffer[..transmit.len]).unwrap();
//!         }
//!     }
//!     now += Duration::from_millis(10);
//!     gateways.iter_mut().for_each(|gateway| gateway.handle_timeout(now));
//! }
//! let route = gateways[0].routes().next().unwrap();
//! assert_eq!((route.destination, route.route.path[..].to_vec()), (ids[1], vec![ids[1]]));
//! ```
//!
//! # How to drive it
//!
//! | machine | the loop stands in | bytes come from |
//! | --- | --- | --- |
//! | [`ControlNode`] | [`control`] | streams to peers and data nodes, cut by [`wire::Frames`] |
//! | [`DataNode`] and its [`data::Plane`] | [`data`] | a stream to the control node; UDP, TCP and native channels |
//! | [`NativeNet`] | [`native`] | whatever the network speaks |
//!
//! One process may run all three and pass messages between them in memory; then a heartbeat that is
//! missing means that the process is.
//!
//! # Rooms
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`name`] | names of sessions: normal form, parameters, limits |
//! | [`wire`] | messages and data packets |
//! | [`session`] | a peering: its states, and which of two streams is kept |
//! | [`routing`] | path vector, [decision](routing::decision), [export](routing::export), [policies](routing::policy), [damping](routing::damping) |
//! | [`control`] | the control node: trees, SROUTE discovery, clients, the cluster |
//! | [`coordination`] | who carries which session: [`Coordinator`] |
//! | [`data`] | the data node: flow labels, forwarding, queues, [congestion control](data::tfrc) |
//! | [`native`] | Figure 8 as a trait |
//!
//! # Bounds
//!
//! | what | bound | at the bound |
//! | --- | --- | --- |
//! | a message | 16 KiB | the stream is ended |
//! | a name | 1 KiB | an error |
//! | peers, data nodes | [`Limits`] | refused |
//! | routes | [`PeerConfig::max_routes`] a peer and table, each at most 1 KiB for each peer that knows it | the peering rests |
//! | sessions at a control node | [`Limits::max_sessions`], a name and 2 KiB each, and 1 KiB for each peer below | NO_ROUTE |
//! | what waits for a peer | [`Limits::max_queue`] messages; routes are told as late as can be, once | the peering ends |
//! | sessions at a data node | [`DataConfig::max_sessions`], at most 6 KiB each beside queues | another node, or NO_ROUTE |
//! | what waits for one receiver | [`data::PlaneConfig::max_queue_bytes`] | oldest dropped, or the source paused |
//! | work | a message touches one tree, or the routes that it names; what follows for other trees is done 64 at a time | `poll_timeout` asks for more |
//!
//! # Trust
//!
//! Peers are authenticated by the driver. A peer that sends nonsense loses its session, and both
//! sides know why; it cannot touch another's. It may lie about its routes: policies and limits are
//! the answer, as in BGP. A data packet counts only from the address, and with the random label, that
//! control agreed on. Nothing is sent to an address that control did not name.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod config;
pub mod control;
pub mod coordination;
pub mod data;
mod error;
mod event;
pub mod name;
pub mod native;
mod prefix;
pub mod routing;
pub mod session;
mod tree;
mod types;
pub mod wire;

pub use config::{Assignment, Config, ConfigError, Costs, Limits, PeerConfig};
pub use control::ControlNode;
pub use coordination::{Coordinator, InMemory};
pub use data::{DataConfig, DataNode};
pub use error::{Drops, Error, Stats};
pub use event::{ClientId, Event, Scope, Sroutes, Transmit};
pub use name::{NameError, Owner, SessionName};
pub use native::NativeNet;
pub use prefix::{Prefix, PrefixError};
pub use proto_core::time::{Duration, Instant};
pub use types::*;
