//! Hostile packets, well-formed ones among them: no panic, bounds hold, the hierarchy falls silent when left alone.

use lms_proto::hier::{Capacity, Config, Cost};
use lms_proto::wire::hier::{Entry, Header, Kind};
use lms_proto::{Duration, Key};
use proptest::prelude::*;

use crate::common::*;
use crate::igmp_common::{self, GROUP};

/// A packet that passes the checksums, with fields from small ranges so that they meet.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let from = || (0u16..4, 1u8..6).prop_map(|(iface, n)| host(iface, n));
    let list = || prop::collection::vec(1u8..9, 0..6);
    let hier = (
        from(),
        any::<bool>(),
        0u32..3,
        0u32..50,
        1u16..2_000,
        list(),
        0u16..9,
    )
        .prop_map(
            |(from, is_update, boot, sequence, hold_time_ms, groups, cost)| {
                let kind = if is_update {
                    Kind::Update
                } else {
                    Kind::Elected
                };
                let header = Header {
                    kind,
                    boot,
                    sequence,
                    hold_time_ms,
                };
                let mut entries: Vec<Entry> = groups
                    .iter()
                    .map(|g| Entry {
                        key: group((*g).into()),
                        neighbour: (!is_update).then_some(host(1, *g)),
                        cost: Cost(cost),
                    })
                    .collect();
                entries.push(Entry {
                    key: Key::any_source(GROUP),
                    neighbour: None,
                    cost: Cost::WITHDRAWN,
                });
                hier_packet(from, header, &entries)
            },
        );
    let cost = (from(), 0u16..6, prop_oneof![0u16..9, Just(0xffff)])
        .prop_map(|(from, g, cost)| is_in(from, group(g), cost));
    prop_oneof![4 => hier, 3 => cost, 8 => igmp_common::packet::<core::net::Ipv4Addr>()]
}

fn steps() -> impl Strategy<Value = Vec<(u16, Vec<u8>, u64)>> {
    prop::collection::vec((0u16..5, packet(), 0u64..4_000), 0..80)
}

proptest! {
    #[test]
    fn hierarchy_survives(steps in steps()) {
        let capacity = Capacity { entries: 6, neighbours: 7, peers: 4, branches: 5, interfaces: 4 };
        let config = Config { refresh: Duration::from_millis(300), ..Config::default() };
        let mut h = hierarchy(config, capacity);
        for g in 0..6 {
            h.install(ms(0), group(g), UP).unwrap();
        }
        let mut now = ms(0);
        for (iface, packet, wait) in steps {
            let _ = h.handle_packet(now, &meta(iface), &packet);
            prop_assert!(h.offer_count() <= 7 && h.peer_count() <= 4);
            now += Duration::from_millis(wait);
            run(&mut h, now);
            while h.poll_event().is_some() {}
        }
        run(&mut h, now + Duration::from_secs(60));
        prop_assert_eq!((h.offer_count(), h.poll_timeout()), (0, None));
    }
}
