//! The strongest kernel TCP: several programs that carry the same bytes over one stream to each receiver, all at once.
//!
//! | tool | file to file | to nowhere |
//! | --- | --- | --- |
//! | a loop of `sendfile`, `read` and `write` | yes | `write` and `read` from and to memory |
//! | a loop of `sendfile` and `splice` | yes | |
//! | `socat -b 262144` | yes | |
//! | `iperf3` | | yes |
//!
//! Every stream has the same congestion control. A tool that is not installed is skipped with a line in the report.

use super::play::{Outcome, best, external};
use super::tcp::{CONTROL, Ends, PORT, tcp};
use super::{Stage, Wire};
use crate::prelude::*;

/// Time for the receivers of a tool to listen.
const LISTEN: Duration = Duration::from_millis(300);

/// A program that carries bytes over TCP.
#[derive(Clone, Copy, Debug)]
enum Carrier {
    /// Threads of this process.
    Loop(Ends),
    Socat,
    Iperf,
}

impl Carrier {
    /// The program that must be installed.
    fn program(self) -> Option<&'static str> {
        match self {
            Carrier::Loop(_) => None,
            Carrier::Socat => Some("socat"),
            Carrier::Iperf => Some("iperf3"),
        }
    }

    fn receiver(self, number: usize, copy: &Path) -> Result<Launch> {
        let port = PORT.to_string();
        match self {
            Carrier::Iperf => Ok(
                external("iperf3", &format!("iperf3 server {number}"))?.args([
                    "--server",
                    "--one-off",
                    "--port",
                    &port,
                ]),
            ),
            _ => Ok(external("socat", &format!("socat receiver {number}"))?
                .args(["-u", "-b", BLOCK])
                .arg(format!("TCP4-LISTEN:{port},reuseaddr"))
                .arg(format!("OPEN:{},creat,trunc", copy.display()))),
        }
    }

    fn sender(self, stage: &Stage, number: usize, to: IpAddr) -> Result<Launch> {
        let (port, bytes) = (PORT.to_string(), stage.bytes.to_string());
        match self {
            Carrier::Iperf => Ok(external("iperf3", &format!("iperf3 client {number}"))?
                .args(["--client", &to.to_string(), "--port", &port])
                .args(["--bytes", &bytes, "--congestion", CONTROL])),
            _ => Ok(external("socat", &format!("socat sender {number}"))?
                .args(["-u", "-b", BLOCK])
                .arg(format!("OPEN:{}", stage.file.display()))
                // Level and option of `TCP_CONGESTION`.
                .arg(format!("TCP4:{to}:{port},setsockopt-string=6:13:{CONTROL}"))),
        }
    }

    /// Runs one transfer to all receivers; copies are compared with the original.
    fn carry(self, stage: &mut Stage) -> Result<Outcome> {
        if let Carrier::Loop(ends) = self {
            return tcp(stage, ends);
        }
        let (mut receivers, mut copies) = (Vec::new(), Vec::new());
        for (at, node) in stage.receivers.iter().enumerate() {
            let copy = stage.copy(at)?;
            let launch = self.receiver(at + 1, &copy)?;
            receivers.push(stage.network.start(*node, launch)?);
            copies.push(copy);
        }
        std::thread::sleep(LISTEN);
        let before = stage.wire()?;
        let start = Instant::now();
        let mut senders = Vec::new();
        for (at, node) in stage.receivers.iter().enumerate() {
            let to = stage.network.plan().address(*node).into();
            let launch = self.sender(stage, at + 1, to)?;
            senders.push(stage.network.start(stage.sender, launch)?);
        }
        let limit = stage.foreign_limit();
        for process in senders.iter_mut().chain(&mut receivers) {
            process.succeed(limit)?;
        }
        let took = start.elapsed();
        let wire: Wire = stage.wire()?.since(before);
        let is_file = matches!(self, Carrier::Socat);
        let copies = if is_file { copies } else { Vec::new() };
        stage.compare(&copies)?;
        stage.discard(&copies)?;
        let name = self.program().unwrap_or_default();
        let name = format!("{} {name} streams, {}", senders.len(), ending(is_file));
        Ok(Outcome::of(name, stage, took, wire))
    }
}

/// The block of `socat`, in bytes.
const BLOCK: &str = "262144";

fn ending(is_file: bool) -> &'static str {
    if is_file {
        "file to file"
    } else {
        "from memory to nowhere"
    }
}

/// Runs every tool that is installed, each `rounds` times after a round that does not count, and returns the best
/// outcome of each, the fastest first. The streams go from the stage's file to a file for each receiver, or from
/// memory to nowhere.
pub(crate) fn strongest(
    context: &Context,
    report: &mut Report,
    stage: &mut Stage,
    is_file: bool,
    rounds: usize,
) -> Result<Vec<Outcome>> {
    let carriers: &[Carrier] = if is_file {
        &[
            Carrier::Loop(Ends::Files),
            Carrier::Loop(Ends::Spliced),
            Carrier::Socat,
        ]
    } else {
        &[Carrier::Loop(Ends::Memory), Carrier::Iperf]
    };
    let mut outcomes = Vec::new();
    for carrier in carriers {
        if let Some(program) = carrier.program()
            && installed(program).is_none()
        {
            let name = format!("{program} {}", ending(is_file));
            report.skip(name, format!("{program} is not installed"));
            continue;
        }
        context.note(format!("{carrier:?} {}", ending(is_file)));
        outcomes.push(best(rounds, || carrier.carry(stage), |o| o.seconds)?);
    }
    outcomes.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(outcomes)
}
