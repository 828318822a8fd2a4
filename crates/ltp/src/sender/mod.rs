//! The source's half of a session.

mod answers;
mod congestion;
mod content;
mod digests;
mod heartbeat;
mod input;
mod output;
mod protection;
mod queue;
mod receivers;
mod relay;
mod reports;
mod setup;
mod window;

use proto_core::time::Instant;
use proto_core::timer::{TimerId, Timers};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use crate::config::{SenderConfig, SessionChoice};
use crate::digest::{Digest, Hashing};
use crate::error::Error;
use crate::event::SenderEvent;
use crate::replier::{Repairs, TargetLimits};
use crate::stats::SenderStats;
use crate::storage::SenderStorage;
use crate::store::Store;
use crate::{ConfigError, Geometry, Meta, SessionId, tfmcc};

use content::Content;
use digests::Digests;
use heartbeat::{HEARTBEAT_MIN, Heartbeats};
use protection::Protection;
use queue::AnswerQueue;
pub use receivers::Member;
use receivers::Receivers;
use relay::RelayState;
use setup::{Pacing, check};

/// Heartbeats that announce the end.
const CLOSING_HEARTBEATS: u8 = 3;

#[derive(Clone, Copy, Debug)]
enum Timer {
    /// Next heartbeat.
    Sync,
    /// Give up waiting for receivers to join.
    Start,
    /// Digests have waited long enough.
    Digests,
    /// Look for silent receivers.
    Silence,
    /// No request came for the linger time.
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
    /// Announcing the end.
    Closing { left: u8 },
    /// Ended.
    Ended,
}

/// The source's half of a session. The [crate documentation](crate) shows how to drive it.
///
/// | state | owner |
/// | --- | --- |
/// | the store, and how far the content was sent | `Content` |
/// | digests of blocks and of the whole | `Digests` |
/// | rates | `Pacing` |
/// | heartbeats | `Heartbeats` |
/// | receivers that report | `Receivers` |
/// | the relay's acknowledgement | `RelayState` |
/// | repairs | `Repairs` |
/// | parity | `Protection` |
///
/// The other fields are of the session as a whole. Memory: at most 10 KiB and the tables of [`SenderStorage`].
#[derive(Debug)]
pub struct Sender<'a, S: Store> {
    config: SenderConfig,
    session: SessionId,
    hashing: Hashing,
    token_key: [u8; 16],
    now: Instant,
    phase: Phase,
    timers: Timers<Timer, TIMERS>,
    content: Content<S>,
    digests: Digests<'a>,
    heartbeats: Heartbeats,
    pacing: Pacing,
    receivers: Receivers<'a>,
    relay: RelayState,
    repairs: Repairs<'a>,
    protection: Option<Protection>,
    answers: AnswerQueue,
    events: heapless::Deque<SenderEvent, 32>,
    /// The last events, which are never lost.
    last_events: heapless::Deque<SenderEvent, 4>,
    /// New data waits for receivers.
    stalled: bool,
    /// The store failed: nothing more is read from it.
    failed: bool,
    completed: bool,
    stats: SenderStats,
    congestion: Option<tfmcc::Sender>,
}

