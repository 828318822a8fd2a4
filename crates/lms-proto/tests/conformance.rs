//! Each machine keeps the contract of `proto_core::Machine`.

#[path = "hier/common.rs"]
#[allow(dead_code, reason = "shared with the tests of LMS-HIER")]
mod common;
#[path = "../../igmp/tests/igmp/packets.rs"]
#[allow(dead_code, reason = "shared with the tests of LMS-HIER")]
mod igmp_common;

use core::net::Ipv4Addr;

use lms_proto::endpoint::{self, Endpoint};
use lms_proto::hier::{self, Capacity, Cost, Hierarchy};
use lms_proto::router::{self, Policy, Router};
use lms_proto::wire::hier::{Entry, Kind};
use lms_proto::{Duration, Iface, Instant, InterfaceConfig, Key, Transmit};
use netsim::conformance::{self, Script};
use proto_core::Machine;

use crate::common::*;
use crate::igmp_common::*;

const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn script<M>(machine: fn(Instant) -> M, min_sent: usize, min_events: usize) -> Script<M>
where
    M: Machine<Meta = lms_proto::Meta, Transmit = Transmit>,
{
    let mut script = Script::new(machine, |transmit: &Transmit| transmit.len);
    (script.min_sent, script.min_events) = (min_sent, min_events);
    script
}

fn host_endpoint(now: Instant) -> Endpoint<'static> {
    let interface = InterfaceConfig::ipv4(host(1, 7), 24);
    let config = endpoint::Config::new(Iface(1), interface);
    Endpoint::new(config, endpoint::Storage::owned(8), [3; 32], now)
}

/// What the router of link 1 says of a group.
fn announce(sequence: u32, key: Key, elected: Option<u8>) -> Vec<u8> {
    let entry = Entry {
        key,
        neighbour: elected.map(|n| host(1, n)),
        cost: elected.map_or(Cost::WITHDRAWN, |_| Cost(1)),
    };
    let header = header(Kind::Elected, sequence, Duration::from_secs(35));
    hier_packet(host(1, 1), header, &[entry])
}

#[test]
fn lms_endpoint() {
    let make = || {
        let mut script = script(host_endpoint, 6, 3)
            .command(at(5), |e, now| e.join(now, group(1), Cost(3)).unwrap())
            .command(at(7), |e, now| e.join(now, group(2), Cost(1)).unwrap())
            .packet(at(100), meta(1), announce(1, group(1), Some(7)))
            .packet(at(200), meta(1), announce(2, group(2), Some(9)))
            .packet(at(2_000), meta(1), v3_query(host(1, 1), ANY, 20, &[]))
            .packet(at(9_000), meta(1), announce(3, group(1), None))
            .packet(at(12_000), meta(1), announce(4, group(2), Some(7)))
            .command(at(30_000), |e, now| e.leave(now, group(1)))
            .packet(
                at(31_000),
                meta(1),
                v3_query(host(1, 1), group(2).group, 10, &[]),
            );
        // A report holds as many offers as the buffer has room for.
        script.fits_packets_to_buffers = true;
        script
    };
    conformance::run(make).unwrap();
}

fn hierarchy_router(now: Instant) -> Router<'static> {
    let config = router::Config {
        policy: Policy::Hierarchy,
        ..router::Config::default()
    };
    let capacity = Capacity {
        entries: 8,
        neighbours: 8,
        peers: 4,
        branches: 8,
        interfaces: 8,
    };
    let storage = router::Storage::with_capacity(8, 64).with_hierarchy(capacity);
    let mut router = Router::new(config, storage, [1; 32], now);
    for iface in 0..4 {
        let config = InterfaceConfig::ipv4(host(iface, 1), 24);
        router.set_interface(now, Iface(iface), config).unwrap();
    }
    let below = [Iface(1), Iface(2), Iface(3)];
    router.install(now, group(1), UP, &below).unwrap();
    router
}

#[test]
fn lms_router() {
    let hold = Duration::from_secs(35);
    let offer = |sequence, cost| update(host(2, 8), sequence, hold, &[offer(group(1), cost)]);
    let make = || {
        let mut script = script(hierarchy_router, 6, 4)
            .packet(at(50), meta(1), is_in(host(1, 7), group(1), 6))
            .packet(at(1_000), meta(2), offer(1, 3))
            .packet(at(9_000), meta(2), offer(2, 9))
            .packet(at(12_000), meta(1), is_in(host(1, 7), group(1), 0xffff))
            .command(at(20_000), |router, now| {
                let below = [Iface(1)];
                router.install(now, group(2), UP, &below).unwrap();
            })
            .packet(at(21_000), meta(1), is_in(host(1, 9), group(2), 2));
        script.fits_packets_to_buffers = true;
        script
    };
    conformance::run(make).unwrap();
}

fn lone_hierarchy(now: Instant) -> Hierarchy<'static> {
    let mut h = hierarchy(hier::Config::default(), CAPACITY);
    h.install(now, group(1), UP).unwrap();
    h.install(now, group(2), Iface(1)).unwrap();
    h
}

#[test]
fn lms_hierarchy() {
    let hold = Duration::from_secs(35);
    let offer = |sequence, cost| update(host(2, 8), sequence, hold, &[offer(group(1), cost)]);
    let make = || {
        let mut script = script(lone_hierarchy, 6, 4)
            .packet(at(50), meta(1), is_in(host(1, 7), group(1), 6))
            .packet(at(1_000), meta(2), offer(1, 3))
            .packet(at(9_000), meta(2), offer(2, 9))
            .packet(at(12_000), meta(1), is_in(host(1, 7), group(1), 0xffff))
            .command(at(20_000), |h, now| h.remove(now, group(2)))
            .packet(at(21_000), meta(3), is_in(host(3, 9), group(1), 2))
            .command(at(25_000), |h, now| h.remove_interface(now, Iface(3)));
        script.fits_packets_to_buffers = true;
        script
    };
    conformance::run(make).unwrap();
}
