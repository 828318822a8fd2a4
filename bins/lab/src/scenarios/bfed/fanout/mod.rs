//! `moq-fanout`: how many subscribers of one live session a gateway serves, and `moq-relay` with the same share of a core.
//!
//! ```text
//!   source -- MoQ --> gateway, or moq-relay -- MoQ --> subscribers
//!                     [share of one core]              [other cores]
//! ```

mod film;
mod servers;
mod source;
mod subscribers;

use std::collections::BTreeMap;

use netlab::Plan as NetworkPlan;

use self::servers::{Kind, MAX_SUBSCRIBERS, Place};
use self::source::Source;
use self::subscribers::{Facts, IN_TIME, Subscribers};
use super::load::Hierarchy;
use crate::prelude::*;

/// Subscribers of one live session of a gateway and of moq-relay, with the same processor time
#[derive(Debug, clap::Args)]
pub(crate) struct MoqFanout {
    /// Subscribers, several numbers with commas (quick: 20)
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "100,300,1000",
        default_value_if("quick", "true", "20")
    )]
    #[arg(value_parser = within::<usize>(1..=MAX_SUBSCRIBERS))]
    subscribers: Vec<usize>,
    /// What each server gets of a core, in percent
    #[arg(long, default_value_t = 50.0, value_parser = within::<f64>(1.0..=100.0))]
    share: f64,
    /// Time that is measured, for each setting (quick: 2)
    #[arg(long, default_value_t = 10.0, default_value_if("quick", "true", "2"))]
    #[arg(value_parser = within::<f64>(1.0..=3600.0))]
    seconds: f64,
    /// Times that each setting is measured; the median counts (quick: 1)
    #[arg(long, default_value_t = 3, default_value_if("quick", "true", "1"))]
    #[arg(value_parser = within::<usize>(1..=1_000_000))]
    rounds: usize,
}

const SESSION: &str = "bfed://1/film/?content=real-time";
/// Time for one subscriber to connect, at most, and for all in addition.
const CONNECT: Duration = Duration::from_millis(50);
const CONNECT_ALL: Duration = Duration::from_secs(20);
/// Time with the share before anything is measured.
const WARM_UP: Duration = Duration::from_secs(2);
/// Time for the last groups to arrive.
const GRACE: Duration = Duration::from_secs(2);
/// The part of a core from which on the subscribers may be the bottleneck.
const BUSY: f64 = 0.9;

/// One run.
#[derive(Clone, Debug, Serialize)]
struct Run {
    /// Time of the measurement, and processor time of the server and of the subscribers in it.
    seconds: f64,
    cpu_s: f64,
    subscribers_cpu_s: f64,
    /// Subscribers that had a picture before the measurement.
    ready: usize,
    /// Bytes of memory of the server.
    memory: u64,
    facts: Facts,
}

impl Run {
    /// Processor time of the server for what a subscriber gets in a second, in milliseconds.
    fn cost_ms(&self) -> f64 {
        let delivered = self.facts.arrived * self.facts.subscribers as f64 * self.seconds;
        self.cpu_s * 1e3 / delivered
    }
}

/// All runs, by number of subscribers and server.
type Runs = BTreeMap<(usize, &'static str), Vec<Run>>;

fn of(runs: &[Run], figure: fn(&Run) -> f64) -> f64 {
    median(runs.iter().map(figure))
}

fn served(run: &Run) -> f64 {
    run.facts.served as f64
}

impl Scenario for MoqFanout {
    const NAME: &'static str = "moq-fanout";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "one live session, many subscribers of MoQ");
        if installed("openssl").is_none() {
            report.skip(
                "all of it",
                "openssl is not installed: the servers have no certificate",
            );
            return Ok(report);
        }
        let mut servers = vec![Kind::Gateway];
        match servers::relay() {
            Some(_) => servers.push(Kind::Relay),
            None => report.skip(
                "gateway / moq-relay",
                "moq-relay is not installed (`cargo install moq-relay --version 0.14.0 --locked`), and MOQ_RELAY names no file",
            ),
        }
        let stage = Stage::build(self.share, &mut report)?;
        let mut runs = Runs::new();
        for &count in &self.subscribers {
            for round in 1..=self.rounds {
                // By turns, so that what else the machine does meets both.
                if round % 2 == 0 {
                    servers.reverse();
                }
                for &kind in &servers {
                    let name = kind.name();
                    context.note(format!("{name}, {count} subscribers, round {round}"));
                    let run = stage.play(kind, count, self.seconds)?;
                    runs.entry((count, name)).or_default().push(run);
                }
                servers.sort_by_key(|kind| *kind == Kind::Relay);
            }
        }
        self.describe(&runs, &mut report);
        judge(&runs, &mut report);
        Ok(report)
    }
}

