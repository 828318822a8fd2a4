//! The streams of one server, their readers and their sources. Data comes from the data node's thread and from sources'
//! connections; the queue of each reader is bounded.

mod init;
mod reader;
mod viewers;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bfed::native::{ChannelId, Direction, FrameClass, NativeError, NativeFlow};
use bfed::wire::data::MAX_PAYLOAD_LEN;
use bfed::{Content, SessionName};
use hyper::body::Bytes;
use linux_net::wake::Waker;
use tokio::sync::Notify;

use super::live::{Join, Live};
use reader::Reader;

pub(super) use viewers::{NoSegments, Viewed};

/// Bytes that wait for the data node before sources are held back.
const MAX_RECEIVED: usize = 1 << 20;

/// Returns the longest frame of a source's data. Bulk frames are as long as packets can be: then channels between gateways move
/// more bytes with each call. Of real-time data more is lost with each frame, and the paper's throughput is flat from 16 KiB on
/// (Figure 11).
pub(super) fn longest_frame(content: Content) -> usize {
    match content {
        Content::Bulk => MAX_PAYLOAD_LEN,
        Content::RealTime => 16 << 10,
    }
}

/// A flow of a session: the session's name, and the flow's number.
pub(super) type Key = (String, usize);

/// What the data node gets of a source.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// A frame, and what its source says of it.
    Data(Bytes, FrameClass),
    /// The initialisation of the container; empty if there is none any more.
    Init(Bytes),
}

impl Item {
    fn len(&self) -> usize {
        match self {
            Item::Data(bytes, _) | Item::Init(bytes) => bytes.len(),
        }
    }
}

/// State shared by the server's thread and the data node's.
pub(super) struct Shared {
    hub: Mutex<Hub>,
    /// Wakes the data node's thread.
    pub(super) waker: Waker,
    /// Notified when sources may send again.
    pub(super) room: Notify,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    received: u64,
    sent: u64,
    dropped: u64,
    cut: u64,
    refused: u64,
    long_inits: u64,
    uncounted: u64,
}

#[derive(Default)]
struct Stream {
    content: Content,
    multi: bool,
    down: Option<ChannelId>,
    up: Option<ChannelId>,
    /// Data has come through `down`: the session was not refused.
    is_live: bool,
    /// Channels to which the data node is subscribed.
    listens: [Option<ChannelId>; 2],
    paused: bool,
    /// The channel that returned `Busy`.
    busy: Option<ChannelId>,
    readers: Vec<u64>,
    sources: usize,
    /// How long the source's frames are worth sending, if it has said so.
    deadline: Option<bfed::Duration>,
    /// What viewers that arrive late get; of a session of one source, without numbered frames.
    live: Option<Live>,
}

impl Stream {
    /// Another source may follow.
    fn restart(&mut self) {
        if let Some(live) = &mut self.live {
            live.restart();
        }
    }

    fn is_idle(&self) -> bool {
        self.down.is_none() && self.up.is_none() && self.readers.is_empty() && self.sources == 0
    }
}

/// The streams.
pub(super) struct Hub {
    streams: BTreeMap<Key, Stream>,
    channels: BTreeMap<ChannelId, Key>,
    readers: BTreeMap<u64, Reader>,
    next: u64,
    received: VecDeque<(ChannelId, Item)>,
    received_bytes: usize,
    writable: VecDeque<ChannelId>,
    bounds: Bounds,
    counts: Counts,
}

/// Bounds of the hub: see [`HttpConfig`](super::HttpConfig).
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) queue: usize,
    pub(super) idle_timeout: Duration,
    pub(super) hls: media::hls::Config,
    pub(super) hls_sessions: usize,
    pub(super) hls_sessions_per_client: usize,
}

/// Why a host cannot be a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoSource {
    /// Another host is the source.
    Taken,
}

impl Shared {
    pub(super) fn new(bounds: Bounds) -> io::Result<Arc<Self>> {
        let hub = Hub {
            streams: BTreeMap::new(),
            channels: BTreeMap::new(),
            readers: BTreeMap::new(),
            next: 0,
            received: VecDeque::new(),
            received_bytes: 0,
            writable: VecDeque::new(),
            bounds,
            counts: Counts::default(),
        };
        Ok(Arc::new(Shared {
            hub: Mutex::new(hub),
            waker: Waker::new()?,
            room: Notify::new(),
        }))
    }

