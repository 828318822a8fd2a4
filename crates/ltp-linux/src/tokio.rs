//! Transfers for tokio: the blocking loop on a thread of its own, events through a channel.
//!
//! A transfer is bound to sockets, pacing and hashing, not to tasks, so that it keeps its thread
//! ([`tokio::task::spawn_blocking`]) and the runtime's workers stay free.
//!
//! ```no_run
//! use ltp_linux::{Group, SendConfig, SendEvent, Source, tokio::Transfer};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let group = Group::new("239.1.2.3:5000".parse()?);
//! let mut transfer = Transfer::send(SendConfig::new(group), Source::file("image.iso")?)?;
//! while let Some(event) = transfer.next_event().await {
//!     if let SendEvent::Progress { bytes, .. } = event {
//!         println!("{bytes} bytes");
//!     }
//! }
//! println!("{:?}", transfer.finish().await?);
//! # Ok(())
//! # }
//! ```

use std::io;

use tokio::sync::mpsc::{Receiver as Events, Sender as Queue, channel};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::transfer::Transfer as _;
use crate::{
    Cancel, Error, ReceiveConfig, ReceiveEvent, Received, Receiver, SendConfig, SendEvent,
    SendOutcome, Sender, Sink, Source,
};

/// Events that wait for [`Transfer::next_event`]; more are dropped.
const MAX_EVENTS: usize = 1024;

/// A transfer that runs. Dropping it cancels the transfer.
#[derive(Debug)]
pub struct Transfer<E, T> {
    events: Events<E>,
    task: JoinHandle<Result<T, Error>>,
    cancel: Cancel,
}

impl Transfer<SendEvent, SendOutcome> {
    /// Begins to send. Errors of [`Sender::open`] come from [`Transfer::finish`].
    ///
    /// # Errors
    /// No descriptor is left.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn send(config: SendConfig, source: Source) -> io::Result<Self> {
        Transfer::spawn(move |cancel, observer| {
            Sender::open(&config, source, cancel, observer)?.complete(observer)
        })
    }
}

impl Transfer<ReceiveEvent, Received> {
    /// Begins to receive. Errors of [`Receiver::open`] come from [`Transfer::finish`].
    ///
    /// # Errors
    /// No descriptor is left.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn receive(config: ReceiveConfig, sink: Sink) -> io::Result<Self> {
        Transfer::spawn(move |cancel, observer| {
            Receiver::open(&config, sink, cancel, observer)?.complete(observer)
        })
    }
}

impl<E: Send + 'static, T: Send + 'static> Transfer<E, T> {
    fn spawn<F>(run: F) -> io::Result<Self>
    where
        F: FnOnce(Cancel, &mut dyn FnMut(E)) -> Result<T, Error> + Send + 'static,
    {
        let cancel = Cancel::new()?;
        let raised = cancel.clone();
        let (queue, events): (Queue<E>, Events<E>) = channel(MAX_EVENTS);
        let task = spawn_blocking(move || {
            // An application that does not read its events must not stop the transfer.
            run(raised, &mut |event| drop(queue.try_send(event)))
        });
        Ok(Transfer {
            events,
            task,
            cancel,
        })
    }

    /// Returns the next event; `None` once the transfer has ended. Cancel safe. Of more than 1,024 events
    /// that wait the newest are dropped.
    pub async fn next_event(&mut self) -> Option<E> {
        self.events.recv().await
    }

    /// Waits for the end of the transfer.
    ///
    /// # Errors
    /// As the blocking API: [`Sender::open`] and [`Sender::run`], or [`Receiver::open`] and
    /// [`Receiver::run`].
    ///
    /// # Panics
    /// If the transfer panicked.
    pub async fn finish(mut self) -> Result<T, Error> {
        match (&mut self.task).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime shuts down before the thread began.
                Err(_) => Err(Error::Canceled),
            },
        }
    }

    /// Cancels the transfer, which ends with [`Error::Canceled`]; takes up to 0.3 s.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }
}

impl<E, T> Drop for Transfer<E, T> {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
