//! Goldens of MLD packets, both ways; truncations, bit flips, round trips; what only MLD has.

use core::net::Ipv6Addr;

use igmp::datagram::{self, finish_membership, membership_at};
use igmp::wire::{
    Code, Cost, Message, MldCode, ParseError, Query, QueryV3, RecordType, ReportWriter, Sources,
};
use igmp::{
    Config, DropReason, Family, FilterMode, Iface, Instant, LinkAddr, Member, Meta, Querier,
    Storage,
};
use proptest::prelude::*;

use crate::packets::{Addresses, v3_query, v3_report, whole};

const AT: usize = membership_at::<Ipv6Addr>();
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0x8001, 0x203);
const HOST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// IS_IN (ff3e::8001:203, {2001:db8:9::1}) at replier cost 5, as an endpoint sends it.
const COST_REPORT: &[u8] = &[
    0x6c, 0, 0, 0, 0, 56, 0,
    1, // version, internetwork control; length, hop-by-hop options, hop limit
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, // source
    0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16, // all MLDv2-capable routers
    58, 0, 5, 2, 0, 0, 1, 0, // ICMPv6 follows; Router Alert, PadN
    143, 0, 0x76, 0x98, 0, 0, 0, 1, // report, checksum, one record
    1, 1, 0, 1, // MODE_IS_INCLUDE, 1 word of auxiliary data, 1 source
    0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 2, 3, // the group
    0x20, 0x01, 0x0d, 0xb8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // the source
    0x4c, 0x4d, 0, 5, // identifier, cost
];

const V3_QUERY: &[u8] = &[
    0x6c, 0, 0, 0, 0, 68, 0, 1, //
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
    0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 2, 3, //
    58, 0, 5, 2, 0, 0, 1, 0, //
    130, 0, 0x12, 0x92, 0x03, 0xe8, 0, 0, // query, checksum, 1,000 ms
    0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 2, 3, // the group
    0x0a, 125, 0, 2, // S, QRV 2, QQIC 125, 2 sources
    0x20, 0x01, 0x0d, 0xb8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
    0x20, 0x01, 0x0d, 0xb8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, //
];

const GENERAL_QUERY: &[u8] = &[
    0x6c, 0, 0, 0, 0, 36, 0, 1, //
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
    0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
    58, 0, 5, 2, 0, 0, 1, 0, //
    130, 0, 0x56, 0x96, 0x27, 0x10, 0, 0, // query, checksum, 10,000 ms
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // every group
    2, 125, 0, 0, // QRV 2, QQIC 125, no source
];

const V1_QUERY: &[u8] = &[
    0x6c, 0, 0, 0, 0, 32, 0, 1, //
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
    0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 2, 3, //
    58, 0, 5, 2, 0, 0, 1, 0, //
    130, 0, 0x55, 0x94, 0x27, 0x10, 0, 0, //
    0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 2, 3, //
];

const V1_REPORT: &[u8] = &[
    0x6c, 0, 0, 0, 0, 32, 0, 1, //
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, //
    0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 2, 3, //
    58, 0, 5, 2, 0, 0, 1, 0, //
    131, 0, 0x7b, 0x9e, 0, 0, 0, 0, //
    0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 2, 3, //
];

const V1_DONE: &[u8] = &[
    0x6c, 0, 0, 0, 0, 32, 0, 1, //
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, //
    0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // all routers
    58, 0, 5, 2, 0, 0, 1, 0, //
    132, 0, 0xfc, 0xdc, 0, 0, 0, 0, //
    0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 2, 3, //
];

const GOLDENS: [&[u8]; 6] = [
    COST_REPORT,
    V3_QUERY,
    GENERAL_QUERY,
    V1_QUERY,
    V1_REPORT,
    V1_DONE,
];

fn source(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, n)
}

fn parse(packet: &[u8]) -> Option<Result<Message<'_, Ipv6Addr>, ParseError>> {
    let ip = datagram::parse(packet, Ipv6Addr::PROTOCOL)?;
    Some(Message::of(&ip))
}

