//! The upstream of a tree at one gateway, message by message (section 5.2.3).

use bfed::wire::attributes::MAX_PATH;
use bfed::wire::no_route::{Reason, Repr as NoRoute};
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::subscribe::Edge;
use bfed::wire::translation::Repr as Translation;
use bfed::wire::{Message, join};
use bfed::*;

use crate::stage::{PEER, TestGateway, channels};
use crate::world::{gateway, session};

/// A session of network 9, which both peers have a route to.
pub(crate) const NAME: &str = "bfed://9/m";
pub(crate) const SECOND: PeerId = PeerId(2);
pub(crate) const BELOW: PeerId = PeerId(4);

/// Gateway 1.1 with a data node; peers 2.1 and 3.1 lead to 9.1, the first on the better route; 5.1 joins sessions.
pub(crate) struct Scene {
    pub(crate) stage: TestGateway,
    pub(crate) node: ConnId,
    pub(crate) first: ConnId,
    pub(crate) second: ConnId,
    pub(crate) below: ConnId,
}

pub(crate) fn scene() -> Scene {
    let mut stage = TestGateway::new(|config, _| {
        config.hold_time_s = 0;
        config.damping = None;
    });
    let node = stage.register(1);
    let first = stage.establish();
    stage.end_of_tables(first);
    let (second, below) = (stage.add(2), stage.add(4));
    stage.announce(first, &[gateway(2, 1), gateway(9, 1)], 1);
    stage.announce(second, &[gateway(3, 1), gateway(9, 1)], 5);
    Scene {
        stage,
        node,
        first,
        second,
        below,
    }
}

/// The same; the peer below has the session through the first.
pub(crate) fn attached() -> Scene {
    let mut scene = scene();
    scene.join(20).unwrap();
    let sent = scene.serve();
    assert_eq!(joins(&sent).len(), 1);
    scene
        .translate(scene.first, &[gateway(2, 1), gateway(9, 1)], 5)
        .unwrap();
    let sent = scene.serve();
    assert_eq!(
        translations(&sent),
        [(
            scene.below,
            vec![gateway(1, 1), gateway(2, 1), gateway(9, 1)]
        )]
    );
    scene.stage.events();
    scene
}

impl Scene {
    pub(crate) fn join(&mut self, hop_limit: u8) -> Result<(), Error> {
        let join = join::Repr {
            hop_limit,
            sroutes: None,
            flows: channels(&session(NAME), false, 0),
            session: session(NAME),
        };
        let below = self.below;
        self.stage.receive(below, &Message::Join(join))
    }

    pub(crate) fn translate(
        &mut self,
        from: ConnId,
        path: &[GatewayId],
        label: u32,
    ) -> Result<(), Error> {
        let translation = Translation {
            path: path.to_vec(),
            flows: channels(&session(NAME), false, label),
            session: session(NAME),
        };
        self.stage.receive(from, &Message::Translation(translation))
    }

    pub(crate) fn refuse(&mut self, from: ConnId, reason: Reason) -> Result<(), Error> {
        let session = session(NAME);
        let refusal = NoRoute { reason, session };
        self.stage.receive(from, &Message::NoRoute(refusal))
    }

    /// A peer announces a route through that network with that cost. Returns what follows at once.
    pub(crate) fn announce(&mut self, peer: ConnId, via: u32, cost: u32) -> Vec<(ConnId, Message)> {
        let route = update(&[gateway(via, 1), gateway(9, 1)], cost);
        self.stage.receive(peer, &Message::Update(route)).unwrap();
        self.stage.wait(0);
        self.serve()
    }

    pub(crate) fn serve(&mut self) -> Vec<(ConnId, Message)> {
        self.stage.serve(self.node)
    }

    pub(crate) fn live(&mut self, seconds: u64) -> Vec<(ConnId, Message)> {
        self.stage.live(self.node, seconds)
    }

    pub(crate) fn tree(&self) -> control::TreeStatus {
        self.stage.node.trees().next().expect("a tree")
    }
}

pub(crate) fn joins(sent: &[(ConnId, Message)]) -> Vec<ConnId> {
    let joins = sent
        .iter()
        .filter(|(_, message)| matches!(message, Message::Join(_)));
    joins.map(|(to, _)| *to).collect()
}

pub(crate) fn leaves(sent: &[(ConnId, Message)]) -> Vec<ConnId> {
    let leaves = sent
        .iter()
        .filter(|(_, message)| matches!(message, Message::Leave(_)));
    leaves.map(|(to, _)| *to).collect()
}

pub(crate) fn refusals(sent: &[(ConnId, Message)]) -> Vec<(ConnId, Reason)> {
    let refusals = sent.iter().filter_map(|(to, message)| match message {
        Message::NoRoute(why) => Some((*to, why.reason)),
        _ => None,
    });
    refusals.collect()
}

