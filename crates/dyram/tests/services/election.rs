//! Dynamic replier election (DyRAM §3.2.3).

use dyram::wire::{Body, Role, Service, Status};
use dyram::{DefaultReplier, DropReason, Verdict};

use super::hand::{Hand, ID, child, nack_to, source};

#[test]
fn the_first_receiver_is_the_default_replier() {
    let mut hand = Hand::new(5, |_| {});
    hand.data(1);
    assert_eq!(hand.nack(3, 1), Verdict::Done);
    assert_eq!(hand.sent(), [], "the delay to decide runs");
    assert_eq!(hand.after(2), [nack_to(child(0), 1)]);
}

#[test]
fn the_default_moves_on_when_it_is_among_the_losers() {
    let mut hand = Hand::new(5, |_| {});
    hand.data(1);
    for loser in [3, 0, 1] {
        hand.nack(loser, 1);
    }
    assert_eq!(hand.after(2), [nack_to(child(2), 1)]);
    let verdict = hand.repair(2, 1);
    assert_eq!(hand.targets(verdict), [child(0), child(1), child(3)]);
}

#[test]
fn a_first_nack_from_the_default_elects_the_second() {
    let mut hand = Hand::new(5, |_| {});
    hand.data(1);
    hand.nack(0, 1);
    assert_eq!(hand.after(2), [nack_to(child(1), 1)]);
}

#[test]
fn all_but_one_lost_it_in_either_order() {
    for backward in [false, true] {
        let mut hand = Hand::new(25, |_| {});
        hand.data(1);
        let mut losers: Vec<u16> = (0..25).filter(|&number| number != 24).collect();
        if backward {
            losers.reverse();
        }
        for loser in losers {
            hand.nack(loser, 1);
        }
        assert_eq!(hand.after(2), [nack_to(child(24), 1)]);
        let verdict = hand.repair(24, 1);
        assert_eq!(hand.targets(verdict).len(), 24);
    }
}

#[test]
fn when_all_lost_it_the_nack_goes_up() {
    let mut hand = Hand::new(4, |_| {});
    hand.data(1);
    for loser in 0..4 {
        hand.nack(loser, 1);
    }
    assert_eq!(hand.after(2), [nack_to(source(), 1)]);
    let verdict = hand.repair_from_source(1);
    assert_eq!(hand.targets(verdict).len(), 4);
}

#[test]
fn repliers_may_take_turns() {
    let mut hand = Hand::new(4, |config| config.default_replier = DefaultReplier::Spread);
    let mut asked = Vec::new();
    for seq in 0..8 {
        hand.data(seq);
        hand.nack(0, seq);
        let to = hand.after(2)[0].to;
        let replier = (1..4).find(|&number| child(number) == to).unwrap();
        hand.repair(replier, seq);
        asked.push(to);
    }
    // Whose turn it is, unless it is the loser: then the next one.
    let expected = [1, 1, 2, 3, 1, 1, 2, 3].map(child);
    assert_eq!(asked, expected);
}

#[test]
fn a_turn_that_begins_late_goes_around_once() {
    let mut hand = Hand::new(4, |config| config.default_replier = DefaultReplier::Spread);
    hand.data(3);
    for loser in [3, 0, 1] {
        hand.nack(loser, 3);
    }
    assert_eq!(hand.after(2), [nack_to(child(2), 3)]);
    hand.data(4);
    hand.data(5);
    hand.data(6);
    hand.data(7);
    for loser in [3, 0, 1, 2] {
        hand.nack(loser, 7);
    }
    assert_eq!(hand.after(2), [nack_to(source(), 7)]);
}

#[test]
fn after_absent_the_next_replier_is_asked() {
    let mut hand = Hand::new(4, |_| {});
    hand.data(1);
    hand.nack(3, 1);
    assert_eq!(hand.after(2), [nack_to(child(0), 1)]);
    hand.handle(child(0), ID, 0, 1, Body::Absent(0));
    assert_eq!(hand.sent(), [nack_to(child(1), 1)]);
    let verdict = hand.repair(1, 1);
    assert_eq!(
        hand.targets(verdict),
        [child(0), child(3)],
        "who lacks it gets it"
    );
}

#[test]
fn a_replier_that_turns_out_to_be_a_loser_is_passed_over() {
    let mut hand = Hand::new(4, |_| {});
    hand.data(1);
    hand.nack(3, 1);
    assert_eq!(hand.after(2), [nack_to(child(0), 1)]);
    hand.nack(0, 1);
    assert_eq!(hand.sent(), [nack_to(child(1), 1)]);
}

#[test]
fn silent_repliers_are_passed_over_and_then_the_parent_is_asked() {
    let mut hand = Hand::new(4, |_| {});
    hand.data(1);
    hand.nack(3, 1);
    assert_eq!(hand.after(2), [nack_to(child(0), 1)]);
    assert_eq!(hand.after(6), [nack_to(child(1), 1)]);
    // Twice the wait, and a quarter more, since the first was in vain.
    assert_eq!(hand.after(11), []);
    assert_eq!(hand.after(5), [nack_to(source(), 1)]);
    // Too late: it is not waited for any more.
    assert_eq!(hand.repair(1, 1), Verdict::Drop(DropReason::Unrequested));
}

