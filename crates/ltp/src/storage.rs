//! Tables lent by the caller, or owned (feature `alloc`).

use managed::ManagedSlice;

use crate::digest::Digest;
pub use crate::receiver::{PendingRequest, Slot};
pub use crate::replier::{HoldDown, Pending, TargetEntry};
pub use crate::sender::Member;

/// The tables of a sender. Any may be empty: what needs it is then refused and counted.
#[derive(Debug)]
pub struct SenderStorage<'a> {
    /// Digests kept, a ring over blocks.
    pub digests: ManagedSlice<'a, Digest>,
    /// Receivers that report.
    pub members: ManagedSlice<'a, Member>,
    /// One counter for each block of the window, and one more; empty: no window.
    pub window: ManagedSlice<'a, u32>,
    /// Blocks with repairs waiting.
    pub repairs: ManagedSlice<'a, Pending>,
    /// Repairs whose hold-down is tracked; the largest power of two of them is used.
    pub hold_down: ManagedSlice<'a, HoldDown>,
    /// The group, and receivers with repairs by unicast waiting: at least 1.
    pub targets: ManagedSlice<'a, TargetEntry>,
}

/// The tables of a receiver. Those of the replier may be empty: it then repairs nothing.
#[derive(Debug)]
pub struct ReceiverStorage<'a> {
    /// The window over blocks; the largest power of two of them is used.
    pub slots: ManagedSlice<'a, Slot>,
    /// Blocks of which packets are requested at a time, at least 1.
    pub requests: ManagedSlice<'a, PendingRequest>,
    /// Replier: blocks with repairs waiting.
    pub repairs: ManagedSlice<'a, Pending>,
    /// Replier: repairs whose hold-down is tracked; the largest power of two is used.
    pub hold_down: ManagedSlice<'a, HoldDown>,
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
                hold_down: vec![Default::default(); limits.hold_down].into(),
                targets: vec![Default::default(); limits.targets.max(1)].into(),
            }
        }
    }

    impl ReceiverStorage<'static> {
        /// Tables of those sizes on the heap.
        pub fn owned(limits: &ReceiverLimits) -> Self {
            ReceiverStorage {
                slots: vec![Default::default(); limits.window_blocks.max(1)].into(),
                requests: vec![Default::default(); limits.requests.max(1)].into(),
                repairs: vec![Default::default(); limits.repairs].into(),
                hold_down: vec![Default::default(); limits.hold_down].into(),
                targets: vec![Default::default(); limits.targets].into(),
            }
        }
    }
}
