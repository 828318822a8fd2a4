//! Transfers as a user runs them: both programs, real sockets, the loopback interface.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::common::{
    Finished, Running, content, group, lms_recv, names, receive, send, wait_for_temporary,
};

pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("folder")
}

#[test]
fn files_of_any_length_arrive_at_two_receivers() {
    for len in [0, 1, 1395, 65_535, 65_536, 65_537, 131_072, 3_000_017] {
        let (from, one, two) = (folder(), folder(), folder());
        let bytes = content(len);
        let file = from.path().join("data.bin");
        fs::write(&file, &bytes).expect("content");
        let group = group();
        let first = Running::start("first", &mut receive(&group, one.path(), &[]));
        let other = ["--fsync", "--address", "127.0.0.2"];
        let second = Running::start("second", &mut receive(&group, two.path(), &other));
        let options = ["--receivers", "2", "--rate", "400M"];
        let sender = Running::start("sender", &mut send(&group, &file, &options));
        sender
            .finish()
            .expect(0)
            .says("every receiver has everything");
        for (receiver, to) in [(first, &one), (second, &two)] {
            receiver.finish().expect(0);
            assert_eq!(names(to.path()), ["data.bin"], "{len} bytes");
            assert!(
                fs::read(to.path().join("data.bin")).expect("file") == bytes,
                "{len} bytes"
            );
        }
    }
}

#[test]
fn events_tell_the_story_in_json() {
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, content(500_000)).expect("content");
    let group = group();
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &["--json"]));
    let options = ["--receivers", "1", "--rate", "200M", "--json"];
    let sender = Running::start("sender", &mut send(&group, &file, &options)).finish();
    let receiver = receiver.finish();
    let digest = blake3::hash(&content(500_000)).to_hex().to_string();
    let sent = sender.expect(0).event("sent").expect("sent");
    let complete = receiver.expect(0).event("complete").expect("complete");
    for line in [&sent, &complete] {
        assert!(
            line.contains(&digest) && line.contains("\"length\":500000"),
            "{line}"
        );
    }
    for name in ["opened", "joined", "started", "receiver_complete", "end"] {
        assert!(sender.event(name).is_some(), "{name} is missing");
    }
    for name in ["waiting", "opened", "end"] {
        assert!(receiver.event(name).is_some(), "{name} is missing");
    }
    assert_eq!(sender.stderr, "");
    assert_eq!(receiver.stderr, "");
}

#[test]
fn a_pipe_goes_through() {
    let bytes = content(5_000_001);
    let group = group();
    let receiver = Running::start("receiver", &mut receive(&group, "-", &["--quiet"]));
    let options = ["--receivers", "1", "--rate", "800M"];
    let mut sender = send(&group, "-", &options);
    let mut sender = sender
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("sender");
    let mut pipe = sender.stdin.take().expect("piped");
    let copy = bytes.clone();
    let writer = std::thread::spawn(move || {
        for piece in copy.chunks(100_000) {
            pipe.write_all(piece)?;
        }
        Ok::<_, std::io::Error>(())
    });
    let received = receiver.finish();
    assert_eq!(sender.wait().expect("wait").code(), Some(0));
    writer.join().expect("writer").expect("pipe");
    assert!(received.expect(0).stdout == bytes);
    assert_eq!(received.stderr, "");
}

#[test]
fn a_slow_reader_slows_the_sender_and_loses_nothing() {
    let bytes = content(30_000_000);
    let from = folder();
    let file = from.path().join("x");
    fs::write(&file, &bytes).expect("content");
    let group = group();
    let mut command = receive(&group, "-", &["--quiet", "--buffer", "4MiB"]);
    let mut receiver = command.stdout(Stdio::piped()).spawn().expect("receiver");
    let mut out = receiver.stdout.take().expect("piped");
    let options = ["--receivers", "1", "--rate", "unlimited"];
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    let mut got = Vec::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        let len = out.read(&mut piece).expect("read");
        if len == 0 {
            break;
        }
        got.extend_from_slice(&piece[..len]);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(receiver.wait().expect("wait").code(), Some(0));
    sender.finish().expect(0);
    assert!(got == bytes);
}

#[test]
fn names_are_made_harmless() {
    for (name, stored) in [
        ("größe 日本.bin", "größe 日本.bin"),
        ("line\nbreak\u{1b}[31m", "line_break_[31m"),
        (".profile", "_profile"),
        ("-rf", "-rf"),
    ] {
        let (from, to) = (folder(), folder());
        let file = from.path().join(name);
        fs::write(&file, b"content").expect("content");
        let group = group();
        let receiver = Running::start("receiver", &mut receive(&group, to.path(), &[]));
        let sender = Running::start("sender", &mut send(&group, &file, &["--receivers", "1"]));
        sender.finish().expect(0);
        receiver.finish().expect(0);
        assert_eq!(names(to.path()), [stored]);
    }
}

