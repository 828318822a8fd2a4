//! The machine: connections, listeners, groups, and the driver's side of them.

mod commands;
mod events;
mod groups;
mod input;
mod listener;
mod output;
mod pacing;
mod queue;
mod repairs;
mod representative;
mod secrets;
mod stragglers;
mod sync;
mod timeouts;

use alloc::collections::{BTreeMap, VecDeque};

use proto_core::TokenBucket;
use proto_core::time::Instant;
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;

pub use commands::Received;

use crate::config::Config;
use crate::error::Error;
use crate::event::Event;
use crate::group::Session;
use crate::mintree::MinTree;
use crate::pcb::{Key, Pcb};
use crate::slab::Slab;
use crate::stats::Stats;
use crate::store::{Ring, Store};
use listener::Listener;
use output::Reply;
use queue::Queue;
use secrets::Secrets;

/// A TCP endpoint: any number of connections, both ways, and of groups.
///
/// The documentation of the crate says how to drive it. `S` is the store of a group's data; plain connections
/// use a [`Ring`] each.
#[derive(Debug)]
pub struct Endpoint<S = Ring> {
    config: Config,
    rng: ChaCha12Rng,
    secrets: Secrets,
    /// Time of the last call.
    now: Instant,
    generation: u32,
    pcbs: Slab<Pcb>,
    keys: BTreeMap<Key, u32>,
    sessions: Slab<Session<S>>,
    listeners: BTreeMap<u16, Listener>,
    /// Next timer of each block, and of each session.
    timers: MinTree,
    session_timers: MinTree,
    /// Blocks with something of their own to send.
    ready: Queue,
    /// Flows with new data to send: session and flow.
    flows_ready: VecDeque<(u32, u32)>,
    /// Control blocks and sessions with events.
    with_events: Queue,
    groups_with_events: VecDeque<u32>,
    /// Handshakes that peers began, oldest first; some may be complete or gone.
    half_open: VecDeque<(u32, u32)>,
    /// Connections that peers began, until they are complete or gone.
    half_open_count: usize,
    replies: VecDeque<Reply>,
    reply_credit: TokenBucket,
    stats: Stats,
}

impl<S: Store> Endpoint<S> {
    /// Creates a machine without connections. All randomness comes from `seed`: an attacker who guesses it can
    /// forge segments.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32], now: Instant) -> Self {
        let mut rng = ChaCha12Rng::from_seed(seed);
        let secrets = Secrets::new(&mut rng);
        Self {
            config,
            rng,
            secrets,
            now,
            generation: 0,
            pcbs: Slab::new(),
            keys: BTreeMap::new(),
            sessions: Slab::new(),
            listeners: BTreeMap::new(),
            timers: MinTree::new(),
            session_timers: MinTree::new(),
            ready: Queue::default(),
            flows_ready: VecDeque::new(),
            with_events: Queue::default(),
            groups_with_events: VecDeque::new(),
            half_open: VecDeque::new(),
            half_open_count: 0,
            replies: VecDeque::new(),
            reply_credit: TokenBucket::FULL,
            stats: Stats::default(),
        }
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes that the buffer of [`Endpoint::poll_transmit`] must have.
    #[must_use]
    pub fn max_segment_bytes(&self) -> usize {
        usize::from(self.config.mtu.max(576))
    }

    /// How many connections there are, whatever their state.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.pcbs.len()
    }

    /// When to call [`Endpoint::handle_timeout`] next; while packets wait to be sent, the time of
    /// the last call.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.replies.is_empty() || !self.ready.is_empty() || !self.flows_ready.is_empty() {
            return Some(self.now);
        }
        let next = self.timers.min().min(self.session_timers.min());
        (next != MinTree::NONE).then(|| instant(next))
    }

    /// Returns the next event. Drain it until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.next_event()
    }

    fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    fn count<T>(&mut self, error: Error) -> Result<T, Error> {
        self.stats.drops.count(error);
        Err(error)
    }

    fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }
}

proto_core::impl_machine! {
    impl[S: Store] Endpoint<S> {
        Meta = crate::event::Meta; Transmit = crate::event::Transmit; Event = Event; Error = Error;
    }
}

/// Keys of the timer trees: microseconds, shifted so that they are never negative.
fn timer_key(at: Instant) -> u64 {
    (at.total_micros() as u64) ^ (1 << 63)
}

fn instant(key: u64) -> Instant {
    Instant::from_micros((key ^ (1 << 63)) as i64)
}
