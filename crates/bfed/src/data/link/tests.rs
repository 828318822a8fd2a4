//! Turns and rates of links, without packets.

use super::*;
use crate::wire::class::{Class, Priority};

const NOW: Instant = Instant::from_secs(100);
const ONE: PeerId = PeerId(1);
const OTHER: PeerId = PeerId(2);

fn edge(index: u32) -> EdgeId {
    EdgeId {
        index,
        generation: 0,
    }
}

/// Links with one link to a peer of 1 Mbit/s, on which these sessions wait with an edge of the same number.
fn waiting(sessions: &[u32]) -> (Links, u32) {
    let mut links = Links::new();
    let at = links.add(NOW, ONE, 1_000_000);
    for &session in sessions {
        links.wait(at, session, edge(session));
    }
    (links, at)
}

/// Sends a packet of `len` bytes for each turn; the edges in the order of their packets.
fn turns(links: &mut Links, at: u32, len: impl Fn(EdgeId) -> usize, count: usize) -> Vec<u32> {
    let mut sent = Vec::new();
    while sent.len() < count {
        let id = links.turn(NOW, at).expect("one that waits");
        if links.afford(at, len(id)) {
            sent.push(id.index);
        }
    }
    sent
}

#[test]
fn a_link_counts_the_ages_of_frames_that_came_from_its_peer() {
    let mut links = Links::new();
    let [one, other] = [ONE, OTHER].map(|peer| links.add(NOW, peer, 0));
    let aged = |millis: u64, class| Timing {
        class,
        born: NOW - Duration::from_millis(millis),
    };
    let class = Class::new(Priority::Normal, Duration::from_millis(500));
    for millis in [5, 30, 30] {
        links.arrived(NOW, one, &aged(millis, class));
    }
    // Frames of the native network have no age, and those without a class do not tell it.
    links.arrived(NOW, 0, &aged(30, class));
    links.arrived(NOW, other, &aged(30, Class::NONE));
    let status: Vec<_> = links.status().collect();
    assert_eq!(status.len(), 2);
    assert_eq!((status[0].peer, status[0].edges), (ONE, 1));
    assert_eq!(status[0].ages.buckets[..4], [1, 0, 2, 0]);
    assert_eq!(status[0].ages.sum_us, 65_000);
    assert_eq!(status[1].ages, Ages::default());
    // A link whose last edge has gone is none any more, and begins anew.
    links.remove(one);
    assert_eq!(links.status().count(), 1);
    links.add(NOW, ONE, 0);
    assert!(links.status().all(|link| link.ages == Ages::default()));
}

#[test]
fn each_peer_has_a_link_and_its_index_is_used_again() {
    let mut links = Links::new();
    let (a, b) = (links.add(NOW, ONE, 0), links.add(NOW, OTHER, 0));
    assert!(a != b && a != 0 && b != 0);
    assert_eq!(links.add(NOW, ONE, 0), a, "all its edges share it");
    assert_eq!(
        (links.peer(a), links.peer(b), links.peer(0)),
        (Some(ONE), Some(OTHER), None)
    );
    links.remove(a);
    assert_eq!(links.peer(a), Some(ONE), "one edge is left");
    links.remove(a);
    assert_eq!(links.peer(a), None);
    // The native network stays what it is.
    links.remove(0);
    let third = PeerId(3);
    assert_eq!(links.add(NOW, third, 0), a, "a free index");
    assert_eq!((links.peer(a), links.peer(b)), (Some(third), Some(OTHER)));
    assert_eq!(links.peer(99), None);
}

#[test]
fn a_link_that_is_used_again_owes_nothing() {
    let mut links = Links::new();
    let at = links.add(NOW, ONE, 8000);
    links.sent(NOW, at, 100_000);
    assert!(links.next_send(at) > Some(NOW));
    links.remove(at);
    assert_eq!(links.add(NOW, OTHER, 8000), at);
    assert!(links.next_send(at) <= Some(NOW));
}

#[test]
fn a_link_carries_its_rate_after_a_burst_of_a_tenth_of_a_second() {
    let mut links = Links::new();
    // 1,000 bytes a second.
    let at = links.add(NOW, ONE, 8000);
    assert!(links.next_send(at) <= Some(NOW));
    links.sent(NOW, at, 100);
    assert_eq!(
        links.next_send(at),
        Some(NOW),
        "a tenth of a second's worth"
    );
    links.sent(NOW, at, 50);
    let millis = Duration::from_millis;
    assert_eq!(links.next_send(at), Some(NOW + millis(50)));
    // Time that was not used is not saved up.
    let later = NOW + millis(10_000);
    links.sent(later, at, 300);
    assert_eq!(links.next_send(at), Some(later + millis(200)));
    // Without a limit nothing is counted.
    let free = links.add(NOW, OTHER, 0);
    links.sent(NOW, free, 1_000_000);
    assert_eq!((links.next_send(free), links.next_send(0)), (None, None));
    assert!(links.is_bounded(at) && !links.is_bounded(free) && !links.is_bounded(0));
    assert!(links.is_unbounded(OTHER) && !links.is_unbounded(ONE));
    assert!(!links.is_unbounded(PeerId(9)), "there is no such link");
}

