//! The children of a session, and the sets that they belong to.

use super::bits::one_word;
use super::{Phase, Tables, bits, has_bit};
use crate::Seq;
use crate::types::Addr;

/// A receiver or a relay that has joined.
#[derive(Clone, Copy, Debug, Default)]
pub struct Child {
    pub(crate) address: Addr,
    /// When it last sent a JOIN, in sixteenths of the refresh interval.
    pub(crate) heard: u8,
    /// When its acknowledgement last advanced or it lacked nothing, in sixteenths of the stall timeout.
    pub(crate) advanced: u8,
    pub(crate) ack: Seq,
    /// Round-trip time to the farthest receiver below it, in units of 64 µs.
    pub(crate) far: u16,
    /// Receivers below it.
    pub(crate) receivers: u16,
}

/// The sets of a session's children; one bit for each child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Set {
    /// Children that exist.
    Members,
    /// Children that have acknowledged something.
    Acked,
    /// Children that the session no longer waits for. The address of one that left is kept until its number is needed.
    Stalled,
    /// Children that are relays.
    Relays,
}

/// Number of sets.
pub(crate) const SETS: usize = 4;

impl Tables<'_> {
    pub(super) fn set_range(&self, number: u16, set: Set) -> core::ops::Range<usize> {
        let words = self.words;
        let first = (usize::from(number) * SETS + set as usize) * words;
        first..first + words
    }

    /// Returns a set of children.
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

    /// Returns the set of existing children.
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

    /// Forgets the acknowledgements and stalls of another run of the source.
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

    /// Whether a child with this number exists and has this address.
    #[inline]
    pub(crate) fn child_at(&self, number: u16, child: u16, address: Addr) -> bool {
        self.is_member(number, child) && self.child(number, child).address.is(&address)
    }

    /// Finds a child by its address. Visits all children: used only when a JOIN does not name its number.
    pub(crate) fn child_by_address(&self, number: u16, address: Addr) -> Option<u16> {
        bits(self.members(number)).find(|&child| self.child(number, child).address == address)
    }

    /// Returns the number of a child at this address that stalled and then left.
    fn left_stalled(&self, number: u16, address: Addr) -> Option<u16> {
        bits(self.set(number, Set::Stalled)).find(|&child| {
            !self.is_member(number, child) && self.child(number, child).address == address
        })
    }

    /// Whether a child at this address stalled and then left.
    pub(crate) fn has_left_stalled(&self, number: u16, address: Addr) -> bool {
        self.left_stalled(number, address).is_some()
    }

    /// Returns the lowest number that is not in the set `taken`.
    fn lowest_free(&self, number: u16, taken: impl Fn(usize) -> u64) -> Option<u16> {
        let words = self.members(number).len();
        let word = (0..words).find(|&word| taken(word) != u64::MAX)?;
        let free = word * 64 + (!taken(word)).trailing_zeros() as usize;
        (free < self.limits.children).then_some(free as u16)
    }

    /// Adds a child under the lowest free number. A child that stalled and left gets its number back. The numbers of
    /// other such children are used only when all others are taken.
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

    /// Counts the children in any of the sets with the IP address of `address`.
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

    /// Removes a child; it gets no more repairs. A stalled child is remembered until its number is needed.
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

    /// Returns all entries for children of a session.
    #[inline]
    pub(crate) fn child_entries(&self, number: u16) -> &[Child] {
        let first = usize::from(number) * self.limits.children;
        &self.children[first..first + self.limits.children]
    }
}
