//! LMS, light-weight multicast services: routers that send a receiver's retransmission request to
//! a nearby replier, and its repair to just the part of the tree that needs it.
//!
//! Everything here is a sans-IO machine or a codec: no sockets, no clock, no threads, no heap
//! unless asked for (feature `alloc`), no unsafe code. A driver passes in packets and the time, and
//! sends the output.
//!
//! | module | contents | LMS |
//! | --- | --- | --- |
//! | [`router`] | LMS-FWD: the router machine | §6.4 |
//! | [`fast_path`] | the common case below the machine, as in XDP | §6.7.2 |
//! | [`rule`] | the forwarding rule, a pure function over one entry | §6.4.3 |
//! | [`table`] | the multicast forwarding entries with the state LMS adds | §6.4.1 |
//! | [`carrier`] | the interface to the carriers of the option | §6.2.1 |
//! | [`endpoint`] | LMS-API: a host's side | §6.3 |
//! | [`hier`] | LMS-HIER: neighbours, election, updates | §6.7.1 |
//! | [`wire`] | all formats, and LMS-ENCAP | §6.2.1, §6.3.2 |
//!
//! # A router
//!
//! ```
//! use core::net::Ipv4Addr;
//! use lms_proto::router::{Config, Router, Storage, Verdict};
//! use lms_proto::{Iface, Instant, InterfaceConfig, Key, Meta};
//!
//! // Up to 1,000 groups, interface numbers below 8. Without a heap: see `examples/forward.rs`.
//! let storage = Storage::with_capacity(1_000, 8);
//! let now = Instant::from_millis(0);
//! let mut router = Router::new(Config::default(), storage, [7; 32], now);
//!
//! let (up, down) = (Iface(0), Iface(1));
//! for iface in [up, down] {
//!     let address = Ipv4Addr::new(10, 0, iface.0 as u8, 1);
//!     router.set_interface(now, iface, InterfaceConfig::ipv4(address, 24))?;
//! }
//! let key = Key::new(Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(232, 1, 1, 1));
//! router.install(now, key, up, &[down])?;
//!
//! // For each packet captured: a whole IPv4 packet, edited where it lies.
//! let mut packet = [0u8; 64];
//! match router.forward(now, &Meta { iface: down, link_source: None }, &mut packet) {
//!     Verdict::Pass => {}                              // not for LMS
//!     Verdict::Drop(reason) => eprintln!("{}", reason.name()),
//!     Verdict::Forward { output, packet, second } => {} // send that range as `output` says
//!     Verdict::Multicast { iface, packet } => {}        // multicast that range on `iface`
//! }
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! [`router`] says in which order a driver calls the rest.
//!
//! # Units and bounds
//!
//! | what | unit | bound |
//! | --- | --- | --- |
//! | time | [`Instant`], [`Duration`]: microseconds | the driver's clock, never backwards |
//! | rate | packets a second and a burst, each group's own | [`router::Rate`] |
//! | groups | [`table::bytes_per_group`] bytes each | the storage |
//! | interfaces | numbers from 0, chosen by the driver | 65,534, and the storage |
//! | neighbours, offers | bytes in [`hier`] | the storage, [`hier::Config`] |
//! | events waiting | [`router::Event`] | 64, then the oldest are dropped and counted |
//! | one packet's work | | no walk over groups, interfaces or neighbours |
//!
//! # Features
//!
//! `alloc` adds storage on the heap ([`router::Storage::with_capacity`]), `std` (default) the
//! conversions between [`Instant`] and the standard library's clock. Neither changes anything
//! else.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod carrier;
pub mod endpoint;
mod family;
pub mod fast_path;
pub mod hier;
pub mod router;
pub mod rule;
pub mod table;
pub mod wire;

pub use family::{Family, Ip};
pub use igmp::{Address, Iface, InterfaceConfig, Key, LinkAddr, Meta, NextHop, Transmit};
pub use proto_core::time::{Duration, Instant};
pub use router::Router;
pub use wire::option::{Form, Kind, LmsOption, TurningPoint};
