extern crate std;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::vec::Vec;

use super::bits::one_word;
use super::*;
use crate::types::Addr;
use crate::{SessionKey, storage};

/// Children in three words of a set, and a window of two words.
const LIMITS: storage::Limits = storage::Limits {
    sessions: 5,
    children: 150,
    nack_states: 8,
    window: 128,
};

fn tables() -> (Tables<'static>, Secrets) {
    let storage = Storage::owned(LIMITS).unwrap();
    (Tables::new(storage, Instant::ZERO), Secrets::new([4; 32]))
}

fn key(n: u8) -> RawKey {
    let key = SessionKey::new([10, 0, 0, n].into(), [239, 0, 0, 1].into());
    RawKey::from(key.unwrap())
}

/// Tables with sessions 0 and 1.
fn opened() -> (Tables<'static>, Secrets) {
    let (mut tables, secrets) = tables();
    for n in 0..2 {
        assert_eq!(tables.open(&secrets, key(n), Instant::ZERO), Some(n.into()));
    }
    (tables, secrets)
}

fn host(n: u16, port: u16) -> Addr {
    let [a, b] = n.to_be_bytes();
    Addr::from(SocketAddr::from((Ipv4Addr::new(10, 1, a, b), port)))
}

fn child(n: u16) -> Child {
    Child {
        address: host(n, 5),
        ..Child::default()
    }
}

fn full(tables: &mut Tables<'_>, number: u16) {
    for n in 0..LIMITS.children as u16 {
        assert_eq!(tables.add_child(number, child(n)), Some(n));
    }
}

fn members(tables: &Tables<'_>, number: u16) -> Vec<u16> {
    bits(tables.members(number)).collect()
}

#[test]
fn bits_are_listed_in_order() {
    let words = [1 << 63 | 1, 0, 0b110];
    assert_eq!(bits(&words).collect::<Vec<_>>(), [0, 63, 129, 130]);
    assert_eq!(one_word(words[0]).collect::<Vec<_>>(), [0, 63]);
    assert_eq!(one_word(0).count() + bits(&[0, 0]).count(), 0);
    let set: Vec<u16> = (0..192).filter(|&bit| has_bit(&words, bit)).collect();
    assert_eq!(set, [0, 63, 129, 130]);
}

/// Sessions come and go in any order, and each is found as long as it is open. There are fewer buckets than names, so
/// chains have several members.
#[test]
fn sessions_are_found_until_they_are_closed() {
    let (mut tables, secrets) = tables();
    let mut open = BTreeMap::new();
    let mut random = 1u32;
    for _ in 0..2_000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let n = (random >> 16) as u8 % 12;
        if let Some(number) = open.remove(&n) {
            tables.close(&secrets, number);
        } else {
            let number = tables.open(&secrets, key(n), Instant::ZERO);
            assert_eq!(number.is_some(), open.len() < LIMITS.sessions);
            if let Some(number) = number {
                assert!(!open.values().any(|&other| other == number));
                open.insert(n, number);
            }
        }
        for n in 0..12 {
            let found = tables.find(&secrets, &key(n));
            assert_eq!(found, open.get(&n).copied());
            let name = found.and_then(|number| tables.session(number).name());
            assert_eq!(name, found.map(|_| SessionKey::from(key(n))));
        }
        let listed: BTreeSet<u16> = tables.open_sessions().collect();
        assert_eq!(listed, open.values().copied().collect());
    }
    // A session that is closed is not closed again.
    let (_, number) = open.pop_first().expect("one is open");
    for _ in 0..2 {
        tables.close(&secrets, number);
    }
    let mut opened = 0;
    while tables
        .open(&secrets, key(20 + opened), Instant::ZERO)
        .is_some()
    {
        opened += 1;
    }
    assert_eq!(usize::from(opened) + open.len(), LIMITS.sessions);
}

/// A packet then visits few sessions.
#[test]
fn sessions_are_spread_over_the_buckets() {
    let (tables, secrets) = tables();
    let places: BTreeSet<usize> = (0..100).map(|n| tables.place(&secrets, &key(n))).collect();
    assert_eq!(places, (0..8).collect());
}

/// Fills sessions 0 and 1 with children, lost packets and NACK states.
fn used() -> (Tables<'static>, Secrets) {
    let (mut tables, secrets) = opened();
    for number in 0..2 {
        full(&mut tables, number);
        for n in [0, 70, 149] {
            tables.set_acked(number, n);
            tables.set_stalled(number, n);
            tables.set_relay(number, n, true);
        }
        let (track, lost) = tables.track(number);
        track.arrive(lost, Seq(1));
        track.arrive(lost, Seq(4));
        for seq in 0..8 {
            let state = tables.new_state(number, Seq(seq)).unwrap();
            tables.state_mut(state).phase = Phase::Deciding;
            tables.subcast_to_all(state);
        }
        assert_eq!(tables.new_state(number, Seq(9)), None);
    }
    (tables, secrets)
}

