//! Parents and children: parents that fail, drain, or are below their child.

use dyram::{AttachmentEvent, Duration, Event, Instant, RelayId};
use netsim::{LinkConfig, NodeId};

use super::nodes::{RelayNode, World, address, key};

fn wire() -> LinkConfig {
    LinkConfig::new().delay(Duration::from_millis(2))
}

/// A root, two relays below it, a relay below the first (the second is its second parent), and two
/// receivers below that.
fn with_two_parents(packets: u32) -> (World, [NodeId; 4]) {
    let [root, first, second, low] = [1, 2, 3, 4].map(NodeId);
    let mut world = World::new(5, packets, &[root]);
    world.relay(&[], |_| {});
    world.link(NodeId(0), root, wire());
    for node in [first, second] {
        assert_eq!(world.relay(&[root], |_| {}), node);
        world.link(root, node, wire());
    }
    assert_eq!(world.relay(&[first, second], |_| {}), low);
    world.link(first, low, wire());
    world.link(second, low, wire());
    for _ in 0..2 {
        let receiver = world.receiver(&[low]);
        world.link(low, receiver, wire());
    }
    // The first and the second relay keep a child each: both see all the data.
    for relay in [first, second] {
        let receiver = world.receiver(&[relay]);
        world.link(relay, receiver, wire());
    }
    (world, [root, first, second, low])
}

#[test]
fn a_parent_that_dies_is_replaced_and_nothing_is_lost() {
    let (mut world, [_, first, second, low]) = with_two_parents(8_000);
    world.sim.fail_node(Instant::from_secs(3), first);
    world.run(20);
    let events = &world.relay_at(low).events;
    let lost = events.contains(&Event::ParentLost(key(), address(first)));
    let found = events.contains(&Event::Attached(key(), address(second)));
    assert!(lost && found, "{events:?}");
    // Only the receiver below the dead relay is cut off: it has no second one.
    assert_eq!(world.complete(), 3);
}

#[test]
fn parents_that_do_not_answer_are_reported_once() {
    let (mut world, [_, first, second, low]) = with_two_parents(8_000);
    for dead in [first, second] {
        world.sim.fail_node(Instant::from_secs(3), dead);
    }
    world.run(60);
    let events = &world.relay_at(low).events;
    let unanswered = events
        .iter()
        .filter(|event| matches!(event, Event::Unanswered(..)));
    assert_eq!(unanswered.count(), 1, "{events:?}");
    // A relay whose parents answer reports nothing.
    let (mut world, [.., low]) = with_two_parents(8_000);
    world.run(20);
    let events = &world.relay_at(low).events;
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, Event::Unanswered(..)))
    );
}

#[test]
fn a_relay_that_drains_sends_its_children_on() {
    let (mut world, [_, first, second, low]) = with_two_parents(8_000);
    world.run(3);
    world
        .sim
        .with::<RelayNode, _>(first, |node, now, _| node.relay.drain(now));
    world.run(4);
    let events = &world.relay_at(low).events;
    assert!(
        events.contains(&Event::Attached(key(), address(second))),
        "{events:?}"
    );
    assert_eq!(world.relay_at(first).relay.children(&key()).count(), 1);
    world.run(20);
    // The one that knows no other relay is served while this one lives.
    assert_eq!(world.complete(), 4);
}

#[test]
fn receivers_turn_to_their_second_relay() {
    let [root, first, second] = [1, 2, 3].map(NodeId);
    let mut world = World::new(6, 6_000, &[root]);
    world.relay(&[], |_| {});
    world.link(NodeId(0), root, wire());
    for node in [first, second] {
        world.relay(&[root], |_| {});
        world.link(root, node, wire());
    }
    let other = world.receiver(&[second]);
    world.link(second, other, wire());
    let receiver = world.receiver(&[first, second]);
    world.link(first, receiver, wire());
    world.link(second, receiver, wire());
    world.sim.fail_node(Instant::from_secs(2), first);
    world.run(20);
    assert_eq!(world.complete(), 2);
    let events = &world.receiver_at(receiver).events;
    assert_eq!(
        events[..],
        [
            AttachmentEvent::Attached(address(first)),
            AttachmentEvent::Lost(address(first)),
            AttachmentEvent::Attached(address(second)),
        ]
    );
}

