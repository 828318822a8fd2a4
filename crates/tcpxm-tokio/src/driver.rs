//! The thread: packets in, the machine's clock, packets out, news to whoever waits.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linux_net::SendError;
use linux_net::poll::{self, Watch};
use tcpxm::{Event, Meta};

use crate::LINGER;
use crate::group::GroupEvent;
use crate::shared::{Shared, State};
use crate::sockets::{Sockets, Taken};

/// Datagrams of one destination in a row, handed to the kernel at once: the longest payload of UDP.
const RUN_BYTES: usize = 65_000;
const RUN_SEGMENTS: usize = 64;
/// Runs sent before looking at what has arrived.
const RUNS: usize = 8;
/// After an error that passes: found again at once, it would keep the thread busy.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest sleep, so that nothing is overlooked for long.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// Datagrams of equal length to one destination, the last perhaps shorter.
struct Run {
    buffer: Vec<u8>,
    /// Bytes of the run.
    len: usize,
    /// Bytes behind it: the first datagram of the next run.
    next: usize,
    destination: Option<SocketAddr>,
    next_destination: Option<SocketAddr>,
    /// Where it comes from, as far as the carrier needs it: the endpoint's connections share that.
    source: IpAddr,
    segment_len: usize,
    segments: usize,
    /// Bytes of it that the kernel has taken.
    sent: usize,
}

impl Run {
    fn new() -> Run {
        Run {
            buffer: vec![0; 2 * RUN_BYTES + 65_536],
            len: 0,
            next: 0,
            destination: None,
            next_destination: None,
            source: Ipv4Addr::UNSPECIFIED.into(),
            segment_len: 0,
            segments: 0,
            sent: 0,
        }
    }

    /// The run was sent: what came after it is the start of the next one.
    fn clear(&mut self) {
        self.buffer.copy_within(self.len..self.len + self.next, 0);
        self.len = self.next;
        self.segment_len = self.next;
        self.segments = usize::from(self.next > 0);
        self.destination = self.next_destination.take();
        self.next = 0;
        self.sent = 0;
    }

    /// Fills the run from the machine; false when there is nothing to send.
    fn fill(&mut self, state: &mut State, now: tcpxm::Instant) -> bool {
        if self.sent > 0 {
            return true; // What is left of it goes first.
        }
        while self.next == 0 && !self.is_full() {
            let Some(transmit) = state
                .machine
                .poll_transmit(now, &mut self.buffer[self.len..])
            else {
                break;
            };
            let destination = transmit.destination;
            let fits = self.destination.is_none_or(|known| known == destination)
                && (self.len == 0 || transmit.len <= self.segment_len);
            if !fits {
                self.next = transmit.len;
                self.next_destination = Some(destination);
                break;
            }
            if self.len == 0 {
                self.segment_len = transmit.len;
            }
            self.destination = Some(destination);
            self.source = transmit.source;
            self.len += transmit.len;
            self.segments += 1;
            if transmit.len < self.segment_len {
                break; // Only the last one may be shorter.
            }
        }
        self.len > 0
    }

    fn is_full(&self) -> bool {
        self.segments >= RUN_SEGMENTS || self.len + self.segment_len > RUN_BYTES
    }
}

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

pub(crate) struct Driver {
    shared: Arc<Shared>,
    sockets: Sockets,
    run: Run,
    /// The kernel had no room for the run.
    blocked: bool,
    /// Since when nobody holds the endpoint.
    abandoned: Option<Instant>,
}

impl Driver {
    /// Starts the thread; whoever holds a handle keeps it going.
    pub(crate) fn start(shared: Arc<Shared>, sockets: Sockets) -> io::Result<()> {
        let mut driver = Driver {
            shared,
            sockets,
            run: Run::new(),
            blocked: false,
            abandoned: None,
        };
        std::thread::Builder::new()
            .name("tcp-xm".to_owned())
            .spawn(move || {
                let mut end = End::new(Arc::clone(&driver.shared));
                if let Err(error) = driver.run() {
                    end.kind = error.kind();
                } else {
                    end.kind = io::ErrorKind::NotConnected;
                }
            })?;
        Ok(())
    }

