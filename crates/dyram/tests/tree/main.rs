//! Whole trees in virtual time: a source, relays, receivers; losses, deaths, circles.

mod nodes;
mod recovery;
mod session;
