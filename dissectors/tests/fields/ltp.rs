//! LTP.

use std::iter;

use ltp::wire::pace::{Feedback, Pace};
use ltp::wire::report::{Report, ReportAck, Status};
use ltp::wire::{Header, Type, data, digests, parity, request, sync};

use crate::Fields;
use crate::goldens::{Golden, hex};
use crate::packets::Carrier;

fn head(header: &Header) -> Fields {
    let mut fields = Fields::of("ltp");
    fields
        .put("version", 1)
        .put("type", header.kind as u8)
        .put("session", header.session.0);
    fields
}

fn of_data(header: &Header, bytes: &[u8]) -> Option<Fields> {
    let packet = data::Packet::new_checked(bytes).ok()?;
    let mut fields = head(header);
    fields
        .put("flags", header.flags)
        .flag("flag_numbered", packet.number().is_some())
        .put("tag", data::Repr::parse(&packet).repair.unwrap_or(0))
        .put("sequence", packet.sequence().0)
        .put("transmission", packet.number().unwrap_or(0))
        .bytes("payload", packet.payload());
    Some(fields)
}

fn of_parity(header: &Header, bytes: &[u8]) -> Option<Fields> {
    let (repr, shard) = parity::Repr::parse(bytes).ok()?;
    let mut fields = head(header);
    fields
        .put("flags", header.flags)
        .flag("flag_numbered", repr.number.is_some())
        .put("tag", repr.tag)
        .put("block", repr.block)
        .put("transmission", repr.number.unwrap_or(0))
        .put("index", repr.index)
        .put("packets", repr.packets)
        .bytes("shard", shard);
    Some(fields)
}

fn of_sync(header: &Header, bytes: &[u8]) -> Option<Fields> {
    let repr = sync::Repr::parse(bytes).ok()?;
    let mut fields = head(header);
    fields
        .put("flags", header.flags)
        .flag("flag_end", repr.length.is_some())
        .flag("flag_digest", repr.digest.is_some())
        .flag("flag_integrity", repr.digested.is_some())
        .flag("flag_reports", repr.reports)
        .flag("flag_answer", repr.answer.is_some())
        .flag("flag_closing", repr.closing)
        .flag("flag_stalled", repr.stalled)
        .flag("flag_stream", repr.stream)
        .put("silence", repr.silence_ms)
        .put("oldest", repr.oldest)
        .put("next", repr.next)
        .put("length", repr.length.unwrap_or(0))
        .put("digested", repr.digested.unwrap_or(0))
        .put("first_sequence", repr.geometry.first().0)
        .put("payload_length", repr.geometry.payload_len())
        .put("block_exponent", repr.geometry.block_exponent())
        .flag("flag_parity", repr.parity)
        .put("name_length", repr.name.len())
        .put("progress_blocks", repr.progress_blocks)
        .put("report_window", repr.report_window_us)
        .put("nonce", repr.answer.unwrap_or(0))
        .bytes("digest", &repr.digest.unwrap_or([0; 32]));
    if !repr.name.is_empty() {
        fields.put("name", String::from_utf8_lossy(repr.name));
    }
    Some(fields)
}

fn of_digests(header: &Header, bytes: &[u8]) -> Option<Fields> {
    let (repr, digests) = digests::Repr::parse(bytes).ok()?;
    let mut fields = head(header);
    fields
        .put("flags", header.flags)
        .flag("flag_answer", repr.answer.is_some())
        .flag("flag_left", repr.left)
        .put("first_block", repr.first_block)
        .put("nonce", repr.answer.unwrap_or(0));
    for digest in digests {
        fields.bytes("digest", digest);
    }
    Some(fields)
}

