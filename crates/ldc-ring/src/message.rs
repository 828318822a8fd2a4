//! What both sides say of a message.

use proto_core::time::Instant;

/// No deadline, as it stands in a record.
pub(crate) const NO_DEADLINE: i64 = i64::MAX;

/// What the user may say of a message beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// After this moment the consumer skips the message by itself, if it has not claimed it yet (thesis
    /// §6.3, from SCTP's timed reliability).
    pub deadline: Option<Instant>,
    /// The user's; the larger, the dearer. The ring only carries it to the consumer; see
    /// [`crate::window`] for its use.
    pub priority: u32,
}

impl Attributes {
    #[inline]
    pub(crate) fn is_default(&self) -> bool {
        self.deadline.is_none() && self.priority == 0
    }

    #[inline]
    pub(crate) fn deadline_micros(&self) -> i64 {
        self.deadline
            .map_or(NO_DEADLINE, |at| at.total_micros().min(NO_DEADLINE - 1))
    }
}

pub(crate) fn deadline_from_micros(micros: i64) -> Option<Instant> {
    (micros != NO_DEADLINE).then(|| Instant::from_micros(micros))
}

/// A message that the producer has sent and whose fate may still be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The user's sequence number.
    pub user_seq: u64,
    /// Its bytes.
    pub len: usize,
    /// What the user said of it.
    pub attributes: Attributes,
    /// Whether it is held back at the moment.
    pub held: bool,
}

/// How many messages a change of mind came in time for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Messages changed as asked.
    pub changed: u32,
    /// Messages the consumer had claimed already: they are as they were.
    pub too_late: u32,
}
