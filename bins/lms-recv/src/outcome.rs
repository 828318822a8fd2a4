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

/// Ranges named in a message; the events name more.
const NAMED: usize = 8;

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

/// `bytes 0-99, 200-299 and 3 more ranges`; an end of `u64::MAX` is unknown. `None`: nothing is missing.
pub(crate) fn name_ranges(missing: &[(u64, u64)]) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let named: Vec<String> = missing
        .iter()
        .take(NAMED)
        .map(|&(start, end)| match end {
            u64::MAX => format!("{start} to the end"),
            end => format!("{start}-{}", end - 1),
        })
        .collect();
    let more = missing.len().saturating_sub(NAMED);
    let rest = match more {
        0 => String::new(),
        1 => " and 1 more range".to_owned(),
        more => format!(" and {more} more ranges"),
    };
    Some(format!("bytes {}{rest}", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::name_ranges;

    #[test]
    fn ranges_are_named_as_people_count() {
        assert_eq!(name_ranges(&[]), None);
        assert_eq!(name_ranges(&[(0, 100)]).as_deref(), Some("bytes 0-99"));
        assert_eq!(
            name_ranges(&[(0, 1), (64, u64::MAX)]).as_deref(),
            Some("bytes 0-0, 64 to the end")
        );
        let many: Vec<(u64, u64)> = (0..11).map(|n| (n * 10, n * 10 + 5)).collect();
        assert!(name_ranges(&many).is_some_and(|text| text.ends_with("70-74 and 3 more ranges")));
    }
}
