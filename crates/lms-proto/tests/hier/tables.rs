//! Entries, offers, neighbours and interfaces: what a hierarchy holds, and what it refuses.

use core::net::Ipv4Addr;

use crate::common::*;

use lms_proto::hier::{
    Capacity, Changed, CommandError, Config, Cost, DropReason, Full, Hierarchy, Offer,
    StaticStorage, Storage,
};
use lms_proto::wire::hier::Kind;
use lms_proto::{Duration, Iface, Instant, InterfaceConfig, LinkAddr, NextHop};

const HOLD: Duration = Duration::from_secs(35);

fn with_entries(count: u16, config: Config, capacity: Capacity) -> Hierarchy<'static> {
    let mut h = hierarchy(config, capacity);
    for g in 0..count {
        h.install(ms(0), group(g), UP).unwrap();
    }
    h
}

fn say(h: &mut Hierarchy<'_>, now: Instant, iface: u16, n: u8, g: u16, cost: u16) {
    h.handle_packet(now, &meta(iface), &is_in(host(iface, n), group(g), cost))
        .unwrap();
}

fn drops(h: &Hierarchy<'_>, reason: DropReason) -> u64 {
    h.stats().drops.get(reason)
}

fn events(h: &mut Hierarchy<'_>) -> Vec<Changed> {
    std::iter::from_fn(|| h.poll_event()).collect()
}

#[test]
fn status_lists_entries_and_offers() {
    let mut h = with_entries(2, Config::default(), CAPACITY);
    say(&mut h, ms(5), 1, 7, 1, 3);
    let packet = update(host(2, 8), 1, Duration::from_secs(9), &[offer(group(1), 2)]);
    h.handle_packet(ms(6), &meta(2), &packet).unwrap();
    h.set_replier(ms(7), group(1), Iface(3), host(3, 9), None, Cost(8))
        .unwrap();
    let mut entries: Vec<_> = h
        .entries()
        .map(|(key, parent, elected, count)| (key, parent, elected.map(|e| e.cost), count))
        .collect();
    entries.sort_by_key(|(key, ..)| key.group);
    assert_eq!(
        entries,
        [(group(0), UP, None, 0), (group(1), UP, Some(Cost(2)), 3)]
    );
    let mut offers: Vec<_> = h.offers(h.find(group(1)).unwrap()).collect();
    offers.sort_by_key(|offer| offer.address);
    let expected = [
        (1, 7, 3, Some(ms(5) + HOLD)),
        (2, 8, 2, Some(ms(6) + Duration::from_secs(9))),
        (3, 9, 8, None),
    ]
    .map(|(iface, n, cost, expires)| Offer {
        iface: Iface(iface),
        address: host(iface, n),
        cost: Cost(cost),
        expires,
    });
    assert_eq!(offers, expected);
    assert_eq!((h.offer_count(), h.peer_count()), (3, 3));
    let elected = h.elected(h.find(group(1)).unwrap()).unwrap();
    assert_eq!((elected.iface, elected.cost), (Iface(2), Cost(2)));

    // A removed entry is in no list, though its withdrawals are still to be sent.
    run(&mut h, ms(100));
    let id = h.find(group(1)).unwrap();
    h.remove(ms(100), group(1));
    assert_eq!(h.entries().count(), 1);
    assert_eq!((h.offers(id).count(), h.elected(id)), (0, None));
    assert_eq!((h.offer_count(), h.peer_count()), (0, 3));
    h.remove(ms(100), group(9));
    assert_eq!(h.entries().count(), 1);
}

