//! What a relay shows, its limits, how it drains, and how it takes another configuration.

use dyram::wire::{Body, Nack, Role, Service, Status};
use dyram::{
    ChildInfo, Config, ConfigError, DropReason, Duration, Event, Full, Parents, Seq, SessionInfo,
    SessionKey, Verdict,
};

use super::hand::{Hand, ID, child, key, nack_to, source};

fn other_key(n: u8) -> SessionKey {
    SessionKey::new([10, 0, 0, 1].into(), [239, 1, 2, 100 + n].into()).unwrap()
}

fn info(hand: &Hand) -> SessionInfo {
    hand.relay.sessions().next().expect("a session")
}

/// Children and the source refresh.
fn refresh(hand: &mut Hand, children: impl IntoIterator<Item = u16>) {
    hand.join(source(), Role::Source, 0);
    for n in children {
        hand.join(child(n), Role::Receiver, 0);
    }
}

#[test]
fn status_shows_sessions_and_their_children() {
    let mut hand = Hand::new(3, |_| {});
    assert_eq!(
        info(&hand),
        SessionInfo {
            key: key(),
            id: None,
            above: Some(source()),
            attached: true,
            children: 3,
            receivers: 0,
            newest: None,
            ordered: None,
            acknowledged: None,
            far: Duration::ZERO,
        }
    );
    hand.join_from_afar(child(1), Role::Receiver, 0, [8_000, 0]);
    hand.join_from_afar(child(2), Role::Receiver, 0, [4_010, 0]);
    hand.data(1);
    hand.data(3);
    hand.handle(child(0), ID, 0, 2, Body::Ack);
    hand.handle(child(1), ID, 1, 4, Body::Ack);
    hand.after(150);
    let expected = SessionInfo {
        key: key(),
        id: Some(ID),
        above: Some(source()),
        attached: true,
        children: 3,
        receivers: 3,
        newest: Some(Seq(3)),
        ordered: Some(Seq(1)),
        acknowledged: Some(Seq(2)),
        far: Duration::from_micros(8_000),
    };
    assert_eq!(info(&hand), expected);
    let children: Vec<ChildInfo> = hand.relay.children(&key()).collect();
    let of = |n, acknowledged: Option<u32>, far| ChildInfo {
        address: child(n),
        receivers: 1,
        acknowledged: acknowledged.map(Seq),
        far: Duration::from_micros(far),
        stalled: false,
    };
    // In units of 64 us.
    let expected = [of(0, Some(2), 0), of(1, Some(4), 8_000), of(2, None, 3_968)];
    assert_eq!(children, expected);
    assert_eq!(hand.relay.children(&other_key(0)).count(), 0);
}

/// Children in three words of a set, each of them listed and served.
#[test]
fn packets_go_to_every_child_of_many() {
    let mut hand = Hand::new(140, |_| {});
    assert_eq!(hand.data(1), 140);
    let verdict = hand.handle(source(), ID, 0xffff, 2, Body::Data(b"data"));
    assert_eq!(
        hand.targets(verdict),
        (0..140).map(child).collect::<Vec<_>>()
    );
    let losers = [1, 62, 63, 64, 65, 127, 128, 139];
    for loser in losers {
        hand.nack(loser, 1);
    }
    assert_eq!(hand.after(2), [nack_to(child(0), 1)]);
    let verdict = hand.repair(0, 1);
    assert_eq!(hand.targets(verdict), losers.map(child));
    for leaver in [63, 128] {
        hand.leave(leaver);
    }
    let verdict = hand.handle(source(), ID, 0xffff, 3, Body::Data(b"data"));
    let stay: Vec<_> = (0..140)
        .filter(|n| ![63, 128].contains(n))
        .map(child)
        .collect();
    assert_eq!(hand.targets(verdict), stay);
    assert_eq!(hand.relay.children(&key()).count(), 138);
}

