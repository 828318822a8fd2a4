//! `tcpxm-join-latency`: hosts whose multicast path opens only some time after they joined (§4.3,
//! Table 3).

use super::super::stage::copy::{Copied, Copying, HostCopied, Running};
use super::super::stage::{Port, Setting, Stage};
use super::sites::{LATENCIES, Latency};
use super::{COLUMNS, cells};
use crate::prelude::*;

/// Mcp to hosts that multicast reaches only after up to 60 s
#[derive(Debug, clap::Args)]
pub(crate) struct JoinLatency {
    /// --rate of mcp in Mbit/s, all copies counted
    #[arg(long, default_value_t = 40)]
    mbps: u64,
    /// The paper's seconds divided by this (quick: 20)
    #[arg(long, default_value_t = 1.0, default_value_if("quick", "true", "20"))]
    faster: f64,
}

/// Length of the copy relative to the time until the last path opens.
const LONGER: f64 = 1.25;
/// Time between checks of the ports: the largest delay of an opening.
const LATE: Duration = Duration::from_millis(50);

impl Scenario for JoinLatency {
    const NAME: &'static str = "tcpxm-join-latency";
    const FIGURE: &'static str = "TCP-XM Table 3";

    fn run(&self, context: &Context) -> Result<Report> {
        let rate_bps = self.mbps * 1_000_000;
        let faster = self.faster;
        let opens: Vec<f64> = LATENCIES
            .iter()
            .map(|latency| latency.seconds[0] as f64 / faster)
            .collect();
        let lasts = most(opens.iter().copied()) * LONGER;
        let copied = play(context, &opens, rate_bps, lasts)?;
        let hosts: Vec<Host> = LATENCIES
            .iter()
            .zip(opens)
            .zip(copied.hosts.clone())
            .map(|((latency, opened), copied)| Host::of(latency, opened, copied))
            .collect();
        Ok(report(Self::NAME, &copied, &hosts))
    }
}

/// One host of the experiment.
#[derive(Clone, Debug, Serialize)]
struct Host {
    site: &'static str,
    /// Table 3: median, mean, least, most.
    paper: [u64; 4],
    /// When its path opened, seconds after the start.
    opened: f64,
    /// When it was served by multicast.
    switched: Option<f64>,
    copied: HostCopied,
}

impl Host {
    fn of(latency: &Latency, opened: f64, copied: HostCopied) -> Host {
        let modes = copied.modes.iter();
        let switched = modes
            .filter(|(_, mode)| mode == "multicast")
            .map(|(at, _)| *at)
            .next();
        Host {
            site: latency.site,
            paper: latency.seconds,
            opened,
            switched,
            copied,
        }
    }

    /// Whether it was served by multicast before any could reach it.
    fn is_early(&self) -> bool {
        self.switched.is_some_and(|at| at < self.opened)
    }
}

/// The copy, with each port opened at its time.
fn play(context: &Context, opens: &[f64], rate_bps: u64, lasts: f64) -> Result<Copied> {
    let ports = LATENCIES.iter().zip(opens).map(|(latency, opens)| Port {
        name: latency.site.to_lowercase(),
        unreachable: *opens > 0.0,
        ..Port::default()
    });
    // While k hosts are served by unicast a byte of the file costs k + 1 bytes of the rate.
    let mut steps: Vec<f64> = opens.to_vec();
    steps.sort_by(f64::total_cmp);
    let (mut bits, mut since) = (0.0, 0.0);
    for (at, opens) in steps.iter().chain([&lasts]).enumerate() {
        let copies = (steps.len().saturating_sub(at) + 1) as f64;
        bits += (opens - since).max(0.0) * rate_bps as f64 / copies;
        since = opens.max(since);
    }
    let setting = Setting {
        ports: ports.collect(),
        bytes: (bits / 8.0) as u64,
        ..Setting::default()
    };
    context.note(format!(
        "{:.1} MB, paths open after 0 to {since:.1} s",
        bits / 8e6
    ));
    let mut stage = Stage::build(&setting)?;
    let copying = Copying::plain().send(&["--rate", &rate_bps.to_string()]);
    let running = Running::start(&mut stage, &copying)?;
    let mut shut: Vec<bool> = opens.iter().map(|opens| *opens > 0.0).collect();
    running.finish(&mut stage, |running, stage| {
        let now = running.elapsed();
        for (at, opens) in opens.iter().enumerate() {
            if shut[at] && now >= *opens {
                shut[at] = false;
                stage.multicast(at, true)?;
                context.note(format!("{now:.1} s: multicast to {}", LATENCIES[at].site));
            }
        }
        Ok(())
    })
}

fn report(name: &str, copied: &Copied, hosts: &[Host]) -> Report {
    let mut report = Report::new(name, "hosts that multicast reaches late");
    let columns = "site | paper: median s | mean | min | max | path opened s | multicast since s | later by \
         s | verified s";
    let mut table = Table::with_header("hosts (Table 3)", columns);
    for host in hosts {
        let mut row: Vec<Cell> = vec![host.site.into()];
        row.extend(host.paper.map(Cell::Count));
        let switched = host.switched.unwrap_or(f64::NAN);
        row.extend([
            Cell::number(host.opened, 1),
            Cell::number(switched, 2),
            Cell::number(switched - host.opened, 2),
            Cell::number(host.copied.seconds.unwrap_or(f64::NAN), 2),
        ]);
        table.row(row);
        let name = format!("{}: its copy is whole", host.site);
        report.holds(name, host.copied.whole);
        let name = format!("{}: switched to multicast when its path opened", host.site);
        report.holds(name, host.switched.is_some() && !host.is_early());
    }
    let mut whole = Table::with_header("the copy", COLUMNS);
    whole.row(cells(copied));
    let plot = super::progress(
        "progress",
        hosts.iter().map(|host| (host.site, &host.copied)),
    );
    report.plots.push(plot);
    report.tables.extend([table, whole]);
    report.datum("hosts", hosts);
    report.datum("copy", copied);
    report.note(format!(
        "the switch lets multicast through to a host only from its time on (the paper's median), to \
         within {} ms; unicast flows all the time",
        LATE.as_millis()
    ));
    report.note(
        "paper: we always unicast first; only when we know multicast packets are getting through \
         will we switch to multicast transmission (§4.3)",
    );
    report
}
