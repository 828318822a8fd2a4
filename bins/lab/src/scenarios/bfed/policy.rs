//! `bfed-policy`: a network that refuses transit, and one that cannot carry sessions of many sources: routes
//! and trees go around them.
//!
//! ```text
//!       +-- 2: SSM, not in multi-source tables ---+
//!       |                                         |
//! 1 ----+-- 4: refuses transit (the shortest) ----+---- 3        1: the owner
//!       |                                         |
//!       +-- 5: the longest ----------------------+
//! ```

use super::federation::{Design, Federation, Kind, Part, Peering, SOON, Viewer};
use crate::prelude::*;

/// A network refuses transit, an SSM network is in no multi-source table: trees go around
#[derive(Debug, clap::Args)]
pub(crate) struct Policy {
    /// Size of each stream in MiB (quick: 1)
    #[arg(long, default_value_t = 8, default_value_if("quick", "true", "1"))]
    mib: u64,
    /// Its rate in bit/s (quick: 4M)
    #[arg(long, default_value = "10M", default_value_if("quick", "true", "4M"))]
    rate: String,
}

const ONE: &str = "bfed://1/239.1.2.3/5004/?framing=numbered";
const MANY: &str = "bfed://1/239.1.2.4/5004/?framing=numbered&multi-source=true";
/// Also a multi-source session; its only source is not in the network that owns it.
const AFAR: &str = "bfed://1/239.1.2.5/5004/?framing=numbered&multi-source=true";
const OWNER: usize = 0;
const SSM: usize = 1;
const FAR: usize = 2;
const SELFISH: usize = 3;
const LONG: usize = 4;
/// Viewers and the sessions they view.
const VIEWS: [(&str, usize); 8] = [
    (ONE, SSM),
    (ONE, FAR),
    (ONE, SELFISH),
    (MANY, FAR),
    (MANY, SELFISH),
    (AFAR, OWNER),
    (AFAR, SELFISH),
    (AFAR, FAR),
];

/// From the first route to every network until each table has its best ones: each gateway collects updates for 100 ms.
const ROUTES_SETTLE: Duration = Duration::from_secs(2);
/// Until data flows once a viewer has its answer.
const TREE_GROWS: Duration = Duration::from_secs(1);

impl Scenario for Policy {
    const NAME: &'static str = "bfed-policy";
    const FIGURE: &'static str = "Broadcast Federation §5.1: policies, a table for each capability";

    fn run(&self, _: &Context) -> Result<Report> {
        let mib: u64 = self.mib;
        // Nothing slows down a source that sends natively: frames that a gateway without processor time cannot pass on
        // wait in a bounded queue.
        let rate = &self.rate;
        let mut report = Report::new(Self::NAME, "trees go where networks let them");
        let file = Path::new(SCRATCH).join("original.bin");
        write_file(&file, mib << 20)?;
        let mut federation = build()?;
        federation.settle()?;
        std::thread::sleep(ROUTES_SETTLE);
        tables(&mut report, &federation)?;

        let mut views = Vec::new();
        for (session, at) in VIEWS {
            let viewer = federation.view(at, session, &["--connect-timeout", "20s"])?;
            views.push((session, viewer));
        }
        for (_, viewer) in &mut views {
            viewer.joined()?;
        }
        let mut refused = federation.view(SSM, MANY, &["--connect-timeout", "2s"])?;
        let code = refused.process.wait(SOON)?.0.code();
        report.holds(
            "the SSM network: no way to a session of many sources (code 3)",
            code == Some(3),
        );
        std::thread::sleep(TREE_GROWS);
        let wait = SOON + Duration::from_secs(mib * 2);
        let abroad = views.last().and_then(|(_, viewer)| group(viewer));
        let abroad = abroad.context("a viewer was told no group")?;
        let sources = [(OWNER, ONE), (OWNER, MANY), (FAR, &abroad)];
        let sources = sources.map(|(at, session)| federation.send(at, session, &file, rate));
        for mut source in sources.into_iter().collect::<Result<Vec<Process>>>()? {
            source.succeed(wait)?;
        }
        trees(&mut report, &federation)?;
        report.datum("counters", federation.account());
        seen(&mut report, views, &file).with_context(|| federation.account())?;
        report.holds("gateways end in an orderly way", federation.stop());
        report.note(
            "costs: 1-4-3 2, 1-2-3 4, 1-5-3 6; network 4 has `transit = false`, network 2 \
             `multi-source = false`; links 2 ms",
        );
        Ok(report)
    }
}

