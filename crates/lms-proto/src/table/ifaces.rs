//! A set of interfaces as a bitmap in borrowed words: membership, size and the n-th member cost the
//! same for 2 interfaces and for thousands.
//!
//! A word holds 48 interfaces in its low bits and, in the 16 above, how many members stand in
//! the words before it. So the n-th member is found by halving, not by a walk. The first word
//! is in the entry itself: interfaces below 48 cost no other cache line.

use crate::Iface;

/// Interfaces in one word.
pub const IFACES_PER_WORD: usize = 48;

const MEMBERS: u64 = (1 << IFACES_PER_WORD) - 1;

/// 48 interfaces of a downstream set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IfaceWord(u64);

impl IfaceWord {
    pub(super) fn bits(self) -> u64 {
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

/// A downstream set: the first word apart from the others, as it is in its entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set<'a> {
    pub(crate) first: IfaceWord,
    pub(crate) rest: &'a [IfaceWord],
}

impl Set<'_> {
    #[inline]
    fn word(&self, word: usize) -> Option<IfaceWord> {
        match word.checked_sub(1) {
            None => Some(self.first),
            Some(at) => self.rest.get(at).copied(),
        }
    }

    #[inline]
    pub(crate) fn contains(&self, iface: Iface) -> bool {
        let (word, bit) = place(iface);
        self.word(word).is_some_and(|word| word.0 >> bit & 1 == 1)
    }

    pub(crate) fn len(&self) -> usize {
        let last = self.rest.last().unwrap_or(&self.first);
        last.rank() + last.bits().count_ones() as usize
    }

    /// How many members are smaller than `iface`.
    pub(crate) fn rank(&self, iface: Iface) -> usize {
        let (word, bit) = place(iface);
        self.word(word).map_or_else(
            || self.len(),
            |word| word.rank() + (word.bits() & ((1 << bit) - 1)).count_ones() as usize,
        )
    }

    /// The `n`-th smallest member, from 0.
    pub(crate) fn nth(&self, n: usize) -> Option<Iface> {
        if n >= self.len() {
            return None;
        }
        let at = self.rest.partition_point(|word| word.rank() <= n);
        let word = self.word(at)?;
        let (mut bits, mut left, mut bit) = (word.bits(), n - word.rank(), 0);
        for half in [32, 16, 8, 4, 2, 1] {
            let low = (bits & ((1 << half) - 1)).count_ones() as usize;
            if left >= low {
                left -= low;
                bits >>= half;
                bit += half;
            }
        }
        Some(Iface((at * IFACES_PER_WORD + bit) as u16))
    }
}

impl<'a> Set<'a> {
    /// All members, smallest first.
    pub(crate) fn iter(self) -> impl Iterator<Item = Iface> + 'a {
        let words = core::iter::once(self.first).chain(self.rest.iter().copied());
        words.enumerate().flat_map(|(index, word)| {
            let bits = word.bits();
            (0..IFACES_PER_WORD)
                .filter(move |bit| bits >> bit & 1 == 1)
                .map(move |bit| Iface((index * IFACES_PER_WORD + bit) as u16))
        })
    }
}

/// The same to be changed.
#[derive(Debug)]
pub(crate) struct SetMut<'a> {
    pub(crate) first: &'a mut IfaceWord,
    pub(crate) rest: &'a mut [IfaceWord],
}

impl SetMut<'_> {
    fn word(&mut self, word: usize) -> Option<&mut IfaceWord> {
        match word.checked_sub(1) {
            None => Some(self.first),
            Some(at) => self.rest.get_mut(at),
        }
    }

    /// Makes the set hold exactly `members`. Those beyond the words are left out: the caller
    /// checks.
    pub(crate) fn assign(&mut self, members: &[Iface]) {
        *self.first = IfaceWord(0);
        self.rest.fill(IfaceWord(0));
        for &iface in members {
            let (word, bit) = place(iface);
            if let Some(word) = self.word(word) {
                word.0 |= 1 << bit;
            }
        }
        self.count_again();
    }

    /// Takes one member out; false where it was none.
    pub(crate) fn remove(&mut self, iface: Iface) -> bool {
        let (word, bit) = place(iface);
        let Some(word) = self.word(word).filter(|word| word.0 >> bit & 1 == 1) else {
            return false;
        };
        word.0 &= !(1 << bit);
        self.count_again();
        true
    }

    fn count_again(&mut self) {
        let mut before = 0;
        for word in core::iter::once(&mut *self.first).chain(&mut *self.rest) {
            word.0 = word.bits() | before << IFACES_PER_WORD;
            before += u64::from(word.bits().count_ones());
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn agrees_with_an_ordered_set() {
        for limit in [48, 1_200] {
            let mut first = IfaceWord::default();
            let mut rest = [IfaceWord::default(); 24];
            let words = limit / IFACES_PER_WORD - 1;
            let members: Vec<Iface> = (0..limit as u32)
                .filter(|i| i * i % 7 < 3)
                .map(|i| Iface(i as u16))
                .collect();
            let mut change = SetMut {
                first: &mut first,
                rest: &mut rest[..words],
            };
            change.assign(&members);
            let mut oracle: BTreeSet<Iface> = members.iter().copied().collect();
            for gone in [0, 47, 48, 600, 1199].map(Iface) {
                assert_eq!(change.remove(gone), oracle.remove(&gone));
            }
            let rest = &rest[..words];
            let set = Set { first, rest };
            assert_eq!(set.len(), oracle.len());
            assert_eq!(set.iter().collect::<BTreeSet<_>>(), oracle);
            assert!(set.iter().is_sorted());
            for i in (0..1300).chain([u16::MAX]).map(Iface) {
                assert_eq!(set.contains(i), oracle.contains(&i));
                assert_eq!(set.rank(i), oracle.range(..i).count());
            }
            for (n, &member) in oracle.iter().enumerate() {
                assert_eq!(set.nth(n), Some(member));
            }
            assert_eq!(set.nth(oracle.len()), None);
        }
    }

    #[test]
    fn an_empty_set_has_no_member() {
        let set = Set {
            first: IfaceWord::default(),
            rest: &[],
        };
        assert!(!set.contains(Iface(0)));
        assert_eq!((set.len(), set.rank(Iface(3)), set.nth(0)), (0, 0, None));
    }
}
