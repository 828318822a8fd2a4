//! What goes wrong on the way, and is mended in the same run or told plainly.

use std::net::TcpStream;
use std::process::Command;

use crate::common::{Running, Stage, mcpd, names, number};

const MIB: usize = 1 << 20;

#[test]
fn a_mcpd_that_is_restarted_in_mid_copy_gets_the_rest_in_the_same_run() {
    let stage = Stage::new();
    let file = stage.content("image", 8 * MIB);
    let _one = stage.start(1, &[]);
    let two = stage.start(2, &[]);
    let mut sender = Running::start(&mut stage.send(&file, &[1, 2], &["--rate", "30M"]));
    let second = stage.address(2);
    while number(&sender.wait_for(&["\"progress\"", &second]), "received") < 2 * MIB as u64 {}
    two.signal("KILL");
    drop(two);
    let _two = stage.start(2, &[]);
    let done = sender.finish();
    done.expect(0);
    done.line(&["\"failed\"", &second, "\"will_retry\":true"]);
    done.line(&["\"round\":2", &second]);
    let started: Vec<_> = done
        .lines
        .iter()
        .filter(|line| line.contains("\"started\""))
        .collect();
    assert_eq!(started.len(), 2, "{done:#?}");
    // What the first round brought is not sent again.
    assert!(
        number(started[1], "to_send") <= 6 * MIB as u64,
        "{}",
        started[1]
    );
    for receiver in 1..=2 {
        let copy = std::fs::read(stage.dir(receiver).join("image")).expect("a copy");
        assert!(copy == std::fs::read(&file).expect("the file"));
        assert_eq!(names(&stage.dir(receiver)), ["image"]);
    }
}

#[test]
fn a_file_that_somebody_writes_on_a_host_meanwhile_is_sent_in_a_second_round() {
    let stage = Stage::new();
    let tree = stage.path("tree");
    std::fs::create_dir(&tree).expect("made");
    std::fs::write(tree.join("big"), crate::common::content(5 * MIB)).expect("written");
    std::fs::write(tree.join("small"), b"what it shall be").expect("written");
    let _one = stage.start(1, &[]);
    stage.copy(&tree, &[1], &[]).expect(0);
    let copy = stage.dir(1).join("tree");
    std::fs::remove_file(copy.join("big")).expect("removed");
    let mut sender = Running::start(&mut stage.send(&tree, &[1], &["--rate", "30M"]));
    sender.wait_for(&["\"progress\""]);
    // It was looked at and found to be the same, and is decided after the big one.
    std::fs::write(copy.join("small"), b"what it is not !").expect("written");
    let done = sender.finish();
    done.expect(0);
    done.line(&[
        "\"failed\"",
        "\"mismatch\"",
        "another program",
        "\"will_retry\":true",
    ]);
    let small = std::fs::read(copy.join("small")).expect("a copy");
    assert_eq!(small, b"what it shall be");
}

#[test]
fn idle_connections_keep_nobody_out() {
    let stage = Stage::new();
    let file = stage.content("image", 10);
    for key in [false, true] {
        let key: Vec<String> = match key {
            false => Vec::new(),
            true => {
                let path = stage.key("key").to_str().expect("text").to_owned();
                vec!["--key-file".to_owned(), path]
            }
        };
        let key: Vec<&str> = key.iter().map(String::as_str).collect();
        let mut mcpd = stage.start(1, &key);
        let address = format!("{}:4139", stage.address(1));
        let idle: Vec<_> = (0..200)
            .map(|_| TcpStream::connect(&address).expect("connected"))
            .collect();
        let done = stage.copy(&file, &[1], &[&key[..], &["--to", "a/"]].concat());
        done.expect(0);
        mcpd.wait_for(&["\"refused\"", "made room"]);
        drop(idle);
    }
}

#[test]
fn what_is_printed_for_the_next_run_is_taken_as_it_stands() {
    let stage = Stage::new();
    let file = stage.content("image", MIB);
    let _one = stage.start(1, &[]);
    let mut command = Command::new(crate::common::mcp());
    command
        .arg(&file)
        .args([1, 2, 3].map(|receiver| stage.address(receiver)));
    let done = Running::start(&mut command).finish();
    done.expect(3);
    let list = stage.path("failed");
    let text = format!("# hosts that failed\n\n{}\n", done.lines.join("\r\n"));
    std::fs::write(&list, &text).expect("written");
    let _two = stage.start(2, &[]);
    let _three = stage.start(3, &[]);
    let list = list.to_str().expect("text");
    let second = stage.copy(&file, &[], &["--hosts-file", list]);
    second.expect(0);
    assert_eq!(second.number(&["\"opened\""], "hosts"), 2);
    std::fs::write(list, format!("{text}no host at all\n")).expect("written");
    let wrong = stage.copy(&file, &[], &["--hosts-file", list]);
    wrong.expect(2).says("line 5");
}