#[test]
fn another_session_in_the_same_place_knows_nothing_of_the_last() {
    for (number, other) in [(0, 1), (1, 0)] {
        let (mut tables, secrets) = used();
        tables.close(&secrets, number);
        let opened = tables.open(&secrets, key(7), Instant::ZERO);
        assert_eq!(opened, Some(number));
        for set in [Set::Members, Set::Acked, Set::Stalled, Set::Relays] {
            assert_eq!(bits(tables.set(number, set)).count(), 0, "{set:?}");
            let there = if set == Set::Members { 150 } else { 3 };
            assert_eq!(bits(tables.set(other, set)).count(), there, "{set:?}");
        }
        for seq in 0..8 {
            assert_eq!(tables.find_state(number, Seq(seq)), None);
            let state = tables.find_state(other, Seq(seq)).expect("the other's");
            assert_eq!(bits(tables.subcast(state)).count(), 150);
        }
        let lost = [number, other].map(|session| tables.is_lost(session, Seq(2)));
        assert_eq!(lost, [false, true]);
        // All states are free again, and are this session's.
        for seq in 0..8 {
            let state = tables.new_state(number, Seq(seq)).unwrap();
            assert_eq!(tables.session_of(state), number);
            assert!(tables.subcast(state).iter().all(|&word| word == 0));
        }
        assert_eq!(tables.new_state(number, Seq(9)), None);
    }
}

#[test]
fn children_get_the_lowest_free_number_in_any_word() {
    let (mut tables, _) = opened();
    full(&mut tables, 1);
    assert_eq!(tables.add_child(1, child(500)), None, "full");
    assert_eq!(tables.session(1).children, 150);
    assert_eq!(tables.session(0).children, 0);
    for n in [149, 63, 64, 130] {
        tables.remove_child(1, n);
        assert!(!tables.is_member(1, n) && !tables.child_at(1, n, host(n, 5)));
    }
    assert_eq!(tables.session(1).children, 146);
    for n in [63, 64, 130, 149] {
        assert_eq!(tables.add_child(1, child(600 + n)), Some(n));
        assert!(tables.child_at(1, n, host(600 + n, 5)));
        assert!(!tables.child_at(1, n, host(600 + n, 6)));
        assert_eq!(tables.child_by_address(1, host(600 + n, 5)), Some(n));
        assert_eq!(tables.child_by_address(1, host(n, 5)), None);
    }
    assert_eq!(members(&tables, 1), (0..150).collect::<Vec<_>>());
    assert!(members(&tables, 0).is_empty());
    assert!(!tables.is_member(1, 150) && !tables.is_member(1, NONE));
    let last = tables.child_entries(1).last().map(|child| child.address);
    assert_eq!(last, Some(host(749, 5)));
}

#[test]
fn child_that_stalled_and_left_is_remembered_while_there_is_room() {
    let (mut tables, _) = opened();
    full(&mut tables, 0);
    for n in [70, 100] {
        tables.set_acked(0, n);
        tables.set_stalled(0, n);
        tables.remove_child(0, n);
        assert!(tables.has_left_stalled(0, host(n, 5)));
        assert!(!has_bit(tables.set(0, Set::Acked), n));
    }
    tables.remove_child(0, 120);
    // A child that stalled and is there, or has left without having stalled, is not one that left.
    tables.set_stalled(0, 3);
    for n in [3, 120] {
        assert!(!tables.has_left_stalled(0, host(n, 5)), "{n}");
    }
    // Others take the free number first; its own comes back to the child, with its mark.
    assert_eq!(tables.add_child(0, child(900)), Some(120));
    assert!(!has_bit(tables.set(0, Set::Stalled), 120));
    assert_eq!(tables.add_child(0, child(100)), Some(100));
    assert!(has_bit(tables.set(0, Set::Stalled), 100));
    assert!(!tables.has_left_stalled(0, host(100, 5)), "it is there");
    // The last number goes to another, which has not stalled.
    assert_eq!(tables.add_child(0, child(901)), Some(70));
    assert!(!has_bit(tables.set(0, Set::Stalled), 70));
    assert!(!tables.has_left_stalled(0, host(70, 5)), "forgotten");
    assert_eq!(tables.add_child(0, child(902)), None);
    // Another run of the source forgets the stalls and acknowledgements, not the children.
    tables.set_acked(0, 5);
    tables.set_relay(0, 6, true);
    tables.forget_acks(0);
    let counts = [Set::Members, Set::Acked, Set::Stalled, Set::Relays]
        .map(|set| bits(tables.set(0, set)).count());
    assert_eq!(counts, [150, 0, 0, 1]);
    tables.set_relay(0, 6, false);
    assert_eq!(bits(tables.set(0, Set::Relays)).count(), 0);
}

