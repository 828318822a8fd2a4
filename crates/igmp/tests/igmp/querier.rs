//! The router's side (RFC 3376 §6, §7.3; RFC 9777 §7, §8.3).

use igmp::wire::{Code, Message, Query, RecordType};
use igmp::{Config, DropReason, Event, Family, FilterMode, ResponseCode, Role, Storage};
use igmp::{Duration, Instant};
use proptest::prelude::*;

use super::Addr;
use super::common::*;
use crate::packets::Addresses;

use FilterMode::{Exclude, Include};
use RecordType::{
    AllowNewSources, BlockOldSources, ChangeToExclude, ChangeToInclude, ModeIsExclude,
    ModeIsInclude,
};

const GMI: u64 = 260_000;
const LMQT: u64 = 2_000;

fn hear(q: &mut Querier<'_>, now: Instant, kind: RecordType, sources: &[u8]) {
    let iface = q.config().iface.0;
    q.handle_packet(
        now,
        &meta(iface),
        &v3_report(host(iface, 77), kind, sources),
    )
    .unwrap();
}

fn names(q: &Querier<'_>, wanted: bool) -> Vec<u8> {
    let mut names: Vec<u8> = q.sources(GROUP, wanted).map(Addr::number).collect();
    names.sort();
    names
}

/// INCLUDE {1, 2}, or EXCLUDE ({1, 2}, {3, 4}).
fn in_state(mode: FilterMode) -> Querier<'static> {
    let mut q = querier(1);
    run_querier(&mut q, ms(100));
    if mode == Exclude {
        hear(&mut q, ms(100), ModeIsExclude, &[3, 4]);
    }
    hear(&mut q, ms(100), ModeIsInclude, &[1, 2]);
    while q.poll_event().is_some() {}
    q
}

