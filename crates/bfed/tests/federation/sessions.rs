//! A peering, message by message: which messages are sent, when, and why it ends.

use bfed::session::{CloseReason, State};
use bfed::wire::node::Register;
use bfed::wire::notification::{Reason, Repr as Notification};
use bfed::wire::open::{Graceful, Repr as Open};
use bfed::wire::{MAX_MESSAGE_LEN, Message, join, update};
use bfed::*;

use crate::stage::{PEER, TestGateway};
use crate::world::{gateway, session};

const STREAM: ConnId = ConnId(1);

impl TestGateway {
    fn state(&self) -> State {
        self.node.peers().next().unwrap().state
    }

    fn routes(&self) -> usize {
        self.node.routes().count()
    }

    /// Exchanges OPEN and KEEPALIVE on the first stream, and discards the messages sent so far.
    fn open_session(&mut self) {
        self.node.connected(self.now, STREAM, PEER, false);
        self.receive(STREAM, &Message::Open(open())).unwrap();
        self.receive(STREAM, &Message::KeepAlive).unwrap();
        assert_eq!(self.state(), State::Established);
        self.wait(0);
        self.messages();
        self.events();
    }

    /// The last message is a NOTIFICATION, and the stream is closed.
    #[track_caller]
    fn ends_with(&mut self, reason: Reason) {
        let Some(Message::Notification(why)) = self.messages().pop() else {
            panic!("no reason given");
        };
        assert_eq!(why.reason, reason, "{}", why.text);
        let events = self.events();
        assert!(events.contains(&Event::Close(STREAM)));
        let down = Event::PeerDown {
            peer: PEER,
            why: CloseReason::Local(why),
        };
        assert!(events.contains(&down), "{events:?}");
        assert_eq!(self.state(), State::Idle);
    }
}

fn open() -> Open {
    Open {
        version_low: 1,
        version_high: 1,
        hold_time_s: 30,
        gateway: gateway(2, 1),
        boot: 5,
        tables: Tables::ALL,
        graceful: None,
        transport: bfed::wire::transport::Transport::Plain,
        echo: false,
    }
}

fn announce(numbers: std::ops::Range<u32>) -> Message {
    let announced = numbers.map(|number| update::Announced {
        destination: gateway(3, number),
        attributes: wire::attributes::Attributes {
            cost: Cost(1),
            path: vec![gateway(2, 1), gateway(3, number)],
            tags: vec![],
        },
    });
    let (withdrawn, announced) = (vec![], announced.collect());
    Message::Update(update::Repr {
        table: Table::from_number(0).unwrap(),
        withdrawn,
        announced,
    })
}

#[test]
fn a_peering_from_call_to_shutdown() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.wait(0);
    assert_eq!(stage.events(), [Event::Dial(PEER)]);
    assert_eq!(stage.state(), State::Connecting);
    stage.node.connected(stage.now, STREAM, PEER, true);
    let sent = stage.messages();
    let [Message::Open(own)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!((own.gateway, own.hold_time_s), (gateway(1, 1), 90));
    stage.receive(STREAM, &Message::Open(open())).unwrap();
    assert_eq!(stage.state(), State::OpenConfirm);
    assert_eq!(stage.messages(), [Message::KeepAlive]);
    stage.receive(STREAM, &Message::KeepAlive).unwrap();
    assert_eq!(stage.events(), [Event::PeerUp(PEER)]);
    stage.wait(0);
    let sent = stage.messages();
    let updates = sent
        .iter()
        .filter(|message| matches!(message, Message::Update(_)))
        .count();
    let ends = sent
        .iter()
        .filter(|message| matches!(message, Message::EndOfTable(_)))
        .count();
    assert_eq!((updates, ends), (12, 12), "every table, and its end");
    // The smaller hold time holds: a KEEPALIVE every 10 s.
    stage.wait(10_000);
    assert_eq!(stage.messages(), [Message::KeepAlive]);
    stage.node.close(stage.now);
    let sent = stage.messages();
    assert_eq!(
        sent,
        [Message::Notification(Notification::new(
            Reason::Shutdown,
            ""
        ))]
    );
}

