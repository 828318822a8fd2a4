//! Bytes to value and back for every packet that `docs/wire.md` draws.

use ltp::wire::digests::put_digest;
use ltp::wire::pace::{Echo, Feedback, Pace};
use ltp::wire::report::{Loss, Report, ReportAck, Status, Verdict};
use ltp::wire::request::{Kind, Range};
use ltp::wire::{Header, ParseError, Seq, data, digests, parity, report, request, sync, version};
use ltp::{Geometry, SessionId};

const SESSION: SessionId = SessionId(0xa1b2_c3d4);

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn golden_data() -> Vec<u8> {
    hex("11 01 0000  a1b2c3d4  fffffffe  00000009  68656c6c6f")
}

fn golden_repair() -> Vec<u8> {
    hex("12 00 beef  a1b2c3d4  00000003  00000000  68656c6c6f")
}

fn golden_group_repair() -> Vec<u8> {
    hex("12 01 beef  a1b2c3d4  00000003  ffffffff  68656c6c6f")
}

fn golden_parity() -> Vec<u8> {
    hex("1a 00 beef  a1b2c3d4  00000007  00000000  02 2f 0000  68656c6c6f21")
}

fn golden_group_parity() -> Vec<u8> {
    hex("1a 01 0000  a1b2c3d4  ffffffff  0000000a  3f 40 0000  68656c6c6f21")
}

fn golden_parity_request() -> Vec<u8> {
    hex(
        "15 04 beef  a1b2c3d4  00000003  00000005  00000002  00001388
         1111111122222222  3333333344444444  00000009  00000009",
    )
}

fn golden_sync_with_parity() -> Vec<u8> {
    let mut golden = golden_sync();
    golden[46] = 0x90;
    golden
}

