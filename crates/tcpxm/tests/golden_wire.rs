//! Bytes to segment and segment to bytes, for each form of header that this TCP writes; what is
//! done with bytes that it would never write.

use std::net::IpAddr;

use proptest::prelude::*;
use tcpxm::wire::{
    Feedback, Flags, GroupOption, Options, ParseError, Place, SackBlocks, Segment, SegmentKey, Tag,
    is_group,
};
use tcpxm::{Seq, SynNumber};

fn blocks(list: &[(u32, u32)]) -> SackBlocks {
    let mut blocks = SackBlocks::default();
    for &(from, to) in list {
        blocks.push((Seq(from), Seq(to)));
    }
    blocks
}

fn group(text: &str) -> Option<GroupOption> {
    Some(GroupOption::Named(text.parse::<IpAddr>().unwrap()))
}

/// Both directions.
fn golden(segment: &Segment<'_>, bytes: &[u8]) {
    let mut buffer = vec![0xaa; segment.buffer_len()];
    assert_eq!(segment.emit(&mut buffer), bytes.len());
    assert_eq!(buffer, bytes);
    assert_eq!(&Segment::parse(bytes).unwrap(), segment);
}

fn segment(flags: Flags, options: Options, payload: &[u8]) -> Segment<'_> {
    Segment {
        source_port: 0x1234,
        destination_port: 0x5678,
        seq: Seq(0x0102_0304),
        ack: Seq(0x0506_0708),
        flags,
        window: 0x4000,
        options,
        payload,
    }
}

#[rustfmt::skip]
#[test]
fn syn_with_group() {
    let options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some((0x1000_0001, 0)),
        group: group("239.192.1.2"),
        ..Options::default()
    };
    let flags = Flags { syn: true, ..Flags::default() };
    let mut golden_segment = segment(flags, options, &[]);
    golden_segment.ack = Seq(0);
    golden(&golden_segment, &[
        0x12, 0x34, 0x56, 0x78, 1, 2, 3, 4, 0, 0, 0, 0, 0xc0, 0x02, 0x40, 0, 0, 0, 0, 0,
        2, 4, 0x05, 0xb4,                          // maximum segment size
        4, 2, 8, 10, 0x10, 0, 0, 1, 0, 0, 0, 0,    // SACK permitted, timestamps
        1, 3, 3, 7,                                // window scale
        253, 8, 0x58, 0x4d, 239, 192, 1, 2,        // group
    ]);
}

#[rustfmt::skip]
#[test]
fn syn_ack_with_ipv6_group_fills_the_header() {
    let options = Options {
        mss: Some(1440),
        window_scale: Some(14),
        sack_permitted: true,
        timestamps: Some((2, 1)),
        group: group("ff3e::8000:1"),
        ..Options::default()
    };
    let flags = Flags { syn: true, ack: true, ..Flags::default() };
    golden(&segment(flags, options, &[]), &[
        0x12, 0x34, 0x56, 0x78, 1, 2, 3, 4, 5, 6, 7, 8, 0xf0, 0x12, 0x40, 0, 0, 0, 0, 0,
        2, 4, 0x05, 0xa0,
        4, 2, 8, 10, 0, 0, 0, 2, 0, 0, 0, 1,
        1, 3, 3, 14,
        253, 20, 0x58, 0x4d, 0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 1,
    ]);
}

#[rustfmt::skip]
#[test]
fn ack_with_feedback_and_sack() {
    let options = Options {
        timestamps: Some((9, 8)),
        feedback: Some(Feedback { percent: 50 }),
        sack: blocks(&[(0x100, 0x200), (0x300, 0x400)]),
        ..Options::default()
    };
    let flags = Flags { ack: true, ..Flags::default() };
    golden(&segment(flags, options, &[]), &[
        0x12, 0x34, 0x56, 0x78, 1, 2, 3, 4, 5, 6, 7, 8, 0xe0, 0x10, 0x40, 0, 0, 0, 0, 0,
        1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8,
        254, 5, 0x58, 0x4d, 50,                    // feedback
        5, 18, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0,
        0,
    ]);
}

