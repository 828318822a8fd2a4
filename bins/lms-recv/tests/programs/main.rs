//! The programs as a user runs them: real sockets, the loopback interface.
#![allow(missing_docs, unreachable_pub)]

mod common;
mod relays;
mod transfer;
