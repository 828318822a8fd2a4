//! Requests for packets and heartbeats: to which address the answer goes, and how often.

use ltp::wire::report::{Status, Verdict};
use ltp::wire::request::{Kind, REPAIR_ALONE, Range};
use ltp::{Destination, Duration, Error, Meta};

use super::{
    BLOCK, SESSION, Sent, Solo, asked, at, content, group, host, point, report, request, sequences,
};

/// Sequence of the first packet, shortly before it wraps.
const FIRST: u32 = u32::MAX - 9;

fn seq(number: u32) -> u32 {
    FIRST.wrapping_add(number)
}

/// A content of eight blocks that was sent whole.
fn sent() -> Solo {
    let mut solo = Solo::whole(&content(8 * BLOCK), |config| {
        config.first_sequence = FIRST;
    });
    solo.run_to(at(20));
    solo.events();
    solo
}

/// The repairs within that time, by their destination.
fn repairs(solo: &mut Solo, millis: u64) -> Vec<(Destination, u32)> {
    let end = solo.now + Duration::from_millis(millis);
    let mut sent = solo.run_to(end);
    sent.retain(|sent| sent.is(2));
    sequences(&sent)
}

fn to_group(numbers: &[u32]) -> Vec<(Destination, u32)> {
    let repair = |number: &u32| (Destination::Group, seq(*number));
    numbers.iter().map(repair).collect()
}

#[test]
fn packets_that_the_group_asks_for_go_to_the_group() {
    let mut solo = sent();
    let meta = Meta::group(host(1));
    assert_eq!(solo.ask_packets(&meta, seq(2), seq(4)), Ok(()));
    let repaired = solo.poll();
    assert_eq!(sequences(&repaired), to_group(&[2, 3, 4]));
    for (sent, at) in repaired.iter().zip([2, 3, 4]) {
        assert_eq!(&sent.bytes[16..], &content(8 * BLOCK)[at * 256..][..256]);
        assert_eq!(sent.bytes[2..4], [0, 5], "the tag of the request");
    }
    let stats = solo.sender.stats();
    assert_eq!((stats.requests_group, stats.requests_unicast), (1, 0));
    assert_eq!((stats.requested_packets, stats.repairs_group), (3, 3));
    assert_eq!((stats.received, stats.repairs_unicast), (1, 0));
    // They are held down for 20 ms.
    solo.run_to(at(39));
    let again = solo.ask_packets(&meta, seq(2), seq(4));
    assert_eq!(again, Err(Error::RequestHeldDown));
    assert_eq!(solo.sender.stats().requested_packets, 6);
    assert_eq!(solo.sender.stats().requests_group, 1);
    assert_eq!(solo.ask_packets(&meta, seq(4), seq(5)), Ok(()));
    assert_eq!(repairs(&mut solo, 0), to_group(&[5]));
    solo.run_to(at(40));
    assert_eq!(solo.ask_packets(&meta, seq(2), seq(2)), Ok(()));
    assert_eq!(repairs(&mut solo, 0), to_group(&[2]));
}

#[test]
fn the_longest_round_trip_that_was_named_extends_the_hold_down() {
    let named = |round_trip_us: u32| {
        let mut solo = sent();
        let mut repr = request(Kind::Data, seq(0), seq(0));
        repr.round_trip_us = round_trip_us;
        assert_eq!(solo.ask(&Meta::group(host(1)), &repr), Ok(()));
        solo.poll();
        let start = solo.now;
        for step in 1.. {
            solo.run_to(start + Duration::from_millis(step));
            if solo.ask(&Meta::group(host(1)), &repr).is_ok() {
                return step;
            }
        }
        unreachable!("it ends")
    };
    assert_eq!(named(1_000), 20);
    assert_eq!(named(70_000), 70);
    assert_eq!(named(900_000), 200, "ten times the configured one");
}

