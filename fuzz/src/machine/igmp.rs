//! The IGMP proxy, with a member above and two queriers below.
//!
//! Asserted: no more groups and sources than there are places, nothing allocated after the start,
//! and no more packets than its rate for each interface.

use std::net::Ipv4Addr;

use igmp::{Config, Member, MemberStorage, Proxy, Querier, QuerierStorage};
use lms_proto::{Iface, Instant, InterfaceConfig, Key, Meta};

use super::lms_endpoint::query;
use super::router::report;
use super::{mend, pass};
use crate::memory::Meter;
use crate::script::{Lines, Script};

const GROUPS: usize = 3;

fn config(iface: u16) -> Config {
    let interface = InterfaceConfig::ipv4(Ipv4Addr::new(10, 1, iface as u8, 5), 24);
    let mut config = Config::new(Iface(iface), interface);
    config.sources_per_group = 4;
    config
}

pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut now = Instant::from_secs(100);
    let start = now;
    let upstream = Member::new(config(1), MemberStorage::owned(GROUPS, 8), [1; 32], now);
    let queriers: Vec<Querier<'static>> = [2, 3]
        .map(|iface| {
            Querier::new(
                config(iface),
                QuerierStorage::owned(GROUPS, 8),
                [2; 32],
                now,
            )
        })
        .into();
    let mut proxy = Proxy::new(upstream, queriers.into(), now);
    let mut meter = Meter::default();
    let mut buffer = [0; 1500];
    let (mut sent, mut heard) = (0u64, 0u64);
    while script.more() {
        let op = script.pick(6);
        let iface = 1 + u16::from(script.u8() % 4);
        let from = Ipv4Addr::new(10, 1, iface as u8, script.u8());
        let mut packet = match op {
            0 => script.bytes().to_vec(),
            1 => report(&mut script, from),
            2 => query(&mut script, from),
            3 => {
                let mut packet = if script.flag() {
                    report(&mut script, from)
                } else {
                    query(&mut script, from)
                };
                script.damage(&mut packet);
                packet
            }
            4 => {
                let us = script.time_us();
                pass(
                    &mut proxy,
                    &mut now,
                    us,
                    Proxy::poll_timeout,
                    |proxy, now| {
                        meter.run(|| proxy.handle_timeout(now));
                        while meter
                            .run(|| proxy.poll_transmit(now, &mut buffer))
                            .is_some()
                        {
                            sent += 1;
                        }
                    },
                );
                Vec::new()
            }
            _ => {
                let key = Key::new(
                    Ipv4Addr::new(10, 1, 1, script.u8() % 5),
                    Ipv4Addr::new(232, 1, 2, script.u8() % 4),
                );
                assert!(proxy.downstream(key).count() <= 2);
                assert!(proxy.sources(key.group).count() <= 8);
                Vec::new()
            }
        };
        if !packet.is_empty() {
            if script.flag() {
                mend(&mut packet);
            }
            let meta = Meta {
                iface: Iface(iface),
                link_source: None,
            };
            heard += 1;
            let _ = meter.run(|| proxy.handle_packet(now, &meta, &packet));
        }
        while meter
            .run(|| proxy.poll_transmit(now, &mut buffer))
            .is_some()
        {
            sent += 1;
        }
        while proxy.poll_event().is_some() {}
        meter.check(0);
        assert!(proxy.groups().count() <= 2 * GROUPS);
        assert!(
            proxy
                .queriers()
                .iter()
                .all(|querier| querier.group_count() <= GROUPS)
        );
        // Packets sent are determined by packets received and by the clock.
        let seconds = (now - start).secs() + 1;
        assert!(
            sent <= 64 * (heard + seconds),
            "{sent} for {heard} in {seconds} s"
        );
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    use igmp::datagram::{IGMP_AT, finish_membership};
    use igmp::wire::ALL_V3_ROUTERS;
    let mut seeds = Vec::new();
    for golden in crate::goldens::link_local() {
        let mut packet = vec![0; IGMP_AT];
        packet.extend_from_slice(&golden);
        finish_membership(
            &mut packet,
            [10, 1, 2, 9].into(),
            ALL_V3_ROUTERS,
            golden.len(),
        );
        let mut lines = Lines::default();
        for iface in 0..3 {
            lines
                .u8(0)
                .u8(iface)
                .u8(9)
                .bytes(&packet)
                .u8(0)
                .u8(4)
                .u8(0)
                .u8(0)
                .u8(210);
        }
        seeds.push(lines.0);
    }
    for op in 1..5 {
        let mut lines = Lines::default();
        for parameter in 0..60 {
            lines
                .u8(op)
                .u8(parameter)
                .u8(9)
                .u8(3)
                .u8(parameter)
                .u8(1)
                .u8(4)
                .u8(1)
                .u8(1)
                .u8(180);
        }
        seeds.push(lines.0);
    }
    seeds
}
