use alloc::collections::BTreeSet;
use alloc::vec;
use core::net::Ipv6Addr;

use proptest::prelude::*;

use super::*;

const GROUP: Ipv4Addr = Ipv4Addr::new(232, 1, 2, 3);
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const UP: Iface = Iface(1);
const DOWN: Iface = Iface(2);

fn table(groups: usize) -> GroupTable<'static> {
    GroupTable::new(Storage::with_capacity(groups, 48), (1, 2))
}

fn key(group: u8) -> Key {
    Key::new(SOURCE, Ipv4Addr::new(232, 0, 0, group))
}

#[test]
fn an_entry_of_one_source_goes_before_that_of_any_source() {
    let mut table = table(4);
    assert!(table.is_empty());
    let one = Key::new(SOURCE, GROUP);
    assert_eq!(table.lookup(one), None);
    let any = table.install(Key::any_source(GROUP), UP, &[DOWN]).unwrap();
    assert!(!table.is_empty());
    assert_eq!(table.lookup(one), Some(any));
    assert_eq!(table.find(one), None);
    let id = table.install(one, UP, &[DOWN]).unwrap();
    assert_eq!(table.lookup(one), Some(id));
    assert_eq!(table.remove(Key::any_source(GROUP)), Some(any));
    let other = Key::new(Ipv4Addr::new(10, 0, 0, 2), GROUP);
    assert_eq!(table.lookup(other), None);
}

#[test]
fn removed_entries_are_used_again_each_once() {
    let mut table = table(4);
    for group in 0..4 {
        table.install(key(group), UP, &[DOWN]).unwrap();
    }
    for group in 0..3 {
        table.remove(key(group)).unwrap();
    }
    for group in 10..13 {
        table.install(key(group), UP, &[DOWN]).unwrap();
    }
    for group in [3, 10, 11, 12] {
        let id = table.find(key(group)).unwrap();
        assert_eq!(table.get(id).unwrap().key(), key(group));
    }
    assert_eq!(table.len(), 4);
}

#[test]
fn the_source_is_part_of_the_hash() {
    let table = table(1);
    let hash = |source: [u8; 4]| table.prefix(Key::new(source.into(), GROUP)).hash();
    assert_ne!(hash([10, 0, 0, 1]), hash([10, 0, 0, 2]));
}

#[test]
fn storage_of_the_smallest_size_suffices() {
    assert_eq!(
        (words_for(3, 48), words_for(3, 49), words_for(3, 97)),
        (0, 3, 6)
    );
    for limit in [48, 100] {
        let storage = Storage {
            entries: vec![Entry::default(); 5].into(),
            slots: vec![Slot::default(); min_slots(5)].into(),
            downstream: vec![IfaceWord::default(); words_for(5, limit)].into(),
        };
        let mut table = GroupTable::new(storage, (1, 2));
        let down = [Iface(limit as u16 - 1)];
        for group in 0..5 {
            table.install(key(group), UP, &down).unwrap();
        }
    }
}

#[test]
fn a_drawn_replier_holds_for_68_years_at_most() {
    let replier: Replier = Replier {
        iface: DOWN,
        cost: 1,
        neighbour: None,
    };
    let mut entry: Entry = Entry::default();
    assert!(entry.is_draw_due(Instant::ZERO), "there is none");
    entry.set_drawn(Instant::ZERO, Some(replier), Duration::MAX);
    let last = Instant::from_secs((1 << 31) - 2);
    assert!(!entry.is_draw_due(Instant::ZERO));
    assert!(!entry.is_draw_due(last));
    assert!(entry.is_draw_due(last + Duration::from_secs(1)));
    entry.set_drawn(last, Some(replier), Duration::ZERO);
    assert!(!entry.is_draw_due(last), "a second at least");
}