fn build() -> Result<Federation> {
    let mut designs = [Kind::Ip; 5].map(Design::new);
    designs[SSM].kind = Kind::Ssm;
    designs[SELFISH].keys = "transit = false\n";
    let ways = [(SELFISH, 1), (SSM, 2), (LONG, 3)];
    let peerings: Vec<Peering> = ways
        .into_iter()
        .flat_map(|(way, cost)| [(OWNER, way), (way, FAR)].map(|between| Peering { between, cost }))
        .collect();
    let shape = Shape::default().delayed(Duration::from_millis(2));
    let mut federation = Federation::build(&designs, &peerings, shape, "")?;
    federation.start_all()?;
    Ok(federation)
}

/// The ways from network 3 to network 1, in both tables.
fn tables(report: &mut Report, federation: &Federation) -> Result<()> {
    let routes = federation.show(FAR, "routes")?;
    let mut table = Table::new(
        "routes from network 3 to network 1, by hops, bulk data",
        &["table", "best", "cost", "path"],
    );
    let mut best = [String::new(), String::new()];
    let mut forbidden = 0;
    let rows = routes["routes"].as_array().context("no routes")?;
    let kinds = [
        "hops/bulk-data/single-source",
        "hops/bulk-data/multi-source",
    ];
    for row in rows.iter().filter(|row| text(row, "destination") == "1.1") {
        let Some(kind) = kinds.iter().position(|kind| text(row, "table") == *kind) else {
            continue;
        };
        let path = path(row);
        let is_best = row["best"] == true;
        table.row([
            kinds[kind].into(),
            if is_best { "yes" } else { "" }.into(),
            count(row, "cost").into(),
            path.clone().into(),
        ]);
        forbidden += usize::from(path.starts_with("4.1") || kind == 1 && path.starts_with("2.1"));
        if is_best {
            best[kind] = path;
        }
    }
    report.tables.push(table);
    report.holds(
        "one source: the best way is through network 2",
        best[0] == "2.1 1.1",
    );
    report.holds(
        "many sources: the best way is through network 5",
        best[1] == "5.1 1.1",
    );
    report.holds(
        "no route through network 4, none of many sources through 2",
        forbidden == 0,
    );
    Ok(())
}

fn path(row: &Value) -> String {
    let path = row["path"].as_array().into_iter().flatten();
    path.filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

/// Where the trees really are.
fn trees(report: &mut Report, federation: &Federation) -> Result<()> {
    let mut shown = Vec::new();
    for at in 0..=LONG {
        shown.push(federation.status(Part::All(at), "sessions")?);
    }
    let tree = |at: usize, session: &str| {
        let rows = shown[at]["sessions"].as_array().into_iter().flatten();
        rows.into_iter()
            .find(|row| text(row, "session").starts_with(session))
            .map(|row: &Value| (path(row), row["downstream"].as_array().map_or(0, Vec::len)))
    };
    let (one, many) = (&ONE[..20], &MANY[..20]);
    let is = |at, session, path: &str, below| tree(at, session) == Some((path.to_owned(), below));
    report.holds(
        "3 has the session of one source through 2",
        is(FAR, one, "2.1 1.1", 0),
    );
    report.holds(
        "3 has the session of many sources through 5",
        is(FAR, many, "5.1 1.1", 0),
    );
    report.holds(
        "4 has both for itself, and passes neither on",
        is(SELFISH, one, "1.1", 0) && is(SELFISH, many, "1.1", 0),
    );
    report.holds(
        "2 passes on what has one source, and has no part in the other",
        is(SSM, one, "1.1", 1) && tree(SSM, many).is_none(),
    );
    report.datum("trees", &shown);
    Ok(())
}

/// The group that a viewer listens to, as the name of a session of its own network: a host that sends to it is a
/// source.
fn group(viewer: &Viewer) -> Option<String> {
    let joined = viewer.process.last("joined")?;
    let address = joined["addresses"].as_array()?.first()?.as_str()?;
    let (group, port) = address.rsplit_once(':')?;
    let network = viewer.at + 1;
    Some(format!("bfed://{network}/{group}/{port}/?framing=numbered"))
}

fn seen(report: &mut Report, views: Vec<(&str, Viewer)>, file: &Path) -> Result<()> {
    let mut table = Table::new(
        "who saw what",
        &["session", "network", "bytes", "lost", "digest"],
    );
    for (session, mut viewer) in views {
        let end = viewer.end()?;
        let kind = match session {
            ONE => "one source",
            MANY => "many sources",
            _ => "a source abroad",
        };
        table.row([
            kind.into(),
            (viewer.at + 1).into(),
            count(&end, "bytes").into(),
            count(&end, "lost").into(),
            text(&end, "digest").get(..16).unwrap_or("-").into(),
        ]);
        let name = format!(
            "network {}, {kind}: what was seen is what was sent",
            viewer.at + 1
        );
        report.holds(name, same(file, &viewer.file)?);
    }
    report.tables.push(table);
    Ok(())
}