    pub(super) fn hub(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next data for the data node.
    pub(super) fn received(&self) -> Option<(ChannelId, Item)> {
        let mut hub = self.hub();
        let Some((channel, item)) = hub.received.pop_front() else {
            if hub.writable.is_empty() {
                self.waker.reset();
            }
            return None;
        };
        let before = hub.received_bytes;
        hub.received_bytes -= item.len();
        let room = before >= MAX_RECEIVED / 2 && hub.received_bytes < MAX_RECEIVED / 2;
        drop(hub);
        if room {
            self.room.notify_waiters();
        }
        Some((channel, item))
    }

    /// Returns a channel that takes data again.
    pub(super) fn writable(&self) -> Option<ChannelId> {
        let mut hub = self.hub();
        let channel = hub.writable.pop_front();
        if hub.writable.is_empty() && hub.received.is_empty() {
            self.waker.reset();
        }
        channel
    }

    /// Publishes a source's data; waits while queues are full.
    pub(super) async fn publish(&self, key: &Key, data: Bytes) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // From here on no notification is missed.
            room.as_mut().enable();
            if self.hub().publish(key, &data) {
                self.waker.wake();
                return;
            }
            // Repeated, to cut off readers that take nothing.
            let _ = tokio::time::timeout(Duration::from_millis(500), room).await;
        }
    }

    /// Returns the next data of a reader; `None` at the end.
    pub(super) fn poll_reader(&self, id: u64, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut hub = self.hub();
        let Some(reader) = hub.readers.get_mut(&id) else {
            return Poll::Ready(None);
        };
        let Some(data) = reader.queue.pop_front() else {
            if reader.ended {
                return Poll::Ready(None);
            }
            reader.task = Some(context.waker().clone());
            return Poll::Pending;
        };
        reader.bytes -= data.len();
        reader.took = Instant::now();
        let key = reader.stream.clone();
        let (writable, room) = hub.after_read(&key);
        drop(hub);
        if writable {
            self.waker.wake();
        }
        if room {
            self.room.notify_waiters();
        }
        Poll::Ready(Some(data))
    }

    /// Removes a reader.
    pub(super) fn forget_reader(&self, id: u64) {
        let writable = self.hub().forget_reader(id);
        if writable {
            self.waker.wake();
        }
        self.room.notify_waiters();
    }
}

impl Hub {
    /// Adds a channel of a flow.
    pub(super) fn add(&mut self, key: Key, flow: NativeFlow<'_>) -> Result<ChannelId, NativeError> {
        let channel = ChannelId(self.next);
        self.next += 1;
        let stream = self.stream(&key, flow.session);
        let place = match flow.direction {
            Direction::Up => &mut stream.up,
            Direction::Down => &mut stream.down,
        };
        if place.is_some() {
            return Err(NativeError::Refused);
        }
        *place = Some(channel);
        self.channels.insert(channel, key);
        Ok(channel)
    }

    fn stream(&mut self, key: &Key, session: &SessionName) -> &mut Stream {
        let bounds = &self.bounds;
        let new = || Stream {
            content: session.content(),
            multi: session.multi_source(),
            // Frames with numbers are no bytes of a container, whatever is in them.
            live: (!session.multi_source() && !bfed_client::is_numbered(session))
                .then(|| Live::new(bounds.queue / 2, bounds.hls.clone())),
            ..Stream::default()
        };
        self.streams.entry(key.clone()).or_insert_with(new)
    }

    fn of(&mut self, channel: ChannelId) -> Option<&mut Stream> {
        let key = self.channels.get(&channel)?;
        self.streams.get_mut(key)
    }

    /// Returns the flow of a channel.
    pub(super) fn key_of(&self, channel: ChannelId) -> Option<Key> {
        self.channels.get(&channel).cloned()
    }

    /// Returns whether the flow has a channel for data of another network.
    pub(super) fn has_down(&self, key: &Key) -> bool {
        self.streams
            .get(key)
            .is_some_and(|stream| stream.down.is_some())
    }

    /// Returns whether the flow is available here: from a source, or from a gateway's tree.
    pub(super) fn is_here(&self, key: &Key) -> bool {
        let here =
            |stream: &Stream| stream.down.is_some() || stream.up.is_some() || stream.sources > 0;
        self.streams.get(key).is_some_and(here)
    }

    /// Returns whether the control node may still refuse the session: the flow has a channel for data of another
    /// network, allocated while the tree is joined, and nothing has come through it.
    pub(super) fn may_be_refused(&self, key: &Key) -> bool {
        let pending = |stream: &Stream| stream.down.is_some() && !stream.is_live;
        self.streams.get(key).is_some_and(pending)
    }

