//! The lookup table beside a map.

use std::collections::BTreeMap;

use core::net::Ipv6Addr;

use super::*;

extern crate std;

fn label(number: u32) -> FlowLabel {
    FlowLabel::new(number).expect("not 0")
}

const SECRET: [u64; 3] = [
    0x9e37_79b9_7f4a_7c15,
    0xbf58_476d_1ce4_e5b9,
    0x94d0_49bb_1331_11eb,
];
const OTHER: [u64; 3] = [
    0xd6e8_feb8_6659_fd93,
    0xff51_afd7_ed55_8ccd,
    0xc4ce_b9fe_1a85_ec53,
];

/// The key of a flow of one sender.
fn key(number: u32) -> Key {
    Key::datagram(([10, 0, 0, 1], 9).into(), label(number))
}

#[test]
fn like_a_map() {
    let key = |label| {
        let label = FlowLabel::new(label).unwrap();
        Key::datagram(([10, 0, 0, 1], 9).into(), label)
    };
    let (mut table, mut map) = (Table::new(SECRET), BTreeMap::new());
    let mut state = 1_u64;
    for _ in 0..20_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let label = (state >> 33) as u32 % 600 + 1;
        let flow = (state >> 20) as u32;
        let entry = Entry { edge: label, flow };
        let ahead = [label, label % 600 + 1];
        table.forget();
        for label in ahead {
            table.prefetch(key(label));
        }
        match state >> 62 {
            0 => {
                table.remove(&key(label), label);
                map.remove(&label);
            }
            // Prefetched results remain valid.
            1 => {}
            _ => {
                table.insert(key(label), entry);
                map.insert(label, entry);
            }
        }
        for label in ahead {
            let found = table.get(&key(label)).map(|found| found.entry);
            assert_eq!(found, map.get(&label).copied());
        }
    }
    assert_eq!(table.len(), map.len());
    for label in 1..=600 {
        let found = table.get(&key(label)).map(|found| found.entry);
        assert_eq!(found, map.get(&label).copied());
    }
}

#[test]
fn small_tables_that_are_half_full() {
    // Eight keys in 16 slots: they collide, and the search goes on at the beginning.
    for secret in 0..300_u64 {
        let (mut table, mut map) = (
            Table::new([secret, secret * 77, secret * 1_000_003]),
            BTreeMap::new(),
        );
        let mut state = secret;
        for _ in 0..200 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let number = (state >> 33) as u32 % 8 + 1;
            let entry = Entry {
                edge: number,
                flow: (state >> 20) as u32,
            };
            table.remove(&key(number), number);
            map.remove(&number);
            if state >> 62 > 0 {
                table.insert(key(number), entry);
                map.insert(number, entry);
            }
            assert_eq!((table.len(), table.places.len()), (map.len(), 16));
            for number in 1..=8 {
                assert_eq!(table.entry(&key(number)), map.get(&number).copied());
            }
        }
    }
}

#[test]
fn a_table_is_never_more_than_half_full() {
    let mut table = Table::new([3, 5, 7]);
    for number in 1..=1000 {
        let entry = Entry {
            edge: number,
            flow: 0,
        };
        table.insert(key(number), entry);
        assert_eq!(table.len(), number as usize);
        assert_eq!(
            table.places.len(),
            (2 * table.len()).next_power_of_two().max(16)
        );
    }
}

/// Inserts keys; the steps from the home of each to its slot, all together, and the homes.
fn spread(secret: [u64; 3], keys: &[Key]) -> (usize, Vec<usize>) {
    let mut table = Table::new(secret);
    for (edge, key) in (1..).zip(keys) {
        table.insert(*key, Entry { edge, flow: 0 });
    }
    let mask = table.places.len() - 1;
    let steps = |key: &Key| table.find(key).wrapping_sub(table.home(key)) & mask;
    let homes = keys.iter().map(|key| table.home(key)).collect();
    (keys.iter().map(steps).sum(), homes)
}

