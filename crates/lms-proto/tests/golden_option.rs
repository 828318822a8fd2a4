//! The LMS option: golden bytes in both directions, every truncation, every bit flip, every
//! short option.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lms_proto::wire::option::{EmitError, ParseError, View};
use lms_proto::{Form, Iface, Kind, LmsOption, TurningPoint};
use proptest::prelude::*;

const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2));
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(232, 1, 2, 3));

/// A request that no router has turned, classic form (LMS Figure 6.8).
const REQUEST_CLASSIC: [u8; 16] = [138, 16, 0xff, 0xff, 0, 0, 0, 0, 10, 1, 0, 2, 232, 1, 2, 3];
/// A dmcast to interface 258 of router 192.0.2.7, classic form.
const DMCAST_CLASSIC: [u8; 16] = [139, 16, 1, 2, 192, 0, 2, 7, 10, 1, 0, 2, 232, 1, 2, 3];
/// A request that turned there, single form.
const REQUEST_SINGLE: [u8; 20] = [
    158, 20, 0x4c, 0x4d, 1, 16, 1, 2, 192, 0, 2, 7, 10, 1, 0, 2, 232, 1, 2, 3,
];
/// The dmcast in single form.
const DMCAST_SINGLE: [u8; 20] = [
    158, 20, 0x4c, 0x4d, 2, 16, 1, 2, 192, 0, 2, 7, 10, 1, 0, 2, 232, 1, 2, 3,
];

fn turned() -> Option<TurningPoint> {
    Some(TurningPoint {
        router: Ipv4Addr::new(192, 0, 2, 7).into(),
        iface: Iface(258),
    })
}

fn goldens() -> Vec<(&'static [u8], Form, LmsOption)> {
    let option = |kind, turning_point| LmsOption {
        kind,
        turning_point,
        source: SOURCE,
        group: GROUP,
    };
    vec![
        (
            &REQUEST_CLASSIC[..],
            Form::Classic,
            option(Kind::Request, None),
        ),
        (
            &DMCAST_CLASSIC[..],
            Form::Classic,
            option(Kind::Dmcast, turned()),
        ),
        (
            &REQUEST_SINGLE[..],
            Form::Own,
            option(Kind::Request, turned()),
        ),
        (
            &DMCAST_SINGLE[..],
            Form::Own,
            option(Kind::Dmcast, turned()),
        ),
    ]
}

#[test]
fn golden_option_bytes_to_value() {
    for (bytes, form, value) in goldens() {
        assert_eq!(LmsOption::parse(bytes), Ok((form, value)));
        let view = View::new_checked(bytes).unwrap();
        assert_eq!((view.form(), view.kind()), (form, value.kind));
        assert_eq!(view.turning_point(), value.turning_point);
        assert_eq!(IpAddr::from(view.source()), SOURCE);
        assert_eq!(IpAddr::from(view.group()), GROUP);
        assert_eq!(view.option_len(), bytes.len());
    }
}

#[test]
fn golden_option_value_to_bytes() {
    for (bytes, form, value) in goldens() {
        let mut buffer = [0xee; 24];
        assert_eq!(value.emit(form, &mut buffer), Ok(bytes.len()));
        assert_eq!(&buffer[..bytes.len()], bytes);
        assert!(buffer[bytes.len()..].iter().all(|byte| *byte == 0xee));
    }
}

#[test]
fn later_bytes_are_not_looked_at() {
    for (bytes, form, value) in goldens() {
        let mut longer = bytes.to_vec();
        longer.extend([1, 138, 0]);
        assert_eq!(LmsOption::parse(&longer), Ok((form, value)));
    }
}

#[test]
fn every_truncation_is_an_error() {
    for (bytes, ..) in goldens() {
        for len in 0..bytes.len() {
            assert_eq!(
                LmsOption::parse(&bytes[..len]),
                Err(ParseError::Truncated),
                "{len} of {bytes:?}"
            );
        }
    }
}

/// A flipped bit gives an error, or another value that is written with exactly those bytes.
#[test]
fn every_bit_flip_is_an_error_or_another_value() {
    for (bytes, _, value) in goldens() {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 0x80 >> (bit % 8);
            let Ok((form, other)) = LmsOption::parse(&flipped) else {
                continue;
            };
            assert_ne!(other, value, "bit {bit}");
            let mut again = vec![0; LmsOption::buffer_len(form)];
            other.emit(form, &mut again).unwrap();
            assert_eq!(again, flipped, "bit {bit}");
        }
    }
}

