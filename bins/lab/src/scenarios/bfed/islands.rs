//! `bfed-islands`: a session from an IP multicast island to viewers in a source-specific one and an HTTP
//! one, across three gateways: the digests match, and the tree is drawn. A second, plain stream is read
//! by `curl` in the HTTP island.

use super::federation::{Design, Federation, Kind, Peering, SOON, Viewer};
use crate::prelude::*;

/// A session from an IP multicast island to viewers in an SSM and an HTTP one, across three
/// gateways
#[derive(Debug, clap::Args)]
pub(crate) struct Islands {
    /// Size of the stream in MiB (quick: 2)
    #[arg(long, default_value_t = 32, default_value_if("quick", "true", "2"))]
    mib: u64,
    /// Its rate in bit/s (quick: 8M)
    #[arg(long, default_value = "20M", default_value_if("quick", "true", "8M"))]
    rate: String,
    /// What shapes the links
    #[arg(long, value_enum, default_value_t)]
    network: Shaper,
}

/// The session: a group of network 1, in frames with numbers.
const SESSION: &str = "bfed://1/239.1.2.3/5004/?framing=numbered";
/// A stream without any framing, for clients that know nothing of the federation.
const PLAIN: &str = "bfed://1/239.1.2.4/5004";
/// The source's island, and the viewers' islands: the source's own, the next, and the one after it.
const SOURCE: usize = 0;
const VIEWERS: [usize; 3] = [0, 1, 2];
const KINDS: [Kind; 3] = [Kind::Ip, Kind::Ssm, Kind::Http];
/// Where `curl` is.
const WEB: usize = 2;

/// In a network shaped by the system: loss at the gateways, and the rate of the source's interface.
const SYSTEM_LOSS: f64 = 0.01;
const SYSTEM_BPS: u64 = 100_000_000;
/// From the answer to the last viewer until data flows to it. A SYN between data nodes that the network loses
/// comes again after a second, the next after two more.
const TREE_GROWS: Duration = Duration::from_secs(4);

impl Scenario for Islands {
    const NAME: &'static str = "bfed-islands";
    const FIGURE: &'static str = "Broadcast Federation §3 to §5, Figure 1";

    fn run(&self, context: &Context) -> Result<Report> {
        let mib: u64 = self.mib;
        // Nothing slows down a source that sends natively: frames that a gateway without processor time cannot pass on
        // wait in a bounded queue.
        let rate = &self.rate;
        let mut report = Report::new(Self::NAME, "one session, three islands");
        let file = Path::new(SCRATCH).join("original.bin");
        write_file(&file, mib << 20)?;
        let by_system = self.network == Shaper::System;
        if by_system && let Some(reason) = system::missing() {
            report.skip("all of it", reason);
            return Ok(report);
        }
        let mut federation = build(by_system)?;
        federation.start_all()?;
        let settled = federation.settle()?;
        context.note(format!("all routes after {:.2} s", settled.as_secs_f64()));
        let viewers = VIEWERS.map(|at| federation.view(at, SESSION, &["--connect-timeout", "20s"]));
        let mut viewers = viewers.into_iter().collect::<Result<Vec<_>>>()?;
        viewers.iter_mut().try_for_each(Viewer::joined)?;
        let curl = federation.curl(WEB, PLAIN, 1)?;
        // A viewer is answered by its own gateway; the tree beyond it takes some more round trips, and a
        // live session does not wait for it.
        std::thread::sleep(TREE_GROWS);
        context.note("all viewers have joined");
        let trees = (0..KINDS.len()).map(|at| federation.show(at, "sessions"));
        let trees = trees.collect::<Result<Vec<_>>>()?;
        let mut source = federation.send(SOURCE, SESSION, &file, rate)?;
        let plain = curl
            .map(|curl| {
                Ok::<_, anyhow::Error>((federation.send(SOURCE, PLAIN, &file, rate)?, curl))
            })
            .transpose()?;
        source.succeed(SOON + Duration::from_secs(mib * 2))?;
        let sent = source.last("end").context("the source told no end")?;
        let agree = saw(&mut report, &federation, &sent, &mut viewers, &file)?;
        match plain {
            Some((source, curl)) => read_by_curl(&mut report, source, curl, &file)?,
            None => report.note("no curl on this machine: the plain stream was not read"),
        }
        report.holds("all digests match", agree);
        picture(&mut report, &trees);
        report.holds("gateways end in an orderly way", federation.stop());
        report.datum("trees", &trees);
        if !by_system {
            report.note("links between gateways: 10 ms");
        }
        report.note(
            "peerings over TLS with a shared secret; the session is bulk data, so TCP between gateways; the \
             HTTP island's viewer reads it from its gateway's server",
        );
        Ok(report)
    }
}

