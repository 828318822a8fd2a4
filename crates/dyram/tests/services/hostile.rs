//! Forged and hostile packets.

use dyram::wire::{Body, Join, Nack, Repr, Role, Service, Status};
use dyram::{
    Attachment, AttachmentConfig, DropReason, Event, Meta, Parents, RelayId, Seq, Verdict,
};

use super::feedback::said;
use super::hand::{Hand, ID, child, key, nack_to, source};

#[test]
fn packets_are_accepted_only_from_their_senders() {
    let mut hand = Hand::new(2, |_| {});
    hand.data(1);
    let stranger = child(77);
    let from = |hand: &mut Hand, number, body| {
        let sequence = u32::from(!matches!(body, Body::Feedback(_)));
        hand.handle(stranger, ID, number, sequence, body)
    };
    let not_parent = Verdict::Drop(DropReason::NotFromParent);
    let not_child = Verdict::Drop(DropReason::NotFromChild);
    assert_eq!(from(&mut hand, 0xffff, Body::Data(b"x")), not_parent);
    assert_eq!(from(&mut hand, 0xffff, Body::Cast(b"x")), not_parent);
    assert_eq!(from(&mut hand, 0, Body::Repair(b"x")), not_child);
    assert_eq!(from(&mut hand, 0, Body::Nack(Nack::default())), not_child);
    assert_eq!(from(&mut hand, 0, Body::Absent(0)), not_child);
    assert_eq!(from(&mut hand, 0, Body::Ack), not_child);
    assert_eq!(from(&mut hand, 0, said(1)), not_child);
    // A child under another's number.
    let verdict = hand.handle(child(1), ID, 0, 1, Body::Ack);
    assert_eq!(verdict, not_child);
}

/// The number of places is that of the bits in the words of a set.
#[test]
fn number_past_the_last_place_is_no_child() {
    let mut hand = Hand::bare(64, |_| {});
    hand.join(source(), Role::Source, 0);
    hand.join(child(0), Role::Receiver, 0);
    hand.data(1);
    for number in [63, 64, 65, 0xffff] {
        let verdict = hand.handle(child(0), ID, number, 2, Body::Ack);
        assert_eq!(verdict, Verdict::Drop(DropReason::NotFromChild), "{number}");
    }
}

#[test]
fn packets_of_another_version_have_a_counter_of_their_own() {
    let mut hand = Hand::new(2, |_| {});
    let config = AttachmentConfig {
        key: key(),
        role: Role::Receiver,
        relays: Parents::from_slice(&[source()]).unwrap(),
    };
    let mut endpoint = Attachment::new(config, [1; 32], hand.now);
    let repr = Repr {
        key: key(),
        session: ID,
        child: 0xffff,
        sequence: Seq(2),
        body: Body::Cast(b"x"),
    };
    let mut packet = vec![0; repr.buffer_len()];
    repr.emit(&mut packet);
    for (identifier, reason) in [(0x5a, DropReason::Version), (0x58, DropReason::Malformed)] {
        packet[3] = identifier;
        let meta = Meta::unicast(source());
        let verdict = hand.relay.forward(hand.now, &meta, &mut packet);
        assert_eq!(verdict, Verdict::Drop(reason));
        let control = hand.relay.handle_packet(hand.now, &meta, &packet);
        assert_eq!(control, Err(reason));
        assert_eq!(hand.drops(reason), 2);
        let received = endpoint.handle_packet(hand.now, &meta, &packet);
        assert_eq!(received, Err(reason));
    }
}

#[test]
fn nacks_for_what_was_never_sent_or_was_acknowledged() {
    let mut hand = Hand::new(2, |_| {});
    hand.data(1);
    hand.nack(0, 2);
    assert_eq!(hand.drops(DropReason::NotSent), 1);
    hand.handle(child(0), ID, 0, 2, Body::Ack);
    hand.nack(0, 1);
    assert_eq!(hand.drops(DropReason::Acknowledged), 1);
    hand.handle(child(0), ID, 0, 1_000, Body::Ack);
    assert_eq!(hand.drops(DropReason::NotSent), 2);
    assert_eq!(hand.after(50), []);
}

#[test]
fn a_receiver_that_requests_everything_gets_as_many_states_as_there_are() {
    let mut hand = Hand::new(3, |_| {});
    for seq in 0..250 {
        hand.data(seq);
    }
    for first in [0, 65, 130] {
        let nack = Nack {
            mask: u64::MAX,
            ..Nack::default()
        };
        hand.handle(child(2), ID, 2, first, Body::Nack(nack));
    }
    assert_eq!(hand.drops(DropReason::NackStatesFull), 195 - 64);
    let sent = hand.after(2);
    assert_eq!(sent.len(), 1, "one packet asks for all of them");
    assert_eq!(sent[0].mask.count_ones(), 63);
    // They are free again once repaired.
    for seq in 0..64 {
        let _ = hand.repair(0, seq);
    }
    hand.after(20);
    hand.nack(2, 200);
    assert_eq!(hand.after(2), [nack_to(child(0), 200)]);
}

