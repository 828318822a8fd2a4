//! Each machine keeps the contract of `proto_core::Machine`.

use igmp::wire::{Message, RecordType};
use igmp::{Duration, Family, FilterMode, Instant, Meta, Storage};
use netsim::conformance::{self, Script};
use proto_core::Machine;

use super::Addr;
use super::common::*;

type Transmit = igmp::Transmit<Addr>;

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn script<M>(machine: fn(Instant) -> M, min_sent: usize, min_events: usize) -> Script<M>
where
    M: Machine<Meta = Meta, Transmit = Transmit>,
{
    let mut script = Script::new(machine, |transmit: &Transmit| transmit.len);
    (script.min_sent, script.min_events) = (min_sent, min_events);
    script
}

fn querier_of(iface: u16, now: Instant) -> Querier<'static> {
    let config = config_of(iface);
    Querier::new(config, Storage::owned(16, 64), [5; 32], now)
}

fn member_of(iface: u16, now: Instant) -> Member<'static> {
    let config = config_of(iface);
    Member::new(config, Storage::owned(8, 64), [6; 32], now)
}

#[test]
fn querier() {
    use RecordType::{BlockOldSources, ChangeToInclude, ModeIsExclude, ModeIsInclude};
    let leave = whole(
        host(1, 22),
        Addr::LEAVE_DESTINATION,
        &Message::V2Leave(GROUP),
    );
    let v2 = whole(host(1, 22), GROUP, &Message::V2Report(GROUP));
    let make = || {
        script(|now| querier_of(1, now), 4, 6)
            .packet(at(100), meta(1), v3_report(host(1, 20), ModeIsExclude, &[]))
            .packet(
                at(250),
                meta(1),
                v3_report(host(1, 21), ModeIsInclude, &[1, 2]),
            )
            .packet(at(900), meta(1), v2.clone())
            .packet(
                at(2_000),
                meta(1),
                v3_report(host(1, 21), BlockOldSources, &[2]),
            )
            .packet(at(4_000), meta(1), leave.clone())
            .packet(
                at(6_000),
                meta(1),
                v3_report(host(1, 20), ChangeToInclude, &[]),
            )
            // A rival with a lower address, which falls silent.
            .packet(at(20_000), meta(1), v3_query(host(1, 2), ANY, 100, &[]))
            .packet(at(21_000), meta(1), v3_query(host(1, 2), GROUP, 10, &[]))
    };
    conformance::run(make).unwrap();
}

#[test]
fn member() {
    let make = || {
        script(|now| member_of(0, now), 6, 0)
            .command(at(10), |member, now| member.join(now, GROUP).unwrap())
            .command(at(2_500), |member, now| {
                let sources = [source(1), source(2)].into_iter();
                let group = other();
                member
                    .set(now, group, FilterMode::Include, sources)
                    .unwrap();
            })
            .packet(at(5_000), meta(0), v3_query(host(0, 1), ANY, 100, &[]))
            .packet(at(17_000), meta(0), v3_query(host(0, 1), GROUP, 10, &[]))
            .packet(
                at(19_000),
                meta(0),
                v3_query(host(0, 1), GROUP, 10, &[1, 3]),
            )
            .command(at(25_000), |member, now| member.leave(now, GROUP))
            .packet(at(27_000), meta(0), v3_query(host(0, 1), ANY, 20, &[]))
    };
    conformance::run(make).unwrap();
}

#[test]
fn proxy() {
    use RecordType::{ChangeToInclude, ModeIsExclude, ModeIsInclude};
    let machine = |now| {
        let queriers = vec![querier_of(1, now), querier_of(2, now)];
        Proxy::new(member_of(0, now), queriers.into(), now)
    };
    let make = || {
        script(machine, 8, 4)
            .packet(at(100), meta(1), v3_report(host(1, 20), ModeIsExclude, &[]))
            .packet(
                at(300),
                meta(2),
                v3_report(host(2, 20), ModeIsInclude, &[1, 2]),
            )
            .packet(at(3_000), meta(0), v3_query(host(0, 1), ANY, 20, &[]))
            .packet(
                at(6_000),
                meta(1),
                v3_report(host(1, 20), ChangeToInclude, &[]),
            )
            .packet(at(9_000), meta(2), v3_query(host(2, 2), ANY, 20, &[]))
    };
    conformance::run(make).unwrap();
}
