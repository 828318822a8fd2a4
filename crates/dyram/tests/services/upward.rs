//! A relay below parents that the test plays: it joins, refreshes, moves on, and asks them for what is missing.

use dyram::wire::{Body, Join, Joined, Nack, Packet, Path, Role, Status};
use dyram::{Config, DropReason, Duration, Event, Meta, RelayId, Seq, Verdict};

use super::hand::{Hand, ID, Whole, child, key, nack_to, source};
use super::parents::{
    NUMBER, TOKEN, answer, attached, below, data_from, info, join_in, joined, joins_in, parent,
    token_of,
};

#[test]
fn relay_joins_its_parent_with_the_first_child_and_leaves_with_the_last() {
    let mut hand = Hand::bare(4, below(1));
    assert_eq!(hand.tick(), []);
    hand.join(source(), Role::Source, 0);
    hand.join(child(0), Role::Receiver, 0);
    assert_eq!(hand.tick(), [], "the source is here");
    let mut hand = attached(1);
    let session = info(&hand);
    assert_eq!((session.above, session.attached), (Some(parent(1)), true));
    let verdict = data_from(&mut hand, parent(1), 1);
    assert_eq!(hand.targets(verdict), [child(0), child(1)]);
    let strange = data_from(&mut hand, parent(2), 2);
    assert_eq!(strange, Verdict::Drop(DropReason::NotFromParent));
    hand.leave(0);
    assert_eq!(hand.sent_whole(), []);
    hand.leave(1);
    let leave = Whole {
        to: parent(1),
        session: 0,
        child: NUMBER,
        sequence: 0,
        body: Body::Leave(TOKEN),
    };
    assert_eq!(hand.sent_whole(), [leave]);
    assert_eq!(info(&hand).above, None);
    assert_eq!(hand.relay.stats().left, 2);
    let late = data_from(&mut hand, parent(1), 2);
    assert_eq!(late, Verdict::Drop(DropReason::NotFromParent));
    hand.events();
    hand.during(2_100);
    assert_eq!(hand.events(), [Event::Closed(key())]);
    assert_eq!(hand.relay.sessions().count(), 0);
}

#[test]
fn relay_refreshes_as_its_parent_says_and_reports_what_is_below() {
    let mut hand = attached(1);
    // Another child, and a relay that is far away.
    hand.join_from_afar(child(2), Role::Relay, 7, [8_000, 6_400]);
    let of_joins = |sent: Vec<(u64, Whole)>| -> Vec<(u64, u16, Join)> {
        let of = sent.into_iter().filter(|(_, one)| one.to == parent(1));
        of.map(|(at, one)| (at, one.child, join_in(&[one], parent(1))))
            .collect()
    };
    let joins = of_joins(hand.during(1_010));
    assert_eq!(joins.len(), 1);
    let (at, number, join) = joins[0];
    assert!(
        (1_000..=1_001).contains(&at),
        "one refresh interval of the parent"
    );
    assert_eq!((number, join.token), (NUMBER, TOKEN));
    // Counted at this relay's last refresh.
    assert_eq!(join.receivers, 2);
    assert_eq!((join.round_trip_us, join.far_us), (20_000, 28_000));
    answer(&mut hand, parent(1), joined(Status::Joined, join.stamp));
    let joins = of_joins(hand.during(1_300));
    assert_eq!(joins[0].2.receivers, 3);
    // No answer: again after a quarter of a second.
    assert_eq!(joins.len(), 2);
    assert!(
        (250..=251).contains(&(joins[1].0 - joins[0].0)),
        "{joins:?}"
    );
    assert_eq!(hand.events()[1..], []);
}

