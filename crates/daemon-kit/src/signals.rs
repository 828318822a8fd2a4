//! The signals of a daemon.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that a daemon handles. Make it before anything else runs: an early signal must not end a process that
/// is half started.
#[derive(Debug)]
pub struct Signals {
    hangup: Signal,
    drain: Signal,
    restart: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts to handle them.
    ///
    /// # Errors
    /// The kernel refuses a signal handler.
    pub fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            drain: signal(SignalKind::user_defined1())?,
            restart: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for SIGTERM or SIGINT.
    pub async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for the next signal and returns the action that it asks for.
    pub async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.hangup.recv() => SignalAction::Reload,
            _ = self.drain.recv() => SignalAction::Drain,
            _ = self.restart.recv() => SignalAction::Restart,
            _ = self.terminate.recv() => SignalAction::End,
            _ = self.interrupt.recv() => SignalAction::End,
        }
    }
}

/// The action that a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalAction {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGUSR1: move the work to others, and keep running.
    Drain,
    /// SIGUSR2: end, and return soon.
    Restart,
    /// SIGTERM, SIGINT: end.
    End,
}