/// The crate's documentation promises at most `replier_tries` NACKs downward and `parent_tries` upward for each lost
/// packet. Here all requests stay unanswered and are repeated.
#[test]
fn what_a_greedy_receiver_causes_is_bounded_by_what_it_sends() {
    let mut hand = Hand::new(8, |_| {});
    for seq in 0..250 {
        hand.data(seq);
    }
    let tries = u64::from(hand.relay.config().replier_tries + hand.relay.config().parent_tries);
    let (mut asked, mut sent, mut bits) = (0, 0, 0);
    for round in 0..5_000 {
        let nack = Nack {
            mask: u64::MAX,
            ..Nack::default()
        };
        hand.handle(child(7), ID, 7, round % 185, Body::Nack(nack));
        asked += 1;
        for packet in hand.after(1) {
            if packet.service == Service::Nack {
                sent += 1;
                bits += 1 + u64::from(packet.mask.count_ones());
            }
        }
    }
    assert!(sent > 0);
    assert!(sent <= tries * asked, "{sent} packets for {asked}");
    // Waits double, so far fewer are named than it asked for.
    assert!(
        bits < 65 * asked / 10,
        "{bits} named for {} asked for",
        65 * asked
    );
    assert_eq!(hand.relay.children(&key()).count(), 8);
}

/// A repair goes once to each child that asked, regardless of repeated requests.
#[test]
fn repairs_for_a_greedy_receiver_go_to_it_alone_and_once_for_each_that_was_sent() {
    let mut hand = Hand::new(8, |_| {});
    for seq in 0..64 {
        hand.data(seq);
    }
    let (mut repairs, mut copies) = (0, 0);
    for _ in 0..2_000 {
        for seq in 0..8 {
            hand.nack(7, seq);
        }
        for packet in hand.after(1) {
            if packet.service != Service::Nack || packet.to != child(0) {
                continue;
            }
            for seq in dyram::packets(Seq(packet.first), packet.mask) {
                repairs += 1;
                let verdict = hand.repair(0, seq.0);
                let targets = hand.targets(verdict);
                assert_eq!(targets, [child(7)]);
                copies += targets.len();
                // The same again was not asked for.
                let again = hand.repair(0, seq.0);
                assert_eq!(again, Verdict::Drop(DropReason::Unrequested));
            }
        }
    }
    assert!(repairs > 0);
    assert_eq!(repairs, copies);
    // Like NACKs are ignored for the hold time, 5 ms at least, after the delay to decide.
    assert!(repairs <= 8 * 2_000 / 5, "{repairs}");
}

