//! Children that joined and do not advance: the session continues for the others.

use std::net::SocketAddr;

use dyram::wire::{Body, Packet, Repr, Role, Service, Stalled, Status};
use dyram::{Config, DropReason, Duration, Event, Full, RelayId, Seq, Verdict};

use super::hand::{Hand, ID, Sent, child, key, source};
use super::parents::{answer, below, data_from, join_in, joined, parent};

/// Packets upward in one step.
#[derive(Default)]
struct Upward {
    ack: Option<u32>,
    /// Stalled children and their acknowledgements.
    named: Vec<(SocketAddr, u32)>,
}

/// Sends a packet each 100 ms, which the children in `honest` acknowledge; those in `joining` refresh only.
fn drive(hand: &mut Hand, steps: u32, next: &mut u32, honest: &[u16], joining: &[u16]) -> Upward {
    let mut upward = Upward::default();
    for step in 0..steps {
        hand.data(*next);
        *next += 1;
        for &number in honest {
            hand.handle(child(number), ID, number, *next, Body::Ack);
        }
        if step % 20 == 0 {
            hand.join(source(), Role::Source, 0);
            for &number in honest.iter().chain(joining) {
                hand.join(child(number), Role::Receiver, 0);
            }
        }
        hand.now += Duration::from_millis(100);
        hand.relay.handle_timeout(hand.now);
        let mut buffer = [0; 256];
        while let Some(transmit) = hand.relay.poll_transmit(hand.now, &mut buffer) {
            let packet = Packet::new_checked(&buffer[..transmit.len]).unwrap();
            if packet.service() == Service::Ack && transmit.destination == source() {
                upward.ack = Some(packet.sequence().0);
            }
            if let Body::Stalled(stalled) = Repr::parse(&packet).body {
                assert_eq!(transmit.destination, source());
                upward.named.push((stalled.child, packet.sequence().0));
            }
        }
    }
    upward
}

#[test]
fn a_child_that_refreshes_and_never_advances_stops_the_acknowledgements_for_a_while_only() {
    let mut hand = Hand::new(3, |_| {});
    let mut next = 0;
    hand.data(next);
    next += 1;
    hand.handle(child(2), ID, 2, 1, Body::Ack);
    let upward = drive(&mut hand, 60, &mut next, &[0, 1], &[2]);
    assert_eq!(upward.ack, Some(1), "a slow child is waited for");
    let upward = drive(&mut hand, 100, &mut next, &[0, 1], &[2]);
    let behind = Seq(next).since(Seq(upward.ack.unwrap()));
    assert!((0..3).contains(&behind), "{behind} packets behind");
}

/// Runs until child 2 has stalled, which acknowledged the first packet only.
fn stalled() -> (Hand, u32) {
    let mut hand = Hand::new(3, |_| {});
    let mut next = 0;
    hand.data(next);
    next += 1;
    hand.handle(child(2), ID, 2, 1, Body::Ack);
    drive(&mut hand, 160, &mut next, &[0, 1], &[2]);
    (hand, next)
}

fn is_advancing(hand: &mut Hand, next: &mut u32, honest: &[u16], joining: &[u16]) -> bool {
    let upward = drive(hand, 30, next, honest, joining);
    upward
        .ack
        .is_some_and(|ack| Seq(*next).since(Seq(ack)) <= 3)
}

#[test]
fn a_stalled_child_is_logged_counted_shown_and_named_to_the_source_at_each_refresh() {
    let (mut hand, mut next) = stalled();
    let event = Event::ChildStalled(key(), child(2), Seq(1));
    assert!(std::iter::from_fn(|| hand.relay.poll_event()).any(|one| one == event));
    assert_eq!(hand.relay.stats().stalled, 1);
    let shown: Vec<bool> = hand
        .relay
        .children(&key())
        .map(|child| child.stalled)
        .collect();
    assert_eq!(shown, [false, false, true]);
    let upward = drive(&mut hand, 200, &mut next, &[0, 1], &[2]);
    assert!(
        (8..=11).contains(&upward.named.len()),
        "{} times in ten refreshes",
        upward.named.len()
    );
    assert!(upward.named.iter().all(|named| *named == (child(2), 1)));
    // Told once.
    assert!(
        !std::iter::from_fn(|| hand.relay.poll_event())
            .any(|one| matches!(one, Event::ChildStalled(..)))
    );
    // It still gets new data.
    assert_eq!(hand.data(next), 3);
}

