//! Experiments of polycast in virtual time, and what all experiments share.
//!
//! A [`scenario::Scenario`] declares its options and runs to a [`report::Report`]: tables, checks against
//! targets, [`plot`]s. `lab` runs the scenarios of this crate beside its own, which need networks.
//!
//! | scenario | what |
//! | --- | --- |
//! | [`Campaign`] | thousands of sessions over networks drawn from seeds |
//! | [`Convergence`] | routes and trees of the federation when links break |
//! | [`Recovery`], [`DyramRecovery`] | recovery latency and load in large trees, protocol by protocol |
//! | [`demo`] | the demonstration of LMS where namespaces are not permitted |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod bars;
pub mod demo;
pub mod plot;
pub mod report;
pub mod scenario;
pub mod stats;

mod campaign;
mod convergence;
mod recovery;
mod simulated;

pub use campaign::Campaign;
pub use convergence::Convergence;
pub use recovery::{DyramRecovery, Recovery};
