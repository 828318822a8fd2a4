//! A host's side of LMS, of either family: announcements and queries of routers, real and forged.
//!
//! Asserted: what it sends stays within its rate; it answers requests only for what it has joined;
//! nothing is allocated after the start.

use std::net::{Ipv4Addr, Ipv6Addr};

use igmp::datagram::{finish_membership, finish_udp, membership_at, udp_at};
use igmp::wire::{Code, Message, Query, QueryV3, Sources};
use lms_proto::endpoint::{Answer, Config, Endpoint, Stats, Storage};
use lms_proto::hier::Cost;
use lms_proto::wire::hier::{self, Entry, Header, Kind, Writer};
use lms_proto::{Form, Iface, Instant, Key, LmsOption, Meta, TurningPoint};

use super::igmp::Addresses;
use super::pass;
use crate::memory::Meter;
use crate::script::{Lines, Script};

/// A family with addresses and LMS.
trait Net: Addresses + lms_proto::Family {}

impl<A: Addresses + lms_proto::Family> Net for A {}

fn key<A: Net>(script: &mut Script<'_>) -> Key<A> {
    let group = A::group(script.u8() % 6);
    match script.u8() % 3 {
        0 => Key::any_source(group),
        n => Key::new(A::address(1, n), group),
    }
}

fn announcement<A: Net>(script: &mut Script<'_>) -> Vec<u8> {
    let header = Header {
        kind: Kind::Elected,
        boot: script.u8().into(),
        sequence: script.u32(),
        hold_time_ms: script.u16(),
    };
    let from = A::host(1, script.u8());
    let mut packet = vec![0; 1500];
    let Some(mut writer) = Writer::new(&mut packet[udp_at::<A>()..]) else {
        return packet;
    };
    for _ in 0..script.pick(8) {
        let neighbour = script.flag().then(|| A::host(1, script.u8()));
        let cost = if neighbour.is_some() {
            Cost(script.u16())
        } else {
            Cost::WITHDRAWN
        };
        let key = key::<A>(script);
        writer.push(&Entry {
            key,
            neighbour,
            cost,
        });
    }
    let len = writer.finish(&header);
    let len = finish_udp(&mut packet, from, A::LINK_GROUP, hier::PORT, len);
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
    if script.flag() {
        explore::<Ipv6Addr>(script);
    } else {
        explore::<Ipv4Addr>(script);
    }
}

