//! The data thread: one loop over the sockets, the commands of the control thread and the timers of the machine. The
//! thread owns the machine, so that no packet waits for a lock.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration as StdDuration;

use daemon_kit::RunError;
use dyram::storage::Storage;
use dyram::{
    DropReason, Duration, Event, Instant, MAX_CONTROL_LEN, Meta, Relay, Stats, Verdict, wire,
};
use linux_net::inet::{self, Membership, UdpSocket};
use linux_net::packet::Sent;
use linux_net::poll::{self, Watch};
use linux_net::udp::Batch;
use linux_net::wake::Waker;
use proto_core::clock::Clock;

use crate::config::Config;
use crate::control::{Children, Command, Counters, Counts, PAGE};

/// Largest number of batches received from one socket in a row.
const ROUNDS: usize = 16;
/// Largest number of commands executed in a row.
const COMMANDS: usize = 16;
/// Packets of the machine itself that are sent with one system call.
const OUTPUT: usize = 64;
/// Longest wait.
const LONGEST: StdDuration = StdDuration::from_secs(10);
/// Pause after a failed receive.
const RETRY: StdDuration = StdDuration::from_millis(100);
/// Shortest time between two log lines about neighbours of another version.
const VERSION_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Largest number of events logged in one second.
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
        let zone = config.interface().map_err(std::io::Error::other);
        let settings = inet::Config {
            exclusive: true,
            // The machine keeps addresses without zones; the socket adds this one to those that are link-local.
            interface: zone.map_err(|error| RunError::Io(config.zone_key(), error))?,
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

    /// Returns the socket's address, with the actual port where the configuration has 0.
    pub(crate) fn listens(&self) -> std::io::Result<std::net::SocketAddr> {
        self.socket.local_address()
    }
}

/// Counters of the sockets.
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

