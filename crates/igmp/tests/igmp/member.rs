//! The host's side (RFC 3376 §5, §7.2; RFC 9777 §6, §8.2) and the proxy between both (RFC 4605).

use igmp::wire::{Message, Query, RecordType};
use igmp::{DropReason, FilterMode, ProxyEvent, Role, Storage};
use igmp::{Duration, Family, Iface, Instant, Key, ResponseCode};

use super::Addr;
use super::common::*;
use crate::packets::Addresses;

use RecordType::{
    AllowNewSources, BlockOldSources, ChangeToExclude, ChangeToInclude, ModeIsExclude,
    ModeIsInclude,
};

type Said = (RecordType, Addr, Vec<u8>);

fn member() -> Member<'static> {
    Member::new(config_of(0), Storage::owned(8, 64), [6; 32], ms(0))
}

fn read_report(packet: &[u8]) -> Vec<Said> {
    match read(packet).0 {
        Message::V3Report(records) => records
            .iter()
            .map(|r| {
                let mut sources: Vec<u8> = r.sources.iter().map(Addr::number).collect();
                sources.sort();
                (r.kind, r.group, sources)
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn say(m: &mut Member<'_>, now: Instant) -> Vec<Said> {
    let mut buffer = [0; 1500];
    let mut said = Vec::new();
    while let Some(transmit) = m.poll_transmit(now, &mut buffer) {
        said.extend(read_report(&buffer[..transmit.len]));
    }
    said
}

fn run(m: &mut Member<'_>, end: Instant) -> Vec<(Instant, Said)> {
    let mut all = Vec::new();
    while let Some(at) = m.poll_timeout().filter(|at| *at <= end) {
        m.handle_timeout(at);
        all.extend(say(m, at).into_iter().map(|said| (at, said)));
    }
    all
}

fn sources(list: &[u8]) -> impl Iterator<Item = Addr> {
    list.iter().map(|n| source(*n))
}

#[test]
fn changes_are_told_twice() {
    let mut m = member();
    let told = |m: &mut Member<'_>, at: u64| -> Vec<Said> {
        let said = run(m, ms(at + 1_000));
        assert_eq!((said.len(), said[0].0), (2, ms(at)));
        assert_eq!(said[0].1, said[1].1);
        said.into_iter().map(|(_, said)| said).take(1).collect()
    };
    m.join(ms(0), GROUP).unwrap();
    assert_eq!(told(&mut m, 0), [(ChangeToExclude, GROUP, vec![])]);
    m.set(ms(2_000), GROUP, FilterMode::Exclude, sources(&[1, 2]))
        .unwrap();
    assert_eq!(told(&mut m, 2_000), [(BlockOldSources, GROUP, vec![1, 2])]);
    m.set(ms(4_000), GROUP, FilterMode::Exclude, sources(&[1]))
        .unwrap();
    assert_eq!(told(&mut m, 4_000), [(AllowNewSources, GROUP, vec![2])]);
    m.set(ms(6_000), GROUP, FilterMode::Include, sources(&[1, 3]))
        .unwrap();
    assert_eq!(told(&mut m, 6_000), [(ChangeToInclude, GROUP, vec![1, 3])]);
    m.set(ms(8_000), GROUP, FilterMode::Include, sources(&[1, 3, 4]))
        .unwrap();
    assert_eq!(told(&mut m, 8_000), [(AllowNewSources, GROUP, vec![4])]);
    m.leave(ms(10_000), GROUP);
    assert_eq!(
        told(&mut m, 10_000),
        [(BlockOldSources, GROUP, vec![1, 3, 4])]
    );
    assert_eq!((m.group_count(), m.poll_timeout()), (0, None));
    m.set(ms(12_000), GROUP, FilterMode::Exclude, sources(&[1]))
        .unwrap();
    m.set(ms(12_000), GROUP, FilterMode::Exclude, sources(&[1]))
        .unwrap();
    run(&mut m, ms(14_000));
    m.set(ms(14_000), GROUP, FilterMode::Exclude, sources(&[1]))
        .unwrap();
    assert!(run(&mut m, ms(20_000)).is_empty(), "nothing changed");
}

#[test]
fn both_sorts_of_change_share_a_report() {
    let mut m = member();
    m.set(ms(0), GROUP, FilterMode::Include, sources(&[1, 2]))
        .unwrap();
    run(&mut m, ms(2_000));
    m.set(ms(2_000), GROUP, FilterMode::Include, sources(&[2, 3]))
        .unwrap();
    let said = say(&mut m, ms(2_000));
    let expected = [
        (AllowNewSources, GROUP, vec![3]),
        (BlockOldSources, GROUP, vec![1]),
    ];
    assert_eq!(said, expected);
}

#[test]
fn queries_are_answered_in_time() {
    let mut m = member();
    m.set(ms(0), GROUP, FilterMode::Include, sources(&[1, 2]))
        .unwrap();
    let other = other();
    m.set(ms(0), other, FilterMode::Exclude, sources(&[3]))
        .unwrap();
    run(&mut m, ms(5_000));
    let from = host(0, 3);
    m.handle_packet(ms(5_000), &meta(0), &v3_query(from, ANY, 100, &[]))
        .unwrap();
    let mut said: Vec<_> = run(&mut m, ms(15_000))
        .into_iter()
        .map(|(_, said)| said)
        .collect();
    said.sort_by_key(|(_, group, _)| *group);
    assert_eq!(
        said,
        [
            (ModeIsInclude, GROUP, vec![1, 2]),
            (ModeIsExclude, other, vec![3])
        ]
    );

    // Of one group; of a group and sources: those that are wanted, of those asked about.
    m.handle_packet(ms(20_000), &meta(0), &v3_query(from, GROUP, 10, &[]))
        .unwrap();
    let said = run(&mut m, ms(21_000));
    assert_eq!(said[0].1, (ModeIsInclude, GROUP, vec![1, 2]));
    m.handle_packet(ms(22_000), &meta(0), &v3_query(from, GROUP, 10, &[2, 9]))
        .unwrap();
    let said = run(&mut m, ms(23_000));
    assert_eq!(said[0].1, (ModeIsInclude, GROUP, vec![2]));
    m.handle_packet(ms(24_000), &meta(0), &v3_query(from, GROUP, 10, &[9]))
        .unwrap();
    assert!(run(&mut m, ms(25_000)).is_empty());
    m.handle_packet(ms(26_000), &meta(0), &v3_query(from, other, 10, &[3]))
        .unwrap();
    assert!(run(&mut m, ms(27_000)).is_empty(), "3 is excluded");
    m.handle_packet(ms(28_000), &meta(0), &v3_query(from, other, 10, &[4]))
        .unwrap();
    assert_eq!(
        run(&mut m, ms(29_000))[0].1,
        (ModeIsExclude, other, vec![3])
    );
    assert_eq!(m.poll_timeout(), None);
}

#[test]
fn older_querier_gets_older_reports() {
    let mut m = member();
    for version in [2u8, 1].into_iter().take(Addr::OLDER_VERSIONS) {
        let time = Duration::from_secs(if version == 2 { 2 } else { 0 });
        let max_response = <Addr as Family>::ResponseCode::from_time(time);
        let query = Query {
            group: ANY,
            max_response,
            v3: None,
        };
        let start = if version == 2 { 0 } else { 500_000 };
        let packet = whole(host(0, 3), ALL_SYSTEMS, &Message::Query(query));
        m.handle_packet(ms(start), &meta(0), &packet).unwrap();
        m.join(ms(start), GROUP).unwrap();
        let mut buffer = [0; 1500];
        let mut sent = Vec::new();
        while let Some(at) = m.poll_timeout().filter(|at| *at <= ms(start + 20_000)) {
            while let Some(transmit) = m.poll_transmit(at, &mut buffer) {
                sent.push(buffer[..transmit.len].to_vec());
            }
        }
        assert!(
            (2..=3).contains(&sent.len()),
            "two unsolicited, one answer: {}",
            sent.len()
        );
        let report = if version == 2 {
            Message::V2Report(GROUP)
        } else {
            Message::V1Report(GROUP)
        };
        for packet in &sent {
            assert_eq!(read(packet), (report, GROUP));
        }
        m.leave(ms(start + 30_000), GROUP);
        let mut leaves = 0;
        while let Some(at) = m.poll_timeout() {
            while let Some(transmit) = m.poll_transmit(at, &mut buffer) {
                let leave = (Message::V2Leave(GROUP), Addr::LEAVE_DESTINATION);
                assert_eq!(read(&buffer[..transmit.len]), leave);
                leaves += 1;
            }
        }
        assert_eq!(leaves, if version == 2 { 2 } else { 0 });
        assert_eq!(m.group_count(), 0);
    }
}

#[test]
fn members_bounds() {
    let mut m = Member::new(config_of(0), Storage::owned(1, 4), [6; 32], ms(0));
    m.join(ms(0), GROUP).unwrap();
    let other = other();
    assert_eq!(m.join(ms(0), other), Err(DropReason::GroupsFull));
    let many: Vec<u8> = (1..9).collect();
    let result = m.set(ms(0), GROUP, FilterMode::Include, sources(&many));
    assert_eq!(result, Err(DropReason::SourcesFull));
    assert_eq!(m.stats().drops.get(DropReason::SourcesFull), 4);
}

fn proxy() -> Proxy<'static> {
    let queriers: Vec<Querier<'static>> = [2, 1, 3].map(querier).into();
    let mut p = Proxy::new(member(), queriers.into(), ms(0));
    run_proxy(&mut p, ms(100));
    p
}

fn run_proxy(p: &mut Proxy<'_>, end: Instant) -> (Vec<ProxyEvent<Addr>>, Vec<Said>) {
    let mut buffer = [0; 1500];
    let (mut events, mut said) = (Vec::new(), Vec::new());
    let mut poll = |p: &mut Proxy<'_>, at: Instant| {
        events.extend(core::iter::from_fn(|| p.poll_event()));
        while let Some(transmit) = p.poll_transmit(at, &mut buffer) {
            if transmit.iface == Iface(0) {
                said.extend(read_report(&buffer[..transmit.len]));
            }
        }
    };
    poll(p, end - Duration::from_micros(1));
    while let Some(at) = p.poll_timeout().filter(|at| *at <= end) {
        p.handle_timeout(at);
        poll(p, at);
    }
    (events, said)
}

fn downstream(p: &Proxy<'_>, source: Addr) -> Vec<u16> {
    p.downstream(Key::new(source, GROUP))
        .map(|iface| iface.0)
        .collect()
}

#[test]
fn proxy_merges_what_is_wanted_below_and_asks_for_it_above() {
    let mut p = proxy();
    let hear = |p: &mut Proxy<'_>, at: u64, iface: u16, kind, sources: &[u8]| {
        run_proxy(p, ms(at - 1));
        let packet = v3_report(host(iface, 77), kind, sources);
        p.handle_packet(ms(at), &meta(iface), &packet).unwrap();
        let (events, said) = run_proxy(p, ms(at));
        assert!(events.contains(&ProxyEvent::Changed { group: GROUP }));
        said
    };
    assert_eq!(p.parent(), Iface(0));
    let said = hear(&mut p, 1_000, 1, AllowNewSources, &[1, 2]);
    assert_eq!(said[0], (AllowNewSources, GROUP, vec![1, 2]));
    assert_eq!(
        (downstream(&p, source(1)), downstream(&p, source(3))),
        (vec![1], vec![])
    );

    let said = hear(&mut p, 3_000, 2, AllowNewSources, &[2, 3]);
    assert_eq!(said[0], (AllowNewSources, GROUP, vec![3]));
    assert_eq!(downstream(&p, source(2)), [1, 2]);

    // EXCLUDE wins (RFC 4605 §4.1), but what interface 1 wants is not excluded.
    let said = hear(&mut p, 5_000, 3, ChangeToExclude, &[1, 7]);
    assert_eq!(said[0], (ChangeToExclude, GROUP, vec![7]));
    let wanted = [(1, vec![1]), (2, vec![1, 2, 3]), (7, vec![]), (9, vec![3])];
    for (n, ifaces) in wanted {
        assert_eq!(downstream(&p, source(n)), ifaces, "source {n}");
    }
    let shared: Vec<_> = p.downstream(Key::any_source(GROUP)).collect();
    assert_eq!(shared, [Iface(3)]);
    let mut named: Vec<u8> = p.sources(GROUP).map(Addr::number).collect();
    named.sort();
    named.dedup();
    assert_eq!((named, p.groups().count()), (vec![1, 2, 3, 7], 3));

    // Interface 3 leaves: asked, not answered, gone; upstream is told the list again.
    let leave = v3_report(host(3, 77), ChangeToInclude, &[]);
    p.handle_packet(ms(7_000), &meta(3), &leave).unwrap();
    let (events, said) = run_proxy(&mut p, ms(10_000));
    assert!(events.contains(&ProxyEvent::Changed { group: GROUP }));
    assert!(
        said.contains(&(ChangeToInclude, GROUP, vec![1, 2, 3])),
        "{said:?}"
    );
    assert_eq!(downstream(&p, source(9)), [0u16; 0]);
}

