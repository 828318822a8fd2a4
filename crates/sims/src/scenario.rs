//! A scenario: its command line, the part of a paper that it repeats, its requirements, and a run that
//! ends in a [`Report`].

use std::fmt::Display;
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use clap::{ArgMatches, Args, Command};

use crate::report::Report;

/// One experiment of `lab`. The fields are its options, the documentation of the type is its one line of
/// help. Options may have another default with `--quick`, by `default_value_if`.
pub trait Scenario: Args + 'static {
    /// The name after `lab run`.
    const NAME: &'static str;
    /// The section, table or figure of the paper that it repeats, or an empty string.
    const FIGURE: &'static str = "";
    /// Requirements on the machine. Namespaces are prepared before `run` is called.
    const NEEDS: &'static [Need] = &[Need::Namespaces];

    /// Runs it. A missed target is a failed check in the report; an error means that there is no
    /// result.
    ///
    /// # Errors
    /// When the experiment could not be carried out.
    fn run(&self, context: &Context) -> Result<Report>;
}

/// A scenario in the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name after `lab run`.
    pub name: &'static str,
    /// The section, table or figure of the paper that it repeats, or an empty string.
    pub figure: &'static str,
    /// Requirements on the machine.
    pub needs: &'static [Need],
    /// Adds its line of help and its own options to a command.
    pub augment: fn(Command) -> Command,
    /// Reads the options that were parsed by the command that `augment` made.
    pub parse: fn(&ArgMatches) -> Result<Job, clap::Error>,
}

/// A scenario with its options, ready to run.
pub type Job = Box<dyn Fn(&Context) -> Result<Report>>;

impl Entry {
    /// The entry of a scenario.
    pub const fn of<S: Scenario>() -> Entry {
        Entry {
            name: S::NAME,
            figure: S::FIGURE,
            needs: S::NEEDS,
            augment: S::augment_args,
            parse: |matches| {
                let scenario = S::from_arg_matches(matches)?;
                Ok(Box::new(move |context| {
                    let mut report = scenario.run(context)?;
                    report.scenario = S::NAME.to_owned();
                    report.figure = S::FIGURE.to_owned();
                    report.quick = context.quick;
                    Ok(report)
                }))
            },
        }
    }

    /// One line: what the scenario shows.
    pub fn about(&self) -> String {
        let command = (self.augment)(Command::new(self.name));
        command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default()
    }
}

/// What a scenario needs from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Network, mount and process namespaces: as root, or in a user namespace.
    Namespaces,
    /// Root of the machine, not of a user namespace.
    Root,
}

impl Need {
    /// As printed by `lab list`.
    pub fn label(self) -> &'static str {
        match self {
            Need::Namespaces => "namespaces",
            Need::Root => "root",
        }
    }
}

/// A value on the command line that makes no sense: `lab` ends with the code of wrong usage.
#[derive(Debug)]
pub struct Usage(pub String);

impl Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Parses an option's value and checks that it lies in this range.
pub fn within<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync
where
    T: FromStr<Err: Display> + PartialOrd + Display + Clone + Send + Sync,
{
    move |text| {
        let value = text
            .trim()
            .parse()
            .map_err(|error: T::Err| error.to_string())?;
        if range.contains(&value) {
            return Ok(value);
        }
        Err(format!("from {} to {}", range.start(), range.end()))
    }
}

/// The words of a list that an option selects; `all` selects all.
pub fn chosen(asked: &[String], known: &[&'static str]) -> Vec<&'static str> {
    let all = asked.iter().any(|word| word == "all");
    let mut known = known.to_vec();
    known.retain(|name| *name != "all" && (all || asked.iter().any(|word| word == name)));
    known
}

/// The options that every scenario and the demo have.
#[derive(Clone, Debug, Default, Args)]
pub struct Context {
    /// Write NAME.txt, NAME.json, NAME.svg and pictures into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the report as JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// Smaller sizes, for tests: the figures are not comparable, and targets that need the full size are
    /// not checked
    #[arg(long)]
    pub quick: bool,
    /// Print no progress
    #[arg(long)]
    pub quiet: bool,
    /// Show targets that depend on the machine's speed without judging them: for busy machines
    #[arg(long)]
    pub untimed: bool,
}

impl Context {
    /// Prints a line of progress on standard error.
    pub fn note(&self, line: impl AsRef<str>) {
        if !self.quiet {
            print_progress(format!("  {}", line.as_ref()));
        }
    }
}

/// Prints a line on standard error, if that can be written.
pub(crate) fn print_progress(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A scenario's report with these options beside `--quick --quiet`.
#[cfg(test)]
pub(crate) fn run_quick<S: Scenario>(options: &[&str]) -> Report {
    use clap::FromArgMatches as _;
    let command = Context::augment_args(S::augment_args(Command::new(S::NAME)));
    let args = [&[S::NAME, "--quick", "--quiet"], options].concat();
    let matches = command.try_get_matches_from(args).expect("options");
    let context = Context::from_arg_matches(&matches).expect("options");
    let job = (Entry::of::<S>().parse)(&matches).expect("options");
    job(&context).expect("a result")
}
