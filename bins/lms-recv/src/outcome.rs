//! The result of a run and its exit code.

use cli::exit;

/// The result of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything arrived.
    Complete,
    /// The content will never be complete; says why, and which ranges of bytes are missing.
    Failed(String, Vec<(u64, u64)>),
    /// Standard output cannot be written; `None`: its reader has closed the pipe.
    Unwritten(Option<String>),
    /// Ended by Ctrl-C or SIGTERM.
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
