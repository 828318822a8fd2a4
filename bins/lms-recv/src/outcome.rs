//! How it ended.

use cli::exit;

/// How the transfer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything is here.
    Complete,
    /// It will never be; why, and the ranges of bytes that are missing.
    Failed(String, Vec<(u64, u64)>),
    /// The bytes are asked for on standard output and cannot be written there; `None`: its reader has
    /// closed the pipe.
    Unwritten(Option<String>),
    /// By Ctrl-C or SIGTERM.
    Interrupted,
}

impl Outcome {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Outcome::Complete => exit::OK,
            Outcome::Failed(..) => exit::FAILED,
            Outcome::Unwritten(_) => exit::UNWRITTEN,
            Outcome::Interrupted => exit::INTERRUPTED,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Outcome::Complete => "complete",
            Outcome::Failed(..) | Outcome::Unwritten(_) => "failed",
            Outcome::Interrupted => "interrupted",
        }
    }

    pub(crate) fn message(&self) -> &str {
        match self {
            Outcome::Complete => "complete",
            Outcome::Failed(message, _) | Outcome::Unwritten(Some(message)) => message,
            Outcome::Unwritten(None) => "the reader of standard output has closed it",
            Outcome::Interrupted => "interrupted",
        }
    }

    pub(crate) fn missing(&self) -> &[(u64, u64)] {
        match self {
            Outcome::Failed(_, missing) => missing,
            _ => &[],
        }
    }
}
