//! `lab report`: every scenario, and one page of their tables and plots with the papers' figures beside
//! ours. The page is one file: it needs no network, and nothing beside it.

mod collect;
mod html;
mod machine;
mod papers;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::scenarios;
pub(crate) use collect::Ran;

/// What `lab report` was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Scenarios to run; none: all.
    pub(crate) only: Vec<String>,
    /// Smaller sizes.
    pub(crate) quick: bool,
    /// Run nothing, draw the page from what the folder has.
    pub(crate) render: bool,
    /// How long one scenario may take.
    pub(crate) limit: Duration,
    /// A line for each scenario on standard error.
    pub(crate) verbose: bool,
}

/// A scenario of the page.
pub(crate) struct Entry {
    pub(crate) ran: Ran,
    /// Its report, if it wrote one.
    pub(crate) report: Option<Value>,
    /// Its plots.
    pub(crate) svg: Option<String>,
}

/// The page's name in its folder.
pub(crate) const PAGE: &str = "report.html";

/// Runs what is wanted, writes the page, and returns all that stands on it.
///
/// # Errors
/// The folder cannot be written, or a scenario cannot be started.
pub(crate) fn run(folder: &Path, wanted: &Wanted) -> Result<Vec<Entry>> {
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let names = scenarios::all().iter().map(|scenario| scenario.name());
    let chosen = |name: &&str| wanted.only.is_empty() || wanted.only.iter().any(|o| o == name);
    let chosen: Vec<&str> = match wanted.render {
        true => Vec::new(),
        false => names.filter(chosen).collect(),
    };
    for (at, name) in chosen.iter().enumerate() {
        if wanted.verbose {
            eprint!("  {:>2} of {}  {name:24}", at + 1, chosen.len());
        }
        let ran = collect::run(name, wanted.quick, folder, wanted.limit)?;
        if wanted.verbose {
            eprintln!("{:6.1} s  {}", ran.seconds, verdict(ran.code));
        }
        // Drawn again each time: whoever stops it early has a page.
        write(folder)?;
    }
    write(folder)
}

/// An exit code of `lab run` in words.
fn verdict(code: Option<i32>) -> &'static str {
    match code {
        Some(0) => "every target met",
        Some(3) => "a target missed",
        Some(_) => "no result",
        None => "stopped at the limit",
    }
}

fn write(folder: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for scenario in scenarios::all() {
        let name = scenario.name();
        let Ok(bytes) = std::fs::read(Ran::path(folder, name)) else {
            continue;
        };
        let ran = serde_json::from_slice(&bytes)
            .with_context(|| format!("read {}", Ran::path(folder, name).display()))?;
        let beside = |extension: &str| {
            std::fs::read_to_string(folder.join(format!("{name}.{extension}"))).ok()
        };
        let report = beside("json").and_then(|text| serde_json::from_str(&text).ok());
        entries.push(Entry {
            ran,
            report,
            svg: beside("svg"),
        });
    }
    let page = html::page(&entries, &machine::describe());
    let path = folder.join(PAGE);
    std::fs::write(&path, page).with_context(|| format!("write {}", path.display()))?;
    Ok(entries)
}
