//! The lease: which thread drives the endpoint, its own or one that reads.
//!
//! Data that is used by the thread that took it from the socket is still in that processor's cache, and no other
//! thread has to be woken for it. The lease is given only while no task and no other thread waits for anything, and
//! ends when one begins to wait, when the machine has output or a timer is due, or when its time is over.

use std::io;
use std::time::Duration;

use crate::driver::Driver;
use crate::shared::{Shared, State};
use crate::sync::{MutexGuard, thread};

/// Time in which a thread that has read may read again before the endpoint's thread drives.
const LEASE: tcpxm::Duration = tcpxm::Duration::from_millis(20);
/// The longest piece that a socket returns at once. A reader that drives takes no more than it reads.
const PIECE: usize = 64 << 10;

/// Whether a reader drives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lease {
    /// The endpoint's thread drives.
    None,
    /// A thread has read, and drives if it reads again before this time.
    Until(tcpxm::Instant),
    /// A thread that reads is driving now.
    InUse,
}

/// What the endpoint's thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThreadState {
    /// It drives.
    Driving,
    /// It is parked until the end of the lease.
    ParkedUntil,
    /// It is parked until a reader no longer drives and unparks it.
    Parked,
}

impl Shared {
    /// Parks the endpoint's thread while a reader drives.
    pub(crate) fn await_turn(&self) {
        loop {
            let mut state = self.lock();
            let now = self.now();
            match state.lease {
                Lease::Until(end) if end > now => {
                    state.thread = ThreadState::ParkedUntil;
                    drop(state);
                    let pause = Duration::from_micros((end - now).total_micros());
                    thread::park_timeout(pause);
                }
                Lease::InUse => {
                    state.thread = ThreadState::Parked;
                    drop(state);
                    thread::park();
                }
                Lease::None | Lease::Until(_) => {
                    state.lease = Lease::None;
                    state.thread = ThreadState::Driving;
                    return;
                }
            }
        }
    }

    /// The endpoint's thread drives again, unless a reader is driving now.
    pub(crate) fn end_lease(&self, mut state: MutexGuard<'_, State>) {
        if matches!(state.lease, Lease::Until(_)) {
            state.lease = Lease::None;
            drop(state);
            self.unpark_thread();
        }
    }

    /// After a successful read by a thread, which probably reads again soon: gives it the lease.
    pub(crate) fn lease_to_reader(&self, mut state: MutexGuard<'_, State>) {
        match (state.lease, state.next_lease(self.now())) {
            // The read gave the machine something to do, and the endpoint's thread is parked.
            (Lease::Until(_), Lease::None) => return self.kick(state),
            (Lease::InUse, _) => {}
            (Lease::None | Lease::Until(_), next) => state.lease = next,
        }
        self.kick_if_due(state);
    }

    /// Drives once, for a thread that waits for up to `len` bytes, if no other thread drives; returns the lock if one
    /// does.
    pub(crate) fn drive_for<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        len: usize,
    ) -> Result<(), MutexGuard<'a, State>> {
        let enough = len.saturating_sub(PIECE);
        self.with_lease(state, |driver| {
            if !driver.work(self, enough)? {
                driver.sleep(self, None)?;
            }
            Ok(driver.has_chores())
        })
    }

    /// Calls `drive` with the driver, if the lease is free; returns the lock if it is not. The lease ends if `drive`
    /// fails or returns that there is work for the endpoint's own thread.
    fn with_lease<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        drive: impl FnOnce(&mut Driver) -> io::Result<bool>,
    ) -> Result<(), MutexGuard<'a, State>> {
        let is_free = state.thread != ThreadState::Driving && state.waiting == 0;
        if !is_free || !matches!(state.lease, Lease::Until(_)) {
            return Err(state);
        }
        state.lease = Lease::InUse;
        drop(state);
        let mut turn = Turn {
            shared: self,
            is_over: true,
        };
        if let Ok(mut held) = self.driver()
            && let Some(driver) = held.as_mut()
        {
            // Sockets that fail do so for the endpoint's thread too, which reports it.
            turn.is_over = drive(driver).unwrap_or(true);
        }
        Ok(())
    }
}