/// As many events wait as there is room for; the others are counted.
#[test]
fn events_that_nobody_takes_are_counted() {
    let mut hand = Hand::bare(40, |_| {});
    hand.join(source(), Role::Source, 0);
    for n in 0..40 {
        hand.join(child(n), Role::Receiver, 0);
    }
    let events = hand.events();
    assert_eq!(
        events[..2],
        [Event::Opened(key()), Event::SourceArrived(key(), source())]
    );
    let joined = (0..30).map(|n| Event::ChildJoined(key(), child(n)));
    assert_eq!(events[2..], joined.collect::<Vec<_>>());
    assert_eq!(hand.relay.stats().events_lost, 10);
    assert_eq!(hand.relay.stats().joined, 40);
}

#[test]
fn sessions_beyond_the_limit_are_refused_until_one_has_closed() {
    let mut hand = Hand::new(1, |_| {});
    for n in 0..3 {
        hand.key = other_key(n);
        assert_eq!(hand.join(child(0), Role::Receiver, 0), (Status::Joined, 0));
        assert_eq!(hand.events()[0], Event::Opened(other_key(n)));
    }
    hand.key = other_key(3);
    assert_eq!(hand.join(child(7), Role::Receiver, 0).0, Status::Full);
    let refused = Event::ChildRefused(other_key(3), child(7), Full::Sessions);
    assert_eq!(hand.events(), [refused]);
    assert_eq!(hand.relay.stats().refused, 1);
    assert_eq!(hand.relay.sessions().count(), 4);
    // Packets of a session belong to it alone.
    hand.key = other_key(1);
    assert_eq!(hand.nack(0, 1), Verdict::Drop(DropReason::OtherSession));
    hand.key = other_key(3);
    assert_eq!(hand.nack(0, 1), Verdict::Drop(DropReason::NoSession));
    // Their children are silent: the sessions end, that of the source stays.
    for _ in 0..6 {
        hand.key = key();
        refresh(&mut hand, [0]);
        hand.after(2_001);
    }
    let closed = (0..3).map(|n| Event::Closed(other_key(n)));
    let told: Vec<_> = hand.events();
    for event in closed {
        assert!(told.contains(&event), "{told:?}");
    }
    assert_eq!(hand.relay.sessions().count(), 1);
    assert_eq!(hand.data(1), 1);
    for n in [3, 0, 5] {
        hand.key = other_key(n);
        assert_eq!(hand.join(child(0), Role::Receiver, 0), (Status::Joined, 0));
    }
}

#[test]
fn silent_children_and_sources_are_removed_after_three_refreshes() {
    let mut hand = Hand::new(2, |_| {});
    hand.after(0);
    // The first child refreshes, the other and the source do not.
    let mut seen = Vec::new();
    for step in 1..=90 {
        if step % 19 == 0 {
            hand.join(child(0), Role::Receiver, 0);
        }
        hand.after(100);
        for event in hand.events() {
            seen.push((step, event));
        }
    }
    // At the refresh after the third that they missed.
    for (step, event) in &seen {
        assert!(
            (60..=85).contains(step),
            "{event:?} after {step} tenths of a second"
        );
    }
    let told: Vec<_> = seen.iter().map(|(_, event)| *event).collect();
    let expected = [Event::ChildGone(key(), child(1)), Event::SourceLost(key())];
    assert_eq!(told, expected);
    assert_eq!((hand.relay.stats().silent, info(&hand).children), (1, 1));
    assert_eq!(info(&hand).receivers, 1);
    assert_eq!((info(&hand).above, info(&hand).attached), (None, false));
}

#[test]
fn short_buffer_gets_no_packet_and_output_waits() {
    let mut hand = Hand::new(2, |_| {});
    hand.after(0);
    hand.data(1);
    hand.data(3);
    assert_eq!(hand.relay.poll_timeout(), Some(hand.now), "a NACK waits");
    let mut short = [0; dyram::MAX_CONTROL_LEN - 1];
    assert_eq!(hand.relay.poll_transmit(hand.now, &mut short), None);
    let mut buffer = [0; dyram::MAX_CONTROL_LEN];
    assert!(hand.relay.poll_transmit(hand.now, &mut buffer).is_some());
    assert!(hand.relay.poll_timeout() > Some(hand.now));
}

