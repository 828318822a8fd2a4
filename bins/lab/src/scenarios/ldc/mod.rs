//! Late data choice (LDC, `docs/papers.md`): chapter 5 again, and experiments that it left out.

pub(crate) mod demo;
mod lanes;
mod latency;
mod layers;
mod loopback;
mod misuse;
mod modify;
mod notify;
mod throughput;
mod traces;

pub(crate) use latency::Latency;
pub(crate) use layers::Layers;
pub(crate) use misuse::Misuse;
pub(crate) use modify::Modify;
pub(crate) use notify::Notify;
pub(crate) use throughput::Throughput;
