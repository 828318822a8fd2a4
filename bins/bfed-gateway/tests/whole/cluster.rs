//! A gateway of several processes: data nodes that start, drain and fail, and a control node that fails.

use daemon_kit::daemon::Configuration;
use std::net::SocketAddr;

use super::forward::{BULK, DATA, REAL_TIME, frames, join};
use super::{Gateway, eventually, port};
use bfed::wire::liveness::{Repr as Liveness, State};
use bfed::wire::node::Register;
use bfed::{NodeId, PeerId};
use bfed_gateway::config::{Config, Mode};
use bfed_gateway::status::{self, Show};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// Gateway 1.1 in pieces, and gateway 2.1 whole.
struct Cluster {
    at: [SocketAddr; 2],
    call: SocketAddr,
    control: Gateway,
    data: Vec<Gateway>,
    other: Gateway,
}

fn control(at: &[SocketAddr], call: SocketAddr) -> Gateway {
    let more = format!("[cluster]\nlisten = \"{call}\"");
    Gateway::start(Mode::Control, 0, at, &[1], &more)
}

impl Cluster {
    fn start(nodes: usize) -> Cluster {
        let (at, call) = ([port(), port()], port());
        let control = control(&at, call);
        let node = |number: usize| {
            let more = format!(
                "[cluster]\ncontrol = [\"{call}\"]\n[data]\nlisten = \"127.0.0.1:0\"\nnodes = 1\nfirst-node = {}",
                number + 1
            );
            Gateway::start(Mode::Data, 0, &at, &[], &more)
        };
        let data: Vec<_> = (0..nodes).map(node).collect();
        let other = Gateway::start(Mode::Whole, 1, &at, &[0], DATA);
        control.peered(1);
        other.peered(1);
        eventually("data nodes", || {
            (control.show(Show::Overview)["nodes"] == nodes).then_some(())
        });
        Cluster {
            at,
            call,
            control,
            data,
            other,
        }
    }

    /// The source sends; the data node that listens to it.
    fn send(&self, session: &str, frames: &[Vec<u8>]) -> usize {
        eventually("a data node that listens to the source", || {
            let takes = |node: &Gateway| node.hand.send(session, frames.iter().cloned());
            self.data.iter().position(takes)
        })
    }

    /// Sends until the client of the other gateway gets something new.
    fn flows(&self, session: &str) {
        let before = self.other.hand.got(session).len();
        eventually("data", || {
            self.send(session, &frames(1, 100));
            (self.other.hand.got(session).len() > before).then_some(())
        });
    }
}

#[test]
fn sessions_of_a_data_node_that_died_flow_again_through_another() {
    let mut cluster = Cluster::start(2);
    for session in [BULK, REAL_TIME] {
        join(&cluster.other, 1, session);
        cluster.flows(session);
    }
    let carries = cluster.send(BULK, &[]);
    cluster.data.remove(carries).kill();
    for session in [BULK, REAL_TIME] {
        cluster.flows(session);
    }
    assert!(cluster.control.counter("control", "nodes_lost") == 1);
}

#[test]
fn a_drained_data_node_gives_its_sessions_away_and_gets_no_more() {
    let cluster = Cluster::start(2);
    join(&cluster.other, 1, BULK);
    let carries = cluster.send(BULK, &frames(1, 10)) as u32 + 1;
    let socket = cluster.control.socket();
    status::drain(&socket, carries).unwrap();
    eventually("a move", || {
        let sessions = cluster.control.show(Show::Sessions);
        let node = sessions["sessions"][0]["node"].as_u64();
        node.is_some_and(|node| node != u64::from(carries))
            .then_some(())
    });
    cluster.flows(BULK);
    assert!(
        status::drain(&socket, 77)
            .unwrap_err()
            .to_string()
            .contains("no data node 77")
    );
    let own = status::drain(&cluster.data[0].socket(), 1)
        .unwrap_err()
        .to_string();
    assert!(own.contains("the one with the control node"), "{own}");
}

#[test]
fn data_flows_while_the_control_node_is_away_and_its_successor_takes_over() {
    let mut cluster = Cluster::start(1);
    join(&cluster.other, 1, BULK);
    cluster.flows(BULK);
    cluster.control.kill();
    eventually("the data node notices", || {
        let nodes = cluster.data[0].show(Show::Nodes);
        (nodes["nodes"][0]["connected"] == false).then_some(())
    });
    cluster.flows(BULK);
    cluster.control = control(&cluster.at, cluster.call);
    cluster.control.peered(1);
    cluster.flows(BULK);
    eventually("the tree at the successor", || {
        let sessions = cluster.control.show(Show::Sessions);
        (sessions["sessions"][0]["attached"] == true).then_some(())
    });
    cluster.flows(BULK);
}

/// Keys of the tests of `control-stream`: certificates of one authority for `NAME.example` and 127.0.0.1.
pub(super) const KEYS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../crates/control-stream/tests/keys"
);

/// The configuration key for one of [`KEYS`], in a file that only its owner may read.
pub(super) fn key_file(folder: &TempDir, name: &str) -> String {
    let file = folder.path().join(name);
    std::fs::copy(Path::new(KEYS).join(name), &file).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    format!("key-file = {file:?}")
}

