//! The source's half of a session.

mod answers;
mod digests;
mod heartbeat;
mod input;
mod members;
mod output;
mod relay;
mod reports;
mod setup;

use proto_core::time::{Duration, Instant};
use proto_core::timer::{TimerId, Timers};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use crate::config::{SenderConfig, SessionChoice};
use crate::digest::{Digest, Hashing, LeftEdge, Tree};
use crate::error::Error;
use crate::event::SenderEvent;
use crate::pacing::{FRAME_OVERHEAD, Pacer};
use crate::replier::{Repairs, TargetLimits};
use crate::stats::SenderStats;
use crate::storage::SenderStorage;
use crate::store::Store;
use crate::wire::sync::SYNC_LEN;
use crate::{ConfigError, Geometry, Meta, SessionId};

use answers::Answer;
pub use members::Member;
use members::{Members, Window};
use setup::{answer_pacer, check, pacer};

/// First heartbeat interval after the last packet; the next ones are longer and longer.
const HEARTBEAT_MIN: Duration = Duration::from_millis(2);
/// Farewells when closing.
const FAREWELLS: u8 = 3;

#[derive(Clone, Copy)]
enum Timer {
    /// Next heartbeat.
    Sync,
    /// Give up waiting for receivers to join.
    Start,
    /// Digests have waited long enough.
    Digests,
    /// Look for silent receivers.
    Silence,
    /// Nobody asked for anything for the linger time.
    Linger,
}

impl TimerId for Timer {
    fn index(self) -> usize {
        self as usize
    }
}

const TIMERS: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Heartbeats only, until receivers have joined.
    Waiting,
    /// Data flows.
    Sending,
    /// Everything was sent once.
    Sent,
    /// Saying good-bye.
    Closing { left: u8 },
    /// Nothing more is sent.
    Ended,
}

/// The source's half of a session: see the [crate documentation](crate) for how to drive it.
///
/// Memory: at most 9 KiB and the tables of [`SenderStorage`].
pub struct Sender<'a, S: Store> {
    config: SenderConfig,
    store: S,
    session: SessionId,
    geometry: Geometry,
    hashing: Hashing,

    token_key: [u8; 16],
    now: Instant,
    phase: Phase,
    timers: Timers<Timer, TIMERS>,
    heartbeat: Duration,
    /// The first heartbeat of a pause comes after so long: longer after short pauses, which have
    /// shown that the next data tells of losses itself.
    tail: Duration,
    /// When the last heartbeat went, or data began after a long pause; when new data paused.
    synced: Instant,
    paused: Option<Instant>,
    sync_wanted: bool,
    sync_frame_len: usize,
    digests_late: bool,
    /// Each packet of digests says those of the last ones again.
    digests_again: bool,
    stalled: bool,
    completed: bool,
    pacer: Pacer,
    /// Answers to single receivers may take this much of the rate.
    answer_pacer: Pacer,
    quantum: usize,
    /// Frame bytes that repairs may take before new data gets its turn.
    repair_credit: i64,

    /// Bytes of the content that are in the store.
    written: u64,
    length: Option<u64>,
    /// Next packet never sent; its block and index; packets in all, once known.
    next: u64,
    block: u64,
    index: u32,
    total: Option<u64>,

    tree: Tree,
    left: LeftEdge,
    hashed: u64,
    published: u64,
    digest: Option<Digest>,
    digests: managed::ManagedSlice<'a, Digest>,

    members: Members<'a>,
    window: Window<'a>,
    /// What the DyRAM relay acknowledged for all below it.
    relay_ack: Option<relay::FoldedAck>,
    /// Since when no receiver that joined is waited for, once everything was sent.
    settled: Option<Instant>,
    /// No relay has taken this source in: new data waits.
    held: bool,
    /// The first block that one of the receivers lacks that joined before data flows.
    slowest_joined: Option<u64>,
    /// The worst loss that a receiver has reported since the application asked, in thousandths.
    worst_loss: Option<u16>,
    repairs: Repairs<'a>,
    longest_round_trip: Duration,
    answers: heapless::Deque<Answer, 32>,
    events: heapless::Deque<SenderEvent, 32>,
    ending: heapless::Deque<SenderEvent, 4>,
    stats: SenderStats,
}

