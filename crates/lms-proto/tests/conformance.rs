//! Each machine keeps the contract of `proto_core::Machine`, over IPv4 and IPv6.

#[path = "hier/common.rs"]
#[allow(dead_code, reason = "shared with the tests of LMS-HIER")]
mod common;
#[path = "../../igmp/tests/igmp/packets.rs"]
#[allow(dead_code, reason = "shared with the tests of LMS-HIER")]
mod igmp_common;

use core::net::{Ipv4Addr, Ipv6Addr};

use lms_proto::endpoint::{self, Endpoint};
use lms_proto::hier::{self, Capacity, Cost, Hierarchy};
use lms_proto::router::{self, Policy, Router};
use lms_proto::wire::hier::{Entry, Kind};
use lms_proto::{Duration, Iface, Instant, Key, Transmit};
use netsim::conformance::{self, Script};
use proto_core::Machine;

use crate::common::*;
use crate::igmp_common::*;

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn script<M, A>(machine: fn(Instant) -> M, min_sent: usize, min_events: usize) -> Script<M>
where
    M: Machine<Meta = lms_proto::Meta, Transmit = Transmit<A>>,
{
    let mut script = Script::new(machine, |transmit: &Transmit<A>| transmit.len);
    (script.min_sent, script.min_events) = (min_sent, min_events);
    script
}

fn key<A: Net>(n: u32) -> Key<A> {
    Key::new(Addresses::source(1), A::group(n))
}

fn host_endpoint<A: Net>(now: Instant) -> Endpoint<'static, A> {
    let config = endpoint::Config::new(Iface(1), A::neighbour(1, 7));
    Endpoint::new(config, endpoint::Storage::owned(8), [3; 32], now)
}

/// What the router of link 1 says of a group.
fn announce<A: Net>(sequence: u32, key: Key<A>, elected: Option<u8>) -> Vec<u8> {
    let entry = Entry {
        key,
        neighbour: elected.map(|n| A::host(1, n)),
        cost: elected.map_or(Cost::WITHDRAWN, |_| Cost(1)),
    };
    let header = header(Kind::Elected, sequence, Duration::from_secs(35));
    hier_packet(A::host(1, 1), header, &[entry])
}

fn lms_endpoint<A: Net>() {
    let make = || {
        let mut script = script(host_endpoint::<A>, 6, 3)
            .command(at(5), |e, now| e.join(now, key(1), Cost(3)).unwrap())
            .command(at(7), |e, now| e.join(now, key(2), Cost(1)).unwrap())
            .packet(at(100), meta(1), announce::<A>(1, key(1), Some(7)))
            .packet(at(200), meta(1), announce::<A>(2, key(2), Some(9)))
            .packet(
                at(2_000),
                meta(1),
                v3_query(A::host(1, 1), A::UNSPECIFIED, 20, &[]),
            )
            .packet(at(9_000), meta(1), announce::<A>(3, key(1), None))
            .packet(at(12_000), meta(1), announce::<A>(4, key(2), Some(7)))
            .command(at(30_000), |e, now| e.leave(now, key(1)))
            .packet(
                at(31_000),
                meta(1),
                v3_query(A::host(1, 1), A::group(2), 10, &[]),
            );
        // A report holds as many offers as the buffer has room for.
        script.fits_packets_to_buffers = true;
        script
    };
    conformance::run(make).unwrap();
}

fn hierarchy_router<A: Net>(now: Instant) -> Router<'static, A> {
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
        router
            .set_interface(now, Iface(iface), A::neighbour(iface, 1))
            .unwrap();
    }
    let below = [Iface(1), Iface(2), Iface(3)];
    router.install(now, key(1), UP, &below).unwrap();
    router
}

fn lms_router<A: Net>() {
    let hold = Duration::from_secs(35);
    let offer = |sequence, cost| update(A::host(2, 8), sequence, hold, &[offer(key(1), cost)]);
    let make = || {
        let mut script = script(hierarchy_router::<A>, 6, 4)
            .packet(at(50), meta(1), is_in(A::host(1, 7), key(1), 6))
            .packet(at(1_000), meta(2), offer(1, 3))
            .packet(at(9_000), meta(2), offer(2, 9))
            .packet(at(12_000), meta(1), is_in(A::host(1, 7), key(1), 0xffff))
            .command(at(20_000), |router, now| {
                let below = [Iface(1)];
                router.install(now, key(2), UP, &below).unwrap();
            })
            .packet(at(21_000), meta(1), is_in(A::host(1, 9), key(2), 2));
        script.fits_packets_to_buffers = true;
        script
    };
    conformance::run(make).unwrap();
}

fn lone_hierarchy<A: Net>(now: Instant) -> Hierarchy<'static, A> {
    let mut h = hierarchy_of(hier::Config::default(), CAPACITY);
    h.install(now, key(1), UP).unwrap();
    h.install(now, key(2), Iface(1)).unwrap();
    h
}

fn lms_hierarchy<A: Net>() {
    let hold = Duration::from_secs(35);
    let offer = |sequence, cost| update(A::host(2, 8), sequence, hold, &[offer(key(1), cost)]);
    let make = || {
        let mut script = script(lone_hierarchy::<A>, 6, 4)
            .packet(at(50), meta(1), is_in(A::host(1, 7), key(1), 6))
            .packet(at(1_000), meta(2), offer(1, 3))
            .packet(at(9_000), meta(2), offer(2, 9))
            .packet(at(12_000), meta(1), is_in(A::host(1, 7), key(1), 0xffff))
            .command(at(20_000), |h, now| h.remove(now, key(2)))
            .packet(at(21_000), meta(3), is_in(A::host(3, 9), key(1), 2))
            .command(at(25_000), |h, now| h.remove_interface(now, Iface(3)));
        script.fits_packets_to_buffers = true;
        script
    };
    conformance::run(make).unwrap();
}

/// A test of each machine of a family.
macro_rules! machines {
    ($($family:ident: $address:ty;)+) => {$(
        mod $family {
            use super::*;

            #[test]
            fn lms_endpoint() {
                super::lms_endpoint::<$address>();
            }

            #[test]
            fn lms_router() {
                super::lms_router::<$address>();
            }

            #[test]
            fn lms_hierarchy() {
                super::lms_hierarchy::<$address>();
            }
        }
    )+};
}

machines! {
    ipv4: Ipv4Addr;
    ipv6: Ipv6Addr;
}
