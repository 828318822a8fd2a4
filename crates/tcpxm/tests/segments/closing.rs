//! The ends of connections: FINs, resets, and peers that say nothing any more (RFC 9293 §3.6, §3.8.3, §3.8.4).

use tcpxm::wire::Options;
use tcpxm::{Config, Duration, Error, Event, Failure, Received, State};

use crate::hand::*;

fn established(change: impl FnOnce(&mut Config)) -> Hand {
    let mut config = Config::default();
    change(&mut config);
    let mss = Some(1000);
    let options = Options {
        mss,
        ..Options::default()
    };
    Hand::establish(config, options)
}

fn shutdown(hand: &mut Hand) {
    let id = hand.id.unwrap();
    hand.endpoint.shutdown(hand.now, id).unwrap();
}

fn close(hand: &mut Hand) {
    let id = hand.id.unwrap();
    hand.endpoint.close(hand.now, id).unwrap();
}

/// This side closes and its FIN is acknowledged.
fn half_closed(hand: &mut Hand) {
    shutdown(hand);
    let fin = hand.sent().pop().unwrap();
    assert_eq!((fin.flags, fin.seq), (flags("FA"), hand.ack));
    assert_eq!(hand.state(), State::FinWait1);
    hand.acknowledge(1, 60_000);
    assert_eq!(hand.state(), State::FinWait2);
}

/// The peer's FIN.
fn take_fin(hand: &mut Hand) {
    hand.give(hand.seq, hand.ack, "FA", b"").unwrap();
    hand.seq = hand.seq.plus(1);
}

/// Whether nothing is left of the connection.
fn is_gone(hand: &Hand) -> bool {
    hand.endpoint.conn_stats(hand.id.unwrap()).is_err()
}

#[test]
fn the_side_that_closes_first_ends_in_time_wait() {
    let mut hand = established(|_| ());
    half_closed(&mut hand);
    let delivered = |event: &Event| matches!(event, Event::Delivered { .. });
    assert!(hand.events().iter().any(delivered));
    take_fin(&mut hand);
    assert_eq!(hand.state(), State::TimeWait);
    hand.assert_challenge();
    assert_eq!(hand.end(), Some(None));
    // The acknowledgement was lost: the peer's FIN again.
    hand.wait(30_000);
    let fin = hand.seq.minus(1);
    assert_eq!(hand.give(fin, hand.ack, "FA", b""), Err(Error::Duplicate));
    hand.assert_challenge();
    // RFC 1337: a reset ends TIME-WAIT too early.
    assert_eq!(
        hand.give(hand.seq, hand.ack, "R", b""),
        Err(Error::TimeWait)
    );
    assert_eq!(
        hand.give(hand.seq, hand.ack, "A", b"x"),
        Err(Error::TimeWait)
    );
    hand.assert_challenge();
    hand.wait(59_999);
    assert_eq!(hand.state(), State::TimeWait);
    hand.wait(1);
    assert!(is_gone(&hand));
}

#[test]
fn both_sides_close_at_once() {
    let mut hand = established(|_| ());
    shutdown(&mut hand);
    hand.sent();
    take_fin(&mut hand);
    assert_eq!(hand.state(), State::Closing);
    let ack = hand.sent().pop().unwrap();
    assert_eq!(
        (ack.flags, ack.seq, ack.ack),
        (ACK, hand.ack.plus(1), hand.seq)
    );
    hand.acknowledge(1, 60_000);
    assert_eq!(hand.state(), State::TimeWait);
    assert_eq!(hand.end(), Some(None));
}

#[test]
fn a_fin_that_acknowledges_ours_leads_to_time_wait_at_once() {
    let mut hand = established(|_| ());
    shutdown(&mut hand);
    hand.sent();
    hand.ack = hand.ack.plus(1);
    take_fin(&mut hand);
    assert_eq!(hand.state(), State::TimeWait);
}

