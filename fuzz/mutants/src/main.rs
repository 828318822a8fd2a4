//! Mutation testing of the protocol crates.
//!
//! `cargo mutants` lists the mutants. This program puts all of a module's mutants into one copy of the repository, each
//! behind a switch, compiles it once, learns which test reaches which mutant, and runs those tests for each mutant. What
//! does not compile behind a switch is compiled alone.

mod build;
mod instrument;
mod list;
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;

use build::{Tree, id_of};
use list::{MODULES, Module, Mutant};
use tests::Outcome;

/// Run the tests of a module against each of its mutants
///
/// Survivors are printed; results are kept in target/mutants/MODULE.txt, one mutant a line.
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
    /// Run only the mutants that survived the last run
    #[arg(long)]
    again: bool,
    /// Tests that run at the same time
    #[arg(long, default_value_t = 2, value_name = "NUMBER")]
    jobs: usize,
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

/// Mutants that change nothing that a test can see, with the reason.
fn equivalents() -> Result<BTreeMap<String, String>> {
    let path = Path::new("fuzz/mutants/equivalent.txt");
    let text = fs::read_to_string(path).context("fuzz/mutants/equivalent.txt")?;
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, reason) = line
                .split_once(" | ")
                .with_context(|| format!("{line}: no reason"))?;
            Ok((name.to_owned(), reason.to_owned()))
        })
        .collect()
}

/// Runs a module and prints its row. Returns whether it meets its target.
fn run(module: &Module, args: &Args) -> Result<bool> {
    let work = Path::new("target/mutants");
    fs::create_dir_all(work)?;
    let results = work.join(format!("{}.txt", module.name));
    let mutants = list::mutants(module)?;
    let survivors = if args.again {
        fs::read_to_string(&results).context("no results of an earlier run")?
    } else {
        String::new()
    };
    let chosen = |mutant: &Mutant| {
        let survived = |line: &str| line.strip_prefix("survived ") == Some(&mutant.name);
        args.only
            .as_ref()
            .is_none_or(|text| mutant.name.contains(text))
            && (!args.again || survivors.lines().any(survived))
    };
    let mutants: Vec<Mutant> = mutants.into_iter().filter(chosen).collect();
    if mutants.is_empty() {
        println!("| {} | 0 | | | | | | |", module.name);
        return Ok(true);
    }
    let outcomes = outcomes(module, &mutants, work, args.jobs)?;
    let mut record = String::new();
    let equivalents = equivalents()?;
    let (mut viable, mut killed, mut equivalent, mut survived) = (0, 0, 0, 0);
    for (mutant, outcome) in mutants.iter().zip(outcomes) {
        let Some(outcome) = outcome else {
            record.push_str(&format!("unviable {}\n", mutant.name));
            continue;
        };
        viable += 1;
        let word = match outcome {
            Outcome::Killed | Outcome::TimedOut => {
                killed += 1;
                if outcome == Outcome::Killed {
                    "killed"
                } else {
                    "timed-out"
                }
            }
            _ if equivalents.contains_key(&mutant.stable_name()) => {
                equivalent += 1;
                "equivalent"
            }
            Outcome::Survived | Outcome::Unreached => {
                survived += 1;
                let note = if outcome == Outcome::Unreached {
                    " (no test reaches it)"
                } else {
                    ""
                };
                eprintln!("survived: {}{note}", mutant.name);
                "survived"
            }
        };
        record.push_str(&format!("{word} {}\n", mutant.name));
    }
    if args.only.is_none() && !args.again {
        fs::write(&results, record)?;
    }
    let share = 100.0 * f64::from(killed) / f64::from(viable.max(1));
    println!(
        "| {} | {} | {viable} | {killed} | {equivalent} | {survived} | {share:.1} % | {} % |",
        module.name,
        mutants.len(),
        module.target,
    );
    std::io::stdout().flush()?;
    Ok(share >= f64::from(module.target) || args.only.is_some() || args.again)
}

/// What became of each mutant; `None` if it does not compile.
fn outcomes(
    module: &Module,
    mutants: &[Mutant],
    work: &Path,
    jobs: usize,
) -> Result<Vec<Option<Outcome>>> {
    let start = Instant::now();
    let tree = Tree::copy(work)?;
    let built = tree.build(module, mutants)?;
    eprintln!(
        "{}: {} mutants compiled at once, {} alone; {:.0?}",
        module.name,
        built.switched.len(),
        built.rest.len(),
        start.elapsed()
    );
    let tests = tests::baseline(&built.programs, &work.canonicalize()?.join("seen"))?;
    eprintln!(
        "{}: {} tests; {:.0?}",
        module.name,
        tests.len(),
        start.elapsed()
    );
    let total = built.switched.len();
    let progress = |done: usize| {
        if done.is_multiple_of(50) || done == total {
            eprintln!(
                "{}: {done} of {total}; {:.0?}",
                module.name,
                start.elapsed()
            );
        }
    };
    let judged = tests::judge_all(&built.programs, &tests, &built.switched, jobs, progress)?;
    let mut outcomes: BTreeMap<_, _> = judged
        .into_iter()
        .map(|(id, out)| (id, Some(out)))
        .collect();
    let tree = Tree::copy(work)?;
    for id in built.rest {
        let index = (id - id_of(0)) as usize;
        let outcome = match tree.build_one(module, &mutants[index])? {
            Some(programs) => Some(tests::judge_one(&programs, tests::total_time(&tests))?),
            None => None,
        };
        outcomes.insert(id, outcome);
    }
    Ok(outcomes.into_values().collect())
}
