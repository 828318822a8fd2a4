//! Peers of one gateway: configuration while it runs, streams, lost and restarted peers.

use std::collections::BTreeMap;

use bfed::routing::Policy;
use bfed::session::{CloseReason, State};
use bfed::wire::notification::Reason;
use bfed::wire::open::Graceful;
use bfed::wire::update::Repr as Update;
use bfed::wire::{Message, no_route};
use bfed::*;

use crate::stage::{PEER, TestGateway};
use crate::world::{gateway, session};

const SECOND: PeerId = PeerId(2);
/// A session of this network.
const OWN: &str = "bfed://1/a";

fn peers(numbers: &[(u32, GatewayId)]) -> BTreeMap<PeerId, PeerConfig> {
    let peers = numbers.iter();
    peers
        .map(|&(number, gateway)| (PeerId(number), PeerConfig::new(gateway)))
        .collect()
}

fn states(stage: &TestGateway) -> Vec<(u32, State)> {
    stage
        .node
        .peers()
        .map(|peer| (peer.peer.0, peer.state))
        .collect()
}

/// Why peerings ended, since the last call.
fn downs(stage: &mut TestGateway) -> Vec<(u32, CloseReason)> {
    let downs = stage.events().into_iter().filter_map(|event| match event {
        Event::PeerDown { peer, why } => Some((peer.0, why)),
        _ => None,
    });
    downs.collect()
}

fn local(reason: &CloseReason) -> Option<Reason> {
    match reason {
        CloseReason::Local(why) => Some(why.reason),
        _ => None,
    }
}

fn routes(stage: &TestGateway) -> usize {
    stage.node.peers().map(|peer| peer.routes).sum()
}

/// Whether routes, or the ends of tables, were sent on a stream.
fn announced(stage: &mut TestGateway, conn: ConnId) -> bool {
    let is_table =
        |message: &Message| matches!(message, Message::Update(_) | Message::EndOfTable(_));
    stage
        .sent()
        .iter()
        .any(|(to, message)| *to == conn && is_table(message))
}

#[test]
fn peers_are_added_up_to_the_limit_and_once_each() {
    let mut stage = TestGateway::new(|config, _| config.limits.max_peers = 2);
    let now = stage.now;
    let mut add = |number, gateway| {
        stage
            .node
            .add_peer(now, PeerId(number), PeerConfig::new(gateway))
    };
    assert_eq!(add(2, gateway(1, 1)), Err(ConfigError::OwnPeer));
    assert_eq!(add(2, gateway(2, 1)), Err(ConfigError::SamePeer));
    assert_eq!(
        add(1, gateway(2, 1)),
        Ok(()),
        "the same peer with the same number"
    );
    assert_eq!(add(2, gateway(3, 1)), Ok(()));
    assert_eq!(add(3, gateway(4, 1)), Err(ConfigError::TooManyPeers));
    assert_eq!(add(2, gateway(3, 1)), Ok(()), "it takes no further place");
    assert_eq!(stage.node.peers().count(), 2);
}

#[test]
fn a_number_that_becomes_another_gateway_is_another_peer() {
    let mut stage = TestGateway::new(|_, _| ());
    let conn = stage.establish();
    stage.announce(conn, &[gateway(2, 1), gateway(9, 1)], 1);
    assert_eq!(routes(&stage), Table::COUNT);
    let config = PeerConfig::new(gateway(5, 1));
    stage.node.add_peer(stage.now, PEER, config).unwrap();
    let downs = downs(&mut stage);
    assert_eq!(downs.len(), 1);
    assert_eq!(local(&downs[0].1), Some(Reason::Reconfigured));
    assert_eq!(
        (routes(&stage), states(&stage)),
        (0, vec![(1, State::Idle)])
    );
    assert_eq!(stage.node.peers().next().unwrap().gateway, gateway(5, 1));
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let mut stage = TestGateway::new(|config, _| config.limits.max_peers = 2);
    stage.establish();
    let good = stage.node.config().clone();
    let two = peers(&[(1, gateway(2, 1)), (2, gateway(3, 1))]);
    let mut try_with = |config: Config, peers| stage.node.reconfigure(stage.now, config, peers);
    let mut other = good.clone();
    other.gateway = gateway(1, 2);
    assert_eq!(try_with(other, two.clone()), Err(ConfigError::Identity));
    let mut none = good.clone();
    none.tables = Tables::NONE;
    assert_eq!(try_with(none, two.clone()), Err(ConfigError::NoTable));
    let three = peers(&[(1, gateway(2, 1)), (2, gateway(3, 1)), (3, gateway(4, 1))]);
    assert_eq!(
        try_with(good.clone(), three),
        Err(ConfigError::TooManyPeers)
    );
    let same = peers(&[(1, gateway(2, 1)), (2, gateway(2, 1))]);
    assert_eq!(try_with(good.clone(), same), Err(ConfigError::SamePeer));
    let own = peers(&[(1, gateway(1, 1))]);
    assert_eq!(try_with(good.clone(), own), Err(ConfigError::OwnPeer));
    assert_eq!(states(&stage), [(1, State::Established)]);
    assert_eq!(stage.node.reconfigure(stage.now, good, two), Ok(()));
    assert_eq!(states(&stage), [(1, State::Established), (2, State::Idle)]);
    assert_eq!(downs(&mut stage), []);
}

