//! What loom has no model of: parking by tokens, the waker of the sockets, and time, which stands still.

use std::time::Duration;

use loom::sync::{Arc, Condvar, Mutex};

/// A wake-up that is kept until it is taken.
#[derive(Clone, Debug)]
pub(crate) struct Token(Arc<(Mutex<bool>, Condvar)>);

impl Token {
    pub(crate) fn new() -> Token {
        Token(Arc::new((Mutex::new(false), Condvar::new())))
    }

    pub(crate) fn set(&self) {
        let (is_set, changed) = &*self.0;
        *is_set.lock().expect("no panic") = true;
        changed.notify_one();
    }

    /// Waits until it is set.
    pub(crate) fn wait(&self) {
        let (is_set, changed) = &*self.0;
        let mut held = is_set.lock().expect("no panic");
        while !*held {
            held = changed.wait(held).expect("no panic");
        }
    }

    /// Resets it; returns whether it was set.
    pub(crate) fn take(&self) -> bool {
        std::mem::take(&mut *self.0.0.lock().expect("no panic"))
    }
}

/// Model of [`linux_net::wake::Waker`].
#[derive(Debug)]
pub(crate) struct Waker(Token);

impl Waker {
    pub(crate) fn new() -> std::io::Result<Waker> {
        Ok(Waker(Token::new()))
    }

    pub(crate) fn wake(&self) {
        self.0.set();
    }

    pub(crate) fn reset(&self) -> bool {
        self.0.take()
    }

    pub(crate) fn token(&self) -> &Token {
        &self.0
    }
}

/// The seed of the machine: each run is the same.
pub(crate) fn random() -> std::io::Result<[u8; 32]> {
    Ok([7; 32])
}

/// Time stands still, so that each run with the same order of operations is the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock;

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock
    }

    pub(crate) fn elapsed(self) -> Duration {
        Duration::ZERO
    }
}

/// Threads. Loom's own `unpark` also ends the wait for a lock.
pub(crate) mod thread {
    use std::time::Duration;

    pub(crate) use loom::thread::Builder;
    pub(crate) use std::thread::sleep;

    use super::Token;

    loom::thread_local! {
        static CURRENT: Thread = Thread(Token::new());
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Thread(Token);

    impl Thread {
        pub(crate) fn unpark(&self) {
            self.0.set();
        }
    }

    pub(crate) fn current() -> Thread {
        CURRENT.with(Thread::clone)
    }

    pub(crate) fn park() {
        let thread = current();
        thread.0.wait();
        thread.0.take();
    }

    /// Never times out: a wake-up that comes only by the end of the time is lost.
    pub(crate) fn park_timeout(_limit: Duration) {
        park();
    }
}