    /// Returns the sessions of other networks that have readers here.
    pub(super) fn read_sessions(&self) -> Vec<String> {
        let read = |(_, stream): &(&Key, &Stream)| {
            let recorded = stream.live.as_ref().is_some_and(Live::is_recorded);
            stream.down.is_some() && (recorded || !stream.readers.is_empty())
        };
        let mut names: Vec<String> = self
            .streams
            .iter()
            .filter(read)
            .map(|(key, _)| key.0.clone())
            .collect();
        names.dedup();
        names
    }

    /// Subscribes the data node to sources' data of the channel's flow.
    pub(super) fn listen(&mut self, channel: ChannelId) -> Result<(), NativeError> {
        let stream = self.of(channel).ok_or(NativeError::Refused)?;
        if !stream.listens.contains(&Some(channel)) {
            let free = stream.listens.iter_mut().find(|place| place.is_none());
            *free.ok_or(NativeError::Refused)? = Some(channel);
            self.begin_late(channel);
        }
        Ok(())
    }

    /// Unsubscribes the data node.
    pub(super) fn unsubscribe(&mut self, channel: ChannelId) {
        if let Some(stream) = self.of(channel) {
            let place = stream
                .listens
                .iter_mut()
                .find(|place| **place == Some(channel));
            if let Some(place) = place {
                *place = None;
            }
            stream.paused = false;
        }
    }

    /// Returns whether the data node is subscribed.
    pub(super) fn listens(&mut self, channel: ChannelId) -> bool {
        self.of(channel)
            .is_some_and(|stream| stream.listens.contains(&Some(channel)))
    }

    pub(super) fn set_paused(&mut self, channel: ChannelId, paused: bool) {
        if let Some(stream) = self.of(channel) {
            stream.paused = paused;
        }
    }

    /// Removes a channel; readers of a session of another network get the end.
    pub(super) fn remove(&mut self, channel: ChannelId) {
        self.unsubscribe(channel);
        self.writable.retain(|writable| *writable != channel);
        let Some(key) = self.channels.remove(&channel) else {
            return;
        };
        let mut ends = false;
        if let Some(stream) = self.streams.get_mut(&key) {
            if stream.down == Some(channel) {
                stream.down = None;
                stream.is_live = false;
                stream.restart();
                ends = true;
            }
            if stream.up == Some(channel) {
                stream.up = None;
            }
            stream.busy = stream.busy.filter(|busy| *busy != channel);
        }
        self.received.retain(|(of, _)| *of != channel);
        self.received_bytes = self.received.iter().map(|(_, item)| item.len()).sum();
        if ends {
            self.end_readers(&key);
        }
        self.remove_if_idle(&key);
    }