#[test]
fn peers_that_are_not_in_the_new_configuration_are_told_so() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.establish();
    stage.add(2);
    stage.add(3);
    let config = stage.node.config().clone();
    // The second is another gateway now, the third is gone.
    let new = peers(&[(1, gateway(2, 1)), (2, gateway(8, 1))]);
    stage.node.reconfigure(stage.now, config, new).unwrap();
    let downs = downs(&mut stage);
    let downs: Vec<_> = downs
        .iter()
        .map(|(peer, why)| (*peer, local(why)))
        .collect();
    let why = Some(Reason::Reconfigured);
    assert_eq!(downs, [(2, why), (3, why)]);
    assert_eq!(states(&stage), [(1, State::Established), (2, State::Idle)]);
}

#[test]
fn a_new_configuration_does_not_end_a_restart() {
    let mut stage = TestGateway::new(|config, _| config.restarting = true);
    let mut config = stage.node.config().clone();
    config.restarting = false;
    let same = peers(&[(1, gateway(2, 1))]);
    stage.node.reconfigure(stage.now, config, same).unwrap();
    assert!(stage.node.config().restarting);
}

#[test]
fn the_end_of_a_gateway_ends_sessions_and_peerings() {
    let mut stage = TestGateway::new(|_, _| ());
    let node = stage.register(1);
    let (peer, other) = (stage.establish(), stage.add(2));
    stage.joins(peer, OWN);
    stage.serve(node);
    stage.events();
    stage.node.close(stage.now);
    let sent = stage.serve(node);
    let reasons = sent.iter().filter_map(|(to, message)| match message {
        Message::Notification(why) => Some((*to, why.reason)),
        _ => None,
    });
    let mut reasons: Vec<_> = reasons.collect();
    reasons.sort_by_key(|(to, _)| *to);
    assert_eq!(
        reasons,
        [(peer, Reason::Shutdown), (other, Reason::Shutdown)]
    );
    assert!(
        sent.iter()
            .any(|(to, message)| *to == node && matches!(message, Message::Reclaim(_)))
    );
    assert_eq!((stage.node.trees().count(), states(&stage)), (0, vec![]));
    assert!(stage.events().contains(&Event::TreeDown(session(OWN))));
}

#[test]
fn streams_of_unknown_peers_are_closed() {
    let mut stage = TestGateway::new(|_, _| ());
    stage
        .node
        .connected(stage.now, ConnId(50), PeerId(9), false);
    assert_eq!(stage.events(), [Event::Close(ConnId(50))]);
    assert_eq!(stage.sent(), []);
    // What is unknown can neither be blocked nor end.
    for conn in [ConnId(50), ConnId(51)] {
        stage.node.blocked(conn);
        stage.node.writable(stage.now, conn);
        stage.node.disconnected(stage.now, conn);
        assert_eq!(
            stage.receive(conn, &Message::KeepAlive),
            Err(Error::UnknownStream)
        );
    }
    assert_eq!(stage.node.stats().drops.get(Error::UnknownStream), 2);
}

#[test]
fn messages_are_counted() {
    let mut stage = TestGateway::new(|_, _| ());
    let conn = stage.greet(PEER);
    let received = stage.node.stats().messages_received;
    assert_eq!(received, 2);
    stage.receive(conn, &Message::KeepAlive).unwrap();
    let sent = stage.sent().len() as u64;
    let stats = stage.node.stats();
    assert_eq!((stats.messages_received, stats.messages_sent), (3, sent));
    assert_eq!((stats.peerings, stats.drops.total()), (1, 0));
}

