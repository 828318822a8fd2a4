//! Rings that Linux drains: what arrives, what can still be changed, and every way it ends.

mod any;
mod common;
#[cfg(feature = "tokio")]
mod futures;
mod shm;
mod tcp;
mod udp;
