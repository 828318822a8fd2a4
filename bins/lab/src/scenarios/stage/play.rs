//! One transfer by one tool: its receivers started, its sender timed, every copy compared with the
//! original.

use super::{Stage, Wire};
use crate::prelude::*;
use netlab::OverTime;

/// The result of a transfer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) tool: String,
    /// From the sender's start until it is done, or every receiver is, whichever is later.
    pub(crate) seconds: f64,
    pub(crate) goodput_bps: f64,
    /// Ethernet bytes on the sender's wire / bytes of the file; not meaningful where packets of
    /// several segments pass as one.
    pub(crate) overhead: f64,
}

impl Outcome {
    /// The outcome of a transfer of the stage's file.
    pub(crate) fn of(tool: String, stage: &Stage, took: Duration, wire: Wire) -> Outcome {
        let seconds = took.as_secs_f64();
        Outcome {
            tool,
            seconds,
            goodput_bps: stage.bytes as f64 * 8.0 / seconds,
            overhead: wire.bytes as f64 / stage.bytes as f64,
        }
    }
}

/// A way to carry a file to all receivers.
pub(crate) trait Tool {
    fn name(&self) -> String;

    /// Whether it is a tool of polycast, whose failure ends the scenario; another tool's failure is a result.
    fn is_ours(&self) -> bool {
        false
    }

    /// The programs that must be installed.
    fn programs(&self) -> &'static [&'static str] {
        &[]
    }

    /// How a receiver (counted from 1) is started; it writes this copy.
    fn receiver(&self, number: usize, copy: &Path) -> Result<Launch>;

    /// The event by which a receiver reports that it listens, if it does.
    fn ready(&self) -> Option<&'static str> {
        None
    }

    fn sender(&self, stage: &Stage) -> Result<Launch>;

    /// Whether receivers end by themselves; daemons are stopped.
    fn receivers_end(&self) -> bool;

    /// Whether all is well: by default when every copy is the original, byte by byte.
    fn verify(&self, stage: &Stage, _programs: &Programs, copies: &[PathBuf]) -> Result<()> {
        stage.compare(copies)
    }
}

/// The programs of one transfer.
pub(crate) struct Programs {
    pub(crate) sender: Process,
    pub(crate) receivers: Vec<Process>,
}

/// Why a tool cannot be used here; `None` when it can.
pub(crate) fn missing(tool: &dyn Tool) -> Option<String> {
    let absent = tool
        .programs()
        .iter()
        .find(|name| installed(name).is_none())?;
    Some(format!("{absent} is not installed"))
}

pub(crate) fn external(program: &str, name: &str) -> Result<Launch> {
    let path = installed(program).with_context(|| format!("{program} is not installed"))?;
    Ok(Launch::external(path, name))
}

/// The fastest of some rounds, by `took`; an error when none succeeds. Where there are several, one before them does
/// not count: caches are warm then, for every tool alike. A tool that did not end in its time is not tried again.
pub(crate) fn best<T>(
    rounds: usize,
    mut round: impl FnMut() -> Result<T>,
    took: impl Fn(&T) -> f64,
) -> Result<T> {
    if rounds > 1
        && let Err(error) = round()
        && error.is::<OverTime>()
    {
        return Err(error);
    }
    let mut best = round();
    for _ in 1..rounds {
        if best.as_ref().is_err_and(|error| error.is::<OverTime>()) {
            break;
        }
        best = match (best, round()) {
            (Ok(a), Ok(b)) => Ok(if took(&b) < took(&a) { b } else { a }),
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
            (Err(error), Err(_)) => Err(error),
        };
    }
    best
}

/// The reason of a tool's failure, in one line.
pub(crate) fn reason(error: &anyhow::Error) -> String {
    let words = match error.downcast_ref::<OverTime>() {
        Some(over) => over.to_string(),
        None => format!("{error:#}"),
    };
    words.lines().next().unwrap_or_default().to_owned()
}

/// Runs one transfer and compares the copies.
pub(crate) fn play(tool: &dyn Tool, stage: &mut Stage) -> Result<Outcome> {
    let (mut receivers, mut copies) = (Vec::new(), Vec::new());
    for (at, node) in stage.receivers.iter().enumerate() {
        let copy = stage.copy(at)?;
        let mut process = stage.network.start(*node, tool.receiver(at + 1, &copy)?)?;
        if let Some(event) = tool.ready() {
            process.wait_event(event, Duration::from_secs(10))?;
        }
        receivers.push(process);
        copies.push(copy);
    }
    std::thread::sleep(Duration::from_millis(300));
    let before = stage.wire()?;
    let start = Instant::now();
    let mut sender = stage.network.start(stage.sender, tool.sender(stage)?)?;
    let timeout = if tool.is_ours() {
        stage.timeout()
    } else {
        stage.foreign_limit()
    };
    sender.succeed(timeout).with_context(|| {
        let tails: String = receivers.iter().map(Process::tail).collect();
        format!("receivers say:\n{tails}")
    })?;
    if tool.receivers_end() {
        for receiver in &mut receivers {
            receiver.succeed(timeout)?;
        }
    }
    let took = start.elapsed();
    let wire = stage.wire()?.since(before);
    for receiver in &mut receivers {
        let _ = receiver.stop(Duration::from_secs(5));
    }
    let programs = Programs { sender, receivers };
    tool.verify(stage, &programs, &copies)
        .with_context(|| tool.name())?;
    stage.discard(&copies)?;
    Ok(Outcome::of(tool.name(), stage, took, wire))
}

/// Fails unless every receiver reports the sender's digest.
pub(crate) fn same_digests(programs: &Programs) -> Result<()> {
    let digest = |process: &Process, event: &str| {
        let told = process.last(event);
        told.and_then(|told| Some(told["digest"].as_str()?.to_owned()))
            .with_context(|| format!("{} told no digest", process.name()))
    };
    let wanted = digest(&programs.sender, "sent")?;
    for receiver in &programs.receivers {
        let got = digest(receiver, "complete")?;
        ensure!(got == wanted, "{} has {got}, not {wanted}", receiver.name());
    }
    Ok(())
}
