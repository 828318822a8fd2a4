//! Ends that are not complete: interrupted programs, and no sender.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::common::{Running, content, group, names, receive, send, wait_for_temporary};
use super::transfer::folder;

#[test]
fn ctrl_c_on_the_receiver_removes_the_temporary_and_tells_the_sender() {
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, content(50_000_000)).expect("content");
    let group = group();
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &[]));
    let options = ["--rate", "300M", "--receivers", "1", "--linger", "500ms"];
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    wait_for_temporary(to.path());
    std::thread::sleep(Duration::from_millis(300));
    receiver.signal("INT");
    receiver.finish().expect(130).says("interrupted");
    assert!(names(to.path()).is_empty());
    sender
        .finish()
        .expect(3)
        .says("left before it had everything");
}

#[test]
fn ctrl_c_on_the_sender_ends_the_receiver_soon() {
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, content(50_000_000)).expect("content");
    let group = group();
    let options = ["--timeout", "5s"];
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &options));
    let sender = Running::start("sender", &mut send(&group, &file, &["--rate", "50M"]));
    wait_for_temporary(to.path());
    std::thread::sleep(Duration::from_millis(200));
    sender.signal("TERM");
    sender.finish().expect(130);
    receiver
        .finish()
        .expect(1)
        .says("the source left before everything had arrived");
    assert!(names(to.path()).is_empty());
}

#[test]
fn ctrl_c_while_waiting() {
    let to = folder();
    let receiver = Running::start("receiver", &mut receive(&group(), to.path(), &[]));
    std::thread::sleep(Duration::from_millis(300));
    receiver.signal("INT");
    receiver.finish().expect(130);
}

#[test]
fn no_sender_appears() {
    let to = folder();
    let options = ["--connect-timeout", "400ms", "--timeout", "200ms"];
    let receiver = Running::start("receiver", &mut receive(&group(), to.path(), &options));
    receiver
        .finish()
        .expect(1)
        .says("no sender was heard on 239.195");
}

#[test]
fn the_connect_timeout_is_the_configured_one() {
    let to = folder();
    let options = ["--connect-timeout", "300ms", "--timeout", "50s", "--json"];
    let receiver = Running::start("receiver", &mut receive(&group(), to.path(), &options));
    let receiver = receiver.finish();
    receiver.expect(1).says("for 0.3 s");
}

#[test]
fn ctrl_c_works_while_the_reader_of_the_last_bytes_stands_still() {
    let from = folder();
    let file = from.path().join("x");
    fs::write(&file, content(1_000_000)).expect("content");
    let group = group();
    let mut receiver = receive(&group, "-", &["--json"]);
    let mut receiver = receiver
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("receiver");
    let options = ["--receivers", "1", "--rate", "200M"];
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    // Everything is verified, and no bytes are read.
    sender.finish().expect(0);
    let id = receiver.id().to_string();
    let killed = Command::new("kill").args(["-INT", &id]).status();
    assert!(killed.expect("kill runs").success());
    let _out = receiver.stdout.take();
    let output = receiver.wait_with_output().expect("receiver");
    assert_eq!(output.status.code(), Some(130));
}
