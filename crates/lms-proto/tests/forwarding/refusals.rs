//! Forged and malformed packets of IPv4 and its options: for each check one test that the packet is dropped, counted
//! under its own reason, and nothing else changes. Checks of every carrier are in `carriers`.

use lms_proto::router::{DropReason, Router, Verdict};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::{Form, Iface, Key, Kind, LmsOption};

use crate::common::*;

/// A router that has turned a request from `DOWN`: a repair may come.
pub(crate) fn asked_router() -> Router<'static> {
    let mut router = router_with_replier();
    asked(&mut router, NOW, KEY, DOWN);
    router
}

#[track_caller]
fn drops(from: Iface, packet: &[u8], reason: DropReason) {
    expect_drop(&mut asked_router(), from, packet, reason);
}

fn good_request() -> Vec<u8> {
    request(KEY, None, Form::Classic)
}

pub(crate) fn turned_request() -> Vec<u8> {
    let turned = turning_point([192, 0, 2, 1].into(), Iface(9));
    request(KEY, Some(turned), Form::Classic)
}

fn good_dmcast() -> Vec<u8> {
    dmcast(KEY, Placement::Outer)
}

/// A dmcast composed from a changed option or around a changed inner packet.
fn forged_dmcast(change: impl FnOnce(&mut LmsOption), inner: &[u8]) -> Vec<u8> {
    let mut option = LmsOption {
        kind: Kind::Dmcast,
        turning_point: Some(turning_point(address(REPLIER), number(DOWN))),
        ..request_option(KEY, None)
    };
    change(&mut option);
    let option = option_bytes(&option, Form::Classic);
    packet(REPLIER_HOST, address(REPLIER), 4, &option, inner)
}

fn with_options(options: &[u8]) -> Vec<u8> {
    packet(RECEIVER, GROUP, 17, options, &[0; 8])
}

// The header.

#[test]
fn header_truncated() {
    for len in 0..36 {
        drops(DOWN, &good_request()[..len], DropReason::HeaderTruncated);
    }
}

#[test]
fn header_version() {
    let packet = edit(good_request(), 0, |p| p[0] = 0x69);
    drops(DOWN, &packet, DropReason::HeaderVersion);
}

#[test]
fn header_length() {
    let mut packet = good_request();
    packet[0] = 0x44;
    drops(DOWN, &packet, DropReason::HeaderLength);
}

#[test]
fn total_length() {
    let packet = edit(good_request(), 0, |p| p[2..4].copy_from_slice(&[0, 35]));
    drops(DOWN, &packet, DropReason::TotalLength);
}

#[test]
fn packet_truncated() {
    let packet = good_request();
    for len in 36..packet.len() {
        drops(DOWN, &packet[..len], DropReason::PacketTruncated);
    }
}

#[test]
fn header_checksum() {
    let mut packet = good_request();
    packet[10] ^= 1;
    drops(DOWN, &packet, DropReason::HeaderChecksum);
}

#[test]
fn outer_header_checksum() {
    let mut packet = good_dmcast();
    packet[4] ^= 1;
    drops(REPLIER, &packet, DropReason::HeaderChecksum);
    let mut packet = dmcast(KEY, Placement::Inner);
    packet[4] ^= 1;
    drops(REPLIER, &packet, DropReason::HeaderChecksum);
}

// Its options.

#[test]
fn option_truncated() {
    drops(
        DOWN,
        &with_options(&[1, 1, 1, 138]),
        DropReason::OptionTruncated,
    );
    drops(
        DOWN,
        &with_options(&[138, 16, 0, 0]),
        DropReason::OptionTruncated,
    );
}

#[test]
fn option_length() {
    drops(
        DOWN,
        &with_options(&[138, 1, 0, 0]),
        DropReason::OptionLength,
    );
}

#[test]
fn lms_length() {
    drops(DOWN, &with_options(&[138, 4, 0, 0]), DropReason::LmsLength);
    drops(
        DOWN,
        &with_options(&[158, 4, 0x4c, 0x4d]),
        DropReason::LmsLength,
    );
}

#[test]
fn lms_sub_option() {
    let mut option = option_bytes(&request_option(KEY, None), Form::Own);
    option[4] = 3;
    drops(DOWN, &with_options(&option), DropReason::LmsSubOption);
}

#[test]
fn lms_sub_option_length() {
    let mut option = option_bytes(&request_option(KEY, None), Form::Own);
    option[5] = 15;
    drops(DOWN, &with_options(&option), DropReason::LmsSubOptionLength);
}

#[test]
fn half_turning_point() {
    let mut option = option_bytes(&request_option(KEY, None), Form::Classic);
    option[2] = 0;
    drops(DOWN, &with_options(&option), DropReason::HalfTurningPoint);
}

#[test]
fn duplicate_option() {
    let option = option_bytes(&request_option(KEY, None), Form::Classic);
    let twice = [&option[..], &option].concat();
    drops(DOWN, &with_options(&twice), DropReason::DuplicateOption);
}

#[test]
fn not_encapsulated() {
    let option = LmsOption {
        kind: Kind::Dmcast,
        turning_point: Some(turning_point(address(REPLIER), DOWN)),
        ..request_option(KEY, None)
    };
    let packet = packet(
        SOURCE,
        GROUP,
        17,
        &option_bytes(&option, Form::Classic),
        &[],
    );
    drops(REPLIER, &packet, DropReason::NotEncapsulated);
}

