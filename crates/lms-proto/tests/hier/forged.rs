//! Forged cost updates: each is dropped, counted under its own reason, and nothing else changes
//! (`docs/trust.md`, "Forged").

use lms_proto::hier::{Capacity, Config, Cost, DropReason, Hierarchy, Offer, sender_version};
use lms_proto::wire::hier::{Entry, Header, Kind};
use lms_proto::wire::ipv4::fill_checksum;
use lms_proto::{Duration, Iface, Instant, Key, Meta};

use crate::common::*;

const HOLD: Duration = Duration::from_secs(35);

/// Everything that can be seen of a hierarchy but its counters.
type Seen = (
    Vec<(Key, Option<(std::net::Ipv4Addr, u16)>, Vec<Offer>)>,
    usize,
    Option<Instant>,
);

fn look(h: &Hierarchy<'_>) -> Seen {
    let entries = h
        .entries()
        .map(|(key, ..)| {
            (
                key,
                elected(h, key),
                h.offers(h.find(key).unwrap()).collect(),
            )
        })
        .collect();
    (entries, h.peer_count(), h.poll_timeout())
}

/// 10.0.1.5, a router, offers (S, group 1) at cost 3, message 10 of its boot.
fn settled(config: Config, capacity: Capacity) -> Hierarchy<'static> {
    let mut h = hierarchy(config, capacity);
    h.install(ms(0), group(1), UP).unwrap();
    let packet = update(host(1, 5), 10, HOLD, &[offer(group(1), 3)]);
    h.handle_packet(ms(0), &meta(1), &packet).unwrap();
    while h.poll_event().is_some() {}
    run(&mut h, ms(1_000));
    h
}

/// Hands one packet over and checks that nothing but the counter of `reason` moved.
fn refused(h: &mut Hierarchy<'_>, meta: Meta, packet: &[u8], reason: DropReason, is_whole: bool) {
    let (before, seen) = (*h.stats(), look(h));
    let result = h.handle_packet(ms(1_000), &meta, packet);
    assert_eq!(
        result,
        if is_whole { Err(reason) } else { Ok(()) },
        "{reason}"
    );
    for other in DropReason::ALL {
        let more = u64::from(*other == reason);
        assert_eq!(
            h.stats().drops.get(*other),
            before.drops.get(*other) + more,
            "{other}"
        );
    }
    assert_eq!(h.stats().records_accepted, before.records_accepted);
    assert_eq!(h.poll_event(), None);
    assert_eq!(look(h), seen, "{reason}");
}

/// A router hears on its parent's link what the parent tells the hosts there: nothing is wrong with that.
#[test]
fn what_the_parent_tells_its_link_is_not_refused() {
    let mut h = settled(Config::default(), CAPACITY);
    for sequence in 1..20 {
        let elected = hier_packet(
            host(0, 5),
            header(Kind::Elected, sequence, HOLD),
            &[Entry {
                key: group(1),
                neighbour: Some(host(0, 9)),
                cost: Cost(0),
            }],
        );
        let at = ms(1_000 + u64::from(sequence) * 1_000);
        let _ = h.handle_packet(at, &meta(0), &elected);
    }
    assert_eq!(h.stats().drops.get(DropReason::WrongType), 0);
    assert_eq!(h.poll_event(), None);
}