#[test]
fn a_stream_without_a_name_is_stored_under_its_session() {
    let to = folder();
    let group = group();
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &[]));
    let mut sender = send(&group, "-", &["--receivers", "1"]);
    let sender = Running::start("sender", sender.stdin(Stdio::null()));
    sender.finish().expect(0);
    receiver.finish().expect(0);
    assert!(
        names(to.path())[0].starts_with("received-"),
        "{:?}",
        names(to.path())
    );
}

#[test]
fn a_second_run_finds_the_same_file_and_replaces_another() {
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    let run = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("content");
        let group = group();
        let receiver = Running::start("receiver", &mut receive(&group, to.path(), &["--json"]));
        let options = ["--receivers", "1", "--json", "--rate", "400M"];
        let sender = Running::start("sender", &mut send(&group, &file, &options)).finish();
        let receiver = receiver.finish();
        sender.expect(0);
        receiver.expect(0);
        assert!(fs::read(to.path().join("x")).expect("file") == bytes);
        assert_eq!(names(to.path()), ["x"]);
        receiver.event("complete").expect("complete")
    };
    assert!(run(&content(2_000_000)).contains("\"existing\":false"));
    assert!(run(&content(2_000_000)).contains("\"existing\":true"));
    assert!(run(&content(1_999_999)).contains("\"existing\":false"));
}

#[test]
fn a_late_receiver_gets_everything() {
    let (from, to) = (folder(), folder());
    let bytes = content(2_000_000);
    let file = from.path().join("x");
    fs::write(&file, &bytes).expect("content");
    let group = group();
    let sender = Running::start(
        "sender",
        &mut send(&group, &file, &["--rate", "40M", "--json"]),
    );
    std::thread::sleep(Duration::from_millis(300));
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &[]));
    receiver.finish().expect(0);
    assert!(fs::read(to.path().join("x")).expect("file") == bytes);
    let end = sender.finish().expect(0).event("end").expect("end");
    assert!(end.contains("\"result\":\"sent\""), "{end}");
}

#[test]
fn a_receiver_that_never_comes_is_named() {
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, b"content").expect("content");
    let group = group();
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &[]));
    let options = [
        "--receivers",
        "3",
        "--connect-timeout",
        "500ms",
        "--linger",
        "500ms",
    ];
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    sender
        .finish()
        .expect(3)
        .says("2 of 3 receivers did not confirm")
        .says("2 never joined");
    receiver.finish().expect(0);
}

#[test]
fn a_killed_sender_leaves_an_error_that_names_what_is_missing() {
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, content(50_000_000)).expect("content");
    let group = group();
    let options = ["--timeout", "1s", "--json"];
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &options));
    let sender = Running::start("sender", &mut send(&group, &file, &["--rate", "50M"]));
    wait_for_temporary(to.path());
    std::thread::sleep(Duration::from_millis(300));
    sender.signal("KILL");
    let receiver = receiver.finish();
    receiver
        .expect(1)
        .says("the source went silent")
        .says("-49999999 of 50000000");
    let end = receiver.event("end").expect("end");
    assert!(end.contains(",50000000]]"), "{end}");
    assert!(names(to.path()).is_empty(), "{:?}", names(to.path()));
}

