//! A data node: what its control node tells it (§5.3.1, §5.3.2), and its plane.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::SocketAddr;
use core::ops::Bound;

use proto_core::time::{Duration, Instant};

use super::books::Books;
use super::{DataError, Destination, EdgeId, Plane, PlaneConfig};
use crate::name::SessionName;
use crate::native::NativeNet;
use crate::types::{ConnId, NodeId};
use crate::wire::allocate::{Outcome, Response};
use crate::wire::join::FlowChannel;
use crate::wire::node::{Heartbeat, Register};
use crate::wire::reclaim::{ReclaimTarget, Repr as Reclaim};
use crate::wire::statistics::{Entry, MAX_ENTRIES, Repr as Statistics};
use crate::wire::subscribe::Repr as Subscribe;
use crate::wire::{MAX_MESSAGE_LEN, Message};

/// TCP channels that are asked for between two calls of `handle_timeout`: calls take the driver time, and
/// heartbeats must not wait for thousands of them.
const DIALS: usize = 64;
/// Sessions that are released in one call of `handle_timeout`.
const RELEASES: usize = 256;
/// A TCP channel that held so long has not failed.
const HELD: Duration = Duration::from_secs(10);
/// Doublings of the second after which a TCP channel that failed is asked for again.
const MAX_BACKOFF: u8 = 4;

/// Heartbeats of the control node that may be missing before it is held lost.
const MISSED: u32 = 4;

/// A data node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataConfig {
    /// Which of its gateway's data nodes it is.
    pub node: NodeId,
    /// Where peers reach its UDP socket; `None` if it carries no real-time sessions between gateways.
    pub datagram: Option<SocketAddr>,
    /// Where peers reach its TCP listener; `None` if it carries no bulk sessions between gateways.
    pub stream: Option<SocketAddr>,
    /// Most sessions; one more is answered by "full".
    pub max_sessions: u32,
    /// How long a session lives that control does not refresh, while control is there.
    pub soft_state_lifetime: Duration,
    /// Time between heartbeats.
    pub heartbeat_interval: Duration,
    /// Time between statistics.
    pub statistics_interval: Duration,
    /// Answers that wait for the control node; one more ends the stream.
    pub max_queue: usize,
    /// Bounds of the plane.
    pub plane: PlaneConfig,
}

impl DataConfig {
    /// What is usual.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        DataConfig {
            node,
            datagram: None,
            stream: None,
            max_sessions: 10_000,
            soft_state_lifetime: Duration::from_secs(105),
            heartbeat_interval: Duration::from_millis(250),
            statistics_interval: Duration::from_secs(1),
            max_queue: 32_768,
            plane: PlaneConfig::default(),
        }
    }
}

/// What a data node tells its driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataEvent {
    /// Open a TCP channel to that address; then `dialled`, or `dial_failed`.
    Dial {
        /// For which edge.
        edge: EdgeId,
        /// Where to.
        to: SocketAddr,
    },
    /// The TCP channel is of no more use.
    Close(ConnId),
    /// Read no more from there: who gets it cannot keep up.
    Pause(Destination),
    /// Read on.
    Resume(Destination),
    /// Nothing is heard of the control node: close the stream, and open another to it or to its
    /// successor. Forwarding goes on.
    ControlLost,
}

/// The search for sessions that control has forgotten: once for each stream to it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Release {
    /// Control has not said yet that it knows all.
    Unknown,
    /// It goes on after that session.
    After(Option<SessionName>),
    Done,
}