#[test]
fn events_name_the_entry_and_its_replier_once() {
    let mut h = with_entries(3, Config::default(), CAPACITY);
    assert_eq!(h.poll_event(), None);
    say(&mut h, ms(0), 1, 7, 1, 3);
    say(&mut h, ms(0), 1, 8, 1, 2);
    say(&mut h, ms(0), 1, 7, 2, 6);
    // Two changes of one entry are one event, with the last value.
    let mut seen: Vec<_> = events(&mut h)
        .iter()
        .map(|changed| {
            assert_eq!(h.find(changed.key), Some(changed.id));
            (changed.key, changed.elected.map(|e| e.cost))
        })
        .collect();
    seen.sort_by_key(|(key, _)| key.group);
    assert_eq!(seen, [(group(1), Some(Cost(2))), (group(2), Some(Cost(6)))]);
    assert_eq!(h.stats().elections, 3);

    // Another cost of the elected neighbour is an event, but no election.
    say(&mut h, ms(1), 1, 8, 1, 1);
    assert_eq!(events(&mut h).len(), 1);
    assert_eq!(h.stats().elections, 3);
    // A refresh, another neighbour's cost, a worse neighbour: nothing has changed.
    say(&mut h, ms(2), 1, 8, 1, 1);
    say(&mut h, ms(2), 1, 7, 1, 9);
    say(&mut h, ms(2), 1, 9, 1, 4);
    assert_eq!((events(&mut h).len(), h.stats().elections), (0, 3));
    assert_eq!(h.stats().records_accepted, 7);
    assert_eq!(h.stats().reports_received, 7);

    // No replier is left.
    say(&mut h, ms(3), 1, 7, 2, 0xffff);
    let last = events(&mut h);
    assert_eq!(
        (last.len(), last[0].key, last[0].elected),
        (1, group(2), None)
    );
    // An entry that is removed with an event pending has none, and its slot becomes free.
    say(&mut h, ms(4), 1, 7, 2, 5);
    h.remove(ms(4), group(2));
    assert_eq!(events(&mut h), []);
}

#[test]
fn removed_entry_is_free_once_it_is_withdrawn_and_its_event_taken() {
    let capacity = Capacity {
        entries: 1,
        ..CAPACITY
    };
    // Nothing was advertised: free at once.
    let mut h = with_entries(1, Config::default(), capacity);
    assert_eq!(h.install(ms(0), group(1), UP), Err(Full::Entries));
    h.remove(ms(0), group(0));
    h.install(ms(0), group(1), UP).unwrap();
    // Withdrawn, but the event is pending.
    say(&mut h, ms(0), 1, 7, 1, 5);
    events(&mut h);
    run(&mut h, ms(100));
    h.remove(ms(100), group(1));
    run(&mut h, ms(1_000));
    assert_eq!(h.poll_timeout(), None);
    assert_eq!(h.install(ms(1_000), group(2), UP), Err(Full::Entries));
    assert_eq!(events(&mut h), []);
    h.install(ms(1_000), group(2), UP).unwrap();
    assert_eq!((h.entries().count(), h.find(group(1))), (1, None));
}

#[test]
fn entry_that_returns_while_it_is_withdrawn_lives_on() {
    let mut h = with_entries(1, Config::default(), CAPACITY);
    say(&mut h, ms(0), 1, 7, 0, 5);
    run(&mut h, ms(1_000));
    h.remove(ms(1_000), group(0));
    run(&mut h, ms(1_010));
    let id = h.install(ms(1_010), group(0), UP).unwrap();
    assert_eq!(h.find(group(0)), Some(id));
    events(&mut h);
    run(&mut h, ms(5_000));
    assert_eq!(h.find(group(0)), Some(id));
    say(&mut h, ms(5_000), 1, 7, 0, 4);
    assert_eq!(elected(&h, group(0)), Some((host(1, 7), 4)));
    assert_eq!(events(&mut h).len(), 1);
    let sent = run(&mut h, ms(5_100));
    assert!(
        sent.iter()
            .any(|(_, iface, _, e)| *iface == UP && e[0].cost == Cost(5))
    );
}

#[test]
fn commands_say_why_they_are_refused() {
    let mut h = with_entries(1, Config::default(), CAPACITY);
    let unknown = h.set_replier(ms(0), group(5), Iface(1), host(1, 7), None, Cost(1));
    assert_eq!(unknown, Err(CommandError::UnknownEntry));
    h.clear_replier(ms(0), group(5), Iface(1), host(1, 7));
    h.clear_replier(ms(0), group(0), Iface(1), host(1, 7));
    assert_eq!((h.peer_count(), h.offer_count()), (0, 0));
    let said = CommandError::UnknownEntry.to_string();
    assert_eq!(said, "no such multicast forwarding entry");
    for full in [Full::Neighbours, Full::Peers] {
        assert_eq!(CommandError::Full(full).to_string(), full.to_string());
        assert!(full.to_string().starts_with("no room for another"));
    }
    let full = Capacity {
        peers: 1,
        ..CAPACITY
    };
    let mut h = with_entries(1, Config::default(), full);
    h.set_replier(ms(0), group(0), Iface(1), host(1, 7), None, Cost(1))
        .unwrap();
    let refused = h.set_replier(ms(0), group(0), Iface(1), host(1, 8), None, Cost(1));
    assert_eq!(refused, Err(CommandError::Full(Full::Peers)));
}

