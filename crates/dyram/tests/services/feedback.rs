//! Feedback: of all children the lowest speaks to the source, and no child speaks often.

use std::net::SocketAddr;

use dyram::wire::{Body, Feedback, Role, Service, Status};
use dyram::{Attachment, AttachmentConfig, DropReason, Duration, Meta, Verdict};

use super::hand::{Hand, ID, Whole, child, key, source};
use super::parents::{answer, below, data_from, join_in, joined, parent};

/// What a child says that has this rank.
pub(crate) fn said(rank: u64) -> Body<'static> {
    said_after(rank, 0)
}

fn said_after(rank: u64, held_us: u32) -> Body<'static> {
    Body::Feedback(Feedback {
        rank,
        held_us,
        message: b"message",
    })
}

/// A relay with its source, so many children, and a session that runs.
fn running(children: u16) -> Hand {
    let mut hand = Hand::new(children, |_| {});
    hand.data(1);
    hand
}

fn says(hand: &mut Hand, number: u16, rank: u64) -> Verdict {
    hand.handle(child(number), ID, number, 0, said(rank))
}

/// Ranks of the feedbacks among what the relay sends.
fn ranks(sent: Vec<Whole>) -> Vec<u64> {
    let of = |one: Whole| match one.body {
        Body::Feedback(feedback) => Some(feedback.rank),
        _ => None,
    };
    sent.into_iter().filter_map(of).collect()
}

/// A child says this, and ten milliseconds pass: returns what goes upward.
fn passed(hand: &mut Hand, number: u16, rank: u64) -> Vec<u64> {
    assert_eq!(says(hand, number, rank), Verdict::Done);
    let mut sent = ranks(hand.sent_whole());
    sent.extend(ranks(
        hand.during(10).into_iter().map(|(_, one)| one).collect(),
    ));
    sent
}

/// Children and source refresh.
fn refresh(hand: &mut Hand, children: u16) {
    hand.join(source(), Role::Source, 0);
    for number in 0..children {
        hand.join(child(number), Role::Receiver, 0);
    }
}

#[test]
fn the_child_that_spoke_last_is_heard_and_others_only_below_it() {
    let mut hand = running(3);
    assert_eq!(passed(&mut hand, 0, 50), [50]);
    assert_eq!(passed(&mut hand, 1, 60), []);
    assert_eq!(passed(&mut hand, 1, 50), [], "no lower");
    assert_eq!(passed(&mut hand, 0, 70), [70], "its own rank has risen");
    assert_eq!(passed(&mut hand, 1, 60), [60]);
    assert_eq!(passed(&mut hand, 0, 65), []);
    assert_eq!(passed(&mut hand, 2, 59), [59]);
    assert_eq!(passed(&mut hand, 1, 60), []);
    let stats = hand.relay.stats();
    assert_eq!((stats.feedback, stats.feedback_suppressed), (4, 4));
}

#[test]
fn feedback_is_passed_on_as_it_came() {
    let mut hand = running(1);
    hand.handle(child(0), ID, 0, 0, said_after(7, 1_234));
    let sent = hand.sent_whole();
    let expected = Whole {
        to: source(),
        session: ID,
        child: 0xffff,
        sequence: 0,
        body: said_after(7, 1_234),
    };
    assert_eq!(sent, [expected]);
}

#[test]
fn after_a_second_of_silence_another_speaks() {
    let mut hand = running(2);
    assert_eq!(passed(&mut hand, 0, 50), [50]);
    hand.during(988);
    assert_eq!(passed(&mut hand, 1, 90), [], "998 ms");
    assert_eq!(passed(&mut hand, 1, 90), [90]);
    assert_eq!(passed(&mut hand, 0, 91), []);
}

#[test]
fn another_speaks_once_the_lowest_has_left() {
    let mut hand = running(3);
    assert_eq!(passed(&mut hand, 0, 50), [50]);
    hand.leave(1);
    assert_eq!(passed(&mut hand, 2, 90), [], "another one left");
    hand.leave(0);
    assert_eq!(passed(&mut hand, 2, 90), [90]);
}

#[test]
fn feedback_that_waits_goes_with_its_child() {
    let mut hand = running(2);
    assert_eq!(passed(&mut hand, 0, 50), [50]);
    says(&mut hand, 0, 40);
    hand.sent();
    says(&mut hand, 1, 30);
    hand.leave(1);
    assert_eq!(
        ranks(hand.during(10).into_iter().map(|(_, one)| one).collect()),
        []
    );
    assert_eq!(passed(&mut hand, 0, 60), [60]);
}

