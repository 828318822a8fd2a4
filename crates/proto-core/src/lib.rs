//! What the protocol machines of polycast share.
//!
//! | module | contents |
//! | --- | --- |
//! | [`bucket`] | [`TokenBucket`] and its [`RateLimit`]: a rate and a burst |
//! | [`drops`] | [`drop_reasons!`]: why packets are dropped, and [`Drops`], how often |
//! | [`forward`] | [`Forward`], the contract between a forwarding path and its driver |
//! | [`time`] | [`Instant`](time::Instant) and [`Duration`](time::Duration), in microseconds |
//! | `clock` (feature `std`) | `Clock`, the clock that drivers run machines with |
//! | `frames` (feature `alloc`) | `Frames`: cuts a byte stream into length-prefixed frames |
//! | [`hash`] | [`HashKey`](hash::HashKey): keyed hashes for tables, and tags |
//! | [`key`] | the content of a key file: a secret of 32 bytes |
//! | [`machine`] | [`Machine`], the contract between a protocol machine and its driver |
//! | [`round_trip`] | [`RoundTrip`](round_trip::RoundTrip): round-trip times and timeouts of RFC 6298 |
//! | [`seq`] | [`Seq`], a sequence number that wraps |
//! | [`slab`] | [`Slab`](slab::Slab), a table of bounded size with keys and timers |
//! | [`tfrc`] | the throughput equation and the loss history of RFC 5348 and RFC 4654 |
//! | [`timer`] | [`Timers`](timer::Timers), a table of deadlines indexed by an enum |
//! | [`wire`](mod@wire) | [`Reader`](wire::Reader) and [`Writer`](wire::Writer) of fields, [`numbered!`] enums, [`errors!`] |
//!
//! Modules without a feature need neither `std` nor `alloc`. The feature `std` also adds conversions from the clock of
//! the standard library.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(feature = "alloc", test))]
extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod bucket;
#[cfg(feature = "std")]
pub mod clock;
pub mod drops;
pub mod forward;
#[cfg(any(feature = "alloc", test))]
pub mod frames;
pub mod hash;
pub mod key;
pub mod machine;
pub mod round_trip;
pub mod seq;
pub mod slab;
pub mod tfrc;
pub mod time;
pub mod timer;
pub mod wire;

pub use bucket::{RateLimit, TokenBucket};
pub use drops::{DropReason, Drops};
pub use forward::Forward;
pub use machine::Machine;
pub use seq::Seq;
