//! Bytes to value, value to bytes, for each message that `docs/wire.md` draws.

use std::net::{IpAddr, SocketAddr};

use dyram::wire::{
    self, Body, Feedback, JOIN_LEN, Join, Joined, MAX_MESSAGE, Nack, Packet, ParseError, Repr,
    Role, Stalled, Status,
};
use dyram::{RelayId, Seq, SessionKey};

/// ANEP header of the session of 10.0.0.1 and 239.1.2.3, for a body of this length.
fn anep(body_len: usize) -> Vec<u8> {
    let mut bytes = vec![0x01, 0x80, 0x44, 0x59, 0x00, 0x08];
    bytes.extend_from_slice(&(44 + body_len as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 1, 0, 3, 0, 0, 0, 1, 10, 0, 0, 1]);
    bytes.extend_from_slice(&[0, 2, 0, 3, 0, 0, 0, 1, 239, 1, 2, 3]);
    bytes
}

fn key() -> SessionKey {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    SessionKey::new(ip("10.0.0.1"), ip("239.1.2.3")).unwrap()
}

fn both_ways(repr: &Repr<'_>, bytes: &[u8]) {
    let packet = Packet::new_checked(bytes).unwrap();
    assert_eq!(Repr::parse(&packet), *repr);
    let mut written = vec![0xaa; repr.buffer_len()];
    assert_eq!(repr.emit(&mut written), bytes.len());
    assert_eq!(written, bytes);
}

fn golden(session: u32, child: u16, sequence: u32, body: Body<'_>, rest: &[u8]) {
    let mut bytes = anep(rest.len() - 12);
    bytes.extend_from_slice(rest);
    let repr = Repr {
        key: key(),
        session,
        child,
        sequence: Seq(sequence),
        body,
    };
    both_ways(&repr, &bytes);
}

#[test]
fn carriers() {
    let rest = |svc: u8, sequence: u8| {
        let mut rest = vec![svc, 0, 0xff, 0xff, 1, 2, 3, 4, 0, 0, 0, sequence];
        rest.extend_from_slice(b"hello");
        rest
    };
    let id = 0x0102_0304;
    golden(id, 0xffff, 9, Body::Data(b"hello"), &rest(1, 9));
    golden(id, 0xffff, 9, Body::Repair(b"hello"), &rest(2, 9));
    golden(id, 0xffff, 9, Body::Cast(b"hello"), &rest(9, 9));
}

#[test]
fn nack_absent_and_ack() {
    let nack = Nack {
        mask: 0x8000_0000_0000_0005,
        ack: Some(Seq(0x20)),
        repeats: 3,
    };
    #[rustfmt::skip]
    golden(7, 2, 0x21, Body::Nack(nack), &[
        3, 1, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0x21,
        0x80, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0x20, 0, 3, 0, 0,
    ]);
    #[rustfmt::skip]
    golden(7, 2, 0x21, Body::Absent(1), &[
        5, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0x21,
        0, 0, 0, 0, 0, 0, 0, 1,
    ]);
    golden(
        7,
        2,
        0x21,
        Body::Ack,
        &[4, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0x21],
    );
}

#[test]
fn join_and_joined() {
    let join = Join {
        role: Role::Relay,
        token: 0x1122_3344_5566_7788,
        stamp: 0x99,
        far_us: 0x1000,
        receivers: 12,
        relay: RelayId(0x0a00_0009),
        round_trip_us: 0x800,
    };
    #[rustfmt::skip]
    let mut rest = vec![
        6, 1, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0,
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0, 0, 0x99,
        0, 0, 0x10, 0, 0, 0, 0, 12, 10, 0, 0, 9, 0, 0, 8, 0,
    ];
    rest.resize(12 + JOIN_LEN, 0);
    golden(0, 0xffff, 0, Body::Join(join), &rest);

    let joined = Joined {
        status: Status::Joined,
        live: true,
        attached: true,
        token: 1,
        stamp: 0x99,
        repair_us: 0x2000,
        refresh_ms: 2000,
        path: [RelayId(5), RelayId(6)].into_iter().collect(),
    };
    #[rustfmt::skip]
    let mut rest = vec![
        7, 0x30, 0, 4, 0, 0, 0, 7, 0, 0, 0, 0x21,
        0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x99,
        0, 0, 0x20, 0, 0x07, 0xd0, 2, 0, 0, 0, 0, 0,
        0, 0, 0, 5, 0, 0, 0, 6,
    ];
    rest.resize(12 + JOIN_LEN, 0);
    golden(7, 4, 0x21, Body::Joined(joined), &rest);
}