#[test]
fn each_forgery_under_its_own_counter() {
    let mut h = settled(Config::default(), CAPACITY);
    let lie = [offer(group(1), 0)];
    let good = update(host(1, 5), 11, HOLD, &lie);
    let mut far_ttl = good.clone();
    far_ttl[8] = 2;
    fill_checksum(&mut far_ttl[..20]);
    let mut fragment = good.clone();
    fragment[6] = 0x20;
    fill_checksum(&mut fragment[..20]);
    let mut other_group = good.clone();
    other_group[19] = 251;
    fill_checksum(&mut other_group[..20]);
    let elected_kind = hier_packet(
        host(1, 5),
        header(Kind::Elected, 11, HOLD),
        &[Entry {
            key: group(1),
            neighbour: Some(host(1, 9)),
            cost: Cost(0),
        }],
    );
    let unknown = update(host(1, 5), 11, HOLD, &[offer(group(2), 0)]);

    refused(
        &mut h,
        meta(1),
        &good[..good.len() - 1],
        DropReason::Malformed,
        true,
    );
    refused(&mut h, meta(1), &fragment, DropReason::Malformed, true);
    refused(&mut h, meta(1), &other_group, DropReason::Malformed, true);
    refused(&mut h, meta(1), &far_ttl, DropReason::Ttl, true);
    refused(&mut h, meta(9), &good, DropReason::UnknownInterface, true);
    refused(&mut h, meta(2), &good, DropReason::WrongSubnet, true);
    refused(
        &mut h,
        meta(1),
        &update(host(1, 1), 11, HOLD, &lie),
        DropReason::OwnAddress,
        true,
    );
    refused(&mut h, meta(1), &elected_kind, DropReason::WrongType, true);
    let other = other_version(&good, 2);
    refused(&mut h, meta(1), &other, DropReason::Version, true);
    assert_eq!(sender_version(&other), Some((host(1, 5), 2)));
    // A router that is not on the link is not named.
    refused(&mut h, meta(2), &other, DropReason::WrongSubnet, true);
    for sequence in [10, 9, 0, 10u32.wrapping_sub(1 << 30)] {
        let replay = update(host(1, 5), sequence, HOLD, &lie);
        refused(&mut h, meta(1), &replay, DropReason::Replay, true);
    }
    refused(&mut h, meta(1), &unknown, DropReason::UnknownGroup, false);
    // Its source lies on the link of the parent, where offers do not come from.
    let from_above = update(host(0, 5), 11, HOLD, &lie);
    let seen = look(&h).0;
    h.handle_packet(ms(1_000), &meta(0), &from_above).unwrap();
    assert_eq!(
        (h.stats().drops.get(DropReason::WrongInterface), look(&h).0),
        (1, seen)
    );
    assert_eq!(h.poll_event(), None);

    // Hosts' reports pass the same checks.
    let report = is_in(host(1, 5), group(1), 0);
    let mut far_report = report.clone();
    far_report[8] = 2;
    fill_checksum(&mut far_report[..24]);
    refused(&mut h, meta(1), &far_report, DropReason::Ttl, true);
    refused(&mut h, meta(2), &report, DropReason::WrongSubnet, true);
    refused(
        &mut h,
        meta(1),
        &is_in(host(1, 1), group(1), 0),
        DropReason::OwnAddress,
        true,
    );
    refused(
        &mut h,
        meta(1),
        &is_in(host(1, 5), group(2), 0),
        DropReason::UnknownGroup,
        false,
    );
}

#[test]
fn every_bit_flip_of_an_update_is_refused() {
    let mut h = settled(Config::default(), CAPACITY);
    let good = update(host(1, 5), 11, HOLD, &[offer(group(1), 0)]);
    for bit in 0..good.len() * 8 {
        let mut packet = good.clone();
        packet[bit / 8] ^= 1 << (bit % 8);
        let seen = look(&h);
        assert!(
            h.handle_packet(ms(1_000), &meta(1), &packet).is_err(),
            "{bit}"
        );
        assert_eq!(look(&h), seen);
    }
    h.handle_packet(ms(1_000), &meta(1), &good).unwrap();
    assert_eq!(elected(&h, group(1)), Some((host(1, 5), 0)));
}