#[test]
fn control_packets_pass_without_forwarding_and_others_do_not() {
    use dyram::wire::Repr;
    let mut hand = Hand::new(2, |_| {});
    hand.data(1);
    let handle = |hand: &mut Hand, from, number, body: Body<'_>| {
        let repr = Repr {
            key: key(),
            session: ID,
            child: number,
            sequence: Seq(1),
            body,
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut bytes);
        let meta = dyram::Meta::unicast(from);
        hand.relay.handle_packet(hand.now, &meta, &bytes)
    };
    let nack = Body::Nack(Nack::default());
    assert_eq!(handle(&mut hand, child(1), 1, nack), Ok(()));
    assert_eq!(hand.relay.stats().nacked, 1);
    let wrong = Err(DropReason::WrongWay);
    for body in [Body::Data(b"x"), Body::Cast(b"x"), Body::Repair(b"x")] {
        assert_eq!(handle(&mut hand, source(), 0xffff, body), wrong);
    }
    // An acknowledgement from above, a JOIN to the group.
    assert_eq!(handle(&mut hand, source(), 0xffff, Body::Ack), wrong);
    assert_eq!(hand.drops(DropReason::WrongWay), 4);
    let join = Body::Join(dyram::wire::Join {
        role: Role::Receiver,
        token: 0,
        stamp: 0,
        far_us: 0,
        receivers: 1,
        relay: Default::default(),
        round_trip_us: 0,
    });
    let meta = dyram::Meta {
        source: child(3),
        group: true,
    };
    let (verdict, _) = hand.forward(&meta, 0, 0xffff, 0, join);
    assert_eq!(verdict, Verdict::Drop(DropReason::WrongWay));
}

/// The tokens and targets of MOVE.
fn moves(hand: &mut Hand) -> Vec<(std::net::SocketAddr, u64)> {
    let sent = hand.sent_whole().into_iter();
    sent.filter_map(|one| match one.body {
        Body::Move(token) => Some((one.to, token)),
        _ => None,
    })
    .collect()
}

#[test]
fn draining_moves_the_children_then_the_source() {
    let mut hand = Hand::new(3, |_| {});
    hand.data(1);
    hand.sent();
    assert!(!hand.relay.is_drained());
    hand.relay.drain(hand.now);
    assert!(!hand.relay.is_drained());
    let told = moves(&mut hand);
    let to: Vec<_> = told.iter().map(|(to, _)| *to).collect();
    assert_eq!(
        to,
        [child(0), child(1), child(2)],
        "each once, the source not yet"
    );
    assert_eq!(moves(&mut hand), []);
    // No other child comes in, not even the one that was here; the source stays for the children.
    assert_eq!(hand.join(child(3), Role::Receiver, 0).0, Status::Draining);
    assert_eq!(hand.join(child(0), Role::Receiver, 0).0, Status::Draining);
    assert_eq!(hand.join(source(), Role::Source, 0).0, Status::Joined);
    assert_eq!(hand.data(2), 3, "they are served until they leave");
    for (n, (to, token)) in (0..).zip(told) {
        // MOVE carries the token that LEAVE has to.
        let verdict = hand.handle(to, 0, n, 0, Body::Leave(token));
        assert_eq!(verdict, Verdict::Done);
        let told = moves(&mut hand);
        let to: Vec<_> = told.iter().map(|(to, _)| *to).collect();
        let expected = if n < 2 { vec![] } else { vec![source()] };
        assert_eq!(to, expected);
        if let [(from, token)] = told[..] {
            assert!(!hand.relay.is_drained());
            let verdict = hand.handle(from, 0, 0xffff, 0, Body::Leave(token));
            assert_eq!(verdict, Verdict::Done);
        }
    }
    assert!(hand.relay.is_drained());
    assert_eq!(hand.join(source(), Role::Source, 0).0, Status::Draining);
}

#[test]
fn relay_that_drains_sends_an_acknowledgement_in_its_time() {
    let mut hand = Hand::new(1, |_| {});
    hand.data(1);
    hand.handle(child(0), ID, 0, 2, Body::Ack);
    assert_eq!(hand.after(50), []);
    hand.relay.drain(hand.now);
    assert_eq!(moves(&mut hand).len(), 1);
    let sent = hand.after(55);
    assert_eq!(sent.len(), 1);
    assert_eq!(
        (sent[0].to, sent[0].service, sent[0].first),
        (source(), Service::Ack, 2)
    );
}

