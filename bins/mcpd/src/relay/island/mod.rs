//! An island of multicast: its head, which links feed, passes blocks on to its members while it still receives.
//!
//! The stream of an island only saves work: what it leaves out, because the head had it before or the members were too slow,
//! members request over their links.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use mcp_control::Manifest;
use mcp_control::wire::island::{Listen, MIN_MEMBERS, Multicast, PREAMBLE_LEN};
use mcp_control::wire::link::{BlockHeader, REQUEST_LEN};
use mcp_control::wire::plan::Carrier;
use mcp_control::wire::relay::{LinkId, LinkState};
use mcp_relay::feeder::Source as _;

use super::links::{Links, may_feed};
use super::shelf::{Next, Shelf};
use crate::data::{Abort, Incoming, Outgoing, Reservation};
use crate::pieces::PIECE;
use crate::worker::Order;

/// Blocks of a stream that may wait for the worker.
const AHEAD: usize = 4;
/// Longest time until the head knows which members multicast reaches.
const REACH: Duration = Duration::from_secs(3);
/// Blocks that were left out, and more than were sent, for which the stream ends: multicast is slow on many
/// wireless links.
const TOO_MANY: u64 = 16;
/// Streams of either direction in one copy: a replaced one ends within [`LOOK`], so without a bound a sender that replaces
/// it again and again would collect threads and sockets.
const MAX_STREAMS: u32 = 16;
/// Interval at which waiting threads look whether they are to stop.
const LOOK: Duration = Duration::from_millis(200);

/// The island that this host is the head of, and the one that it listens to; one each for a copy.
#[derive(Debug)]
pub(crate) struct Islands {
    links: Arc<Links>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    heads: Direction,
    listens: Direction,
}

#[derive(Debug, Default)]
struct Direction {
    current: Option<Abort>,
    /// Streams so far.
    begun: u32,
}

/// A block of a stream. The stream waits while [`AHEAD`] of them are kept.
pub(crate) struct Streamed {
    pub(crate) island: LinkId,
    pub(crate) block: u64,
    pub(crate) bytes: Vec<u8>,
    /// Bytes of blocks that have come over this stream, those of incomplete blocks too.
    pub(crate) arrived: Arc<AtomicU64>,
    stream: Abort,
    /// Dropped with this.
    _kept: mpsc::Sender<()>,
}

impl Streamed {
    /// Ends the stream.
    pub(crate) fn end_stream(&self) {
        self.stream.abort();
    }
}

impl Islands {
    pub(crate) fn new(links: Arc<Links>) -> Islands {
        Islands {
            links,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops listening.
    pub(crate) fn leave(&self) {
        if let Some(stream) = self.lock().listens.current.take() {
            stream.abort();
        }
    }

    /// Ends both streams.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let (heads, listens) = (state.heads.current.take(), state.listens.current.take());
        for stream in [heads, listens].into_iter().flatten() {
            stream.abort();
        }
    }

    /// Registers a stream in place of the one before; `None`, with a report, when the copy is over or has had
    /// [`MAX_STREAMS`].
    fn begin(
        &self,
        island: LinkId,
        direction: impl FnOnce(&mut State) -> &mut Direction,
    ) -> Option<Abort> {
        let mut state = self.lock();
        let closed = state.closed;
        let direction = direction(&mut state);
        if closed || direction.begun == MAX_STREAMS {
            drop(state);
            self.links.report(island, LinkState::Refused);
            return None;
        }
        direction.begun += 1;
        let abort = Abort::default();
        if let Some(before) = direction.current.replace(abort.clone()) {
            before.abort();
        }
        Some(abort)
    }

    /// Listens to the head of an island on this host's address `local`.
    pub(crate) fn listen(
        &self,
        listen: &Listen,
        local: SocketAddr,
        manifest: Arc<Manifest>,
        orders: mpsc::Sender<Order>,
    ) {
        let island = listen.island;
        let Some(abort) = self.begin(island.link, |state| &mut state.listens) else {
            return;
        };
        let start = || -> io::Result<()> {
            let port = Reservation::new(Carrier::Udp, local, island.destination)?;
            let from = SocketAddr::new(listen.head, island.source);
            let mut incoming = Incoming::open(port, from, island.key(), abort.clone())?;
            incoming.expect_group(Some(island.group));
            // Before any of its blocks.
            let _ = orders.send(Order::Listening(island.link));
            let mut listener = Listener {
                island: island.link,
                incoming,
                abort,
                manifest,
                links: Arc::clone(&self.links),
                orders,
                arrived: Arc::default(),
            };
            let thread = std::thread::Builder::new().name("island".to_owned());
            thread.spawn(move || listener.run()).map(|_| ())
        };
        let state = match start() {
            Ok(()) => LinkState::Expected,
            Err(error) => {
                tracing::debug!(event = "island_failed", head = %listen.head, %error, "cannot listen");
                LinkState::Refused
            }
        };
        self.links.report(island.link, state);
    }

    /// Multicasts what this host receives to the members of an island, from its address `local`.
    pub(crate) fn multicast(
        &self,
        multicast: Multicast,
        local: SocketAddr,
        manifest: Arc<Manifest>,
        shelf: Arc<Shelf>,
    ) {
        let island = multicast.island.link;
        let mut members = multicast.members.iter();
        if !members.all(|&member| may_feed(member, self.links.sender())) {
            self.links.report(island, LinkState::Refused);
            return;
        }
        let Some(abort) = self.begin(island, |state| &mut state.heads) else {
            return;
        };
        let links = Arc::clone(&self.links);
        let run = move || {
            let head = Head {
                multicast,
                manifest,
                shelf,
                abort,
            };
            let state = match head.run(local) {
                Ok(()) => LinkState::Closed,
                Err(error) => {
                    tracing::debug!(event = "island_failed", %error, "stopped multicasting");
                    LinkState::Unreachable
                }
            };
            links.report(island, state);
        };
        let thread = std::thread::Builder::new().name("island".to_owned());
        if thread.spawn(run).is_err() {
            self.links.report(island, LinkState::Refused);
        }
    }
}

/// The receiving end of an island's stream.
struct Listener {
    island: LinkId,
    incoming: Incoming,
    abort: Abort,
    manifest: Arc<Manifest>,
    links: Arc<Links>,
    orders: mpsc::Sender<Order>,
    arrived: Arc<AtomicU64>,
}

impl Listener {
    fn run(&mut self) {
        if let Err(error) = self.receive() {
            tracing::debug!(event = "island_broken", %error, "the stream of the island has ended");
        }
        // The worker may have everything, and have ended.
        let _ = self.orders.send(Order::IslandEnded(self.island));
        self.links.report(self.island, LinkState::Closed);
    }

