//! Packets on the group address, at the receivers and at the sender.

use std::net::{IpAddr, SocketAddr};

use tcpxm::store::SliceStore;
use tcpxm::wire::{Feedback, GroupOption, Options, Segment};
use tcpxm::{
    CommandError, Config, ConnId, Endpoint, Error, Event, GroupConfig, GroupId, Instant, Meta,
    Mode, Seq, State,
};

use crate::hand::*;

#[test]
fn on_the_group_address_only_data_counts() {
    for text in ["S", "SA", "F", "FA", "R", "RA", "UA", "A"] {
        let mut hand = Hand::grouped();
        let (seq, ack) = (hand.seq, hand.ack);
        let payload: &[u8] = if text == "A" { &[] } else { b"data" };
        let segment = hand.segment(seq, ack, flags(text), payload);
        assert_eq!(
            hand.inject(&segment, GROUP),
            Err(Error::GroupControl),
            "{text}"
        );
        hand.wait(100);
        assert!(hand.sent().is_empty());
        assert_eq!(hand.state(), State::Established);
        assert!(hand.read().is_empty());
    }
    let mut hand = Hand::grouped();
    let (seq, ack) = (hand.seq, hand.ack);
    // Acknowledgement and window are nonsense there, and ignored.
    let mut data = hand.segment(seq, ack.plus(0x4000_0000), flags("PA"), b"data");
    data.window = 0;
    assert_eq!(hand.inject(&data, GROUP), Ok(()));
    assert_eq!(hand.read(), b"data");
    assert_eq!(
        hand.inject(&data, "239.192.3.5"),
        Err(Error::GroupUnknown),
        "another group"
    );
    let far = hand.segment(seq.plus(1 << 30), ack, flags("PA"), b"data");
    assert_eq!(hand.inject(&far, GROUP), Err(Error::Window));
    hand.wait(100);
    let sent = hand.sent();
    assert_eq!(sent.len(), 1, "nothing answers a forged group segment");
    assert_eq!(sent[0].options.feedback, Some(Feedback { percent: 100 }));
}

#[test]
fn a_plain_connection_takes_nothing_from_groups() {
    let mut hand = Hand::plain();
    let segment = hand.segment(hand.seq, hand.ack, flags("PA"), b"data");
    assert_eq!(hand.inject(&segment, GROUP), Err(Error::GroupUnknown));
    assert!(hand.read().is_empty());
}

#[test]
fn the_two_rules_on_duplicates_and_the_owed_acknowledgement() {
    // TCP-XM §2.4.
    for (first, second, at_once) in [
        (GROUP, GROUP, false),
        ("10.0.0.1", GROUP, false),
        (GROUP, "10.0.0.1", false),
        ("10.0.0.1", "10.0.0.1", true),
    ] {
        let mut hand = Hand::grouped();
        let segment = hand.segment(hand.seq, hand.ack, flags("PA"), b"data");
        hand.inject(&segment, first).unwrap();
        hand.wait(40);
        assert_eq!(hand.sent().len(), 1, "the original is acknowledged");
        assert_eq!(hand.inject(&segment, second), Err(Error::Duplicate));
        assert_eq!(hand.sent().len(), usize::from(at_once), "{first} {second}");
        hand.wait(40);
        let owed = hand.sent();
        assert_eq!(owed.len(), usize::from(!at_once), "{first} {second}");
        assert_eq!(hand.read(), b"data");
    }
}