#[test]
fn a_restarted_sender_resumes() {
    let (from, to) = (folder(), [folder(), folder(), folder()]);
    let bytes = content(6_000_000);
    let file = from.path().join("x");
    fs::write(&file, &bytes).expect("content");
    let group = group();
    // Receivers at one address count as one host.
    let receivers: Vec<Running> = to
        .iter()
        .map(|to| Running::start("receiver", &mut receive(&group, to.path(), &["--json"])))
        .collect();
    let options = [
        "--rate",
        "40M",
        "--receivers",
        "1",
        "--connect-timeout",
        "60s",
        "--json",
    ];
    let first = Running::start("sender", &mut send(&group, &file, &options));
    to.iter().for_each(|to| wait_for_temporary(to.path()));
    std::thread::sleep(std::time::Duration::from_millis(600));
    first.signal("KILL");
    let first = first.finish();
    let second = Running::start("sender", &mut send(&group, &file, &options)).finish();
    second.expect(0);
    let opened = |sender: &Finished| sender.event("opened").expect("an event");
    let session = |sender: &Finished| field(&opened(sender), "session");
    assert_ne!(session(&first), session(&second));
    assert_ne!(
        field(&opened(&first), "source"),
        field(&opened(&second), "source"),
        "the port"
    );
    // Of 4,237 packets; it waited for its receivers, and not for --connect-timeout.
    let end = second.event("end").expect("an event");
    let sent: u64 = field(&end, "data_packets").parse().expect("a number");
    assert!(sent < 4_000, "{end}");
    let seconds: f64 = field(&end, "seconds").parse().expect("a number");
    assert!(seconds < 50.0, "{end}");
    for (receiver, to) in receivers.into_iter().zip(&to) {
        let receiver = receiver.finish();
        receiver.expect(0);
        let resumed = receiver.event("resumed").expect("the event");
        assert_eq!(field(&resumed, "session"), session(&second));
        assert!(fs::read(to.path().join("x")).expect("file") == bytes);
    }
}

/// What stands behind a field's name in an event.
pub fn field(event: &str, name: &str) -> String {
    let at = event.find(&format!("\"{name}\":")).expect(name);
    let value = &event[at + name.len() + 3..];
    let end = value.find([',', '}']).expect("an end");
    value[..end].trim_matches('"').to_owned()
}

#[test]
fn a_key_is_needed_where_one_is_set() {
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, content(100_000)).expect("content");
    let (right, wrong) = (from.path().join("right"), from.path().join("wrong"));
    fs::write(&right, "07".repeat(32)).expect("key");
    fs::write(&wrong, [8; 32]).expect("key");
    let run = |key: &std::path::Path| {
        let group = group();
        let mut command = receive(
            &group,
            to.path(),
            &["--connect-timeout", "1s", "--timeout", "500ms"],
        );
        let receiver = Running::start("receiver", command.arg("--key-file").arg(key));
        let options = ["--linger", "1s", "--rate", "400M"];
        let mut command = send(&group, &file, &options);
        let sender = Running::start("sender", command.arg("--key-file").arg(&right));
        sender.finish().expect(0);
        receiver.finish()
    };
    run(&wrong).expect(1).says("is the key the same?");
    run(&right).expect(0);
    assert!(fs::read(to.path().join("x")).expect("file") == content(100_000));
}

/// Runs `lms-recv` with a full disk: a small tmpfs in a mount namespace. `None` where namespaces are
/// not permitted.
pub fn receive_on_small_disk(
    group: &str,
    mount: &std::path::Path,
    more: &[&str],
) -> Option<Running> {
    let probe = Command::new("unshare").args(["-rm", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        netlab::skip("lms-recv", "mount namespaces are not permitted here");
        return None;
    }
    let script = "mount -t tmpfs -o size=1m tmpfs \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(mount)
        .arg(lms_recv());
    command
        .args(["--group", group, "--interface", "lo", "--output"])
        .arg(mount)
        .args(more);
    Some(Running::start("receiver", &mut command))
}

#[test]
fn a_full_disk_is_known_before_the_transfer() {
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, content(3_000_000)).expect("content");
    let group = group();
    let Some(receiver) = receive_on_small_disk(&group, to.path(), &[]) else {
        return;
    };
    let options = ["--receivers", "1", "--linger", "500ms", "--rate", "10M"];
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    receiver
        .finish()
        .expect(1)
        .says("no space left on the device")
        .says("2.9 MiB wanted");
    sender.signal("INT");
    sender.finish();
}

#[test]
fn a_disk_that_fills_up_during_a_stream_is_an_error() {
    let to = folder();
    let group = group();
    let Some(receiver) = receive_on_small_disk(&group, to.path(), &[]) else {
        return;
    };
    let options = [
        "--receivers",
        "1",
        "--linger",
        "500ms",
        "--rate",
        "200M",
        "--name",
        "x",
    ];
    let mut sender = send(&group, "-", &options);
    let sender = sender.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut sender = sender.expect("sender");
    let mut pipe = sender.stdin.take().expect("piped");
    // The pipe stays open: the length is not known.
    pipe.write_all(&content(2_000_000))
        .expect("the sender reads");
    receiver
        .finish()
        .expect(1)
        .says("no space left on the device")
        .says("missing bytes");
    drop(pipe);
    let output = sender.wait_with_output().expect("sender");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_receiver_that_wakes_up_late_takes_everything_at_once() {
    let (from, to) = (folder(), folder());
    let bytes = content(3_000_000);
    let file = from.path().join("x");
    fs::write(&file, &bytes).expect("content");
    let group = group();
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &["--json"]));
    std::thread::sleep(Duration::from_millis(300));
    receiver.signal("STOP");
    // The first heartbeat, data and digests wait together in the socket.
    let sender = Running::start("sender", &mut send(&group, &file, &["--rate", "400M"]));
    std::thread::sleep(Duration::from_millis(400));
    receiver.signal("CONT");
    receiver.finish().expect(0);
    sender.finish().expect(0);
    assert!(fs::read(to.path().join("x")).expect("file") == bytes);
}

