//! A host's side of LMS: announcements and queries of routers, real and forged.
//!
//! Asserted: what it sends stays within its rate; it answers requests only for what it has joined;
//! nothing is allocated after the start.

use std::net::Ipv4Addr;

use igmp::datagram::{UDP_AT, finish_membership, finish_udp, membership_at};
use igmp::wire::{Code, Message, Query, QueryV3, Sources};
use lms_proto::endpoint::{Answer, Config, Endpoint, Storage};
use lms_proto::hier::Cost;
use lms_proto::wire::hier::{self, Entry, Header, Kind, Writer};
use lms_proto::{Family as _, Iface, Instant, InterfaceConfig, Key, Meta};

use super::igmp::Addresses;
use super::pass;
use crate::memory::Meter;
use crate::script::{Lines, Script};

fn key(script: &mut Script<'_>) -> Key {
    let group = Ipv4Addr::new(232, 1, 2, script.u8() % 6);
    match script.u8() % 3 {
        0 => Key::any_source(group),
        n => Key::new(Ipv4Addr::new(10, 1, 1, n), group),
    }
}

fn announcement(script: &mut Script<'_>) -> Vec<u8> {
    let header = Header {
        kind: Kind::Elected,
        boot: script.u8().into(),
        sequence: script.u32(),
        hold_time_ms: script.u16(),
    };
    let from = Ipv4Addr::new(10, 1, 1, script.u8());
    let mut packet = vec![0; 1500];
    let Some(mut writer) = Writer::new(&mut packet[UDP_AT..]) else {
        return packet;
    };
    for _ in 0..script.pick(8) {
        let neighbour = script.flag().then(|| Ipv4Addr::new(10, 1, 1, script.u8()));
        let cost = if neighbour.is_some() {
            Cost(script.u16())
        } else {
            Cost::WITHDRAWN
        };
        let key = key(script);
        writer.push(&Entry {
            key,
            neighbour,
            cost,
        });
    }
    let len = writer.finish(&header);
    let len = finish_udp(&mut packet, from, hier::GROUP, hier::PORT, len);
    packet.truncate(len.unwrap_or(0));
    packet
}

/// A query of a router.
pub(super) fn query<A: Addresses>(script: &mut Script<'_>, from: A) -> Vec<u8> {
    let sources: Vec<A::Octets> = (0..script.u8() % 4)
        .map(|n| A::source(n).octets())
        .collect();
    let group = if script.flag() {
        A::UNSPECIFIED
    } else {
        A::group(script.u8() % 6)
    };
    let query = Query {
        group,
        max_response: A::response(script),
        v3: script.flag().then(|| QueryV3 {
            suppress: script.flag(),
            robustness: script.u8() & 7,
            interval: Code(script.u8()),
            sources: Sources::from_octets(&sources),
        }),
    };
    let mut packet = vec![0; 600];
    let len = Message::Query(query)
        .emit(&mut packet[membership_at::<A>()..])
        .unwrap_or(0);
    let len = finish_membership(&mut packet, from, A::QUERY_DESTINATION, len);
    packet.truncate(len.unwrap_or(0));
    packet
}

pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let interface = InterfaceConfig::ipv4(Ipv4Addr::new(10, 1, 1, 7), 24);
    let mut config = Config::new(Iface(1), interface);
    config.answer_unelected = script.flag();
    let reports_per_s = config.reports_per_s;
    let mut now = Instant::from_secs(100);
    let start = now;
    let mut endpoint = Endpoint::new(config, Storage::owned(4), [3; 32], now);
    let mut meter = Meter::default();
    let mut joined: Vec<Key> = Vec::new();
    let mut sent = 0u64;
    let mut buffer = [0; 1500];
    while script.more() {
        let mut packet = match script.pick(8) {
            0 => script.bytes().to_vec(),
            1 => announcement(&mut script),
            2 => query(&mut script, Ipv4Addr::new(10, 1, 1, 1)),
            3 => {
                let (key, cost) = (key(&mut script), Cost(script.u16()));
                if meter.run(|| endpoint.join(now, key, cost)).is_ok() && !joined.contains(&key) {
                    joined.push(key);
                }
                Vec::new()
            }
            4 => {
                let key = key(&mut script);
                meter.run(|| endpoint.leave(now, key));
                joined.retain(|joined| *joined != key);
                Vec::new()
            }
            5 => {
                let us = script.pause_us();
                pass(
                    &mut endpoint,
                    &mut now,
                    us,
                    Endpoint::poll_timeout,
                    |endpoint, now| {
                        meter.run(|| endpoint.handle_timeout(now));
                        while let Some(transmit) =
                            meter.run(|| endpoint.poll_transmit(now, &mut buffer))
                        {
                            assert!(transmit.len <= buffer.len());
                            sent += 1;
                        }
                    },
                );
                Vec::new()
            }
            6 => {
                if let Some(option) = Ipv4Addr::find_option(script.bytes())
                    && endpoint.should_answer(&option) == Answer::AsReplier
                {
                    let covers = |key: &Key| option.group == key.group;
                    assert!(
                        joined.iter().any(covers),
                        "answers for what it has not joined"
                    );
                }
                Vec::new()
            }
            _ => {
                let mut packet = announcement(&mut script);
                script.damage(&mut packet);
                packet
            }
        };
        if !packet.is_empty() {
            if script.flag() {
                super::mend(&mut packet);
            }
            let meta = Meta {
                iface: Iface(1),
                link_source: None,
            };
            let _ = meter.run(|| endpoint.handle_packet(now, &meta, &packet));
        }
        while meter
            .run(|| endpoint.poll_transmit(now, &mut buffer))
            .is_some()
        {
            sent += 1;
        }
        while endpoint.poll_event().is_some() {}
        meter.check(0);
        assert!(joined.len() <= 4 && endpoint.session_count() <= 4);
        let seconds = (now - start).secs() + 2;
        assert!(
            sent <= seconds * u64::from(reports_per_s),
            "{sent} reports in {seconds} s"
        );
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for golden in crate::goldens::link_local() {
        let mut packet = vec![0; UDP_AT];
        packet.extend_from_slice(&golden);
        let from = Ipv4Addr::new(10, 1, 1, 1);
        finish_udp(&mut packet, from, hier::GROUP, hier::PORT, golden.len());
        let mut lines = Lines::default();
        lines.u8(0).u8(3).u8(1).u8(1).u8(5).u8(0); // join
        lines
            .u8(0)
            .bytes(&packet)
            .u8(0)
            .u8(0)
            .bytes(&golden)
            .u8(0)
            .u8(5)
            .u8(200);
        seeds.push(lines.0);
    }
    for golden in crate::goldens::of("crates/lms-proto/tests/golden_option.rs") {
        let mut lines = Lines::default();
        lines
            .u8(1)
            .u8(3)
            .u8(3)
            .u8(2)
            .u8(5)
            .u8(0)
            .u8(6)
            .bytes(&golden)
            .u8(5)
            .u8(200);
        seeds.push(lines.0);
    }
    for op in 1..8 {
        let mut lines = Lines::default();
        for parameter in 0..60 {
            lines
                .u8(3)
                .u8(parameter)
                .u8(parameter)
                .u8(1)
                .u8(0)
                .u8(op)
                .u8(parameter)
                .u8(2);
        }
        seeds.push(lines.0);
    }
    seeds
}
