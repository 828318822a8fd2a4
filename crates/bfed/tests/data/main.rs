//! Data nodes: forwarding, queues, rates, control messages, hostile packets.

mod classes;
mod control;
mod fake;
mod forward;
mod fragments;
mod ingress;
mod init;
mod line;
mod links;
mod loss;
mod memory;
#[path = "../support/native.rs"]
pub mod native;
mod proof;
mod queues;
mod quic;
mod rates;
mod repair;
mod scale;
mod shortcut;
mod tfrc;
mod watch;
mod whole;