#[test]
fn nothing_is_written_to_a_blocked_stream_or_into_a_short_buffer() {
    let mut stage = TestGateway::new(|_, _| ());
    let conn = stage.greet(PEER);
    stage.node.blocked(conn);
    stage.wait(1000);
    assert_eq!(stage.sent(), []);
    stage
        .receive(conn, &Message::Leave(session(OWN)))
        .unwrap_err();
    assert_eq!(stage.sent(), []);
    stage.node.writable(stage.now, conn);
    let mut short = vec![0; wire::MAX_MESSAGE_LEN - 1];
    assert_eq!(stage.node.poll_transmit(stage.now, &mut short), None);
    assert_eq!(
        stage.node.poll_timeout(),
        Some(stage.now),
        "something waits"
    );
    assert!(matches!(
        stage.sent()[..],
        [(_, Message::Open(_)), (_, Message::KeepAlive), ..]
    ));
}

#[test]
fn changes_of_routes_are_collected_for_the_advertisement_interval() {
    let mut stage = TestGateway::new(|config, _| {
        config.damping = None;
        config.advertisement_interval = Duration::from_millis(100);
    });
    let conn = stage.establish();
    let other = stage.add(2);
    stage.wait(1000);
    stage.sent();
    let update = |cost| {
        Message::Update(Update {
            table: session(OWN).table(),
            withdrawn: vec![],
            announced: vec![wire::update::Announced {
                destination: gateway(9, 1),
                attributes: wire::attributes::Attributes {
                    cost: Cost(cost),
                    path: vec![gateway(2, 1), gateway(9, 1)],
                    tags: vec![],
                },
            }],
        })
    };
    stage.receive(conn, &update(5)).unwrap();
    stage.wait(60);
    assert!(!announced(&mut stage, other));
    stage.receive(conn, &update(6)).unwrap();
    stage.wait(39);
    assert!(!announced(&mut stage, other));
    // The second change does not put it off.
    stage.wait(1);
    assert!(announced(&mut stage, other));
    assert_eq!(stage.node.stats().routes.announced, 2);
    // A withdrawal too.
    let withdrawal = Message::Update(Update {
        table: session(OWN).table(),
        withdrawn: vec![gateway(9, 1)],
        announced: vec![],
    });
    stage.receive(conn, &withdrawal).unwrap();
    stage.wait(99);
    assert!(!announced(&mut stage, other));
    stage.wait(1);
    assert!(announced(&mut stage, other));
}

#[test]
fn routes_of_a_table_that_was_not_agreed_on_are_refused() {
    let mut stage = TestGateway::new(|config, _| {
        config.tables = Tables::NONE.with(session(OWN).table());
    });
    let conn = stage.establish();
    let foreign = Table::all()
        .find(|table| *table != session(OWN).table())
        .unwrap();
    let update = Message::Update(Update {
        table: foreign,
        withdrawn: vec![gateway(9, 1)],
        announced: vec![],
    });
    assert_eq!(stage.receive(conn, &update), Err(Error::ForeignTable));
    assert_eq!(states(&stage), [(1, State::Established)]);
    // Sessions of a table that this gateway does not have are refused.
    stage.ask(1, "bfed://9/a/?content=real-time");
    let refused = stage.events();
    let policy = wire::client::Answer::NoRoute(no_route::Reason::Policy);
    assert!(matches!(&refused[..], [Event::Answer { answer, .. }] if *answer == policy));
}

