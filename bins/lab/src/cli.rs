//! The command line of `lab`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use nix::unistd::{AccessFlags, access};
use serde_json::json;

use crate::page::{self, Wanted};
use crate::report::{Report, Verdict};
use crate::scenario::{Context, Need, Scenario, Usage};
use crate::{net, programs, sandbox, scenarios};

const AFTER_HELP: &str = "\
Exit codes:
  0    all well
  1    no result: something could not be done
  2    the command line makes no sense
  3    there is a result, and a target in it was missed
  4    skipped: nothing was judged, because something is not available here; the report names it
  74   the result could not be written to standard output
  130  interrupted

`lab PROGRAM ...` runs a carried program: ";

/// Exit code of a run that missed a target.
pub(crate) const MISSED: u8 = 3;
/// Exit code of a run in which nothing was judged, because something is not available here.
pub(crate) const SKIPPED: u8 = 4;

/// Runs `lab` with these arguments, its own name first.
pub fn main_from(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(code) = programs::dispatch(&args) {
        return code;
    }
    let word = args.get(1).and_then(|word| word.to_str());
    let outcome = match word {
        Some(sandbox::PROBE) => sandbox::run(&[sandbox::PROBE.into()]),
        Some(sandbox::INSIDE) => inside(&args),
        Some(name) => match hidden(name) {
            Some(command) => command(&args[1..]),
            None => parse(&args, false),
        },
        None => parse(&args, false),
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

/// A helper process of the lab: its arguments, its own name first.
type Hidden = fn(&[OsString]) -> Result<ExitCode>;

/// The helper processes that scenarios start; they are no part of the help.
fn hidden(name: &str) -> Option<Hidden> {
    match name {
        "emulator" => Some(crate::emulator::main),
        "mroute" => Some(crate::mroute::main),
        _ => None,
    }
}

/// The process inside the sandbox: prepares it, then does what the outer process was asked for.
fn inside(args: &[OsString]) -> Result<ExitCode> {
    sandbox::prepare()?;
    let mut rest = args.to_vec();
    rest.remove(1);
    if rest.get(1).is_some_and(|word| word == sandbox::PROBE) {
        return net::probe().map(|()| ExitCode::SUCCESS);
    }
    parse(&rest, true)
}

fn parse(args: &[OsString], inside: bool) -> Result<ExitCode> {
    let matches = match command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => {
            return Ok(cli::args::show(&error));
        }
    };
    match matches.subcommand() {
        Some(("list", matches)) => list(matches.get_flag("json")),
        Some(("run", matches)) => run(matches, args, inside),
        Some(("demo", matches)) => demo(matches, args, inside),
        Some(("report", matches)) => report(matches),
        _ => Ok(ExitCode::from(2)),
    }
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

fn untimed() -> Arg {
    let help =
        "targets that depend on the machine's speed are shown but not judged: for busy machines";
    flag("untimed", help)
}

fn out() -> Arg {
    let help = "write NAME.txt, NAME.json and NAME.svg into this folder";
    Arg::new("out")
        .long("out")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .help(help)
}

fn command() -> Command {
    let carried = programs::names().collect::<Vec<_>>().join(", ");
    let mut run = Command::new("run")
        .about("Run one scenario: print its table, write its report")
        .subcommand_required(true)
        .subcommand_value_name("NAME")
        .subcommand_help_heading("Scenarios")
        .disable_help_subcommand(true);
    for scenario in scenarios::all() {
        let mut one = Command::new(scenario.name())
            .about(scenario.about())
            .arg(out())
            .arg(flag("json", "print the report as JSON on standard output"))
            .arg(flag(
                "quick",
                "smaller sizes, for tests: same story, figures not comparable",
            ))
            .arg(flag("quiet", "no progress lines"))
            .arg(untimed());
        for opt in scenario.options() {
            let arg = Arg::new(opt.name)
                .long(opt.name)
                .help(opt.help)
                .default_value(opt.default);
            one = one.arg(arg.value_name("VALUE"));
        }
        run = run.subcommand(one);
    }
    Command::new("lab")
        .about("Small networks out of namespaces, and every experiment of polycast in them")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(format!("{AFTER_HELP}{carried}."))
        .subcommand(
            Command::new("list")
                .about("Name the scenarios and what they repeat from the papers")
                .arg(flag("json", "as a JSON array")),
        )
        .subcommand(run)
        .subcommand(report_command())
        .subcommand(
            Command::new("demo")
                .about("A real file through LMS routers over lossy links, in under a minute")
                .arg(out())
                .arg(flag("json", "print the report as JSON on standard output"))
                .arg(flag("quick", "a smaller file"))
                .arg(flag("quiet", "no live table"))
                .arg(untimed()),
        )
}

fn report_command() -> Command {
    Command::new("report")
        .about("Run every scenario and write one page: the papers' figures, ours, and other tools' beside both")
        .after_help(
            "DIR/report.html is one file that needs nothing beside it; it is written again after each scenario, so \
             whoever stops early has a page. A second `lab report --only NAME --out DIR` replaces one scenario on it.",
        )
        .arg(out().required(true).help("write report.html, and each scenario's files, into this folder"))
        .arg(
            Arg::new("only")
                .long("only")
                .value_name("NAME,...")
                .value_delimiter(',')
                .value_parser(scenarios::all().iter().map(|s| s.name()).collect::<Vec<_>>())
                .hide_possible_values(true)
                .help("run these scenarios alone [default: all]"),
        )
        .arg(flag("full", "full sizes: hours, where --quick takes minutes"))
        .arg(flag("render", "run nothing: draw the page from what DIR has").conflicts_with_all(["only", "full"]))
        .arg(
            Arg::new("limit")
                .long("limit")
                .value_name("MINUTES")
                .value_parser(value_parser!(u64).range(1..=10_000))
                .default_value("30")
                .help("how long one scenario may take"),
        )
        .arg(flag("quiet", "no line for each scenario"))
        .arg(untimed())
}

/// Exit codes: of the worst scenario. Scenarios that were skipped are named, and are no failure.
fn report(matches: &ArgMatches) -> Result<ExitCode> {
    prepare_out(matches, true)?;
    let folder = matches.get_one::<PathBuf>("out").context("--out")?;
    let folder = folder
        .canonicalize()
        .with_context(|| folder.display().to_string())?;
    let only = matches.get_many::<String>("only").unwrap_or_default();
    let minutes = matches.get_one::<u64>("limit").copied().unwrap_or(30);
    let wanted = Wanted {
        only: only.cloned().collect(),
        quick: !matches.get_flag("full"),
        render: matches.get_flag("render"),
        limit: Duration::from_secs(minutes * 60),
        untimed: matches.get_flag("untimed"),
        verbose: !matches.get_flag("quiet"),
    };
    let entries = page::run(&folder, &wanted)?;
    cli::print_result!("{}", folder.join(page::PAGE).display());
    let has = |verdict| {
        entries
            .iter()
            .any(|entry| entry.verdict(wanted.untimed) == verdict)
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
        let entries: Vec<_> = scenarios::all()
            .iter()
            .map(|scenario| {
                json!({
                    "name": scenario.name(),
                    "about": scenario.about(),
                    "figure": scenario.figure(),
                    "needs": scenario.needs().iter().map(|need| need.label()).collect::<Vec<_>>(),
                    "options": scenario.options().iter().map(|opt| {
                        json!({"name": opt.name, "help": opt.help, "default": opt.default})
                    }).collect::<Vec<_>>(),
                })
            })
            .collect();
        cli::print_result!("{}", serde_json::to_string_pretty(&entries)?);
        return Ok(ExitCode::SUCCESS);
    }
    for scenario in scenarios::all() {
        cli::print_result!("{:24} {}", scenario.name(), scenario.about());
        if !scenario.figure().is_empty() {
            cli::print_result!("{:24}   {}", "", scenario.figure());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn context(scenario: Option<&dyn Scenario>, matches: &ArgMatches) -> Context {
    let mut context = Context {
        quick: matches.get_flag("quick"),
        out: matches.get_one::<PathBuf>("out").cloned(),
        verbose: !matches.get_flag("quiet"),
        ..Context::default()
    };
    for opt in scenario.map_or(&[][..], |scenario| scenario.options()) {
        if let Some(value) = matches.get_one::<String>(opt.name) {
            context.options.insert(opt.name.to_owned(), value.clone());
        }
        if matches.value_source(opt.name) == Some(clap::parser::ValueSource::CommandLine) {
            context.typed.push(opt.name.to_owned());
        }
    }
    context
}

/// A folder that takes no report is told of before the run, not after it.
fn prepare_out(matches: &ArgMatches, sandboxed: bool) -> Result<()> {
    let Some(folder) = matches.get_one::<PathBuf>("out") else {
        return Ok(());
    };
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

fn run(matches: &ArgMatches, args: &[OsString], inside: bool) -> Result<ExitCode> {
    let Some((name, matches)) = matches.subcommand() else {
        return Ok(ExitCode::from(2));
    };
    let Some(scenario) = scenarios::find(name) else {
        return Ok(ExitCode::from(2));
    };
    if scenario.needs().contains(&Need::Root) && !nix::unistd::geteuid().is_root() {
        anyhow::bail!("{name} takes root: a user namespace of its own does not let it measure");
    }
    let sandboxed = scenario.needs().contains(&Need::Namespaces);
    if !inside {
        prepare_out(matches, sandboxed)?;
    }
    if sandboxed && !inside {
        sandbox::permitted()?;
        return sandbox::run(&args[1..]);
    }
    let context = context(Some(scenario), matches);
    let mut report = scenario.run(&context)?;
    report.scenario = scenario.name().to_owned();
    report.figure = scenario.figure().to_owned();
    finish(report, &context, matches)
}

fn demo(matches: &ArgMatches, args: &[OsString], inside: bool) -> Result<ExitCode> {
    let context = context(None, matches);
    if !inside {
        prepare_out(matches, true)?;
        match sandbox::permitted() {
            Ok(()) => return sandbox::run(&args[1..]),
            Err(why) => {
                cli::print_message!("lab: {why:#}\nlab: the same story follows in the simulator");
            }
        }
    }
    let report = if inside {
        crate::demo::run(&context)?
    } else {
        crate::demo_sim::run(&context)?
    };
    finish(report, &context, matches)
}

fn finish(mut report: Report, context: &Context, matches: &ArgMatches) -> Result<ExitCode> {
    report.quick = context.quick;
    report.network = net::means::all();
    if matches.get_flag("json") {
        cli::print_result!("{}", serde_json::to_string_pretty(&report.json()?)?);
    } else {
        cli::print::text(&report.text());
    }
    if let Some(folder) = &context.out {
        report.write(folder)?;
    }
    Ok(match report.verdict(matches.get_flag("untimed")) {
        Verdict::Met | Verdict::NoTarget => ExitCode::SUCCESS,
        Verdict::Missed => ExitCode::from(MISSED),
        Verdict::Skipped => ExitCode::from(SKIPPED),
    })
}
