//! Class of a real-time frame: how much it matters, and how long it is worth sending.
//!
//! ```text
//!  flags of DATA, FRAGMENT, TAIL         last word of the header, with a class
//! +---+-------+-------------------+     +---------------+---------------+
//! | 0 | prio. |  lifetime         |     |  RTT, 32 us   |  age, ms      |
//! | 1 |  (2)  |  (5)              |     |  (16 bits)    |  (16 bits)    |
//! +---+-------+-------------------+     +---------------+---------------+
//! ```
//!
//! Flags of 0 are no class; the highest one says that the packet was sent before. A lifetime is a number in [`LIFETIMES_MS`], from 1; it counts from the moment at which the
//! source's gateway took the frame in. The age is how much of it has passed when the packet arrives, as its sender
//! estimates: data nodes add up the time that a frame spends in each of them and on each link, so that their clocks
//! need not agree. It stays at its greatest value.
//!
//! Only receivers that have sent an [INIT_REQUEST](super::init) get classes; older releases refuse flags.

use proto_core::time::Duration;

/// The lifetimes that a header can name, in milliseconds.
pub const LIFETIMES_MS: [u16; 31] = [
    10, 20, 30, 40, 50, 75, 100, 125, 150, 200, 250, 300, 400, 500, 600, 750, 1000, 1250, 1500,
    2000, 2500, 3000, 4000, 5000, 6000, 7500, 10_000, 15_000, 20_000, 30_000, 60_000,
];

/// How much a frame matters. Where not all frames can be sent, less important ones are dropped first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Priority {
    /// No other frame needs it.
    Discardable = 0,
    /// Others may need it.
    #[default]
    Normal = 1,
    /// More important than most.
    High = 2,
    /// A decoder can start with it, and every frame until the next one needs it.
    Key = 3,
}

impl Priority {
    /// Number of priorities.
    pub const COUNT: usize = 4;

    /// Returns the priority with a number, of which the two lowest bits count.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Priority::Discardable,
            1 => Priority::Normal,
            2 => Priority::High,
            _ => Priority::Key,
        }
    }
}

/// A class as it stands in a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Class(u8);

impl Class {
    /// No class.
    pub const NONE: Class = Class(0);

    /// Returns the class with the longest lifetime in [`LIFETIMES_MS`] that is not longer than `lifetime`; the shortest
    /// one if there is none.
    #[must_use]
    pub fn new(priority: Priority, lifetime: Duration) -> Self {
        let millis = lifetime.total_millis();
        let count = LIFETIMES_MS.partition_point(|&one| u64::from(one) <= millis);
        Class((priority as u8) << 5 | count.max(1) as u8)
    }

    /// Returns the class of a header's flags; `None` if they are none that a header may have.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Class(0)),
            _ if bits >> 7 == 0 && bits & 31 != 0 => Some(Class(bits)),
            _ => None,
        }
    }

    /// Returns the flags.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether it is a class.
    #[inline]
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// Returns the same class with another priority; no class stays none.
    #[must_use]
    pub const fn with_priority(self, priority: Priority) -> Self {
        match self.0 {
            0 => Class(0),
            bits => Class(bits & 31 | (priority as u8) << 5),
        }
    }

    /// Returns the priority; [`Priority::Normal`] without a class.
    #[inline]
    #[must_use]
    pub const fn priority(self) -> Priority {
        match self.0 {
            0 => Priority::Normal,
            bits => Priority::from_bits(bits >> 5),
        }
    }

    /// Returns the lifetime; `None` without a class.
    #[must_use]
    pub fn lifetime(self) -> Option<Duration> {
        let index = usize::from(self.0 & 31).checked_sub(1)?;
        let millis = LIFETIMES_MS.get(index)?;
        Some(Duration::from_millis(u64::from(*millis)))
    }
}