/// The network: a server, and a host with the source and the subscribers.
struct Stage {
    network: Network,
    server: NodeId,
    host: NodeId,
    hierarchy: Option<Hierarchy>,
    /// What a server may use, in cores.
    share: f64,
    /// Certificate and key of the servers.
    files: [PathBuf; 2],
}

impl Stage {
    fn build(share: f64, report: &mut Report) -> Result<Stage> {
        let mut plan = NetworkPlan::default();
        let (server, host) = (plan.host("server"), plan.host("host"));
        plan.link(server, host, Shape::default());
        let mut network = Network::build(plan, 17)?;
        network.offloads(true)?;
        for node in [server, host] {
            let editor = network.editor(node);
            let index = editor.index("lo")?;
            editor.set_up(index, true)?;
        }
        let hierarchy = match Hierarchy::find() {
            Ok(found) => {
                report.note(format!(
                    "each server is held to {share} % of one core by a control group, once all subscribers are \
                     connected; the source and the subscribers have the other cores"
                ));
                Some(found)
            }
            Err(why) => {
                report.note(format!("each server has one core: no share of it, {why:#}"));
                None
            }
        };
        Ok(Stage {
            network,
            server,
            host,
            hierarchy,
            share: share / 100.0,
            files: headless::pinned_certificate(Path::new(SCRATCH))?,
        })
    }

    /// Starts everything, and measures for this long.
    fn play(&self, kind: Kind, count: usize, seconds: f64) -> Result<Run> {
        let (core, others) = cores();
        let mut server = servers::start(kind, &self.network, self.server, &self.files, &[core])?;
        let place = Place::new(self.network.plan().address(self.server), &self.files[0]);
        let start = || Ok(Source::start(place.clone(), &others));
        let mut source = self.network.within(self.host, start)?;
        let failed = |server: &super::load::Forwarders| {
            server
                .processes
                .iter()
                .map(Process::tail)
                .collect::<String>()
        };
        source.wait().with_context(|| failed(&server))?;
        let start = || Ok(Subscribers::start(place, count, &others));
        let subscribers = self.network.within(self.host, start)?;
        let ready = subscribers.wait(CONNECT_ALL + CONNECT * count as u32);
        if let Some(hierarchy) = &self.hierarchy {
            server.hold(hierarchy, self.share)?;
        }
        std::thread::sleep(WARM_UP);
        let (first, began) = (source.sent().groups() + 1, Instant::now());
        let before = (server.cpu_time(), subscribers.cpu_time());
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let (last, took) = (source.sent().groups(), began.elapsed());
        let after = (server.cpu_time(), subscribers.cpu_time());
        let memory = server.memory();
        std::thread::sleep(GRACE);
        ensure!(first < last, "the source sent no group");
        let facts = subscribers.finish(first..last, &source.sent())?;
        Ok(Run {
            seconds: took.as_secs_f64(),
            cpu_s: (after.0 - before.0).as_secs_f64(),
            subscribers_cpu_s: (after.1 - before.1).as_secs_f64(),
            ready,
            memory,
            facts,
        })
    }
}

/// The server's core, and those of the source and the subscribers.
fn cores() -> (usize, Vec<usize>) {
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (
        0,
        if all == 1 {
            vec![0]
        } else {
            (1..all).collect()
        },
    )
}

