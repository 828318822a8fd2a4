//! The attributes of a message.

use proto_core::time::Instant;

/// No deadline, as stored in a record.
pub(crate) const NO_DEADLINE: i64 = i64::MAX;

/// What the user may state about a message besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The consumer skips the message if it has not claimed it by this time (LDC §6.3, from SCTP's timed
    /// reliability).
    pub deadline: Option<Instant>,
    /// Larger values are more important. The ring only passes it to the consumer; [`crate::window`] uses it.
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

/// A message that the producer has sent and the consumer may not have claimed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Sequence number chosen by the user.
    pub user_seq: u64,
    /// Length in bytes.
    pub len: usize,
    /// Deadline and priority.
    pub attributes: Attributes,
    /// Whether the producer holds it back.
    pub held: bool,
}

/// How many messages a call changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Messages changed as requested.
    pub changed: u32,
    /// Messages that the consumer had already claimed; they are unchanged.
    pub too_late: u32,
}
