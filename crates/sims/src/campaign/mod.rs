//! `campaign`: thousands of sessions in virtual time, each over a network that is drawn from a seed,
//! with loss, bursts, reordering, duplication, corruption, and deaths of links and nodes.
//!
//! # What a seed draws
//!
//! | what | between |
//! | --- | --- |
//! | receivers | 1 to 8, behind a random tree of routers |
//! | round trip to the farthest of them | 1 to 250 ms |
//! | loss from the source to a receiver, and back | 0 to 30 %, on its own or in bursts of 2 to 500 ms, on all links or on the last |
//! | rate | none, or 1 to 200 Mbit/s with queues of 20 to 300 packets |
//! | packets that come late, twice, with a bit flipped (on a receiver's link) | up to 20 %, 10 %, 2 % on a link |
//! | outages, in 45 % of the seeds | up to three links or nodes (the source too) that fail within 20 s, for up to 5 s or permanently; helping daemons likewise |
//! | the session | length, packets, blocks, windows, rates, keys, file or stream, receivers known or not; modes, buffers, options |
//!
//! Possible results
//!
//! Every receiver has every byte; or, where something that it needs stayed down (for TCP-XM: where
//! either end lost its memory of the connection), it names the reason. Wrong bytes, a session that
//! does not end, a source that does not, a panic: faults. No transfer depends on helping daemons,
//! but the relay that the source of a DyRAM session is registered at: it carries the data. A
//! stream's source does not fail: the bytes that it had not sent would be lost.
//!
//! # Broadcast Federation
//!
//! | what | between |
//! | --- | --- |
//! | gateways | 2 to 6, in 1 to 4 networks, each with 1 or 2 data nodes |
//! | peerings | full mesh in networks, a tree of networks and up to 3 more; costs, some that differ by direction; rate limits; rules that reject or change routes; who dials |
//! | times | hold 3 to 20 s, restart 0 to 40 s, refresh 2 to 10 s, heartbeats 250 to 1500 ms, refusals, damping |
//! | networks | transit that costs or is not allowed, gateways without origin or without tables; requests that one gateway receives, or all |
//! | sessions | 1 to 3, of each metric, bulk or real-time, one source or many, up to 2 flows; some that do not exist, some of no network; SROUTE costs |
//! | clients | 5 to 9, that join and leave up to four times, some without a word; some publish |
//! | links for datagrams | delay to 80 ms, loss to 20 % or in bursts, late, twice, bits flipped |
//! | faults, in 80 % of the seeds | up to 8 within a minute: links (streams wait, or break), control nodes, data nodes and gateways that die and start without memory, that stand still, streams between control and data nodes; up to 40 s, links and gateways permanently |
//!
//! The module `bfed` says what must hold. *Receivers served*: clients that receive the session at
//! the end. *Named errors*: clients that cannot, by the reason of their NO_ROUTE. *Packets*:
//! datagrams between data nodes; only they are in a trace.
//!
//! # Late data choice
//!
//! | what | between |
//! | --- | --- |
//! | ring | 1 to 256 slots; messages of up to 16 of them |
//! | sender | 10 to 1500 steps, in bursts: send, cancel, modify, hold back, release, cancel by priority; deadlines; wakes the consumer after each step, or after a burst |
//! | link | 32 kbit/s to 1 Gbit/s, with jitter; up to 16 messages on it; completed in order, or in any |
//! | consumer | wakes up to 20 ms late, stops for up to 2 s, dies and is replaced |
//!
//! The module `ldc` says what must hold. *Receivers served*: messages that left over the link.
//! *Named errors*: messages that did not, by the reason. *Packets*: messages that were claimed.
//! There is nothing to trace.
//!
//! A fault prints the command that repeats its seed, packet for packet.

