//! The host's half of LMS-HIER and the LMS-API (LMS §6.3, §6.7.1).

use crate::common::*;

use core::net::{IpAddr, Ipv4Addr};

use igmp::datagram::{IGMP_AT, finish_membership};
use igmp::wire::{ALL_SYSTEMS, Code, Message, Query, QueryV3, RecordType, Sources};
use lms_proto::Family as _;
use lms_proto::endpoint::{
    Answer, Config, DropReason, Election, Endpoint, Event, Refusal, Storage,
};
use lms_proto::hier::{Cost, hold_time};
use lms_proto::wire::encap;
use lms_proto::wire::hier::{Entry, Kind};
use lms_proto::wire::udp::Ports;
use lms_proto::{
    Duration, Form, Iface, Instant, InterfaceConfig, Key, LmsOption, TurningPoint, wire,
};
use proptest::prelude::*;

const ME: u8 = 7;
const HOLD: Duration = Duration::from_secs(35);

fn endpoint() -> Endpoint<'static> {
    let interface = InterfaceConfig::ipv4(host(1, ME), 24);
    Endpoint::new(
        Config::new(Iface(1), interface),
        Storage::owned(8),
        [3; 32],
        ms(0),
    )
}

fn announce(sequence: u32, hold: Duration, key: Key, who: Option<u8>) -> Vec<u8> {
    let neighbour = who.map(|n| host(1, n));
    let cost = if who.is_some() {
        Cost(1)
    } else {
        Cost::WITHDRAWN
    };
    let header = header(Kind::Elected, sequence, hold);
    hier_packet(
        host(1, 1),
        header,
        &[Entry {
            key,
            neighbour,
            cost,
        }],
    )
}

fn query(source: Ipv4Addr, group: Ipv4Addr, tenths: u32, sources: &[[u8; 4]]) -> Vec<u8> {
    let v3 = QueryV3 {
        suppress: false,
        robustness: 2,
        interval: Code::from_value(125),
        sources: Sources::from_octets(sources),
    };
    let query = Query {
        group,
        max_response: Code::from_value(tenths),
        v3: Some(v3),
    };
    let mut packet = vec![0; 600];
    let len = Message::Query(query).emit(&mut packet[IGMP_AT..]).unwrap();
    let len = finish_membership(&mut packet, source, ALL_SYSTEMS, len).unwrap();
    packet.truncate(len);
    packet
}

type Said = (Instant, RecordType, Key, Cost);

fn run(e: &mut Endpoint<'_>, end: Instant) -> Vec<Said> {
    let mut said = Vec::new();
    while let Some(at) = e.poll_timeout().filter(|at| *at <= end) {
        e.handle_timeout(at);
        drain(e, at, &mut said);
    }
    said
}

fn drain(e: &mut Endpoint<'_>, at: Instant, said: &mut Vec<Said>) {
    let mut buffer = [0; 1500];
    while let Some(transmit) = e.poll_transmit(at, &mut buffer) {
        let packet = &buffer[..transmit.len];
        assert_eq!(
            (packet[8], &packet[20..24]),
            (1, &[0x94, 4, 0, 0][..]),
            "TTL, Router Alert"
        );
        let Ok(Message::V3Report(records)) = Message::parse(&packet[IGMP_AT..]) else {
            panic!("only reports are sent");
        };
        for record in records.iter() {
            let source = record.sources.iter().next().unwrap_or(Key::ANY_SOURCE);
            let key = Key::new(source, record.group);
            said.push((at, record.kind, key, record.cost().unwrap()));
        }
    }
}

fn request(key: Key, turned: bool) -> LmsOption {
    let turning_point = turned.then_some(TurningPoint {
        router: host(1, 1).into(),
        iface: Iface(9),
        cookie: 0,
    });
    LmsOption {
        kind: lms_proto::Kind::Request,
        turning_point,
        source: key.source.into(),
        group: key.group.into(),
    }
}

#[test]
fn offer_at_once_again_every_refresh_and_on_change() {
    let mut e = endpoint();
    e.join(ms(100), group(1), Cost(5)).unwrap();
    let said = run(&mut e, ms(100));
    assert_eq!(
        said,
        [(ms(100), RecordType::ModeIsInclude, group(1), Cost(5))]
    );
    let said = run(&mut e, ms(30_500));
    assert_eq!(said.len(), 3, "{said:?}");
    e.join(ms(31_000), group(1), Cost(5)).unwrap();
    assert!(run(&mut e, ms(31_000)).is_empty(), "nothing new");
    e.join(ms(31_000), group(1), Cost(6)).unwrap();
    assert_eq!(run(&mut e, ms(31_000))[0].3, Cost(6));
}