#[test]
fn credit_lasts_for_an_hour_at_most() {
    let limit = CreditLimit::new(3, Duration::MAX);
    let hour = Duration::from_secs(3_600);
    let now = Instant::from_secs(5);
    for is_classic in [false, true] {
        let mut entry: Entry = Entry::default();
        assert!(!entry.credit.allows(tick(now), is_classic));
        entry.credit = entry.credit.with_request(tick(now), &limit, is_classic);
        assert!(entry.credit.allows(tick(now), is_classic));
        assert!(entry.credit.allows(tick(now + hour), is_classic));
        let after = now + hour + Duration::from_millis(250);
        assert!(!entry.credit.allows(tick(after), is_classic));
        entry.credit = entry.credit.with_request(tick(now), &limit, is_classic);
        for _ in 0..6 {
            assert!(entry.credit.allows(tick(now), is_classic));
            entry.credit = entry.credit.spent();
        }
        assert!(!entry.credit.allows(tick(now), is_classic));
    }
}

/// A credit in whole numbers that do not wrap.
#[derive(Default)]
struct Model {
    repairs: u64,
    until: u64,
    classic_until: u64,
}

proptest! {
    /// Each step: ticks that pass, and what happens then: repairs, or a turned request with the number of its limit.
    #[test]
    fn credit_agrees_with_the_model(
        start in prop_oneof![0u64..100, (1u64 << 32) - 200..1 << 32],
        steps in proptest::collection::vec((0u64..60, 0usize..4, any::<bool>()), 1..200),
    ) {
        let limits = [(3, 40u64), (1, 1), (65_535, 14_400)];
        let mut entry: Entry = Entry::default();
        let mut model = Model::default();
        let mut ticks = start;
        for (wait, limit, is_classic) in steps {
            ticks += if wait == 59 { 14_390 } else { wait };
            let now = Instant::from_millis(250 * ticks as i64);
            if model.repairs == 0 || model.until <= ticks {
                model = Model::default();
            }
            match limits.get(limit) {
                Some(&(per_request, time)) => {
                    let limit = CreditLimit::new(per_request, Duration::from_millis(250 * time));
                    entry.credit = entry.credit.with_request(tick(now), &limit, is_classic);
                    model.repairs = (model.repairs + u64::from(per_request)).min(65_535);
                    model.until = ticks + time + 1;
                    let classic_until = if is_classic { model.until } else { model.classic_until };
                    model.classic_until = classic_until.min(model.until);
                }
                None => {
                    entry.credit = entry.credit.spent();
                    model.repairs = model.repairs.saturating_sub(1);
                }
            }
            let has_credit = model.repairs > 0 && model.until > ticks;
            prop_assert_eq!(entry.credit.allows(tick(now), false), has_credit);
            prop_assert_eq!(entry.credit.allows(tick(now), true), has_credit && model.classic_until > ticks);
        }
    }
}

#[test]
fn look_ahead_finds_the_entries_that_lookups_find() {
    let mut table = table(1_000);
    let group = |n: u32| Ipv4Addr::from_bits(0xe800_0000 + n);
    for n in 0..1_000 {
        let key = match n % 3 {
            0 => Key::any_source(group(n)),
            _ => Key::new(SOURCE, group(n)),
        };
        table.install(key, UP, &[DOWN]).unwrap();
    }
    table.remove(Key::new(SOURCE, group(1))).unwrap();
    let mut wrong = 0;
    for from in (0..1_000).step_by(LOOK_AHEAD) {
        let ahead = |n: u32| Ahead::new(Key::new(SOURCE, group(from + n)), DOWN);
        let mut batch: [_; LOOK_AHEAD] = core::array::from_fn(|n| ahead(n as u32));
        table.look_ahead(&mut batch);
        let found = batch.map(|ahead| (ahead.id(), table.lookup(ahead.key())));
        wrong += found.iter().filter(|(id, found)| id != found).count();
    }
    // A key that is not in the table shares 8 bits of its hash with one that is, at times.
    assert!(wrong < 20, "{wrong} of 1,000");
}

/// Look-ahead reads the downstream set and the parent.
#[test]
fn the_words_read_ahead_are_on_all_lines_of_an_entry() {
    fn lines<A: Family>() -> usize {
        let read = [
            core::mem::offset_of!(Entry<A>, downstream),
            core::mem::offset_of!(Entry<A>, parent),
        ];
        let lines: BTreeSet<usize> = read.into_iter().map(|at| at / 64).collect();
        assert_eq!(lines.len(), size_of::<Entry<A>>() / 64);
        lines.len()
    }
    assert_eq!((lines::<Ipv4Addr>(), lines::<Ipv6Addr>()), (1, 2));
}