#[test]
fn answers_count_only_from_the_parent_and_with_the_stamp() {
    let mut hand = Hand::bare(4, below(2));
    hand.join(child(0), Role::Receiver, 0);
    hand.events();
    let join = join_in(&hand.tick(), parent(1));
    let strange = answer(&mut hand, parent(2), joined(Status::Joined, join.stamp));
    assert_eq!(strange, Verdict::Drop(DropReason::NotFromParent));
    let forged = answer(&mut hand, parent(1), joined(Status::Joined, join.stamp + 1));
    assert_eq!(forged, Verdict::Drop(DropReason::BadToken));
    assert_eq!((info(&hand).above, hand.events()), (None, vec![]));
    // A session with its source here expects no answer.
    let mut hand = Hand::new(1, below(1));
    let needless = answer(&mut hand, parent(1), joined(Status::Joined, 0));
    assert_eq!(needless, Verdict::Drop(DropReason::NotFromParent));
}

#[test]
fn refusals_and_loops_lead_to_the_next_parent_after_a_pause() {
    let mut hand = Hand::bare(4, below(2));
    hand.join(child(0), Role::Receiver, 0);
    hand.events();
    let join = join_in(&hand.tick(), parent(1));
    answer(&mut hand, parent(1), joined(Status::Full, join.stamp));
    assert_eq!(hand.events(), [Event::Refused(key(), parent(1))]);
    let sent = hand.during(300);
    let (at, second) = &sent[0];
    assert!((250..=300).contains(at), "{at} ms");
    assert_eq!(sent.len(), 1);
    let join = join_in(std::slice::from_ref(second), parent(2));
    answer(&mut hand, parent(2), joined(Status::Loop, join.stamp));
    assert_eq!(hand.events(), [Event::Loop(key(), RelayId(2))]);
    // Both have refused now.
    let (at, third) = &hand.during(600)[0];
    assert!((500..=600).contains(at), "{at} ms");
    let join = join_in(std::slice::from_ref(third), parent(1));
    // The relay finds the loop itself: it is above its parent.
    let path = Path::from_slice(&[RelayId(9), RelayId(4)]).unwrap();
    let circle = Joined {
        path,
        ..joined(Status::Joined, join.stamp)
    };
    answer(&mut hand, parent(1), circle);
    assert_eq!(hand.events(), [Event::Loop(key(), RelayId(4))]);
    assert_eq!(info(&hand).above, None);
}

/// It is alive, and what is lost on the way to it or back is sent again without delay.
#[test]
fn a_parent_that_sent_a_token_gets_three_more_tries() {
    let mut hand = Hand::bare(4, below(2));
    hand.join(child(0), Role::Receiver, 0);
    hand.events();
    let joins = joins_in(&hand.during(800 + 800 + 1_100));
    let (_, to, join) = joins.last().copied().unwrap();
    assert_eq!(
        (joins.len(), to),
        (9, parent(1)),
        "the third try of the second round"
    );
    let challenge = |token| Joined {
        token,
        ..joined(Status::Challenge, join.stamp)
    };
    answer(&mut hand, parent(1), challenge(1));
    let joins = joins_in(&hand.during(1_000));
    let when = |to| {
        let of = joins.iter().filter(move |(_, other, _)| *other == to);
        of.map(|(at, ..)| *at / 250).collect::<Vec<_>>()
    };
    assert_eq!(when(parent(1)), [0, 1, 2], "{joins:?}");
    assert_eq!(when(parent(2)), [3], "{joins:?}");
    assert_eq!(joins[0].2.token, 1);
}

/// One that sends another token for each JOIN is given up, too.
#[test]
fn tokens_without_end_hold_no_child() {
    let mut hand = Hand::bare(4, below(2));
    hand.join(child(0), Role::Receiver, 0);
    let mut tries = 0;
    for token in 1..100 {
        let sent = hand.tick();
        if sent.iter().all(|one| one.to != parent(1)) {
            break;
        }
        let challenge = Joined {
            token,
            ..joined(Status::Challenge, join_in(&sent, parent(1)).stamp)
        };
        tries += 1;
        answer(&mut hand, parent(1), challenge);
    }
    assert_eq!(tries, 4);
}

