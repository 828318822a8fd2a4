//! DyRAM in ANEP.

use std::net::IpAddr;

use dyram::wire::{Body, Packet, Repr};

use crate::Fields;
use crate::goldens::{Golden, hex};
use crate::packets::Carrier;

fn session(fields: &mut Fields, repr: &Repr<'_>, len: usize) {
    let v4 = repr.key.source.is_ipv4();
    fields
        .put("anep_version", 1)
        .put("anep_flags", 0x80)
        .put("anep_type", 0x4459)
        .put("header_words", if v4 { 8 } else { 14 })
        .put("total_length", len);
    for (number, address) in [(1, repr.key.source), (2, repr.key.group)] {
        let name = match (number, address) {
            (1, IpAddr::V4(_)) => "source",
            (1, IpAddr::V6(_)) => "source6",
            (_, IpAddr::V4(_)) => "group",
            (_, IpAddr::V6(_)) => "group6",
        };
        fields
            .put("option", number)
            .put("option_words", if v4 { 3 } else { 6 })
            .put("scheme", if v4 { 1 } else { 2 })
            .put(name, address);
    }
}

fn body(fields: &mut Fields, body: &Body<'_>, flags: u8) {
    if !matches!(body, Body::Join(_)) {
        fields.put("flags", flags);
    }
    match body {
        Body::Data(payload) | Body::Repair(payload) | Body::Cast(payload) => {
            fields.bytes("payload", payload);
        }
        Body::Nack(nack) => {
            fields
                .flag("flag_counts", nack.ack.is_some())
                .put("mask", nack.mask)
                .put("acknowledgement", nack.ack.unwrap_or_default().0)
                .put("repeats", nack.repeats);
        }
        Body::Ack => {}
        Body::Absent(mask) => {
            fields.put("mask", mask);
        }
        Body::Join(join) => {
            fields
                .put("role", join.role as u8)
                .put("token", join.token)
                .put("stamp", join.stamp)
                .put("farthest", join.far_us)
                .put("receivers", join.receivers)
                .put("relay", join.relay.0)
                .put("round_trip", join.round_trip_us);
        }
        Body::Joined(joined) => {
            fields
                .put("status", joined.status as u8)
                .flag("flag_live", joined.live)
                .flag("flag_attached", joined.attached)
                .put("token", joined.token)
                .put("stamp", joined.stamp)
                .put("repair_time", joined.repair_us)
                .put("refresh", joined.refresh_ms)
                .put("path_length", joined.path.len());
            for relay in &joined.path {
                fields.put("path", relay.0);
            }
        }
        Body::Leave(token) | Body::Move(token) => {
            fields.put("token", token);
        }
        Body::Stalled(stalled) => {
            let ip = match stalled.child.ip() {
                std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                std::net::IpAddr::V6(ip) => ip,
            };
            fields
                .put("stalled", ip)
                .put("stalled_port", stalled.child.port())
                .put("relay", stalled.relay.0);
        }
        Body::Feedback(feedback) => {
            fields
                .put("rank", feedback.rank)
                .put("held", feedback.held_us)
                .bytes("payload", feedback.message);
        }
    }
}

pub(crate) fn parse(bytes: &[u8]) -> Option<Fields> {
    let packet = Packet::new_checked(bytes).ok()?;
    let repr = Repr::parse(&packet);
    let mut fields = Fields::of("dyram");
    session(&mut fields, &repr, bytes.len());
    fields
        .put("service", packet.service() as u8)
        .put("child", repr.child)
        .put("session", repr.session)
        .put("sequence", repr.sequence.0);
    body(&mut fields, &repr.body, packet.flags());
    Some(fields)
}

const ACK_V6: &str = "01804459 000e0044
    00010006 00000002 20010db8000000000000000000000001
    00020006 00000002 ff3e0000000000000000000080000001
    04000001 00000007 00000005";

/// What follows the ANEP header of a session between 10.0.0.1 and 239.1.2.3; and the body's length.
const GOLDENS: &[(&str, usize, &str)] = &[
    (
        "dyram carriers 1",
        5,
        "0100ffff 01020304 00000009 68656c6c6f",
    ),
    (
        "dyram carriers 2",
        5,
        "0200ffff 01020304 00000009 68656c6c6f",
    ),
    (
        "dyram carriers 9",
        5,
        "0900ffff 01020304 00000009 68656c6c6f",
    ),
    (
        "dyram nack",
        16,
        "03010002 00000007 00000021 8000000000000005 00000020 00030000",
    ),
    (
        "dyram absent",
        8,
        "05000002 00000007 00000021 0000000000000001",
    ),
    ("dyram ack", 0, "04000002 00000007 00000021"),
    (
        "dyram join",
        80,
        "0601ffff 00000000 00000000 1122334455667788 00000099 00001000 0000000c 0a000009 00000800",
    ),
    (
        "dyram joined",
        80,
        "07300004 00000007 00000021 0000000000000001 00000099 00002000 07d00200 00000000
         00000005 00000006",
    ),
    (
        "dyram leave",
        8,
        "08000004 00000000 00000000 0102030405060708",
    ),
    (
        "dyram move",
        8,
        "0a000004 00000000 00000000 0102030405060708",
    ),
    (
        "dyram stalled",
        24,
        "0b000004 00000007 00000021 00000000000000000000ffff0a020007 13880000 0a000009",
    ),
    (
        "dyram feedback",
        16,
        "0c000004 00000007 00000000 0102030405060708 00000900 736c6f77",
    ),
];

pub(crate) fn goldens() -> Vec<Golden> {
    let golden = |&(name, body_len, rest): &(&'static str, usize, &str)| {
        let mut bytes = hex("01804459 0008");
        bytes.extend((44 + body_len as u16).to_be_bytes());
        bytes.extend(hex("00010003 00000001 0a000001 00020003 00000001 ef010203"));
        bytes.extend(hex(rest));
        bytes.resize(44 + body_len, 0);
        Golden::new(name, bytes, Carrier::Udp(4143), parse)
    };
    let mut goldens: Vec<Golden> = GOLDENS.iter().map(golden).collect();
    goldens.push(Golden::new(
        "dyram ack, IPv6",
        hex(ACK_V6),
        Carrier::Udp(4143),
        parse,
    ));
    goldens
}
