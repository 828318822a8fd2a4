//! Early detection of losses, repeated NACKs ignored, repairs subcast, acknowledgements folded (DyRAM §3.1,
//! §3.2.2).

use dyram::wire::{Body, Nack, Service};
use dyram::{Carriage, DropReason, Meta, Seq, Verdict};

use super::hand::{Hand, ID, Sent, child, key, nack_to, source};

#[test]
fn a_gap_is_requested_at_once_and_like_nacks_are_ignored() {
    let mut hand = Hand::new(3, |_| {});
    hand.data(1);
    assert_eq!(hand.data(4), 3);
    let nack = Sent {
        mask: 1,
        ..nack_to(source(), 2)
    };
    assert_eq!(hand.sent(), [nack]);
    for loser in 0..3 {
        hand.nack(loser, 2);
    }
    assert_eq!(
        hand.sent(),
        [],
        "the children's NACKs are for what was asked already"
    );
    let verdict = hand.repair_from_source(2);
    assert_eq!(
        hand.targets(verdict).len(),
        3,
        "what the relay lost, all below lost"
    );
    assert_eq!(
        hand.repair_from_source(2),
        Verdict::Drop(DropReason::Unrequested)
    );
}

#[test]
fn without_early_detection_the_relay_waits_for_the_first_request() {
    let mut hand = Hand::new(3, |config| config.early_detection = false);
    hand.data(1);
    hand.data(3);
    assert_eq!(hand.sent(), []);
    hand.nack(2, 2);
    assert_eq!(
        hand.sent(),
        [nack_to(source(), 2)],
        "no election: everybody lost it"
    );
}

#[test]
fn a_request_without_an_answer_is_repeated_and_finally_given_up() {
    let mut hand = Hand::new(3, |config| config.parent_tries = 3);
    hand.data(1);
    hand.data(3);
    let mut asked = hand.sent().len();
    for _ in 0..200 {
        let sent = hand.after(5);
        asked += sent
            .iter()
            .filter(|sent| sent.service == Service::Nack)
            .count();
    }
    assert_eq!(asked, 3);
    assert_eq!(hand.relay.stats().given_up, 1);
}

#[test]
fn packets_that_come_late_go_to_all_and_settle_the_matter() {
    let mut hand = Hand::new(3, |_| {});
    hand.data(1);
    hand.data(3);
    hand.sent();
    assert_eq!(hand.data(2), 3);
    assert_eq!(
        hand.repair_from_source(2),
        Verdict::Drop(DropReason::Unrequested)
    );
    let verdict = hand.handle(source(), ID, 0xffff, 2, Body::Data(b"data"));
    assert_eq!(verdict, Verdict::Drop(DropReason::Duplicate));
}

#[test]
fn a_repair_goes_only_to_children_that_lost_the_packet() {
    let mut hand = Hand::new(5, |_| {});
    hand.data(1);
    hand.nack(4, 1);
    hand.nack(2, 1);
    hand.after(2);
    let verdict = hand.repair(0, 1);
    assert_eq!(hand.targets(verdict), [child(2), child(4)]);
    assert_eq!(hand.repair(0, 1), Verdict::Drop(DropReason::Unrequested));
}

#[test]
fn after_a_repair_like_nacks_are_ignored_for_a_while_and_others_are_not() {
    let mut hand = Hand::new(5, |_| {});
    hand.data(1);
    hand.nack(4, 1);
    hand.after(2);
    let _ = hand.repair(0, 1);
    hand.nack(4, 1);
    assert_eq!(hand.drops(DropReason::Suppressed), 1);
    hand.nack(3, 1);
    assert_eq!(hand.after(2), [nack_to(child(0), 1)]);
    let verdict = hand.repair(0, 1);
    assert_eq!(hand.targets(verdict), [child(3)]);
    hand.after(20);
    hand.nack(4, 1);
    assert_eq!(hand.after(2), [nack_to(child(0), 1)], "its repair was lost");
}

