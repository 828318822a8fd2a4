//! Broadcast Federation (`broadcast-federation`): gateways, their networks, and who views what.

mod convergence;
mod federation;
mod frame_size;
mod islands;
mod load;
mod low_rate;
mod rounds;
mod sessions;
mod throughput;

pub(crate) use convergence::Convergence;
pub(crate) use frame_size::FrameSize;
pub(crate) use islands::Islands;
pub(crate) use low_rate::LowRate;
pub(crate) use sessions::Sessions;
pub(crate) use throughput::Throughput;