/// The same rules for data that waits for what is missing before it. What is not all there is no duplicate.
#[test]
fn the_two_rules_hold_behind_a_hole() {
    for (first, second, at_once) in [
        (GROUP, GROUP, false),
        ("10.0.0.1", GROUP, false),
        (GROUP, "10.0.0.1", false),
        ("10.0.0.1", "10.0.0.1", true),
    ] {
        let mut hand = Hand::grouped();
        let give = |hand: &mut Hand, offset: u32, payload: &[u8], to: &str| {
            let segment = hand.segment(hand.seq.plus(offset), hand.ack, flags("PA"), payload);
            hand.inject(&segment, to)
        };
        give(&mut hand, 100, b"0123", first).unwrap();
        assert_eq!(hand.sent().len(), 1, "a hole");
        let again = give(&mut hand, 100, b"0123", second);
        assert_eq!(again, Err(Error::Duplicate));
        assert_eq!(hand.sent().len(), usize::from(at_once), "{first} {second}");
        hand.wait(40);
        assert_eq!(hand.sent().len(), usize::from(!at_once), "{first} {second}");
        for (offset, payload) in [(104, b"45"), (98, b"89"), (103, b"34"), (99, b"90")] {
            let again = offset == 103 || offset == 99;
            let result = give(&mut hand, offset, payload, second);
            assert_eq!(result.is_err(), again, "{first} {second} {offset}");
        }
    }
}

/// It has told the application to leave; until that has happened, more may come.
#[test]
fn after_the_fin_nothing_on_the_group_s_address_is_answered() {
    let mut hand = Hand::grouped();
    hand.give(hand.seq, hand.ack, "FA", b"all").unwrap();
    hand.sent();
    for offset in [0, 4] {
        let late = hand.segment(hand.seq.plus(offset), hand.ack, flags("PA"), b"all");
        assert_eq!(hand.inject(&late, GROUP), Err(Error::Closed));
        hand.wait(100);
        assert!(hand.sent().is_empty());
    }
}

#[test]
fn a_receiver_joins_after_the_handshake_and_leaves_at_the_fin() {
    let group = Some(GroupOption::Named(ip(GROUP)));
    let mut hand = Hand::new(Config::default());
    let mut syn = hand.segment(ISS, Seq(0), flags("S"), &[]);
    syn.options.group = group;
    hand.inject(&syn, "10.0.0.1").unwrap();
    assert_eq!(
        hand.endpoint.poll_event(),
        None,
        "nothing before the handshake is complete"
    );
    let answer = hand.sent().pop().unwrap();
    assert_eq!(answer.options.group, group);
    hand.give(ISS.plus(1), answer.seq.plus(1), "A", &[])
        .unwrap();
    let events: Vec<Event> = std::iter::from_fn(|| hand.endpoint.poll_event()).collect();
    let join = |event: &Event| {
        matches!(event, Event::Join { group, source, .. }
        if *group == ip(GROUP) && *source == ip("10.0.0.9"))
    };
    assert_eq!(events.iter().filter(|event| join(event)).count(), 1);
    hand.give(ISS.plus(1), answer.seq.plus(1), "FA", &[])
        .unwrap();
    let events: Vec<Event> = std::iter::from_fn(|| hand.endpoint.poll_event()).collect();
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Leave { .. }))
    );
}