/// A data node.
#[derive(Debug)]
pub struct DataNode {
    config: DataConfig,
    boot: u32,
    plane: Plane,
    sessions: BTreeMap<SessionName, Books>,
    /// The highest epoch of a control node that was obeyed.
    epoch: u64,
    connected: bool,
    draining: bool,
    heard_at: Instant,
    heartbeat_at: Instant,
    statistics_at: Instant,
    sequence: u32,
    /// Where the statistics of sessions go on.
    last_told: Option<SessionName>,
    told_bytes: u64,
    expire_at: Instant,
    queue: VecDeque<Message>,
    /// Channels that could not be dialled, by when to try again.
    redial: BTreeMap<(Instant, EdgeId), SocketAddr>,
    /// Dials that may be asked for until `handle_timeout` is called.
    dials: usize,
    /// Streams to control so far.
    stream: u32,
    /// The search for sessions that control has forgotten.
    release: Release,
}

impl DataNode {
    /// Before it has a control node.
    #[must_use]
    pub fn new(config: DataConfig, seed: [u8; 32], now: Instant) -> Self {
        let mut plane = Plane::new(config.plane, seed, now);
        DataNode {
            boot: plane.new_label().get(),
            plane,
            config,
            sessions: BTreeMap::new(),
            epoch: 0,
            connected: false,
            draining: false,
            heard_at: now,
            heartbeat_at: now,
            statistics_at: now,
            sequence: 0,
            last_told: None,
            told_bytes: 0,
            expire_at: now + config.soft_state_lifetime,
            queue: VecDeque::new(),
            redial: BTreeMap::new(),
            dials: DIALS,
            stream: 0,
            release: Release::Unknown,
        }
    }

    /// The plane, to forward with.
    #[inline]
    pub fn plane(&mut self) -> &mut Plane {
        &mut self.plane
    }

    /// Returns whether the control node announced data nodes at that address: sessions come from there or
    /// go there.
    #[must_use]
    pub fn is_neighbour(&self, address: core::net::IpAddr) -> bool {
        self.plane.watch.is_neighbour(address)
    }

    /// How many sessions it carries.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// A stream to the control node is there. Sessions have their full lifetime before them.
    pub fn connected(&mut self, now: Instant) {
        self.connected = true;
        self.stream = self.stream.wrapping_add(1);
        self.release = Release::Unknown;
        self.queue.clear();
        let (node, boot, epoch) = (self.config.node, self.boot, self.epoch);
        let max_sessions = self.config.max_sessions;
        self.queue.push_back(Message::Register(Register {
            node,
            boot,
            max_sessions,
            epoch,
        }));
        (self.heard_at, self.heartbeat_at, self.statistics_at) = (now, now, now);
        self.last_told = None;
        self.plane.watch.tell_again();
        let expires = now + self.config.soft_state_lifetime;
        self.sessions
            .values_mut()
            .for_each(|books| books.expires = expires);
        self.expire_at = expires;
    }

    /// Returns whether the machine takes the stream to the control node for alive.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// It has ended. Everything goes on as it was.
    pub fn disconnected(&mut self) {
        self.connected = false;
        self.release = Release::Unknown;
        self.queue.clear();
    }

    /// This node wants to have no more sessions: control moves those that it has.
    pub fn drain(&mut self, now: Instant) {
        self.draining = true;
        self.heartbeat_at = now;
    }

    /// A TCP channel that [`DataEvent::Dial`] asked for is there. `false`: it is of no use any more.
    pub fn dialled(&mut self, edge: EdgeId, conn: ConnId) -> bool {
        let fits = self.plane.set_stream(edge, conn);
        let now = self.plane.now;
        if let Some(edge) = self.plane.edge_mut(edge).filter(|_| fits) {
            edge.rest.dialled_at = Some(now);
        }
        if fits {
            self.plane.attach.push_back(edge);
        }
        fits
    }

    /// It cannot be opened, or has ended: another is asked for in a second, while it is of use; after the
    /// second time in two seconds and so on, up to 16, until one has held for ten seconds.
    pub fn dial_failed(&mut self, now: Instant, edge: EdgeId, to: SocketAddr) {
        let Some(state) = self.plane.edge_mut(edge) else {
            return;
        };
        let rest = &mut state.rest;
        if rest.dialled_at.take().is_some_and(|at| at + HELD <= now) {
            rest.fails = 0;
        }
        let doublings = rest.fails.saturating_sub(1).min(MAX_BACKOFF);
        rest.fails = rest.fails.saturating_add(1);
        let at = now + Duration::from_secs(1 << doublings);
        self.redial.insert((at, edge), to);
    }

