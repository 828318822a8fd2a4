//! The stream to the control node, without sessions.

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::types::NodeId;
use crate::wire::MAX_MESSAGE_LEN;

const START: Instant = Instant::from_secs(100);
const INTERVAL: Duration = Duration::from_millis(250);

fn config() -> DataConfig {
    DataConfig {
        max_sessions: 77,
        ..DataConfig::new(NodeId(3))
    }
}

fn connected() -> ControlLink {
    let mut link = ControlLink::new(5, START);
    link.connected(START, &config());
    link
}

fn sent(link: &mut ControlLink) -> Vec<Message> {
    let mut buffer = vec![0; MAX_MESSAGE_LEN];
    let mut sent = Vec::new();
    while let Some(len) = link.poll_transmit(&mut buffer) {
        sent.push(Message::parse(&buffer[..len]).expect("a message"));
    }
    sent
}

#[test]
fn each_stream_begins_with_a_registration() {
    let mut link = ControlLink::new(5, START);
    assert!(!link.is_up() && !link.is_ready());
    let registration = |epoch| {
        Message::Register(Register {
            node: NodeId(3),
            boot: 5,
            max_sessions: 77,
            epoch,
        })
    };
    link.connected(START, &config());
    assert!(link.is_up() && link.is_ready());
    assert_eq!(sent(&mut link), [registration(0)]);
    assert!(!link.is_ready());
    // What waits for an old stream is not for the next; the term that was obeyed is told.
    link.received(START, 4).expect("a control node");
    assert!(!link.send(Message::KeepAlive, 10));
    link.disconnected();
    assert!(!link.is_up() && !link.is_ready());
    assert!(!link.send(Message::KeepAlive, 10), "it is not queued");
    link.connected(START, &config());
    assert_eq!(sent(&mut link), [registration(4)]);
}

#[test]
fn an_older_control_node_is_refused_and_is_no_sign_of_life() {
    let mut link = connected();
    let later = START + INTERVAL;
    assert_eq!(link.received(START, 4), Ok(()));
    assert_eq!(link.received(later, 3), Err(DataError::Fenced));
    assert!(link.is_lost(START + INTERVAL * 4, INTERVAL));
    assert_eq!(link.received(later, 4), Ok(()));
    assert!(!link.is_lost(START + INTERVAL * 4, INTERVAL));
    assert!(link.is_lost(later + INTERVAL * 4, INTERVAL));
}

#[test]
fn a_new_stream_has_its_full_time() {
    let mut link = connected();
    let later = START + INTERVAL * 100;
    assert!(link.is_lost(later, INTERVAL));
    link.connected(later, &config());
    assert!(!link.is_lost(later + INTERVAL * 3, INTERVAL));
}

#[test]
fn heartbeats_are_numbered_and_an_interval_apart() {
    let mut link = connected();
    let heartbeat = |sequence, epoch, draining| {
        Some(Message::Heartbeat(Heartbeat {
            epoch,
            sequence,
            draining,
            complete: false,
        }))
    };
    assert_eq!(link.poll_timeout(INTERVAL), START);
    assert_eq!(link.poll_heartbeat(START, INTERVAL), heartbeat(1, 0, false));
    assert_eq!(link.poll_heartbeat(START, INTERVAL), None);
    assert_eq!(link.poll_timeout(INTERVAL), START + INTERVAL);
    let early = START + INTERVAL - Duration::from_micros(1);
    assert_eq!(link.poll_heartbeat(early, INTERVAL), None);
    link.received(START, 9).expect("a control node");
    let now = START + INTERVAL;
    assert_eq!(link.poll_heartbeat(now, INTERVAL), heartbeat(2, 9, false));
    // That it wants no more sessions cannot wait.
    link.drain(now);
    assert_eq!(link.poll_heartbeat(now, INTERVAL), heartbeat(3, 9, true));
    // The stream is lost before the next heartbeat is due.
    assert_eq!(link.poll_timeout(INTERVAL), now + INTERVAL);
    assert_eq!(
        link.poll_timeout(Duration::from_millis(50)),
        START + Duration::from_millis(200)
    );
}

#[test]
fn a_control_node_that_reads_nothing_loses_the_stream() {
    let mut link = connected();
    sent(&mut link);
    for _ in 0..10 {
        assert!(!link.send(Message::KeepAlive, 10));
    }
    assert!(link.is_up());
    assert!(link.send(Message::KeepAlive, 10));
    assert!(!link.is_up());
    assert_eq!(sent(&mut link), []);
}

#[test]
fn a_blocked_stream_is_up_and_not_ready() {
    let mut link = connected();
    link.set_blocked(true);
    assert!(link.is_up() && !link.is_ready());
    link.set_blocked(false);
    assert!(link.is_ready());
    // A stream that has ended does not come back by that.
    link.disconnected();
    link.set_blocked(false);
    assert!(!link.is_up());
    link.set_blocked(true);
    assert!(!link.is_up());
}

#[test]
fn a_message_waits_for_a_buffer_with_room() {
    let mut link = connected();
    let len = link.queue[0].buffer_len();
    assert_eq!(link.poll_transmit(&mut vec![0; len - 1]), None);
    assert!(link.is_ready());
    assert_eq!(link.poll_transmit(&mut vec![0; len]), Some(len));
    assert!(!link.is_ready());
}
