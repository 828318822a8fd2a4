//! Heartbeats: what they say, and when they go.

use proto_core::time::Duration;

use super::{HEARTBEAT_MIN, Phase, Sender, Timer};
use crate::store::Store;
use crate::wire::sync;
use crate::{Destination, Transmit};

/// Each heartbeat interval after the last packet is so many times as long as the one before.
const HEARTBEAT_GROWTH: u32 = 4;

impl<S: Store> Sender<'_, S> {
    pub(super) fn sync_repr(&self, answer: Option<u64>) -> sync::Repr<'_> {
        let window = self.report_window_us();
        let progress = if self.config.receivers.is_some() {
            // Four reports a window keep it moving; without one, now and then is enough.
            let blocks = if self.window.is_used() {
                self.window.blocks() / 4
            } else {
                256
            };
            blocks.max(1) as u32
        } else {
            0
        };
        let silence = self.config.heartbeat_idle.max(self.active_interval());
        let silence_ms = silence.total_millis().clamp(1, 60_000) as u16;
        let oldest = self
            .geometry
            .first_packet(self.oldest_block())
            .min(self.next);
        sync::Repr {
            session: self.session,
            silence_ms,
            geometry: self.geometry,
            oldest,
            next: self.next,
            length: self.length,
            digested: self.config.integrity.then_some(self.published),
            digest: self.digest.filter(|_| self.length.is_some()),
            reports: self.config.receivers.is_some(),
            closing: matches!(self.phase, Phase::Closing { .. }),
            stalled: self.stalled,
            stream: self.config.length.is_none(),
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
        let receivers = u64::from(self.config.receivers.unwrap_or(0).max(self.members.joined));
        let window = receivers * 1_000_000 / u64::from(self.config.reports_per_second.max(1));
        window.min(60_000_000) as u32
    }

    pub(super) fn poll_sync(&mut self, budget: usize, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.sync_wanted {
            return None;
        }
        let repr = self.sync_repr(None);
        let len = repr.buffer_len();
        if !self.fits(budget, buffer, len) {
            return None;
        }
        repr.emit(buffer);
        self.sync_wanted = false;
        self.stats.syncs += 1;
        self.schedule_sync();
        self.seal(Destination::Group, buffer, len)
    }

    fn schedule_sync(&mut self) {
        if let Phase::Closing { left } = &mut self.phase {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.phase = Phase::Ended;
                let _ = self.ending.push_back(crate::SenderEvent::Finished);
                return;
            }
        }
        self.synced = self.now;
        let interval = if self.data_waits() {
            self.active_interval()
        } else {
            let interval = self.heartbeat;
            let longest = self.config.heartbeat_idle.max(HEARTBEAT_MIN);
            self.heartbeat = (self.heartbeat * HEARTBEAT_GROWTH).min(longest);
            interval
        };
        self.timers.set(Timer::Sync, self.now + interval);
    }

    /// After new data: when is the next heartbeat? Soon at the end and in a pause, to tell what was
    /// sent last; but when an application sends a little again and again, its next data tells.
    pub(super) fn schedule_heartbeat(&mut self, flows: bool) {
        let was_short = self
            .paused
            .take()
            .map(|at| self.now < at + self.config.heartbeat);
        match was_short {
            Some(true) => {
                let longest = self.config.heartbeat.max(HEARTBEAT_MIN);
                self.tail = (self.tail * HEARTBEAT_GROWTH).min(longest);
            }
            Some(false) => self.tail = HEARTBEAT_MIN,
            None => {}
        }
        if was_short == Some(false) {
            // The last heartbeat is old, and the end of this burst not yet here.
            self.synced = self.now;
        }
        let mut at = self.synced + self.active_interval();
        if !flows {
            self.paused = Some(self.now);
            self.heartbeat = self.tail * HEARTBEAT_GROWTH;
            at = at.min(self.now + self.tail);
        }
        self.timers.set(Timer::Sync, at);
    }

    /// Heartbeat interval while data flows: heartbeats take at most 1 % of a low rate.
    fn active_interval(&self) -> Duration {
        let hundred = self.sync_frame_len as u64 * 8 * 100 * 1_000_000;
        let least = self.config.rate_bps.map_or(0, |rate| hundred / rate.max(1));
        self.config.heartbeat.max(Duration::from_micros(least))
    }
}