#[test]
fn a_receiver_told_to_leave_does_and_says_so() {
    let mut hand = Hand::grouped();
    let events = |hand: &mut Hand| -> Vec<Event> {
        std::iter::from_fn(|| hand.endpoint.poll_event()).collect()
    };
    events(&mut hand);
    let (seq, ack) = (hand.seq, hand.ack);
    let leave = |segment: &Segment<'static>| Segment {
        options: Options {
            group: Some(GroupOption::Leave),
            ..segment.options
        },
        ..*segment
    };
    // Outside of the window it may be forged; on the group address options mean nothing.
    let far = leave(&hand.segment(seq.plus(1 << 30), ack, ACK, &[]));
    assert_eq!(hand.inject(&far, "10.0.0.1"), Err(Error::Window));
    let multicast = leave(&hand.segment(seq, ack, flags("PA"), b"data"));
    hand.inject(&multicast, GROUP).unwrap();
    hand.wait(40);
    let sent = hand.sent();
    assert_eq!(
        sent.last().unwrap().options.feedback,
        Some(Feedback { percent: 100 })
    );
    let left = |events: &[Event]| {
        let leave =
            |event: &&Event| matches!(event, Event::Leave { group, .. } if *group == ip(GROUP));
        events.iter().filter(leave).count()
    };
    assert_eq!(left(&events(&mut hand)), 0);

    let wish = leave(&hand.segment(seq.plus(4), ack, ACK, &[]));
    for times in 0..2 {
        hand.inject(&wish, "10.0.0.1").unwrap();
        let sent = hand.sent();
        assert_eq!(sent.len(), 1, "an answer at once");
        assert_eq!(sent[0].options.feedback, None);
        assert_eq!(left(&events(&mut hand)), usize::from(times == 0));
    }
    let late = hand.segment(seq.plus(4), ack, flags("PA"), b"late");
    assert_eq!(hand.inject(&late, GROUP), Err(Error::GroupUnknown));
    hand.inject(&late, "10.0.0.1").unwrap();
    assert_eq!(hand.read(), b"datalate");
    hand.give(seq.plus(8), ack, "FA", &[]).unwrap();
    assert_eq!(left(&events(&mut hand)), 0, "left once");
}

/// A sender whose receivers are made by hand.
pub(crate) struct HandGroup {
    pub(crate) endpoint: Endpoint<SliceStore<Vec<u8>>>,
    pub(crate) id: GroupId,
    pub(crate) now: Instant,
    pub(crate) iss: Vec<Seq>,
    port: u16,
}

impl HandGroup {
    fn new(count: u8, answer: impl Fn(u8) -> Options) -> Self {
        Self::with(|_| (), count, answer)
    }

    pub(crate) fn with(
        change: impl FnOnce(&mut GroupConfig),
        count: u8,
        answer: impl Fn(u8) -> Options,
    ) -> Self {
        let now = Instant::ZERO;
        let mut endpoint = Endpoint::new(Config::default(), [3; 32], now);
        let receivers = (1..=count).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        let mut config = GroupConfig::new("10.0.1.1:4444".parse().unwrap(), receivers, PORT);
        config.group = tcpxm::GroupChoice::Given(ip(GROUP));
        change(&mut config);
        let id = endpoint
            .open_group(now, &config, SliceStore::new(vec![5; 100_000]))
            .unwrap();
        let mut group = Self {
            endpoint,
            id,
            now,
            iss: Vec::new(),
            port: 4444,
        };
        let syns = group.sent();
        assert_eq!(syns.len(), usize::from(count));
        for (n, (_, syn)) in (1..=count).zip(&syns) {
            assert_eq!(syn.options.group, Some(GroupOption::Named(ip(GROUP))));
            assert_eq!(
                syn.seq, syns[0].1.seq,
                "one initial sequence number for all"
            );
            assert_eq!(
                syn.options.timestamps, syns[0].1.options.timestamps,
                "one clock for all"
            );
            group.iss.push(syn.seq);
            let segment = Segment {
                source_port: PORT,
                destination_port: 4444,
                seq: Seq(100),
                ack: syn.seq.plus(1),
                flags: flags("SA"),
                window: 60_000,
                options: answer(n),
                payload: &[],
            };
            group.inject(n, &segment).unwrap();
        }
        group
    }

    pub(crate) fn inject(&mut self, from: u8, segment: &Segment<'_>) -> Result<(), Error> {
        let mut bytes = vec![0; segment.buffer_len()];
        segment.emit(&mut bytes);
        let source = SocketAddr::new(IpAddr::from([10, 0, 0, from]), PORT);
        let meta = Meta {
            source,
            destination: ip("10.0.1.1"),
        };
        self.endpoint.handle_packet(self.now, &meta, &bytes)
    }

