//! The transport between data nodes: both gateways must be configured for the same one.

use std::collections::BTreeMap;

use bfed::session::State;
use bfed::wire::notification::Reason;
use bfed::wire::open::Repr as Open;
use bfed::wire::transport::Transport;
use bfed::wire::{Message, join, no_route};
use bfed::*;

use crate::stage::{PEER, TestGateway, opening};
use crate::world::{gateway, session};

/// A session of this network.
const OWN: &str = "bfed://1/a";
/// A session of the peer's network.
const THEIRS: &str = "bfed://2/a";

fn quic() -> TestGateway {
    TestGateway::new(|_, peer| peer.transport = Transport::Quic)
}

fn over_quic() -> Open {
    Open {
        transport: Transport::Quic,
        ..opening(PEER)
    }
}

fn state(stage: &TestGateway) -> State {
    stage.node.peers().next().unwrap().state
}

/// Returns the reason that the peer is told.
fn reason(stage: &mut TestGateway) -> Option<(Reason, String)> {
    stage
        .messages()
        .into_iter()
        .find_map(|message| match message {
            Message::Notification(why) => Some((why.reason, why.text)),
            _ => None,
        })
}

fn join_at(address: ChannelAddress) -> Message {
    Message::Join(join::Repr {
        hop_limit: 20,
        sroutes: None,
        flows: vec![join::FlowChannel {
            label: None,
            address,
        }],
        session: session(OWN),
    })
}

fn end() -> ChannelAddress {
    ChannelAddress::Quic(([10, 9, 9, 9], 7).into(), KeyDigest([9; 32]))
}

#[test]
fn a_peer_with_another_transport_is_told_which_and_what_to_do() {
    for (own, theirs) in [
        (Transport::Quic, Transport::Plain),
        (Transport::Plain, Transport::Quic),
    ] {
        let mut stage = TestGateway::new(|_, peer| peer.transport = own);
        let conn = stage.conn();
        stage.node.connected(stage.now, conn, PEER, false);
        let open = Open {
            transport: theirs,
            ..opening(PEER)
        };
        let _ = stage.receive(conn, &Message::Open(open));
        let (reason, text) = reason(&mut stage).expect("a NOTIFICATION");
        assert_eq!(reason, Reason::Transport);
        assert!(
            text.contains(own.name()) && text.contains(theirs.name()),
            "{text}"
        );
        assert!(text.contains("`transport`"), "{text}");
        assert_eq!(state(&stage), State::Idle);
    }
}

#[test]
fn this_gateway_announces_its_own_transport() {
    let mut stage = quic();
    let conn = stage.conn();
    stage.node.connected(stage.now, conn, PEER, false);
    let opens = stage
        .messages()
        .into_iter()
        .filter_map(|message| match message {
            Message::Open(open) => Some(open.transport),
            _ => None,
        });
    assert_eq!(opens.collect::<Vec<_>>(), [Transport::Quic]);
}

#[test]
fn a_join_must_name_channels_of_the_agreed_transport() {
    let mut stage = quic();
    let conn = stage.open(PEER, over_quic());
    stage.end_of_tables(conn);
    stage.register(1);
    stage.settle();
    let clear = ChannelAddress::Stream(([10, 9, 9, 9], 7).into());
    let refused = stage.receive(conn, &join_at(clear));
    assert_eq!(refused, Err(Error::JoinRefused));
    let told = stage
        .messages()
        .into_iter()
        .find_map(|message| match message {
            Message::NoRoute(why) => Some(why.reason),
            _ => None,
        });
    assert_eq!(told, Some(no_route::Reason::Policy));
    assert_eq!(stage.receive(conn, &join_at(end())), Ok(()));

    let mut plain = TestGateway::new(|_, _| ());
    let conn = plain.establish();
    assert_eq!(
        plain.receive(conn, &join_at(end())),
        Err(Error::JoinRefused)
    );
}

#[test]
fn data_nodes_are_told_the_transport() {
    let mut stage = quic();
    let conn = stage.open(PEER, over_quic());
    stage.end_of_tables(conn);
    stage.announce(conn, &[gateway(2, 1)], 1);
    stage.register(1);
    stage.settle();
    stage.ask(1, THEIRS);
    let mut asked = None;
    for _ in 0..20 {
        stage.wait(100);
        asked = asked.or(stage
            .messages()
            .into_iter()
            .find_map(|message| match message {
                Message::Allocate(request) => Some(request.transport),
                _ => None,
            }));
    }
    assert_eq!(asked, Some(Transport::Quic));
}

#[test]
fn a_new_transport_ends_the_session_at_once() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.establish();
    let mut peer = PeerConfig::new(gateway(2, 1));
    peer.transport = Transport::Quic;
    let config = stage.node.config().clone();
    let peers = BTreeMap::from([(PEER, peer)]);
    stage.node.reconfigure(stage.now, config, peers).unwrap();
    assert_eq!(
        reason(&mut stage).map(|why| why.0),
        Some(Reason::Reconfigured)
    );
    assert_eq!(state(&stage), State::Idle);
    stage.open(PEER, over_quic());
    assert_eq!(state(&stage), State::Established);
}
