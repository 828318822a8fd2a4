//! The atomics, behind one name so that loom can replace them, and tests of processes that die.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};

#[cfg(polycast_faults)]
pub(crate) use {
    ldc_ring::faults::{AtomicU32, fence},
    std::sync::atomic::Ordering,
};

#[cfg(not(any(loom, polycast_faults)))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Marks a call by which the other process learns something. In tests, this process may die before it.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn step() {
    #[cfg(polycast_faults)]
    ldc_ring::faults::step();
}
