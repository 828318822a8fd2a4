//! IPv4 headers: every fault its own error, options among others, edits that leave the checksum
//! right.

use std::net::Ipv4Addr;

use crate::common::*;
use lms_proto::wire::found::{HeaderError, OptionAt, OptionError, Turn, TurnAt};
use lms_proto::wire::ipv4::{
    Layout, checksum_ok, decrement_ttl, destination, fill_checksum, find_lms, hop_and_turn,
    set_turning_point, strip_option, ttl,
};
use lms_proto::wire::option::{ParseError, View};
use lms_proto::{Form, Iface, Kind};
use proptest::prelude::*;

const NOP: u8 = 1;
/// Router alert (RFC 2113).
const ROUTER_ALERT: [u8; 4] = [148, 4, 0, 0];

fn header(packet: &[u8]) -> &[u8] {
    &packet[..Layout::check(packet).unwrap().header_len]
}

#[test]
fn each_header_fault_has_its_own_error() {
    let good = request(KEY, None, Form::Classic);
    let len = good.len();
    assert_eq!(
        Layout::check(&good),
        Ok(Layout {
            header_len: 36,
            total_len: len
        })
    );
    let changed = |at: usize, to: u8| {
        let mut packet = good.clone();
        packet[at] = to;
        Layout::check(&packet).unwrap_err()
    };
    for short in 0..36 {
        assert_eq!(Layout::check(&good[..short]), Err(HeaderError::Truncated));
    }
    for short in 36..len {
        assert_eq!(
            Layout::check(&good[..short]),
            Err(HeaderError::PacketTruncated)
        );
    }
    assert_eq!(changed(0, 0x69), HeaderError::Version);
    assert_eq!(changed(0, 0x44), HeaderError::HeaderLength);
    assert_eq!(changed(3, 35), HeaderError::TotalLength);
    assert_eq!(changed(3, len as u8 + 1), HeaderError::PacketTruncated);
}

#[test]
fn padding_of_the_frame_is_not_of_the_packet() {
    let mut packet = request(KEY, None, Form::Classic);
    let len = packet.len();
    packet.extend([0; 9]);
    assert_eq!(Layout::check(&packet).unwrap().total_len, len);
}

#[test]
fn the_option_is_found_among_others() {
    let lms = option_bytes(&request_option(KEY, None), Form::Classic);
    let single = option_bytes(&request_option(KEY, None), Form::Own);
    let other_experiment = [158, 4, 0x12, 0x34];
    let cases: [(Vec<&[u8]>, usize); 6] = [
        (vec![&lms], 20),
        (vec![&ROUTER_ALERT, &lms], 24),
        (vec![&lms, &ROUTER_ALERT], 20),
        (vec![&[NOP], &lms, &[0, 0, 0]], 21),
        (vec![&[NOP, NOP], &single, &[0, 0]], 22),
        (vec![&other_experiment, &single], 24),
    ];
    for (options, at) in cases {
        let packet = packet(RECEIVER, GROUP, 17, &options.concat(), &[]);
        let found = find_lms(header(&packet)).unwrap().unwrap();
        assert_eq!(found.option.at, at);
        assert_eq!(found.kind, Kind::Request);
        assert_eq!((found.body.source, found.body.group), (SOURCE, GROUP));
        assert!(!found.body.turning_iface.is_set());
    }
}

#[test]
fn headers_without_it_are_fine() {
    for options in [
        &[][..],
        &ROUTER_ALERT,
        &[NOP, NOP, NOP, 0],
        &[0, 138, 16, 9],
    ] {
        let packet = packet(RECEIVER, GROUP, 17, options, &[]);
        assert_eq!(find_lms(header(&packet)), Ok(None));
    }
}

#[test]
fn each_option_fault_has_its_own_error() {
    let lms = option_bytes(&request_option(KEY, None), Form::Classic);
    let find = |options: &[u8]| {
        let packet = packet(RECEIVER, GROUP, 17, options, &[]);
        find_lms(header(&packet)).unwrap_err()
    };
    assert_eq!(find(&[NOP, NOP, NOP, 138]), OptionError::Truncated);
    assert_eq!(find(&[NOP, NOP, 138, 16]), OptionError::Truncated);
    assert_eq!(find(&[148, 5, 0, 0]), OptionError::Truncated);
    assert_eq!(find(&[148, 1, 0, 0]), OptionError::Length);
    assert_eq!(find(&[148, 0, 0, 0]), OptionError::Length);
    assert_eq!(find(&[138, 4, 0, 0]), OptionError::Lms(ParseError::Length));
    assert_eq!(find(&[&lms[..], &lms].concat()), OptionError::Duplicate);
    let half = [&lms[..4], &[1], &lms[5..]].concat();
    assert_eq!(find(&half), OptionError::Lms(ParseError::TurningPoint));
}

/// All option areas of one word that start with any two bytes: a value or an error, never a panic.
#[test]
fn all_one_and_two_byte_option_bodies() {
    for a in 0..=255u8 {
        for b in 0..=255u8 {
            for rest in [[0, 0], [0xff, 0xff]] {
                let packet = packet(RECEIVER, GROUP, 17, &[a, b, rest[0], rest[1]], &[]);
                let found = find_lms(header(&packet));
                if matches!(a, 138 | 139) {
                    assert!(found.is_err(), "{a} {b}");
                }
            }
        }
    }
}

