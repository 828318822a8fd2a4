//! Runs tests, each alone to learn what it reaches, then with mutants.

use std::collections::HashSet;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::build::Program;
use crate::instrument::Id;
use crate::results::Outcome;

/// Bytes of address space that a test may use: a mutant may allocate without end.
const ADDRESS_SPACE: u64 = 6 << 30;

/// Either is sent by the kernel at the limit of processor time.
const SIGXCPU: i32 = 24;
const SIGKILL: i32 = 9;

/// A test, what it takes, and the mutants that it reaches.
pub struct Test {
    program: usize,
    name: String,
    usual: Cost,
    reaches: HashSet<Id>,
}

/// What tests take, or may take.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    processor: Duration,
    time: Duration,
}

impl Cost {
    fn sum<'t>(tests: impl Iterator<Item = &'t Test>) -> Self {
        tests.fold(Cost::default(), |sum, test| Cost {
            processor: sum.processor + test.usual.processor,
            time: sum.time + test.usual.time,
        })
    }

    /// What tests may take with a mutant. The machine may be busier than it was.
    fn limit(self) -> Self {
        Cost {
            processor: 6 * self.processor + Duration::from_secs(4),
            time: 24 * self.time + Duration::from_secs(16),
        }
    }
}

enum End {
    Passed,
    Failed,
    TimedOut,
}

fn command(program: &Program, limit: Cost) -> Command {
    let mut command = Command::new("prlimit");
    command
        .arg(format!("--as={ADDRESS_SPACE}"))
        .arg(format!("--cpu={}", limit.processor.as_secs()))
        .arg(&program.path)
        .args(["--exact", "--test-threads=1"])
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command
}

/// Runs tests until they end or reach their limit.
fn run(command: &mut Command, limit: Cost) -> Result<End> {
    let mut child = command.spawn().context("cannot start a test")?;
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(match (status.success(), status.signal()) {
                (true, _) => End::Passed,
                (false, Some(SIGXCPU | SIGKILL)) => End::TimedOut,
                (false, _) => End::Failed,
            });
        }
        if start.elapsed() > limit.time {
            // The group: a test may have started processes of its own.
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            child.wait()?;
            return Ok(End::TimedOut);
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(20));
    }
}

/// Returns the processor time of the processes that have been waited for.
fn processor_time_of_children() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in parentheses, may have spaces; fields 16 and 17 are user and system time in ticks.
    let (_, fields) = stat.rsplit_once(") ").context("/proc/self/stat")?;
    let ticks = fields.split(' ').skip(13).take(2);
    let ticks: u64 = ticks
        .map(|ticks| ticks.parse::<u64>())
        .sum::<Result<_, _>>()?;
    Ok(Duration::from_millis(10 * ticks))
}

/// Lists the tests of the programs and runs each alone. Tests that fail here, and those that need more processor time
/// than `longest`, are left out, and named.
pub fn baseline(programs: &[Program], seen: &Path, longest: Duration) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for (index, program) in programs.iter().enumerate() {
        let output = Command::new(&program.path)
            .args(["--list", "--format=terse"])
            .current_dir(&program.folder)
            .output()?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Some(name) = line.strip_suffix(": test") else {
                continue;
            };
            let _ = fs::remove_file(seen);
            let (start, before) = (Instant::now(), processor_time_of_children()?);
            // One that needs longer is not waited for.
            let limit = Cost {
                processor: longest + Duration::from_secs(1),
                time: Duration::from_secs(1_200),
            };
            let end = run(
                command(program, limit)
                    .arg(name)
                    .env("POLYCAST_MUTANT", "record")
                    .env("POLYCAST_MUTANTS_SEEN", seen),
                limit,
            )?;
            if matches!(end, End::Failed) {
                eprintln!("left out, fails without a mutant: {name}");
                continue;
            }
            if matches!(end, End::TimedOut) {
                eprintln!("left out, takes more than {longest:.1?}: {name}");
                continue;
            }
            let usual = Cost {
                processor: processor_time_of_children()? - before,
                time: start.elapsed(),
            };
            if usual.processor > longest {
                eprintln!("left out, takes {:.1?}: {name}", usual.processor);
                continue;
            }
            let reached = fs::read_to_string(seen).unwrap_or_default();
            tests.push(Test {
                program: index,
                name: name.to_owned(),
                usual,
                reaches: reached.lines().filter_map(|id| id.parse().ok()).collect(),
            });
        }
    }
    tests.sort_by_key(|test| test.usual);
    Ok(tests)
}

/// Runs every test that reaches a mutant, fast ones first, until one fails.
fn judge(programs: &[Program], tests: &[Test], id: Id) -> Result<Outcome> {
    let reaching: Vec<_> = tests
        .iter()
        .filter(|test| test.reaches.contains(&id))
        .collect();
    if reaching.is_empty() {
        return Ok(Outcome::Unreached);
    }
    // A few at first: most mutants die at once, and a program runs all tests that it is told to.
    let mut rest = &reaching[..];
    let mut size = 1;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(size.min(rest.len()));
        for (index, program) in programs.iter().enumerate() {
            let chosen: Vec<_> = now.iter().filter(|test| test.program == index).collect();
            if chosen.is_empty() {
                continue;
            }
            let limit = Cost::sum(chosen.iter().copied().copied()).limit();
            let mut command = command(program, limit);
            command
                .args(chosen.iter().map(|test| &test.name))
                .env("POLYCAST_MUTANT", id.to_string());
            match run(&mut command, limit)? {
                End::Passed => {}
                End::Failed => return Ok(Outcome::Killed),
                End::TimedOut => return Ok(Outcome::TimedOut),
            }
        }
        rest = later;
        size *= 4;
    }
    Ok(Outcome::Survived)
}

/// Judges mutants, several at a time, and passes on each outcome.
pub fn judge_all(
    programs: &[Program],
    tests: &[Test],
    ids: &[Id],
    jobs: usize,
    judged: impl FnMut(Id, Outcome) -> Result<()> + Send,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let judged = Mutex::new(judged);
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            while let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
                let outcome = judge(programs, tests, *id)?;
                let mut judged = judged.lock().expect("no thread panics");
                judged(*id, outcome)?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}

/// Runs tests of programs that have one mutant compiled in.
pub fn judge_one(programs: &[Program], tests: &[Test]) -> Result<Outcome> {
    let limit = Cost::sum(tests.iter()).limit();
    for (index, program) in programs.iter().enumerate() {
        let mut chosen = tests.iter().filter(|test| test.program == index).peekable();
        // Without a name a program runs all its tests.
        if chosen.peek().is_none() {
            continue;
        }
        let mut command = command(program, limit);
        command.args(chosen.map(|test| &test.name));
        match run(&mut command, limit)? {
            End::Passed => {}
            End::Failed => return Ok(Outcome::Killed),
            End::TimedOut => return Ok(Outcome::TimedOut),
        }
    }
    Ok(Outcome::Survived)
}
