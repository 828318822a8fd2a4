//! Measured costs of links: gateway 1.1, whose peers 2.1 and 3.1 both lead to 9.1, and answer its echoes after a time
//! of the test's choice.

use std::collections::VecDeque;

use bfed::wire::Message;
use bfed::wire::echo::Repr as Echo;
use bfed::*;

use crate::stage::{PEER, TestGateway, opening};
use crate::world::gateway;

const OTHER: PeerId = PeerId(2);
/// Below it no round trip matters, and above it none: half of a round trip of 2 s.
const BOUNDS_US: (u32, u32) = (1_000, 1_000_000);
/// A link that was not measured.
const UNMEASURED_US: u32 = 100_000;

fn latency() -> Table {
    Table::new(Metric::Latency, Content::RealTime, false)
}

/// The round trip of the n-th echo to a peer in milliseconds; `None` if it does not answer.
type RoundTrip<'a> = &'a dyn Fn(PeerId, u64) -> Option<u64>;

struct Scene {
    stage: TestGateway,
    conns: [(PeerId, ConnId); 2],
    replies: Vec<(Instant, ConnId, u64)>,
    echoes: u64,
    /// Changes of measured costs.
    changes: Vec<(PeerId, u32)>,
    /// Routes to 9.1 in the table for latency that were announced to the peers.
    announced: u64,
}

impl Scene {
    fn new(change: impl Fn(PeerId, &mut PeerConfig)) -> Self {
        let configure = |id: PeerId| {
            let mut peer = PeerConfig::new(gateway(id.0 + 1, 1));
            peer.measure_latency = true;
            change(id, &mut peer);
            peer
        };
        let mut stage = TestGateway::new(|config, peer| {
            config.hold_time_s = 0;
            config.damping = None;
            *peer = configure(PEER);
        });
        let one = stage.greet(PEER);
        stage.end_of_tables(one);
        stage
            .node
            .add_peer(stage.now, OTHER, configure(OTHER))
            .unwrap();
        let two = stage.open(OTHER, opening(OTHER));
        stage.end_of_tables(two);
        Scene {
            stage,
            conns: [(PEER, one), (OTHER, two)],
            replies: Vec::new(),
            echoes: 0,
            changes: Vec::new(),
            announced: 0,
        }
    }

    /// The peers announce their routes, and the first echoes are answered.
    fn start(&mut self, round_trip: RoundTrip<'_>) {
        for (id, conn) in self.conns {
            self.stage.receive_route(conn, id);
        }
        self.run(5, round_trip);
    }

    fn run(&mut self, seconds: u64, round_trip: RoundTrip<'_>) {
        let end = self.stage.now + Duration::from_secs(seconds);
        loop {
            for (conn, message) in self.stage.sent() {
                self.sent(conn, &message, round_trip);
            }
            let due = self.replies.iter().map(|(at, ..)| *at).min();
            let step = self.stage.now + Duration::from_secs(1);
            let next = due.map_or(step, |due| due.min(step));
            self.stage.now = next.max(self.stage.now).min(end);
            let now = self.stage.now;
            self.stage.node.handle_timeout(now);
            let (due, later): (Vec<_>, _) = self.replies.drain(..).partition(|(at, ..)| *at <= now);
            self.replies = later;
            for (_, conn, token) in due {
                // Those that come too late are refused.
                let _ = self.reply(conn, token);
            }
            for event in self.stage.events() {
                if let Event::DelayChanged { peer, cost } = event {
                    self.changes.push((peer, cost.0));
                }
            }
            if now == end && next >= end {
                return;
            }
        }
    }

    fn sent(&mut self, conn: ConnId, message: &Message, round_trip: RoundTrip<'_>) {
        match message {
            Message::Echo(echo) => {
                assert!(!echo.reply, "no peer asked");
                self.echoes += 1;
                let (id, _) = self.conns.into_iter().find(|(_, of)| *of == conn).unwrap();
                if let Some(millis) = round_trip(id, self.echoes) {
                    let at = self.stage.now + Duration::from_millis(millis);
                    self.replies.push((at, conn, echo.token));
                }
            }
            Message::Update(update) if update.table == latency() => {
                let to =
                    |route: &&bfed::wire::update::Announced| route.destination == gateway(9, 1);
                self.announced += update.announced.iter().filter(to).count() as u64;
            }
            _ => {}
        }
    }

    fn reply(&mut self, conn: ConnId, token: u64) -> Result<(), Error> {
        let echo = Echo { reply: true, token };
        self.stage.receive(conn, &Message::Echo(echo))
    }

    /// The peer of the best route to 9.1, and the costs of the routes by both.
    fn best(&self) -> (PeerId, [u32; 2]) {
        let routes = self.stage.node.routes();
        let routes: Vec<_> = routes
            .filter(|route| route.table == latency() && route.destination == gateway(9, 1))
            .collect();
        let best = routes.iter().find(|route| route.best).expect("a route");
        let cost = |id| {
            routes
                .iter()
                .find(|route| route.peer == id)
                .expect("a route")
                .route
                .cost
                .0
        };
        (best.peer, [cost(PEER), cost(OTHER)])
    }

