//! What drives the machine: packets in, its clock, packets out, news to whoever waits.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use linux_net::SendError;
use tcpxm::{Event, Meta, Reader};

use crate::LINGER;
use crate::group::GroupEvent;
use crate::run::Run;
use crate::shared::{Shared, State};
use crate::sockets::{Sockets, Taken};

/// Bytes taken before something is sent again.
const ENOUGH_BYTES: usize = 1 << 20;
/// Runs sent before looking at what has arrived.
const RUNS: usize = 8;
/// After an error that passes: found again at once, it would keep the thread busy.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest sleep, so that nothing is overlooked for long.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// Tells whoever waits that the thread has ended, also where it panicked.
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
        let mut state = self.shared.lock();
        state.dead = Some(self.kind);
        self.shared.notify(&mut state);
    }
}

/// What only the endpoint's own thread does, which has the namespace and the privileges that the
/// endpoint was opened with.
enum Chore {
    /// Hear a group from a source.
    Join(IpAddr, IpAddr),
    /// A path takes less than was sent: how much?
    Narrow(IpAddr),
}

/// The sockets and what waits for them: one thread at a time drives. That is the endpoint's own, unless
/// somebody reads and waits, who then does it himself: what comes in small portions is used while the
/// processor has it at hand, and no other thread has to be woken for it.
pub(crate) struct Driver {
    sockets: Sockets,
    run: Run,
    /// The kernel had no room for the run.
    blocked: bool,
    chores: Vec<Chore>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl Driver {
    /// Starts the thread; whoever holds a handle keeps it going.
    pub(crate) fn start(shared: Arc<Shared>, sockets: Sockets) -> io::Result<()> {
        shared.hand_over(Some(Driver {
            sockets,
            run: Run::new(),
            blocked: false,
            chores: Vec::new(),
        }));
        std::thread::Builder::new()
            .name("tcp-xm".to_owned())
            .spawn(move || {
                let mut end = End::new(Arc::clone(&shared));
                shared.know_thread();
                if let Err(error) = run(&shared) {
                    end.kind = error.kind();
                } else {
                    end.kind = io::ErrorKind::NotConnected;
                }
                // The sockets go with the thread.
                shared.hand_over(None);
            })?;
        Ok(())
    }

    /// Whether there is something that the endpoint's thread has to do.
    pub(crate) fn has_chores(&self) -> bool {
        !self.chores.is_empty()
    }

    fn do_chores(&mut self, shared: &Shared) {
        for chore in std::mem::take(&mut self.chores) {
            match chore {
                // Without it nothing comes by multicast: the sender sees that, and stays with unicast.
                Chore::Join(group, source) => {
                    if self.sockets.join(group, source).is_err() {
                        shared.lock().groups_refused += 1;
                    }
                }
                // What is lost is repaired with segments that fit.
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

    /// One turn: takes what has arrived, no more than about `enough` bytes, for somebody who waits
    /// perhaps, and sends what is to be sent; false when there was nothing to do.
    ///
    /// # Errors
    /// The sockets are of no use any more.
    pub(crate) fn work(
        &mut self,
        shared: &Shared,
        enough: usize,
        reader: Option<&mut Reader<'_>>,
    ) -> io::Result<bool> {
        let taken = self.receive(shared, enough, reader)?;
        let mut state = shared.lock();
        let now = shared.now();
        state.machine.handle_timeout(now);
        let told = self.take_events(shared, &mut state);
        drop(state);
        let sent = self.transmit(shared)?;
        if taken.packets == 0 && taken.errors > 0 {
            std::thread::sleep(PAUSE);
        }
        Ok(taken.packets > 0 || told || sent || self.has_chores())
    }

    /// Takes batches of datagrams and hands them in under one lock.
    fn receive(
        &mut self,
        shared: &Shared,
        enough: usize,
        mut reader: Option<&mut Reader<'_>>,
    ) -> io::Result<Taken> {
        let now = shared.now();
        let mut state = None;
        let taken = self
            .sockets
            .receive(enough, |source, destination, payloads, stride| {
                let state = state.get_or_insert_with(|| shared.lock());
                let meta = Meta {
                    source,
                    destination,
                };
                let machine = &mut state.machine;
                match &mut reader {
                    Some(reader) => {
                        machine.handle_packets_for(now, &meta, payloads, stride, reader);
                    }
                    None => machine.handle_packets(now, &meta, payloads, stride),
                }
            })?;
        if taken.errors > 0 {
            let state = state.get_or_insert_with(|| shared.lock());
            state.receive_errors += taken.errors;
        }
        Ok(taken)
    }

    /// Sends a few runs; whether there may be more to send at once.
    fn transmit(&mut self, shared: &Shared) -> io::Result<bool> {
        let in_parts = self.sockets.takes_parts();
        for _ in 0..RUNS {
            let mut state = shared.lock();
            let filled = self.run.fill(&mut state, shared.now(), in_parts);
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
            self.run.clear();
        }
        Ok(true)
    }

    /// Hands the run to the kernel; false when it has no room.
    fn send(&mut self) -> bool {
        let Some((source, destination)) = self.run.way() else {
            return true;
        };
        while self.run.left() > 0 {
            let Some(bytes) = self.run.rest() else {
                match self.send_parts(destination) {
                    Ok(()) => return true,
                    Err(SendError::Malformed | SendError::Io(_)) => self.run.flatten(),
                    Err(error) => return self.refused(destination, &error),
                }
                continue;
            };
            let segment_len = self.run.segment_len;
            match self.sockets.send(source, destination, bytes, segment_len) {
                Ok(taken) => self.run.sent += taken,
                Err(error) => return self.refused(destination, &error),
            }
        }
        true
    }

    fn send_parts(&self, destination: SocketAddr) -> Result<(), SendError> {
        let (parts, len) = (self.run.parts(), self.run.left());
        self.sockets
            .send_parts(destination, (&parts, len), self.run.segment_len)
    }

    /// The kernel did not take a run; false when it has no room for it now.
    fn refused(&mut self, destination: SocketAddr, error: &SendError) -> bool {
        match error {
            SendError::WouldBlock => return false,
            SendError::TooBig => self.chores.push(Chore::Narrow(destination.ip())),
            // A peer that vanished, a route that flaps: retransmissions are for that.
            _ => {}
        }
        true
    }

    /// Passes the news on; whether there were any.
    fn take_events(&mut self, shared: &Shared, state: &mut State) -> bool {
        let mut told = false;
        while let Some(event) = state.machine.poll_event() {
            told = true;
            match event {
                Event::Join { group, source, .. } => {
                    self.chores.push(Chore::Join(group, source));
                }
                Event::Leave { group, source, .. } => {
                    // Perhaps before it was joined.
                    let joins = |chore: &Chore| matches!(chore, Chore::Join(g, s) if (*g, *s) == (group, source));
                    match self.chores.iter().position(joins) {
                        Some(at) => drop(self.chores.remove(at)),
                        None => self.sockets.leave(group, source),
                    }
                }
                event => note(state, &event),
            }
        }
        if told {
            shared.notify(state);
        }
        told
    }

    /// Sleeps until something arrives, a timer is due or somebody asks for something.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn rest(&mut self, shared: &Shared) -> io::Result<()> {
        let mut state = shared.lock();
        let now = shared.now();
        let next = if self.blocked {
            None
        } else {
            state.machine.poll_timeout()
        };
        let longest = tcpxm::Duration::from_micros(LONGEST_SLEEP.as_micros() as u64);
        let until = next.map_or(now + longest, |next| next.min(now + longest));
        if until <= now {
            return Ok(());
        }
        // Room in the kernel is what a blocked one waits for, nothing that others could ask.
        state.asleep = Some(if self.blocked { now } else { until });
        drop(state);
        let limit = Duration::from_micros((until - now).total_micros());
        let woken = self
            .sockets
            .wait(self.blocked, shared.waker().as_fd(), limit)?;
        if woken {
            shared.waker().reset();
        }
        shared.lock().asleep = None;
        Ok(())
    }
}

/// The endpoint's thread.
fn run(shared: &Shared) -> io::Result<()> {
    let mut abandoned = None;
    loop {
        if let Some(pause) = shared.is_driven() {
            std::thread::park_timeout(pause);
            continue;
        }
        let mut held = match shared.driver().try_lock() {
            Ok(held) => held,
            Err(TryLockError::WouldBlock) => {
                std::thread::park_timeout(PAUSE);
                continue;
            }
            Err(TryLockError::Poisoned(_)) => return Err(io::Error::other("a reader panicked")),
        };
        let Some(driver) = held.as_mut() else {
            return Ok(());
        };
        driver.do_chores(shared);
        let worked = driver.work(shared, ENOUGH_BYTES, None)?;
        if is_over(shared, &mut abandoned) {
            return Ok(());
        }
        if !worked {
            driver.rest(shared)?;
        }
    }
}

/// Nobody holds the endpoint, and nothing is left to be said, or it has had long enough.
fn is_over(shared: &Shared, abandoned: &mut Option<Instant>) -> bool {
    if shared.is_held() {
        *abandoned = None;
        return false;
    }
    let since = *abandoned.get_or_insert_with(Instant::now);
    since.elapsed() > LINGER || shared.lock().machine.connections() == 0
}

/// Keeps what whoever holds the connection or group asks for later.
fn note(state: &mut State, event: &Event) {
    match *event {
        Event::Delivered { connection } => {
            if let Some(known) = state.connections.get_mut(&connection) {
                known.delivered = true;
            }
            member(state, connection, GroupEvent::Delivered);
        }
        Event::ModeChanged { connection, mode } => {
            member(state, connection, |receiver| {
                GroupEvent::Mode(receiver, mode)
            });
        }
        Event::Detached { connection } => member(state, connection, GroupEvent::Detached),
        Event::Closed {
            connection,
            failure,
            ..
        } => {
            if let Some(known) = state.connections.get_mut(&connection) {
                known.closed = Some(failure);
            }
            member(state, connection, |receiver| {
                GroupEvent::Closed(receiver, failure)
            });
        }
        Event::GroupClosed { group } => {
            if let Some(group) = state.groups.get_mut(&group) {
                group.closed = true;
            }
        }
        _ => {}
    }
}

/// News of a connection that is a member of a group.
fn member(state: &mut State, connection: tcpxm::ConnId, event: impl FnOnce(usize) -> GroupEvent) {
    for group in state.groups.values_mut() {
        let Some(receiver) = group.members.iter().position(|id| *id == connection) else {
            continue;
        };
        let event = event(receiver);
        match event {
            GroupEvent::Delivered(receiver) => {
                if group.over.insert(receiver) {
                    group.delivered += 1;
                }
            }
            GroupEvent::Closed(receiver, _) => {
                group.over.insert(receiver);
            }
            GroupEvent::Mode(..) | GroupEvent::Detached(_) => {}
        }
        group.events.push_back(event);
        return;
    }
}

#[cfg(test)]
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
}