#[test]
fn forty_hosts_get_the_same() {
    let stage = Stage::new();
    let file = stage.content("image", MIB + 1);
    let running: Vec<_> = (1..=40)
        .map(|receiver| stage.start(receiver, &[]))
        .collect();
    let all: Vec<u8> = (1..=40).collect();
    let done = stage.copy(&file, &all, &["--rate", "200M"]);
    done.expect(0);
    assert_eq!(done.number(&["\"end\""], "verified"), 40);
    for receiver in all {
        let copy = std::fs::read(stage.dir(receiver).join("image")).expect("a copy");
        assert!(copy == crate::common::content(MIB + 1), "{receiver}");
    }
    drop(running);
}

#[test]
fn with_fsync_a_folder_arrives_all_the_same() {
    let stage = Stage::new();
    let tree = stage.path("tree");
    std::fs::create_dir_all(tree.join("a/b")).expect("made");
    std::fs::write(tree.join("a/b/f"), b"durable").expect("written");
    let _one = stage.start(1, &["--fsync"]);
    for _ in 0..2 {
        stage.copy(&tree, &[1], &["--to", "x/y/"]).expect(0);
    }
    let copy = std::fs::read(stage.dir(1).join("x/y/tree/a/b/f")).expect("a copy");
    assert_eq!(copy, b"durable");
}

#[test]
fn holes_and_hard_links_arrive_as_content() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let stage = Stage::new();
    let tree = stage.path("tree");
    std::fs::create_dir(&tree).expect("made");
    let sparse = std::fs::File::create(tree.join("sparse")).expect("made");
    sparse.set_len(3 * MIB as u64).expect("sized");
    sparse
        .write_all_at(b"end", 3 * MIB as u64 - 3)
        .expect("written");
    std::fs::write(tree.join("one"), b"both").expect("written");
    std::fs::hard_link(tree.join("one"), tree.join("two")).expect("linked");
    let _one = stage.start(1, &[]);
    stage.copy(&tree, &[1], &[]).expect(0);
    let copy = stage.dir(1).join("tree");
    let content = std::fs::read(copy.join("sparse")).expect("a copy");
    assert!(content == std::fs::read(tree.join("sparse")).expect("the file"));
    let inode = |name| std::fs::metadata(copy.join(name)).expect("metadata").ino();
    assert_ne!(inode("one"), inode("two"));
    // Names of one file on the host, all of them right: nothing is in the way of that.
    std::fs::remove_file(copy.join("two")).expect("removed");
    std::fs::hard_link(copy.join("one"), copy.join("two")).expect("linked");
    let again = stage.copy(&tree, &[1], &["--retries", "0"]);
    again.expect(0);
}

