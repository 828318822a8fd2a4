//! The receiver's half of a session, and the replier in it.

mod adopt;
mod answer;
mod asks;
mod audit;
mod blocks;
mod confirm;
mod control;
mod end;
mod input;
mod left;
mod missing;
mod output;
mod relay;
mod report;
mod window;

use core::net::SocketAddr;
use core::num::NonZeroU16;

use proto_core::round_trip::{RoundTrip, TimeoutLimits};
use proto_core::time::{Duration, Instant};
use proto_core::timer::{TimerId, Timers};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use crate::config::{Delivery, Name, ReceiverConfig};
use crate::digest::{Digest, Hashing, Tree};
use crate::error::Error;
use crate::event::ReceiverEvent;
use crate::pacing::{FRAME_OVERHEAD, Pacer};
use crate::replier::{Repairs, TargetLimits};
use crate::stats::ReceiverStats;
use crate::storage::ReceiverStorage;
use crate::store::{Store, StoreError};
use crate::wire::report::Status;
use crate::{Geometry, Meta, SessionId};

pub use asks::Ask;
use asks::Asks;
pub use missing::Missing;
pub use window::Slot;
use window::Slots;

#[derive(Clone, Copy)]
enum Timer {
    /// Ask for the gaps that were seen.
    Gap,
    /// A request is due.
    Request,
    /// Digests are to be asked for.
    Digests,
    /// A heartbeat is to be confirmed.
    Confirm,
    /// A report is due.
    Report,
    /// The source may have died.
    Source,
}

impl TimerId for Timer {
    fn index(self) -> usize {
        self as usize
    }
}

const TIMERS: usize = 6;
/// Longer samples of the round-trip time count as this.
const MAX_SAMPLE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No heartbeat yet.
    Idle,
    /// Receiving.
    Open,
    /// Everything is here.
    Complete,
    /// Gave up.
    Failed,
    /// Nothing more is said.
    Ended,
}

/// What heartbeats told; what data packets need stands first.
#[derive(Clone, Debug)]
#[repr(C)]
struct Session {
    id: SessionId,
    geometry: Geometry,
    source: SocketAddr,
    length: Option<u64>,
    total: Option<u64>,
    integrity: bool,
    reports: bool,
    closing: bool,
    /// Nothing that a forger could have said is open.
    confirmed: bool,
    contradicted: bool,
    progress_blocks: u32,
    report_window: Duration,
    /// The longest silence of the source while it lives.
    silence: Duration,
    digested: u64,
    digest: Option<Digest>,
}

/// A question to the source by unicast, under a nonce.
#[derive(Clone, Copy, Debug)]
struct Question {
    nonce: u64,
    attempts: u32,
    /// Another port of the source's host, from which heartbeats of another session come: a source that
    /// was restarted listens there. It is asked when the known address does not answer.
    other: Option<NonZeroU16>,
}

/// Digests that are asked for.
#[derive(Clone, Copy, Debug)]
struct DigestAsk {
    first: u64,
    last: u64,
    nonce: u64,
    attempts: u32,
    /// What lies to the left of the start is asked for, not digests of blocks.
    left: bool,
}

/// When digests came for all, how long after the ones before, and the first block they were of.
#[derive(Clone, Copy, Default, Debug)]
struct Announced {
    at: Option<Instant>,
    gap: Duration,
    first: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Reporting {
    tag: u16,
    attempts: u32,
    joined: bool,
    complete: bool,
    failed: bool,
    leaving: bool,
    blocks: u64,
    /// When the report that waits for an answer went, and what it said.
    sent: Option<(Instant, Status)>,
}

/// Where loss was last reported; the low bits of larger counters.
#[derive(Clone, Copy, Default, Debug)]
struct ReportedLoss {
    /// One past the newest packet known to have been sent.
    highest: u32,
    /// DATA packets that had come.
    came: u32,
    /// When, in milliseconds; `None`: not in this session.
    at_ms: Option<u32>,
}

/// The receiver's half of a session, and the replier in it: see the [crate documentation](crate)
/// for how to drive it.
///
/// Memory: about 3.5 KiB and the tables of [`ReceiverStorage`]. Fields stand in the order written:
/// a data packet that is the next one touches the first few cache lines, its slot, its place in
/// the store, and nothing else.
#[repr(C, align(64))]
pub struct Receiver<'a, S: Store> {
    now: Instant,
    /// One past the newest packet known to have been sent; gaps below `asked` are in `asks`.
    highest: u64,
    /// Block of the latest packet, and the number of its first.
    current: (u64, u64),
    /// First block not final; one past the newest block touched.
    frontier: u64,
    top: u64,
    /// Blocks the window spans: slots, or less if the store is smaller.
    span: u64,
    /// Blocks below were taken by the application ([`Delivery::Read`]); else `u64::MAX`.
    taken: u64,
    session: Option<Session>,
    slots: Slots<'a>,
    phase: Phase,
    /// Others wait for answers.
    answers_wait: bool,
    /// How often data and digests disagreed since a block became final.
    disagreements: u8,
    /// Reports of completion that the source denied.
    denials: u8,
    heard: Instant,
    /// When something new last came.
    fed: Instant,
    /// When a block last became final.
    advanced: Instant,
    timers: Timers<Timer, TIMERS>,
    stats: ReceiverStats,
    store: S,

