//! Details of recovery: which packets one NACK names, phases that meet, waits, and what is counted.

use dyram::wire::{Body, Nack, Role, Service};
use dyram::{Carriage, DropReason, Duration, Meta, Seq, Verdict};

use super::hand::{Hand, ID, Sent, child, nack_to, source};

fn absent(hand: &mut Hand, from: std::net::SocketAddr, number: u16, seq: u32) -> Verdict {
    hand.handle(from, ID, number, seq, Body::Absent(0))
}

fn wanted_above(hand: &mut Hand, seq: u32) -> Verdict {
    hand.handle(source(), ID, 0xffff, seq, Body::Nack(Nack::default()))
}

#[test]
fn one_nack_names_the_next_64_packets_and_no_others() {
    let mut hand = Hand::new(1, |_| {});
    hand.data(1);
    // 2 and 66 are missing: the last bit of the mask.
    for seq in (3..66).chain([67]) {
        hand.data(seq);
    }
    // Both wait to be sent, in the order of their detection.
    let nack = Sent {
        mask: 1 << 63,
        ..nack_to(source(), 2)
    };
    assert_eq!(hand.sent(), [nack]);
    let mut hand = Hand::new(1, |_| {});
    hand.data(1);
    for seq in (3..67).chain([68]) {
        hand.data(seq);
    }
    assert_eq!(hand.sent(), [nack_to(source(), 2), nack_to(source(), 67)]);
    assert_eq!(hand.relay.stats().gaps, 2);
    assert_eq!(hand.relay.stats().asked_parent, 2);
}

/// A NACK has a mask for what follows only: what is older goes in another one, and so does what goes elsewhere.
#[test]
fn older_packets_and_other_repliers_take_another_nack() {
    let mut hand = Hand::new(4, |_| {});
    for seq in 1..10 {
        hand.data(seq);
    }
    for (loser, seq) in [(3, 5), (3, 4), (0, 6), (3, 7), (3, 8)] {
        hand.nack(loser, seq);
    }
    let sent = hand.after(2);
    let with_mask = |to, first, mask| Sent {
        mask,
        ..nack_to(to, first)
    };
    let expected = [
        nack_to(child(0), 5),
        nack_to(child(0), 4),
        nack_to(child(1), 6),
        with_mask(child(0), 7, 1),
    ];
    assert_eq!(sent, expected);
    assert_eq!(hand.relay.stats().asked_repliers, 5);
    assert_eq!(hand.relay.stats().nacked, 5);
}

#[test]
fn gap_of_more_packets_than_states_is_asked_for_as_far_as_they_reach() {
    let mut hand = Hand::new(1, |_| {});
    hand.data(1);
    hand.data(200);
    let sent = hand.sent();
    let nack = Sent {
        mask: (1 << 63) - 1,
        ..nack_to(source(), 2)
    };
    assert_eq!(sent, [nack]);
    assert_eq!(hand.relay.stats().gaps, 198);
    // The others wait until there is room.
    hand.nack(0, 100);
    assert_eq!(hand.drops(DropReason::NackStatesFull), 1);
    let verdict = hand.repair_from_source(2);
    assert_eq!(hand.targets(verdict).len(), 1);
    hand.after(6);
    hand.nack(0, 100);
    assert_eq!(hand.sent(), [nack_to(source(), 100)]);
}

#[test]
fn nack_upward_carries_the_acknowledgement_and_one_to_a_replier_does_not() {
    let mut hand = Hand::new(2, |_| {});
    for seq in 1..6 {
        hand.data(seq);
    }
    for n in 0..2 {
        hand.handle(child(n), ID, n, 6, Body::Ack);
    }
    let acks = |sent: &[Sent]| {
        let of = sent.iter().filter(|sent| sent.service == Service::Ack);
        of.count()
    };
    assert_eq!(acks(&hand.after(110)), 1);
    hand.data(7);
    let up = hand.sent_whole();
    let Body::Nack(nack) = &up[0].body else {
        panic!("{up:?}");
    };
    assert_eq!((nack.ack, nack.repeats), (Some(Seq(6)), 0));
    hand.nack(1, 7);
    hand.now += Duration::from_millis(2);
    hand.relay.handle_timeout(hand.now);
    let down = hand.sent_whole();
    let Body::Nack(nack) = &down[0].body else {
        panic!("{down:?}");
    };
    assert_eq!((down[0].to, nack.ack), (child(0), None));
    // What a NACK has carried needs no ACK of its own.
    hand.data(8);
    for n in 0..2 {
        hand.handle(child(n), ID, n, 8, Body::Ack);
    }
    hand.now += Duration::from_millis(110);
    hand.data(10);
    hand.relay.handle_timeout(hand.now);
    let up = hand.sent_whole();
    let Body::Nack(nack) = &up[0].body else {
        panic!("{up:?}");
    };
    assert_eq!((up[0].sequence, nack.ack), (9, Some(Seq(8))));
    assert!(up.iter().all(|one| one.body != Body::Ack), "{up:?}");
}