/// Only the distance of a child counts, not that of receivers below it: a child detects its own losses at once.
#[test]
fn the_delay_to_decide_is_the_way_to_the_farthest_child() {
    let mut hand = Hand::new(3, |_| {});
    let joined = hand.join_from_afar(child(2), Role::Relay, 5, [80_000, 20_000]);
    assert_eq!(joined, (Status::Joined, 2));
    hand.data(1);
    hand.nack(1, 1);
    assert_eq!(hand.after(9), []);
    assert_eq!(hand.after(2), [nack_to(child(0), 1)]);
    // The next count forgets a child that is nearer by now, once it has been said for a while.
    for _ in 0..3 {
        hand.join(source(), Role::Source, 0);
        hand.join(child(0), Role::Receiver, 0);
        hand.join(child(1), Role::Receiver, 0);
        hand.join_from_afar(child(2), Role::Relay, 5, [80_000, 4_000]);
        hand.after(2_001);
    }
    hand.data(2);
    hand.nack(1, 2);
    assert_eq!(hand.after(3), [nack_to(child(0), 2)]);
}

/// A busy host answers later than the network alone would let it.
#[test]
fn repliers_that_were_seen_to_be_slow_are_waited_for() {
    let mut hand = Hand::new(4, |_| {});
    let mut too_late = Vec::new();
    for seq in 1..=40 {
        hand.data(seq);
        hand.nack(3, seq);
        assert_eq!(hand.after(2), [nack_to(child(0), seq)]);
        hand.after(20);
        if hand.repair(0, seq) == Verdict::Drop(DropReason::Unrequested) {
            too_late.push(seq);
            hand.after(20);
            let _ = hand.repair_from_source(seq);
        }
        hand.after(60);
    }
    assert!(
        too_late.first() == Some(&1) && too_late.last() < Some(&15),
        "{too_late:?}"
    );
}

#[test]
fn a_replier_that_was_silent_is_not_asked_again_when_the_turn_has_gone_around() {
    let mut hand = Hand::new(4, |config| config.default_replier = DefaultReplier::Spread);
    hand.data(3);
    for loser in 0..3 {
        hand.nack(loser, 3);
    }
    assert_eq!(hand.after(2), [nack_to(child(3), 3)]);
    assert_eq!(hand.after(6), [nack_to(source(), 3)]);
}

#[test]
fn packets_that_the_parent_requests_are_requested_below() {
    let mut hand = Hand::new(4, |_| {});
    hand.data(1);
    let wanted = Body::Nack(Default::default());
    assert_eq!(
        hand.handle(source(), ID, 0xffff, 1, wanted.clone()),
        Verdict::Done
    );
    assert_eq!(
        hand.sent(),
        [nack_to(child(0), 1)],
        "nobody has to wait for others"
    );
    let verdict = hand.repair(0, 1);
    assert_eq!(hand.targets(verdict), [source()]);

    hand.data(2);
    hand.handle(source(), ID, 0xffff, 2, wanted);
    for absent in 0..2 {
        assert_eq!(hand.sent(), [nack_to(child(absent), 2)]);
        hand.handle(child(absent), ID, absent, 2, Body::Absent(0));
    }
    // Two lack it now, and want it: that is the answer.
    let sent = hand.sent();
    assert_eq!(sent, [nack_to(source(), 2)]);
}

#[test]
fn a_relay_without_children_answers_absent() {
    let mut hand = Hand::new(0, |_| {});
    hand.data(1);
    hand.handle(source(), ID, 0xffff, 1, Body::Nack(Default::default()));
    let sent = hand.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].to, sent[0].service), (source(), Service::Absent));
}

/// A NACK that arrives while ABSENT is pending is not lost.
#[test]
fn a_child_that_requests_while_absent_waits_to_be_sent_gets_its_repair() {
    let mut hand = Hand::new(3, |_| {});
    hand.data(1);
    hand.handle(source(), ID, 0xffff, 1, Body::Nack(Default::default()));
    assert_eq!(hand.sent(), [nack_to(child(0), 1)]);
    // The first two go; the parent would be told that the packet is not here.
    for number in 0..2 {
        let token = hand_token(&mut hand, number);
        hand.handle(child(number), 0, number, 0, Body::Leave(token));
    }
    hand.now += dyram::Duration::from_millis(20);
    hand.relay.handle_timeout(hand.now);
    assert_eq!(hand.sent(), [nack_to(child(2), 1)]);
    hand.now += dyram::Duration::from_millis(240);
    hand.relay.handle_timeout(hand.now);
    hand.nack(2, 1);
    assert_eq!(hand.sent(), [nack_to(source(), 1)]);
    let verdict = hand.repair_from_source(1);
    assert_eq!(hand.targets(verdict), [child(2)]);
}

#[test]
fn a_child_that_leaves_is_not_asked() {
    let mut hand = Hand::new(3, |_| {});
    hand.data(1);
    hand.nack(2, 1);
    let token = hand_token(&mut hand, 0);
    hand.handle(child(0), 0, 0, 0, Body::Leave(token));
    assert_eq!(hand.after(2), [nack_to(source(), 1)]);
}

/// The token that the relay gave to a child.
fn hand_token(hand: &mut Hand, number: u16) -> u64 {
    use dyram::wire::{Join, Packet, Repr, Role};
    let join = Join {
        role: Role::Receiver,
        token: 0,
        stamp: 0,
        far_us: 0,
        round_trip_us: 0,
        receivers: 1,
        relay: Default::default(),
    };
    hand.handle(child(number), 0, 0xffff, 0, Body::Join(join));
    let mut buffer = [0; 256];
    let transmit = hand.relay.poll_transmit(hand.now, &mut buffer).unwrap();
    let packet = Packet::new_checked(&buffer[..transmit.len]).unwrap();
    match Repr::parse(&packet).body {
        Body::Joined(joined) => joined.token,
        other => panic!("{other:?}"),
    }
}
