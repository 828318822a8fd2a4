//! What goes first, how much of it at once, and within which rate.

use ltp::wire::request::Kind;
use ltp::{Destination, Duration, Error, Instant, Meta};

use super::{BLOCK, Solo, at, content, host, request, sequences};

const PACKET: usize = 256 + ltp::wire::data::DATA_HEADER_LEN;

#[test]
fn packets_of_one_destination_fill_a_segmented_transmit() {
    let mut solo = Solo::whole(&content(3 * BLOCK), |config| config.max_segments = 5);
    solo.run_to(at(7));
    solo.now = at(8);
    solo.sender.handle_timeout(at(8));
    let mut came: Vec<u8> = Vec::new();
    let mut poll = |solo: &mut Solo, room: usize| {
        let mut buffer = vec![0; room];
        let transmit = solo.sender.poll_transmit(at(8), &mut buffer)?;
        assert_eq!(transmit.destination, Destination::Group);
        let payloads = transmit
            .packets(&buffer)
            .filter(|packet| packet[0] & 0xf == 1);
        came.extend(payloads.flat_map(|packet| &packet[16..]));
        Some((buffer[0] & 0xf, transmit.len, transmit.segment_len))
    };
    assert_eq!(poll(&mut solo, 2_000), Some((3, 96, None)));
    let five = Some((1, 5 * PACKET, Some(PACKET)));
    assert_eq!(poll(&mut solo, 2_000), five);
    let two = Some((1, 2 * PACKET, Some(PACKET)));
    assert_eq!(poll(&mut solo, 3 * PACKET - 1), two);
    assert_eq!(poll(&mut solo, PACKET), Some((1, PACKET, None)));
    assert_eq!(poll(&mut solo, PACKET - 1), None, "there is no room");
    assert_eq!(poll(&mut solo, 2_000), Some((1, 4 * PACKET, Some(PACKET))));
    assert_eq!(came, content(3 * BLOCK));
    assert_eq!(solo.sender.stats().data_packets, 12);
    let frames = 3 * (96 + 42) + 12 * (PACKET + 42);
    assert_eq!(solo.sender.stats().frame_bytes, frames as u64);
}

#[test]
fn a_transmit_is_no_longer_than_a_datagram_may_be() {
    let mut solo = Solo::whole(&content(256 * BLOCK), |config| config.max_segments = 1_000);
    solo.run_to(at(7));
    solo.now = at(8);
    solo.sender.handle_timeout(at(8));
    let mut buffer = vec![0; 200_000];
    let _heartbeat = solo.sender.poll_transmit(at(8), &mut buffer);
    let data = solo.sender.poll_transmit(at(8), &mut buffer).unwrap();
    assert_eq!(data.len, 65_000 / PACKET * PACKET);
}

#[test]
fn repairs_of_different_destinations_go_apart() {
    let mut solo = Solo::whole(&content(3 * BLOCK), |config| config.max_segments = 8);
    solo.run_to(at(20));
    let token = solo.token(host(1));
    let mut alone = request(Kind::Data, 0, 1);
    alone.token = token;
    assert_eq!(solo.ask(&Meta::unicast(host(1)), &alone), Ok(()));
    solo.now = at(24);
    assert_eq!(solo.ask_packets(&Meta::group(host(2)), 4, 6), Ok(()));
    let mut buffer = vec![0; 4_000];
    let mut sent = Vec::new();
    while let Some(transmit) = solo.sender.poll_transmit(solo.now, &mut buffer) {
        sent.push((transmit.destination, transmit.len / PACKET));
    }
    sent.sort_by_key(|(_, count)| *count);
    let expected = [(Destination::Unicast(host(1)), 2), (Destination::Group, 3)];
    assert_eq!(sent, expected);
    let stats = solo.sender.stats();
    assert_eq!((stats.repairs_unicast, stats.repairs_group), (2, 3));
}

#[test]
fn a_repair_of_what_a_ring_has_lost_is_dropped() {
    let mut solo = Solo::stream(4, |_| {});
    assert_eq!(solo.sender.send(at(0), &content(4 * BLOCK)), Ok(4 * BLOCK));
    solo.run_to(at(40));
    assert_eq!(solo.ask_packets(&Meta::group(host(1)), 0, 5), Ok(()));
    // The first block is overwritten before they go.
    assert_eq!(solo.sender.send(solo.now, &content(BLOCK)), Ok(BLOCK));
    let mut repaired = solo.poll();
    repaired.retain(|sent| sent.is(2));
    let expected = [(Destination::Group, 4), (Destination::Group, 5)];
    assert_eq!(sequences(&repaired), expected);
    assert_eq!(solo.sender.stats().repairs_group, 2);
    let gone = solo.ask_packets(&Meta::group(host(1)), 0, 3);
    assert_eq!(gone, Err(Error::RequestNotStored));
}

/// Repairs and new packets of two seconds in which all packets are requested all the time.
fn shares(percent: u8) -> (u64, u64) {
    let mut solo = Solo::whole(&content(4_096 * BLOCK), |config| {
        config.rate_bps = Some(1_000_000);
        config.repair.share_percent = percent;
        config.repair.hold_down = Duration::from_millis(1);
        config.integrity = false;
    });
    solo.run_to(at(500));
    let before = solo.sender.stats().clone();
    for step in 1..=1_000 {
        let newest = solo.sender.stats().data_packets as u32 - 1;
        let _ = solo.ask_packets(&Meta::group(host(1)), newest.saturating_sub(60), newest);
        solo.run_to(at(500 + 2 * step));
    }
    let after = solo.sender.stats();
    (
        after.repairs_group - before.repairs_group,
        after.data_packets - before.data_packets,
    )
}