/// An acknowledgement may be lost: it is repeated at each refresh.
#[test]
fn acknowledgement_without_news_is_sent_again_at_each_refresh() {
    let mut hand = Hand::new(1, |_| {});
    hand.data(1);
    hand.handle(child(0), ID, 0, 2, Body::Ack);
    let mut times = Vec::new();
    for step in 1..=70 {
        if step % 15 == 0 {
            hand.join(source(), Role::Source, 0);
            hand.join(child(0), Role::Receiver, 0);
        }
        let sent = hand.after(100);
        if let Some(ack) = sent.iter().find(|sent| sent.service == Service::Ack) {
            assert_eq!((ack.to, ack.first), (source(), 2));
            times.push(step);
        }
    }
    assert!((3..=5).contains(&times.len()), "{times:?}");
    for pair in times.windows(2) {
        assert!((19..=22).contains(&(pair[1] - pair[0])), "{times:?}");
    }
}

#[test]
fn acknowledgement_without_news_is_sent_at_the_moment_of_the_refresh() {
    let mut hand = Hand::new(1, |_| {});
    hand.data(1);
    hand.handle(child(0), ID, 0, 2, Body::Ack);
    let is_ack = |sent: &[Sent]| matches!(sent, [one] if one.service == Service::Ack);
    assert!(is_ack(&hand.after(150)));
    assert_eq!(hand.after(1_990), []);
    assert!(is_ack(&hand.after(11)));
}

#[test]
fn acknowledgements_wrap_and_never_go_back() {
    let mut hand = Hand::new(2, |_| {});
    for seq in [u32::MAX - 1, u32::MAX, 0, 1] {
        hand.data(seq);
    }
    let folded = |hand: &Hand| hand.relay.sessions().next().unwrap().acknowledged;
    let mut ack = |n: u16, seq| {
        hand.handle(child(n), ID, n, seq, Body::Ack);
        hand.after(110);
        folded(&hand)
    };
    assert_eq!(
        ack(0, u32::MAX),
        Some(Seq(u32::MAX)),
        "the other has said nothing"
    );
    assert_eq!(ack(1, 1), Some(Seq(u32::MAX)));
    assert_eq!(ack(0, 2), Some(Seq(1)));
    assert_eq!(ack(0, u32::MAX), Some(Seq(1)));
    assert_eq!(ack(1, 2), Some(Seq(2)), "one past the newest");
    assert_eq!(ack(1, 3), Some(Seq(2)));
    assert_eq!(hand.drops(DropReason::NotSent), 1);
}

#[test]
fn repeated_nack_while_the_request_is_under_way_is_ignored() {
    let mut hand = Hand::new(4, |_| {});
    hand.data(1);
    hand.nack(3, 1);
    hand.nack(3, 1);
    assert_eq!(hand.drops(DropReason::Suppressed), 1);
    assert_eq!(hand.after(2), [nack_to(child(0), 1)]);
    hand.nack(3, 1);
    assert_eq!(hand.drops(DropReason::Suppressed), 2);
    hand.nack(2, 1);
    assert_eq!(
        hand.drops(DropReason::Suppressed),
        2,
        "it only joins the list"
    );
    let verdict = hand.repair(0, 1);
    assert_eq!(hand.targets(verdict), [child(2), child(3)]);
    let stats = hand.relay.stats();
    assert_eq!((stats.repaired_below, stats.repaired_above), (1, 0));
    assert_eq!((stats.nacked, stats.asked_repliers), (4, 1));
}

