//! The result of a scenario: tables, checks against targets, plots and data, printed as text and
//! written as JSON.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::plot::Plot;

/// The outcome of one scenario.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The scenario's name: the stem of the files written.
    pub scenario: String,
    /// A headline.
    pub title: String,
    /// Section, table or figure of the paper.
    pub figure: String,
    /// Whether sizes were lowered by `--quick`.
    pub quick: bool,
    /// What the networks were made of: offloads, shaping, loss, routing.
    pub network: Vec<String>,
    /// Remarks: method of measurement, parts that were skipped and the reason.
    pub notes: Vec<String>,
    /// The result in one sentence, where there is one.
    pub conclusion: String,
    /// The figures.
    pub tables: Vec<Table>,
    /// Targets and measured figures.
    pub checks: Vec<Check>,
    /// What could not be judged here.
    pub skipped: Vec<Skipped>,
    /// Curves and bars, drawn one below the other.
    pub plots: Vec<Plot>,
    /// Further data for programs.
    pub data: Map<String, Value>,
    /// Pictures of pages, each with its name.
    #[serde(skip)]
    pub pictures: Vec<Picture>,
}

/// A picture that goes beside the report's files.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Part of its file's name.
    pub name: String,
    /// A PNG file.
    pub png: Vec<u8>,
}

/// Rows under named columns.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// Caption.
    pub title: String,
    /// Column names, units included.
    pub columns: Vec<String>,
    /// Rows as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

/// One value of a table.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// Text, left-aligned.
    Text(String),
    /// A count.
    Count(u64),
    /// A measured number and how many decimals are worth printing.
    Number(#[serde(serialize_with = "number_only")] (f64, usize)),
}

fn number_only<S: serde::Serializer>(pair: &(f64, usize), to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(pair.0)
}

impl Cell {
    /// A number printed with this many decimals.
    pub fn number(value: f64, decimals: usize) -> Cell {
        Cell::Number((value, decimals))
    }

    fn text(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(count) => group_digits(*count),
            Cell::Number((value, decimals)) => format!("{value:.decimals$}"),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Cell {
        Cell::Count(count)
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Cell {
        Cell::Count(count as u64)
    }
}

fn group_digits(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

impl Table {
    /// An empty table with these columns.
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Table {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        Table {
            title: title.into(),
            columns,
            rows: Vec::new(),
        }
    }

    /// An empty table whose header names its columns, separated by ` | `.
    pub fn with_header(title: impl Into<String>, header: &str) -> Table {
        Table::new(title, &header.split(" | ").collect::<Vec<_>>())
    }

    /// Adds a row; it must be as long as the header.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let row: Vec<Cell> = cells.into_iter().collect();
        debug_assert_eq!(row.len(), self.columns.len(), "row of {}", self.title);
        self.rows.push(row);
    }

    fn print(&self, out: &mut String) {
        let _ = writeln!(out, "{}", self.title);
        self.print_rows(out);
    }

    /// The header and the rows, without the title.
    fn print_rows(&self, out: &mut String) {
        let mut width: Vec<usize> = self.columns.iter().map(|c| c.chars().count()).collect();
        let text: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(Cell::text).collect())
            .collect();
        for row in &text {
            for (at, cell) in row.iter().enumerate().take(width.len()) {
                width[at] = width[at].max(cell.chars().count());
            }
        }
        let line = |out: &mut String, cells: &[String], right: &dyn Fn(usize) -> bool| {
            out.push_str("  ");
            for (at, cell) in cells.iter().enumerate().take(width.len()) {
                let pad = " ".repeat(width[at] - cell.chars().count());
                let (before, after) = if right(at) {
                    (pad.as_str(), "")
                } else {
                    ("", pad.as_str())
                };
                let _ = write!(out, "{before}{cell}{after}  ");
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
        };
        let numeric = |at: usize| {
            self.rows
                .iter()
                .any(|row| !matches!(row.get(at), Some(Cell::Text(_)) | None))
        };
        line(out, &self.columns, &numeric);
        let rule: Vec<String> = width.iter().map(|&w| "-".repeat(w)).collect();
        line(out, &rule, &|_| false);
        for (row, cells) in self.rows.iter().zip(&text) {
            line(out, cells, &|at| {
                !matches!(row.get(at), Some(Cell::Text(_)) | None)
            });
        }
    }
}

/// The bound of a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The figure may be at most this.
    AtMost(f64),
    /// The figure must be at least this.
    AtLeast(f64),
    /// The figure must be exactly this.
    Exactly(f64),
}

/// The verdict of a report. `lab run`, `lab report` and the page use these four words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every target that was judged is met.
    Met,
    /// A target is missed.
    Missed,
    /// Nothing was judged, because something is not available here.
    Skipped,
    /// The scenario has no target: figures only.
    NoTarget,
}

impl Verdict {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::Skipped => "skipped",
            Verdict::NoTarget => "no target",
        }
    }
}

