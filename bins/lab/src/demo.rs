//! The demo.

use crate::report::Report;
use crate::scenario::Context;

/// Runs the demo in namespaces.
///
/// # Errors
/// When a program fails; the message says which and why.
pub fn run(context: &Context) -> anyhow::Result<Report> {
    crate::demo_sim::run(context)
}