#[test]
fn withdraws_twice_and_at_leave_says_that_it_left() {
    let mut e = endpoint();
    let shared = Key::any_source(group(2).group);
    e.join(ms(0), group(1), Cost(5)).unwrap();
    e.join(ms(0), shared, Cost(5)).unwrap();
    run(&mut e, ms(0));
    e.join(ms(10), group(1), Cost::WITHDRAWN).unwrap();
    let said = run(&mut e, ms(2_000));
    let withdrawn = (RecordType::ModeIsInclude, group(1), Cost::WITHDRAWN);
    assert_eq!(
        said.iter().map(|s| (s.1, s.2, s.3)).collect::<Vec<_>>(),
        [withdrawn; 2]
    );
    e.leave(ms(2_000), group(1));
    assert!(run(&mut e, ms(2_100)).is_empty(), "already withdrawn");
    assert_eq!(e.session_count(), 1);
    e.leave(ms(3_000), shared);
    let said = run(&mut e, ms(60_000));
    let left = (RecordType::ChangeToInclude, shared, Cost::WITHDRAWN);
    assert_eq!(
        said.iter().map(|s| (s.1, s.2, s.3)).collect::<Vec<_>>(),
        [left; 2]
    );
    assert_eq!((e.session_count(), e.poll_timeout()), (0, None));
}

#[test]
fn where_nobody_is_elected_hosts_may_answer_all_the_same() {
    let mut config = Config::new(Iface(1), InterfaceConfig::ipv4(host(1, ME), 24));
    config.answer_unelected = true;
    let mut e = Endpoint::new(config, Storage::owned(4), [7; 32], ms(0));
    let key = group(1);
    let not_joined = Answer::No(Refusal::NotJoined);
    assert_eq!(e.should_answer(&request(key, true)), not_joined);
    e.join(ms(0), key, Cost(5)).unwrap();
    assert_eq!(e.should_answer(&request(key, true)), Answer::AsReplier);
    let not_turned = Answer::No(Refusal::NotTurned);
    assert_eq!(e.should_answer(&request(key, false)), not_turned);
    // A router that does elect is obeyed.
    e.handle_packet(ms(2), &meta(1), &announce(2, HOLD, key, Some(9)))
        .unwrap();
    let not_elected = Answer::No(Refusal::NotElected);
    assert_eq!(e.should_answer(&request(key, true)), not_elected);
}

#[test]
fn elected_or_not() {
    let mut e = endpoint();
    let key = group(1);
    assert_eq!(
        e.should_answer(&request(key, true)),
        Answer::No(Refusal::NotJoined)
    );
    e.join(ms(0), key, Cost(5)).unwrap();
    assert_eq!(e.election(key), Election::NoRouter);
    assert_eq!(
        e.should_answer(&request(key, true)),
        Answer::No(Refusal::NoRouter)
    );

    e.handle_packet(ms(1), &meta(1), &announce(1, HOLD, key, Some(ME)))
        .unwrap();
    let election = Election::Me;
    assert_eq!(
        e.poll_event(),
        Some(Event::ElectionChanged { key, election })
    );
    assert_eq!(e.poll_event(), None);
    assert_eq!(e.should_answer(&request(key, true)), Answer::AsReplier);
    assert_eq!(
        e.should_answer(&request(key, false)),
        Answer::No(Refusal::NotTurned)
    );

    e.handle_packet(ms(2), &meta(1), &announce(2, HOLD, key, Some(9)))
        .unwrap();
    assert_eq!(e.election(key), Election::Other(host(1, 9)));
    assert_eq!(
        e.should_answer(&request(key, true)),
        Answer::No(Refusal::NotElected)
    );
    e.handle_packet(ms(3), &meta(1), &announce(3, HOLD, key, None))
        .unwrap();
    assert_eq!(e.election(key), Election::Elsewhere);
    assert_eq!(
        e.should_answer(&request(key, true)),
        Answer::No(Refusal::NotElected)
    );

    // (*, G) counts where nothing is said about (S, G) itself.
    let other = group(2);
    e.join(ms(4), other, Cost(5)).unwrap();
    let shared = Key::any_source(other.group);
    e.handle_packet(ms(5), &meta(1), &announce(4, HOLD, shared, Some(ME)))
        .unwrap();
    assert_eq!(e.election(other), Election::Me);

    // Soft state: silence for the hold time, and there is no router.
    while e.poll_event().is_some() {}
    run(&mut e, ms(3) + HOLD);
    assert_eq!(
        (e.election(key), e.election(other)),
        (Election::NoRouter, Election::Me)
    );
    run(&mut e, ms(5) + HOLD);
    assert_eq!(e.election(other), Election::NoRouter);
    assert!(e.poll_event().is_some());
}