#[test]
fn silence_ends_it_and_a_half_open_peer_does_not_hold_a_place() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.open_session();
    for _ in 0..29 {
        stage.wait(1000);
    }
    assert_eq!(stage.state(), State::Established);
    stage.wait(1000);
    stage.ends_with(Reason::HoldTimer);
    stage.node.connected(stage.now, STREAM, PEER, false);
    stage.wait(10_000);
    stage.ends_with(Reason::OpenTimer);
}

#[test]
fn a_peer_that_also_speaks_later_versions_is_served() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.node.connected(stage.now, STREAM, PEER, false);
    let newer = Open {
        version_high: 9,
        ..open()
    };
    stage.receive(STREAM, &Message::Open(newer)).unwrap();
    stage.receive(STREAM, &Message::KeepAlive).unwrap();
    assert_eq!(stage.state(), State::Established);
}

#[test]
fn a_peer_without_a_common_version_is_told_both() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.node.connected(stage.now, STREAM, PEER, false);
    let newer = Open {
        version_low: 2,
        version_high: 9,
        ..open()
    };
    let refused = stage.receive(STREAM, &Message::Open(newer));
    assert_eq!(refused, Err(Error::Version));
    assert_eq!(stage.node.stats().drops.get(Error::Version), 1);
    let sent = stage.messages();
    let Some(Message::Notification(why)) = sent.last() else {
        panic!("{sent:?}");
    };
    assert_eq!(why.reason, Reason::Version);
    assert_eq!(
        why.text,
        "2.1 speaks versions 2 to 9 of the control protocol, 1.1 version 1: install one release of polycast on both"
    );
}

#[test]
fn a_data_node_of_another_version_is_told_so() {
    let register = Message::Register(Register {
        node: NodeId(1),
        boot: 1,
        max_sessions: 100,
        epoch: 0,
    });
    let mut bytes = vec![0; register.buffer_len()];
    register.emit(&mut bytes);
    bytes[2] = 2;
    let mut stage = TestGateway::new(|_, _| ());
    stage
        .node
        .node_connected(stage.now, STREAM, NodeIdentity::default());
    let refused = stage.node.handle_packet(stage.now, &STREAM, &bytes);
    assert_eq!(refused, Err(Error::Version));
    let sent = stage.messages();
    let Some(Message::Notification(why)) = sent.last() else {
        panic!("{sent:?}");
    };
    assert_eq!(why.reason, Reason::Version);
    assert!(stage.events().contains(&Event::Close(STREAM)));
}

#[test]
fn an_open_that_does_not_fit_is_told_why() {
    for (wrong, reason) in [
        (
            Open {
                gateway: gateway(2, 2),
                ..open()
            },
            Reason::BadPeer,
        ),
        (
            Open {
                gateway: gateway(1, 1),
                ..open()
            },
            Reason::BadPeer,
        ),
        (
            Open {
                tables: Tables::NONE.with(Table::from_number(11).unwrap()),
                ..open()
            },
            Reason::Tables,
        ),
    ] {
        let tables = Tables::NONE.with(Table::from_number(0).unwrap());
        let mut stage = TestGateway::new(|config, _| config.tables = tables);
        stage.node.connected(stage.now, STREAM, PEER, false);
        assert_eq!(
            stage.receive(STREAM, &Message::Open(wrong)),
            Err(Error::BadOpen)
        );
        stage.ends_with(reason);
    }
}

#[test]
fn messages_at_the_wrong_time_end_it() {
    for (early, wrong) in [
        (true, Message::KeepAlive),
        (true, announce(1..2)),
        (true, Message::Leave(session("bfed://1/m"))),
        (false, Message::Open(open())),
        (
            false,
            Message::Request(wire::client::Request {
                nonce: 1,
                want: wire::client::Want::Join,
                redirects: 0,
                session: session("bfed://1/m"),
                token: None,
            }),
        ),
    ] {
        let mut stage = TestGateway::new(|_, _| ());
        if early {
            stage.node.connected(stage.now, STREAM, PEER, false);
            stage.events();
        } else {
            stage.open_session();
        }
        assert_eq!(
            stage.receive(STREAM, &wrong),
            Err(Error::OutOfOrder),
            "{wrong:?}"
        );
        stage.ends_with(Reason::OutOfOrder);
    }
}

