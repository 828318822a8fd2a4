//! `mcp-overlay`: hosts that multicast does not reach pass the data on to each other (beyond the paper), compared with
//! other tools for that.

mod swarm;
mod tools;

use super::super::stage::copy::{Copied, Copying, Running};
use super::super::stage::tcp::{Ends, streams};
use super::super::stage::{Setting, Stage};
use crate::prelude::*;

/// Mcp to eight hosts that multicast does not reach; kernel TCP, rsync and aria2 beside it
#[derive(Debug, clap::Args)]
pub(crate) struct Overlay {
    /// Size of the file in MiB (quick: 24)
    #[arg(long, default_value_t = 256, default_value_if("quick", "true", "24"))]
    mib: u64,
    /// Rate of every port in Mbit/s
    #[arg(long, default_value_t = 200)]
    mbps: u64,
    /// Run mcp with relay alone: no other tools, and no copy for each host
    #[arg(long)]
    alone: bool,
    /// Segmentation offloads: less work for the machine; headers on the wire are counted once for several segments
    #[arg(long)]
    offloads: bool,
    /// Seal the data of mcp
    #[arg(long)]
    sealed: bool,
    /// Let the hosts reach each other by multicast: an island, which the sender's multicast does not reach
    #[arg(long)]
    island: bool,
}

const HOSTS: usize = 8;
/// Queue and burst of the token bucket of each port, in bytes.
const QUEUE_BYTES: u32 = 1 << 20;
const BURST_BYTES: u32 = 16 << 10;
/// The same burst with offloads: at least one packet of 64 KiB.
const OFFLOADED_BURST_BYTES: u32 = 128 << 10;

/// Most bytes on the wire of the sender, over the size of the file.
const WIRE: f64 = 1.15;
/// Most time until all hosts have the file, over that of a copy to one host.
const ALL: f64 = 1.25;
/// The same for the others when one host is killed.
const KILLED: f64 = 1.5;
/// Most bytes that the hosts send together, over the size of the file, where they are an island: one copy that is multicast, and a
/// part of one before that. A chain sends seven.
const ISLAND_WIRE: f64 = 1.5;

impl Scenario for Overlay {
    const NAME: &'static str = "mcp-overlay";
    const FIGURE: &'static str = "beyond TCP-XM";

    fn run(&self, context: &Context) -> Result<Report> {
        let bytes = self.mib << 20;
        let mut stage = self.stage(bytes)?;
        let mut report = Report::new(Self::NAME, "eight hosts that multicast does not reach");
        let mut lines = Vec::new();
        context.note("one copy");
        let mut one = self.copying(&["--no-relay", "--mode", "unicast"]);
        one.receivers = vec![0];
        let one = Running::start(&mut stage, &one)?.succeed(&mut stage)?;
        let alone = one.seconds;
        lines.push(Line::of("mcp to one host", &one));
        context.note("hosts relay to hosts");
        let mut changes = Vec::new();
        let before = sent_by_hosts(&mut stage)?;
        let running = Running::start(&mut stage, &self.copying(&[]))?;
        let relayed = running.finish(&mut stage, |running, _| {
            changes = changed(&running.sender.events());
            Ok(())
        })?;
        let by_hosts = (sent_by_hosts(&mut stage)? - before) as f64 / bytes as f64;
        report.note(format!(
            "the hosts together have sent {by_hosts:.2} times the file"
        ));
        report.note(format!("new feeders: {changes:?}"));
        lines.push(Line::of("mcp, hosts relay", &relayed));
        context.note("one host is killed half way");
        let killed = self.killed(&mut stage, &mut report)?;
        lines.push(Line::of("mcp, hosts relay, one is killed", &killed));
        if !self.alone {
            context.note("mcp --no-relay");
            let direct = Running::start(&mut stage, &self.copying(&["--no-relay"]))?;
            lines.push(Line::of("mcp --no-relay", &direct.succeed(&mut stage)?));
            self.beside(context, &mut stage, &mut report, &mut lines);
        }
        report.note(format!(
            "processor seconds of hosts relay: mcp {:.1}, all mcpd {:.1}",
            relayed.sender_cpu, relayed.receivers_cpu
        ));
        self.judge(context, &mut report, alone, &relayed, &killed);
        if self.island {
            judge_island(context, &mut report, &relayed, by_hosts);
        }
        report.tables.push(table(&lines, alone));
        let hosts = relayed.hosts.iter().map(|host| (host.name.as_str(), host));
        report.plots.push(super::progress("hosts relay", hosts));
        let hosts = killed.hosts.iter().map(|host| (host.name.as_str(), host));
        report
            .plots
            .push(super::progress("one host is killed half way", hosts));
        report.datum("relayed", &relayed);
        report.datum("killed", &killed);
        report.note(format!(
            "every host and the sender send at {} Mbit/s at most, by the kernel's token bucket",
            self.mbps
        ));
        Ok(report)
    }
}

