//! Whole trees in virtual time: a source, relays, receivers; losses, failures, loops.

mod nodes;
mod recovery;
mod session;
