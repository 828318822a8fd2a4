//! The driver: packets in, timers, packets out, events to the handles.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use linux_net::SendError;
use tcpxm::{Event, Meta, Target};

use crate::LINGER;
use crate::batch::Batch;
use crate::group::GroupEvent;
use crate::shared::{Shared, State};
use crate::sockets::{Sockets, Taken};
use crate::sync::{Clock, thread};
use crate::wait::Interest;

/// Bytes received before the driver sends again.
const ENOUGH_BYTES: usize = 1 << 20;
/// Batches sent before the driver receives again.
const RUNS: usize = 8;
/// Pause after a temporary error, which would otherwise keep the thread busy.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest wait for space in the kernel's buffer; the timers of the machine run after that.
const LONGEST_BLOCK: Duration = Duration::from_millis(500);

/// Records that the thread has ended, also when it panicked.
struct End {
    shared: Arc<Shared>,
    kind: io::ErrorKind,
}

impl End {
    fn new(shared: Arc<Shared>) -> End {
        let kind = io::ErrorKind::Other;
        End { shared, kind }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.lock().end(self.kind);
    }
}

/// Work that only the endpoint's own thread does: it has the namespace and the privileges with which the
/// endpoint was opened.
enum Chore {
    /// Join a group for one source.
    Join(IpAddr, IpAddr),
    /// Ask for the MTU of a path that refused a longer packet.
    Narrow(IpAddr),
}