#[test]
fn source_answers_every_request_for_its_data() {
    let e = endpoint();
    let key = Key::new(host(1, ME), group(1).group);
    assert_eq!(e.should_answer(&request(key, false)), Answer::AsSource);
    assert_eq!(e.should_answer(&request(key, true)), Answer::AsSource);
    let mut dmcast = request(key, true);
    dmcast.kind = lms_proto::Kind::Dmcast;
    assert_eq!(e.should_answer(&dmcast), Answer::No(Refusal::NotARequest));
    let mut v6 = request(key, true);
    v6.source = IpAddr::V6(core::net::Ipv6Addr::LOCALHOST);
    assert_eq!(e.should_answer(&v6), Answer::No(Refusal::NotARequest));
}

#[test]
fn follows_the_refresh_that_the_router_wants() {
    let mut e = endpoint();
    e.join(ms(0), group(1), Cost(5)).unwrap();
    run(&mut e, ms(50));
    let refresh = Duration::from_millis(100);
    e.handle_packet(
        ms(50),
        &meta(1),
        &announce(1, hold_time(refresh), group(1), Some(ME)),
    )
    .unwrap();
    let said = run(&mut e, ms(1_050));
    assert!((10..=13).contains(&said.len()), "{}", said.len());
    let mut before = ms(50);
    for (at, ..) in said {
        assert!(at - before <= refresh);
        before = at;
    }
}

#[test]
fn elected_answers_queries_at_once_others_take_their_time() {
    let mut e = endpoint();
    e.join(ms(0), group(1), Cost(5)).unwrap();
    e.join(ms(0), group(2), Cost(5)).unwrap();
    run(&mut e, ms(50));
    e.handle_packet(ms(50), &meta(1), &announce(1, HOLD, group(1), Some(ME)))
        .unwrap();
    e.handle_packet(ms(50), &meta(1), &announce(2, HOLD, group(2), Some(9)))
        .unwrap();
    let general = query(host(1, 1), Ipv4Addr::UNSPECIFIED, 20, &[]);
    e.handle_packet(ms(60), &meta(1), &general).unwrap();
    let said = run(&mut e, ms(60));
    assert_eq!(said.iter().map(|s| s.2).collect::<Vec<_>>(), [group(1)]);
    let said = run(&mut e, ms(2_060));
    assert_eq!(said.iter().map(|s| s.2).collect::<Vec<_>>(), [group(2)]);
    assert!(said[0].0 > ms(60));

    // A query of one group and source hastens that one only; one of a group, its sessions.
    let specific = query(host(1, 1), group(2).group, 1, &[group(2).source.octets()]);
    e.handle_packet(ms(3_000), &meta(1), &specific).unwrap();
    assert_eq!(run(&mut e, ms(3_100)).len(), 1);
    let of_group = query(host(1, 1), group(1).group, 1, &[]);
    e.handle_packet(ms(3_200), &meta(1), &of_group).unwrap();
    let said = run(&mut e, ms(3_300));
    assert_eq!(said.iter().map(|s| s.2).collect::<Vec<_>>(), [group(1)]);
}