#[test]
fn the_side_that_closes_last_is_done_with_the_acknowledgement() {
    let mut hand = established(|_| ());
    take_fin(&mut hand);
    assert_eq!(hand.state(), State::CloseWait);
    hand.assert_challenge();
    assert_eq!(hand.give(hand.seq, hand.ack, "A", b"x"), Err(Error::Closed));
    hand.assert_challenge();
    hand.send(&[7; 500]);
    assert_eq!(hand.sent().pop().unwrap().payload.len(), 500);
    hand.acknowledge(500, 60_000);
    shutdown(&mut hand);
    let fin = hand.sent().pop().unwrap();
    assert_eq!((fin.flags, fin.seq), (flags("FA"), hand.ack));
    assert_eq!(hand.state(), State::LastAck);
    hand.acknowledge(1, 60_000);
    assert_eq!(hand.end(), Some(None));
    assert!(is_gone(&hand));
}

#[test]
fn a_fin_counts_when_all_before_it_has_arrived() {
    let mut hand = established(|_| ());
    let (seq, ack) = (hand.seq, hand.ack);
    hand.give(seq.plus(4), ack, "FA", b"").unwrap();
    hand.assert_challenge();
    assert_eq!(hand.state(), State::Established);
    // Nothing follows a FIN, and there is one.
    assert_eq!(
        hand.give(seq.plus(2), ack, "A", b"tail"),
        Err(Error::Closed)
    );
    hand.assert_challenge();
    hand.give(seq.plus(2), ack, "FA", b"").unwrap();
    hand.assert_challenge();
    hand.give(seq, ack, "A", b"da").unwrap();
    assert_eq!(hand.state(), State::Established);
    hand.give(seq.plus(2), ack, "A", b"ta").unwrap();
    assert_eq!(hand.state(), State::CloseWait);
    assert_eq!(hand.sent().pop().unwrap().ack, seq.plus(5));
    assert_eq!(hand.read(), b"data");
    let end = hand.endpoint.recv(hand.now, hand.id.unwrap(), &mut [0]);
    assert_eq!(end, Ok(Received::End));
}

/// Its data has to come again, and the FIN with it.
#[test]
fn a_fin_on_a_segment_that_was_not_stored_does_not_count() {
    let mut hand = established(|_| ());
    let (seq, ack) = (hand.seq, hand.ack);
    for n in 0..512 {
        hand.give(seq.plus(2 * n + 1), ack, "A", b"x").unwrap();
    }
    let last = seq.plus(1025);
    assert_eq!(hand.give(last, ack, "FA", b"x"), Err(Error::ReassemblyFull));
    hand.give(seq, ack, "A", &[b'x'; 1025]).unwrap();
    hand.give(last, ack, "A", b"x").unwrap();
    assert_eq!(hand.state(), State::Established);
    hand.give(seq.plus(1026), ack, "FA", b"").unwrap();
    assert_eq!(hand.state(), State::CloseWait);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut hand = established(|_| ());
    shutdown(&mut hand);
    assert_eq!(hand.sent().len(), 1);
    for expected_ms in [200, 400, 800] {
        let (sent, ms) = hand.wait_for(1_000);
        assert_eq!((sent.len(), ms), (1, expected_ms));
        assert_eq!((sent[0].flags, sent[0].seq), (flags("FA"), hand.ack));
    }
    let stats = hand.endpoint.stats();
    assert_eq!((stats.retransmissions, stats.timeouts), (3, 3));
    hand.acknowledge(1, 60_000);
    assert_eq!(hand.state(), State::FinWait2);
    hand.wait(10_000);
    assert!(hand.sent().is_empty());
}

/// A FIN takes a sequence number, so that it has to fit the window (RFC 9293 §3.4).
#[test]
fn a_fin_waits_for_the_window() {
    let mut hand = established(|_| ());
    hand.acknowledge(0, 0);
    shutdown(&mut hand);
    assert!(hand.sent().is_empty());
    let (probe, _) = hand.wait_for(1_000);
    assert_eq!((probe[0].flags, probe[0].seq), (ACK, hand.ack.minus(1)));
    hand.acknowledge(0, 1);
    let sent = hand.sent();
    assert_eq!((sent.len(), sent[0].flags), (1, flags("FA")));
}