#[test]
fn all_one_and_two_byte_options_are_errors() {
    for first in 0..=255u8 {
        assert!(LmsOption::parse(&[first]).is_err());
        for second in 0..=255u8 {
            assert!(LmsOption::parse(&[first, second]).is_err());
        }
    }
    assert_eq!(LmsOption::parse(&[]), Err(ParseError::Truncated));
}

#[test]
fn each_fault_has_its_own_error() {
    let changed = |bytes: &[u8], at: usize, to: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = to;
        LmsOption::parse(&bytes).unwrap_err()
    };
    assert_eq!(changed(&REQUEST_CLASSIC, 0, 148), ParseError::NotLms);
    assert_eq!(changed(&REQUEST_CLASSIC, 1, 15), ParseError::Length);
    assert_eq!(changed(&REQUEST_CLASSIC, 1, 20), ParseError::Length);
    assert_eq!(changed(&REQUEST_CLASSIC, 2, 0), ParseError::TurningPoint);
    assert_eq!(changed(&REQUEST_CLASSIC, 4, 1), ParseError::TurningPoint);
    assert_eq!(changed(&REQUEST_SINGLE, 1, 16), ParseError::Length);
    assert_eq!(changed(&REQUEST_SINGLE, 1, 3), ParseError::Length);
    assert_eq!(changed(&REQUEST_SINGLE, 2, 0), ParseError::Experiment);
    assert_eq!(changed(&REQUEST_SINGLE, 4, 0), ParseError::SubOption);
    assert_eq!(changed(&REQUEST_SINGLE, 4, 3), ParseError::SubOption);
    assert_eq!(changed(&REQUEST_SINGLE, 5, 14), ParseError::SubOptionLength);
}

#[test]
fn what_the_wire_cannot_say_is_not_written() {
    let (_, _, good) = goldens()[1];
    let mut buffer = [0; 20];
    let unset = |router: [u8; 4], iface| LmsOption {
        turning_point: Some(TurningPoint {
            router: Ipv4Addr::from(router).into(),
            iface,
        }),
        ..good
    };
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let cases = [
        (unset([0; 4], Iface(1)), EmitError::TurningPoint),
        (unset([1; 4], Iface::UNSET), EmitError::TurningPoint),
        (LmsOption { source: v6, ..good }, EmitError::Family),
        (LmsOption { group: v6, ..good }, EmitError::Family),
    ];
    for (option, error) in cases {
        assert_eq!(option.emit(Form::Classic, &mut buffer), Err(error));
    }
    assert_eq!(
        good.emit(Form::Classic, &mut buffer[..15]),
        Err(EmitError::Space)
    );
    assert_eq!(
        good.emit(Form::Own, &mut buffer[..19]),
        Err(EmitError::Space)
    );
}

fn option() -> impl Strategy<Value = LmsOption> {
    let turning_point = proptest::option::of((1u32.., 0..0xffffu16));
    (any::<bool>(), turning_point, any::<u32>(), any::<u32>()).prop_map(|(dmcast, tp, s, g)| {
        LmsOption {
            kind: if dmcast { Kind::Dmcast } else { Kind::Request },
            turning_point: tp.map(|(router, iface)| TurningPoint {
                router: Ipv4Addr::from_bits(router).into(),
                iface: Iface(iface),
            }),
            source: Ipv4Addr::from_bits(s).into(),
            group: Ipv4Addr::from_bits(g).into(),
        }
    })
}

proptest! {
    #[test]
    fn emit_then_parse_gives_the_value(option in option(), single in any::<bool>()) {
        let form = if single { Form::Own } else { Form::Classic };
        let mut bytes = [0; 20];
        let len = option.emit(form, &mut bytes).unwrap();
        prop_assert_eq!(LmsOption::parse(&bytes[..len]), Ok((form, option)));
    }

    #[test]
    fn parse_then_emit_gives_the_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..24), kind in 0usize..6) {
        // Mostly bytes that begin like an option of ours.
        let starts: [&[u8]; 4] =
            [&[138, 16], &[139, 16], &[158, 20, 0x4c, 0x4d, 1, 16], &[158, 20, 0x4c, 0x4d, 2, 16]];
        if let Some(start) = starts.get(kind) {
            for (byte, start) in bytes.iter_mut().zip(*start) {
                *byte = *start;
            }
        }
        if let Ok((form, option)) = LmsOption::parse(&bytes) {
            let mut again = [0; 20];
            let len = option.emit(form, &mut again).unwrap();
            prop_assert_eq!(&again[..len], &bytes[..len]);
        }
    }
}
