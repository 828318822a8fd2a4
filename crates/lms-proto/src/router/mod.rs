//! The router machine.

mod config;
mod stats;
mod verdict;

pub use config::{Config, Policy, Rate};
pub use stats::{DropReason, Stats};
pub use verdict::{Meta, Output, SecondCopy, Verdict};