#[test]
fn a_request_is_clipped_to_what_was_sent() {
    let mut solo = sent();
    let meta = Meta::group(host(1));
    let unsent = solo.ask_packets(&meta, seq(32), seq(40));
    assert_eq!(unsent, Err(Error::RequestUnsent));
    assert_eq!(solo.ask_packets(&meta, seq(31), seq(40)), Ok(()));
    assert_eq!(repairs(&mut solo, 0), to_group(&[31]));
    // One range of several that can be served suffices.
    let mut repr = request(Kind::Data, seq(50), seq(60));
    let _ = repr.ranges.push(Range {
        lo: seq(7),
        hi: seq(7),
    });
    let _ = repr.ranges.push(Range {
        lo: seq(90),
        hi: seq(91),
    });
    assert_eq!(solo.ask(&meta, &repr), Ok(()));
    assert_eq!(repairs(&mut solo, 0), to_group(&[7]));
    assert_eq!(solo.sender.stats().drops.get(Error::RequestUnsent), 1);
}

#[test]
fn one_request_gets_64_blocks_at_most() {
    let mut solo = Solo::whole(&content(100 * BLOCK), |_| {});
    solo.run_to(at(20));
    let mut repr = request(Kind::Data, 0, 199);
    let _ = repr.ranges.push(Range { lo: 200, hi: 399 });
    assert_eq!(solo.ask(&Meta::group(host(1)), &repr), Ok(()));
    assert_eq!(solo.sender.stats().requested_packets, 256);
    let numbers: Vec<u32> = (0..256).collect();
    let sent = solo.poll();
    let mut repaired: Vec<u32> = sequences(&sent).iter().map(|(_, number)| *number).collect();
    repaired.sort_unstable();
    assert_eq!(repaired, numbers);
}

#[test]
fn an_address_without_proof_gets_a_token_and_the_group_the_packets() {
    let mut solo = sent();
    let meta = Meta::unicast(host(1));
    assert_eq!(solo.ask_packets(&meta, seq(2), seq(2)), Ok(()));
    let answered = solo.run_to(at(30));
    assert_eq!(sequences(&answered), to_group(&[2]));
    let acks: Vec<_> = answered.iter().filter(|sent| sent.is(7)).collect();
    assert_eq!(acks.len(), 1);
    assert_eq!(acks[0].to, Destination::Unicast(host(1)));
    let ack = acks[0].ack().unwrap();
    assert_eq!((ack.verdict, ack.tag, ack.receiver), (Verdict::Token, 5, 0));
    assert_ne!(ack.token, 0);
    assert_eq!(solo.sender.stats().requests_unicast, 1);
    // With the token the packets come to it alone, after others had time to ask.
    solo.run_to(at(100));
    let mut repr = request(Kind::Data, seq(2), seq(2));
    repr.token = ack.token;
    assert_eq!(solo.ask(&meta, &repr), Ok(()));
    assert_eq!(solo.run_to(at(103)).len(), 0);
    let alone = vec![(Destination::Unicast(host(1)), seq(2))];
    assert_eq!(repairs(&mut solo, 1), alone);
    assert_eq!(solo.sender.stats().repairs_unicast, 1);
    // It is no proof of another address, nor of another port.
    solo.run_to(at(200));
    let mut other = host(1);
    other.set_port(4_001);
    for other in [other, host(2)] {
        assert_eq!(solo.ask(&Meta::unicast(other), &repr), Ok(()));
        let sent = solo.poll();
        assert!(sent.iter().any(|sent| sent.is(7)), "a token");
        assert_eq!(sequences(&sent), to_group(&[2]));
        let later = solo.now + Duration::from_millis(100);
        solo.run_to(later);
    }
}

