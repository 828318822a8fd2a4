//! Programs that run, and a stage for them: one address of loopback for each receiver.

use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longest any copy here may take.
const LIMIT: Duration = Duration::from_secs(90);

pub(crate) fn mcp() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_mcp"))
}

/// The example `mcpd` of this package, which is the program: cargo builds examples before it runs the tests of a
/// package, but not with `--test programs` alone.
pub(crate) fn mcpd() -> PathBuf {
    let path = mcp().with_file_name("examples").join("mcpd");
    assert!(path.exists(), "cargo build -p mcp --examples");
    path
}

/// A program that is stopped when the test ends; its lines of standard output as they come.
pub(crate) struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    errors: Option<std::thread::JoinHandle<String>>,
    seen: Vec<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.expect("the program starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let mut err = child.stderr.take().expect("piped");
        let (to, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = err.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Running {
            child,
            lines,
            errors: Some(errors),
            seen: Vec::new(),
        }
    }

    /// Waits for a line that holds all these words.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, words: &[&str]) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if words.iter().all(|word| line.contains(word)) {
                        return line;
                    }
                }
                Err(_) => {
                    let _ = self.child.kill();
                    let errors = self.errors.take().map(|errors| errors.join());
                    panic!("no line with {words:?} in {:#?}\n{errors:?}", self.seen);
                }
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits for the end; returns the output and the exit code.
    pub(crate) fn finish(mut self) -> Finished {
        let end = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                break status;
            }
            assert!(Instant::now() < end, "the program does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let errors = self.errors.take().expect("once").join().expect("reader");
        let mut lines = std::mem::take(&mut self.seen);
        lines.extend(self.lines.iter());
        Finished {
            code: status.code(),
            lines,
            errors,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) lines: Vec<String>,
    pub(crate) errors: String,
}

impl Finished {
    #[track_caller]
    pub(crate) fn expect(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn says(&self, text: &str) -> &Self {
        assert!(self.errors.contains(text), "\"{text}\" is not in {self:#?}");
        self
    }

    /// A line of standard output that holds all these words.
    #[track_caller]
    pub(crate) fn line(&self, words: &[&str]) -> &str {
        let fits = |line: &&String| words.iter().all(|word| line.contains(word));
        let found = self.lines.iter().find(fits);
        found.unwrap_or_else(|| panic!("no line with {words:?} in {self:#?}"))
    }

    /// The number in a field of a line.
    #[track_caller]
    pub(crate) fn number(&self, words: &[&str], field: &str) -> u64 {
        number(self.line(words), field)
    }
}

#[track_caller]
pub(crate) fn number(line: &str, field: &str) -> u64 {
    let rest = line
        .split_once(&format!("\"{field}\":"))
        .expect("the field")
        .1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// A folder for one test, with a file to copy, and receivers.
pub(crate) struct Stage {
    pub(crate) folder: tempfile::TempDir,
    number: u8,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        Stage {
            folder: tempfile::tempdir().expect("folder"),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An address of loopback that no other test uses.
    pub(crate) fn address(&self, receiver: u8) -> String {
        let process = std::process::id();
        let number = u32::from(self.number) + process / 200;
        Ipv4Addr::new(
            127,
            10 + (process % 200) as u8,
            (number % 250) as u8,
            receiver,
        )
        .to_string()
    }

    /// A file of bytes that look random.
    pub(crate) fn content(&self, name: &str, len: usize) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content(len)).expect("written");
        path
    }

    /// A new key.
    pub(crate) fn key(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let status = Command::new(mcpd()).arg("--new-key").arg(&path).status();
        assert!(status.expect("mcpd runs").success());
        path
    }

    /// The folder of a receiver.
    pub(crate) fn dir(&self, receiver: u8) -> PathBuf {
        let dir = self.path(&format!("dir{receiver}"));
        std::fs::create_dir_all(&dir).expect("made");
        dir
    }

    /// The command of a receiver, to be started.
    pub(crate) fn receiver(&self, receiver: u8, extra: &[&str]) -> Command {
        let mut command = Command::new(mcpd());
        command
            .args(["--json", "--listen", &self.address(receiver), "--dir"])
            .arg(self.dir(receiver))
            .args(extra);
        command
    }

    /// A receiver that listens.
    pub(crate) fn start(&self, receiver: u8, extra: &[&str]) -> Running {
        listening(&mut self.receiver(receiver, extra))
    }

    /// The command of a sender, to be run.
    pub(crate) fn send(&self, source: &Path, receivers: &[u8], extra: &[&str]) -> Command {
        let mut command = Command::new(mcp());
        command.arg("--json").args(extra).arg(source);
        command.args(receivers.iter().map(|&receiver| self.address(receiver)));
        command
    }

    /// Copies; how it went.
    pub(crate) fn copy(&self, source: &Path, receivers: &[u8], extra: &[&str]) -> Finished {
        Running::start(&mut self.send(source, receivers, extra)).finish()
    }
}

pub(crate) fn listening(command: &mut Command) -> Running {
    let mut running = Running::start(command);
    running.wait_for(&["\"listening\""]);
    running
}

/// Bytes that look random.
pub(crate) fn content(len: usize) -> Vec<u8> {
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

/// Everything in a folder, by name, hidden names too.
pub(crate) fn names(folder: &Path) -> Vec<String> {
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
