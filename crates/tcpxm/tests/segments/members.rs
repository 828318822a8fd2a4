//! Members of a group: how long the sender waits for them, and how one of them leaves.

use std::net::IpAddr;

use tcpxm::wire::{Feedback, GroupOption, Options};
use tcpxm::{ConnId, Duration, Event, Failure, State};

use crate::group::{HandGroup, accepts, from_receiver};
use crate::hand::*;

fn receiver(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

fn wait(group: &mut HandGroup, ms: u64) {
    group.now += Duration::from_millis(ms);
    group.endpoint.handle_timeout(group.now);
}

fn events(group: &mut HandGroup) -> Vec<Event> {
    std::iter::from_fn(|| group.endpoint.poll_event()).collect()
}

/// How connections have ended.
fn failures(group: &mut HandGroup) -> Vec<(IpAddr, Option<Failure>)> {
    let ended = |event| match event {
        Event::Closed {
            remote, failure, ..
        } => Some((remote.ip(), failure)),
        _ => None,
    };
    events(group).into_iter().filter_map(ended).collect()
}

fn member(group: &HandGroup, number: u8) -> ConnId {
    let mut members = group.endpoint.members(group.id).unwrap();
    members.nth(usize::from(number) - 1).unwrap()
}

fn state(group: &HandGroup, number: u8) -> State {
    group
        .endpoint
        .conn_stats(member(group, number))
        .unwrap()
        .state
}

/// An acknowledgement of this many bytes, with this window.
fn acknowledge(group: &mut HandGroup, number: u8, bytes: u32, window: u16, options: Options) {
    let mut segment = from_receiver(101, group.iss[0].plus(1 + bytes), "A", &[]);
    segment.window = window;
    segment.options = options;
    group.inject(number, &segment).unwrap();
}

#[test]
fn a_receiver_has_the_group_s_time_to_acknowledge() {
    let timeout = Duration::from_secs(5);
    let mut group = HandGroup::with(|group| group.receiver_timeout = timeout, 2, accepts);
    group.sent();
    wait(&mut group, 10);
    acknowledge(&mut group, 1, 10_000, 60_000, Options::default());
    for _ in 0..498 {
        wait(&mut group, 10);
        group.sent();
    }
    assert_eq!(failures(&mut group), []);
    wait(&mut group, 10);
    assert_eq!(
        failures(&mut group),
        [(receiver(2), Some(Failure::Timeout))]
    );
    let resets: Vec<IpAddr> = group
        .sent()
        .into_iter()
        .filter(|(_, sent)| sent.flags.rst)
        .map(|(to, _)| to)
        .collect();
    assert_eq!(resets, [receiver(2)]);
    assert_eq!(state(&group, 1), State::Established);
}

/// RFC 9293 §3.6. All has been sent and acknowledged: the receiver's FIN ends the connection at once.
#[test]
fn the_fin_of_a_receiver_that_has_everything_counts() {
    let mut group = HandGroup::with(|_| (), 1, accepts);
    group.endpoint.shutdown(group.now, group.id).unwrap();
    let (mut acknowledged, mut fin) = (0, false);
    while acknowledged < 100_000 {
        let sent = group.sent();
        fin |= sent.iter().any(|(_, sent)| sent.flags == flags("FA"));
        let unicast = sent.iter().filter(|(to, _)| !to.is_multicast());
        acknowledged += unicast
            .map(|(_, sent)| sent.payload.len() as u32)
            .sum::<u32>();
        acknowledge(&mut group, 1, acknowledged, 60_000, Options::default());
    }
    assert!(fin && state(&group, 1) == State::FinWait1);
    acknowledge(&mut group, 1, 100_001, 60_000, Options::default());
    assert_eq!(state(&group, 1), State::FinWait2);
    let last = from_receiver(101, group.iss[0].plus(1 + 100_001), "FA", &[]);
    group.inject(1, &last).unwrap();
    assert_eq!(failures(&mut group), [(receiver(1), None)]);
    let ack = group.sent().pop().unwrap().1;
    assert_eq!(ack.ack, from_receiver(102, last.ack, "A", &[]).seq);
}

/// A receiver that keeps its window closed is served apart, and told to leave the group until it has.
#[test]
fn a_detached_receiver_is_told_to_leave_until_it_has() {
    let mut group = HandGroup::with(|group| group.min_rate_bps = Some(1_000_000), 2, accepts);
    group.sent();
    for number in [1, 2] {
        let feedback = Some(Feedback { percent: 0 });
        let options = Options {
            feedback,
            ..Options::default()
        };
        let window = if number == 1 { 60_000 } else { 0 };
        acknowledge(&mut group, number, 10_000, window, options);
    }
    let leave = Some(GroupOption::Leave);
    let mut told = Vec::new();
    for _ in 0..50 {
        wait(&mut group, 25);
        let sent = group.sent().into_iter();
        told.extend(sent.filter(|(to, sent)| *to == receiver(2) && sent.options.group == leave));
        if !told.is_empty() {
            break;
        }
    }
    let (_, first) = &told[0];
    assert_eq!((told.len(), first.flags, first.payload.len()), (1, ACK, 0));
    let detached = |event: &Event| matches!(event, Event::Detached { .. });
    assert_eq!(
        events(&mut group)
            .iter()
            .filter(|event| detached(event))
            .count(),
        1
    );
    // What it gets, in its own time, says so until its answers have no feedback any more.
    let feedback = Some(Feedback { percent: 0 });
    let hears = Options {
        feedback,
        ..Options::default()
    };
    acknowledge(&mut group, 2, 10_000, 10_000, hears);
    let data = |group: &mut HandGroup| -> Vec<(bool, usize)> {
        let sent = group.sent().into_iter();
        let to_it = sent.filter(|(to, sent)| *to == receiver(2) && !sent.payload.is_empty());
        to_it
            .map(|(_, sent)| (sent.options.group == leave, sent.payload.len()))
            .collect()
    };
    let before = data(&mut group);
    assert!(
        before.len() >= 5 && before.iter().all(|(told, len)| *told && *len < 1_000),
        "{before:?}"
    );
    let bytes: usize = before.iter().map(|(_, len)| len).sum();
    acknowledge(
        &mut group,
        2,
        10_000 + bytes as u32,
        10_000,
        Options::default(),
    );
    let after = data(&mut group);
    assert!(
        after.len() >= 5 && after.iter().all(|(told, len)| !told && *len == 1_000),
        "{after:?}"
    );
}

/// One that is not asked, because another one is as far behind, would hold the group back later.
#[test]
fn each_receiver_with_a_closed_window_is_asked_for_it() {
    let mut group = HandGroup::with(|_| (), 3, accepts);
    group.sent();
    for (number, window) in [(1, 0), (2, 60_000), (3, 0)] {
        acknowledge(&mut group, number, 10_000, window, Options::default());
    }
    assert!(group.sent().is_empty());
    wait(&mut group, 200);
    let asked: Vec<IpAddr> = group.sent().into_iter().map(|(to, _)| to).collect();
    assert_eq!(asked, [1, 3].map(receiver));
}

/// RFC 5681 §2. Its FIN was accepted, and what follows is no FIN.
#[test]
fn a_receiver_that_has_closed_still_tells_of_losses() {
    let mut group = HandGroup::with(|_| (), 1, accepts);
    group.sent();
    let iss = group.iss[0];
    let fin = from_receiver(101, iss.plus(1), "FA", &[]);
    group.inject(1, &fin).unwrap();
    group.inject(1, &fin).unwrap();
    assert_eq!(state(&group, 1), State::CloseWait);
    let ack = from_receiver(102, iss.plus(1 + 1_000), "A", &[]);
    for _ in 0..3 {
        group.inject(1, &ack).unwrap();
    }
    group.sent();
    assert_eq!(group.endpoint.stats().retransmissions, 0);
    group.inject(1, &ack).unwrap();
    let repair = group.sent().into_iter().next().unwrap();
    assert_eq!((repair.0, repair.1.seq), (receiver(1), ack.ack));
    assert_eq!(group.endpoint.stats().retransmissions, 1);
}
