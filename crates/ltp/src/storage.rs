//! Tables lent by the caller, or owned (feature `alloc`).

use managed::ManagedSlice;

use crate::digest::Digest;
pub use crate::receiver::{PendingRequest, Slot};
pub use crate::replier::{HoldDown, Pending, TargetEntry};
pub use crate::sender::Member;

/// Declares the tables of a machine, lent by the caller, and the arrays that lend them in a build without a heap.
macro_rules! tables {
    (
        $(#[$meta:meta])* $storage:ident;
        $(#[$static_meta:meta])* $static:ident, checked by $check:expr;
        $($(#[$about:meta])* $field:ident: [$entry:ty; $limit:ident],)+
    ) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $storage<'a> {
            $($(#[$about])* pub $field: ManagedSlice<'a, $entry>,)+
        }

        $(#[$static_meta])*
        #[derive(Debug)]
        pub struct $static<$(const $limit: usize),+> {
            $($field: [$entry; $limit],)+
        }

        impl<$(const $limit: usize),+> Default for $static<$($limit),+> {
            fn default() -> Self {
                const { assert!($check, "a limit is out of bounds") };
                $static { $($field: [<$entry>::default(); $limit],)+ }
            }
        }

        impl<$(const $limit: usize),+> $static<$($limit),+> {
            /// Lends the tables.
            pub fn lend(&mut self) -> $storage<'_> {
                $storage { $($field: ManagedSlice::Borrowed(&mut self.$field),)+ }
            }
        }
    };
}

tables! {
    /// The tables of a sender. Any but `targets` may be empty: what needs it is then refused and counted.
    SenderStorage;
    /// The tables of a sender in arrays, with these limits, in the order of [`SenderStorage`]'s fields. `TARGETS` is
    /// at least 1 and `HOLD_DOWN` 0 or a power of two, which the compiler checks.
    StaticSenderStorage, checked by TARGETS > 0 && (HOLD_DOWN == 0 || HOLD_DOWN.is_power_of_two());
    /// Digests kept, a ring over blocks.
    digests: [Digest; DIGESTS],
    /// Receivers that report.
    members: [Member; MEMBERS],
    /// One counter for each block of the window, and one more; empty: no window.
    window: [u32; WINDOW],
    /// Blocks with repairs waiting.
    repairs: [Pending; REPAIRS],
    /// Repairs whose hold-down is tracked; the largest power of two of them is used.
    hold_down: [HoldDown; HOLD_DOWN],
    /// The group, and receivers with repairs by unicast waiting: at least 1.
    targets: [TargetEntry; TARGETS],
}

tables! {
    /// The tables of a receiver. Those of the replier may be empty: it then repairs nothing.
    ReceiverStorage;
    /// The tables of a receiver in arrays, with these limits, in the order of [`ReceiverStorage`]'s fields. `SLOTS` is
    /// a power of two, `REQUESTS` at least 1 and `HOLD_DOWN` 0 or a power of two, which the compiler checks.
    StaticReceiverStorage, checked by SLOTS.is_power_of_two()
        && REQUESTS > 0
        && (HOLD_DOWN == 0 || HOLD_DOWN.is_power_of_two());
    /// The window over blocks; the largest power of two of them is used.
    slots: [Slot; SLOTS],
    /// Blocks of which packets are requested at a time, at least 1.
    requests: [PendingRequest; REQUESTS],
    /// Replier: blocks with repairs waiting.
    repairs: [Pending; REPAIRS],
    /// Replier: repairs whose hold-down is tracked; the largest power of two is used.
    hold_down: [HoldDown; HOLD_DOWN],
    /// Replier: turning points served at a time, and one more.
    targets: [TargetEntry; TARGETS],
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
            let window = window_blocks + usize::from(window_blocks > 0);
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
