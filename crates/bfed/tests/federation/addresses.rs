//! Which addresses peers may name.

use bfed::wire::Message;
use bfed::wire::join::{FlowChannel, Repr as Join};
use bfed::wire::no_route::{Reason, Repr as NoRoute};
use bfed::wire::translation::Repr as Translation;
use bfed::*;

use crate::stage::{PEER, TestGateway};
use crate::world::{World, gateway, session};

const OWN: &str = "bfed://1/a";
const THEIRS: &str = "bfed://2/a";

fn flow(label: Option<u32>, host: [u8; 4]) -> Vec<FlowChannel> {
    vec![FlowChannel {
        label: label.and_then(FlowLabel::new),
        address: ChannelAddress::Stream((host, 4141).into()),
    }]
}

/// What a peer gets that joins a session of this network with that address.
fn join(stage: &mut TestGateway, conn: ConnId, host: [u8; 4]) -> Result<(), Error> {
    let join = Join {
        hop_limit: 20,
        sroutes: None,
        flows: flow(None, host),
        session: session(OWN),
    };
    stage.receive(conn, &Message::Join(join))
}

fn prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn a_join_names_addresses_of_the_peers_prefixes_alone() {
    let mut stage = TestGateway::new(|_, peer| peer.data_prefixes = prefixes(&["10.9.0.0/16"]));
    stage.register(1);
    let conn = stage.establish();
    for foreign in [[127, 0, 0, 1], [10, 8, 0, 1], [192, 0, 2, 1]] {
        assert_eq!(join(&mut stage, conn, foreign), Err(Error::ForeignAddress));
        let refused = NoRoute {
            reason: Reason::Policy,
            session: session(OWN),
        };
        assert_eq!(stage.sent(), [(conn, Message::NoRoute(refused))]);
        assert_eq!(stage.node_of(OWN), None, "nothing is kept for it");
    }
    assert_eq!(join(&mut stage, conn, [10, 9, 9, 9]), Ok(()));
    assert!(stage.node_of(OWN).is_some());
}

#[test]
fn without_prefixes_a_peer_names_its_own_address_alone() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.register(1);
    stage.node.set_peer_address(PEER, [192, 0, 2, 7].into());
    let conn = stage.establish();
    for foreign in [[127, 0, 0, 1], [192, 0, 2, 8]] {
        assert_eq!(join(&mut stage, conn, foreign), Err(Error::ForeignAddress));
    }
    assert_eq!(join(&mut stage, conn, [192, 0, 2, 7]), Ok(()));
}

#[test]
fn where_nothing_is_known_addresses_of_this_host_and_link_are_refused() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.register(1);
    let conn = stage.establish();
    for own in [
        [127, 0, 0, 1],
        [127, 3, 2, 1],
        [169, 254, 1, 1],
        [0, 1, 2, 3],
    ] {
        assert_eq!(join(&mut stage, conn, own), Err(Error::ForeignAddress));
    }
    assert_eq!(join(&mut stage, conn, [10, 9, 9, 9]), Ok(()));
}

#[test]
fn a_translation_to_a_foreign_address_is_not_followed() {
    let mut world = World::new();
    let own = world.add(Config::new(gateway(1, 1)));
    let hostile = world.add(Config::new(gateway(2, 1)));
    world.peer(own, hostile);
    world.run(Duration::from_secs(3));
    // The hostile peer's machine neither receives nor sends any more: the test sends in its place.
    world.gws[hostile].frozen = true;
    world.client(own, 1, THEIRS);
    world.run(Duration::from_secs(1));
    let translation = |host| {
        let message = Message::Translation(Translation {
            path: vec![gateway(2, 1)],
            flows: flow(Some(9), host),
            session: session(THEIRS),
        });
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    };
    let received = world.inject(own, hostile, &translation([127, 0, 0, 1]));
    assert_eq!(received, Err(Error::ForeignAddress));
    world.run(Duration::from_secs(1));
    let upstream = world.tree(own, THEIRS).and_then(|tree| tree.upstream);
    assert_eq!(upstream, None, "the peer is passed over");
}