#[test]
fn golden_report_with_cost() {
    let mut bytes = [0xa5; 200];
    let mut writer = ReportWriter::new(&mut bytes[AT..]).unwrap();
    let sources = core::iter::once(source(1));
    assert!(writer.push(RecordType::ModeIsInclude, GROUP, sources, Some(Cost(5))));
    let len = writer.finish();
    let len = finish_membership(&mut bytes, HOST, Ipv6Addr::REPORT_DESTINATION, len);
    assert_eq!(&bytes[..len.unwrap()], COST_REPORT);
    let Some(Ok(Message::V3Report(records))) = parse(COST_REPORT) else {
        panic!("a report");
    };
    let all: Vec<_> = records.iter().collect();
    assert_eq!(
        (all.len(), all[0].kind, all[0].group),
        (1, RecordType::ModeIsInclude, GROUP)
    );
    assert_eq!(
        (all[0].sources.iter().next(), all[0].cost()),
        (Some(source(1)), Some(Cost(5)))
    );
    let again = whole(
        HOST,
        Ipv6Addr::REPORT_DESTINATION,
        &Message::V3Report(records),
    );
    assert_eq!(again, COST_REPORT);
}

#[test]
fn golden_queries_and_older_messages() {
    let sources = [source(1).octets(), source(2).octets()];
    let v3 = |suppress, sources| QueryV3 {
        suppress,
        robustness: 2,
        interval: Code(125),
        sources,
    };
    let query = |group, time, v3| {
        Message::Query(Query {
            group,
            max_response: MldCode(time),
            v3,
        })
    };
    let any = Ipv6Addr::UNSPECIFIED;
    let (systems, routers) = (Ipv6Addr::QUERY_DESTINATION, Ipv6Addr::LEAVE_DESTINATION);
    let specific = v3(true, Sources::from_octets(&sources));
    let general = v3(false, Sources::NONE);
    let goldens = [
        (V3_QUERY, ROUTER, GROUP, query(GROUP, 1_000, Some(specific))),
        (
            GENERAL_QUERY,
            ROUTER,
            systems,
            query(any, 10_000, Some(general)),
        ),
        (V1_QUERY, ROUTER, GROUP, query(GROUP, 10_000, None)),
        (V1_REPORT, HOST, GROUP, Message::V2Report(GROUP)),
        (V1_DONE, HOST, routers, Message::V2Leave(GROUP)),
    ];
    for (golden, from, to, message) in goldens {
        assert_eq!(whole(from, to, &message), golden, "{message:?}");
        assert_eq!(parse(golden), Some(Ok(message)));
        let mut bytes = [0xa5; 100];
        let len = message.buffer_len();
        assert!(message.emit(&mut bytes[..len - 1]).is_err());
        assert_eq!(message.emit(&mut bytes[..len]), Ok(len));
        if let Message::Query(query) = message {
            assert_eq!(query.version(), if query.v3.is_some() { 3 } else { 2 });
        }
    }
    assert!(Message::V1Report(GROUP).emit(&mut [0; 100]).is_err());
}

/// Every truncation is noticed. A flip is noticed too, or it is one of a field that says nothing of the message: traffic
/// class, flow label, hop limit, and what the hop-by-hop options are.
#[test]
fn truncations_and_flips() {
    for golden in GOLDENS {
        for len in 0..golden.len() {
            assert_eq!(parse(&golden[..len]), None, "{len} bytes");
        }
        for bit in 0..golden.len() * 8 {
            let mut bytes = golden.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let free = matches!(bit / 8, 0..=3 | 7 | 42..48) && bytes[0] >> 4 == 6;
            match parse(&bytes) {
                Some(Ok(message)) => {
                    assert!(free, "bit {bit}");
                    assert_eq!(Some(Ok(message)), parse(golden), "bit {bit}");
                }
                Some(Err(error)) => assert_eq!(error, ParseError::Checksum, "bit {bit}"),
                None => {}
            }
        }
    }
}

fn with_checksum(packet: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = packet.to_vec();
    change(&mut packet);
    let len = packet.len() - AT;
    let to = Ipv6Addr::from(*packet[24..].first_chunk().unwrap());
    finish_membership(&mut packet, HOST, to, len).unwrap();
    packet
}