#[rustfmt::skip]
#[test]
fn data_to_the_group() {
    let options = Options { timestamps: Some((9, 0)), ..Options::default() };
    let flags = Flags { ack: true, psh: true, ..Flags::default() };
    let mut data = segment(flags, options, b"data");
    (data.ack, data.window) = (Seq(0), 0);
    golden(&data, &[
        0x12, 0x34, 0x56, 0x78, 1, 2, 3, 4, 0, 0, 0, 0, 0x80, 0x18, 0, 0, 0, 0, 0, 0,
        1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0,
        b'd', b'a', b't', b'a',
    ]);
}

const KEY: SegmentKey = SegmentKey([7; 16]);
const IN_GROUP: Place = Place {
    receiver: None,
    offset: 0x1_0000_0000,
};

#[rustfmt::skip]
const SIGNED: &[u8] = &[
    0x12, 0x34, 0x56, 0x78, 1, 2, 3, 4, 0, 0, 0, 0, 0xb0, 0x18, 0, 0, 0, 0, 0, 0,
    1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0,
    254, 12, 0x58, 0x4d, 0xb6, 0xaa, 0x00, 0x26, 0x5f, 0xc4, 0xd0, 0x72, // tag
    b'd', b'a', b't', b'a',
];

#[test]
fn data_with_a_tag() {
    let options = Options {
        timestamps: Some((9, 0)),
        tag: Some(Tag([0; 8])),
        ..Options::default()
    };
    let flags = Flags {
        ack: true,
        psh: true,
        ..Flags::default()
    };
    let mut data = segment(flags, options, b"data");
    (data.ack, data.window) = (Seq(0), 0);
    let mut bytes = vec![0; data.buffer_len()];
    data.emit(&mut bytes);
    KEY.sign(IN_GROUP, &mut bytes);
    assert_eq!(bytes, SIGNED);
    data.options.tag = Some(Tag(SIGNED[36..44].try_into().unwrap()));
    golden(&data, SIGNED);
}

/// Data of several blocks of the hash, the last of which is short: computed by an independent implementation.
#[test]
fn long_data_with_a_tag() {
    let place = Place {
        receiver: Some(Seq(5)),
        offset: -9,
    };
    let mut bytes = SIGNED[..44].to_vec();
    bytes.extend((0..4000).map(|at| (at * 7 + 3) as u8));
    KEY.sign(place, &mut bytes);
    assert_eq!(bytes[36..44], 0xcfff_e936_0126_bd81_u64.to_be_bytes());
    let signer = KEY.signer();
    for at in (0..bytes.len()).filter(|at| !(16..18).contains(at)) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(!signer.verify(place, &flipped), "byte {at}");
    }
    for len in 0..bytes.len() {
        assert!(!signer.verify(place, &bytes[..len]), "{len} bytes");
    }
    // Zeros at the end, which fill the last block, are not the same data.
    for more in 1..=16 {
        let mut longer = bytes.clone();
        longer.resize(bytes.len() + more, 0);
        assert!(!signer.verify(place, &longer), "{more} bytes more");
    }
    // The sum of a block does not depend on the order of its products; their keys do.
    bytes[44..76].rotate_left(16);
    assert!(!signer.verify(place, &bytes));
}

