//! The clock that machines are driven with, and the entropy that seeds them.

use std::io::{self, Read};

use proto_core::time::Instant;

/// Monotonic time since a moment before the program started.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    /// A clock that shows one second: zero stays free for "never".
    pub fn new() -> Self {
        Clock {
            origin: std::time::Instant::now(),
        }
    }

    /// The time, in microseconds.
    pub fn now(&self) -> Instant {
        let elapsed = self.origin.elapsed().as_micros();
        Instant::from_micros(1_000_000 + i64::try_from(elapsed).unwrap_or(i64::MAX - 1_000_000))
    }

    /// How long from `now` until `deadline`, not negative, at most `most`.
    pub fn until(
        now: Instant,
        deadline: Option<Instant>,
        most: std::time::Duration,
    ) -> std::time::Duration {
        let Some(deadline) = deadline else {
            return most;
        };
        let micros = deadline
            .total_micros()
            .saturating_sub(now.total_micros())
            .max(0);
        std::time::Duration::from_micros(micros.unsigned_abs()).min(most)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// A seed for a machine, from the kernel's generator.
///
/// # Errors
/// `/dev/urandom` cannot be read.
pub fn seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
    Ok(seed)
}
