//! A socket without a kernel. No wait times out, so that a wake-up that is lost ends a model as a deadlock.

use std::io;
use std::time::Duration;

use loom::sync::{Arc, Condvar, Mutex};

/// What one end has to read.
#[derive(Clone, Copy, Default)]
struct Pending {
    wake_up: bool,
    /// The other end is closed.
    end: bool,
}

/// One of two connected ends.
pub(crate) struct WakeSocket {
    both: Arc<(Mutex<[Pending; 2]>, Condvar)>,
    own: usize,
}

impl WakeSocket {
    pub(crate) fn pair() -> io::Result<(WakeSocket, WakeSocket)> {
        let both = Arc::new((Mutex::default(), Condvar::new()));
        let end = |own| WakeSocket {
            both: Arc::clone(&both),
            own,
        };
        Ok((end(0), end(1)))
    }

    fn change_other(&self, change: impl FnOnce(&mut Pending)) {
        let (pending, changed) = &*self.both;
        change(&mut pending.lock().expect("no panic")[1 - self.own]);
        changed.notify_all();
    }

    pub(crate) fn wake(&self) {
        self.change_other(|other| other.wake_up = true);
    }

    pub(crate) fn wait(&self, _timeout: Option<Duration>) -> bool {
        let (pending, changed) = &*self.both;
        let mut pending = pending.lock().expect("no panic");
        while !pending[self.own].wake_up && !pending[self.own].end {
            pending = changed.wait(pending).expect("no panic");
        }
        true
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.both.0.lock().expect("no panic")[self.own].end
    }

    pub(crate) fn clear(&self) -> bool {
        let own = &mut self.both.0.lock().expect("no panic")[self.own];
        std::mem::take(&mut own.wake_up) || !own.end
    }
}

impl Drop for WakeSocket {
    fn drop(&mut self) {
        self.change_other(|other| other.end = true);
    }
}