/// A line of the tables of RFC 3376 §6.4.1 and §6.4.2, for a group in [`in_state`].
struct Line {
    before: FilterMode,
    record: (RecordType, &'static [u8]),
    /// The new mode, the sources that are wanted, and those that are not.
    after: (FilterMode, &'static [u8], &'static [u8]),
    /// The sources that queries ask about.
    asked: &'static [u8],
    asks_group: bool,
}

const LINES: [Line; 12] = [
    Line {
        before: Include,
        record: (ModeIsInclude, &[2, 5]),
        after: (Include, &[1, 2, 5], &[]),
        asked: &[],
        asks_group: false,
    },
    Line {
        before: Include,
        record: (ModeIsExclude, &[2, 5]),
        after: (Exclude, &[2], &[5]),
        asked: &[],
        asks_group: false,
    },
    Line {
        before: Exclude,
        record: (ModeIsInclude, &[2, 3, 5]),
        after: (Exclude, &[1, 2, 3, 5], &[4]),
        asked: &[],
        asks_group: false,
    },
    Line {
        before: Exclude,
        record: (ModeIsExclude, &[2, 3, 5]),
        after: (Exclude, &[2, 5], &[3]),
        asked: &[],
        asks_group: false,
    },
    Line {
        before: Include,
        record: (AllowNewSources, &[2, 5]),
        after: (Include, &[1, 2, 5], &[]),
        asked: &[],
        asks_group: false,
    },
    Line {
        before: Include,
        record: (BlockOldSources, &[2, 5]),
        after: (Include, &[1, 2], &[]),
        asked: &[2],
        asks_group: false,
    },
    Line {
        before: Include,
        record: (ChangeToExclude, &[2, 5]),
        after: (Exclude, &[2], &[5]),
        asked: &[2],
        asks_group: false,
    },
    Line {
        before: Include,
        record: (ChangeToInclude, &[2, 5]),
        after: (Include, &[1, 2, 5], &[]),
        asked: &[1],
        asks_group: false,
    },
    Line {
        before: Exclude,
        record: (AllowNewSources, &[2, 3, 5]),
        after: (Exclude, &[1, 2, 3, 5], &[4]),
        asked: &[],
        asks_group: false,
    },
    Line {
        before: Exclude,
        record: (BlockOldSources, &[2, 3, 5]),
        after: (Exclude, &[1, 2, 5], &[3, 4]),
        asked: &[2, 5],
        asks_group: false,
    },
    Line {
        before: Exclude,
        record: (ChangeToExclude, &[2, 3, 5]),
        after: (Exclude, &[2, 5], &[3]),
        asked: &[2, 5],
        asks_group: false,
    },
    Line {
        before: Exclude,
        record: (ChangeToInclude, &[2, 3, 5]),
        after: (Exclude, &[1, 2, 3, 5], &[4]),
        asked: &[1],
        asks_group: true,
    },
];

fn check_line(line: &Line) {
    let (kind, sources) = line.record;
    let case = format!("{:?} {kind:?}", line.before);
    let mut q = in_state(line.before);
    hear(&mut q, ms(10_000), kind, sources);
    let (mode, wanted, unwanted) = line.after;
    assert_eq!(q.mode(GROUP), mode, "{case}");
    assert_eq!(names(&q, true), wanted, "{case}");
    assert_eq!(names(&q, false), unwanted, "{case}");
    let queries = ask(&mut q, ms(10_000));
    let sources: Vec<_> = line.asked.iter().map(|n| source(*n)).collect();
    let mut expected = Vec::new();
    if line.asks_group {
        expected.push((GROUP, vec![], false, GROUP));
    }
    if !line.asked.is_empty() {
        expected.push((GROUP, sources, false, GROUP));
    }
    assert_eq!(queries, expected, "{case}");
    // Asked again once (robustness 2); then unanswered sources are removed.
    let again = run_querier(&mut q, ms(10_000 + LMQT - 1));
    assert_eq!(again.len(), expected.len(), "{case}");
    assert!(again.iter().all(|(at, _)| *at == ms(11_000)), "{case}");
    run_querier(&mut q, ms(10_000 + LMQT));
    for n in line.asked {
        assert!(
            !names(&q, true).contains(n),
            "{case}: {n} is not wanted any more"
        );
    }
    if line.asks_group {
        assert_eq!(q.mode(GROUP), Include, "{case}");
    }
    // Everything else is forgotten after the group membership interval.
    run_querier(&mut q, ms(10_000 + GMI));
    while q.poll_event().is_some() {}
    assert_eq!(q.group_count(), 0, "{case}");
}

#[test]
fn state_tables() {
    for line in &LINES {
        check_line(line);
    }
}

#[test]
fn answer_keeps_what_a_leave_put_in_doubt() {
    let mut q = in_state(Include);
    hear(&mut q, ms(10_000), BlockOldSources, &[1, 2]);
    ask(&mut q, ms(10_000));
    hear(&mut q, ms(10_500), ModeIsInclude, &[2]);
    let again = run_querier(&mut q, ms(11_000));
    // 2 was reported: its query continues with the suppress flag, apart from that of 1 (§6.6.3.2).
    let asked: Vec<_> = again.into_iter().map(|(_, asked)| asked).collect();
    let expected = [
        (GROUP, vec![source(2)], true, GROUP),
        (GROUP, vec![source(1)], false, GROUP),
    ];
    assert_eq!(asked, expected);
    run_querier(&mut q, ms(13_000));
    assert_eq!(names(&q, true), [2]);
    assert!(q.wants(source(2), GROUP) && !q.wants(source(1), GROUP));
}

#[test]
fn excluded_sources_are_not_wanted_and_all_others_are() {
    let q = in_state(Exclude);
    assert!(q.wants(source(1), GROUP), "somebody asked for it");
    assert!(
        !q.wants(source(3), GROUP),
        "somebody excludes it and nobody asked"
    );
    assert!(q.wants(source(9), GROUP), "nothing was said of it");
    assert!(!q.wants(source(9), other()), "nobody listens");
}

#[test]
fn general_queries_at_start_and_then_at_the_interval() {
    let mut q = querier(1);
    let sent = run_querier(&mut q, ms(300_000));
    let times: Vec<_> = sent.iter().map(|(at, _)| at.total_millis()).collect();
    assert_eq!(times, [0, 31_250, 156_250, 281_250]);
    let general = (ANY, vec![], false, ALL_SYSTEMS);
    assert!(sent.iter().all(|(_, asked)| *asked == general));
}

/// The interface of [`querier`], where the router has the address of neighbour `n`.
fn readdressed(n: u8) -> igmp::InterfaceConfig<Addr> {
    igmp::InterfaceConfig {
        address: host(1, n),
        link_local: host(1, n),
        ..Addr::interface(1)
    }
}

#[test]
fn groups_survive_another_address() {
    let mut q = in_state(Exclude);
    let general = (ANY, vec![], false, ALL_SYSTEMS);
    assert_eq!(ask(&mut q, ms(100)), []);
    // Queries come from the same address: the link sees no difference.
    let turning_point = igmp::InterfaceConfig {
        address: host(2, 9),
        ..Addr::interface(1)
    };
    q.set_interface(ms(200), turning_point);
    assert_eq!(ask(&mut q, ms(200)), []);
    // They come from another one, which hosts and other routers learn at once.
    q.set_interface(ms(300), readdressed(5));
    assert_eq!(ask(&mut q, ms(300)), [general]);
    assert_eq!(names(&q, true), [1, 2]);
    assert_eq!((q.mode(GROUP), q.group_count()), (Exclude, 1));
    let own = v3_query(host(1, 5), ANY, 100, &[]);
    let refused = q.handle_packet(ms(400), &meta(1), &own);
    assert_eq!(refused, Err(DropReason::OwnAddress));
}

#[test]
fn another_address_may_win_the_election() {
    let general = (ANY, vec![], false, ALL_SYSTEMS);
    for (own, wins) in [(5, false), (2, true)] {
        let mut q = querier(1);
        run_querier(&mut q, ms(10));
        let rival = v3_query(host(1, 3), ANY, 100, &[]);
        q.handle_packet(ms(30), &meta(1), &rival).unwrap();
        assert!(matches!(q.role(), Role::NonQuerier { .. }));
        q.set_interface(ms(40), readdressed(own));
        assert_eq!(q.role() == Role::Querier, wins);
        let asked = ask(&mut q, ms(40));
        assert_eq!(asked, if wins { vec![general.clone()] } else { vec![] });
    }
}

#[test]
fn lower_address_is_the_querier_until_it_falls_silent() {
    let mut q = querier(1);
    run_querier(&mut q, ms(10));
    let general = |n| v3_query(host(1, n), ANY, 100, &[]);
    q.handle_packet(ms(20), &meta(1), &general(11)).unwrap();
    assert_eq!(q.role(), Role::Querier, "a higher address does not count");
    q.handle_packet(ms(30), &meta(1), &general(3)).unwrap();
    let until = ms(30 + 255_000);
    let role = Role::NonQuerier {
        querier: host(1, 3),
        until,
    };
    assert_eq!((q.role(), q.poll_event()), (role, Some(Event::Role(role))));
    q.handle_packet(ms(40), &meta(1), &general(9)).unwrap();
    assert_eq!(q.role(), role, "9 is not lower than 3");
    // Not the querier: leaves ask nothing, the querier's own query lowers the timers.
    hear(&mut q, ms(50), ModeIsExclude, &[]);
    hear(&mut q, ms(60), ChangeToInclude, &[]);
    assert!(run_querier(&mut q, ms(200_000)).is_empty());
    assert_eq!(q.mode(GROUP), Exclude);
    q.handle_packet(ms(200_000), &meta(1), &v3_query(host(1, 3), GROUP, 10, &[]))
        .unwrap();
    run_querier(&mut q, ms(200_000 + LMQT));
    assert_eq!(q.mode(GROUP), Include);
    // It asked at 200 s for the last time.
    let sent = run_querier(&mut q, ms(600_000));
    assert_eq!(
        (sent[0].0, q.role()),
        (ms(200_000 + 255_000), Role::Querier)
    );
}

#[test]
fn older_hosts() {
    let mut q = querier(1);
    run_querier(&mut q, ms(10));
    let say = |q: &mut Querier<'_>, at: u64, message: Message<'_, Addr>| {
        q.handle_packet(ms(at), &meta(1), &whole(host(1, 50), GROUP, &message))
            .unwrap();
    };
    say(&mut q, 10, Message::V2Report(GROUP));
    assert_eq!((q.mode(GROUP), q.wants(source(1), GROUP)), (Exclude, true));
    // While a version 2 host is there, others cannot block sources for it (§7.3.2).
    hear(&mut q, ms(20), BlockOldSources, &[1]);
    hear(&mut q, ms(30), ChangeToExclude, &[1]);
    assert!(q.wants(source(1), GROUP) && names(&q, false).is_empty());
    assert!(ask(&mut q, ms(30)).is_empty());
    say(&mut q, 40, Message::V2Leave(GROUP));
    assert_eq!(ask(&mut q, ms(40)).len(), 1);
    if Addr::OLDER_VERSIONS < 2 {
        return;
    }
    // In version 1 a host leaves only by silence.
    say(&mut q, 50, Message::V1Report(GROUP));
    say(&mut q, 60, Message::V2Leave(GROUP));
    hear(&mut q, ms(60), ChangeToInclude, &[]);
    run_querier(&mut q, ms(10_000));
    assert_eq!(q.mode(GROUP), Exclude);
    run_querier(&mut q, ms(50 + GMI));
    assert_eq!(q.mode(GROUP), Include);
}

#[test]
fn refused_and_counted() {
    let mut q = in_state(Include);
    let good = v3_report(host(1, 77), ModeIsExclude, &[]);
    let mut ttl = good.clone();
    Addr::set_ttl(&mut ttl, 2);
    let mut broken = good.clone();
    *broken.last_mut().unwrap() ^= 1;
    let v2_query = Query {
        group: ANY,
        max_response: <Addr as Family>::ResponseCode::from_time(Duration::from_secs(10)),
        v3: None,
    };
    let older = whole(host(1, 3), ALL_SYSTEMS, &Message::Query(v2_query));
    let local = whole(host(1, 3), GROUP, &Message::V2Report(Addr::LOCAL_GROUP));
    let cases = [
        (meta(2), good.clone(), DropReason::WrongInterface, true),
        (meta(1), ttl, DropReason::Ttl, true),
        (meta(1), broken, DropReason::Malformed, true),
        (
            meta(1),
            v3_report(Addr::FOREIGN, ModeIsExclude, &[]),
            DropReason::WrongSubnet,
            true,
        ),
        (
            meta(1),
            v3_report(host(1, 10), ModeIsExclude, &[]),
            DropReason::OwnAddress,
            true,
        ),
        (meta(1), older, DropReason::OlderQuery, true),
        (meta(1), local, DropReason::LinkLocalGroup, false),
    ];
    for (meta, packet, reason, is_whole) in cases {
        let before = *q.stats();
        let result = q.handle_packet(ms(200), &meta, &packet);
        assert_eq!(result.is_err(), is_whole, "{reason}");
        assert_eq!(q.stats().drops.get(reason), before.drops.get(reason) + 1);
        assert_eq!(
            (q.mode(GROUP), names(&q, true)),
            (Include, vec![1, 2]),
            "{reason}"
        );
        assert_eq!(
            (q.role(), q.poll_event(), q.group_count()),
            (Role::Querier, None, 1)
        );
    }
    let mut refused = 0;
    for _ in 0..5_000 {
        refused += u32::from(q.handle_packet(ms(300), &meta(1), &good).is_err());
    }
    assert!(refused >= 900 && q.stats().drops.get(DropReason::Rate) == u64::from(refused));
    // No address yet: reports count all the same in IPv4 (§4.2.13), but not in IPv6 (RFC 9777 §5.2.14).
    let mut q = querier(1);
    let anonymous = v3_report(ANY, ModeIsExclude, &[]);
    let result = q.handle_packet(ms(5_000), &meta(1), &anonymous);
    let mode = match Addr::BITS {
        32 => Exclude,
        _ => Include,
    };
    assert_eq!((result.is_ok(), q.mode(GROUP)), (mode == Exclude, mode));
}

#[test]
fn bounds_hold_and_are_counted() {
    let config = Config {
        sources_per_group: 3,
        ..config_of(1)
    };
    let mut q = Querier::new(config, Storage::owned(1, 8), [5; 32], ms(0));
    hear(&mut q, ms(0), ModeIsInclude, &[1, 2, 3, 4, 5]);
    assert_eq!(q.sources(GROUP, true).count(), 3);
    assert_eq!(q.stats().drops.get(DropReason::SourcesFull), 2);
    let other = Message::V2Report(other());
    q.handle_packet(ms(0), &meta(1), &whole(host(1, 50), GROUP, &other))
        .unwrap();
    assert_eq!(
        (q.group_count(), q.stats().drops.get(DropReason::GroupsFull)),
        (1, 1)
    );
}

#[test]
fn robustness_and_interval_of_the_querier_count() {
    let mut q = querier(2);
    run_querier(&mut q, ms(0));
    // QRV 7, QQIC 20 s: 7 x 20 s + 10 s until a report is forgotten.
    let packet = query_of(host(2, 3), ANY, 100, &[], 7, Code(20));
    q.handle_packet(ms(0), &meta(2), &packet).unwrap();
    hear(&mut q, ms(0), ModeIsExclude, &[]);
    run_querier(&mut q, ms(149_999));
    assert_eq!(q.mode(GROUP), Exclude);
    run_querier(&mut q, ms(150_000));
    assert_eq!(q.mode(GROUP), Include);
}

/// RFC 3376 §6.4 with sets, and timers that are looked at and never scheduled.
#[derive(Default)]
struct Oracle {
    excludes_until: Option<Instant>,
    running: std::collections::BTreeMap<u8, Instant>,
    stopped: std::collections::BTreeSet<u8>,
}

impl Oracle {
    fn pass(&mut self, now: Instant) {
        let excludes = self.excludes_until;
        let ran_out: Vec<u8> = self
            .running
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(n, _)| *n)
            .collect();
        for n in ran_out {
            let at = self.running.remove(&n).unwrap();
            if excludes.is_some_and(|until| at <= until) {
                self.stopped.insert(n);
            }
        }
        if excludes.is_some_and(|until| until <= now) {
            self.excludes_until = None;
            self.stopped.clear();
        }
    }