#[test]
fn the_fin_follows_the_last_byte() {
    let mut hand = established(|_| ());
    hand.send(&[7; 2_500]);
    shutdown(&mut hand);
    let sent = hand.sent();
    let last = sent.last().unwrap();
    let data: usize = sent.iter().map(|sent| sent.payload.len()).sum();
    assert_eq!((data, last.flags), (2_500, flags("FA")));
    assert_eq!(last.seq, hand.ack.plus(2_500));
    hand.acknowledge(2_500, 60_000);
    assert_eq!(hand.state(), State::FinWait1);
    hand.acknowledge(1, 60_000);
    assert_eq!(hand.state(), State::FinWait2);
}

/// RFC 1122 §4.2.2.13.
#[test]
fn unread_data_and_data_for_nobody_are_answered_with_a_reset() {
    let mut hand = established(|_| ());
    hand.give(hand.seq, hand.ack, "A", b"unread").unwrap();
    close(&mut hand);
    let sent = hand.sent();
    assert_eq!((sent.len(), sent[0].flags), (1, flags("RA")));
    assert_eq!((sent[0].seq, sent[0].ack), (hand.ack, hand.seq.plus(6)));
    assert_eq!(hand.end(), Some(Some(Failure::Aborted)));

    let mut hand = established(|_| ());
    hand.give(hand.seq, hand.ack, "A", b"read").unwrap();
    assert_eq!(hand.read(), b"read");
    close(&mut hand);
    assert_eq!(hand.sent().pop().unwrap().flags, flags("FA"));
    // A duplicate is none.
    let again = hand.give(hand.seq, hand.ack, "A", b"read");
    assert_eq!(again, Err(Error::Duplicate));
    assert_eq!(hand.sent().pop().unwrap().flags, ACK);
    let more = hand.give(hand.seq.plus(4), hand.ack, "A", b"more");
    assert_eq!(more, Err(Error::Closed));
    let sent = hand.sent();
    assert_eq!((sent.len(), sent[0].flags), (1, flags("RA")));
    assert_eq!(hand.end(), Some(Some(Failure::Aborted)));
}

/// A FIN has no data for an application that is gone.
#[test]
fn who_has_closed_still_takes_the_peer_s_fin() {
    let mut hand = established(|_| ());
    hand.give(hand.seq, hand.ack, "A", b"read").unwrap();
    hand.seq = hand.seq.plus(4);
    hand.read();
    close(&mut hand);
    hand.sent();
    hand.acknowledge(1, 60_000);
    take_fin(&mut hand);
    assert_eq!(hand.state(), State::TimeWait);
    hand.assert_challenge();
    assert_eq!(hand.end(), Some(None));
}

#[test]
fn unread_data_of_a_connection_that_has_ended_is_no_reason_for_a_reset() {
    let mut hand = established(|_| ());
    half_closed(&mut hand);
    hand.give(hand.seq, hand.ack, "FA", b"unread").unwrap();
    assert_eq!(hand.state(), State::TimeWait);
    hand.sent();
    close(&mut hand);
    assert!(hand.sent().is_empty());
    assert_eq!(hand.end(), Some(None));
}

/// A peer that never closes would hold the connection forever, once the application has gone.
#[test]
fn only_an_orphan_waits_a_limited_time_for_the_peer_s_fin() {
    let mut hand = established(|_| ());
    half_closed(&mut hand);
    hand.wait(3_600_000);
    assert_eq!(hand.state(), State::FinWait2);
    close(&mut hand);
    hand.wait(59_999);
    assert_eq!(hand.state(), State::FinWait2);
    hand.wait(1);
    assert_eq!(hand.end(), Some(None));
    assert!(is_gone(&hand));

    let mut hand = established(|_| ());
    close(&mut hand);
    hand.sent();
    hand.wait(100);
    hand.acknowledge(1, 60_000);
    hand.wait(59_999);
    assert_eq!(hand.state(), State::FinWait2);
    hand.wait(1);
    assert_eq!(hand.end(), Some(None));
}

