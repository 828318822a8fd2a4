//! Segments of a group that a kernel joined (`UDP_GRO`) have the effect that they would have one by one, whatever state
//! the receiver is in.

use std::net::SocketAddr;

use tcpxm::wire::{GroupOption, Options, Segment};
use tcpxm::{Config, Meta};

use crate::hand::*;

const LEN: usize = 500;

/// A receiver of a group in some state, and the segments that come then: their number, offset of the first, flags and
/// timestamp.
struct Case {
    name: &'static str,
    change: fn(&mut Config),
    reach: fn(&mut Hand),
    count: usize,
    offset: u32,
    flag_text: &'static str,
    stamp: u32,
}

const CASES: &[Case] = &[
    case("in order", |_| ()),
    Case {
        offset: 500,
        ..case("after a hole", |_| ())
    },
    case("before a range that is there", |hand| {
        give(hand, 3_000, 700);
    }),
    Case {
        offset: 500,
        ..case("some are there", |hand| {
            give(hand, 0, 700);
        })
    },
    case("an acknowledgement is owed", |hand| {
        hand.sent();
        give(hand, 0, 0);
    }),
    Case {
        offset: 1_000,
        ..case("segments are acknowledged at once", |hand| {
            give(hand, 500, 500);
            give(hand, 0, 500);
            hand.sent();
        })
    },
    case("the FIN has come before", |hand| {
        let fin = hand.seq.plus(700);
        hand.give(fin, hand.ack, "FA", b"").unwrap();
    }),
    case("the FIN was accepted", |hand| {
        hand.give(hand.seq, hand.ack, "FA", b"").unwrap();
    }),
    case("the group was left", |hand| {
        let leave = Some(GroupOption::Leave);
        let group = Options {
            group: leave,
            timestamps: Some((1_000, 0)),
            ..Options::default()
        };
        hand.answer("A", group).unwrap();
    }),
    case("the application has closed", |hand| {
        hand.endpoint.close(hand.now, hand.id.unwrap()).unwrap();
        hand.sent();
    }),
    case("it is given up", |hand| {
        hand.endpoint.abort(hand.now, hand.id.unwrap()).unwrap();
    }),
    Case {
        offset: 7_500,
        ..case("there is space for some", |hand| {
            give(hand, 0, 7_500);
        })
    },
    Case {
        offset: 6_692,
        ..case("there is space for them and no more", |hand| {
            give(hand, 0, 6_692);
        })
    },
    Case {
        offset: 6_693,
        ..case("a byte has no space", |hand| {
            give(hand, 0, 6_693);
        })
    },
    Case {
        change: |config| config.receive_buffer = 1 << 20,
        offset: 65_000,
        ..case(
            "there is space for them and the window ends before",
            |hand| {
                give(hand, 0, 65_000);
            },
        )
    },
    Case {
        count: 18,
        ..case("they are more than there is space for", |_| ())
    },
    Case {
        change: |config| config.ack_every = 8,
        ..case("fewer than an acknowledgement is sent for", |_| ())
    },
    Case {
        change: |config| config.ack_every = 8,
        offset: 1_000,
        ..case("fewer, and segments are acknowledged at once", |hand| {
            give(hand, 500, 500);
            give(hand, 0, 500);
            hand.sent();
        })
    },
    Case {
        stamp: u32::MAX,
        ..case("they are too old", |_| ())
    },
    Case {
        stamp: 11_001,
        ..case("they are from the future", |_| ())
    },
    Case {
        stamp: 6_000,
        ..case("their timestamp is new", |_| ())
    },
    Case {
        flag_text: "SA",
        ..case("SYN", |_| ())
    },
    Case {
        flag_text: "FA",
        ..case("FIN", |_| ())
    },
    Case {
        flag_text: "RA",
        ..case("RST", |_| ())
    },
    Case {
        flag_text: "UA",
        ..case("URG", |_| ())
    },
];

const fn case(name: &'static str, reach: fn(&mut Hand)) -> Case {
    Case {
        name,
        change: |_| (),
        reach,
        count: 3,
        offset: 0,
        flag_text: "A",
        stamp: 1_000,
    }
}

/// Data by unicast.
fn give(hand: &mut Hand, offset: u32, len: usize) {
    if len == 0 {
        return;
    }
    let payload: Vec<u8> = (0..len).map(|at| byte(offset as usize + at)).collect();
    hand.give(hand.seq.plus(offset), hand.ack, "A", &payload)
        .unwrap();
}

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// Hands in the segments, at once or one by one. What can be seen of it then and in the next second.
fn play(case: &Case, at_once: bool) -> String {
    let mut config = Config::default();
    config.receive_buffer = 8_192;
    (case.change)(&mut config);
    let options = Options {
        mss: Some(1_000),
        timestamps: Some((1_000, 0)),
        sack_permitted: true,
        group: Some(GroupOption::Named(ip(GROUP))),
        ..Options::default()
    };
    let mut hand = Hand::establish(config, options);
    hand.events();
    (case.reach)(&mut hand);
    let mut bytes = Vec::new();
    for n in 0..case.count {
        let offset = case.offset as usize + n * LEN;
        let payload: Vec<u8> = (0..LEN).map(|at| byte(offset + at)).collect();
        let seq = hand.seq.plus(offset as u32);
        let segment = Segment {
            options: Options {
                timestamps: Some((case.stamp, 0)),
                ..Options::default()
            },
            ..hand.segment(seq, hand.ack, flags(case.flag_text), &payload)
        };
        let start = bytes.len();
        bytes.resize(start + segment.buffer_len(), 0);
        segment.emit(&mut bytes[start..]);
    }
    let size = bytes.len() / case.count;
    let meta = Meta {
        source: SocketAddr::new(ip("10.0.0.9"), PEER_PORT),
        destination: ip(GROUP),
    };
    if at_once {
        hand.endpoint.handle_packets(hand.now, &meta, &bytes, size);
    } else {
        for bytes in bytes.chunks(size) {
            let _ = hand.endpoint.handle_packet(hand.now, &meta, bytes);
        }
    }
    let mut seen = format!("{:?}\n{:?}\n", hand.events(), hand.endpoint.stats());
    for wait_ms in [0, 39, 1, 1_000] {
        hand.wait(wait_ms);
        for sent in hand.sent() {
            let Options {
                sack,
                feedback,
                timestamps,
                ..
            } = sent.options;
            let header = (sent.seq, sent.ack, sent.flags, sent.window);
            seen += &format!("{wait_ms} {header:?} {sack:?} {feedback:?} {timestamps:?}\n");
        }
    }
    let read = hand.read();
    let is_right = |(at, is): (usize, &u8)| *is == byte(at);
    assert!(read.iter().enumerate().all(is_right), "{}", case.name);
    seen + &format!("{}", read.len())
}

#[test]
fn at_once_is_the_same_as_one_by_one() {
    for case in CASES {
        assert_eq!(play(case, true), play(case, false), "{}", case.name);
    }
}
