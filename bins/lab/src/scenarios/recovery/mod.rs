//! `lms-recovery`: LMS at sizes that no lab can build, in the simulator.
//!
//! Random trees with loss on every link. The machines are the real ones (`lms_proto::Router` in each
//! router, `ltp` at the source and the receivers); beside them run LTP with nobody's help, where every
//! receiver asks the source, and SRM with the constants of its paper.

mod srm;
mod summary;
mod transport;
mod watch;
mod world;

use anyhow::{Context as _, Result, ensure};
use ltp::Assist;

use crate::report::Report;
use crate::scenario::{Context, Opt, Scenario};

use summary::Sample;
use world::{Plan, World};

/// The scenario `lms-recovery`.
pub(crate) struct Recovery;

/// Sizes of the groups that can be asked for.
const RECEIVERS: std::ops::RangeInclusive<u32> = 2..=1_000_000;

impl Scenario for Recovery {
    fn name(&self) -> &'static str {
        "lms-recovery"
    }

    fn about(&self) -> &'static str {
        "Large simulated trees: recovery latency, requests at the source, exposure, beside two others"
    }

    fn figure(&self) -> &'static str {
        "LMS §6 (opening), §6.3.2 and §6.7: no implosion, little exposure, low recovery latency"
    }

    fn options(&self) -> &'static [Opt] {
        &[
            Opt {
                name: "receivers",
                help: "sizes of the groups, 100 to 100000 in the paper's spirit; --quick: 100,500",
                default: "100,1000,10000",
            },
            Opt {
                name: "packets",
                help: "data packets; --quick: 200",
                default: "1000",
            },
            Opt {
                name: "loss",
                help: "share of the packets that a receiver loses, in the mean over all receivers",
                default: "0.01",
            },
            Opt {
                name: "seed",
                help: "seed of trees, losses and machines",
                default: "1",
            },
        ]
    }

    fn run(&self, context: &Context) -> Result<Report> {
        let sizes: String = context.sized("receivers", "100,500".to_owned())?;
        let packets: u32 = context.sized("packets", 200)?;
        let loss: f64 = context.option("loss")?;
        let seed: u64 = context.option("seed")?;
        ensure!(
            (1..=1_000_000).contains(&packets),
            "--packets {packets}: 1 to 1000000"
        );
        ensure!(
            loss > 0.0 && loss <= 0.5,
            "--loss {loss}: above 0, at most 0.5"
        );
        let mut samples = Vec::new();
        for size in sizes.split(',') {
            let receivers: u32 = size
                .trim()
                .parse()
                .with_context(|| format!("--receivers {sizes}"))?;
            ensure!(
                RECEIVERS.contains(&receivers),
                "--receivers {receivers}: 2 to 1000000"
            );
            samples.push(sample(
                context,
                Plan {
                    receivers,
                    packets,
                    loss,
                    seed,
                },
            ));
        }
        Ok(summary::report(self, context, &samples))
    }
}

fn sample(context: &Context, plan: Plan) -> Sample {
    let world = World::new(plan);
    let note = |protocol: &str, packets: u32| {
        context.note(format!(
            "{} receivers: {protocol}, {packets} packets",
            plan.receivers
        ));
    };
    note("LTP with LMS", plan.packets);
    let lms = transport::run(&world, Assist::Lms, plan.packets);
    let packets = plan.packets.min(unicast_packets(plan.receivers));
    note("LTP by unicast", packets);
    let unicast = transport::run(&world, Assist::None, packets);
    let packets = plan.packets.min(srm_packets(plan.receivers));
    note("SRM", packets);
    let srm = srm::run(&world, packets);
    Sample {
        world,
        lms,
        unicast,
        srm,
    }
}

/// The source's repairs go to everybody: in large groups a run is kept to this many packets.
fn unicast_packets(receivers: u32) -> u32 {
    match receivers {
        0..=2_000 => u32::MAX,
        _ => (250_000 / receivers).max(10),
    }
}

/// Each request and each repair of SRM goes to everybody: a run is kept to this many packets.
fn srm_packets(receivers: u32) -> u32 {
    (50_000 / receivers).max(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick() -> Context {
        let defaults = Recovery.options().iter();
        let options = defaults.map(|opt| (opt.name.to_owned(), opt.default.to_owned()));
        Context {
            quick: true,
            options: options.collect(),
            ..Context::default()
        }
    }

    #[test]
    fn the_quick_run_meets_its_targets_and_repeats() {
        let first = Recovery.run(&quick()).expect("a result");
        assert!(first.passed(), "{}", first.text());
        let second = Recovery.run(&quick()).expect("a result");
        let figures = |report: &Report| format!("{:?}", report.tables[..2].to_vec());
        assert_eq!(figures(&first), figures(&second));
    }

    #[test]
    fn options_out_of_bounds_are_refused() {
        for (name, value) in [("receivers", "100,x"), ("receivers", "1"), ("loss", "0")] {
            let mut context = quick();
            context.options.insert(name.to_owned(), value.to_owned());
            context.typed.push(name.to_owned());
            assert!(Recovery.run(&context).is_err(), "{name} {value}");
        }
    }
}
