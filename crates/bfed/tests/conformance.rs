//! A control node keeps the contract of `proto_core::Machine`. A packet is one whole message of a stream.

use bfed::{
    Config, ConnId, ControlNode, Duration, Event, GatewayId, Instant, PeerConfig, PeerId, Transmit,
};
use netsim::conformance::{self, Pair, Paired};

const STREAM: ConnId = ConnId(1);

fn id(network: u32) -> GatewayId {
    GatewayId::new(network, 1).unwrap()
}

/// The gateway of one network, and its stream to that of the other.
fn gateway(own: u32, other: u32, now: Instant) -> ControlNode {
    let config = Config::new(id(own));
    let mut node = ControlNode::new(config, [own as u8; 32], now).unwrap();
    let (peer, called) = (PeerId(other), own < other);
    node.add_peer(now, peer, PeerConfig::new(id(other)))
        .unwrap();
    node.connected(now, STREAM, peer, called);
    node
}

struct Peering {
    is_up: bool,
}

impl Pair for Peering {
    type Machine = ControlNode;
    type Peer = ControlNode;
    type Command = ();

    fn machine(&self, now: Instant) -> ControlNode {
        gateway(1, 2, now)
    }

    fn peer(&self, now: Instant) -> ControlNode {
        gateway(2, 1, now)
    }

    fn command(&self, _: &mut ControlNode, _: Instant, (): &()) {}

    fn to_peer(&self, transmit: &Transmit) -> (usize, Option<ConnId>) {
        (transmit.len, Some(transmit.conn))
    }

    fn to_machine(&self, transmit: &Transmit) -> (usize, Option<ConnId>) {
        (transmit.len, Some(transmit.conn))
    }

    fn notified(&mut self, _: Instant, event: &Event) -> Vec<()> {
        self.is_up |= matches!(event, Event::PeerUp(_));
        Vec::new()
    }

    fn peer_notified(&mut self, _: &mut ControlNode, _: Instant, _: Event) {}

    fn is_goal_reached(&self) -> bool {
        self.is_up
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(120)
    }

    /// The driver does not answer a call while the peer is gone: each that is overdue is a wake-up.
    fn max_idle_wakeups(&self) -> usize {
        60
    }

    /// Streams are authenticated: what is no message ends the stream, as NOTIFICATION says.
    fn is_junk(&self, conn: &ConnId, _: &[u8]) -> bool {
        *conn != STREAM
    }
}

#[test]
fn control_node() {
    let summary = conformance::run(|| Paired::new(Peering { is_up: false })).unwrap();
    assert!(summary.received >= 3 && summary.sent >= 3, "{summary:?}");
}
