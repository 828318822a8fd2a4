//! The state that the driver and the handles share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{OnceLock, PoisonError};
use std::task::Context;

use tcpxm::{Carrier, CommandError, ConnId, Endpoint, Failure, GroupId};

use crate::Config;
use crate::driver::Driver;
use crate::group::GroupEvent;
use crate::lease::{Lease, ThreadState};
use crate::store::SendStore;
use crate::sync::{AtomicUsize, Clock, Mutex, MutexGuard, Waker, random, thread};
use crate::wait::{Interest, Waiters};

/// A machine behind its lock.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) local: SocketAddr,
    interface: u32,
    pub(crate) send_buffer: usize,
    clock: Clock,
    state: Mutex<State>,
    /// Ends the sleep of the thread that drives.
    waker: Waker,
    /// Endpoints, listeners, streams and groups.
    handles: AtomicUsize,
    /// Locked by the thread that drives, chosen by [`Lease`] and [`ThreadState`], so that no thread waits for
    /// this lock. Empty before the endpoint's thread begins and after it has ended.
    driver: Mutex<Option<Driver>>,
    thread: OnceLock<thread::Thread>,
}

pub(crate) struct State {
    pub(crate) machine: Endpoint<SendStore>,
    /// Connections that have a handle.
    pub(crate) connections: BTreeMap<ConnId, Connection>,
    pub(crate) groups: BTreeMap<GroupId, Group>,
    /// The group of each connection that is a member of one, and its number there.
    members: BTreeMap<ConnId, (GroupId, usize)>,
    /// Waiters for connections to accept.
    accepting: Waiters,
    /// Wakers registered with any of the above.
    pub(crate) waiting: usize,
    /// Set while the thread that drives sleeps: the time of its next timer.
    pub(crate) asleep: Option<tcpxm::Instant>,
    /// Temporary errors of the sockets.
    pub(crate) receive_errors: u64,
    /// Groups that were not joined.
    pub(crate) groups_refused: u64,
    /// Why the endpoint's thread has ended.
    pub(crate) dead: Option<io::ErrorKind>,
    pub(crate) lease: Lease,
    pub(crate) thread: ThreadState,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let connections = self.machine.connections();
        f.debug_struct("State")
            .field("connections", &connections)
            .field("dead", &self.dead)
            .finish_non_exhaustive()
    }
}

/// A connection that has a handle.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// Set when it has ended, with the failure if there was one.
    pub(crate) closed: Option<Option<Failure>>,
    /// All that was sent is acknowledged, the end included.
    pub(crate) delivered: bool,
    readers: Waiters,
    writers: Waiters,
}

/// A group that has a handle.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Receivers in the order of the configuration.
    pub(crate) members: Vec<ConnId>,
    pub(crate) events: VecDeque<GroupEvent>,
    /// Receivers that have everything, or failed.
    pub(crate) over: BTreeSet<usize>,
    pub(crate) delivered: usize,
    pub(crate) closed: bool,
    writers: Waiters,
    observers: Waiters,
}

impl Group {
    pub(crate) fn new(members: Vec<ConnId>) -> Group {
        Group {
            members,
            ..Group::default()
        }
    }

    /// Whether no receiver needs anything any more.
    pub(crate) fn is_over(&self) -> bool {
        self.over.len() == self.members.len() || self.closed
    }
}

impl Shared {
    pub(crate) fn new(config: &Config, local: SocketAddr) -> io::Result<Shared> {
        let seed = random()?;
        let now = tcpxm::Instant::from_secs(1);
        Ok(Shared {
            local,
            interface: config.interface,
            send_buffer: config.machine.send_buffer,
            clock: Clock::start(),
            state: Mutex::new(State {
                machine: Endpoint::new(config.machine.clone(), seed, now),
                connections: BTreeMap::new(),
                groups: BTreeMap::new(),
                members: BTreeMap::new(),
                accepting: Waiters::default(),
                waiting: 0,
                asleep: None,
                receive_errors: 0,
                groups_refused: 0,
                dead: None,
                lease: Lease::None,
                thread: ThreadState::Driving,
            }),
            waker: Waker::new()?,
            handles: AtomicUsize::new(0),
            driver: Mutex::new(None),
            thread: OnceLock::new(),
        })
    }

