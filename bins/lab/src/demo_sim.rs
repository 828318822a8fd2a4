//! The demo's story in the simulator, for machines that permit no namespaces.

use crate::report::Report;
use crate::scenario::Context;

/// Tells the demo's story in virtual time.
///
/// # Errors
/// When the simulation does not end as it should.
pub fn run(_context: &Context) -> anyhow::Result<Report> {
    anyhow::bail!("this build has no simulated demo")
}