/// Brings a connection into a state.
type Reach = fn(&mut Hand);

/// RFC 9293 §3.10.5, ABORT.
#[test]
fn an_abort_is_told_with_a_reset_that_follows_what_was_sent() {
    let states: [(State, u32, Reach); 6] = [
        (State::Established, 0, |_| ()),
        (State::FinWait1, 1, shutdown),
        (State::FinWait2, 0, half_closed),
        (State::CloseWait, 0, take_fin),
        (State::Closing, 1, |hand| {
            shutdown(hand);
            hand.sent();
            take_fin(hand);
        }),
        (State::LastAck, 1, |hand| {
            take_fin(hand);
            shutdown(hand);
        }),
    ];
    for (state, fin, reach) in states {
        let mut hand = established(|_| ());
        reach(&mut hand);
        hand.sent();
        assert_eq!(hand.state(), state);
        hand.endpoint.abort(hand.now, hand.id.unwrap()).unwrap();
        let sent = hand.sent();
        assert_eq!((sent.len(), sent[0].flags), (1, flags("RA")), "{state:?}");
        assert_eq!(sent[0].seq, hand.ack.plus(fin), "{state:?}");
        assert_eq!((sent[0].ack, sent[0].window), (hand.seq, 0), "{state:?}");
        assert_eq!(hand.end(), Some(Some(Failure::Aborted)), "{state:?}");
        assert!(is_gone(&hand));
    }
    let mut hand = established(|_| ());
    half_closed(&mut hand);
    take_fin(&mut hand);
    hand.sent();
    hand.endpoint.abort(hand.now, hand.id.unwrap()).unwrap();
    assert!(hand.sent().is_empty());
    assert_eq!(hand.end(), Some(None));
}

/// RFC 9293 §3.8.3, R2.
#[test]
fn data_that_stays_unacknowledged_ends_the_connection() {
    let mut hand = established(|config| config.user_timeout = Duration::from_secs(5));
    hand.wait(60_000);
    hand.send(&[7; 2_000]);
    hand.sent();
    hand.wait(3_000);
    hand.acknowledge(1_000, 60_000);
    hand.sent();
    hand.wait(4_999);
    hand.sent();
    assert_eq!(hand.end(), None);
    hand.wait(1);
    let sent = hand.sent();
    assert_eq!((sent.len(), sent[0].flags), (1, flags("RA")));
    assert_eq!(hand.end(), Some(Some(Failure::Timeout)));
}

/// RFC 9293 §3.8.4. A probe is from before the peer's position, so that the peer answers it.
#[test]
fn a_silent_peer_is_probed_nine_times() {
    for (idle_s, pause_s) in [(100, 75), (10, 10)] {
        let mut hand = established(|config| config.keep_alive = Some(Duration::from_secs(idle_s)));
        hand.wait(idle_s * 1_000 - 1);
        // It speaks: the time starts again.
        hand.give(hand.seq, hand.ack, "A", b"").unwrap();
        hand.wait(idle_s * 1_000 - 1);
        assert!(hand.sent().is_empty());
        hand.wait(1);
        let sent = hand.sent();
        assert_eq!((sent.len(), sent[0].flags, sent[0].ack), (1, ACK, hand.seq));
        assert_eq!((sent[0].seq, sent[0].payload.len()), (hand.ack.minus(1), 0));
        for _ in 0..7 {
            hand.wait(pause_s * 1_000 - 1);
            assert!(hand.sent().is_empty());
            hand.wait(1);
            assert_eq!(hand.sent().len(), 1);
        }
        hand.give(hand.seq, hand.ack, "A", b"").unwrap();
        hand.wait(idle_s * 1_000);
        assert_eq!(hand.sent().len(), 1, "it has answered: nine again");
        for _ in 0..8 {
            hand.wait(pause_s * 1_000);
            assert_eq!(hand.sent().len(), 1);
        }
        hand.wait(pause_s * 1_000 - 1);
        assert_eq!(hand.end(), None);
        hand.wait(1);
        assert_eq!(hand.end(), Some(Some(Failure::Timeout)));
        assert!(hand.sent().is_empty());
    }
}

