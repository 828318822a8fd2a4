//! The receiver's half of a session, and the replier in it.
//!
//! | state | owner |
//! | --- | --- |
//! | which packets came, which blocks are final | [`Window`] |
//! | which packets were sent and are missing, the requests for them | [`Gaps`] |
//! | to which peer a request goes, and when it is repeated | [`Recovery`] |
//! | what the source has announced, and whether it is believed | [`Session`] |
//! | requests for digests | [`DigestRequests`] |
//! | the digest of the whole, and the audit if it is wrong | [`Whole`], [`Audit`] |
//! | questions to the source after a contradiction | [`Confirmation`] |
//! | parity that is held | [`Restoring`] |
//! | reports to the source | [`Reports`] |
//! | answers to requests of other receivers | [`Replies`] |

mod adopt;
mod answer;
mod audit;
mod blocks;
mod confirm;
mod congestion;
mod control;
mod digests;
mod end;
mod events;
mod gaps;
mod identity;
mod input;
mod missing;
mod output;
#[cfg_attr(
    not(feature = "alloc"),
    allow(dead_code, reason = "without a heap no block is restored")
)]
mod parity;
mod recovery;
mod relay;
mod report;
mod session;
mod whole;
mod window;

use core::net::SocketAddr;

use proto_core::time::{Duration, Instant};
use proto_core::timer::{TimerId, Timers};

use crate::config::ReceiverConfig;
use crate::digest::Hashing;
use crate::error::Error;
use crate::event::ReceiverEvent;
use crate::pacing::FRAME_OVERHEAD;
use crate::stats::ReceiverStats;
use crate::storage::ReceiverStorage;
use crate::store::{Store, StoreError};
use crate::{Geometry, Meta, SessionId, tfmcc};

use answer::Replies;
use audit::Audit;
use confirm::Confirmation;
use digests::{DigestRequest, DigestRequests};
use end::Liveness;
use events::Events;
use gaps::Gaps;
pub use gaps::PendingRequest;
use identity::Identity;
pub use missing::Missing;
pub(crate) use output::Output;
use parity::Restoring;
use recovery::Recovery;
use report::Reports;
use session::Session;
use whole::Whole;
pub use window::Slot;
use window::Window;

#[derive(Clone, Copy, Debug)]
enum Timer {
    /// Request the gaps that were seen.
    Gap,
    /// A request is due.
    Request,
    /// A request for digests is due.
    Digests,
    /// A question to the source is due.
    Confirm,
    /// A report is due.
    Report,
    /// The source may be dead.
    Source,
}

impl TimerId for Timer {
    fn index(self) -> usize {
        self as usize
    }
}

const TIMERS: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No heartbeat yet.
    Idle,
    /// Receiving.
    Open,
    /// Everything has come.
    Complete,
    /// Gave up.
    Failed,
    /// Closed.
    Ended,
}

/// The receiver's half of a session, and the replier in it. The [crate documentation](crate) shows how to
/// drive it.
///
/// Memory: at most 4.5 KiB and the tables of [`ReceiverStorage`]. Fields stand in the order written:
/// a data packet that is the next one touches the first few cache lines, its slot, its place in
/// the store, and nothing else.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Receiver<'a, S: Store> {
    now: Instant,
    window: Window<'a>,
    session: Option<Session>,
    phase: Phase,
    liveness: Liveness,
    timers: Timers<Timer, TIMERS>,
    stats: ReceiverStats,
    congestion: tfmcc::Receiver,
    store: S,
    gaps: Gaps<'a>,
    replies: Replies<'a>,
    recovery: Recovery,
    whole: Whole,
    audit: Audit,
    digests: DigestRequests,
    restoring: Restoring,
    confirmation: Confirmation,
    reports: Reports,
    config: ReceiverConfig,
    hashing: Hashing,
    identity: Identity,
    events: Events,
}

