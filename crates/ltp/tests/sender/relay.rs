//! Above a relay: the packets that it asks for, and its acknowledgement for all below it.

use ltp::wire::request::Kind;
use ltp::{Destination, Duration, Error, Meta, SenderEvent};

use super::{BLOCK, Solo, at, content, host, request, sequences};

const FIRST: u32 = 1_000;

fn stalls(solo: &mut Solo) -> Vec<u64> {
    let stall = |event: &SenderEvent| match event {
        SenderEvent::RelayStalled { blocks } => Some(*blocks),
        _ => None,
    };
    solo.events().iter().filter_map(stall).collect()
}

#[test]
fn packets_that_the_relay_asks_for_go_to_it_while_they_are_stored() {
    let mut solo = Solo::stream(4, |config| config.first_sequence = FIRST);
    let bytes = content(6 * BLOCK + 300);
    let mut written = 0;
    for step in 1..=4 {
        written += solo.sender.send(solo.now, &bytes[written..]).unwrap();
        solo.run_to(at(20 * step));
    }
    assert_eq!(written, bytes.len());
    assert_eq!(solo.sender.next_sequence(), FIRST + 25);
    let wanted = |solo: &mut Solo, number: u32| solo.sender.wanted(solo.now, FIRST + number);
    assert_eq!(wanted(&mut solo, 24), Ok(true));
    assert_eq!(wanted(&mut solo, 25), Ok(false), "it is not sent yet");
    assert_eq!(wanted(&mut solo, 11), Ok(false), "of a block that is gone");
    assert_eq!(wanted(&mut solo, 14), Ok(true));
    let repaired = [24, 14].map(|number| (Destination::Relay, FIRST + number));
    let mut sent = sequences(&solo.poll());
    sent.sort_by_key(|(_, sequence)| core::cmp::Reverse(*sequence));
    assert_eq!(sent, repaired);
    // Held down: it is stored, and not sent again.
    assert_eq!(wanted(&mut solo, 14), Ok(true));
    assert_eq!(solo.poll().len(), 0);
    let stats = solo.sender.stats();
    assert_eq!((stats.requested_packets, stats.requests_group), (3, 3));
    solo.sender.close(solo.now);
    solo.run_to(at(1_000));
    assert_eq!(wanted(&mut solo, 24), Err(Error::Ended));
}

#[test]
fn new_data_stays_within_the_window_of_the_relay() {
    let mut solo = Solo::whole(&content(40 * BLOCK), |config| {
        config.first_sequence = FIRST;
        config.window_blocks = Some(8);
    });
    solo.sender.acknowledged(at(0), FIRST);
    solo.run_to(at(20));
    assert_eq!(solo.sender.progress().0, 8 * BLOCK as u64);
    solo.sender.acknowledged(solo.now, FIRST + 7);
    solo.run_to(at(21));
    assert_eq!(
        solo.sender.progress().0,
        9 * BLOCK as u64,
        "block 1 lacks one"
    );
    solo.sender.acknowledged(solo.now, FIRST + 36);
    solo.run_to(at(22));
    assert_eq!(solo.sender.progress().0, 17 * BLOCK as u64);
    // What was not sent cannot be acknowledged.
    solo.sender.acknowledged(solo.now, FIRST + 69);
    solo.run_to(at(23));
    assert_eq!(solo.sender.progress().0, 17 * BLOCK as u64);
    solo.sender.acknowledged(solo.now, FIRST + 68);
    solo.run_to(at(24));
    assert_eq!(solo.sender.progress().0, 25 * BLOCK as u64);
}

#[test]
fn a_stream_overwrites_nothing_that_the_relay_has_not_acknowledged() {
    let mut solo = Solo::stream(8, |config| config.first_sequence = FIRST);
    assert_eq!(solo.sender.room(), 8 * BLOCK as u64);
    solo.sender.acknowledged(at(0), FIRST);
    assert_eq!(solo.sender.send(at(0), &content(9 * BLOCK)), Ok(8 * BLOCK));
    solo.run_to(at(20));
    assert_eq!(solo.sender.room(), 0);
    solo.sender.acknowledged(solo.now, FIRST + 11);
    assert_eq!(solo.sender.room(), 2 * BLOCK as u64);
    // Until it stands still for too long.
    solo.run_to(at(10_020));
    assert_eq!(solo.sender.room(), 8 * BLOCK as u64);
}

/// A content of 16 blocks that was sent whole, of which the relay has acknowledged five.
fn sent() -> Solo {
    let mut solo = Solo::whole(&content(16 * BLOCK), |config| {
        config.first_sequence = FIRST;
        config.receiver_timeout = Duration::from_secs(4);
        config.linger = Duration::from_millis(1_500);
    });
    solo.sender.acknowledged(at(0), FIRST);
    solo.run_to(at(100));
    assert_eq!(solo.sender.progress().0, 16 * BLOCK as u64);
    solo.sender.acknowledged(solo.now, FIRST + 20);
    solo
}

/// Through relays the group is the whole tree, in which nearly all have got the packet: no other request is waited for.
#[test]
fn above_a_relay_a_receiver_that_asks_alone_is_answered_at_once() {
    let mut solo = sent();
    let mut repr = request(Kind::Data, FIRST + 3, FIRST + 3);
    for number in [1, 2] {
        let meta = Meta::unicast(host(number));
        repr.token = solo.token(host(number));
        assert_eq!(solo.ask(&meta, &repr), Ok(()));
        let alone = (Destination::Unicast(host(number)), FIRST + 3);
        assert_eq!(sequences(&solo.poll()), [alone]);
    }
}

