//! The channels of a data node, and the connection that carries them.
//!
//! Channels outlive connections: a client that connects again gets all of them again, with `resumed`. Meanwhile bulk
//! sessions wait, until the data plane cuts them off, and real-time data is dropped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bfed::native::{ChannelId, Direction, NativeError, NativeFlow, Upcall};
use bfed::wire::data::HEADER_LEN;
use bfed::{Content, Instant, NativeNet, SessionName};

use crate::frame::Type;
use crate::lent::Lent;
use crate::link::{Closed, Limits, Link};
use crate::message::{ClientMessage, Flow, Greeting, Reclaimed};
use crate::queue::OVERHEAD;

/// Most bytes of data for paused channels that are kept before the socket is no longer read.
pub const MAX_HELD: usize = 1 << 20;

#[derive(Debug)]
struct Channel {
    session: SessionName,
    flow: String,
    /// The lent address of a session from elsewhere.
    address: Option<String>,
    /// Where the client gets the flow from, if it is subscribed: another gateway's address, or the session's own.
    subscribed: Option<Option<String>>,
    paused: bool,
    /// Data that came while it was paused.
    held: VecDeque<Vec<u8>>,
}

impl Channel {
    fn flow(&self) -> NativeFlow<'_> {
        NativeFlow::new(&self.session, &self.flow, Direction::Up)
    }

    /// Tells the client all of it.
    fn announce(&self, link: &mut Link, id: u64, resumed: bool) {
        if let Some(address) = &self.address {
            let body = Flow::new(self.flow(), Some(address), resumed);
            link.send(Type::Present, id, &body);
        }
        if let Some(from) = &self.subscribed {
            let body = Flow::new(self.flow(), from.as_deref(), resumed);
            link.send(Type::Subscribe, id, &body);
        }
        if self.paused {
            link.send_empty(Type::Pause, id);
        }
    }
}

/// Memory of data that waits.
fn cost(bytes: &[u8]) -> usize {
    bytes.len() + OVERHEAD
}

/// Counters.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Counts {
    received: u64,
    sent: u64,
    dropped: u64,
    unknown_channel: u64,
    not_subscribed: u64,
    addresses_refused: u64,
}

/// The side of a data node.
#[derive(Debug)]
pub struct Channels {
    greeting: Greeting,
    limits: Limits,
    link: Option<Link>,
    /// Channels from this one on are not announced to the new client yet.
    unannounced: Option<u64>,
    channels: BTreeMap<u64, Channel>,
    /// Number of the last channel. Numbers are not used again, so late data reaches no other session.
    last: u64,
    lent: Lent,
    /// Data that had to wait and may go on.
    ready: VecDeque<(u64, Vec<u8>)>,
    /// Memory of `ready` and of what all channels hold.
    held_bytes: usize,
    /// Bulk channels that had no room.
    busy: BTreeSet<u64>,
    writable: VecDeque<ChannelId>,
    counts: Counts,
}

impl Channels {
    /// Creates it without a connection.
    #[must_use]
    pub fn new(greeting: Greeting, limits: Limits) -> Self {
        Channels {
            greeting,
            limits,
            link: None,
            unannounced: None,
            channels: BTreeMap::new(),
            last: 0,
            lent: Lent::default(),
            ready: VecDeque::new(),
            held_bytes: 0,
            busy: BTreeSet::new(),
            writable: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// A client has connected, and the one before has not.
    pub fn connected(&mut self, now: Instant) {
        self.link = Some(Link::new(now, &self.greeting));
        self.unannounced = (!self.channels.is_empty()).then_some(0);
    }

    /// The connection is closed.
    pub fn disconnected(&mut self) {
        self.link = None;
        self.lent.forget_free();
    }

    /// Returns the connection.
    #[must_use]
    pub fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// Returns the connection, to drive it.
    pub fn link_mut(&mut self) -> Option<&mut Link> {
        self.link.as_mut()
    }

    /// Returns whether a client is there that has greeted.
    fn greeted(&mut self) -> Option<&mut Link> {
        self.link.as_mut().filter(|link| link.client().is_some())
    }

    /// Returns the connection, if the client knows the channel.
    fn link_of(&mut self, id: u64) -> Option<&mut Link> {
        let known = self.unannounced.is_none_or(|from| id < from);
        self.greeted().filter(|_| known)
    }

    /// Announces channels to a new client, a few at a time. Call it before output is written.
    pub fn announce(&mut self) {
        while let Some(from) = self.unannounced
            && let Some(link) = self.link.as_mut().filter(|link| link.client().is_some())
            && link.output.is_short()
        {
            let next = self.channels.range(from..).next();
            if let Some((&id, channel)) = next {
                channel.announce(link, id, true);
                self.unannounced = Some(id + 1);
            } else {
                self.unannounced = None;
            }
        }
        if self.unannounced.is_none() {
            self.wake_writers();
        }
    }

    fn wake_writers(&mut self) {
        let takes = self.greeted().is_some_and(|link| link.output.takes_bulk());
        if takes {
            let busy = std::mem::take(&mut self.busy);
            self.writable.extend(busy.into_iter().map(ChannelId));
        }
    }

    /// Returns a channel that takes data again; drain until `None`.
    pub fn poll_writable(&mut self) -> Option<ChannelId> {
        self.writable.pop_front()
    }

    /// Returns whether [`poll_writable`](Self::poll_writable) or `poll_upcall` return something without input.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.writable.is_empty() || !self.ready.is_empty()
    }

    /// Pauses a channel, or resumes it.
    pub fn set_paused(&mut self, now: Instant, channel: ChannelId, paused: bool) {
        let id = channel.0;
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut channel.paused, paused) == paused {
            return;
        }
        if !paused {
            let held = channel.held.drain(..).map(|bytes| (id, bytes));
            self.ready.extend(held);
        }
        let kind = if paused { Type::Pause } else { Type::Resume };
        if let Some(link) = self.link_of(id) {
            link.send_empty(kind, id);
        }
        self.update_stall(now);
    }

