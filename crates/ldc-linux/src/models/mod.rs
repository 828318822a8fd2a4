//! Models of the two ends of a ring for loom.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ldc-linux --release --lib models`
//!
//! All code of the ends and of the ring runs in them. The memory ([`crate::memory`]) and the socket of the wake-ups
//! ([`crate::wake`]) are the models'.

#[cfg(test)]
mod tests;