fn of_request(header: &Header, bytes: &[u8]) -> Option<Fields> {
    let repr = request::Repr::parse(bytes).ok()?;
    let mut fields = head(header);
    fields
        .put("kind", repr.kind as u8)
        .put("tag", repr.tag)
        .put("number", repr.number)
        .put("round_trip", repr.round_trip_us)
        .put("token", repr.token)
        .put("nonce", repr.nonce);
    // The fields of the first range are zero in a request for a heartbeat.
    let first = repr.ranges.first().copied().unwrap_or_default();
    for range in iter::once(&first).chain(repr.ranges.iter().skip(1)) {
        fields.put("lo", range.lo).put("hi", range.hi);
    }
    Some(fields)
}

fn of_report(header: &Header, bytes: &[u8]) -> Option<Fields> {
    let report = Report::parse(bytes).ok()?;
    let mut fields = head(header);
    fields
        .put("status", report.status as u8)
        .put("tag", report.tag)
        .put("receiver", report.receiver)
        .put("blocks", report.blocks)
        .put("token", report.token);
    if report.status == Status::Progress {
        fields
            .put("loss_expected", report.loss.expected)
            .put("loss_lost", report.loss.lost);
    } else {
        fields.put("digest_start", report.digest);
    }
    Some(fields)
}

fn of_report_ack(header: &Header, bytes: &[u8]) -> Option<Fields> {
    let ack = ReportAck::parse(bytes).ok()?;
    let mut fields = head(header);
    fields
        .put("verdict", ack.verdict as u8)
        .put("tag", ack.tag)
        .put("receiver", ack.receiver)
        .put("token", ack.token);
    Some(fields)
}

fn of_pace(header: &Header, bytes: &[u8]) -> Option<Fields> {
    let pace = Pace::parse(bytes).ok()?;
    let mut fields = head(header);
    fields
        .put("flags", header.flags)
        .flag("flag_slow_start", pace.slow_start)
        .put("round", pace.round)
        .put("stamp", pace.stamp_us)
        .put("max_round_trip", pace.max_round_trip_us)
        .put("rate", pace.rate_bps)
        .put("suppress", pace.suppress_bps)
        .put("limiting", pace.limiting)
        .put("receivers", pace.receivers);
    for echo in &pace.echoes {
        fields
            .put("receiver", echo.receiver)
            .put("echo", echo.stamp_us)
            .put("held", echo.held_us);
    }
    Some(fields)
}

fn of_feedback(header: &Header, bytes: &[u8]) -> Option<Fields> {
    let feedback = Feedback::parse(bytes).ok()?;
    let mut fields = head(header);
    fields
        .put("flags", 0)
        .put("round", feedback.round)
        .put("receiver", feedback.receiver)
        .put("token", feedback.token)
        .put("stamp", feedback.stamp_us)
        .put("echo", feedback.echo_us)
        .put("held", feedback.held_us)
        .put("round_trip", feedback.round_trip_us)
        .put("loss_event_rate", feedback.loss)
        .put("rate", feedback.rate_bps)
        .put("received", feedback.received_bps);
    Some(fields)
}

pub(crate) fn parse(bytes: &[u8]) -> Option<Fields> {
    let header = Header::parse(bytes).ok()?;
    match header.kind {
        Type::Data | Type::Repair => of_data(&header, bytes),
        Type::Parity => of_parity(&header, bytes),
        Type::Sync => of_sync(&header, bytes),
        Type::Digests => of_digests(&header, bytes),
        Type::Request => of_request(&header, bytes),
        Type::Report => of_report(&header, bytes),
        Type::ReportAck => of_report_ack(&header, bytes),
        Type::Pace => of_pace(&header, bytes),
        Type::Feedback => of_feedback(&header, bytes),
    }
}