#[cfg(feature = "alloc")]
impl<S: Store> Sender<'static, S> {
    /// A sender with tables on the heap, of the sizes in the configuration.
    ///
    /// # Errors
    /// When the configuration contradicts itself or the store.
    pub fn new(
        config: SenderConfig,
        store: S,
        seed: [u8; 32],
        now: Instant,
    ) -> Result<Self, ConfigError> {
        let block_len = 1u64 << config.block_exponent.min(Geometry::MAX_EXPONENT);
        let ring = store.capacity().map(|capacity| capacity / block_len);
        let window = config
            .window_blocks
            .map(u64::from)
            .into_iter()
            .chain(ring)
            .min();
        let window = if config.receivers.is_some() {
            window.unwrap_or(0)
        } else {
            0
        };
        let storage = SenderStorage::owned(&config.limits, window as usize);
        Self::with_storage(config, store, storage, seed, now)
    }
}

impl<'a, S: Store> Sender<'a, S> {
    /// A sender with the caller's tables.
    ///
    /// # Errors
    /// When the configuration contradicts itself or the store.
    pub fn with_storage(
        mut config: SenderConfig,
        store: S,
        storage: SenderStorage<'a>,
        seed: [u8; 32],
        now: Instant,
    ) -> Result<Self, ConfigError> {
        config.bound_times();
        let hashing = Hashing::new(config.key);
        let geometry = check(&config, &store, &storage)?;
        let mut rng = ChaCha12Rng::from_seed(seed);
        let session = match config.session {
            SessionChoice::Random => SessionId(rng.next_u32()),
            SessionChoice::Fixed(session) => session,
        };
        let mut token_key = [0; 16];
        rng.fill_bytes(&mut token_key);
        let mut member_key = [0; 16];
        rng.fill_bytes(&mut member_key);
        let sync_frame_len = SYNC_LEN + config.name.len() + hashing.overhead() + FRAME_OVERHEAD;
        let (pacer, quantum) = pacer(&config, now);
        let resumed = config.resume_blocks;
        let limits = TargetLimits {
            rate_bps: None,
            depth_len: 0,
        };
        let hold_down = config.repair.hold_down;
        let total = config.length.and_then(|length| geometry.packets(length));
        let mut repairs = Repairs::new(
            storage.repairs,
            storage.held,
            storage.targets,
            limits,
            hold_down,
        );
        repairs.set_packets_per_block(geometry.packets_per_block());
        let mut sender = Sender {
            session,
            geometry,
            hashing,

            token_key,
            now,
            phase: Phase::Waiting,
            timers: Timers::default(),
            heartbeat: HEARTBEAT_MIN,
            tail: HEARTBEAT_MIN,
            synced: now,
            paused: None,
            sync_wanted: true,
            sync_frame_len,
            digests_late: false,
            digests_again: false,
            stalled: false,
            completed: false,
            pacer,
            answer_pacer: answer_pacer(&config, now),
            quantum,
            repair_credit: 0,
            written: config.length.unwrap_or(0),
            length: config.length,
            next: geometry
                .first_packet(resumed)
                .min(total.unwrap_or(u64::MAX)),
            block: resumed,
            index: 0,
            total,
            tree: Tree::default(),
            left: LeftEdge::default(),
            hashed: resumed,
            published: if config.integrity { resumed } else { 0 },
            digest: config.digest,
            digests: storage.digests,
            members: Members::new(storage.members, member_key),
            window: Window::new(storage.window, resumed),
            relay_ack: None,
            settled: None,
            held: false,
            slowest_joined: None,
            worst_loss: None,
            repairs,
            longest_round_trip: Duration::ZERO,
            answers: heapless::Deque::new(),
            events: heapless::Deque::new(),
            ending: heapless::Deque::new(),
            stats: SenderStats::default(),
            config,
            store,
        };
        let wait = if sender.config.receivers.is_some() {
            sender.config.start_wait
        } else {
            // Three heartbeats first: who misses all of them has worse luck than repairs cost.
            HEARTBEAT_MIN * 4
        };
        sender.timers.set(Timer::Start, now + wait);
        sender
            .timers
            .set(Timer::Silence, now + sender.silence_tick());
        Ok(sender)
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// How the content is cut.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Adds bytes to a stream; how many were taken. Less than all: nothing that is still to be
    /// sent, or that a known receiver may lack, is overwritten; call again after sending.
    ///
    /// # Errors
    /// [`crate::store::StoreError`] when the store failed.
    pub fn send(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, crate::store::StoreError> {
        self.advance_clock(now);
        if self.length.is_some() {
            return Ok(0);
        }
        let room = self.room().min(bytes.len() as u64) as usize;
        let block_len = self.geometry.block_len();
        let mut taken = 0;
        while taken < room {
            let in_block = self.written as usize & (block_len - 1);
            let len = (room - taken).min(block_len - in_block);
            self.store.write(self.written, &bytes[taken..taken + len])?;
            self.written += len as u64;
            taken += len;
        }
        Ok(taken)
    }

    /// Bytes that [`Sender::send`] would take now.
    pub fn room(&self) -> u64 {
        if self.length.is_some() {
            return 0;
        }
        let limit = Geometry::MAX_BLOCKS << self.geometry.block_exponent();
        let Some(capacity) = self.store.capacity() else {
            return limit - self.written;
        };
        let known = [self.window.slowest(), self.relay_slowest()];
        let keep = known.into_iter().flatten().fold(self.block, u64::min);
        (self.geometry.block_offset(keep) + capacity)
            .min(limit)
            .saturating_sub(self.written)
    }

    /// The stream ends after the bytes it has.
    pub fn finish(&mut self, now: Instant) {
        self.advance_clock(now);
        if self.length.is_none() {
            self.length = Some(self.written);
            self.total = self.geometry.packets(self.written);
            self.sync_wanted = true;
            // Whole packets do not wait for the end: all of it may have gone before.
            self.check_sent();
        }
    }

    /// Says good-bye and ends, whatever receivers still lack.
    pub fn close(&mut self, now: Instant) {
        self.advance_clock(now);
        if !matches!(self.phase, Phase::Closing { .. } | Phase::Ended) {
            self.phase = Phase::Closing { left: FAREWELLS };
            self.heartbeat = HEARTBEAT_MIN;
            self.sync_wanted = true;
        }
    }

    /// Whether the driver may stop: [`SenderEvent::Complete`] was taken, or the sender has ended. A sender
    /// that is driven further serves receivers that come late, for [`SenderConfig::linger`]; one that stops
    /// here may [`close`](Sender::close) first and go on until [`Sender::is_ended`], so that receivers hear
    /// that it leaves.
    pub fn is_finished(&self) -> bool {
        (self.completed || self.is_ended()) && self.ending.is_empty() && self.answers.is_empty()
    }

    /// Whether nothing more will be sent.
    pub fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Bytes of the content sent at least once, and its length if known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        let (block, index) = self.geometry.locate(self.next);
        let sent = self.geometry.span(block, index, self.length).0;
        (sent.min(self.written), self.length)
    }

    /// Receivers that joined, and how many of them have everything.
    pub fn receivers(&self) -> (u32, u32) {
        (self.members.joined, self.members.complete)
    }

    /// The digest of the whole, once everything was sent.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Changes the rate (Ethernet frame bits a second).
    pub fn set_rate(&mut self, now: Instant, rate_bps: Option<u64>) {
        self.advance_clock(now);
        self.config.rate_bps = rate_bps;
        (self.pacer, self.quantum) = pacer(&self.config, now);
    }

    /// The worst share that a receiver has reported lost since the last call, in thousandths, of what the
    /// source sent to all; it does not matter who repaired it. `None`: none has reported enough packets to
    /// tell. Receivers report with [`SenderConfig::receivers`].
    pub fn take_worst_loss(&mut self) -> Option<u16> {
        self.worst_loss.take()
    }

    /// Counters.
    pub fn stats(&self) -> &SenderStats {
        &self.stats
    }

    /// What the application wants to know; drain until `None`.
    pub fn poll_event(&mut self) -> Option<SenderEvent> {
        self.events.pop_front().or_else(|| self.ending.pop_front())
    }

    fn event(&mut self, event: SenderEvent) {
        if self.events.push_back(event).is_err() {
            self.stats.events_lost += 1;
        }
    }

    fn advance_clock(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Time has passed; harmless when called early or twice.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance_clock(now);
        let now = self.now;
        if self.phase == Phase::Ended {
            return;
        }
        if self.timers.fired(Timer::Sync, now) {
            self.sync_wanted = true;
        }
        let waited = self.timers.fired(Timer::Start, now);
        if self.phase == Phase::Waiting && (waited || self.all_joined()) {
            self.begin();
        }
        if self.timers.fired(Timer::Silence, now) {
            self.expire_receivers();
        }
        self.digests_late |= self.timers.fired(Timer::Digests, now);
        if self.timers.fired(Timer::Linger, now) {
            if self.members.active > 0 || self.relay_lacks() {
                // What has joined and is not done is waited for, until it is given up.
                self.touch_linger();
            } else if self.phase == Phase::Sent {
                self.close(now);
            }
        }
    }

    /// When to call [`Sender::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.phase == Phase::Ended {
            return None;
        }
        let pacer = &self.pacer;
        let answers = self.answer_at();
        let sync = self
            .sync_wanted
            .then(|| pacer.ready_at(self.sync_frame_len));
        let data = self.data_waits() || self.digests_due();
        let data = data.then(|| pacer.ready_at(self.quantum));
        let repairs = self
            .repairs
            .poll_timeout(0)
            .map(|at| at.max(pacer.ready_at(self.quantum)));
        let output = [answers, sync, data, repairs].into_iter().flatten().min();
        let output = output.map(|at| at.max(self.now));
        output.into_iter().chain(self.timers.next()).min()
    }

    fn all_joined(&self) -> bool {
        self.config
            .receivers
            .is_some_and(|expected| self.members.joined >= expected)
    }

    fn begin(&mut self) {
        self.skip_what_all_have();
        self.phase = Phase::Sending;
        self.sync_wanted = true;
        self.timers.stop(Timer::Start);
        self.event(SenderEvent::Started {
            joined: self.members.joined,
        });
        self.check_sent();
    }

    /// Whether receivers may hold blocks that this sender has not sent: it was restarted, and they followed
    /// it by the digest of the content.
    fn may_be_resumed(&self) -> bool {
        self.config.integrity && self.config.digest.is_some() && self.config.length.is_some()
    }

    /// A restarted sender does not send again what all the receivers have that joined. One that joins later
    /// asks for it.
    fn skip_what_all_have(&mut self) {
        let Some(slowest) = self.slowest_joined.filter(|&block| block > self.block) else {
            return;
        };
        if self.next > 0 || self.config.resume_blocks > 0 || self.members.active == 0 {
            return;
        }
        self.config.resume_blocks = slowest;
        let total = self.total.unwrap_or(u64::MAX);
        self.next = self.geometry.first_packet(slowest).min(total);
        self.block = slowest;
        self.hashed = slowest;
        self.published = slowest;
        // Those that stand here were ahead of the data when they joined. Once for each session.
        self.window.restart(slowest);
        for at in 0..self.members.capacity() {
            let member = *self.members.get(at);
            if member.state == members::State::Active {
                self.members.get_mut(at).counted = self.window.enter(member.blocks);
            }
        }
    }

    /// Number of blocks whose first packet was sent.
    fn blocks_begun(&self) -> u64 {
        self.block + u64::from(self.index > 0)
    }

    /// First block that the store still holds whole.
    fn oldest_block(&self) -> u64 {
        let Some(capacity) = self.store.capacity() else {
            return 0;
        };
        self.geometry.blocks(self.written.saturating_sub(capacity))
    }

    /// Whether a packet that was never sent may go, the rate aside.
    fn data_waits(&self) -> bool {
        let open = self.phase == Phase::Sending && !self.held;
        open && self.has_data() && self.block < self.limit()
    }

    fn has_data(&self) -> bool {
        match self.total {
            Some(total) => self.next < total,
            None => {
                let (offset, len) = self.geometry.span(self.block, self.index, None);
                offset + len as u64 <= self.written
            }
        }
    }

    /// After each new packet: is that all?
    fn check_sent(&mut self) {
        let all = self.total.is_some_and(|total| self.next >= total);
        let settled = !self.config.integrity || self.hashed == self.published;
        if self.phase != Phase::Sending || !all || !settled {
            return;
        }
        // Of a restarted sender the blocks before the first one it sent were not read.
        if self.config.integrity && self.config.resume_blocks == 0 {
            let root = self.tree.root(&self.hashing);
            if *self.digest.get_or_insert(root) != root {
                self.fail_store();
                return;
            }
        }
        self.all_sent();
        self.check_complete();
    }

    fn all_sent(&mut self) {
        self.phase = Phase::Sent;
        self.sync_wanted = true;
        self.heartbeat = HEARTBEAT_MIN;
        self.touch_linger();
        let length = self.length.unwrap_or(self.written);
        self.event(SenderEvent::Sent {
            length,
            digest: self.digest,
        });
    }

    /// Requests and reports put the end off. Where receivers report, requests do so only for a while after
    /// the last receiver that is waited for.
    fn touch_linger(&mut self) {
        if self.phase != Phase::Sent {
            return;
        }
        let mut at = self.now + self.config.linger;
        if self.config.receivers.is_some() && self.members.active == 0 {
            let settled = *self.settled.get_or_insert(self.now);
            at = at.min(settled + self.config.linger.max(self.config.receiver_timeout));
        } else {
            self.settled = None;
        }
        self.timers.set(Timer::Linger, at);
    }

    fn check_complete(&mut self) {
        let enough = self
            .config
            .receivers
            .is_some_and(|n| self.members.complete >= n);
        let all = enough && self.members.active == 0 && self.members.failed == 0;
        // All may have had it before all of it was sent.
        let open = matches!(self.phase, Phase::Waiting | Phase::Sending | Phase::Sent);
        if all && open && !self.completed {
            // The last digests are on their way, and nobody needs them.
            if self.phase == Phase::Sending && self.total.is_some_and(|total| self.next >= total) {
                self.all_sent();
            }
            self.completed = true;
            let _ = self.ending.push_back(SenderEvent::Complete);
        }
    }

    /// What was announced cannot be sent: receivers hear a good-bye.
    fn fail_store(&mut self) {
        let now = self.now;
        self.close(now);
        let _ = self.ending.push_back(SenderEvent::StoreFailed);
    }

    /// One packet arrived.
    ///
    /// # Errors
    /// Why it was dropped; nothing but that counter changed then, unless the reason says so.
    pub fn handle_packet(&mut self, now: Instant, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        self.advance_clock(now);
        let result = self.input(meta, packet);
        match result {
            Ok(()) => self.stats.received += 1,
            Err(reason) => self.stats.drops.count(reason),
        }
        result
    }
}

proto_core::impl_machine! {
    impl['a, S: Store] Sender<'a, S> {
        Meta = Meta; Transmit = crate::Transmit; Event = SenderEvent; Error = Error;
    }
}