#[test]
fn replier_that_loses_before_it_is_asked_is_replaced_at_once() {
    for loser in 0..2 {
        let mut hand = Hand::new(3, |_| {});
        hand.data(1);
        hand.nack(2, 1);
        hand.nack(loser, 1);
        let other = if loser == 0 { 1 } else { 0 };
        assert_eq!(hand.after(2), [nack_to(child(other), 1)]);
    }
}

#[test]
fn absent_counts_only_from_the_neighbour_that_was_asked() {
    let mut hand = Hand::new(4, |_| {});
    hand.data(1);
    hand.nack(3, 1);
    // Not yet asked, not the one that is asked, not this packet, not this run.
    absent(&mut hand, child(0), 0, 1);
    assert_eq!(hand.drops(DropReason::Unrequested), 1);
    assert_eq!(hand.after(2), [nack_to(child(0), 1)]);
    absent(&mut hand, child(1), 1, 1);
    absent(&mut hand, source(), 0xffff, 1);
    assert_eq!(hand.drops(DropReason::Unrequested), 3);
    absent(&mut hand, child(0), 0, 2);
    let other = hand.handle(child(0), ID + 1, 0, 1, Body::Absent(0));
    assert_eq!(other, Verdict::Drop(DropReason::OtherSession));
    assert_eq!((hand.sent(), hand.relay.stats().absent), (vec![], 0));
    absent(&mut hand, child(0), 0, 1);
    assert_eq!(hand.relay.stats().absent, 1);
    assert_eq!(hand.sent(), [nack_to(child(1), 1)]);
    absent(&mut hand, child(1), 1, 1);
    assert_eq!(
        hand.sent(),
        [nack_to(source(), 1)],
        "two repliers were asked"
    );
    // The last one that could have it: the packet is given up, and may be asked for again.
    assert_eq!(hand.relay.stats().given_up, 0);
    absent(&mut hand, source(), 0xffff, 1);
    assert_eq!(
        (hand.relay.stats().given_up, hand.relay.stats().absent),
        (1, 2)
    );
    assert_eq!(hand.after(1_000), []);
    hand.nack(3, 1);
    assert_eq!(hand.after(2), [nack_to(child(0), 1)]);
}

/// The mask of ABSENT names the packets after the first.
#[test]
fn absent_for_several_packets_moves_all_of_them() {
    let mut hand = Hand::new(3, |_| {});
    for seq in 1..5 {
        hand.data(seq);
        hand.nack(2, seq);
    }
    let all = |to, first, mask| Sent {
        mask,
        ..nack_to(to, first)
    };
    assert_eq!(hand.after(2), [all(child(0), 1, 0b111)]);
    hand.handle(child(0), ID, 0, 1, Body::Absent(0b101));
    assert_eq!(hand.sent(), [all(child(1), 1, 0b101)]);
    assert_eq!(hand.relay.stats().absent, 3);
}

#[test]
fn request_of_the_parent_joins_what_the_children_asked() {
    // While children are asked: the repair goes to both.
    let mut hand = Hand::new(3, |_| {});
    hand.data(1);
    hand.nack(2, 1);
    wanted_above(&mut hand, 1);
    assert_eq!(hand.sent(), [], "the delay to decide still runs");
    assert_eq!(hand.after(2), [nack_to(child(0), 1)]);
    wanted_above(&mut hand, 1);
    let verdict = hand.repair(0, 1);
    assert_eq!(hand.targets(verdict), [child(2), source()]);
    // After the repair: a round for the parent alone.
    wanted_above(&mut hand, 1);
    assert_eq!(hand.sent(), [nack_to(child(0), 1)]);
    let verdict = hand.repair(0, 1);
    assert_eq!(hand.targets(verdict), [source()]);
    // While the parent itself is asked, its request is answered by that.
    hand.data(3);
    assert_eq!(hand.sent(), [nack_to(source(), 2)]);
    wanted_above(&mut hand, 2);
    assert_eq!(hand.sent(), []);
    let verdict = hand.repair_from_source(2);
    assert_eq!(hand.targets(verdict), [child(0), child(1), child(2)]);
    // Of a request for what was lost here too: a NACK, at once.
    let mut hand = Hand::new(2, |config| config.early_detection = false);
    hand.data(1);
    hand.data(3);
    wanted_above(&mut hand, 2);
    assert_eq!(hand.sent(), [nack_to(source(), 2)]);
}

