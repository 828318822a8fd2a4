//! Code that the scenarios with loaded data nodes share.

use super::load::Stage;
use crate::prelude::*;

/// The stage of a scenario with the option `share`, in percent of a core.
pub(super) fn prepare(share: f64, report: &mut Report) -> Result<Stage> {
    let (stage, why) = Stage::build(share / 100.0)?;
    match why {
        None => report.note(format!(
            "each forwarder is held to {share} % of a core by a control group"
        )),
        Some(why) => report.note(format!(
            "forwarders are held to nothing: {why}; throughput is then the machine's, not theirs, and \
             work for each byte is compared"
        )),
    }
    Ok(stage)
}
