//! Models of an endpoint's threads for loom: its own, which drives, and those that use its handles.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tcpxm-tokio --release --lib models`
//!
//! All code of the crate runs in them, but for the sockets ([`crate::sockets`]). Time stands still and no wait times out
//! ([`sync`]), so that a wake-up that is lost ends a model as a deadlock.

pub(crate) mod sync;
#[cfg(test)]
mod tests;