/// Runs a script with an endpoint of one family. Returns its counters, and the number of requests that it answers as
/// a replier.
fn explore<A: Net>(mut script: Script<'_>) -> (Stats, u64) {
    let mut config = Config::new(Iface(1), A::interface(1));
    config.answer_unelected = script.flag();
    let reports_per_s = config.reports_per_s;
    let mut now = Instant::from_secs(100);
    let start = now;
    let mut endpoint = Endpoint::new(config, Storage::owned(4), [3; 32], now);
    let mut meter = Meter::default();
    let mut joined: Vec<Key<A>> = Vec::new();
    let (mut sent, mut answers) = (0u64, 0u64);
    let mut buffer = [0; 1500];
    while script.more() {
        let mut packet = match script.pick(8) {
            0 => script.bytes().to_vec(),
            1 => announcement::<A>(&mut script),
            2 => query(&mut script, A::host(1, 1)),
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
                if let Some(option) = A::find_option(script.bytes())
                    && endpoint.should_answer(&option) == Answer::AsReplier
                {
                    answers += 1;
                    let covers = |key: &Key<A>| A::from_ip(option.group) == Some(key.group);
                    assert!(
                        joined.iter().any(covers),
                        "answers for what it has not joined"
                    );
                }
                Vec::new()
            }
            _ => {
                let mut packet = announcement::<A>(&mut script);
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
    (*endpoint.stats(), answers)
}

/// A host joins, is elected, and is asked for a repair.
fn elected<A: Net>(is_ipv6: bool) -> Vec<u8> {
    let mut lines = Lines::default();
    lines.u8(is_ipv6.into()).u8(0);
    // Group 1 from source 1 at cost 5.
    lines.u8(3).u8(1).u8(1).u8(5).u8(0);
    // Router 1, at its first start, announces for 10 s that host 5 is elected at that cost.
    lines.u8(1).u8(1).u8(1).u8(0).u8(0).u8(0).u8(0x10).u8(0x27);
    lines.u8(1).u8(1).u8(1).u8(5).u8(5).u8(0).u8(1).u8(1).u8(0);
    let request = LmsOption {
        kind: lms_proto::Kind::Request,
        turning_point: Some(TurningPoint {
            router: A::address(1, 1).into(),
            iface: Iface(258),
            cookie: 7,
        }),
        source: A::address(1, 1).into(),
        group: A::group(1).into(),
    };
    let mut ancillary = [0; 256];
    let len = A::emit_ancillary(&request, Form::Own, &mut ancillary).expect("there is room");
    lines.u8(6).bytes(&ancillary[..len]);
    lines.0
}

/// A host joins, then gets the packet, and the golden as it is.
fn received(is_ipv6: bool, packet: &[u8], golden: &[u8]) -> Vec<u8> {
    let mut lines = Lines::default();
    lines.u8(is_ipv6.into()).u8(0);
    lines.u8(3).u8(1).u8(1).u8(5).u8(0);
    lines.u8(0).bytes(packet).u8(0);
    lines.u8(0).bytes(golden).u8(0);
    lines.u8(5).u8(200);
    lines.0
}

/// A golden in a datagram of LMS-HIER from router 1.
fn in_datagram<A: Net>(golden: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; udp_at::<A>()];
    packet.extend_from_slice(golden);
    let from = A::host(1, 1);
    finish_udp(&mut packet, from, A::LINK_GROUP, hier::PORT, golden.len());
    packet
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![elected::<Ipv4Addr>(false), elected::<Ipv6Addr>(true)];
    for golden in crate::goldens::link_local() {
        seeds.push(received(false, &in_datagram::<Ipv4Addr>(&golden), &golden));
    }
    for golden in crate::goldens::of("crates/lms-proto/tests/hier/wire.rs") {
        seeds.push(received(true, &in_datagram::<Ipv6Addr>(&golden), &golden));
    }
    for golden in crate::goldens::of("crates/igmp/tests/igmp/mld.rs") {
        let at = membership_at::<Ipv6Addr>();
        let mut packet = vec![0; at];
        packet.extend_from_slice(&golden);
        let (from, to) = (Ipv6Addr::host(1, 1), igmp::Family::QUERY_DESTINATION);
        finish_membership::<Ipv6Addr>(&mut packet, from, to, golden.len());
        seeds.push(received(true, &packet, &golden));
    }
    for golden in crate::goldens::of("crates/lms-proto/tests/golden_option.rs") {
        let mut lines = Lines::default();
        lines
            .u8(0)
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
    for is_ipv6 in [false, true] {
        for op in 1..8 {
            let mut lines = Lines::default();
            lines.u8(is_ipv6.into());
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
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers_once_elected<A: Net>(is_ipv6: bool) {
        let bytes = elected::<A>(is_ipv6);
        let mut script = Script::new(&bytes);
        assert_eq!(script.flag(), is_ipv6);
        let (stats, answers) = explore::<A>(script);
        assert_eq!((stats.elected_received, answers), (1, 1));
        // Without the announcement there is nothing to answer.
        let announcement = 7..24;
        let bytes = [&bytes[1..announcement.start], &bytes[announcement.end..]].concat();
        assert_eq!(explore::<A>(Script::new(&bytes)).1, 0);
    }

    #[test]
    fn the_elected_host_of_either_family_answers() {
        answers_once_elected::<Ipv4Addr>(false);
        answers_once_elected::<Ipv6Addr>(true);
    }
}