#[test]
fn relays_in_a_circle_are_found_and_named() {
    let [one, two] = [1, 2].map(NodeId);
    let mut world = World::new(7, 10, &[]);
    world.relay(&[two], |_| {});
    world.relay(&[one], |_| {});
    world.link(one, two, wire());
    for relay in [one, two] {
        let receiver = world.receiver(&[relay]);
        world.link(relay, receiver, wire());
    }
    world.run(30);
    let named = |node, other: u32| {
        let events = &world.relay_at(node).events;
        events.contains(&Event::Loop(key(), RelayId(other + 1)))
    };
    assert!(named(one, 2) || named(two, 1));
    // They ask for each other again and again, ever more slowly.
    let joins: u64 = [one, two]
        .map(|node| world.relay_at(node).relay.stats().joined)
        .iter()
        .sum();
    assert!(joins < 40, "{joins}");
}

#[test]
fn children_that_fall_silent_are_removed_and_sessions_end() {
    let root = NodeId(1);
    let mut world = World::new(8, 100, &[root]);
    world.relay(&[], |_| {});
    world.link(NodeId(0), root, wire());
    let receiver = world.receiver(&[root]);
    world.link(root, receiver, wire());
    world.run(3);
    assert_eq!(world.relay_at(root).relay.sessions().count(), 1);
    world.sim.fail_node(Instant::from_secs(3), receiver);
    world.sim.fail_node(Instant::from_secs(4), NodeId(0));
    world.run(30);
    let events = &world.relay_at(root).events;
    assert!(
        events.contains(&Event::ChildGone(key(), address(receiver))),
        "{events:?}"
    );
    assert!(events.contains(&Event::SourceLost(key())), "{events:?}");
    assert!(events.contains(&Event::Closed(key())), "{events:?}");
    assert_eq!(world.relay_at(root).relay.sessions().count(), 0);
    assert_eq!(
        world.relay_at(root).relay.poll_timeout(),
        None,
        "nothing to do, no timer"
    );
}

#[test]
fn a_relay_that_drains_sends_the_source_on_after_its_children() {
    let [first, second] = [1, 2].map(NodeId);
    let mut world = World::new(9, 6_000, &[first, second]);
    for node in [first, second] {
        world.relay(&[], |_| {});
        world.link(NodeId(0), node, wire());
    }
    for _ in 0..2 {
        let receiver = world.receiver(&[first, second]);
        world.link(first, receiver, wire());
        world.link(second, receiver, wire());
    }
    world.run(2);
    world
        .sim
        .with::<RelayNode, _>(first, |node, now, _| node.relay.drain(now));
    world.run(3);
    assert!(world.relay_at(first).relay.is_drained());
    let sessions: Vec<_> = world.relay_at(second).relay.sessions().collect();
    assert_eq!(sessions[0].above, Some(address(NodeId(0))));
    assert_eq!(sessions[0].children, 2);
    world.run_to_end(20);
    assert_eq!(world.complete(), 2);
    let events = &world.relay_at(first).events;
    let gone = |event: &Event| matches!(event, Event::ChildGone(..));
    let last_child = events.iter().rposition(gone);
    let source = events
        .iter()
        .position(|event| *event == Event::SourceLost(key()));
    assert!(last_child.is_some() && last_child < source, "{events:?}");
}

/// A source with a single relay is refused at its next JOIN, and asks again later.
#[test]
fn a_drained_relay_does_not_take_the_source_in_again() {
    let only = NodeId(1);
    let mut world = World::new(10, 1_000, &[only]);
    world.relay(&[], |_| {});
    world.link(NodeId(0), only, wire());
    world.run(1);
    world
        .sim
        .with::<RelayNode, _>(only, |node, now, _| node.relay.drain(now));
    world.run(6);
    assert!(world.relay_at(only).relay.is_drained());
    assert_eq!(world.source().attachment.relay(), None);
}
