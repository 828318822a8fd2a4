//! What a forger sends is dropped and counted under its own reason, or found out; nothing else
//! changes, and the session ends well.

#[path = "../common/mod.rs"]
mod common;
mod requests;

use common::packets::{data_packet, digests_packet, emit, heartbeat};
use common::{Group, Sink, content, files, host, packets, receiver_config, sender_config, source};
use ltp::wire::report::{Report, ReportAck, Status, Verdict};
use ltp::wire::request::Kind;
use ltp::wire::sync;
use ltp::{Duration, Error, Geometry, Instant, Meta, ReceiverEvent, SessionId};

const LIMIT: Duration = Duration::from_secs(60);

/// A session that has begun and is not done.
fn begun(bytes: &[u8], number: u64, known: bool, key: Option<[u8; 32]>) -> Group {
    let mut sender = sender_config(bytes.len());
    sender.rate_bps = Some(20_000_000);
    sender.receivers = known.then_some(2);
    sender.key = key;
    let mut receiver = receiver_config();
    receiver.key = key;
    let mut net = files(bytes, 2, number, sender, &receiver);
    net.run_until(LIMIT, |net| {
        net.receivers().all(|r| r.stats().data_packets > 20)
    });
    net
}

fn finish(net: &mut Group, bytes: &[u8]) {
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(bytes);
}

/// Receiver 0 takes a packet; its progress, session and all counters but drops stay.
fn refused(net: &mut Group, meta: &Meta, packet: &[u8], reason: Error) {
    net.with_receiver(0, |receiver, now| {
        refuses(receiver, now, meta, packet, reason);
    });
}

fn refuses(receiver: &mut Sink, now: Instant, meta: &Meta, packet: &[u8], reason: Error) {
    let (progress, session) = (receiver.progress(), receiver.session());
    let mut stats = receiver.stats().clone();
    let count = stats.drops.get(reason);
    assert_eq!(receiver.handle_packet(now, meta, packet), Err(reason));
    assert_eq!(receiver.stats().drops.get(reason), count + 1);
    stats.drops = receiver.stats().drops;
    assert_eq!(receiver.stats(), &stats);
    assert_eq!(
        (receiver.progress(), receiver.session()),
        (progress, session)
    );
}

fn refused_by_source(net: &mut Group, meta: &Meta, packet: &[u8], reason: Error) {
    net.with_sender(|sender, now| {
        let mut stats = sender.stats().clone();
        let receivers = sender.receivers();
        let count = stats.drops.get(reason);
        assert_eq!(sender.handle_packet(now, meta, packet), Err(reason));
        assert_eq!(sender.stats().drops.get(reason), count + 1);
        stats.drops = sender.stats().drops;
        stats.requested_packets = sender.stats().requested_packets;
        assert_eq!(sender.stats(), &stats);
        assert_eq!(sender.receivers(), receivers);
    });
}

fn geometry(net: &Group) -> Geometry {
    net.sender().geometry()
}

fn request(net: &Group, kind: Kind, lo: u32, hi: u32) -> Vec<u8> {
    packets::request(net.sender().session(), kind, (lo, hi), 0)
}

fn asked(turned: bool) -> Meta {
    packets::asked(turned.then(|| packets::point(254, 1)))
}

#[test]
fn a_forged_repair_is_detected_with_its_block_and_requested_again() {
    for key in [None, Some([3; 32])] {
        let bytes = content(600_000, 1);
        let mut net = begun(&bytes, 1, false, key);
        // For a block that is about to be sent: the true packet then finds its place taken.
        let block = net.receiver(0).progress().0 / 65_536 + 2;
        let number = geometry(&net).first_packet(block) + 5;
        let forged = data_packet(&net, number, Some(4));
        net.inject(0, &Meta::group(source()), &forged).unwrap();
        finish(&mut net, &bytes);
        assert_eq!(net.receiver(0).stats().blocks_rejected, 1);
        assert!(
            net.events(0)
                .contains(&ReceiverEvent::BlockRejected { block })
        );
        assert_eq!(net.receiver(1).stats().blocks_rejected, 0);
    }
}

