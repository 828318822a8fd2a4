//! The data threads of a daemon: named, pinned to a core, and watched until they end.

use std::fmt;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::{RunError, pin};

/// The end of a thread, with the error that it reported.
type End = Result<Result<(), String>, oneshot::error::RecvError>;

/// The running data threads.
#[derive(Debug, Default)]
pub struct DataThreads {
    ends: JoinSet<End>,
}

/// With this a thread reports that it ends. Dropped without a report, the thread counts as failed.
#[derive(Debug)]
pub struct EndReport(oneshot::Sender<Result<(), String>>);

impl EndReport {
    /// Reports the end. What the thread drops afterwards may take its time: for each packet socket the kernel waits
    /// until no processor can be using it.
    pub fn send<E: fmt::Display>(self, result: Result<(), E>) {
        // The receiver is gone when the daemon no longer waits.
        let _ = self.0.send(result.map_err(|error| error.to_string()));
    }
}

impl DataThreads {
    /// Starts a thread, pinned to the core `cpu` when given. Call it in a tokio runtime.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub fn spawn(
        &mut self,
        name: String,
        cpu: Option<usize>,
        run: impl FnOnce(EndReport) + Send + 'static,
    ) -> Result<(), RunError> {
        let (report, end) = oneshot::channel();
        let body = move || {
            if let Some(cpu) = cpu {
                pin(cpu);
            }
            run(EndReport(report));
        };
        std::thread::Builder::new()
            .name(name)
            .spawn(body)
            .map_err(|error| RunError::Io("starting a data thread", error))?;
        self.ends.spawn(end);
        Ok(())
    }

    /// Waits until a thread ends, which is a failure even when it reports none. Without threads it waits forever.
    /// May be dropped and called again.
    pub async fn failed(&mut self) -> RunError {
        match self.ends.join_next().await {
            None => std::future::pending().await,
            Some(end) => reason(end.ok()),
        }
    }

    /// Waits until all threads, which were stopped, have ended. May be dropped and called again.
    ///
    /// # Errors
    /// The first thread that failed.
    pub async fn join(&mut self) -> Result<(), RunError> {
        while let Some(end) = self.ends.join_next().await {
            if !matches!(end, Ok(Ok(Ok(())))) {
                return Err(reason(end.ok()));
            }
        }
        Ok(())
    }
}

fn reason(end: Option<End>) -> RunError {
    RunError::Data(match end {
        Some(Ok(Err(error))) => error,
        _ => "it stopped with no reason given".to_owned(),
    })
}