#[test]
fn a_join_is_never_shorter_than_its_answer() {
    let mut hand = Hand::new(1, |_| {});
    let join = Join {
        role: Role::Receiver,
        token: 0,
        stamp: 0,
        far_us: 0,
        round_trip_us: 0,
        receivers: 1,
        relay: RelayId(0),
    };
    let repr = dyram::wire::Repr {
        key: key(),
        session: 0,
        child: 0xffff,
        sequence: Seq(0),
        body: Body::Join(join),
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    let len = bytes.len();
    let from = Meta::unicast(child(50));
    let _ = hand.relay.forward(hand.now, &from, &mut bytes);
    let mut buffer = [0; 256];
    let answer = hand.relay.poll_transmit(hand.now, &mut buffer).unwrap();
    assert!(answer.len <= len, "{} for {len}", answer.len);
}

#[test]
fn a_join_without_token_gets_one_and_changes_nothing() {
    let mut hand = Hand::new(1, |_| {});
    for forged in 0..100 {
        let join = Join {
            role: Role::Receiver,
            token: 12_345,
            stamp: 0,
            far_us: 0,
            round_trip_us: 0,
            receivers: 1,
            relay: RelayId(0),
        };
        let verdict = hand.handle(child(100 + forged), 0, 0xffff, 0, Body::Join(join));
        if forged < 32 {
            assert_eq!(verdict, Verdict::Done);
        } else {
            assert_eq!(verdict, Verdict::Drop(DropReason::JoinFlood));
        }
    }
    assert_eq!(hand.sent().len(), 32);
    assert_eq!(hand.relay.children(&key()).count(), 1);
}

#[test]
fn full_tables_refuse_and_evict_no_child() {
    let mut hand = Hand::new(4, |_| {});
    assert_eq!(hand.join(child(4), Role::Receiver, 0).0, Status::Full);
    assert_eq!(hand.relay.children(&key()).count(), 4);
    assert_eq!(hand.relay.stats().refused, 1);
    // Joining again is a refresh.
    assert_eq!(hand.join(child(2), Role::Receiver, 0), (Status::Joined, 2));
}

#[test]
fn no_host_registers_as_source_for_another() {
    let mut hand = Hand::new(1, |_| {});
    let join = Join {
        role: Role::Source,
        token: 0,
        stamp: 0,
        far_us: 0,
        round_trip_us: 0,
        receivers: 1,
        relay: RelayId(0),
    };
    let verdict = hand.handle(child(9), 0, 0xffff, 0, Body::Join(join));
    assert_eq!(verdict, Verdict::Drop(DropReason::NotSource));
}

#[test]
fn of_two_sources_with_one_name_the_first_is_served() {
    let mut hand = Hand::new(1, |_| {});
    hand.data(1);
    let other = hand.handle(source(), 6, 0xffff, 1, Body::Data(b"x"));
    assert_eq!(other, Verdict::Drop(DropReason::OtherSession));
    assert_eq!(
        hand.relay.poll_event(),
        Some(Event::Collision(key(), [ID, 6]))
    );
    let other = hand.handle(source(), 6, 0xffff, 2, Body::Data(b"x"));
    assert_eq!(other, Verdict::Drop(DropReason::OtherSession));
    assert_eq!(hand.relay.poll_event(), None, "told once");
    assert_eq!(hand.data(2), 1);
    // A source that started again is served when the old one has been silent for long enough.
    hand.after(3_100);
    hand.join(source(), Role::Source, 0);
    let other = hand.handle(source(), 6, 0xffff, 1, Body::Data(b"x"));
    assert_eq!(hand.targets(other).len(), 1);
}

#[test]
fn of_two_sources_on_one_host_the_first_is_served() {
    let mut hand = Hand::new(1, |_| {});
    hand.data(1);
    let mut second = source();
    second.set_port(source().port() + 1);
    for seq in 2..4 {
        let (status, _) = hand.join(second, Role::Source, 0);
        assert_eq!(status, Status::Full);
        assert_eq!(hand.data(seq), 1, "the first goes on");
        let told = (seq == 2).then_some(Event::SourceRefused(key(), second));
        assert_eq!(hand.relay.poll_event(), told, "at once, and once");
    }
    // A source that died without a word, and started again elsewhere on its host.
    hand.after(3_100);
    assert_eq!(hand.join(second, Role::Source, 0).0, Status::Joined);
    let other = hand.handle(second, 6, 0xffff, 1, Body::Data(b"x"));
    assert_eq!(hand.targets(other).len(), 1);
}

#[test]
fn one_stray_packet_far_ahead_requests_nothing() {
    let mut hand = Hand::new(1, |_| {});
    hand.data(1);
    let verdict = hand.handle(source(), ID, 0xffff, 1_000_000, Body::Data(b"x"));
    assert_eq!(verdict, Verdict::Drop(DropReason::FarAhead));
    assert_eq!(hand.sent(), []);
    assert_eq!(hand.data(2), 1);
}

#[test]
fn a_relay_does_not_take_itself_in() {
    let mut hand = Hand::new(1, |_| {});
    let (status, _) = hand.join(child(50), Role::Relay, 9);
    assert_eq!(status, Status::Loop);
    assert_eq!(
        hand.relay.poll_event(),
        Some(Event::Loop(key(), RelayId(9)))
    );
}

#[test]
fn leaving_takes_the_token() {
    let mut hand = Hand::new(2, |_| {});
    let verdict = hand.handle(child(0), 0, 0, 0, Body::Leave(1));
    assert_eq!(verdict, Verdict::Drop(DropReason::BadToken));
    let verdict = hand.handle(source(), 0, 0xffff, 0, Body::Move(1));
    assert!(matches!(verdict, Verdict::Drop(_)));
    assert_eq!(hand.relay.children(&key()).count(), 2);
}

#[test]
fn noise_changes_nothing() {
    let mut hand = Hand::new(2, |_| {});
    hand.data(1);
    let mut random = 1u64;
    for _ in 0..20_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let service = (random >> 40) as u8 % 11;
        let repr = dyram::wire::Repr {
            key: key(),
            session: ID,
            child: (random >> 20) as u16 % 3,
            sequence: Seq((random >> 50) as u32),
            body: Body::Absent(random),
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut bytes);
        bytes[32] = service;
        let froms = [source(), child(0), child(1), child(9)];
        let from = froms[(random >> 60) as usize % 4];
        let _ = hand
            .relay
            .forward(hand.now, &Meta::unicast(from), &mut bytes);
        hand.after(0);
    }
    assert_eq!(hand.relay.children(&key()).count(), 2);
}
