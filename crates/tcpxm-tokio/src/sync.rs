//! Locks, threads, wake-ups and time, behind one name so that loom can replace them ([`crate::models`]).

#[cfg(not(loom))]
pub(crate) use {
    linux_net::process::random,
    linux_net::wake::Waker,
    real::Clock,
    std::sync::atomic::AtomicUsize,
    std::sync::{Mutex, MutexGuard},
    std::thread,
    std::thread_local,
};

#[cfg(loom)]
pub(crate) use {
    crate::models::sync::{Clock, Waker, random, thread},
    loom::sync::atomic::AtomicUsize,
    loom::sync::{Mutex, MutexGuard},
    loom::thread_local,
};

#[cfg(not(loom))]
mod real {
    use std::time::{Duration, Instant};

    /// Measures the time since it was started.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Clock(Instant);

    impl Clock {
        pub(crate) fn start() -> Clock {
            Clock(Instant::now())
        }

        pub(crate) fn elapsed(self) -> Duration {
            self.0.elapsed()
        }
    }
}