    fn run(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        loop {
            let taken = self.receive()?;
            let mut state = shared.lock();
            let now = shared.now();
            state.machine.handle_timeout(now);
            self.take_events(&mut state);
            drop(state);
            let sent = self.transmit()?;
            if self.is_over() {
                return Ok(());
            }
            if taken.packets == 0 && !sent {
                if taken.errors > 0 {
                    std::thread::sleep(PAUSE);
                }
                self.sleep()?;
            }
        }
    }

    /// Takes batches of datagrams and hands them in under one lock.
    fn receive(&mut self) -> io::Result<Taken> {
        let shared = Arc::clone(&self.shared);
        let now = shared.now();
        let mut state = None;
        let taken = self.sockets.receive(|source, destination, payload| {
            let state = state.get_or_insert_with(|| shared.lock());
            let meta = Meta {
                source,
                destination,
            };
            // Counted by the machine under its reason.
            let _ = state.machine.handle_packet(now, &meta, payload);
        })?;
        if taken.errors > 0 {
            let state = state.get_or_insert_with(|| shared.lock());
            state.receive_errors += taken.errors;
        }
        Ok(taken)
    }

    /// Sends a few runs; whether there may be more to send at once.
    fn transmit(&mut self) -> io::Result<bool> {
        let shared = Arc::clone(&self.shared);
        for _ in 0..RUNS {
            let mut state = shared.lock();
            let filled = self.run.fill(&mut state, shared.now());
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
        let Some(destination) = self.run.destination else {
            return true;
        };
        while self.run.sent < self.run.len {
            let Run {
                source,
                segment_len,
                ..
            } = self.run;
            let bytes = &self.run.buffer[self.run.sent..self.run.len];
            match self.sockets.send(source, destination, bytes, segment_len) {
                Ok(taken) => self.run.sent += taken,
                Err(SendError::WouldBlock) => return false,
                // What is lost is repaired with segments that fit.
                Err(SendError::TooBig) => {
                    self.path_is_narrow(destination.ip());
                    return true;
                }
                // A peer that vanished, a route that flaps: retransmissions are for that.
                Err(_) => return true,
            }
        }
        true
    }

    /// The kernel knows that the path to a destination takes less than what was sent.
    fn path_is_narrow(&self, destination: IpAddr) {
        if let Ok(route) = self.sockets.route(destination) {
            let mut state = self.shared.lock();
            let now = self.shared.now();
            state.machine.set_path_mtu(now, destination, route.mtu);
        }
    }

    fn take_events(&mut self, state: &mut State) {
        let mut told = false;
        while let Some(event) = state.machine.poll_event() {
            told = true;
            match event {
                Event::Join { group, source, .. } => {
                    // Without it nothing comes by multicast: the sender sees that, and stays with
                    // unicast.
                    if self.sockets.join(group, source).is_err() {
                        state.groups_refused += 1;
                    }
                }
                Event::Leave { group, source, .. } => self.sockets.leave(group, source),
                event => note(state, &event),
            }
        }
        if told {
            self.shared.notify(state);
        }
    }

    /// Nobody holds the endpoint, and nothing is left to be said, or it has had long enough.
    fn is_over(&mut self) -> bool {
        if self.shared.is_held() {
            self.abandoned = None;
            return false;
        }
        let since = *self.abandoned.get_or_insert_with(Instant::now);
        since.elapsed() > LINGER || self.shared.lock().machine.connections() == 0
    }

    fn sleep(&mut self) -> io::Result<()> {
        let mut state = self.shared.lock();
        let now = self.shared.now();
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
        let mut set = self.sockets.watches(self.blocked);
        set.push(Watch::readable(self.shared.waker().as_fd()));
        let limit = Duration::from_micros((until - now).total_micros());
        poll::wait(&mut set, Some(limit))?;
        let woken = set.last().is_some_and(Watch::is_readable);
        drop(set);
        if woken {
            self.shared.waker().reset();
        }
        self.shared.lock().asleep = None;
        Ok(())
    }
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