    pub(crate) fn sent(&mut self) -> Vec<(IpAddr, Sent)> {
        let mut buffer = [0; 1500];
        let mut all = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(self.now, &mut buffer) {
            let segment = Segment::parse(&buffer[..transmit.len]).unwrap();
            assert_eq!(
                (segment.source_port, segment.destination_port),
                (self.port, PORT)
            );
            let sent = Sent {
                seq: segment.seq,
                ack: segment.ack,
                flags: segment.flags,
                window: segment.window,
                options: segment.options,
                payload: segment.payload.to_vec(),
            };
            all.push((transmit.destination.ip(), sent));
        }
        all
    }
}

#[test]
fn the_smallest_segment_and_the_smallest_window_rule() {
    let answer = |n: u8| Options {
        mss: Some(if n == 2 { 700 } else { 1400 }),
        group: (n != 3).then_some(GroupOption::Named(ip(GROUP))),
        ..Options::default()
    };
    let mut group = HandGroup::new(3, answer);
    let sent = group.sent();
    let data: Vec<_> = sent.iter().filter(|(_, s)| !s.payload.is_empty()).collect();
    let to = |address: &str| data.iter().filter(|(to, _)| *to == ip(address)).count();
    // One multicast copy, and one for each receiver that may need it, of the same bytes.
    assert!(to(GROUP) > 0);
    for address in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        assert_eq!(to(address), to(GROUP), "{address}");
    }
    assert!(data.iter().all(|(_, s)| s.payload.len() == 700));
    for (to, s) in &data {
        if to.is_multicast() {
            assert_eq!((s.ack, s.window, s.flags), (Seq(0), 0, flags("PA")));
        }
    }
    // Ten segments of 700: the least initial window of all.
    assert_eq!(to(GROUP), 10);
    let members: Vec<ConnId> = group.endpoint.members(group.id).unwrap().collect();
    let modes: Vec<Mode> = members
        .iter()
        .map(|id| group.endpoint.conn_stats(*id).unwrap().mode)
        .collect();
    assert_eq!(
        modes,
        [
            Mode::UnicastGroup,
            Mode::UnicastGroup,
            Mode::UnicastGroupOnly
        ]
    );
}

#[test]
fn forward_at_fifty_per_cent_and_not_before_sixteen_segments() {
    let answer = |_| Options {
        mss: Some(1000),
        group: Some(GroupOption::Named(ip(GROUP))),
        ..Options::default()
    };
    for (percent, segments, expected) in [
        (50, 16, Mode::Multicast),
        (49, 16, Mode::UnicastGroup),
        (100, 15, Mode::UnicastGroup),
    ] {
        let mut group = HandGroup::new(1, answer);
        let iss = group.iss[0];
        let mut acked = 0;
        while acked < segments {
            group.sent();
            acked = (acked + 8).min(segments);
            let last = acked == segments;
            let segment = Segment {
                source_port: PORT,
                destination_port: 4444,
                seq: Seq(101),
                ack: iss.plus(1 + acked * 1000),
                flags: ACK,
                window: 60_000,
                options: Options {
                    feedback: last.then_some(Feedback { percent }),
                    ..Options::default()
                },
                payload: &[],
            };
            group.inject(1, &segment).unwrap();
        }
        let member = group.endpoint.members(group.id).unwrap().next().unwrap();
        assert_eq!(
            group.endpoint.conn_stats(member).unwrap().mode,
            expected,
            "{percent} {segments}"
        );
    }
}

/// A group of one receiver, with segments of 1000 bytes.
fn half_by_multicast() -> HandGroup {
    HandGroup::new(1, |_| Options {
        mss: Some(1000),
        sack_permitted: true,
        group: Some(GroupOption::Named(ip(GROUP))),
        ..Options::default()
    })
}