#[test]
fn keys_are_spread_over_the_table_in_a_way_that_depends_on_the_secret() {
    let v6 = |bits: u128| SocketAddr::new(Ipv6Addr::from_bits(bits).into(), 9);
    let kinds: [&dyn Fn(u32) -> Key; 8] = [
        &key,
        &|number| key(number << 20),
        &|number| Key::datagram((number.to_be_bytes(), 9).into(), label(1)),
        &|number| Key::datagram(([10, 0, 0, 1], number as u16).into(), label(1)),
        &|number| Key::datagram(v6(number.into()), label(1)),
        &|number| Key::datagram(v6(u128::from(number) << 64 | 1), label(1)),
        &|number| Key::stream(ConnId(number.into()), label(1)),
        &|number| Key::native(ChannelId(number.into())),
    ];
    for (at, kind) in kinds.into_iter().enumerate() {
        let keys: Vec<_> = (1..=1000).map(kind).collect();
        let ((one, homes), (other, others)) = (spread(SECRET, &keys), spread(OTHER, &keys));
        assert!(one < 1500 && other < 1500, "kind {at}: {one} {other}");
        let both = homes.iter().zip(&others);
        let same = both.filter(|(one, other)| one == other).count();
        assert!(same < 50, "kind {at}: {same}");
    }
}

#[test]
fn no_secret_gives_all_keys_one_place() {
    let keys: Vec<_> = (1..=1000).map(key).collect();
    for last in 0..4 {
        let (steps, _) = spread([SECRET[0], SECRET[1], last], &keys);
        assert!(steps < 1500, "{last}: {steps}");
    }
}

#[test]
fn keys_differ_in_each_part() {
    let v6 = |hi: u64, lo: u64| {
        let ip = Ipv6Addr::from_bits(u128::from(hi) << 64 | u128::from(lo));
        SocketAddr::new(ip.into(), 9)
    };
    let v4 = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
    let keys = [
        Key::datagram(v6(0, 0), label(2)),
        Key::datagram(v6(1, 0), label(2)),
        Key::datagram(v6(0, 1), label(2)),
        Key::datagram(v6(1, 1), label(2)),
        Key::datagram(v6(1, 0), label(3)),
        Key::datagram(v6(0, 1), label(3)),
        Key::datagram(v6(1, 1), label(3)),
        Key::datagram(v4(9), label(2)),
        Key::datagram(v4(9), label(3)),
        Key::datagram(v4(8), label(2)),
        Key::datagram(v4(8), label(3)),
        Key::stream(ConnId(0), label(2)),
        Key::stream(ConnId(1), label(2)),
        Key::stream(ConnId(0), label(3)),
        Key::stream(ConnId(1), label(3)),
        Key::native(ChannelId(0)),
        Key::native(ChannelId(1)),
        Key::native(ChannelId(2)),
    ];
    for (at, one) in keys.iter().enumerate() {
        for (also_at, other) in keys.iter().enumerate() {
            assert_eq!(one.is(other), at == also_at, "{one:?} {other:?}");
        }
        assert_eq!(one.is_datagram(), at < 11, "{one:?}");
        let place = Place { key: *one, ..FREE };
        assert!(!place.is_free(), "{one:?}");
    }
    assert!(FREE.is_free());
    // The two forms of an IPv4 address are one sender.
    let mapped = core::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
    let mapped = Key::datagram(SocketAddr::new(mapped.into(), 9), label(2));
    assert!(mapped.is(&Key::datagram(v4(9), label(2))));
}

#[test]
fn a_key_that_leads_to_another_edge_by_now_stays() {
    let mut table = Table::new([3, 5, 7]);
    let entry = Entry { edge: 4, flow: 1 };
    table.insert(key(1), entry);
    table.remove(&key(1), 5);
    table.remove(&key(2), 4);
    table.remove(&key(2), 0);
    assert_eq!((table.entry(&key(1)), table.len()), (Some(entry), 1));
    table.remove(&key(1), 4);
    assert_eq!((table.entry(&key(1)), table.len()), (None, 0));
}

#[test]
fn a_shortcut_belongs_to_its_entry() {
    let mut table = Table::new([3, 5, 7]);
    let entry = Entry { edge: 4, flow: 1 };
    table.insert(key(1), entry);
    let other = Entry { edge: 4, flow: 2 };
    let none = Entry { edge: 0, flow: 0 };
    assert!(table.shortcut(&key(1), entry).is_some());
    assert!(table.shortcut_mut(&key(1), entry).is_some());
    for (number, entry) in [(1, other), (1, none), (2, entry), (2, none)] {
        assert!(table.shortcut(&key(number), entry).is_none());
        assert!(table.shortcut_mut(&key(number), entry).is_none());
    }
    let found = table.get(&key(1)).expect("inserted");
    assert!(table.shortcut_at(found.place, found.entry).is_some());
    assert!(table.shortcut_at(found.place, other).is_none());
    assert!(table.shortcut_at(found.place ^ 1, entry).is_none());
    assert!(table.shortcut_at(u32::MAX, entry).is_none());
    assert!(!table.shortcut_of(found).is_open());
}
