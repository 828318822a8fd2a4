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
/// A request that turned there, own form.
const REQUEST_OWN: [u8; 28] = [
    158, 28, 0x4c, 0x4d, 1, 24, 1, 2, 192, 0, 2, 7, 10, 1, 0, 2, 232, 1, 2, 3, //
    0xc0, 1, 2, 3, 4, 5, 6, 7,
];
/// The dmcast in the own form.
const DMCAST_OWN: [u8; 28] = [
    158, 28, 0x4c, 0x4d, 2, 24, 1, 2, 192, 0, 2, 7, 10, 1, 0, 2, 232, 1, 2, 3, //
    0xc0, 1, 2, 3, 4, 5, 6, 7,
];
const SOURCE6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 2));
const GROUP6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0, 0x1234));
/// A dmcast to interface 258 of router 2001:db8::7, in the hop-by-hop header of IPv6.
const DMCAST_HOP_BY_HOP: [u8; 64] = [
    0x3e, 62, 0x4c, 0x4d, 2, 60, 1, 2, //
    0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, //
    0x20, 1, 0x0d, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, //
    0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, //
    0xc0, 1, 2, 3, 4, 5, 6, 7,
];
const COOKIE: u64 = 0xc001_0203_0405_0607;

fn turned(cookie: u64) -> Option<TurningPoint> {
    Some(TurningPoint {
        router: Ipv4Addr::new(192, 0, 2, 7).into(),
        iface: Iface(258),
        cookie,
    })
}

/// Reads an option of the family that its type belongs to.
fn parse(bytes: &[u8]) -> Result<(Form, LmsOption), ParseError> {
    match bytes.first() {
        Some(0x3e) => LmsOption::parse::<Ipv6Addr>(bytes),
        _ => LmsOption::parse::<Ipv4Addr>(bytes),
    }
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
            option(Kind::Dmcast, turned(0)),
        ),
        (
            &REQUEST_OWN[..],
            Form::Own,
            option(Kind::Request, turned(COOKIE)),
        ),
        (
            &DMCAST_OWN[..],
            Form::Own,
            option(Kind::Dmcast, turned(COOKIE)),
        ),
        (
            &DMCAST_HOP_BY_HOP[..],
            Form::Own,
            LmsOption {
                kind: Kind::Dmcast,
                turning_point: Some(TurningPoint {
                    router: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7).into(),
                    iface: Iface(258),
                    cookie: COOKIE,
                }),
                source: SOURCE6,
                group: GROUP6,
            },
        ),
    ]
}

#[test]
fn golden_option_bytes_to_value() {
    for (bytes, form, value) in goldens() {
        assert_eq!(parse(bytes), Ok((form, value)));
    }
    let view = View::<Ipv4Addr>::new_checked(&DMCAST_OWN).unwrap();
    assert_eq!((view.form(), view.kind()), (Form::Own, Kind::Dmcast));
    assert_eq!(view.body().turning_point(view.cookie()), turned(COOKIE));
    assert_eq!(IpAddr::from(view.body().source), SOURCE);
    assert_eq!(IpAddr::from(view.body().group), GROUP);
    assert_eq!(view.option_len(), 28);
    let view = View::<Ipv6Addr>::new_checked(&DMCAST_HOP_BY_HOP).unwrap();
    assert_eq!(IpAddr::from(view.body().source), SOURCE6);
    assert_eq!((view.option_len(), view.cookie()), (64, COOKIE));
}

#[test]
fn an_option_of_the_other_family_is_none() {
    let other = LmsOption::parse::<Ipv6Addr>(&DMCAST_OWN);
    assert_eq!(other, Err(ParseError::NotLms));
    let other = LmsOption::parse::<Ipv6Addr>(&REQUEST_CLASSIC);
    assert_eq!(other, Err(ParseError::NotLms));
    let other = LmsOption::parse::<Ipv4Addr>(&DMCAST_HOP_BY_HOP);
    assert_eq!(other, Err(ParseError::NotLms));
}

#[test]
fn golden_option_value_to_bytes() {
    for (bytes, form, value) in goldens() {
        let mut buffer = [0xee; 68];
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
        assert_eq!(parse(&longer), Ok((form, value)));
    }
}