/// The sockets, and the batch that is being sent. One thread at a time drives: the endpoint's own, or one that
/// reads ([`crate::shared`]).
pub(crate) struct Driver {
    sockets: Sockets,
    batch: Batch,
    /// The kernel had no space for the batch.
    blocked: bool,
    chores: Vec<Chore>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl Driver {
    fn new(sockets: Sockets) -> Driver {
        Driver {
            sockets,
            batch: Batch::new(),
            blocked: false,
            chores: Vec::new(),
        }
    }

    /// Starts the thread, which runs as long as there are handles.
    pub(crate) fn start(shared: Arc<Shared>, sockets: Sockets) -> io::Result<()> {
        shared.set_driver(Some(Driver::new(sockets)));
        thread::Builder::new()
            .name("tcp-xm".to_owned())
            .spawn(move || {
                let mut end = End::new(Arc::clone(&shared));
                shared.set_thread();
                if let Err(error) = run(&shared) {
                    end.kind = error.kind();
                } else {
                    end.kind = io::ErrorKind::NotConnected;
                }
                // The sockets are closed with the thread.
                shared.set_driver(None);
            })?;
        Ok(())
    }

    /// Whether there is work for the endpoint's own thread.
    pub(crate) fn has_chores(&self) -> bool {
        !self.chores.is_empty()
    }

    fn do_chores(&mut self, shared: &Shared) {
        for chore in std::mem::take(&mut self.chores) {
            match chore {
                // If this fails no data arrives by multicast: the sender notices that and stays with unicast.
                Chore::Join(group, source) => {
                    if self.sockets.join(group, source).is_err() {
                        shared.lock().groups_refused += 1;
                    }
                }
                // Lost packets are repaired with segments that fit.
                Chore::Narrow(destination) => {
                    if let Ok(route) = self.sockets.route(destination) {
                        let mut state = shared.lock();
                        let now = shared.now();
                        state.machine.set_path_mtu(now, destination, route.mtu);
                    }
                }
            }
        }
    }

    /// Receives what has arrived, up to about `enough` bytes, runs the timers of the machine, and sends its
    /// output. Returns false when there was nothing to do.
    ///
    /// # Errors
    /// The sockets failed.
    pub(crate) fn work(&mut self, shared: &Shared, enough: usize) -> io::Result<bool> {
        let taken = self.receive(shared, enough)?;
        let mut state = shared.lock();
        let now = shared.now();
        state.machine.handle_timeout(now);
        if taken.has_more {
            state.machine.defer_acks(now);
        }
        let has_events = self.take_events(&mut state);
        drop(state);
        let sent = self.transmit(shared)?;
        if taken.packets == 0 && taken.errors > 0 {
            thread::sleep(PAUSE);
        }
        Ok(taken.packets > 0 || has_events || sent || self.has_chores())
    }

    /// Receives batches of datagrams and passes them to the machine under one lock.
    fn receive(&mut self, shared: &Shared, enough: usize) -> io::Result<Taken> {
        let now = shared.now();
        let mut state = None;
        let taken =
            self.sockets
                .receive(enough, |source, destination, payloads, segment_size| {
                    let state = state.get_or_insert_with(|| shared.lock());
                    let meta = Meta {
                        source,
                        destination,
                    };
                    state
                        .machine
                        .handle_packets(now, &meta, payloads, segment_size);
                })?;
        if taken.errors > 0 {
            let state = state.get_or_insert_with(|| shared.lock());
            state.receive_errors += taken.errors;
        }
        Ok(taken)
    }

    /// Sends a few batches; returns whether there may be more to send.
    fn transmit(&mut self, shared: &Shared) -> io::Result<bool> {
        for _ in 0..RUNS {
            let mut state = shared.lock();
            let filled = self.batch.fill(&mut state, shared.now());
            drop(state);
            if !filled {
                self.blocked = false;
                return Ok(false);
            }
            if !self.send() {
                self.blocked = true;
                return Ok(false);
            }
            self.blocked = false;
            self.batch.clear();
        }
        Ok(true)
    }

    /// Passes the batch to the kernel; returns false when the kernel has no space for it.
    fn send(&mut self) -> bool {
        while let Some((batch, bytes)) = self.batch.rest() {
            let sent =
                self.sockets
                    .send(batch.source, batch.destination, bytes, batch.segment_size);
            match sent {
                Ok(taken) => self.batch.sent += taken,
                Err(error) => return self.refused(batch.destination, &error),
            }
        }
        true
    }

    /// Handles a batch that the kernel refused; returns false when the kernel has no space for it.
    fn refused(&mut self, destination: SocketAddr, error: &SendError) -> bool {
        match error {
            SendError::WouldBlock => return false,
            SendError::TooBig => self.chores.push(Chore::Narrow(destination.ip())),
            // The peer or the route is gone; retransmissions handle that.
            _ => {}
        }
        true
    }

    /// Takes the events of the machine; returns whether there were any.
    fn take_events(&mut self, state: &mut State) -> bool {
        let mut has_events = false;
        while let Some(event) = state.machine.poll_event() {
            has_events = true;
            match event {
                Event::Join { group, source, .. } => {
                    self.chores.push(Chore::Join(group, source));
                }
                Event::Leave { group, source, .. } => {
                    // The group may not have been joined yet.
                    let joins = |chore: &Chore| matches!(chore, Chore::Join(g, s) if (*g, *s) == (group, source));
                    match self.chores.iter().position(joins) {
                        Some(at) => drop(self.chores.remove(at)),
                        None => self.sockets.leave(group, source),
                    }
                }
                event => note(state, event),
            }
        }
        has_events
    }

    /// Sleeps until something arrives, a timer of the machine expires, [`Shared::kick`] is called, or for `limit`.
    ///
    /// # Errors
    /// The sockets cannot be waited for.
    pub(crate) fn sleep(&mut self, shared: &Shared, limit: Option<Duration>) -> io::Result<()> {
        let mut state = shared.lock();
        // Commands of other threads cause events too.
        if self.take_events(&mut state) {
            return Ok(());
        }
        let now = shared.now();
        let pause = if self.blocked {
            // The machine has more to send, once the kernel accepts it.
            Some(LONGEST_BLOCK)
        } else {
            let left = |next: tcpxm::Instant| Duration::from_micros((next - now).total_micros());
            match state.machine.poll_timeout() {
                Some(next) if next <= now => return Ok(()),
                next => next.map(left),
            }
        };
        let pause = match (pause, limit) {
            (Some(pause), Some(limit)) => Some(pause.min(limit)),
            (pause, limit) => pause.or(limit),
        };
        // Commands need not wake a driver that waits for the kernel.
        let until = pause.filter(|_| !self.blocked);
        let until = until.map(|pause| now + tcpxm::Duration::from_micros(micros(pause)));
        state.asleep = Some(match until {
            Some(until) => until,
            None if self.blocked => now,
            None => tcpxm::Instant::from_micros(i64::MAX),
        });
        drop(state);
        let woken = self.sockets.wait(self.blocked, shared.waker(), pause)?;
        if woken {
            shared.waker().reset();
        }
        shared.lock().asleep = None;
        Ok(())
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The endpoint's thread.
fn run(shared: &Shared) -> io::Result<()> {
    let mut abandoned = None;
    let mut has_chores = false;
    loop {
        if !has_chores {
            shared.await_turn();
        }
        let mut held = shared.driver()?;
        let Some(driver) = held.as_mut() else {
            return Ok(());
        };
        driver.do_chores(shared);
        let worked = driver.work(shared, ENOUGH_BYTES)?;
        has_chores = driver.has_chores();
        let left = linger(shared, &mut abandoned);
        if left == Some(Duration::ZERO) {
            return Ok(());
        }
        if !worked {
            driver.sleep(shared, left)?;
        }
    }
}

/// Returns how much longer the endpoint may take to close its connections: `None` while it has handles.
fn linger(shared: &Shared, abandoned: &mut Option<Clock>) -> Option<Duration> {
    if shared.is_held() {
        *abandoned = None;
        return None;
    }
    if shared.lock().machine.connections() == 0 {
        return Some(Duration::ZERO);
    }
    let since = *abandoned.get_or_insert_with(Clock::start);
    Some(LINGER.saturating_sub(since.elapsed()))
}

/// Records an event for the handles and wakes the tasks and threads that wait for it.
fn note(state: &mut State, event: Event) {
    match event {
        Event::Incoming { .. } => state.wake(Interest::Accept),
        Event::Readable { connection } | Event::Finished { connection } => {
            state.wake(Interest::Read(connection));
        }
        Event::Writable { target } => state.wake(match target {
            Target::Connection(connection) => Interest::Write(connection),
            Target::Group(group) => Interest::GroupWrite(group),
        }),
        Event::Delivered { connection } => {
            if let Some(known) = state.connections.get_mut(&connection) {
                known.delivered = true;
            }
            state.wake(Interest::Write(connection));
            note_member(state, connection, GroupEvent::Delivered);
        }
        Event::ModeChanged { connection, mode } => {
            note_member(state, connection, |receiver| {
                GroupEvent::Mode(receiver, mode)
            });
        }
        Event::Detached { connection } => note_member(state, connection, GroupEvent::Detached),
        Event::Closed {
            connection,
            failure,
            ..
        } => {
            if let Some(known) = state.connections.get_mut(&connection) {
                known.closed = Some(failure);
            }
            state.wake_connection(connection);
            note_member(state, connection, |receiver| {
                GroupEvent::Closed(receiver, failure)
            });
        }
        Event::GroupClosed { group } => {
            if let Some(known) = state.groups.get_mut(&group) {
                known.closed = true;
            }
            state.wake_group(group);
        }
        Event::Connected { .. }
        | Event::GroupReady { .. }
        | Event::Join { .. }
        | Event::Leave { .. } => {}
    }
}

/// Records an event of a connection that is a member of a group.
fn note_member(
    state: &mut State,
    connection: tcpxm::ConnId,
    event: impl FnOnce(usize) -> GroupEvent,
) {
    let Some((id, group, receiver)) = state.member(connection) else {
        return;
    };
    let event = event(receiver);
    match event {
        GroupEvent::Delivered(_) => group.delivered += usize::from(group.over.insert(receiver)),
        GroupEvent::Closed(..) => drop(group.over.insert(receiver)),
        GroupEvent::Mode(..) | GroupEvent::Detached(_) => {}
    }
    group.events.push_back(event);
    let is_over = group.is_over();
    state.wake(Interest::GroupEvent(id));
    if is_over {
        state.wake(Interest::GroupWrite(id));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn who_waits_learns_that_the_thread_panicked() {
        let local = SocketAddr::from(([127, 0, 0, 1], 7000));
        let shared = Shared::new(&Config::new(local), local).expect("an endpoint");
        let shared = Arc::new(shared);
        shared.lock().alive().expect("alive");
        let end = End::new(Arc::clone(&shared));
        let thread = std::thread::spawn(move || {
            let _end = end;
            panic!("for the test");
        });
        thread.join().expect_err("it panicked");
        assert_eq!(shared.lock().dead, Some(io::ErrorKind::Other));
    }

    #[test]
    fn events_of_a_command_are_noted_before_the_driver_sleeps() {
        let config = Config::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        let mut driver = Driver::new(Sockets::open(&config).expect("a socket"));
        let local = driver.sockets.local_address();
        let shared = Shared::new(&config, local).expect("an endpoint");
        let mut state = shared.lock();
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        let opened = state.machine.connect(shared.now(), local, remote);
        let id = opened.expect("opened");
        state.connections.entry(id).or_default();
        drop(state);
        driver.work(&shared, 0).expect("sent");
        let aborted = shared.lock().machine.abort(shared.now(), id);
        aborted.expect("it is there");
        driver.transmit(&shared).expect("sent");
        driver
            .sleep(&shared, Some(Duration::ZERO))
            .expect("returned");
        let closed = shared.lock().connections[&id].closed;
        assert_eq!(closed, Some(Some(tcpxm::Failure::Aborted)));
    }
}