#[test]
fn proxy_forwards_only_where_it_is_the_querier() {
    let mut p = proxy();
    let packet = v3_report(host(1, 77), ModeIsExclude, &[]);
    p.handle_packet(ms(1_000), &meta(1), &packet).unwrap();
    assert_eq!(downstream(&p, source(1)), [1]);
    let query = v3_query(host(1, 2), ANY, 100, &[]);
    p.handle_packet(ms(2_000), &meta(1), &query).unwrap();
    let (events, _) = run_proxy(&mut p, ms(2_000));
    let is_role = |event: &ProxyEvent<Addr>| {
        matches!(
            event,
            ProxyEvent::Role {
                iface: Iface(1),
                role: Role::NonQuerier { .. }
            }
        )
    };
    assert!(events.iter().any(is_role));
    assert_eq!(downstream(&p, source(1)), [0u16; 0]);
    // Queries from upstream are the member's, and answered.
    let query = v3_query(host(0, 2), ANY, 10, &[]);
    p.handle_packet(ms(3_000), &meta(0), &query).unwrap();
    let (_, said) = run_proxy(&mut p, ms(4_000));
    assert!(said.contains(&(ModeIsExclude, GROUP, vec![])));
}

#[test]
fn proxy_takes_interfaces_that_come_and_lets_go_of_those_that_leave() {
    let mut p = proxy();
    let (upstream, at) = (p.upstream().group_count(), ms(300));
    assert_eq!(upstream, 0);
    assert!(p.add_downstream(at, querier(4)).is_none());
    let packet = v3_report(host(4, 77), RecordType::ChangeToExclude, &[]);
    p.handle_packet(ms(400), &meta(4), &packet).unwrap();
    run_proxy(&mut p, ms(500));
    assert_eq!(downstream(&p, source(1)), [4]);
    assert_eq!(p.upstream().group_count(), 1);
    assert!(p.remove_downstream(ms(600), Iface(4)));
    assert_eq!(downstream(&p, source(1)), [0u16; 0]);
    let (_, said) = run_proxy(&mut p, ms(601));
    assert!(said.contains(&(ChangeToInclude, GROUP, vec![])), "{said:?}");
    // Told as often as the robustness says, then forgotten.
    run_proxy(&mut p, ms(4_000));
    assert_eq!(p.upstream().group_count(), 0);
    assert!(!p.remove_downstream(ms(4_000), Iface(4)));
}

