//! Wakers: which task or thread is woken by which change.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use tcpxm::{ConnId, GroupId};

use crate::sync::{thread, thread_local};

/// A change that a task or thread can wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Interest {
    /// A connection to accept.
    Accept,
    /// Bytes to read, their end, or a failure.
    Read(ConnId),
    /// Room to write, everything delivered, or a failure.
    Write(ConnId),
    /// Room to write, or no receiver that still needs anything.
    GroupWrite(GroupId),
    /// An event of a group.
    GroupEvent(GroupId),
}

/// The tasks and threads that wait for one change.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Vec<Waker>);

impl Waiters {
    /// Adds a waker, once; returns how many were added.
    pub(crate) fn add(&mut self, waker: &Waker) -> usize {
        let is_new = !self.0.iter().any(|known| known.will_wake(waker));
        if is_new {
            self.0.push(waker.clone());
        }
        usize::from(is_new)
    }

    /// Wakes all of them; returns how many there were.
    pub(crate) fn wake(&mut self) -> usize {
        let count = self.0.len();
        self.0.drain(..).for_each(Waker::wake);
        count
    }
}

/// Unparks the thread that waits.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static THIS_THREAD: Waker = Arc::new(Unpark(thread::current())).into();
}

/// Calls `attempt` until it is ready, and parks the calling thread in between.
///
/// # Errors
/// Those of `attempt`; [`io::ErrorKind::TimedOut`] at `deadline`.
pub(crate) fn block_on<T>(
    deadline: Option<Instant>,
    mut attempt: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
) -> io::Result<T> {
    let waker = THIS_THREAD.with(Waker::clone);
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = attempt(&mut context) {
            return result;
        }
        let Some(deadline) = deadline else {
            thread::park();
            continue;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::park_timeout(left);
    }
}

/// Implements [`std::io::Write`] and [`tokio::io::AsyncWrite`] by `poll_send` and `poll_close`.
macro_rules! impl_write {
    ($type:ty, $(#[doc = $doc:literal])+) => {
        impl std::io::Write for $type {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                $crate::wait::block_on(None, |context| self.poll_send(bytes, context))
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        impl tokio::io::AsyncWrite for $type {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.poll_send(bytes, context)
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _context: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }

            $(#[doc = $doc])+
            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                self.poll_close(context)
            }
        }
    };
}
pub(crate) use impl_write;
