//! Copies as users run them, over loopback, multicast included.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use crate::common::{Running, Stage, listening, mcpd, names, number};

const MIB: usize = 1 << 20;

#[test]
fn three_hosts_get_a_file_by_multicast_sealed_and_verified() {
    let stage = Stage::new();
    let key = stage.key("key");
    let key = ["--key-file", key.to_str().expect("text")];
    let file = stage.content("image", 5 * MIB + 77);
    let running: Vec<Running> = (1..=3)
        .map(|receiver| stage.start(receiver, &key))
        .collect();
    let done = stage.copy(&file, &[1, 2, 3], &[&key[..], &["--rate", "100M"]].concat());
    done.expect(0);
    assert!(done.line(&["\"started\""]).contains("\"sealed\":true"));
    for receiver in 1..=3 {
        let host = stage.address(receiver);
        done.line(&["\"mode\"", &host, "\"multicast\""]);
        done.line(&["\"verified\"", &host]);
        let copy = std::fs::read(stage.dir(receiver).join("image")).expect("a copy");
        assert!(copy == std::fs::read(&file).expect("the file"));
        assert_eq!(names(&stage.dir(receiver)), ["image"]);
    }
    drop(running);
}

#[test]
fn nothing_is_sent_to_who_has_everything() {
    let stage = Stage::new();
    let file = stage.content("image", 3 * MIB);
    let _one = stage.start(1, &[]);
    let _two = stage.start(2, &[]);
    stage.copy(&file, &[1], &[]).expect(0);
    let both = stage.copy(&file, &[1, 2], &[]);
    both.expect(0);
    assert_eq!(both.number(&["\"started\""], "hosts"), 1);
    assert_eq!(
        both.number(&["\"verified\"", &stage.address(1)], "received"),
        0
    );
    let again = stage.copy(&file, &[1, 2], &[]);
    again.expect(0);
    assert!(!again.lines.iter().any(|line| line.contains("\"started\"")));
}

#[test]
fn a_block_that_changed_is_all_that_is_sent() {
    let stage = Stage::new();
    let file = stage.content("image", 4 * MIB);
    let _one = stage.start(1, &[]);
    stage.copy(&file, &[1], &[]).expect(0);
    let mut bytes = std::fs::read(&file).expect("the file");
    bytes[2 * MIB + 5] ^= 1;
    std::fs::write(&file, &bytes).expect("written");
    let again = stage.copy(&file, &[1], &[]);
    again.expect(0);
    assert_eq!(again.number(&["\"started\""], "to_send"), MIB as u64);
    assert!(std::fs::read(stage.dir(1).join("image")).expect("a copy") == bytes);
    assert_eq!(names(&stage.dir(1)), ["image"]);
}

