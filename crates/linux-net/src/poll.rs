//! Waiting for several descriptors, to the nanosecond.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// One descriptor to wait for.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Watch<'fd> {
    raw: libc::pollfd,
    fd: PhantomData<BorrowedFd<'fd>>,
}

impl<'fd> Watch<'fd> {
    fn new(fd: BorrowedFd<'fd>, events: libc::c_short) -> Self {
        Self {
            raw: libc::pollfd {
                fd: fd.as_raw_fd(),
                events,
                revents: 0,
            },
            fd: PhantomData,
        }
    }

    /// Waits for something to read.
    pub fn readable(fd: BorrowedFd<'fd>) -> Self {
        Self::new(fd, libc::POLLIN)
    }

    /// Waits for room to write.
    pub fn writable(fd: BorrowedFd<'fd>) -> Self {
        Self::new(fd, libc::POLLOUT)
    }

    /// Waits for either.
    pub fn both(fd: BorrowedFd<'fd>) -> Self {
        Self::new(fd, libc::POLLIN | libc::POLLOUT)
    }

    /// Waits for an error or a hang-up alone; the other two wait for those as well.
    pub fn failed(fd: BorrowedFd<'fd>) -> Self {
        Self::new(fd, 0)
    }

    /// The last [`wait`] found an error, or both directions closed.
    pub fn has_failed(&self) -> bool {
        self.raw.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0
    }

    /// The last [`wait`] found something to read (or an error to fetch by reading).
    pub fn is_readable(&self) -> bool {
        self.raw.revents & (libc::POLLIN | libc::POLLERR | libc::POLLHUP) != 0
    }

    /// The last [`wait`] found room to write.
    pub fn is_writable(&self) -> bool {
        self.raw.revents & libc::POLLOUT != 0
    }
}

/// Waits until a descriptor is ready or the time is over; `None` waits for ever. Answers how
/// many are ready; a signal ends the wait early with 0, so that a caller's flags get looked at.
pub fn wait(set: &mut [Watch<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos() as _,
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `Watch` is a transparent `pollfd`, so the slice is an array of `set.len()` of
    // them, borrowed mutably through the call; the timeout is null or points at a local; the
    // lifetimes in `Watch` keep each descriptor open.
    let ready = unsafe {
        libc::ppoll(
            set.as_mut_ptr().cast::<libc::pollfd>(),
            set.len() as libc::nfds_t,
            timeout,
            std::ptr::null(),
        )
    };
    match crate::sys::check(ready) {
        Ok(ready) => Ok(ready.unsigned_abs() as usize),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => {
            set.iter_mut().for_each(|w| w.raw.revents = 0);
            Ok(0)
        }
        Err(e) => Err(e),
    }
}