    /// A TCP channel has ended.
    pub fn stream_ended(&mut self, now: Instant, conn: ConnId) {
        let edge = self.plane.stream_ended(conn);
        if let Some((id, edge)) = edge.and_then(|id| Some((id, self.plane.edge(id)?)))
            && edge.up
            && let Some(to) = edge.rest.remote
        {
            self.dial_failed(now, id, to);
        }
    }

    /// One whole message of the control node.
    ///
    /// # Errors
    /// It did nothing; the reason was counted.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        native: &mut dyn NativeNet,
        message: &[u8],
    ) -> Result<(), DataError> {
        let result = self.heard(now, native, message);
        if let Err(reason) = result {
            self.plane.stats.drop(reason, 1);
        }
        result
    }

    fn heard(
        &mut self,
        now: Instant,
        native: &mut dyn NativeNet,
        message: &[u8],
    ) -> Result<(), DataError> {
        self.plane.now = now;
        let message = Message::parse(message).map_err(|_| DataError::BadControl)?;
        let epoch = match &message {
            Message::Heartbeat(heartbeat) => heartbeat.epoch,
            Message::Allocate(ask) => ask.epoch,
            Message::Subscribe(ask) => ask.epoch,
            Message::Reclaim(gone) => gone.epoch,
            Message::Notification(_) => return Ok(()),
            _ => return Err(DataError::BadControl),
        };
        if epoch < self.epoch {
            return Err(DataError::Fenced);
        }
        self.epoch = epoch;
        self.heard_at = now;
        match message {
            Message::Heartbeat(heartbeat)
                if heartbeat.complete && self.release == Release::Unknown =>
            {
                self.release = Release::After(None);
            }
            Message::Allocate(ask) => {
                let config = self.config;
                let done = self.with(now, &ask.session, |books, plane| {
                    books.allocate(&config, plane, ask.edge)
                });
                self.respond(ask.request, ask.session, done);
            }
            Message::Subscribe(ask) => self.subscribe(now, native, ask),
            Message::Reclaim(gone) => self.reclaim(now, native, gone),
            _ => {}
        }
        Ok(())
    }

    /// Does something for a session, which begins with it unless the node is full.
    fn with<T>(
        &mut self,
        now: Instant,
        session: &SessionName,
        what: impl FnOnce(&mut Books, &mut Plane) -> Result<T, Outcome>,
    ) -> Result<T, Outcome> {
        let expires = now + self.config.soft_state_lifetime;
        if !self.sessions.contains_key(session) {
            if self.sessions.len() >= self.config.max_sessions as usize {
                return Err(Outcome::Full);
            }
            let books = Books::new(session, &mut self.plane, expires);
            self.sessions.insert(session.clone(), books);
        }
        let books = self.sessions.get_mut(session).ok_or(Outcome::Full)?;
        (books.expires, books.stream) = (expires, self.stream);
        what(books, &mut self.plane)
    }

    fn subscribe(&mut self, now: Instant, native: &mut dyn NativeNet, ask: Subscribe) {
        let Subscribe {
            up,
            request,
            edge,
            flows,
            session,
            ..
        } = ask;
        let config = self.config;
        let done = self.with(now, &session, |books, plane| {
            if up {
                books
                    .set_source(now, plane, native, edge, flows)
                    .map(|()| alloc::vec::Vec::new())
            } else {
                books.add_receiver(now, &config, plane, native, edge, flows)
            }
        });
        self.respond(request, session, done);
    }

    fn respond(
        &mut self,
        request: u32,
        session: SessionName,
        done: Result<alloc::vec::Vec<FlowChannel>, Outcome>,
    ) {
        let (outcome, flows) = match done {
            Ok(flows) => (Outcome::Done, flows),
            Err(outcome) => (outcome, alloc::vec::Vec::new()),
        };
        self.tell(Message::AllocateResponse(Response {
            request,
            outcome,
            flows,
            session,
        }));
    }

    fn tell(&mut self, message: Message) {
        if self.queue.len() >= self.config.max_queue {
            self.queue.clear();
            self.connected = false;
            self.plane.events.push_back(DataEvent::ControlLost);
        }
        if self.connected {
            self.queue.push_back(message);
        }
    }

    fn reclaim(&mut self, now: Instant, native: &mut dyn NativeNet, gone: Reclaim) {
        let plane = &mut self.plane;
        let Some(books) = self.sessions.get_mut(&gone.session) else {
            return;
        };
        match gone.what {
            None => {
                books.expires = now + self.config.soft_state_lifetime;
                books.stream = self.stream;
                books.refresh(now, native);
            }
            Some(ReclaimTarget::Receiver(link)) => books.drop_receiver(now, plane, native, link),
            Some(ReclaimTarget::Source(link)) => books.forget_source(now, plane, native, link),
            Some(ReclaimTarget::All) => {
                if let Some(books) = self.sessions.remove(&gone.session) {
                    books.close(now, plane, native);
                }
            }
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant, native: &mut dyn NativeNet) {
        self.plane.handle_timeout(now);
        let interval = self.config.heartbeat_interval;
        self.plane.look_around(now, interval);
        self.control_timeout(now, native);
        self.dials = DIALS;
        while self.plane.dials.len() < DIALS
            && let Some(first) = self.redial.first_entry().filter(|one| one.key().0 <= now)
        {
            let ((_, edge), to) = first.remove_entry();
            self.plane.dials.push_back((edge, to));
        }
    }

    /// What control is to hear in time, before anything that takes long.
    fn control_timeout(&mut self, now: Instant, native: &mut dyn NativeNet) {
        if !self.connected {
            return;
        }
        if self.heard_at + self.config.heartbeat_interval * MISSED <= now {
            self.disconnected();
            self.plane.events.push_back(DataEvent::ControlLost);
            return;
        }
        for news in self.plane.watch.news() {
            self.tell(Message::Liveness(news));
        }
        if self.heartbeat_at <= now {
            self.heartbeat_at = now + self.config.heartbeat_interval;
            self.sequence = self.sequence.wrapping_add(1);
            let (epoch, sequence, draining) = (self.epoch, self.sequence, self.draining);
            self.tell(Message::Heartbeat(Heartbeat {
                epoch,
                sequence,
                draining,
                complete: false,
            }));
        }
        if self.statistics_at <= now {
            self.statistics_at = now + self.config.statistics_interval;
            self.tell_statistics();
        }
        if self.expire_at <= now {
            self.expire(now, native);
        }
        self.release(now, native);
    }

    /// Releases sessions that control neither asked for nor refreshed since its stream began, some each time.
    fn release(&mut self, now: Instant, native: &mut dyn NativeNet) {
        let Release::After(after) = &self.release else {
            return;
        };
        let from = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Unbounded,
        };
        let rest = self
            .sessions
            .range::<SessionName, _>((from, Bound::Unbounded));
        let looked: alloc::vec::Vec<_> = rest
            .take(RELEASES)
            .map(|(name, books)| (name.clone(), books.stream == self.stream))
            .collect();
        self.release = match looked.last() {
            Some((last, _)) if looked.len() == RELEASES => Release::After(Some(last.clone())),
            _ => Release::Done,
        };
        for (name, _) in looked.into_iter().filter(|(_, known)| !known) {
            if let Some(books) = self.sessions.remove(&name) {
                books.close(now, &mut self.plane, native);
            }
        }
    }

    /// A dozen sessions each time: over time all of them.
    fn tell_statistics(&mut self) {
        let bytes = self.plane.stats.copied_bytes;
        let millis = self.config.statistics_interval.total_millis().max(1);
        let rate_bps = (bytes - self.told_bytes).saturating_mul(8000) / millis;
        self.told_bytes = bytes;
        let plane = &self.plane;
        let entry = |(name, books): (&SessionName, &Books)| {
            let counts = books.flows.iter().map(|&flow| plane.counts(flow));
            counts.fold(
                Entry {
                    packets: 0,
                    bytes: 0,
                    copies: 0,
                    dropped: 0,
                    session: name.clone(),
                },
                |sum, one| Entry {
                    packets: sum.packets + one.packets,
                    bytes: sum.bytes + one.bytes,
                    copies: sum.copies + one.copies,
                    dropped: sum.dropped + one.dropped,
                    ..sum
                },
            )
        };
        let entries: alloc::vec::Vec<_> = match &self.last_told {
            Some(last) => {
                let rest = (
                    core::ops::Bound::Excluded(last),
                    core::ops::Bound::Unbounded,
                );
                self.sessions
                    .range(rest)
                    .take(MAX_ENTRIES)
                    .map(entry)
                    .collect()
            }
            None => self.sessions.iter().take(MAX_ENTRIES).map(entry).collect(),
        };
        let whole = entries.len() == MAX_ENTRIES;
        self.last_told = entries
            .last()
            .filter(|_| whole)
            .map(|entry| entry.session.clone());
        let sessions = self.sessions.len() as u32;
        self.tell(Message::Statistics(Statistics {
            sessions,
            rate_bps,
            entries,
        }));
    }

    /// Sessions that control has forgotten go.
    fn expire(&mut self, now: Instant, native: &mut dyn NativeNet) {
        let late = self
            .sessions
            .iter()
            .filter(|(_, books)| books.expires <= now);
        let late: alloc::vec::Vec<_> = late.map(|(name, _)| name.clone()).collect();
        for name in late {
            if let Some(books) = self.sessions.remove(&name) {
                books.close(now, &mut self.plane, native);
            }
        }
        let next = self.sessions.values().map(|books| books.expires).min();
        self.expire_at = next.unwrap_or(now + self.config.soft_state_lifetime);
    }

    /// Writes the next message to the control node into `buffer`, which has room for
    /// [`MAX_MESSAGE_LEN`] bytes; its length. Drain until `None`.
    ///
    /// # Panics
    /// `buffer` is shorter than that.
    pub fn poll_transmit_control(&mut self, buffer: &mut [u8]) -> Option<usize> {
        assert!(buffer.len() >= MAX_MESSAGE_LEN, "room for a whole message");
        self.queue.pop_front().map(|message| message.emit(buffer))
    }

    /// What the driver has to do; drain until `None`.
    pub fn poll_event(&mut self) -> Option<DataEvent> {
        let event = self.plane.events.pop_front();
        event.or_else(|| {
            while self.dials > 0
                && let Some((edge, to)) = self.plane.dials.pop_front()
            {
                if self.plane.edge(edge).is_some() {
                    self.dials -= 1;
                    return Some(DataEvent::Dial { edge, to });
                }
            }
            None
        })
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); at once while there are events: what was
    /// handed out last may have made some.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let lost = self.heard_at + self.config.heartbeat_interval * MISSED;
        let control = [self.heartbeat_at, self.statistics_at, self.expire_at, lost];
        let control = control.into_iter().min().filter(|_| self.connected);
        let redial = self.redial.first_key_value().map(|((at, _), _)| *at);
        let now = self.plane.now;
        let works = !self.plane.dials.is_empty() || matches!(self.release, Release::After(_));
        let redial = if works { Some(now) } else { redial };
        let watch = self.plane.watch.poll_timeout();
        [self.plane.poll_timeout(), control, redial, watch]
            .into_iter()
            .flatten()
            .min()
    }
}
