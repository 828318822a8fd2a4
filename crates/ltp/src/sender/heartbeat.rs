//! Heartbeats: their content, and when they are sent.

use proto_core::time::{Duration, Instant};

use super::{Phase, Sender, Timer};
use crate::config::SenderConfig;
use crate::digest::Hashing;
use crate::pacing::FRAME_OVERHEAD;
use crate::store::Store;
use crate::wire::sync::{self, SYNC_LEN};
use crate::{Destination, Transmit};

/// First heartbeat interval after the last packet; the next ones grow.
pub(super) const HEARTBEAT_MIN: Duration = Duration::from_millis(2);
/// Factor by which heartbeat intervals grow after the last packet.
const HEARTBEAT_GROWTH: u32 = 4;

/// When heartbeats are sent.
#[derive(Debug)]
pub(super) struct Heartbeats {
    is_due: bool,
    /// Length of a heartbeat's frame.
    frame_len: usize,
    /// The next interval while nothing is sent.
    next_idle: Duration,
    /// The first interval of a pause. It grows after short pauses, which have shown that the next data reveals
    /// losses itself.
    tail: Duration,
    /// When the last heartbeat was sent, or data began after a long pause.
    sent: Instant,
    /// When new data paused.
    paused: Option<Instant>,
}

impl Heartbeats {
    pub(super) fn new(config: &SenderConfig, hashing: &Hashing, now: Instant) -> Self {
        Heartbeats {
            is_due: true,
            frame_len: SYNC_LEN + config.name.len() + hashing.overhead() + FRAME_OVERHEAD,
            next_idle: HEARTBEAT_MIN,
            tail: HEARTBEAT_MIN,
            sent: now,
            paused: None,
        }
    }

    /// Has a heartbeat sent at once.
    pub(super) fn request(&mut self) {
        self.is_due = true;
    }

    /// Heartbeats are frequent again.
    pub(super) fn restart(&mut self) {
        self.next_idle = HEARTBEAT_MIN;
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    pub(super) fn frame_len(&self) -> usize {
        self.frame_len
    }
}

impl<S: Store> Sender<'_, S> {
    pub(super) fn sync_repr(&self, answer: Option<u64>) -> sync::Repr<'_> {
        let window = self.report_window_us();
        let progress = if self.config.receivers.is_some() {
            // Four reports a window keep it moving; without one, now and then is enough.
            let window = self.receivers.window_blocks();
            window.map_or(256, |blocks| (blocks / 4).max(1) as u32)
        } else {
            0
        };
        let silence = self.config.heartbeat_idle.max(self.active_interval());
        let silence_ms = silence.total_millis().clamp(1, 60_000) as u16;
        sync::Repr {
            session: self.session,
            silence_ms,
            geometry: self.content.geometry(),
            oldest: self.content.oldest(),
            next: self.content.next(),
            length: self.content.length(),
            digested: self.config.integrity.then_some(self.digests.published()),
            digest: self
                .digests
                .whole()
                .filter(|_| self.content.length().is_some()),
            reports: self.config.receivers.is_some(),
            closing: matches!(self.phase, Phase::Closing { .. }),
            stalled: self.stalled,
            stream: self.config.length.is_none(),
            parity: self.has_parity(),
            progress_blocks: progress,
            report_window_us: window,
            answer,
            name: if answer.is_some() {
                &[]
            } else {
                &self.config.name
            },
        }
    }

    /// Reports are spread so that no more come a second than configured.
    pub(super) fn report_window_us(&self) -> u32 {
        let receivers = u64::from(
            self.config
                .receivers
                .unwrap_or(0)
                .max(self.receivers.joined()),
        );
        let window = receivers * 1_000_000 / u64::from(self.config.reports_per_second.max(1));
        window.min(60_000_000) as u32
    }

    pub(super) fn poll_sync(&mut self, budget: usize, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.heartbeats.is_due {
            return None;
        }
        let repr = self.sync_repr(None);
        let len = repr.buffer_len();
        if !self.fits(budget, buffer, len) {
            return None;
        }
        repr.emit(buffer);
        self.heartbeats.is_due = false;
        self.stats.syncs += 1;
        self.schedule_sync();
        self.seal(Destination::Group, buffer, len)
    }

    fn schedule_sync(&mut self) {
        if let Phase::Closing { left } = &mut self.phase {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.phase = Phase::Ended;
                let _ = self.last_events.push_back(crate::SenderEvent::Finished);
                return;
            }
        }
        self.heartbeats.sent = self.now;
        let interval = if self.data_waits() {
            self.active_interval()
        } else {
            let interval = self.heartbeats.next_idle;
            let longest = self.config.heartbeat_idle.max(HEARTBEAT_MIN);
            self.heartbeats.next_idle = (self.heartbeats.next_idle * HEARTBEAT_GROWTH).min(longest);
            interval
        };
        self.timers.set(Timer::Sync, self.now + interval);
    }

    /// Schedules the next heartbeat after new data: soon at the end and in a pause, to name the newest packet;
    /// later when an application sends a little again and again, since its next data does that.
    pub(super) fn schedule_heartbeat(&mut self, flows: bool) {
        let was_short = self
            .heartbeats
            .paused
            .take()
            .map(|at| self.now < at + self.config.heartbeat);
        match was_short {
            Some(true) => {
                let longest = self.config.heartbeat.max(HEARTBEAT_MIN);
                self.heartbeats.tail = (self.heartbeats.tail * HEARTBEAT_GROWTH).min(longest);
            }
            Some(false) => self.heartbeats.tail = HEARTBEAT_MIN,
            None => {}
        }
        if was_short == Some(false) {
            // The last heartbeat is old, and the end of this burst not yet here.
            self.heartbeats.sent = self.now;
        }
        let mut at = self.heartbeats.sent + self.active_interval();
        if !flows {
            self.heartbeats.paused = Some(self.now);
            self.heartbeats.next_idle = self.heartbeats.tail * HEARTBEAT_GROWTH;
            at = at.min(self.now + self.heartbeats.tail);
        }
        self.timers.set(Timer::Sync, at);
    }

    /// Heartbeat interval while data flows: heartbeats take at most 1 % of a low rate.
    fn active_interval(&self) -> Duration {
        let hundred = self.heartbeats.frame_len as u64 * 8 * 100 * 1_000_000;
        let least = self.rate_bps().map_or(0, |rate| hundred / rate.max(1));
        self.config.heartbeat.max(Duration::from_micros(least))
    }
}
