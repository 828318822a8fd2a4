//! `lms-overhead`: Figures 6.13 and 6.14 from captured packets of a real transfer.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use lms_proto::Kind;

use crate::capture::Capture;
use crate::net::{Network, Plan, Shape};
use crate::packets::Seen;
use crate::report::{Bound, Cell, Report, Table};
use crate::sandbox::SCRATCH;
use crate::scenario::{Context, Need, Scenario};
use crate::session::{Owner, Replies, Session};
use crate::transfer::{Transfer, write_file};

/// The scenario.
pub(crate) struct Overhead;

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 6, 1, 3), 6_013);
const UDP: u8 = 17;
const IPIP: u8 = 4;
const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
/// The option's length.
const OPTION: usize = 16;
/// `struct cmsghdr`: a length and two integers. 12 bytes on the paper's 32-bit machine.
const CMSGHDR: usize = size_of::<usize>() + 2 * size_of::<i32>();

impl Scenario for Overhead {
    fn name(&self) -> &'static str {
        "lms-overhead"
    }

    fn about(&self) -> &'static str {
        "Bytes that requests and dmcasts add, counted in captured packets of a transfer"
    }

    fn figure(&self) -> &'static str {
        "LMS §6.5.1, §6.5.2, Figures 6.13 and 6.14"
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Namespaces]
    }

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(self.name(), "what assistance costs in bytes");
        let bytes = if context.quick { 1 << 20 } else { 4 << 20 };
        let sample = transfer(bytes)?;
        let requests = Sizes::of(sample.requests());
        let dmcasts = Sizes::of(sample.dmcasts());
        report.tables.push(request_table(&requests));
        report.tables.push(dmcast_table(&dmcasts));
        report.tables.push(sample.share_table(&requests, &dmcasts));
        judge(&mut report, &sample, &requests, &dmcasts);
        report.note(
            "control bytes: the paper's cmsghdr has 12 bytes, that of a 64-bit Linux 16; the option in it \
             has the same 16",
        );
        report.note("data packets leave 36 bytes of the MTU free, so that no dmcast is fragmented");
        Ok(report)
    }
}

/// The packets that each host's link carried.
struct Sample {
    h1: (Ipv4Addr, Vec<Seen>),
    h2: (Ipv4Addr, Vec<Seen>),
    source: Ipv4Addr,
}

/// A file from the source to H1 and H2; H2 loses 5 %, H1 nothing.
fn transfer(bytes: u64) -> Result<Sample> {
    let mut plan = Plan::default();
    let (source, router) = (plan.host("source"), plan.router("router"));
    let (h1, h2) = (plan.host("h1"), plan.host("h2"));
    plan.link(source, router, Shape::default());
    plan.link(router, h1, Shape::default());
    plan.link(router, h2, Shape::lossy(0.05));
    let network = Network::build(plan, 4)?;
    let mut session = Session::new(network, source, vec![h1, h2], GROUP);
    session.own(Owner::Lab)?;
    session.start_routers(&Replies::default())?;
    let wires = [h1, h2].map(|host| Capture::start(&session.network, host, "eth0"));
    let [wire1, wire2] = wires;
    let (wire1, wire2) = (wire1?, wire2?);
    let file = Path::new(SCRATCH).join("file.bin");
    write_file(&file, bytes)?;
    let mut transfer = Transfer::start(&session, &file, &["--rate", "8M"])?;
    let (mut seen1, mut seen2) = (Vec::new(), Vec::new());
    let mut failed = Ok(());
    // Read often: an ordinary user's socket holds some 150 packets.
    transfer.watch(Duration::from_secs(60), |_| {
        let mut read = || -> Result<()> {
            seen1.extend(wire1.drain()?);
            seen2.extend(wire2.drain()?);
            Ok(())
        };
        if failed.is_ok() {
            failed = read();
        }
    })?;
    failed?;
    let plan = session.network.plan();
    let address = |node| plan.address(node);
    let sample = Sample {
        h1: (address(h1), seen1),
        h2: (address(h2), seen2),
        source: address(source),
    };
    let outcome = transfer.finish(&session, Duration::from_secs(10))?;
    anyhow::ensure!(outcome.whole(), "the transfer is not whole");
    Ok(sample)
}

