//! Programs inside a network: started in a node's namespace, their JSON events collected, their logs
//! kept for error messages.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The program that carries the others: this one.
const CARRIER: &str = "/proc/self/exe";

/// How to start a program.
#[derive(Debug)]
pub struct Launch {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    cores: Vec<usize>,
    folder: Option<PathBuf>,
    stdin_piped: bool,
    stdout_null: bool,
}

impl Launch {
    /// A program that `lab` carries, or one of its helpers.
    pub fn carried(program: &str) -> Launch {
        Launch::external(Path::new(CARRIER), program).arg(program)
    }

    /// A program installed on the machine.
    pub fn external(program: impl Into<PathBuf>, name: &str) -> Launch {
        Launch {
            name: name.to_owned(),
            program: program.into(),
            args: Vec::new(),
            cores: Vec::new(),
            folder: None,
            stdin_piped: false,
            stdout_null: false,
        }
    }

    /// The name that messages and logs use.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the name for messages and logs, such as `lms-recv on h1`.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Launch {
        self.name = name.into();
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Launch {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(self, args: impl IntoIterator<Item = A>) -> Launch {
        args.into_iter().fold(self, Launch::arg)
    }

    /// Confines it to these cores.
    #[must_use]
    pub fn cores(mut self, cores: &[usize]) -> Launch {
        self.cores = cores.to_vec();
        self
    }

    /// Starts it in this folder.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Launch {
        self.folder = Some(folder.into());
        self
    }

    /// Keeps its standard input open, for [`Process::write_line`].
    #[must_use]
    pub fn stdin_piped(mut self) -> Launch {
        self.stdin_piped = true;
        self
    }

    /// Its standard output is data, poured into `/dev/null`; its events come on standard error.
    #[must_use]
    pub fn stdout_null(mut self) -> Launch {
        self.stdout_null = true;
        self
    }

    /// Takes a carried program from a release in a folder instead: from a file of its name, or from `lab` there.
    /// Helpers stay those of this process.
    pub(crate) fn of_release(mut self, folder: &Path) -> Launch {
        let name = self.args.first().cloned().unwrap_or_default();
        if self.program != Path::new(CARRIER) || name.to_str().is_some_and(crate::is_helper) {
            return self;
        }
        let alone = folder.join(&name);
        if alone.is_file() {
            self.args.remove(0);
            self.program = alone;
        } else {
            self.program = folder.join("lab");
        }
        self
    }

    /// Starts it in the calling thread's namespaces.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(self) -> Result<Process> {
        let logs = Path::new(crate::SCRATCH).join("logs");
        fs::create_dir_all(&logs)?;
        let log = logs.join(format!("{}.log", self.name.replace([' ', '/'], "-")));
        let written = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        if !self.cores.is_empty() {
            // The thread is the spawner's own and ends after the start; the child inherits this.
            pin(&self.cores)?;
        }
        let mut command = Command::new(&self.program);
        if self.stdout_null {
            command.stdout(Stdio::null()).stderr(Stdio::piped());
        } else {
            command.stdout(Stdio::piped()).stderr(written.try_clone()?);
        }
        command.stdin(if self.stdin_piped {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        command
            .args(&self.args)
            .env("TERM", "dumb")
            .env("NO_COLOR", "1")
            .process_group(0);
        if self.program == Path::new(CARRIER) {
            command.arg0("lab");
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("start {} ({})", self.name, self.program.display()))?;
        let events = Arc::new(Events::default());
        let told = if self.stdout_null {
            child.stderr.take().map(OwnedFd::from)
        } else {
            child.stdout.take().map(OwnedFd::from)
        };
        let told = File::from(told.context("a program without output")?);
        let reader = {
            let events = Arc::clone(&events);
            std::thread::spawn(move || collect(BufReader::new(told), &events, written))
        };
        let stdin = child.stdin.take();
        let started = Instant::now();
        Ok(Process {
            name: self.name,
            child,
            stdin,
            started,
            events,
            log,
            reader: Some(reader),
            ended: None,
        })
    }
}

/// Confines the calling thread, and the processes that it starts, to these cores.
///
/// # Errors
/// When there are no such cores.
pub fn pin(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("use cores {cores:?}"))
}

/// A program did not end in the time that it was given.
#[derive(Clone, Debug)]
pub struct OverTime {
    name: String,
    limit: Duration,
    tail: String,
}

impl std::fmt::Display for OverTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let OverTime { name, limit, tail } = self;
        write!(f, "{name} did not end within {limit:.0?}\n{tail}")
    }
}

impl std::error::Error for OverTime {}

/// One JSON line that a program wrote.
#[derive(Clone, Debug)]
pub struct Event {
    /// When it was read.
    pub at: Instant,
    /// Its content.
    pub value: Value,
}

