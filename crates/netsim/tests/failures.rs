//! Links and nodes that fail and come back, and timers around them.

mod common;

use common::{Listener, Talker};
use netsim::{Duration, Hub, Instant, Io, LinkConfig, Node, Port, Sim};

const MS: fn(i64) -> Instant = Instant::from_millis;

fn pair(link: LinkConfig) -> (Sim, netsim::NodeId, netsim::LinkId) {
    let mut sim: Sim = Sim::new([1; 32]);
    let talker = sim.add_node(Box::new(Talker::new(10, 8, Duration::from_millis(10))));
    let listener = sim.add_node_with(|_| Box::new(Listener::default()));
    let link = sim.add_link(talker, listener, link);
    (sim, listener, link)
}

#[test]
fn a_failed_link_loses_what_is_on_it_and_works_again_later() {
    // Sent at 0, 10 ... 90 ms, 15 ms on the way; down from 42 to 62 ms: 30 and 40 are on the wire,
    // 50 and 60 find it down.
    let (mut sim, listener, link) = pair(LinkConfig::new().delay(Duration::from_millis(15)));
    sim.fail_link(MS(42), link);
    sim.restore_link(MS(62), link);
    sim.run_to_rest();
    assert_eq!(sim.get::<Listener>(listener).numbers(), [0, 1, 2, 7, 8, 9]);
    let [there, back] = sim.link_stats(link);
    assert_eq!((there.link_down, there.delivered, back.sent), (4, 6, 0));
}

/// However often a link fails while a packet is on it, the packet does not arrive.
#[test]
fn a_packet_outlives_no_number_of_failures() {
    for failures in [1, 255, 256, 257, 512] {
        let (mut sim, listener, link) = pair(LinkConfig::new().delay(Duration::from_secs(5)));
        for number in 0..failures {
            sim.fail_link(MS(200 + 2 * number), link);
            sim.restore_link(MS(201 + 2 * number), link);
        }
        sim.run_to_rest();
        assert_eq!(sim.get::<Listener>(listener).numbers(), [0; 0]);
        let [there, _] = sim.link_stats(link);
        assert_eq!(
            (there.sent, there.link_down),
            (10, 10),
            "{failures} failures"
        );
        assert_eq!(sim.pending(), (0, 0));
    }
}

#[test]
fn a_failed_link_forgets_its_queue() {
    // 8 bytes at 640 bit/s take 100 ms: all wait; after the failure nothing does.
    let (mut sim, listener, link) = pair(LinkConfig::new().rate_bps(640));
    sim.fail_link(MS(150), link);
    sim.restore_link(MS(160), link);
    sim.run_until(MS(200));
    sim.with::<Talker, _>(netsim::NodeId(0), |_, _, io| io.send(Port(0), &[0; 8]));
    sim.run_to_rest();
    let heard: Vec<u64> = sim
        .get::<Listener>(listener)
        .heard
        .iter()
        .map(|h| h.0)
        .collect();
    assert_eq!(heard, [100_000_000, 300_000_000]);
}

#[test]
fn a_node_that_died_comes_back_empty() {
    let (mut sim, listener, _) = pair(LinkConfig::new());
    sim.fail_node(MS(25), listener);
    sim.restore_node(MS(55), listener);
    sim.run_until(MS(50));
    assert!(sim.node(listener).is_none());
    assert_eq!(sim.stats().dead_node, 3);
    sim.run_to_rest();
    assert_eq!(sim.get::<Listener>(listener).numbers(), [6, 7, 8, 9]);
}

#[test]
#[should_panic(expected = "without a way to make it again")]
fn a_node_without_a_maker_is_not_restored() {
    let (mut sim, _, _) = pair(LinkConfig::new());
    sim.restore_node(MS(1), netsim::NodeId(0));
}

/// Wants a timeout each time at `wish`, and notes when it came.
struct Wishes {
    wish: Option<Instant>,
    came: Vec<Instant>,
}

impl Node for Wishes {
    fn handle_packet(&mut self, now: Instant, _port: Port, packet: &[u8], _io: &mut Io<'_>) {
        self.wish = Some(now + Duration::from_millis(u64::from(packet[0])));
    }
    fn handle_timeout(&mut self, now: Instant, _io: &mut Io<'_>) {
        self.came.push(now);
        self.wish = None;
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.wish
    }
}

#[test]
fn timers_follow_the_last_wish() {
    let mut sim: Sim = Sim::new([1; 32]);
    let node = sim.add_node(Box::new(Wishes {
        wish: None,
        came: vec![],
    }));
    let wish = |sim: &mut Sim, at: Option<i64>| {
        sim.with::<Wishes, _>(node, |node, _, _| node.wish = at.map(MS));
    };
    wish(&mut sim, Some(50));
    wish(&mut sim, Some(20)); // earlier
    wish(&mut sim, Some(30)); // later
    sim.run_until(MS(40));
    wish(&mut sim, Some(45));
    wish(&mut sim, None); // withdrawn
    sim.run_until(MS(60));
    wish(&mut sim, Some(10)); // past: at once
    sim.run_until(MS(100));
    assert_eq!(sim.get::<Wishes>(node).came, [MS(30), MS(60)]);
    assert_eq!(sim.stats().timeouts, 2);
}

#[test]
fn a_dead_node_keeps_no_timer() {
    let mut sim: Sim = Sim::new([1; 32]);
    let make = |now: Instant| -> Box<dyn Node> {
        Box::new(Wishes {
            wish: Some(now + Duration::from_millis(10)),
            came: vec![],
        })
    };
    let node = sim.add_node_with(make);
    sim.fail_node(MS(5), node);
    sim.restore_node(MS(7), node);
    sim.run_to_rest();
    assert_eq!(sim.get::<Wishes>(node).came, [MS(17)]);
}

#[test]
fn a_hub_repeats_to_all_others() {
    let mut sim: Sim = Sim::new([1; 32]);
    let hub = sim.add_node(Box::new(Hub));
    let talker = sim.add_node(Box::new(Talker::new(2, 8, Duration::from_millis(1))));
    sim.add_link(hub, talker, LinkConfig::new());
    let listeners = [0; 3].map(|_| {
        let listener = sim.add_node(Box::new(Listener::default()));
        sim.add_link(hub, listener, LinkConfig::new());
        listener
    });
    sim.run_to_rest();
    for listener in listeners {
        assert_eq!(sim.get::<Listener>(listener).numbers(), [0, 1]);
    }
    assert_eq!(sim.pending(), (0, 0));
}

#[test]
fn a_node_can_stop_the_run() {
    struct Stopper;
    impl Node for Stopper {
        fn handle_packet(&mut self, _now: Instant, _port: Port, packet: &[u8], io: &mut Io<'_>) {
            if packet[7] == 3 {
                io.stop();
            }
        }
    }
    let mut sim: Sim = Sim::new([1; 32]);
    let talker = sim.add_node(Box::new(Talker::new(10, 8, Duration::from_millis(10))));
    let stopper = sim.add_node(Box::new(Stopper));
    sim.add_link(talker, stopper, LinkConfig::new());
    assert!(sim.run_until(MS(1000)));
    assert_eq!(sim.now(), MS(30));
    assert!(!sim.run_until(MS(1000)));
    assert_eq!(sim.now(), MS(1000));
}