#[test]
fn a_peer_with_unacknowledged_data_or_in_time_wait_is_not_probed() {
    let mut hand = established(|config| config.keep_alive = Some(Duration::from_secs(1)));
    hand.send(&[7; 100]);
    hand.sent();
    for _ in 0..60 {
        hand.wait(1_000);
        let probes = hand.sent().iter().filter(|s| s.payload.is_empty()).count();
        assert_eq!(probes, 0, "only the data again");
    }
    hand.acknowledge(100, 60_000);
    hand.wait(1_000);
    assert_eq!(hand.sent().len(), 1);

    let mut hand = established(|config| config.keep_alive = Some(Duration::from_secs(1)));
    half_closed(&mut hand);
    take_fin(&mut hand);
    hand.sent();
    for _ in 0..59 {
        hand.wait(1_000);
        assert!(hand.sent().is_empty());
    }
    assert_eq!(hand.state(), State::TimeWait);
}

/// The application has not read everything, and not yet seen how the connection ended.
#[test]
fn a_connection_stays_until_its_data_was_read() {
    let mut hand = established(|_| ());
    hand.give(hand.seq, hand.ack, "FA", b"last words").unwrap();
    hand.seq = hand.seq.plus(11);
    shutdown(&mut hand);
    hand.sent();
    hand.acknowledge(1, 60_000);
    assert!(!is_gone(&hand));
    assert_eq!(hand.end(), Some(None));
    assert_eq!(hand.state(), State::Closed);
    assert_eq!(hand.read(), b"last words");
    assert!(is_gone(&hand));
}

#[test]
fn a_receiver_that_is_reset_leaves_its_group() {
    let mut hand = Hand::grouped();
    hand.events();
    hand.give(hand.seq, hand.ack, "A", b"lost").unwrap();
    hand.give(hand.seq.plus(4), hand.ack, "R", b"").unwrap();
    let events = hand.events();
    let left = events
        .iter()
        .any(|event| matches!(event, Event::Leave { .. }));
    let readable = events
        .iter()
        .any(|event| matches!(event, Event::Readable { .. }));
    assert!(left && !readable, "{events:?}");
}

/// RFC 1122 §4.2.2.13, RFC 6191: a SYN behind all that the peer has sent, or with a later timestamp, begins anew.
#[test]
fn a_later_syn_ends_time_wait() {
    let reopened = |stamp: Option<u32>, offset: i32| {
        let timestamps = stamp.map(|_| (1_000, 0));
        let mut hand = Hand::establish(
            Config::default(),
            Options {
                timestamps,
                ..Options::default()
            },
        );
        half_closed(&mut hand);
        take_fin(&mut hand);
        hand.events();
        hand.sent();
        hand.seq = hand.seq.plus(offset as u32);
        let options = Options {
            timestamps: stamp.map(|stamp| (stamp, 0)),
            ..Options::default()
        };
        let result = hand.answer("S", options);
        let sent = hand.sent().pop().unwrap();
        assert_eq!(sent.flags.syn, result.is_ok());
        result
    };
    let no = Err(Error::SynChallenged);
    assert_eq!(
        [-1, 0, 1].map(|offset| reopened(None, offset)),
        [no, no, Ok(())]
    );
    let stamps = [999, 1_001].map(|stamp| [-5, 5].map(|offset| reopened(Some(stamp), offset)));
    assert_eq!(stamps, [[no, no], [Ok(()), Ok(())]]);
    // The same timestamp says nothing.
    let same = [-5, 5].map(|offset| reopened(Some(1_000), offset));
    assert_eq!(same, [no, Ok(())]);
}
