//! The order in which one consumer claims from several rings: priorities (LDC §6.3).
//!
//! A ring is claimed in the order in which it was filled. To give some messages precedence over others that were sent
//! earlier, the producer puts each class of messages into a ring of its own, and the consumer asks a [`Scheduler`] which
//! ring to claim from. A message is claimed only when it can leave, so a message of a higher class waits for at most the
//! one message of a lower class that is leaving.
//!
//! ```
//! use ldc_ring::schedule::Scheduler;
//! use ldc_ring::{Attributes, Shape, channel};
//!
//! let (mut base, base_out) = channel(Shape::new(8, 1500)?);
//! let (mut other, other_out) = channel(Shape::new(8, 1500)?);
//! let mut rings = [base_out, other_out];
//! let mut scheduler = Scheduler::strict(2)?;
//! other.send(1, b"enhancement layer", Attributes::default())?;
//! base.send(0, b"base layer", Attributes::default())?;
//!
//! let mut order = Vec::new();
//! while let Some((class, message)) = scheduler.claim(|class| rings[class].claim(None))? {
//!     order.push(message.user_seq());
//!     rings[class].complete(message);
//! }
//! assert_eq!(order, [0, 1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::error::Error;
use core::fmt;

use crate::consumer::Claimed;
use crate::error::Corrupt;

/// Largest number of classes.
pub const MAX_CLASSES: usize = 8;

/// What one byte of a class of weight 1 adds to its lead.
const SCALE: u64 = 1 << 16;

/// Chooses which of several rings to claim from. Class 0 is the most important one.
///
/// | order | which class is claimed from |
/// | --- | --- |
/// | strict | the first class that has a message |
/// | weighted | of the classes that have a message, the one with the fewest bytes claimed in proportion to its weight |
///
/// The weighted order is start-time fair queueing (Goyal, Vin and Cheng, "Start-time Fair Queueing: A Scheduling
/// Algorithm for Integrated Services Packet Switching Networks", 1996): it needs no length before the claim, leaves no
/// class idle capacity that another can use, and a class that was empty does not accumulate credit. Over any interval in
/// which two classes always have messages, their bytes divided by their weights differ by at most one message of each.
///
/// A claim asks each ring at most once.
#[derive(Clone, Debug)]
pub struct Scheduler {
    count: usize,
    order: Order,
}

#[derive(Clone, Debug)]
enum Order {
    Strict,
    Weighted {
        weights: [u32; MAX_CLASSES],
        /// Start tag of the next message of each class, relative to that of the message claimed last: how much further
        /// ahead the class is. 0 for a class that is not ahead.
        lead: [u64; MAX_CLASSES],
    },
}

/// The classes of a scheduler are not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassesError {
    /// No class, or more than [`MAX_CLASSES`].
    Count,
    /// A weight is 0: its class would never be claimed from.
    ZeroWeight,
}

impl fmt::Display for ClassesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClassesError::Count => write!(f, "a scheduler takes 1 to {MAX_CLASSES} classes"),
            ClassesError::ZeroWeight => f.write_str("a weight must be at least 1"),
        }
    }
}

impl Error for ClassesError {}

impl Scheduler {
    /// The scheduler of a single ring.
    pub const ONE: Scheduler = Scheduler {
        count: 1,
        order: Order::Strict,
    };

    /// Returns a scheduler that claims from a class only while all classes before it are empty.
    ///
    /// # Errors
    ///
    /// `count` is 0 or more than [`MAX_CLASSES`].
    pub fn strict(count: usize) -> Result<Self, ClassesError> {
        check(count)?;
        Ok(Self {
            count,
            order: Order::Strict,
        })
    }

    /// Returns a scheduler that divides the bytes among the classes that have messages, in proportion to `weights`.
    ///
    /// # Errors
    ///
    /// There is no weight, there are more than [`MAX_CLASSES`], or one is 0.
    pub fn weighted(weights: &[u32]) -> Result<Self, ClassesError> {
        check(weights.len())?;
        if weights.contains(&0) {
            return Err(ClassesError::ZeroWeight);
        }
        let mut all = [1; MAX_CLASSES];
        all[..weights.len()].copy_from_slice(weights);
        Ok(Self {
            count: weights.len(),
            order: Order::Weighted {
                weights: all,
                lead: [0; MAX_CLASSES],
            },
        })
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        self.count
    }

    /// Claims the next message of all classes, and returns it with its class. `claim` claims from the ring of one class,
    /// as [`crate::Consumer::claim`] does. Returns `None` if no ring has a message that can be claimed.
    ///
    /// # Errors
    ///
    /// As `claim`.
    pub fn claim(
        &mut self,
        mut claim: impl FnMut(usize) -> Result<Option<Claimed>, Corrupt>,
    ) -> Result<Option<(usize, Claimed)>, Corrupt> {
        let mut asked = [false; MAX_CLASSES];
        while let Some(class) = self.next(&asked) {
            if let Some(message) = claim(class)? {
                self.charge(class, message.len());
                return Ok(Some((class, message)));
            }
            asked[class] = true;
        }
        Ok(None)
    }

    /// Returns the class to ask next.
    fn next(&self, asked: &[bool; MAX_CLASSES]) -> Option<usize> {
        let left = (0..self.count).filter(|class| !asked[*class]);
        match &self.order {
            Order::Strict => left.min(),
            // The more important class among equals.
            Order::Weighted { lead, .. } => left.min_by_key(|class| (lead[*class], *class)),
        }
    }

    /// Records that a message of `len` bytes was claimed from a class.
    fn charge(&mut self, class: usize, len: usize) {
        let Order::Weighted { weights, lead } = &mut self.order else {
            return;
        };
        let start = lead[class];
        for lead in &mut *lead {
            *lead = lead.saturating_sub(start);
        }
        // Messages are shorter than 2^31 bytes. An empty one counts as a byte, so that no class of empty messages
        // keeps the others waiting.
        let bytes = len.max(1) as u64;
        lead[class] = (bytes * SCALE / u64::from(weights[class])).max(1);
    }
}

fn check(count: usize) -> Result<(), ClassesError> {
    if (1..=MAX_CLASSES).contains(&count) {
        Ok(())
    } else {
        Err(ClassesError::Count)
    }
}
