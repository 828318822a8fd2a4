//! `tcpxm-lan`: a file to n hosts on one switch, beside n kernel TCP streams (Figures 5 and 6).

use super::super::stage::copy::{Copied, Copying, copy};
use super::super::stage::play::best;
use super::super::stage::strongest::strongest;
use super::super::stage::tcp::{Ends, Streams, streams};
use super::super::stage::{Setting, Stage, System};
use super::{COLUMNS, cells, mbps, megabytes};
use crate::prelude::*;
use netlab::system;

/// Mcp to 1 to 40 hosts on one switch, beside as many kernel TCP streams
#[derive(Debug, clap::Args)]
pub(crate) struct Lan {
    /// Which: wire (unshaped, no offloads), mixed (the same, multicast reaches 6 of 8 hosts), slow
    /// (100 Mbit/s), loss (the same, 1 % lost at each host), fast (offloads on), system (100 Mbit/s
    /// by HTB, a kernel multicast router, offloads as the system has them, 1 % lost by nftables),
    /// or several with commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = SETTINGS)]
    settings: Vec<String>,
    /// Numbers of hosts for wire and slow (quick: 1,3)
    #[arg(
        long,
        default_value = "1,2,3,4,5,6,7,8,16,40",
        value_delimiter = ',',
        default_value_if("quick", "true", "1,3")
    )]
    #[arg(value_parser = within::<usize>(1..=250))]
    receivers: Vec<usize>,
    /// Size of the file for wire and fast in MiB, a quarter of it for wire with more than 8 hosts
    /// (quick: 16)
    #[arg(long, default_value_t = 1024, default_value_if("quick", "true", "16"))]
    mib: u64,
    /// Its size on 100 Mbit/s (quick: 8)
    #[arg(long, default_value_t = 64, default_value_if("quick", "true", "8"))]
    slow_mib: u64,
    /// Copies of each kind in fast, after one that does not count; the best counts (quick: 1, the first counts)
    #[arg(long, default_value_t = 3, default_value_if("quick", "true", "1"))]
    rounds: usize,
}

const SETTINGS: [&str; 7] = ["all", "wire", "mixed", "slow", "loss", "fast", "system"];
/// The slow sender's link, and the least that the file's own bytes must get of it.
const SLOW_BPS: u64 = 100_000_000;
const SLOW_TARGET_MBPS: f64 = 94.0;
/// The largest number of receivers for which that is a target.
const SLOW_RECEIVERS: usize = 16;
/// Loss at each receiver, the number of receivers, and the least goodput.
const LOSS: f64 = 0.01;
const LOSS_RECEIVERS: usize = 8;
const LOSS_TARGET_MBPS: f64 = 85.0;
/// Ethernet bytes on the sender's wire for each byte of the file, at most: in the clear, sealed.
const WIRE_TARGETS: [f64; 2] = [1.06, 1.075];
/// Copies lie in memory: with more receivers than this each is a quarter as long.
const LONG_RECEIVERS: usize = 8;
/// The group of the copies that a router forwards, and their cost on the sender's wire for each byte of the
/// file: unicast to n hosts would cost n times as much.
const SYSTEM_GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 4, 1);
const SYSTEM_WIRE: f64 = 1.5;
/// Number of hosts, and of those that multicast does not reach.
const MIXED: (usize, usize) = (8, 2);
const OFFLOADS: &str = "unshaped, with segmentation offloads";
/// Number of receivers, and the least goodput relative to the strongest kernel TCP from file to file.
const FAST: [(usize, f64); 2] = [(4, 1.0), (8, 1.3)];
/// The same, relative to that from memory to nowhere.
const FAST_MEMORY: [(usize, f64); 2] = [(4, 1.0), (8, 1.5)];
/// The least goodput of sealed copies relative to open ones.
const SEALED: f64 = 0.8;

impl Scenario for Lan {
    const NAME: &'static str = "tcpxm-lan";
    const FIGURE: &'static str = "TCP-XM Figures 5 and 6";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut run = Run {
            context,
            report: Report::new(Self::NAME, "one file to n hosts on one switch"),
            receivers: self.receivers.clone(),
            bytes: self.mib << 20,
            slow_bytes: self.slow_mib << 20,
            rounds: self.rounds,
        };
        for setting in chosen(&self.settings, &SETTINGS) {
            match setting {
                "wire" => run.wire()?,
                "mixed" => run.mixed()?,
                "slow" => run.slow()?,
                "loss" => run.loss()?,
                "system" => run.system()?,
                _ => run.fast()?,
            }
        }
        paper(&mut run.report);
        Ok(run.report)
    }
}