impl Overlay {
    fn judge(
        &self,
        context: &Context,
        report: &mut Report,
        alone: f64,
        relayed: &Copied,
        killed: &Copied,
    ) {
        let others = killed.hosts.iter().filter(|host| host.seconds.is_some());
        let others = most(others.clone().filter_map(|host| host.seconds));
        let whole = killed.hosts.iter().filter(|host| host.whole).count();
        report.holds(
            "seven hosts have the file after one was killed",
            whole == HOSTS - 1,
        );
        super::all_whole(report, "hosts relay", relayed);
        if !context.quick {
            report.check(
                "the sender's wire / the file",
                relayed.overhead,
                "",
                Bound::AtMost(WIRE),
            );
            report.timed(
                "all hosts / one copy",
                relayed.seconds / alone,
                "",
                Bound::AtMost(ALL),
            );
            let name = "the others / one copy, one host killed half way";
            report.timed(name, others / alone, "", Bound::AtMost(KILLED));
        }
    }

    fn stage(&self, bytes: u64) -> Result<Stage> {
        let burst = match self.offloads {
            true => OFFLOADED_BURST_BYTES,
            false => BURST_BYTES,
        };
        let mut setting = Setting {
            offloads: self.offloads,
            ..Setting::plain(HOSTS, bytes)
        };
        for port in &mut setting.ports {
            port.unreachable = !self.island;
        }
        let mut stage = Stage::build(&setting)?;
        if self.island {
            stage.network.drop_multicast_of(stage.sender)?;
        }
        let nodes = stage.receivers.iter().copied().chain([stage.sender]);
        for node in nodes.collect::<Vec<_>>() {
            let index = stage.network.index(node, stage.link)?;
            let rate = self.mbps * 1_000_000;
            let editor = stage.network.editor(node);
            editor.set_token_bucket(index, rate, burst, QUEUE_BYTES)?;
        }
        netlab::means::used("token buckets on all interfaces");
        Ok(stage)
    }

    fn copying(&self, send: &[&str]) -> Copying {
        let copying = Copying {
            sealed: self.sealed,
            ..Copying::plain()
        };
        copying.send(&["--retries", "0"]).send(send)
    }

    /// Kills the host that the first one feeds when it has half of the file.
    fn killed(&self, stage: &mut Stage, report: &mut Report) -> Result<Copied> {
        let mut changes = Vec::new();
        let running = Running::start(stage, &self.copying(&[]))?;
        let half = stage.bytes / 2;
        let mut victim = None;
        let mut killed = false;
        let copied = running.finish(stage, |running, _| {
            changes = changed(&running.sender.events());
            if killed {
                return Ok(());
            }
            if victim.is_none() {
                victim = second(&running.sender.events());
            }
            let Some(victim) = &victim else { return Ok(()) };
            let progress = running.sender.events().into_iter().rev().find(|event| {
                event.value["event"] == "progress" && event.value["host"] == victim.as_str()
            });
            let has = progress.map_or(0, |event| event.value["held"].as_u64().unwrap_or(0));
            if has >= half {
                let mut daemons = running.daemons.iter();
                let daemon = daemons.find(|daemon| daemon.address == *victim);
                let daemon = daemon.context("no such host")?;
                daemon.process.signal(Signal::SIGKILL)?;
                killed = true;
            }
            Ok(())
        })?;
        report.note(format!("new feeders when one is killed: {changes:?}"));
        ensure!(killed, "no host was killed: the copy has no relay");
        Ok(copied)
    }