#[test]
fn claiming_to_have_caught_up_leaving_and_joining_again_do_not_bring_a_stalled_child_back() {
    let (mut hand, mut next) = stalled();
    hand.handle(child(2), ID, 2, next, Body::Ack);
    assert!(is_advancing(&mut hand, &mut next, &[0, 1], &[2]));
    // Gone by silence: its place is remembered.
    drive(&mut hand, 100, &mut next, &[0, 1], &[]);
    assert_eq!(hand.relay.children(&key()).count(), 2);
    assert_eq!(hand.join(child(2), Role::Receiver, 0), (Status::Joined, 2));
    hand.handle(child(2), ID, 2, 1, Body::Ack);
    assert!(is_advancing(&mut hand, &mut next, &[0, 1], &[2]));
}

#[test]
fn another_port_of_a_host_that_stalled_gets_an_eighth_of_the_time() {
    let (mut hand, mut next) = stalled();
    let mut other = child(2);
    other.set_port(other.port() + 1);
    drive(&mut hand, 100, &mut next, &[0, 1], &[]);
    let (status, number) = hand.join(other, Role::Receiver, 0);
    assert_eq!(status, Status::Joined);
    hand.handle(other, ID, number, 1, Body::Ack);
    drive(&mut hand, 40, &mut next, &[0, 1], &[]);
    assert_eq!(hand.join(other, Role::Receiver, 0).1, number);
    let upward = drive(&mut hand, 40, &mut next, &[0, 1], &[]);
    let behind = Seq(next).since(Seq(upward.ack.unwrap()));
    assert!((0..3).contains(&behind), "{behind} packets behind");
}

#[test]
fn one_host_gets_no_more_places_than_it_may_have() {
    let mut hand = Hand::new(64, |config| config.children_per_host = 3);
    for number in 8..64 {
        hand.leave(number);
        while hand.relay.poll_event().is_some() {}
    }
    let mut joined = 0;
    for port in 1000..1020 {
        let mut from = child(200);
        from.set_port(port);
        joined += u32::from(hand.join(from, Role::Receiver, 0).0 == Status::Joined);
    }
    assert_eq!(joined, 3);
    let told = std::iter::from_fn(|| hand.relay.poll_event());
    let refused = told.filter(|event| matches!(event, Event::ChildRefused(_, _, Full::Host)));
    assert!(refused.count() > 0, "the log says why");
    assert_eq!(hand.relay.stats().refused, 17);
    // A refresh of one of the three is no new child, and others get in.
    let mut from = child(200);
    from.set_port(1000);
    assert_eq!(hand.join(from, Role::Receiver, 0).0, Status::Joined);
    assert_eq!(hand.join(child(201), Role::Receiver, 0).0, Status::Joined);
}

#[test]
fn with_nothing_outstanding_no_child_stalls() {
    let mut hand = Hand::new(2, |_| {});
    for seq in 0..10 {
        hand.data(seq);
    }
    for number in [0, 1] {
        hand.handle(child(number), ID, number, 10, Body::Ack);
    }
    for _ in 0..60 {
        hand.join(source(), Role::Source, 0);
        for number in [0, 1] {
            hand.join(child(number), Role::Receiver, 0);
        }
        hand.after(1_000);
    }
    assert_eq!(hand.relay.stats().stalled, 0);
    // The clock starts when something is missing.
    hand.data(10);
    hand.handle(child(0), ID, 0, 11, Body::Ack);
    for _ in 0..9 {
        hand.join(child(1), Role::Receiver, 0);
        hand.after(1_000);
    }
    assert_eq!(hand.relay.stats().stalled, 0);
}

#[test]
fn where_all_children_stalled_the_acknowledgements_advance() {
    let mut hand = Hand::new(1, |_| {});
    let mut next = 0;
    hand.data(next);
    next += 1;
    hand.handle(child(0), ID, 0, 1, Body::Ack);
    drive(&mut hand, 160, &mut next, &[], &[0]);
    assert!(is_advancing(&mut hand, &mut next, &[], &[0]));
}

