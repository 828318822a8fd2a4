//! What a scenario is: a name, what it repeats from the papers, what it needs, and a run that ends in
//! a [`Report`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, Result};

use crate::report::Report;

/// One experiment of `lab`.
pub trait Scenario: Sync {
    /// The name after `lab run`.
    fn name(&self) -> &'static str;

    /// One line: what it shows.
    fn about(&self) -> &'static str;

    /// The section, table or figure of the paper that it repeats, or an empty string.
    fn figure(&self) -> &'static str {
        ""
    }

    /// What the machine must offer. Namespaces are prepared before `run` is called.
    fn needs(&self) -> &'static [Need] {
        &[]
    }

    /// Options of its own, beside `--quick`, `--out` and `--json`.
    fn options(&self) -> &'static [Opt] {
        &[]
    }

    /// Runs it. A missed target is a failed check in the report; an error means that there is no
    /// result.
    ///
    /// # Errors
    /// When the experiment could not be carried out.
    fn run(&self, context: &Context) -> Result<Report>;
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

/// One option of a scenario, given as `--name VALUE`.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Long name, without dashes.
    pub name: &'static str,
    /// What it sets, with its unit.
    pub help: &'static str,
    /// Default, as typed; `--quick` may lower it, which the help then says.
    pub default: &'static str,
}

/// A value on the command line that makes no sense: `lab` ends with the code of wrong usage.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// What a run is told.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Smaller sizes, same story: for tests and CI. Targets that need the full size are not checked.
    pub quick: bool,
    /// Where the report goes, if anywhere.
    pub out: Option<PathBuf>,
    /// Progress lines are wanted on standard error.
    pub verbose: bool,
    /// Options given on the command line; the scenario's defaults fill the rest.
    pub options: BTreeMap<String, String>,
    /// Names of the options that were typed, not defaulted.
    pub typed: Vec<String>,
}

impl Context {
    /// The value of an option declared in [`Scenario::options`].
    ///
    /// # Errors
    /// When the text is no such value.
    pub fn option<T: FromStr>(&self, name: &str) -> Result<T>
    where
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        let text = self
            .options
            .get(name)
            .with_context(|| format!("no option --{name}"))?;
        text.parse().map_err(|error: T::Err| {
            let words = format!("--{name} {text}: {error}");
            Usage(words).into()
        })
    }

    /// The value of an option, or `quick` when `--quick` is given and the option was not typed.
    ///
    /// # Errors
    /// When the text is no such value.
    pub fn sized<T: FromStr>(&self, name: &str, quick: T) -> Result<T>
    where
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        if self.quick && !self.typed.iter().any(|typed| typed == name) {
            return Ok(quick);
        }
        self.option(name)
    }

    /// A progress line on standard error.
    pub fn note(&self, line: impl AsRef<str>) {
        if self.verbose {
            cli::print_message!("  {}", line.as_ref());
        }
    }
}
