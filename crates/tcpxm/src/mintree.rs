//! The least of many numbers, each of which may change at any time.

use alloc::vec::Vec;

/// A tournament over numbered slots: the smallest key and its slot in constant time, a changed key in
/// logarithmic time. A slot that was never set, or was cleared, has [`MinTree::NONE`].
#[derive(Clone, Default, Debug)]
pub(crate) struct MinTree {
    /// `nodes[1]` is the root, `nodes[width..]` are the leaves.
    nodes: Vec<u64>,
    width: usize,
}

impl MinTree {
    /// The key of a slot that takes no part.
    pub(crate) const NONE: u64 = u64::MAX;

    pub(crate) const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            width: 0,
        }
    }

    pub(crate) fn set(&mut self, slot: usize, key: u64) {
        if slot >= self.width {
            if key == Self::NONE {
                return;
            }
            self.grow(slot + 1);
        }
        let mut at = self.width + slot;
        if self.nodes[at] == key {
            return;
        }
        self.nodes[at] = key;
        while at > 1 {
            at /= 2;
            let least = self.nodes[2 * at].min(self.nodes[2 * at + 1]);
            if self.nodes[at] == least {
                return;
            }
            self.nodes[at] = least;
        }
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        self.set(slot, Self::NONE);
    }

    pub(crate) fn get(&self, slot: usize) -> u64 {
        self.nodes
            .get(self.width + slot)
            .copied()
            .filter(|_| slot < self.width)
            .unwrap_or(Self::NONE)
    }

    /// The least key; [`MinTree::NONE`] when no slot takes part.
    pub(crate) fn min(&self) -> u64 {
        self.nodes.get(1).copied().unwrap_or(Self::NONE)
    }

    /// The slot with the least key, the first of several.
    pub(crate) fn argmin(&self) -> Option<usize> {
        let least = self.min();
        if least == Self::NONE {
            return None;
        }
        let mut at = 1;
        while at < self.width {
            at *= 2;
            if self.nodes[at] != least {
                at += 1;
            }
        }
        Some(at - self.width)
    }

    fn grow(&mut self, slots: usize) {
        let width = slots.next_power_of_two().max(self.width * 2).max(1);
        let mut nodes = alloc::vec![Self::NONE; 2 * width];
        let old = self.nodes.get(self.width..).unwrap_or(&[]);
        nodes[width..width + old.len()].copy_from_slice(old);
        for at in (1..width).rev() {
            nodes[at] = nodes[2 * at].min(nodes[2 * at + 1]);
        }
        self.nodes = nodes;
        self.width = width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_plain_search() {
        let mut tree = MinTree::new();
        let mut plain = alloc::vec![u64::MAX; 40];
        let mut x: u64 = 1;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let slot = (x >> 33) as usize % 40;
            let key = if x >> 60 == 0 {
                MinTree::NONE
            } else {
                (x >> 40) % 97
            };
            tree.set(slot, key);
            plain[slot] = key;
            let least = *plain.iter().min().unwrap();
            assert_eq!(tree.min(), least);
            assert_eq!(tree.get(slot), key);
            let first = plain
                .iter()
                .position(|&k| k == least)
                .filter(|_| least != MinTree::NONE);
            assert_eq!(tree.argmin(), first);
        }
    }

    #[test]
    fn one_slot_is_root_and_leaf() {
        let mut tree = MinTree::new();
        assert_eq!((tree.min(), tree.argmin()), (MinTree::NONE, None));
        tree.set(0, 7);
        assert_eq!((tree.min(), tree.argmin(), tree.get(0)), (7, Some(0), 7));
        tree.clear(0);
        assert_eq!((tree.min(), tree.argmin()), (MinTree::NONE, None));
    }
}