#[test]
fn a_tag_is_for_every_bit_and_for_one_place() {
    assert!(KEY.verify(IN_GROUP, SIGNED));
    assert!(!SegmentKey([8; 16]).verify(IN_GROUP, SIGNED));
    for bit in 0..SIGNED.len() * 8 {
        let mut flipped = SIGNED.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        // IP's own checksum is put in later.
        assert_eq!(
            KEY.verify(IN_GROUP, &flipped),
            (128..144).contains(&bit),
            "bit {bit}"
        );
    }
    for len in 0..SIGNED.len() {
        assert!(!KEY.verify(IN_GROUP, &SIGNED[..len]), "{len} bytes");
    }
    let elsewhere = [
        Place {
            offset: 0,
            ..IN_GROUP
        },
        Place {
            receiver: Some(Seq(0)),
            ..IN_GROUP
        },
    ];
    assert!(!elsewhere.iter().any(|&place| KEY.verify(place, SIGNED)));
    // Without timestamps it is the first option.
    let mut bare = SIGNED[..20].to_vec();
    bare.extend_from_slice(&SIGNED[32..]);
    bare[12] = 0x80;
    KEY.sign(IN_GROUP, &mut bare);
    assert!(KEY.verify(IN_GROUP, &bare) && bare[24..32] != SIGNED[36..44]);
    // Nowhere else is looked for it.
    let mut behind = bare.clone();
    behind[12] = 0x90;
    behind.splice(20..20, [1, 1, 1, 1]);
    KEY.sign(IN_GROUP, &mut behind);
    assert!(!KEY.verify(IN_GROUP, &behind));
}

#[test]
fn a_third_sack_block_gives_way_to_feedback() {
    let mut options = Options {
        timestamps: Some((1, 1)),
        feedback: Some(Feedback { percent: 1 }),
        sack: blocks(&[(1, 2), (3, 4), (5, 6), (7, 8)]),
        ..Options::default()
    };
    options.shrink_to_fit();
    assert_eq!((options.sack.len(), options.buffer_len()), (2, 36));
    options.feedback = None;
    options.sack = blocks(&[(1, 2), (3, 4), (5, 6), (7, 8)]);
    options.shrink_to_fit();
    assert_eq!((options.sack.len(), options.buffer_len()), (3, 40));
}

#[test]
fn other_experiments_and_impossible_values_are_passed_over() {
    let parse = |bytes: &[u8]| Options::parse(bytes).unwrap();
    assert_eq!(parse(&[253, 8, 0x58, 0x4e, 239, 0, 0, 1]).group, None);
    assert_eq!(
        parse(&[253, 8, 0x58, 0x4d, 10, 0, 0, 1]).group,
        None,
        "unicast"
    );
    assert_eq!(
        parse(&[253, 8, 0x58, 0x4d, 224, 0, 0, 1]).group,
        None,
        "all hosts"
    );
    assert_eq!(
        parse(&[253, 7, 0x58, 0x4d, 239, 0, 0, 0]).group,
        None,
        "length"
    );
    assert_eq!(parse(&[254, 5, 0x58, 0x4d, 101]).feedback, None, "101 %");
    assert_eq!(parse(&[254, 4, 0x58, 0x4d]).feedback, None);
    assert_eq!(parse(&[3, 3, 200]).window_scale, Some(14));
    assert_eq!(parse(&[2, 3, 1, 1, 77, 5, 1, 2, 3]), Options::default());
    assert_eq!(
        parse(&[0, 2, 4, 5, 0xb4]),
        Options::default(),
        "nothing counts behind the end"
    );
    for illegal in [&[2][..], &[2, 0], &[2, 1], &[2, 5, 1, 1], &[8, 10, 0]] {
        assert_eq!(Options::parse(illegal), Err(ParseError::Option));
    }
}

#[test]
fn groups_are_what_routers_forward() {
    for (text, fine) in [
        ("239.192.0.1", true),
        ("232.1.1.1", true),
        ("224.0.0.5", false),
        ("224.0.1.129", false),
        ("224.2.0.1", true),
        ("10.1.1.1", false),
        ("ff02::1", false),
        ("ff18::1", true),
        ("ff3e::8000:1", true),
        ("fe80::1", false),
    ] {
        assert_eq!(is_group(text.parse().unwrap()), fine, "{text}");
    }
}