#[test]
fn a_stream_whose_end_comes_together_with_its_data_is_passed_on_whole() {
    let from = folder();
    // Less than what is worth waking the writer for while packets come.
    let bytes = content(300_000);
    let file = from.path().join("x");
    fs::write(&file, &bytes).expect("content");
    let group = group();
    let receiver = Running::start("receiver", &mut receive(&group, "-", &["--quiet"]));
    std::thread::sleep(Duration::from_millis(300));
    receiver.signal("STOP");
    let sender = Running::start("sender", &mut send(&group, &file, &["--rate", "400M"]));
    std::thread::sleep(Duration::from_millis(400));
    receiver.signal("CONT");
    let received = receiver.finish();
    sender.finish().expect(0);
    assert_eq!(received.expect(0).stdout.len(), bytes.len());
    assert!(received.stdout == bytes);
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_an_error_on_both_sides() {
    for (len, says) in [
        (5_000_000, "it changed while it was sent"),
        (3_000_000, "it became shorter while it was sent"),
    ] {
        let (from, to) = (folder(), folder());
        let file = from.path().join("x");
        fs::write(&file, content(5_000_000)).expect("content");
        let group = group();
        let receiver = Running::start("receiver", &mut receive(&group, to.path(), &["--json"]));
        let options = ["--receivers", "1", "--rate", "40M", "--json"];
        let sender = Running::start("sender", &mut send(&group, &file, &options));
        wait_for_temporary(to.path());
        let open = fs::OpenOptions::new().write(true).open(&file);
        let open = open.expect("file");
        open.set_len(len).expect("length");
        std::os::unix::fs::FileExt::write_all_at(&open, &[7; 100], 2_900_000).expect("change");
        let sender = sender.finish();
        sender.expect(1).says(says);
        let end = sender.event("end").expect("end");
        assert!(end.contains("\"result\":\"failed\""), "{end}");
        let receiver = receiver.finish();
        receiver.expect(1);
        // Whichever it learns first.
        let why = ["the source left", "the digest of the whole is wrong"];
        let told = why.iter().any(|why| receiver.stderr.contains(why));
        assert!(told, "{}", receiver.stderr);
        assert!(names(to.path()).is_empty(), "{:?}", names(to.path()));
    }
}

#[test]
fn a_reader_that_ends_is_an_error_and_the_sender_is_told() {
    let from = folder();
    let file = from.path().join("x");
    fs::write(&file, content(20_000_000)).expect("content");
    let group = group();
    let options = ["--json", "--buffer", "1MiB"];
    let mut receiver = receive(&group, "-", &options);
    let mut receiver = receiver
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("receiver");
    let options = ["--receivers", "1", "--rate", "200M", "--linger", "500ms"];
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    let mut some = [0; 1000];
    let mut out = receiver.stdout.take().expect("piped");
    out.read_exact(&mut some).expect("the first bytes");
    drop(out);
    let output = receiver.wait_with_output().expect("receiver");
    assert_eq!(output.status.code(), Some(74));
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rfind(|line| line.starts_with('{'));
    let last = last.expect("an event");
    assert!(
        last.starts_with("{\"event\":\"end\",\"result\":\"failed\",\"exit_code\":74"),
        "{last}"
    );
    // The reader closed the pipe itself: that is no error to report.
    assert!(!text.contains("error: "), "{text}");
    sender
        .finish()
        .expect(3)
        .says("left before it had everything");
}

#[test]
fn an_error_at_the_start_of_a_file_is_an_event_too() {
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, b"content").expect("content");
    fs::create_dir(to.path().join("x")).expect("folder");
    let group = group();
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &["--json"]));
    let options = ["--receivers", "1", "--linger", "500ms"];
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    let receiver = receiver.finish();
    receiver.expect(1).says("give the file another --name");
    let end = receiver.event("end").expect("end");
    assert!(end.contains("\"exit_code\":1"), "{end}");
    sender.signal("INT");
    sender.finish();
}
