//! DyRAM: trees of relays.

mod desk;
mod election;
mod forwarding;
mod relay_failure;
mod services;
mod stage;
mod tree;

pub(super) use election::Election;
pub(super) use forwarding::Forwarding;
pub(super) use relay_failure::RelayFailure;
pub(super) use services::Services;
pub(super) use tree::Tree;
