//! Composing and opening dmcasts, with the option in the outer header and in the inner one.

use crate::common::*;
use lms_proto::wire::encap::{
    ComposeError, OpenError, Placement, decapsulate, open_inner, open_outer,
};
use lms_proto::wire::found::HeaderError;
use lms_proto::wire::ipv4::{self, Layout, find_lms};
use lms_proto::{Form, Iface, Kind};
use proptest::prelude::*;

/// A dmcast from 10.1.2.9 to router 10.1.2.1, interface 3, around a packet of 4 bytes of UDP
/// protocol from 10.1.0.2 to 232.1.2.3.
const GOLDEN: [u8; 60] = [
    0x49, 0, 0, 60, 0, 7, 0, 0, 64, 4, 0xd3, 0x8e, 10, 1, 2, 9, 10, 1, 2, 1, // outer
    139, 16, 0, 3, 10, 1, 2, 1, 10, 1, 0, 2, 232, 1, 2, 3, // option
    0x45, 0, 0, 24, 0x12, 0x34, 0, 0, 64, 17, 0x74, 0x9a, 10, 1, 0, 2, 232, 1, 2, 3, // inner
    0xde, 0xad, 0xbe, 0xef,
];

#[test]
fn golden_dmcast() {
    let inner = packet(SOURCE, GROUP, 17, &[], &[0xde, 0xad, 0xbe, 0xef]);
    let repr = dmcast_repr(DOWN, Form::Classic, Placement::Outer);
    let composed = compose(&repr, &inner);
    assert_eq!(composed, GOLDEN);
    let layout = Layout::check(&GOLDEN).unwrap();
    let opened = open_outer(&GOLDEN, layout).unwrap();
    let mut bytes = GOLDEN;
    let range = decapsulate(&mut bytes, &opened);
    assert_eq!(bytes[range], inner);
}

#[test]
fn both_placements_and_forms_carry_the_same_packet() {
    for form in [Form::Classic, Form::Own] {
        for placement in [Placement::Outer, Placement::Inner] {
            for inner in [
                inner(KEY),
                packet(SOURCE, GROUP, 17, &[148, 4, 0, 0], &[5; 11]),
            ] {
                let mut bytes = compose(&dmcast_repr(DOWN, form, placement), &inner);
                let layout = Layout::check(&bytes).unwrap();
                assert!(ipv4::checksum_ok(&bytes[..layout.header_len]));
                assert_eq!(layout.total_len, bytes.len());
                let outer_option = find_lms(&bytes[..layout.header_len]).unwrap();
                let (option, opened) = match placement {
                    Placement::Outer => {
                        (outer_option.unwrap(), open_outer(&bytes, layout).unwrap())
                    }
                    Placement::Inner => {
                        assert_eq!(outer_option, None);
                        open_inner(&bytes, layout).unwrap().unwrap()
                    }
                };
                assert_eq!(option.kind, Kind::Dmcast);
                assert_eq!((option.body.source, option.body.group), (SOURCE, GROUP));
                assert_eq!(
                    (option.body.turning_router, option.body.turning_iface),
                    (address(REPLIER), DOWN)
                );
                let range = decapsulate(&mut bytes, &opened);
                assert_eq!(bytes[range], inner);
            }
        }
    }
}

#[test]
fn a_dmcast_costs_36_bytes() {
    let repr = dmcast_repr(DOWN, Form::Classic, Placement::Outer);
    assert_eq!(repr.buffer_len(1464), 1500);
}

#[test]
fn dont_fragment_and_service_are_the_inner_packets() {
    let inner = edit(inner(KEY), 0, |p| {
        p[1] = 0xb8;
        p[6] = 0x40;
    });
    let outer = compose(&dmcast_repr(DOWN, Form::Classic, Placement::Outer), &inner);
    assert_eq!((outer[1], outer[6]), (0xb8, 0x40));
}

#[test]
fn what_cannot_be_composed() {
    let good = dmcast_repr(DOWN, Form::Classic, Placement::Outer);
    let mut buffer = vec![0; 70_000];
    let whole = inner(KEY);
    let mut with_padding = whole.clone();
    with_padding.push(0);
    let unset = lms_proto::wire::encap::DmcastRepr {
        iface: Iface::UNSET,
        ..good
    };
    let long = packet(SOURCE, GROUP, 17, &[], &vec![0; 65_535 - 20 - 35]);
    let full = packet(SOURCE, GROUP, 17, &[1; 28], &[]);
    let in_inner = dmcast_repr(DOWN, Form::Classic, Placement::Inner);
    let cases = [
        (
            good,
            &whole[..10],
            ComposeError::Inner(HeaderError::Truncated),
        ),
        (
            good,
            &with_padding,
            ComposeError::Inner(HeaderError::TotalLength),
        ),
        (unset, &whole, ComposeError::TurningPoint),
        (good, &long, ComposeError::TooLong),
        (in_inner, &full, ComposeError::TooLong),
    ];
    for (repr, inner, error) in cases {
        assert_eq!(repr.emit(inner, &mut buffer), Err(error));
    }
    let short = good.buffer_len(whole.len()) - 1;
    assert_eq!(
        good.emit(&whole, &mut buffer[..short]),
        Err(ComposeError::Space)
    );
}

#[test]
fn somebody_elses_tunnel_is_left_alone() {
    let plain = packet(REPLIER_HOST, address(REPLIER), 4, &[], &inner(KEY));
    let with_request = {
        let inner = request(KEY, None, Form::Classic);
        packet(REPLIER_HOST, address(REPLIER), 4, &[], &inner)
    };
    let garbage = packet(REPLIER_HOST, address(REPLIER), 4, &[], &[0x60; 30]);
    let odd_options = {
        let inner = packet(SOURCE, GROUP, 17, &[148, 1, 0, 0], &[]);
        packet(REPLIER_HOST, address(REPLIER), 4, &[], &inner)
    };
    for tunnel in [plain, with_request, garbage, odd_options] {
        assert_eq!(
            open_inner(&tunnel, Layout::check(&tunnel).unwrap()),
            Ok(None)
        );
    }
}

#[test]
fn a_malformed_option_inside_is_an_error() {
    let inner = packet(SOURCE, GROUP, 17, &[139, 4, 0, 0], &[]);
    let outer = packet(REPLIER_HOST, address(REPLIER), 4, &[], &inner);
    let layout = Layout::check(&outer).unwrap();
    assert_eq!(open_inner(&outer, layout), Err(OpenError::InnerOption));
}

proptest! {
    /// Whatever is composed is opened to the same bytes.
    #[test]
    fn compose_then_decapsulate(
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        nops in 0usize..6,
        single in any::<bool>(),
        in_inner in any::<bool>(),
        iface in 0..0xffffu16,
    ) {
        let inner = packet(SOURCE, GROUP, 17, &vec![1; nops * 4], &payload);
        let form = if single { Form::Own } else { Form::Classic };
        let placement = if in_inner { Placement::Inner } else { Placement::Outer };
        let repr = dmcast_repr(Iface(iface), form, placement);
        let mut bytes = vec![0; repr.buffer_len(inner.len())];
        if repr.emit(&inner, &mut bytes) == Err(ComposeError::TooLong) {
            prop_assert!(in_inner && nops * 4 + 16 > 24);
            return Ok(());
        }
        let layout = Layout::check(&bytes).unwrap();
        let opened = if in_inner {
            open_inner(&bytes, layout).unwrap().unwrap().1
        } else {
            open_outer(&bytes, layout).unwrap()
        };
        let range = decapsulate(&mut bytes, &opened);
        prop_assert_eq!(&bytes[range], &inner[..]);
    }
}