#[test]
fn a_folder_with_permissions_times_and_odd_names() {
    let stage = Stage::new();
    let tree = stage.path("tree");
    std::fs::create_dir_all(tree.join("sub/deep")).expect("made");
    std::fs::create_dir(tree.join("empty folder")).expect("made");
    let odd = [
        "new\nline",
        "-rf",
        ".hidden",
        "größe",
        "\\back",
        "a b",
        "sub-sibling",
    ];
    for name in odd {
        std::fs::write(tree.join(name), name).expect("written");
    }
    std::fs::write(tree.join("empty"), b"").expect("written");
    std::fs::write(tree.join("sub/deep/f"), crate::common::content(MIB + 9)).expect("written");
    symlink("../empty", tree.join("sub/link")).expect("link");
    symlink("/etc/passwd", tree.join("out")).expect("link");
    let mode = |name: &str, mode| {
        let path = tree.join(name);
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("chmod");
    };
    mode("a b", 0o640);
    mode("-rf", 0o755);
    mode("sub/deep/f", 0o444);
    mode("sub/deep", 0o500);
    let touch = Command::new("touch")
        .args(["-d", "2001-02-03 04:05:06.7"])
        .arg(tree.join("sub/deep/f"))
        .arg(tree.join("sub"))
        .status();
    assert!(touch.expect("touch runs").success());
    let _one = stage.start(1, &[]);
    let done = stage.copy(&tree, &[1], &["--to", "releases/v2"]);
    done.expect(0);
    assert!(done.line(&["\"skipped\""]).contains("leads out"));
    let copy = stage.dir(1).join("releases/v2");
    for name in odd {
        let text = std::fs::read_to_string(copy.join(name)).expect("a copy");
        assert_eq!(text, name);
    }
    let expected: Vec<String> = names(&tree)
        .into_iter()
        .filter(|name| name != "out")
        .collect();
    assert_eq!(names(&copy), expected);
    assert_eq!(names(&copy.join("empty folder")), [""; 0]);
    let link = std::fs::read_link(copy.join("sub/link")).expect("a link");
    assert_eq!(link.to_str(), Some("../empty"));
    for name in [
        "a b",
        "-rf",
        "sub/deep/f",
        "sub/deep",
        "sub",
        "empty",
        "empty folder",
    ] {
        let of = |top: &std::path::Path| std::fs::metadata(top.join(name)).expect("metadata");
        let (here, there) = (of(&tree), of(&copy));
        assert_eq!(here.mode(), there.mode(), "{name}");
        assert_eq!(
            (here.mtime(), here.mtime_nsec()),
            (there.mtime(), there.mtime_nsec()),
            "{name}"
        );
    }
    stage.copy(&tree, &[1], &["--to", "releases/v2"]).expect(0);
}

#[test]
fn a_receiver_killed_in_the_middle_is_resumed_by_the_second_run() {
    let stage = Stage::new();
    let file = stage.content("image", 12 * MIB);
    let _one = stage.start(1, &[]);
    let _two = stage.start(2, &[]);
    let three = stage.start(3, &[]);
    let slow = ["--rate", "30M", "--retries", "0"];
    let mut command = stage.send(&file, &[1, 2, 3], &slow);
    let mut sender = Running::start(&mut command);
    let third = stage.address(3);
    while number(&sender.wait_for(&["\"progress\"", &third]), "received") < 2 * MIB as u64 {}
    three.signal("KILL");
    drop(three);
    let done = sender.finish();
    done.expect(3);
    done.line(&["\"failed\"", &third]);
    done.line(&["\"verified\"", &stage.address(1)]);
    done.line(&["\"verified\"", &stage.address(2)]);
    assert_eq!(names(&stage.dir(3)), [".image.mcp-part"]);

    let _three = stage.start(3, &[]);
    let hosts = stage.path("failed");
    std::fs::write(&hosts, format!("{third}  # the connection was closed\n")).expect("written");
    let mut command = stage.send(&file, &[], &["--hosts-file", hosts.to_str().expect("text")]);
    let resumed = Running::start(&mut command).finish();
    resumed.expect(0);
    assert!(resumed.number(&["\"started\""], "to_send") <= 10 * MIB as u64);
    for receiver in 1..=3 {
        let copy = std::fs::read(stage.dir(receiver).join("image")).expect("a copy");
        assert!(copy == std::fs::read(&file).expect("the file"));
        assert_eq!(names(&stage.dir(receiver)), ["image"]);
    }
}

#[test]
fn failed_hosts_are_written_for_the_next_run() {
    let stage = Stage::new();
    let file = stage.content("image", 10);
    let _one = stage.start(1, &[]);
    let mut command = Command::new(crate::common::mcp());
    command
        .arg(&file)
        .args([stage.address(1), stage.address(2)]);
    let done = Running::start(&mut command).finish();
    done.expect(3).says("is mcpd running there?");
    assert_eq!(done.lines.len(), 1);
    let line = &done.lines[0];
    assert!(
        line.starts_with(&format!("{}  # ", stage.address(2))),
        "{line}"
    );
}

