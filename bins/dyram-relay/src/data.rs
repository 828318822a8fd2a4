//! The data thread: one loop over the sockets, the control thread's commands and the machine's
//! timers. The machine lives here and nowhere else, so no packet ever waits for a lock.

use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration as StdDuration;

use daemon_kit::RunError;
use dyram::storage::Storage;
use dyram::{DropReason, Event, Instant, MAX_CONTROL_LEN, Meta, Relay, Stats, Verdict};
use linux_net::inet::{self, Membership, UdpSocket};
use linux_net::packet::Sent;
use linux_net::poll::{self, Watch};
use linux_net::udp::Batch;
use linux_net::wake::Waker;
use proto_core::clock::Clock;

use crate::config::Config;
use crate::control::{Children, Command, Counts, PAGE, Snapshot};

/// Batches in a row before anything else gets a look.
const ROUNDS: usize = 16;
/// Commands in a row before packets get a look.
const COMMANDS: usize = 16;
/// Packets of the machine's own that go with one system call.
const OUTPUT: usize = 64;
/// The longest time to wait.
const LONGEST: StdDuration = StdDuration::from_secs(10);
/// How soon a socket that failed is read again.
const RETRY: StdDuration = StdDuration::from_millis(100);
/// Lines about events in the log, a second.
const LOG_LINES: u32 = 20;

/// Open sockets.
#[derive(Debug)]
pub(crate) struct Opened {
    socket: UdpSocket,
    groups: Vec<UdpSocket>,
    relay: Relay<'static>,
    clock: Clock,
    waker: Waker,
}

impl Opened {
    pub(crate) fn open(config: &Config) -> Result<Opened, RunError> {
        let settings = inet::Config {
            exclusive: true,
            ..inet::Config::new(config.listen)
        };
        let socket = UdpSocket::open(&settings).map_err(RunError::open("relay.listen"))?;
        let mut groups = Vec::new();
        if let Some(multicast) = &config.multicast {
            let named = linux_net::link::find(&multicast.interface);
            let interface = named
                .map_err(|error| RunError::Io("multicast.interface", std::io::Error::other(error)))?
                .index;
            for group in &multicast.groups {
                let settings = inet::Config {
                    interface,
                    ..inet::Config::new(*group)
                };
                let socket =
                    UdpSocket::open(&settings).map_err(RunError::open("multicast.groups"))?;
                let membership = Membership {
                    group: group.ip(),
                    source: None,
                    interface,
                };
                let joined = socket.join(&membership);
                joined.map_err(RunError::open("multicast.groups"))?;
                groups.push(socket);
            }
        }
        let clock = Clock::new();
        let seed =
            linux_net::process::random().map_err(|e| RunError::Io("reading /dev/urandom", e))?;
        let storage = Storage::owned(config.limits).map_err(RunError::open("limits"))?;
        let relay = Relay::new(config.relay.clone(), storage, seed, clock.now())
            .map_err(RunError::open("relay"))?;
        Ok(Opened {
            socket,
            groups,
            relay,
            clock,
            waker: Waker::new().map_err(|e| RunError::Io("making a waker", e))?,
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Where packets are received: the port is real even if the configuration leaves it open.
    pub(crate) fn listens(&self) -> std::io::Result<std::net::SocketAddr> {
        self.socket.local_address()
    }
}

/// Packets and bytes through the sockets.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    received: u64,
    received_bytes: u64,
    sent: u64,
    send_failed: u64,
    receive_failed: u64,
}

impl Traffic {
    fn count(&mut self, sent: Sent) {
        self.sent += sent.sent;
        self.send_failed += sent.failed;
    }
}

/// Whether the relay sends its children away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    Draining,
    /// And ends when they are gone.
    Ending,
}

/// The data thread's state.
#[derive(Debug)]
pub(crate) struct DataPath {
    opened: Opened,
    batch: Batch,
    output: Box<[[u8; MAX_CONTROL_LEN]]>,
    traffic: Traffic,
    leaving: Leaving,
    /// Whether something was left in a socket.
    more: bool,
    /// When the lines of the log were last counted anew, and how many there were.
    logged: (Instant, u32),
}

impl DataPath {
    pub(crate) fn new(opened: Opened) -> DataPath {
        DataPath {
            opened,
            batch: Batch::new(Batch::MAX),
            output: vec![[0; MAX_CONTROL_LEN]; OUTPUT].into(),
            traffic: Traffic::default(),
            leaving: Leaving::No,
            more: false,
            logged: (Instant::ZERO, 0),
        }
    }

