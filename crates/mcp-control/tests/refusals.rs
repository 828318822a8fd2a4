//! MULTICAST and LISTEN that are refused, each for one field that is out of its bounds.

use std::fmt::Debug;
use std::net::IpAddr;

use mcp_control::wire::island::{Island, Listen, Multicast};
use mcp_control::wire::relay::{LinkId, LinkSecret};
use mcp_control::wire::{Message, ParseError};

/// Where the fields are in a frame of either type.
const BODY_LEN: usize = 4;
const GROUP: usize = 56;
const SOURCE: usize = 72;
const DESTINATION: usize = 74;
const FLAGS: usize = 76;
const MEMBERS: usize = 77;
const RESERVED: usize = 78;
const HOSTS: usize = 80;

const HEADER_LEN: usize = 8;
const FIXED_LEN: usize = HOSTS - HEADER_LEN;
const ADDRESS_LEN: usize = 16;

fn frame(message: &impl Message) -> Vec<u8> {
    let mut frame = vec![0; message.buffer_len()];
    message.emit(&mut frame);
    frame
}

fn island(group: &str) -> Island {
    Island {
        link: LinkId([1; 16]),
        secret: LinkSecret([2; 32]),
        group: group.parse().unwrap(),
        source: 4000,
        destination: 5000,
        sealed: false,
    }
}

/// A valid MULTICAST to two members and a valid LISTEN, over IPv4 and IPv6.
fn messages() -> [(Multicast, Listen); 2] {
    let hosts = [
        ("239.255.1.2", ["192.0.2.7", "192.0.2.8"]),
        ("ff12::1:2", ["2001:db8::7", "2001:db8::8"]),
    ];
    hosts.map(|(group, hosts)| {
        let island = island(group);
        let members: Vec<IpAddr> = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let head = members[0];
        (Multicast { island, members }, Listen { island, head })
    })
}

