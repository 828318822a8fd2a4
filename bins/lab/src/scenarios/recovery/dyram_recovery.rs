//! `dyram-recovery`: DyRAM in the trees of `lms-recovery`, beside LMS and beside nobody's help.

use anyhow::Result;

use super::relays::Detection;
use super::{Protocol, measure, summary};
use crate::report::{Bound, Report};
use crate::scenario::{Context, Opt, Scenario};

/// From so many receivers on DyRAM is held against the latency of a source that repairs everything
/// itself. In smaller groups that one is the quicker one, as was seen at 100 and 200 before this bound was
/// set: DyRAM waits for the delay to decide, and then for a receiver at the other end of the tree.
const IMPLOSION: u32 = 1_000;

/// The scenario.
pub(crate) struct DyramRecovery;

impl Scenario for DyramRecovery {
    fn name(&self) -> &'static str {
        "dyram-recovery"
    }

    fn about(&self) -> &'static str {
        "Large simulated trees: DyRAM with and without early detection, beside LMS and nobody's help"
    }

    fn figure(&self) -> &'static str {
        "DyRAM §3.3: local recoveries with early loss detection provide low latencies"
    }

    fn options(&self) -> &'static [Opt] {
        &[
            Opt {
                name: "receivers",
                help: "sizes of the groups; --quick: 100,200",
                default: "100,1000,10000",
            },
            Opt {
                name: "packets",
                help: "data packets, the same in every protocol, for each size or the last for the rest; --quick: 100",
                default: "1000,1000,100",
            },
            Opt {
                name: "loss",
                help: "share of the packets that a receiver loses, in the mean over all receivers",
                default: "0.01",
            },
            Opt {
                name: "seeds",
                help: "seeds of trees, losses and machines: 1 to this many; --quick: 2",
                default: "5",
            },
            Opt {
                name: "protocols",
                help: "some of unicast,unicast-ideal,lms,dyram,dyram-late,srm,srm-log",
                default: "unicast,lms,dyram,dyram-late",
            },
            Opt {
                name: "jobs",
                help: "simulations at a time; the figures are the same, the times may not be",
                default: "1",
            },
        ]
    }

    fn run(&self, context: &Context) -> Result<Report> {
        let (protocols, samples) = measure(context)?;
        let mut report = summary::report(self, context, &protocols, &samples);
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

    #[test]
    fn the_quick_run_meets_its_targets() {
        let defaults = DyramRecovery.options().iter();
        let options = defaults.map(|opt| (opt.name.to_owned(), opt.default.to_owned()));
        let context = Context {
            quick: true,
            options: options.collect(),
            ..Context::default()
        };
        let report = DyramRecovery.run(&context).expect("a result");
        assert_eq!(report.verdict(false), Verdict::Met, "{}", report.text());
    }
}