/// A source that joins again where there are no children is let go, and so is one that has not left.
#[test]
fn drained_relay_lets_a_source_go_that_joins_again() {
    let mut hand = Hand::new(0, |_| {});
    hand.relay.drain(hand.now);
    assert_eq!(moves(&mut hand).len(), 1);
    assert!(!hand.relay.is_drained());
    assert_eq!(hand.join(source(), Role::Source, 0).0, Status::Draining);
    assert!(
        !hand.relay.is_drained(),
        "without a token anybody could say so"
    );
    let join = |token| dyram::wire::Join {
        role: Role::Source,
        token,
        stamp: 1,
        far_us: 0,
        receivers: 1,
        relay: Default::default(),
        round_trip_us: 0,
    };
    hand.handle(source(), 0, 0xffff, 0, Body::Join(join(0)));
    let (_, refused, _) = hand.joined();
    hand.handle(source(), 0, 0xffff, 0, Body::Join(join(refused.token)));
    assert_eq!(hand.events(), [Event::SourceLost(key())]);
    assert!(hand.relay.is_drained());
}

#[test]
fn another_configuration_takes_effect_or_is_refused_whole() {
    let mut hand = Hand::new(1, |config| config.refresh = Duration::from_millis(500));
    let good = hand.relay.config().clone();
    let bad = Config {
        children_per_host: 0,
        ack_interval: Duration::from_secs(5),
        ..good.clone()
    };
    let refused = hand.relay.reconfigure(hand.now, bad);
    assert_eq!(refused, Err(ConfigError::ChildrenPerHost));
    assert_eq!(hand.relay.config(), &good);

    // The clocks of children run in parts of the refresh interval: they begin again.
    hand.now += Duration::from_millis(900);
    refresh(&mut hand, [0]);
    let slower = Config {
        refresh: Duration::from_secs(4),
        ..good
    };
    hand.relay.reconfigure(hand.now, slower).unwrap();
    for _ in 0..100 {
        hand.join(source(), Role::Source, 0);
        hand.after(100);
    }
    assert_eq!(hand.relay.children(&key()).count(), 1, "ten seconds later");
    for _ in 0..80 {
        hand.join(source(), Role::Source, 0);
        hand.after(100);
    }
    assert_eq!(hand.relay.children(&key()).count(), 0);
}

/// A child learns of a shorter refresh interval when it joins again, which is within the old one.
#[test]
fn shorter_refresh_interval_removes_no_child_that_keeps_the_old_one() {
    let minute = Duration::from_secs(60);
    let mut hand = Hand::new(2, |config| {
        config.refresh = minute;
        config.stall_timeout = minute;
    });
    hand.after(1);
    hand.after(48_999);
    refresh(&mut hand, 0..2);
    hand.after(5_000);
    let shorter = Config {
        refresh: Duration::from_millis(500),
        ..hand.relay.config().clone()
    };
    hand.relay.reconfigure(hand.now, shorter).unwrap();
    for _ in 0..54 {
        hand.after(1_000);
        assert_eq!(
            (info(&hand).children, info(&hand).above),
            (2, Some(source()))
        );
    }
    // From now on one of them refreshes as it is told, the other is silent.
    for _ in 0..60 {
        refresh(&mut hand, [0]);
        hand.after(250);
    }
    let left: Vec<_> = hand
        .relay
        .children(&key())
        .map(|child| child.address)
        .collect();
    assert_eq!((left, info(&hand).above), (vec![child(0)], Some(source())));
}

#[test]
fn other_parents_are_joined_at_once_and_the_same_ones_not_again() {
    let parent = |n: u8| std::net::SocketAddr::from(([10, 2, 0, n], 4143));
    let list = |n| Parents::from_slice(&[parent(n)]).unwrap();
    let mut hand = Hand::bare(2, |config| config.parents = list(1));
    hand.join(child(0), Role::Receiver, 0);
    let to = |hand: &mut Hand| -> Vec<_> { hand.tick().iter().map(|sent| sent.to).collect() };
    assert_eq!(to(&mut hand), [parent(1)]);
    let config = hand.relay.config().clone();
    hand.relay.reconfigure(hand.now, config.clone()).unwrap();
    assert_eq!(to(&mut hand), []);
    let moved = Config {
        parents: list(2),
        ..config
    };
    hand.relay.reconfigure(hand.now, moved).unwrap();
    assert_eq!(to(&mut hand), [parent(2)]);
}

