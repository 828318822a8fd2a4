//! The documented memory per group.

use core::net::{Ipv4Addr, Ipv6Addr};

use lms_proto::hier::Capacity;
use lms_proto::router::{Config, Interface, Router, SeenSource, Storage};
use lms_proto::table::{self, Entry, GroupTable, IfaceWord, InstallError, Slot, bytes_per_group};
use lms_proto::{Iface, Key};

use crate::common::*;

fn bytes(storage: &table::Storage<'_>) -> usize {
    size_of_val(&*storage.entries)
        + size_of_val(&*storage.slots)
        + size_of_val(&*storage.downstream)
}

#[test]
fn an_entry_is_one_cache_line() {
    assert_eq!((size_of::<Entry>(), align_of::<Entry>()), (64, 64));
    assert_eq!(
        (size_of::<Entry<Ipv6Addr>>(), align_of::<Entry<Ipv6Addr>>()),
        (128, 64)
    );
    assert_eq!((size_of::<Slot>(), size_of::<IfaceWord>()), (4, 8));
}

/// What a router keeps beside its table: the figures of the storage's documentation.
#[test]
fn a_source_that_was_seen_takes_16_bytes_and_an_interface_24() {
    assert_eq!(size_of::<SeenSource>(), 16);
    assert_eq!(size_of::<Interface>(), 24);
    assert_eq!(size_of::<SeenSource<Ipv6Addr>>(), 40);
    assert_eq!(size_of::<Interface<Ipv6Addr>>(), 48);
    let storage = Storage::<Ipv4Addr>::with_capacity(1_000, 48);
    assert_eq!(storage.sources.len(), 1_000 / 4 + 16);
    assert_eq!(storage.subnets.len(), storage.addresses.len());
}

/// The figures of [`Storage::with_capacity`]'s documentation.
#[test]
fn there_is_room_for_two_offers_a_group_and_for_a_thousand_neighbours() {
    let hierarchy = Storage::<Ipv4Addr>::with_capacity(1_000, 48).hierarchy;
    assert_eq!(hierarchy.entries.len(), 1_000 + 125 + 16);
    assert_eq!(hierarchy.neighbours.len(), 2_256);
    assert_eq!(hierarchy.peers.len(), 2 * 48 + 1_024);
    assert_eq!(hierarchy.adverts.len(), 1_141 + 2_256);
    assert_eq!(hierarchy.streams.len(), 2 * 48);
    let capacity = Capacity {
        entries: 3,
        neighbours: 4,
        peers: 5,
        branches: 6,
        interfaces: 7,
    };
    let hierarchy = Storage::<Ipv4Addr>::with_capacity(1_000, 48)
        .with_hierarchy(capacity)
        .hierarchy;
    assert_eq!((hierarchy.entries.len(), hierarchy.peers.len()), (3, 5));
}

#[test]
fn bytes_per_group_is_what_a_table_takes() {
    assert_eq!(bytes_per_group::<Ipv4Addr>(48), 75);
    assert_eq!(bytes_per_group::<Ipv4Addr>(1_000), 235);
    for limit in [1, 48, 49, 1_000] {
        for groups in [8, 100, 1_000, 1_638, 1_639, 4_096, 100_000] {
            let storage = table::Storage::<Ipv4Addr>::with_capacity(groups, limit);
            assert!(
                bytes(&storage) <= bytes_per_group::<Ipv4Addr>(limit) * groups,
                "{groups}"
            );
        }
    }
    // The figure of the module's documentation.
    assert_eq!(
        bytes(&table::Storage::with_capacity(100_000, 48)),
        6_924_288
    );
}

#[test]
fn a_table_takes_its_capacity_and_no_more() {
    let key = |n: u32| Key::new(SOURCE, (0xe801_0000 + n).into());
    for capacity in [1, 7, 1_000] {
        let mut table = GroupTable::new(table::Storage::with_capacity(capacity, 48), (1, 2));
        assert_eq!(table.capacity(), capacity);
        for n in 0..capacity as u32 {
            table.install(key(n), UP, &[DOWN]).unwrap();
        }
        let full = table.install(key(9_999), UP, &[DOWN]);
        assert_eq!(full, Err(InstallError::Full));
        assert_eq!(table.len(), capacity);
        // Changing an entry is not an addition, and a freed slot is used again.
        table.install(key(0), UP, &[DOWN2]).unwrap();
        let id = table.find(key(0)).unwrap();
        assert_eq!(table.remove(key(0)), Some(id));
        assert_eq!(table.install(key(9_999), UP, &[]), Ok(id));
    }
}

#[test]
fn a_table_without_storage_takes_nothing() {
    let mut table = GroupTable::new(table::Storage::with_capacity(0, 48), (1, 2));
    assert_eq!(table.install(KEY, UP, &[]), Err(InstallError::Full));
    assert_eq!(table.lookup(KEY), None);
}

#[test]
fn a_full_router_keeps_what_it_has() {
    let mut router = Router::new(
        Config::default(),
        Storage::with_capacity(2, 8),
        [0; 32],
        NOW,
    );
    let key = |n: u8| Key::new(SOURCE, [232, 0, 1, n].into());
    for n in 0..2 {
        router.install(NOW, key(n), UP, &[DOWN]).unwrap();
    }
    let before = state(&router);
    let full = router.install(NOW, key(2), UP, &[DOWN]);
    assert_eq!(full, Err(InstallError::Full));
    assert_eq!(state(&router), before);
}

#[test]
fn odd_entries_are_refused() {
    let mut router: Router<'_> = Router::new(
        Config::default(),
        Storage::with_capacity(2, 48),
        [0; 32],
        NOW,
    );
    let before = state(&router);
    let mut refused = |source: [u8; 4], group: [u8; 4], down: &[Iface]| {
        let key = Key::new(source.into(), group.into());
        router.install(NOW, key, UP, down).unwrap_err()
    };
    let (s, g) = ([10, 0, 0, 1], [232, 1, 1, 1]);
    assert_eq!(refused(s, [10, 1, 1, 1], &[]), InstallError::Group);
    assert_eq!(refused(s, [224, 0, 0, 9], &[]), InstallError::Group);
    assert_eq!(refused(g, g, &[]), InstallError::Source);
    assert_eq!(refused([255; 4], g, &[]), InstallError::Source);
    assert_eq!(refused(s, g, &[DOWN, Iface(48)]), InstallError::Iface);
    assert_eq!(refused(s, g, &[Iface::UNSET]), InstallError::Iface);
    assert_eq!(refused(s, g, &[DOWN, UP]), InstallError::ParentIsDownstream);
    assert_eq!(state(&router), before);
}

/// Iteration depends on the commands, not on the seed.
#[test]
fn order_does_not_depend_on_the_seed() {
    let order = |seed: u8| {
        let storage = Storage::with_capacity(64, 8);
        let mut router = Router::new(Config::default(), storage, [seed; 32], NOW);
        let key = |n: u8| Key::new(SOURCE, [232, 0, 1, n].into());
        for n in 0..60 {
            router.install(NOW, key(n), UP, &[DOWN]).unwrap();
        }
        for n in (0..60).step_by(7) {
            assert!(router.remove(NOW, key(n)));
        }
        for n in 100..104 {
            router.install(NOW, key(n), UP, &[DOWN]).unwrap();
        }
        let keys: Vec<Key> = router
            .table()
            .iter()
            .map(|(_, entry)| entry.key())
            .collect();
        keys
    };
    assert_eq!(order(1), order(2));
}