/// Whether the relay drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    Draining,
    /// Drains, and ends when the children have left.
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
    /// Whether a socket may hold more packets.
    more: bool,
    /// Start of the current second of logging, and the number of events in it.
    logged: (Instant, u32),
    /// Earliest time of the next log line about a neighbour of another version.
    version_log_at: Instant,
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
            version_log_at: Instant::ZERO,
        }
    }

    /// Runs until a command ends it, or until it has drained.
    pub(crate) fn run(mut self, commands: &Receiver<Command>) -> std::io::Result<()> {
        loop {
            let now = self.opened.clock.now();
            self.opened.relay.handle_timeout(now);
            self.transmit(now);
            self.log_events(now);
            if self.leaving == Leaving::Ending && self.is_alone() {
                return Ok(());
            }
            let has_commands = self.wait()?;
            self.more = false;
            let failed = self.traffic.receive_failed;
            for number in 0..=self.opened.groups.len() {
                self.receive(number.checked_sub(1));
            }
            if self.traffic.receive_failed != failed {
                std::thread::sleep(RETRY);
            }
            if has_commands && !self.execute(commands) {
                return Ok(());
            }
        }
    }

    /// Whether all children have left, and the parents have been told.
    fn is_alone(&self) -> bool {
        let relay = &self.opened.relay;
        let parents = &relay.config().parents;
        let below_parent = |above: Option<_>| above.is_some_and(|above| parents.contains(&above));
        relay.is_drained() && !relay.sessions().any(|session| below_parent(session.above))
    }

    /// Receives from one socket until it is empty, or for a bounded number of batches.
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
            for joined in self.batch.joined_mut() {
                let meta = Meta {
                    source: joined.source,
                    group: group.is_some(),
                };
                let mut rest = joined.payloads;
                while !rest.is_empty() {
                    let (len, verdict) = relay.forward_joined(now, &meta, rest, joined.stride);
                    let (packets, others) = rest.split_at_mut(len);
                    rest = others;
                    self.traffic.received += len.div_ceil(joined.stride) as u64;
                    self.traffic.received_bytes += len as u64;
                    match verdict {
                        Verdict::Send(fanout) => {
                            for target in relay.targets(&fanout) {
                                queue.push_segments(target, packets, joined.stride);
                            }
                        }
                        Verdict::Drop(DropReason::Version) if now >= self.version_log_at => {
                            self.version_log_at = now + VERSION_LOG_INTERVAL;
                            log_version(joined.source, packets);
                        }
                        Verdict::Drop(_) | Verdict::Done => {}
                    }
                }
            }
            self.traffic.count(queue.flush());
        }
        self.more = true;
    }

    /// Sends the packets of the machine.
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

    /// Waits for packets, commands or a timer. Returns whether there are commands.
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

    /// Executes commands of the control thread. Returns false after [`Command::Stop`], or when that thread has ended.
    fn execute(&mut self, commands: &Receiver<Command>) -> bool {
        self.opened.waker.reset();
        for _ in 0..COMMANDS {
            match commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Ok(command) => self.answer(command),
                Err(TryRecvError::Empty) => return true,
            }
        }
        // The others follow after the next packets.
        self.opened.waker.wake();
        true
    }

    /// Answers a command. The control thread may no longer wait for the answer.
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

    fn snapshot(&self) -> Counters {
        let relay = &self.opened.relay;
        let stats = relay.stats();
        let drops = DropReason::ALL.iter();
        let traffic = &self.traffic;
        Counters {
            sessions: relay.sessions().count() as u64,
            children: relay
                .sessions()
                .map(|session| u64::from(session.children))
                .sum(),
            draining: self.leaving != Leaving::No,
            recovery: recovery(stats),
            feedback: named(&[
                ("passed_on", stats.feedback),
                ("suppressed", stats.feedback_suppressed),
            ]),
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

    /// Logs events, within a limit, so that peers cannot fill a disk with log lines.
    fn log_events(&mut self, now: Instant) {
        while let Some(event) = self.opened.relay.poll_event() {
            let (since, lines) = &mut self.logged;
            if now - *since >= Duration::from_secs(1) {
                if *lines > LOG_LINES {
                    let count = *lines - LOG_LINES;
                    tracing::warn!(event = "events_suppressed", count, "events were not logged");
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

/// Logs that a neighbour speaks another version of DyRAM.
#[cold]
fn log_version(peer: SocketAddr, packet: &[u8]) {
    tracing::warn!(
        event = "other_version",
        %peer,
        version = wire::version(packet),
        own_version = wire::VERSION,
        "neighbour speaks another version of DyRAM; install the same release of polycast on both"
    );
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
        Event::Opened(session) => {
            tracing::info!(event = "session_opened", %session, "session opened");
        }
        Event::Closed(session) => {
            tracing::info!(event = "session_closed", %session, "session closed");
        }
        Event::SourceArrived(session, peer) => {
            tracing::info!(event = "source_registered", %session, %peer, "source registered");
        }
        Event::SourceRefused(session, peer) => {
            tracing::warn!(event = "source_refused", %session, %peer, "source refused: another source with this name is served");
        }
        Event::SourceLost(session) => {
            tracing::warn!(event = "source_lost", %session, "source timed out or left");
        }
        Event::Attached(session, peer) => {
            tracing::info!(event = "parent_attached", %session, %peer, "attached to parent");
        }
        Event::ParentLost(session, peer) => {
            tracing::warn!(event = "parent_lost", %session, %peer, "parent timed out or drains");
        }
        Event::Unanswered(session, peer) => {
            tracing::warn!(event = "parent_unanswered", %session, %peer, "no parent answers: is dyram-relay of the same release running there?");
        }
        Event::Refused(session, peer) => {
            tracing::warn!(event = "parent_refused", %session, %peer, "refused by parent");
        }
        Event::Loop(session, relay) => {
            tracing::error!(event = "loop", %session, %relay, "loop: that relay is above and below this one");
        }
        Event::Collision(session, [first, second]) => {
            tracing::warn!(event = "source_collision", %session, first, second, "two sources with this name: the first is served");
        }
        Event::ChildJoined(session, peer) => {
            tracing::debug!(event = "child_joined", %session, %peer, "child joined");
        }
        Event::ChildGone(session, peer) => {
            tracing::debug!(event = "child_gone", %session, %peer, "child left or timed out");
        }
        Event::ChildStalled(session, peer, ack) => {
            tracing::warn!(event = "child_stalled", %session, %peer, acknowledged = ack.0, "child does not advance: the session no longer waits for it");
        }
        Event::ChildRefused(session, peer, full) => {
            tracing::warn!(event = "child_refused", %session, %peer, limit = full.name(), "child refused: a table is full");
        }
    }
}