/// A part of a scenario that was not judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The part: a target, a tool, a setting.
    pub name: String,
    /// What is not available, or what failed that is not ours.
    pub reason: String,
}

/// A target and the measured figure.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What is checked.
    pub name: String,
    /// The figure measured.
    pub measured: f64,
    /// Its unit, empty for counts and ratios.
    pub unit: String,
    /// The target.
    pub bound: Bound,
    /// Whether it is met.
    pub passed: bool,
    /// The figure depends on how fast the machine is and on what else it does.
    pub timed: bool,
}

impl Check {
    /// Compares a measured figure with a bound. Not-a-number passes nothing.
    pub fn new(name: impl Into<String>, measured: f64, unit: &str, bound: Bound) -> Check {
        let passed = match bound {
            Bound::AtMost(most) => measured <= most,
            Bound::AtLeast(least) => measured >= least,
            Bound::Exactly(exact) => measured == exact,
        };
        Check {
            name: name.into(),
            measured,
            unit: unit.to_owned(),
            bound,
            passed,
            timed: false,
        }
    }

    /// A yes-or-no check.
    pub fn holds(name: impl Into<String>, holds: bool) -> Check {
        Check::new(
            name,
            f64::from(u8::from(holds)),
            "yes/no",
            Bound::Exactly(1.0),
        )
    }

    fn line(&self) -> String {
        let verdict = if self.passed { "met    " } else { "MISSED " };
        if self.unit == "yes/no" {
            return format!("  {verdict} {}", self.name);
        }
        let unit = if self.unit.is_empty() {
            String::new()
        } else {
            format!(" {}", self.unit)
        };
        let (word, target) = match self.bound {
            Bound::AtMost(target) => ("at most", target),
            Bound::AtLeast(target) => ("at least", target),
            Bound::Exactly(target) => ("exactly", target),
        };
        let mut line = format!(
            "  {verdict} {}: {}{unit}, target {word} {}{unit}",
            self.name,
            short(self.measured),
            short(target)
        );
        if !self.passed && target != 0.0 {
            let off = (self.measured - target).abs() / target.abs() * 100.0;
            let _ = write!(line, ", missed by {off:.1} %");
        }
        line
    }
}

/// Up to four significant digits, without a tail of zeros.
fn short(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (3 - magnitude).clamp(0, 9) as usize;
    format!("{value:.decimals$}")
}

impl Report {
    /// An empty report.
    pub fn new(scenario: &str, title: impl Into<String>) -> Report {
        Report {
            scenario: scenario.to_owned(),
            title: title.into(),
            ..Report::default()
        }
    }