#[test]
fn nonsense_ends_the_session_and_nothing_else() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.open_session();
    let wrong = stage
        .node
        .handle_packet(stage.now, &STREAM, b"GET / HTTP/1.1\r\n");
    assert_eq!(wrong, Err(Error::Malformed));
    stage.ends_with(Reason::BadMessage);
    let late = stage.receive(STREAM, &Message::KeepAlive);
    assert_eq!(late, Err(Error::UnknownStream));
    stage.open_session();
    assert_eq!(stage.node.stats().drops.get(Error::Malformed), 1);
    assert_eq!(stage.node.stats().drops.total(), 2);
    // The version of the header, not of OPEN.
    let mut bytes = vec![0; 8];
    Message::KeepAlive.emit(&mut bytes);
    bytes[2] = 9;
    let wrong = stage.node.handle_packet(stage.now, &STREAM, &bytes);
    assert_eq!(wrong, Err(Error::Version));
    stage.ends_with(Reason::Version);
}

#[test]
fn bad_attributes_withdraw_and_bad_updates_reset() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.open_session();
    stage.receive(STREAM, &announce(1..4)).unwrap();
    assert_eq!(stage.routes(), 3);
    let message = announce(2..3);
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    let at = 8 + 6 + 10 + 4; // the cost's value: infinite, so the route is withdrawn
    bytes[at..at + 4].fill(0xff);
    stage
        .node
        .handle_packet(stage.now, &STREAM, &bytes)
        .unwrap();
    assert_eq!(stage.routes(), 2);
    assert_eq!(stage.node.stats().routes.faulty, 1);
    assert_eq!(stage.state(), State::Established);
    bytes[at - 3] = 99; // an attribute that must be known, and is not
    assert_eq!(
        stage.node.handle_packet(stage.now, &STREAM, &bytes),
        Err(Error::Malformed)
    );
    stage.ends_with(Reason::BadUpdate);
    assert_eq!(stage.routes(), 0, "its routes are gone");
}

#[test]
fn routes_that_loop_or_lie_are_not_taken() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.open_session();
    for (path, counter) in [
        (
            vec![gateway(2, 1), gateway(1, 1), gateway(3, 1)],
            "own gateway",
        ),
        (
            vec![gateway(2, 1), gateway(1, 9), gateway(3, 1)],
            "own network",
        ),
        (vec![gateway(4, 1), gateway(3, 1)], "not from the peer"),
    ] {
        stage.receive(STREAM, &announce(1..2)).unwrap();
        assert_eq!(stage.routes(), 1);
        let Message::Update(mut update) = announce(1..2) else {
            unreachable!()
        };
        update.announced[0].attributes.path = path;
        stage.receive(STREAM, &Message::Update(update)).unwrap();
        assert_eq!(
            stage.routes(),
            0,
            "{counter}: what it said before is gone too"
        );
    }
    let routes = stage.node.stats().routes;
    assert_eq!((routes.loops, routes.not_from_peer), (2, 1));
}

#[test]
fn too_many_routes_end_it_for_a_while() {
    let mut stage = TestGateway::new(|_, peer| peer.max_routes = 10);
    stage.open_session();
    stage.receive(STREAM, &announce(1..11)).unwrap();
    assert_eq!(
        stage.receive(STREAM, &announce(11..12)),
        Err(Error::PrefixLimit)
    );
    stage.ends_with(Reason::PrefixLimit);
    stage.node.connected(stage.now, STREAM, PEER, false);
    let Some(Message::Notification(why)) = stage.messages().pop() else {
        panic!()
    };
    assert_eq!(why.reason, Reason::PrefixLimit, "no new session yet");
    stage.wait(299_000);
    assert!(!stage.events().contains(&Event::Dial(PEER)));
    stage.wait(2_000);
    stage.open_session();
}

