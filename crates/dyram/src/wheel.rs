//! A timer wheel of two levels with 256 slots each, as intrusive lists over one table of links. The cost of setting,
//! stopping and firing a timer does not depend on the number of timers.
//!
//! A tick is 256 µs. The near level holds the ticks of the current turn (65.5 ms), the far level the next 255 turns
//! (16.7 s). Later timers stay in the last of these and are placed again.
//!
//! The same links form the ready list, a queue of entries with something to send. An entry is in one list at a time.

use core::fmt;

use managed::ManagedSlice;
use proto_core::time::{Duration, Instant};

const SLOTS: usize = 256;
/// A tick is `1 << TICK_SHIFT` microseconds.
const TICK_SHIFT: u32 = 8;
/// In no list.
const UNLINKED: u16 = 0xffff;
/// End of a list.
const NIL: u16 = 0xfffe;
/// `prev` of the first entry in a list is this plus the list's number.
const HEADS: u16 = 0xfc00;
const DUE: u16 = 2 * SLOTS as u16;
const READY: u16 = DUE + 1;
/// Largest number of entries: two for each session, and one for each NACK state.
pub const MAX_ENTRIES: usize = HEADS as usize;

/// An entry's place in its list, and its deadline.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Low 32 bits of the tick.
    deadline: u32,
    next: u16,
    prev: u16,
}

impl Default for Link {
    fn default() -> Self {
        Link {
            deadline: 0,
            next: NIL,
            prev: UNLINKED,
        }
    }
}

/// Returns the tick that contains this time.
pub(crate) fn tick_of(at: Instant) -> u64 {
    (at.total_micros().max(0) as u64) >> TICK_SHIFT
}

/// Returns the time since `then`, which is the low 32 bits of a tick (they wrap after 12 days).
pub(crate) fn time_since(now: Instant, then: u32) -> Duration {
    let ticks = (tick_of(now) as u32).wrapping_sub(then);
    Duration::from_micros(u64::from(ticks) << TICK_SHIFT)
}

/// Returns the first tick that does not begin before `at`.
fn tick_after(at: Instant) -> u64 {
    (at.total_micros().max(0) as u64).div_ceil(1 << TICK_SHIFT)
}

fn instant_of(tick: u64) -> Instant {
    Instant::from_micros((tick << TICK_SHIFT) as i64)
}

pub(crate) struct Wheel<'a> {
    links: ManagedSlice<'a, Link>,
    /// First entry of each slot (near, then far), of the due list, of the ready list.
    heads: [u16; 2 * SLOTS + 2],
    /// Bits of the slots that are not empty: near, then far.
    occupied: [u64; 2 * SLOTS / 64],
    ready_tail: u16,
    /// Timers up to this tick have fired.
    tick: u64,
}

impl<'a> Wheel<'a> {
    /// Creates a wheel without timers. It uses at most [`MAX_ENTRIES`] links.
    pub(crate) fn new(mut links: ManagedSlice<'a, Link>, now: Instant) -> Self {
        links.fill(Link::default());
        Wheel {
            links,
            heads: [NIL; 2 * SLOTS + 2],
            occupied: [0; 2 * SLOTS / 64],
            ready_tail: NIL,
            tick: tick_of(now),
        }
    }

    fn push_front(&mut self, list: u16, entry: u16) {
        let first = self.heads[usize::from(list)];
        if first != NIL {
            self.links[usize::from(first)].prev = entry;
        }
        let link = &mut self.links[usize::from(entry)];
        link.next = first;
        link.prev = HEADS + list;
        self.heads[usize::from(list)] = entry;
        if list < DUE {
            self.occupied[usize::from(list) / 64] |= 1 << (list % 64);
        }
    }

    /// Removes the entry from its list, if it is in one.
    pub(crate) fn remove(&mut self, entry: u16) {
        let Link { next, prev, .. } = self.links[usize::from(entry)];
        if prev == UNLINKED {
            return;
        }
        if next != NIL {
            self.links[usize::from(next)].prev = prev;
        } else if self.ready_tail == entry {
            self.ready_tail = if prev >= HEADS { NIL } else { prev };
        }
        if prev >= HEADS {
            let list = prev - HEADS;
            self.heads[usize::from(list)] = next;
            if next == NIL && list < DUE {
                self.occupied[usize::from(list) / 64] &= !(1 << (list % 64));
            }
        } else {
            self.links[usize::from(prev)].next = next;
        }
        self.links[usize::from(entry)].prev = UNLINKED;
    }