pub(crate) fn translations(sent: &[(ConnId, Message)]) -> Vec<(ConnId, Vec<GatewayId>)> {
    let translations = sent.iter().filter_map(|(to, message)| match message {
        Message::Translation(translation) => Some((*to, translation.path.clone())),
        _ => None,
    });
    translations.collect()
}

pub(crate) fn released(sent: &[(ConnId, Message)]) -> Vec<ReclaimTarget> {
    let released = sent.iter().filter_map(|(_, message)| match message {
        Message::Reclaim(reclaim) => reclaim.what,
        _ => None,
    });
    released.collect()
}

fn edge(peer: PeerId) -> Edge {
    Edge::Peer { peer, rate_bps: 0 }
}

#[test]
fn a_join_goes_along_the_best_route_with_one_hop_less() {
    let mut scene = scene();
    scene.join(7).unwrap();
    let sent = scene.stage.sent();
    let is_allocate = |(to, message): &(ConnId, Message)| {
        *to == scene.node && matches!(message, Message::Allocate(ask) if ask.edge == edge(PEER))
    };
    assert!(sent.iter().any(is_allocate), "{sent:?}");
    assert!(joins(&sent).is_empty(), "without channels");
    // No answer of the data node yet: a TRANSLATION answers an earlier JOIN.
    scene
        .translate(scene.first, &[gateway(2, 1), gateway(9, 1)], 5)
        .unwrap();
    assert!(!scene.tree().attached);
    let conn = scene.stage.register(1);
    scene.node = conn;
    scene.stage.wait(0);
    let sent = scene.serve();
    let join = sent.iter().find_map(|(to, message)| match message {
        Message::Join(join) if *to == scene.first => Some(join),
        _ => None,
    });
    let join = join.expect("a JOIN");
    assert_eq!(
        (join.hop_limit, &join.flows),
        (6, &channels(&session(NAME), false, 0))
    );
}

#[test]
fn a_join_that_is_not_answered_in_time_goes_to_the_next_peer() {
    let mut scene = scene();
    scene.join(20).unwrap();
    assert_eq!(joins(&scene.serve()), [scene.first]);
    let sent = scene.live(4);
    assert!(joins(&sent).is_empty() && leaves(&sent).is_empty());
    let sent = scene.live(1);
    assert_eq!(
        (leaves(&sent), joins(&sent)),
        (vec![scene.first], vec![scene.second])
    );
    assert_eq!(released(&sent), []);
    // The first is tried again when its exclusion is over, after the refusal time; the second is left then.
    let sent = scene.live(5);
    assert_eq!(joins(&sent), [scene.first]);
    assert_eq!(leaves(&sent), [scene.second]);
}

#[test]
fn translations_that_cannot_be_right_are_left() {
    let (own, via, owner) = (gateway(1, 1), gateway(2, 1), gateway(9, 1));
    let mut long = vec![via];
    long.resize(MAX_PATH - 1, gateway(7, 1));
    long.push(owner);
    let cases = [
        (vec![gateway(3, 1), owner], true),
        (vec![owner], true),
        (vec![via, gateway(8, 1)], true),
        (vec![via, own, owner], true),
        (long.clone(), true),
        (long[..1].iter().chain(&long[2..]).copied().collect(), false),
        (vec![via, owner], false),
    ];
    for (path, is_wrong) in cases {
        let mut scene = scene();
        scene.join(20).unwrap();
        scene.serve();
        let _ = scene.translate(scene.first, &path, 5);
        let sent = scene.serve();
        assert_eq!(
            scene.stage.node.stats().loops,
            u64::from(is_wrong),
            "{path:?}"
        );
        assert_eq!(scene.tree().attached, !is_wrong);
        if is_wrong {
            assert_eq!(leaves(&sent), [scene.first]);
            assert_eq!(joins(&sent), [scene.second], "the next");
        } else {
            assert_eq!(scene.tree().path, path);
        }
    }
}

#[test]
fn an_attached_tree_that_gets_a_bad_translation_releases_its_source() {
    let mut scene = attached();
    let _ = scene.translate(
        scene.first,
        &[gateway(2, 1), gateway(1, 1), gateway(9, 1)],
        5,
    );
    let sent = scene.serve();
    assert_eq!(leaves(&sent), [scene.first]);
    assert_eq!(released(&sent), [ReclaimTarget::Source(edge(PEER))]);
    assert_eq!(joins(&sent), [scene.second]);
}

