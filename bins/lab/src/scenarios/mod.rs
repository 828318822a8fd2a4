//! The registry of scenarios.

mod adapt;
mod beside;
pub(crate) mod bfed;
mod dyram;
mod forwarding;
pub(crate) mod ldc;
mod links;
mod lms_scenarios;
mod overhead;
mod paths;
mod replier_failure;
mod soak;
mod stage;
mod tcpxm;
mod testbed;
mod throughput;
mod tree;
mod upgrade;

use sims::scenario::Entry;

/// Every scenario, in the order of `lab list`.
const ALL: &[Entry] = &[
    Entry::of::<adapt::Adapt>(),
    Entry::of::<beside::Beside>(),
    Entry::of::<bfed::ControlFailover>(),
    Entry::of::<sims::Convergence>(),
    Entry::of::<bfed::FrameSize>(),
    Entry::of::<bfed::Islands>(),
    Entry::of::<bfed::LowRate>(),
    Entry::of::<bfed::NodeCrash>(),
    Entry::of::<bfed::Policy>(),
    Entry::of::<bfed::Reroute>(),
    Entry::of::<bfed::Sessions>(),
    Entry::of::<bfed::Throughput>(),
    Entry::of::<sims::Campaign>(),
    Entry::of::<dyram::Election>(),
    Entry::of::<dyram::Forwarding>(),
    Entry::of::<sims::DyramRecovery>(),
    Entry::of::<dyram::RelayFailure>(),
    Entry::of::<dyram::Services>(),
    Entry::of::<dyram::Tree>(),
    Entry::of::<forwarding::ForwardingCost>(),
    Entry::of::<ldc::Latency>(),
    Entry::of::<ldc::Layers>(),
    Entry::of::<ldc::Misuse>(),
    Entry::of::<ldc::Modify>(),
    Entry::of::<ldc::Notify>(),
    Entry::of::<ldc::Throughput>(),
    Entry::of::<links::Links>(),
    Entry::of::<bfed::Live>(),
    Entry::of::<lms_scenarios::LmsScenarios>(),
    Entry::of::<overhead::Overhead>(),
    Entry::of::<tcpxm::Overlay>(),
    Entry::of::<bfed::MoqFanout>(),
    Entry::of::<paths::Paths>(),
    Entry::of::<sims::Recovery>(),
    Entry::of::<replier_failure::ReplierFailure>(),
    Entry::of::<soak::Soak>(),
    Entry::of::<tcpxm::Bottleneck>(),
    Entry::of::<tcpxm::Fallback>(),
    Entry::of::<tcpxm::Flows>(),
    Entry::of::<tcpxm::JoinLatency>(),
    Entry::of::<tcpxm::KernelInterop>(),
    Entry::of::<tcpxm::Lan>(),
    Entry::of::<tcpxm::Peers>(),
    Entry::of::<tcpxm::Straggler>(),
    Entry::of::<tcpxm::Versus>(),
    Entry::of::<tcpxm::Wan>(),
    Entry::of::<throughput::Throughput>(),
    Entry::of::<tree::Tree>(),
    Entry::of::<upgrade::Upgrade>(),
];

/// Every scenario, in the order of `lab list`.
pub(crate) fn all() -> &'static [Entry] {
    ALL
}

/// The scenario of that name.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    all().iter().find(|scenario| scenario.name == name)
}
