//! What became of programs of two releases.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;

use crate::prelude::*;

/// Most programs whose words are kept.
const MAX_SAID: usize = 2;
/// The exit code of a Rust program that panicked.
const PANICKED: i32 = 101;

/// What became of two releases beside each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Everything works.
    Served,
    /// Everything arrived, but one side refused a part of the other's help: what it said.
    InPart(String),
    /// Nothing arrived: what was said.
    Refused(String),
    /// A program waits without end, crashed, said nothing, or lied.
    Failed(String),
}

impl Outcome {
    /// Whether two releases may be like that.
    pub(crate) fn is_good(&self) -> bool {
        !matches!(self, Outcome::Failed(_))
    }

    /// One or two words for it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Outcome::Served => "served",
            Outcome::InPart(_) => "served in part",
            Outcome::Refused(_) => "refused",
            Outcome::Failed(_) => "FAILED",
        }
    }

    /// What the programs said, or what is wrong.
    pub(crate) fn said(&self) -> &str {
        match self {
            Outcome::Served => "",
            Outcome::InPart(said) | Outcome::Refused(said) | Outcome::Failed(said) => said,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self.said() {
            "" => Ok(()),
            said => write!(f, ": {said}"),
        }
    }
}

/// Waits until these programs have ended. Returns what is wrong where one has not.
pub(crate) fn still_running<'p>(
    processes: impl IntoIterator<Item = &'p mut Process>,
    limit: Duration,
) -> Option<String> {
    let end = Instant::now() + limit;
    let mut processes = processes.into_iter();
    let late = processes.find_map(|process| {
        let left = end.saturating_duration_since(Instant::now());
        let late = process.wait(left).is_err();
        late.then(|| process.name().to_owned())
    })?;
    Some(format!("{late} does not end within {limit:?}"))
}

/// Judges programs that have run. `arrived`: whether all data did, or what no program may do; `helped`: whether all
/// helpers did their part.
pub(crate) fn judge(
    mut processes: Vec<&mut Process>,
    arrived: Result<bool, String>,
    helped: bool,
) -> Outcome {
    if let Some(crash) = processes.iter_mut().find_map(|process| crash(process)) {
        return Outcome::Failed(crash);
    }
    let arrived = match arrived {
        Ok(true) if helped => return Outcome::Served,
        Ok(arrived) => arrived,
        Err(wrong) => return Outcome::Failed(wrong),
    };
    let mut said: Vec<String> = Vec::new();
    for process in &processes {
        let line = reason(process).map(|line| format!("{}: {line}", process.name()));
        said.extend(line.filter(|_| said.len() < MAX_SAID));
    }
    let said = said.join(" / ");
    if said.is_empty() {
        let tails: String = processes.iter().map(|process| process.tail()).collect();
        let what = if arrived { "help" } else { "data" };
        return Outcome::Failed(format!("no {what}, and no program says why:\n{tails}"));
    }
    match arrived {
        true => Outcome::InPart(said),
        false => Outcome::Refused(said),
    }
}

fn crash(process: &mut Process) -> Option<String> {
    let panicked = process
        .log()
        .into_iter()
        .find(|line| line.contains("panicked at"));
    let status = process.ended();
    let code = status.and_then(|status| status.code());
    // Programs that the scenario stopped end by SIGTERM alone.
    let signal = status.and_then(|status| status.signal());
    let killed = signal.filter(|signal| *signal != Signal::SIGTERM as i32);
    let is_crash = panicked.is_some() || code == Some(PANICKED) || killed.is_some();
    is_crash.then(|| {
        let line = panicked.unwrap_or_default();
        format!("{} crashed: {status:?} {line}", process.name())
    })
}

/// The last that a program says about versions: on standard error, or in its events.
fn reason(process: &Process) -> Option<String> {
    let events = process.events().into_iter().flat_map(|event| {
        let fields = ["message", "reason"];
        fields.map(|field| text(&event.value, field).to_owned())
    });
    let mut lines = events.chain(process.log());
    let line = lines.rfind(|line| line.contains("version"))?;
    // Lines of a log begin with the time.
    let line = line.split_once("Z ").map_or(&line[..], |(_, rest)| rest);
    Some(line.trim().to_owned())
}
