//! The consumer's private record of what it completed out of order.
//!
//! One bit a slot, in memory that the producer cannot write: the state words in the block say the same, for a consumer
//! that takes over from one that died, but a hostile producer can rewrite those at any time. Between `dev_i` and
//! `kern_i` a set bit means: this slot belongs to a completed message. All other bits are clear.

use crate::shape::Shape;

/// Bits of a word of the map.
const BITS: u32 = u32::BITS;

/// One bit a slot, in `[u32]` storage of [`Shape::completed_words`] words.
pub(crate) struct Completed<D> {
    words: D,
    shape: Shape,
}

impl<D: AsRef<[u32]> + AsMut<[u32]>> Completed<D> {
    /// An empty map; `None` when the storage is too short for the ring.
    pub(crate) fn new(mut words: D, shape: Shape) -> Option<Self> {
        words.as_mut().get_mut(..shape.completed_words())?.fill(0);
        Some(Self { words, shape })
    }

    /// Marks the slots of a message.
    pub(crate) fn mark(&mut self, position: u32, pieces: u32) {
        let mut done = 0;
        while done < pieces {
            let (word, mask, bits) = self.span(position.wrapping_add(done), pieces - done);
            if let Some(word) = self.words.as_mut().get_mut(word) {
                *word |= mask;
            }
            done += bits;
        }
    }

    /// Clears the run of marked slots that begins at `from`, not past `end`. Returns the first position after it.
    #[inline]
    pub(crate) fn take_run(&mut self, mut from: u32, end: u32) -> u32 {
        while from != end {
            let (word, mask, bits) = self.span(from, end.wrapping_sub(from));
            let Some(word) = self.words.as_mut().get_mut(word) else {
                break;
            };
            let shift = mask.trailing_zeros();
            let run = ((*word & mask) >> shift).trailing_ones();
            if run == 0 {
                break;
            }
            *word &= !(ones(run) << shift);
            from = from.wrapping_add(run);
            if run < bits {
                break;
            }
        }
        from
    }

    /// The word of a position's slot, the bits there of at most `count` slots from it on, and how many those are.
    fn span(&self, position: u32, count: u32) -> (usize, u32, u32) {
        let slot = self.shape.slot(position) as u32;
        let bit = slot % BITS;
        // A ring of fewer slots than bits wraps inside its only word.
        let bits = count.min(BITS - bit).min(self.shape.slots() - slot);
        ((slot / BITS) as usize, ones(bits) << bit, bits)
    }
}

/// The lowest `count` bits, 1 to 32.
fn ones(count: u32) -> u32 {
    u32::MAX >> (BITS - count)
}

#[cfg(all(test, feature = "alloc", not(loom)))]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The map does what a list of flags does, whatever the ring's size and where positions wrap.
        #[test]
        fn takes_runs_as_a_list_of_flags_does(
            slots_log2 in 0..8u32,
            start in prop_oneof![Just(0u32), any::<u32>(), (0..300u32).prop_map(|back| 0u32.wrapping_sub(back))],
            marks in prop::collection::vec((0..256u32, 1..256u32), 0..6),
            end in 0..=256u32,
        ) {
            let shape = Shape::new(1 << slots_log2, 64).unwrap();
            let slots = shape.slots();
            let mut map = Completed::new(vec![u32::MAX; shape.completed_words()], shape).unwrap();
            let mut flags = vec![false; slots as usize];
            for (at, pieces) in marks {
                let at = at % slots;
                let pieces = pieces.min(slots - at);
                map.mark(start.wrapping_add(at), pieces);
                flags[at as usize..(at + pieces) as usize].fill(true);
            }
            let end = end.min(slots);
            let run = flags[..end as usize].iter().take_while(|set| **set).count() as u32;
            prop_assert_eq!(map.take_run(start, start.wrapping_add(end)), start.wrapping_add(run));
            // The run is clear now, the rest is as it was.
            flags[..run as usize].fill(false);
            let left: Vec<bool> = (0..slots)
                .map(|at| {
                    let at = start.wrapping_add(at);
                    map.take_run(at, at.wrapping_add(1)) != at
                })
                .collect();
            prop_assert_eq!(left, flags);
        }
    }
}
