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

/// Sent by the kernel at the limit of processor time.
const SIGXCPU: i32 = 24;

/// Time that tests get, as a multiple of the processor time that they get.
const WAITING: u32 = 4;

/// A test, how long it takes, and the mutants that it reaches.
pub struct Test {
    program: usize,
    name: String,
    time: Duration,
    reaches: HashSet<Id>,
}

enum End {
    Passed,
    Failed,
    TimedOut,
}

/// Tests of a program, with a limit of processor time: the machine may be busy.
fn command(program: &Program, limit: Duration) -> Command {
    let mut command = Command::new("prlimit");
    command
        .arg(format!("--as={ADDRESS_SPACE}"))
        .arg(format!("--cpu={}", limit.as_secs()))
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

/// Runs tests until they end, or for `WAITING` times their limit of processor time.
fn run(command: &mut Command, limit: Duration) -> Result<End> {
    let mut child = command.spawn().context("cannot start a test")?;
    let start = Instant::now();
    let limit = WAITING * limit;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(match (status.success(), status.signal()) {
                (true, _) => End::Passed,
                (false, Some(SIGXCPU)) => End::TimedOut,
                (false, _) => End::Failed,
            });
        }
        if start.elapsed() > limit {
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

/// Lists the tests of the programs and runs each alone. A test that fails here is left out, and named.
pub fn baseline(programs: &[Program], seen: &Path) -> Result<Vec<Test>> {
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
            let start = Instant::now();
            let limit = Duration::from_secs(300);
            let end = run(
                command(program, limit)
                    .arg(name)
                    .env("POLYCAST_MUTANT", "record")
                    .env("POLYCAST_MUTANTS_SEEN", seen),
                limit,
            )?;
            if !matches!(end, End::Passed) {
                eprintln!("left out, fails without a mutant: {name}");
                continue;
            }
            let reached = fs::read_to_string(seen).unwrap_or_default();
            tests.push(Test {
                program: index,
                name: name.to_owned(),
                time: start.elapsed(),
                reaches: reached.lines().filter_map(|id| id.parse().ok()).collect(),
            });
        }
    }
    tests.sort_by_key(|test| test.time);
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
            let usual: Duration = chosen.iter().map(|test| test.time).sum();
            let limit = 6 * usual + Duration::from_secs(4);
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

/// Runs all tests of programs that have one mutant compiled in.
pub fn judge_one(programs: &[Program], tests_time: Duration) -> Result<Outcome> {
    let limit = 6 * tests_time + Duration::from_secs(10);
    for program in programs {
        match run(&mut command(program, limit), limit)? {
            End::Passed => {}
            End::Failed => return Ok(Outcome::Killed),
            End::TimedOut => return Ok(Outcome::TimedOut),
        }
    }
    Ok(Outcome::Survived)
}

/// How long all tests take, one after the other.
pub fn total_time(tests: &[Test]) -> Duration {
    tests.iter().map(|test| test.time).sum()
}