/// A reader's turn to drive. When it ends, also by a panic, the lease is free again or the endpoint's thread drives.
struct Turn<'a> {
    shared: &'a Shared,
    is_over: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.lease = if self.is_over {
            Lease::None
        } else {
            state.next_lease(self.shared.now())
        };
        let must_unpark = state.lease == Lease::None || state.thread == ThreadState::Parked;
        drop(state);
        if must_unpark {
            self.shared.unpark_thread();
        }
    }
}

impl State {
    /// The lease of a thread that has just read.
    fn next_lease(&self, now: tcpxm::Instant) -> Lease {
        let end = now + LEASE;
        let end = self
            .machine
            .poll_timeout()
            .map_or(end, |next| next.min(end));
        if self.waiting == 0 && end > now {
            Lease::Until(end)
        } else {
            Lease::None
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::SocketAddr;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::Config;
    use crate::sockets::Sockets;

    /// An endpoint whose lease is free.
    fn endpoint(lease: Duration) -> Arc<Shared> {
        let config = Config::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        let sockets = Sockets::open(&config).expect("a socket");
        let shared = Shared::new(&config, sockets.local_address()).expect("an endpoint");
        let shared = Arc::new(shared);
        shared.hold();
        shared.lock().lease = Lease::Until(after(&shared, lease));
        Driver::start(Arc::clone(&shared), sockets).expect("a thread");
        shared
    }

    /// An endpoint whose thread is parked, and whose lease is free.
    fn leased() -> Arc<Shared> {
        let shared = endpoint(LONG);
        until(&shared, |state| state.thread != ThreadState::Driving);
        shared
    }

    const LONG: Duration = Duration::from_secs(1000);

    fn after(shared: &Shared, time: Duration) -> tcpxm::Instant {
        shared.now() + tcpxm::Duration::from_secs(time.as_secs())
    }

    fn until(shared: &Shared, is_so: impl Fn(&State) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !is_so(&shared.lock()) {
            assert!(Instant::now() < end, "{:?}", shared.lock());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Gives the machine something to send.
    fn connect(shared: &Shared) -> MutexGuard<'_, State> {
        let mut state = shared.lock();
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        let opened = state.machine.connect(shared.now(), shared.local, remote);
        opened.expect("opened");
        state
    }

    #[test]
    fn a_reader_gives_the_lease_back() {
        let shared = leased();
        let driven = shared.with_lease(shared.lock(), |_| Ok(false));
        assert!(driven.is_ok());
        assert!(matches!(shared.lock().lease, Lease::Until(_)));
        // Work for the endpoint's own thread: it drives again.
        let driven = shared.with_lease(shared.lock(), |_| Ok(true));
        assert!(driven.is_ok());
        until(&shared, |state| state.thread == ThreadState::Driving);
        assert_eq!(shared.lock().lease, Lease::None);
        shared.release();
    }

    #[test]
    fn a_reader_that_panics_while_it_drives_ends_the_endpoint_for_all() {
        let shared = leased();
        let driving = AssertUnwindSafe(|| {
            let _ = shared.with_lease(shared.lock(), |_| panic!("for the test"));
        });
        catch_unwind(driving).expect_err("it panicked");
        assert_ne!(shared.lock().lease, Lease::InUse);
        until(&shared, |state| state.alive().is_err());
        assert_eq!(shared.lock().dead, Some(io::ErrorKind::Other));
    }

    #[test]
    fn a_read_after_which_there_is_something_to_send_unparks_the_thread() {
        let shared = leased();
        shared.lease_to_reader(connect(&shared));
        until(&shared, |state| state.thread == ThreadState::Driving);
        shared.release();
    }

    #[test]
    fn a_kick_keeps_the_thread_that_sleeps_from_parking() {
        let shared = endpoint(Duration::ZERO);
        until(&shared, |state| state.asleep.is_some());
        shared.lock().lease = Lease::Until(after(&shared, LONG));
        shared.kick(connect(&shared));
        let sent = |state: &State| state.machine.poll_timeout() > Some(shared.now());
        until(&shared, sent);
        shared.release();
    }
}
