//! IGMPv3 (RFC 3376) and IGMP proxying (RFC 4605), for edge networks with no routing daemon; the
//! replier cost in reports is read by [`hier`](crate::hier) and written by
//! [`endpoint`](crate::endpoint).
//!
//! - [`Querier`]: the router's half on one interface;
//! - [`Member`]: the host's half on one interface;
//! - [`Proxy`]: a member upstream, queriers downstream, and which packets go where between them.
//!
//! # Interoperation
//!
//! Hosts of versions 1 and 2 are served. Queries of version 1 or 2 from another router are
//! refused and counted (`older_query`): RFC 3376 §7.3.1 wants all routers of a link configured
//! alike, and a version 3 querier understands every host. Queries from 0.0.0.0 (snooping
//! switches) answer nobody's election. The Router Alert option is written and not demanded. A
//! Linux host of any version since 2.6 answers as §5 says; its own reports carry no auxiliary
//! data, those of an LMS endpoint are sent beside them.

mod config;
pub mod datagram;
pub mod member;
mod proxy;
pub mod querier;
mod stats;

pub use self::config::{Config, MemberStorage, QuerierStorage, StaticStorage, Storage};
pub use self::member::Member;
pub use self::proxy::{Proxy, ProxyEvent};
pub use self::querier::{Event, FilterMode, Querier, Role};
pub use self::stats::{DropReason, Drops, Stats};
