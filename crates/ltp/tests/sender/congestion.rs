//! Congestion control of a sender: PACE, whose feedback counts, whom the rate follows, and who is too slow.

use ltp::tfmcc::{MANY, TOO_SLOW};
use ltp::wire::pace::{Feedback, Pace};
use ltp::wire::report::{Status, Verdict};
use ltp::wire::request::{self, Kind};
use ltp::{
    Destination, Error, Meta, Parity, ReceiverFailure, SenderConfig, SenderEvent, SessionId,
};

use super::{BLOCK, PAYLOAD, SESSION, Sent, Solo, at, content, host};

/// A sender whose receivers, if it expects any, have joined: receiver 3 at each of so many hosts.
fn busy(receivers: u8, configure: impl FnOnce(&mut SenderConfig)) -> (Solo, Vec<u64>) {
    let mut solo = Solo::whole(&content(400 * BLOCK), |config| {
        config.congestion = true;
        config.receivers = (receivers > 0).then_some(receivers.into());
        configure(config);
    });
    let join = |solo: &mut Solo, number| {
        let token = solo.report_token(host(number));
        let joined = super::report(Status::Joined, 0, token);
        assert_eq!(solo.report(host(number), &joined), Ok(()));
        token
    };
    let tokens = (0..receivers).map(|number| join(&mut solo, number));
    let tokens = tokens.collect();
    (solo, tokens)
}

fn paces(sent: &[Sent]) -> Vec<(Destination, Pace)> {
    let all = sent.iter().filter(|sent| sent.is(8));
    let parse = |sent: &Sent| (sent.to, Pace::parse(&sent.bytes).expect("PACE"));
    all.map(parse).collect()
}

/// Feedback to a PACE of 20 ms ago: that rate can be had.
fn limited(solo: &Solo, token: u64, rate_bps: u64) -> Feedback {
    let now = solo.now.total_micros() as u32;
    Feedback {
        session: SESSION,
        round: 1,
        receiver: 3,
        token,
        stamp_us: 1,
        echo_us: now.wrapping_sub(20_000),
        held_us: 0,
        round_trip_us: 20_000,
        loss: 1 << 24,
        rate_bps,
        received_bps: rate_bps,
    }
}

fn tell(solo: &mut Solo, meta: &Meta, feedback: &Feedback) -> Result<(), Error> {
    let mut packet = vec![0; feedback.buffer_len()];
    feedback.emit(&mut packet);
    solo.handle(meta, &packet)
}

/// Blocks have five packets.
#[test]
fn losses_of_slow_start_bring_no_parity_in_advance() {
    let (mut solo, tokens) = busy(2, |config| config.parity = Some(Parity::Auto));
    let request = |solo: &mut Solo, blocks: std::ops::Range<u64>| {
        for block in blocks {
            let lost = request::Repr {
                token: tokens[1],
                ..super::request(Kind::DataOrParity, block as u32 * 5, block as u32 * 5)
            };
            let _ = solo.ask(&Meta::unicast(host(1)), &lost);
        }
    };
    solo.run_to(at(2_000));
    let begun = solo.sender.progress().0 / BLOCK as u64;
    request(&mut solo, 0..begun);
    solo.run_to(at(2_500));
    assert!(begun > 3 && solo.sender.stats().parity_unicast > 0);
    assert_eq!(solo.sender.stats().parity_in_advance, 0);
    // A loss ends slow start.
    let feedback = limited(&solo, tokens[0], 100_000);
    assert_eq!(tell(&mut solo, &Meta::unicast(host(0)), &feedback), Ok(()));
    let first = solo.sender.progress().0 / BLOCK as u64 + 1;
    solo.run_to(at(8_000));
    let last = solo.sender.progress().0 / BLOCK as u64;
    assert!(last > first + 10, "{first} {last}");
    request(&mut solo, first..last);
    solo.run_to(at(12_000));
    assert!(solo.sender.stats().parity_in_advance > 0);
}

#[test]
fn a_sender_tells_its_rate_to_the_group_from_its_first_packet_to_its_last() {
    let (mut solo, _) = busy(0, |_| {});
    let sent = solo.run_to(at(10));
    let all = paces(&sent);
    let (to, first) = &all[0];
    assert_eq!(*to, Destination::Group);
    assert_eq!((first.session, first.receivers), (SESSION, MANY));
    assert_eq!(Some(first.rate_bps), solo.sender.rate_bps());
    assert_eq!(solo.sender.stats().paces, all.len() as u64);
    assert!(solo.sender.limiting().is_none());
    solo.sender.close(solo.now);
    assert_eq!(paces(&solo.run_to(at(20_000))), []);
    assert!(solo.sender.is_ended());
}

