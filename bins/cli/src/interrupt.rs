//! Ctrl-C and SIGTERM as a flag.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

static RAISED: AtomicBool = AtomicBool::new(false);
static INSTALL: Once = Once::new();
type Hook = Box<dyn Fn() + Send>;
static HOOKS: Mutex<Vec<Hook>> = Mutex::new(Vec::new());

/// Installs the handler of SIGINT, SIGTERM and SIGHUP. Further calls have no effect.
///
/// The first signal raises the flag and runs the hooks. The second ends the process at once with code 130, so that a
/// program that hangs can still be stopped.
pub fn install() {
    INSTALL.call_once(|| {
        let result = ctrlc::set_handler(|| {
            if RAISED.swap(true, Ordering::SeqCst) {
                std::process::exit(i32::from(crate::exit::INTERRUPTED));
            }
            for hook in HOOKS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                hook();
            }
        });
        if let Err(error) = result {
            tracing::warn!(event = "no_signal_handler", %error, "Ctrl-C ends the program at once");
        }
    });
}

/// Returns whether a signal has arrived.
pub fn raised() -> bool {
    RAISED.load(Ordering::SeqCst)
}

/// Runs `hook` on another thread at the first signal, for example to wake a thread that sleeps in `ppoll`.
pub fn on_raise(hook: impl Fn() + Send + 'static) {
    HOOKS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Box::new(hook));
}
