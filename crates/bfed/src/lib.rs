//! Broadcast Federation (Mukund Seshadri: "A Scalable Architecture for Broadcast Federation", University of
//! California at Berkeley): delivers a session of one broadcast network to receivers in other networks.
//!
//! A viewer in one network receives a session of another, whatever kind of multicast each of them uses. Each
//! network has gateways. A gateway is one [`ControlNode`], which knows its peers, routes and trees and never
//! carries data, and any number of [`DataNode`]s, which carry it. A [`NativeNet`] implements the network's own
//! broadcast. All three are plain state machines without sockets, clocks, threads or entropy of their own.
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
//!             gateways[other].handle_packet(now, &transmit.conn, &buffer[..transmit.len]).unwrap();
//!         }
//!     }
//!     now += Duration::from_millis(10);
//!     gateways.iter_mut().for_each(|gateway| gateway.handle_timeout(now));
//! }
//! let route = gateways[0].routes().next().unwrap();
//! assert_eq!((route.destination, route.route.path[..].to_vec()), (ids[1], vec![ids[1]]));
//! ```
//!
//! # Driving the machines
//!
//! | machine | driving loop | input |
//! | --- | --- | --- |
//! | [`ControlNode`] | [`control`] | streams to peers and data nodes, split by [`wire::Frames`] |
//! | [`DataNode`] and its [`data::Plane`] | [`data`] | a stream to the control node; UDP, TCP and native channels |
//! | [`NativeNet`], owned by the data node | [`native`] | packets of the native network |
//!
//! One process may run all three and pass messages between them in memory; a missing heartbeat then means that the
//! process hangs.
//!
//! # Module layout
//!
//! | module | contents |
//! | --- | --- |
//! | [`name`] | names of sessions: normal form, parameters, limits |
//! | [`wire`] | messages and data packets |
//! | [`session`] | a peering: its states, and the choice between two streams |
//! | [`routing`] | path vector, [decision](routing::decision), [export](routing::export), [policies](routing::policy), [damping](routing::damping) |
//! | [`control`] | the control node: trees, SROUTE discovery, clients, the cluster |
//! | [`coordination`] | assignment of sessions to data nodes: [`Coordinator`] |
//! | [`data`] | the data node: flow labels, forwarding, queues, [congestion control](data::tfrc) |
//! | [`native`] | the native network interface (Figure 8) as a trait |
//!
//! # Units and limits
//!
//! | item | limit | at the limit |
//! | --- | --- | --- |
//! | message | 16 KiB | the stream ends |
//! | session name | 1 KiB | an error |
//! | peers, data nodes | [`Limits`] | refused |
//! | routes | [`PeerConfig::max_routes`] for each peer and table, each at most 1 KiB for each peer that is sent it | the session with the peer ends, and its streams are refused for a while |
//! | sessions at a control node | [`Limits::max_sessions`], each a name and 2 KiB, and 1 KiB for each downstream peer | NO_ROUTE |
//! | messages that wait for a peer | [`Limits::max_queue`]; a changed route waits once | the session with the peer ends |
//! | sessions at a data node | [`DataConfig::max_sessions`], each at most 6 KiB without queues | another node, or NO_ROUTE |
//! | bytes that wait for one receiver | [`data::PlaneConfig::max_queue_bytes`] | the oldest frame is dropped, or the source is paused |
//! | authorisation rules | [`authorise::MAX_RULES`], each compared with one request in turn | the configuration is wrong |
//! | work of one call | one tree, or the routes in a message; at most 64 other trees | `poll_timeout` asks for another call |
//!
//! # Security model
//!
//! The driver authenticates peers. A peer that sends malformed messages loses its session, and both sides know why;
//! it cannot change another peer's state. It may lie about its routes: policies and limits bound the effect, as in
//! BGP. A data packet is accepted only from the address and with the random label that the control nodes agreed on.
//! Nothing is sent to an address that the control node did not name.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod authorise;
pub mod config;
pub mod control;
pub mod coordination;
pub mod data;
mod delay;
mod error;
mod event;
mod expiring;
pub mod name;
pub mod native;
mod prefix;
pub mod routing;
pub mod session;
mod slots;
mod tree;
mod types;
pub mod wire;

pub use config::{Assignment, Config, ConfigError, Costs, Limits, NetworkRange, PeerConfig};
pub use control::ControlNode;
pub use coordination::{Coordinator, InMemory};
pub use data::{DataConfig, DataNode};
pub use delay::LinkDelay;
pub use error::{Drops, Error, Stats};
pub use event::{ClientId, ClientRequest, Event, Scope, Sroutes, Transmit};
pub use name::{NameError, Owner, SessionName};
pub use native::NativeNet;
pub use prefix::{Prefix, PrefixError};
pub use proto_core::time::{Duration, Instant};
pub use types::*;