    fn update_stall(&mut self, now: Instant) {
        let stalled = self.held_bytes >= MAX_HELD;
        if let Some(link) = &mut self.link {
            link.set_stalled(now, stalled);
        }
    }

    /// Passes data on that had to wait.
    fn poll_ready(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Upcall> {
        while let Some((id, bytes)) = self.ready.pop_front() {
            match self.channels.get_mut(&id) {
                Some(channel) if channel.paused => channel.held.push_back(bytes),
                Some(_) => {
                    self.held_bytes -= cost(&bytes);
                    self.update_stall(now);
                    return Some(deliver(id, &bytes, buffer));
                }
                None => self.held_bytes -= cost(&bytes),
            }
        }
        self.update_stall(now);
        None
    }

    /// Handles what came, until there is data for the data plane.
    ///
    /// # Errors
    /// The connection must be closed.
    pub fn poll_data(&mut self, now: Instant, buffer: &mut [u8]) -> Result<Option<Upcall>, Closed> {
        if let Some(upcall) = self.poll_ready(now, buffer) {
            return Ok(Some(upcall));
        }
        loop {
            let Some(link) = &mut self.link else {
                return Ok(None);
            };
            let Some(message) = link.next_message()? else {
                return Ok(None);
            };
            let (id, bytes) = match message {
                ClientMessage::Data { channel, bytes } => (channel, bytes),
                ClientMessage::Lend(addresses) => {
                    let added = addresses.into_iter().map(|address| self.lent.add(address));
                    let refused = added.filter(|added| !added).count();
                    self.counts.addresses_refused += refused as u64;
                    continue;
                }
                _ => continue,
            };
            match self.channels.get_mut(&id) {
                None => self.counts.unknown_channel += 1,
                Some(channel) if channel.subscribed.is_none() => self.counts.not_subscribed += 1,
                Some(_) if bytes.is_empty() => {}
                Some(channel) if channel.paused => {
                    self.counts.received += 1;
                    self.held_bytes += cost(bytes);
                    channel.held.push_back(bytes.to_vec());
                    self.update_stall(now);
                }
                Some(_) => {
                    self.counts.received += 1;
                    return Ok(Some(deliver(id, bytes, buffer)));
                }
            }
        }
    }

    /// Returns the sessions from elsewhere: their names, those of the flows, and the addresses.
    pub fn presented(&self) -> impl Iterator<Item = (&SessionName, &str, &str)> {
        self.channels.values().filter_map(|channel| {
            let address = channel.address.as_deref()?;
            Some((&channel.session, channel.flow.as_str(), address))
        })
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> [(&'static str, u64); 6] {
        let counts = &self.counts;
        [
            ("frames_received", counts.received),
            ("frames_sent", counts.sent),
            ("frames_dropped", counts.dropped),
            ("frames_unknown_channel", counts.unknown_channel),
            ("frames_not_subscribed", counts.not_subscribed),
            ("addresses_refused", counts.addresses_refused),
        ]
    }

    /// Returns values that go up and down.
    #[must_use]
    pub fn gauges(&self) -> [(&'static str, u64); 3] {
        let connected = self
            .link
            .as_ref()
            .is_some_and(|link| link.client().is_some());
        [
            ("channels", self.channels.len() as u64),
            ("addresses_free", self.lent.free() as u64),
            ("clients_connected", u64::from(connected)),
        ]
    }
}

fn deliver(id: u64, bytes: &[u8], buffer: &mut [u8]) -> Upcall {
    buffer[HEADER_LEN..HEADER_LEN + bytes.len()].copy_from_slice(bytes);
    let (channel, len) = (ChannelId(id), bytes.len());
    Upcall::Data { channel, len }
}

impl NativeNet for Channels {
    /// Fails with [`NativeError::Full`] where no client is connected, or it has lent no address.
    fn allocate_channel(
        &mut self,
        _: Instant,
        flow: NativeFlow<'_>,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        if self.greeted().is_none() {
            return Err(NativeError::Full);
        }
        let address = match flow.direction {
            Direction::Up => None,
            Direction::Down => Some(self.lent.take().ok_or(NativeError::Full)?),
        };
        self.last += 1;
        let id = self.last;
        let bytes = address.clone().unwrap_or_default().into_bytes();
        let channel = Channel {
            session: flow.session.clone(),
            flow: flow.name.to_owned(),
            address,
            subscribed: None,
            paused: false,
            held: VecDeque::new(),
        };
        if let Some(link) = self.link_of(id) {
            channel.announce(link, id, false);
        }
        self.channels.insert(id, channel);
        Ok((ChannelId(id), bytes))
    }

    fn subscribe(
        &mut self,
        _: Instant,
        flow: NativeFlow<'_>,
        channel: ChannelId,
        address: Option<&[u8]>,
    ) -> Result<(), NativeError> {
        let id = channel.0;
        let from = match address.map(core::str::from_utf8) {
            Some(Ok(text)) => Some(text.to_owned()),
            Some(Err(_)) => return Err(NativeError::NoSession),
            None => None,
        };
        let known = self.link_of(id).is_some();
        let channel = self.channels.get_mut(&id).ok_or(NativeError::Refused)?;
        // A session from elsewhere that members of the network send to, too.
        let from = from.or_else(|| channel.address.clone());
        if channel.subscribed.as_ref() != Some(&from)
            && let Some(link) = self.link.as_mut().filter(|_| known)
        {
            let body = Flow::new(flow, from.as_deref(), false);
            link.send(Type::Subscribe, id, &body);
        }
        channel.subscribed = Some(from);
        Ok(())
    }

    fn refresh(&mut self, _: Instant, _: NativeFlow<'_>, channel: ChannelId) {
        // It repeats what the client knows, so it gives way to everything else.
        if let Some(link) = self.link_of(channel.0)
            && link.output.is_short()
        {
            link.send_empty(Type::Refresh, channel.0);
        }
    }

    fn unsubscribe(&mut self, _: Instant, _: NativeFlow<'_>, channel: ChannelId) {
        let id = channel.0;
        let was = self
            .channels
            .get_mut(&id)
            .and_then(|channel| channel.subscribed.take());
        if was.is_some()
            && let Some(link) = self.link_of(id)
        {
            link.send_empty(Type::Unsubscribe, id);
        }
    }

    fn reclaim_channel(&mut self, now: Instant, flow: NativeFlow<'_>, channel: ChannelId) {
        self.unsubscribe(now, flow, channel);
        let id = channel.0;
        let Some(channel) = self.channels.remove(&id) else {
            return;
        };
        self.busy.remove(&id);
        self.writable.retain(|writable| writable.0 != id);
        self.held_bytes -= channel.held.iter().map(|one| cost(one)).sum::<usize>();
        self.update_stall(now);
        if let Some(address) = &channel.address {
            self.lent.give_back(address);
            if let Some(link) = self.link_of(id) {
                link.send(Type::Reclaim, id, &Reclaimed { address });
            }
        }
    }

    /// Bulk data waits ([`NativeError::Busy`]) while the client is not there or has no room, and real-time data is dropped.
    fn send_data(
        &mut self,
        _: Instant,
        channel: ChannelId,
        data: &[u8],
    ) -> Result<(), NativeError> {
        let id = channel.0;
        let channel = self.channels.get(&id).ok_or(NativeError::Refused)?;
        let (content, most) = (channel.session.content(), self.limits.queue);
        if data.is_empty() {
            return Ok(());
        }
        match (content, self.link_of(id)) {
            (Content::Bulk, link) => {
                let taken = link.is_some_and(|link| link.output.push_bulk(id, data));
                if !taken {
                    self.busy.insert(id);
                    return Err(NativeError::Busy);
                }
                // The caller tried again before it was told.
                self.writable.retain(|writable| writable.0 != id);
            }
            (Content::RealTime, Some(link)) => {
                let dropped = link.output.push_real_time(id, data, most);
                self.counts.dropped += dropped;
            }
            (Content::RealTime, None) => {
                self.counts.dropped += 1;
                return Ok(());
            }
        }
        self.counts.sent += 1;
        Ok(())
    }

    /// As [`poll_data`](Channels::poll_data), for drivers that have checked the link.
    fn poll_upcall(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Upcall> {
        self.poll_data(now, buffer).unwrap_or_default()
    }
}
