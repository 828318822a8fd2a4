//! Several progress bars, one a line, on a terminal only.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bars on the screen, so that log lines can step around them.
static SHOWN: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// The bars on the screen, if there are any.
pub(crate) fn shown() -> Option<MultiProgress> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// One bar for each of several things of the same length: bytes done, rate and time left, redrawn at
/// most ten times a second. Where standard error is no terminal, or they are not wanted, every method does
/// nothing.
#[derive(Debug)]
pub struct Bars {
    bars: Vec<ProgressBar>,
    hidden: bool,
}

impl Bars {
    /// A bar for each label.
    pub fn new(wanted: bool, labels: impl Iterator<Item = String>) -> Self {
        let hidden = !wanted || !std::io::stderr().is_terminal();
        if hidden {
            let bars = Vec::new();
            return Bars { bars, hidden };
        }
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let labels: Vec<String> = labels.collect();
        let width = labels.iter().map(|label| label.chars().count()).max();
        let add = |label: String| {
            // Complete before it is drawn for the first time.
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden())
                .with_style(style("{prefix} {msg}"))
                .with_prefix(format!("{label:width$}", width = width.unwrap_or(0)));
            all.add(bar)
        };
        let bars = labels.into_iter().map(add).collect();
        *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(all);
        Bars { bars, hidden }
    }

    /// Bar `index` counts bytes from now on: `done` of `total`.
    pub fn start(&self, index: usize, done: u64, total: u64) {
        if let Some(bar) = self.bars.get(index) {
            bar.set_length(total);
            bar.set_position(done);
            bar.reset_eta();
            bar.set_style(style(
                "{prefix} {bar:24} {percent:>3}% {bytes}/{total_bytes} {binary_bytes_per_sec}, {eta} left {msg}",
            ));
        }
    }

    /// Bytes done of bar `index`.
    pub fn set_position(&self, index: usize, done: u64) {
        if let Some(bar) = self.bars.get(index) {
            bar.set_position(done);
        }
    }

    /// A few words behind bar `index`.
    pub fn set_message(&self, index: usize, message: impl FnOnce() -> String) {
        if let Some(bar) = self.bars.get(index) {
            bar.set_message(message());
        }
    }

    /// Bar `index` becomes a last line, and stays.
    pub fn finish(&self, index: usize, message: impl FnOnce() -> String) {
        if let Some(bar) = self.bars.get(index) {
            bar.set_style(style("{prefix} {msg}"));
            bar.abandon_with_message(message());
        }
    }

    /// Bar `index` begins anew, with a few words instead of a bar.
    pub fn revive(&self, index: usize, message: impl FnOnce() -> String) {
        if let Some(bar) = self.bars.get(index) {
            bar.reset();
            bar.set_message(message());
        }
    }

    /// Are there bars on the screen?
    pub fn are_shown(&self) -> bool {
        !self.hidden
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        if !self.hidden {
            *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}
