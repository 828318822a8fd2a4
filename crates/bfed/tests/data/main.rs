//! Data nodes: forwarding, queues, rates, control messages, hostile packets.

mod fake;
mod forward;
mod fragments;
mod links;
mod memory;
#[path = "../support/native.rs"]
pub mod native;
mod proof;
mod rates;
mod scale;
mod shortcut;
mod watch;
mod whole;