    /// Runs until it is told to end, or has drained to end.
    pub(crate) fn run(mut self, commands: &Receiver<Command>) -> std::io::Result<()> {
        loop {
            let now = self.opened.clock.now();
            self.opened.relay.handle_timeout(now);
            self.transmit(now);
            self.log_events(now);
            if self.leaving == Leaving::Ending && self.is_alone() {
                return Ok(());
            }
            let obey = self.wait()?;
            self.more = false;
            let failed = self.traffic.receive_failed;
            for number in 0..=self.opened.groups.len() {
                self.receive(number.checked_sub(1));
            }
            if self.traffic.receive_failed != failed {
                std::thread::sleep(RETRY);
            }
            if obey && !self.obey(commands) {
                return Ok(());
            }
        }
    }

    /// Whether everybody below has left, and the parents have been told so.
    fn is_alone(&self) -> bool {
        let relay = &self.opened.relay;
        let parents = &relay.config().parents;
        let below_parent = |above: Option<_>| above.is_some_and(|above| parents.contains(&above));
        relay.is_drained() && !relay.sessions().any(|session| below_parent(session.above))
    }

    /// Packets of one socket, until there are none or others have waited long enough.
    fn receive(&mut self, group: Option<usize>) {
        let Opened {
            socket,
            groups,
            relay,
            clock,
            ..
        } = &mut self.opened;
        let from = match group {
            None => &*socket,
            Some(number) => &groups[number],
        };
        for _ in 0..ROUNDS {
            match from.receive(&mut self.batch) {
                Ok(0) => return,
                Ok(_) => {}
                Err(_) => {
                    self.traffic.receive_failed += 1;
                    return;
                }
            }
            let now = clock.now();
            let mut queue = socket.queue();
            for received in self.batch.received_mut() {
                self.traffic.received += 1;
                self.traffic.received_bytes += received.payload.len() as u64;
                let meta = Meta {
                    source: received.source,
                    group: group.is_some(),
                };
                let verdict = relay.forward(now, &meta, received.payload);
                if let Verdict::Send(fanout) = verdict {
                    let packet: &[u8] = received.payload;
                    for target in relay.targets(&fanout) {
                        queue.push(target, packet);
                    }
                }
            }
            self.traffic.count(queue.flush());
        }
        self.more = true;
    }

    /// Sends what the machine has to say.
    fn transmit(&mut self, now: Instant) {
        loop {
            let mut queue = self.opened.socket.queue();
            let mut full = true;
            for buffer in &mut self.output {
                let Some(transmit) = self.opened.relay.poll_transmit(now, buffer) else {
                    full = false;
                    break;
                };
                queue.push(transmit.destination, &buffer[..transmit.len]);
            }
            self.traffic.count(queue.flush());
            if !full {
                return;
            }
        }
    }

    /// Waits for packets, commands or a timer; whether there are commands.
    fn wait(&mut self) -> std::io::Result<bool> {
        let opened = &self.opened;
        let due = opened.relay.poll_timeout();
        let timeout = match self.more {
            true => StdDuration::ZERO,
            false => Clock::until(opened.clock.now(), due, LONGEST),
        };
        let mut watches = [Watch::readable(opened.waker.as_fd()); 2 + crate::config::MAX_GROUPS];
        watches[1] = Watch::readable(opened.socket.as_fd());
        for (watch, group) in watches[2..].iter_mut().zip(&opened.groups) {
            *watch = Watch::readable(group.as_fd());
        }
        poll::wait(&mut watches[..2 + opened.groups.len()], Some(timeout))?;
        Ok(watches[0].is_readable())
    }

    /// Commands of the control thread; false once it said to stop (or is gone).
    fn obey(&mut self, commands: &Receiver<Command>) -> bool {
        self.opened.waker.reset();
        for _ in 0..COMMANDS {
            match commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Ok(command) => self.answer(command),
                Err(TryRecvError::Empty) => return true,
            }
        }
        // The rest after the packets.
        self.opened.waker.wake();
        true
    }

