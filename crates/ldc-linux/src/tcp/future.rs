//! The drain as a future, and waiting for room in one.

use std::future::Future;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{Config, Drain, Ended, Error, Next};
use crate::error::{InitError, WaitError};
use crate::{Sender, Shape, ends};

/// Steps before other tasks have their turn.
const TURN: u32 = 16;

/// As [`super::init`], with a future in the thread's place: spawn it, on a runtime with I/O and time enabled.
/// It ends when the [`Sender`] is dropped and everything was written.
///
/// Of a [`tokio::net::TcpStream`] make a socket of the standard library first
/// ([`tokio::net::TcpStream::into_std`]).
///
/// # Errors
/// When there is no memory, or the socket is none of TCP.
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

/// Runs a drain until everything was written and its ring is closed.
///
/// # Errors
/// As [`Drain::run`].
pub async fn drive(mut drain: Drain) -> Result<Ended, Error> {
    let mut steps = 0;
    loop {
        steps += 1;
        match drain.step()? {
            Next::Again if steps % TURN == 0 => tokio::task::yield_now().await,
            Next::Again => {}
            Next::Writable => {
                // With acknowledgements to tell of, look now and then.
                let limit = drain.tells().then(|| Duration::from_millis(100));
                let writable = ready(drain.socket(), Interest::WRITABLE);
                within(limit, writable)
                    .await
                    .map_err(Error::sort("waiting for the socket"))?;
            }
            Next::Idle(limit) => idle(&mut drain, limit).await?,
            Next::Finished => return drain.end(),
        }
    }
}

async fn idle(drain: &mut Drain, limit: Option<Duration>) -> Result<(), Error> {
    let (bell, listens) = (drain.bell(), drain.listens());
    let failed = ready(drain.socket(), Interest::ERROR);
    let rang = async {
        if listens {
            ready(bell, Interest::READABLE).await
        } else {
            std::future::pending().await
        }
    };
    let waited = within(limit, either(failed, rang)).await;
    waited.map_err(Error::sort("waiting for messages"))?;
    drain.rang();
    Ok(())
}

/// Waits for a descriptor. It is registered anew each time, so that its state of the moment counts: of
/// what was missed in between there is no edge to come.
async fn ready(fd: BorrowedFd<'_>, interest: Interest) -> std::io::Result<()> {
    // SAFETY: a `BorrowedFd` is open and the same file for as long as it lives, which is longer than the
    // registration does.
    let registered = unsafe { AsyncFd::register_with_interest(fd, interest) }?;
    registered.ready(interest).await.map(|_| ())
}

/// The first of two to be ready.
async fn either<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    std::future::poll_fn(|context| match one.as_mut().poll(context) {
        std::task::Poll::Pending => other.as_mut().poll(context),
        ready => ready,
    })
    .await
}

/// Waits at most so long; the end of the time is no error.
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
    /// Waits, in a future, until so many slots are free. Dropping the future gives the waiting up.
    ///
    /// # Errors
    /// When nobody takes messages any more.
    pub async fn room(&mut self, slots: u32) -> Result<(), WaitError> {
        while !self.ask_room(slots)? {
            // A descriptor that cannot be waited for is one of a peer that is gone.
            let waited = ready(self.as_fd(), Interest::READABLE).await;
            waited.map_err(|_| WaitError::Gone)?;
            self.rang()?;
        }
        Ok(())
    }
}
