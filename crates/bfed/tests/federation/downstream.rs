//! Peers that join sessions at one gateway, message by message (section 5.2.3).

use bfed::wire::no_route::Reason;
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::subscribe::Edge;
use bfed::wire::{Message, join};
use bfed::*;

use crate::stage::channels;
use crate::upstream::{
    BELOW, NAME, SECOND, Scene, attached, joins, leaves, refusals, released, scene, translations,
};
use crate::world::{gateway, session};

#[test]
fn a_join_without_hops_left_is_refused() {
    for (hops, refused) in [(0, true), (1, false)] {
        let mut scene = scene();
        let _ = scene.join(hops);
        let sent = scene.serve();
        let expected = if refused {
            vec![(scene.below, Reason::Loop)]
        } else {
            vec![]
        };
        assert_eq!(refusals(&sent), expected);
        assert_eq!(joins(&sent).len(), usize::from(!refused));
    }
}

#[test]
fn the_last_that_leaves_ends_the_tree_and_all_that_it_has() {
    let mut scene = attached();
    let leave = Message::Leave(session(NAME));
    scene.stage.receive(scene.below, &leave).unwrap();
    let sent = scene.serve();
    assert_eq!(leaves(&sent), [scene.first]);
    assert!(released(&sent).contains(&ReclaimTarget::All));
    assert_eq!(scene.stage.events(), [Event::TreeDown(session(NAME))]);
    assert!(scene.stage.node.coordinator().is_empty());
    // One that waits for an answer is left, too.
    let mut scene = self::scene();
    scene.join(20).unwrap();
    scene.serve();
    scene.stage.receive(scene.below, &leave).unwrap();
    assert_eq!(leaves(&scene.serve()), [scene.first]);
    assert_eq!(scene.stage.events(), [], "it was not attached");
}

#[test]
fn soft_state_is_refreshed_every_30_s_and_ends_after_105() {
    let mut scene = attached();
    // The first refresh is up to a quarter of the interval early.
    let sent = scene.live(22);
    assert_eq!(joins(&sent), []);
    let refreshes = |sent: &[(ConnId, Message)]| {
        let is_refresh =
            |message: &Message| matches!(message, Message::Reclaim(one) if one.what.is_none());
        sent.iter()
            .filter(|(_, message)| is_refresh(message))
            .count()
    };
    assert_eq!(refreshes(&sent), 0);
    let sent = scene.live(8);
    assert_eq!((joins(&sent), refreshes(&sent)), (vec![scene.first], 1));
    let sent = scene.live(60);
    assert_eq!((joins(&sent).len(), refreshes(&sent)), (2, 2));
    scene.live(14);
    assert_eq!(scene.stage.node.trees().count(), 1);
    let sent = scene.live(2);
    assert_eq!(
        leaves(&sent),
        [scene.first],
        "the peer below has refreshed nothing"
    );
    assert_eq!(scene.stage.node.stats().expired, 1);
    // One that refreshes keeps it.
    let mut scene = attached();
    for _ in 0..4 {
        scene.live(100);
        scene.join(20).unwrap();
        let sent = scene.serve();
        assert_eq!(translations(&sent).len(), 1, "each JOIN is answered");
    }
    assert_eq!(scene.stage.node.stats().expired, 0);
}

#[test]
fn two_gateways_never_wait_for_each_other() {
    let mut scene = scene();
    scene.join(20).unwrap();
    scene.serve();
    // The peer that is being joined, and then the upstream.
    for attach in [false, true] {
        if attach {
            scene
                .translate(scene.first, &[gateway(2, 1), gateway(9, 1)], 5)
                .unwrap();
            scene.serve();
        }
        let back = join::Repr {
            hop_limit: 20,
            sroutes: None,
            flows: channels(&session(NAME), false, 0),
            session: session(NAME),
        };
        let refused = scene.stage.receive(scene.first, &Message::Join(back));
        assert_eq!(refused, Err(Error::JoinRefused));
        assert_eq!(refusals(&scene.serve()), [(scene.first, Reason::Loop)]);
        assert_eq!(scene.stage.node.stats().loops, 1 + u64::from(attach));
    }
    // Any other peer is served.
    let back = join::Repr {
        hop_limit: 20,
        sroutes: None,
        flows: channels(&session(NAME), false, 0),
        session: session(NAME),
    };
    scene
        .stage
        .receive(scene.second, &Message::Join(back))
        .unwrap();
    assert_eq!(translations(&scene.serve()).len(), 1);
    assert_eq!(scene.tree().downstream, [SECOND, BELOW]);
}