/// Confines the calling thread to these cores. Returns a runtime for it.
fn confined(cores: &[usize]) -> Result<tokio::runtime::Runtime> {
    netlab::pin(cores)?;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    Ok(runtime.enable_all().build()?)
}

impl MoqFanout {
    fn describe(&self, runs: &Runs, report: &mut Report) {
        let mut table = Table::with_header(
            format!(
                "1 Mbit/s, 30 pictures a second in groups of one second, {} s",
                self.seconds
            ),
            "subscribers | server | served | arrived | p95 age, ms | core used | ms of it for a subscriber's second | \
             memory, MiB | core used by subscribers",
        );
        for (&(count, name), runs) in runs {
            let p95 = of(runs, |run| run.facts.p95_ms.unwrap_or(f64::INFINITY));
            table.row([
                count.into(),
                name.into(),
                Cell::number(of(runs, served), 0),
                Cell::number(of(runs, |run| run.facts.arrived), 4),
                Cell::number(p95, 0),
                Cell::number(of(runs, |run| run.cpu_s / run.seconds), 2),
                Cell::number(of(runs, Run::cost_ms), 2),
                Cell::number(of(runs, |run| run.memory as f64) / f64::from(1 << 20), 0),
                Cell::number(of(runs, |run| run.subscribers_cpu_s / run.seconds), 2),
            ]);
        }
        report.tables.push(table);
        report.note(format!(
            "served: a subscriber got every byte of every group, and 95 % of the pictures less than {} s after they \
             left the source",
            IN_TIME.as_secs_f64()
        ));
        for (&(count, name), runs) in runs {
            let busy = of(runs, |run| run.subscribers_cpu_s / run.seconds);
            if busy > BUSY {
                report.note(format!(
                    "{count} subscribers of {name} used {busy:.2} of their core: they may be the bottleneck"
                ));
            }
            let failed = runs.iter().find_map(|run| run.facts.failed.1.as_ref());
            if let Some(why) = failed {
                report.note(format!(
                    "{count} subscribers of {name}: a connection failed: {why}"
                ));
            }
        }
        let data: Vec<_> = runs
            .iter()
            .map(|((count, name), runs)| json!({ "subscribers": count, "server": name, "runs": runs }))
            .collect();
        report.datum("runs", data);
    }
}

/// Compares the servers where both have run.
fn judge(runs: &Runs, report: &mut Report) {
    let wrong: usize = runs.values().flatten().map(|run| run.facts.wrong).sum();
    report.holds("no subscriber gets a wrong byte", wrong == 0);
    let gateway = |(_, name): &&(usize, &str)| *name == Kind::Gateway.name();
    let arrive = runs.iter().filter(|(key, _)| gateway(key));
    let arrive = arrive
        .flat_map(|(_, runs)| runs)
        .all(|run| run.facts.arrived > 0.0);
    report.holds("pictures arrive from the gateway", arrive);
    let most = |kind: Kind| {
        let all = runs.iter().filter(|((_, name), _)| *name == kind.name());
        most(all.map(|(_, runs)| of(runs, served)))
    };
    if runs.keys().all(|key| gateway(&key)) {
        return;
    }
    let (own, other) = (most(Kind::Gateway), most(Kind::Relay));
    report.note(format!(
        "most subscribers served: {own} by the gateway, {other} by moq-relay"
    ));
    report.timed(
        "most subscribers that the gateway serves / that moq-relay serves",
        own / other,
        "",
        Bound::AtLeast(1.0),
    );
    for (&(count, name), own) in runs.iter().filter(|(key, _)| gateway(key)) {
        debug_assert_eq!(name, Kind::Gateway.name());
        let Some(other) = runs.get(&(count, Kind::Relay.name())) else {
            continue;
        };
        report.timed(
            format!("{count} subscribers: processor time of moq-relay / of the gateway, for a subscriber's second"),
            of(other, Run::cost_ms) / of(own, Run::cost_ms),
            "",
            Bound::AtLeast(1.0),
        );
    }
}
