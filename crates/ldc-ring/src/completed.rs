//! The consumer's private map of slots completed out of order.
//!
//! One bit per slot, in memory that the producer cannot write. The state words in the block hold the same information
//! for a consumer that replaces a dead one, but a hostile producer can rewrite them at any time. A set bit between
//! `dev_i` and `kern_i` marks a slot of a completed message. All other bits are clear.

use crate::shape::Shape;

/// Bits in a word of the map.
const BITS: u32 = u32::BITS;

/// One bit per slot, in `[u32]` storage of [`Shape::completed_words`] words.
pub(crate) struct Completed<D> {
    words: D,
    shape: Shape,
    /// Number of set bits.
    marked: u32,
}

impl<D: AsRef<[u32]> + AsMut<[u32]>> Completed<D> {
    /// Returns an empty map, or `None` if the storage is too short for the ring.
    pub(crate) fn new(mut words: D, shape: Shape) -> Option<Self> {
        words.as_mut().get_mut(..shape.completed_words())?.fill(0);
        Some(Self {
            words,
            shape,
            marked: 0,
        })
    }

    /// Clears all marks.
    pub(crate) fn clear(&mut self) {
        self.words.as_mut().fill(0);
        self.marked = 0;
    }

    /// Marks the slots of a message.
    pub(crate) fn mark(&mut self, position: u32, pieces: u32) {
        let mut done = 0;
        while done < pieces {
            let (word, mask, bits) = self.span(position.wrapping_add(done), pieces - done);
            if let Some(word) = self.words.as_mut().get_mut(word) {
                self.marked += (mask & !*word).count_ones();
                *word |= mask;
            }
            done += bits;
        }
    }

    /// Clears the run of marked slots that begins at `from` and ends at `end` at the latest. Returns the first position
    /// after the run.
    #[inline]
    pub(crate) fn take_run(&mut self, from: u32, end: u32) -> u32 {
        // Most messages are completed in order.
        if self.marked == 0 {
            return from;
        }
        self.take_marked_run(from, end)
    }

    #[inline(never)]
    fn take_marked_run(&mut self, mut from: u32, end: u32) -> u32 {
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
            self.marked -= run;
            from = from.wrapping_add(run);
            if run < bits {
                break;
            }
        }
        from
    }

    /// Returns the index of the word that holds a position's slot, the mask of up to `count` slots from it on in that
    /// word, and the number of bits in the mask.
    fn span(&self, position: u32, count: u32) -> (usize, u32, u32) {
        let slot = self.shape.slot(position) as u32;
        let bit = slot % BITS;
        // A ring of fewer slots than bits wraps inside its only word.
        let bits = count.min(BITS - bit).min(self.shape.slots() - slot);
        ((slot / BITS) as usize, ones(bits) << bit, bits)
    }
}

/// Returns a word whose lowest `count` bits are set, 1 to 32.
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
        /// The map agrees with a list of flags, for rings of all sizes and across the wrap of positions.
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
            // The run is clear; all other slots are unchanged.
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
