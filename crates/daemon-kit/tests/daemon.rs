//! The skeleton, with a program that does little: start, questions, reloads, signals, failure, end.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use daemon_kit::RunError;
use daemon_kit::client::query;
use daemon_kit::daemon::{Configuration, Prepared, Program, Service, Start, StatusSource};
use daemon_kit::metric::Metric;
use daemon_kit::reader::Section;
use daemon_kit::server::{Failure, Out};
use daemon_kit::settings::Daemon;
use daemon_kit::signals::SignalAction;
use daemon_kit::state::DaemonState;
use daemon_kit::threads::DataThreads;
use daemon_kit::value::text;
use nix::sys::signal::{Signal, raise};
use serde_json::{Value, json};

/// Signals reach the whole process: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
struct Config {
    daemon: Daemon,
    word: String,
}

impl Configuration for Config {
    fn read(root: &Section<'_, '_>) -> Config {
        Config {
            daemon: Daemon::read(root, "/run/toy.sock"),
            word: root
                .require("word", "a text", text)
                .map_or_else(String::new, |at| at.value),
        }
    }

    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn needs_restart(&self, next: &Config) -> Vec<&'static str> {
        self.daemon.differences(&next.daemon).collect()
    }

    fn reloaded(&self, next: Config) -> Config {
        let daemon = self.daemon.clone();
        Config { daemon, ..next }
    }
}

/// What happened, in order.
type Events = Arc<Mutex<Vec<String>>>;

#[derive(Default)]
struct Toy {
    events: Events,
    /// The error that the data thread ends with, at once.
    failure: Option<&'static str>,
    /// Whether `end` never returns.
    hangs: bool,
    /// A thread of the runtime waits for this: a look-up in DNS that has no answer.
    look_up: Option<Arc<Mutex<()>>>,
}

struct Running {
    threads: DataThreads,
    stop: Sender<()>,
    status: Status,
    events: Events,
    hangs: bool,
}

#[derive(Clone)]
struct Status {
    word: Arc<Mutex<String>>,
    state: Arc<DaemonState>,
}

impl Program for Toy {
    const NAME: &'static str = "toy";
    type Config = Config;
    type Opened = ();
    type Service = Running;

    fn open(&self, _: &Config) -> Result<(), RunError> {
        Ok(())
    }

    fn start(&self, start: Start<'_, Toy>) -> Result<Running, RunError> {
        let (stop, stopped) = channel::<()>();
        let mut threads = DataThreads::default();
        if let Some(answer) = self.look_up.clone() {
            tokio::task::spawn_blocking(move || drop(answer.lock()));
        }
        let failure = self.failure;
        threads.spawn("toy-data".to_owned(), None, move |end| match failure {
            Some(failure) => end.send(Err(failure)),
            None => {
                let _ = stopped.recv();
                end.send(Ok::<(), String>(()));
            }
        })?;
        Ok(Running {
            threads,
            stop,
            status: Status {
                word: Arc::new(Mutex::new(start.config.word.clone())),
                state: start.state,
            },
            events: Arc::clone(&self.events),
            hangs: self.hangs,
        })
    }
}

impl Running {
    fn note(&self, event: impl ToString) {
        self.events.lock().unwrap().push(event.to_string());
    }
}

impl Service for Running {
    type Config = Config;
    type Status = Status;

    fn status(&self) -> Status {
        self.status.clone()
    }

    fn ready(&mut self, _: &Path, _: &Config) {
        self.note("ready");
    }

    async fn failed(&mut self) -> RunError {
        self.threads.failed().await
    }

    async fn reload(&mut self, next: &Config) -> Result<Vec<&'static str>, String> {
        self.status.word.lock().unwrap().clone_from(&next.word);
        Ok(vec!["extra"])
    }

    fn drain(&mut self) {
        self.note("drain");
    }

    async fn end(&mut self, _: &Config, action: SignalAction) -> Result<(), RunError> {
        self.note(format!("end {action:?}"));
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn stop(mut self, _: SignalAction) -> Result<(), RunError> {
        self.note("stop");
        let _ = self.stop.send(());
        self.threads.join().await
    }
}

impl StatusSource for Status {
    type Question = Value;
    const USAGE: &'static str = "ask with JSON";
    const PREFIX: &'static str = "toy";
    type Snapshot = ();
    const METRICS: &'static [Metric<()>] = &[];

    async fn answer(&self, _: Value, out: &mut Out) -> Result<(), Failure> {
        let word = self.word.lock().unwrap().clone();
        let answer = json!({"word": word, "configuration": self.state.configuration()});
        Ok(out.document(&answer).await?)
    }

    async fn snapshot(&self) -> Option<()> {
        None
    }
}

/// A running program.
struct Run {
    folder: tempfile::TempDir,
    events: Events,
    thread: JoinHandle<Result<ExitCode, RunError>>,
}

