//! Blocks that wait for their turn.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Numbers in the order of their arrival, each once. A removed number stays until its turn, and is then its
/// next owner's: the queue is never longer than there are numbers.
#[derive(Default, Debug)]
pub(super) struct Queue {
    list: VecDeque<u32>,
    /// By number: it is in the list.
    waits: Vec<bool>,
}

impl Queue {
    pub(super) fn push(&mut self, number: u32) {
        let at = number as usize;
        if at >= self.waits.len() {
            self.waits.resize(at + 1, false);
        }
        if !core::mem::replace(&mut self.waits[at], true) {
            self.list.push_back(number);
        }
    }

    pub(super) fn front(&self) -> Option<u32> {
        self.list.front().copied()
    }

    pub(super) fn pop(&mut self) {
        if let Some(number) = self.list.pop_front() {
            self.waits[number as usize] = false;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