#[test]
fn interrupting_the_sender_leaves_no_half_file_and_can_be_resumed() {
    let stage = Stage::new();
    let file = stage.content("image", 8 * MIB);
    let mut one = stage.start(1, &[]);
    let mut command = stage.send(&file, &[1], &["--rate", "20M"]);
    let mut sender = Running::start(&mut command);
    while number(&sender.wait_for(&["\"progress\""]), "received") < 2 * MIB as u64 {}
    sender.signal("INT");
    let done = sender.finish();
    done.expect(130);
    // What was to be sent still does not count.
    assert!(done.number(&["\"end\""], "goodput_bps") <= 20_000_000);
    one.wait_for(&["\"failed\"", "\"interrupted\""]);
    assert_eq!(names(&stage.dir(1)), [".image.mcp-part"]);
    let resumed = stage.copy(&file, &[1], &[]);
    resumed.expect(0);
    assert!(resumed.number(&["\"started\""], "to_send") <= 6 * MIB as u64);
    assert_eq!(names(&stage.dir(1)), ["image"]);
}

#[test]
fn interrupting_a_receiver_is_told_to_the_sender() {
    let stage = Stage::new();
    let file = stage.content("image", 8 * MIB);
    let one = stage.start(1, &[]);
    let slow = ["--rate", "20M", "--retries", "0"];
    let mut sender = Running::start(&mut stage.send(&file, &[1], &slow));
    sender.wait_for(&["\"progress\""]);
    one.signal("INT");
    one.finish().expect(130);
    let done = sender.finish();
    done.expect(4);
    assert!(
        done.line(&["\"failed\"", "\"interrupted\""])
            .contains("mcpd was stopped")
    );
    assert_eq!(names(&stage.dir(1)), [".image.mcp-part"]);
}

#[test]
fn another_key_or_none_gets_nothing_written() {
    let stage = Stage::new();
    let (key, other) = (stage.key("key"), stage.key("other"));
    let file = stage.content("image", 10);
    let mut one = stage.start(1, &["--key-file", key.to_str().expect("text")]);
    let done = stage.copy(&file, &[1], &["--key-file", other.to_str().expect("text")]);
    assert!(
        done.expect(4)
            .line(&["\"failed\""])
            .contains("has another key")
    );
    one.wait_for(&["\"refused\""]);
    let done = stage.copy(&file, &[1], &[]);
    assert!(done.expect(4).line(&["\"failed\""]).contains("key"));
    assert_eq!(names(&stage.dir(1)), [""; 0]);
    let key = ["--key-file", key.to_str().expect("text")];
    stage.copy(&file, &[1], &key).expect(0);
}

#[test]
fn without_a_key_nothing_leaves_this_host_unless_it_is_meant() {
    let stage = Stage::new();
    let file = stage.content("image", 10);
    let mut open = Command::new(mcpd());
    open.args(["--listen", "0.0.0.0:0", "--dir"])
        .arg(stage.dir(1));
    let refused = Running::start(&mut open).finish();
    refused.expect(2).says("--insecure");
    let mut away = Command::new(crate::common::mcp());
    away.arg(&file).arg("192.0.2.1");
    let refused = Running::start(&mut away).finish();
    refused.expect(4).says("--insecure");
}

#[test]
fn a_file_that_changes_while_it_is_read_fails_and_gets_no_name() {
    let stage = Stage::new();
    let tree = stage.path("tree");
    std::fs::create_dir(&tree).expect("made");
    // More than the sender keeps for retransmissions: it cannot have read it all.
    std::fs::write(tree.join("a-log"), crate::common::content(24 * MIB)).expect("written");
    std::fs::write(tree.join("b"), b"does not change").expect("written");
    let _one = stage.start(1, &[]);
    let mut command = stage.send(&tree, &[1], &["--rate", "100M"]);
    let mut sender = Running::start(&mut command);
    sender.wait_for(&["\"started\""]);
    let mut bytes = std::fs::read(tree.join("a-log")).expect("read");
    bytes.truncate(22 * MIB);
    std::fs::write(tree.join("a-log"), &bytes).expect("written");
    let done = sender.finish();
    done.expect(4);
    let failed = done.line(&["\"failed\"", "\"changed\""]);
    assert!(failed.contains("tree/a-log"), "{failed}");
    assert_eq!(names(&stage.dir(1).join("tree")), [".a-log.mcp-part", "b"]);
    stage.copy(&tree, &[1], &[]).expect(0);
    assert_eq!(names(&stage.dir(1).join("tree")), ["a-log", "b"]);
}