/// Acknowledges this number of segments, and those in these ranges.
fn acknowledge(group: &mut HandGroup, segments: u32, ranges: &[(u32, u32)]) {
    let iss = group.iss[0];
    let at = |segment: u32| iss.plus(1 + segment * 1000);
    let mut options = Options {
        feedback: Some(Feedback { percent: 50 }),
        ..Options::default()
    };
    for (from, to) in ranges {
        options.sack.push((at(*from), at(*to)));
    }
    let segment = Segment {
        source_port: PORT,
        destination_port: 4444,
        seq: Seq(101),
        ack: at(segments),
        flags: ACK,
        window: 60_000,
        options,
        payload: &[],
    };
    group.inject(1, &segment).unwrap();
}

#[test]
fn losses_with_successes_between_them_are_not_consecutive() {
    let mut group = half_by_multicast();
    for segments in [8, 16, 24, 32] {
        group.sent();
        acknowledge(&mut group, segments, &[]);
    }
    let member = group.endpoint.members(group.id).unwrap().next().unwrap();
    let mode = |group: &HandGroup| group.endpoint.conn_stats(member).unwrap().mode;
    assert_eq!(mode(&group), Mode::Multicast);
    group.sent();
    acknowledge(&mut group, 40, &[]);
    group.sent();
    // Every other segment arrived: no two losses follow one another.
    let holes = [1, 3, 5, 7].map(|first| (40 + first, 41 + first));
    acknowledge(&mut group, 40, &holes);
    assert!(!group.sent().is_empty(), "a repair");
    assert_eq!(mode(&group), Mode::Multicast);
}

#[test]
fn losses_with_a_later_success_are_congestion_and_so_is_one_flight() {
    let mut group = half_by_multicast();
    for segments in [8, 16, 24, 32] {
        group.sent();
        acknowledge(&mut group, segments, &[]);
    }
    let member = group.endpoint.members(group.id).unwrap().next().unwrap();
    let mode = |group: &HandGroup| group.endpoint.conn_stats(member).unwrap().mode;
    group.sent();
    acknowledge(&mut group, 40, &[]);
    group.sent();
    // Five in a row are lost, and one behind them has arrived.
    acknowledge(&mut group, 40, &[(45, 48)]);
    assert!(!group.sent().is_empty(), "a repair");
    assert_eq!(mode(&group), Mode::Multicast);
    // Everything is repaired, and then nothing comes any more: a full queue does that too.
    acknowledge(&mut group, 50, &[]);
    group.sent();
    let wait = |group: &mut HandGroup| {
        for _ in 0..40 {
            group.now += tcpxm::Duration::from_millis(100);
            let now = group.now;
            group.endpoint.handle_timeout(now);
            group.sent();
        }
    };
    wait(&mut group);
    assert_eq!(mode(&group), Mode::Multicast);
    // That is repaired too, and what was sent since has not come either.
    let stats = group.endpoint.conn_stats(member).unwrap();
    let sent = (stats.acknowledged + stats.outstanding) / 1000;
    acknowledge(&mut group, sent as u32, &[]);
    group.sent();
    wait(&mut group);
    assert_eq!(mode(&group), Mode::UnicastGroup);
}

/// What a receiver sends to the sender of its group, by hand.
pub(crate) fn from_receiver<'a>(seq: u32, ack: Seq, text: &str, payload: &'a [u8]) -> Segment<'a> {
    Segment {
        source_port: PORT,
        destination_port: 4444,
        seq: Seq(seq),
        ack,
        flags: flags(text),
        window: 60_000,
        options: Options::default(),
        payload,
    }
}

pub(crate) fn accepts(_: u8) -> Options {
    Options {
        mss: Some(1000),
        group: Some(GroupOption::Named(ip(GROUP))),
        ..Options::default()
    }
}