#[test]
fn every_truncation_is_an_error() {
    for (bytes, ..) in goldens() {
        for len in 0..bytes.len() {
            assert_eq!(
                parse(&bytes[..len]),
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
            let Ok((form, other)) = parse(&flipped) else {
                continue;
            };
            assert_ne!(other, value, "bit {bit}");
            let mut again = vec![0; other.buffer_len(form)];
            other.emit(form, &mut again).unwrap();
            assert_eq!(again, flipped, "bit {bit}");
        }
    }
}

#[test]
fn all_one_and_two_byte_options_are_errors() {
    for first in 0..=255u8 {
        assert!(parse(&[first]).is_err());
        for second in 0..=255u8 {
            assert!(parse(&[first, second]).is_err());
        }
    }
    assert_eq!(parse(&[]), Err(ParseError::Truncated));
}

#[test]
fn each_fault_has_its_own_error() {
    let changed = |bytes: &[u8], at: usize, to: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = to;
        parse(&bytes).unwrap_err()
    };
    assert_eq!(changed(&REQUEST_CLASSIC, 0, 148), ParseError::NotLms);
    assert_eq!(changed(&REQUEST_CLASSIC, 1, 15), ParseError::Length);
    assert_eq!(changed(&REQUEST_CLASSIC, 1, 20), ParseError::Length);
    assert_eq!(changed(&REQUEST_CLASSIC, 2, 0), ParseError::TurningPoint);
    assert_eq!(changed(&REQUEST_CLASSIC, 4, 1), ParseError::TurningPoint);
    assert_eq!(changed(&REQUEST_OWN, 1, 20), ParseError::Length);
    assert_eq!(changed(&REQUEST_OWN, 1, 3), ParseError::Length);
    assert_eq!(changed(&REQUEST_OWN, 2, 0), ParseError::Experiment);
    assert_eq!(changed(&REQUEST_OWN, 4, 0), ParseError::SubOption);
    assert_eq!(changed(&REQUEST_OWN, 4, 3), ParseError::SubOption);
    assert_eq!(changed(&REQUEST_OWN, 5, 16), ParseError::SubOptionLength);
    assert_eq!(changed(&DMCAST_HOP_BY_HOP, 1, 64), ParseError::Length);
    assert_eq!(
        changed(&DMCAST_HOP_BY_HOP, 5, 24),
        ParseError::SubOptionLength
    );
    // A cookie without a turning point.
    let mut unset = REQUEST_OWN;
    unset[6..12].copy_from_slice(&[0xff, 0xff, 0, 0, 0, 0]);
    assert_eq!(parse(&unset).unwrap_err(), ParseError::TurningPoint);
}

#[test]
fn what_the_wire_cannot_say_is_not_written() {
    let (_, _, good) = goldens()[1];
    let mut buffer = [0; 28];
    let unset = |router: [u8; 4], iface| LmsOption {
        turning_point: Some(TurningPoint {
            router: Ipv4Addr::from(router).into(),
            iface,
            cookie: 0,
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
        good.emit(Form::Own, &mut buffer[..27]),
        Err(EmitError::Space)
    );
}

fn option(form: Form) -> impl Strategy<Value = LmsOption> {
    let is_ipv6 = any::<bool>().prop_map(move |six| six && form == Form::Own);
    let turning_point = proptest::option::of((1u128.., 0..0xffffu16, any::<u64>()));
    let parts = (
        any::<bool>(),
        is_ipv6,
        turning_point,
        any::<u128>(),
        any::<u128>(),
    );
    parts.prop_map(move |(dmcast, is_ipv6, tp, s, g)| {
        let address = |bits: u128| match is_ipv6 {
            true => IpAddr::from(Ipv6Addr::from_bits(bits)),
            false => IpAddr::from(Ipv4Addr::from_bits(bits as u32)),
        };
        LmsOption {
            kind: if dmcast { Kind::Dmcast } else { Kind::Request },
            turning_point: tp.map(|(router, iface, cookie)| TurningPoint {
                router: address(router.max(1) | 1),
                iface: Iface(iface),
                cookie: if form == Form::Own { cookie } else { 0 },
            }),
            source: address(s),
            group: address(g),
        }
    })
}

fn form_and_option() -> impl Strategy<Value = (Form, LmsOption)> {
    let form = prop_oneof![Just(Form::Own), Just(Form::Classic)];
    form.prop_flat_map(|form| option(form).prop_map(move |option| (form, option)))
}

proptest! {
    #[test]
    fn emit_then_parse_gives_the_value((form, option) in form_and_option()) {
        let mut bytes = [0; 64];
        let len = option.emit(form, &mut bytes).unwrap();
        prop_assert_eq!(parse(&bytes[..len]), Ok((form, option)));
    }

    #[test]
    fn parse_then_emit_gives_the_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..68), kind in 0usize..7) {
        // Mostly bytes that begin like an option of ours.
        let starts: [&[u8]; 5] = [
            &[138, 16],
            &[139, 16],
            &[158, 28, 0x4c, 0x4d, 1, 24],
            &[158, 28, 0x4c, 0x4d, 2, 24],
            &[0x3e, 62, 0x4c, 0x4d, 2, 60],
        ];
        if let Some(start) = starts.get(kind) {
            for (byte, start) in bytes.iter_mut().zip(*start) {
                *byte = *start;
            }
        }
        if let Ok((form, option)) = parse(&bytes) {
            let mut again = [0; 64];
            let len = option.emit(form, &mut again).unwrap();
            prop_assert_eq!(&again[..len], &bytes[..len]);
        }
    }
}