#[test]
fn before_all_have_joined_there_is_no_rate_to_tell() {
    let (mut solo, _) = busy(0, |config| {
        config.receivers = Some(2);
        config.connect_timeout = ltp::Duration::from_millis(500);
    });
    assert_eq!(paces(&solo.run_to(at(499))), []);
    let sent = solo.run_to(at(520));
    assert_eq!(paces(&sent)[0].1.receivers, 2);
}

#[test]
fn more_receivers_than_expected_are_expected_from_then_on() {
    let (mut solo, _) = busy(3, |config| config.receivers = Some(2));
    let sent = solo.run_to(at(1_000));
    let last = paces(&sent).pop().expect("PACE of a later round");
    assert_eq!(last.1.receivers, 3);
}

#[test]
fn feedback_counts_with_a_token_by_unicast_and_of_this_session() {
    let (mut solo, tokens) = busy(1, |_| {});
    solo.run_to(at(20));
    let before = solo.sender.rate_bps();
    let genuine = limited(&solo, tokens[0], 100_000);
    let (here, by_group) = (Meta::unicast(host(0)), Meta::group(host(0)));
    let other = Feedback {
        session: SessionId(1),
        ..genuine
    };
    assert_eq!(tell(&mut solo, &here, &other), Err(Error::OtherSession));
    assert_eq!(tell(&mut solo, &by_group, &genuine), Err(Error::Unexpected));
    let forged = Feedback {
        token: tokens[0] ^ 1,
        ..genuine
    };
    assert_eq!(
        tell(&mut solo, &here, &forged),
        Err(Error::FeedbackUnverified)
    );
    let stolen = tell(&mut solo, &Meta::unicast(host(1)), &genuine);
    assert_eq!(stolen, Err(Error::FeedbackUnverified));
    assert_eq!(
        (solo.sender.rate_bps(), solo.sender.stats().feedback),
        (before, 0)
    );
    assert!(solo.sender.limiting().is_none());
    assert_eq!(tell(&mut solo, &here, &genuine), Ok(()));
    assert_eq!(solo.sender.rate_bps(), Some(100_000));
    assert_eq!(solo.sender.stats().feedback, 1);
    let limiting = solo.sender.limiting().expect("it limits the rate");
    assert_eq!((limiting.address, limiting.receiver), (host(0), 3));
}

#[test]
fn without_congestion_control_feedback_is_unwanted() {
    let (mut solo, tokens) = busy(1, |config| config.congestion = false);
    let sent = solo.run_to(at(20));
    assert_eq!(paces(&sent), []);
    let feedback = limited(&solo, tokens[0], 100_000);
    let refused = tell(&mut solo, &Meta::unicast(host(0)), &feedback);
    assert_eq!(refused, Err(Error::FeedbackUnwanted));
    assert_eq!(solo.sender.rate_bps(), None);
}

#[test]
fn the_rate_that_is_told_is_kept() {
    let (mut solo, tokens) = busy(1, |_| {});
    solo.run_to(at(20));
    let feedback = limited(&solo, tokens[0], 200_000);
    assert_eq!(tell(&mut solo, &Meta::unicast(host(0)), &feedback), Ok(()));
    // What the token bucket still holds goes first.
    solo.run_to(at(100));
    let sent = solo.run_to(at(400));
    let bits: usize = sent.iter().map(|sent| 8 * (sent.bytes.len() + 42)).sum();
    assert!((40_000..70_000).contains(&bits), "{bits} in 0.3 s");
}