/// A sender that counted forged data or a forged FIN would acknowledge what the receiver never sent: the
/// receiver would refuse all that comes by unicast, and the sender what the receiver says.
#[test]
fn one_forged_segment_of_a_receiver_does_not_stop_the_group() {
    for (text, payload) in [
        ("PA", &b"forged"[..]),
        ("FA", b""),
        ("FPA", b"forged"),
        ("A", &[1; 1400]),
    ] {
        let mut group = HandGroup::new(2, accepts);
        assert!(!group.sent().is_empty());
        let iss = group.iss[0];
        let forged = from_receiver(101, iss.plus(1), text, payload);
        let dropped = group.inject(1, &forged);
        let expected = (!payload.is_empty()).then_some(Error::GroupData);
        assert_eq!(dropped.err(), expected, "{text}");
        let next = |sent: Vec<(IpAddr, Sent)>| -> Vec<Seq> {
            let to_it = sent.into_iter().filter(|(to, _)| *to == ip("10.0.0.1"));
            to_it.map(|(_, segment)| segment.ack).collect()
        };
        assert!(
            next(group.sent()).iter().all(|ack| *ack == Seq(101)),
            "{text}"
        );
        for receiver in [1, 2] {
            let ack = from_receiver(101, iss.plus(1 + 10_000), "A", &[]);
            assert_eq!(group.inject(receiver, &ack), Ok(()), "{text}");
        }
        let acks = next(group.sent());
        assert!(
            !acks.is_empty() && acks.iter().all(|ack| *ack == Seq(101)),
            "{text}"
        );
        for member in group.endpoint.members(group.id).unwrap() {
            let stats = group.endpoint.conn_stats(member).unwrap();
            assert_eq!((stats.acknowledged, stats.received), (10_000, 0), "{text}");
            assert_eq!(stats.state, State::Established, "{text}");
        }
    }
}

/// A receiver may close its direction early: its FIN counts when it goes on after it. When all data has
/// arrived, nothing has to be waited for.
#[test]
fn a_fin_of_a_receiver_counts_when_the_receiver_goes_on_after_it() {
    let finished = |group: &mut HandGroup| {
        let events: Vec<Event> = std::iter::from_fn(|| group.endpoint.poll_event()).collect();
        events
            .iter()
            .any(|event| matches!(event, Event::Finished { .. }))
    };
    let mut group = HandGroup::new(1, accepts);
    group.sent();
    let iss = group.iss[0];
    let fin = from_receiver(101, iss.plus(1), "FA", &[]);
    group.inject(1, &fin).unwrap();
    assert!(!finished(&mut group));
    // It has not sent one: the claim is forgotten.
    let ack = from_receiver(101, iss.plus(1 + 1000), "A", &[]);
    group.inject(1, &ack).unwrap();
    group.inject(1, &fin).unwrap();
    assert!(!finished(&mut group));
    let after = from_receiver(102, iss.plus(1 + 2000), "A", &[]);
    group.inject(1, &after).unwrap();
    assert!(finished(&mut group));
    let sent = group.sent();
    let acks = sent.iter().filter(|(to, _)| !to.is_multicast());
    assert!(acks.into_iter().all(|(_, segment)| segment.ack == Seq(102)));

    // Nothing is said for a while: a receiver sends its FIN again.
    let mut group = HandGroup::new(1, accepts);
    group.sent();
    let iss = group.iss[0];
    let fin = from_receiver(101, iss.plus(1 + 10_000), "FA", &[]);
    group.inject(1, &fin).unwrap();
    assert!(!finished(&mut group));
    group.inject(1, &fin).unwrap();
    assert!(finished(&mut group));
}

#[test]
fn a_member_of_a_group_takes_no_data_of_its_own() {
    let mut group = HandGroup::new(1, accepts);
    let (now, id) = (group.now, group.id);
    let member = group.endpoint.members(id).unwrap().next().unwrap();
    let endpoint = &mut group.endpoint;
    let unknown = Err(CommandError::Unknown);
    assert_eq!(endpoint.send(now, member, b"data").map(|_| ()), unknown);
    assert_eq!(endpoint.shutdown(now, member), unknown);
    assert_eq!(endpoint.close(now, member), unknown);
    assert_eq!(endpoint.shutdown(now, id), Ok(()));
    assert_eq!(endpoint.abort(now, member), Ok(()), "it can be given up");
}