impl Run {
    fn start(failure: Option<&'static str>, hangs: bool) -> Run {
        Run::of(Toy {
            failure,
            hangs,
            ..Toy::default()
        })
    }

    fn of(toy: Toy) -> Run {
        let folder = tempfile::tempdir().unwrap();
        let events = Arc::clone(&toy.events);
        let file = folder.path().join("toy.toml");
        let run = Run {
            folder,
            events,
            thread: std::thread::spawn(move || {
                // Written by the test's thread before this one asks.
                while !file.exists() {
                    std::thread::yield_now();
                }
                Prepared::open(toy, &file)?.run()
            }),
        };
        run.write("word = \"one\"");
        run
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    /// Replaces the configuration at once.
    fn write(&self, text: &str) {
        let text = format!("{text}\n[daemon]\nsocket = {:?}\n", self.socket());
        let new = self.folder.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.folder.path().join("toy.toml")).unwrap();
    }

    /// Asks until the answer is as wanted.
    fn wait(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let answer = query(&self.socket(), "toy", &json!("anything"));
            if let Ok(answer) = &answer
                && wanted(answer)
            {
                return answer.clone();
            }
            assert!(Instant::now() < deadline, "{answer:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn event(&self, event: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.events.lock().unwrap().iter().any(|e| e == event) {
            assert!(Instant::now() < deadline, "{event}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(self) -> (Result<ExitCode, RunError>, Vec<String>) {
        let ended = self.thread.join().unwrap();
        assert!(!self.folder.path().join("sock").exists());
        let events = self.events.lock().unwrap().clone();
        (ended, events)
    }
}

fn is(code: &Result<ExitCode, RunError>, expected: ExitCode) -> bool {
    matches!(code, Ok(code) if format!("{code:?}") == format!("{expected:?}"))
}

#[test]
fn a_daemon_answers_reloads_drains_and_ends() {
    let _alone = alone();
    let run = Run::start(None, false);
    run.wait(|answer| answer["word"] == "one");
    run.write("word = \"two\"");
    raise(Signal::SIGHUP).unwrap();
    let answer = run.wait(|answer| answer["configuration"]["reloads"] == 1);
    assert_eq!(answer["word"], "two");
    assert_eq!(answer["configuration"]["needs_restart"], json!(["extra"]));
    // Rejected as a whole: the word and the keys that require a restart stay.
    run.write("word = 3");
    raise(Signal::SIGHUP).unwrap();
    let answer = run.wait(|answer| answer["configuration"]["rejected"] == 1);
    assert_eq!(answer["word"], "two");
    let error = answer["configuration"]["last_error"].as_str().unwrap();
    assert!(error.contains("toy.toml:1:8: word: 3 is not"), "{error}");
    raise(Signal::SIGUSR1).unwrap();
    run.event("drain");
    // This program does not restart: the signal changes nothing.
    raise(Signal::SIGUSR2).unwrap();
    run.wait(|answer| answer["word"] == "two");
    raise(Signal::SIGTERM).unwrap();
    let (ended, events) = run.end();
    assert!(is(&ended, ExitCode::SUCCESS), "{ended:?}");
    assert_eq!(events, ["ready", "drain", "end End", "stop"]);
}

#[test]
fn a_second_signal_cuts_the_end_short() {
    let _alone = alone();
    let run = Run::start(None, true);
    run.wait(|answer| answer["word"] == "one");
    raise(Signal::SIGTERM).unwrap();
    run.event("end End");
    raise(Signal::SIGINT).unwrap();
    let (ended, events) = run.end();
    assert!(is(&ended, ExitCode::FAILURE), "{ended:?}");
    assert_eq!(events, ["ready", "end End", "stop"]);
}

#[test]
fn a_data_thread_that_fails_ends_the_daemon() {
    let _alone = alone();
    let (ended, events) = Run::start(Some("broken"), false).end();
    assert!(
        matches!(&ended, Err(RunError::Data(why)) if why == "broken"),
        "{ended:?}"
    );
    assert_eq!(events, ["ready"]);
}

#[test]
fn a_look_up_without_an_answer_does_not_delay_the_end() {
    let _alone = alone();
    let answer = Arc::new(Mutex::new(()));
    let no_answer = answer.lock().unwrap();
    let run = Run::of(Toy {
        look_up: Some(Arc::clone(&answer)),
        ..Toy::default()
    });
    run.wait(|answer| answer["word"] == "one");
    raise(Signal::SIGTERM).unwrap();
    // It returns while the look-up still waits.
    let (ended, events) = run.end();
    assert!(is(&ended, ExitCode::SUCCESS), "{ended:?}");
    assert_eq!(events, ["ready", "end End", "stop"]);
    drop(no_answer);
}