impl Sample {
    fn of(list: &[Seen], kind: Kind) -> impl Iterator<Item = &Seen> {
        list.iter()
            .filter(move |seen| seen.option.is_some_and(|(option, _)| option.kind == kind))
    }

    /// Requests that H2 has sent.
    fn requests(&self) -> impl Iterator<Item = &Seen> {
        let host = self.h2.0;
        Sample::of(&self.h2.1, Kind::Request).filter(move |seen| seen.source == host)
    }

    /// Dmcasts that H1 has sent.
    fn dmcasts(&self) -> impl Iterator<Item = &Seen> {
        let host = self.h1.0;
        let sent = move |seen: &&Seen| seen.source == host && seen.protocol == IPIP;
        Sample::of(&self.h1.1, Kind::Dmcast).filter(sent)
    }

    /// Packets of the source to the group as H2 gets them, repairs included.
    fn received(&self) -> impl Iterator<Item = &Seen> {
        let source = self.source;
        let wanted = move |s: &&Seen| {
            s.source == source && s.destination == *GROUP.ip() && s.protocol == UDP
        };
        self.h2.1.iter().filter(wanted)
    }

    /// Repairs that H2 received, of those that H1 sent: they carry the same bytes. Also whether each has
    /// a plain header.
    fn repairs(&self) -> (usize, bool) {
        let inner: HashSet<Vec<u8>> = self
            .dmcasts()
            .filter_map(|seen| Some(seen.payload.get(IP_HEADER..)?.to_vec()))
            .collect();
        let found: Vec<&Seen> = self
            .received()
            .filter(|s| inner.contains(&s.payload))
            .collect();
        (
            found.len(),
            found
                .iter()
                .all(|s| s.header_bytes == IP_HEADER && s.option.is_none()),
        )
    }

    fn share_table(&self, requests: &Sizes, dmcasts: &Sizes) -> Table {
        let data: u64 = self.received().map(|seen| seen.total_bytes as u64).sum();
        let mut table = Table::new(
            "bytes on H2's and H1's links, with 5 % of H2's packets lost",
            &["what", "packets", "bytes", "% of data"],
        );
        let percent = |bytes: u64| Cell::number(bytes as f64 * 100.0 / (data as f64).max(1.0), 3);
        let received = self.received().count();
        table.row([
            "data to H2".into(),
            received.into(),
            data.into(),
            percent(data),
        ]);
        let options = requests.count * OPTION as u64;
        let added = dmcasts.count * (IP_HEADER + OPTION) as u64;
        table.row([
            "requests".into(),
            requests.count.into(),
            requests.bytes.into(),
            percent(requests.bytes),
        ]);
        table.row([
            "their options alone".into(),
            requests.count.into(),
            options.into(),
            percent(options),
        ]);
        table.row([
            "dmcasts".into(),
            dmcasts.count.into(),
            dmcasts.bytes.into(),
            percent(dmcasts.bytes),
        ]);
        table.row([
            "their headers alone".into(),
            dmcasts.count.into(),
            added.into(),
            percent(added),
        ]);
        table
    }
}

/// What packets of one kind have in common: the only value, or none.
#[derive(Default)]
struct Sizes {
    count: u64,
    bytes: u64,
    /// Bytes of the IP header, of the option, before the transport's own payload.
    header: Option<usize>,
    option: Option<usize>,
    /// Bytes that the packet has more than the packet in it (dmcasts).
    around: Option<usize>,
    /// Least bytes of UDP payload (requests).
    payload: Option<usize>,
    uniform: bool,
}

