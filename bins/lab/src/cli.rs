//! The command line of `lab`.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, CommandFactory as _, FromArgMatches, Parser, Subcommand};
use nix::unistd::{AccessFlags, access};
use serde_json::json;

use crate::demo::Demo;
use crate::page::{self, Options};
use crate::{programs, sandbox, scenarios};
use sims::report::{Report, Verdict};
use sims::scenario::{Context, Entry, Job, Need, Usage};

const AFTER_HELP: &str = "\
Exit codes:
  0    every target was met
  1    no result: something failed
  2    wrong usage
  3    there is a result, and a target was missed
  4    skipped: something is not available on this machine; the report names it
  74   the result could not be written to standard output
  130  interrupted

`lab PROGRAM ...` runs a program that lab carries: ";

/// Exit code of a run that missed a target.
pub(crate) const MISSED: u8 = 3;
/// Exit code of a run in which nothing was judged, because something is not available here.
pub(crate) const SKIPPED: u8 = 4;

/// Build small networks out of namespaces and run the experiments of polycast in them
#[derive(Parser)]
#[command(name = "lab", version, arg_required_else_help = true)]
struct Lab {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the scenarios and the figures of the papers that they repeat
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Run one scenario: print its table, write its report
    #[command(
        subcommand_value_name = "NAME",
        subcommand_help_heading = "Scenarios",
        disable_help_subcommand = true
    )]
    Run(Chosen),
    /// Run every scenario and write one page with the papers' figures and those of other tools beside ours
    #[command(
        after_help = "DIR/report.html is one file that needs no other; it is written again after each scenario, so \
                      that an interrupted run leaves a page. A second `lab report --only NAME --out DIR` replaces one \
                      scenario on it."
    )]
    Report(Options),
    /// Show a system at work in under a minute: reliable multicast, late data choice, or the federation
    Demo(Demo),
}

/// One scenario with its options, as a subcommand of `lab run`.
struct Chosen {
    scenario: &'static Entry,
    context: Context,
    job: Job,
}