#[test]
fn a_full_disk_fails_that_receiver_alone() {
    let stage = Stage::new();
    let file = stage.content("image", 4 * MIB);
    let _one = stage.start(1, &[]);
    // A file system of 2 MiB, in a namespace of its own.
    let small = stage.receiver(2, &[]);
    let dir = stage.dir(2);
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--map-root-user", "sh", "-c"])
        .arg("mount -t tmpfs -o size=2M none \"$1\" && shift && exec \"$@\"")
        .arg("sh")
        .arg(&dir)
        .arg(small.get_program())
        .args(small.get_args());
    let _two = listening(&mut command);
    let done = stage.copy(&file, &[1, 2], &[]);
    done.expect(3);
    let failed = done.line(&["\"failed\"", &stage.address(2), "\"no_space\""]);
    assert!(failed.contains("ENOSPC"), "{failed}");
    done.line(&["\"verified\"", &stage.address(1)]);
}

/// The space is there when the copy begins, and is taken by another process before it ends.
#[test]
fn a_disk_that_is_filled_in_the_middle_fails_that_receiver_alone() {
    let stage = Stage::new();
    let file = stage.content("image", 4 * MIB);
    let _one = stage.start(1, &[]);
    let small = stage.receiver(2, &[]);
    let dir = stage.dir(2);
    // Fills the disk as soon as 1 MiB of the copy is there.
    let script = r#"dir=$1; shift; mount -t tmpfs -o size=6M none "$dir" || exit 1
        blocks() { stat -c %b "$dir/.image.mcp-part" 2>/dev/null || echo 0; }
        { while [ "$(blocks)" -lt 2048 ]; do sleep 0.02; done; cat /dev/zero >"$dir/filler" 2>/dev/null; } &
        exec "$@""#;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--map-root-user", "sh", "-c", script, "sh"])
        .arg(&dir)
        .arg(small.get_program())
        .args(small.get_args());
    let _two = listening(&mut command);
    let done = stage.copy(&file, &[1, 2], &["--rate", "30M", "--retries", "0"]);
    done.expect(3);
    let failed = done.line(&["\"failed\"", &stage.address(2), "\"no_space\""]);
    assert!(failed.contains("ENOSPC"), "{failed}");
    done.line(&["\"verified\"", &stage.address(1)]);
}

#[test]
fn what_is_in_the_way_is_neither_followed_nor_removed() {
    let stage = Stage::new();
    let file = stage.content("image", 10);
    let _one = stage.start(1, &[]);
    let elsewhere = stage.path("elsewhere");
    std::fs::create_dir(&elsewhere).expect("made");
    symlink(&elsewhere, stage.dir(1).join("x")).expect("link");
    let done = stage.copy(&file, &[1], &["--to", "x/"]);
    done.expect(4).line(&["\"failed\"", "\"in_the_way\""]);
    assert_eq!(names(&elsewhere), [""; 0]);
    std::fs::create_dir(stage.dir(1).join("image")).expect("made");
    let done = stage.copy(&file, &[1], &[]);
    done.expect(4).line(&["\"failed\"", "\"in_the_way\""]);
    // A link under the final name is replaced; its target is not touched.
    symlink("elsewhere", stage.dir(1).join("y")).expect("link");
    stage.copy(&file, &[1], &["--to", "y"]).expect(0);
    assert!(!stage.dir(1).join("y").is_symlink());
    for place in ["../x", "/tmp/x", "a/../../x"] {
        stage.copy(&file, &[1], &["--to", place]).expect(2);
    }
}

