//! Both programs as a user starts them, over the loopback interface.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Longest any transfer here may take.
const LIMIT: Duration = Duration::from_secs(60);

pub fn lms_recv() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_lms-recv"))
}

pub fn lms_send() -> PathBuf {
    example("lms-send")
}

pub fn dyram_relay() -> PathBuf {
    example("dyram-relay")
}

pub fn lms_router() -> PathBuf {
    example("lms-router")
}

/// An example of this package, which is another program: cargo builds examples before it runs the tests of a package,
/// but not with `--test programs` alone.
fn example(program: &str) -> PathBuf {
    let path = lms_recv().with_file_name("examples").join(program);
    assert!(path.exists(), "cargo build -p lms-recv --examples");
    path
}

/// A group of its own for each test.
pub fn group() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = std::process::id();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(
        "239.195.{}.{}:{}",
        process % 250 + 1,
        next + 1,
        20_000 + process % 20_000
    )
}

/// A program that is stopped when the test ends, and its output.
pub struct Running {
    child: Option<Child>,
    name: &'static str,
}

impl Running {
    pub fn start(name: &'static str, command: &mut Command) -> Running {
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Running {
            child: Some(child.expect("the program starts")),
            name,
        }
    }

    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.id().to_string())
            .status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits for the end. Returns the output and the exit code.
    pub fn finish(mut self) -> Finished {
        let mut child = self.child.take().expect("still there");
        let mut out = child.stdout.take().expect("piped");
        let mut err = child.stderr.take().expect("piped");
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            err.read_to_end(&mut text).map(|_| text)
        });
        let bytes = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            out.read_to_end(&mut bytes).map(|_| bytes)
        });
        let status = wait(&mut child, self.name);
        let stdout = bytes.join().expect("reader").expect("stdout");
        let stderr = errors.join().expect("reader").expect("stderr");
        Finished {
            code: status.code(),
            stdout,
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }
}

fn wait(child: &mut Child, name: &str) -> ExitStatus {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait().expect("wait") {
            return status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            panic!("{name} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub struct Finished {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Finished {
    #[track_caller]
    pub fn expect(&self, code: i32) -> &Self {
        let stdout = String::from_utf8_lossy(&self.stdout[..self.stdout.len().min(3000)]);
        assert_eq!(
            self.code,
            Some(code),
            "stderr:\n{}\nstdout:\n{stdout}",
            self.stderr
        );
        self
    }

    #[track_caller]
    pub fn says(&self, text: &str) -> &Self {
        assert!(
            self.stderr.contains(text),
            "\"{text}\" is not in:\n{}",
            self.stderr
        );
        self
    }

    /// The first event with that name, as JSON text.
    pub fn event(&self, name: &str) -> Option<String> {
        self.events(name).next()
    }

    /// All events with that name, as JSON text.
    pub fn events(&self, name: &str) -> impl Iterator<Item = String> {
        let text = String::from_utf8_lossy(&self.stdout);
        let wanted = format!("{{\"event\":\"{name}\"");
        let events = text.lines().filter(|line| line.starts_with(&wanted));
        let events: Vec<String> = events.map(str::to_owned).collect();
        events.into_iter()
    }
}

pub fn send(group: &str, file: impl AsRef<OsStr>, extra: &[&str]) -> Command {
    let mut command = Command::new(lms_send());
    command
        .args(["--group", group, "--interface", "lo"])
        .args(extra)
        .arg(file);
    command
}

pub fn receive(group: &str, output: impl AsRef<OsStr>, extra: &[&str]) -> Command {
    let mut command = Command::new(lms_recv());
    command
        .args(["--group", group, "--interface", "lo", "--output"])
        .arg(output)
        .args(extra);
    command
}

/// Bytes that look random.
pub fn content(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ len as u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("folder");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// Waits until the receiver has begun to write a file.
pub fn wait_for_temporary(folder: &Path) {
    let end = Instant::now() + LIMIT;
    // At its start a receiver tries whether it may write, with a temporary of its own.
    let is_content = |name: &String| name.ends_with(".part") && !name.starts_with(".check.");
    while !names(folder).iter().any(is_content) {
        assert!(Instant::now() < end, "no temporary appears");
        std::thread::sleep(Duration::from_millis(5));
    }
}
