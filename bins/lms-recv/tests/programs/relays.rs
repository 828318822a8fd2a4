//! Transfers through `dyram-relay`: no multicast at all.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::common::{
    Running, content, dyram_relay, group, names, receive, send, wait_for_temporary,
};
use super::transfer::{folder, receive_on_small_disk};

/// A relay that ends with the test.
pub(super) struct Relay {
    child: Child,
    pub(super) address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Relay {
    fn start(id: u8, parents: &[SocketAddr]) -> Relay {
        let spawn = |command: &mut Command| command.spawn().expect("relay");
        Relay::start_at("127.0.0.1:0", id, parents, spawn)
    }

    /// Starts a relay that listens there.
    pub(super) fn start_at(
        listen: &str,
        id: u8,
        parents: &[SocketAddr],
        spawn: impl FnOnce(&mut Command) -> Child,
    ) -> Relay {
        Relay::start_with(listen, id, parents, "", spawn)
    }

    /// Starts a relay that listens there, with more lines after those of `[relay]`.
    pub(super) fn start_with(
        listen: &str,
        id: u8,
        parents: &[SocketAddr],
        more: &str,
        spawn: impl FnOnce(&mut Command) -> Child,
    ) -> Relay {
        let folder = folder();
        let socket = folder.path().join("sock");
        let parents: Vec<String> = parents.iter().map(|p| format!("\"{p}\"")).collect();
        let config = format!(
            "[relay]\nid = \"192.0.2.{id}\"\nlisten = \"{listen}\"\nparents = [{}]\n{more}\n[daemon]\n\
             socket = {socket:?}\n",
            parents.join(", ")
        );
        let file = folder.path().join("relay.toml");
        fs::write(&file, config).expect("configuration");
        let mut command = Command::new(dyram_relay());
        command.args(["run", "--config"]).arg(&file);
        let mut relay = Relay {
            child: spawn(command.stderr(Stdio::null())),
            address: ([127, 0, 0, 1], 0).into(),
            folder,
        };
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(address) = relay.field("overview", "listen") {
                relay.address = address.parse().expect("address");
                return relay;
            }
            assert!(Instant::now() < end, "the relay does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn status(&self, what: &str) -> String {
        let output = Command::new(dyram_relay())
            .args(["status", what, "--json", "--socket"])
            .arg(self.folder.path().join("sock"))
            .output()
            .expect("status");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The value of a field that is a text.
    pub(super) fn field(&self, what: &str, name: &str) -> Option<String> {
        let status = self.status(what);
        let (_, rest) = status.split_once(&format!("\"{name}\""))?;
        rest.split('"').nth(1).map(str::to_owned)
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.kill();
    }
}

fn assist(relays: &[&Relay]) -> String {
    let names: Vec<String> = relays.iter().map(|r| r.address.to_string()).collect();
    format!("dyram://{}", names.join(","))
}

/// Waits until the receiver has bytes.
fn wait_for_bytes(folder: &Path) {
    wait_for_temporary(folder);
    std::thread::sleep(Duration::from_millis(300));
}

#[test]
fn a_file_goes_through_a_chain_of_relays_without_multicast() {
    let top = Relay::start(1, &[]);
    let below = Relay::start(2, &[top.address]);
    for len in [0, 1, 65_537, 3_000_017] {
        let (from, one, two) = (folder(), folder(), folder());
        let file = from.path().join("data.bin");
        fs::write(&file, content(len)).expect("content");
        let group = group();
        let help = assist(&[&below]);
        let options = ["--source", "127.0.0.1", "--assist", &help, "--json"];
        let first = Running::start("first", &mut receive(&group, one.path(), &options));
        let options = [&options[..], &["--address", "127.0.0.2"]].concat();
        let second = Running::start("second", &mut receive(&group, two.path(), &options));
        let help = assist(&[&top]);
        let options = ["--receivers", "2", "--rate", "400M", "--assist", &help];
        let sender = Running::start("sender", &mut send(&group, &file, &options));
        sender
            .finish()
            .expect(0)
            .says("every receiver has everything");
        for (receiver, to) in [(first, &one), (second, &two)] {
            let receiver = receiver.finish();
            let attached = receiver.expect(0).event("relay").expect("relay");
            assert!(attached.contains("\"state\":\"attached\""), "{attached}");
            assert_eq!(receiver.stderr, "");
            assert!(fs::read(to.path().join("data.bin")).expect("file") == content(len));
        }
    }
}

#[test]
fn a_stream_goes_through_a_relay() {
    let relay = Relay::start(1, &[]);
    let from = folder();
    let file = from.path().join("x");
    fs::write(&file, content(4_000_001)).expect("content");
    let (group, help) = (group(), assist(&[&relay]));
    let options = ["--source", "127.0.0.1", "--assist", &help, "--quiet"];
    let receiver = Running::start("receiver", &mut receive(&group, "-", &options));
    let options = ["--receivers", "1", "--rate", "400M", "--assist", &help];
    let mut command = send(&group, "-", &options);
    command.stdin(fs::File::open(&file).expect("content"));
    Running::start("sender", &mut command).finish().expect(0);
    assert!(receiver.finish().expect(0).stdout == content(4_000_001));
}

#[test]
fn where_no_relay_answers_both_say_so() {
    // Bound, so that the port is taken, and silent.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("socket");
    let address = silent.local_addr().expect("address").to_string();
    let help = format!("dyram://{address}");
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, content(100)).expect("content");
    let group = group();
    let short = ["--assist", &help, "--timeout", "1s"];
    let options = [&short[..], &["--source", "127.0.0.1"]].concat();
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &options));
    let sender = Running::start("sender", &mut send(&group, &file, &short));
    for program in [receiver, sender] {
        program
            .finish()
            .expect(1)
            .says("no relay answered")
            .says(&address);
    }
    assert!(names(to.path()).is_empty());
}