#[test]
fn two_senders_at_once_do_not_mix() {
    let stage = Stage::new();
    let one = stage.content("one", 3 * MIB);
    let two = stage.content("two", 3 * MIB + 1);
    let _mcpd = stage.start(1, &[]);
    let slow = ["--rate", "20M"];
    let mut first = Running::start(&mut stage.send(&one, &[1], &slow));
    first.wait_for(&["\"progress\""]);
    stage.copy(&two, &[1], &[]).expect(0);
    // The same name at the same time: the second one is refused.
    let third = stage.copy(&one, &[1], &["--retries", "0"]);
    third.expect(4).line(&["\"failed\"", "\"locked\""]);
    first.finish().expect(0);
    assert!(
        std::fs::read(stage.dir(1).join("one")).expect("a copy") == crate::common::content(3 * MIB)
    );
    assert_eq!(names(&stage.dir(1)), ["one", "two"]);
}

#[test]
fn whoever_talks_nonsense_is_hung_up_on_and_others_are_served() {
    use std::io::{Read, Write};
    let stage = Stage::new();
    let file = stage.content("image", 10);
    let mut mcpd = stage.start(1, &[]);
    let address = format!("{}:4139", stage.address(1));
    let mut stream = std::net::TcpStream::connect(&address).expect("connected");
    stream
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .expect("written");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("closed");
    // FAILED, reason 2: protocol.
    assert_eq!(answer[..10], [1, 16, 0, 0, 0, 0, 0, answer[7], 0, 2]);
    mcpd.wait_for(&["\"failed\"", "\"protocol\""]);
    let idle: Vec<_> = (0..4)
        .map(|_| std::net::TcpStream::connect(&address))
        .collect();
    stage.copy(&file, &[1], &[]).expect(0);
    drop(idle);
}

#[test]
fn once_ends_after_one_copy() {
    let stage = Stage::new();
    let file = stage.content("image", 10);
    let one = stage.start(1, &["--once"]);
    stage.copy(&file, &[1], &["--mode", "unicast"]).expect(0);
    let done = one.finish();
    done.expect(0);
    done.line(&["\"copied\""]);
}

#[test]
fn too_few_receivers_are_an_error_before_any_data() {
    let stage = Stage::new();
    let file = stage.content("image", 10);
    let _one = stage.start(1, &[]);
    let done = stage.copy(&file, &[1, 2], &["--min-receivers", "2"]);
    done.expect(1).says("--min-receivers 2");
    assert!(!done.lines.iter().any(|line| line.contains("\"started\"")));
    assert_eq!(names(&stage.dir(1)), [""; 0]);
}

#[test]
fn a_receiver_that_comes_late_is_waited_for() {
    let stage = Stage::new();
    let file = stage.content("image", 10);
    let mut command = stage.send(&file, &[1], &["--connect-timeout", "60s"]);
    let mut sender = Running::start(&mut command);
    sender.wait_for(&["\"opened\""]);
    let _one = stage.start(1, &[]);
    sender.finish().expect(0);
}

#[test]
fn wrong_usage_says_what_to_do() {
    let says = |args: &[&str], text: &str| {
        let mut command = Command::new(crate::common::mcp());
        Running::start(command.args(args))
            .finish()
            .expect(2)
            .says(text);
    };
    says(&["/etc/hostname"], "no hosts");
    says(&["/etc/hostname", "a:b"], "port");
    says(&["/etc/hostname", "a", "--group", "10.0.0.1"], "multicast");
    says(&["/etc/hostname", "a", "--rate", "5MB"], "bits");
    says(
        &["/etc/hostname", "a", "--key-file", "k", "--insecure"],
        "cannot be used with",
    );
    let mut command = Command::new(crate::common::mcp());
    let missing = Running::start(command.args(["/nonexistent", "127.0.0.1"])).finish();
    missing.expect(1).says("cannot read /nonexistent");
}