// Requests.

#[test]
fn request_fragment() {
    // The option is copied into every fragment, the request is in the first one alone.
    for flags in [[0, 1], [0x20, 0], [0x20, 1], [0x1f, 0xff]] {
        for packet in [good_request(), request(KEY, None, Form::Own)] {
            let packet = edit(packet, 0, |p| p[6..8].copy_from_slice(&flags));
            drops(DOWN, &packet, DropReason::RequestFragment);
            drops(REPLIER, &packet, DropReason::RequestFragment);
        }
    }
}

// Dmcasts.

#[test]
fn outer_fragment() {
    for flags in [[0x20, 0], [0, 1], [0x20, 1]] {
        for placement in [Placement::Outer, Placement::Inner] {
            let packet = edit(dmcast(KEY, placement), 0, |p| {
                p[6..8].copy_from_slice(&flags);
            });
            drops(REPLIER, &packet, DropReason::OuterFragment);
        }
    }
}

#[test]
fn inner_header_length() {
    let mut inner = inner(KEY);
    inner[0] = 0x44;
    drops(
        REPLIER,
        &forged_dmcast(|_| (), &inner),
        DropReason::InnerHeaderLength,
    );
}

#[test]
fn inner_total_length() {
    let inner = edit(inner(KEY), 0, |p| p[2..4].copy_from_slice(&[0, 19]));
    drops(
        REPLIER,
        &forged_dmcast(|_| (), &inner),
        DropReason::InnerTotalLength,
    );
}

#[test]
fn inner_header_checksum() {
    let mut inner = inner(KEY);
    inner[8] ^= 1;
    drops(
        REPLIER,
        &forged_dmcast(|_| (), &inner),
        DropReason::InnerHeaderChecksum,
    );
}

#[test]
fn inner_option() {
    let option = option_bytes(&request_option(KEY, None), Form::Classic);
    for options in [&option[..], &[148, 1, 0, 0], &[139, 4, 0, 0]] {
        let inner = packet(SOURCE, GROUP, 17, options, &[0; 8]);
        drops(
            REPLIER,
            &forged_dmcast(|_| (), &inner),
            DropReason::InnerOption,
        );
    }
    let inner = packet(SOURCE, GROUP, 17, &[139, 4, 0, 0], &[]);
    let tunnel = packet(REPLIER_HOST, address(REPLIER), 4, &[], &inner);
    drops(REPLIER, &tunnel, DropReason::InnerOption);
}

#[test]
fn a_broken_option_outside() {
    let tunnel = packet(
        REPLIER_HOST,
        address(REPLIER),
        4,
        &[139, 4, 0, 0],
        &inner(KEY),
    );
    drops(REPLIER, &tunnel, DropReason::LmsLength);
}

#[test]
fn inner_option_of_others() {
    let router_alert = packet(SOURCE, GROUP, 17, &[148, 4, 0, 0], &[0; 8]);
    let packet = forged_dmcast(|_| (), &router_alert);
    drops(REPLIER, &packet, DropReason::InnerOption);
}

#[test]
fn inner_protocol() {
    for protocol in [0, 2, 4, 6, 255] {
        let inner = edit(inner(KEY), 0, |p| p[9] = protocol);
        let packet = forged_dmcast(|_| (), &inner);
        drops(REPLIER, &packet, DropReason::InnerProtocol);
    }
}

#[test]
fn dmcast_without_entry() {
    let key = Key::new(SOURCE, [232, 1, 2, 4].into());
    for placement in [Placement::Outer, Placement::Inner] {
        drops(REPLIER, &dmcast(key, placement), DropReason::NoEntry);
    }
}

#[test]
fn not_downstream() {
    // Numbers of the interfaces themselves mean nothing on the wire.
    for iface in [DOWN, UP, ELSEWHERE, Iface(60_000), Iface(0xfffe)] {
        for placement in [Placement::Outer, Placement::Inner] {
            let repr: DmcastRepr = dmcast_repr(iface, Form::Classic, placement);
            let packet = compose(&repr, &inner(KEY));
            let mut router = asked_router();
            let mut bytes = packet.clone();
            let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes);
            assert_eq!(verdict, Verdict::Drop(DropReason::NotDownstream));
            assert_eq!(bytes, packet, "the packet was edited");
            assert_eq!(router.stats().drops.get(DropReason::NotDownstream), 1);
        }
    }
}

#[test]
fn wrong_number_rate() {
    let mut router = asked_router();
    let repr = dmcast_repr(Iface(0), Form::Classic, Placement::Outer);
    let guess = compose(&repr, &inner(KEY));
    for _ in 0..64 {
        let verdict = router.forward(NOW, &meta(REPLIER), &mut guess.clone());
        assert_eq!(verdict, Verdict::Drop(DropReason::NotDownstream));
    }
    for packet in [&guess, &good_dmcast()] {
        expect_drop(&mut router, REPLIER, packet, DropReason::WrongNumberRate);
    }
}

// Goldens, cut and flipped.

/// The names are distinct: metrics tell the reasons apart.
#[test]
fn every_reason_has_a_name_of_its_own() {
    let mut names: Vec<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), DropReason::ALL.len());
}
