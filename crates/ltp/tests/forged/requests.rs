//! Requests and reports that a replier or a source refuses.

use lms_proto::Kind as OptionKind;
use ltp::wire::report::Status;
use ltp::wire::request::Kind;
use ltp::{Destination, Duration, Error, Meta, Transmit};

use crate::common::packets::report;
use crate::common::{content, files, has_content, host, receiver_config, sender_config};
use crate::{LIMIT, asked, begun, finish, refused, refused_by_source, refuses, request};

#[test]
fn requests_a_replier_refuses() {
    let bytes = content(600_000, 8);
    let mut net = begun(&bytes, 8, false, None);
    let good = request(&net, Kind::Data, 0, 3);
    refused(
        &mut net,
        &Meta::unicast(host(9)),
        &good,
        Error::RequestUnicast,
    );
    refused(&mut net, &Meta::group(host(9)), &good, Error::NotTurned);
    refused(&mut net, &asked(false), &good, Error::NotTurned);
    let mut meta = asked(true);
    meta.elected = false;
    refused(&mut net, &meta, &good, Error::NotElected);
    let mut meta = asked(true);
    meta.option.as_mut().unwrap().group = "239.9.9.9".parse().unwrap();
    refused(&mut net, &meta, &good, Error::OptionMismatch);
    let mut meta = asked(true);
    meta.option.as_mut().unwrap().source = "10.9.9.9".parse().unwrap();
    refused(&mut net, &meta, &good, Error::OptionMismatch);
    let mut meta = asked(true);
    meta.option.as_mut().unwrap().kind = OptionKind::Dmcast;
    refused(&mut net, &meta, &good, Error::OptionMismatch);
    let unsent = request(&net, Kind::Data, 100_000, 100_003);
    refused(&mut net, &asked(true), &unsent, Error::RequestUnsent);
    let mut other = good.clone();
    other[7] ^= 1;
    refused(&mut net, &asked(true), &other, Error::OtherSession);
    let heartbeat = {
        let mut packet = request(&net, Kind::Data, 0, 0);
        packet[1] = 2;
        packet.resize(96, 0);
        packet
    };
    refused(&mut net, &asked(true), &heartbeat, Error::Unexpected);
    // The same request twice within the hold-down time: the second is refused.
    net.with_receiver(0, |receiver, now| {
        receiver.handle_packet(now, &asked(true), &good).unwrap();
        let mut buffer = [0; 2048];
        let sent = std::iter::from_fn(|| receiver.poll_transmit(now, &mut buffer));
        let is_dmcast = |sent: &Transmit| matches!(sent.destination, Destination::Dmcast(_));
        assert_eq!(sent.filter(is_dmcast).count(), 4);
        refuses(receiver, now, &asked(true), &good, Error::RequestHeldDown);
    });
    finish(&mut net, &bytes);
}

#[test]
fn requests_a_source_refuses() {
    let bytes = content(600_000, 9);
    let mut net = begun(&bytes, 9, false, None);
    let unsent = request(&net, Kind::Data, 100_000, 100_003);
    refused_by_source(
        &mut net,
        &Meta::unicast(host(9)),
        &unsent,
        Error::RequestUnsent,
    );
    let mut other = unsent.clone();
    other[7] ^= 1;
    refused_by_source(
        &mut net,
        &Meta::unicast(host(9)),
        &other,
        Error::OtherSession,
    );
    let good = request(&net, Kind::Data, 0, 3);
    let mut meta = asked(false);
    meta.option.as_mut().unwrap().group = "239.9.9.9".parse().unwrap();
    refused_by_source(&mut net, &meta, &good, Error::OptionMismatch);
    net.run_until(LIMIT, |net| net.sender().stats().digests > 0);
    let digests = request(&net, Kind::Digests, 0, 1);
    refused_by_source(
        &mut net,
        &Meta::unicast(host(9)),
        &digests,
        Error::RequestUnverified,
    );
    finish(&mut net, &bytes);
}

#[test]
fn an_unverified_address_gets_no_more_than_it_sent() {
    let bytes = content(600_000, 10);
    let mut net = begun(&bytes, 10, false, None);
    let victim = host(99);
    let mut sync_request = request(&net, Kind::Data, 0, 0);
    sync_request[1] = 2;
    sync_request.resize(96, 0);
    let causes = [
        request(&net, Kind::Data, 0, 30),
        request(&net, Kind::Digests, 0, 0),
        sync_request,
    ];
    for cause in causes {
        let _ = net.inject_to_sender(&Meta::unicast(victim), &cause);
        net.run_for(Duration::from_millis(200));
        let strays = net.take_strays().into_iter();
        let to_victim = strays.filter(|(to, _)| *to == victim);
        let (len, cause) = (
            to_victim.map(|(_, packet)| packet.len()).sum::<usize>(),
            cause.len(),
        );
        assert!(len <= cause, "{len} bytes for {cause}");
    }
    finish(&mut net, &bytes);
}

#[test]
fn forged_reports_are_not_believed() {
    let bytes = content(600_000, 11);
    let mut net = begun(&bytes, 11, true, None);
    let report = |receiver, status, blocks, token| {
        let mut packet = [0; 40];
        report(net.sender().session(), receiver, status, blocks, token).emit(&mut packet);
        packet
    };
    let stranger = report(5, Status::Complete, 10, 0);
    let known = report(net.receiver(0).id(), Status::Complete, 10, 1);
    let failed = report(net.receiver(0).id(), Status::Failed, 0, 1);
    let meta = Meta::unicast(host(50));
    for packet in [stranger, known, failed] {
        refused_by_source(&mut net, &meta, &packet, Error::ReportUnverified);
    }
    refused_by_source(
        &mut net,
        &Meta::group(host(50)),
        &stranger,
        Error::Unexpected,
    );
    assert_eq!(net.sender().receivers(), (2, 0));
    net.run_until(LIMIT, |net| net.is_confirmed());
    finish(&mut net, &bytes);
}

/// A forger that offers the lowest cost is elected replier; if it then does not answer, receivers lose time only.
#[test]
fn a_replier_that_never_answers_costs_time_and_no_bytes() {
    let bytes = content(600_000, 31);
    let mut receiver = receiver_config();
    receiver.assist = ltp::Assist::Lms;
    let mut net = files(&bytes, 2, 31, sender_config(bytes.len()), &receiver);
    net.elect_replier();
    net.set_loss(0.02);
    net.set_deaf(0, true);
    net.run_until(LIMIT, |net| net.receiver(1).is_complete());
    assert!(has_content(net.receiver(1), &bytes));
    let stats = net.receiver(1).stats();
    assert!(
        stats.requests_group > 0 && stats.requests_source > 0,
        "{stats:?}"
    );
}
