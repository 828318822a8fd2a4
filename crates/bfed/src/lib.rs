//! Broadcast Federation.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod name;
pub mod types;
pub mod wire;

pub use name::{NameError, Owner, SessionName};
pub use smoltcp::time::{Duration, Instant};
pub use types::*;
