//! `mcpd run --config` as an operator sees it: status, metrics, reload, the end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use mcpd::metrics::METRICS;
use mcpd::status::{self, Show};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Calls `attempt` until it returns something.
fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A daemon; killed when dropped.
struct Daemon {
    child: Child,
    folder: TempDir,
}

fn program(verb: &str, folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcpd"));
    let config = folder.path().join("mcpd.toml");
    command.arg(verb).arg("--config").arg(config);
    command.env_remove("POLYCAST_LOG");
    command
}

fn write(folder: &TempDir, receive: &str) {
    let socket = folder.path().join("sock");
    let text = format!(
        "[receive]\nlisten = \"127.0.0.1:0\"\n{receive}\n[metrics]\nlisten = \"127.0.0.1:0\"\n[daemon]\nsocket = {socket:?}\n"
    );
    std::fs::write(folder.path().join("mcpd.toml"), text).expect("configuration");
}

impl Daemon {
    fn start() -> Daemon {
        let folder = tempfile::tempdir().expect("folder");
        for name in ["one", "two"] {
            std::fs::create_dir(folder.path().join(name)).expect("folder");
        }
        let receive = format!("dir = {:?}", daemon_folder(&folder, "one"));
        write(&folder, &receive);
        let log = std::fs::File::create(folder.path().join("log")).expect("log");
        let child = program("run", &folder).stderr(Stdio::from(log)).spawn();
        let child = child.expect("started");
        let daemon = Daemon { child, folder };
        eventually("an answer", || daemon.query(Show::Overview));
        daemon
    }

    fn query(&self, show: Show) -> Option<Value> {
        status::query(&self.folder.path().join("sock"), show).ok()
    }

    fn overview(&self) -> Value {
        self.query(Show::Overview).expect("an answer")
    }

    fn reload(&self, receive: &str) -> Value {
        write(&self.folder, receive);
        let count = |answer: &Value| {
            let configuration = &answer["configuration"];
            configuration["reloads"].as_u64().expect("a count")
                + configuration["rejected"].as_u64().expect("a count")
        };
        let before = count(&self.overview());
        self.signal(Signal::SIGHUP);
        eventually("the reload", || {
            Some(self.overview()).filter(|answer| count(answer) > before)
        })
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("signalled");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("log"));
            eprintln!("{}", log.unwrap_or_default());
        }
    }
}

fn daemon_folder(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    text
}

#[test]
fn a_reload_changes_the_folder_and_a_wrong_file_nothing() {
    let mut daemon = Daemon::start();
    let one = daemon_folder(&daemon.folder, "one");
    let two = daemon_folder(&daemon.folder, "two");
    assert_eq!(daemon.overview()["dir"], one.as_str());
    let listen = daemon.overview()["listen"].clone();
    let after = daemon.reload(&format!("dir = {two:?}\nfsync = true"));
    assert_eq!(
        (&after["dir"], &after["listen"]),
        (&two.clone().into(), &listen)
    );
    assert_eq!(after["configuration"]["reloads"], 1);
    for wrong in [
        "dir = 7".to_owned(),
        format!("dir = {:?}", format!("{two}/missing")),
    ] {
        let after = daemon.reload(&wrong);
        assert_eq!(after["dir"], two.as_str(), "{wrong}");
        assert_eq!(after["configuration"]["reloads"], 1, "{wrong}");
    }
    assert_eq!(daemon.overview()["configuration"]["rejected"], 2);
    let copies = daemon.query(Show::Copies).expect("an answer");
    assert_eq!(copies["copies"], Value::Array(Vec::new()));
    daemon.signal(Signal::SIGTERM);
    let code = eventually("the end", || daemon.child.try_wait().expect("waited"));
    assert_eq!(code.code(), Some(0));
    assert!(daemon.query(Show::Overview).is_none());
}

#[test]
fn the_page_of_metrics_has_what_the_table_names_and_the_manual_lists() {
    let daemon = Daemon::start();
    let address = daemon.overview()["metrics"].clone();
    let mut stream = TcpStream::connect(address.as_str().expect("an address")).expect("connected");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        .expect("asked");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("read");
    let manual = include_str!("../../../docs/manual/metrics.md");
    for metric in METRICS {
        let line = format!("# HELP mcpd_{} {}", metric.name, metric.help);
        assert!(page.contains(&line), "{line} is not in\n{page}");
        let row = metric.documentation("mcpd");
        let kind = row.split(" | ").nth(1).expect("a kind");
        let line = format!("# TYPE mcpd_{} {kind}", metric.name);
        assert!(page.contains(&line), "{line} is not in\n{page}");
        assert!(manual.contains(&row), "{row}");
    }
}

#[test]
fn status_and_top_find_the_socket_in_the_configuration() {
    let daemon = Daemon::start();
    for (verb, more, expected) in [
        ("status", "counters", "refused"),
        ("status", "--json", "\"running\":0"),
        ("top", "--once", "copied"),
    ] {
        let output = program(verb, &daemon.folder).arg(more).output();
        let output = output.expect("run");
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(shown.contains(expected), "{verb} {more}: {shown}");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
}

#[test]
fn check_names_every_problem_and_its_place() {
    let folder = tempfile::tempdir().expect("folder");
    write(&folder, "carrier = \"pigeon\"\nfysnc = true");
    let output = program("check", &folder).output().expect("run");
    let text = text(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for expected in [
        "mcpd.toml:3:11: receive.carrier",
        "mcpd.toml:4:1: receive.fysnc",
        "receive.dir",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    write(
        &folder,
        &format!("dir = {:?}", daemon_folder(&folder, "missing")),
    );
    let output = program("check", &folder).output().expect("run");
    assert_eq!(output.status.code(), Some(0));
    let output = program("check", &folder)
        .arg("--host")
        .output()
        .expect("run");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn options_and_a_configuration_exclude_each_other() {
    let folder = tempfile::tempdir().expect("folder");
    let mut command = program("run", &folder);
    let output = command.args(["--dir", "."]).output().expect("run");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}
