//! The timers of a machine: one small table, indexed by an enum.
//!
//! ```
//! use proto_core::time::{Duration, Instant};
//! use proto_core::timer::{TimerId, Timers};
//!
//! #[derive(Clone, Copy)]
//! enum Timer {
//!     Retransmit,
//!     KeepAlive,
//! }
//!
//! impl TimerId for Timer {
//!     fn index(self) -> usize {
//!         self as usize
//!     }
//! }
//!
//! let now = Instant::from_secs(1);
//! let mut timers: Timers<Timer, 2> = Timers::default();
//! timers.set(Timer::KeepAlive, now + Duration::from_secs(30));
//! timers.set(Timer::Retransmit, now);
//! assert_eq!(timers.next(), Some(now));
//! assert!(timers.fired(Timer::Retransmit, now));
//! assert!(!timers.is_set(Timer::Retransmit));
//! ```

use core::marker::PhantomData;

use crate::time::Instant;

/// An enum that names the timers of a machine.
pub trait TimerId: Copy {
    /// Returns the timer's place in the table: below the table's length.
    fn index(self) -> usize;
}

/// `N` timers, each with one deadline. 8 bytes a timer.
#[derive(Clone, Copy, Debug)]
pub struct Timers<T, const N: usize> {
    /// [`NEVER`] where the timer is stopped.
    deadlines: [Instant; N],
    ids: PhantomData<T>,
}

/// The deadline of a stopped timer.
const NEVER: Instant = Instant::from_micros(i64::MAX);

impl<T, const N: usize> Default for Timers<T, N> {
    fn default() -> Self {
        Timers {
            deadlines: [NEVER; N],
            ids: PhantomData,
        }
    }
}

impl<T: TimerId, const N: usize> Timers<T, N> {
    /// Sets the timer, or moves its deadline.
    #[inline]
    pub fn set(&mut self, timer: T, at: Instant) {
        self.deadlines[timer.index()] = at;
    }

    /// Sets the timer unless it already has an earlier deadline.
    #[inline]
    pub fn set_earlier(&mut self, timer: T, at: Instant) {
        let deadline = &mut self.deadlines[timer.index()];
        *deadline = at.min(*deadline);
    }

    /// Stops the timer.
    #[inline]
    pub fn stop(&mut self, timer: T) {
        self.deadlines[timer.index()] = NEVER;
    }

    /// Stops all timers.
    pub fn stop_all(&mut self) {
        self.deadlines = [NEVER; N];
    }

    /// Whether the timer has a deadline.
    #[inline]
    #[must_use]
    pub fn is_set(&self, timer: T) -> bool {
        self.deadlines[timer.index()] != NEVER
    }

    /// Returns the timer's deadline, `None` when it is stopped.
    #[inline]
    #[must_use]
    pub fn at(&self, timer: T) -> Option<Instant> {
        Some(self.deadlines[timer.index()]).filter(|&at| at != NEVER)
    }

    /// Whether the deadline is reached; if so, stops the timer.
    #[inline]
    pub fn fired(&mut self, timer: T, now: Instant) -> bool {
        let deadline = &mut self.deadlines[timer.index()];
        let fired = *deadline <= now;
        if fired {
            *deadline = NEVER;
        }
        fired
    }

    /// Returns the earliest deadline.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let next = self.deadlines.iter().fold(NEVER, |next, &at| next.min(at));
        Some(next).filter(|&at| at != NEVER)
    }

    /// Returns the earliest deadline, where that of `timer` counts as no earlier than `floor`. Calls `floor` only
    /// when that timer is set.
    #[inline]
    pub fn next_with(&self, timer: T, floor: impl FnOnce() -> Instant) -> Option<Instant> {
        if !self.is_set(timer) {
            return self.next();
        }
        let mut raised = *self;
        let deadline = &mut raised.deadlines[timer.index()];
        *deadline = floor().max(*deadline);
        raised.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl TimerId for usize {
        fn index(self) -> usize {
            self
        }
    }

    #[test]
    fn a_timer_fires_once() {
        let mut timers = Timers::<usize, 3>::default();
        assert_eq!((timers.next(), timers.at(1)), (None, None));
        let at = Instant::from_secs(5);
        timers.set(1, at);
        assert_eq!((timers.next(), timers.at(1)), (Some(at), Some(at)));
        assert!(!timers.fired(1, Instant::from_secs(4)));
        assert!(!timers.fired(0, at));
        assert!(timers.fired(1, at));
        assert!(!timers.fired(1, at));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn the_earliest_deadline_counts() {
        let mut timers = Timers::<usize, 3>::default();
        timers.set(0, Instant::from_secs(5));
        timers.set_earlier(0, Instant::from_secs(7));
        timers.set_earlier(2, Instant::from_secs(3));
        assert_eq!(timers.next(), Some(Instant::from_secs(3)));
        let raised = |secs| timers.next_with(2, || Instant::from_secs(secs));
        assert_eq!(raised(1), Some(Instant::from_secs(3)));
        assert_eq!(raised(4), Some(Instant::from_secs(4)));
        assert_eq!(raised(9), Some(Instant::from_secs(5)));
        assert_eq!(
            timers.next_with(1, || unreachable!("that timer is stopped")),
            Some(Instant::from_secs(3))
        );
        timers.stop(2);
        assert_eq!(timers.next(), Some(Instant::from_secs(5)));
        timers.stop_all();
        assert!(!timers.is_set(0));
    }
}