#[test]
fn request_of_the_parent_that_finds_no_state_is_counted() {
    let mut hand = Hand::new(2, |_| {});
    for seq in 0..70 {
        hand.data(seq);
    }
    for first in [0, 65] {
        let nack = Nack {
            mask: u64::MAX,
            ..Nack::default()
        };
        hand.handle(source(), ID, 0xffff, first, Body::Nack(nack));
    }
    assert_eq!(hand.drops(DropReason::NackStatesFull), 130 - 64);
    let sent = hand.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].to, sent[0].mask), (child(0), (1 << 63) - 1));
}

#[test]
fn repairs_from_above_go_to_those_that_asked_or_to_all_where_the_relay_lost_it() {
    let mut hand = Hand::new(3, |_| {});
    hand.data(1);
    for loser in 0..3 {
        hand.nack(loser, 1);
    }
    hand.after(2);
    let verdict = hand.repair_from_source(1);
    assert_eq!(hand.targets(verdict).len(), 3);
    assert_eq!(hand.relay.stats().repaired_above, 1);
    assert_eq!(hand.relay.stats().recovered, 0, "it was here");
    // Lost here, asked for by none.
    let mut hand = Hand::new(3, |config| config.early_detection = false);
    hand.data(1);
    hand.data(3);
    let verdict = hand.repair_from_source(2);
    assert_eq!(hand.targets(verdict).len(), 3);
    assert_eq!(hand.relay.stats().recovered, 1);
    // Asked for by the parent alone, which repairs it itself.
    hand.data(4);
    wanted_above(&mut hand, 4);
    assert_eq!(hand.sent(), [nack_to(child(0), 4)]);
    assert_eq!(hand.repair_from_source(4), Verdict::Done);
    let other = hand.handle(source(), ID + 1, 0xffff, 4, Body::Repair(b"data"));
    assert_eq!(other, Verdict::Drop(DropReason::OtherSession));
}

#[test]
fn late_data_settles_what_was_asked_for() {
    let mut hand = Hand::new(3, |_| {});
    hand.data(1);
    hand.data(3);
    assert_eq!(hand.sent(), [nack_to(source(), 2)]);
    assert_eq!(hand.data(2), 3);
    let stats = hand.relay.stats();
    assert_eq!((stats.data, stats.gaps, stats.recovered), (3, 1, 1));
    // It goes to all: for a while no child needs to ask, and the parent is not asked again.
    for n in 0..3 {
        hand.nack(n, 2);
    }
    assert_eq!(hand.drops(DropReason::Suppressed), 3);
    assert_eq!(hand.after(500), []);
    assert_eq!(hand.relay.stats().given_up, 0);
}

/// The wait for a replier, and the time for which like NACKs are ignored: twice the way to the farthest receiver.
#[test]
fn far_receivers_are_waited_for() {
    let far =
        |hand: &mut Hand, far_us| hand.join_from_afar(child(3), Role::Receiver, 0, [far_us, 0]);
    let mut hand = Hand::new(4, |config| config.decide.1 = Duration::from_millis(1));
    far(&mut hand, 40_000);
    hand.data(1);
    hand.nack(2, 1);
    assert_eq!(hand.after(2), [nack_to(child(0), 1)]);
    assert_eq!(hand.after(79), []);
    assert_eq!(hand.after(2), [nack_to(child(1), 1)]);
    let verdict = hand.repair(1, 1);
    assert_eq!(hand.targets(verdict), [child(2)]);
    // Ignored for that time, then served again.
    hand.after(79);
    hand.nack(2, 1);
    assert_eq!(hand.drops(DropReason::Suppressed), 1);
    hand.after(3);
    hand.nack(2, 1);
    assert_eq!(hand.drops(DropReason::Suppressed), 1);
    assert_eq!(hand.after(2), [nack_to(child(0), 1)]);
}

