//! The children of a session: who they are, and the sets that they belong to.

use super::bits::one_word;
use super::{Phase, Tables, bits, has_bit};
use crate::Seq;
use crate::types::Addr;

/// A receiver or a relay below.
#[derive(Clone, Copy, Debug, Default)]
pub struct Child {
    pub(crate) address: Addr,
    /// When it last announced itself, in sixteenths of the refresh.
    pub(crate) heard: u8,
    /// When its acknowledgement last advanced, or it lacked nothing, in sixteenths of the stall timeout.
    pub(crate) advanced: u8,
    pub(crate) ack: Seq,
    /// Round trip to the farthest receiver below it, in units of 64 µs.
    pub(crate) far: u16,
    /// Receivers below it.
    pub(crate) receivers: u16,
}

/// The sets of a session's children, a bit for each child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Set {
    /// Children there are.
    Members,
    /// Those that acknowledged something.
    Acked,
    /// Those that are no longer waited for. The address of one that left is kept until its number is needed.
    Stalled,
    /// Those that are relays.
    Relays,
}

/// How many sets there are.
pub(crate) const SETS: usize = 4;

impl Tables<'_> {
    pub(super) fn set_range(&self, number: u16, set: Set) -> core::ops::Range<usize> {
        let words = self.words;
        let first = (usize::from(number) * SETS + set as usize) * words;
        first..first + words
    }

    /// A bit for each child in that set.
    #[inline]
    pub(crate) fn set(&self, number: u16, set: Set) -> &[u64] {
        &self.members[self.set_range(number, set)]
    }

    fn mark(&mut self, number: u16, set: Set, child: u16, value: bool) {
        let at = self.set_range(number, set).start + usize::from(child) / 64;
        let bit = 1 << (child % 64);
        if value {
            self.members[at] |= bit;
        } else {
            self.members[at] &= !bit;
        }
    }

    /// A bit for each child there is.
    #[inline]
    pub(crate) fn members(&self, number: u16) -> &[u64] {
        self.set(number, Set::Members)
    }

    pub(crate) fn set_acked(&mut self, number: u16, child: u16) {
        self.mark(number, Set::Acked, child, true);
    }

    pub(crate) fn set_relay(&mut self, number: u16, child: u16, relay: bool) {
        self.mark(number, Set::Relays, child, relay);
    }

    pub(crate) fn set_stalled(&mut self, number: u16, child: u16) {
        self.mark(number, Set::Stalled, child, true);
    }

    /// What the children acknowledged, or failed to, was of another run of the source.
    pub(crate) fn forget_acks(&mut self, number: u16) {
        for set in [Set::Acked, Set::Stalled] {
            let range = self.set_range(number, set);
            self.members[range].fill(0);
        }
    }

    #[inline]
    pub(crate) fn is_member(&self, number: u16, child: u16) -> bool {
        usize::from(child) < self.limits.children && has_bit(self.members(number), child)
    }

    #[inline]
    pub(crate) fn child(&self, number: u16, child: u16) -> &Child {
        &self.children[usize::from(number) * self.limits.children + usize::from(child)]
    }

    #[inline]
    pub(crate) fn child_mut(&mut self, number: u16, child: u16) -> &mut Child {
        &mut self.children[usize::from(number) * self.limits.children + usize::from(child)]
    }

    /// The child of that number, if it is there and has that address.
    #[inline]
    pub(crate) fn child_at(&self, number: u16, child: u16, address: Addr) -> bool {
        self.is_member(number, child) && self.child(number, child).address.is(&address)
    }

    /// Looks through all children: only where one joins without knowing its number.
    pub(crate) fn child_by_address(&self, number: u16, address: Addr) -> Option<u16> {
        bits(self.members(number)).find(|&child| self.child(number, child).address == address)
    }

    /// The number that a child at this address had when it stalled and then left.
    fn left_stalled(&self, number: u16, address: Addr) -> Option<u16> {
        bits(self.set(number, Set::Stalled)).find(|&child| {
            !self.is_member(number, child) && self.child(number, child).address == address
        })
    }

    /// Whether a child at this address stalled and then left, and is remembered.
    pub(crate) fn has_left_stalled(&self, number: u16, address: Addr) -> bool {
        self.left_stalled(number, address).is_some()
    }

    /// The lowest number that `taken` says is free.
    fn lowest_free(&self, number: u16, taken: impl Fn(usize) -> u64) -> Option<u16> {
        let words = self.members(number).len();
        let word = (0..words).find(|&word| taken(word) != u64::MAX)?;
        let free = word * 64 + (!taken(word)).trailing_zeros() as usize;
        (free < self.limits.children).then_some(free as u16)
    }

    /// The lowest free number becomes a child. A child that stalled and left gets its number back. The
    /// numbers of other such children are given away only when all others are taken.
    pub(crate) fn add_child(&mut self, number: u16, child: Child) -> Option<u16> {
        let members = self.members(number);
        let stalled = self.set(number, Set::Stalled);
        let again = self.left_stalled(number, child.address);
        let free = again
            .or_else(|| self.lowest_free(number, |word| members[word] | stalled[word]))
            .or_else(|| self.lowest_free(number, |word| members[word]))?;
        self.mark(number, Set::Members, free, true);
        self.mark(number, Set::Acked, free, false);
        self.mark(number, Set::Stalled, free, again.is_some());
        *self.child_mut(number, free) = child;
        self.session_mut(number).children += 1;
        Some(free)
    }

    /// Children in any of the sets whose IP address is that of `address`.
    pub(crate) fn at_host(&self, number: u16, sets: &[Set], address: Addr) -> usize {
        let word = |word| {
            sets.iter()
                .fold(0, |all, &set| all | self.set(number, set)[word])
        };
        let words = (0..self.words).map(word);
        words
            .enumerate()
            .flat_map(|(word, set)| one_word(set).map(move |bit| (word * 64) as u16 + bit))
            .filter(|&child| self.child(number, child).address.same_host(&address))
            .count()
    }

    /// The child is gone; it gets no more repairs. One that stalled is remembered as long as its number is
    /// not needed.
    pub(crate) fn remove_child(&mut self, number: u16, child: u16) {
        self.mark(number, Set::Members, child, false);
        self.mark(number, Set::Acked, child, false);
        let word = usize::from(child) / 64;
        self.session_mut(number).children -= 1;
        let states = self.limits.nack_states;
        for state in usize::from(number) * states..(usize::from(number) + 1) * states {
            if self.nacks[state].phase != Phase::Free {
                let at = state * self.words + word;
                self.subcast[at] &= !(1 << (child % 64));
            }
        }
    }

    /// All places for children of a session.
    #[inline]
    pub(crate) fn places(&self, number: u16) -> &[Child] {
        let first = usize::from(number) * self.limits.children;
        &self.children[first..first + self.limits.children]
    }
}