#[test]
fn a_token_answers_a_request_that_is_held_down_and_none_that_is_for_nothing() {
    let mut solo = sent();
    let meta = Meta::unicast(host(1));
    assert_eq!(
        solo.ask_packets(&Meta::group(host(2)), seq(2), seq(2)),
        Ok(())
    );
    solo.poll();
    let held = solo.ask_packets(&meta, seq(2), seq(2));
    assert_eq!(held, Err(Error::RequestHeldDown));
    assert!(solo.poll()[0].is(7));
    assert_eq!(solo.sender.stats().requests_unicast, 0);
    let unsent = solo.ask_packets(&meta, seq(90), seq(90));
    assert_eq!(unsent, Err(Error::RequestUnsent));
    assert_eq!(solo.poll().len(), 0);
}

#[test]
fn two_that_ask_for_one_packet_get_it_by_the_group() {
    let mut solo = sent();
    for number in 1..=2 {
        let token = solo.token(host(number));
        let mut repr = request(Kind::Data, seq(3), seq(4 + u32::from(number)));
        repr.token = token;
        assert_eq!(solo.ask(&Meta::unicast(host(number)), &repr), Ok(()));
    }
    let mut repaired = repairs(&mut solo, 10);
    repaired.sort_by_key(|(_, sequence)| sequence.wrapping_sub(FIRST));
    let mut expected = to_group(&[3, 4, 5]);
    expected.push((Destination::Unicast(host(2)), seq(6)));
    assert_eq!(repaired, expected);
}

#[test]
fn without_unicast_repairs_all_get_them() {
    let mut solo = Solo::whole(&content(BLOCK), |config| config.repair.unicast = false);
    solo.run_to(at(20));
    let token = solo.token(host(1));
    let mut repr = request(Kind::Data, 0, 0);
    repr.token = token;
    assert_eq!(solo.ask(&Meta::unicast(host(1)), &repr), Ok(()));
    assert_eq!(sequences(&solo.poll()), [(Destination::Group, 0)]);
}

/// A sender with one receiver on host 1 that has joined, and asks the group for packet 0.
fn lone(nonce: u64, meta: Meta, more: &[u16]) -> Vec<Destination> {
    let mut solo = Solo::whole(&content(BLOCK), |config| config.receivers = Some(1));
    assert_eq!(solo.tell(host(1), Status::Joined, 0), Ok(()));
    for port in more {
        let mut address = host(1);
        address.set_port(*port);
        assert_eq!(solo.tell(address, Status::Joined, 0), Ok(()));
    }
    solo.run_to(at(20));
    let mut repr = request(Kind::Data, 0, 0);
    repr.nonce = nonce;
    assert_eq!(solo.ask(&meta, &repr), Ok(()));
    let mut sent = solo.run_to(at(30));
    sent.retain(|sent| sent.is(2));
    sent.iter().map(|sent| sent.to).collect()
}

#[test]
fn a_receiver_that_asks_for_itself_alone_gets_the_packets_where_it_reports_from() {
    // Requests of LMS come from another port than reports.
    let mut from = host(1);
    from.set_port(9_999);
    let plain = asked(from, group(), None);
    let to_host = [Destination::Unicast(host(1))];
    assert_eq!(lone(REPAIR_ALONE, plain, &[]), to_host);
    assert_eq!(lone(REPAIR_ALONE, Meta::group(from), &[]), to_host);
    // For others too, or behind a turning point, or if it may be another receiver of that host: to all.
    let to_group = [Destination::Group];
    assert_eq!(lone(0, plain, &[]), to_group);
    let turned = asked(from, group(), Some(point()));
    assert_eq!(lone(REPAIR_ALONE, turned, &[]), to_group);
    assert_eq!(lone(REPAIR_ALONE, plain, &[5_000]), to_group);
    let stranger = asked(host(2), group(), None);
    assert_eq!(lone(REPAIR_ALONE, stranger, &[]), to_group);
    let unproven = Meta::unicast(from);
    assert_eq!(lone(REPAIR_ALONE, unproven, &[]), to_group);
}