fn source_leaves(hand: &mut Hand) {
    let join = dyram::wire::Join {
        role: Role::Source,
        token: 0,
        stamp: 1,
        far_us: 0,
        receivers: 1,
        relay: Default::default(),
        round_trip_us: 0,
    };
    hand.handle(source(), 0, 0xffff, 0, Body::Join(join));
    let (_, joined, _) = hand.joined();
    hand.handle(source(), 0, 0xffff, 0, Body::Leave(joined.token));
}

/// The source leaves, and registers again after 120 ms. Returns what is sent in the next 200 ms.
fn with_the_source_away(hand: &mut Hand, meanwhile: impl FnOnce(&mut Hand)) -> Vec<Body<'static>> {
    source_leaves(hand);
    meanwhile(hand);
    assert_eq!(hand.after(2), []);
    assert_eq!(hand.after(118), []);
    hand.join(source(), Role::Source, 0);
    let sent = hand.during(200).into_iter();
    sent.map(|(_, one)| {
        assert_eq!(one.to, source());
        one.body
    })
    .collect()
}

#[test]
fn without_a_way_up_nacks_and_acknowledgements_wait_for_one() {
    let mut hand = Hand::new(2, |_| {});
    hand.data(1);
    hand.data(2);
    let sent = with_the_source_away(&mut hand, |hand| {
        for n in 0..2 {
            hand.handle(child(n), ID, n, 2, Body::Ack);
        }
    });
    assert_eq!(sent, [Body::Ack]);
    assert_eq!(hand.relay.stats().asked_parent, 0);
    let sent = with_the_source_away(&mut hand, |hand| {
        for n in 0..2 {
            hand.nack(n, 2);
        }
    });
    let Some(Body::Nack(nack)) = sent.first() else {
        panic!("{sent:?}");
    };
    assert_eq!(nack.ack, Some(Seq(2)));
    assert_eq!(hand.relay.stats().asked_parent, sent.len() as u64);
}

#[test]
fn acknowledgement_that_has_no_way_up_is_tried_once_in_each_interval() {
    let mut hand = Hand::new(1, |_| {});
    hand.data(1);
    source_leaves(&mut hand);
    hand.handle(child(0), ID, 0, 2, Body::Ack);
    let end = hand.now + Duration::from_secs(1);
    let mut calls = 0;
    while let Some(at) = hand.relay.poll_timeout().filter(|&at| at < end) {
        hand.now = at;
        hand.relay.handle_timeout(hand.now);
        assert_eq!(hand.sent(), []);
        calls += 1;
    }
    assert!((10..50).contains(&calls), "{calls}");
    hand.join(source(), Role::Source, 0);
    let sent = hand.after(101);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].service, sent[0].first), (Service::Ack, 2));
}

/// What IP multicast carries counts only to the group and from the source's host, what relays carry only from above.
#[test]
fn data_comes_only_on_its_way() {
    let meta = |source, group| Meta { source, group };
    let mut elsewhere = source();
    elsewhere.set_port(9);
    let refused = Verdict::Drop(DropReason::NotFromParent);
    for carriage in [Carriage::Relays, Carriage::Multicast] {
        let is_multicast = carriage == Carriage::Multicast;
        for (body, seq) in [(Body::Data(b"x"), 1), (Body::Cast(b"x"), 2)] {
            let mut hand = Hand::new(1, |config| config.carriage = carriage);
            let mut say = |meta| {
                let (verdict, _) = hand.forward(&meta, ID, 0xffff, seq, body.clone());
                verdict
            };
            assert_eq!(say(meta(source(), !is_multicast)), refused);
            assert_eq!(say(meta(child(0), is_multicast)), refused);
            // Another port of the source's host sends to the group, but is not the source above.
            let other = say(meta(elsewhere, is_multicast));
            assert_eq!(other == refused, !is_multicast, "{carriage:?}");
            let mut hand = Hand::new(1, |config| config.carriage = carriage);
            let (verdict, _) = hand.forward(&meta(source(), is_multicast), ID, 0xffff, seq, body);
            assert_eq!(verdict == Verdict::Done, is_multicast, "{carriage:?}");
            assert_ne!(verdict, refused);
        }
    }
}