#[test]
fn nothing_is_sent_before_its_time() {
    let (mut links, at) = waiting(&[1]);
    assert_eq!(links.poll_timeout(), links.next_send(at));
    links.sent(NOW, at, 25_000);
    let due = NOW + Duration::from_millis(100);
    assert_eq!(links.poll_timeout(), Some(due));
    assert_eq!(links.turn(NOW, at), None);
    assert_eq!(links.turn(due - Duration::from_micros(1), at), None);
    assert_eq!(links.turn(due, at), Some(edge(1)));
    // A link on which nothing waits needs no timeout.
    links.leave(at, 1, edge(1));
    assert_eq!((links.poll_timeout(), links.busy(0)), (None, None));
    assert!(!links.is_waited_for(at));
}

#[test]
fn sessions_take_turns_by_bytes_not_by_packets() {
    let (mut links, at) = waiting(&[1, 2]);
    // 1,500 bytes a turn.
    let sent = turns(&mut links, at, |_| 1500, 6);
    assert_eq!(sent, [1, 2, 1, 2, 1, 2]);
    let (mut links, at) = waiting(&[1, 2]);
    let sent = turns(
        &mut links,
        at,
        |id| if id.index == 1 { 500 } else { 1500 },
        8,
    );
    assert_eq!(sent, [1, 1, 1, 2, 1, 1, 1, 2]);
    // A packet of three turns waits for three, and a session does not save up more than it needs.
    let (mut links, at) = waiting(&[1, 2]);
    let sent = turns(
        &mut links,
        at,
        |id| if id.index == 1 { 4500 } else { 1500 },
        8,
    );
    assert_eq!(sent, [2, 2, 1, 2, 2, 2, 1, 2]);
}

#[test]
fn what_is_left_of_a_turn_counts_for_the_next() {
    let (mut links, at) = waiting(&[1, 2]);
    let sent = turns(&mut links, at, |_| 1000, 6);
    // 1,500 bytes are one packet, 3,000 are three.
    assert_eq!(sent, [1, 2, 1, 1, 2, 2]);
}

#[test]
fn the_flows_of_a_session_share_its_turns() {
    let mut links = Links::new();
    let at = links.add(NOW, ONE, 1_000_000);
    for (session, id) in [(1, 11), (1, 12), (2, 21), (1, 13)] {
        links.wait(at, session, edge(id));
    }
    let sent = turns(&mut links, at, |_| 1500, 6);
    assert_eq!(sent, [11, 21, 12, 21, 13, 21]);
}

#[test]
fn an_edge_that_leaves_gives_its_turn_to_the_next() {
    let mut links = Links::new();
    let at = links.add(NOW, ONE, 1_000_000);
    for (session, id) in [(1, 11), (1, 12), (2, 21)] {
        links.wait(at, session, edge(id));
    }
    links.leave(at, 1, edge(11));
    assert!(links.is_waited_for(at));
    assert_eq!(turns(&mut links, at, |_| 1500, 3), [12, 21, 12]);
    links.leave(at, 1, edge(12));
    assert_eq!(turns(&mut links, at, |_| 1500, 2), [21, 21]);
    // What does not wait cannot leave.
    links.leave(at, 1, edge(12));
    links.leave(at, 2, edge(99));
    links.leave(99, 2, edge(21));
    assert_eq!(links.busy(0), Some(at));
    links.leave(at, 2, edge(21));
    assert_eq!((links.busy(0), links.turn(NOW, at)), (None, None));
    assert!(!links.afford(at, 1) && !links.afford(99, 1));
    // A session that waits again starts with a whole turn.
    links.wait(at, 2, edge(21));
    assert_eq!(turns(&mut links, at, |_| 1500, 1), [21]);
}

#[test]
fn a_link_without_a_limit_any_more_releases_what_waits() {
    let (mut links, at) = waiting(&[1, 2]);
    let free = links.add(NOW, OTHER, 1_000_000);
    links.wait(free, 3, edge(3));
    assert_eq!(links.set_rate(ONE, 2_000_000), [], "a limit still");
    assert!(links.is_waited_for(at));
    assert_eq!(links.set_rate(PeerId(9), 0), [], "no such link");
    assert_eq!(links.set_rate(ONE, 0), [edge(1), edge(2)]);
    assert!(!links.is_waited_for(at) && !links.is_bounded(at));
    assert_eq!(links.busy(0), Some(free), "the other waits on");
    assert_eq!(links.busy(free + 1), None);
    assert_eq!(links.set_rate(ONE, 0), []);
}