/// A control node whose data nodes prove one of `names`.
fn guarded(call: SocketAddr, names: &[&str]) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[gateway]\nnetwork = 1\n{}\n[cluster]\nlisten = \"{call}\"\nnodes = {names:?}\n[daemon]\nsocket = {:?}\n",
        key_file(&folder, "server.pem"),
        folder.path().join("sock"),
    );
    Gateway::run(Mode::Control, folder, &text)
}

/// A data process with that certificate, whose node has that number.
fn member(call: SocketAddr, certificate: &str, node: u32) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[gateway]\nnetwork = 1\n[cluster]\n{}\ncontrol = [\"{call}\"]\ntls-name = \"server.example\"\n[data]\nlisten = \"127.0.0.1:0\"\nnodes = 1\nfirst-node = {node}\n[daemon]\nsocket = {:?}\n",
        key_file(&folder, certificate),
        folder.path().join("sock"),
    );
    Gateway::run(Mode::Data, folder, &text)
}

fn nodes(control: &Gateway) -> Vec<u64> {
    let shown = control.show(Show::Nodes);
    let nodes = shown["nodes"].as_array().unwrap();
    nodes
        .iter()
        .map(|node| node["node"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_certificate_that_is_not_named_registers_no_data_node() {
    let call = port();
    let control = guarded(call, &["client.example"]);
    let _forger = member(call, "server.pem", 7);
    eventually("a call that is not taken", || {
        (control.counter("control", "strangers") >= 3).then_some(())
    });
    assert_eq!(nodes(&control), [0; 0]);
    let _honest = member(call, "client.pem", 1);
    eventually("the data node", || (nodes(&control) == [1]).then_some(()));
}

#[test]
fn a_certificate_of_another_name_does_not_take_over_a_number() {
    let call = port();
    let control = guarded(call, &["client.example", "server.example"]);
    let honest = member(call, "client.pem", 1);
    eventually("the data node", || (nodes(&control) == [1]).then_some(()));
    let rival = member(call, "server.pem", 1);
    eventually("a refusal", || {
        let refused = control.counter("control_drops", "bad_node");
        (refused >= 3).then_some(())
    });
    assert_eq!(control.counter("control", "nodes_lost"), 0);
    assert_eq!(honest.show(Show::Nodes)["nodes"][0]["connected"], true);
    // A number that is free is its own to choose.
    drop(rival);
    let _other = member(call, "server.pem", 2);
    eventually("both", || (nodes(&control) == [1, 2]).then_some(()));
}

#[test]
fn a_control_node_that_could_not_tell_data_nodes_from_peers_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let listen = "[cluster]\nlisten = \"127.0.0.1:4142\"\n";
    let named = key_file(&folder, "server.pem");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "a".repeat(64)).unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let secret = format!("key-file = {secret:?}");
    let gateway = "[gateway]\nnetwork = 1\n";
    for (text, wrong) in [
        (format!("{gateway}{named}\n{listen}"), Some("cluster.nodes")),
        (format!("{gateway}{named}\n{listen}nodes = [\"a\"]"), None),
        (
            format!("{gateway}{secret}\n{listen}"),
            Some("cluster.key-file"),
        ),
        (
            format!("{gateway}{secret}\n{listen}{secret}"),
            Some("cluster.key-file"),
        ),
        (format!("{gateway}{listen}{secret}"), None),
        (format!("{gateway}{listen}"), None),
        (format!("{gateway}{secret}\n"), None),
    ] {
        let config = Config::parse(&*text).unwrap();
        let found = config.cluster_credentials().err().map(|(key, _)| key);
        assert_eq!(found, wrong, "{text}");
    }
}

/// On loopback there is no proof of identity; reports about peers from an unknown process are still ignored.
#[test]
fn a_data_node_that_carries_nothing_ends_no_peering() {
    let cluster = Cluster::start(1);
    join(&cluster.other, 1, BULK);
    cluster.flows(BULK);
    let mut stream = TcpStream::connect(cluster.call).unwrap();
    let register = Register {
        node: NodeId(77),
        boot: 1,
        max_sessions: 100,
        epoch: 0,
    };
    let mut bytes = vec![0; register.buffer_len()];
    register.emit(&mut bytes);
    stream.write_all(&bytes).unwrap();
    eventually("the forger", || {
        (nodes(&cluster.control).len() == 2).then_some(())
    });
    let shown = cluster.control.show(Show::Peers);
    assert_eq!(shown["peers"][0]["state"], "established");
    // The peers' identifiers are not secret: this is how they are made of network 2, number 1.
    let peer = PeerId(2_u32.wrapping_mul(0x9e37_79b1) ^ 1_u32.rotate_left(16));
    let lie = Liveness {
        peer,
        state: State::Silent,
    };
    let mut bytes = vec![0; lie.buffer_len()];
    lie.emit(&mut bytes);
    stream.write_all(&bytes).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(3)))
        .unwrap();
    let mut read = 0;
    while read < 4 {
        let mut beat = [0; 64];
        read += usize::from(stream.read(&mut beat).is_ok_and(|len| len > 0));
    }
    assert_eq!(cluster.control.counter("control", "silent"), 0);
    assert_eq!(
        cluster.control.show(Show::Overview)["established"],
        1,
        "the peering stands"
    );
    cluster.flows(BULK);
}
