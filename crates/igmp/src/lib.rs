//! IGMPv3 (RFC 3376), MLDv2 (RFC 9777) and proxying of both (RFC 4605) for edge networks without a routing daemon, as
//! protocol machines: no sockets, no clock, no heap unless asked for (feature `alloc`).
//!
//! - [`Querier`]: the router's side on one interface;
//! - [`Member`]: the host's side on one interface;
//! - [`Proxy`]: a member upstream, queriers downstream, and the routes between them.
//!
//! The address type is their parameter: with `Ipv4Addr`, which is the default, they speak IGMP over IPv4, with `Ipv6Addr`
//! MLD over IPv6. The state tables of both protocols are the same; [`Family`] is what differs.
//!
//! # Interoperation
//!
//! Hosts of versions 1 and 2 are served. Queries of version 1 or 2 from another router are
//! refused and counted (`older_query`): RFC 3376 §7.3.1 requires that all routers of a link
//! are configured alike, and a version 3 querier understands every host. Queries from 0.0.0.0 (snooping
//! switches) take no part in the election of a querier. The Router Alert option is written and not required. A
//! Linux host of any version since 2.6 answers as §5 says; its own reports carry no auxiliary
//! data, those of an LMS endpoint are sent beside them.
//!
//! Of MLD, hosts of version 1 are served, which are counted and named as those of IGMPv2. Messages need hop limit 1,
//! Router Alert and a link-local source (RFC 9777 §5.1.14, §5.2.14, §6.2, §7.4); those from `::`, which hosts without an
//! address send, are refused. ff02::1 and groups of scopes 0 and 1 are never reported, and a querier keeps no state for
//! groups that stay on their link.
//!
//! Reports may carry the replier cost of LMS as auxiliary data ([`wire::Record::cost`]). The crate `lms-proto` reads
//! and writes it.
//!
//! # Driving a machine
//!
//! All three implement [`proto_core::Machine`]. Packets are whole IP packets.
//!
//! ```
//! use core::net::Ipv4Addr;
//! use igmp::{Config, Iface, Instant, InterfaceConfig, Member, Storage};
//!
//! let interface = InterfaceConfig::ipv4(Ipv4Addr::new(192, 0, 2, 7), 24);
//! let now = Instant::ZERO;
//! // Room for 8 groups and 64 sources.
//! let mut member = Member::new(Config::new(Iface(0), interface), Storage::owned(8, 64), [7; 32], now);
//! member.join(now, Ipv4Addr::new(239, 1, 2, 3)).unwrap();
//!
//! let mut buffer = [0; 1500];
//! let report = member.poll_transmit(now, &mut buffer).unwrap();
//! assert_eq!(buffer[16..20], [224, 0, 0, 22]); // to all routers that speak version 3
//! # let _ = report;
//! // Sleep until `poll_timeout`, or until a query arrives for `handle_packet`.
//! assert!(member.poll_timeout().is_some());
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

mod address;
mod config;
pub mod datagram;
mod family;
pub mod member;
mod proxy;
pub mod querier;
mod stats;
mod types;
pub mod wire;

pub use self::address::{Address, Numbered};
pub use self::config::{Config, MemberStorage, QuerierStorage, StaticStorage, Storage};
pub use self::family::{Family, ResponseCode};
pub use self::member::Member;
pub use self::proxy::{Proxy, ProxyEvent};
pub use self::querier::{Event, FilterMode, Querier, Role};
pub use self::stats::{DropReason, Drops, Stats};
pub use self::types::{Iface, InterfaceConfig, Key, LinkAddr, Meta, NextHop, Transmit};
pub use proto_core::time::{Duration, Instant};