#[test]
fn channels_of_a_join_must_suit_the_session() {
    let datagram = || ChannelAddress::Datagram(([10, 0, 0, 1], 4000).into());
    let stream = || ChannelAddress::Stream(([10, 0, 0, 1], 4000).into());
    let native = || ChannelAddress::Native(b"239.0.0.1".to_vec());
    let live = "bfed://1/m/?content=real-time";
    let talk = "bfed://1/m/?multi-source=true";
    for (name, address, label, fits) in [
        ("bfed://1/m", stream(), 0, true),
        ("bfed://1/m", datagram(), 0, false),
        ("bfed://1/m", native(), 0, false),
        ("bfed://1/m", stream(), 1, false),
        (live, datagram(), 0, true),
        (live, stream(), 0, false),
        (talk, stream(), 1, true),
        (talk, stream(), 0, false),
    ] {
        let mut scene = scene();
        let flow = join::FlowChannel {
            label: FlowLabel::new(label),
            address: address.clone(),
        };
        let mut join = join::Repr {
            hop_limit: 20,
            sroutes: None,
            flows: vec![flow],
            session: session(name),
        };
        let joined = scene
            .stage
            .receive(scene.below, &Message::Join(join.clone()));
        assert_eq!(joined.is_ok(), fits, "{name} {address:?} {label}");
        // Only a gateway of this network receives the native broadcast.
        join.flows.clear();
        let joined = scene
            .stage
            .receive(scene.below, &Message::Join(join.clone()));
        assert_eq!(joined, Err(Error::JoinRefused));
        let inner = scene.stage.add_as(7, gateway(1, 2));
        assert_eq!(scene.stage.receive(inner, &Message::Join(join)), Ok(()));
    }
}

#[test]
fn new_channels_of_a_peer_below_replace_the_old_ones() {
    let mut scene = attached();
    let mut flows = channels(&session(NAME), false, 0);
    flows[0].address = ChannelAddress::Stream(([10, 0, 0, 9], 4000).into());
    let join = join::Repr {
        hop_limit: 20,
        sroutes: None,
        flows: flows.clone(),
        session: session(NAME),
    };
    scene
        .stage
        .receive(scene.below, &Message::Join(join.clone()))
        .unwrap();
    let sent = scene.serve();
    assert_eq!(translations(&sent).len(), 1);
    let told = |sent: &[(ConnId, Message)]| {
        sent.iter()
            .any(|(_, message)| matches!(message, Message::AllocateResponse(_)))
    };
    assert!(!told(&sent));
    assert_eq!(scene.tree().downstream, [BELOW]);
    // The same again asks nothing of the data node.
    scene
        .stage
        .receive(scene.below, &Message::Join(join))
        .unwrap();
    let sent = scene.stage.sent();
    assert!(sent.iter().all(|(to, _)| *to != scene.node), "{sent:?}");
    assert_eq!(translations(&sent).len(), 1);
    let sessions: Vec<_> = scene.stage.node.peers().map(|peer| peer.sessions).collect();
    assert_eq!(sessions, [0, 0, 1]);
}

#[test]
fn refreshes_of_many_sessions_are_spread_over_a_quarter_of_the_interval() {
    let mut scene = scene();
    for number in 0..40 {
        scene
            .stage
            .joins(scene.below, &format!("bfed://1/{number}"));
    }
    scene.serve();
    let refreshes = |sent: &[(ConnId, Message)]| {
        let is_refresh =
            |message: &Message| matches!(message, Message::Reclaim(one) if one.what.is_none());
        let refreshes = sent.iter().filter(|(_, message)| is_refresh(message));
        refreshes.count()
    };
    assert_eq!(refreshes(&scene.live(22)), 0);
    let seconds: Vec<_> = (0..8).map(|_| refreshes(&scene.live(1))).collect();
    assert_eq!(seconds.iter().sum::<usize>(), 40);
    assert!(seconds.iter().all(|count| *count <= 20), "{seconds:?}");
}

impl Scene {
    fn joins_as(&mut self, conn: ConnId, flows: Vec<join::FlowChannel>) {
        let join = join::Repr {
            hop_limit: 20,
            sroutes: None,
            flows,
            session: session(NAME),
        };
        self.stage.receive(conn, &Message::Join(join)).unwrap();
    }
}

#[test]
fn the_data_node_sends_to_the_new_channels_of_a_peer_below() {
    let mut scene = attached();
    let mut flows = channels(&session(NAME), false, 0);
    flows[0].address = ChannelAddress::Stream(([10, 0, 0, 9], 4000).into());
    let below = scene.below;
    scene.joins_as(below, flows.clone());
    let sent = scene.stage.sent();
    let told = sent.iter().filter_map(|(to, message)| match message {
        Message::Subscribe(ask) if *to == scene.node && !ask.up => Some((ask.edge, &ask.flows)),
        _ => None,
    });
    let edge = Edge::Peer {
        peer: BELOW,
        rate_bps: 0,
    };
    assert!(told.eq([(edge, &flows)]), "{sent:?}");
}

#[test]
fn each_receiver_is_released_when_nobody_needs_it_any_more() {
    let mut scene = attached();
    let inner = [(7, 2), (8, 3)].map(|(id, number)| scene.stage.add_as(id, gateway(1, number)));
    let outer = scene.stage.add(5);
    for (conn, flows) in [
        (inner[0], vec![]),
        (inner[1], vec![]),
        (outer, channels(&session(NAME), false, 0)),
    ] {
        scene.joins_as(conn, flows);
        scene.serve();
    }
    let mut leave = |conn| {
        let leave = Message::Leave(session(NAME));
        scene.stage.receive(conn, &leave).unwrap();
        released(&scene.serve())
    };
    assert_eq!(leave(inner[0]), [], "another receives the native broadcast");
    let native = ReclaimTarget::Receiver(Edge::Native);
    assert_eq!(leave(inner[1]), [native]);
    let edge = Edge::Peer {
        peer: PeerId(5),
        rate_bps: 0,
    };
    assert_eq!(leave(outer), [ReclaimTarget::Receiver(edge)]);
    assert_eq!(scene.tree().downstream, [BELOW]);
}
