#![cfg(feature = "alloc")]

use alloc::vec::Vec;

use super::*;
use crate::SessionId;
use crate::wire::report::{ReportAck, Verdict};

fn ack(host: u8, tag: u16, verdict: Verdict) -> Answer {
    Answer::Ack {
        to: ([10, 0, 0, host], 1_000 + tag).into(),
        ack: ReportAck {
            verdict,
            tag,
            session: SessionId(1),
            receiver: 1,
            token: 1,
        },
    }
}

fn noted(host: u8, tag: u16) -> Answer {
    ack(host, tag, Verdict::Noted)
}

fn token(host: u8, tag: u16) -> Answer {
    ack(host, tag, Verdict::Token)
}

/// A queue to which each host has sent that many, all of the first one first.
fn filled(counts: &[(u8, u16)], answer: fn(u8, u16) -> Answer) -> AnswerQueue {
    let mut queue = AnswerQueue::default();
    for &(host, count) in counts {
        for tag in 0..count {
            assert_eq!(queue.push(answer(host, tag)), Pushed::Waits);
        }
    }
    queue
}

/// The last bytes of the addresses and the tags, in the order in which they are answered.
fn order(mut queue: AnswerQueue) -> Vec<(u8, u16)> {
    let mut order = Vec::new();
    while let Some(answer) = queue.pop() {
        let (Answer::Ack { ack, .. }, Some(IpAddr::V4(host))) = (answer, answer.host()) else {
            panic!("{answer:?}");
        };
        order.push((host.octets()[3], ack.tag));
    }
    assert!(queue.is_empty());
    order
}

#[test]
fn one_host_may_use_the_whole_queue_and_is_answered_in_its_order() {
    let mut queue = filled(&[(1, 32)], noted);
    assert_eq!(queue.push(noted(1, 32)), Pushed::Refused);
    let all: Vec<_> = (0..32).map(|tag| (1, tag)).collect();
    assert_eq!(order(queue), all);
}

#[test]
fn hosts_take_turns() {
    let queue = filled(&[(1, 4), (2, 2), (3, 1)], noted);
    let turns = [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (3, 0), (1, 3)];
    assert_eq!(order(queue), turns);
}

#[test]
fn in_a_full_queue_the_busiest_host_gives_way_with_its_newest() {
    let mut queue = filled(&[(1, 30), (2, 2)], noted);
    assert_eq!(queue.push(noted(3, 0)), Pushed::Replaces);
    assert_eq!(queue.push(noted(2, 2)), Pushed::Replaces);
    assert_eq!(queue.push(noted(1, 30)), Pushed::Refused);
    let order = order(queue);
    let of = |host| order.iter().filter(move |(to, _)| *to == host);
    assert_eq!((of(1).count(), of(2).count(), of(3).count()), (28, 3, 1));
    assert_eq!(of(1).map(|(_, tag)| tag).max(), Some(&27));
    // Where all have the same, none gives way.
    let mut queue = filled(&[(1, 16), (2, 16)], noted);
    assert_eq!(queue.push(noted(2, 16)), Pushed::Refused);
    assert_eq!(queue.push(noted(3, 0)), Pushed::Replaces);
    let hosts: Vec<_> = (1..=32).map(|host| (host, 1)).collect();
    let mut queue = filled(&hosts, noted);
    assert_eq!(queue.push(noted(40, 0)), Pushed::Refused);
}

#[test]
fn answers_to_forged_addresses_give_way_to_all_others_and_nothing_to_them() {
    let hosts: Vec<_> = (1..=32).map(|host| (host, 1)).collect();
    let mut queue = filled(&hosts, token);
    assert_eq!(queue.push(noted(1, 7)), Pushed::Replaces);
    assert_eq!(queue.push(noted(1, 8)), Pushed::Replaces);
    assert_eq!(queue.push(token(40, 0)), Pushed::Refused);
    let order = order(queue);
    assert_eq!(order.len(), 32);
    assert!(order.contains(&(1, 7)) && order.contains(&(1, 8)));
    let mut queue = filled(&[(1, 31)], noted);
    assert_eq!(queue.push(token(2, 0)), Pushed::Waits);
    assert_eq!(queue.push(token(3, 0)), Pushed::Refused);
    // A SYNC needs no proof of the address, either.
    let sync = |host, nonce: u16| Answer::Sync {
        to: ([10, 0, 0, host], 1_000).into(),
        nonce: nonce.into(),
    };
    let mut queue = filled(&hosts, sync);
    assert_eq!(queue.push(noted(50, 0)), Pushed::Replaces);
    assert_eq!(queue.push(sync(51, 0)), Pushed::Refused);
    // Among tokens the busiest host gives way, too.
    let mut queue = filled(&[(1, 32)], token);
    assert_eq!(queue.push(token(2, 0)), Pushed::Replaces);
}