impl FromArgMatches for Chosen {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Chosen, clap::Error> {
        let (name, options) = matches
            .subcommand()
            .ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        let scenario =
            scenarios::find(name).ok_or_else(|| clap::Error::new(ErrorKind::InvalidSubcommand))?;
        Ok(Chosen {
            scenario,
            context: Context::from_arg_matches(options)?,
            job: (scenario.parse)(options)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Chosen::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Chosen {
    fn augment_args(run: Command) -> Command {
        let scenarios = scenarios::all()
            .iter()
            .map(|scenario| (scenario.augment)(Context::augment_args(Command::new(scenario.name))));
        run.subcommand_required(true).subcommands(scenarios)
    }

    fn augment_args_for_update(run: Command) -> Command {
        Chosen::augment_args(run)
    }
}

/// Runs `lab` with these arguments, its own name first.
pub fn main_from(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(code) = programs::dispatch(&args) {
        return code;
    }
    let outcome = match args.get(1).and_then(|word| word.to_str()) {
        Some(sandbox::PROBE) => sandbox::run(&[sandbox::PROBE.into()]),
        Some(sandbox::INSIDE) => inside(&args),
        // Helper processes of networks are no part of the help.
        word => match word.and_then(netlab::helper) {
            Some(done) => done.map(|()| ExitCode::SUCCESS),
            None => parse(&args, false),
        },
    };
    let code = outcome.unwrap_or_else(|error| {
        cli::print_message!("lab: {error:#}");
        if error.is::<Usage>() {
            ExitCode::from(2)
        } else {
            ExitCode::FAILURE
        }
    });
    cli::print::exit_code(code)
}

/// The process inside the sandbox: prepares it, then does what the outer process was asked for.
fn inside(args: &[OsString]) -> Result<ExitCode> {
    sandbox::prepare()?;
    let mut rest = args.to_vec();
    rest.remove(1);
    if rest.get(1).is_some_and(|word| word == sandbox::PROBE) {
        return netlab::probe().map(|()| ExitCode::SUCCESS);
    }
    parse(&rest, true)
}

fn parse(args: &[OsString], inside: bool) -> Result<ExitCode> {
    let carried = programs::names().collect::<Vec<_>>().join(", ");
    let lab = Lab::command()
        .after_help(format!("{AFTER_HELP}{carried}."))
        .try_get_matches_from(args)
        .and_then(|matches| Lab::from_arg_matches(&matches));
    match lab.map(|lab| lab.verb) {
        Err(error) => Ok(cli::args::show(&error)),
        Ok(Verb::List { json }) => list(json),
        Ok(Verb::Run(chosen)) => run(&chosen, args, inside),
        Ok(Verb::Demo(chosen)) => demo(&chosen, args, inside),
        Ok(Verb::Report(options)) => report(&options),
    }
}

/// Returns the exit code of the worst scenario. A skipped scenario is named and is no failure.
fn report(options: &Options) -> Result<ExitCode> {
    prepare_out(&options.out, true)?;
    let folder = options
        .out
        .canonicalize()
        .with_context(|| options.out.display().to_string())?;
    let entries = page::run(&folder, options)?;
    cli::print_result!("{}", folder.join(page::PAGE).display());
    let has = |verdict| {
        entries
            .iter()
            .any(|entry| entry.verdict(options.untimed) == verdict)
    };
    Ok(if has(None) {
        ExitCode::FAILURE
    } else if has(Some(Verdict::Missed)) {
        ExitCode::from(MISSED)
    } else {
        ExitCode::SUCCESS
    })
}

fn list(as_json: bool) -> Result<ExitCode> {
    if as_json {
        let entries: Vec<_> = scenarios::all().iter().map(described).collect();
        cli::print_result!("{}", serde_json::to_string_pretty(&entries)?);
        return Ok(ExitCode::SUCCESS);
    }
    for scenario in scenarios::all() {
        cli::print_result!("{:24} {}", scenario.name, scenario.about());
        if !scenario.figure.is_empty() {
            cli::print_result!("{:24}   {}", "", scenario.figure);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn described(scenario: &Entry) -> serde_json::Value {
    let command = (scenario.augment)(Command::new(scenario.name));
    let options = command.get_arguments().map(|option| {
        let defaults = option.get_default_values().iter();
        let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
        json!({
            "name": option.get_long(),
            "help": option.get_help().map(ToString::to_string),
            "default": defaults.join(","),
        })
    });
    json!({
        "name": scenario.name,
        "about": scenario.about(),
        "figure": scenario.figure,
        "needs": scenario.needs.iter().map(|need| need.label()).collect::<Vec<_>>(),
        "options": options.collect::<Vec<_>>(),
    })
}

/// Fails before the run when the report could not be written after it.
fn prepare_out(folder: &Path, sandboxed: bool) -> Result<()> {
    let shown = folder.display();
    std::fs::create_dir_all(folder).with_context(|| format!("create {shown}"))?;
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK)
        .with_context(|| format!("write into {shown}"))?;
    if let Some(covered) = sandbox::covers(folder).filter(|_| sandboxed) {
        let words =
            format!("--out {shown}: what is written below {covered} is gone with the sandbox");
        return Err(Usage(words).into());
    }
    Ok(())
}

fn run(chosen: &Chosen, args: &[OsString], inside: bool) -> Result<ExitCode> {
    let Chosen {
        scenario,
        context,
        job,
    } = chosen;
    if scenario.needs.contains(&Need::Root) && !nix::unistd::geteuid().is_root() {
        let name = scenario.name;
        anyhow::bail!("{name} takes root: a user namespace of its own does not let it measure");
    }
    let sandboxed = scenario.needs.contains(&Need::Namespaces);
    if !inside && let Some(out) = &context.out {
        prepare_out(out, sandboxed)?;
    }
    if sandboxed && !inside {
        sandbox::permitted()?;
        return sandbox::run(&args[1..]);
    }
    finish(job(context)?, context, Report::text)
}

fn demo(chosen: &Demo, args: &[OsString], inside: bool) -> Result<ExitCode> {
    let context = &chosen.context;
    if inside {
        return finish(chosen.run()?, context, Report::brief);
    }
    if let Some(out) = &context.out {
        prepare_out(out, true)?;
    }
    let Err(why) = sandbox::permitted() else {
        return sandbox::run(&args[1..]);
    };
    match chosen.simulated() {
        Some(report) => {
            cli::print_message!("lab: {why:#}\nlab: the same transfer in the simulator:");
            finish(report?, context, Report::text)
        }
        None => Err(why),
    }
}

/// Prints the report, as JSON or by `text`, writes it, and turns its verdict into an exit code.
fn finish(mut report: Report, context: &Context, text: fn(&Report) -> String) -> Result<ExitCode> {
    report.quick = context.quick;
    report.network = netlab::means::all();
    if context.json {
        cli::print_result!("{}", serde_json::to_string_pretty(&report.json()?)?);
    } else {
        cli::print::text(&text(&report));
    }
    if let Some(folder) = &context.out {
        report.write(folder)?;
    }
    Ok(match report.verdict(context.untimed) {
        Verdict::Met | Verdict::NoTarget => ExitCode::SUCCESS,
        Verdict::Missed => ExitCode::from(MISSED),
        Verdict::Skipped => ExitCode::from(SKIPPED),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_reads_its_defaults() {
        for scenario in scenarios::all() {
            for quick in [&[][..], &["--quick"]] {
                let args = [&["lab", "run", scenario.name], quick].concat();
                let parsed = Lab::try_parse_from(args);
                assert!(parsed.is_ok(), "{} {quick:?}", scenario.name);
            }
        }
    }
}