#[test]
fn configured_replier_keeps_its_link_address_and_can_be_withdrawn() {
    let mut h = with_entries(1, Config::default(), CAPACITY);
    let link = Some(LinkAddr([2, 0, 0, 0, 0, 9]));
    let set = |h: &mut Hierarchy<'_>, link, cost| {
        h.set_replier(ms(0), group(0), Iface(1), host(1, 7), link, Cost(cost))
            .unwrap();
        let elected = h.elected(h.find(group(0)).unwrap());
        elected.map(|elected| (h.next_hop(elected.peer), elected.cost.0))
    };
    let hop = |link| NextHop::Neighbour {
        addr: host(1, 7),
        link,
    };
    assert_eq!(set(&mut h, None, 3), Some((hop(None), 3)));
    assert_eq!(set(&mut h, link, 4), Some((hop(link), 4)));
    assert_eq!(set(&mut h, None, 5), Some((hop(link), 5)));
    assert_eq!((h.offer_count(), h.peer_count()), (1, 1));
    let peer = h.elected(h.find(group(0)).unwrap()).unwrap().peer;
    assert_eq!(set(&mut h, None, 0xffff), None);
    assert_eq!(h.offer_count(), 0);
    h.remove_interface(ms(0), Iface(1));
    assert_eq!(h.next_hop(peer), NextHop::Group, "not known any more");
}

#[test]
fn offer_of_a_host_becomes_a_configured_one_and_does_not_expire() {
    let mut h = with_entries(1, Config::default(), CAPACITY);
    say(&mut h, ms(0), 1, 7, 0, 3);
    h.set_replier(ms(0), group(0), Iface(1), host(1, 7), None, Cost(6))
        .unwrap();
    say(&mut h, ms(1), 1, 7, 0, 2);
    run(&mut h, ms(100_000));
    assert_eq!(elected(&h, group(0)), Some((host(1, 7), 6)));
    assert_eq!((h.stats().expired, h.offer_count()), (0, 1));
}

/// The neighbours that are idle, the one for longest first, make room for others; one with offers never does.
#[test]
fn full_table_forgets_the_neighbour_that_is_idle_for_longest() {
    let capacity = Capacity {
        peers: 4,
        ..CAPACITY
    };
    let mut h = with_entries(1, Config::default(), capacity);
    let mut sequence = 0;
    // Any message makes a neighbour known; this one has no entry here.
    let mut meet = |h: &mut Hierarchy<'_>, n: u8| {
        sequence += 1;
        let packet = update(host(1, n), sequence, HOLD, &[offer(group(9), 1)]);
        h.handle_packet(ms(0), &meta(1), &packet)
    };
    // A neighbour that is not known any more has no sequence number either.
    let is_known = |h: &mut Hierarchy<'_>, n: u8| {
        let replay = update(host(1, n), 0, HOLD, &[offer(group(9), 1)]);
        h.handle_packet(ms(0), &meta(1), &replay) == Err(DropReason::Replay)
    };
    for n in 10..14 {
        meet(&mut h, n).unwrap();
    }
    // Two of them, from the middle and the end, get offers.
    say(&mut h, ms(0), 1, 11, 0, 3);
    say(&mut h, ms(0), 1, 13, 0, 4);
    for n in [11, 13, 10, 12] {
        assert!(is_known(&mut h, n), "{n}");
    }
    meet(&mut h, 14).unwrap();
    for n in [11, 12, 13, 14] {
        assert!(is_known(&mut h, n), "10 was idle for longest, not {n}");
    }
    meet(&mut h, 15).unwrap();
    for n in [11, 13, 14, 15] {
        assert!(is_known(&mut h, n), "then 12, not {n}");
    }
    // 11 loses its offer, and is the last in the row of the idle ones.
    say(&mut h, ms(0), 1, 11, 0, 0xffff);
    meet(&mut h, 16).unwrap();
    meet(&mut h, 17).unwrap();
    for n in [11, 13, 16, 17] {
        assert!(is_known(&mut h, n), "then 14 and 15, not {n}");
    }
    meet(&mut h, 18).unwrap();
    for n in [13, 16, 17, 18] {
        assert!(is_known(&mut h, n), "then 11, not {n}");
    }
    assert_eq!(h.peer_count(), 4);
    // All have offers: nobody is forgotten.
    for n in [16, 17, 18] {
        say(&mut h, ms(0), 1, n, 0, 9);
    }
    assert_eq!(meet(&mut h, 19), Err(DropReason::PeersFull));
    assert_eq!((h.peer_count(), h.offer_count()), (4, 4));
    // The middle of the row goes idle last, and the row still holds.
    for n in [17, 16, 18, 13] {
        say(&mut h, ms(0), 1, n, 0, 0xffff);
    }
    for n in [20, 21] {
        meet(&mut h, n).unwrap();
    }
    for n in [13, 18, 20, 21] {
        assert!(is_known(&mut h, n), "{n}");
    }
}

