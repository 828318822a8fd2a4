//! What a hierarchy makes of messages: restarts of neighbours, the records of IGMP reports, senders and links.

use crate::common::*;

use igmp::datagram::{IGMP_AT, finish_membership};
use igmp::wire::{ALL_V3_ROUTERS, RecordType, ReportWriter};
use lms_proto::hier::{Config, Cost, DropReason, Hierarchy};
use lms_proto::wire::hier::Kind;
use lms_proto::{Duration, Iface, InterfaceConfig, Key};

const HOLD: Duration = Duration::from_secs(35);

fn with_entries(count: u16) -> Hierarchy<'static> {
    let mut h = hierarchy(Config::default(), CAPACITY);
    for g in 0..count {
        h.install(ms(0), group(g), UP).unwrap();
    }
    h
}

fn drops(h: &Hierarchy<'_>, reason: DropReason) -> u64 {
    h.stats().drops.get(reason)
}

/// A report of records with any number of sources each.
fn report_of(from: u8, records: &[(RecordType, Key, &[u8], Option<u16>)]) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    let mut writer = ReportWriter::new(&mut packet[IGMP_AT..]).unwrap();
    for &(kind, key, sources, cost) in records {
        let sources = sources
            .iter()
            .map(|n| std::net::Ipv4Addr::new(10, 99, 0, *n));
        assert!(writer.push(kind, key.group, sources, cost.map(Cost)));
    }
    let len = writer.finish();
    let len = finish_membership(&mut packet, host(1, from), ALL_V3_ROUTERS, len).unwrap();
    packet.truncate(len);
    packet
}

#[test]
fn restart_counts_from_its_interval_on_and_not_before_the_last_boot() {
    let mut h = with_entries(1);
    let mut say = |at: u64, boot, sequence, cost| {
        let mut header = header(Kind::Update, sequence, HOLD);
        header.boot = boot;
        let packet = hier_packet(host(1, 7), header, &[offer(group(0), cost)]);
        h.handle_packet(ms(at), &meta(1), &packet)
    };
    let replay = Err(DropReason::Replay);
    assert_eq!(say(5_000, 1, 9, 1), Ok(()));
    assert_eq!(say(5_999, 2, 1, 2), replay);
    assert_eq!(say(6_000, 2, 1, 2), Ok(()), "one restart interval later");
    // Other messages of a boot do not begin the interval again.
    assert_eq!(say(6_900, 2, 2, 3), Ok(()));
    assert_eq!(say(7_000, 1, 10, 4), replay, "the previous boot");
    assert_eq!(say(7_000, 3, 1, 4), Ok(()));
    assert_eq!(say(8_000, 1, 10, 5), Ok(()), "the one before that");
    // A clock that goes back.
    assert_eq!(say(1_000, 4, 1, 6), replay);
    assert_eq!(elected(&h, group(0)), Some((host(1, 7), 5)));
}

#[test]
fn reports_are_read_as_rfc_3376_says() {
    use RecordType::*;
    let any = Key::any_source(group(0).group);
    let mut h = hierarchy(Config::default(), CAPACITY);
    h.install(ms(0), any, UP).unwrap();
    for n in 1..4 {
        let key = Key::new(std::net::Ipv4Addr::new(10, 99, 0, n), any.group);
        h.install(ms(0), key, UP).unwrap();
    }
    let keys = [0, 1, 2, 3].map(|n| match n {
        0 => any,
        n => Key::new(std::net::Ipv4Addr::new(10, 99, 0, n), any.group),
    });
    let mut say = |from: u8, records: &[(RecordType, &[u8], Option<u16>)]| {
        let records: Vec<_> = records
            .iter()
            .map(|&(kind, sources, cost)| (kind, any, sources, cost))
            .collect();
        h.handle_packet(ms(1), &meta(1), &report_of(from, &records))
            .unwrap();
        let costs = keys.map(|key| elected(&h, key).map(|(_, cost)| cost));
        (costs, h.stats().records_accepted)
    };
    // An offer for each source, or for all of them.
    let some = say(7, &[(ModeIsInclude, &[1, 2], Some(4))]);
    assert_eq!(some, ([None, Some(4), Some(4), None], 2));
    let all = say(7, &[(ModeIsExclude, &[], Some(5))]);
    assert_eq!(all, ([Some(5), Some(4), Some(4), None], 3));
    // Of two records in one report the one without a cost offers nothing, and an unknown type neither.
    let mixed = [
        (ModeIsInclude, &[2][..], None),
        (Unknown(9), &[1][..], Some(1)),
        (AllowNewSources, &[3][..], Some(6)),
    ];
    assert_eq!(say(7, &mixed), ([Some(5), Some(4), Some(4), Some(6)], 4));
    // BLOCK takes its sources away, with a cost or without; without sources it says nothing.
    let block = say(7, &[(BlockOldSources, &[2], None)]);
    assert_eq!(block, ([Some(5), Some(4), None, Some(6)], 5));
    let block = say(7, &[(BlockOldSources, &[3], Some(1))]);
    assert_eq!(block, ([Some(5), Some(4), None, None], 6));
    let block = say(7, &[(BlockOldSources, &[], None)]);
    assert_eq!(block, ([Some(5), Some(4), None, None], 6));
    // TO_IN with sources is no leave, TO_IN without is one.
    let change = say(7, &[(ChangeToInclude, &[1], None)]);
    assert_eq!(change, ([Some(5), Some(4), None, None], 6));
    let change = say(7, &[(ChangeToInclude, &[1], Some(3))]);
    assert_eq!(change, ([Some(5), Some(3), None, None], 7));
    let change = say(7, &[(ChangeToInclude, &[], None)]);
    assert_eq!(change, ([None, Some(3), None, None], 8));
    // A leave of sources or groups that are no entry concerns other protocols only.
    let none = say(7, &[(BlockOldSources, &[8], None)]);
    assert_eq!(none.1, 8);
    // One with a cost is refused as an unknown group would be, or goes to (*, G).
    let shared = say(7, &[(ModeIsInclude, &[8], Some(2))]);
    assert_eq!(shared, ([Some(2), Some(3), None, None], 9));
    // The leave of a host that is not known makes it known to nobody.
    let counted = (h.stats().reports_received, h.peer_count());
    for kind in [BlockOldSources, ChangeToInclude] {
        let sources: &[u8] = if kind == BlockOldSources { &[1] } else { &[] };
        let packet = report_of(9, &[(kind, any, sources, None)]);
        h.handle_packet(ms(2), &meta(1), &packet).unwrap();
    }
    assert_eq!((h.stats().reports_received, h.peer_count()), counted);
    assert_eq!(drops(&h, DropReason::UnknownGroup), 0);
}

