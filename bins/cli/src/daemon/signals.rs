//! The signals of a daemon.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a daemon listens to. Make it before anything else runs: a signal that comes early must not
/// end the process half started.
#[derive(Debug)]
pub struct Signals {
    /// SIGHUP: read the configuration again.
    pub hangup: Signal,
    /// SIGUSR1: drain.
    pub drain: Signal,
    /// SIGUSR2: end, and come back soon.
    pub restart: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts to listen.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            drain: signal(SignalKind::user_defined1())?,
            restart: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// SIGTERM or SIGINT.
    pub async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// The next thing that is wanted.
    pub async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.hangup.recv() => Wish::Reload,
            _ = self.drain.recv() => Wish::Drain,
            _ = self.restart.recv() => Wish::Restart,
            _ = self.terminate.recv() => Wish::End,
            _ = self.interrupt.recv() => Wish::End,
        }
    }
}

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// SIGHUP.
    Reload,
    /// SIGUSR1.
    Drain,
    /// SIGUSR2.
    Restart,
    /// SIGTERM, SIGINT.
    End,
}
