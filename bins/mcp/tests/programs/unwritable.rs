//! Standard output and standard error that cannot be written: a full disk (`/dev/full`), a closed pipe.

use std::process::{Command, Stdio};

use crate::broken_output::{UNWRITTEN, closed, full};
use crate::common::{Finished, Running, Stage, mcp, mcpd};

/// Runs a command whose standard output or standard error is replaced; the exit code and standard error.
fn run(command: &mut Command) -> (Option<i32>, String) {
    let child = command.stdin(Stdio::null()).spawn().expect("it starts");
    let output = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!errors.contains("panicked"), "{errors}");
    (output.status.code(), errors)
}

/// A copy to one host that is there and one that is not, as text.
fn half(stage: &Stage, name: &str) -> Command {
    let file = stage.content(name, 300_000);
    let mut command = Command::new(mcp());
    command.arg(file).args([stage.address(1), stage.address(2)]);
    command
}

#[track_caller]
fn arrived(stage: &Stage, name: &str) {
    let copy = std::fs::read(stage.dir(1).join(name)).expect("a copy");
    assert!(copy == std::fs::read(stage.path(name)).expect("the file"));
}

#[test]
fn a_copy_goes_on_where_messages_cannot_be_written() {
    let stage = Stage::new();
    let _one = stage.start(1, &[]);
    for (name, errors) in [("full", full()), ("closed", closed())] {
        let mut command = half(&stage, name);
        command.args(["--log", "trace"]);
        let (code, _) = run(command.stdout(Stdio::null()).stderr(errors));
        assert_eq!(code, Some(3), "{name}");
        arrived(&stage, name);
    }
}

#[test]
fn a_list_of_failed_hosts_that_cannot_be_written_is_an_exit_code() {
    let stage = Stage::new();
    let _one = stage.start(1, &[]);
    let mut command = half(&stage, "full");
    let (code, errors) = run(command.stdout(full()).stderr(Stdio::piped()));
    assert_eq!(code, Some(UNWRITTEN), "{errors}");
    assert!(
        errors.contains("cannot write the result: No space"),
        "{errors}"
    );
    assert!(errors.contains("1 of 2 hosts verified"), "{errors}");
    arrived(&stage, "full");
    let mut command = half(&stage, "closed");
    let (code, errors) = run(command.stdout(closed()).stderr(Stdio::piped()));
    assert_eq!(code, Some(3), "{errors}");
    assert!(!errors.contains("result"), "{errors}");
    arrived(&stage, "closed");
}

#[test]
fn events_that_cannot_be_written_are_an_exit_code() {
    let stage = Stage::new();
    let _one = stage.start(1, &[]);
    for (name, out, expected) in [("full", full(), UNWRITTEN), ("closed", closed(), 0)] {
        let file = stage.content(name, 300_000);
        let mut command = stage.send(&file, &[1], &[]);
        let (code, errors) = run(command.stdout(out).stderr(Stdio::piped()));
        assert_eq!(code, Some(expected), "{errors}");
        let lines = errors.lines().filter(|line| line.contains("result"));
        assert_eq!(lines.count(), usize::from(expected != 0), "{errors}");
        arrived(&stage, name);
    }
}

#[test]
fn mcpd_receives_where_nothing_can_be_written() {
    let stage = Stage::new();
    for (receiver, out, errors, expected) in [
        (1, full(), full(), UNWRITTEN),
        (2, closed(), closed(), 0),
        (3, Stdio::null(), full(), 0),
    ] {
        let mut command = stage.receiver(receiver, &["--once", "--log", "trace"]);
        let child = command.stdin(Stdio::null()).stdout(out).stderr(errors);
        let mut child = child.spawn().expect("it starts");
        let file = stage.content("image", 300_000);
        let copied = stage.copy(&file, &[receiver], &["--connect-timeout", "10s"]);
        let status = child.wait().expect("it ends");
        copied.expect(0);
        assert_eq!(status.code(), Some(expected), "{receiver}");
    }
}

#[test]
fn help_that_cannot_be_written_is_an_exit_code() {
    for program in [mcp(), mcpd()] {
        for (out, expected) in [(full(), UNWRITTEN), (closed(), 0)] {
            let mut command = Command::new(&program);
            let (code, errors) = run(command.arg("--help").stdout(out).stderr(Stdio::piped()));
            assert_eq!(code, Some(expected), "{program:?}: {errors}");
        }
        let mut command = Command::new(&program);
        let command = command.arg("--no-such-option").stdout(Stdio::null());
        assert_eq!(run(command.stderr(full())).0, Some(2));
        let help = Running::start(Command::new(&program).arg("--help")).finish();
        says_so(&help);
    }
}

fn says_so(help: &Finished) {
    help.expect(0)
        .line(&["74", "the result could not be written"]);
}