    /// Hands blocks to the worker until the stream ends.
    fn receive(&mut self) -> io::Result<()> {
        self.incoming.accept()?;
        let mut preamble = PREAMBLE_LEN;
        while preamble > 0 {
            preamble -= self.incoming.piece(preamble)?.len();
        }
        let mut kept = VecDeque::new();
        loop {
            let mut header = [0; REQUEST_LEN];
            self.fill(&mut header)?;
            let header = BlockHeader::parse(&header).map_err(|_| out_of_bounds())?;
            let place = self.manifest.locate(header.block);
            if place.is_none_or(|place| place.len != u64::from(header.len)) {
                return Err(out_of_bounds());
            }
            let mut bytes = vec![0; header.len as usize];
            for piece in bytes.chunks_mut(PIECE) {
                self.fill(piece)?;
                let len = piece.len() as u64;
                self.arrived.fetch_add(len, Ordering::Relaxed);
                self.links.add_arrived(len);
            }
            let (keeps, is_dropped) = mpsc::channel();
            let streamed = Streamed {
                island: self.island,
                block: header.block,
                bytes,
                arrived: Arc::clone(&self.arrived),
                stream: self.abort.clone(),
                _kept: keeps,
            };
            let sent = self.orders.send(Order::Streamed(streamed));
            sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            kept.push_back(is_dropped);
            if kept.len() == AHEAD
                && let Some(first) = kept.pop_front()
            {
                // Nothing is sent: this returns when the block is dropped.
                let _: Result<(), _> = first.recv();
            }
        }
    }

    fn fill(&mut self, mut to: &mut [u8]) -> io::Result<()> {
        while !to.is_empty() {
            let piece = self.incoming.piece(to.len())?;
            let (now, later) = to.split_at_mut(piece.len());
            now.copy_from_slice(piece);
            to = later;
        }
        Ok(())
    }
}

fn out_of_bounds() -> io::Error {
    let text = "the header of a block is out of bounds";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The sending end.
struct Head {
    multicast: Multicast,
    manifest: Arc<Manifest>,
    shelf: Arc<Shelf>,
    abort: Abort,
}

impl Head {
    fn run(&self, local: SocketAddr) -> io::Result<()> {
        let Multicast { island, members } = &self.multicast;
        let mut outgoing = Outgoing::open(island, members, local, &self.abort)?;
        for _ in 0..PREAMBLE_LEN / PIECE {
            outgoing.write(&[0; PIECE])?;
        }
        self.wait_reached(&outgoing)?;
        let mut at = self.shelf.newest();
        let (mut sent, mut left_out) = (0, 0);
        while !self.abort.is_raised() {
            let before = at;
            match self.shelf.next(&mut at, LOOK) {
                Next::Block(block) => {
                    self.send(&mut outgoing, block)?;
                    sent += 1;
                    left_out += at - before - 1;
                    if left_out > sent && left_out >= TOO_MANY {
                        let text = "multicast is slower than the links";
                        return Err(io::Error::other(text));
                    }
                }
                Next::Nothing => {}
                Next::Over => return outgoing.finish(),
            }
        }
        Ok(())
    }

    /// Waits until it is known which members multicast reaches, and drops the others.
    fn wait_reached(&self, outgoing: &Outgoing) -> io::Result<()> {
        let end = Instant::now() + REACH;
        loop {
            let reached = outgoing.reached();
            let is_over = Instant::now() >= end;
            if reached.pending == 0 || is_over {
                if reached.members < MIN_MEMBERS {
                    let text = "multicast does not reach the members";
                    return Err(io::Error::new(io::ErrorKind::HostUnreachable, text));
                }
                outgoing.drop_pending();
                return Ok(());
            }
            if self.abort.is_raised() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn send(&self, outgoing: &mut Outgoing, block: u64) -> io::Result<()> {
        let Some(place) = self.manifest.locate(block) else {
            return Ok(());
        };
        // Another program may have changed the file.
        let Some(bytes) = self.shelf.read(block) else {
            return Ok(());
        };
        let len = u32::try_from(place.len).unwrap_or(u32::MAX);
        outgoing.write(&BlockHeader { block, len }.emit())?;
        for piece in bytes.chunks(PIECE) {
            outgoing.write(piece)?;
        }
        self.shelf.served(bytes.len());
        Ok(())
    }
}