#[test]
fn ttl_stops_at_zero() {
    let mut packet = request(KEY, None, Form::Classic);
    for left in (0..64).rev().chain([0, 0]) {
        decrement_ttl(&mut packet);
        assert_eq!(ttl(&packet), left);
        assert!(checksum_ok(header(&packet)));
    }
}

/// The incremental checksum is the one computed anew, also where the two representations of zero
/// meet (RFC 1624 §4).
#[test]
fn incremental_and_whole_checksum_agree() {
    let mut packet = [0u8; 20];
    packet[0] = 0x45;
    for id in 0..=u16::MAX {
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        packet[8] = 2;
        fill_checksum(&mut packet);
        decrement_ttl(&mut packet);
        let incremental = [packet[10], packet[11]];
        fill_checksum(&mut packet);
        assert_eq!(incremental, [packet[10], packet[11]], "identification {id}");
    }
}

#[test]
fn edits_of_a_short_packet_do_nothing() {
    for len in 0..20 {
        let mut packet = vec![0xff; len];
        let at = TurnAt {
            body_at: 22,
            cookie_at: Some(36),
        };
        let turn = Turn {
            router: Ipv4Addr::LOCALHOST,
            number: Iface(1),
            cookie: 7,
        };
        set_turning_point(&mut packet, at, &turn);
        assert_eq!(strip_option(&mut packet, OptionAt { at: 20, len: 16 }), 0);
        assert!(packet.iter().all(|byte| *byte == 0xff));
    }
}

#[test]
fn strip_keeps_other_options() {
    let lms = option_bytes(&request_option(KEY, None), Form::Classic);
    let cases = [
        (lms.clone(), 20, vec![]),
        (
            [&ROUTER_ALERT[..], &lms].concat(),
            24,
            ROUTER_ALERT.to_vec(),
        ),
        (
            [&lms[..], &ROUTER_ALERT].concat(),
            20,
            ROUTER_ALERT.to_vec(),
        ),
        (
            [&[NOP][..], &lms, &[0, 0, 0]].concat(),
            21,
            vec![NOP, 0, 0, 0],
        ),
    ];
    for (options, at, rest) in cases {
        let mut bytes = packet(RECEIVER, GROUP, 17, &options, &[7; 9]);
        let start = strip_option(&mut bytes, OptionAt { at, len: 16 });
        assert_eq!(bytes[start..], packet(RECEIVER, GROUP, 17, &rest, &[7; 9]));
    }
}

proptest! {
    /// Any turning point at any alignment, in one step or two: the checksum stays right and
    /// nothing else changes.
    #[test]
    fn edits_leave_the_checksum_right(
        nops in 0usize..4,
        old in proptest::option::of((1u32.., 0..0xffffu16)),
        router in any::<u32>(),
        iface in any::<u16>(),
        cookie in any::<u64>(),
        own in any::<bool>(),
        identification in any::<u16>(),
        hops in 1..=255u8,
        at_once in any::<bool>(),
    ) {
        let router = Ipv4Addr::from_bits(router);
        let turned = old.map(|(r, i)| turning_point(Ipv4Addr::from_bits(r), Iface(i)));
        let mut options = vec![NOP; nops];
        let form = if own { Form::Own } else { Form::Classic };
        options.extend(option_bytes(&request_option(KEY, turned), form));
        options.resize(options.len().next_multiple_of(4), 0);
        let before = edit(packet(RECEIVER, GROUP, 17, &options, &[1, 2, 3]), 0, |p| {
            p[4..6].copy_from_slice(&identification.to_be_bytes());
            p[8] = hops;
        });
        let mut after = before.clone();
        let at = find_lms(header(&before)).unwrap().unwrap().turn_at;
        let turn = Turn { router, number: Iface(iface), cookie };
        if at_once {
            hop_and_turn(&mut after, at, &turn);
        } else {
            decrement_ttl(&mut after);
            set_turning_point(&mut after, at, &turn);
        }
        let expected = edit(before, 0, |p| {
            p[8] -= 1;
            let body_at = at.body_at;
            p[body_at..body_at + 2].copy_from_slice(&iface.to_be_bytes());
            p[body_at + 2..body_at + 6].copy_from_slice(&router.octets());
            if let Some(at) = at.cookie_at {
                p[at..at + 8].copy_from_slice(&cookie.to_be_bytes());
            }
        });
        prop_assert_eq!(after, expected);
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(layout) = Layout::check(&bytes) {
            prop_assert!(layout.header_len <= layout.total_len && layout.total_len <= bytes.len());
            if let Ok(Some(found)) = find_lms(&bytes[..layout.header_len]) {
                let option = &bytes[found.option.at..found.option.at + found.option.len];
                prop_assert!(View::<Ipv4Addr>::new_checked(option).is_ok());
            }
        }
        let _ = destination(&bytes);
    }
}
