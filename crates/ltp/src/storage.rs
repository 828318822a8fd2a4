//! Tables lent by the caller, or owned (feature `alloc`).

use managed::ManagedSlice;

use crate::digest::Digest;
pub use crate::receiver::{Ask, Slot};
pub use crate::replier::{Held, Pending, TargetEntry};
pub use crate::sender::Member;

/// The tables of a sender. Any may be empty: what needs it is then refused and counted.
#[derive(Debug)]
pub struct SenderStorage<'a> {
    /// Digests kept, a ring over blocks.
    pub digests: ManagedSlice<'a, Digest>,
    /// Receivers that are kept account of.
    pub members: ManagedSlice<'a, Member>,
    /// One counter for each block of the window, and one more; empty: no window.
    pub window: ManagedSlice<'a, u32>,
    /// Blocks with repairs waiting.
    pub repairs: ManagedSlice<'a, Pending>,
    /// Repairs remembered for holding down; the largest power of two of them is used.
    pub held: ManagedSlice<'a, Held>,
    /// The group, and receivers with repairs by unicast waiting: at least 1.
    pub targets: ManagedSlice<'a, TargetEntry>,
}

/// The tables of a receiver. The replier's may be empty: it then answers nobody.
#[derive(Debug)]
pub struct ReceiverStorage<'a> {
    /// The window over blocks; the largest power of two of them is used.
    pub slots: ManagedSlice<'a, Slot>,
    /// Blocks asked for at a time, at least 1.
    pub asks: ManagedSlice<'a, Ask>,
    /// Replier: blocks with repairs waiting.
    pub repairs: ManagedSlice<'a, Pending>,
    /// Replier: repairs remembered for holding down; the largest power of two is used.
    pub held: ManagedSlice<'a, Held>,
    /// Replier: turning points served at a time, and one more.
    pub targets: ManagedSlice<'a, TargetEntry>,
}

#[cfg(feature = "alloc")]
mod owned {
    use alloc::vec;

    use super::{ReceiverStorage, SenderStorage};
    use crate::config::{ReceiverLimits, SenderLimits};
    use crate::sender::Member;

    impl SenderStorage<'static> {
        /// Tables of those sizes on the heap; `window_blocks` of 0: no window.
        pub fn owned(limits: &SenderLimits, window_blocks: usize) -> Self {
            let window = if window_blocks == 0 {
                0
            } else {
                window_blocks + 1
            };
            SenderStorage {
                digests: vec![[0; 32]; limits.digests].into(),
                members: vec![Member::default(); limits.receivers].into(),
                window: vec![0; window].into(),
                repairs: vec![Default::default(); limits.repairs].into(),
                held: vec![Default::default(); limits.held].into(),
                targets: vec![Default::default(); limits.targets.max(1)].into(),
            }
        }
    }

    impl ReceiverStorage<'static> {
        /// Tables of those sizes on the heap.
        pub fn owned(limits: &ReceiverLimits) -> Self {
            ReceiverStorage {
                slots: vec![Default::default(); limits.window_blocks.max(1)].into(),
                asks: vec![Default::default(); limits.asks.max(1)].into(),
                repairs: vec![Default::default(); limits.repairs].into(),
                held: vec![Default::default(); limits.held].into(),
                targets: vec![Default::default(); limits.targets].into(),
            }
        }
    }
}