#[test]
fn who_does_not_read_loses_the_session_not_our_memory() {
    let mut stage = TestGateway::new(|config, _| config.limits.max_queue = 16);
    stage.open_session();
    stage.node.blocked(STREAM);
    let name = |n: u32| session(&format!("bfed://9/{n}"));
    for n in 0..30 {
        let flows = vec![join::FlowChannel {
            label: None,
            address: ChannelAddress::Stream("10.0.0.1:1".parse().unwrap()),
        }];
        let join = join::Repr {
            hop_limit: 9,
            sroutes: None,
            flows,
            session: name(n),
        };
        let _ = stage.receive(STREAM, &Message::Join(join)); // each is answered by NO_ROUTE
    }
    assert_eq!(stage.state(), State::Idle);
    stage.node.writable(stage.now, STREAM);
    stage.ends_with(Reason::TooSlow);
}

#[test]
fn a_peer_that_never_reads_its_last_words_is_closed_all_the_same() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.open_session();
    stage.node.blocked(STREAM);
    stage.node.remove_peer(stage.now, PEER);
    stage.events();
    stage.wait(1000);
    assert_eq!(stage.events(), [Event::Close(STREAM)]);
}

#[test]
fn calls_are_repeated_ever_more_slowly() {
    let mut stage = TestGateway::new(|_, _| ());
    let mut gaps = Vec::new();
    let mut last = stage.now;
    for _ in 0..9 {
        while !stage.events().contains(&Event::Dial(PEER)) {
            let next = stage.node.poll_timeout().unwrap();
            stage.now = stage.now.max(next);
            stage.node.handle_timeout(stage.now);
        }
        gaps.push((stage.now - last).total_millis());
        last = stage.now;
        stage.node.dial_failed(stage.now, PEER);
    }
    assert_eq!(gaps[0], 0);
    for (at, gap) in gaps.iter().enumerate().skip(1) {
        let full = (1000 << (at - 1)).min(60_000);
        assert!((full * 3 / 4..=full).contains(gap), "{gaps:?}");
    }
}

#[test]
fn of_two_streams_one_is_kept() {
    // This gateway is the lower one: of two calls that cross, its own is kept.
    let mut stage = TestGateway::new(|_, _| ());
    let (ours, theirs, newer) = (ConnId(1), ConnId(2), ConnId(3));
    stage.node.connected(stage.now, theirs, PEER, false);
    stage.node.connected(stage.now, ours, PEER, true);
    let mut buffer = vec![0; MAX_MESSAGE_LEN];
    let mut sent = Vec::new();
    while let Some(out) = stage.node.poll_transmit(stage.now, &mut buffer) {
        sent.push((out.conn, Message::parse(&buffer[..out.len]).unwrap()));
    }
    assert!(matches!(
        sent[..],
        [
            (ConnId(1), Message::Open(_)),
            (ConnId(2), Message::Notification(_))
        ]
    ));
    // A second call of the peer while its first one stands: it has restarted.
    stage.open_session();
    stage.node.connected(stage.now, newer, PEER, false);
    assert_eq!(stage.state(), State::OpenSent);
    stage.ends_with_collision();
}

impl TestGateway {
    fn ends_with_collision(&mut self) {
        let sent = self.messages();
        let collision = sent.iter().any(|message| {
            matches!(message, Message::Notification(why) if why.reason == Reason::Collision)
        });
        assert!(collision, "{sent:?}");
    }
}