/// Flips with a right checksum: no panic, and what is accepted can be written again.
#[test]
fn flips_under_a_right_checksum() {
    for golden in GOLDENS {
        for bit in AT * 8..golden.len() * 8 {
            let bytes = with_checksum(golden, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            if let Some(Ok(message)) = parse(&bytes) {
                let again = whole(HOST, GROUP, &message);
                assert_eq!(parse(&again), Some(Ok(message)), "bit {bit}");
            }
        }
    }
    let address = |at: usize, value: u8| with_checksum(V3_QUERY, |bytes| bytes[at] = value);
    assert_eq!(
        parse(&address(AT + 8, 0x20)),
        Some(Err(ParseError::Address))
    );
    assert_eq!(
        parse(&address(AT + 28, 0xff)),
        Some(Err(ParseError::Address))
    );
    let kind = with_checksum(V1_REPORT, |bytes| bytes[AT] = 128);
    assert_eq!(parse(&kind), Some(Err(ParseError::Type)));
    for len in 0..GENERAL_QUERY.len() - AT {
        let cut = with_checksum(GENERAL_QUERY, |bytes| bytes.truncate(AT + len.max(8)));
        let expected = match len {
            25..28 => ParseError::Length,
            24 => continue,
            _ => ParseError::Truncated,
        };
        assert_eq!(parse(&cut), Some(Err(expected)), "{len} bytes");
    }
}

/// RFC 9777 §5.1.3: the code never says more than was meant, and loses less than 1/4,096.
#[test]
fn code_is_a_floating_point_number() {
    let values = (0..=70_000u32).chain((70_000..=8_387_584).step_by(997));
    for value in values.chain([8_387_584]) {
        let coded = MldCode::from_value(value).value();
        assert!(
            coded <= value && value - coded <= value / 4_096,
            "{value} -> {coded}"
        );
    }
    for code in 0..=u16::MAX {
        assert_eq!(MldCode::from_value(MldCode(code).value()), MldCode(code));
    }
    assert_eq!(MldCode::from_value(u32::MAX).value(), 8_387_584);
}

/// A hop-by-hop option: its bytes, and whether a node that does not know it may skip it.
fn option(kind: usize) -> (&'static [u8], bool) {
    match kind {
        0 => (&[0], true),
        1 => (&[1, 0], true),
        2 => (&[1, 3, 0, 0, 0], true),
        3 => (&[0x1e, 1, 7], true),
        4 => (&[0x3e, 4, 1, 2, 3, 4], true),
        5 => (&[0x5e, 1, 7], false),
        6 => (&[0xc2, 4, 0, 0, 1, 0], false),
        _ => (&[5, 2, 0, 0], true),
    }
}

/// A packet with these options and pads in a header of type `header` after the IPv6 header.
fn with_options(header: u8, kinds: &[usize]) -> Vec<u8> {
    let mut options: Vec<u8> = vec![58, 0];
    for kind in kinds {
        options.extend_from_slice(option(*kind).0);
    }
    while !options.len().is_multiple_of(8) {
        options.push(0);
    }
    options[1] = (options.len() / 8 - 1) as u8;
    let mut packet = GENERAL_QUERY[..40].to_vec();
    packet[5] = (options.len() + GENERAL_QUERY.len() - AT) as u8;
    packet[6] = header;
    packet.extend_from_slice(&options);
    packet.extend_from_slice(&GENERAL_QUERY[AT..]);
    packet
}

/// Every chain of up to four options, in every order.
#[test]
fn hop_by_hop_options_in_every_order_and_length() {
    let mut chains: Vec<Vec<usize>> = vec![vec![]];
    let mut longest = chains.clone();
    for _ in 0..4 {
        let append = |chain: &Vec<usize>, kind| chain.iter().copied().chain([kind]).collect();
        longest = longest
            .iter()
            .flat_map(|chain| (0..8).map(move |kind| append(chain, kind)))
            .collect();
        chains.extend_from_slice(&longest);
    }
    assert_eq!(chains.len(), 1 + 8 + 64 + 512 + 4_096);
    for chain in &chains {
        let packet = with_options(0, chain);
        let ip = datagram::parse::<Ipv6Addr>(&packet, 58);
        let may_skip = chain.iter().all(|kind| option(*kind).1);
        assert_eq!(ip.is_some(), may_skip, "{chain:?}");
        if let Some(ip) = ip {
            assert_eq!(ip.has_router_alert, chain.contains(&7), "{chain:?}");
            assert_eq!(Message::of(&ip), parse(GENERAL_QUERY).unwrap(), "{chain:?}");
        }
        for len in 0..packet.len() {
            assert!(datagram::parse::<Ipv6Addr>(&packet[..len], 58).is_none());
        }
        // In destination options, Router Alert is no option that routers look at.
        let ip =
            datagram::parse::<Ipv6Addr>(&with_options(60, chain), 58).map(|ip| ip.has_router_alert);
        assert_eq!(ip, may_skip.then_some(false), "{chain:?}");
    }
    for header in [43, 44, 50, 51, 59, 135] {
        let packet = with_options(header, &[7]);
        assert!(
            datagram::parse::<Ipv6Addr>(&packet, 58).is_none(),
            "{header}"
        );
    }
}

#[test]
fn hop_by_hop_options_come_first_and_once() {
    let mut packet = with_options(60, &[]);
    packet[40] = 0; // hop-by-hop options after destination options
    let at = packet.len() - (GENERAL_QUERY.len() - AT);
    packet.splice(at..at, [58, 0, 5, 2, 0, 0, 1, 0]);
    packet[5] += 8;
    assert!(datagram::parse::<Ipv6Addr>(&packet, 58).is_none());
    packet[6] = 0; // twice
    assert!(datagram::parse::<Ipv6Addr>(&packet, 58).is_none());
    packet[40] = 60; // hop-by-hop options, then destination options
    assert!(datagram::parse::<Ipv6Addr>(&packet, 58).is_some());
    packet[4] = 1; // longer than the packet
    assert!(datagram::parse::<Ipv6Addr>(&packet, 58).is_none());
}

fn meta() -> Meta {
    Meta {
        iface: Iface(1),
        link_source: Some(LinkAddr([2, 0, 0, 0, 0, 1])),
    }
}

fn config() -> Config<Ipv6Addr> {
    Config::new(Iface(1), Ipv6Addr::interface(1))
}

/// RFC 9777 §5.2.14, §6.2, §7.4: a link-local source, hop limit 1, Router Alert.
#[test]
fn senders_are_of_the_link() {
    let now = Instant::ZERO;
    let mut querier = Querier::new(config(), Storage::owned(4, 4), [1; 32], now);
    let mut member = Member::new(config(), Storage::owned(4, 4), [1; 32], now);
    let report = v3_report(Ipv6Addr::host(1, 7), RecordType::ModeIsExclude, &[]);
    let query = |from| v3_query(from, Ipv6Addr::UNSPECIFIED, 100, &[]);
    let no_alert = |packet: &[u8]| {
        let mut packet = packet.to_vec();
        packet[42..48].copy_from_slice(&[1, 4, 0, 0, 0, 0]);
        packet
    };
    let rival = query(Ipv6Addr::host(1, 1));
    let own_global = query(config().interface.address);
    let cases = [
        (no_alert(&report), DropReason::RouterAlert),
        (no_alert(&rival), DropReason::RouterAlert),
        (query(Ipv6Addr::UNSPECIFIED), DropReason::WrongSubnet),
        (query(source(1)), DropReason::WrongSubnet),
        (own_global, DropReason::OwnAddress),
    ];
    for (packet, reason) in &cases {
        assert_eq!(querier.handle_packet(now, &meta(), packet), Err(*reason));
        assert!(querier.stats().drops.get(*reason) > 0);
    }
    for (packet, reason) in &cases[1..] {
        assert_eq!(member.handle_packet(now, &meta(), packet), Err(*reason));
    }
    let anonymous = v3_report(Ipv6Addr::UNSPECIFIED, RecordType::ModeIsExclude, &[]);
    let refused = Err(DropReason::WrongSubnet);
    assert_eq!(querier.handle_packet(now, &meta(), &anonymous), refused);
    assert_eq!(querier.mode(Ipv6Addr::GROUP), FilterMode::Include);
    assert_eq!(querier.handle_packet(now, &meta(), &report), Ok(()));
    assert_eq!(querier.mode(Ipv6Addr::GROUP), FilterMode::Exclude);
    assert_eq!(member.handle_packet(now, &meta(), &rival), Ok(()));
}

/// RFC 9777 §6: ff02::1, and scopes 0 and 1. Joining them succeeds. Other groups of the link are reported, and need no
/// state in a router.
#[test]
fn some_groups_are_never_reported() {
    let now = Instant::ZERO;
    let mut member = Member::new(config(), Storage::owned(4, 4), [1; 32], now);
    let mut buffer = [0; 1280];
    for group in ["ff02::1", "ff00::1", "ff01::2", "ff11::5"] {
        let group = group.parse().unwrap();
        assert_eq!(member.join(now, group), Ok(()), "{group}");
        let only = [source(1)].into_iter();
        assert_eq!(member.set(now, group, FilterMode::Include, only), Ok(()));
        member.leave(now, group);
    }
    assert_eq!((member.group_count(), member.poll_timeout()), (0, None));
    assert_eq!(member.poll_transmit(now, &mut buffer), None);
    assert_eq!(member.stats().drops.total(), 0);
    member.join(now, Ipv6Addr::LOCAL_GROUP).unwrap();
    let report = member.poll_transmit(now, &mut buffer).unwrap();
    let mut querier = Querier::new(
        Config::new(Iface(1), Ipv6Addr::interface(2)),
        Storage::owned(4, 4),
        [1; 32],
        now,
    );
    let heard = querier.handle_packet(now, &meta(), &buffer[..report.len]);
    assert_eq!((heard, querier.group_count()), (Ok(()), 0));
    assert_eq!(querier.stats().drops.get(DropReason::LinkLocalGroup), 1);
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 8..200), kind in 0usize..5) {
        let mut packet = vec![0; AT];
        packet.extend_from_slice(&bytes);
        packet[AT] = [130, 131, 132, 143, 129][kind];
        finish_membership(&mut packet, HOST, GROUP, bytes.len()).unwrap();
        if let Some(Ok(Message::V3Report(records))) = parse(&packet) {
            let count = records.iter().inspect(|r| { r.cost(); r.sources.iter().count(); }).count();
            prop_assert_eq!(count, records.len());
        }
    }

    #[test]
    fn any_packet(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut packet = GENERAL_QUERY[..40].to_vec();
        packet.extend_from_slice(&bytes);
        packet[5] = bytes.len() as u8;
        if let Some(ip) = datagram::parse::<Ipv6Addr>(&packet, 58) {
            prop_assert!(ip.payload.len() <= bytes.len());
            let _ = Message::of(&ip);
        }
    }

    #[test]
    fn report_round_trip(
        records in prop::collection::vec(
            (1u8..7, any::<u64>(), prop::collection::vec(1u64.., 0..9), prop::option::of(any::<u16>())),
            0..20),
    ) {
        let group = |n: u64| Ipv6Addr::from_bits(0xff3e << 112 | u128::from(n));
        let host = |n: u64| Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(n));
        let mut bytes = [0; 6000];
        let mut writer = ReportWriter::new(&mut bytes[AT..]).unwrap();
        for (kind, n, sources, cost) in &records {
            let sources = sources.iter().map(|n| host(*n));
            prop_assert!(writer.push(RecordType::from(*kind), group(*n), sources, cost.map(Cost)));
        }
        let len = writer.finish();
        let len = finish_membership(&mut bytes, HOST, Ipv6Addr::REPORT_DESTINATION, len).unwrap();
        let Some(Ok(Message::V3Report(parsed))) = parse(&bytes[..len]) else {
            return Err(TestCaseError::fail("a report"));
        };
        prop_assert_eq!(parsed.len(), records.len());
        for (record, (kind, n, sources, cost)) in parsed.iter().zip(&records) {
            prop_assert_eq!(u8::from(record.kind), *kind);
            prop_assert_eq!(record.group, group(*n));
            let expected: Vec<_> = sources.iter().map(|n| host(*n)).collect();
            prop_assert_eq!(record.sources.iter().collect::<Vec<_>>(), expected);
            prop_assert_eq!(record.cost(), cost.map(Cost));
        }
    }
}