#[test]
fn crowded_link_lets_the_elected_go_first() {
    let mut e = endpoint();
    for g in 0..8 {
        e.join(ms(0), group(g), Cost(5)).unwrap();
    }
    run(&mut e, ms(50));
    for chunk in 0..3u16 {
        let entries: Vec<Entry> = (0..64)
            .map(|i| {
                let who = if i % 2 == 0 { ME } else { 9 };
                Entry {
                    key: group(chunk * 64 + i),
                    neighbour: Some(host(1, who)),
                    cost: Cost(1),
                }
            })
            .collect();
        let header = header(Kind::Elected, chunk as u32 + 1, HOLD);
        let packet = hier_packet(host(1, 1), header, &entries);
        e.handle_packet(ms(50), &meta(1), &packet).unwrap();
    }
    assert_eq!(e.groups_on_link(), 192);
    let general = query(host(1, 1), Ipv4Addr::UNSPECIFIED, 40, &[]);
    e.handle_packet(ms(60), &meta(1), &general).unwrap();
    let first = run(&mut e, ms(60 + 1_000));
    let rest = run(&mut e, ms(60 + 4_000));
    // Records that are due soon share reports; all elected ones are sent in the first quarter.
    for g in (0..8).step_by(2) {
        assert!(first.iter().any(|s| s.2 == group(g)), "elected for {g}");
    }
    assert!(first.len() + rest.len() >= 8);
    assert!(first[0].0 > ms(60), "not at once");
}

#[test]
fn forged_messages_change_nothing() {
    let mut e = endpoint();
    let key = group(1);
    e.join(ms(0), key, Cost(5)).unwrap();
    e.handle_packet(ms(0), &meta(1), &announce(10, HOLD, key, Some(9)))
        .unwrap();
    run(&mut e, ms(1));
    while e.poll_event().is_some() {}
    let good = announce(11, HOLD, key, Some(ME));
    let mut ttl = good.clone();
    ttl[8] = 2;
    wire::ipv4::fill_checksum(&mut ttl[..20]);
    let far = {
        let header = header(Kind::Elected, 11, HOLD);
        let entry = Entry {
            key,
            neighbour: Some(host(1, ME)),
            cost: Cost(1),
        };
        hier_packet(Ipv4Addr::new(192, 0, 2, 1), header, &[entry])
    };
    let own = {
        let header = header(Kind::Elected, 11, HOLD);
        let entry = Entry {
            key,
            neighbour: Some(host(1, ME)),
            cost: Cost(1),
        };
        hier_packet(host(1, ME), header, &[entry])
    };
    let mut broken = good.clone();
    *broken.last_mut().unwrap() ^= 1;
    let cases = [
        (meta(2), good.clone(), DropReason::WrongInterface),
        (meta(1), ttl, DropReason::Ttl),
        (meta(1), far.clone(), DropReason::WrongSubnet),
        (meta(1), own, DropReason::OwnAddress),
        (meta(1), broken, DropReason::Malformed),
        (meta(1), other_version(&good, 2), DropReason::Version),
        (meta(1), other_version(&far, 2), DropReason::WrongSubnet),
        (
            meta(1),
            announce(10, HOLD, key, Some(ME)),
            DropReason::Replay,
        ),
    ];
    for (meta, packet, reason) in cases {
        let (before, due) = (*e.stats(), e.poll_timeout());
        assert_eq!(e.handle_packet(ms(2), &meta, &packet), Err(reason));
        assert_eq!(e.stats().drops.get(reason), before.drops.get(reason) + 1);
        let others = DropReason::ALL.iter().filter(|r| **r != reason);
        assert!(
            others
                .clone()
                .all(|r| e.stats().drops.get(*r) == before.drops.get(*r))
        );
        assert_eq!((e.poll_event(), e.poll_timeout()), (None, due));
        assert_eq!(e.election(key), Election::Other(host(1, 9)));
    }
    let mut flooded = 0;
    for sequence in 20..10_000 {
        let packet = announce(sequence, HOLD, key, Some(9));
        if e.handle_packet(ms(3), &meta(1), &packet) == Err(DropReason::Rate) {
            flooded += 1;
        }
    }
    assert!(flooded > 5_000);
}

#[test]
fn reports_are_bounded_whatever_the_queries() {
    let mut e = endpoint();
    for g in 0..8 {
        e.join(ms(0), group(g), Cost(5)).unwrap();
        e.handle_packet(
            ms(0),
            &meta(1),
            &announce(u32::from(g) + 1, HOLD, group(g), Some(ME)),
        )
        .unwrap();
    }
    for at in 0..2_000 {
        let general = query(host(1, 1), Ipv4Addr::UNSPECIFIED, 1, &[]);
        let _ = e.handle_packet(ms(at), &meta(1), &general);
        run(&mut e, ms(at));
    }
    let sent = e.stats().reports_sent;
    assert!(
        sent <= 2 * 50 + 6,
        "50 a second, and what 100 ms catch up: {sent}"
    );
}