#[cfg(feature = "alloc")]
impl<S: Store> Receiver<'static, S> {
    /// Creates a receiver with tables on the heap, of the sizes in the configuration.
    pub fn new(config: ReceiverConfig, store: S, seed: [u8; 32], now: Instant) -> Self {
        let storage = ReceiverStorage::owned(&config.limits);
        Self::with_storage(config, store, storage, seed, now)
    }
}

impl<'a, S: Store> Receiver<'a, S> {
    /// Creates a receiver with the caller's tables.
    ///
    /// # Panics
    /// If `slots` or `requests` of the storage is empty.
    pub fn with_storage(
        mut config: ReceiverConfig,
        store: S,
        storage: ReceiverStorage<'a>,
        seed: [u8; 32],
        now: Instant,
    ) -> Self {
        assert!(
            !storage.slots.is_empty() && !storage.requests.is_empty(),
            "tables of a receiver"
        );
        config.bound_times();
        let replies = Replies::new(
            &config.replier,
            storage.repairs,
            storage.hold_down,
            storage.targets,
            now,
        );
        let mut receiver = Receiver {
            now,
            window: Window::new(storage.slots),
            session: None,
            phase: Phase::Idle,
            liveness: Liveness::new(now),
            timers: Timers::default(),
            stats: ReceiverStats::default(),
            congestion: tfmcc::Receiver::new(),
            store,
            gaps: Gaps::new(&config, storage.requests, now),
            replies,
            recovery: Recovery::new(&config, now),
            whole: Whole::default(),
            audit: Audit::default(),
            digests: DigestRequests::default(),
            restoring: Restoring::new(config.limits.parity),
            confirmation: Confirmation::new(now),
            reports: Reports::default(),
            hashing: Hashing::new(config.key),
            identity: Identity::new(seed),
            events: Events::default(),
            config,
        };
        receiver
            .timers
            .set(Timer::Source, now + receiver.config.source_timeout);
        receiver
    }

    /// Returns the receiver's random identifier.
    pub fn id(&self) -> u64 {
        self.identity.id()
    }

    /// Returns the session, once a heartbeat came.
    pub fn session(&self) -> Option<SessionId> {
        self.session.as_ref().map(Session::id)
    }

    /// Returns the source, once a heartbeat came.
    pub fn source(&self) -> Option<SocketAddr> {
        self.session.as_ref().map(Session::source)
    }

    /// Returns how the content is cut, once a heartbeat came.
    pub fn geometry(&self) -> Option<Geometry> {
        self.session.as_ref().map(Session::geometry)
    }

    /// Returns the name of the content: any bytes; never use it as a path unchecked.
    pub fn name(&self) -> &[u8] {
        self.session.as_ref().map_or(&[], Session::name)
    }

