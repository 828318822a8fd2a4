//! To whom a packet goes.

use core::slice;

use super::table::Child;
use crate::SocketAddr;
use crate::types::Addr;

/// Addresses that a packet goes to: of children, by their number, then of the parent if it asked.
///
/// Written out, not made of adapters: reading out is half of the work for a packet that is passed on.
#[derive(Clone, Debug)]
pub struct Targets<'r> {
    /// From the first child of `word` on.
    places: &'r [Child],
    /// Bits of the children that are left of 64.
    word: u64,
    /// Bits of those behind them.
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