#[test]
fn another_run_of_the_source_waits_for_all_again() {
    let (mut hand, _) = stalled();
    for _ in 0..4 {
        for number in 0..3 {
            hand.join(child(number), Role::Receiver, 0);
        }
        hand.after(1_000);
    }
    hand.join(source(), Role::Source, 0);
    let _ = hand.handle(source(), ID + 1, 0xffff, 0, Body::Data(b"x"));
    assert!(hand.relay.children(&key()).all(|child| !child.stalled));
}

/// A relay below says that a child of its own has stalled.
fn named(host: u16) -> Body<'static> {
    Body::Stalled(Stalled {
        child: child(host),
        relay: RelayId(12),
    })
}

/// STALLED is forwarded only from relays, at most once in each acknowledgement interval.
#[test]
fn names_from_below_are_few_and_only_of_relays() {
    let mut hand = Hand::new(1, |_| {});
    hand.data(0);
    let (_, number) = hand.join(child(50), Role::Relay, 12);
    let verdict = hand.handle(child(0), ID, 0, 0, named(90));
    assert_eq!(verdict, Verdict::Drop(DropReason::WrongWay));
    let mut passed = 0;
    for host in 0..1_000 {
        let _ = hand.handle(child(50), ID, number, 0, named(host));
        passed += hand
            .after(1)
            .iter()
            .filter(|sent| sent.service == Service::Stalled && sent.to == source())
            .count();
    }
    assert!((9..=11).contains(&passed), "{passed} in a second");
    assert!(hand.drops(DropReason::NoticeFlood) > 900);
}

#[test]
fn name_from_below_passes_as_soon_as_the_interval_is_over() {
    let mut hand = Hand::new(0, |_| {});
    hand.data(0);
    let (_, number) = hand.join(child(50), Role::Relay, 12);
    for host in 0..3 {
        let verdict = hand.handle(child(50), ID, number, 0, named(host));
        assert_eq!(verdict, Verdict::Done);
        let again = hand.handle(child(50), ID, number, 0, named(host));
        assert_eq!(again, Verdict::Drop(DropReason::NoticeFlood));
        let sent = hand.sent();
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].to, sent[0].service), (source(), Service::Stalled));
        hand.after(100);
    }
}

/// Steps of the stall clock take a sixteenth of a second, so that a refresh interval has eight of them.
fn quick(config: &mut Config) {
    config.refresh = Duration::from_millis(500);
    config.stall_timeout = Duration::from_secs(1);
}

/// Acknowledges the first of two packets, so many milliseconds before the next refresh.
fn lag(hand: &mut Hand, before_refresh: u64, from: SocketAddr, number: u16) {
    hand.after(500 - before_refresh);
    hand.handle(from, ID, number, 1, Body::Ack);
}

/// A relay with its source, two packets and a refresh that has just been.
fn with_two_packets(children: u16) -> Hand {
    let mut hand = Hand::new(children, quick);
    hand.data(0);
    hand.data(1);
    hand.after(1);
    hand
}

/// Lets time pass until the next child stalls. Returns the milliseconds.
fn until_stalled(hand: &mut Hand, refresh: impl Fn(&mut Hand)) -> u64 {
    let before = hand.relay.stats().stalled;
    for passed in (0..10_000).step_by(5) {
        if hand.relay.stats().stalled > before {
            return passed;
        }
        if passed % 500 == 0 {
            refresh(hand);
        }
        hand.in_time(5);
    }
    panic!("no child stalls");
}

#[test]
fn child_stalls_after_the_timeout_and_the_refresh_in_which_it_began_to_lack_packets() {
    let mut hand = with_two_packets(1);
    lag(&mut hand, 200, child(0), 0);
    let refresh = |hand: &mut Hand| {
        hand.join(source(), Role::Source, 0);
        hand.join(child(0), Role::Receiver, 0);
    };
    // It is checked at 1,200 ms, too.
    let passed = until_stalled(&mut hand, refresh);
    assert!((1_700..1_800).contains(&passed), "{passed} ms");
    // Another port of its host: an eighth of the timeout, and the refresh. It is checked at 600 ms, too.
    let mut other = child(0);
    other.set_port(other.port() + 1);
    let (_, number) = hand.join(other, Role::Receiver, 0);
    lag(&mut hand, 100, other, number);
    let passed = until_stalled(&mut hand, |hand| {
        refresh(hand);
        hand.join(other, Role::Receiver, 0);
    });
    assert!((1_100..1_200).contains(&passed), "{passed} ms");
}