#[test]
fn source_that_is_silent_may_be_replaced_after_the_takeover_time() {
    let mut second = source();
    second.set_port(source().port() + 1);
    for has_data in [false, true] {
        let mut hand = Hand::new(1, |_| {});
        let mut at = 0;
        let mut wait_until = |hand: &mut Hand, until: u64| {
            hand.after(until - at);
            at = until;
        };
        if has_data {
            // Data counts as a sign of life, though the source does not join again.
            wait_until(&mut hand, 2_000);
            hand.data(1);
        }
        let base = if has_data { 2_000 } else { 0 };
        wait_until(&mut hand, base + 2_990);
        assert_eq!(hand.join(second, Role::Source, 0).0, Status::Full);
        assert_eq!(hand.relay.stats().refused, 1);
        wait_until(&mut hand, base + 3_001);
        assert_eq!(hand.join(second, Role::Source, 0).0, Status::Joined);
        assert_eq!(info(&hand).above, Some(second));
        // The old one is another source now.
        assert_eq!(hand.join(source(), Role::Source, 0).0, Status::Full);
    }
}

/// The time is a whole number of ticks of the clock.
#[test]
fn takeover_time_is_over_in_its_last_tick() {
    let takeover = |config: &mut Config| config.takeover = Duration::from_millis(2_560);
    let mut hand = Hand::new(1, takeover);
    hand.data(1);
    let other = |hand: &mut Hand| hand.handle(source(), 8, 0xffff, 1, Body::Data(b"data"));
    hand.after(2_559);
    assert_eq!(other(&mut hand), Verdict::Drop(DropReason::OtherSession));
    hand.after(1);
    let verdict = other(&mut hand);
    assert_eq!(hand.targets(verdict).len(), 1);

    let mut second = source();
    second.set_port(source().port() + 1);
    let mut hand = Hand::new(1, takeover);
    hand.after(2_559);
    assert_eq!(hand.join(second, Role::Source, 0).0, Status::Full);
    hand.after(1);
    assert_eq!(hand.join(second, Role::Source, 0).0, Status::Joined);
}

#[test]
fn other_run_is_served_after_the_takeover_time_and_starts_from_nothing() {
    let mut hand = Hand::new(2, |_| {});
    hand.data(1);
    hand.data(3);
    hand.nack(0, 1);
    for n in 0..2 {
        hand.handle(child(n), ID, n, 2, Body::Ack);
    }
    hand.after(150);
    assert_eq!(info(&hand).acknowledged, Some(Seq(2)));
    let other = |hand: &mut Hand| hand.handle(source(), 8, 0xffff, 500, Body::Data(b"data"));
    hand.data(4);
    hand.after(2_990);
    assert_eq!(other(&mut hand), Verdict::Drop(DropReason::OtherSession));
    assert_eq!(hand.events(), [Event::Collision(key(), [ID, 8])]);
    refresh(&mut hand, 0..2);
    hand.data(5);
    hand.after(3_001);
    let verdict = other(&mut hand);
    assert_eq!(hand.targets(verdict).len(), 2);
    let session = info(&hand);
    assert_eq!((session.id, session.newest), (Some(8), Some(Seq(500))));
    assert_eq!(
        (session.ordered, session.acknowledged),
        (Some(Seq(500)), None)
    );
    assert!(
        hand.relay
            .children(&key())
            .all(|c| c.acknowledged.is_none())
    );
    // Nothing of the last run is asked for, or repaired.
    assert_eq!(hand.after(1_000), []);
    let old = hand.handle(source(), ID, 0xffff, 2, Body::Repair(b"data"));
    assert_eq!(old, Verdict::Drop(DropReason::OtherSession));
    assert_eq!(hand.nack(0, 1), Verdict::Drop(DropReason::OtherSession));
    // A collision is reported anew.
    let again = hand.handle(source(), 9, 0xffff, 0, Body::Data(b"data"));
    assert_eq!(again, Verdict::Drop(DropReason::OtherSession));
    assert_eq!(hand.events(), [Event::Collision(key(), [8, 9])]);
}
