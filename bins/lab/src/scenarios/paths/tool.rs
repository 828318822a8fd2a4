//! The tools, and one transfer by one of them.

use super::super::stage::Stage;
use super::super::stage::copy::{Copying, copy};
use super::super::stage::norm::{self, Norm};
use super::super::stage::play::{Tool, missing, play};
use super::super::stage::tcp::{Ends, streams_by};
use super::super::stage::tools::{Udpcast, Uftp};
use super::grid::Path as NetworkPath;
use super::results::Measured;
use super::routed::{Help, Ltp};
use crate::prelude::*;

/// What `--tools` takes.
pub(super) const NAMES: [&str; 13] = [
    "all",
    "mcp-cubic",
    "mcp-bbr",
    "ltp",
    "ltp-parity",
    "ltp-lms",
    "ltp-dyram",
    "tcp-cubic",
    "tcp-bbr",
    "uftp",
    "norm",
    "norm-parity",
    "udpcast",
];

/// The first rate of uftp, before TFMCC has found one.
const UFTP_KBPS: i64 = 1_000;
/// Parity of udpcast: stripes, parity packets of each, data packets of each.
const UDPCAST_PARITY: &str = "8x8/128";
/// Its rate, just under that of the link: it has no congestion control.
const UDPCAST_RATE: &str = "90m";
/// Parity segments of NORM for each block of 64.
const NORM_PARITY: u8 = 4;

/// How a tool is run.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// `mcp --congestion`.
    Mcp(&'static str),
    Ltp(Ltp),
    /// The kernel's, one stream a receiver, with this congestion control.
    Tcp(&'static str),
    /// With TFMCC.
    Uftp,
    /// With congestion control, and this parity.
    Norm(u8),
    /// With parity.
    Udpcast,
}

/// A tool with its settings.
#[derive(Debug)]
pub(super) struct Choice {
    /// As `--tools` names it.
    pub(super) name: &'static str,
    /// As in tables.
    pub(super) label: &'static str,
    kind: Kind,
}

const fn ltp(help: Help, parity: &'static str) -> Kind {
    Kind::Ltp(Ltp { help, parity })
}

const CHOICES: [Choice; 12] = [
    choice("mcp-cubic", "mcp cubic", Kind::Mcp("cubic")),
    choice("mcp-bbr", "mcp bbr", Kind::Mcp("bbr")),
    choice("ltp", "LTP", ltp(Help::None, "off")),
    choice("ltp-parity", "LTP parity", ltp(Help::None, "auto")),
    choice("ltp-lms", "LTP LMS", ltp(Help::Lms, "off")),
    choice("ltp-dyram", "LTP DyRAM", ltp(Help::Dyram, "off")),
    choice("tcp-cubic", "TCP cubic", Kind::Tcp("cubic")),
    choice("tcp-bbr", "TCP bbr", Kind::Tcp("bbr")),
    choice("uftp", "uftp", Kind::Uftp),
    choice("norm", "NORM", Kind::Norm(0)),
    choice("norm-parity", "NORM parity", Kind::Norm(NORM_PARITY)),
    choice("udpcast", "udpcast", Kind::Udpcast),
];

const fn choice(name: &'static str, label: &'static str, kind: Kind) -> Choice {
    Choice { name, label, kind }
}

/// The tools that an option selects.
pub(super) fn chosen_of(asked: &[String]) -> Vec<&'static Choice> {
    let names = chosen(asked, &NAMES);
    let wanted = |choice: &&Choice| names.contains(&choice.name);
    CHOICES.iter().filter(wanted).collect()
}

impl Choice {
    /// Whether it is a tool of polycast, whose failure is a missed target.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Mcp(_) | Kind::Ltp(_))
    }

    /// Whether it runs between hosts on one switch; the others have a router between them.
    pub(super) fn is_switched(&self) -> bool {
        !matches!(self.kind, Kind::Ltp(_))
    }
}