#[test]
fn a_heartbeat_shows_that_the_last_packets_are_missing() {
    let mut hand = Hand::new(2, |_| {});
    hand.data(1);
    let verdict = hand.handle(source(), ID, 0xffff, 4, Body::Cast(b"3 is the last"));
    assert_eq!(hand.targets(verdict).len(), 2);
    let nack = Sent {
        mask: 1,
        ..nack_to(source(), 2)
    };
    assert_eq!(hand.sent(), [nack]);
}

#[test]
fn the_slowest_receiver_is_what_the_source_learns() {
    let mut hand = Hand::new(3, |_| {});
    for seq in 0..10 {
        hand.data(seq);
    }
    for (number, ack) in [(0, 9), (1, 4), (2, 7)] {
        hand.handle(child(number), ID, number, ack, Body::Ack);
    }
    let acks = |sent: Vec<Sent>| -> Vec<u32> {
        let acks = sent.into_iter().filter(|sent| sent.service == Service::Ack);
        acks.map(|ack| ack.first).collect()
    };
    assert_eq!(acks(hand.after(110)), [4]);
    assert_eq!(acks(hand.after(110)), [0u32; 0], "no news");
    // A NACK carries it; acknowledgements only advance.
    let nack = Nack {
        ack: Some(Seq(8)),
        ..Nack::default()
    };
    hand.handle(child(1), ID, 1, 9, Body::Nack(nack));
    hand.handle(child(1), ID, 1, 5, Body::Ack);
    assert_eq!(acks(hand.after(110)), [7]);
}

/// New data that IP multicast carries.
fn data(hand: &mut Hand, seq: u32) -> Verdict {
    let repr = dyram::wire::Repr {
        key: key(),
        session: ID,
        child: 0xffff,
        sequence: Seq(seq),
        body: Body::Data(b"data"),
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    let meta = Meta {
        source: source(),
        group: true,
    };
    hand.relay.forward(hand.now, &meta, &mut bytes)
}

/// Children may have a packet that the relay and another child lost.
#[test]
fn beside_ip_multicast_a_replier_below_is_elected_for_what_the_relay_lost() {
    let mut hand = Hand::new(3, |config| config.carriage = Carriage::Multicast);
    assert_eq!(data(&mut hand, 1), Verdict::Done);
    assert_eq!(data(&mut hand, 3), Verdict::Done);
    hand.sent();
    hand.nack(2, 2);
    assert_eq!(hand.after(2), [nack_to(child(0), 2)]);
    let verdict = hand.repair(0, 2);
    assert_eq!(hand.targets(verdict), [child(2)]);
    // The parent asks for what the relay lost: a child may have it.
    assert_eq!(data(&mut hand, 5), Verdict::Done);
    let wanted = Body::Nack(Nack::default());
    hand.handle(source(), ID, 0xffff, 4, wanted);
    assert_eq!(hand.after(2), [nack_to(child(0), 4)]);
    let verdict = hand.repair(0, 4);
    assert_eq!(hand.targets(verdict), [source()]);
    // All three lost it: the parent.
    assert_eq!(data(&mut hand, 7), Verdict::Done);
    for loser in 0..3 {
        hand.nack(loser, 6);
    }
    assert_eq!(hand.after(2), [nack_to(source(), 6)]);
}

#[test]
fn beside_ip_multicast_relays_pass_nothing_on_but_repairs() {
    let mut hand = Hand::new(3, |config| config.carriage = Carriage::Multicast);
    assert_eq!(data(&mut hand, 1), Verdict::Done);
    assert_eq!(data(&mut hand, 3), Verdict::Done);
    assert_eq!(hand.sent(), [], "the loss may be this relay's alone");
    hand.nack(2, 3);
    assert_eq!(hand.after(2), [nack_to(child(0), 3)]);
    let verdict = hand.repair(0, 3);
    assert_eq!(hand.targets(verdict), [child(2)]);
    let forged = hand.handle(source(), ID, 0xffff, 4, Body::Data(b"data"));
    assert_eq!(forged, Verdict::Drop(DropReason::NotFromParent));
}