/// The paper's statements on its figures.
fn paper(report: &mut Report) {
    report.note(
        "paper: TCP's throughput declines as the host count increases; TCP-XM peaks at the speed of \
         the slowest receiver and keeps it; eventually it outperforms TCP; unicast bytes (set-up, \
         close, retransmissions) are barely visible (Figures 5 and 6; the plots are lost)",
    );
    report.note(
        "s: from the start of mcp until the last host has told that its copy is verified; every copy \
         is compared with the original afterwards; files on tmpfs",
    );
}

/// A copy to n hosts, and as many TCP streams.
#[derive(Clone, Debug, Serialize)]
struct Line {
    hosts: usize,
    sealed: bool,
    copied: Copied,
    /// Goodput of each TCP stream, bit/s.
    tcp_bps: Option<f64>,
    /// Bytes on the sender's wire for each byte of the file.
    tcp_wire: Option<f64>,
}

struct Run<'a> {
    context: &'a Context,
    report: Report,
    receivers: Vec<usize>,
    bytes: u64,
    slow_bytes: u64,
    rounds: usize,
}

impl Run<'_> {
    /// Nothing limits the sender, every packet is counted.
    fn wire(&mut self) -> Result<()> {
        let title = "unshaped, no segmentation offloads";
        let mut lines = Vec::new();
        for hosts in self.receivers.clone() {
            let bytes = if hosts > LONG_RECEIVERS {
                self.bytes / 4
            } else {
                self.bytes
            };
            let mut stage = Stage::build(&Setting::plain(hosts, bytes))?;
            for sealed in [false, true] {
                self.context
                    .note(format!("{title}: {hosts} hosts{}", word(sealed)));
                let copying = Copying {
                    sealed,
                    ..Copying::default()
                };
                let copied = copy(&mut stage, &copying)?;
                let tcp = (!sealed)
                    .then(|| streams(&mut stage, &all(hosts), Ends::Files))
                    .transpose()?;
                if hosts > 1 && !self.context.quick {
                    let name = format!("{title}, {hosts} hosts{}: wire / file", word(sealed));
                    let most = Bound::AtMost(WIRE_TARGETS[usize::from(sealed)]);
                    self.report.timed(name, copied.overhead, "", most);
                }
                lines.push(line(&stage, hosts, sealed, copied, tcp.as_ref()));
            }
        }
        self.table(title, &lines);
        Ok(())
    }

    /// The same, with hosts that multicast does not reach.
    fn mixed(&mut self) -> Result<()> {
        let (hosts, unreachable) = MIXED;
        let title = format!(
            "unshaped, multicast reaches {} of {hosts} hosts",
            hosts - unreachable
        );
        self.context.note(&title);
        let mut setting = Setting::plain(hosts, self.bytes / 4);
        for port in &mut setting.ports[hosts - unreachable..] {
            port.unreachable = true;
        }
        let mut stage = Stage::build(&setting)?;
        let copied = copy(&mut stage, &Copying::plain())?;
        if !self.context.quick {
            let most = Bound::AtMost(WIRE_TARGETS[0] * (1 + unreachable) as f64);
            let name = format!("{title}: wire / file");
            self.report.timed(name, copied.overhead, "", most);
        }
        let lines = [line(&stage, hosts, false, copied, None)];
        self.table(&title, &lines);
        Ok(())
    }

    /// The sender's link carries 100 Mbit/s.
    fn slow(&mut self) -> Result<()> {
        let title = "sender's link 100 Mbit/s";
        let mut lines = Vec::new();
        for hosts in self.receivers.clone() {
            self.context.note(format!("{title}: {hosts} hosts"));
            let setting = Setting {
                rate_bps: SLOW_BPS,
                ..Setting::plain(hosts, self.slow_bytes)
            };
            let mut stage = Stage::build(&setting)?;
            let copied = copy(&mut stage, &Copying::plain())?;
            if hosts <= SLOW_RECEIVERS && !self.context.quick {
                let name = format!("{title}, {hosts} hosts: goodput");
                let least = Bound::AtLeast(SLOW_TARGET_MBPS);
                self.report
                    .timed(name, copied.goodput_bps / 1e6, "Mbit/s", least);
            }
            drop(stage);
            // TCP's rate does not depend on the length, its time does.
            let bytes = (self.slow_bytes / hosts as u64).max(2 << 20);
            let mut stage = Stage::build(&Setting { bytes, ..setting })?;
            let tcp = streams(&mut stage, &all(hosts), Ends::Files)?;
            lines.push(line(&stage, hosts, false, copied, Some(&tcp)));
        }
        self.table(title, &lines);
        Ok(())
    }

    /// The same where each of eight hosts loses 1 % of the packets sent to it.
    fn loss(&mut self) -> Result<()> {
        let title = "sender's link 100 Mbit/s, 1 % of what comes to each host lost";
        self.context.note(title);
        let setting = Setting {
            rate_bps: SLOW_BPS,
            ..Setting::plain(LOSS_RECEIVERS, self.slow_bytes).lossy(LOSS)
        };
        let mut stage = Stage::build(&setting)?;
        let copied = copy(&mut stage, &Copying::plain())?;
        if !self.context.quick {
            let name = format!("{title}, {LOSS_RECEIVERS} hosts: goodput");
            let least = Bound::AtLeast(LOSS_TARGET_MBPS);
            self.report
                .timed(name, copied.goodput_bps / 1e6, "Mbit/s", least);
        }
        let lines = [line(&stage, LOSS_RECEIVERS, false, copied, None)];
        self.table(title, &lines);
        Ok(())
    }

    /// A network shaped by the system, with a multicast router between the sender and the hosts.
    fn system(&mut self) -> Result<()> {
        let title = "100 Mbit/s by HTB, kernel multicast router, 1 % lost by nftables";
        if let Some(reason) = system::missing() {
            self.report.skip(title, reason);
            return Ok(());
        }
        let mut lines = Vec::new();
        for hosts in self.receivers.clone() {
            self.context.note(format!("{title}: {hosts} hosts"));
            let system = System {
                group: SYSTEM_GROUP,
                rate_bps: SLOW_BPS,
                loss: LOSS,
            };
            let mut stage = Stage::build(&Setting {
                system: Some(system),
                ..Setting::plain(hosts, self.slow_bytes)
            })?;
            let group = SYSTEM_GROUP.to_string();
            let copying = Copying::plain().send(&["--group", &group, "--ttl", "4"]);
            let copied = copy(&mut stage, &copying)?;
            let name = format!("{title}, {hosts} hosts: Ethernet bytes of the sender / file");
            let most = Bound::AtMost(SYSTEM_WIRE);
            if hosts > 1 {
                self.report.check(name, copied.overhead, "", most);
            }
            lines.push(line(&stage, hosts, false, copied, None));
        }
        self.table(title, &lines);
        Ok(())
    }

    /// As fast as the machine can: packets of many segments.
    fn fast(&mut self) -> Result<()> {
        let title = OFFLOADS;
        let mut table = Table::new(title, &["hosts", "what", "s", "Mbit/s to each"]);
        let mut data = Vec::new();
        for (hosts, _) in FAST {
            let setting = Setting {
                offloads: true,
                ..Setting::plain(hosts, self.bytes / 4)
            };
            let mut stage = Stage::build(&setting)?;
            let mut ours = [f64::NAN; 2];
            for sealed in [false, true] {
                self.context
                    .note(format!("{title}: {hosts} hosts{}", word(sealed)));
                let copying = Copying {
                    sealed,
                    ..Copying::default()
                };
                let best = best(
                    self.rounds,
                    || copy(&mut stage, &copying),
                    |c: &Copied| c.seconds,
                )?;
                let name = format!("mcp{}", word(sealed));
                table.row([
                    hosts.into(),
                    name.into(),
                    Cell::number(best.seconds, 3),
                    mbps(best.goodput_bps),
                ]);
                ours[usize::from(sealed)] = best.goodput_bps;
                data.push(line(&stage, hosts, sealed, best, None));
            }
            self.beside(&mut stage, hosts, ours, &mut table)?;
        }
        self.report.tables.push(table);
        self.report.datum(title, data);
        Ok(())
    }

    /// The strongest kernel TCP beside copies of this goodput, in the clear and sealed.
    fn beside(
        &mut self,
        stage: &mut Stage,
        hosts: usize,
        [open_bps, sealed_bps]: [f64; 2],
        table: &mut Table,
    ) -> Result<()> {
        for (is_file, targets) in [(true, FAST), (false, FAST_MEMORY)] {
            let (context, report) = (self.context, &mut self.report);
            let streams = strongest(context, report, stage, is_file, self.rounds)?;
            for tool in &streams {
                let seconds = Cell::number(tool.seconds, 3);
                let cells = [tool.tool.as_str().into(), seconds, mbps(tool.goodput_bps)];
                table.row([hosts.into()].into_iter().chain(cells));
            }
            let least = targets.iter().find(|(number, _)| *number == hosts);
            if let (Some(first), Some((_, least))) = (streams.first(), least)
                && !self.context.quick
            {
                let name = format!("{OFFLOADS}: mcp / {}", first.tool);
                let ratio = open_bps / first.goodput_bps;
                self.report.timed(name, ratio, "", Bound::AtLeast(*least));
            }
        }
        if !self.context.quick {
            let name = format!("{OFFLOADS}, {hosts} hosts: sealed / open");
            let least = Bound::AtLeast(SEALED);
            self.report.timed(name, sealed_bps / open_bps, "", least);
        }
        Ok(())
    }

    fn table(&mut self, title: &str, lines: &[Line]) {
        let columns = format!(
            "hosts | sealed | {COLUMNS} | TCP Mbit/s each | TCP wire / file | mcp MB of memory"
        );
        let mut table = Table::with_header(title, &columns);
        for line in lines {
            let sealed = if line.sealed { "yes" } else { "no" };
            let first = [line.hosts.into(), sealed.into()];
            let tcp = [
                line.tcp_bps.map_or("".into(), mbps),
                line.tcp_wire
                    .map_or("".into(), |wire| Cell::number(wire, 3)),
                megabytes(line.copied.sender_memory),
            ];
            table.row(first.into_iter().chain(cells(&line.copied)).chain(tcp));
        }
        self.report.tables.push(table);
        self.plots(title, lines);
        self.report.datum(title, lines);
    }

    /// Figures 5 and 6 as they come out here.
    fn plots(&mut self, title: &str, lines: &[Line]) {
        let open: Vec<&Line> = lines.iter().filter(|line| !line.sealed).collect();
        if open.len() < 2 {
            return;
        }
        let points = |value: &dyn Fn(&Line) -> Option<f64>| -> Vec<(f64, f64)> {
            let some = |line: &&Line| Some((line.hosts as f64, value(line)?));
            open.iter().filter_map(some).collect()
        };
        let speed = Plot::lines(&format!("speed: {title}"), "hosts", "Mbit/s to each");
        let speed = speed
            .series("mcp", points(&|l| Some(l.copied.goodput_bps / 1e6)))
            .series("TCP", points(&|l| Some(l.tcp_bps? / 1e6)));
        let title = format!("bytes on the sender's wire: {title}");
        let size = |line: &Line| line.copied.wire.bytes as f64 / line.copied.overhead;
        let wire = Plot::lines(&title, "hosts", "bytes for each byte of the file");
        let wire = wire
            .series(
                "mcp, multicast",
                points(&|l| Some(l.copied.wire.multicast as f64 / size(l))),
            )
            .series(
                "mcp, unicast",
                points(&|l| Some(l.copied.wire.unicast() as f64 / size(l))),
            )
            .series("TCP", points(&|l| l.tcp_wire));
        self.report.plots.extend([speed, wire]);
    }
}

fn word(sealed: bool) -> &'static str {
    if sealed { ", sealed" } else { "" }
}

fn all(hosts: usize) -> Vec<usize> {
    (0..hosts).collect()
}

fn line(stage: &Stage, hosts: usize, sealed: bool, copied: Copied, tcp: Option<&Streams>) -> Line {
    Line {
        hosts,
        sealed,
        copied,
        tcp_bps: tcp.map(|tcp| stage.bytes as f64 * 8.0 / tcp.last().as_secs_f64()),
        tcp_wire: tcp.map(|tcp| tcp.wire.bytes as f64 / stage.bytes as f64),
    }
}