    /// Adds a remark.
    pub fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }

    /// Compares a figure with a target.
    pub fn check(&mut self, name: impl Into<String>, measured: f64, unit: &str, bound: Bound) {
        self.checks.push(Check::new(name, measured, unit, bound));
    }

    /// Compares a figure that depends on the machine's speed with a target: a busy machine may miss it
    /// with nothing wrong, so `--untimed` reports it without judging.
    pub fn timed(&mut self, name: impl Into<String>, measured: f64, unit: &str, bound: Bound) {
        let timed = true;
        let check = Check::new(name, measured, unit, bound);
        self.checks.push(Check { timed, ..check });
    }

    /// Adds a yes-or-no check.
    pub fn holds(&mut self, name: impl Into<String>, holds: bool) {
        self.checks.push(Check::holds(name, holds));
    }

    /// Adds yes-or-no checks whose names begin with `prefix`.
    pub fn all_hold<'n>(
        &mut self,
        prefix: &str,
        checks: impl IntoIterator<Item = (&'n str, bool)>,
    ) {
        for (name, holds) in checks {
            self.holds(format!("{prefix}{name}"), holds);
        }
    }

    /// Adds a value under a name.
    pub fn datum(&mut self, name: &str, value: impl Serialize) {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        self.data.insert(name.to_owned(), value);
    }

    /// Records that a part was not judged, and why. Each part is recorded once.
    pub fn skip(&mut self, name: impl Into<String>, reason: impl Into<String>) {
        let skipped = Skipped {
            name: name.into(),
            reason: reason.into(),
        };
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }

    /// The verdict. With `untimed`, targets that depend on the machine's speed are not judged.
    pub fn verdict(&self, untimed: bool) -> Verdict {
        let mut judged = self.checks.iter().filter(|check| !(untimed && check.timed));
        if judged.clone().any(|check| !check.passed) {
            Verdict::Missed
        } else if judged.next().is_some() {
            Verdict::Met
        } else if self.skipped.is_empty() {
            Verdict::NoTarget
        } else {
            Verdict::Skipped
        }
    }

    /// The report as text for a terminal or a file.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{}: {}", self.scenario, self.title);
        if !self.figure.is_empty() {
            let _ = writeln!(out, "paper: {}", self.figure);
        }
        if self.quick {
            let _ = writeln!(
                out,
                "quick: smaller sizes, figures not comparable with a full run"
            );
        }
        if !self.network.is_empty() {
            let _ = writeln!(out, "network: {}", self.network.join("; "));
        }
        for table in &self.tables {
            out.push('\n');
            table.print(&mut out);
        }
        if !self.notes.is_empty() {
            out.push('\n');
            for note in &self.notes {
                let _ = writeln!(out, "- {note}");
            }
        }
        if !self.checks.is_empty() || !self.skipped.is_empty() {
            out.push_str("\ntargets\n");
        }
        for check in &self.checks {
            let _ = writeln!(out, "{}", check.line());
        }
        for Skipped { name, reason } in &self.skipped {
            let _ = writeln!(out, "  skipped {name}: {reason}");
        }
        if !self.conclusion.is_empty() {
            let _ = writeln!(out, "\n{}", self.conclusion);
        }
        out
    }

    /// The report of a demo, short enough for one screen: tables without titles, how many targets are met and which are
    /// not, the remarks and the conclusion.
    pub fn brief(&self) -> String {
        let mut out = String::new();
        for table in &self.tables {
            out.push('\n');
            table.print_rows(&mut out);
        }
        for note in &self.notes {
            let _ = writeln!(out, "  {note}");
        }
        let (met, missed): (Vec<_>, Vec<_>) = self.checks.iter().partition(|check| check.passed);
        if !self.checks.is_empty() {
            let _ = writeln!(out, "\n{} of {} targets met", met.len(), self.checks.len());
        }
        for check in missed {
            let _ = writeln!(out, "{}", check.line());
        }
        for Skipped { name, reason } in &self.skipped {
            let _ = writeln!(out, "  skipped {name}: {reason}");
        }
        if !self.conclusion.is_empty() {
            let _ = writeln!(out, "{}", self.conclusion);
        }
        out
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// Never in practice: every part is plain data.
    pub fn json(&self) -> Result<Value> {
        let mut value = serde_json::to_value(self)?;
        value["verdict"] = serde_json::to_value(self.verdict(false))?;
        Ok(value)
    }

    /// Writes `NAME.txt`, `NAME.json`, `NAME.svg` when there is something to draw, and each picture as `NAME-PICTURE.png`.
    ///
    /// # Errors
    /// When the folder or a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let put = |extension: &str, bytes: &[u8]| {
            let path = folder.join(format!("{}.{extension}", self.scenario));
            std::fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))
        };
        put("txt", self.text().as_bytes())?;
        put(
            "json",
            serde_json::to_string_pretty(&self.json()?)?.as_bytes(),
        )?;
        if !self.plots.is_empty() {
            put("svg", crate::plot::svg(&self.plots)?.as_bytes())?;
        }
        for picture in &self.pictures {
            let path = folder.join(format!("{}-{}.png", self.scenario, picture.name));
            std::fs::write(&path, &picture.png)
                .with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_says_by_how_much() {
        let check = Check::new("goodput", 80.0, "Mbit/s", Bound::AtLeast(100.0));
        assert_eq!(
            check.line(),
            "  MISSED  goodput: 80 Mbit/s, target at least 100 Mbit/s, missed by 20.0 %"
        );
        assert!(!Check::new("ratio", f64::NAN, "", Bound::AtMost(1.0)).passed);
    }

    #[test]
    fn a_report_is_met_missed_skipped_or_without_target() {
        let mut report = Report::new("name", "title");
        assert_eq!(report.verdict(false), Verdict::NoTarget);
        report.skip("all of it", "etcd is not installed");
        report.skip("all of it", "etcd is not installed");
        assert_eq!(report.skipped.len(), 1);
        assert_eq!(report.verdict(false), Verdict::Skipped);
        assert!(
            report
                .text()
                .contains("  skipped all of it: etcd is not installed\n")
        );
        report.timed("speed", 1.0, "", Bound::AtLeast(2.0));
        assert_eq!(report.verdict(false), Verdict::Missed);
        assert_eq!(report.verdict(true), Verdict::Skipped);
        report.holds("it holds", true);
        assert_eq!(report.verdict(true), Verdict::Met);
        assert_eq!(report.json().expect("plain data")["verdict"], "missed");
    }

    #[test]
    fn tables_line_up() {
        let mut table = Table::new("t", &["name", "packets"]);
        table.row(["a".into(), 1_234_567u64.into()]);
        let mut out = String::new();
        table.print(&mut out);
        assert_eq!(
            out,
            "t\n  name    packets\n  ----  ---------\n  a     1 234 567\n"
        );
    }

    #[test]
    fn files_are_written() {
        let folder = tempfile::tempdir().expect("folder");
        let mut report = Report::new("name", "title");
        report
            .plots
            .push(Plot::lines("p", "x", "y").series("s", vec![(0.0, 1.0), (1.0, 2.0)]));
        report.holds("it holds", true);
        report.write(folder.path()).expect("written");
        for extension in ["txt", "json", "svg"] {
            assert!(
                folder
                    .path()
                    .join(format!("name.{extension}"))
                    .metadata()
                    .expect("file")
                    .len()
                    > 20
            );
        }
    }
}
