//! LMS, light-weight multicast services: the router's and the endpoint's half.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod carrier;
pub mod endpoint;
pub mod hier;
pub mod igmp;
pub mod router;
pub mod rule;
pub mod table;
mod types;
pub mod wire;

pub use router::{Meta, Router};
pub use smoltcp::time::{Duration, Instant};
pub use types::{Iface, InterfaceConfig, Key, LinkAddr, NextHop, Transmit};
pub use wire::option::{Form, Kind, LmsOption, TurningPoint};