    fn delay(&self, id: PeerId) -> Option<LinkDelay> {
        let mut peers = self.stage.node.peers();
        peers.find(|peer| peer.peer == id).unwrap().delay
    }
}

impl TestGateway {
    /// The peer announces its route to 9.1, which costs nothing beyond the link.
    fn receive_route(&mut self, conn: ConnId, id: PeerId) {
        self.announce_at_once(conn, &[gateway(id.0 + 1, 1), gateway(9, 1)], 0);
    }
}

#[test]
fn the_faster_link_is_chosen_and_avoided_once_it_is_slow() {
    let mut scene = Scene::new(|_, _| ());
    scene.start(&|id, _| Some(if id == PEER { 60 } else { 20 }));
    assert_eq!(scene.best(), (OTHER, [30_000, 10_000]));
    assert_eq!(
        scene.delay(OTHER).unwrap().round_trip,
        Some(Duration::from_millis(20))
    );
    scene.run(600, &|id, _| Some(if id == PEER { 60 } else { 20 }));
    scene.changes.clear();
    // Within the window of a minute the slow link is recognised.
    scene.run(70, &|id, _| Some(if id == PEER { 60 } else { 300 }));
    assert_eq!(scene.changes, [(OTHER, 150_000)]);
    assert_eq!(scene.best(), (PEER, [30_000, 150_000]));
    // It is fast again, and used again after the time that a change is kept.
    scene.run(125, &|id, _| Some(if id == PEER { 60 } else { 20 }));
    assert_eq!(scene.best(), (OTHER, [30_000, 10_000]));
}

#[test]
fn the_cost_of_the_other_tables_is_configured() {
    let mut scene = Scene::new(|id, peer| {
        peer.link = Costs::uniform(Cost(if id == PEER { 3 } else { 7 }));
    });
    scene.start(&|id, _| Some(if id == PEER { 60 } else { 20 }));
    let hops = Table::new(Metric::Hops, Content::RealTime, false);
    let routes = scene.stage.node.routes();
    let best = routes.filter(|route| route.table == hops && route.best);
    let to = best.filter(|route| route.destination == gateway(9, 1));
    let to: Vec<_> = to.map(|route| (route.peer, route.route.cost.0)).collect();
    assert_eq!(to, [(PEER, 3)]);
}