#[test]
fn a_relay_that_stands_still_is_named_after_the_timeout() {
    let mut solo = sent();
    solo.run_to(at(4_099));
    assert!(!solo.sender.is_relay_stalled());
    assert_eq!(stalls(&mut solo), []);
    solo.run_to(at(4_250));
    assert!(solo.sender.is_relay_stalled());
    assert_eq!(stalls(&mut solo), [5]);
    solo.run_to(at(4_599));
    assert_eq!(stalls(&mut solo), [], "once");
    assert!(!solo.sender.is_ended());
    // Nothing is waited for any more, and three linger times have passed.
    solo.run_to(at(4_650));
    assert!(solo.sender.is_ended());
}

#[test]
fn acknowledgements_that_do_not_advance_count_for_nothing() {
    let mut solo = sent();
    for step in 1..=10 {
        solo.run_to(at(100 + 400 * step));
        // One that goes back, and forth again.
        let number = if step % 2 == 0 { 20 } else { 12 };
        solo.sender.acknowledged(solo.now, FIRST + number);
    }
    solo.run_to(at(4_500));
    assert_eq!(stalls(&mut solo), [5]);
    // Each that advances does.
    let mut solo = sent();
    for step in 1..=20 {
        solo.run_to(at(100 + 2_000 * step));
        solo.sender.acknowledged(solo.now, FIRST + 20 + step as u32);
    }
    assert_eq!(stalls(&mut solo), []);
    assert!(!solo.sender.is_ended(), "it lacks something");
    assert!(!solo.sender.is_relay_stalled());
    // It holds the end up until it lacks nothing.
    solo.sender.acknowledged(solo.now, FIRST + 64);
    solo.run_to(at(41_599));
    assert!(!solo.sender.is_ended());
    solo.run_to(at(41_700));
    assert!(solo.sender.is_ended());
}

#[test]
fn one_that_advances_again_counts_again() {
    let mut solo = Solo::whole(&content(40 * BLOCK), |config| {
        config.first_sequence = FIRST;
        config.window_blocks = Some(8);
        config.rate_bps = Some(100_000);
        config.receiver_timeout = Duration::from_secs(1);
    });
    solo.sender.acknowledged(at(0), FIRST);
    // Four blocks at this rate take 400 ms.
    solo.run_to(at(1_300));
    assert!(solo.sender.is_relay_stalled());
    assert_eq!(stalls(&mut solo), [0]);
    let sent = solo.sender.progress().0 / BLOCK as u64;
    assert!(sent > 8, "{sent} blocks");
    solo.sender.acknowledged(solo.now, FIRST + 5);
    assert!(!solo.sender.is_relay_stalled());
    solo.run_to(at(2_000));
    assert!(solo.sender.progress().0 / (BLOCK as u64) <= sent + 1);
}

#[test]
fn a_relay_that_lacks_nothing_does_not_stand_still() {
    let mut solo = Solo::stream(64, |config| {
        config.first_sequence = FIRST;
        config.window_blocks = Some(4);
    });
    let bytes = content(3 * BLOCK + 300);
    assert_eq!(solo.sender.send(at(0), &bytes), Ok(bytes.len()));
    solo.run_to(at(100));
    assert_eq!(solo.sender.next_sequence(), FIRST + 13);
    // All but the packets of the block that is not whole yet.
    for step in 1..=30 {
        solo.sender.acknowledged(solo.now, FIRST + 12);
        solo.run_to(at(1_000 * step));
    }
    assert_eq!(stalls(&mut solo), []);
    // New data still waits for it.
    let more = content(20 * BLOCK);
    assert_eq!(solo.sender.send(solo.now, &more), Ok(more.len()));
    solo.run_to(at(30_100));
    assert_eq!(solo.sender.progress().0, 7 * BLOCK as u64);
    for (step, acknowledged) in [28, 44, 60, 76, 92].into_iter().enumerate() {
        solo.sender.acknowledged(solo.now, FIRST + acknowledged);
        solo.run_to(at(30_200 + 100 * step as i64));
    }
    assert_eq!(solo.sender.next_sequence(), FIRST + 93);
    solo.run_to(at(60_000));
    assert_eq!(stalls(&mut solo), [], "it says nothing, and lacks nothing");
}

#[test]
fn after_a_change_of_the_rate_the_new_one_counts() {
    let mut solo = Solo::whole(&content(64 * BLOCK), |config| {
        config.rate_bps = Some(100_000);
    });
    solo.run_to(at(1_008));
    let slow = solo.sender.progress().0;
    assert!(slow < 16 * BLOCK as u64);
    solo.sender.set_rate(solo.now, None);
    solo.run_to(at(1_010));
    assert_eq!(solo.sender.progress().0, 64 * BLOCK as u64);
}

#[test]
fn a_relay_that_has_everything_is_not_named_however_long_it_is_silent() {
    let mut solo = Solo::whole(&content(2 * BLOCK + 1), |config| {
        config.first_sequence = FIRST;
        config.receiver_timeout = Duration::from_secs(1);
        config.linger = Duration::from_secs(10);
    });
    solo.sender.acknowledged(at(0), FIRST);
    solo.run_to(at(100));
    solo.sender.acknowledged(solo.now, FIRST + 9);
    solo.run_to(at(9_000));
    assert_eq!(stalls(&mut solo), []);
    assert!(!solo.sender.is_relay_stalled() && !solo.sender.is_ended());
}