    fn hear(&mut self, now: Instant, kind: RecordType, record: &[u8]) {
        let full = now + Duration::from_millis(GMI);
        match kind {
            ModeIsInclude | AllowNewSources => {
                for n in record {
                    self.stopped.remove(n);
                    self.running.insert(*n, full);
                }
            }
            ModeIsExclude => {
                let is_new = self.excludes_until.is_none();
                self.running.retain(|n, _| record.contains(n));
                self.stopped.retain(|n| record.contains(n));
                for n in record {
                    let is_known = self.running.contains_key(n) || self.stopped.contains(n);
                    match (is_known, is_new) {
                        (true, _) => {}
                        (false, true) => drop(self.stopped.insert(*n)),
                        (false, false) => drop(self.running.insert(*n, full)),
                    }
                }
                self.excludes_until = Some(full);
            }
            _ => unreachable!("leaves are the tables' own test"),
        }
    }
}

proptest! {
    #[test]
    fn current_state_records_agree_with_the_oracle(
        steps in prop::collection::vec(
            (0usize..3, prop::collection::vec(1u8..8, 0..4), 0u64..150_000), 0..60),
    ) {
        let mut q = querier(1);
        let mut oracle = Oracle::default();
        let mut now = ms(0);
        for (kind, record, wait) in steps {
            let kind = [ModeIsInclude, ModeIsExclude, AllowNewSources][kind];
            now += Duration::from_millis(wait);
            run_querier(&mut q, now);
            oracle.pass(now);
            hear(&mut q, now, kind, &record);
            oracle.hear(now, kind, &record);
            while q.poll_event().is_some() {}
            prop_assert_eq!(q.mode(GROUP) == Exclude, oracle.excludes_until.is_some());
            prop_assert_eq!(names(&q, true), oracle.running.keys().copied().collect::<Vec<_>>());
            prop_assert_eq!(names(&q, false), oracle.stopped.iter().copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn any_reports_stay_within_bounds_and_are_forgotten(
        steps in prop::collection::vec(
            (1u8..8, 0u8..4, prop::collection::vec(1u8..40, 0..12), 0u64..20_000), 0..80),
    ) {
        let config = Config { sources_per_group: 10, ..config_of(1) };
        let mut q = Querier::new(config, Storage::owned(2, 12), [5; 32], ms(0));
        let mut now = ms(0);
        for (kind, group, sources, wait) in steps {
            now += Duration::from_millis(wait);
            run_querier(&mut q, now);
            let group = Addr::group(group.into());
            let packet = report_of(host(1, 77), group, RecordType::from(kind), &sources);
            let _ = q.handle_packet(now, &meta(1), &packet);
            prop_assert!(q.group_count() <= 2);
        }
        run_querier(&mut q, now + Duration::from_millis(2 * GMI));
        while q.poll_event().is_some() {}
        prop_assert_eq!(q.group_count(), 0);
    }
}