/// Links may use the same addresses, as unnumbered ones do: a neighbour is an address on a link.
#[test]
fn one_address_on_two_links_is_two_neighbours() {
    let mut h = with_entries(1, Config::default(), CAPACITY);
    for iface in [1, 2] {
        let config = InterfaceConfig::ipv4(host(9, 1), 24);
        h.set_interface(ms(0), Iface(iface), config).unwrap();
        let packet = is_in(host(9, 7), group(0), 6 - iface);
        h.handle_packet(ms(0), &meta(iface), &packet).unwrap();
    }
    assert_eq!((h.offer_count(), h.peer_count()), (2, 2));
    let of = |h: &Hierarchy<'_>| {
        h.elected(h.find(group(0)).unwrap())
            .map(|e| (e.iface, e.cost))
    };
    assert_eq!(of(&h), Some((Iface(2), Cost(4))));
    h.clear_replier(ms(0), group(0), Iface(2), host(9, 7));
    assert_eq!(of(&h), Some((Iface(1), Cost(5))));
}

#[test]
fn interface_with_another_address_starts_again() {
    let mut h = with_entries(2, Config::default(), CAPACITY);
    say(&mut h, ms(0), 1, 7, 0, 3);
    say(&mut h, ms(0), 2, 8, 0, 5);
    say(&mut h, ms(0), 1, 9, 9, 5);
    run(&mut h, ms(1_000));
    let config = |n, prefix_len| InterfaceConfig::ipv4(host(1, n), prefix_len);
    let before = format!("{h:?}");
    h.set_interface(ms(1_000), Iface(1), config(1, 24)).unwrap();
    assert_eq!(format!("{h:?}"), before, "the same address changes nothing");

    h.set_interface(ms(1_000), Iface(1), config(2, 24)).unwrap();
    assert_eq!(elected(&h, group(0)), Some((host(2, 8), 5)));
    assert_eq!((h.offer_count(), h.peer_count()), (1, 1), "idle ones too");
    let sent = run(&mut h, ms(1_050));
    assert!(
        sent.iter()
            .any(|(_, iface, _, e)| *iface == UP && e[0].cost == Cost(6))
    );
    assert!(sent.iter().all(|(_, iface, ..)| *iface != Iface(1)));
    // Our own address is the new one; the old one is a neighbour's.
    let packet = is_in(host(1, 2), group(0), 1);
    let own = h.handle_packet(ms(1_050), &meta(1), &packet);
    assert_eq!(own, Err(DropReason::OwnAddress));
    say(&mut h, ms(1_050), 1, 1, 0, 1);
    assert_eq!(elected(&h, group(0)), Some((host(1, 1), 1)));
    let sent = run(&mut h, ms(1_100));
    assert!(sent.iter().any(|(_, iface, header, e)| {
        (*iface, header.kind, e[0].neighbour) == (Iface(1), Kind::Elected, Some(host(1, 1)))
    }));
}