#[test]
fn translations_and_refusals_of_others_change_nothing() {
    let mut scene = attached();
    let path = [gateway(3, 1), gateway(9, 1)];
    assert_eq!(
        scene.translate(scene.second, &path, 6),
        Err(Error::NotUpstream)
    );
    assert_eq!(leaves(&scene.serve()), [scene.second], "it shall not send");
    assert_eq!(
        scene.refuse(scene.second, Reason::NoSession),
        Err(Error::NotUpstream)
    );
    assert_eq!(scene.tree().upstream, Some(PEER));
    let leave = Message::Leave(session(NAME));
    assert_eq!(
        scene.stage.receive(scene.second, &leave),
        Err(Error::UnknownSession)
    );
    assert_eq!(scene.tree().downstream, [BELOW]);
    scene.stage.receive(scene.below, &leave).unwrap();
    scene.serve();
    let path = [gateway(2, 1), gateway(9, 1)];
    assert_eq!(
        scene.translate(scene.first, &path, 5),
        Err(Error::UnknownSession)
    );
    assert_eq!(leaves(&scene.serve()), [scene.first]);
    assert_eq!(
        scene.refuse(scene.first, Reason::Limit),
        Err(Error::UnknownSession)
    );
    assert_eq!(
        scene.stage.receive(scene.below, &leave),
        Err(Error::UnknownSession)
    );
}

#[test]
fn a_translation_again_says_only_what_is_new() {
    let mut scene = attached();
    let subscribed = |sent: &[(ConnId, Message)]| {
        sent.iter()
            .any(|(_, message)| matches!(message, Message::Subscribe(ask) if ask.up))
    };
    let path = vec![gateway(2, 1), gateway(9, 1)];
    scene.translate(scene.first, &path, 5).unwrap();
    assert_eq!(scene.stage.sent(), []);
    assert_eq!(scene.stage.events(), []);
    // A longer way behind the upstream: downstream peers hear of it.
    let longer = vec![gateway(2, 1), gateway(8, 1), gateway(9, 1)];
    scene.translate(scene.first, &longer, 5).unwrap();
    let sent = scene.stage.sent();
    assert_eq!(translations(&sent).len(), 1);
    assert!(!subscribed(&sent));
    let up = Event::TreeUp {
        session: session(NAME),
        path: longer.clone(),
    };
    assert_eq!(scene.stage.events(), std::slice::from_ref(&up));
    // Other labels: the data node has to know.
    scene.translate(scene.first, &longer, 6).unwrap();
    assert!(subscribed(&scene.stage.sent()));
    assert_eq!(scene.stage.events(), [up]);
    assert_eq!(scene.stage.node.stats().reroutes, 0);
}

#[test]
fn a_better_route_is_joined_before_the_old_one_is_left() {
    let mut scene = attached();
    let sent = scene.announce(scene.second, 3, 0);
    assert_eq!((joins(&sent), leaves(&sent)), (vec![scene.second], vec![]));
    assert_eq!(scene.tree().upstream, Some(PEER), "still");
    scene
        .translate(scene.second, &[gateway(3, 1), gateway(9, 1)], 6)
        .unwrap();
    let sent = scene.serve();
    assert_eq!(leaves(&sent), [scene.first]);
    assert_eq!(released(&sent), [ReclaimTarget::Source(edge(PEER))]);
    assert_eq!(
        translations(&sent),
        [(
            scene.below,
            vec![gateway(1, 1), gateway(3, 1), gateway(9, 1)]
        )]
    );
    assert_eq!(scene.tree().upstream, Some(SECOND));
    assert_eq!(scene.stage.node.stats().reroutes, 1);
}

#[test]
fn a_change_between_gateways_of_this_network_keeps_the_native_source() {
    let mut stage = TestGateway::new(|config, _| {
        config.hold_time_s = 0;
        config.damping = None;
    });
    let node = stage.register(1);
    let (old, new) = (
        stage.add_as(2, gateway(1, 2)),
        stage.add_as(3, gateway(1, 3)),
    );
    let below = stage.add(BELOW.0);
    stage.announce(old, &[gateway(1, 2), gateway(9, 1)], 1);
    stage.join(below, NAME).unwrap();
    stage.serve(node);
    let translate = |stage: &mut TestGateway, from: ConnId, number: u32| {
        let translation = Translation {
            path: vec![gateway(1, number), gateway(9, 1)],
            flows: channels(&session(NAME), true, 0),
            session: session(NAME),
        };
        stage
            .receive(from, &Message::Translation(translation))
            .unwrap();
        stage.serve(node)
    };
    translate(&mut stage, old, 2);
    stage.announce(new, &[gateway(1, 3), gateway(9, 1)], 0);
    let sent = translate(&mut stage, new, 3);
    assert!(sent.contains(&(old, Message::Leave(session(NAME)))));
    let is_reclaimed = |(_, message): &(ConnId, Message)| matches!(message, Message::Reclaim(_));
    assert!(!sent.iter().any(is_reclaimed), "{sent:?}");
    let tree = stage.node.trees().next().unwrap();
    assert_eq!(tree.upstream, Some(PeerId(3)));
}