#[test]
fn leave_and_move() {
    let token = [1, 2, 3, 4, 5, 6, 7, 8];
    let value = u64::from_be_bytes(token);
    for (svc, body) in [(8, Body::Leave(value)), (10, Body::Move(value))] {
        let mut rest = vec![svc, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        rest.extend_from_slice(&token);
        golden(0, 4, 0, body, &rest);
    }
}

#[test]
fn stalled() {
    let body = Stalled {
        child: SocketAddr::from(([10, 2, 0, 7], 5000)),
        relay: RelayId(0x0a00_0009),
    };
    #[rustfmt::skip]
    let rest = [
        11, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 0x21,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 2, 0, 7,
        0x13, 0x88, 0, 0, 10, 0, 0, 9,
    ];
    golden(7, 4, 0x21, Body::Stalled(body), &rest);
}

#[test]
fn feedback() {
    let body = Feedback {
        rank: 0x0102_0304_0506_0708,
        held_us: 0x0900,
        message: b"slow",
    };
    #[rustfmt::skip]
    let rest = [
        12, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 0,
        1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 9, 0,
        b's', b'l', b'o', b'w',
    ];
    golden(7, 4, 0, Body::Feedback(body), &rest);
}

#[test]
fn feedback_has_1_to_128_bytes_of_message_and_no_sequence() {
    let parse = |len: usize, sequence: u8| {
        let mut bytes = anep(12 + len);
        bytes.extend_from_slice(&[12, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, sequence]);
        bytes.resize(bytes.len() + 12 + len, 0);
        Packet::new_checked(bytes).map(|_| ())
    };
    for len in [1, MAX_MESSAGE] {
        assert_eq!(parse(len, 0), Ok(()), "{len}");
    }
    assert_eq!(parse(0, 0), Err(ParseError::Truncated));
    assert_eq!(parse(MAX_MESSAGE + 1, 0), Err(ParseError::Length));
    assert_eq!(parse(4, 1), Err(ParseError::Reserved));
}

#[test]
fn sessions_over_ipv6() {
    let mut bytes = vec![1, 0x80, 0x44, 0x59, 0, 14, 0, 68];
    let ips = ["2001:db8::1", "ff3e::8000:1"].map(|text| text.parse::<std::net::Ipv6Addr>());
    let [source, group] = ips.map(Result::unwrap);
    for (number, ip) in [(1, source), (2, group)] {
        bytes.extend_from_slice(&[0, number, 0, 6, 0, 0, 0, 2]);
        bytes.extend_from_slice(&ip.octets());
    }
    bytes.extend_from_slice(&[4, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 5]);
    let repr = Repr {
        key: SessionKey::new(source.into(), group.into()).unwrap(),
        session: 7,
        child: 1,
        sequence: Seq(5),
        body: Body::Ack,
    };
    both_ways(&repr, &bytes);
}

#[test]
fn what_is_refused() {
    let mut ack = anep(0);
    ack.extend_from_slice(&[4, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0x21]);
    let with = |at: usize, byte: u8| {
        let mut bytes = ack.clone();
        bytes[at] = byte;
        Packet::new_checked(bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(with(0, 2), ParseError::Anep);
    assert_eq!(with(1, 0), ParseError::Anep);
    assert_eq!(with(3, 0), ParseError::Anep);
    assert_eq!(with(3, 0x58), ParseError::Anep, "version 0");
    assert_eq!(with(3, 0x68), ParseError::Anep, "version 16");
    assert_eq!(with(5, 9), ParseError::Options);
    assert_eq!(with(9, 3), ParseError::Options, "an integrity checksum");
    assert_eq!(with(15, 3), ParseError::Options, "an Ethernet address");
    assert_eq!(with(7, 45), ParseError::Length);
    assert_eq!(with(32, 0), ParseError::Service);
    assert_eq!(with(33, 1), ParseError::Reserved);
    assert!(SessionKey::new(key().source, "ff3e::1".parse().unwrap()).is_none());
}

/// "How formats evolve" in `docs/wire.md`.
#[test]
fn other_versions_are_refused_by_name() {
    let mut ack = anep(0);
    ack.extend_from_slice(&[4, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0x21]);
    assert_eq!(wire::version(&ack), Some(1));
    for version in 2..=wire::MAX_VERSION {
        let mut other = ack.clone();
        other[3] = 0x58 + version;
        let refused = |bytes: &[u8]| Packet::new_checked(bytes).map(|_| ()).unwrap_err();
        assert_eq!(refused(&other), ParseError::Version);
        // Whatever another version has after the first four bytes, and whatever its flags are.
        other[1] = 0;
        assert_eq!(refused(&other[..4]), ParseError::Version);
        assert_eq!(wire::version(&other[..4]), Some(version));
        assert_eq!(refused(&other[..3]), ParseError::Truncated);
    }
    // Bytes after the body, whether the length in the header counts them or not.
    let mut longer = [&ack[..], &[0]].concat();
    for _ in 0..2 {
        let refused = Packet::new_checked(&longer[..]).map(|_| ());
        assert_eq!(refused, Err(ParseError::Length));
        longer[7] += 1;
    }
}