#[test]
fn a_peer_that_announced_too_many_routes_rests() {
    let mut stage = TestGateway::new(|_, peer| {
        peer.max_routes = 1;
        peer.rest_after_limit = Duration::from_secs(20);
    });
    let conn = stage.establish();
    for number in 1..=2 {
        let update = Message::Update(Update {
            table: session(OWN).table(),
            withdrawn: vec![],
            announced: vec![wire::update::Announced {
                destination: gateway(9, number),
                attributes: wire::attributes::Attributes {
                    cost: Cost(1),
                    path: vec![gateway(2, 1), gateway(9, number)],
                    tags: vec![],
                },
            }],
        });
        let result = stage.receive(conn, &update);
        assert_eq!(result.is_err(), number == 2);
    }
    let sent = stage.sent();
    let [.., (_, Message::Notification(why))] = &sent[..] else {
        panic!("{sent:?}");
    };
    let text = format!("more than 1 routes in table {}", session(OWN).table());
    assert_eq!((why.reason, &why.text), (Reason::PrefixLimit, &text));
    stage.events();
    let refused = |stage: &mut TestGateway| {
        let conn = stage.conn();
        stage.node.connected(stage.now, conn, PEER, false);
        let sent = stage.sent();
        match &sent[..] {
            [(_, Message::Notification(why))] => why.reason == Reason::PrefixLimit,
            [(_, Message::Open(_))] => false,
            other => panic!("{other:?}"),
        }
    };
    stage.wait(19_999);
    assert!(!stage.events().contains(&Event::Dial(PEER)));
    assert!(refused(&mut stage));
    stage.wait(1);
    assert!(stage.events().contains(&Event::Dial(PEER)));
    assert!(!refused(&mut stage));
}

fn graceful(restarting: bool, preserved: bool) -> Option<Graceful> {
    Some(Graceful {
        restarting,
        preserved,
        restart_time_s: 60,
    })
}

/// A peer that restarts gracefully, with a route and a session, and the data node.
fn restartable() -> (TestGateway, ConnId, ConnId) {
    let mut stage = TestGateway::new(|config, _| config.hold_time_s = 0);
    let node = stage.register(1);
    let peer = stage.greet_as(PEER, graceful(false, true));
    stage.end_of_tables(peer);
    stage.announce(peer, &[gateway(2, 1), gateway(9, 1)], 1);
    stage.joins(peer, OWN);
    stage.serve(node);
    (stage, node, peer)
}

fn sessions(stage: &TestGateway) -> usize {
    stage.node.peers().map(|peer| peer.sessions).sum()
}

#[test]
fn a_lost_peer_keeps_routes_and_sessions_for_its_restart_time() {
    let (mut stage, node, peer) = restartable();
    stage.node.disconnected(stage.now, peer);
    assert_eq!(downs(&mut stage), [(1, CloseReason::Lost)]);
    let stale = |stage: &TestGateway| stage.node.peers().next().unwrap().stale;
    stage.live(node, 59);
    assert!(stale(&stage));
    assert_eq!((routes(&stage), sessions(&stage)), (Table::COUNT, 1));
    stage.live(node, 1);
    assert!(!stale(&stage));
    assert_eq!((routes(&stage), sessions(&stage)), (0, 0));
}

#[test]
fn a_peering_that_was_ended_on_purpose_keeps_nothing() {
    let (mut stage, node, peer) = restartable();
    let why = wire::notification::Repr::new(Reason::Shutdown, "");
    stage
        .receive(peer, &Message::Notification(why.clone()))
        .unwrap();
    assert_eq!(routes(&stage), 0);
    stage.live(node, 1);
    assert_eq!(sessions(&stage), 0);
    let events = stage.events();
    assert!(events.contains(&Event::Close(peer)), "{events:?}");
    assert!(events.contains(&Event::PeerDown {
        peer: PEER,
        why: CloseReason::Remote(why)
    }));
}

#[test]
fn a_peer_that_is_back_keeps_what_it_announces_again() {
    for preserved in [true, false] {
        let (mut stage, node, peer) = restartable();
        stage.node.disconnected(stage.now, peer);
        stage.live(node, 5);
        let peer = stage.greet_as(PEER, graceful(true, preserved));
        stage.wait(0);
        let kept = usize::from(preserved);
        assert_eq!(
            (routes(&stage), sessions(&stage)),
            (kept * Table::COUNT, kept)
        );
        stage.end_of_tables(peer);
        stage.live(node, 1);
        assert_eq!(routes(&stage), 0, "it has announced nothing");
        assert_eq!(sessions(&stage), kept);
        assert!(!stage.node.peers().next().unwrap().stale);
    }
}

