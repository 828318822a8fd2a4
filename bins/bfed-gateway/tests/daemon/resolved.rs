//! A peer with a DNS name. `/etc/hosts` stands for DNS: the gateway runs where a file of the test is mounted there.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use bfed_gateway::status::Show;
use tempfile::TempDir;

use crate::common::*;

const NAME: &str = "peer.polycast.test";

/// A command that sees `hosts` as `/etc/hosts`; `None` where that is not possible.
fn with_hosts(hosts: &Path, program: &Command) -> Option<Command> {
    let wrapped = |inner: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c"]);
        command.arg(format!("mount --bind \"$0\" /etc/hosts && {inner}"));
        command.arg(hosts);
        command
    };
    let works = wrapped("exit 0").output();
    if !works.is_ok_and(|output| output.status.success()) {
        netlab::skip(env!("CARGO_PKG_NAME"), "cannot mount over /etc/hosts");
        return None;
    }
    let mut command = wrapped("exec \"$@\"");
    command.arg(program.get_program()).args(program.get_args());
    Some(command)
}

/// Answers that the name is at `address`. The file stays the one that is mounted.
fn answer(hosts: &Path, address: &str) {
    std::fs::write(hosts, format!("127.0.0.1 localhost\n{address} {NAME}\n")).unwrap();
}

/// The gateway that has the name.
fn named(at: SocketAddr, own: SocketAddr, key: &str) -> Daemon {
    let gateway = format!("listen = \"{at}\"\n{key}");
    let rest = format!("[[peer]]\nnetwork = 1\naddress = \"{own}\"\n[timers]\nretry = \"100ms\"\n");
    Daemon::start("run", 2, &gateway, &rest)
}

#[test]
fn a_name_is_resolved_for_each_attempt_and_only_the_peer_itself_is_accepted() {
    let folder: TempDir = tempfile::tempdir().unwrap();
    let keys = [secret(&folder, "a"), secret(&folder, "b")];
    let hosts = folder.path().join("hosts");
    let (own, port_of_peer) = (port(), port().port());
    answer(&hosts, "127.0.0.9");
    let rest = format!(
        "[[peer]]\nnetwork = 2\naddress = \"{NAME}:{port_of_peer}\"\n[timers]\nretry = \"100ms\"\n"
    );
    let home = tempfile::tempdir().unwrap();
    let gateway = format!("listen = \"{own}\"\n{}", keys[0]);
    write(&home, &text(&home, 1, &gateway, &rest));
    let Some(command) = with_hosts(&hosts, &program(&["run", "--log", "debug"], &home)) else {
        return;
    };
    let one = Daemon::spawned(command, home);
    let last_end = |wanted: &str| {
        eventually(wanted, || {
            let peers = one.show(Show::Peers);
            let why = peers["peers"][0]["last_end"].as_str()?.to_owned();
            why.contains(wanted).then_some(())
        });
    };
    assert_eq!(
        one.show(Show::Peers)["peers"][0]["address"],
        format!("{NAME}:{port_of_peer}")
    );
    last_end("refused");

    // DNS returns the address of a host that claims to be the peer, without the key.
    let liar = named(
        ([127, 0, 0, 8], port_of_peer).into(),
        ([127, 0, 0, 7], 9).into(),
        &keys[1],
    );
    answer(&hosts, "127.0.0.8");
    last_end("key");
    assert_eq!(one.show(Show::Overview)["established"], 0);

    // The peer itself, at an address that the name had not before.
    let other = named(
        ([127, 0, 0, 6], port_of_peer).into(),
        ([127, 0, 0, 7], 9).into(),
        &keys[0],
    );
    answer(&hosts, "127.0.0.6");
    one.peered();
    other.peered();
    assert_eq!(liar.show(Show::Overview)["established"], 0);
}