#[test]
fn removed_interface_falls_silent_and_frees_what_it_held() {
    // The adverts to the parent and to one link for each entry, and no more.
    let capacity = Capacity {
        entries: 2,
        branches: 2,
        ..CAPACITY
    };
    let mut h = with_entries(2, Config::default(), capacity);
    let config = InterfaceConfig::ipv4(host(1, 1), 24);
    // Before the first messages, and after them with a change that waits.
    for (start, changes) in [(0, false), (10_000, true)] {
        let at = |after: u64| ms(start + after);
        for g in 0..2 {
            say(&mut h, at(0), 1, 7, g, 3);
        }
        if changes {
            run(&mut h, at(50));
            say(&mut h, at(50), 1, 7, 0, 9);
        }
        h.remove_interface(at(50), Iface(1));
        // The neighbour on the other link, of the first round, is still known.
        let peers = usize::from(changes);
        assert_eq!((h.offer_count(), h.peer_count()), (0, peers));
        let sent = run(&mut h, at(2_000));
        assert!(sent.iter().all(|(_, iface, ..)| *iface == UP), "{sent:?}");
        assert_eq!(h.poll_timeout(), None);
        let refused = h.handle_packet(at(2_000), &meta(1), &is_in(host(1, 7), group(0), 3));
        assert_eq!(refused, Err(DropReason::UnknownInterface));
        // There is room on another link, and for the interface itself.
        for g in 0..2 {
            say(&mut h, at(2_000), 2, 7, g, 3);
        }
        assert_eq!(h.offer_count(), 2);
        for g in 0..2 {
            say(&mut h, at(2_000), 2, 7, g, 0xffff);
        }
        run(&mut h, at(3_000));
        h.set_interface(at(3_000), Iface(1), config).unwrap();
    }
    // The interface of the parent: its adverts wait until it is there again.
    for g in 0..2 {
        say(&mut h, ms(20_000), 1, 7, g, 3);
    }
    run(&mut h, ms(21_000));
    h.remove_interface(ms(21_000), UP);
    let sent = run(&mut h, ms(40_000));
    assert!(sent.len() > 1);
    assert!(sent.iter().all(|(_, iface, ..)| *iface != UP), "{sent:?}");
    assert_eq!(h.find(group(0)).map(|_| h.entries().count()), Some(2));
    h.remove_interface(ms(40_000), UP);
}

#[test]
fn interface_beyond_the_storage_is_refused() {
    let mut h = with_entries(1, Config::default(), CAPACITY);
    let config = InterfaceConfig::ipv4(host(4, 1), 24);
    let refused = h.set_interface(ms(0), Iface(4), config);
    assert_eq!(refused, Err(Full::Interfaces));
    let packet = is_in(host(4, 7), group(0), 1);
    let unknown = h.handle_packet(ms(0), &meta(4), &packet);
    assert_eq!(unknown, Err(DropReason::UnknownInterface));
    h.remove_interface(ms(0), Iface(3));
    h.set_interface(ms(0), Iface(4), config).unwrap();
    say(&mut h, ms(0), 4, 7, 0, 1);
    assert_eq!(elected(&h, group(0)), Some((host(4, 7), 1)));

    // Arrays with room for half an interface.
    let mut memory = StaticStorage::<1, 1, 1, 2, 3>::default();
    let mut h = Hierarchy::new(Config::default(), memory.lend(), [1; 32], ms(0));
    h.set_interface(ms(0), Iface(4), config).unwrap();
    let other = InterfaceConfig::ipv4(host(5, 1), 24);
    for _ in 0..2 {
        let refused = h.set_interface(ms(0), Iface(5), other);
        assert_eq!(refused, Err(Full::Interfaces));
    }
    h.install(ms(0), group(0), UP).unwrap();
    let packet = is_in(host(5, 7), group(0), 1);
    let unknown = h.handle_packet(ms(0), &meta(5), &packet);
    assert_eq!(unknown, Err(DropReason::UnknownInterface));
}

#[test]
fn arrays_hold_as_much_as_they_are_long() {
    let mut memory = StaticStorage::<2, 3, 2, 4, 4>::default();
    let Storage {
        entries,
        neighbours,
        peers,
        adverts,
        streams,
    } = memory.lend();
    let lengths = [
        entries.len(),
        neighbours.len(),
        peers.len(),
        adverts.len(),
        streams.len(),
    ];
    assert_eq!(lengths, [2, 3, 2, 4, 4]);
    let owned = Storage::<Ipv4Addr>::owned(Capacity {
        entries: 2,
        neighbours: 3,
        peers: 5,
        branches: 7,
        interfaces: 11,
    });
    let lengths = [
        owned.entries.len(),
        owned.neighbours.len(),
        owned.peers.len(),
        owned.adverts.len(),
        owned.streams.len(),
    ];
    assert_eq!(lengths, [2, 3, 5, 9, 22]);
}