#[test]
fn two_names_of_one_host_are_one_host() {
    let stage = Stage::new();
    let file = stage.content("image", 10);
    let mut command = Command::new(mcpd());
    command
        .args(["--json", "--listen", "127.0.0.1:0", "--dir"])
        .arg(stage.dir(1));
    let mut one = Running::start(&mut command);
    let line = one.wait_for(&["\"listening\""]);
    let port = line
        .split("127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let port = port.expect("a port");
    let mut command = Command::new(crate::common::mcp());
    command
        .arg(&file)
        .args([format!("127.0.0.1:{port}"), format!("localhost:{port}")]);
    let done = Running::start(&mut command).finish();
    done.expect(3).says("is the same host as");
    assert_eq!(names(&stage.dir(1)), ["image"]);
}

#[test]
fn a_port_that_is_taken_and_a_folder_that_is_none_are_told_at_the_start() {
    let stage = Stage::new();
    let _one = stage.start(1, &[]);
    Running::start(&mut stage.receiver(1, &[]))
        .finish()
        .expect(1)
        .says("cannot listen on");
    let mut command = Command::new(mcpd());
    command.arg("--dir").arg(stage.content("file", 1));
    Running::start(&mut command)
        .finish()
        .expect(2)
        .says("is not a folder");
}

/// The reason comes over the control connection, the end of the data connection by another way: whichever is
/// first, it is the reason that is told.
#[test]
fn a_host_that_cannot_store_the_data_is_shown_with_its_reason() {
    for run in 0..6 {
        let stage = Stage::new();
        let tree = stage.path("tree");
        std::fs::create_dir(&tree).expect("made");
        std::fs::write(tree.join("a"), crate::common::content(6 * MIB)).expect("written");
        std::fs::write(tree.join("z"), crate::common::content(2 * MIB)).expect("written");
        let _one = stage.start(1, &[]);
        let mut sender = Running::start(&mut stage.send(&tree, &[1], &["--rate", "60M"]));
        sender.wait_for(&["\"progress\""]);
        let planted = stage.dir(1).join("tree/a");
        std::fs::create_dir(&planted).expect("planted");
        let done = sender.finish();
        done.expect(4);
        let failed = done.line(&["\"failed\"", "\"will_retry\""]);
        assert!(failed.contains("\"in_the_way\""), "run {run}: {failed}");
        assert_eq!(done.number(&["\"end\""], "goodput_bps"), 0);
    }
}

#[test]
fn files_without_a_length_are_refused() {
    let stage = Stage::new();
    let status = std::path::Path::new("/proc/self/status");
    let _one = stage.start(1, &[]);
    let done = stage.copy(status, &[1], &[]);
    done.expect(1)
        .says("/proc/self/status holds more than its length says");
    assert_eq!(names(&stage.dir(1)), [""; 0]);
}

/// One that the others wait for is named, given up for the moment, and gets the rest when they are done.
#[test]
fn a_frozen_host_does_not_stop_the_others() {
    let stage = Stage::new();
    let file = stage.content("image", 12 * MIB);
    let _running = [1, 2].map(|receiver| stage.start(receiver, &[]));
    let frozen = stage.start(3, &[]);
    let options = ["--rate", "60M", "--retries", "1"];
    let mut sender = Running::start(&mut stage.send(&file, &[1, 2, 3], &options));
    sender.wait_for(&["\"progress\"", &stage.address(3)]);
    frozen.signal("STOP");
    let third = stage.address(3);
    sender.wait_for(&["\"waiting\"", &third, "\"silent\""]);
    let failed = sender.wait_for(&["\"failed\"", &third]);
    assert!(failed.contains("\"will_retry\":true"), "{failed}");
    assert!(
        failed.contains("has not answered on the data connection"),
        "{failed}"
    );
    sender.wait_for(&["\"verified\""]);
    sender.wait_for(&["\"verified\""]);
    frozen.signal("CONT");
    let done = sender.finish();
    done.expect(0).line(&["\"round\":2", &third]);
    let copy = std::fs::read(stage.dir(3).join("image")).expect("a copy");
    assert!(copy == std::fs::read(&file).expect("the file"));
}

#[test]
fn the_next_round_waits_as_long_as_the_user_says() {
    let stage = Stage::new();
    let file = stage.content("image", 8 * MIB);
    let one = stage.start(1, &[]);
    let mut sender = Running::start(&mut stage.send(
        &file,
        &[1],
        &["--rate", "30M", "--connect-timeout", "30s"],
    ));
    sender.wait_for(&["\"progress\""]);
    one.signal("KILL");
    drop(one);
    sender.wait_for(&["\"round\":2"]);
    std::thread::sleep(std::time::Duration::from_secs(6));
    let _one = stage.start(1, &[]);
    sender.finish().expect(0);
}

#[test]
fn too_few_hosts_are_not_promised_another_try() {
    let stage = Stage::new();
    let file = stage.content("image", 10);
    let _one = stage.start(1, &[]);
    // The other is busy with another copy: it would be tried again in a next round.
    let two = stage.start(2, &["--once"]);
    let large = stage.content("large", 8 * MIB);
    let mut first = Running::start(&mut stage.send(&large, &[2], &["--rate", "10M"]));
    first.wait_for(&["\"progress\""]);
    let done = stage.copy(&file, &[1, 2], &["--min-receivers", "2"]);
    done.expect(1).says("--min-receivers 2");
    let last = |host: &str| {
        let words = ["\"event\":\"failed\"", host];
        let of = |line: &&String| words.iter().all(|word| line.contains(word));
        done.lines.iter().rfind(of).expect("it failed").clone()
    };
    for host in [stage.address(1), stage.address(2)] {
        let line = last(&host);
        assert!(line.contains("\"will_retry\":false"), "{line}");
    }
    drop((first, two));
}