    /// Sets the entry's timer, or moves it.
    pub(crate) fn set(&mut self, entry: u16, at: Instant) {
        self.remove(entry);
        self.place(entry, tick_after(at));
    }

    fn place(&mut self, entry: u16, tick: u64) {
        let tick = tick.max(self.tick + 1);
        self.links[usize::from(entry)].deadline = tick as u32;
        let turns = (tick >> 8) - (self.tick >> 8);
        let list = if turns == 0 {
            tick as usize % SLOTS
        } else {
            let turn = (self.tick >> 8) + turns.min(SLOTS as u64 - 1);
            SLOTS + turn as usize % SLOTS
        };
        self.push_front(list as u16, entry);
    }

    /// The entry waits to be sent, behind all that wait already.
    pub(crate) fn make_ready(&mut self, entry: u16) {
        self.remove(entry);
        let tail = self.ready_tail;
        if tail == NIL {
            self.push_front(READY, entry);
        } else {
            self.links[usize::from(tail)].next = entry;
            let link = &mut self.links[usize::from(entry)];
            link.next = NIL;
            link.prev = tail;
        }
        self.ready_tail = entry;
    }

    /// Returns the first entry with something to send.
    #[inline]
    pub(crate) fn ready(&self) -> Option<u16> {
        Some(self.heads[usize::from(READY)]).filter(|&entry| entry != NIL)
    }

    /// Returns the entry after `entry` in the ready list.
    pub(crate) fn ready_after(&self, entry: u16) -> Option<u16> {
        Some(self.links[usize::from(entry)].next).filter(|&next| next != NIL)
    }

    /// Removes and returns one entry whose timer has expired.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<u16> {
        let target = tick_of(now);
        loop {
            let entry = self.heads[usize::from(DUE)];
            if entry != NIL {
                self.remove(entry);
                let tick = self.full(self.links[usize::from(entry)].deadline);
                if tick <= self.tick {
                    return Some(entry);
                }
                self.place(entry, tick);
                continue;
            }
            match self.next_tick() {
                Some(tick) if tick <= target => self.turn_to(tick),
                _ => {
                    self.tick = self.tick.max(target);
                    return None;
                }
            }
        }
    }

    /// Advances to a tick with entries in its slot. They are then due, or placed again.
    fn turn_to(&mut self, tick: u64) {
        let turned = tick >> 8 != self.tick >> 8;
        self.tick = tick;
        if turned {
            self.move_to_due(SLOTS + (tick >> 8) as usize % SLOTS);
        } else {
            self.move_to_due(tick as usize % SLOTS);
        }
    }

    /// Slots are filled from the front; reversing the list restores the order in which timers were set.
    fn move_to_due(&mut self, list: usize) {
        let mut entry = core::mem::replace(&mut self.heads[list], NIL);
        self.occupied[list / 64] &= !(1 << (list % 64));
        while entry != NIL {
            let next = self.links[usize::from(entry)].next;
            self.push_front(DUE, entry);
            entry = next;
        }
    }

    /// Returns the tick with these low 32 bits that is nearest to the current one.
    fn full(&self, deadline: u32) -> u64 {
        let distance = deadline.wrapping_sub(self.tick as u32) as i32;
        self.tick.saturating_add_signed(i64::from(distance))
    }

    /// Returns the next tick at which a slot has to be emptied.
    fn next_tick(&self) -> Option<u64> {
        let near = &self.occupied[..SLOTS / 64];
        if let Some(slot) = next_bit(near, self.tick as usize % SLOTS + 1) {
            return Some((self.tick & !0xff) | slot as u64);
        }
        let far = &self.occupied[SLOTS / 64..];
        let turn = (self.tick >> 8) as usize % SLOTS;
        let ahead = next_bit(far, turn + 1)
            .map(|slot| slot - turn)
            .or_else(|| next_bit(far, 0).map(|slot| slot + SLOTS - turn))?;
        Some(((self.tick >> 8) + ahead as u64) << 8)
    }

    /// Returns when to call [`Wheel::expired`]; in the past while a timer is due.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        if self.heads[usize::from(DUE)] != NIL {
            return Some(instant_of(self.tick));
        }
        self.next_tick().map(instant_of)
    }
}