    /// Returns the address and port that connections to `remotes` come from: the socket's own, or where that has none
    /// and the carrier needs one, the one that the routes choose.
    pub(crate) fn local_for(&self, carrier: Carrier, remotes: &[IpAddr]) -> io::Result<SocketAddr> {
        let mut local = self.local;
        if carrier == Carrier::Udp || !local.ip().is_unspecified() {
            return Ok(local);
        }
        for &remote in remotes {
            let source = linux_net::inet::route(remote, self.interface)?.source;
            if !local.ip().is_unspecified() && local.ip() != source {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "routes lead to the receivers from {} and from {source}, but TCP-XM over IP sends from one \
                         address; bind the endpoint to one of them",
                        local.ip()
                    ),
                ));
            }
            local.set_ip(source);
        }
        Ok(local)
    }

    /// Limits packets to `remote` to the MTU of its route.
    pub(crate) fn fit_path(&self, machine: &mut Endpoint<SendStore>, remote: IpAddr) {
        // Without a route nothing will be sent.
        if let Ok(route) = linux_net::inet::route(remote, self.interface)
            && route.mtu < machine.config().mtu
        {
            machine.set_path_mtu(self.now(), remote, route.mtu);
        }
    }

    /// Returns the machine's time.
    pub(crate) fn now(&self) -> tcpxm::Instant {
        let micros = self.clock.elapsed().as_micros();
        tcpxm::Instant::from_micros(1_000_000 + i64::try_from(micros).unwrap_or(i64::MAX / 2))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn driver(&self) -> io::Result<MutexGuard<'_, Option<Driver>>> {
        let poisoned = |_| io::Error::other("a thread that read has panicked");
        self.driver.lock().map_err(poisoned)
    }

    pub(crate) fn set_driver(&self, driver: Option<Driver>) {
        *self.driver.lock().unwrap_or_else(PoisonError::into_inner) = driver;
    }

    /// Declares the calling thread the endpoint's.
    pub(crate) fn set_thread(&self) {
        // There is only one.
        let _ = self.thread.set(thread::current());
    }

    pub(crate) fn unpark_thread(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Releases the lock and makes the thread that drives look at the machine. The endpoint's thread does not stop for
    /// the lease first.
    pub(crate) fn kick(&self, mut state: MutexGuard<'_, State>) {
        let is_asleep = state.asleep.take().is_some();
        self.end_lease(state);
        if is_asleep {
            self.waker.wake();
        }
    }

    /// As [`Shared::kick`], if the machine has something to do earlier than the thread that drives looks at it: most
    /// reads and writes only move bytes.
    pub(crate) fn kick_if_due(&self, state: MutexGuard<'_, State>) {
        let next = state.machine.poll_timeout();
        let until = match (state.asleep, state.lease) {
            (None, Lease::Until(end)) => Some(end),
            (asleep, _) => asleep,
        };
        if until.is_some_and(|until| next.is_some_and(|at| at < until)) {
            self.kick(state);
        }
    }

    /// Registers the task or thread of `context` for a change. No lease lasts while it waits.
    pub(crate) fn wait_for(
        &self,
        mut state: MutexGuard<'_, State>,
        interest: Interest,
        context: &Context<'_>,
    ) {
        state.register(interest, context);
        self.end_lease(state);
    }

    pub(crate) fn hold(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn release(&self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waker.wake();
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0
    }
}

impl State {
    fn waiters(&mut self, interest: Interest) -> Option<&mut Waiters> {
        Some(match interest {
            Interest::Accept => &mut self.accepting,
            Interest::Read(id) => &mut self.connections.get_mut(&id)?.readers,
            Interest::Write(id) => &mut self.connections.get_mut(&id)?.writers,
            Interest::GroupWrite(id) => &mut self.groups.get_mut(&id)?.writers,
            Interest::GroupEvent(id) => &mut self.groups.get_mut(&id)?.observers,
        })
    }

    fn register(&mut self, interest: Interest, context: &Context<'_>) {
        let added = self.waiters(interest).map(|all| all.add(context.waker()));
        self.waiting += added.unwrap_or(0);
    }

    /// Wakes the tasks and threads that wait for this change.
    pub(crate) fn wake(&mut self, interest: Interest) {
        let woken = self.waiters(interest).map(Waiters::wake);
        self.waiting -= woken.unwrap_or(0);
    }

    /// Wakes everything that waits for a connection.
    pub(crate) fn wake_connection(&mut self, id: ConnId) {
        self.wake(Interest::Read(id));
        self.wake(Interest::Write(id));
    }

    /// Wakes everything that waits for a group.
    pub(crate) fn wake_group(&mut self, id: GroupId) {
        self.wake(Interest::GroupWrite(id));
        self.wake(Interest::GroupEvent(id));
    }

    /// The endpoint's thread has ended, for this reason: wakes all.
    pub(crate) fn end(&mut self, kind: io::ErrorKind) {
        self.dead = Some(kind);
        self.wake(Interest::Accept);
        let connections: Vec<ConnId> = self.connections.keys().copied().collect();
        connections
            .into_iter()
            .for_each(|id| self.wake_connection(id));
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        groups.into_iter().for_each(|id| self.wake_group(id));
    }

    pub(crate) fn insert_group(&mut self, id: GroupId, members: Vec<ConnId>) {
        let numbered = members.iter().enumerate();
        self.members
            .extend(numbered.map(|(number, &member)| (member, (id, number))));
        self.groups.insert(id, Group::new(members));
    }

    pub(crate) fn remove_group(&mut self, id: GroupId) {
        self.wake_group(id);
        for member in self
            .groups
            .remove(&id)
            .map_or(Vec::new(), |group| group.members)
        {
            self.members.remove(&member);
        }
    }

    pub(crate) fn remove_connection(&mut self, id: ConnId) {
        self.wake_connection(id);
        self.connections.remove(&id);
    }

    /// Returns the group of a connection that is a member of one, and its number there.
    pub(crate) fn member(&mut self, id: ConnId) -> Option<(GroupId, &mut Group, usize)> {
        let &(group, number) = self.members.get(&id)?;
        Some((group, self.groups.get_mut(&group)?, number))
    }

    /// Fails when the endpoint's thread has ended.
    pub(crate) fn alive(&self) -> io::Result<()> {
        match self.dead {
            Some(kind) => Err(io::Error::new(kind, "the sockets of the endpoint failed")),
            None => Ok(()),
        }
    }

    /// Whether both directions of the connection ended without a failure.
    pub(crate) fn has_ended(&self, id: ConnId) -> bool {
        let known = self.connections.get(&id);
        known.is_some_and(|known| known.closed == Some(None))
    }

    /// Converts an error of a command on a connection to the one that users of streams expect.
    pub(crate) fn error(&self, id: ConnId, error: CommandError) -> io::Error {
        let known = self.connections.get(&id);
        let failure = known.and_then(|known| known.closed.flatten());
        // The machine knows it before the event was taken.
        let failure = failure.or_else(|| self.machine.failure(id).ok().flatten());
        match (failure, error) {
            (Some(failure), _) => failed(failure),
            (None, CommandError::Failed | CommandError::Unknown) => {
                io::ErrorKind::NotConnected.into()
            }
            (None, error) => refused(error),
        }
    }
}

/// A command that cannot be carried out.
pub(crate) fn refused(error: CommandError) -> io::Error {
    let kind = match error {
        CommandError::PortInUse => io::ErrorKind::AddrInUse,
        CommandError::Address => io::ErrorKind::InvalidInput,
        CommandError::Closed => io::ErrorKind::BrokenPipe,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// A connection that has failed.
pub(crate) fn failed(failure: Failure) -> io::Error {
    let kind = match failure {
        Failure::Refused => io::ErrorKind::ConnectionRefused,
        Failure::ConnectTimeout | Failure::Timeout => io::ErrorKind::TimedOut,
        Failure::Reset => io::ErrorKind::ConnectionReset,
        Failure::Aborted => io::ErrorKind::ConnectionAborted,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, failure)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use tcpxm::Meta;
    use tcpxm::wire::{Flags, Options, Segment};

    #[test]
    fn who_reads_before_the_driver_has_told_learns_the_true_failure() {
        let local = SocketAddr::from(([127, 0, 0, 1], 7000));
        let remote = SocketAddr::from(([127, 0, 0, 1], 7001));
        let shared = Shared::new(&Config::new(local), local).expect("an endpoint");
        let mut state = shared.lock();
        let now = shared.now();
        let id = state.machine.connect(now, local, remote).expect("opened");
        state.connections.entry(id).or_default();
        let mut buffer = vec![0; state.machine.max_segment_bytes()];
        let sent = state
            .machine
            .poll_transmit(now, &mut buffer)
            .expect("a SYN");
        let syn = Segment::parse(&buffer[..sent.len]).expect("a segment");
        let reset = Segment {
            source_port: remote.port(),
            destination_port: local.port(),
            seq: tcpxm::Seq(0),
            ack: tcpxm::Seq(syn.seq.0.wrapping_add(1)),
            flags: Flags {
                rst: true,
                ack: true,
                ..Flags::default()
            },
            window: 0,
            options: Options::default(),
            payload: &[],
        };
        let mut bytes = vec![0; reset.buffer_len()];
        reset.emit(&mut bytes);
        let meta = Meta {
            source: remote,
            destination: local.ip(),
        };
        state
            .machine
            .handle_packet(now, &meta, &bytes)
            .expect("taken");
        let error = state
            .machine
            .recv(now, id, &mut [0; 1])
            .expect_err("refused");
        assert_eq!(
            state.error(id, error).kind(),
            io::ErrorKind::ConnectionRefused
        );
    }
}