#[cfg(feature = "alloc")]
impl<S: Store> Sender<'static, S> {
    /// Creates a sender with tables on the heap, of the sizes in the configuration.
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
    /// Creates a sender with the caller's tables.
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
        let limits = TargetLimits {
            rate_bps: None,
            depth_len: 0,
        };
        let mut repairs = Repairs::new(
            storage.repairs,
            storage.hold_down,
            storage.targets,
            limits,
            config.repair.hold_down,
        );
        repairs.set_packets_per_block(geometry.packets_per_block());
        let mut sender = Sender {
            session,
            token_key,
            now,
            phase: Phase::Waiting,
            timers: Timers::default(),
            content: Content::new(&config, store, geometry),
            digests: Digests::new(&config, storage.digests),
            heartbeats: Heartbeats::new(&config, &hashing, now),
            pacing: Pacing::new(&config, &geometry, now),
            receivers: Receivers::new(storage.members, member_key, storage.window),
            relay: RelayState::default(),
            repairs,
            protection: config
                .parity
                .and_then(|parity| Protection::new(parity, &geometry)),
            answers: AnswerQueue::default(),
            events: heapless::Deque::new(),
            last_events: heapless::Deque::new(),
            stalled: false,
            failed: false,
            completed: false,
            stats: SenderStats::default(),
            congestion: congestion::begin(&config, &geometry, now),
            hashing,
            config,
        };
        let wait = if sender.config.receivers.is_some() {
            sender.config.connect_timeout
        } else {
            // Three heartbeats first: a receiver that misses every one requests the data later.
            HEARTBEAT_MIN * 4
        };
        sender.timers.set(Timer::Start, now + wait);
        sender
            .timers
            .set(Timer::Silence, now + sender.silence_tick());
        sender.follow_congestion();
        Ok(sender)
    }

    /// Returns the session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns how the content is cut.
    pub fn geometry(&self) -> Geometry {
        self.content.geometry()
    }

    /// Adds bytes to a stream. Returns how many were taken: nothing that is still to be
    /// sent, or that a known receiver may lack, is overwritten; call again after sending.
    ///
    /// # Errors
    /// [`crate::store::StoreError`] when the store failed.
    pub fn send(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, crate::store::StoreError> {
        self.advance_clock(now);
        let taken = self.room().min(bytes.len() as u64) as usize;
        self.content.append(&bytes[..taken])?;
        Ok(taken)
    }

    /// Returns how many bytes [`Sender::send`] would take now.
    pub fn room(&self) -> u64 {
        let needed = [
            self.receivers.slowest(),
            self.relay_slowest(),
            self.unannounced(),
        ];
        self.content.room(needed.into_iter().flatten().min())
    }

    /// Ends the stream after the bytes that were added.
    pub fn finish(&mut self, now: Instant) {
        self.advance_clock(now);
        if self.content.length().is_none() {
            self.content.finish();
            self.heartbeats.request();
            // Whole packets do not wait for the end: everything may have been sent before.
            self.check_sent();
        }
    }

    /// Announces the end and ends, even if receivers lack something.
    pub fn close(&mut self, now: Instant) {
        self.advance_clock(now);
        if !matches!(self.phase, Phase::Closing { .. } | Phase::Ended) {
            self.phase = Phase::Closing {
                left: CLOSING_HEARTBEATS,
            };
            self.heartbeats.restart();
            self.heartbeats.request();
        }
    }

    /// Whether the driver may stop: [`SenderEvent::Complete`] was taken, or the sender has ended. A sender
    /// that is driven further serves receivers that come late, for [`SenderConfig::linger`]; one that stops
    /// here may [`close`](Sender::close) first and continue until [`Sender::is_ended`], so that receivers learn
    /// that it ends.
    pub fn is_finished(&self) -> bool {
        (self.completed || self.is_ended())
            && self.last_events.is_empty()
            && self.answers.is_empty()
    }

    /// Whether nothing more will be sent.
    pub fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Returns the bytes of the content sent at least once, and its length if known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.content.sent_len(), self.content.length())
    }

    /// Returns how many hosts joined, and how many of them have everything.
    pub fn receivers(&self) -> (u32, u32) {
        (self.receivers.joined(), self.receivers.complete())
    }

    /// Returns the digest of the whole, once everything was sent.
    pub fn digest(&self) -> Option<Digest> {
        self.digests.whole()
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        self.content.store()
    }

    /// Sets the rate (Ethernet frame bits a second).
    pub fn set_rate(&mut self, now: Instant, rate_bps: Option<u64>) {
        self.advance_clock(now);
        self.config.rate_bps = rate_bps;
        if let Some(congestion) = &mut self.congestion {
            congestion.set_highest(rate_bps);
        }
        self.pacing.set_rate(&self.config, self.rate_bps(), now);
    }

    /// Returns the worst share of the packets to all that a receiver has reported lost since the last call, in
    /// thousandths, repaired or not. `None`: no receiver has reported enough packets. Receivers report with [`SenderConfig::receivers`].
    pub fn take_worst_loss(&mut self) -> Option<u16> {
        self.receivers.take_worst_loss()
    }

    /// Returns the counters.
    pub fn stats(&self) -> &SenderStats {
        &self.stats
    }

    /// Returns the next event. Drain it until `None`.
    pub fn poll_event(&mut self) -> Option<SenderEvent> {
        self.events
            .pop_front()
            .or_else(|| self.last_events.pop_front())
    }

    fn event(&mut self, event: SenderEvent) {
        if self.events.push_back(event).is_err() {
            self.stats.events_lost += 1;
        }
    }

    fn advance_clock(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Handles the passing of time. Harmless when called early or twice.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance_clock(now);
        let now = self.now;
        if self.phase == Phase::Ended {
            return;
        }
        self.congestion_timeout();
        if self.timers.fired(Timer::Sync, now) {
            self.heartbeats.request();
        }
        let waited = self.timers.fired(Timer::Start, now);
        if self.phase == Phase::Waiting && (waited || self.all_joined()) {
            self.begin();
        }
        if self.timers.fired(Timer::Silence, now) {
            self.expire_receivers();
        }
        if self.timers.fired(Timer::Digests, now) {
            self.digests.delay_passed();
        }
        if self.timers.fired(Timer::Linger, now) && self.phase == Phase::Sent {
            if self.receivers.are_waited_for() || self.relay_lacks() {
                // Each receiver that joined is waited for until it is complete or given up, and so is the relay.
                let pause = self.config.linger.max(self.silence_tick());
                self.timers.set(Timer::Linger, now + pause);
            } else {
                self.close(now);
            }
        }
    }

    /// Returns when to call [`Sender::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.phase == Phase::Ended {
            return None;
        }
        let answers = self.answer_at();
        let sync = self
            .heartbeats
            .is_due()
            .then(|| self.pacing.ready_at(self.heartbeats.frame_len()));
        let data = self.data_waits() || self.digests_due();
        let data = data.then(|| self.pacing.data_at());
        let repairs = self.repairs.poll_timeout(0).filter(|_| !self.failed);
        let repairs = repairs.map(|at| at.max(self.pacing.data_at()));
        let output = [answers, sync, data, repairs].into_iter().flatten().min();
        let output = output.map(|at| at.max(self.now));
        let congestion = self.congestion_wake();
        let others = congestion.into_iter().chain(self.timers.next());
        output.into_iter().chain(others).min()
    }

    fn all_joined(&self) -> bool {
        self.config
            .receivers
            .is_some_and(|expected| self.receivers.joined() >= expected)
    }

    fn begin(&mut self) {
        self.skip_what_all_have();
        self.phase = Phase::Sending;
        self.heartbeats.request();
        self.timers.stop(Timer::Start);
        self.event(SenderEvent::Started {
            joined: self.receivers.joined(),
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
        let slowest = self.receivers.slowest_joined().filter(|&block| block > 0);
        if let Some(slowest) = slowest
            && self.content.next() == 0
        {
            self.content.skip_to(slowest);
            self.digests.skip_to(slowest);
            self.receivers.begin_at(slowest);
        }
    }

    /// Whether a packet that was never sent may go, the rate aside.
    fn data_waits(&self) -> bool {
        self.phase == Phase::Sending
            && self.content.has_data()
            && self.content.blocks_sent() < self.limit()
    }

    /// After a new packet: ends this phase if it was the last.
    fn check_sent(&mut self) {
        let all = self.content.is_sent();
        let integrity = self.config.integrity;
        let settled = !integrity || self.digests.hashed() == self.digests.published();
        if self.phase != Phase::Sending || !all || !settled {
            return;
        }
        if integrity && !self.digests.finish(&self.hashing) {
            self.fail_store();
            return;
        }
        self.all_sent();
        self.check_complete();
    }

    fn all_sent(&mut self) {
        self.phase = Phase::Sent;
        self.heartbeats.request();
        self.heartbeats.restart();
        self.touch_linger();
        self.event(SenderEvent::Sent {
            length: self.content.written(),
            digest: self.digests.whole(),
        });
    }

    /// Requests and reports put the end off. Where receivers report, requests do so only for a while after
    /// the last receiver that is waited for.
    fn touch_linger(&mut self) {
        if self.phase != Phase::Sent {
            return;
        }
        let mut at = self.now + self.config.linger;
        if self.config.receivers.is_some()
            && let Some(settled) = self.receivers.settle(self.now)
        {
            at = at.min(settled + self.config.linger.max(self.config.receiver_timeout));
        }
        self.timers.set(Timer::Linger, at);
    }

    fn check_complete(&mut self) {
        let expected = self.config.receivers;
        let all = expected.is_some_and(|hosts| self.receivers.have_all(hosts));
        // All may have had it before all of it was sent.
        let open = matches!(self.phase, Phase::Waiting | Phase::Sending | Phase::Sent);
        if all && open && !self.completed {
            // Digests still to be sent are no longer needed.
            if self.phase == Phase::Sending && self.content.is_sent() {
                self.all_sent();
            }
            self.completed = true;
            let _ = self.last_events.push_back(SenderEvent::Complete);
        }
    }

    /// The announced content cannot be sent: announces the end.
    fn fail_store(&mut self) {
        let now = self.now;
        self.close(now);
        if !core::mem::replace(&mut self.failed, true) {
            let _ = self.last_events.push_back(SenderEvent::StoreFailed);
        }
    }

    /// Handles a packet.
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
