//! The addresses that a packet goes to.

use core::slice;

use super::table::Child;
use crate::SocketAddr;
use crate::types::Addr;

/// The addresses that a packet goes to: of children, by their number, then of the parent if it asked.
///
/// Written by hand rather than with iterator adapters, because listing targets is half of the work of forwarding a packet.
#[derive(Clone, Debug)]
pub struct Targets<'r> {
    /// The children, from the first bit of `word` on.
    places: &'r [Child],
    /// Remaining children of the current 64.
    word: u64,
    /// Sets of the following children.
    rest: slice::Iter<'r, u64>,
    above: Option<Addr>,
}

impl<'r> Targets<'r> {
    #[inline]
    pub(super) fn new(places: &'r [Child], set: &'r [u64], above: Option<Addr>) -> Self {
        let mut rest = set.iter();
        let word = rest.next().copied().unwrap_or(0);
        Targets {
            places,
            word,
            rest,
            above,
        }
    }
}

impl Iterator for Targets<'_> {
    type Item = SocketAddr;

    #[inline]
    fn next(&mut self) -> Option<SocketAddr> {
        while self.word == 0 {
            let Some(&word) = self.rest.next() else {
                return self.above.take().map(SocketAddr::from);
            };
            self.word = word;
            self.places = self.places.get(64..).unwrap_or_default();
        }
        let bit = self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        self.places.get(bit).map(|child| child.address.into())
    }
}