/// A quarter of the timeout for each relay that can be below.
#[test]
fn child_that_is_a_relay_gets_the_more_time_the_nearer_the_source_is() {
    let joins = |hand: &mut Hand| hand.join(child(50), Role::Relay, 12).1;
    let mut hand = with_two_packets(0);
    let number = joins(&mut hand);
    lag(&mut hand, 200, child(50), number);
    let passed = until_stalled(&mut hand, |hand| {
        hand.join(source(), Role::Source, 0);
        joins(hand);
    });
    assert!((5_200..5_300).contains(&passed), "{passed} ms for 14 below");
    // Below two others.
    let mut hand = Hand::bare(1, |config| {
        below(1)(config);
        quick(config);
    });
    let number = joins(&mut hand);
    let join = join_in(&hand.tick(), parent(1));
    let mut accepted = joined(Status::Joined, join.stamp);
    accepted.refresh_ms = 60_000;
    answer(&mut hand, parent(1), accepted);
    for seq in 0..2 {
        data_from(&mut hand, parent(1), seq);
    }
    lag(&mut hand, 200, child(50), number);
    let passed = until_stalled(&mut hand, |hand| {
        joins(hand);
    });
    assert!((4_700..4_800).contains(&passed), "{passed} ms for 12 below");
}

#[test]
fn stalled_children_are_named_in_turn() {
    let mut hand = with_two_packets(3);
    lag(&mut hand, 200, child(0), 0);
    hand.handle(child(2), ID, 2, 1, Body::Ack);
    hand.handle(child(1), ID, 1, 2, Body::Ack);
    let refresh = |hand: &mut Hand| {
        hand.join(source(), Role::Source, 0);
        for n in 0..3 {
            hand.join(child(n), Role::Receiver, 0);
        }
    };
    until_stalled(&mut hand, refresh);
    assert_eq!(hand.relay.stats().stalled, 2);
    let mut named = Vec::new();
    for step in 0..40 {
        if step % 5 == 0 {
            refresh(&mut hand);
        }
        hand.now += Duration::from_millis(100);
        hand.relay.handle_timeout(hand.now);
        for one in hand.sent_whole() {
            if let Body::Stalled(stalled) = one.body {
                named.push(stalled.child);
            }
        }
    }
    let times = [0, 1, 2].map(|n| named.iter().filter(|&&one| one == child(n)).count());
    assert!(times[0] > 1 && times[2] > 1, "{named:?}");
    assert_eq!(times[1], 0);
}

fn acknowledgements(sent: &[Sent]) -> usize {
    let of = sent.iter().filter(|one| one.service == Service::Ack);
    of.count()
}

/// So it does where the relay is called late.
#[test]
fn where_all_children_stalled_an_acknowledgement_goes_up_in_each_interval() {
    let refresh = |hand: &mut Hand| {
        hand.join(source(), Role::Source, 0);
        hand.join(child(0), Role::Receiver, 0);
    };
    for pass in [Hand::in_time, Hand::after] {
        let mut hand = with_two_packets(1);
        lag(&mut hand, 200, child(0), 0);
        until_stalled(&mut hand, refresh);
        let mut sent = 0;
        for step in 0..100 {
            if step % 50 == 0 {
                refresh(&mut hand);
            }
            hand.data(2 + step);
            sent += acknowledgements(&pass(&mut hand, 10));
        }
        assert!((8..=13).contains(&sent), "{sent} in ten intervals");
    }
}

#[test]
fn acknowledgement_of_a_child_that_left_does_not_speak_for_the_others() {
    let mut hand = Hand::new(2, |_| {});
    hand.data(1);
    hand.handle(child(0), ID, 0, 2, Body::Ack);
    hand.leave(0);
    assert_eq!(acknowledgements(&hand.after(150)), 0);
    let session = hand.relay.sessions().next().unwrap();
    assert_eq!(session.acknowledged, None);
}
