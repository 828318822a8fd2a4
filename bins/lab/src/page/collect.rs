//! Runs scenarios one after the other, each in its own sandbox, and stores their results.

use std::process::{Command, Stdio};

use crate::prelude::*;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::Deserialize;

/// How one scenario ended; `NAME.run.json` beside its report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ran {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    /// Its exit code; none when it was stopped at the limit.
    pub(crate) code: Option<i32>,
    /// The last lines of its standard error, when there is no report.
    pub(crate) words: String,
}

impl Ran {
    /// Where it is kept.
    pub(super) fn path(folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("{name}.run.json"))
    }
}

/// Runs `lab run NAME --out FOLDER` and waits for it, `limit` at most.
pub(super) fn run(name: &str, quick: bool, folder: &Path, limit: Duration) -> Result<Ran> {
    for extension in ["json", "txt", "svg"] {
        // Results of an earlier run must not count for this one.
        let _ = std::fs::remove_file(folder.join(format!("{name}.{extension}")));
    }
    let log = folder.join(format!("{name}.log"));
    let errors = std::fs::File::create(&log).with_context(|| format!("write {}", log.display()))?;
    let began = Instant::now();
    let mut child = Command::new("/proc/self/exe")
        .args(["run", name, "--quiet", "--out"])
        .arg(folder)
        .args(quick.then_some("--quick"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .context("start lab again")?;
    let mut ended = None;
    while ended.is_none() && began.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(50));
        ended = child.try_wait()?;
    }
    if ended.is_none() {
        // Its sandbox ends with it.
        let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
        child.wait()?;
    }
    let words = std::fs::read_to_string(&log).unwrap_or_default();
    let _ = std::fs::remove_file(&log);
    let ran = Ran {
        name: name.to_owned(),
        seconds: began.elapsed().as_secs_f64(),
        code: ended.and_then(|status| status.code()),
        words: last_lines(&words, 5),
    };
    let path = Ran::path(folder, name);
    std::fs::write(&path, serde_json::to_vec_pretty(&ran)?)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(ran)
}

fn last_lines(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(most)..].join("\n")
}