#[test]
fn a_request_with_the_option_of_another_group_is_dropped() {
    let mut solo = sent();
    let other = std::net::SocketAddr::from(([239, 9, 9, 9], 5_000));
    let meta = asked(host(1), other, None);
    let refused = solo.ask_packets(&meta, seq(0), seq(0));
    assert_eq!(refused, Err(Error::OptionMismatch));
    let meta = asked(host(1), group(), Some(point()));
    assert_eq!(solo.ask_packets(&meta, seq(0), seq(0)), Ok(()));
    assert_eq!(solo.sender.stats().received, 1);
}

#[test]
fn a_request_for_a_heartbeat_gets_one_under_its_nonce() {
    let mut solo = sent();
    let mut repr = request(Kind::Sync, 0, 0);
    repr.nonce = 0x1234;
    // Of an earlier session, too: the answer names this one.
    repr.session = ltp::SessionId(1);
    let by_group = solo.ask(&Meta::group(host(1)), &repr);
    assert_eq!(by_group, Err(Error::Unexpected));
    assert_eq!(solo.ask(&Meta::unicast(host(1)), &repr), Ok(()));
    let sent = solo.poll();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].to, Destination::Unicast(host(1)));
    let sync = sent[0].sync().unwrap();
    assert_eq!((sync.answer, sync.session), (Some(0x1234), SESSION));
    assert_eq!((sync.next, sync.name), (32, &b""[..]));
    let stats = solo.sender.stats();
    assert_eq!((stats.requests_unicast, stats.answers), (1, 1));
    repr.kind = Kind::Data;
    let other = solo.ask(&Meta::unicast(host(1)), &repr);
    assert_eq!(other, Err(Error::OtherSession));
}

#[test]
fn what_only_a_sender_sends_is_not_for_a_sender() {
    let mut solo = sent();
    let heartbeat = solo.run_to(at(200));
    let heartbeat = heartbeat.iter().find(|sent| sent.is(3)).unwrap();
    let refused = solo.handle(&Meta::group(host(1)), &heartbeat.bytes);
    assert_eq!(refused, Err(Error::Unexpected));
    assert_eq!(solo.sender.stats().drops.get(Error::Unexpected), 1);
    assert_eq!(solo.sender.stats().received, 0);
}

#[test]
fn a_sender_that_has_ended_answers_nothing() {
    let mut solo = sent();
    solo.sender.close(solo.now);
    solo.run_to(at(1_000));
    assert!(solo.sender.is_ended());
    let late = solo.ask_packets(&Meta::group(host(1)), seq(0), seq(0));
    assert_eq!(late, Err(Error::Ended));
    let late = solo.report(host(1), &report(Status::Joined, 0, 0));
    assert_eq!(late, Err(Error::Ended));
    assert_eq!(solo.poll().len(), 0);
}

#[test]
fn under_a_key_a_request_needs_its_authenticator() {
    let hashing = ltp::digest::Hashing::new(Some([7; 32]));
    let mut solo = Solo::whole(&content(BLOCK), |config| config.key = Some([7; 32]));
    let sent = solo.run_to(at(20));
    for control in sent.iter().filter(|sent| !sent.is(1)) {
        assert!(hashing.open(&control.bytes).is_some());
    }
    let repr = request(Kind::Data, 0, 0);
    let meta = Meta::group(host(1));
    assert_eq!(solo.ask(&meta, &repr), Err(Error::Authenticator));
    let mut packet = vec![0; repr.buffer_len() + 16];
    repr.emit(&mut packet);
    let len = hashing.seal(&mut packet, repr.buffer_len());
    assert_eq!(solo.handle(&meta, &packet[..len]), Ok(()));
    packet[50] ^= 1;
    assert_eq!(
        solo.handle(&meta, &packet[..len]),
        Err(Error::Authenticator)
    );
}

