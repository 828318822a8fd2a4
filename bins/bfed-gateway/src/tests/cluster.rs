//! A gateway of several processes: data nodes that come, drain and die, a control node that dies.

use std::net::SocketAddr;

use super::forward::{BULK, DATA, REAL_TIME, frames, join};
use super::{Gateway, eventually, port};
use crate::config::Mode;
use crate::status::{self, Show};

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
        let other = Gateway::start(Mode::All, 1, &at, &[0], DATA);
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