    /// Ends the flow for its readers after their queues, unless it has another channel or source.
    fn end_readers(&mut self, key: &Key) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        if stream.down.is_some() || stream.sources > 0 {
            return;
        }
        for id in stream.readers.clone() {
            if let Some(reader) = self.readers.get_mut(&id) {
                reader.ended = true;
                reader.wake();
            }
        }
    }

    fn remove_if_idle(&mut self, key: &Key) {
        if self.streams.get(key).is_some_and(Stream::is_idle) {
            self.streams.remove(key);
        }
    }

    /// Adds a reader. `cut` ends its connection.
    pub(super) fn add_reader(&mut self, key: &Key, session: &SessionName, cut: Arc<Notify>) -> u64 {
        let id = self.next;
        self.next += 1;
        let stream = self.stream(key, session);
        stream.readers.push(id);
        let mut reader = Reader::new(key.clone(), cut);
        match stream.live.as_ref().map(Live::join) {
            Some(Join::Now(pieces)) => pieces.into_iter().for_each(|piece| reader.push(piece)),
            Some(Join::Wait) => reader.waits = true,
            None => {}
        }
        self.readers.insert(id, reader);
        id
    }

    fn forget_reader(&mut self, id: u64) -> bool {
        let Some(reader) = self.readers.remove(&id) else {
            return false;
        };
        if let Some(stream) = self.streams.get_mut(&reader.stream) {
            stream.readers.retain(|other| *other != id);
        }
        let (writable, _) = self.after_read(&reader.stream);
        self.remove_if_idle(&reader.stream);
        writable
    }

    /// Adds a source.
    pub(super) fn add_source(
        &mut self,
        key: &Key,
        session: &SessionName,
        deadline: Option<bfed::Duration>,
    ) -> Result<(), NoSource> {
        let stream = self.stream(key, session);
        if stream.sources > 0 && !stream.multi {
            self.counts.refused += 1;
            return Err(NoSource::Taken);
        }
        if stream.sources == 0 {
            stream.restart();
        }
        stream.sources += 1;
        stream.deadline = deadline;
        self.queue_init(key);
        Ok(())
    }

    /// Removes a source; after the last one readers get the end.
    pub(super) fn forget_source(&mut self, key: &Key) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        stream.sources = stream.sources.saturating_sub(1);
        self.end_readers(key);
        self.remove_if_idle(key);
    }

    /// Handles that readers of the flow have taken data. Returns whether a channel became writable, and whether sources
    /// may send.
    fn after_read(&mut self, key: &Key) -> (bool, bool) {
        let (queue, readers) = (self.bounds.queue, &self.readers);
        let Some(stream) = self.streams.get_mut(key) else {
            return (false, false);
        };
        let waits = |id: &u64| {
            readers
                .get(id)
                .is_some_and(|reader| reader.bytes > queue / 2)
        };
        if stream.readers.iter().any(waits) {
            return (false, false);
        }
        match stream.busy.take() {
            Some(channel) => {
                self.writable.push_back(channel);
                (true, true)
            }
            None => (false, stream.sources > 0),
        }
    }

    /// Returns whether the queue of every reader has space. Cuts off readers that take nothing for too long.
    fn has_room(&mut self, key: &Key, len: usize) -> bool {
        let Some(stream) = self.streams.get(key) else {
            return true;
        };
        let mut room = true;
        for id in &stream.readers {
            let Some(reader) = self.readers.get_mut(id) else {
                continue;
            };
            if reader.ended || reader.queue.is_empty() || reader.bytes + len <= self.bounds.queue {
                continue;
            }
            if reader.took.elapsed() < self.bounds.idle_timeout {
                room = false;
                continue;
            }
            reader.cut_off();
            self.counts.cut += 1;
        }
        room
    }

    /// Queues data for all readers of a flow; bulk data only if all have space.
    fn deliver(&mut self, key: &Key, data: &Bytes) -> bool {
        let Some(content) = self.streams.get(key).map(|stream| stream.content) else {
            return true;
        };
        if content == Content::Bulk && !self.has_room(key, data.len()) {
            return false;
        }
        let Some(stream) = self.streams.get_mut(key) else {
            return true;
        };
        let live = stream.live.as_mut();
        let (begins, started) = live.map_or((false, false), |live| {
            (live.begins_with(data), live.push(data))
        });
        for id in &stream.readers {
            let Some(reader) = self.readers.get_mut(id).filter(|reader| !reader.ended) else {
                continue;
            };
            reader.waits &= !(begins && reader.is_fresh);
            if reader.waits {
                let joined = stream.live.as_ref().filter(|_| started).map(Live::join);
                if let Some(Join::Now(pieces)) = joined {
                    reader.waits = false;
                    pieces.into_iter().for_each(|piece| reader.push(piece));
                }
                continue;
            }
            let is_full = |reader: &Reader| reader.bytes + data.len() > self.bounds.queue;
            while content == Content::RealTime && is_full(reader) && reader.drop_oldest() {
                self.counts.dropped += 1;
            }
            reader.push(data.clone());
        }
        self.counts.sent += 1;
        true
    }

    /// Sends data of the data node.
    pub(super) fn send(&mut self, channel: ChannelId, data: &[u8]) -> Result<(), NativeError> {
        let key = self
            .channels
            .get(&channel)
            .cloned()
            .ok_or(NativeError::Refused)?;
        let Some(stream) = self.streams.get_mut(&key) else {
            return Ok(());
        };
        stream.is_live = true;
        let is_kept = stream.live.as_ref().is_some_and(|live| !live.is_unknown());
        if (stream.readers.is_empty() && !is_kept) || data.is_empty() {
            return Ok(());
        }
        if self.deliver(&key, &Bytes::copy_from_slice(data)) {
            return Ok(());
        }
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.busy = Some(channel);
        }
        Err(NativeError::Busy)
    }

    /// Publishes data of a source; returns `false` if queues are full.
    fn publish(&mut self, key: &Key, data: &Bytes) -> bool {
        let Some(stream) = self.streams.get(key) else {
            return true;
        };
        let listens: Vec<ChannelId> = stream.listens.iter().flatten().copied().collect();
        let full = self.received_bytes + data.len() > MAX_RECEIVED && !self.received.is_empty();
        let held = !listens.is_empty() && (stream.paused || full);
        if held || !self.deliver(key, data) {
            return false;
        }
        self.queue_init(key);
        let class = self.class_of(key);
        for channel in listens {
            self.queue(channel, Item::Data(data.clone(), class));
        }
        self.counts.received += 1;
        true
    }
}
