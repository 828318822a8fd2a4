//! Broadcast Federation (`broadcast-federation`): gateways, their networks, and who views what.

mod convergence;
mod federation;
mod islands;

pub(crate) use convergence::Convergence;
pub(crate) use islands::Islands;
