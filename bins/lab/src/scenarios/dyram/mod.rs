//! DyRAM: trees of relays.

mod election;
mod forwarding;
mod relay_failure;
mod services;
pub(super) mod stage;
mod timed_relay;
mod tree;
mod upgrade;

pub(super) use election::Election;
pub(super) use forwarding::Forwarding;
pub(super) use relay_failure::RelayFailure;
pub(super) use services::Services;
pub(super) use tree::Tree;
pub(super) use upgrade::{upgrade_hosts, upgrade_tree};
