//! Steps between which a process may die: each access to shared memory. Tests count them and kill the process at each
//! (`crates/ldc-linux/tests/faults`).

use core::sync::atomic::{self, Ordering};
use std::sync::OnceLock;

static HOOK: OnceLock<fn()> = OnceLock::new();

/// Has `hook` called before each step from now on. Only the first call has an effect.
pub fn on_step(hook: fn()) {
    let _ = HOOK.set(hook);
}

/// Marks a step.
pub fn step() {
    if let Some(hook) = HOOK.get() {
        hook();
    }
}

/// As that of `core`, each operation a step.
#[repr(transparent)]
pub struct AtomicU32(atomic::AtomicU32);

impl AtomicU32 {
    pub fn load(&self, order: Ordering) -> u32 {
        step();
        self.0.load(order)
    }

    pub fn store(&self, value: u32, order: Ordering) {
        step();
        self.0.store(value, order);
    }

    /// # Errors
    ///
    /// The current value is not `current`.
    pub fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        step();
        self.0.compare_exchange(current, new, success, failure)
    }
}

/// As that of `core`, a step.
pub fn fence(order: Ordering) {
    step();
    atomic::fence(order);
}
