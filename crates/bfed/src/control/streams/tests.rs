//! Turns, closing and deadlines of streams.

use super::*;
use crate::wire::notification::Reason;

const START: Instant = Instant::from_secs(100);

fn last() -> Notification {
    Notification::new(Reason::Shutdown, "")
}

fn peers(count: u64) -> Streams {
    let mut streams = Streams::default();
    for number in 1..=count {
        streams.insert(ConnId(number), StreamOwner::Peer(PeerId(number as u32)));
    }
    streams
}

#[test]
fn streams_with_messages_take_turns() {
    let mut streams = peers(3);
    assert!(!streams.is_ready());
    assert_eq!(streams.next_ready(), None);
    for number in 1..=3 {
        streams.wake(ConnId(number));
    }
    let next: Vec<_> = (0..5).filter_map(|_| streams.next_ready()).collect();
    assert_eq!(next, [1, 2, 3, 1, 2].map(ConnId));
    streams.sleep(ConnId(3));
    assert_eq!(streams.next_ready(), Some(ConnId(1)));
    streams.sleep(ConnId(1));
    streams.sleep(ConnId(2));
    assert!(!streams.is_ready());
    assert_eq!(streams.next_ready(), None);
    // The turn is not lost while nothing waits.
    streams.wake(ConnId(1));
    streams.wake(ConnId(2));
    assert_eq!(streams.next_ready(), Some(ConnId(2)));
}

#[test]
fn unknown_streams_are_never_ready() {
    let mut streams = peers(1);
    streams.wake(ConnId(2));
    assert!(!streams.is_ready());
    streams.wake(ConnId(1));
    let owner = streams.remove(ConnId(1));
    assert_eq!(owner, Some(StreamOwner::Peer(PeerId(1))));
    assert!(!streams.is_ready());
    assert_eq!(streams.owner(ConnId(1)), None);
    assert_eq!(streams.remove(ConnId(1)), None);
}

#[test]
fn a_closing_stream_has_a_second_for_its_last_message() {
    let mut streams = Streams::default();
    streams.close(START, ConnId(1), last());
    assert!(streams.is_ready());
    let until = START + Duration::from_secs(1);
    assert_eq!(streams.poll_timeout(), Some(until));
    assert_eq!(streams.poll_expired(until - Duration::from_micros(1)), None);
    // A stream that was blocked is woken for it.
    streams.sleep(ConnId(1));
    streams.wake(ConnId(1));
    assert!(streams.is_ready());
    assert_eq!(streams.poll_expired(until), Some(ConnId(1)));
    assert_eq!(streams.poll_expired(until), None);
    assert!(!streams.is_ready());
    assert_eq!(streams.poll_timeout(), None);
    streams.close(START, ConnId(1), last());
    assert_eq!(
        streams.take_last(ConnId(1)),
        Some(Message::Notification(last()))
    );
    assert_eq!(streams.take_last(ConnId(1)), None);
    assert_eq!(streams.poll_timeout(), None);
}

#[test]
fn a_data_node_registers_in_time_or_is_closed() {
    let mut streams = peers(1);
    assert_eq!(streams.poll_timeout(), None);
    let identity = NodeIdentity::default();
    for (number, seconds) in [(2, 10), (3, 5)] {
        let until = START + Duration::from_secs(seconds);
        streams.insert(ConnId(number), StreamOwner::Unregistered(identity, until));
    }
    let first = START + Duration::from_secs(5);
    assert_eq!(streams.poll_timeout(), Some(first));
    assert_eq!(streams.poll_expired(first - Duration::from_micros(1)), None);
    assert_eq!(streams.poll_expired(first), Some(ConnId(3)));
    assert_eq!(streams.poll_expired(first), None);
    streams.insert(ConnId(2), StreamOwner::Node(NodeId(1)));
    assert_eq!(streams.poll_expired(START + Duration::from_secs(99)), None);
    assert_eq!(streams.owner(ConnId(2)), Some(StreamOwner::Node(NodeId(1))));
}

#[test]
fn all_streams_can_be_taken_away() {
    let mut streams = peers(2);
    streams.wake(ConnId(1));
    streams.close(START, ConnId(9), last());
    let owner = |number| Some(StreamOwner::Peer(PeerId(number)));
    let all = streams.drain();
    assert_eq!(
        all,
        [
            (ConnId(9), None),
            (ConnId(1), owner(1)),
            (ConnId(2), owner(2))
        ]
    );
    assert!(!streams.is_ready());
    assert_eq!(
        (streams.owner(ConnId(1)), streams.poll_timeout()),
        (None, None)
    );
}