#[test]
fn checksum_covers_addresses_and_every_bit() {
    let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let flags = Flags {
        ack: true,
        ..Flags::default()
    };
    let segment = segment(flags, Options::default(), b"odd");
    let mut bytes = vec![0; segment.buffer_len()];
    segment.emit(&mut bytes);
    Segment::fill_checksum(&mut bytes, a, b);
    assert!(Segment::verify(&bytes, a, b));
    assert!(!Segment::verify(&bytes, a, "10.0.0.3".parse().unwrap()));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(!Segment::verify(&flipped, a, b), "bit {bit}");
    }
}

prop_compose! {
    fn any_options()(
        mss in proptest::option::of(any::<u16>()),
        window_scale in proptest::option::of(0u8..15),
        sack_permitted in any::<bool>(),
        timestamps in proptest::option::of(any::<(u32, u32)>()),
        sack in proptest::collection::vec(any::<(u32, u32)>(), 0..5),
        group_kind in 0..4,
        percent in proptest::option::of(0u8..=100),
        tag in proptest::option::of(any::<[u8; 8]>()),
    ) -> Options {
        let mut options = Options {
            mss,
            window_scale,
            sack_permitted,
            timestamps,
            sack: blocks(&sack),
            group: None,
            feedback: percent.map(|percent| Feedback { percent }),
            tag: tag.map(Tag),
        };
        options.group = match group_kind {
            0 => None,
            1 => group("239.9.9.9"),
            2 => group("ff18::7"),
            _ => Some(GroupOption::Leave),
        };
        while options.buffer_len() > 40 {
            match options.sack.is_empty() {
                true if options.group.is_none() => options.tag = None,
                true => options.group = None,
                false => options.shrink_to_fit(),
            }
        }
        options
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(options in any_options(), payload in any::<Vec<u8>>(), bits in 0u8..64) {
        let flags = Flags {
            syn: bits & 1 != 0,
            fin: bits & 2 != 0,
            rst: bits & 4 != 0,
            psh: bits & 8 != 0,
            ack: bits & 16 != 0,
            urg: bits & 32 != 0,
        };
        let segment = segment(flags, options, &payload);
        let mut bytes = vec![0; segment.buffer_len()];
        segment.emit(&mut bytes);
        let parsed = Segment::parse(&bytes).unwrap();
        prop_assert_eq!(parsed, segment);
        for len in 0..segment.header_len() {
            prop_assert!(Segment::parse(&bytes[..len]).is_err());
        }
        for bit in 0..segment.header_len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(parsed) = Segment::parse(&flipped) {
                prop_assert!(parsed.header_len() <= 60 || parsed.options.sack.len() > 2);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(segment) = Segment::parse(&bytes) {
            prop_assert!(segment.payload.len() + 20 <= bytes.len());
            prop_assert!(segment.options.feedback.is_none_or(|f| f.percent <= 100));
        }
    }

    #[test]
    fn sequence_numbers_wrap(origin in any::<u32>(), offset in 0u64..1 << 48, ahead in -1_000_000_000i64..1_000_000_000) {
        let syn = Seq(origin);
        let there = offset as i64 + ahead;
        let seq = Seq(origin.wrapping_add(1).wrapping_add(there as u32));
        prop_assert_eq!(syn.offset_of(seq, offset), there);
        prop_assert_eq!(seq.before(syn.at(offset)), ahead < 0);
        prop_assert_eq!(seq.since(syn.at(offset)) as i64, ahead);
        prop_assert_eq!(seq.plus(7).minus(7), seq);
    }
}

#[rustfmt::skip]
#[test]
fn a_receiver_is_told_to_leave() {
    let options = Options {
        timestamps: Some((9, 8)),
        group: Some(GroupOption::Leave),
        ..Options::default()
    };
    let flags = Flags { ack: true, ..Flags::default() };
    golden(&segment(flags, options, b"data"), &[
        0x12, 0x34, 0x56, 0x78, 1, 2, 3, 4, 5, 6, 7, 8, 0x90, 0x10, 0x40, 0, 0, 0, 0, 0,
        1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8,
        253, 4, 0x58, 0x4d,                        // no group: leave
        b'd', b'a', b't', b'a',
    ]);
}
