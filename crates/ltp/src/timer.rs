//! Timers as one small table indexed by an enum.

use proto_core::time::Instant;

/// `N` timers; the index is an enum cast to `usize`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers<const N: usize>([Instant; N]);

/// A timer that does not run.
const NEVER: Instant = Instant::from_micros(i64::MAX);

impl<const N: usize> Default for Timers<N> {
    fn default() -> Self {
        Timers([NEVER; N])
    }
}

impl<const N: usize> Timers<N> {
    pub(crate) fn set(&mut self, timer: usize, at: Instant) {
        self.0[timer] = at;
    }

    /// Sets the timer unless it runs already and fires sooner.
    pub(crate) fn set_earlier(&mut self, timer: usize, at: Instant) {
        self.0[timer] = self.0[timer].min(at);
    }

    pub(crate) fn stop(&mut self, timer: usize) {
        self.0[timer] = NEVER;
    }

    #[inline]
    pub(crate) fn get(&self, timer: usize) -> Option<Instant> {
        Some(self.0[timer]).filter(|&at| at != NEVER)
    }

    /// Whether the timer's time has come; stops it if so.
    pub(crate) fn fired(&mut self, timer: usize, now: Instant) -> bool {
        let due = self.0[timer] <= now;
        if due {
            self.0[timer] = NEVER;
        }
        due
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        let next = self.0.iter().fold(NEVER, |next, &at| next.min(at));
        Some(next).filter(|&at| at != NEVER)
    }

    /// The same, when that timer counts no sooner than at `floor`, which is only asked for if it
    /// runs.
    #[inline]
    pub(crate) fn next_with(
        &self,
        timer: usize,
        floor: impl FnOnce() -> Instant,
    ) -> Option<Instant> {
        if self.0[timer] == NEVER {
            return self.next();
        }
        let mut raised = *self;
        raised.0[timer] = raised.0[timer].max(floor());
        raised.next()
    }
}
