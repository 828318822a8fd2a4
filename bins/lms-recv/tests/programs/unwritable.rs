//! Standard output and standard error that cannot be written: a full disk (`/dev/full`), a closed pipe.

use std::fs;
use std::process::{Command, Stdio};

use crate::broken_output::{UNWRITTEN, closed, full};
use crate::common::{content, group, lms_recv, receive, send};

/// Runs both ends of a transfer; the exit codes of receiver and sender, and the receiver's messages.
fn transfer(receiver: &mut Command, sender: &mut Command) -> (Option<i32>, Option<i32>, String) {
    let receiver = receiver.stdin(Stdio::null()).spawn().expect("the receiver");
    let sender = sender.stdin(Stdio::null()).spawn();
    let received = receiver.wait_with_output().expect("it ends");
    let sent = sender.expect("the sender").wait().expect("it ends");
    let errors = String::from_utf8_lossy(&received.stderr).into_owned();
    (received.status.code(), sent.code(), errors)
}

#[test]
fn a_transfer_continues_where_events_and_messages_cannot_be_written() {
    for (out, errors, expected) in [
        (full(), full(), UNWRITTEN),
        (closed(), closed(), 0),
        (Stdio::null(), full(), 0),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x");
        fs::write(&file, content(300_000)).expect("written");
        let (to, group) = (tempfile::tempdir().expect("a folder"), group());
        let mut receiver = receive(&group, to.path(), &["--json", "--log", "debug"]);
        let receiver = receiver.stdout(out).stderr(errors);
        let options = ["--receivers", "1", "--json", "--log", "debug"];
        let mut sender = send(&group, &file, &options);
        let (out, errors) = match expected {
            0 => (closed(), closed()),
            _ => (full(), full()),
        };
        let (received, sent, _) = transfer(receiver, sender.stdout(out).stderr(errors));
        assert_eq!((received, sent), (Some(expected), Some(expected)));
        let copy = fs::read(to.path().join("x")).expect("a copy");
        assert!(copy == content(300_000));
    }
}

#[test]
fn a_stream_whose_bytes_cannot_be_written_ends_with_the_code_of_that() {
    for (out, message) in [
        (
            full(),
            "error: cannot write to standard output: No space left",
        ),
        (closed(), ""),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x");
        fs::write(&file, content(3_000_000)).expect("written");
        let group = group();
        let mut receiver = receive(&group, "-", &["--quiet"]);
        let receiver = receiver.stdout(out).stderr(Stdio::piped());
        let mut sender = send(&group, &file, &["--receivers", "1", "--linger", "1s"]);
        let sender = sender.stdout(Stdio::null()).stderr(Stdio::null());
        let (received, _, errors) = transfer(receiver, sender);
        assert_eq!(received, Some(UNWRITTEN), "{errors}");
        assert!(errors.starts_with(message), "{errors}");
        assert_eq!(errors.is_empty(), message.is_empty(), "{errors}");
    }
}

#[test]
fn errors_that_cannot_be_written_keep_their_codes() {
    for (arguments, expected) in [
        (&["--no-such-option"][..], 2),
        (&["--group", "10.0.0.1:5000", "--output", "-"], 2),
        (
            &[
                "--group",
                "239.1.2.3:5000",
                "--output",
                "-",
                "--interface",
                "none",
            ],
            1,
        ),
    ] {
        for errors in [Stdio::null(), full(), closed()] {
            let mut command = Command::new(lms_recv());
            let command = command.args(arguments).stdout(Stdio::null()).stderr(errors);
            let status = command.status().expect("it runs");
            assert_eq!(status.code(), Some(expected), "{arguments:?}");
        }
    }
    for (out, expected) in [(full(), UNWRITTEN), (closed(), 0)] {
        let mut command = Command::new(lms_recv());
        let status = command.arg("--help").stdout(out).status();
        assert_eq!(status.expect("it runs").code(), Some(expected));
    }
}
