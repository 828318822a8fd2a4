//! `paths`: one file to n receivers by our transports and by other tools, over paths of several round trips, losses and
//! queues.
//!
//! | part | what |
//! | --- | --- |
//! | [`grid`] | the paths: shaper, round trip, loss, receivers, queue |
//! | [`network`] | a path as a network: on a switch, or behind a router |
//! | [`tool`] | the tools, and one transfer by one of them |
//! | [`routed`] | LTP alone, with LMS routers, with DyRAM relays |
//! | [`results`] | tables, plots, verdicts |

mod grid;
mod network;
mod results;
mod routed;
mod tool;

use self::grid::{Path as NetworkPath, Shaping};
use self::results::Line;
use self::tool::{Choice, Runner};
use crate::prelude::*;

use super::stage::play::reason;

/// One file over paths of several round trips, losses and queues: mcp, LTP, TCP, uftp, NORM, udpcast
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Link of 100 Mbit/s at the sender; with the emulator it has the round trip and the queue, and each \
                  receiver loses packets on its own; short queues hold 10 frames at least, bdp 20, deep 200. With htb, \
                  HTB and its queue are on the sender's interface, nftables loses packets at each receiver, the round \
                  trip is that of the machine, and there are no bursts. uftp, udpcast, and libnorm-dev with a C++ \
                  compiler must be installed: what is absent is named and not run. All of it takes most of a day; its parts can run one by one."
)]
pub(crate) struct Paths {
    /// Tools, with commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = tool::NAMES)]
    tools: Vec<String>,
    /// What shapes the path: emulator, htb (quick: emulator)
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "all",
        default_value_if("quick", "true", "emulator"),
        value_parser = grid::SHAPERS
    )]
    shaper: Vec<String>,
    /// Round trips of the emulator in ms (quick: 20)
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,20,100",
        default_value_if("quick", "true", "20")
    )]
    #[arg(value_parser = within::<u64>(0..=1_000))]
    rtt: Vec<u64>,
    /// Loss at each receiver in per cent, or bursts: 1 % in bursts of 8 on average (quick: 0,1)
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "all",
        default_value_if("quick", "true", "0,1"),
        value_parser = grid::LOSSES
    )]
    loss: Vec<String>,
    /// Numbers of receivers (quick: 3)
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,8,16",
        default_value_if("quick", "true", "3")
    )]
    #[arg(value_parser = within::<usize>(1..=64))]
    receivers: Vec<usize>,
    /// Queue: short (an eighth of a round trip), bdp (one), deep (four) (quick: bdp)
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "all",
        default_value_if("quick", "true", "bdp"),
        value_parser = grid::QUEUES
    )]
    queue: Vec<String>,
    /// Transfers of each tool over each path (quick: 1)
    #[arg(long, default_value_t = 3, default_value_if("quick", "true", "1"))]
    #[arg(value_parser = within::<usize>(1..=100))]
    runs: usize,
    /// Size of the file in MiB (quick: 2)
    #[arg(long, default_value_t = 32, default_value_if("quick", "true", "2"))]
    #[arg(value_parser = within::<u64>(1..=4_096))]
    mib: u64,
    /// Seconds after which a transfer has failed (quick: 20)
    #[arg(long, default_value_t = 120, default_value_if("quick", "true", "20"))]
    #[arg(value_parser = within::<u64>(1..=86_400))]
    time_limit: u64,
}

impl Scenario for Paths {
    const NAME: &'static str = "paths";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "one file to n receivers over many paths");
        let load = machine_load();
        let (choices, runner) = self.prepare(&mut report);
        let mut lines = Vec::new();
        for shaping in grid::shapings(&self.shaper) {
            if shaping == Shaping::Htb
                && let Some(missing) = system::missing()
            {
                report.skip("shaped by HTB", missing);
                continue;
            }
            for path in self.paths(shaping) {
                lines.extend(self.path(context, &choices, &runner, path)?);
            }
        }
        results::fill(&mut report, &lines, runner.limit);
        report.note(format!(
            "seconds: from the sender's start until the last receiver has verified (mcp, LTP), has the last byte (TCP), \
             or until sender and receivers have ended (uftp, NORM, udpcast); every copy is compared with the original; \
             {} MiB; s is the median of {} runs",
            self.mib, self.runs
        ));
        report.note(
            "wire / file: Ethernet bytes on the sender's interface; with HTB a batch of segments counts as one packet",
        );
        report.note(format!(
            "load of the machine over one minute, before and after: {load}, {}",
            machine_load()
        ));
        Ok(report)
    }
}

/// The load of the machine over the last minute, as the kernel writes it.
fn machine_load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

impl Paths {
    /// The tools that can run here; the others are named in the report.
    fn prepare(&self, report: &mut Report) -> (Vec<&'static Choice>, Runner) {
        let runner = Runner::new(self.mib << 20, Duration::from_secs(self.time_limit));
        let mut choices = Vec::new();
        for choice in tool::chosen_of(&self.tools) {
            match runner.absent(choice) {
                Some(why) => report.skip(choice.label, format!("absent: {why}")),
                None => choices.push(choice),
            }
        }
        (choices, runner)
    }

    /// The paths of one way of shaping.
    fn paths(&self, shaping: Shaping) -> Vec<NetworkPath> {
        // The system's networks have no delay.
        let round_trips = match shaping {
            Shaping::Emulator => self.rtt.clone(),
            Shaping::Htb => vec![0],
        };
        let mut paths = Vec::new();
        for rtt_ms in round_trips {
            for loss in grid::losses(&self.loss, shaping) {
                for &receivers in &self.receivers {
                    for queue in grid::queues(&self.queue) {
                        paths.push(NetworkPath {
                            shaping,
                            rtt_ms,
                            loss,
                            receivers,
                            queue,
                        });
                    }
                }
            }
        }
        paths
    }

    /// All tools over one path.
    fn path(
        &self,
        context: &Context,
        choices: &[&'static Choice],
        runner: &Runner,
        path: NetworkPath,
    ) -> Result<Vec<Line>> {
        let mut stage = None;
        let mut lines = Vec::new();
        for &choice in choices {
            context.note(format!("{path}: {}", choice.label));
            let mut line = Line::new(choice, path);
            for run in 0..self.runs {
                if stage.is_none() && choice.is_switched() {
                    stage = Some(network::switched(&path, runner)?);
                }
                match runner.transfer(choice, &path, stage.as_mut(), run as u64) {
                    Ok(measured) => line.runs.push(measured),
                    Err(error) => {
                        line.failed = Some(reason(&error));
                        // What a failed transfer has left in queues and processes is not for the next.
                        stage = None;
                        break;
                    }
                }
            }
            lines.push(line);
        }
        Ok(lines)
    }
}
