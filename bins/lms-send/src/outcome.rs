//! The result of a run and its exit code.

use cli::exit;

/// The result of a transfer, as far as the sender knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every expected receiver has confirmed.
    Complete,
    /// Everything was sent, and no receiver requests anything more.
    Sent,
    /// Some of the expected receivers have not confirmed; says why.
    Unconfirmed(String),
    /// Ended by Ctrl-C or SIGTERM.
    Interrupted,
    /// The content could not be read, or the network not be used.
    Failed(String),
}

impl Outcome {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Outcome::Complete | Outcome::Sent => exit::OK,
            Outcome::Unconfirmed(_) => exit::UNCONFIRMED,
            Outcome::Interrupted => exit::INTERRUPTED,
            Outcome::Failed(_) => exit::FAILED,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Outcome::Complete => "complete",
            Outcome::Sent => "sent",
            Outcome::Unconfirmed(_) => "unconfirmed",
            Outcome::Interrupted => "interrupted",
            Outcome::Failed(_) => "failed",
        }
    }

    pub(crate) fn message(&self) -> &str {
        match self {
            Outcome::Complete => "every receiver has everything",
            Outcome::Sent => "sent",
            Outcome::Unconfirmed(message) | Outcome::Failed(message) => message,
            Outcome::Interrupted => "interrupted",
        }
    }
}
