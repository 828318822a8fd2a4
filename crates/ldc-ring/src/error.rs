//! Errors of the two sides.

use core::fmt;

/// Why a message was not sent. Nothing was put into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// Too few slots are free, as far as the consumer has reported: try again later, or cancel messages.
    /// [`crate::Producer::free_slots`] returns the exact number.
    Full,
    /// Longer than [`crate::Shape::max_message`]: it can never be sent.
    TooLong,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Full => "not enough free slots in the ring",
            SendError::TooLong => "the message is longer than the ring",
        })
    }
}

impl core::error::Error for SendError {}

/// Why a message was not modified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// No message with this sequence number is in the ring.
    Unknown,
    /// The consumer has already claimed the message, or skipped it after its deadline.
    TooLate,
    /// The message was cancelled.
    Cancelled,
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ModifyError::Unknown => "no message with this sequence number is in the ring",
            ModifyError::TooLate => "the consumer has already claimed the message",
            ModifyError::Cancelled => "the message was cancelled",
        })
    }
}

impl core::error::Error for ModifyError {}

/// The producer wrote an index or a record that breaks the protocol, so the contents of the ring cannot be trusted.
/// Close the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ring is corrupt: its producer violated the protocol")
    }
}

impl core::error::Error for Corrupt {}

/// The queue of acknowledgements is full: try again after the producer has called
/// [`crate::Producer::poll_ack`]. Nothing was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckQueueFull;

impl fmt::Display for AckQueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue of acknowledgements is full")
    }
}

impl core::error::Error for AckQueueFull {}