/// The leave of a source that is no entry does not take the offer for the group away.
#[test]
fn leave_of_a_source_without_an_entry_leaves_the_group() {
    use RecordType::*;
    let any = Key::any_source(group(0).group);
    let mut h = hierarchy(Config::default(), CAPACITY);
    h.install(ms(0), any, UP).unwrap();
    let packet = report_of(7, &[(ModeIsExclude, any, &[], Some(2))]);
    h.handle_packet(ms(0), &meta(1), &packet).unwrap();
    let packet = report_of(7, &[(BlockOldSources, any, &[5], None)]);
    h.handle_packet(ms(1), &meta(1), &packet).unwrap();
    assert_eq!(elected(&h, any), Some((host(1, 7), 2)));
    let other = Key::any_source(group(3).group);
    let packet = report_of(7, &[(ChangeToInclude, other, &[], None)]);
    h.handle_packet(ms(1), &meta(1), &packet).unwrap();
    assert_eq!(drops(&h, DropReason::UnknownGroup), 0);
}

#[test]
fn sender_must_be_a_host_of_the_link() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    let everywhere = InterfaceConfig::ipv4(host(1, 1), 0);
    h.set_interface(ms(0), Iface(1), everywhere).unwrap();
    h.install(ms(0), group(0), UP).unwrap();
    for source in ["0.0.0.0", "224.0.0.1", "239.1.1.1"] {
        let packet = is_in(source.parse().unwrap(), group(0), 1);
        let refused = h.handle_packet(ms(0), &meta(1), &packet);
        assert_eq!(refused, Err(DropReason::WrongSubnet), "{source}");
    }
    let packet = is_in("203.0.113.5".parse().unwrap(), group(0), 1);
    h.handle_packet(ms(0), &meta(1), &packet).unwrap();
    assert_eq!(h.offer_count(), 1);
}

#[test]
fn interface_that_is_not_downstream_gives_no_offers() {
    let mut h = with_entries(2);
    let packet = is_in(host(1, 7), group(0), 1);
    let only = |key: Key, iface: Iface| key == group(1) && iface == Iface(1);
    h.handle_packet_with(ms(0), &meta(1), &packet, only)
        .unwrap();
    assert_eq!(drops(&h, DropReason::WrongInterface), 1);
    assert_eq!((h.offer_count(), h.stats().records_accepted), (0, 0));
    let packet = is_in(host(1, 7), group(1), 1);
    h.handle_packet_with(ms(0), &meta(1), &packet, only)
        .unwrap();
    assert_eq!((h.offer_count(), h.stats().records_accepted), (1, 1));
    // ELECTED is wrong on a link below, and nobody's business elsewhere.
    let elected = hier_packet(
        host(1, 7),
        header(Kind::Elected, 1, HOLD),
        &[lms_proto::wire::hier::Entry {
            neighbour: Some(host(1, 9)),
            ..offer(group(0), 1)
        }],
    );
    let say = |h: &mut Hierarchy<'_>, below| {
        h.handle_packet_with(ms(0), &meta(1), &elected, |_, _| below)
    };
    assert_eq!(say(&mut h, false), Ok(()));
    assert_eq!(say(&mut h, true), Err(DropReason::WrongType));
    h.remove(ms(0), group(0));
    assert_eq!(say(&mut h, true), Ok(()));
}

#[test]
fn messages_to_other_ports_and_of_other_protocols_are_refused() {
    let mut h = with_entries(1);
    let mut packet = update(host(1, 7), 1, HOLD, &[offer(group(0), 1)]);
    packet[26..28].fill(0);
    packet[23] ^= 1;
    let refused = h.handle_packet(ms(0), &meta(1), &packet);
    assert_eq!(refused, Err(DropReason::Malformed), "port");
    packet[23] ^= 1;
    h.handle_packet(ms(0), &meta(1), &packet).unwrap();
    packet[9] = 6;
    lms_proto::wire::ipv4::fill_checksum(&mut packet[..20]);
    let refused = h.handle_packet(ms(0), &meta(1), &packet);
    assert_eq!(refused, Err(DropReason::Malformed), "TCP");
    let mut report = is_in(host(1, 7), group(0), 1);
    report[IGMP_AT + 1] ^= 1;
    let refused = h.handle_packet(ms(0), &meta(1), &report);
    assert_eq!(refused, Err(DropReason::Malformed), "IGMP checksum");
    assert_eq!(drops(&h, DropReason::Malformed), 3);
    assert_eq!(h.stats().updates_received, 1);
}
