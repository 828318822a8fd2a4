//! Why a message was refused, and why a command came at the wrong time.

use core::fmt;

use crate::wire::ParseError;

/// The reason why a message was refused: it is counted, and no event follows. The stream cannot be trusted
/// afterwards (except for [`Error::Full`]), so the driver fails with [`crate::Reason::Protocol`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// The bytes are not a valid message.
    Parse(ParseError),
    /// A message that is not expected here, or a repeated one.
    Unexpected,
    /// It contradicts an earlier message.
    Contradiction,
    /// Too many events wait to be polled; nothing is lost, offer the message again.
    Full,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Parse(error) => error.fmt(f),
            Error::Unexpected => f.write_str("a message at the wrong time"),
            Error::Contradiction => f.write_str("a message contradicts an earlier one"),
            Error::Full => f.write_str("events wait to be polled"),
        }
    }
}

impl core::error::Error for Error {}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        Error::Parse(error)
    }
}

/// The error of a command at the wrong time, or with a value that cannot be sent; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UnexpectedMessage;

impl fmt::Display for UnexpectedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not at this point of the copy")
    }
}

impl core::error::Error for UnexpectedMessage {}
