//! The lease of the active control node: nothing is sent on behalf of a term whose lease has expired.
//!
//! A process can be paused, and a machine suspended, for longer than the lease. Another control node is
//! active by then, and timers of the first one fire only after it has begun to run again. Each output
//! therefore compares the lease with the clock immediately before the system call: streams to peers and to data
//! nodes in [`Guarded`], answers to clients in the driver.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The value of a lease that has expired for good.
const OVER: u64 = 0;

/// Returns the time since the machine was started, time in suspension included.
pub(crate) fn since_boot() -> Duration {
    let now =
        clock_gettime(ClockId::CLOCK_BOOTTIME).or_else(|_| clock_gettime(ClockId::CLOCK_MONOTONIC));
    // Without a clock every lease has expired.
    now.map_or(Duration::MAX, Duration::from)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The lease of one term, shared by the tasks that act in that term. Once any of them has seen that it
/// has expired, it cannot be extended: a later term has a lease of its own.
#[derive(Clone, Debug)]
pub(crate) struct Lease(Arc<AtomicU64>);

impl Lease {
    /// Creates a lease that lasts until that time [since boot](since_boot).
    #[cfg(any(test, feature = "etcd"))]
    pub(crate) fn until(end: Duration) -> Self {
        Lease(Arc::new(AtomicU64::new(nanos(end))))
    }

    /// Extends the lease; returns false if it has been seen to have expired.
    #[cfg(any(test, feature = "etcd"))]
    pub(crate) fn extend(&self, end: Duration) -> bool {
        let later = |old| (old != OVER).then_some(nanos(end));
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, later)
            .is_ok()
    }

    /// Ends the lease now.
    #[cfg(any(test, feature = "etcd"))]
    pub(crate) fn end(&self) {
        self.0.store(OVER, Ordering::Release);
    }

    /// Returns whether the lease lasts.
    pub(crate) fn holds(&self) -> bool {
        let mut end = self.0.load(Ordering::Acquire);
        while end != OVER {
            if nanos(since_boot()) < end {
                return true;
            }
            // Extended by another thread meanwhile: compare again.
            match self
                .0
                .compare_exchange(end, OVER, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return false,
                Err(extended) => end = extended,
            }
        }
        false
    }
}

/// A stream that sends nothing once the lease of its term has expired. A gateway of one control node has no lease,
/// and a standby none yet: their streams send at any time.
#[derive(Debug)]
pub(crate) struct Guarded<S> {
    stream: S,
    lease: Option<Lease>,
}

impl<S> Guarded<S> {
    pub(crate) fn new(stream: S, lease: Option<Lease>) -> Self {
        Guarded { stream, lease }
    }

    fn check(&self) -> io::Result<()> {
        match &self.lease {
            Some(lease) if !lease.holds() => Err(io::Error::other("the lease is over")),
            _ => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_lease_that_was_seen_to_be_over_cannot_be_extended() {
        let soon = || since_boot() + Duration::from_secs(60);
        let lease = Lease::until(soon());
        assert!(lease.holds() && lease.extend(soon()) && lease.holds());
        // It was extended before any task compared it with the clock, so it never expired.
        let late = Lease::until(Duration::from_nanos(1));
        assert!(late.extend(soon()) && late.holds());
        let lapsed = Lease::until(Duration::from_nanos(1));
        assert!(!lapsed.holds() && !lapsed.extend(soon()) && !lapsed.holds());
        lease.end();
        assert!(!lease.holds() && !lease.extend(soon()));
    }

    #[tokio::test]
    async fn a_stream_sends_nothing_after_the_lease_of_its_term() {
        let (near, mut far) = tokio::io::duplex(64);
        let lease = Lease::until(since_boot() + Duration::from_secs(60));
        let mut stream = Guarded::new(near, Some(lease.clone()));
        stream.write_all(b"active").await.unwrap();
        lease.end();
        assert!(stream.write_all(b"late").await.is_err());
        assert!(stream.flush().await.is_err() && stream.shutdown().await.is_err());
        drop(stream);
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"active");
    }
}
