//! Why a message was refused, and why a command came at the wrong time.

use core::fmt;

use crate::wire::ParseError;

/// Why a message was refused: it is counted, and no event follows from it. A stream cannot be trusted
/// after that (but for [`Error::Full`]), so a driver gives up with [`crate::Reason::Protocol`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// The bytes are no message.
    Parse(ParseError),
    /// A message that does not belong here, or a second one of what comes once.
    Unexpected,
    /// What it says contradicts what was said before.
    Contradiction,
    /// Events wait to be polled; nothing is lost, offer the message again.
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

/// A command came at the wrong time, or with a value that cannot be sent; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WrongTime;

impl fmt::Display for WrongTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not at this point of the copy")
    }
}

impl core::error::Error for WrongTime {}
