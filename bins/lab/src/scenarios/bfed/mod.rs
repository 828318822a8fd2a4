//! Broadcast Federation (`docs/papers.md`): gateways, their networks and their viewers.

pub(crate) mod demo;
mod failover;
mod fanout;
mod federation;
mod frame_size;
mod islands;
mod live;
mod load;
mod low_rate;
mod moq;
mod node_crash;
mod policy;
mod reroute;
mod rounds;
mod sessions;
mod steady;
mod throughput;
mod under_way;
mod upgrade;

pub(crate) use failover::ControlFailover;
pub(crate) use fanout::MoqFanout;
pub(crate) use frame_size::FrameSize;
pub(crate) use islands::Islands;
pub(crate) use live::Live;
pub(crate) use low_rate::LowRate;
pub(crate) use node_crash::NodeCrash;
pub(crate) use policy::Policy;
pub(crate) use reroute::Reroute;
pub(crate) use sessions::Sessions;
pub(super) use steady::Steady;
pub(crate) use throughput::Throughput;
pub(super) use upgrade::{upgrade_clients, upgrade_cluster, upgrade_peers};