#[test]
fn children_of_a_host_are_counted_once_in_several_sets() {
    let (mut tables, _) = opened();
    full(&mut tables, 0);
    // Numbers in all words, with one IP address.
    let ports = [(0, 1), (63, 2), (64, 3), (149, 4)];
    for (n, port) in ports {
        tables.child_mut(0, n).address = host(1_000, port);
    }
    let at = |tables: &Tables<'_>, sets: &[Set]| tables.at_host(0, sets, host(1_000, 9));
    assert_eq!(at(&tables, &[Set::Members]), 4);
    assert_eq!(at(&tables, &[Set::Stalled]), 0);
    for n in [63, 149] {
        tables.set_stalled(0, n);
    }
    tables.remove_child(0, 149);
    tables.remove_child(0, 0);
    assert_eq!(at(&tables, &[Set::Members]), 2);
    assert_eq!(at(&tables, &[Set::Stalled]), 2);
    assert_eq!(at(&tables, &[Set::Members, Set::Stalled]), 3);
    assert_eq!(tables.at_host(1, &[Set::Members], host(1_000, 9)), 0);
}

#[test]
fn states_are_found_until_they_are_freed() {
    let (mut tables, _) = opened();
    let mut held: [BTreeMap<u32, u16>; 2] = Default::default();
    let mut random = 7u32;
    for step in 0..4_000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = (random >> 30) as u16 % 2;
        let seq = (random >> 16) % 24;
        let states = &mut held[usize::from(number)];
        if let Some(state) = states.remove(&seq) {
            tables.free_state(state);
            assert_eq!(tables.state(state).phase, Phase::Free);
        } else {
            let state = tables.new_state(number, Seq(seq));
            assert_eq!(state.is_some(), states.len() < 8);
            if let Some(state) = state {
                assert_eq!(tables.session_of(state), number);
                let entry = tables.state_mut(state);
                assert_eq!((entry.seq, entry.replier), (Seq(seq), NONE));
                assert_eq!((entry.tries, entry.for_parent), (0, false));
                (entry.phase, entry.tries) = (Phase::Asked, 3);
                assert!(states.insert(seq, state).is_none());
            }
        }
        if step % 1_000 == 999 {
            tables.forget_states(number);
            held[usize::from(number)].clear();
        }
        for number in 0..2 {
            for seq in 0..24 {
                let expected = held[usize::from(number)].get(&seq).copied();
                assert_eq!(tables.find_state(number, Seq(seq)), expected);
            }
        }
    }
}

#[test]
fn child_that_leaves_is_taken_from_the_lists_of_its_session_alone() {
    let (mut tables, _) = opened();
    let mut states = Vec::new();
    for number in 0..2 {
        full(&mut tables, number);
        for seq in 0..3 {
            let state = tables.new_state(number, Seq(seq)).unwrap();
            tables.state_mut(state).phase = Phase::Deciding;
            tables.subcast_to_all(state);
            states.push(state);
        }
    }
    for n in [0, 64, 149] {
        tables.remove_child(1, n);
    }
    for state in states {
        let listed: Vec<u16> = bits(tables.subcast(state)).collect();
        let expected =
            (0..150).filter(|n| tables.session_of(state) == 0 || ![0, 64, 149].contains(n));
        assert_eq!(listed, expected.collect::<Vec<_>>());
    }
}

#[test]
fn candidates_are_the_children_that_lost_nothing() {
    let (mut tables, _) = opened();
    full(&mut tables, 1);
    for n in [5, 64, 128] {
        tables.remove_child(1, n);
    }
    let state = tables.new_state(1, Seq(3)).unwrap();
    tables.state_mut(state).phase = Phase::Deciding;
    assert_eq!(tables.candidate(state, 0), 0);
    // All lost it but 4, 63, 65, 127, 149.
    tables.subcast_to_all(state);
    let have = [4u16, 63, 65, 127, 149];
    for n in have {
        tables.subcast_mut(state)[usize::from(n) / 64] &= !(1 << (n % 64));
    }
    for from in 0..LIMITS.children as u16 + 50 {
        let expected = have.iter().find(|&&n| n >= from).copied();
        assert_eq!(
            tables.candidate(state, from),
            expected.unwrap_or(NONE),
            "{from}"
        );
    }
    assert_eq!(tables.candidate(state, NONE), NONE);
}

#[test]
fn each_owner_has_an_entry_of_its_own() {
    let (tables, _) = tables();
    let states = (0..40).map(Owner::State);
    let sessions = (0..5).flat_map(|n| [Owner::Timer(n), Owner::Output(n)]);
    let mut entries = BTreeSet::new();
    for owner in states.chain(sessions) {
        let entry = tables.entry(owner);
        assert_eq!(tables.owner(entry), owner);
        assert!(usize::from(entry) < LIMITS.links());
        assert!(entries.insert(entry), "{owner:?}");
    }
    assert_eq!(entries.len(), LIMITS.links());
}

/// Entries are 16-bit numbers: the sum of two may be larger.
#[test]
fn owners_of_the_last_entries_are_found_in_the_largest_tables() {
    let limits = storage::Limits {
        sessions: 1,
        children: 1,
        nack_states: 32_768,
        window: 64,
    };
    let tables = Tables::new(Storage::owned(limits).unwrap(), Instant::ZERO);
    let last = [Owner::State(32_767), Owner::Timer(0), Owner::Output(0)];
    for (owner, entry) in last.into_iter().zip(32_767..) {
        assert_eq!(tables.entry(owner), entry);
        assert_eq!(tables.owner(entry), owner);
    }
}
