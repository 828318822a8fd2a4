//! `upgrade`: two releases beside each other in one network, in both directions, for each protocol. Whatever does not work
//! together must be refused with a reason that a user sees: no program waits without a word, ends as if all were well, or
//! delivers other bytes.

mod copies;
mod judge;
mod layers;
mod lms;

pub(super) use judge::{Outcome, judge, still_running};
pub(super) use lms::carry;

use super::{bfed, dyram};
use crate::prelude::*;
use sims::scenario::Usage;

/// Today's programs beside those of another release, in both directions, for each protocol
#[derive(Debug, clap::Args)]
pub(crate) struct Upgrade {
    /// Folder with the programs of the other release, or with its lab, which carries them all: target/release of a work
    /// tree, or the files of its packages. Without it today's programs run beside themselves, and all must be served
    #[arg(long, value_name = "DIR")]
    old: Option<PathBuf>,
    /// Which: ltp, lms, lms-hier, dyram, dyram-tree, mcp, mcp-sealed, ldc, bfed, bfed-cluster, bfed-clients, or several
    /// with commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = NAMES)]
    only: Vec<String>,
    /// Size of each file in KiB (quick: 256)
    #[arg(long, default_value_t = 4096, default_value_if("quick", "true", "256"))]
    kib: u64,
}

/// One pair of programs that speak to each other.
struct Case {
    name: &'static str,
    /// What they speak.
    protocols: &'static str,
    /// The two sides that may be of different releases.
    sides: [&'static str; 2],
    run: fn(&Sides) -> Result<Outcome>,
}

const CASES: [Case; 11] = [
    Case {
        name: "ltp",
        protocols: "LTP",
        sides: ["lms-send", "lms-recv"],
        run: lms::transfer,
    },
    Case {
        name: "lms",
        protocols: "LMS option, LMS-HIER, IGMP cost",
        sides: ["lms-router", "lms-send, lms-recv"],
        run: lms::routers_and_hosts,
    },
    Case {
        name: "lms-hier",
        protocols: "LMS-HIER between routers",
        sides: ["upper lms-router", "lower lms-router"],
        run: lms::routers,
    },
    Case {
        name: "dyram",
        protocols: "DyRAM, relay and its hosts",
        sides: ["dyram-relay", "lms-send, lms-recv"],
        run: dyram::upgrade_hosts,
    },
    Case {
        name: "dyram-tree",
        protocols: "DyRAM between relays",
        sides: ["upper dyram-relay, lms-send", "lower dyram-relay, lms-recv"],
        run: dyram::upgrade_tree,
    },
    Case {
        name: "mcp",
        protocols: "mcp control, TCP-XM",
        sides: ["mcp", "mcpd"],
        run: copies::plain,
    },
    Case {
        name: "mcp-sealed",
        protocols: "mcp control, TCP-XM, sealed records",
        sides: ["mcp", "mcpd"],
        run: copies::sealed,
    },
    Case {
        name: "ldc",
        protocols: "layers of ldc-stream",
        sides: ["ldc-stream send", "ldc-stream recv"],
        run: layers::stream,
    },
    Case {
        name: "bfed",
        protocols: "federation: peers, data, clients, frames",
        sides: ["network of the source", "network of the viewer"],
        run: bfed::upgrade_peers,
    },
    Case {
        name: "bfed-cluster",
        protocols: "federation: control and data node",
        sides: ["control node", "data node"],
        run: bfed::upgrade_cluster,
    },
    Case {
        name: "bfed-clients",
        protocols: "federation: mediators and clients, frames",
        sides: ["bfed-gateway", "bfed-join"],
        run: bfed::upgrade_clients,
    },
];

const NAMES: [&str; CASES.len() + 1] = {
    let mut names = ["all"; CASES.len() + 1];
    let mut at = 0;
    while at < CASES.len() {
        names[at + 1] = CASES[at].name;
        at += 1;
    }
    names
};

/// The releases of a case's two sides, and what to send.
pub(super) struct Sides {
    /// Folders with programs; `None`: those that this process carries.
    folders: [Option<PathBuf>; 2],
    /// The file to send.
    pub(super) file: PathBuf,
}

impl Sides {
    /// Has nodes run the programs of the first side.
    pub(super) fn first(&self, network: &mut Network, nodes: &[NodeId]) {
        self.install(0, network, nodes);
    }

    /// Has nodes run the programs of the second side.
    pub(super) fn second(&self, network: &mut Network, nodes: &[NodeId]) {
        self.install(1, network, nodes);
    }

    fn install(&self, side: usize, network: &mut Network, nodes: &[NodeId]) {
        if let Some(folder) = &self.folders[side] {
            for node in nodes {
                network.use_release(*node, folder.clone());
            }
        }
    }
}

impl Scenario for Upgrade {
    const NAME: &'static str = "upgrade";

    fn run(&self, context: &Context) -> Result<Report> {
        let old = self.old.as_deref().map(release).transpose()?;
        let mut report = Report::new(Self::NAME, "two releases beside each other");
        let file = Path::new(SCRATCH).join("file.bin");
        write_file(&file, self.kib << 10)?;
        let columns = "protocol | first side | second side | outcome | what is said";
        let mut table = Table::with_header("outcomes", columns);
        let only = chosen(&self.only, &NAMES);
        for case in CASES.iter().filter(|case| only.contains(&case.name)) {
            let directions = match &old {
                None => vec![(["today's", "today's"], [None, None])],
                Some(old) => vec![
                    (["other", "today's"], [Some(old.clone()), None]),
                    (["today's", "other"], [None, Some(old.clone())]),
                ],
            };
            for (releases, folders) in directions {
                let [first, second] =
                    [0, 1].map(|at| format!("{} {}", releases[at], case.sides[at]));
                context.note(format!("{}: {first}, {second}", case.protocols));
                let file = file.clone();
                let outcome = (case.run)(&Sides { folders, file })
                    .unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
                context.note(format!("  {outcome}"));
                table.row([
                    case.protocols.into(),
                    first.as_str().into(),
                    second.as_str().into(),
                    outcome.word().into(),
                    outcome.said().into(),
                ]);
                let (good, holds) = match &old {
                    None => ("served", outcome == Outcome::Served),
                    Some(_) => ("served, or refused with a reason", outcome.is_good()),
                };
                let name = format!("{}, {first}, {second}: {good}", case.protocols);
                report.holds(name, holds);
                report.datum(&format!("{}: {first}, {second}", case.name), &outcome);
            }
        }
        report.tables.push(table);
        if old.is_none() {
            report.note("without --old: today's programs beside themselves");
        }
        report.note(
            "served in part: everything arrived, but a helper of another release refused to help, and said so",
        );
        Ok(report)
    }
}

/// The folder of a release, as programs in any folder find it.
fn release(folder: &Path) -> Result<PathBuf> {
    let shown = folder.display();
    let folder = folder
        .canonicalize()
        .map_err(|error| Usage(format!("--old {shown}: {error}")))?;
    let has = |name: &str| folder.join(name).is_file();
    let missing = crate::programs::names().find(|name| !has(name));
    match missing.filter(|_| !has("lab")) {
        None => Ok(folder),
        Some(name) => Err(Usage(format!("--old {shown}: has neither lab nor {name}")).into()),
    }
}
