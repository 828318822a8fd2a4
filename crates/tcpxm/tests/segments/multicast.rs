//! What the sender of a group learns of multicast from repairs: TCP-XM §2.5.

use tcpxm::wire::{Feedback, GroupOption, Options};
use tcpxm::{Duration, Event, Failure, GroupMode, Mode};

use crate::group::{HandGroup, from_receiver};
use crate::hand::*;

/// Bytes of a segment.
const SEGMENT: u32 = 1_000;

fn answer(_: u8) -> Options {
    Options {
        // Timestamps take twelve bytes.
        mss: Some(SEGMENT as u16 + 12),
        sack_permitted: true,
        timestamps: Some((1, 0)),
        group: Some(GroupOption::Named(ip(GROUP))),
        ..Options::default()
    }
}

/// A receiver acknowledges this number of segments.
fn acknowledge(group: &mut HandGroup, segments: u32, window: u16, percent: u8, echo: u32) {
    let mut segment = from_receiver(101, group.iss[0].plus(1 + segments * SEGMENT), "A", &[]);
    segment.window = window;
    segment.options.feedback = Some(Feedback { percent });
    segment.options.timestamps = Some((2, echo));
    group.inject(1, &segment).unwrap();
}

fn mode(group: &HandGroup) -> Mode {
    let member = group.endpoint.members(group.id).unwrap().next().unwrap();
    group.endpoint.conn_stats(member).unwrap().mode
}

/// Waits until data is sent to the receiver by unicast: number of the last segment and timestamp.
fn repair(group: &mut HandGroup) -> Option<(u32, u32)> {
    let base = group.iss[0].plus(1);
    (0..20_000).find_map(|_| {
        group.now += Duration::from_millis(1);
        group.endpoint.handle_timeout(group.now);
        let sent = group.sent().into_iter();
        let mut repairs = sent.filter(|(to, sent)| !to.is_multicast() && !sent.payload.is_empty());
        repairs.next_back().map(|(_, sent)| {
            let (stamp, _) = sent.options.timestamps.unwrap();
            (sent.seq.0.wrapping_sub(base.0) / SEGMENT, stamp)
        })
    })
}

/// A receiver that is sent to by multicast alone, and has acknowledged `segments`, and everything.
fn by_multicast() -> (HandGroup, u32) {
    let mut group = HandGroup::with(|_| (), 1, answer);
    group.sent();
    acknowledge(&mut group, 10, 60_000, 0, 0);
    group.sent();
    acknowledge(&mut group, 20, 60_000, 50, 0);
    assert_eq!(mode(&group), Mode::Multicast);
    let sent = group.sent();
    assert!(sent.iter().all(|(to, _)| to.is_multicast()));
    let last = sent.last().unwrap().1.seq;
    let all = last.0.wrapping_sub(group.iss[0].plus(1).0) / SEGMENT + 1;
    (group, all)
}

/// Each time a lone segment is lost and a probe repairs it, or a timeout. The echo tells whether the probe was needed
/// (RFC 7323 §4.1): if not, it was late.
#[test]
fn losses_that_probes_repaired_count() {
    let after = |rounds: usize, is_late: bool, has_update: bool| {
        let (mut group, mut acknowledged) = by_multicast();
        acknowledge(&mut group, acknowledged, 1_000, 50, 0);
        for _ in 0..rounds {
            let first = group.sent();
            assert_eq!(first.len(), 1);
            let (first, _) = first[0].1.options.timestamps.unwrap();
            let (number, stamp) = repair(&mut group).unwrap();
            assert_eq!(number, acknowledged);
            acknowledged += 1;
            let echo = if is_late { first } else { stamp };
            if has_update {
                acknowledge(&mut group, acknowledged, 0, 50, echo);
            }
            acknowledge(&mut group, acknowledged, 1_000, 50, echo);
        }
        (mode(&group), group.endpoint.stats().probes)
    };
    // The first and the third one are repaired by probes, the second by a timeout.
    assert_eq!(after(2, false, false), (Mode::Multicast, 1));
    assert_eq!(after(3, false, false), (Mode::UnicastGroup, 2));
    assert_eq!(after(3, true, false), (Mode::Multicast, 2));
    assert_eq!(
        after(2, false, true),
        (Mode::Multicast, 1),
        "each counts once"
    );
    assert_eq!(after(3, false, true), (Mode::UnicastGroup, 2));
}

/// A receiver that gets nothing but repairs fails where multicast is demanded. The time does not count in which it only
/// repeats what it has said: its host or its path may be at fault.
#[test]
fn only_repairs_that_arrive_show_that_multicast_does_not() {
    let demand = |config: &mut tcpxm::GroupConfig| {
        config.mode = GroupMode::Multicast;
        config.multicast_timeout = Duration::from_secs(6);
    };
    let without_sack = |_| Options {
        sack_permitted: false,
        ..answer(1)
    };
    let failed = |group: &mut HandGroup| {
        std::iter::from_fn(|| group.endpoint.poll_event()).find_map(|event| match event {
            Event::Closed { failure, .. } => failure,
            _ => None,
        })
    };
    let mut group = HandGroup::with(demand, 1, without_sack);
    group.sent();
    // For about a second and a half.
    let mut next = 0;
    while next < 30 {
        let (number, echo) = repair(&mut group).unwrap();
        next = number + 1;
        acknowledge(&mut group, next, 60_000, 0, echo);
    }
    for _ in 0..100 {
        group.now += Duration::from_millis(100);
        group.endpoint.handle_timeout(group.now);
        acknowledge(&mut group, next, 60_000, 0, 0);
        group.sent();
    }
    assert_eq!(failed(&mut group), None);
    // For about three seconds and a half more, with the second that any pause counts.
    while let Some((number, echo)) = repair(&mut group) {
        next = number + 1;
        acknowledge(&mut group, next, 60_000, 0, echo);
    }
    assert!((60..80).contains(&next), "{next}");
    assert_eq!(failed(&mut group), Some(Failure::NoMulticast));
}
