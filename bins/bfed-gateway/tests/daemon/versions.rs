//! Other releases ("How formats evolve" in `docs/wire.md`): refused with a reason that names both versions.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use bfed::NodeId;
use bfed::wire::describe_mismatch;
use bfed::wire::node::Register;
use bfed::wire::notification::{Reason, Repr as Notification};
use bfed_gateway::status::Show;

use crate::common::*;

/// The last message of a stream.
fn last(answer: &[u8]) -> Notification {
    let mut frames = bfed::wire::Frames::new();
    let (mut input, mut last) = (answer, None);
    while let Ok(Some(message)) = frames.next(&mut input) {
        last = Notification::parse(message).ok();
    }
    last.expect("a notification")
}

#[test]
fn a_peer_of_another_release_is_refused_by_name() {
    let at = port();
    let gateway = Daemon::start("run", 1, &listen(at), "[[peer]]\nnetwork = 3\n");
    let mut newer = open(3);
    (newer[8], newer[9]) = (2, 2);
    let why = last(&say(at, &newer));
    assert_eq!(why.reason, Reason::Version);
    let text = "3.1 speaks version 2 of the control protocol, 1.1 version 1: install one release of polycast on both";
    assert_eq!(why.text, text);
    let ended = eventually("the reason", || {
        let peers = gateway.show(Show::Peers);
        peers["peers"][0]["last_end"].as_str().map(str::to_owned)
    });
    assert_eq!(ended, format!("ended here: version: {text}"));
    assert_eq!(gateway.show(Show::Counters)["control_drops"]["version"], 1);
}

fn register() -> Vec<u8> {
    let register = Register {
        node: NodeId(5),
        boot: 1,
        max_sessions: 10,
        epoch: 0,
    };
    let mut bytes = vec![0; register.buffer_len()];
    register.emit(&mut bytes);
    bytes
}

#[test]
fn a_data_node_of_another_release_is_refused_by_name() {
    let at = port();
    let cluster = format!("[cluster]\nlisten = \"{at}\"\n");
    let control = Daemon::start("control", 1, "", &cluster);
    let mut newer = register();
    newer[2] = 2;
    let why = last(&say(at, &newer));
    assert_eq!(why.reason, Reason::Version);
    let text = describe_mismatch("the control node", "the data node", (2, 2));
    assert_eq!(why.text, text);
    eventually("a line in the log", || {
        control.log().contains(&text).then_some(())
    });
}

/// The data node says why it is refused, once, however often it tries.
#[test]
fn a_data_node_names_the_reason_of_its_control_node() {
    let control = TcpListener::bind("127.0.0.1:0").unwrap();
    let at: SocketAddr = control.local_addr().unwrap();
    let cluster = format!("first-node = 5\n[cluster]\ncontrol = [\"{at}\"]\n");
    let text = "the data node speaks version 1 of the control protocol, the control node version 2";
    control.set_nonblocking(true).unwrap();
    let data = Daemon::start("data", 1, "", &cluster);
    for _ in 0..4 {
        let (mut stream, _) = eventually("a call", || control.accept().ok());
        let mut register = vec![0; register().len()];
        stream.read_exact(&mut register).unwrap();
        let why = Notification::new(Reason::Version, text);
        let mut bytes = vec![0; why.buffer_len()];
        why.emit(&mut bytes);
        stream.write_all(&bytes).unwrap();
    }
    // The fourth call comes after three refusals.
    assert!(data.log().contains(text), "{}", data.log());
    let lines = data.log().matches("control_refused").count();
    assert_eq!(lines, 1, "{}", data.log());
}