#[test]
fn silent_parents_are_tried_in_turn_and_reported() {
    let mut hand = Hand::bare(4, below(2));
    hand.join(child(0), Role::Receiver, 0);
    hand.events();
    let sent = hand.during(5_000);
    let to = |n| {
        let of = sent.iter().filter(move |(_, one)| one.to == parent(n));
        of.map(|(at, _)| *at).collect::<Vec<_>>()
    };
    // Three tries each, then the other one.
    assert!(to(1).len() >= 3 && to(2).len() >= 3, "{sent:?}");
    assert!(to(1)[2] < to(2)[0], "{sent:?}");
    assert_eq!(hand.events(), [Event::Unanswered(key(), parent(2))]);
    // One that was attached and falls silent is lost, and another one is tried.
    let mut hand = attached(2);
    data_from(&mut hand, parent(1), 1);
    let sent = hand.during(1_900);
    assert!(sent.iter().any(|(_, one)| one.to == parent(2)), "{sent:?}");
    let leaves = sent.iter().filter(|(_, one)| {
        (one.to, one.child, &one.body) == (parent(1), NUMBER, &Body::Leave(TOKEN))
    });
    assert_eq!(leaves.count(), 1);
    assert_eq!(hand.events(), [Event::ParentLost(key(), parent(1))]);
    assert_eq!(info(&hand).above, None);
}

#[test]
fn move_takes_the_token_of_the_parent_and_leads_to_the_next_one() {
    let mut hand = attached(2);
    let mut ask = |from, token| hand.handle(from, 0, 0xffff, 0, Body::Move(token));
    let wrong = ask(parent(1), TOKEN + 1);
    assert_eq!(wrong, Verdict::Drop(DropReason::BadToken));
    let strange = ask(parent(2), TOKEN);
    assert_eq!(strange, Verdict::Drop(DropReason::NotFromParent));
    assert_eq!(ask(parent(1), TOKEN), Verdict::Done);
    assert_eq!(hand.events(), [Event::ParentLost(key(), parent(1))]);
    let sent = hand.sent_whole();
    assert_eq!(sent.len(), 1);
    assert_eq!(
        (sent[0].to, &sent[0].body),
        (parent(1), &Body::Leave(TOKEN))
    );
    assert_eq!(join_in(&hand.tick(), parent(2)).token, 0);
    assert_eq!(info(&hand).above, None);
    // With a single parent there is nowhere to go.
    let mut hand = attached(1);
    let verdict = hand.handle(parent(1), 0, 0xffff, 0, Body::Move(TOKEN));
    assert_eq!(verdict, Verdict::Done);
    assert_eq!((hand.tick(), hand.events()), (vec![], vec![]));
    assert_eq!(info(&hand).above, Some(parent(1)));
    // The source cannot move a relay at which it is registered.
    let mut hand = Hand::new(1, below(2));
    let verdict = hand.handle(source(), 0, 0xffff, 0, Body::Move(TOKEN));
    assert_eq!(verdict, Verdict::Drop(DropReason::NotFromParent));
}

#[test]
fn source_that_registers_takes_the_place_of_the_parent() {
    let mut hand = attached(1);
    data_from(&mut hand, parent(1), 5);
    let (status, _) = hand.join(source(), Role::Source, 0);
    assert_eq!(status, Status::Joined);
    let sent = hand.sent_whole();
    assert_eq!(sent.len(), 1);
    assert_eq!(
        (sent[0].to, &sent[0].body),
        (parent(1), &Body::Leave(TOKEN))
    );
    assert_eq!(hand.events(), [Event::SourceArrived(key(), source())]);
    assert_eq!(info(&hand).above, Some(source()));
    // Another run may begin at once.
    let verdict = hand.handle(source(), ID + 1, 0xffff, 0, Body::Data(b"data"));
    assert_eq!(hand.targets(verdict).len(), 2);
    assert_eq!(info(&hand).id, Some(ID + 1));
    // The source goes: the parent is joined again.
    let token = token_of(&mut hand, source(), Role::Source);
    let verdict = hand.handle(source(), 0, 0xffff, 0, Body::Leave(token));
    assert_eq!(verdict, Verdict::Done);
    assert_eq!(hand.events(), [Event::SourceLost(key())]);
    join_in(&hand.tick(), parent(1));
    // It left; it does not leave again.
    let again = hand.handle(source(), 0, 0xffff, 0, Body::Leave(token));
    assert_eq!(again, Verdict::Drop(DropReason::NotFromChild));
}