#[test]
fn feedback_of_a_child_that_stalled_does_not_count() {
    let mut hand = Hand::new(2, |config| {
        config.refresh = Duration::from_millis(500);
        config.stall_timeout = Duration::from_secs(1);
    });
    hand.data(0);
    hand.data(1);
    hand.handle(child(0), ID, 0, 1, Body::Ack);
    hand.handle(child(1), ID, 1, 2, Body::Ack);
    while hand.relay.stats().stalled == 0 {
        assert_eq!(passed(&mut hand, 0, 5), [5]);
        refresh(&mut hand, 2);
        hand.during(90);
    }
    assert_eq!(passed(&mut hand, 1, 90), [90], "it speaks no more");
    assert_eq!(passed(&mut hand, 0, 5), []);
}

#[test]
fn feedback_waits_five_milliseconds_after_the_last_and_the_lowest_that_waits_goes() {
    let mut hand = running(4);
    says(&mut hand, 0, 50);
    assert_eq!(ranks(hand.sent_whole()), [50]);
    for (number, rank) in [(0, 45), (1, 30), (2, 40), (1, 35), (3, 30)] {
        says(&mut hand, number, rank);
        assert_eq!(ranks(hand.sent_whole()), []);
    }
    let sent = hand.during(20);
    assert_eq!(sent.len(), 1);
    let Body::Feedback(feedback) = &sent[0].1.body else {
        panic!("{sent:?}");
    };
    assert_eq!(feedback.rank, 30);
    // It was held for as long as it waited.
    assert_eq!(u64::from(feedback.held_us), 1_000 * sent[0].0);
    assert_eq!(hand.relay.stats().feedback_suppressed, 4);
    // Child 1 was the first with the lowest rank.
    assert_eq!(passed(&mut hand, 3, 31), []);
    assert_eq!(passed(&mut hand, 1, 31), [31]);
}

#[test]
fn time_held_saturates() {
    let mut hand = running(1);
    says(&mut hand, 0, 1);
    hand.sent();
    hand.handle(child(0), ID, 0, 0, said_after(2, u32::MAX - 10));
    let sent = hand.during(10);
    assert_eq!(sent[0].1.body, said_after(2, u32::MAX));
}

/// Acknowledgements in a second that both children follow the data, with a flood of feedback or without.
fn acknowledgements(floods: bool) -> usize {
    let mut hand = running(2);
    let mut acks = 0;
    for step in 0..1_000 {
        if step % 25 == 0 {
            let next = 2 + step / 25;
            hand.data(next);
            for number in 0..2 {
                hand.handle(child(number), ID, number, next + 1, Body::Ack);
            }
        }
        if floods {
            says(&mut hand, 0, 1);
        }
        acks += hand
            .tick()
            .iter()
            .filter(|one| one.body == Body::Ack)
            .count();
    }
    acks
}

/// They are folded by their own timer, whatever goes beside them.
#[test]
fn acknowledgements_go_upward_beside_a_flood_of_feedback() {
    assert!(acknowledgements(false) >= 7);
    assert_eq!(acknowledgements(true), acknowledgements(false));
}

#[test]
fn feedback_names_the_number_that_the_parent_gave() {
    let mut hand = Hand::bare(2, below(1));
    hand.join(child(0), Role::Receiver, 0);
    let join = join_in(&hand.tick(), parent(1));
    answer(&mut hand, parent(1), joined(Status::Joined, join.stamp));
    data_from(&mut hand, parent(1), 1);
    says(&mut hand, 0, 9);
    let sent = hand.sent_whole();
    assert_eq!((sent.len(), sent[0].to), (1, parent(1)));
    assert_ne!(sent[0].child, 0xffff);
}

#[test]
fn feedback_without_a_way_to_the_source_is_dropped() {
    let mut hand = running(1);
    let mut step = 0;
    while hand.relay.sessions().next().unwrap().above.is_some() {
        hand.join(child(0), Role::Receiver, 0);
        hand.during(500);
        step += 1;
        assert!(step < 100);
    }
    assert_eq!(passed(&mut hand, 0, 1), []);
    hand.join(source(), Role::Source, 0);
    assert_eq!(passed(&mut hand, 0, 1), [1]);
}