#[test]
fn data_that_cannot_be_the_sources() {
    let bytes = content(600_000, 2);
    let mut net = begun(&bytes, 2, false, None);
    let meta = Meta::group(source());
    let end = geometry(&net).packets(bytes.len() as u64).unwrap();
    let packet = data_packet(&net, end, None);
    refused(&mut net, &meta, &packet, Error::BeyondEnd);
    let packet = data_packet(&net, 9, None);
    refused(&mut net, &Meta::group(host(5)), &packet, Error::OtherSource);
    // Its host, and another port: a host that does not know the port is not the source.
    let mut elsewhere = source();
    elsewhere.set_port(source().port() + 1);
    refused(
        &mut net,
        &Meta::group(elsewhere),
        &packet,
        Error::OtherSource,
    );
    let digests = forged_digests(&net, None);
    refused(
        &mut net,
        &Meta::group(elsewhere),
        &digests,
        Error::OtherSource,
    );
    refused(&mut net, &meta, &packet[..100], Error::PayloadLength);
    let mut other = packet;
    other[7] ^= 1;
    refused(&mut net, &meta, &other, Error::OtherSession);
    finish(&mut net, &bytes);
}

fn forged_digests(net: &Group, answer: Option<u64>) -> Vec<u8> {
    digests_packet(net, 0, &[[0xee; 32]; 10], answer)
}

#[test]
fn forged_digests_cannot_wedge() {
    let bytes = content(600_000, 3);
    let mut net = begun(&bytes, 3, false, None);
    let forged = forged_digests(&net, None);
    net.inject(0, &Meta::group(source()), &forged).unwrap();
    finish(&mut net, &bytes);
    assert!(
        net.receiver(0).stats().requests_source > 0,
        "{:?}",
        net.receiver(0).stats()
    );
    assert_eq!(
        net.receiver(0).stats().blocks_rejected,
        0,
        "true data was thrown away"
    );
}

#[test]
fn forged_digests_under_a_key_are_dropped() {
    let bytes = content(600_000, 4);
    let mut net = begun(&bytes, 4, false, Some([3; 32]));
    let forged = forged_digests(&net, None);
    refused(
        &mut net,
        &Meta::group(source()),
        &forged,
        Error::Authenticator,
    );
    let forged = emit(&heartbeat(&net));
    refused(
        &mut net,
        &Meta::group(source()),
        &forged,
        Error::Authenticator,
    );
    let forged = request(&net, Kind::Data, 0, 3);
    refused_by_source(&mut net, &asked(false), &forged, Error::Authenticator);
    finish(&mut net, &bytes);
}

#[test]
fn an_unrequested_answer_is_dropped() {
    let bytes = content(600_000, 5);
    let mut net = begun(&bytes, 5, true, None);
    let meta = Meta::unicast(source());
    let forged = forged_digests(&net, Some(5));
    refused(&mut net, &meta, &forged, Error::Unasked);
    let forged = emit(&sync::Repr {
        answer: Some(5),
        ..heartbeat(&net)
    });
    refused(&mut net, &meta, &forged, Error::Unasked);
    let ack = ReportAck {
        verdict: Verdict::Noted,
        tag: 1,
        session: net.sender().session(),
        receiver: 12345,
        token: 9,
    };
    let mut forged = [0; 24];
    ack.emit(&mut forged);
    refused(&mut net, &meta, &forged, Error::Unasked);
    finish(&mut net, &bytes);
}

