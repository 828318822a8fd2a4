//! Signals from the copy to the sending thread: hold the rate down for a moment, or stop using the data connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes that are sent before the rate is held down.
const FREE: u64 = 512 << 10;
/// The pause after each piece of 64 KiB from then on.
const PAUSE: Duration = Duration::from_millis(40);

/// Shared with the thread that sends.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    decided: AtomicBool,
    abandoned: AtomicBool,
}

impl Hold {
    /// Lets the thread send at full rate.
    pub(crate) fn decide(&self) {
        self.decided.store(true, Ordering::Release);
    }

    /// Has the thread stop using the data connection: links feed every host.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Pauses before the next piece, if that much was sent and nothing was decided.
    pub(crate) fn pause(&self, sent: u64) {
        if sent >= FREE && !self.decided.load(Ordering::Acquire) {
            std::thread::sleep(PAUSE);
        }
    }
}