#[test]
fn proxy_keeps_memberships_when_addresses_change() {
    let mut p = proxy();
    let packet = v3_report(host(1, 77), ModeIsExclude, &[]);
    p.handle_packet(ms(1_000), &meta(1), &packet).unwrap();
    run_proxy(&mut p, ms(2_000));
    run_proxy(&mut p, ms(9_000));
    let with = |iface: u16, n| igmp::InterfaceConfig {
        address: host(iface, n),
        link_local: host(iface, n),
        ..Addr::interface(iface)
    };
    // A query below, no report above: what is wanted is the same.
    assert!(p.set_interface(ms(10_000), Iface(1), with(1, 5)));
    let sent = |p: &Proxy<'_>| p.queriers()[0].stats().queries_sent;
    let before = sent(&p);
    let (_, said) = run_proxy(&mut p, ms(10_000));
    assert_eq!((said, sent(&p)), (vec![], before + 1));
    // The host above reports from its new address.
    assert!(p.set_interface(ms(11_000), Iface(0), with(0, 5)));
    let (_, said) = run_proxy(&mut p, ms(11_000));
    assert_eq!(said, [(ModeIsExclude, GROUP, vec![])]);
    assert_eq!(downstream(&p, source(1)), [1]);
    assert!(!p.set_interface(ms(11_000), Iface(9), with(9, 5)));
}
