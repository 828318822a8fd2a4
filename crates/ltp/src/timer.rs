//! Timers as one small table indexed by an enum.

use smoltcp::time::Instant;

/// `N` timers; the index is an enum cast to `usize`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers<const N: usize>([Option<Instant>; N]);

impl<const N: usize> Default for Timers<N> {
    fn default() -> Self {
        Timers([None; N])
    }
}

impl<const N: usize> Timers<N> {
    pub(crate) fn set(&mut self, timer: usize, at: Instant) {
        self.0[timer] = Some(at);
    }

    /// Sets the timer unless it runs already and fires sooner.
    pub(crate) fn set_earlier(&mut self, timer: usize, at: Instant) {
        let slot = &mut self.0[timer];
        *slot = Some(slot.map_or(at, |old| old.min(at)));
    }

    pub(crate) fn stop(&mut self, timer: usize) {
        self.0[timer] = None;
    }

    pub(crate) fn get(&self, timer: usize) -> Option<Instant> {
        self.0[timer]
    }

    /// Whether the timer's time has come; stops it if so.
    pub(crate) fn fired(&mut self, timer: usize, now: Instant) -> bool {
        let due = self.0[timer].is_some_and(|at| at <= now);
        if due {
            self.0[timer] = None;
        }
        due
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }
}
