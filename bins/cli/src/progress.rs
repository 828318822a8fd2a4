//! A progress bar, on a terminal only.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar on the screen, which is hidden while log lines are written.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Hides the bar while `write` writes to the terminal.
pub fn suspend<T>(write: impl FnOnce() -> T) -> T {
    let bar = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(bars) = crate::bars::shown() {
        return bars.suspend(write);
    }
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Bytes done and total, with rate and time left, redrawn at most ten times per second.
///
/// Without a terminal on standard error, or with `wanted` false, the methods have no effect.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    sized: bool,
}

impl Progress {
    /// Returns a bar that begins with `label`; `total` in bytes, `None` while unknown.
    pub fn new(wanted: bool, label: &str, total: Option<u64>) -> Self {
        if !wanted || !std::io::stderr().is_terminal() {
            return Progress {
                bar: ProgressBar::hidden(),
                sized: false,
            };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        bar.set_prefix(label.to_owned());
        bar.set_style(style(
            "{prefix} {spinner} {bytes} {binary_bytes_per_sec} {msg}",
        ));
        *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        let mut progress = Progress { bar, sized: false };
        progress.set_total(total);
        progress
    }

    /// Sets the total number of bytes once it is known.
    pub fn set_total(&mut self, total: Option<u64>) {
        if let (Some(total), false) = (total, self.sized || self.bar.is_hidden()) {
            self.sized = true;
            self.bar.set_length(total);
            self.bar.set_style(style(
                "{prefix} {bar:30} {percent:>3}% {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} {msg}",
            ));
        }
    }

    /// Sets the bytes done.
    pub fn set_position(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    /// Sets the text after the bar.
    pub fn set_message(&self, message: impl Into<String>) {
        if !self.bar.is_hidden() {
            self.bar.set_message(message.into());
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
        if !self.bar.is_hidden() {
            *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}
