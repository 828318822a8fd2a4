//! Mutation testing of the protocol crates.
//!
//! `cargo mutants` lists the mutants. This program puts all of a module's mutants into one copy of the repository, each
//! behind a switch, compiles it once, learns which test reaches which mutant, and runs those tests for each mutant. What
//! does not compile behind a switch is compiled alone.

mod build;
mod instrument;
mod list;
mod results;
mod tests;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;

use build::{Tree, id_of};
use list::{MODULES, Module, Mutant};
use results::{Equivalents, Outcome, Results};

/// Time after which what has been found is saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(20);

/// Run the tests of a module against each of its mutants
///
/// Prints the survivors, and a row of a table for each module. Results are kept in target/mutants/MODULE.txt, one
/// mutant a line, and add up over runs.
#[derive(Parser)]
#[command(name = "fuzz/mutants/run", max_term_width = 100)]
struct Args {
    /// Modules to test [default: all of them, in turn]
    modules: Vec<String>,
    /// List the modules and their files
    #[arg(long)]
    list: bool,
    /// Run only mutants with this text in their names
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Run only mutants that survived earlier runs or have not been run; goes on after Ctrl-C
    #[arg(long)]
    again: bool,
    /// Leave out tests that need more processor time, in seconds
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    longest: f64,
    /// Tests that run at the same time
    #[arg(long, default_value_t = 2, value_name = "NUMBER")]
    jobs: usize,
}

impl Args {
    fn longest(&self) -> Duration {
        Duration::try_from_secs_f64(self.longest).unwrap_or(Duration::MAX)
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.list {
        for module in MODULES {
            println!("{:<10} {}", module.name, module.files.join(" "));
        }
        return Ok(());
    }
    for name in &args.modules {
        if !MODULES.iter().any(|module| module.name == name) {
            bail!("no module {name}; --list names them");
        }
    }
    let all = args.modules.is_empty();
    println!(
        "| module | mutants | viable | killed | equivalent | survived | killed of viable | target |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut missed = false;
    for module in MODULES {
        if all || args.modules.iter().any(|name| name == module.name) {
            missed |= !run(module, &args).with_context(|| module.name)?;
        }
    }
    if missed {
        bail!("a module is below its target");
    }
    Ok(())
}

/// Runs a module and prints its row. Returns whether it meets its target.
fn run(module: &Module, args: &Args) -> Result<bool> {
    let work = Path::new("target/mutants");
    fs::create_dir_all(work)?;
    let equivalents = Equivalents::load()?;
    let mut results = Results::load(work, module, list::mutants(module)?)?;
    let chosen: Vec<usize> = (0..results.mutants().len())
        .filter(|index| !args.again || results.is_open(*index))
        .filter(|index| {
            let name = &results.mutants()[*index].name;
            args.only.as_ref().is_none_or(|text| name.contains(text))
        })
        .collect();
    if !chosen.is_empty() {
        judge(module, &chosen, &mut results, work, args)?;
    }
    for (mutant, outcome, key) in results.survivors(&equivalents) {
        let note = if outcome == Outcome::Unreached {
            " (no test reaches it)"
        } else {
            ""
        };
        eprintln!("survived: {}{note} [{key}]", mutant.name);
    }
    let counts = results.counts(&equivalents);
    if counts.unknown > 0 {
        let unknown = counts.unknown;
        eprintln!("{}: {unknown} have not been judged yet", module.name);
    }
    let share = 100.0 * counts.killed as f64 / counts.viable.max(1) as f64;
    println!(
        "| {} | {} | {} | {} | {} | {} | {share:.1} % | {} % |",
        module.name,
        counts.mutants,
        counts.viable,
        counts.killed,
        counts.equivalent,
        counts.survived,
        module.target,
    );
    std::io::stdout().flush()?;
    Ok(share >= f64::from(module.target))
}

/// Finds out what becomes of the chosen mutants; the results are saved as they come.
fn judge(
    module: &Module,
    chosen: &[usize],
    results: &mut Results,
    work: &Path,
    args: &Args,
) -> Result<()> {
    let start = Instant::now();
    let say = |text: String| eprintln!("{}: {text}; {:.0?}", module.name, start.elapsed());
    let mutants: Vec<Mutant> = chosen
        .iter()
        .map(|index| results.mutants()[*index].clone())
        .collect();
    let index_of = |id| chosen[(id - id_of(0)) as usize];
    let tree = Tree::copy(work)?;
    let built = tree.build(module, &mutants)?;
    let (switched, mut alone) = (built.switched.len(), built.rest);
    say(format!("{switched} compiled together, {} not", alone.len()));
    let seen = work.canonicalize()?.join("seen");
    let tests = tests::baseline(&built.programs, &seen, args.longest())?;
    say(format!("{} tests", tests.len()));

    for id in &built.not_compiled {
        results.set(index_of(*id), Outcome::Unviable);
    }
    let (mut done, mut saved) = (0, Instant::now());
    tests::judge_all(
        &built.programs,
        &tests,
        &built.switched,
        args.jobs,
        |id, outcome| {
            results.set(index_of(id), outcome);
            if outcome.is_survivor() && built.off_in_constants.contains(&id) {
                alone.push(id);
            }
            done += 1;
            if done == switched || saved.elapsed() > SAVE_INTERVAL {
                say(format!("{done} of {switched}"));
                results.save()?;
                saved = Instant::now();
            }
            Ok(())
        },
    )?;

    let tree = Tree::copy(work)?;
    for (done, id) in alone.iter().enumerate() {
        let programs = tree.build_one(module, &results.mutants()[index_of(*id)])?;
        let outcome = match programs {
            Some(programs) => tests::judge_one(&programs, &tests)?,
            None => Outcome::Unviable,
        };
        results.set(index_of(*id), outcome);
        results.save()?;
        say(format!("{} of {} alone", done + 1, alone.len()));
    }
    Ok(())
}