type Forge = fn(&mut sync::Repr<'_>);

#[test]
fn a_forged_heartbeat_changes_nothing_the_source_does_not_confirm() {
    let bytes = content(600_000, 6);
    let cases: [(&str, Forge, Result<(), Error>); 5] = [
        (
            "session",
            |sync| sync.session = SessionId(1),
            Err(Error::OtherSession),
        ),
        (
            "end",
            |sync| sync.length = Some(600_001),
            Err(Error::Contradiction),
        ),
        ("no longer held", |sync| sync.oldest = sync.next, Ok(())),
        ("sent", |sync| sync.next += 150, Ok(())),
        ("leaving", |sync| sync.closing = true, Ok(())),
    ];
    for (name, forge, expected) in cases {
        let mut net = begun(&bytes, 6, false, None);
        // A hole that the forger's word would make final.
        net.set_loss(0.05);
        net.run_until(LIMIT, |net| net.receiver(0).stats().lost_packets > 0);
        let mut repr = heartbeat(&net);
        forge(&mut repr);
        let packet = emit(&repr);
        let result = net.inject(0, &Meta::group(source()), &packet);
        assert_eq!(result, expected, "{name}");
        net.run_until(LIMIT, |net| net.all_complete());
        net.check_content(&bytes);
    }
}

/// A complete receiver waits for the source's confirmation; a forged heartbeat that wants no reports must not
/// leave it waiting when its report is lost.
#[test]
fn a_forged_heartbeat_that_wants_no_reports_does_not_hold_up_the_end() {
    let bytes = content(600_000, 14);
    let mut net = begun(&bytes, 14, true, None);
    net.lose(|_, packet| Report::parse(packet).is_ok());
    net.run_until(LIMIT, |net| net.receiver(0).is_complete());
    assert!(!net.all_complete(), "the source has not answered");
    let forged = emit(&heartbeat(&net));
    let heard = net.inject(0, &Meta::group(source()), &forged);
    assert_eq!(heard, Ok(()));
    let reports = net.receiver(0).stats().reports;
    net.run_until(LIMIT, |net| net.receiver(0).stats().reports > reports);
    net.lose(|_, _| false);
    finish(&mut net, &bytes);
}

/// Only an answer to a report that waits for one brings a token that counts.
#[test]
fn an_acknowledgement_of_nothing_changes_no_token() {
    let bytes = content(600_000, 12);
    let mut net = begun(&bytes, 12, true, None);
    let ack = ReportAck {
        verdict: Verdict::Noted,
        tag: 0xffff,
        session: net.sender().session(),
        receiver: net.receiver(0).id(),
        token: 0xdead,
    };
    let mut forged = [0; 24];
    ack.emit(&mut forged);
    refused(&mut net, &Meta::unicast(source()), &forged, Error::Unasked);
    let sent: Vec<_> = net.with_receiver(0, |receiver, now| {
        receiver.close(now);
        let mut buffer = [0; 2048];
        let sent = std::iter::from_fn(|| {
            let transmit = receiver.poll_transmit(now, &mut buffer)?;
            Some(Report::parse(&buffer[..transmit.len]))
        });
        sent.flatten().collect()
    });
    let leaving = sent.iter().find(|report| report.status == Status::Leaving);
    let token = leaving.expect("a last report").token;
    assert!(token != 0xdead && token != 0, "{token:x}");
}

/// A request for packets that were never sent can name any round-trip time.
#[test]
fn a_refused_request_does_not_stretch_the_hold_down_time() {
    let bytes = content(600_000, 13);
    let mut net = begun(&bytes, 13, false, None);
    let mut forged = request(&net, Kind::Data, 100_000, 100_003);
    forged[20..24].fill(0xff);
    refused_by_source(&mut net, &asked(false), &forged, Error::RequestUnsent);
    let good = request(&net, Kind::Data, 0, 0);
    let ask = |net: &mut Group| net.inject_to_sender(&asked(false), &good);
    assert_eq!(ask(&mut net), Ok(()));
    net.run_until(LIMIT, |net| net.sender().stats().repairs_group == 1);
    assert_eq!(ask(&mut net), Err(Error::RequestHeldDown));
    net.run_for(Duration::from_millis(21));
    assert_eq!(ask(&mut net), Ok(()));
}

#[test]
fn a_forged_session_before_the_true_one_is_left() {
    let bytes = content(300_000, 7);
    let mut net = files(&bytes, 1, 7, sender_config(bytes.len()), &receiver_config());
    let forged = sync::Repr {
        session: SessionId(5),
        length: Some(10),
        next: 1,
        ..heartbeat(&net)
    };
    net.inject(0, &Meta::group(source()), &emit(&forged))
        .unwrap();
    assert_eq!(net.receiver(0).session(), Some(SessionId(5)));
    finish(&mut net, &bytes);
    assert_eq!(net.receiver(0).session(), Some(net.sender().session()));
}

/// As above, but the forger does not know the port either, and continues.
#[test]
fn a_forged_session_of_another_port_is_left_while_the_forger_continues() {
    let bytes = content(300_000, 7);
    let mut net = files(&bytes, 1, 7, sender_config(bytes.len()), &receiver_config());
    let forged = sync::Repr {
        session: SessionId(5),
        length: Some(10),
        next: 1,
        ..heartbeat(&net)
    };
    let mut elsewhere = source();
    elsewhere.set_port(source().port() + 1);
    let forged = emit(&forged);
    net.run_until(LIMIT, |net| {
        let meta = Meta::group(elsewhere);
        let _ = net.inject(0, &meta, &forged);
        net.all_complete()
    });
    net.check_content(&bytes);
}

/// A port without a listener: the source is asked as well, and answers with its state.
#[test]
fn heartbeats_from_another_port_take_no_receiver_away() {
    let bytes = content(600_000, 9);
    let mut net = begun(&bytes, 9, false, None);
    let forged = sync::Repr {
        session: SessionId(5),
        ..heartbeat(&net)
    };
    let session = net.sender().session();
    let mut elsewhere = source();
    let forged = emit(&forged);
    net.run_until(LIMIT, |net| {
        elsewhere.set_port(elsewhere.port().wrapping_add(1).max(source().port() + 1));
        let meta = Meta::group(elsewhere);
        let refused = net.inject(0, &meta, &forged);
        assert!(refused.is_err());
        net.all_complete()
    });
    assert_eq!(net.receiver(0).session(), Some(session));
    net.check_content(&bytes);
}
