//! The drain as a future, and waiting for room in a future.

use std::future::Future;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{Config, Drain, Ended, Error, Next};
use crate::error::{InitError, WaitError};
use crate::{Sender, Shape, ends};

/// Steps before the future yields to other tasks.
const MAX_STEPS: u32 = 16;

/// As [`super::init`], with a future instead of a thread: spawn it on a runtime with I/O and time enabled. It ends when
/// the [`Sender`] is dropped and all messages were written.
///
/// Convert a [`tokio::net::TcpStream`] with [`tokio::net::TcpStream::into_std`] first.
///
/// # Errors
/// The memory cannot be allocated, or the socket is not a TCP socket.
pub fn init_tokio(
    socket: TcpStream,
    shape: Shape,
    config: Config,
) -> Result<
    (
        Sender,
        impl Future<Output = Result<Ended, Error>> + Send + 'static,
    ),
    InitError,
> {
    let (sender, receiver) = ends::pair(shape)?;
    let drain = Drain::new(receiver, socket, config)?;
    Ok((sender, drive(drain)))
}

/// Runs a drain until all messages were written and its ring is closed.
///
/// # Errors
/// As [`Drain::run`].
pub async fn drive(mut drain: Drain) -> Result<Ended, Error> {
    let mut steps = 0;
    loop {
        steps += 1;
        match drain.step()? {
            Next::Again if steps % MAX_STEPS == 0 => tokio::task::yield_now().await,
            Next::Again => {}
            Next::Writable => {
                // While messages await acknowledgements, poll for them.
                let limit = drain.awaits_acks().then(|| Duration::from_millis(100));
                let writable = ready(drain.socket(), Interest::WRITABLE);
                within(limit, writable)
                    .await
                    .map_err(Error::classify("cannot wait for the socket"))?;
            }
            Next::Idle(limit) => idle(&mut drain, limit).await?,
            Next::Finished => return drain.end(),
        }
    }
}

async fn idle(drain: &mut Drain, limit: Option<Duration>) -> Result<(), Error> {
    let (wake_fd, watched) = (drain.wake_fd(), drain.watches_sender());
    let failed = ready(drain.socket(), Interest::ERROR);
    let woken = async {
        if watched {
            ready(wake_fd, Interest::READABLE).await
        } else {
            std::future::pending().await
        }
    };
    let waited = within(limit, either(failed, woken)).await;
    waited.map_err(Error::classify("cannot wait for messages"))?;
    drain.clear_wakeup();
    Ok(())
}

/// Waits for a descriptor. Registers it each time, so that readiness that arose earlier is seen as well.
async fn ready(fd: BorrowedFd<'_>, interest: Interest) -> std::io::Result<()> {
    // SAFETY: a `BorrowedFd` refers to the same open file while it lives, which is longer than the registration.
    let registered = unsafe { AsyncFd::register_with_interest(fd, interest) }?;
    registered.ready(interest).await.map(|_| ())
}

/// Returns the output of the future that completes first.
async fn either<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    std::future::poll_fn(|context| match one.as_mut().poll(context) {
        std::task::Poll::Pending => other.as_mut().poll(context),
        ready => ready,
    })
    .await
}

/// Waits at most `limit`; an expired limit is not an error.
async fn within(
    limit: Option<Duration>,
    work: impl Future<Output = std::io::Result<()>>,
) -> std::io::Result<()> {
    match limit {
        None => work.await,
        Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or(Ok(())),
    }
}

impl Sender {
    /// Waits in a future until `slots` slots are free. Cancel safe: dropping the future ends the wait.
    ///
    /// # Errors
    /// The receiver has closed the ring or died.
    pub async fn room(&mut self, slots: u32) -> Result<(), WaitError> {
        while !self.request_room(slots)? {
            // Registration fails only if the peer is gone.
            let waited = ready(self.as_fd(), Interest::READABLE).await;
            waited.map_err(|_| WaitError::Gone)?;
            self.clear_wakeup()?;
        }
        Ok(())
    }
}