#[test]
fn leave_counts_only_from_the_child_under_its_number() {
    let mut hand = Hand::new(3, |_| {});
    let token = token_of(&mut hand, child(1), Role::Receiver);
    for number in [0, 2, 5, 0xffff] {
        let verdict = hand.handle(child(1), 0, number, 0, Body::Leave(token));
        assert_eq!(verdict, Verdict::Drop(DropReason::NotFromChild), "{number}");
    }
    assert_eq!((hand.relay.stats().left, info(&hand).children), (0, 3));
    let verdict = hand.handle(child(1), 0, 1, 0, Body::Leave(token));
    assert_eq!(verdict, Verdict::Done);
    assert_eq!(hand.events(), [Event::ChildGone(key(), child(1))]);
    let verdict = hand.handle(child(1), 0, 1, 0, Body::Leave(token));
    assert_eq!(verdict, Verdict::Drop(DropReason::NotFromChild));
    assert_eq!((hand.relay.stats().left, info(&hand).children), (1, 2));
}

#[test]
fn nacks_upward_wait_twice_as_long_each_time_and_end() {
    let mut hand = attached(1);
    data_from(&mut hand, parent(1), 1);
    data_from(&mut hand, parent(1), 3);
    let first = hand.sent_whole();
    let nack = |repeats| Whole {
        to: parent(1),
        session: ID,
        child: NUMBER,
        sequence: 2,
        body: Body::Nack(Nack {
            mask: 0,
            ack: None,
            repeats,
        }),
    };
    assert_eq!(first, [nack(0)]);
    assert_eq!(hand.relay.stats().asked_parent, 1);
    // 5/4 of the round-trip time of 20 ms, and the 30 ms that the parent needs for a repair.
    let sent = hand.during(400);
    let nacks: Vec<_> = sent
        .iter()
        .filter(|(_, one)| matches!(one.body, Body::Nack(_)))
        .collect();
    let at: Vec<u64> = nacks.iter().map(|(at, _)| *at).collect();
    assert_eq!(
        at,
        [56, 167, 388],
        "55, 110 and 220 ms, up to the next tick"
    );
    for (repeats, (_, one)) in (1..).zip(&nacks) {
        assert_eq!(one, &nack(repeats));
    }
    // After two NACKs in vain the parent is asked whether it is alive.
    let joins: Vec<u64> = sent
        .iter()
        .filter(|(_, one)| matches!(one.body, Body::Join(_)))
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(joins, [231], "a quarter of a second after the last JOIN");
    // The parent answers: it stays.
    let (_, join) = sent.iter().find(|(at, _)| *at == 231).unwrap();
    let Body::Join(join) = join.body else {
        panic!("{join:?}");
    };
    let verdict = answer(&mut hand, parent(1), joined(Status::Joined, join.stamp));
    assert_eq!(verdict, Verdict::Done);
    assert_eq!(hand.events(), []);
    assert_eq!(hand.relay.stats().asked_parent, 4);
}

#[test]
fn nack_is_given_up_after_its_tries_and_waits_ten_seconds_at_most() {
    let change = |config: &mut Config| {
        config.parent_tries = 12;
        config.refresh = Duration::from_secs(60);
        config.stall_timeout = Duration::from_secs(60);
    };
    let mut hand = Hand::bare(2, change);
    // The round-trip time to the source, as it says: 200 ms.
    hand.join_from_afar(source(), Role::Source, 0, [200_000, 0]);
    hand.join(child(0), Role::Receiver, 0);
    hand.data(1);
    hand.data(3);
    assert_eq!(hand.sent(), [nack_to(source(), 2)]);
    let mut waits: Vec<u64> = Vec::new();
    let mut waited = 0u64;
    while hand.relay.stats().given_up == 0 {
        waited += 10;
        if hand.after(10) == [nack_to(source(), 2)] {
            waits.push(waited);
            waited = 0;
        }
        assert!(waited < 20_000);
    }
    waits.push(waited);
    assert_eq!(waits.len(), 12, "the first one, eleven more, and the end");
    for (n, wait) in waits.iter().enumerate() {
        let expected = (400u64 << n.min(6)).min(10_000);
        assert!(wait.abs_diff(expected) <= 20, "{n}: {wait} for {expected}");
    }
    assert_eq!(hand.relay.stats().asked_parent, 12);
    // It is still missing here: a late repair goes to all.
    let verdict = hand.repair_from_source(2);
    assert_eq!(hand.targets(verdict), [child(0)]);
}

