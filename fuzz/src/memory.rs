//! Counts what a machine allocates, so that a target can hold it to its documented bound.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    // A thread that is going away has nothing to measure.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

#[allow(unsafe_code, reason = "only an allocator can count allocations")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that calls made through it have allocated and not freed.
#[derive(Default)]
pub struct Meter(isize);

impl Meter {
    /// Runs it, and counts the memory that it does not free.
    pub fn run<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let before = LIVE.get();
        let result = call();
        self.0 += LIVE.get() - before;
        result
    }

    /// What was returned from [`Meter::run`] is dropped: it is not the machine's any more.
    pub fn drop<T>(&mut self, value: T) {
        self.run(|| drop(value));
    }

    /// Fails above the bound.
    #[track_caller]
    pub fn check(&self, bound: usize) {
        let bytes = self.0;
        assert!(
            bytes <= bound as isize,
            "{bytes} bytes allocated, {bound} promised"
        );
    }
}
