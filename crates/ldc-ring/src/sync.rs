//! The atomics, behind one name so that loom can replace them, and tests of processes that die.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};

#[cfg(polycast_faults)]
pub(crate) use {
    crate::faults::{AtomicU32, fence},
    core::sync::atomic::Ordering,
};

#[cfg(not(any(loom, polycast_faults, feature = "portable-atomic")))]
pub(crate) use core::sync::atomic::{AtomicU32, Ordering, fence};

#[cfg(all(not(any(loom, polycast_faults)), feature = "portable-atomic"))]
pub(crate) use {
    core::sync::atomic::{Ordering, fence},
    portable_atomic::AtomicU32,
};

#[cfg(all(
    not(loom),
    not(feature = "portable-atomic"),
    not(target_has_atomic = "32")
))]
compile_error!(
    "this target has no 32-bit compare-and-swap, which claim, cancel, modify and hold back need: enable the feature \
     `portable-atomic` of ldc-ring and select an implementation in your binary"
);

#[cfg(all(feature = "alloc", not(target_has_atomic = "ptr")))]
compile_error!(
    "the feature `alloc` of ldc-ring (rings on the heap) needs `alloc::sync::Arc`, which this target lacks: disable it \
     and lend the memory with `ldc_ring::split`"
);