#[test]
fn child_learns_the_path_and_how_long_a_repair_takes() {
    let mut hand = attached(1);
    hand.join_from_afar(child(1), Role::Receiver, 0, [8_000, 0]);
    let answer = |hand: &mut Hand| {
        let join = Join {
            role: Role::Receiver,
            token: token_of(hand, child(0), Role::Receiver),
            stamp: 1_234,
            far_us: 0,
            round_trip_us: 0,
            receivers: 1,
            relay: RelayId(0),
        };
        hand.handle(child(0), 0, 0, 0, Body::Join(join));
        let sent = hand.sent_whole();
        match &sent[0].body {
            Body::Joined(joined) => (sent[0].clone(), joined.clone()),
            other => panic!("{other:?}"),
        }
    };
    let (packet, joined) = answer(&mut hand);
    assert_eq!((packet.to, packet.child), (child(0), 0));
    assert_eq!((joined.status, joined.stamp), (Status::Joined, 1_234));
    // No packet was seen yet.
    assert!(joined.attached && !joined.live);
    assert_eq!((packet.session, packet.sequence), (0, 0));
    assert_eq!(joined.path[..], [RelayId(1), RelayId(2), RelayId(9)]);
    assert_eq!(joined.refresh_ms, 2_000);
    // Twice the way to the farthest receiver, the shortest delay to decide, and what the parent needs.
    assert_eq!(joined.repair_us, 16_000 + 1_000 + 25_000 + 30_000);
    data_from(&mut hand, parent(1), 41);
    let (packet, joined) = answer(&mut hand);
    assert!(joined.live);
    assert_eq!((packet.session, packet.sequence), (ID, 42));
    // Where the source is registered, the path begins here.
    let mut hand = Hand::new(2, |_| {});
    let (_, joined) = answer(&mut hand);
    assert!(joined.attached);
    assert_eq!(joined.path[..], [RelayId(9)]);
    assert_eq!(joined.repair_us, 1_000);
    // Without a source or a parent there is no way to it.
    let mut hand = Hand::bare(2, below(1));
    hand.join(child(0), Role::Receiver, 0);
    let (_, joined) = answer(&mut hand);
    assert!(!joined.attached);
    assert_eq!(joined.path[..], [RelayId(9)]);
}

#[test]
fn children_learn_that_the_parent_has_no_way_to_the_source() {
    let mut hand = Hand::bare(4, below(1));
    hand.join(child(0), Role::Receiver, 0);
    hand.events();
    let join = join_in(&hand.tick(), parent(1));
    let accepted = Joined {
        attached: false,
        ..joined(Status::Joined, join.stamp)
    };
    answer(&mut hand, parent(1), accepted);
    assert_eq!(hand.events(), [Event::Attached(key(), parent(1))]);
    let session = info(&hand);
    assert_eq!((session.above, session.attached), (Some(parent(1)), false));
    let join = Join {
        role: Role::Receiver,
        token: token_of(&mut hand, child(0), Role::Receiver),
        stamp: 1,
        far_us: 0,
        round_trip_us: 0,
        receivers: 1,
        relay: RelayId(0),
    };
    hand.handle(child(0), 0, 0, 0, Body::Join(join));
    let (_, joined, _) = hand.joined();
    assert_eq!((joined.status, joined.attached), (Status::Joined, false));
}

