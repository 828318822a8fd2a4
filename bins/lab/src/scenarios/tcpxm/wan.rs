//! `tcpxm-wan`: a file to the paper's ten sites, two of them without multicast (Figures 7 and 8,
//! Tables 1 and 2).

use super::super::stage::copy::{Copied, Copying, copy_pruned};
use super::super::stage::tcp::{Ends, streams};
use super::super::stage::{Setting, Stage};
use super::sites::{SITES, Site};
use super::{COLUMNS, cells, mbps, seconds};
use crate::prelude::*;

/// Mcp to the paper's ten sites with their round trips and rates, two without multicast
#[derive(Debug, clap::Args)]
pub(crate) struct Wan {
    /// To how many sites, in the order of the table (quick: 6,10)
    #[arg(
        long,
        default_value = "1,2,3,4,5,6,7,8,9,10",
        value_delimiter = ',',
        default_value_if("quick", "true", "6,10")
    )]
    #[arg(value_parser = within::<usize>(1..=250))]
    sites: Vec<usize>,
    /// Size of the file in MiB (quick: 1)
    #[arg(long, default_value_t = 8, default_value_if("quick", "true", "1"))]
    mib: u64,
    /// The sender's own link, Mbit/s
    #[arg(long, default_value_t = 100)]
    sender_mbps: u64,
}

/// From this many sites on, the paper's TCP-XM matches or outperforms TCP; the share that counts as a match.
const PAPER_SITES: usize = 5;
const MATCHES: f64 = 0.9;
/// A site of at least this rate takes at most this multiple of TCP's time, beside slower ones too; and the first
/// site alone that one.
const FAST_MBPS: f64 = 10.0;
const FAST_TARGET: f64 = 1.3;
const ALONE_TARGET: f64 = 1.1;

impl Scenario for Wan {
    const NAME: &'static str = "tcpxm-wan";
    const FIGURE: &'static str = "TCP-XM Figures 7 and 8, Tables 1 and 2";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "one file to the sites of a wide area network");
        let bytes = self.mib << 20;
        let rate_bps = self.sender_mbps * 1_000_000;
        let mut lines = Vec::new();
        for &count in &self.sites {
            let sites = &SITES[..count.min(SITES.len())];
            let last = sites.last().map_or("", |site| site.name);
            context.note(format!("{} sites, the last is {last}", sites.len()));
            lines.push(line(sites, bytes, rate_bps)?);
        }
        if !context.quick {
            judge(&mut report, &lines);
        }
        report.tables.extend([sites_table(&lines), table(&lines)]);
        report.plots = plots(&lines, bytes);
        report.datum("copies", &lines);
        notes(&mut report);
        Ok(report)
    }
}

/// A copy to some sites, and as many TCP streams.
#[derive(Clone, Debug, Serialize)]
struct Line {
    sites: usize,
    last: &'static str,
    without_multicast: usize,
    copied: Copied,
    /// Seconds of each TCP stream.
    tcp_seconds: Vec<f64>,
    /// Goodput to the last, bit/s.
    tcp_bps: f64,
    /// Bytes on the sender's wire for each byte of the file.
    tcp_wire: f64,
}

impl Line {
    /// The time of each site for each second of its TCP stream.
    fn times_of_tcp(&self) -> impl Iterator<Item = f64> {
        let pairs = self.copied.hosts.iter().zip(&self.tcp_seconds);
        pairs.map(|(host, tcp)| host.seconds.unwrap_or(f64::INFINITY) / tcp)
    }
}

fn line(sites: &[Site], bytes: u64, rate_bps: u64) -> Result<Line> {
    let setting = Setting {
        ports: sites.iter().map(Site::port).collect(),
        bytes,
        rate_bps,
        ..Setting::default()
    };
    let mut stage = Stage::build(&setting)?;
    let copied = copy_pruned(&mut stage, &Copying::plain())?;
    let all: Vec<usize> = (0..sites.len()).collect();
    let tcp = streams(&mut stage, &all, Ends::Files)?;
    Ok(Line {
        sites: sites.len(),
        last: sites.last().map_or("", |site| site.name),
        without_multicast: sites.iter().filter(|site| !site.multicast).count(),
        copied,
        tcp_seconds: tcp.took.iter().map(|took| took.as_secs_f64()).collect(),
        tcp_bps: bytes as f64 * 8.0 / tcp.last().as_secs_f64(),
        tcp_wire: tcp.wire.bytes as f64 / bytes as f64,
    })
}

