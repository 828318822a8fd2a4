//! What the driver's thread and the handles share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker as TaskWaker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use linux_net::wake::Waker;
use tcpxm::{Carrier, CommandError, ConnId, Endpoint, Failure, GroupId, Reader};

use crate::Config;
use crate::driver::Driver;
use crate::group::GroupEvent;
use crate::store::Held;

/// The machine behind its lock, and the means to wait for it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) local: SocketAddr,
    interface: u32,
    pub(crate) send_buffer: usize,
    origin: Instant,
    state: Mutex<State>,
    /// Something happened that somebody may wait for.
    changed: Condvar,
    waker: Waker,
    /// Endpoints, listeners, streams and groups.
    handles: AtomicUsize,
    /// Locked before `state`, or tried. Nothing before the thread begins and when it has ended.
    driver: Mutex<Option<Driver>>,
    thread: OnceLock<Thread>,
}

/// Who has read lately reads again, and drives: the endpoint's thread steps in after this time.
const LEASE: tcpxm::Duration = tcpxm::Duration::from_millis(20);
/// Somebody is at it now.
const IN_CHARGE: tcpxm::Instant = tcpxm::Instant::from_micros(i64::MAX);
/// Longest sleep of the endpoint's thread meanwhile.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The most that a socket gives at once. A reader takes no more than he has room for: what he has none for
/// is copied twice.
const PIECE: usize = 64 << 10;

pub(crate) struct State {
    pub(crate) machine: Endpoint<Held>,
    /// What became of connections that somebody holds.
    pub(crate) connections: BTreeMap<ConnId, Connection>,
    pub(crate) groups: BTreeMap<GroupId, Group>,
    /// The driver sleeps until then, or until it is woken.
    pub(crate) asleep: Option<tcpxm::Instant>,
    /// Errors of the sockets that ended nothing.
    pub(crate) receive_errors: u64,
    /// Groups that were not joined.
    pub(crate) groups_refused: u64,
    /// The thread has ended, and why.
    pub(crate) dead: Option<io::ErrorKind>,
    /// Tasks to wake at the next change.
    tasks: Vec<TaskWaker>,
    /// Threads that wait for one.
    waiting: usize,
    /// A reader drives until then.
    driven_until: tcpxm::Instant,
    /// The endpoint's thread sleeps until it is told that the reader is no longer in charge.
    parked: bool,
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

/// What became of a connection.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) closed: Option<Option<Failure>>,
    /// All that was sent is acknowledged, the end included.
    pub(crate) delivered: bool,
}

/// What is known of a group.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Receivers in the order of the configuration.
    pub(crate) members: Vec<ConnId>,
    pub(crate) events: VecDeque<GroupEvent>,
    /// Receivers that have everything, or failed.
    pub(crate) over: BTreeSet<usize>,
    pub(crate) delivered: usize,
    pub(crate) closed: bool,
}

impl Shared {
    pub(crate) fn new(config: &Config, local: SocketAddr) -> io::Result<Shared> {
        let seed = linux_net::process::random()?;
        let now = tcpxm::Instant::from_secs(1);
        Ok(Shared {
            local,
            interface: config.interface,
            send_buffer: config.machine.send_buffer,
            origin: Instant::now(),
            state: Mutex::new(State {
                machine: Endpoint::new(config.machine.clone(), seed, now),
                connections: BTreeMap::new(),
                groups: BTreeMap::new(),
                asleep: None,
                receive_errors: 0,
                groups_refused: 0,
                dead: None,
                tasks: Vec::new(),
                waiting: 0,
                driven_until: now,
                parked: false,
            }),
            changed: Condvar::new(),
            waker: Waker::new()?,
            handles: AtomicUsize::new(0),
            driver: Mutex::new(None),
            thread: OnceLock::new(),
        })
    }

