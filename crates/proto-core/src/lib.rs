//! What the protocol machines of polycast share.
//!
//! | module | contents |
//! | --- | --- |
//! | [`bucket`] | [`TokenBucket`] and its [`RateLimit`]: a rate and a burst |
//! | [`drops`] | [`drop_reasons!`]: why packets are dropped, and [`Drops`], how often |
//! | [`time`] | [`Instant`](time::Instant) and [`Duration`](time::Duration), in microseconds |
//! | [`machine`] | [`Machine`], the contract between a protocol machine and its driver |
//!
//! Everything works without `std` and without `alloc`. The feature `std` adds conversions from the clock of
//! the standard library.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(feature = "std", test))]
extern crate std;

pub mod bucket;
pub mod drops;
pub mod machine;
pub mod time;

pub use bucket::{RateLimit, TokenBucket};
pub use drops::{DropReason, Drops};
pub use machine::Machine;