#[test]
fn a_request_delays_the_end() {
    let mut solo = sent();
    solo.run_to(at(2_000));
    assert_eq!(
        solo.ask_packets(&Meta::group(host(1)), seq(0), seq(0)),
        Ok(())
    );
    let sent = solo.run_to(at(10_000));
    let closing = |sent: &&Sent| sent.sync().is_some_and(|sync| sync.closing);
    let first = sent.iter().find(closing).unwrap().at;
    assert_eq!(first, at(5_000), "three seconds after it");
    let repr: request::Repr = request(Kind::Sync, 0, 0);
    let ended = solo.ask(&Meta::unicast(host(1)), &repr);
    assert_eq!(ended, Err(Error::Ended));
}

#[test]
fn a_full_queue_of_repairs_is_said() {
    let mut solo = Solo::whole(&content(8 * BLOCK), |config| {
        config.limits.repairs = 2;
        config.limits.targets = 1;
    });
    solo.run_to(at(20));
    let full = solo.ask_packets(&Meta::group(host(1)), 0, 12);
    assert_eq!(full, Err(Error::RepairsFull));
    // What was queued is repaired all the same.
    assert_eq!(sequences(&solo.poll()).len(), 8);
    // The only target is the group.
    let token = solo.token(host(1));
    let mut repr = request(Kind::Data, 20, 20);
    repr.token = token;
    assert_eq!(solo.ask(&Meta::unicast(host(1)), &repr), Ok(()));
    assert_eq!(sequences(&solo.poll()), [(Destination::Group, 20)]);
}

const KEY: [u8; 32] = [7; 32];

/// A sender with a key at 1 Mbit/s, of which hosts ask for what lies to the left of a block all the time.
///
/// Returns the answers of a second, and when those came for which hosts had asked by then.
fn flood(token: bool) -> (usize, Vec<ltp::Instant>) {
    let hashing = ltp::digest::Hashing::new(Some(KEY));
    let mut solo = Solo::whole(&content(8 * BLOCK), |config| {
        config.key = Some(KEY);
        config.rate_bps = Some(1_000_000);
    });
    solo.run_to(at(1_000));
    let mut repr = request(Kind::Left, 7, 7);
    let mut ask = |solo: &mut Solo, token| {
        repr.token = token;
        let mut packet = vec![0; repr.buffer_len() + 16];
        repr.emit(&mut packet);
        hashing.seal(&mut packet, repr.buffer_len());
        solo.handle(&Meta::unicast(host(1)), &packet)
    };
    assert_eq!(ask(&mut solo, 0), Err(Error::RequestUnverified));
    let answer = solo.run_to(at(1_010)).into_iter().find(|sent| sent.is(7));
    let packet = hashing.open(&answer.unwrap().bytes).unwrap().to_vec();
    let known = ltp::wire::report::ReportAck::parse(&packet).unwrap().token;
    let is_answer = |sent: &&Sent| matches!(sent.to, Destination::Unicast(_));
    let mut count = 0;
    for step in 1..=1_000 {
        let _ = ask(&mut solo, if token { known } else { 0 });
        let sent = solo.run_to(at(1_010 + step));
        count += sent.iter().filter(is_answer).count();
    }
    let sent = solo.run_to(at(2_200));
    let times = sent.iter().filter(is_answer).map(|sent| sent.at);
    (count, times.collect())
}

/// A tenth of the rate is 12.5 bytes a millisecond, and 16 KiB may go at once.
#[test]
fn answers_to_single_hosts_keep_to_their_share() {
    // The headers of a frame, an authenticator, and a token or three chaining values.
    for (token, frame) in [(false, 42 + 16 + 24), (true, 42 + 16 + 20 + 3 * 32)] {
        let (count, times) = flood(token);
        let expected = (16_384 + 12_500) / frame;
        assert!(count.abs_diff(expected) <= 3, "{count}, not {expected}");
        // The sender says when the next may go.
        let wait = frame as u64 * 1_000_000 / 12_500;
        assert!(times.len() > 8, "{times:?}");
        for pair in times.windows(2) {
            let took = (pair[1] - pair[0]).total_micros();
            assert!(took.abs_diff(wait) <= 1, "{took}, not {wait}");
        }
    }
}
