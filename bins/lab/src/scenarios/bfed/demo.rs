//! `lab demo bfed`: an IP multicast session of one network, read by plain HTTP clients in another through two
//! gateways.
//!
//! ```text
//! source --- gateway 1 --- gateway 2 --- curl, curl, curl
//! IP multicast            HTTP
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::federation::{Design, Federation, Kind, Peering, SOON, Viewer};
use crate::transfer::{same, write_file};
use netlab::{SCRATCH, Shape};
use sims::bars::Bars;
use sims::report::{Bound, Cell, Report, Table};
use sims::scenario::Context;

/// A group of network 1, without any framing: its clients know nothing of the federation.
const SESSION: &str = "bfed://1/239.1.2.4/5004";
const READERS: usize = 3;
const NAMES: [&str; READERS] = ["curl 1", "curl 2", "curl 3"];
const RATE: &str = "10M";
const SOURCE: usize = 0;
const WEB: usize = 1;
/// From the answer to the readers until data flows to them.
const TREE_GROWS: Duration = Duration::from_secs(2);

/// Runs a source and its readers.
pub(crate) fn run(context: &Context) -> Result<Report> {
    let mib: u64 = if context.quick { 2 } else { 16 };
    let mut report = Report::new("demo", "an IP multicast session read by curl");
    context.note("source --- gateway 1 --- gateway 2 --- curl, three times");
    context.note("IP multicast                HTTP only");
    let file = Path::new(SCRATCH).join("original.bin");
    write_file(&file, mib << 20)?;
    let shape = Shape {
        delay: Duration::from_millis(10),
        ..Shape::default()
    };
    let designs = [Kind::Ip, Kind::Http].map(Design::new);
    let mut federation = Federation::build(&designs, &[Peering::new(SOURCE, WEB)], shape, "")?;
    federation.start_all()?;
    federation.settle()?;
    let readers = (1..=READERS).map(|number| federation.curl(WEB, SESSION, number));
    let Some(mut readers) = readers.collect::<Result<Option<Vec<_>>>>()? else {
        report.skip("the demo", "curl is not installed");
        return Ok(report);
    };
    context.note(format!("host 2$ curl {}", federation.url(WEB, SESSION)?));
    std::thread::sleep(TREE_GROWS);
    let before = federation.crossed(SOURCE, WEB)?;
    context.note(format!(
        "host 1$ bfed-join send --rate {RATE} --input FILE {SESSION}"
    ));
    let mut source = federation.send(SOURCE, SESSION, &file, RATE)?;
    let mut bars = Bars::new(context, NAMES, mib << 20);
    let begun = Instant::now();
    let limit = SOON + Duration::from_secs(mib);
    while begun.elapsed() < limit && readers.iter().any(|reader| read(reader) < mib << 20) {
        std::thread::sleep(Duration::from_millis(100));
        bars.show(readers.iter().map(|reader| {
            let bytes = read(reader);
            (bytes, format!("{:.1} MB", bytes as f64 / 1e6))
        }));
    }
    let seconds = begun.elapsed().as_secs_f64();
    bars.done();
    source.succeed(SOON)?;
    let crossed = federation.crossed(SOURCE, WEB)? - before;
    let all: u64 = readers.iter().map(read).sum();
    let columns = "what | MB | Mbit/s";
    let mut table = Table::with_header("bytes", columns);
    let mut row = |what: String, bytes: u64| {
        let megabytes = Cell::number(bytes as f64 / 1e6, 1);
        let rate = Cell::number(bytes as f64 * 8.0 / 1e6 / seconds, 1);
        table.row([what.into(), megabytes, rate]);
    };
    row("sent by the source, IP multicast".to_owned(), mib << 20);
    row(
        "from gateway 1 to gateway 2, with all headers".to_owned(),
        crossed,
    );
    row(format!("read by {READERS} clients, HTTP"), all);
    report.tables.push(table);
    report.note("the gateways join the session when the first client asks for it, and send");
    report.note("each frame once between networks, however many clients there are");
    for (name, reader) in NAMES.iter().zip(&mut readers) {
        reader.process.stop(SOON)?;
        let name = format!("{name} has every byte of the session");
        report.holds(name, same(&file, &reader.file)?);
    }
    report.check(
        "bytes between the gateways / bytes of the session",
        crossed as f64 / (mib << 20) as f64,
        "",
        Bound::AtMost(1.2),
    );
    report.conclusion = format!(
        "{READERS} clients that know only HTTP read an IP multicast session of another\n\
         network, and {:.1} MB crossed between the networks instead of {:.1}.",
        crossed as f64 / 1e6,
        crossed as f64 * READERS as f64 / 1e6
    );
    report.datum("crossed", crossed);
    report.datum("gateways", federation.account());
    report.holds("gateways end in an orderly way", federation.stop());
    Ok(report)
}

/// Bytes that a client has written so far.
fn read(reader: &Viewer) -> u64 {
    std::fs::metadata(&reader.file).map_or(0, |metadata| metadata.len())
}
