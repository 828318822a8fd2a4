//! The programs as a user runs them: real sockets, the loopback interface.
#![allow(missing_docs, unreachable_pub)]

#[path = "../../../cli/tests/unwritable/mod.rs"]
mod broken_output;
mod common;
mod congestion;
mod ends;
mod ipv6;
mod network;
mod parity;
mod receivers;
mod relays;
mod routers;
mod shared_link;
mod transfer;
mod unwritable;
