//! Congestion control: PACE that counts, the feedback to it, and what a receiver does that is too slow.

use ltp::wire::data;
use ltp::wire::pace::{Feedback, Pace};
use ltp::wire::report::{ReportAck, Status, Verdict};
use ltp::wire::{Seq, sync};
use ltp::{Destination, Error, Failure, Meta, ReceiverEvent, SessionId};

use super::{BLOCK, Lone, PAYLOAD, SESSION, Sent, host, ms, reports, seq, source};

fn pace(session: SessionId) -> Vec<u8> {
    pace_of_round(session, 3)
}

fn pace_of_round(session: SessionId, round: u16) -> Vec<u8> {
    let pace = Pace {
        session,
        round,
        slow_start: false,
        stamp_us: 1,
        max_round_trip_us: 20_000,
        rate_bps: 1_000_000,
        suppress_bps: u64::MAX,
        limiting: 0,
        receivers: 1,
        echoes: Default::default(),
    };
    let mut packet = vec![0; pace.buffer_len()];
    pace.emit(&mut packet);
    packet
}

/// The n-th packet that the source sends, with this part of the content.
fn sent_as(lone: &mut Lone, number: u32, part: u32) -> Result<(), Error> {
    let mut packet = lone.packet(part, None);
    data::Repr {
        repair: None,
        session: SESSION,
        sequence: Seq(seq(part)),
        number: Some(number),
    }
    .emit(&mut packet);
    lone.handle(&Meta::group(source()), &packet)
}

fn feedback(sent: &[Sent]) -> Vec<(Destination, Feedback)> {
    let all = sent.iter().filter(|sent| sent.is(9));
    let parse = |sent: &Sent| (sent.to, Feedback::parse(&sent.bytes).expect("feedback"));
    all.map(parse).collect()
}

/// A receiver to which the source has given token 5, in answer to its first report.
fn joined(blocks: usize) -> Lone {
    let mut lone = Lone::new(blocks * BLOCK, |_| {});
    let heartbeat = sync::Repr {
        reports: true,
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    let report = reports(&lone.poll())[0];
    assert_eq!(report.status, Status::Joined);
    assert_eq!(lone.answer(&report, Verdict::Token), Ok(()));
    lone
}

fn too_slow(lone: &mut Lone, token: u64) -> Result<(), Error> {
    let receiver = lone.receiver.id();
    lone.ack(&ReportAck {
        verdict: Verdict::TooSlow,
        tag: 0,
        session: SESSION,
        receiver,
        token,
    })
}

fn failure(lone: &mut Lone) -> Option<Failure> {
    let mut events = std::iter::from_fn(|| lone.receiver.poll_event());
    events.find_map(|event| match event {
        ReceiverEvent::Failed { failure, .. } => Some(failure),
        _ => None,
    })
}

#[test]
fn a_receiver_answers_the_source_s_pace() {
    let mut lone = joined(4);
    let group = Meta::group(source());
    assert_eq!(lone.handle(&group, &pace(SESSION)), Ok(()));
    assert_eq!(feedback(&lone.poll()), [], "nothing has come");
    assert_eq!(sent_as(&mut lone, 1, 0), Ok(()));
    let next = pace_of_round(SESSION, 4);
    assert_eq!(lone.handle(&group, &next), Ok(()));
    let sent = feedback(&lone.poll());
    let [(to, feedback)] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!(*to, Destination::Unicast(source()));
    assert_eq!(feedback.receiver, lone.receiver.id());
    assert_eq!((feedback.session, feedback.token), (SESSION, 5));
    assert_eq!((feedback.round, feedback.echo_us), (4, 1));
    // One Ethernet frame in 20 ms.
    let frame = 14 + 20 + 8 + data::DATA_HEADER_LEN + PAYLOAD;
    assert_eq!(feedback.received_bps, frame as u64 * 8 * 50);
    assert_eq!(lone.receiver.stats().feedback, 1);
}

#[test]
fn a_pace_counts_from_the_source_to_the_group_alone() {
    let mut lone = Lone::new(4 * BLOCK, |_| {});
    let group = Meta::group(source());
    let early = lone.handle(&group, &pace(SESSION));
    assert_eq!(early, Err(Error::BeforeSync));
    let heartbeat = lone.heartbeat(0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    for (meta, session, error) in [
        (group, SessionId(1), Error::OtherSession),
        (Meta::group(host(1)), SESSION, Error::OtherSource),
        (Meta::unicast(source()), SESSION, Error::Unexpected),
    ] {
        assert_eq!(lone.handle(&meta, &pace(session)), Err(error));
        assert_eq!(sent_as(&mut lone, 1, 0), Ok(()));
        let next = pace_of_round(session, 4);
        assert_eq!(lone.handle(&meta, &next), Err(error));
        assert_eq!(feedback(&lone.run_for(ms(1_000))), []);
    }
}

#[test]
fn a_receiver_that_has_everything_gives_no_feedback() {
    let mut lone = Lone::open(BLOCK, |_| {});
    assert_eq!(lone.handle(&Meta::group(source()), &pace(SESSION)), Ok(()));
    for number in 0..4 {
        assert_eq!(sent_as(&mut lone, number, number), Ok(()));
    }
    let last = lone.last_heartbeat();
    assert_eq!(lone.digests(0, 0, None), Ok(()));
    assert_eq!(lone.sync(&last), Ok(()));
    assert!(lone.receiver.is_complete());
    let next = pace_of_round(SESSION, 4);
    assert_eq!(lone.handle(&Meta::group(source()), &next), Ok(()));
    assert_eq!(feedback(&lone.run_for(ms(1_000))), []);
}

#[test]
fn packets_that_the_source_sent_and_that_did_not_come_are_a_loss_event() {
    let mut lone = Lone::open(8 * BLOCK, |_| {});
    assert_eq!(lone.handle(&Meta::group(source()), &pace(SESSION)), Ok(()));
    // Parts of the content that come in another order are no loss: the numbers count.
    for (number, part) in (1..10).zip([0, 9, 1, 8, 2, 7, 3, 6, 4]) {
        assert_eq!(sent_as(&mut lone, number, part), Ok(()));
    }
    assert!(lone.receiver.loss_event_rate() == 0.0);
    for number in 11..15 {
        assert_eq!(sent_as(&mut lone, number, number), Ok(()));
    }
    let loss = lone.receiver.loss_event_rate();
    assert!(loss > 0.0 && loss < 1.0, "{loss}");
}

#[test]
fn a_receiver_that_is_too_slow_ends_when_the_source_says_so() {
    let mut lone = joined(4);
    for forged in [0, 4, 6] {
        assert_eq!(too_slow(&mut lone, forged), Err(Error::Unasked), "{forged}");
    }
    assert_eq!(failure(&mut lone), None);
    assert_eq!(too_slow(&mut lone, 5), Ok(()));
    assert_eq!(failure(&mut lone), Some(Failure::TooSlow));
    // Said twice.
    assert_eq!(too_slow(&mut lone, 5), Ok(()));
    assert_eq!(failure(&mut lone), None);
}

#[test]
fn before_it_has_a_token_nobody_can_say_that_a_receiver_is_too_slow() {
    let mut lone = Lone::open(4 * BLOCK, |_| {});
    assert_eq!(too_slow(&mut lone, 0), Err(Error::Unasked));
    assert_eq!(failure(&mut lone), None);
}