mod bfed;
mod bursts;
mod checked;
mod choices;
mod daemon;
mod ldc;
mod ltp;
#[path = "../../../ldc-ring/tests/oracle_list/mod.rs"]
#[allow(dead_code, reason = "parts of it are for the tests of the ring")]
mod oracle_list;
mod outcome;
mod profile;
mod transports;
mod xm;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use crate::report::{Bound, Cell, Report, Table};
use crate::scenario::{Context, Need, Scenario, Usage, within};

use outcome::Outcome;
use transports::{NAMES, Transport, Watch};

/// Thousands of simulated sessions over bad networks: every byte, or a named error
#[derive(Debug, clap::Args)]
pub struct Campaign {
    /// All, or some of ltp,lms,dyram,xm,bfed,ldc
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = NAMES)]
    transport: Vec<String>,
    /// Seeds for each transport (quick: 60)
    #[arg(long, default_value_t = 10000, default_value_if("quick", "true", "60"))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Time limit in minutes, shared by the transports; 0: none
    #[arg(long, default_value_t = 0.0, value_parser = within::<f64>(0.0..=1e5))]
    minutes: f64,
    /// Sessions at a time; 0: as many as there are cores
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Run this seed alone with full output; 0: all seeds
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// With --seed: write the packets there, as pcap
    #[arg(long)]
    trace: Option<PathBuf>,
}

/// The largest number of faults of a transport that are reported.
const MOST_SHOWN: usize = 20;
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

impl Scenario for Campaign {
    const NAME: &'static str = "campaign";
    const NEEDS: &'static [Need] = &[];

    fn run(&self, context: &Context) -> Result<Report> {
        let transports = Transport::chosen(&self.transport);
        if self.seed != 0 {
            return self.replay(context, &transports);
        }
        let plan = Plan::new(self, transports.len());
        let mut report = Report::new(Self::NAME, "sessions over networks drawn from seeds");
        let columns = "transport | seeds | receivers served | named errors | faults | packets | virtual \
             hours | seconds";
        let mut table = Table::with_header("outcomes", columns);
        for transport in transports {
            let tally = campaign(context, &plan, transport);
            table.row(tally.row(transport));
            tally.report(transport, &mut report);
        }
        report.tables.insert(0, table);
        Ok(report)
    }
}

/// How much is run.
struct Plan {
    first: u64,
    seeds: u64,
    /// Wall time for each transport.
    time: Option<Duration>,
    jobs: usize,
}

impl Plan {
    fn new(asked: &Campaign, transports: usize) -> Self {
        let minutes = asked.minutes;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = match asked.jobs {
            0 => cores,
            jobs => jobs,
        };
        let share = minutes * 60.0 / transports.max(1) as f64;
        Self {
            first: asked.first,
            seeds: asked.seeds,
            time: (minutes > 0.0).then(|| Duration::from_secs_f64(share)),
            jobs: jobs.clamp(1, 1024),
        }
    }
}

/// Results of all seeds of one transport.
#[derive(Default)]
struct Tally {
    seeds: u64,
    whole: u64,
    named: BTreeMap<String, u64>,
    packets: u64,
    virtual_ms: u64,
    faults: u64,
    /// Seeds with faults, and the faults.
    shown: Vec<(u64, Vec<String>)>,
    seconds: f64,
}

