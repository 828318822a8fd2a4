//! The proxy of IGMP and of MLD, with a member above and two queriers below.
//!
//! Asserted: no more groups and sources than there are places, nothing allocated after the start,
//! and no more packets than its rate for each interface.

use std::net::{Ipv4Addr, Ipv6Addr};

use igmp::wire::{Code, MldCode};
use igmp::{Config, Family, Member, MemberStorage, Proxy, Querier, QuerierStorage};
use igmp::{Iface, Instant, InterfaceConfig, Key, Meta};

use super::lms_endpoint::query;
use super::router_packets::report;
use super::{mend, pass};
use crate::memory::Meter;
use crate::script::{Lines, Script};

const GROUPS: usize = 3;

/// The addresses that scripts choose from.
pub(super) trait Addresses: Family {
    fn interface(iface: u16) -> InterfaceConfig<Self>;
    /// An address that other links reach too.
    fn address(iface: u16, n: u8) -> Self;
    /// A neighbour on the link of an interface.
    fn host(iface: u16, n: u8) -> Self;
    fn source(n: u8) -> Self {
        Self::address(1, n)
    }
    fn group(n: u8) -> Self;
    fn response(script: &mut Script<'_>) -> Self::ResponseCode;
}

impl Addresses for Ipv4Addr {
    fn interface(iface: u16) -> InterfaceConfig {
        InterfaceConfig::ipv4(Self::host(iface, 5), 24)
    }

    fn address(iface: u16, n: u8) -> Self {
        Ipv4Addr::new(10, 1, iface as u8, n)
    }

    fn host(iface: u16, n: u8) -> Self {
        Self::address(iface, n)
    }

    fn group(n: u8) -> Self {
        Ipv4Addr::new(232, 1, 2, n)
    }

    fn response(script: &mut Script<'_>) -> Code {
        Code(script.u8())
    }
}

impl Addresses for Ipv6Addr {
    fn interface(iface: u16) -> InterfaceConfig<Self> {
        InterfaceConfig::ipv6(Self::address(iface, 5), 64, Self::host(iface, 5))
    }

    fn address(iface: u16, n: u8) -> Self {
        Ipv6Addr::new(0x2001, 0xdb8, iface, 0, 0, 0, 0, n.into())
    }

    fn host(iface: u16, n: u8) -> Self {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, iface, n.into())
    }

    fn group(n: u8) -> Self {
        Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0x8000, n.into())
    }

    fn response(script: &mut Script<'_>) -> MldCode {
        MldCode(script.u16())
    }
}

pub fn igmp(bytes: &[u8]) {
    run::<Ipv4Addr>(bytes);
}

pub fn mld(bytes: &[u8]) {
    run::<Ipv6Addr>(bytes);
}

fn config<A: Addresses>(iface: u16) -> Config<A> {
    let mut config = Config::new(Iface(iface), A::interface(iface));
    config.sources_per_group = 4;
    config
}

fn run<A: Addresses>(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut now = Instant::from_secs(100);
    let start = now;
    let upstream = Member::new(
        config::<A>(1),
        MemberStorage::owned(GROUPS, 8),
        [1; 32],
        now,
    );
    let queriers: Vec<Querier<'static, A>> = [2, 3]
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
        let from = A::host(iface, script.u8());
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
                let key = Key::new(A::source(script.u8() % 5), A::group(script.u8() % 4));
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

pub fn igmp_seeds() -> Vec<Vec<u8>> {
    use igmp::datagram::{IGMP_AT, finish_membership};
    let goldens = crate::goldens::link_local();
    seeds(goldens.iter().map(|golden| {
        let mut packet = vec![0; IGMP_AT];
        packet.extend_from_slice(golden);
        let to = Ipv4Addr::REPORT_DESTINATION;
        finish_membership(&mut packet, Ipv4Addr::host(2, 9), to, golden.len());
        packet
    }))
}

pub fn mld_seeds() -> Vec<Vec<u8>> {
    seeds(crate::goldens::of("crates/igmp/tests/igmp/mld.rs").into_iter())
}

fn seeds(packets: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for packet in packets {
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
