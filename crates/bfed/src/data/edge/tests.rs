//! The queue of an edge.

use alloc::sync::Arc;
use alloc::vec;

use super::*;
use crate::wire::fragment::Repr as Fragment;

const START: Instant = Instant::from_secs(100);

fn edge() -> Edge {
    Edge::new(0, false, Carrier::Native(ChannelId(1)))
}

fn config() -> PlaneConfig {
    PlaneConfig {
        max_queue_bytes: 1000,
        ..PlaneConfig::default()
    }
}

fn push(edge: &mut Edge, content: Content, bytes: &[u8]) -> u64 {
    push_at(edge, START, content, (Kind::Data, bytes.into()))
}

fn push_at(edge: &mut Edge, now: Instant, content: Content, frame: (Kind, Arc<[u8]>)) -> u64 {
    let expires = match content {
        Content::RealTime => Some(now + Duration::from_millis(500)),
        Content::Bulk => None,
    };
    let packet = Waiting::new(now, Timing::now(now), expires, frame);
    edge.push(now, packet, content, &config())
}

/// Queues a fragment of 100 bytes of a frame.
fn fragment(edge: &mut Edge, frame: u32, index: u8) -> u64 {
    let mut bytes = vec![0; 100];
    Fragment {
        frame,
        index,
        count: 10,
    }
    .emit(&mut bytes);
    let frame = (Kind::Fragment, bytes.into());
    push_at(edge, START, Content::RealTime, frame)
}

#[test]
fn a_queue_holds_as_much_as_it_may_and_drops_the_oldest() {
    let mut edge = edge();
    assert_eq!((edge.waits(), edge.front_len()), (false, None));
    for _ in 0..10 {
        assert_eq!(push(&mut edge, Content::RealTime, &[0; 100]), 0);
    }
    assert_eq!((edge.waits(), edge.front_len()), (true, Some(100)));
    assert_eq!(push(&mut edge, Content::RealTime, &[1; 250]), 3);
    // A frame that is longer than the queue is queued alone.
    assert_eq!(push(&mut edge, Content::RealTime, &[2; 3000]), 8);
    assert_eq!(edge.front_len(), Some(3000));
    assert_eq!(push(&mut edge, Content::RealTime, &[3; 1000]), 1);
    let frame = edge.pop().expect("the last");
    assert_eq!(
        (frame.payload.kind, &frame.payload.bytes[..]),
        (Kind::Data, &[3; 1000][..])
    );
    assert!(!edge.waits() && edge.pop().is_none());
    // The count of bytes is right after all that.
    assert_eq!(push(&mut edge, Content::RealTime, &[0; 1000]), 0);
    assert_eq!(edge.clear(), 1);
    assert!(!edge.waits());
    assert_eq!(push(&mut edge, Content::RealTime, &[0; 1000]), 0);
}

#[test]
fn a_frame_in_fragments_is_dropped_whole() {
    let mut edge = edge();
    for index in 0..3 {
        fragment(&mut edge, 7, index);
    }
    for index in 0..7 {
        assert_eq!(fragment(&mut edge, 8, index), 0);
    }
    assert_eq!(fragment(&mut edge, 8, 7), 3, "all of the oldest frame");
    // Data whose bytes look like a fragment's are frames of their own.
    let mut edge = Edge::new(0, false, Carrier::Native(ChannelId(1)));
    let mut bytes = vec![0; 100];
    Fragment {
        frame: 7,
        index: 0,
        count: 10,
    }
    .emit(&mut bytes);
    for _ in 0..10 {
        push(&mut edge, Content::RealTime, &bytes);
    }
    assert_eq!(push(&mut edge, Content::RealTime, &bytes), 1);
}

#[test]
fn a_bulk_queue_is_full_when_more_than_half_of_it_waits() {
    let mut edge = edge();
    let timeout = Duration::from_secs(10);
    for _ in 0..5 {
        push(&mut edge, Content::Bulk, &[0; 100]);
    }
    assert!(!edge.is_full(&config()));
    assert_eq!(edge.stalls_at(timeout), None);
    push(&mut edge, Content::Bulk, &[0]);
    assert!(edge.is_full(&config()));
    assert_eq!(edge.stalls_at(timeout), Some(START + timeout));
    // Later frames do not move that time.
    let frame = (Kind::Data, [0].into());
    push_at(&mut edge, START + timeout, Content::Bulk, frame);
    assert_eq!(edge.stalls_at(timeout), Some(START + timeout));
    // A receiver of real-time data is never stalled.
    let mut edge = Edge::new(0, false, Carrier::Native(ChannelId(1)));
    push(&mut edge, Content::RealTime, &[0; 900]);
    assert_eq!(edge.stalls_at(timeout), None);
}

#[test]
fn frames_that_waited_too_long_are_dropped() {
    let mut edge = edge();
    let millis = Duration::from_millis;
    for time in 0..4 {
        let frame = (Kind::Data, [time as u8].into());
        push_at(&mut edge, START + millis(time), Content::RealTime, frame);
    }
    let late = |edge: &mut Edge, after| edge.drop_late(START + millis(after), Duration::ZERO).late;
    assert_eq!(late(&mut edge, 500), 0);
    assert_eq!(late(&mut edge, 502), 2);
    assert!(edge.waits());
    assert_eq!(late(&mut edge, 504), 2);
    assert!(!edge.waits());
}

#[test]
fn an_edge_is_open_if_it_has_something_and_may_send_it() {
    let mut edge = edge();
    assert!(!edge.is_open(), "nothing waits");
    push(&mut edge, Content::Bulk, &[0]);
    assert!(edge.is_open());
    edge.blocked = true;
    assert!(!edge.is_open());
    (edge.blocked, edge.unproved) = (false, true);
    assert!(!edge.is_open());
    (edge.unproved, edge.to) = (false, None);
    assert!(!edge.is_open());
}
