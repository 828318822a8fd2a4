//! `top` on a terminal, and the default path of the status socket.

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};

/// Locked while a child process is started.
static START: Mutex<()> = Mutex::new(());

fn relay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_dyram-relay"))
}

/// `top` on a pseudo-terminal of its own, and the other side of that terminal.
fn top_on_a_terminal() -> (Child, File) {
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // A child that inherited the terminal's other side would keep it open: none may start before it is closed to them.
    let _no_other_child = START.lock().unwrap();
    let pty = openpty(Some(&size), None).unwrap();
    let close = FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC);
    fcntl(&pty.master, close).unwrap();
    let side = || Stdio::from(pty.slave.try_clone().unwrap());
    let child = relay()
        .args(["top", "--socket", "/nonexistent/relay.sock"])
        .env("TERM", "xterm")
        .stdin(side())
        .stdout(side())
        .stderr(side())
        .spawn()
        .unwrap();
    (child, File::from(pty.master))
}

/// Reads until the terminal shows `text`.
fn wait_for(terminal: &mut File, text: &str) {
    let mut shown = Vec::new();
    let mut bytes = [0; 4096];
    while !String::from_utf8_lossy(&shown).contains(text) {
        let count = terminal.read(&mut bytes).unwrap();
        shown.extend(&bytes[..count]);
    }
}

/// Returns the exit code of a process; one that does not end is killed, and the test fails.
fn exit_code(mut child: Child) -> Option<i32> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("top is still running");
}

#[test]
fn top_ends_when_its_terminal_is_gone() {
    let (child, mut terminal) = top_on_a_terminal();
    wait_for(&mut terminal, "dyram-relay");
    drop(terminal);
    assert_eq!(exit_code(child), Some(130));
}

#[test]
fn top_ends_at_q() {
    use std::io::Write;
    let (child, mut terminal) = top_on_a_terminal();
    wait_for(&mut terminal, "dyram-relay");
    terminal.write_all(b"q").unwrap();
    assert_eq!(exit_code(child), Some(0));
}

#[test]
fn status_looks_where_the_environment_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.sock");
    let stderr = |value: &str, args: &[&str]| {
        let mut command = relay();
        command.env("POLYCAST_DAEMON__SOCKET", value);
        command.arg("status").args(args);
        let start = START.lock().unwrap();
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        drop(start);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let plain = path.to_str().unwrap();
    let quoted = format!("\"{plain}\"");
    for value in [plain, &quoted] {
        let said = stderr(value, &[]);
        assert!(said.contains(&format!("{plain}: no dyram-relay")), "{said}");
    }
    // An option wins over the environment.
    let other = folder.path().join("other.sock");
    let said = stderr(plain, &["--socket", other.to_str().unwrap()]);
    assert!(said.contains("other.sock: no dyram-relay"), "{said}");
    // It is asked there.
    let listener = UnixListener::bind(Path::new(plain)).unwrap();
    let asked = std::thread::spawn(move || listener.accept().is_ok());
    stderr(plain, &[]);
    assert!(asked.join().unwrap());
}
