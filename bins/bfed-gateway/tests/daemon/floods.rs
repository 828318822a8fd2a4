//! Unproved connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use bfed::wire::open::Repr as Open;
use bfed_gateway::status::Show;
use tempfile::TempDir;

use crate::common::*;

/// Idle connections to `to`, each from the next of that many addresses.
fn idle_from(to: SocketAddr, addresses: u16, count: u16) -> Vec<socket2::Socket> {
    let connect = |number: u16| {
        let [high, low] = (number % addresses).to_be_bytes();
        let from = SocketAddr::from(([127, 0, high, 1 + low], 0));
        let kind = socket2::Type::STREAM;
        let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap();
        socket.bind(&from.into()).unwrap();
        // Where the queue of the kernel is full the connection comes about later, or never.
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&to.into());
        socket
    };
    (0..count).map(connect).collect()
}

fn idle(to: SocketAddr, count: u16) -> Vec<socket2::Socket> {
    idle_from(to, 5, count)
}

/// Opens such connections until some are closed. A full queue of the kernel loses some for good: their client has its SYN
/// cookie and sends nothing.
fn idle_until_evicted(daemon: &Daemon, to: SocketAddr) -> Vec<socket2::Socket> {
    let mut all = Vec::new();
    eventually("some are closed", || {
        all.extend(idle(to, 100));
        std::thread::sleep(Duration::from_millis(100));
        (daemon.show(Show::Counters)["control"]["evicted"].as_u64()? > 0).then_some(())
    });
    all
}

#[test]
fn idle_connections_keep_no_peer_out() {
    let at = [port(), port()];
    let one = Daemon::start("run", 1, &listen(at[0]), &peer(2, at[1]));
    let idle = idle_until_evicted(&one, at[0]);
    // It connects from an address that has idle connections, too, and no gateway connects to it.
    let other = Daemon::start("run", 2, "", &peer(1, at[0]));
    other.peered();
    drop(idle);
}

/// A gateway that may open 200 file descriptors.
fn with_few_descriptors(folder: TempDir) -> Daemon {
    let program = program(&["run", "--log", "debug"], &folder);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 200; exec \"$0\" \"$@\""]);
    command.arg(program.get_program()).args(program.get_args());
    Daemon::spawned(command, folder)
}

#[test]
fn idle_connections_to_a_process_of_few_descriptors_keep_no_peer_out() {
    let at = [port(), port()];
    let folder = tempfile::tempdir().unwrap();
    let rest = peer(2, at[1]);
    write(&folder, &text(&folder, 1, &listen(at[0]), &rest));
    let one = with_few_descriptors(folder);
    let idle = idle_until_evicted(&one, at[0]);
    let other = Daemon::start("run", 2, "", &peer(1, at[0]));
    other.peered();
    drop(idle);
}

/// One connection from each of many addresses: by number no source stands out, and the peer's is the oldest.
#[test]
fn connections_of_many_addresses_end_no_handshake_of_a_configured_peer() {
    let at = port();
    let folder = tempfile::tempdir().unwrap();
    let named: SocketAddr = "127.9.9.9:1".parse().unwrap();
    write(&folder, &text(&folder, 1, &listen(at), &peer(3, named)));
    let one = with_few_descriptors(folder);
    let kind = socket2::Type::STREAM;
    let mut handshake = socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap();
    handshake
        .bind(&SocketAddr::new(named.ip(), 0).into())
        .unwrap();
    handshake.connect(&at.into()).unwrap();
    let flood = idle_from(at, 250, 250);
    eventually("some are closed", || {
        (one.show(Show::Counters)["control"]["evicted"].as_u64()? > 0).then_some(())
    });
    handshake.write_all(&open(3)).unwrap();
    handshake.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut answer = [0; 1024];
    let len = handshake.read(&mut answer).unwrap();
    let mut frames = bfed::wire::Frames::new();
    let message = frames
        .next(&mut &answer[..len])
        .unwrap()
        .map(<[u8]>::to_vec);
    assert!(Open::parse(&message.unwrap()).is_ok(), "{answer:?}");
    assert!(!one.log().contains("could not be accepted"));
    drop(flood);
}

#[test]
fn idle_connections_keep_no_data_node_out() {
    let call = port();
    let cluster = format!("[cluster]\nlisten = \"{call}\"\n");
    let control = Daemon::start("control", 1, "", &cluster);
    let idle = idle_until_evicted(&control, call);
    let cluster = format!("first-node = 5\n[cluster]\ncontrol = [\"{call}\"]\n");
    let _data = Daemon::start("data", 1, "", &cluster);
    eventually("the data node", || {
        (control.show(Show::Overview)["nodes"] == 1).then_some(())
    });
    drop(idle);
}

#[test]
fn refused_connections_are_logged_a_few_times_and_then_counted() {
    let at = port();
    let one = Daemon::start("run", 1, &listen(at), "");
    for _ in 0..500 {
        drop(TcpStream::connect(at).unwrap());
    }
    eventually("all of them", || {
        let shown = one.show(Show::Counters);
        let count = |name: &str| shown["control"][name].as_u64();
        (count("strangers")? + count("evicted")? >= 400).then_some(())
    });
    eventually("the sum", || {
        one.log().contains("more connections refused").then_some(())
    });
    let lines = one.log().matches("connection refused").count();
    assert!(lines <= 20, "{lines} lines");
}