#[test]
fn boots_do_not_come_again() {
    let mut h = settled(Config::default(), CAPACITY);
    let boot = |boot, sequence, cost| {
        let header = Header {
            boot,
            ..header(Kind::Update, sequence, HOLD)
        };
        hier_packet(host(1, 5), header, &[offer(group(1), cost)])
    };
    let mut say = |at, packet: Vec<u8>| {
        let result = h.handle_packet(ms(at), &meta(1), &packet);
        (result, elected(&h, group(1)).unwrap().1)
    };
    assert_eq!(
        say(500, boot(2, 1, 7)),
        (Err(DropReason::Replay), 3),
        "restarts too soon"
    );
    assert_eq!(
        say(1_500, boot(2, 1, 7)),
        (Ok(()), 7),
        "a restart begins a new count"
    );
    assert_eq!(
        say(9_000, boot(BOOT, 11, 0)),
        (Err(DropReason::Replay), 7),
        "the boot before"
    );
    assert_eq!(say(9_000, boot(2, 1, 0)), (Err(DropReason::Replay), 7));
    assert_eq!(say(9_000, boot(2, u32::MAX / 2, 6)), (Ok(()), 6));
    // The count wraps.
    assert_eq!(say(9_000, boot(2, u32::MAX - 1, 5)), (Ok(()), 5));
    assert_eq!(say(9_000, boot(2, 3, 4)), (Ok(()), 4));
}

#[test]
fn rate_is_bounded_and_tables_are() {
    let config = Config {
        neighbour_burst: 5,
        neighbour_packets_per_s: 10,
        ..Config::default()
    };
    let mut h = settled(config, CAPACITY);
    for sequence in 11..16 {
        let packet = update(host(1, 5), sequence, HOLD, &[offer(group(1), 3)]);
        h.handle_packet(ms(1_000), &meta(1), &packet).unwrap();
    }
    let packet = update(host(1, 5), 16, HOLD, &[offer(group(1), 0)]);
    refused(&mut h, meta(1), &packet, DropReason::Rate, true);
    h.handle_packet(ms(1_100), &meta(1), &packet).unwrap();
    assert_eq!(
        elected(&h, group(1)),
        Some((host(1, 5), 0)),
        "not counted as seen before"
    );

    let mut h = settled(
        Config::default(),
        Capacity {
            neighbours: 1,
            ..CAPACITY
        },
    );
    // The sender is remembered, its offer is not.
    h.handle_packet(ms(0), &meta(1), &is_in(host(1, 6), group(9), 1))
        .unwrap();
    refused(
        &mut h,
        meta(1),
        &is_in(host(1, 6), group(1), 1),
        DropReason::TableFull,
        false,
    );

    let config = Config {
        neighbours_per_entry: 1,
        ..Config::default()
    };
    let mut h = settled(config, CAPACITY);
    h.handle_packet(ms(0), &meta(1), &is_in(host(1, 6), group(9), 1))
        .unwrap();
    refused(
        &mut h,
        meta(1),
        &is_in(host(1, 6), group(1), 1),
        DropReason::TableFull,
        false,
    );

    let mut h = settled(
        Config::default(),
        Capacity {
            peers: 1,
            ..CAPACITY
        },
    );
    refused(
        &mut h,
        meta(1),
        &is_in(host(1, 6), group(1), 1),
        DropReason::PeersFull,
        true,
    );
}

/// A flood from many addresses makes the router say no more than its configured rate.
#[test]
fn flood_does_not_make_us_talk() {
    let mut h = settled(
        Config {
            messages_per_s: 20,
            ..Config::default()
        },
        CAPACITY,
    );
    for g in 2..50 {
        h.install(ms(1_000), group(g), UP).unwrap();
    }
    let before = h.stats().updates_sent + h.stats().elected_sent;
    for at in 0..2_000u64 {
        let now = ms(1_000 + at);
        for n in 0..5 {
            let (n, g) = (2 + (at as u8 % 50) + n, (at as u16 * 7 + u16::from(n)) % 50);
            let packet = is_in(host(1, n), group(g), (at % 90) as u16);
            let _ = h.handle_packet(now, &meta(1), &packet);
        }
        while h.poll_event().is_some() {}
        run(&mut h, now);
    }
    let said = h.stats().updates_sent + h.stats().elected_sent - before;
    assert!(
        said <= 2 * (2 * 20 + 2),
        "two streams of 20 a second: {said}"
    );
    assert!(h.offer_count() <= 256 && h.peer_count() <= 64);
    assert!(elected(&h, group(1)).is_some_and(|(_, cost)| cost < 90));
    assert!(
        h.offers(h.find(group(1)).unwrap())
            .all(|o| o.iface == Iface(1))
    );
}
