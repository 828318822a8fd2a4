//! Waiting for several descriptors, to the nanosecond; and for thousands of them.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// Descriptors that are waited for together, thousands of them: what a look at them costs grows with
/// those that are ready alone (`epoll`, level-triggered).
///
/// It is itself a descriptor, readable while one of its own is ready, so that it fits into a
/// [`wait`]. A closed descriptor is removed.
#[derive(Debug)]
pub struct Set(Epoll);

/// A descriptor of a [`Set`] that is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// What it was added with.
    pub key: u64,
    /// There is something to read, or an error to fetch by reading.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
}

impl Set {
    /// Most descriptors in one result of [`Set::ready`].
    pub const MAX: usize = 64;

    /// An empty set.
    ///
    /// # Errors
    /// The kernel's: no descriptor left, most likely.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    fn event(key: u64, read: bool, write: bool) -> EpollEvent {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN, read);
        flags.set(EpollFlags::EPOLLOUT, write);
        EpollEvent::new(flags, key)
    }

    /// Adds a descriptor, to wait for something to read, for room to write, or for both.
    ///
    /// # Errors
    /// The kernel's: it is there already, or `fs.epoll.max_user_watches` is reached.
    pub fn add(&self, fd: BorrowedFd<'_>, key: u64, read: bool, write: bool) -> io::Result<()> {
        Ok(self.0.add(fd, Self::event(key, read, write))?)
    }

    /// What is waited for changes; for neither, the descriptor stays and is silent but for errors.
    ///
    /// # Errors
    /// The kernel's: it is not in the set.
    pub fn change(&self, fd: BorrowedFd<'_>, key: u64, read: bool, write: bool) -> io::Result<()> {
        Ok(self.0.modify(fd, &mut Self::event(key, read, write))?)
    }

    /// Takes a descriptor out.
    ///
    /// # Errors
    /// The kernel's: it is not in the set.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.0.delete(fd)?)
    }

    /// Those that are ready now, at most [`Set::MAX`]; those left out come first next time. Does
    /// not wait.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ready(&self) -> io::Result<impl Iterator<Item = Ready> + use<>> {
        let mut events = [EpollEvent::empty(); Self::MAX];
        let count = match self.0.wait(&mut events, EpollTimeout::ZERO) {
            Err(nix::errno::Errno::EINTR) => 0,
            count => count?,
        };
        let failed = EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP;
        Ok(events.into_iter().take(count).map(move |event| Ready {
            key: event.data(),
            readable: event.events().intersects(EpollFlags::EPOLLIN | failed),
            writable: event.events().intersects(EpollFlags::EPOLLOUT | failed),
        }))
    }
}

impl AsFd for Set {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

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

/// Waits until a descriptor is ready or `timeout` expires; `None` waits forever. Returns the number
/// of ready descriptors. A signal ends the wait early with 0, so that the caller can check its flags.
///
/// # Errors
/// The kernel's error other than an interruption by a signal: most often a lack of memory.
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