#[test]
fn offer_without_room_is_counted_and_fits_once_another_has_gone() {
    // One entry with its parent's advert, and room for the advert to one link.
    let capacity = Capacity {
        entries: 1,
        branches: 1,
        ..CAPACITY
    };
    let mut h = with_entries(1, Config::default(), capacity);
    say(&mut h, ms(0), 1, 7, 0, 3);
    run(&mut h, ms(1_000));
    say(&mut h, ms(1_000), 2, 7, 0, 1);
    assert_eq!((h.offer_count(), h.stats().adverts_full), (1, 1));
    assert_eq!(drops(&h, DropReason::TableFull), 1);
    // Another offer from the first link needs no advert of its own.
    say(&mut h, ms(1_000), 1, 8, 0, 2);
    assert_eq!(elected(&h, group(0)), Some((host(1, 8), 2)));
    for n in [7, 8] {
        say(&mut h, ms(2_000), 1, n, 0, 0xffff);
    }
    // The first link is still to learn that none of its hosts is elected.
    say(&mut h, ms(2_000), 2, 7, 0, 1);
    assert_eq!((h.offer_count(), h.stats().adverts_full), (0, 2));
    run(&mut h, ms(3_000));
    say(&mut h, ms(3_000), 2, 7, 0, 1);
    assert_eq!(elected(&h, group(0)), Some((host(2, 7), 1)));

    // A full table of offers is no table of adverts that is full.
    let config = Config {
        neighbours_per_entry: 1,
        ..Config::default()
    };
    let mut h = with_entries(1, config, CAPACITY);
    say(&mut h, ms(0), 1, 7, 0, 3);
    say(&mut h, ms(0), 1, 8, 0, 1);
    assert_eq!((h.offer_count(), h.stats().adverts_full), (1, 0));
    assert_eq!(drops(&h, DropReason::TableFull), 1);
}

#[test]
fn offer_expires_when_its_last_message_says() {
    let mut h = with_entries(1, Config::default(), CAPACITY);
    let mut sequence = 0;
    let mut say = |h: &mut Hierarchy<'_>, at, seconds| {
        sequence += 1;
        let hold = Duration::from_secs(seconds);
        let packet = update(host(1, 7), sequence, hold, &[offer(group(0), 3)]);
        h.handle_packet(ms(at), &meta(1), &packet).unwrap();
    };
    let silent_from = |h: &mut Hierarchy<'_>, at: u64| {
        run(h, ms(at) - Duration::from_micros(1));
        let was = h.offer_count();
        run(h, ms(at));
        (was, h.offer_count())
    };
    say(&mut h, 0, 30);
    // Shorter than the one before.
    say(&mut h, 1_000, 2);
    assert_eq!(silent_from(&mut h, 3_000), (1, 0));
    // Longer.
    say(&mut h, 10_000, 2);
    say(&mut h, 11_000, 30);
    assert_eq!(silent_from(&mut h, 41_000), (1, 0));
    assert_eq!(h.stats().expired, 2);
}

#[test]
fn one_call_expires_a_bounded_number_of_offers() {
    let capacity = Capacity {
        entries: 600,
        neighbours: 600,
        branches: 600,
        ..CAPACITY
    };
    let mut h = with_entries(600, Config::default(), capacity);
    for first in (0..600).step_by(60) {
        let offers: Vec<_> = (first..first + 60).map(|g| offer(group(g), 3)).collect();
        let hold = Duration::from_secs(1);
        let packet = update(host(1, 7), u32::from(first) + 1, hold, &offers);
        h.handle_packet(ms(0), &meta(1), &packet).unwrap();
    }
    run(&mut h, ms(500));
    for left in [600 - 256, 600 - 512, 0, 0] {
        h.handle_timeout(ms(1_000));
        assert_eq!(h.offer_count(), left);
        assert_eq!(h.stats().expired, 600 - left as u64);
        if left > 0 {
            assert!(h.poll_timeout() <= Some(ms(1_000)), "the rest is due");
        }
    }
    // So with changes that waited for their damping time: the second withdrawals of all entries.
    for g in 0..600 {
        assert_eq!(elected(&h, group(g)), None);
    }
    let sent = run(&mut h, ms(3_000));
    let withdrawn = |iface| -> usize {
        let of = sent.iter().filter(|(_, on, ..)| *on == iface);
        of.map(|(.., entries)| entries.len()).sum()
    };
    assert_eq!((withdrawn(UP), withdrawn(Iface(1))), (1_800, 1_800));
    assert_eq!(h.poll_timeout(), None);
}