impl Sizes {
    fn of<'a>(list: impl Iterator<Item = &'a Seen>) -> Sizes {
        let mut sizes = Sizes {
            uniform: true,
            ..Sizes::default()
        };
        for seen in list {
            sizes.count += 1;
            sizes.bytes += seen.total_bytes as u64;
            let option = seen.option.map(|(_, length)| length);
            let inner = Seen::read(&seen.payload).map(|inner| inner.total_bytes);
            let around = inner.map(|inner| seen.total_bytes - inner);
            let this = (Some(seen.header_bytes), option, around);
            if sizes.count > 1 && this != (sizes.header, sizes.option, sizes.around) {
                sizes.uniform = false;
            }
            (sizes.header, sizes.option, sizes.around) = this;
            let payload = seen.payload.len().saturating_sub(UDP_HEADER);
            sizes.payload = Some(sizes.payload.map_or(payload, |least| least.min(payload)));
        }
        sizes
    }
}

fn cell(value: Option<usize>) -> Cell {
    value.map_or_else(|| "-".into(), Cell::from)
}

fn request_table(requests: &Sizes) -> Table {
    let mut table = Table::new(
        "Figure 6.13: a request at the endpoints",
        &["bytes", "paper", "here"],
    );
    let mut row =
        |what: &str, paper: usize, here: Cell| table.row([what.into(), paper.into(), here]);
    row("control data at sendmsg", 28, (CMSGHDR + OPTION).into());
    row("IP option sent", 16, cell(requests.option));
    row("control data at recvmsg", 28, (CMSGHDR + OPTION).into());
    row(
        "IP option into the socket buffer",
        16,
        cell(requests.option),
    );
    row(
        "IP header with option, and UDP header",
        44,
        cell(requests.header.map(|h| h + UDP_HEADER)),
    );
    row(
        "the request itself (Figure 6.7), at least",
        12,
        cell(requests.payload),
    );
    table
}

fn dmcast_table(dmcasts: &Sizes) -> Table {
    let mut table = Table::new(
        "Figure 6.14: a dmcast at the endpoints",
        &["bytes", "paper", "here"],
    );
    let encapsulation = dmcasts
        .around
        .zip(dmcasts.option)
        .map(|(around, option)| around - option);
    let mut row = |what: &str, paper: Cell, here: Cell| table.row([what.into(), paper, here]);
    row(
        "control data at sendmsg",
        28usize.into(),
        "0 (a raw socket sends the whole packet)".into(),
    );
    row(
        "encapsulating IP header",
        IP_HEADER.into(),
        cell(encapsulation),
    );
    row("IP option", 16usize.into(), cell(dmcasts.option));
    row("in all on the wire", 36usize.into(), cell(dmcasts.around));
    row("at the receiver", "none".into(), "none".into());
    table
}

fn judge(report: &mut Report, sample: &Sample, requests: &Sizes, dmcasts: &Sizes) {
    let (repairs, plain) = sample.repairs();
    let figure = |value: Option<usize>| value.map_or(f64::NAN, |value| value as f64);
    report.check(
        "requests captured",
        requests.count as f64,
        "",
        Bound::AtLeast(1.0),
    );
    report.check(
        "dmcasts captured",
        dmcasts.count as f64,
        "",
        Bound::AtLeast(1.0),
    );
    report.check(
        "option of a request",
        figure(requests.option),
        "bytes",
        Bound::Exactly(16.0),
    );
    let headers = figure(requests.header) + UDP_HEADER as f64;
    report.check(
        "headers of a request",
        headers,
        "bytes",
        Bound::Exactly(44.0),
    );
    report.check(
        "added by a dmcast",
        figure(dmcasts.around),
        "bytes",
        Bound::Exactly(36.0),
    );
    report.holds(
        "all requests and all dmcasts are alike",
        requests.uniform && dmcasts.uniform,
    );
    report.check(
        "repairs captured at H2",
        repairs as f64,
        "",
        Bound::AtLeast(1.0),
    );
    report.holds(
        "a receiver gets repairs as ordinary packets of the source",
        plain,
    );
}
