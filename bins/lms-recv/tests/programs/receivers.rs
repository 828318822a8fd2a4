//! The receivers a sender waits for, with both programs: each has an address of the loopback interface.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use super::common::{Running, content, group, receive, send, wait_for_temporary};
use super::transfer::folder;

/// A host receives, and receives again: the second host has not come, and the sender says so.
#[test]
fn a_host_that_receives_twice_is_one_receiver() {
    let (from, one, two) = (folder(), folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, content(300_000)).expect("content");
    let group = group();
    let options = ["--receivers", "2", "--connect-timeout", "300ms", "--json"];
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    for folder in [&one, &two] {
        let receiver = Running::start("receiver", &mut receive(&group, folder.path(), &[]));
        receiver.finish().expect(0);
    }
    let sender = sender.finish();
    sender
        .expect(3)
        .says("1 of 2 receivers did not confirm")
        .says("receivers at one address count as one");
    let end = sender.event("end").expect("end");
    assert_eq!(end.matches("\"state\":\"complete\"").count(), 2, "{end}");
}

/// Three receive where two are expected, and the third one lacks packets when the others are done.
#[test]
fn a_third_receiver_is_waited_for_where_two_are_expected() {
    let (from, bytes) = (folder(), content(3_000_000));
    let file = from.path().join("x");
    fs::write(&file, &bytes).expect("content");
    let group = group();
    let folders = [folder(), folder(), folder()];
    let mut receivers: Vec<Running> = folders
        .iter()
        .zip(["127.0.0.1", "127.0.0.2", "127.0.0.3"])
        .map(|(to, address)| {
            let options = ["--address", address];
            Running::start("receiver", &mut receive(&group, to.path(), &options))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let options = ["--receivers", "2", "--rate", "8M", "--linger", "500ms"];
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    wait_for_temporary(folders[2].path());
    // It has joined when it has proved its address; three seconds of data are to come.
    std::thread::sleep(Duration::from_secs(1));
    let third = receivers.pop().expect("three");
    third.signal("STOP");
    for receiver in receivers {
        receiver.finish().expect(0);
    }
    std::thread::sleep(Duration::from_secs(2));
    third.signal("CONT");
    sender
        .finish()
        .expect(0)
        .says("every receiver has everything")
        .says("127.0.0.3");
    third.finish().expect(0);
    assert!(fs::read(folders[2].path().join("x")).expect("file") == bytes);
}

/// `--output -` into a program that never reads: the others finish, and the sender names it.
#[test]
fn a_reader_that_never_reads_stops_no_other_receiver() {
    let (from, to, bytes) = (folder(), folder(), content(48 << 20));
    let file = from.path().join("x");
    fs::write(&file, &bytes).expect("content");
    let group = group();
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &[]));
    let options = ["--buffer", "4MiB", "--address", "127.0.0.2", "--quiet"];
    let mut stuck = receive(&group, "-", &options);
    // The pipe is never read.
    let mut stuck = stuck.stdout(Stdio::piped()).spawn().expect("stuck");
    std::thread::sleep(Duration::from_millis(500));
    let options = ["--receivers", "2", "--rate", "300M", "--json"];
    let options = [&options[..], &["--timeout", "4s", "--linger", "1s"]].concat();
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    receiver.finish().expect(0);
    let sender = sender.finish();
    sender
        .expect(3)
        .says("1 of 2 receivers did not confirm")
        .says("127.0.0.2")
        .says("made no progress");
    let events = String::from_utf8_lossy(&sender.stdout);
    let waits = events
        .lines()
        .filter(|line| line.starts_with("{\"event\":\"progress\""))
        .any(|line| line.contains("\"address\":\"127.0.0.2") && line.contains("behind_percent"));
    assert!(waits, "{events}");
    let end = sender.event("end").expect("end");
    assert!(end.contains("\"reason\":\"made no progress\""), "{end}");
    assert!(fs::read(to.path().join("x")).expect("file") == bytes);
    let _ = stuck.kill();
    let _ = stuck.wait();
}
