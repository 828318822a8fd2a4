//! Client and server: together, against the contract of all machines, and against hostile peers.

mod common;
mod conformance;
mod hostile;
mod islands;
mod relay;
mod session;
mod versions;