    /// Copies with the other tools that are installed.
    fn beside(
        &self,
        context: &Context,
        stage: &mut Stage,
        report: &mut Report,
        lines: &mut Vec<Line>,
    ) {
        type Make = fn(&mut Stage) -> Result<Line>;
        let tools: [(&str, Make); 3] = [
            ("eight kernel TCP streams", tcp),
            ("rsync to each", tools::rsync),
            ("aria2 over BitTorrent", swarm::aria2),
        ];
        for (name, make) in tools {
            context.note(name);
            match make(stage) {
                Ok(line) => lines.push(line),
                Err(error) => report.skip(name, format!("{error:#}")),
            }
        }
    }
}

fn judge_island(context: &Context, report: &mut Report, relayed: &Copied, by_hosts: f64) {
    let in_island = relayed.hosts.iter().filter(|host| {
        let mut modes = host.modes.iter();
        modes.any(|(_, mode)| mode == "island")
    });
    let name = "seven hosts were reached by the multicast of the eighth";
    report.holds(name, in_island.count() == HOSTS - 1);
    if !context.quick {
        let bound = Bound::AtMost(ISLAND_WIRE);
        report.check("what the hosts send / the file", by_hosts, "", bound);
    }
}

/// Returns the bytes that all hosts but the sender have sent.
fn sent_by_hosts(stage: &mut Stage) -> Result<u64> {
    let mut sent = 0;
    for node in stage.receivers.clone() {
        let index = stage.network.index(node, stage.link)?;
        sent += stage.network.editor(node).counters(index)?.tx_bytes;
    }
    Ok(sent)
}

/// Returns the changes of feeders after the first arrangement, as `host feeder reason`.
fn changed(events: &[netlab::Event]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("sender").to_owned();
    let feeders = events.iter().map(|event| &event.value);
    let feeders = feeders.filter(|value| value["event"] == "feeder");
    let later = feeders.filter(|value| value["reason"] != "arranged");
    later
        .map(|value| {
            [&value["host"], &value["feeder"], &value["reason"]]
                .map(text)
                .join(" ")
        })
        .collect()
}

/// Returns the second host of the chain: the first one that another host feeds.
fn second(events: &[netlab::Event]) -> Option<String> {
    let mut feeders = events
        .iter()
        .filter(|event| event.value["event"] == "feeder");
    let found = feeders.find(|event| !event.value["feeder"].is_null())?;
    Some(found.value["host"].as_str()?.to_owned())
}

fn tcp(stage: &mut Stage) -> Result<Line> {
    let all: Vec<usize> = (0..HOSTS).collect();
    let tcp = streams(stage, &all, Ends::Files)?;
    let wire = tcp.wire.bytes as f64 / stage.bytes as f64;
    Ok(Line::new(
        "eight kernel TCP streams",
        tcp.last().as_secs_f64(),
        wire,
    ))
}

/// One way to copy to all hosts.
#[derive(Debug)]
struct Line {
    name: &'static str,
    seconds: f64,
    wire: f64,
}

impl Line {
    fn new(name: &'static str, seconds: f64, wire: f64) -> Line {
        Line {
            name,
            seconds,
            wire,
        }
    }

    fn of(name: &'static str, copied: &Copied) -> Line {
        Line::new(name, copied.seconds, copied.overhead)
    }
}

fn table(lines: &[Line], alone: f64) -> Table {
    let mut table = Table::with_header(
        "a file to eight hosts",
        "way | s | / one copy | wire / file",
    );
    for line in lines {
        table.row([
            line.name.into(),
            Cell::number(line.seconds, 2),
            Cell::number(line.seconds / alone, 2),
            Cell::number(line.wire, 3),
        ]);
    }
    table
}