#[test]
fn sessions_are_bounded() {
    let mut e = endpoint();
    for g in 0..8 {
        e.join(ms(0), group(g), Cost(5)).unwrap();
    }
    assert!(e.join(ms(0), group(8), Cost(5)).is_err());
    assert_eq!(e.session_count(), 8);
}

#[test]
fn dmcast_is_what_encap_makes_of_it() {
    // In the form of the request, whatever this host's own requests have: a router takes no other.
    let forms = [Form::Classic, Form::Own];
    for (form, configured) in forms
        .into_iter()
        .flat_map(|form| forms.map(|own| (form, own)))
    {
        let interface = InterfaceConfig::ipv4(host(1, ME), 24);
        let config = Config {
            form: configured,
            ..Config::new(Iface(1), interface)
        };
        let cookie = match form {
            Form::Classic => 0,
            Form::Own => 0x1234_5678_9abc_def0,
        };
        let e = Endpoint::new(config, Storage::owned(1), [3; 32], ms(0));
        let turning_point = TurningPoint {
            router: host(1, 1).into(),
            iface: Iface(9),
            cookie,
        };
        let ports = Ports {
            source: 5000,
            group: 6000,
        };
        let mut packet = [0; 1500];
        let payload = b"a repair";
        let len = e
            .dmcast(group(1), turning_point, ports, payload, &mut packet)
            .unwrap();
        let shorter = match form {
            Form::Classic => 12,
            Form::Own => 0,
        };
        assert_eq!(len + shorter, e.dmcast_overhead() + payload.len());
        let inner_at = len - 28 - payload.len();
        let inner = packet[inner_at..len].to_vec();
        let udp = smoltcp::wire::UdpPacket::new_checked(&inner[20..]).unwrap();
        assert!(udp.verify_checksum(&group(1).source.into(), &group(1).group.into()));
        assert_eq!(
            (udp.src_port(), udp.dst_port(), udp.payload()),
            (5000, 6000, &payload[..])
        );
        let repr = encap::DmcastRepr {
            replier: host(1, ME),
            router: host(1, 1),
            iface: Iface(9),
            cookie,
            form,
            placement: encap::Placement::Outer,
            ttl: 64,
            identification: 0,
        };
        let mut expected = [0; 1500];
        let expected_len = repr.emit(&inner, &mut expected).unwrap();
        assert_eq!(&packet[..len], &expected[..expected_len]);
        assert!(
            e.dmcast(
                group(1),
                turning_point,
                ports,
                payload,
                &mut packet[..len - 1]
            )
            .is_err()
        );
    }
}

#[test]
fn option_is_found_among_others() {
    let e = endpoint();
    let mut options = vec![1, 1, 0x94, 4, 0, 0];
    let mut option = [0; 28];
    let len = e.request_option(group(1), &mut option).unwrap();
    options.extend_from_slice(&option[..len]);
    options.push(0);
    let found = Ipv4Addr::find_option(&options).unwrap();
    assert_eq!(
        (found, found.turning_point),
        (request(group(1), false), None)
    );
    for end in 0..options.len() - 1 {
        assert_eq!(Ipv4Addr::find_option(&options[..end]), None);
    }
    assert_eq!(Ipv4Addr::find_option(&[0, 138, 16]), None);
    assert_eq!(Ipv4Addr::find_option(&[7, 0, 7, 1]), None);
}

proptest! {
    #[test]
    fn any_packet_is_survived(
        steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..80), 0u64..5_000), 0..40),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..40),
    ) {
        let mut e = endpoint();
        e.join(ms(0), group(1), Cost(5)).unwrap();
        let mut now = 0;
        for (bytes, wait) in &steps {
            now += wait;
            let _ = e.handle_packet(ms(now), &meta(1), bytes);
            run(&mut e, ms(now));
        }
        for (at, bit) in flips {
            let mut packet = announce(1, HOLD, group(1), Some(ME));
            let at = at.index(packet.len());
            packet[at] ^= 1 << bit;
            let result = e.handle_packet(ms(now), &meta(1), &packet);
            prop_assert!(result.is_err(), "every byte is under a checksum");
        }
        prop_assert_eq!(e.election(group(1)), Election::NoRouter);
    }
}