    asked: u64,
    asks: Asks<'a>,
    /// Blocks that are complete and wait for a digest, or dispute it.
    unverified: u32,
    next_tag: u16,
    left: left::Left,
    /// First block of interest.
    start: u64,
    /// Bytes the application took ([`Delivery::Read`]).
    consumed: u64,
    request_pacer: Pacer,
    group_trip: RoundTrip,
    source_trip: RoundTrip,
    /// How long the DyRAM relay may need for a repair.
    relay_delay: Duration,
    /// How much the relay is asked for at a time.
    relay_window: relay::RequestWindow,
    /// Packets of digests for all: with a relay they come again with the next.
    announced: Announced,
    digest_ask: Option<DigestAsk>,
    /// The whole is wrong: which blocks are?
    audit: Option<audit::Audit>,
    question: Option<Question>,
    question_after: Instant,
    report: Reporting,
    reported_loss: ReportedLoss,
    config: ReceiverConfig,
    repairs: Repairs<'a>,
    /// Until then this host's requests are for receivers below it, too.
    asks_for_others_until: Instant,
    repair_pacer: Pacer,
    /// Target, first block (the wire has 32 bits) and number of blocks.
    digest_answers: heapless::Deque<(u16, u32, u8), 4>,
    tree: Tree,
    /// The digest of a content that was in the store beforehand.
    adopted: Option<Digest>,
    hashing: Hashing,
    rng: ChaCha12Rng,
    id: u64,
    token: u64,
    name: Name,
    events: heapless::Deque<ReceiverEvent, 8>,
    ending: Option<ReceiverEvent>,
    held_back: Option<ReceiverEvent>,
}

#[cfg(feature = "alloc")]
impl<S: Store> Receiver<'static, S> {
    /// A receiver with tables on the heap, of the sizes in the configuration.
    pub fn new(config: ReceiverConfig, store: S, seed: [u8; 32], now: Instant) -> Self {
        let storage = ReceiverStorage::owned(&config.limits);
        Self::with_storage(config, store, storage, seed, now)
    }
}

impl<'a, S: Store> Receiver<'a, S> {
    /// A receiver with the caller's tables.
    ///
    /// # Panics
    /// If `slots` or `asks` of the storage is empty.
    pub fn with_storage(
        mut config: ReceiverConfig,
        store: S,
        storage: ReceiverStorage<'a>,
        seed: [u8; 32],
        now: Instant,
    ) -> Self {
        assert!(
            !storage.slots.is_empty() && !storage.asks.is_empty(),
            "tables of a receiver"
        );
        config.bound_times();
        let mut rng = ChaCha12Rng::from_seed(seed);
        let id = rng.next_u64();
        let next_tag = rng.next_u32() as u16;
        let trip = RoundTrip::new(TimeoutLimits {
            initial: config.initial_timeout,
            min: config.min_timeout,
            max: config.max_timeout.max(config.min_timeout),
            granularity: Duration::ZERO,
        });
        let replier = &config.replier;
        let depth = |rate: u64| {
            let bytes = u128::from(rate) * u128::from(replier.burst.total_micros()) / 8_000_000;
            (bytes.min(1 << 32) as usize).max(2 * 1600)
        };
        let per_point = replier.turning_point_rate_bps;
        let limits = TargetLimits {
            rate_bps: Some(per_point),
            depth_len: depth(per_point),
        };
        let repair_pacer = Pacer::new(Some(replier.rate_bps), depth(replier.rate_bps), now);
        let hold_down = replier.hold_down;
        let requests = u64::from(config.requests_per_second.max(1));
        let burst = (requests / 20).max(4) as usize;
        let mut receiver = Receiver {
            hashing: Hashing::new(config.key),
            rng,
            id,
            now,
            phase: Phase::Idle,
            timers: Timers::default(),
            session: None,
            name: Name::new(),
            token: 0,
            span: 0,
            slots: Slots::new(storage.slots),
            start: 0,
            frontier: 0,
            top: 0,
            consumed: 0,
            taken: u64::MAX,
            answers_wait: false,
            highest: 0,
            asked: 0,
            current: (0, 0),
            tree: Tree::default(),
            left: left::Left::Known,
            adopted: None,
            unverified: 0,
            asks: Asks::new(storage.asks),
            next_tag,
            request_pacer: Pacer::new(Some(requests * 8), burst, now),
            group_trip: trip,
            source_trip: trip,
            relay_delay: config.initial_timeout / 2,
            relay_window: relay::RequestWindow::new(now),
            announced: Announced::default(),
            digest_ask: None,
            audit: None,
            question: None,
            question_after: now,
            report: Reporting::default(),
            reported_loss: ReportedLoss::default(),
            heard: now,
            fed: now,
            advanced: now,
            asks_for_others_until: Instant::ZERO,
            disagreements: 0,
            denials: 0,
            repairs: Repairs::new(
                storage.repairs,
                storage.held,
                storage.targets,
                limits,
                hold_down,
            ),
            repair_pacer,
            digest_answers: heapless::Deque::new(),
            events: heapless::Deque::new(),
            ending: None,
            held_back: None,
            stats: ReceiverStats::default(),
            config,
            store,
        };
        receiver
            .timers
            .set(Timer::Source, now + receiver.config.source_timeout);
        receiver
    }