fn build(by_system: bool) -> Result<Federation> {
    let shape = match by_system {
        true => Shape::default(),
        false => Shape::default().delayed(Duration::from_millis(10)),
    };
    let designs = KINDS.map(Design::new);
    let peerings = [Peering::new(0, 1), Peering::new(1, 2)];
    let federation = Federation::build(&designs, &peerings, shape, "")?;
    if by_system {
        federation.use_system(SOURCE, SYSTEM_LOSS, SYSTEM_BPS)?;
    }
    Ok(federation)
}

/// Compares what each viewer saw with what was sent; whether all digests match.
fn saw(
    report: &mut Report,
    federation: &Federation,
    sent: &Value,
    viewers: &mut [Viewer],
    file: &Path,
) -> Result<bool> {
    let columns = "island | native network | joined after s | bytes | frames | lost | digest";
    let mut table = Table::with_header(format!("who saw {SESSION}"), columns);
    let mut row = |name: String, kind: Kind, joined: Option<f64>, end: &Value| {
        table.row([
            name.into(),
            kind.words().into(),
            joined.map_or("-".into(), |joined| Cell::number(joined, 3)),
            count(end, "bytes").into(),
            count(end, "frames").into(),
            count(end, "lost").into(),
            text(end, "digest").get(..16).unwrap_or("-").into(),
        ]);
    };
    row("1, the source".to_owned(), KINDS[SOURCE], None, sent);
    let mut agree = !text(sent, "digest").is_empty();
    for viewer in viewers {
        let (at, number) = (viewer.at, viewer.at + 1);
        let end = viewer.end().with_context(|| federation.account())?;
        let events = viewer.process.events();
        let joined = events.iter().find(|event| event.value["event"] == "joined");
        let joined = joined.map(|event| (event.at - viewer.process.started()).as_secs_f64());
        row(number.to_string(), KINDS[at], joined, &end);
        agree &= end["digest"] == sent["digest"];
        let name = format!("island {number}: what was seen is what was sent");
        report.holds(name, same(file, &viewer.file)?);
    }
    report.tables.push(table);
    Ok(agree)
}

/// The file that a plain HTTP client wrote. The stream has no end: it is complete when it is
/// whole.
fn read_by_curl(
    report: &mut Report,
    mut source: Process,
    mut curl: Viewer,
    file: &Path,
) -> Result<()> {
    source.succeed(SOON)?;
    let whole = std::fs::metadata(file)?.len();
    let begun = Instant::now();
    let len = || std::fs::metadata(&curl.file).map_or(0, |metadata| metadata.len());
    while len() < whole && begun.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(20));
    }
    curl.process.stop(SOON)?;
    let name = "island 3: curl has the plain stream, byte by byte";
    report.holds(name, same(file, &curl.file)?);
    Ok(())
}

/// The tree, as the gateways themselves show it.
fn picture(report: &mut Report, trees: &[Value]) {
    let mut depth = 0;
    let mut whole = true;
    report.note("the tree:");
    for (at, shown) in trees.iter().enumerate() {
        let rows = shown["sessions"].as_array().into_iter().flatten();
        let found = rows
            .into_iter()
            .find(|row| text(row, "session").starts_with("bfed://1/239.1.2.3"));
        let Some(tree) = found else {
            whole = false;
            report.note(format!("   gateway {}.1 has no part in it", at + 1));
            continue;
        };
        let indent = "   ".repeat(depth + 1);
        let path: Vec<&str> = tree["path"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let clients = if tree["clients"] == true {
            ", viewers here"
        } else {
            ""
        };
        let from = match path.is_empty() {
            true => "the owner".to_owned(),
            false => format!("by way of {}", path.join(", ")),
        };
        report.note(format!(
            "{indent}gateway {}.1 ({}): {from}{clients}",
            at + 1,
            KINDS[at].words()
        ));
        whole &= tree["attached"] == true && path.len() == at;
        depth += 1;
    }
    report.holds("the tree is the chain of the three gateways", whole);
}