#[test]
fn a_join_that_is_overtaken_by_a_better_route_is_left() {
    let mut scene = attached();
    // The second becomes better, and worse again before it has answered.
    let sent = scene.announce(scene.second, 3, 0);
    assert_eq!(joins(&sent), [scene.second]);
    let sent = scene.announce(scene.second, 3, 9);
    assert_eq!((leaves(&sent), joins(&sent)), (vec![scene.second], vec![]));
    assert_eq!(scene.tree().upstream, Some(PEER));
    // A third overtakes the second.
    let third = scene.stage.add(5);
    scene.announce(scene.second, 3, 0);
    let worse = update(&[gateway(3, 1), gateway(9, 1)], 7);
    scene
        .stage
        .receive(scene.second, &Message::Update(worse))
        .unwrap();
    let sent = scene.announce(third, 6, 0);
    assert_eq!(
        (leaves(&sent), joins(&sent)),
        (vec![scene.second], vec![third])
    );
}

/// An announcement in the session's table.
fn update(path: &[GatewayId], cost: u32) -> bfed::wire::update::Repr {
    bfed::wire::update::Repr {
        table: session(NAME).table(),
        withdrawn: vec![],
        announced: vec![bfed::wire::update::Announced {
            destination: *path.last().unwrap(),
            attributes: bfed::wire::attributes::Attributes {
                cost: Cost(cost),
                path: path.to_vec(),
                tags: vec![],
            },
        }],
    }
}

#[test]
fn a_refusal_leads_to_the_next_peer_and_back_later() {
    let mut scene = attached();
    scene.refuse(scene.first, Reason::Limit).unwrap();
    let sent = scene.serve();
    assert_eq!(joins(&sent), [scene.second]);
    assert_eq!(leaves(&sent), [], "it has left us");
    assert_eq!(released(&sent), [ReclaimTarget::Source(edge(PEER))]);
    assert!(!scene.tree().attached);
    scene
        .translate(scene.second, &[gateway(3, 1), gateway(9, 1)], 6)
        .unwrap();
    scene.serve();
    // After the refusal time the better route is tried again.
    let sent = scene.live(4);
    assert_eq!(joins(&sent), []);
    let sent = scene.live(1);
    assert_eq!(joins(&sent), [scene.first]);
    // Refused again in a row: twice as long.
    scene.refuse(scene.first, Reason::Limit).unwrap();
    scene.serve();
    assert_eq!(joins(&scene.live(4)), []);
    assert_eq!(
        scene.tree().upstream,
        Some(SECOND),
        "meanwhile the other goes on"
    );
}

#[test]
fn a_tree_that_all_refuse_fails_at_once_if_it_was_never_attached() {
    let mut scene = scene();
    scene.join(20).unwrap();
    scene.serve();
    scene.refuse(scene.first, Reason::Limit).unwrap();
    assert_eq!(refusals(&scene.serve()), []);
    scene.refuse(scene.second, Reason::Loop).unwrap();
    assert_eq!(
        refusals(&scene.serve()),
        [(scene.below, Reason::Loop)],
        "the last reason"
    );
    assert_eq!(scene.stage.node.trees().count(), 0);
    // It is refused from memory for the refusal time.
    scene.stage.wait(4999);
    assert_eq!(scene.join(20), Err(Error::JoinRefused));
    assert_eq!(refusals(&scene.stage.sent()), [(scene.below, Reason::Loop)]);
}

#[test]
fn a_tree_that_was_attached_waits_for_another_upstream() {
    let mut scene = attached();
    scene.refuse(scene.first, Reason::Policy).unwrap();
    scene.serve();
    scene.refuse(scene.second, Reason::Limit).unwrap();
    let sent = scene.live(4);
    assert_eq!(refusals(&sent), []);
    let sent = scene.live(2);
    // The first may be tried again then, and has the time of a JOIN.
    let failed = !refusals(&sent).is_empty();
    assert!(failed || joins(&sent) == [scene.first], "{sent:?}");
}

#[test]
fn that_there_is_no_such_session_ends_the_tree() {
    let mut scene = attached();
    scene.refuse(scene.first, Reason::NoSession).unwrap();
    let sent = scene.serve();
    assert_eq!(refusals(&sent), [(scene.below, Reason::NoSession)]);
    assert_eq!(joins(&sent), [], "no other gateway has it");
    assert_eq!(scene.stage.node.trees().count(), 0);
}

#[test]
fn a_peer_below_is_the_upstream_only_if_there_is_no_other() {
    let mut scene = attached();
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
    scene.serve();
    // Its route becomes the best.
    assert_eq!(joins(&scene.announce(scene.second, 3, 0)), []);
    assert_eq!(scene.tree().upstream, Some(PEER));
    scene.refuse(scene.first, Reason::Limit).unwrap();
    assert_eq!(joins(&scene.serve()), [scene.second]);
}
