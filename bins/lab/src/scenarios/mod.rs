//! The registry of scenarios.

mod adapt;
mod bfed;
mod campaign;
mod dyram;
mod forwarding;
mod ldc;
mod links;
mod lms_scenarios;
mod overhead;
mod recovery;
mod replier_failure;
mod soak;
mod stage;
mod tcpxm;
mod testbed;
mod throughput;
mod tree;

use crate::scenario::Scenario;

/// Every scenario, in the order of `lab list`.
pub fn all() -> &'static [&'static dyn Scenario] {
    &[
        &adapt::Adapt,
        &bfed::ControlFailover,
        &bfed::Convergence,
        &bfed::FrameSize,
        &bfed::Islands,
        &bfed::LowRate,
        &bfed::NodeCrash,
        &bfed::Policy,
        &bfed::Reroute,
        &bfed::Sessions,
        &bfed::Throughput,
        &campaign::Campaign,
        &dyram::Election,
        &dyram::Forwarding,
        &recovery::DyramRecovery,
        &dyram::RelayFailure,
        &dyram::Services,
        &dyram::Tree,
        &forwarding::ForwardingCost,
        &ldc::Latency,
        &ldc::Layers,
        &ldc::Misuse,
        &ldc::Modify,
        &ldc::Notify,
        &ldc::Throughput,
        &links::Links,
        &lms_scenarios::LmsScenarios,
        &overhead::Overhead,
        &recovery::Recovery,
        &replier_failure::ReplierFailure,
        &soak::Soak,
        &tcpxm::Bottleneck,
        &tcpxm::Fallback,
        &tcpxm::Flows,
        &tcpxm::JoinLatency,
        &tcpxm::KernelInterop,
        &tcpxm::Lan,
        &tcpxm::Peers,
        &tcpxm::Straggler,
        &tcpxm::Versus,
        &tcpxm::Wan,
        &throughput::Throughput,
        &tree::Tree,
    ]
}

/// The scenario of that name.
pub fn find(name: &str) -> Option<&'static dyn Scenario> {
    all()
        .iter()
        .copied()
        .find(|scenario| scenario.name() == name)
}
