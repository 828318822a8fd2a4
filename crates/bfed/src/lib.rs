//! Broadcast Federation.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod config;
pub mod control;
pub mod coordination;
mod error;
mod event;
pub mod name;
pub mod routing;
pub mod session;
mod tree;
mod types;
pub mod wire;

pub use config::{Assignment, Config, ConfigError, Costs, Limits, PeerConfig};
pub use control::ControlNode;
pub use coordination::{Coordinator, InMemory};
pub use error::{Drops, Error, Stats};
pub use event::{ClientId, Event, Scope, Sroutes, Transmit};
pub use name::{NameError, Owner, SessionName};
pub use smoltcp::time::{Duration, Instant};
pub use types::*;