    /// The address and port that connections to `remotes` come from: the socket's own, or where that
    /// has none and the carrier needs one, what the routes choose.
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
                        "routes lead to the receivers from {} and from {source}: IP as the carrier needs one address, choose it",
                        local.ip()
                    ),
                ));
            }
            local.set_ip(source);
        }
        Ok(local)
    }

    /// Longer packets than the path is known to take are never sent.
    pub(crate) fn fit_path(&self, machine: &mut Endpoint<Held>, remote: IpAddr) {
        // Where there is no route, nothing will be sent.
        if let Ok(route) = linux_net::inet::route(remote, self.interface)
            && route.mtu < machine.config().mtu
        {
            machine.set_path_mtu(self.now(), remote, route.mtu);
        }
    }

    /// The time as the machine is told.
    pub(crate) fn now(&self) -> tcpxm::Instant {
        let micros = self.origin.elapsed().as_micros();
        tcpxm::Instant::from_micros(1_000_000 + i64::try_from(micros).unwrap_or(i64::MAX / 2))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn driver(&self) -> &Mutex<Option<Driver>> {
        &self.driver
    }

    pub(crate) fn hand_over(&self, driver: Option<Driver>) {
        *self.driver.lock().unwrap_or_else(PoisonError::into_inner) = driver;
    }

    /// The calling thread is the endpoint's.
    pub(crate) fn know_thread(&self) {
        // There is one only.
        let _ = self.thread.set(std::thread::current());
    }

    fn call_thread(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Whether somebody who reads drives, so that the endpoint's thread need not: how long it may sleep.
    pub(crate) fn is_driven(&self) -> Option<Duration> {
        let mut state = self.lock();
        let now = self.now();
        if state.driven_until <= now || !state.is_lonely() {
            return None;
        }
        state.parked = state.driven_until == IN_CHARGE;
        let pause = Duration::from_micros((state.driven_until - now).total_micros());
        Some(pause.min(LONGEST_PAUSE))
    }

    /// Lets go of the lock and has the driver look what there is to do.
    pub(crate) fn kick(&self, mut state: MutexGuard<'_, State>) {
        let asleep = state.asleep.take();
        let away = asleep.is_none() && state.is_driver_away(self.now());
        if away {
            state.driven_until = tcpxm::Instant::ZERO;
        }
        drop(state);
        if asleep.is_some() {
            self.waker.wake();
        } else if away {
            self.call_thread();
        }
    }

    /// As [`Shared::kick`], where there is something to do before the driver looks by itself: most
    /// reads and writes only move bytes.
    pub(crate) fn kick_if_due(&self, state: MutexGuard<'_, State>) {
        let next = state.machine.poll_timeout();
        let now = self.now();
        let until = state
            .asleep
            .or_else(|| state.is_driver_away(now).then_some(now + LEASE));
        if until.is_some_and(|until| next.is_some_and(|at| at < until)) {
            self.kick(state);
        }
    }

    /// Waits for a change, no longer than a second: who waits looks again anyway.
    pub(crate) fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        most: Duration,
    ) -> MutexGuard<'a, State> {
        if state.is_driver_away(self.now()) {
            state.driven_until = tcpxm::Instant::ZERO;
            self.call_thread();
        }
        state.waiting += 1;
        let waited = self
            .changed
            .wait_timeout(state, most.min(Duration::from_secs(1)));
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.waiting -= 1;
        state
    }

    /// After an attempt: the driver has something to do, or whoever tried waits for a change, as a
    /// task or here.
    pub(crate) fn settle(
        &self,
        mut state: MutexGuard<'_, State>,
        succeeded: bool,
        context: Option<&Context<'_>>,
    ) {
        match context {
            _ if succeeded => self.kick_if_due(state),
            Some(context) => state.register(context),
            None => drop(self.wait(state, Duration::from_secs(1))),
        }
    }

    /// The same after an attempt to read. A thread that reads comes again soon: it drives then, and
    /// until then nobody has to. What it waited for may be there at once.
    pub(crate) fn settle_read(
        &self,
        mut state: MutexGuard<'_, State>,
        succeeded: bool,
        context: Option<&Context<'_>>,
        reader: &mut Reader<'_>,
    ) {
        if context.is_some() || !state.is_lonely() {
            self.settle(state, succeeded, context);
        } else if !succeeded {
            self.drive(state, reader);
        } else {
            if state.driven_until != IN_CHARGE {
                state.driven_until = self.now() + LEASE;
            }
            if state.asleep.is_some() {
                self.kick_if_due(state);
            }
        }
    }

    /// Takes a turn at driving, or waits for a change while another thread is at it.
    fn drive(&self, mut state: MutexGuard<'_, State>, reader: &mut Reader<'_>) {
        let held = self.driver.try_lock().ok();
        let idle = |held: &MutexGuard<'_, Option<Driver>>| {
            held.as_ref().is_some_and(|driver| !driver.has_chores())
        };
        let Some(mut held) = held.filter(idle) else {
            drop(self.wait(state, Duration::from_secs(1)));
            return;
        };
        state.driven_until = IN_CHARGE;
        drop(state);
        let enough = reader.room().saturating_sub(PIECE);
        let mut over = true;
        if let Some(driver) = held.as_mut() {
            let worked = driver.work(self, enough, Some(reader));
            let result = worked.and_then(|worked| if worked { Ok(()) } else { driver.rest(self) });
            // Sockets that fail do so for the endpoint's thread too.
            over = result.is_err() || driver.has_chores();
        }
        drop(held);
        let mut state = self.lock();
        over |= !state.is_lonely();
        state.driven_until = if over {
            tcpxm::Instant::ZERO
        } else {
            self.now() + LEASE
        };
        if std::mem::take(&mut state.parked) || over {
            drop(state);
            self.call_thread();
        }
    }

    /// Whoever waits looks again.
    pub(crate) fn notify(&self, state: &mut State) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
        for task in state.tasks.drain(..) {
            task.wake();
        }
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
    /// Wakes this task at the next change.
    pub(crate) fn register(&mut self, context: &Context<'_>) {
        let waker = context.waker();
        if !self.tasks.iter().any(|task| task.will_wake(waker)) {
            self.tasks.push(waker.clone());
        }
    }

    /// Nobody waits for news that a reader would have to fetch for him.
    fn is_lonely(&self) -> bool {
        self.waiting == 0 && self.tasks.is_empty()
    }

    /// A reader drives, and is not at it just now.
    fn is_driver_away(&self, now: tcpxm::Instant) -> bool {
        self.driven_until > now && self.driven_until != IN_CHARGE
    }

    /// Why nothing goes any more.
    pub(crate) fn alive(&self) -> io::Result<()> {
        match self.dead {
            Some(kind) => Err(io::Error::new(kind, "the endpoint's sockets failed")),
            None => Ok(()),
        }
    }

    /// Whether both directions of the connection ended without a failure.
    pub(crate) fn has_ended(&self, id: ConnId) -> bool {
        let known = self.connections.get(&id);
        known.is_some_and(|known| known.closed == Some(None))
    }

    /// An error of a command on a connection, as what users of streams expect.
    pub(crate) fn error(&self, id: ConnId, error: CommandError) -> io::Error {
        let known = self.connections.get(&id);
        let failure = known.and_then(|known| known.closed.flatten());
        // The machine knows it before its driver has told.
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

/// Tries until something comes of it.
pub(crate) fn until<T>(mut attempt: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    loop {
        if let Some(result) = attempt()? {
            return Ok(result);
        }
    }
}

#[cfg(test)]
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