#[test]
fn new_data_goes_on_while_repairs_take_their_share() {
    for (percent, ratio) in [(75, 3.0), (50, 1.0), (20, 0.25)] {
        let (repairs, new) = shares(percent);
        let all = repairs + new;
        // 1 Mbit/s is 403 frames a second.
        assert!((760..=830).contains(&all), "{all}");
        // Up to 64 were saved while none was requested.
        let extra = repairs as f64 - ratio * new as f64;
        assert!((45.0..=70.0).contains(&extra), "{repairs} to {new}");
    }
}

#[test]
fn the_sender_says_when_it_is_to_be_called() {
    let mut solo = Solo::whole(&content(64 * BLOCK), |config| {
        config.rate_bps = Some(1_000_000);
    });
    solo.run_to(at(100));
    // Nothing may go before the time that it names, and something then.
    for _ in 0..200 {
        let next = solo.sender.poll_timeout().expect("data waits");
        assert!(next > solo.now, "it has just sent what may go");
        solo.now = next - Duration::from_micros(1);
        solo.sender.handle_timeout(solo.now);
        let early = solo.poll().iter().any(|sent| sent.is(1));
        assert!(!early, "{}", solo.now);
        solo.now = next;
        solo.sender.handle_timeout(next);
        if solo.poll().is_empty() {
            // A timer of something else, after which it is called again.
            let later = solo.sender.poll_timeout().expect("data waits");
            assert!(later > next);
        }
    }
    assert!(solo.sender.stats().data_packets > 150);
    // A frame takes 2.5 ms.
    assert!(solo.now < at(700), "{}", solo.now);
}

#[test]
fn repairs_wait_for_the_rate_too() {
    let mut solo = Solo::whole(&content(4 * BLOCK), |config| {
        config.rate_bps = Some(100_000);
        config.linger = Duration::from_secs(60);
    });
    solo.run_to(at(3_000));
    assert!(solo.sender.digest().is_some());
    assert_eq!(solo.ask_packets(&Meta::group(host(1)), 0, 15), Ok(()));
    let sent = solo.run_to(at(4_000));
    let times: Vec<Instant> = sent
        .iter()
        .filter(|sent| sent.is(2))
        .map(|sent| sent.at)
        .collect();
    assert_eq!(times.len(), 16);
    // A frame of 314 bytes takes 25.1 ms; two may go at once.
    let took = (times[15] - times[0]).total_millis();
    assert!((345..=365).contains(&took), "{took} ms");
}

#[test]
fn an_end_that_is_announced_is_not_delayed() {
    let mut solo = Solo::stream(4, |_| {});
    assert_eq!(solo.sender.send(at(0), &content(100)), Ok(100));
    solo.run_to(at(1_000));
    assert_eq!(
        solo.sender.stats().data_packets,
        0,
        "it is not a whole packet"
    );
    solo.sender.finish(solo.now);
    let sent = solo.poll();
    assert!(sent[0].sync().unwrap().length == Some(100));
    assert_eq!(sequences(&sent), [(Destination::Group, 0)]);
    assert!(
        sent.last()
            .is_some_and(|sent| sent.sync().is_some_and(|sync| sync.digest.is_some()))
    );
    // It has ended: nothing more is taken.
    assert_eq!(solo.sender.send(solo.now, &[1]), Ok(0));
    solo.sender.finish(solo.now);
    assert_eq!(solo.sender.progress(), (100, Some(100)));
    // All of it was sent before the end is known.
    let mut solo = Solo::stream(4, |_| {});
    assert_eq!(solo.sender.send(at(0), &content(BLOCK)), Ok(BLOCK));
    solo.run_to(at(1_000));
    solo.sender.finish(solo.now);
    let sent = solo.poll();
    let digest = *blake3::hash(&content(BLOCK)).as_bytes();
    assert_eq!(solo.sender.digest(), Some(digest));
    assert_eq!(
        sent.last().and_then(|sent| sent.sync()?.digest),
        Some(digest)
    );
}

#[test]
fn under_a_key_packets_have_room_for_the_authenticator() {
    let mut solo = Solo::whole(&content(16 * BLOCK), |config| config.key = Some([7; 32]));
    // A heartbeat is 96 bytes without.
    for len in [96, 111] {
        let transmit = solo.sender.poll_transmit(at(0), &mut vec![0; len]);
        assert!(transmit.is_none(), "{len}");
    }
    let transmit = solo.sender.poll_transmit(at(0), &mut [0; 112]);
    assert_eq!(transmit.map(|transmit| transmit.len), Some(112));
    let sent = solo.run_to(at(50));
    let digests = sent.iter().filter(|sent| sent.is(4));
    let longest = digests.map(|sent| sent.bytes.len()).max();
    assert_eq!(longest, Some(20 + 7 * 32 + 16));
    assert!(longest.is_some_and(|len| len <= PACKET));
}