    /// Who asked may be gone: then nobody misses the answer.
    fn answer(&mut self, command: Command) {
        let now = self.opened.clock.now();
        let relay = &mut self.opened.relay;
        match command {
            Command::Counters(reply) => {
                let _ = reply.send(self.snapshot());
            }
            Command::Sessions(from, reply) => {
                let _ = reply.send(relay.sessions().skip(from).take(PAGE).collect());
            }
            Command::Children(session, from, reply) => {
                let found = relay.sessions().nth(session).map(|session| Children {
                    key: session.key,
                    children: relay.children(&session.key).skip(from).take(PAGE).collect(),
                });
                let _ = reply.send(found);
            }
            Command::Reload(config, reply) => {
                let _ = reply.send(relay.reconfigure(now, config.relay));
            }
            Command::Drain(end) => {
                if self.leaving == Leaving::No {
                    relay.drain(now);
                }
                self.leaving = match end {
                    true => Leaving::Ending,
                    false => Leaving::Draining,
                };
            }
            Command::Stop => {}
        }
    }

    fn snapshot(&self) -> Snapshot {
        let relay = &self.opened.relay;
        let stats = relay.stats();
        let drops = DropReason::ALL.iter();
        let traffic = &self.traffic;
        Snapshot {
            sessions: relay.sessions().count() as u64,
            children: relay
                .sessions()
                .map(|session| u64::from(session.children))
                .sum(),
            draining: self.leaving != Leaving::No,
            recovery: recovery(stats),
            members: named(&[
                ("joined", stats.joined),
                ("left", stats.left),
                ("silent", stats.silent),
                ("stalled", stats.stalled),
                ("refused", stats.refused),
            ]),
            drops: drops
                .map(|reason| (reason.name().to_owned(), stats.drops.get(*reason)))
                .collect(),
            sockets: named(&[
                ("received", traffic.received),
                ("received_bytes", traffic.received_bytes),
                ("sent", traffic.sent),
                ("send_failed", traffic.send_failed),
                ("receive_failed", traffic.receive_failed),
                ("events_lost", stats.events_lost),
            ]),
        }
    }

    /// Events, in the log. Whoever makes many happen does not fill a disk with them.
    fn log_events(&mut self, now: Instant) {
        while let Some(event) = self.opened.relay.poll_event() {
            let (since, lines) = &mut self.logged;
            if now - *since >= dyram::Duration::from_secs(1) {
                if *lines > LOG_LINES {
                    tracing::warn!(count = *lines - LOG_LINES, "events left out of the log");
                }
                (*since, *lines) = (now, 0);
            }
            *lines += 1;
            if *lines <= LOG_LINES {
                log(&event);
            }
        }
    }
}

fn recovery(stats: &Stats) -> Counts {
    named(&[
        ("data", stats.data),
        ("gaps", stats.gaps),
        ("recovered", stats.recovered),
        ("nacked", stats.nacked),
        ("asked_repliers", stats.asked_repliers),
        ("asked_parent", stats.asked_parent),
        ("repaired_below", stats.repaired_below),
        ("repaired_above", stats.repaired_above),
        ("absent", stats.absent),
        ("given_up", stats.given_up),
    ])
}

fn named(counts: &[(&str, u64)]) -> Counts {
    let owned = counts
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count));
    owned.collect()
}

fn log(event: &Event) {
    match event {
        Event::Opened(session) => tracing::info!(%session, "session opened"),
        Event::Closed(session) => tracing::info!(%session, "session closed"),
        Event::SourceArrived(session, at) => tracing::info!(%session, %at, "source registered"),
        Event::SourceRefused(session, at) => {
            tracing::warn!(%session, %at, "source refused: another one with this name is served");
        }
        Event::SourceLost(session) => tracing::warn!(%session, "source silent"),
        Event::Attached(session, at) => tracing::info!(%session, %at, "parent took us in"),
        Event::ParentLost(session, at) => tracing::warn!(%session, %at, "parent silent"),
        Event::Refused(session, at) => tracing::warn!(%session, %at, "parent refused us"),
        Event::Loop(session, relay) => {
            tracing::error!(%session, %relay, "loop: that relay is above and below this one");
        }
        Event::Collision(session, [first, second]) => {
            tracing::warn!(%session, first, second, "two sources with this name: the first is served");
        }
        Event::ChildJoined(session, at) => tracing::debug!(%session, %at, "child joined"),
        Event::ChildGone(session, at) => tracing::debug!(%session, %at, "child gone"),
        Event::ChildStalled(session, at, ack) => {
            tracing::warn!(%session, %at, acknowledged = ack.0, "child does not advance: the session no longer waits for it");
        }
        Event::ChildRefused(session, at, full) => {
            tracing::warn!(%session, %at, limit = full.name(), "child refused: a table is full");
        }
    }
}