/// The tick; then the entries of each list in order, with their deadlines where they are timers.
impl fmt::Debug for Wheel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entry(&"tick", &self.tick);
        for (list, &head) in (0..).zip(&self.heads) {
            let mut entry = head;
            while entry != NIL {
                let link = &self.links[usize::from(entry)];
                match list {
                    READY => map.entry(&"ready", &entry),
                    _ => map.entry(&list, &(entry, link.deadline)),
                };
                entry = link.next;
            }
        }
        map.finish()
    }
}

/// Returns the first set bit at `from` or after it.
pub(crate) fn next_bit(words: &[u64], from: usize) -> Option<usize> {
    let mut word = from / 64;
    let mut bits = words.get(word)? & (u64::MAX << (from % 64));
    while bits == 0 {
        word += 1;
        bits = *words.get(word)?;
    }
    Some(word * 64 + bits.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeMap;
    use std::vec;
    use std::vec::Vec;

    use super::*;

    fn wheel(entries: usize) -> Wheel<'static> {
        Wheel::new(vec![Link::default(); entries].into(), Instant::ZERO)
    }

    /// Against a sorted map: random deadlines up to a minute, random stops, random steps.
    #[test]
    fn fires_what_a_sorted_map_would() {
        for seed in 1..200u64 {
            let mut random = seed;
            let mut next = move |bound: u64| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % bound
            };
            let mut wheel = wheel(64);
            let mut oracle = BTreeMap::new();
            let mut now = Instant::ZERO;
            for _ in 0..300 {
                let entry = next(64) as u16;
                let span = [1_000, 60_000, 1_000_000, 60_000_000][next(4) as usize];
                let at = now + Duration::from_micros(next(span));
                wheel.set(entry, at);
                oracle.insert(entry, tick_after(at).max(tick_of(now) + 1));
                if next(8) == 0 {
                    let entry = next(64) as u16;
                    wheel.remove(entry);
                    oracle.remove(&entry);
                }
                let step = [500, 50_000, 5_000_000][next(3) as usize];
                now += Duration::from_micros(next(step));
                let mut fired = Vec::new();
                while let Some(entry) = wheel.expired(now) {
                    fired.push(entry);
                }
                fired.sort_unstable();
                let due = |at: &u64| *at <= tick_of(now);
                let expected: Vec<u16> = oracle
                    .iter()
                    .filter(|(_, at)| due(at))
                    .map(|(&entry, _)| entry)
                    .collect();
                assert_eq!(fired, expected, "seed {seed}");
                oracle.retain(|_, at| !due(at));
                let soonest = oracle.values().min().map(|&tick| instant_of(tick));
                assert_eq!(wheel.next().is_some(), soonest.is_some(), "seed {seed}");
                assert!(wheel.next() <= soonest, "seed {seed}");
                assert!(wheel.next().is_none_or(|at| at > now), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_fires_nothing_early() {
        let mut wheel = wheel(1);
        wheel.set(0, Instant::from_millis(10));
        assert_eq!(wheel.expired(Instant::from_millis(9)), None);
        assert_eq!(wheel.expired(Instant::from_millis(1)), None);
        assert_eq!(wheel.expired(Instant::from_millis(11)), Some(0));
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn what_waits_to_be_sent_keeps_its_order() {
        let mut wheel = wheel(4);
        for entry in [2, 0, 3, 1] {
            wheel.make_ready(entry);
        }
        wheel.remove(3);
        let mut order = Vec::new();
        while let Some(entry) = wheel.ready() {
            wheel.remove(entry);
            order.push(entry);
        }
        assert_eq!(order, [2, 0, 1]);
        wheel.make_ready(3);
        assert_eq!(wheel.ready(), Some(3));
        assert_eq!(wheel.ready_after(3), None);
    }

    #[test]
    fn debug_shows_timers_and_what_waits() {
        let mut wheel = wheel(5);
        wheel.set(0, Instant::from_micros(3 << TICK_SHIFT));
        wheel.set(4, Instant::from_micros(3 << TICK_SHIFT));
        wheel.set(1, Instant::from_micros(600 << TICK_SHIFT));
        wheel.make_ready(2);
        wheel.make_ready(3);
        wheel.remove(2);
        let expected = r#"{"tick": 0, 3: (4, 3), 3: (0, 3), 258: (1, 600), "ready": 3}"#;
        assert_eq!(std::format!("{wheel:?}"), expected);
    }
}
