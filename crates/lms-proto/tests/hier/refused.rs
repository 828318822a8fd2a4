//! A command that is refused has changed nothing.

use crate::common::*;

use lms_proto::hier::{Capacity, CommandError, Config, Cost, Full, Hierarchy};
use lms_proto::wire::hier::Kind;
use lms_proto::{Duration, Iface};

/// All that a hierarchy holds, counters included.
fn everything(h: &Hierarchy<'_>) -> String {
    format!("{h:?}")
}

fn offers(h: &mut Hierarchy<'_>, n: u8, cost: u16) {
    let packet = is_in(host(1, n), group(1), cost);
    h.handle_packet(ms(0), &meta(1), &packet).unwrap();
}

#[test]
fn entry_that_leaves_stays_gone_where_a_new_parent_does_not_fit() {
    let capacity = Capacity {
        entries: 1,
        branches: 1,
        ..CAPACITY
    };
    let mut h = hierarchy(Config::default(), capacity);
    h.install(ms(0), group(1), UP).unwrap();
    offers(&mut h, 7, 3);
    run(&mut h, ms(1_000));
    // Parent and link below are still to hear of it: both adverts are in use.
    h.remove(ms(1_000), group(1));
    let before = everything(&h);
    let refused = h.install(ms(1_000), group(1), Iface(3));
    assert_eq!(refused, Err(Full::Adverts));
    assert_eq!(h.find(group(1)), None);
    assert_eq!(everything(&h), before);
    // The old parent's advert is there: with that parent it comes back.
    let id = h.install(ms(1_000), group(1), UP).unwrap();
    assert_eq!(h.find(group(1)), Some(id));
}

#[test]
fn another_parent_that_does_not_fit_leaves_the_old_one() {
    let capacity = Capacity {
        entries: 1,
        branches: 1,
        ..CAPACITY
    };
    let mut h = hierarchy(Config::default(), capacity);
    h.install(ms(0), group(1), UP).unwrap();
    offers(&mut h, 7, 3);
    run(&mut h, ms(1_000));
    let before = everything(&h);
    let refused = h.install(ms(1_000), group(1), Iface(3));
    assert_eq!(refused, Err(Full::Adverts));
    assert_eq!(everything(&h), before);
}

#[test]
fn configured_replier_that_does_not_fit_forgets_no_neighbour() {
    for (capacity, config, full) in [
        (
            Capacity {
                neighbours: 1,
                ..CAPACITY
            },
            Config::default(),
            Full::Neighbours,
        ),
        (
            CAPACITY,
            Config {
                neighbours_per_entry: 1,
                ..Config::default()
            },
            Full::Neighbours,
        ),
        (
            Capacity {
                entries: 1,
                branches: 1,
                ..CAPACITY
            },
            Config::default(),
            Full::Adverts,
        ),
    ] {
        let capacity = Capacity {
            peers: 2,
            ..capacity
        };
        let mut h = hierarchy(config, capacity);
        h.install(ms(0), group(1), UP).unwrap();
        offers(&mut h, 7, 3);
        // Known, but without an offer: it may be evicted.
        offers(&mut h, 8, 0xffff);
        let before = everything(&h);
        let on = Iface(if full == Full::Adverts { 2 } else { 1 });
        let refused = h.set_replier(ms(1), group(1), on, host(on.0, 9), None, Cost(1));
        assert_eq!(refused, Err(CommandError::Full(full)));
        assert_eq!(everything(&h), before, "{full:?}");
    }
}

#[test]
fn neighbour_that_has_an_offer_can_always_be_configured() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    h.install(ms(0), group(1), UP).unwrap();
    offers(&mut h, 7, 3);
    offers(&mut h, 8, 4);
    let config = Config {
        neighbours_per_entry: 1,
        ..Config::default()
    };
    h.set_config(ms(1), config);
    h.set_replier(ms(1), group(1), Iface(1), host(1, 8), None, Cost(1))
        .unwrap();
    assert_eq!(elected(&h, group(1)), Some((host(1, 8), 1)));
    assert_eq!(h.offer_count(), 2);
}

#[test]
fn endless_restart_interval_lets_no_other_boot_in() {
    let config = Config {
        restart_interval: Duration::MAX,
        ..Config::default()
    };
    let mut h = hierarchy(config, CAPACITY);
    h.install(ms(0), group(1), UP).unwrap();
    let hold = Duration::from_secs(35);
    let mut say = |at, boot, sequence| {
        let mut header = header(Kind::Update, sequence, hold);
        header.boot = boot;
        let packet = hier_packet(host(1, 7), header, &[offer(group(1), 2)]);
        h.handle_packet(ms(at), &meta(1), &packet)
    };
    assert_eq!(say(1, BOOT, 1), Ok(()));
    assert!(say(100_000_000, BOOT + 1, 1).is_err());
    assert_eq!(say(100_000_000, BOOT, 2), Ok(()));
}