#[test]
fn a_peer_that_is_back_without_a_table_has_no_routes_in_it() {
    let (mut stage, node, peer) = restartable();
    stage.node.disconnected(stage.now, peer);
    stage.live(node, 5);
    let conn = stage.conn();
    stage.node.connected(stage.now, conn, PEER, false);
    let own = session(OWN).table();
    let open = wire::open::Repr {
        version_low: 1,
        version_high: 1,
        hold_time_s: 0,
        gateway: gateway(2, 1),
        boot: 6,
        tables: Tables::NONE.with(own),
        graceful: graceful(true, true),
        transport: bfed::wire::transport::Transport::Plain,
        echo: false,
    };
    stage.receive(conn, &Message::Open(open)).unwrap();
    assert_eq!(routes(&stage), Table::COUNT);
    stage.receive(conn, &Message::KeepAlive).unwrap();
    assert_eq!(routes(&stage), 1, "it may announce it again");
    stage.receive(conn, &Message::EndOfTable(own)).unwrap();
    assert_eq!(routes(&stage), 0);
}

#[test]
fn a_peer_that_is_back_and_never_ends_its_tables_has_its_restart_time() {
    let (mut stage, node, peer) = restartable();
    stage.node.disconnected(stage.now, peer);
    stage.live(node, 5);
    stage.greet_as(PEER, graceful(true, true));
    stage.live(node, 54);
    assert_eq!(routes(&stage), Table::COUNT);
    stage.live(node, 2);
    assert_eq!(routes(&stage), 0);
    assert_eq!(
        sessions(&stage),
        1,
        "it is connected: its sessions are valid"
    );
    assert_eq!(states(&stage), [(1, State::Established)]);
}

#[test]
fn a_restarting_gateway_announces_once_all_peers_have_or_its_time_is_over() {
    for all in [true, false] {
        let mut stage = TestGateway::new(|config, _| {
            config.restarting = true;
            config.restart_time_s = 30;
        });
        let config = PeerConfig::new(gateway(3, 1));
        stage.node.add_peer(stage.now, SECOND, config).unwrap();
        let first = stage.greet(PEER);
        stage.end_of_tables(first);
        stage.wait(200);
        assert!(!announced(&mut stage, first), "another is missing");
        if all {
            let second = stage.greet(SECOND);
            stage.wait(200);
            assert!(!announced(&mut stage, first), "it has not ended its tables");
            stage.end_of_tables(second);
        } else {
            stage.wait(29_700);
            assert!(!announced(&mut stage, first));
            assert!(stage.node.poll_timeout().is_some());
            stage.wait(100);
        }
        stage.wait(100);
        assert!(announced(&mut stage, first));
        assert!(!stage.node.config().restarting);
    }
}

#[test]
fn the_open_says_what_a_restart_keeps() {
    for (restart_time_s, restarting) in [(120, false), (120, true), (0, false)] {
        let mut stage = TestGateway::new(|config, _| {
            config.restart_time_s = restart_time_s;
            config.restarting = restarting;
        });
        stage.node.connected(stage.now, ConnId(1), PEER, true);
        let sent = stage.messages();
        let [Message::Open(open)] = &sent[..] else {
            panic!("{sent:?}");
        };
        let expected = Graceful {
            restarting,
            preserved: restart_time_s > 0,
            restart_time_s,
        };
        assert_eq!(open.graceful, Some(expected));
    }
}

#[test]
fn keepalives_are_written_when_they_are_due() {
    let mut stage = TestGateway::new(|config, _| config.hold_time_s = 9);
    let conn = stage.conn();
    stage.node.connected(stage.now, conn, PEER, false);
    let open = wire::open::Repr {
        version_low: 1,
        version_high: 1,
        hold_time_s: 30,
        gateway: gateway(2, 1),
        boot: 5,
        tables: Tables::ALL,
        graceful: None,
        transport: bfed::wire::transport::Transport::Plain,
        echo: false,
    };
    stage.receive(conn, &Message::Open(open)).unwrap();
    stage.receive(conn, &Message::KeepAlive).unwrap();
    stage.settle();
    // The lower hold time applies: one in 3 s.
    let mut early = 2699;
    for _ in 0..5 {
        stage.wait(early);
        stage.receive(conn, &Message::KeepAlive).unwrap();
        assert_eq!(stage.messages(), []);
        stage.wait(1);
        assert_eq!(stage.messages(), [Message::KeepAlive]);
        early = 2999;
    }
}

#[test]
fn a_peer_without_a_route_from_here_may_not_join() {
    let mut stage = TestGateway::new(|_, peer| peer.export = Policy::reject_all());
    let peer = stage.establish();
    stage.register(1);
    assert_eq!(stage.join(peer, OWN), Err(Error::JoinRefused));
    assert_eq!(stage.node.trees().count(), 0, "nothing is left of it");
}