impl Tally {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.whole += outcome.whole;
        self.packets += outcome.packets;
        self.virtual_ms += outcome.virtual_ms;
        for (name, count) in outcome.named {
            *self.named.entry(name).or_default() += count;
        }
        if !outcome.faults.is_empty() {
            self.faults += 1;
            if self.shown.len() < MOST_SHOWN {
                self.shown.push((seed, outcome.faults));
            }
        }
    }

    fn row(&self, transport: Transport) -> Vec<Cell> {
        vec![
            transport.title().into(),
            self.seeds.into(),
            self.whole.into(),
            self.named.values().sum::<u64>().into(),
            self.faults.into(),
            self.packets.into(),
            Cell::number(self.virtual_ms as f64 / 3.6e6, 1),
            Cell::number(self.seconds, 1),
        ]
    }

    fn report(mut self, transport: Transport, report: &mut Report) {
        let mut names = Table::new(
            format!("{}: why receivers had not everything", transport.title()),
            &["named error", "receivers"],
        );
        for (name, count) in &self.named {
            names.row([name.as_str().into(), (*count).into()]);
        }
        if !self.named.is_empty() {
            report.tables.push(names);
        }
        self.shown.sort();
        for (seed, faults) in &self.shown {
            report.note(format!(
                "{}: {}",
                command(transport, *seed),
                faults.join("; ")
            ));
        }
        let shown: Vec<_> = self
            .shown
            .iter()
            .map(|(seed, faults)| json!({"seed": seed, "command": command(transport, *seed), "faults": faults}))
            .collect();
        report.datum(
            transport.name(),
            json!({
                "seeds": self.seeds,
                "whole": self.whole,
                "named": self.named,
                "packets": self.packets,
                "virtual_ms": self.virtual_ms,
                "faults": self.faults,
                "told": shown,
            }),
        );
        let name = format!("{}: seeds with a fault", transport.title());
        report.check(name, self.faults as f64, "", Bound::Exactly(0.0));
    }
}

/// Component repeats a seed.
fn command(transport: Transport, seed: u64) -> String {
    let name = transport.name();
    format!("lab run campaign --transport {name} --seed {seed} --trace {name}-{seed}.pcap")
}

/// Runs one seed; a panic is a fault like others.
fn run_one(transport: Transport, seed: u64, watch: &Watch) -> Outcome {
    let run = AssertUnwindSafe(|| transport.run(seed, watch));
    let mut outcome = Outcome::default();
    match catch_unwind(run) {
        Ok(Ok(outcome)) => return outcome,
        Ok(Err(error)) => outcome.fault(format!("{error:#}")),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
            outcome.fault(format!("panic: {}", words.unwrap_or("no words")));
        }
    }
    outcome
}

fn campaign(context: &Context, plan: &Plan, transport: Transport) -> Tally {
    let begin = Instant::now();
    let next = AtomicU64::new(0);
    let shared = Mutex::new((Tally::default(), begin));
    let work = || {
        let watch = Watch::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let late = plan.time.is_some_and(|time| begin.elapsed() >= time);
            if index >= plan.seeds || late {
                return;
            }
            let seed = plan.first.saturating_add(index);
            let outcome = run_one(transport, seed, &watch);
            for fault in &outcome.faults {
                context.note(format!("{fault}\n    {}", command(transport, seed)));
            }
            let Ok(mut shared) = shared.lock() else {
                return;
            };
            let (tally, told) = &mut *shared;
            tally.add(seed, outcome);
            if told.elapsed() >= PROGRESS {
                *told = Instant::now();
                let title = transport.title();
                context.note(format!(
                    "{title}: {} of {} seeds, {} with a fault",
                    tally.seeds, plan.seeds, tally.faults
                ));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..plan.jobs {
            scope.spawn(work);
        }
        work();
    });
    let mut tally = match shared.into_inner() {
        Ok((tally, _)) => tally,
        Err(poisoned) => poisoned.into_inner().0,
    };
    tally.seconds = begin.elapsed().as_secs_f64();
    tally
}

/// Replays one seed with full output.
impl Campaign {
    fn replay(&self, context: &Context, transports: &[Transport]) -> Result<Report> {
        let seed = self.seed;
        let &[transport] = transports else {
            return Err(Usage("--seed: name one --transport".to_owned()).into());
        };
        let watch = Watch {
            trace: self.trace.clone(),
            verbose: !context.quiet,
        };
        let begin = Instant::now();
        let mut tally = Tally::default();
        tally.add(seed, run_one(transport, seed, &watch));
        tally.seconds = begin.elapsed().as_secs_f64();
        let mut report = Report::new("campaign", format!("{}, seed {seed}", transport.title()));
        tally.report(transport, &mut report);
        Ok(report)
    }
}