#[derive(Debug, Default)]
struct Events {
    list: Mutex<(Vec<Event>, bool)>,
    changed: Condvar,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, (Vec<Event>, bool)> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lines that are JSON become events, others go to the log.
fn collect(lines: impl std::io::BufRead, events: &Events, mut log: File) {
    for line in lines.split(b'\n').map_while(Result::ok) {
        match serde_json::from_slice::<Value>(&line) {
            Ok(value) if value.is_object() => {
                events.lock().0.push(Event {
                    at: Instant::now(),
                    value,
                });
                events.changed.notify_all();
            }
            _ => {
                let _ = log.write_all(&line).and_then(|()| log.write_all(b"\n"));
            }
        }
    }
    events.lock().1 = true;
    events.changed.notify_all();
}

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    started: Instant,
    events: Arc<Events>,
    log: PathBuf,
    reader: Option<JoinHandle<()>>,
    ended: Option<(ExitStatus, Instant)>,
}

impl Process {
    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Its process identifier.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its events so far.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().0.clone()
    }

    /// Returns the newest event with this name.
    pub fn last(&self, event: &str) -> Option<Value> {
        let list = self.events.lock();
        list.0
            .iter()
            .rev()
            .find(|e| e.value["event"] == event)
            .map(|e| e.value.clone())
    }

    /// Waits for an event with this name.
    ///
    /// # Errors
    /// When it ends or the time passes before.
    pub fn wait_event(&mut self, event: &str, limit: Duration) -> Result<Event> {
        self.wait_that(&format!("event `{event}`"), limit, |value| {
            value["event"] == event
        })
    }

    /// Waits for an event that `wanted` accepts.
    ///
    /// # Errors
    /// When it ends or the time passes before.
    pub fn wait_that(
        &mut self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Event> {
        let end = Instant::now() + limit;
        let events = Arc::clone(&self.events);
        let mut list = events.lock();
        loop {
            if let Some(event) = list.0.iter().find(|event| wanted(&event.value)) {
                return Ok(event.clone());
            }
            let left = end.saturating_duration_since(Instant::now());
            if list.1 || left.is_zero() {
                let why = if list.1 { "ended" } else { "is late" };
                drop(list);
                bail!("{} {why}: no {what}\n{}", self.name, self.tail());
            }
            let waited = events.changed.wait_timeout(list, left);
            list = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes one line to its standard input.
    ///
    /// # Errors
    /// When its standard input is closed.
    pub fn write_line(&mut self, line: &str) -> Result<()> {
        let stdin = self
            .stdin
            .as_mut()
            .context("its standard input is closed")?;
        writeln!(stdin, "{line}").with_context(|| format!("talk to {}", self.name))
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.ended = Some((status, Instant::now()));
        }
        self.ended.map(|(status, _)| status)
    }

    /// Waits for its end and returns how it ended and how long it ran.
    ///
    /// # Errors
    /// [`OverTime`] when the time passes before.
    pub fn wait(&mut self, limit: Duration) -> Result<(ExitStatus, Duration)> {
        let end = Instant::now() + limit;
        let mut pause = Duration::from_micros(200);
        while self.ended().is_none() {
            if Instant::now() >= end {
                return Err(OverTime {
                    name: self.name.clone(),
                    limit,
                    tail: self.tail(),
                }
                .into());
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        let (status, at) = self.ended.context("no exit status")?;
        Ok((status, at - self.started))
    }

    /// Waits for its end, which must be a success.
    ///
    /// # Errors
    /// When it fails or the time passes before; the message carries the end of its log.
    pub fn succeed(&mut self, limit: Duration) -> Result<Duration> {
        let (status, took) = self.wait(limit)?;
        if !status.success() {
            bail!("{} failed: {status}\n{}", self.name, self.tail());
        }
        Ok(took)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, signal).with_context(|| format!("signal {}", self.name))
    }

    /// Stops it by SIGTERM, and kills it when it does not end.
    ///
    /// # Errors
    /// When it had to be killed.
    pub fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        if self.ended().is_none() {
            self.signal(Signal::SIGTERM)?;
        }
        match self.wait(grace) {
            Ok((status, _)) => Ok(status),
            Err(error) => {
                let _ = self.child.kill();
                Err(error)
            }
        }
    }

    /// Processor time it has used: user and system. Zero where `/proc` does not show it.
    pub fn cpu_time(&self) -> Duration {
        let read = || -> Option<Duration> {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
            let mut ticks = || fields.next()?.parse::<u64>().ok();
            // Ticks are 1/100 s on every Linux.
            Some(Duration::from_millis((ticks()? + ticks()?) * 10))
        };
        read().unwrap_or_default()
    }

    /// Its peak memory in bytes; zero when `/proc` does not show it.
    pub fn peak_memory(&self) -> u64 {
        let read = || -> Option<u64> {
            let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("VmHWM:"))?;
            Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
        };
        read().unwrap_or(0)
    }

    /// The lines of its log.
    pub fn log(&self) -> Vec<String> {
        let log = File::open(&self.log).map(BufReader::new);
        log.into_iter()
            .flat_map(|log| log.lines().map_while(Result::ok))
            .collect()
    }

    /// The end of its log.
    pub fn tail(&self) -> String {
        let lines = self.log();
        let start = lines.len().saturating_sub(8);
        lines[start..]
            .iter()
            .map(|line| format!("    {} | {line}\n", self.name))
            .collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