fn golden_sync() -> Vec<u8> {
    hex("13 0f 01f4  a1b2c3d4
         0000000000000000  0000000000000030  0000000000010400  0000000000000002
         ffffff00  0573 10 04  00000010  000003e8
         0000000000000000
         000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
         6e616d65")
}

fn golden_sync_answer() -> Vec<u8> {
    hex("13 b0 0001  a1b2c3d4
         0000000000000005  0000000000000030  0000000000000000  0000000000000000
         00000000  0573 10 00  00000000  00000000
         0123456789abcdef
         0000000000000000000000000000000000000000000000000000000000000000")
}

fn golden_digests() -> Vec<u8> {
    hex("14 10 0000  a1b2c3d4  00000007  0123456789abcdef
         0101010101010101010101010101010101010101010101010101010101010101
         0202020202020202020202020202020202020202020202020202020202020202")
}

fn golden_left() -> Vec<u8> {
    hex("14 30 0000  a1b2c3d4  00000009  0102030405060708
         aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
         bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb")
}

fn golden_request() -> Vec<u8> {
    hex("15 00 beef  a1b2c3d4  00000003 00000005 00000002  00001388
         1111111122222222  3333333344444444
         00000009 00000009")
}

fn golden_digests_request() -> Vec<u8> {
    hex("15 01 0001  a1b2c3d4  00000000 00000001 00000001  00000000
         0000000000000000  3333333344444444")
}

fn golden_left_request() -> Vec<u8> {
    hex("15 03 0001  a1b2c3d4  00000009 00000009 00000001  00000000
         0000000000000000  3333333344444444")
}

fn golden_sync_request() -> Vec<u8> {
    let mut bytes = hex("15 02 0001  a1b2c3d4  00000000 00000000 00000001  00000000
         0000000000000000  3333333344444444");
    bytes.resize(96, 0);
    bytes
}

fn golden_report() -> Vec<u8> {
    hex("16 02 0007  a1b2c3d4  5555555566666666  0000000000000010
         1111111122222222  0001020304050607")
}

fn golden_progress() -> Vec<u8> {
    hex("16 01 0007  a1b2c3d4  5555555566666666  0000000000000010
         1111111122222222  00001000 00000029")
}

fn golden_report_ack() -> Vec<u8> {
    hex("17 01 0007  a1b2c3d4  5555555566666666  1111111122222222")
}

fn golden_pace() -> Vec<u8> {
    hex(
        "18 01 0102  a1b2c3d4  00bc614e  0000c350  0000000005f5e100  0000000002faf080
         5555555566666666  00002710
         5555555566666666 00000007 000003e8
         7777777788888888 ffffffff 00000000",
    )
}

fn golden_feedback() -> Vec<u8> {
    hex("19 00 0102  a1b2c3d4  5555555566666666  1111111122222222
         00000007  00bc614e  000003e8  00004e20  028f5c28  0000000000989680  0000000005f5e100")
}

fn data_repr(repair: Option<u16>, sequence: u32, number: Option<u32>) -> data::Repr {
    data::Repr {
        repair,
        session: SESSION,
        sequence: Seq(sequence),
        number,
    }
}

fn sync_repr() -> sync::Repr<'static> {
    let mut digest = [0; 32];
    (0..32u8).for_each(|byte| digest[usize::from(byte)] = byte);
    sync::Repr {
        session: SESSION,
        silence_ms: 500,
        geometry: Geometry::new(16, 1395, Seq(0xffff_ff00)).unwrap(),
        oldest: 0,
        next: 48,
        length: Some(66_560),
        digested: Some(2),
        digest: Some(digest),
        reports: true,
        closing: false,
        stalled: false,
        stream: false,
        parity: false,
        progress_blocks: 16,
        report_window_us: 1000,
        answer: None,
        name: b"name",
    }
}

fn sync_answer_repr() -> sync::Repr<'static> {
    sync::Repr {
        silence_ms: 1,
        geometry: Geometry::new(16, 1395, Seq(0)).unwrap(),
        oldest: 5,
        length: None,
        digested: None,
        digest: None,
        reports: false,
        closing: true,
        stream: true,
        parity: false,
        progress_blocks: 0,
        report_window_us: 0,
        answer: Some(0x0123_4567_89ab_cdef),
        name: b"",
        ..sync_repr()
    }
}

fn request_repr(kind: Kind, tag: u16, ranges: &[(u32, u32)]) -> request::Repr {
    request::Repr {
        kind,
        tag,
        session: SESSION,
        number: 1,
        round_trip_us: 0,
        token: 0,
        nonce: 0x3333_3333_4444_4444,
        ranges: ranges.iter().map(|&(lo, hi)| Range { lo, hi }).collect(),
    }
}

fn report_repr() -> Report {
    Report {
        status: Status::Complete,
        tag: 7,
        session: SESSION,
        receiver: 0x5555_5555_6666_6666,
        blocks: 16,
        token: 0x1111_1111_2222_2222,
        digest: 0x0001_0203_0405_0607,
        loss: Loss::default(),
    }
}

fn progress_repr() -> Report {
    Report {
        status: Status::Progress,
        digest: 0,
        loss: Loss {
            expected: 4096,
            lost: 41,
        },
        ..report_repr()
    }
}

fn report_ack_repr() -> ReportAck {
    ReportAck {
        verdict: Verdict::Mismatch,
        tag: 7,
        session: SESSION,
        receiver: 0x5555_5555_6666_6666,
        token: 0x1111_1111_2222_2222,
    }
}

#[test]
fn data_and_repair() {
    for (golden, repr) in [
        (golden_data(), data_repr(None, 0xffff_fffe, Some(9))),
        (golden_repair(), data_repr(Some(0xbeef), 3, None)),
        (
            golden_group_repair(),
            data_repr(Some(0xbeef), 3, Some(u32::MAX)),
        ),
    ] {
        let packet = data::Packet::new_checked(&golden).unwrap();
        assert_eq!(data::Repr::parse(&packet), repr);
        assert_eq!(packet.payload(), b"hello");
        let mut bytes = [0; 21];
        bytes[16..].copy_from_slice(b"hello");
        repr.emit(&mut bytes);
        assert_eq!(bytes.as_slice(), golden);
    }
}

#[test]
fn parity_packets() {
    let alone = parity::Repr {
        tag: 0xbeef,
        session: SESSION,
        block: 7,
        number: None,
        index: 2,
        packets: 47,
    };
    let to_group = parity::Repr {
        tag: 0,
        block: u32::MAX,
        number: Some(10),
        index: 63,
        packets: 64,
        ..alone
    };
    for (golden, repr) in [(golden_parity(), alone), (golden_group_parity(), to_group)] {
        assert_eq!(parity::Repr::parse(&golden), Ok((repr, &b"hello!"[..])));
        let mut bytes = golden.clone();
        bytes[..repr.buffer_len()].fill(0xff);
        repr.emit(&mut bytes);
        assert_eq!(bytes, golden);
    }
    let changed = |at: usize, value: u8| {
        let mut bytes = golden_parity();
        bytes[at] = value;
        parity::Repr::parse(&bytes).map(|_| ())
    };
    assert_eq!(changed(1, 2), Err(ParseError::Reserved));
    assert_eq!(changed(15, 1), Err(ParseError::Reserved), "no flag");
    assert_eq!(changed(18, 1), Err(ParseError::Reserved));
    assert_eq!(changed(16, 47), Err(ParseError::Value));
    assert_eq!(changed(17, 0), Err(ParseError::Value));
    assert_eq!(changed(17, 65), Err(ParseError::Value));
    let golden = golden_parity();
    let cut = parity::Repr::parse(&golden[..20]);
    assert_eq!(cut, Err(ParseError::Truncated));
}

#[test]
fn sync_packets() {
    for (golden, repr) in [
        (golden_sync(), sync_repr()),
        (
            golden_sync_with_parity(),
            sync::Repr {
                parity: true,
                ..sync_repr()
            },
        ),
        (golden_sync_answer(), sync_answer_repr()),
    ] {
        assert_eq!(sync::Repr::parse(&golden).unwrap(), repr);
        let mut bytes = vec![0xff; repr.buffer_len()];
        repr.emit(&mut bytes);
        assert_eq!(bytes, golden);
    }
}

#[test]
fn digests_packet() {
    let golden = golden_digests();
    let repr = digests::Repr {
        session: SESSION,
        first_block: 7,
        answer: Some(0x0123_4567_89ab_cdef),
        left: false,
        count: 2,
    };
    let parsed = digests::Repr::parse(&golden).unwrap();
    assert_eq!(parsed, (repr, &[[1; 32], [2; 32]][..]));
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    put_digest(&mut bytes, 0, &[1; 32]);
    put_digest(&mut bytes, 1, &[2; 32]);
    assert_eq!(bytes, golden);
}

#[test]
fn what_lies_to_the_left() {
    // Block 9 is 0b1001: a subtree of eight blocks, then one block.
    let golden = golden_left();
    let repr = digests::Repr {
        session: SESSION,
        first_block: 9,
        answer: Some(0x0102_0304_0506_0708),
        left: true,
        count: 2,
    };
    assert_eq!(digests::Repr::parse(&golden).unwrap().0, repr);
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    put_digest(&mut bytes, 0, &[0xaa; 32]);
    put_digest(&mut bytes, 1, &[0xbb; 32]);
    assert_eq!(bytes, golden);
    let unknown = digests::Repr::parse(&golden[..20]).unwrap();
    assert_eq!(unknown.0.count, 0);
    for (at, value) in [(11, 0), (11, 8), (1, 0x20), (1, 0x10)] {
        let mut wrong = golden.clone();
        wrong[at] = value;
        let parsed = digests::Repr::parse(&wrong);
        assert_eq!(parsed.is_ok(), value == 0x10, "{at} {value}");
    }
    assert!(digests::Repr::parse(&golden[..52]).is_err());
}

#[test]
fn requests() {
    let data = |kind| request::Repr {
        number: 2,
        round_trip_us: 5000,
        token: 0x1111_1111_2222_2222,
        ..request_repr(kind, 0xbeef, &[(3, 5), (9, 9)])
    };
    for (golden, repr) in [
        (golden_request(), data(Kind::Data)),
        (golden_parity_request(), data(Kind::DataOrParity)),
        (
            golden_digests_request(),
            request_repr(Kind::Digests, 1, &[(0, 1)]),
        ),
        (golden_sync_request(), request_repr(Kind::Sync, 1, &[])),
        (
            golden_left_request(),
            request_repr(Kind::Left, 1, &[(9, 9)]),
        ),
    ] {
        assert_eq!(request::Repr::parse(&golden), Ok(repr.clone()));
        let mut bytes = vec![0xff; repr.buffer_len()];
        repr.emit(&mut bytes);
        assert_eq!(bytes, golden);
    }
}

#[test]
fn reports() {
    let golden = golden_report();
    assert_eq!(Report::parse(&golden), Ok(report_repr()));
    let mut bytes = [0; report::REPORT_LEN];
    report_repr().emit(&mut bytes);
    assert_eq!(bytes.as_slice(), golden);
    let golden = golden_progress();
    assert_eq!(Report::parse(&golden), Ok(progress_repr()));
    progress_repr().emit(&mut bytes);
    assert_eq!(bytes.as_slice(), golden);
    let mut more_lost_than_expected = golden;
    more_lost_than_expected[32..36].fill(0);
    assert_eq!(
        Report::parse(&more_lost_than_expected),
        Err(ParseError::Value)
    );
    let golden = golden_report_ack();
    assert_eq!(ReportAck::parse(&golden), Ok(report_ack_repr()));
    let mut bytes = [0; report::REPORT_ACK_LEN];
    report_ack_repr().emit(&mut bytes);
    assert_eq!(bytes.as_slice(), golden);
}

fn pace_repr() -> Pace {
    let echo = |receiver, stamp_us, held_us| Echo {
        receiver,
        stamp_us,
        held_us,
    };
    let echoes = [
        echo(0x5555_5555_6666_6666, 7, 1000),
        echo(0x7777_7777_8888_8888, u32::MAX, 0),
    ];
    Pace {
        session: SESSION,
        round: 0x0102,
        slow_start: true,
        stamp_us: 12_345_678,
        max_round_trip_us: 50_000,
        rate_bps: 100_000_000,
        suppress_bps: 50_000_000,
        limiting: 0x5555_5555_6666_6666,
        receivers: 10_000,
        echoes: echoes.into_iter().collect(),
    }
}

#[test]
fn pace_packet() {
    let golden = golden_pace();
    let repr = pace_repr();
    assert_eq!(Pace::parse(&golden), Ok(repr.clone()));
    assert_eq!(repr.buffer_len(), golden.len());
    let mut bytes = [0; 76];
    repr.emit(&mut bytes);
    assert_eq!(bytes.as_slice(), golden);
    let no_rate = [&golden[..16], &[0; 8], &golden[24..]].concat();
    assert_eq!(Pace::parse(&no_rate), Err(ParseError::Value));
    let most = [&golden[..44], &golden[44..60].repeat(16)].concat();
    assert_eq!(Pace::parse(&most).unwrap().echoes.len(), 16);
    let more = [&golden[..44], &golden[44..60].repeat(17)].concat();
    assert_eq!(Pace::parse(&more), Err(ParseError::Length));
    assert_eq!(Pace::parse(&golden[..75]), Err(ParseError::Length));
    assert_eq!(Pace::parse(&golden[..43]), Err(ParseError::Truncated));
}

#[test]
fn feedback_packet() {
    let golden = golden_feedback();
    let repr = Feedback {
        session: SESSION,
        round: 0x0102,
        receiver: 0x5555_5555_6666_6666,
        token: 0x1111_1111_2222_2222,
        stamp_us: 7,
        echo_us: 12_345_678,
        held_us: 1000,
        round_trip_us: 20_000,
        loss: 42_949_672,
        rate_bps: 10_000_000,
        received_bps: 100_000_000,
    };
    assert_eq!(Feedback::parse(&golden), Ok(repr));
    let mut bytes = [0; 60];
    repr.emit(&mut bytes);
    assert_eq!(bytes.as_slice(), golden);
    let without_loss = Feedback {
        loss: 0,
        rate_bps: u64::MAX,
        ..repr
    };
    without_loss.emit(&mut bytes);
    assert_eq!(Feedback::parse(&bytes), Ok(without_loss));
    let contradictory = [
        Feedback { loss: 0, ..repr },
        Feedback {
            rate_bps: u64::MAX,
            ..repr
        },
        Feedback {
            receiver: 0,
            ..repr
        },
    ];
    for repr in contradictory {
        repr.emit(&mut bytes);
        assert_eq!(Feedback::parse(&bytes), Err(ParseError::Value));
    }
    assert_eq!(
        Feedback::parse(&[&golden[..], &[0]].concat()),
        Err(ParseError::Length)
    );
}

/// Parses as whatever the header says and emits again; `None` when it does not parse.
fn again(bytes: &[u8]) -> Option<Vec<u8>> {
    use ltp::wire::Type;
    let header = Header::parse(bytes).ok()?;
    let mut out = bytes.to_vec();
    match header.kind {
        Type::Data | Type::Repair => {
            let packet = data::Packet::new_checked(bytes).ok()?;
            data::Repr::parse(&packet).emit(&mut out);
        }
        Type::Parity => parity::Repr::parse(bytes).ok()?.0.emit(&mut out),
        Type::Sync => sync::Repr::parse(bytes).ok()?.emit(&mut out),
        Type::Digests => digests::Repr::parse(bytes).ok()?.0.emit(&mut out),
        Type::Request => request::Repr::parse(bytes).ok()?.emit(&mut out),
        Type::Report => Report::parse(bytes).ok()?.emit(&mut out),
        Type::ReportAck => ReportAck::parse(bytes).ok()?.emit(&mut out),
        Type::Pace => Pace::parse(bytes).ok()?.emit(&mut out),
        Type::Feedback => Feedback::parse(bytes).ok()?.emit(&mut out),
    }
    Some(out)
}

fn goldens() -> [Vec<u8>; 19] {
    [
        golden_data(),
        golden_repair(),
        golden_group_repair(),
        golden_parity(),
        golden_group_parity(),
        golden_parity_request(),
        golden_sync_with_parity(),
        golden_sync(),
        golden_sync_answer(),
        golden_digests(),
        golden_left(),
        golden_request(),
        golden_digests_request(),
        golden_left_request(),
        golden_sync_request(),
        golden_report(),
        golden_report_ack(),
        golden_pace(),
        golden_feedback(),
    ]
}

/// "How formats evolve" in `docs/wire.md`.
#[test]
fn what_other_versions_may_send_is_refused_by_name() {
    for golden in goldens() {
        for number in [0, 2, 15] {
            let mut other = golden.clone();
            other[0] = number << 4 | golden[0] & 0xf;
            // Whatever another version has after the first byte.
            for len in [golden.len(), 1] {
                assert_eq!(Header::parse(&other[..len]), Err(ParseError::Version));
                assert_eq!(again(&other[..len]), None);
                assert_eq!(version(&other[..len]), Some(number));
            }
        }
        for number in [0, 11, 15] {
            let mut other = golden.clone();
            other[0] = 1 << 4 | number;
            assert_eq!(Header::parse(&other), Err(ParseError::Type));
        }
        // Bytes after the last field. Those of DATA, REPAIR and PARITY are payload, whose length SYNC tells.
        let longer = [&golden[..], &[0]].concat();
        let has_payload = [0x11, 0x12, 0x1a].contains(&golden[0]);
        assert_eq!(again(&longer).is_some(), has_payload);
    }
    let mut data = golden_data();
    data[1] = 3;
    let refused = data::Packet::new_checked(&data[..]).map(|_| ());
    assert_eq!(refused, Err(ParseError::Reserved));
    let mut digests = golden_digests();
    digests[1] |= 1;
    assert_eq!(
        digests::Repr::parse(&digests).map(|_| ()),
        Err(ParseError::Reserved)
    );
    for golden in [
        golden_request(),
        golden_report(),
        golden_report_ack(),
        golden_pace(),
        golden_feedback(),
    ] {
        let mut unknown = golden;
        unknown[1] = 9;
        assert_eq!(again(&unknown), None, "kind, status, verdict or flags");
    }
}

#[test]
fn every_truncation_is_refused_or_another_packet() {
    for golden in goldens() {
        for len in 0..golden.len() {
            if let Some(bytes) = again(&golden[..len]) {
                assert_eq!(bytes, &golden[..len]);
            }
        }
        assert_eq!(Header::parse(&golden[..7]), Err(ParseError::Truncated));
    }
}

#[test]
fn every_bit_flip_is_refused_or_another_packet() {
    for golden in goldens() {
        for bit in 0..golden.len() * 8 {
            let mut bytes = golden.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Some(emitted) = again(&bytes) {
                assert_eq!(emitted, bytes, "bit {bit}");
            }
        }
    }
}
