//! A set of interfaces as a bitmap in lent words: membership, size and the n-th member cost the
//! same for 2 interfaces and for thousands.
//!
//! A word holds 48 interfaces in its low bits and, in the 16 above, how many members stand in
//! the words before it. So the n-th member is found by halving, not by a walk, and a bitmap of up
//! to 48 interfaces is one word.

use crate::Iface;

/// Interfaces in one word.
pub const IFACES_PER_WORD: usize = 48;

const MEMBERS: u64 = (1 << IFACES_PER_WORD) - 1;

/// 48 interfaces of a downstream set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IfaceWord(u64);

impl IfaceWord {
    fn bits(self) -> u64 {
        self.0 & MEMBERS
    }

    fn rank(self) -> usize {
        (self.0 >> IFACES_PER_WORD) as usize
    }
}

#[inline]
fn place(iface: Iface) -> (usize, u32) {
    let i = usize::from(iface.0);
    (i / IFACES_PER_WORD, (i % IFACES_PER_WORD) as u32)
}

#[inline]
pub(crate) fn contains(set: &[IfaceWord], iface: Iface) -> bool {
    let (word, bit) = place(iface);
    set.get(word).is_some_and(|word| word.0 >> bit & 1 == 1)
}

/// Makes `set` hold exactly `members`. Those beyond the words are left out: the caller checks.
pub(crate) fn assign(set: &mut [IfaceWord], members: &[Iface]) {
    set.fill(IfaceWord(0));
    for &iface in members {
        let (word, bit) = place(iface);
        if let Some(word) = set.get_mut(word) {
            word.0 |= 1 << bit;
        }
    }
    count_again(set);
}

/// Takes one member out; false where it was none.
pub(crate) fn remove(set: &mut [IfaceWord], iface: Iface) -> bool {
    if !contains(set, iface) {
        return false;
    }
    let (word, bit) = place(iface);
    set[word].0 &= !(1 << bit);
    count_again(set);
    true
}

fn count_again(set: &mut [IfaceWord]) {
    let mut before = 0;
    for word in set {
        word.0 = word.bits() | before << IFACES_PER_WORD;
        before += u64::from(word.bits().count_ones());
    }
}

#[inline]
pub(crate) fn len(set: &[IfaceWord]) -> usize {
    set.last()
        .map_or(0, |word| word.rank() + word.bits().count_ones() as usize)
}

/// How many members are smaller than `iface`.
#[inline]
pub(crate) fn rank(set: &[IfaceWord], iface: Iface) -> usize {
    let (word, bit) = place(iface);
    set.get(word).map_or_else(
        || len(set),
        |word| word.rank() + (word.bits() & ((1 << bit) - 1)).count_ones() as usize,
    )
}

/// The `n`-th smallest member, from 0.
#[inline]
pub(crate) fn nth(set: &[IfaceWord], n: usize) -> Option<Iface> {
    if n >= len(set) {
        return None;
    }
    let word = set.partition_point(|word| word.rank() <= n) - 1;
    let (mut bits, mut left, mut at) = (set[word].bits(), n - set[word].rank(), 0);
    for half in [32, 16, 8, 4, 2, 1] {
        let low = (bits & ((1 << half) - 1)).count_ones() as usize;
        if left >= low {
            left -= low;
            bits >>= half;
            at += half;
        }
    }
    Some(Iface((word * IFACES_PER_WORD + at) as u16))
}

/// All members, smallest first.
pub(crate) fn iter(set: &[IfaceWord]) -> impl Iterator<Item = Iface> + '_ {
    set.iter().enumerate().flat_map(|(index, word)| {
        let bits = word.bits();
        (0..IFACES_PER_WORD)
            .filter(move |bit| bits >> bit & 1 == 1)
            .map(move |bit| Iface((index * IFACES_PER_WORD + bit) as u16))
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn agrees_with_an_ordered_set() {
        let mut set = [IfaceWord::default(); 25];
        let members: Vec<Iface> = (0..1200u32)
            .filter(|i| i * i % 7 < 3)
            .map(|i| Iface(i as u16))
            .collect();
        assign(&mut set, &members);
        let mut oracle: BTreeSet<Iface> = members.iter().copied().collect();
        for gone in [0, 47, 48, 600, 1199].map(Iface) {
            assert_eq!(remove(&mut set, gone), oracle.remove(&gone));
        }
        assert_eq!(len(&set), oracle.len());
        assert_eq!(
            iter(&set).collect::<Vec<_>>(),
            oracle.iter().copied().collect::<Vec<_>>()
        );
        for i in (0..1300).map(Iface) {
            assert_eq!(contains(&set, i), oracle.contains(&i));
            assert_eq!(rank(&set, i), oracle.range(..i).count());
        }
        for (n, &member) in oracle.iter().enumerate() {
            assert_eq!(nth(&set, n), Some(member));
        }
        assert_eq!(nth(&set, oracle.len()), None);
    }

    #[test]
    fn no_words_hold_nothing() {
        assert!(!contains(&[], Iface(0)));
        assert_eq!((len(&[]), rank(&[], Iface(3)), nth(&[], 0)), (0, 0, None));
    }
}