/// The rate of a stream in bit/s, before and after the application has written so many packets every 100 ms while all
/// arrived. Two may go at once.
fn rates_of_writing(packets: usize) -> (u64, u64) {
    let mut solo = Solo::stream(64, |config| {
        config.congestion = true;
        config.burst = ltp::Duration::ZERO;
        config.max_segments = 1;
    });
    for step in 1..=4 {
        solo.run_to(at(50 * step));
        assert_eq!(solo.sender.send(solo.now, &content(PAYLOAD)), Ok(PAYLOAD));
    }
    solo.run_to(at(250));
    let token = solo.token(host(0));
    let before = solo.sender.rate_bps().expect("a rate");
    for step in 3..=12 {
        solo.run_to(at(100 * step));
        let bytes = content(packets * PAYLOAD);
        assert_eq!(solo.sender.send(solo.now, &bytes), Ok(bytes.len()));
        solo.run_to(at(100 * step + 70));
        let lossless = Feedback {
            loss: 0,
            received_bps: 1_000_000_000,
            ..limited(&solo, token, u64::MAX)
        };
        let told = tell(&mut solo, &Meta::unicast(host(0)), &lossless);
        assert_eq!(told, Ok(()));
    }
    (before, solo.sender.rate_bps().expect("a rate"))
}

#[test]
fn a_rate_for_which_no_packet_had_to_wait_does_not_rise() {
    for packets in [1, 2] {
        let (before, after) = rates_of_writing(packets);
        assert_eq!(before, after, "{packets} packets");
    }
    let (before, after) = rates_of_writing(4);
    assert!(after > 2 * before, "{before}, {after}");
}

#[test]
fn a_receiver_that_has_everything_no_longer_limits_the_rate() {
    let (mut solo, tokens) = busy(2, |_| {});
    solo.run_to(at(20));
    let here = Meta::unicast(host(0));
    let feedback = limited(&solo, tokens[0], 100_000);
    assert_eq!(tell(&mut solo, &here, &feedback), Ok(()));
    assert!(solo.sender.limiting().is_some());
    let gone = super::report(Status::Leaving, 0, tokens[0]);
    assert_eq!(solo.report(host(0), &gone), Ok(()));
    assert!(solo.sender.limiting().is_none());
}

#[test]
fn silence_halves_the_rate_without_a_packet_from_anyone() {
    let (mut solo, _) = busy(0, |_| {});
    let before = solo.sender.rate_bps().expect("a rate");
    solo.run_to(at(10_000));
    let after = solo.sender.rate_bps().expect("a rate");
    assert!(after <= before / 2, "{before}, {after}");
}

#[test]
fn one_that_holds_the_rate_below_the_lowest_is_given_up_told_so_and_refused() {
    let (mut solo, tokens) = busy(2, |config| config.min_rate_bps = Some(1_000_000));
    solo.run_to(at(20));
    let here = Meta::unicast(host(0));
    let mut given_up = None;
    while given_up.is_none() && solo.now < at(20_000) {
        let feedback = limited(&solo, tokens[0], 300_000);
        assert_eq!(tell(&mut solo, &here, &feedback), Ok(()));
        let next = solo.now + ltp::Duration::from_millis(100);
        solo.run_to(next);
        given_up = solo.events().into_iter().find_map(|event| match event {
            SenderEvent::ReceiverFailed {
                address, failure, ..
            } => Some((address, failure)),
            _ => None,
        });
    }
    assert_eq!(given_up, Some((host(0), ReceiverFailure::TooSlow)));
    let time = solo.now - at(20);
    assert!(time >= TOO_SLOW && time < TOO_SLOW * 2, "{time:?}");
    // Whatever it says from now on is refused, with the reason.
    let again = limited(&solo, tokens[0], 300_000);
    assert_eq!(tell(&mut solo, &here, &again), Err(Error::TooSlow));
    let report = super::report(Status::Progress, 0, tokens[0]);
    assert_eq!(solo.report(host(0), &report), Err(Error::TooSlow));
    let acks = solo.poll();
    let verdicts: Vec<Verdict> = acks
        .iter()
        .filter_map(Sent::ack)
        .map(|ack| ack.verdict)
        .collect();
    assert_eq!(verdicts, [Verdict::TooSlow; 2]);
    assert!(solo.sender.limiting().is_none());
    let other = limited(&solo, tokens[1], 2_000_000);
    assert_eq!(tell(&mut solo, &Meta::unicast(host(1)), &other), Ok(()));
}

#[test]
fn short_data_packets_leave_room_for_the_paces() {
    let (mut solo, _) = busy(0, |config| config.max_packet_len = 60);
    let sent = solo.run_to(at(3_000));
    let rounds: Vec<u16> = paces(&sent).iter().map(|(_, pace)| pace.round).collect();
    assert!(rounds.is_sorted() && rounds.len() >= 2, "{rounds:?}");
}