#[test]
fn noise_changes_no_route() {
    // Jitter of up to 2 ms, and in three of ten echoes a queue of up to a second; the links differ by 1 ms.
    let noisy = |id: PeerId, n: u64| {
        let random = (n ^ u64::from(id.0) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let queue = if random % 10 < 3 { random % 1_000 } else { 0 };
        let path = if id == PEER { 40 } else { 41 };
        Some(path + random % 3 + queue)
    };
    let mut scene = Scene::new(|_, _| ());
    scene.start(&noisy);
    scene.run(120, &noisy);
    let (best, announced) = (scene.best(), scene.announced);
    scene.changes.clear();
    scene.run(6 * 3600, &noisy);
    assert!(scene.echoes > 8_000, "it went on: {}", scene.echoes);
    assert_eq!(scene.changes, []);
    assert_eq!((scene.best(), scene.announced), (best, announced));
}

#[test]
fn a_peer_that_answers_as_it_likes_changes_its_cost_seldom_and_within_the_bounds() {
    let mut scene = Scene::new(|_, _| ());
    // As fast as it can, or never, in turns of two minutes.
    let liar = |id: PeerId, n: u64| match id {
        OTHER if n / 50 % 2 == 1 => None,
        OTHER => Some(0),
        _ => Some(40),
    };
    scene.start(&liar);
    assert_eq!(
        scene.best(),
        (OTHER, [20_000, BOUNDS_US.0]),
        "no faster than this"
    );
    for _ in 0..60 {
        scene.run(60, &liar);
        let (_, [honest, lied]) = scene.best();
        assert_eq!(honest, 20_000);
        assert!((BOUNDS_US.0..=BOUNDS_US.1).contains(&lied), "{lied}");
    }
    // 1, 2, 4, 8, 16 minutes and then every 16 minutes at most.
    let lies = scene.changes.iter().filter(|(id, _)| *id == OTHER).count();
    assert!((2..=8).contains(&lies), "{:?}", scene.changes);
    assert!(scene.announced <= 2 * 8 + 4, "{}", scene.announced);
    assert!(scene.stage.node.stats().echoes_unanswered > 100);
}

#[test]
fn a_link_whose_peer_answers_no_more_costs_the_most() {
    let mut scene = Scene::new(|_, _| ());
    scene.start(&|_, _| Some(20));
    scene.run(120, &|id, _| (id == PEER).then_some(20));
    assert_eq!(scene.best(), (PEER, [10_000, BOUNDS_US.1]));
}

#[test]
fn a_reply_cannot_be_sent_before_its_request_nor_twice() {
    let mut scene = Scene::new(|_, _| ());
    let (_, conn) = scene.conns[1];
    // Nothing was asked for yet, or something else was.
    for token in 0..100 {
        assert_eq!(scene.reply(conn, token), Err(Error::EchoUnasked));
    }
    let sent = scene.stage.sent();
    let asked: VecDeque<_> = sent
        .iter()
        .filter(|(to, message)| *to == conn && matches!(message, Message::Echo(_)))
        .collect();
    assert!(asked.len() <= 1);
    scene.stage.wait(0);
    let token = scene
        .stage
        .sent()
        .iter()
        .chain(&sent)
        .find_map(|(to, message)| match message {
            Message::Echo(echo) if *to == conn => Some(echo.token),
            _ => None,
        });
    let token = token.expect("a request");
    assert_eq!(scene.reply(conn, token ^ 1), Err(Error::EchoUnasked));
    assert_eq!(scene.reply(conn, token), Ok(()));
    assert_eq!(scene.reply(conn, token), Err(Error::EchoUnasked));
    assert_eq!(scene.stage.node.stats().drops.get(Error::EchoUnasked), 102);
    assert_eq!(
        scene.delay(OTHER).unwrap().cost,
        None,
        "one round trip is too few"
    );
}

#[test]
fn a_flood_of_requests_is_answered_once_each_time_that_the_peer_reads() {
    let mut scene = Scene::new(|_, peer| peer.measure_latency = false);
    let (_, conn) = scene.conns[0];
    scene.stage.wait(0);
    scene.stage.sent();
    scene.stage.node.blocked(conn);
    for token in 0..10_000 {
        let echo = Echo {
            reply: false,
            token,
        };
        scene.stage.receive(conn, &Message::Echo(echo)).unwrap();
    }
    assert_eq!(scene.stage.sent(), []);
    let now = scene.stage.now;
    scene.stage.node.writable(now, conn);
    let last = Echo {
        reply: true,
        token: 9_999,
    };
    assert_eq!(scene.stage.sent(), [(conn, Message::Echo(last))]);
}

#[test]
fn a_configured_cost_wins() {
    let mut scene = Scene::new(|id, peer| {
        peer.measure_latency = id != OTHER;
        peer.link = Costs::uniform(Cost(5_000));
    });
    scene.start(&|id, _| {
        assert_ne!(id, OTHER, "it is not asked");
        Some(4)
    });
    assert_eq!(scene.best(), (PEER, [2_000, 5_000]));
    assert_eq!(scene.delay(OTHER), None);
    // The administrator configures the other link too, and takes it back.
    for (measured, cost, best) in [(false, 9_000, OTHER), (true, 9_000, PEER)] {
        let mut peer = PeerConfig::new(gateway(2, 1));
        peer.measure_latency = measured;
        peer.link = Costs::uniform(Cost(cost));
        let now = scene.stage.now;
        scene.stage.node.add_peer(now, PEER, peer).unwrap();
        scene.run(1, &|_, _| Some(4));
        let expected = if measured { 2_000 } else { cost };
        assert_eq!(scene.best(), (best, [expected, 5_000]));
        let before = scene.echoes;
        scene.run(20, &|_, _| Some(4));
        assert_eq!(scene.echoes > before, measured);
    }
}

#[test]
fn a_peer_of_an_older_release_is_not_asked() {
    let mut scene = Scene::new(|_, _| ());
    scene.start(&|_, _| Some(20));
    let (_, conn) = scene.conns[1];
    let mut config = PeerConfig::new(gateway(4, 1));
    config.measure_latency = true;
    let now = scene.stage.now;
    scene.stage.node.add_peer(now, PeerId(3), config).unwrap();
    let mut open = opening(PeerId(3));
    open.echo = false;
    let old = scene.stage.open(PeerId(3), open);
    scene.stage.end_of_tables(old);
    scene.stage.receive_route(old, PeerId(3));
    scene.run(60, &|_, _| Some(20));
    assert!(scene.conns.iter().any(|(_, of)| *of == conn));
    let mut routes = scene.stage.node.routes();
    let by = routes.find(|route| {
        route.table == latency() && route.peer == PeerId(3) && route.destination == gateway(9, 1)
    });
    assert_eq!(by.unwrap().route.cost, Cost(UNMEASURED_US));
    let nothing = LinkDelay {
        round_trip: None,
        cost: None,
    };
    assert_eq!(scene.delay(PeerId(3)), Some(nothing));
}

#[test]
fn a_cost_outlives_the_session() {
    let mut scene = Scene::new(|_, _| ());
    scene.start(&|id, _| Some(if id == PEER { 60 } else { 20 }));
    scene.changes.clear();
    let (_, conn) = scene.conns[1];
    let now = scene.stage.now;
    scene.stage.node.disconnected(now, conn);
    let again = scene.stage.open(OTHER, opening(OTHER));
    scene.stage.end_of_tables(again);
    scene.conns[1].1 = again;
    // The link is slower now, but its cost changed a moment ago.
    scene.start(&|id, _| Some(if id == PEER { 60 } else { 100 }));
    assert_eq!(scene.best(), (OTHER, [30_000, 10_000]));
    assert_eq!(scene.changes, []);
    scene.run(60, &|id, _| Some(if id == PEER { 60 } else { 100 }));
    assert_eq!(scene.best(), (PEER, [30_000, 50_000]));
}