#[test]
fn another_run_begins_with_all_again() {
    let mut hand = running(2);
    assert_eq!(passed(&mut hand, 0, 50), [50]);
    hand.join(source(), Role::Source, 0);
    hand.during(4_000);
    refresh(&mut hand, 2);
    let _ = hand.handle(source(), ID + 1, 0xffff, 0, Body::Data(b"x"));
    let old = says(&mut hand, 0, 50);
    assert_eq!(old, Verdict::Drop(DropReason::OtherSession));
    let verdict = hand.handle(child(1), ID + 1, 1, 0, said(90));
    assert_eq!(verdict, Verdict::Done);
    assert_eq!(ranks(hand.sent_whole()), [90]);
}

#[test]
fn feedback_is_accepted_only_from_a_child_under_its_number() {
    let mut hand = running(2);
    let not_child = Verdict::Drop(DropReason::NotFromChild);
    for (from, number) in [(child(7), 0), (child(7), 0xffff), (child(1), 0)] {
        let verdict = hand.handle(from, ID, number, 0, said(1));
        assert_eq!(verdict, not_child);
    }
    let from_above = hand.handle(source(), ID, 0xffff, 0, said(1));
    assert_eq!(from_above, Verdict::Drop(DropReason::WrongWay));
    assert_eq!(hand.sent(), []);
}

fn upward(hand: &mut Hand) -> usize {
    let of = |sent: &super::hand::Sent| sent.service == Service::Feedback;
    hand.in_time(1).iter().filter(|sent| of(sent)).count()
}

#[test]
fn a_child_that_floods_causes_at_most_200_packets_a_second_upward() {
    let mut hand = running(2);
    let mut sent = 0;
    for step in 0..1_000 {
        for rank in 0..20 {
            says(&mut hand, 0, (step * 7 + rank * 13) % 100);
        }
        sent += upward(&mut hand);
    }
    assert!((150..=200).contains(&sent), "{sent}");
}

/// The last word of a liar is the lowest one that it said in the interval, and a genuine child below it is heard next.
#[test]
fn a_child_that_lies_does_not_silence_a_lower_one() {
    let mut hand = running(2);
    let mut heard = Vec::new();
    for step in 0..1_000u64 {
        says(&mut hand, 0, if step % 2 == 0 { 1_000 } else { u64::MAX });
        if step % 50 == 20 {
            says(&mut hand, 1, 10);
        }
        heard.extend(ranks(hand.tick()));
    }
    let genuine = heard.iter().filter(|&&rank| rank == 10).count();
    assert_eq!(genuine, 20, "each time that it speaks");
    // Nor does one that was the lowest and rises.
    let mut hand = running(2);
    assert_eq!(passed(&mut hand, 0, 1), [1]);
    assert_eq!(passed(&mut hand, 1, 10), []);
    assert_eq!(passed(&mut hand, 0, u64::MAX), [u64::MAX]);
    assert_eq!(passed(&mut hand, 1, 10), [10]);
    assert_eq!(passed(&mut hand, 0, u64::MAX), []);
}

#[test]
fn an_endpoint_takes_feedback_as_source_only_and_from_its_relay_only() {
    for role in [Role::Source, Role::Receiver] {
        let relay: SocketAddr = child(200);
        let config = AttachmentConfig {
            key: key(),
            role,
            relays: [relay].into_iter().collect(),
        };
        let mut hand = running(1);
        let mut endpoint = Attachment::new(config, [1; 32], hand.now);
        let (_, bytes) = hand.forward(&Meta::unicast(child(0)), ID, 0, 0, said(1));
        let stranger = endpoint.handle_packet(hand.now, &Meta::unicast(child(9)), &bytes);
        assert_eq!(stranger, Err(DropReason::NotFromParent));
        let packet = endpoint.handle_packet(hand.now, &Meta::unicast(relay), &bytes);
        match role {
            Role::Source => assert_eq!(packet.unwrap().unwrap().body, said(1)),
            _ => assert_eq!(packet, Err(DropReason::WrongWay)),
        }
    }
}

/// A relay below another: the upper one hears one child.
#[test]
fn relays_below_count_as_one_child() {
    let mut hand = running(1);
    let (status, number) = hand.join(child(50), Role::Relay, 12);
    assert_eq!(status, Status::Joined);
    let below = |hand: &mut Hand, rank| {
        hand.handle(child(50), ID, number, 0, said_after(rank, 3_000));
        hand.during(10)
    };
    assert_eq!(below(&mut hand, 20).len(), 1);
    assert_eq!(passed(&mut hand, 0, 30), []);
    assert_eq!(passed(&mut hand, 0, 10), [10]);
    assert_eq!(below(&mut hand, 20).len(), 0);
}