    /// Returns the bytes verified from the start on without a hole, and the length if known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (
            self.verified_end(),
            self.session.as_ref().and_then(Session::length),
        )
    }

    /// Whether everything arrived and verified. The source may not know it yet: a driver continues until
    /// [`Receiver::is_finished`].
    pub fn is_complete(&self) -> bool {
        self.phase == Phase::Complete
    }

    /// Whether the driver may stop: the last event ([`ReceiverEvent::Complete`] or
    /// [`ReceiverEvent::Failed`]) was taken, and the source has confirmed the last report, or requests none, or
    /// could not be reached. A receiver that is driven further repairs losses of other receivers.
    pub fn is_finished(&self) -> bool {
        let told = self.events.is_last_taken();
        match self.phase {
            Phase::Idle | Phase::Open => false,
            Phase::Complete => told,
            Phase::Failed => told && !self.timers.is_set(Timer::Report),
            Phase::Ended => told,
        }
    }

    /// Whether the receiver was closed: it sends nothing more.
    pub fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the store, for the application that owns its content.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Returns the round-trip time to the source, once measured.
    pub fn round_trip(&self) -> Option<Duration> {
        self.recovery.source_trip().smoothed()
    }

    /// Returns how many packets the source has sent to all, as far as is known, and how many of them came as
    /// DATA. The growth of both between two calls gives the loss in between, repaired or not.
    pub fn loss_counters(&self) -> (u64, u64) {
        let came = self.stats.data_packets + self.stats.duplicate_data;
        (self.gaps.highest(), came)
    }

    /// Returns the counters.
    pub fn stats(&self) -> &ReceiverStats {
        &self.stats
    }

    /// Which packets of the newest block have come: a bit each, the block's first packet lowest; 0
    /// before any came.
    #[inline]
    pub fn newest_block(&self) -> u64 {
        self.window.received(self.window.top().saturating_sub(1))
    }

    /// Returns the byte ranges that have not arrived and verified, in order.
    pub fn missing(&self) -> Missing<'_, 'a, S> {
        Missing::new(self)
    }

    /// Verified bytes not yet consumed, as many as lie together ([`crate::Delivery::Read`]); empty when
    /// there are none.
    ///
    /// # Errors
    /// When the store failed.
    pub fn peek(&mut self) -> Result<&[u8], StoreError> {
        let Some(session) = &self.session else {
            return Ok(&[]);
        };
        let geometry = session.geometry();
        let (at, end) = (self.window.consumed(), self.verified_end());
        if at >= end {
            return Ok(&[]);
        }
        let block = at >> geometry.block_exponent();
        let (offset, len) = session.place(block);
        let bytes = self.store.block(offset, len)?;
        Ok(&bytes[(at - offset) as usize..])
    }

    /// Takes `len` bytes of those that [`Receiver::peek`] returned.
    pub fn consume(&mut self, now: Instant, len: usize) {
        self.advance_clock(now);
        let Some(session) = &self.session else { return };
        let to = self.window.consumed().saturating_add(len as u64);
        let to = to.min(self.verified_end());
        if self.window.consume(&session.geometry(), to) {
            self.report_progress();
            self.look_for_gaps();
        }
    }

    /// Leaves the session: reports that to a source that requests reports, and sends nothing more.
    pub fn close(&mut self, now: Instant) {
        self.advance_clock(now);
        let known = self.session_is(Session::wants_reports);
        if self.phase == Phase::Open && known && self.reports.leave() {
            self.timers.set(Timer::Report, self.now);
        } else {
            self.phase = Phase::Ended;
        }
    }

    /// Returns the next event. Drain it until `None`.
    pub fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.poll()
    }

    /// Whether there is a session of which this holds.
    #[inline]
    fn session_is(&self, holds: impl FnOnce(&Session) -> bool) -> bool {
        self.session.as_ref().is_some_and(holds)
    }

    fn event(&mut self, event: ReceiverEvent) {
        if !self.events.push(event) {
            self.stats.events_lost += 1;
        }
    }

    fn advance_clock(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Returns the end of the bytes verified without a hole.
    fn verified_end(&self) -> u64 {
        let Some(session) = &self.session else {
            return 0;
        };
        let end = session.geometry().block_offset(self.window.frontier());
        session.length().map_or(end, |length| end.min(length))
    }

    /// Handles the passing of time. Harmless when called early or twice.
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

    /// Returns when to call [`Receiver::handle_timeout`].
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.phase == Phase::Ended {
            return None;
        }
        let next = self
            .timers
            .next_with(Timer::Request, || self.gaps.ready_at());
        let repair_len = || {
            let session = self.session.as_ref();
            session.map_or(0, |session| {
                session.geometry().packet_len() + FRAME_OVERHEAD
            })
        };
        let replies = self
            .replies
            .poll_timeout(repair_len, self.hashing.overhead());
        let next = match (next, replies) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let feedback = self.congestion.poll_timeout().filter(|_| self.may_answer());
        let next = next.into_iter().chain(feedback).min();
        next.map(|at| at.max(self.now))
    }

    /// Handles a packet.
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
}

proto_core::impl_machine! {
    impl['a, S: Store] Receiver<'a, S> {
        Meta = Meta; Transmit = crate::Transmit; Event = ReceiverEvent; Error = Error;
    }
}