#[test]
fn a_restart_keeps_routes_until_the_new_table_is_there() {
    let graceful = Graceful {
        restarting: false,
        preserved: true,
        restart_time_s: 60,
    };
    let mut stage = TestGateway::new(|_, _| ());
    let reopen = |stage: &mut TestGateway, restarting| {
        stage.node.connected(stage.now, STREAM, PEER, false);
        let graceful = Some(Graceful {
            restarting,
            ..graceful
        });
        stage
            .receive(STREAM, &Message::Open(Open { graceful, ..open() }))
            .unwrap();
        stage.receive(STREAM, &Message::KeepAlive).unwrap();
    };
    reopen(&mut stage, false);
    stage.receive(STREAM, &announce(1..4)).unwrap();
    stage.node.disconnected(stage.now, STREAM);
    assert_eq!(stage.routes(), 3);
    stage.wait(50_000);
    reopen(&mut stage, true);
    stage.receive(STREAM, &announce(1..3)).unwrap();
    assert_eq!(stage.routes(), 3);
    stage
        .receive(STREAM, &Message::EndOfTable(Table::from_number(0).unwrap()))
        .unwrap();
    assert_eq!(stage.routes(), 2, "what was not said again is gone");
    for table in Table::all().skip(1) {
        stage.receive(STREAM, &Message::EndOfTable(table)).unwrap();
    }
    // Lost again, and not back in time.
    stage.node.disconnected(stage.now, STREAM);
    stage.wait(59_000);
    assert_eq!(stage.routes(), 2);
    stage.wait(2_000);
    assert_eq!(stage.routes(), 0);
    // One that ends it on purpose is not waited for.
    reopen(&mut stage, false);
    stage.receive(STREAM, &announce(1..4)).unwrap();
    let bye = Notification::new(Reason::Shutdown, "");
    stage.receive(STREAM, &Message::Notification(bye)).unwrap();
    assert_eq!(stage.routes(), 0);
}

#[test]
fn a_restarting_gateway_listens_before_it_speaks() {
    let mut stage = TestGateway::new(|config, _| config.restarting = true);
    stage.node.connected(stage.now, STREAM, PEER, false);
    let Some(Message::Open(own)) = stage.messages().pop() else {
        panic!()
    };
    assert!(own.graceful.is_some_and(|graceful| graceful.restarting));
    stage.receive(STREAM, &Message::Open(open())).unwrap();
    stage.receive(STREAM, &Message::KeepAlive).unwrap();
    stage.wait(1000);
    let quiet = |sent: Vec<Message>| sent.iter().all(|m| matches!(m, Message::KeepAlive));
    assert!(quiet(stage.messages()), "no routes yet");
    for table in Table::all() {
        stage.receive(STREAM, &Message::EndOfTable(table)).unwrap();
    }
    stage.wait(1000);
    assert!(!quiet(stage.messages()));
}

#[test]
fn flapping_routes_are_damped_and_come_back() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.open_session();
    let best = |stage: &TestGateway| stage.node.routes().filter(|route| route.best).count();
    let table = Table::from_number(0).unwrap();
    let withdraw = update::Repr {
        table,
        withdrawn: vec![gateway(3, 1)],
        announced: vec![],
    };
    for _ in 0..5 {
        stage.receive(STREAM, &announce(1..2)).unwrap();
        assert_eq!(best(&stage), 1);
        stage
            .receive(STREAM, &Message::Update(withdraw.clone()))
            .unwrap();
    }
    stage
        .receive(STREAM, &Message::Update(withdraw.clone()))
        .unwrap();
    stage.receive(STREAM, &announce(1..2)).unwrap();
    stage.receive(STREAM, &Message::Update(withdraw)).unwrap();
    stage.receive(STREAM, &announce(1..2)).unwrap();
    assert_eq!((stage.routes(), best(&stage)), (1, 0), "known, not used");
    assert_eq!(stage.node.stats().routes.suppressed, 1);
    // Six withdrawals, 15 minutes to halve: 6000 falls to 750 in 45 minutes.
    let mut waited = 0;
    while best(&stage) == 0 {
        stage.wait(20_000);
        stage.receive(STREAM, &Message::KeepAlive).unwrap();
        waited += 20;
        assert!(waited < 3700, "an hour at most");
    }
    assert!((2600..=2760).contains(&waited), "{waited} s");
}

#[test]
fn the_ttl_that_gtsm_asks_for() {
    let mut peer = PeerConfig::new(gateway(2, 1));
    assert_eq!(peer.min_ttl(), None);
    for (hops, ttl) in [(1, 255), (2, 254), (255, 1)] {
        peer.max_hops = Some(hops);
        assert_eq!(peer.min_ttl(), Some(ttl));
    }
}