    /// The receiver's random identifier.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The session, once a heartbeat came.
    pub fn session(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.id)
    }

    /// The source, once a heartbeat came.
    pub fn source(&self) -> Option<SocketAddr> {
        self.session.as_ref().map(|session| session.source)
    }

    /// How the content is cut, once a heartbeat came.
    pub fn geometry(&self) -> Option<Geometry> {
        self.session.as_ref().map(|session| session.geometry)
    }

    /// The name of the content: any bytes; never use it as a path unchecked.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Bytes verified from the start on without a hole, and the length if known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (
            self.verified_end(),
            self.session.as_ref().and_then(|session| session.length),
        )
    }

    /// Whether everything arrived and verified. The source may not know it yet: a driver goes on until
    /// [`Receiver::is_finished`].
    pub fn is_complete(&self) -> bool {
        self.phase == Phase::Complete
    }

    /// Whether the driver may stop: the last event ([`ReceiverEvent::Complete`] or
    /// [`ReceiverEvent::Failed`]) was taken, and the source has confirmed the last report, or wants none, or
    /// could not be reached. A receiver that is driven further answers others as replier.
    pub fn is_finished(&self) -> bool {
        let told = self.ending.is_none() && self.held_back.is_none();
        match self.phase {
            Phase::Idle | Phase::Open => false,
            Phase::Complete => told,
            Phase::Failed => told && !self.timers.is_set(Timer::Report),
            Phase::Ended => told,
        }
    }

    /// Whether the receiver was closed: it sends nothing more, also to others.
    pub fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The store, for the application that owns what is in it.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Gives the store back.
    pub fn into_store(self) -> S {
        self.store
    }

    /// The round-trip time to the source, once measured.
    pub fn round_trip(&self) -> Option<Duration> {
        self.source_trip.smoothed()
    }

    /// Packets that the source sent to all, as far as is known, and those of them that came as DATA. Both
    /// count on; the difference of two looks tells what was lost in between, whoever repaired it.
    pub fn loss_counters(&self) -> (u64, u64) {
        let came = self.stats.data_packets + self.stats.duplicate_data;
        (self.highest, came)
    }

    /// Counters.
    pub fn stats(&self) -> &ReceiverStats {
        &self.stats
    }

    /// Which packets of the newest block have come: a bit each, the block's first packet lowest; 0
    /// before any came.
    #[inline]
    pub fn newest_block(&self) -> u64 {
        self.slots.received(self.top.saturating_sub(1))
    }

    /// The byte ranges that have not arrived and verified, in order.
    pub fn missing(&self) -> Missing<'_, 'a, S> {
        Missing::new(self)
    }

    /// Verified bytes not yet consumed, as many as lie together ([`Delivery::Read`]); empty when
    /// there are none.
    ///
    /// # Errors
    /// When the store failed.
    pub fn peek(&mut self) -> Result<&[u8], StoreError> {
        let Some(session) = &self.session else {
            return Ok(&[]);
        };
        let geometry = session.geometry;
        let (at, end) = (self.consumed, self.verified_end());
        if at >= end {
            return Ok(&[]);
        }
        let block = at >> geometry.block_exponent();
        let offset = geometry.block_offset(block);
        let len = geometry.len_of(block, session.length);
        let bytes = self.store.block(offset, len)?;
        Ok(&bytes[(at - offset) as usize..])
    }

    /// The application took so many bytes of what [`Receiver::peek`] showed.
    pub fn consume(&mut self, now: Instant, len: usize) {
        self.advance_clock(now);
        let was = self.window_base();
        self.consumed = self
            .consumed
            .saturating_add(len as u64)
            .min(self.verified_end());
        self.taken = self.blocks_taken();
        if self.window_base() != was {
            self.report_progress();
            self.look_for_gaps();
        }
    }

    /// Leaves: tells the source, if it wants to know, and says nothing more.
    pub fn close(&mut self, now: Instant) {
        self.advance_clock(now);
        let known = self.session.as_ref().is_some_and(|session| session.reports);
        if self.phase == Phase::Open && known && self.report.joined {
            self.report.leaving = true;
            self.timers.set(Timer::Report, self.now);
        } else {
            self.phase = Phase::Ended;
        }
    }

    /// What the application wants to know; drain until `None`.
    pub fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front().or_else(|| self.ending.take())
    }

    fn event(&mut self, event: ReceiverEvent) {
        if self.events.push_back(event).is_err() {
            self.stats.events_lost += 1;
        }
    }

    fn advance_clock(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// End of what is verified without a hole, in bytes.
    fn verified_end(&self) -> u64 {
        let Some(session) = &self.session else {
            return 0;
        };
        let end = session.geometry.block_offset(self.frontier);
        session.length.map_or(end, |length| end.min(length))
    }

    /// The oldest block that may not be overwritten.
    #[inline]
    fn window_base(&self) -> u64 {
        self.frontier.min(self.taken)
    }

    fn blocks_taken(&self) -> u64 {
        match (self.config.delivery, &self.session) {
            (Delivery::Read, Some(session)) => self.consumed >> session.geometry.block_exponent(),
            _ => u64::MAX,
        }
    }

    /// Time has passed; harmless when called early or twice.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance_clock(now);
        let now = self.now;
        if self.phase == Phase::Ended {
            return;
        }
        if self.timers.fired(Timer::Gap, now) {
            self.scan_gaps();
        }
        if self.timers.fired(Timer::Source, now) {
            self.check_source();
        }
    }

    /// When to call [`Receiver::handle_timeout`].
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.phase == Phase::Ended {
            return None;
        }
        let next = self
            .timers
            .next_with(Timer::Request, || self.request_pacer.ready_at(1));
        let answers = if self.answers_wait {
            self.answer_at()
        } else {
            None
        };
        let next = match (next, answers) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        next.map(|at| at.max(self.now))
    }

    /// When the next answer to others may go.
    fn answer_at(&self) -> Option<Instant> {
        let frame = self
            .session
            .as_ref()
            .map_or(0, |s| s.geometry.packet_len() + FRAME_OVERHEAD);
        let repairs = self.repairs.poll_timeout(frame);
        let repairs = repairs.map(|at| at.max(self.repair_pacer.ready_at(frame)));
        let digests = self.digest_answers.front().map(|&(target, ..)| {
            // Longer than any packet of digests: early is harmless, late is a moment.
            self.repairs
                .allowed_at(target, 2048)
                .max(self.repair_pacer.ready_at(2048))
        });
        repairs.into_iter().chain(digests).min()
    }

    /// One packet arrived.
    ///
    /// # Errors
    /// Why it was dropped; nothing but that counter changed then, unless the reason says so.
    #[inline]
    pub fn handle_packet(&mut self, now: Instant, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        self.advance_clock(now);
        let result = self.input(meta, packet);
        if let Err(reason) = result {
            self.stats.drops.count(reason);
        }
        result
    }

    /// A random part of a duration.
    fn jitter(&mut self, most: Duration) -> Duration {
        let most = most.total_micros();
        if most == 0 {
            return Duration::ZERO;
        }
        Duration::from_micros(self.rng.next_u64() % (most + 1))
    }

    fn tag(&mut self) -> u16 {
        self.next_tag = self.next_tag.wrapping_add(1);
        self.next_tag
    }
}

proto_core::impl_machine! {
    impl['a, S: Store] Receiver<'a, S> {
        Meta = Meta; Transmit = crate::Transmit; Event = ReceiverEvent; Error = Error;
    }
}