#[test]
fn loops_and_long_paths_are_refused() {
    let mut hand = attached(1);
    for (relay, status) in [
        (1, Status::Loop),
        (2, Status::Loop),
        (9, Status::Loop),
        (3, Status::Joined),
    ] {
        let from = child(100 + relay as u16);
        assert_eq!(hand.join(from, Role::Relay, relay).0, status, "{relay}");
    }
    assert_eq!(hand.join(child(3), Role::Receiver, 0).0, Status::Joined);
    // As many relays above as a path may have.
    let mut hand = Hand::bare(4, below(1));
    hand.join(child(0), Role::Receiver, 0);
    hand.events();
    let join = join_in(&hand.tick(), parent(1));
    let path = (20..34).map(RelayId).collect();
    let accepted = Joined {
        path,
        ..joined(Status::Joined, join.stamp)
    };
    answer(&mut hand, parent(1), accepted);
    assert_eq!(hand.join(child(1), Role::Receiver, 0).0, Status::Full);
    let refused = Event::ChildRefused(key(), child(1), dyram::Full::Path);
    assert_eq!(hand.events()[1..], [refused]);
}

#[test]
fn repair_for_the_parent_names_the_number_that_it_gave() {
    let mut hand = attached(1);
    data_from(&mut hand, parent(1), 1);
    let wanted = Body::Nack(Nack::default());
    hand.handle(parent(1), ID, 0xffff, 1, wanted);
    let sent = hand.sent_whole();
    assert_eq!((sent[0].to, sent[0].child), (child(0), NUMBER));
    let from = Meta::unicast(child(0));
    let (verdict, bytes) = hand.forward(&from, ID, 0, 1, Body::Repair(b"data"));
    assert_eq!(hand.targets(verdict), [parent(1)]);
    let packet = Packet::new_checked(&bytes[..]).unwrap();
    assert_eq!((packet.child(), packet.sequence()), (NUMBER, Seq(1)));
    assert_eq!(packet.payload(), b"data");
    // ABSENT and acknowledgements name it too.
    data_from(&mut hand, parent(1), 2);
    for n in 0..2 {
        hand.handle(child(n), ID, n, 3, Body::Ack);
    }
    let sent = hand.during(150);
    let acks: Vec<_> = sent
        .iter()
        .filter(|(_, one)| one.body == Body::Ack)
        .collect();
    assert_eq!(acks.len(), 1);
    let (at, ack) = acks[0];
    assert!((100..=102).contains(at), "{at}");
    assert_eq!(
        (ack.to, ack.session, ack.child, ack.sequence),
        (parent(1), ID, NUMBER, 3)
    );
}

/// The parent says which run it forwards; data of another one makes the relay ask.
#[test]
fn another_run_is_confirmed_by_the_parent() {
    let mut hand = attached(1);
    data_from(&mut hand, parent(1), 1);
    let other = hand.handle(parent(1), ID + 1, 0xffff, 1, Body::Data(b"data"));
    assert_eq!(other, Verdict::Drop(DropReason::OtherSession));
    assert_eq!(hand.events(), []);
    let sent = hand.during(300);
    let (at, join) = sent
        .iter()
        .find(|(_, one)| matches!(one.body, Body::Join(_)))
        .expect("the parent is asked");
    assert_eq!(*at, 231, "a quarter of a second after the last JOIN");
    let Body::Join(join) = join.body else {
        panic!("{join:?}");
    };
    let accepted = Joined {
        live: true,
        ..joined(Status::Joined, join.stamp)
    };
    let verdict = hand.handle(parent(1), ID + 1, NUMBER, 0, Body::Joined(accepted));
    assert_eq!(verdict, Verdict::Done);
    assert_eq!(info(&hand).id, Some(ID + 1));
    let new = hand.handle(parent(1), ID + 1, 0xffff, 1, Body::Data(b"data"));
    assert_eq!(hand.targets(new).len(), 2);
    assert_eq!(
        data_from(&mut hand, parent(1), 2),
        Verdict::Drop(DropReason::OtherSession)
    );
}
