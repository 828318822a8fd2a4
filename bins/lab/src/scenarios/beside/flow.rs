//! One of the two flows.

use std::fmt;

use super::super::stage::Stage;
use super::super::stage::copy::{Copying, Running};
use super::super::stage::endless;
use crate::prelude::*;

/// Receivers of a flow of ours.
pub(super) const RECEIVERS: usize = 2;
/// The group of each flow.
pub(super) const GROUPS: [Ipv4Addr; 2] = [
    Ipv4Addr::new(239, 192, 12, 1),
    Ipv4Addr::new(239, 192, 12, 2),
];
/// The first ports of the two flows.
const MCP_PORT: u16 = 7_110;
const TCP_PORT: u16 = 7_120;
const LTP_PORT: u16 = 5_010;

/// What a flow is carried by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `mcp --congestion`.
    Mcp(&'static str),
    /// `lms-send` with TFMCC.
    Ltp,
    /// The kernel's TCP with this congestion control.
    Tcp(&'static str),
}

impl Kind {
    /// The kind that an option names.
    pub(super) fn of(name: &'static str) -> Kind {
        match name.split_once('-') {
            Some(("mcp", control)) => Kind::Mcp(control),
            Some(("tcp", control)) => Kind::Tcp(control),
            _ => Kind::Ltp,
        }
    }

    /// Whether it is the kernel's.
    pub(super) fn is_tcp(self) -> bool {
        matches!(self, Kind::Tcp(_))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Mcp(control) => write!(f, "mcp {control}"),
            Kind::Ltp => write!(f, "LTP"),
            Kind::Tcp(control) => write!(f, "TCP {control}"),
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The programs of a flow, the sender's first.
enum Programs {
    Mcp(Box<Running>),
    Ltp(Vec<Process>),
    Tcp(endless::Flow),
}

/// A flow that runs.
pub(super) struct Flow {
    pub(super) kind: Kind,
    /// Its first receiver.
    receiver: NodeId,
    programs: Programs,
}

impl Flow {
    /// Starts the flow with this place, 0 or 1.
    pub(super) fn start(kind: Kind, place: usize, stage: &mut Stage) -> Result<Flow> {
        let mine: Vec<usize> = (place * RECEIVERS..(place + 1) * RECEIVERS).collect();
        let receiver = stage.receivers[mine[0]];
        let number = u16::try_from(place).unwrap_or(0);
        let programs = match kind {
            Kind::Mcp(control) => {
                let group = GROUPS[place].to_string();
                let copying = Copying {
                    port: Some(MCP_PORT + number),
                    receivers: mine,
                    ..Copying::default()
                };
                let copying = copying.send(&["--congestion", control, "--group", &group]);
                Programs::Mcp(Box::new(Running::start(stage, &copying)?))
            }
            Kind::Ltp => Programs::Ltp(ltp(stage, &mine, place, LTP_PORT + number)?),
            Kind::Tcp(control) => {
                let ends = (stage.sender, receiver);
                let port = TCP_PORT + number;
                Programs::Tcp(endless::Flow::start(&stage.network, ends, port, control)?)
            }
        };
        Ok(Flow {
            kind,
            receiver,
            programs,
        })
    }

    /// Ethernet bytes that its first receiver has received in total.
    pub(super) fn received(&self, stage: &mut Stage) -> Result<u64> {
        let editor = stage.network.editor(self.receiver);
        let index = editor.index("eth0")?;
        Ok(editor.counters(index)?.rx_bytes)
    }

    /// Fails when one of its programs has ended: none may before the time is over.
    pub(super) fn check(&mut self) -> Result<()> {
        let kind = self.kind;
        let ended = |process: &mut Process| -> Result<()> {
            let Some(status) = process.ended() else {
                return Ok(());
            };
            // Standard error is the log: arguments that are refused, for example.
            let why = process.log().into_iter().next().unwrap_or_default();
            bail!("{kind}: {} ended early, {status}: {why}", process.name())
        };
        match &mut self.programs {
            Programs::Mcp(running) => {
                ended(&mut running.sender)?;
                let mut daemons = running.daemons.iter_mut();
                daemons.try_for_each(|daemon| ended(&mut daemon.process))
            }
            Programs::Ltp(processes) => processes.iter_mut().try_for_each(ended),
            Programs::Tcp(_) => Ok(()),
        }
    }

    /// Stops it, and deletes what its receivers have stored.
    pub(super) fn end(self) -> Result<()> {
        match self.programs {
            Programs::Mcp(running) => {
                let folders = running.daemons.iter().map(|daemon| daemon.copy.parent());
                let folders: Vec<PathBuf> = folders.flatten().map(Path::to_owned).collect();
                drop(running);
                for folder in folders {
                    std::fs::remove_dir_all(folder)?;
                }
            }
            Programs::Ltp(processes) => drop(processes),
            Programs::Tcp(flow) => flow.end()?,
        }
        Ok(())
    }
}

/// `lms-recv` on these receivers, which discard what they have verified, and `lms-send`.
fn ltp(stage: &Stage, receivers: &[usize], place: usize, port: u16) -> Result<Vec<Process>> {
    let group = format!("{}:{port}", GROUPS[place]);
    let common = [
        "--json",
        "--quiet",
        "--interface",
        "eth0",
        "--group",
        &group,
    ];
    let mut processes = Vec::new();
    for receiver in receivers {
        let launch = Launch::carried("lms-recv")
            .named(format!("lms-recv {}", receiver + 1))
            .args(common)
            .args(["--output", "-"])
            .stdout_null();
        let mut process = stage.network.start(stage.receivers[*receiver], launch)?;
        process.wait_event("waiting", Duration::from_secs(10))?;
        processes.push(process);
    }
    let launch = Launch::carried("lms-send")
        .named(format!("lms-send {}", place + 1))
        .args(common)
        .args(["--no-digest", "--receivers", &receivers.len().to_string()])
        .arg(&stage.file);
    processes.insert(0, stage.network.start(stage.sender, launch)?);
    Ok(processes)
}