fn judge(report: &mut Report, lines: &[Line]) {
    for line in lines.iter().filter(|line| line.sites >= PAPER_SITES) {
        let name = format!("{} sites: speed of mcp / of TCP", line.sites);
        let ratio = line.copied.goodput_bps / line.tcp_bps;
        report.check(name, ratio, "", Bound::AtLeast(MATCHES));
    }
    let mut check = |name: String, times: f64, most: f64| {
        report.timed(name, times, "", Bound::AtMost(most));
    };
    for line in lines.iter().filter(|line| line.sites == 1) {
        let times = most(line.times_of_tcp());
        check("one site: time / TCP's".to_owned(), times, ALONE_TARGET);
    }
    let Some(largest) = lines.iter().max_by_key(|line| line.sites) else {
        return;
    };
    for (site, times) in SITES.iter().zip(largest.times_of_tcp()) {
        if largest.sites > 1 && site.mbps >= FAST_MBPS {
            let name = format!("{} sites: {}: time / TCP's", largest.sites, site.name);
            check(name, times, FAST_TARGET);
        }
    }
}

fn table(lines: &[Line]) -> Table {
    let columns = format!(
        "sites | the last | no multicast | {COLUMNS} | TCP s | TCP Mbit/s | TCP wire / file"
    );
    let mut table = Table::with_header("to n sites (Figures 7 and 8)", &columns);
    for line in lines {
        let sites = [
            line.sites.into(),
            line.last.into(),
            line.without_multicast.into(),
        ];
        let tcp = [
            Cell::number(most(line.tcp_seconds.iter().copied()), 2),
            mbps(line.tcp_bps),
            Cell::number(line.tcp_wire, 3),
        ];
        table.row(sites.into_iter().chain(cells(&line.copied)).chain(tcp));
    }
    table
}

/// Tables 1 and 2, and how each site was served in the largest copy.
fn sites_table(lines: &[Line]) -> Table {
    let columns = "site | round trip ms | Mbit/s | multicast | mcp s | at the end by | separate at s | TCP s | mcp s / TCP s";
    let mut table = Table::with_header("sites (Tables 1 and 2), the largest copy", columns);
    let Some(largest) = lines.iter().max_by_key(|line| line.sites) else {
        return table;
    };
    let ours = largest.copied.hosts.iter().zip(&largest.tcp_seconds);
    for (site, (host, tcp)) in SITES.iter().zip(ours) {
        let mode = host.modes.last().map_or("-", |(_, mode)| mode.as_str());
        table.row([
            site.name.into(),
            Cell::number(site.round_trip_ms, 1),
            Cell::number(site.mbps, 1),
            if site.multicast { "yes" } else { "no" }.into(),
            Cell::number(host.seconds.unwrap_or(f64::NAN), 2),
            mode.into(),
            seconds(host.detached, 2),
            Cell::number(*tcp, 2),
            Cell::number(host.seconds.unwrap_or(f64::NAN) / tcp, 2),
        ]);
    }
    table
}

fn plots(lines: &[Line], bytes: u64) -> Vec<Plot> {
    let points = |value: &dyn Fn(&Line) -> f64| -> Vec<(f64, f64)> {
        let point = |line: &Line| (line.sites as f64, value(line));
        lines.iter().map(point).collect()
    };
    let bytes = bytes as f64;
    let speed = Plot::lines("speed (Figure 7)", "sites", "Mbit/s to each")
        .series("mcp", points(&|line| line.copied.goodput_bps / 1e6))
        .series("TCP", points(&|line| line.tcp_bps / 1e6));
    let wire = Plot::lines(
        "bytes on the sender's wire (Figure 8)",
        "sites",
        "bytes for each byte of the file",
    )
    .series(
        "mcp, multicast",
        points(&|line| line.copied.wire.multicast as f64 / bytes),
    )
    .series(
        "mcp, unicast",
        points(&|line| line.copied.wire.unicast() as f64 / bytes),
    )
    .series("TCP", points(&|line| line.tcp_wire));
    vec![speed, wire]
}

fn notes(report: &mut Report) {
    report.note(
        "paper: the increased bottleneck allows TCP-XM to match or outperform TCP for five or more \
         hosts; unicast bytes step up each time a host without multicast is added (Figures 7 and 8; \
         the plots are lost)",
    );
    report.note(
        "each site's link has its rate (Table 2, for the bytes that TCP delivers) both ways, half \
         its round trip as delay each way, and a queue of one round trip; the paper does not tell its \
         sender's own link",
    );
    report.note(
        "multicast no longer leaves a site's port when the site has left the group, as with routers \
         that prune",
    );
    report.note("Mbit/s: the file's bits until the last site has verified its copy");
}