fn octets(address: &str) -> [u8; ADDRESS_LEN] {
    match address.parse().unwrap() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Has the valid message refused once these of its bytes are replaced.
#[track_caller]
fn refused<M: Message + Debug>(message: &M, at: usize, bytes: &[u8], error: ParseError) {
    let mut frame = frame(message);
    assert!(M::parse(&frame).is_ok(), "{message:?} is valid");
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    assert_eq!(M::parse(&frame).err(), Some(error), "{bytes:02x?} at {at}");
}

/// A frame whose header agrees with its length: the message cut short, or with hosts appended.
fn framed(message: &impl Message, members: u8, body_len: usize) -> Vec<u8> {
    let mut frame = frame(message);
    frame[MEMBERS] = members;
    frame[BODY_LEN..HEADER_LEN].copy_from_slice(&(body_len as u32).to_be_bytes());
    let host = frame[HOSTS..HOSTS + ADDRESS_LEN].to_vec();
    let missing = (HEADER_LEN + body_len).saturating_sub(frame.len());
    frame.extend(host.iter().cycle().take(missing));
    frame.truncate(HEADER_LEN + body_len);
    frame
}

#[test]
fn a_group_that_is_no_multicast_address() {
    for (multicast, listen) in &messages() {
        for group in ["::", "0.0.0.0", "192.0.2.1", "223.255.255.255", "240.0.0.1"] {
            refused(multicast, GROUP, &octets(group), ParseError::Value);
            refused(listen, GROUP, &octets(group), ParseError::Value);
        }
        for group in ["2001:db8::1", "fe80::1"] {
            refused(multicast, GROUP, &octets(group), ParseError::Value);
            refused(listen, GROUP, &octets(group), ParseError::Value);
        }
    }
}

#[test]
fn a_group_of_the_other_ip_version() {
    let [over_ipv4, over_ipv6] = &messages();
    for ((multicast, listen), group) in [(over_ipv4, "ff12::1:2"), (over_ipv6, "239.255.1.2")] {
        refused(multicast, GROUP, &octets(group), ParseError::Value);
        refused(listen, GROUP, &octets(group), ParseError::Value);
    }
}

#[test]
fn port_zero_reserved_bytes_and_unknown_flags() {
    let value = ParseError::Value;
    let reserved = ParseError::Reserved;
    for (multicast, listen) in &messages() {
        for (at, bytes, error) in [
            (SOURCE, &[0, 0][..], value),
            (DESTINATION, &[0, 0], value),
            (RESERVED, &[1, 0], reserved),
            (RESERVED, &[0, 0x80], reserved),
            (FLAGS, &[0x02], reserved),
            (FLAGS, &[0x03], reserved),
            (FLAGS, &[0x80], reserved),
        ] {
            refused(multicast, at, bytes, error);
            refused(listen, at, bytes, error);
        }
        refused(listen, MEMBERS, &[1], reserved);
    }
}

#[test]
fn hosts_of_the_other_ip_version_unspecified_or_multicast() {
    let [over_ipv4, over_ipv6] = &messages();
    let wrong = [
        (over_ipv4, ["::", "0.0.0.0", "224.0.0.1", "2001:db8::7"]),
        (over_ipv6, ["::", "0.0.0.0", "ff02::1", "192.0.2.7"]),
    ];
    for ((multicast, listen), hosts) in wrong {
        for host in hosts.map(octets) {
            refused(multicast, HOSTS, &host, ParseError::Value);
            refused(multicast, HOSTS + ADDRESS_LEN, &host, ParseError::Value);
            refused(listen, HOSTS, &host, ParseError::Value);
        }
    }
}

#[test]
fn fewer_than_2_or_more_than_64_members() {
    let lengths = |members: u8| FIXED_LEN + usize::from(members) * ADDRESS_LEN;
    for (multicast, _) in &messages() {
        for members in [0, 1] {
            let frame = framed(multicast, members, lengths(members));
            assert_eq!(Multicast::parse(&frame), Err(ParseError::Truncated));
        }
        for members in [65, 255] {
            let frame = framed(multicast, members, lengths(members));
            assert_eq!(Multicast::parse(&frame), Err(ParseError::Length));
        }
        for members in [2, 64] {
            let frame = framed(multicast, members, lengths(members));
            let parsed = Multicast::parse(&frame).map(|read| read.members.len());
            assert_eq!(parsed, Ok(members.into()));
        }
    }
}

#[test]
fn a_length_that_does_not_fit() {
    let two = FIXED_LEN + 2 * ADDRESS_LEN;
    for (multicast, listen) in &messages() {
        for members in [0, 1, 3, 64, 65, 255] {
            refused(multicast, MEMBERS, &[members], ParseError::Length);
        }
        for (members, body_len, error) in [
            (2, 0, ParseError::Truncated),
            (2, FIXED_LEN - 1, ParseError::Truncated),
            (2, two - 1, ParseError::Truncated),
            (2, two + 1, ParseError::Length),
            (2, two + ADDRESS_LEN, ParseError::Length),
            (64, two + 61 * ADDRESS_LEN, ParseError::Length),
        ] {
            let frame = framed(multicast, members, body_len);
            assert_eq!(Multicast::parse(&frame), Err(error), "{body_len}");
        }
        let one = FIXED_LEN + ADDRESS_LEN;
        for (body_len, error) in [
            (0, ParseError::Truncated),
            (FIXED_LEN, ParseError::Truncated),
            (one - 1, ParseError::Truncated),
            (one + 1, ParseError::Length),
            (one + ADDRESS_LEN, ParseError::Length),
        ] {
            let frame = framed(listen, 0, body_len);
            assert_eq!(Listen::parse(&frame), Err(error), "{body_len}");
        }
    }
}

#[test]
fn one_type_in_place_of_the_other() {
    for (multicast, listen) in &messages() {
        assert_eq!(Listen::parse(&frame(multicast)), Err(ParseError::Type));
        assert_eq!(Multicast::parse(&frame(listen)), Err(ParseError::Type));
    }
}
