//! `lab report`: every scenario, and one page of their tables and plots with the papers' figures beside
//! ours. The page is one file: it needs no network and no other file.

mod collect;
mod html;
mod machine;
mod papers;

use std::io::{self, Write as _};

use crate::prelude::*;
use crate::scenarios;
pub(crate) use collect::Ran;
use sims::report::Verdict;

/// The options of `lab report`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Write report.html, and each scenario's files, into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Run these scenarios alone [default: all]
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    #[arg(value_parser = scenarios::all().iter().map(|s| s.name).collect::<Vec<_>>())]
    only: Vec<String>,
    /// Run at full size: hours, where small sizes take minutes
    #[arg(long)]
    full: bool,
    /// Run nothing: draw the page from what DIR has
    #[arg(long, conflicts_with_all = ["only", "full"])]
    render: bool,
    /// Time limit of each scenario
    #[arg(long, value_name = "MINUTES", default_value_t = 30, value_parser = within::<u64>(1..=10_000))]
    limit: u64,
    /// Print no line for each scenario
    #[arg(long)]
    quiet: bool,
    /// Show targets that depend on the machine's speed without judging them: for busy machines
    #[arg(long)]
    pub(crate) untimed: bool,
}

/// A scenario of the page.
pub(crate) struct Entry {
    pub(crate) ran: Ran,
    /// Its report, if it wrote one.
    pub(crate) report: Option<Value>,
    pub(crate) svg: Option<String>,
}

impl Entry {
    /// The scenario's verdict; none without a result.
    pub(crate) fn verdict(&self, untimed: bool) -> Option<Verdict> {
        let report = self.report.as_ref()?;
        let list = |key: &str| report[key].as_array().map_or(&[][..], Vec::as_slice);
        let mut judged = list("checks")
            .iter()
            .filter(|check| !(untimed && check["timed"] == true));
        Some(if judged.clone().any(|check| check["passed"] != true) {
            Verdict::Missed
        } else if judged.next().is_some() {
            Verdict::Met
        } else if list("skipped").is_empty() {
            Verdict::NoTarget
        } else {
            Verdict::Skipped
        })
    }

    /// The verdict in words, with the number of targets.
    pub(crate) fn words(&self, untimed: bool) -> String {
        let Some((verdict, report)) = self.verdict(untimed).zip(self.report.as_ref()) else {
            return match self.ran.code {
                None => "stopped at the limit".to_owned(),
                Some(_) => "no result".to_owned(),
            };
        };
        let checks = report["checks"].as_array().map_or(&[][..], Vec::as_slice);
        let missed = checks.iter().filter(|check| check["passed"] != true);
        let reason = &report["skipped"][0]["reason"];
        match verdict {
            Verdict::NoTarget => verdict.word().to_owned(),
            Verdict::Skipped => format!("skipped: {}", reason.as_str().unwrap_or_default()),
            Verdict::Met if missed.clone().count() > 0 => {
                format!("met, but for speed: {} of {}", missed.count(), checks.len())
            }
            Verdict::Met => format!("met: {} of {}", checks.len(), checks.len()),
            Verdict::Missed => format!("missed: {} of {}", missed.count(), checks.len()),
        }
    }
}

/// The page's name in its folder.
pub(crate) const PAGE: &str = "report.html";

/// Runs the selected scenarios, writes the page, and returns its entries.
pub(crate) fn run(folder: &Path, wanted: &Options) -> Result<Vec<Entry>> {
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let names = scenarios::all().iter().map(|scenario| scenario.name);
    let chosen = |name: &&str| wanted.only.is_empty() || wanted.only.iter().any(|o| o == name);
    let chosen: Vec<&str> = match wanted.render {
        true => Vec::new(),
        false => names.filter(chosen).collect(),
    };
    for (at, name) in chosen.iter().enumerate() {
        if !wanted.quiet {
            // The rest of the line follows the run.
            let _ = write!(
                io::stderr(),
                "  {:>2} of {}  {name:24}",
                at + 1,
                chosen.len()
            );
        }
        let ran = collect::run(
            name,
            !wanted.full,
            folder,
            Duration::from_secs(wanted.limit * 60),
        )?;
        if !wanted.quiet {
            let entry = read(folder, name)?.context("the scenario left no account")?;
            let words = entry.words(wanted.untimed);
            cli::print_message!("{:6.1} s  {words}", ran.seconds);
        }
        // Drawn again each time, so that an interrupted run leaves a page.
        write(folder)?;
    }
    write(folder)
}

/// What a scenario left in the folder, if it has run.
fn read(folder: &Path, name: &str) -> Result<Option<Entry>> {
    let Ok(bytes) = std::fs::read(Ran::path(folder, name)) else {
        return Ok(None);
    };
    let ran = serde_json::from_slice(&bytes)
        .with_context(|| format!("read {}", Ran::path(folder, name).display()))?;
    let beside =
        |extension: &str| std::fs::read_to_string(folder.join(format!("{name}.{extension}"))).ok();
    let report = beside("json").and_then(|text| serde_json::from_str(&text).ok());
    Ok(Some(Entry {
        ran,
        report,
        svg: beside("svg"),
    }))
}

fn write(folder: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for scenario in scenarios::all() {
        entries.extend(read(folder, scenario.name)?);
    }
    let page = html::page(&entries, &machine::describe());
    let path = folder.join(PAGE);
    std::fs::write(&path, page).with_context(|| format!("write {}", path.display()))?;
    Ok(entries)
}