/// What all transfers have in common.
pub(super) struct Runner {
    /// Length of the file.
    pub(super) bytes: u64,
    /// After which a transfer has failed.
    pub(super) limit: Duration,
    /// The program around NORM's library, or why there is none; compiled when it is first asked for.
    norm: std::cell::OnceCell<Result<PathBuf, String>>,
}

impl Runner {
    pub(super) fn new(bytes: u64, limit: Duration) -> Runner {
        Runner {
            bytes,
            limit,
            norm: std::cell::OnceCell::new(),
        }
    }

    /// NORM's program, or why there is none.
    fn norm(&self) -> &Result<PathBuf, String> {
        self.norm
            .get_or_init(|| norm::compile().unwrap_or_else(|error| Err(format!("{error:#}"))))
    }

    /// Why a tool cannot run here; `None` when it can.
    pub(super) fn absent(&self, choice: &Choice) -> Option<String> {
        match choice.kind {
            Kind::Mcp(_) | Kind::Ltp(_) => None,
            Kind::Tcp(control) => no_control(control),
            Kind::Uftp => missing(&uftp()),
            Kind::Norm(_) => self.norm().as_ref().err().cloned(),
            Kind::Udpcast => missing(&udpcast()),
        }
    }

    /// One transfer, with every copy compared with the original. `stage` is the path on a switch; `run` makes each of
    /// several transfers lose other packets.
    pub(super) fn transfer(
        &self,
        choice: &Choice,
        path: &NetworkPath,
        stage: Option<&mut Stage>,
        run: u64,
    ) -> Result<Measured> {
        if let Kind::Ltp(ltp) = choice.kind {
            return ltp.transfer(self, path, run);
        }
        let stage = stage.context("no network")?;
        match choice.kind {
            Kind::Mcp(control) => {
                let copying = Copying::plain().send(&["--congestion", control]);
                let copied = copy(stage, &copying)?;
                Ok(Measured::of(copied.seconds, copied.wire.bytes, self.bytes))
            }
            Kind::Tcp(control) => {
                let all: Vec<usize> = (0..stage.receivers.len()).collect();
                let streams = streams_by(stage, &all, Ends::Files, control)?;
                let seconds = streams.last().as_secs_f64();
                Ok(Measured::of(seconds, streams.wire.bytes, self.bytes))
            }
            Kind::Uftp => foreign(&uftp(), stage),
            Kind::Udpcast => foreign(&udpcast(), stage),
            Kind::Norm(parity) => {
                let program = self.norm().as_ref().map_err(|why| anyhow!("{why}"))?;
                let norm = Norm {
                    program,
                    rate_bps: 0,
                    parity,
                };
                foreign(&norm, stage)
            }
            Kind::Ltp(_) => bail!("LTP needs a router"),
        }
    }
}

fn uftp() -> Uftp {
    Uftp {
        rate_kbps: UFTP_KBPS,
        tfmcc: true,
    }
}

fn udpcast() -> Udpcast {
    Udpcast {
        parity: Some(UDPCAST_PARITY),
        rate: Some(UDPCAST_RATE),
    }
}

fn foreign(tool: &dyn Tool, stage: &mut Stage) -> Result<Measured> {
    let outcome = play(tool, stage)?;
    Ok(Measured {
        seconds: outcome.seconds,
        goodput_bps: outcome.goodput_bps,
        overhead: outcome.overhead,
    })
}

/// Why a congestion control of the kernel cannot be used; `None` when it can.
fn no_control(control: &str) -> Option<String> {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let known = known.unwrap_or_default();
    let has = known.split_whitespace().any(|name| name == control);
    (!has).then(|| format!("the kernel has no congestion control {control}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_tool() {
        let all = chosen_of(&["all".to_owned()]);
        let names: Vec<&str> = all.iter().map(|choice| choice.name).collect();
        assert_eq!(names, NAMES[1..]);
        assert_eq!(all.iter().filter(|choice| choice.is_ours()).count(), 6);
    }
}