#[test]
fn a_relay_that_dies_is_replaced_by_the_second_one() {
    let top = Relay::start(1, &[]);
    let mut first = Relay::start(2, &[top.address]);
    let second = Relay::start(3, &[top.address]);
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, content(8_000_000)).expect("content");
    let group = group();
    // Named by repeating.
    let (one, two) = (assist(&[&first]), assist(&[&second]));
    let options = [
        "--source",
        "127.0.0.1",
        "--assist",
        &one,
        "--assist",
        &two,
        "--json",
    ];
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &options));
    let help = assist(&[&top]);
    let options = ["--receivers", "1", "--rate", "16M", "--assist", &help];
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    wait_for_bytes(to.path());
    first.kill();
    sender.finish().expect(0);
    let receiver = receiver.finish();
    receiver.expect(0);
    let told = String::from_utf8_lossy(&receiver.stdout);
    assert!(told.contains("\"state\":\"lost\""), "{told}");
    assert!(fs::read(to.path().join("x")).expect("file") == content(8_000_000));
}

#[test]
fn a_relay_that_dies_without_a_second_one_ends_both() {
    let mut only = Relay::start(1, &[]);
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, content(8_000_000)).expect("content");
    let (group, help) = (group(), assist(&[&only]));
    let short = ["--assist", &help, "--timeout", "3s"];
    let options = [&short[..], &["--source", "127.0.0.1"]].concat();
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &options));
    let options = [&short[..], &["--receivers", "1", "--rate", "16M"]].concat();
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    wait_for_bytes(to.path());
    only.kill();
    for program in [receiver, sender] {
        program.finish().expect(1).says("no relay answered");
    }
    assert!(names(to.path()).is_empty(), "no file is left");
}

#[test]
fn interrupted_programs_leave_their_relay() {
    let relay = Relay::start(1, &[]);
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, content(8_000_000)).expect("content");
    let (group, help) = (group(), assist(&[&relay]));
    let options = ["--source", "127.0.0.1", "--assist", &help];
    let receiver = Running::start("receiver", &mut receive(&group, to.path(), &options));
    let options = ["--receivers", "1", "--rate", "8M", "--assist", &help];
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    wait_for_bytes(to.path());
    for program in [receiver, sender] {
        program.signal("INT");
        program.finish().expect(130).says("interrupted");
    }
    assert!(names(to.path()).is_empty(), "no file is left");
    let children = relay.status("children");
    assert!(children.contains("\"children\":[]"), "{children}");
}

#[test]
fn a_full_disk_below_a_relay_is_reported() {
    let relay = Relay::start(1, &[]);
    let (from, mount) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, content(3_000_000)).expect("content");
    let (group, help) = (group(), assist(&[&relay]));
    let options = ["--source", "127.0.0.1", "--assist", &help];
    let Some(receiver) = receive_on_small_disk(&group, mount.path(), &options) else {
        return;
    };
    let options = ["--receivers", "1", "--rate", "40M", "--assist", &help];
    let sender = Running::start("sender", &mut send(&group, &file, &options));
    receiver
        .finish()
        .expect(1)
        .says("no space left on the device");
    sender.finish().expect(3).says("did not confirm");
}

#[test]
fn what_is_no_relay_is_refused() {
    let (from, to) = (folder(), folder());
    let file = from.path().join("x");
    fs::write(&file, content(100)).expect("content");
    let group = group();
    let source = ["--source", "127.0.0.1", "--assist"];
    let receiver =
        |help: &[&str]| Running::start("receiver", &mut receive(&group, to.path(), help)).finish();
    receiver(&["--assist", "dyram://127.0.0.1:4143"])
        .expect(2)
        .says("name the sender with --source");
    for (help, code, says) in [
        ("dyram://127.0.0.1:x", 2, "dyram://192.0.2.1:4143"),
        ("dyram://a,b,c,d,e", 2, "at most 4 relays"),
        ("dyram://239.1.2.3:4143", 1, "the address of no host"),
        ("dyram://relay.invalid", 1, "relay relay.invalid:4143"),
    ] {
        receiver(&[&source[..], &[help]].concat())
            .expect(code)
            .says(says);
        let sender = Running::start("sender", &mut send(&group, &file, &["--assist", help]));
        sender.finish().expect(code).says(says);
    }
}