const GOLDENS: &[(&str, &str)] = &[
    (
        "ltp data",
        "11 01 0000 a1b2c3d4 fffffffe 00000009 68656c6c6f",
    ),
    (
        "ltp repair",
        "12 00 beef a1b2c3d4 00000003 00000000 68656c6c6f",
    ),
    (
        "ltp repair to the group",
        "12 01 beef a1b2c3d4 00000003 ffffffff 68656c6c6f",
    ),
    (
        "ltp parity",
        "1a 00 beef a1b2c3d4 00000007 00000000 02 2f 0000 68656c6c6f21",
    ),
    (
        "ltp parity to the group",
        "1a 01 0000 a1b2c3d4 ffffffff 0000000a 3f 40 0000 68656c6c6f21",
    ),
    (
        "ltp sync with parity",
        "13 07 01f4 a1b2c3d4
         0000000000000000 0000000000000030 0000000000010400 0000000000000002
         ffffff00 0573 90 00 00000000 00000000 0000000000000000
         000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    ),
    (
        "ltp parity request",
        "15 04 beef a1b2c3d4 00000003 00000005 00000002 00001388
         1111111122222222 3333333344444444 00000009 00000009",
    ),
    (
        "ltp sync",
        "13 0f 01f4 a1b2c3d4
         0000000000000000 0000000000000030 0000000000010400 0000000000000002
         ffffff00 0573 10 04 00000010 000003e8 0000000000000000
         000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 6e616d65",
    ),
    (
        "ltp sync answer",
        "13 b0 0001 a1b2c3d4
         0000000000000005 0000000000000030 0000000000000000 0000000000000000
         00000000 0573 10 00 00000000 00000000 0123456789abcdef
         0000000000000000000000000000000000000000000000000000000000000000",
    ),
    (
        "ltp digests",
        "14 10 0000 a1b2c3d4 00000007 0123456789abcdef
         0101010101010101010101010101010101010101010101010101010101010101
         0202020202020202020202020202020202020202020202020202020202020202",
    ),
    (
        "ltp left",
        "14 30 0000 a1b2c3d4 00000009 0102030405060708
         aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
         bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    ),
    (
        "ltp request",
        "15 00 beef a1b2c3d4 00000003 00000005 00000002 00001388
         1111111122222222 3333333344444444 00000009 00000009",
    ),
    (
        "ltp digests request",
        "15 01 0001 a1b2c3d4 00000000 00000001 00000001 00000000
         0000000000000000 3333333344444444",
    ),
    (
        "ltp left request",
        "15 03 0001 a1b2c3d4 00000009 00000009 00000001 00000000
         0000000000000000 3333333344444444",
    ),
    (
        "ltp sync request",
        "15 02 0001 a1b2c3d4 00000000 00000000 00000001 00000000
         0000000000000000 3333333344444444",
    ),
    (
        "ltp report",
        "16 02 0007 a1b2c3d4 5555555566666666 0000000000000010
         1111111122222222 0001020304050607",
    ),
    (
        "ltp report of progress",
        "16 01 0007 a1b2c3d4 5555555566666666 0000000000000010
         1111111122222222 00001000 00000029",
    ),
    (
        "ltp report ack",
        "17 01 0007 a1b2c3d4 5555555566666666 1111111122222222",
    ),
    (
        "ltp pace",
        "18 01 0102 a1b2c3d4 00bc614e 0000c350 0000000005f5e100 0000000002faf080
         5555555566666666 00002710
         5555555566666666 00000007 000003e8 7777777788888888 ffffffff 00000000",
    ),
    (
        "ltp feedback",
        "19 00 0102 a1b2c3d4 5555555566666666 1111111122222222 00000007 00bc614e
         000003e8 00004e20 028f5c28 0000000000989680 0000000005f5e100",
    ),
];

pub(crate) fn goldens() -> Vec<Golden> {
    let golden = |&(name, text): &(&'static str, &str)| {
        let mut bytes = hex(text);
        if name == "ltp sync request" {
            bytes.resize(96, 0);
        }
        let mut golden = Golden::new(name, bytes, Carrier::Udp(5000), parse);
        if name == "ltp sync" {
            golden.text.push(96..100);
        }
        golden
    };
    GOLDENS.iter().map(golden).collect()
}
