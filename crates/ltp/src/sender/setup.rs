//! From a configuration: checks and rates.

#[cfg(test)]
mod tests;

use proto_core::time::{Duration, Instant};

use crate::config::SenderConfig;
use crate::pacing::{FRAME_OVERHEAD, Pacer};
use crate::storage::SenderStorage;
use crate::store::Store;
use crate::wire::MAC_LEN;
use crate::wire::sync::SYNC_LEN;
use crate::{ConfigError, Geometry};

/// The rates of data, answers and repairs.
#[derive(Debug)]
pub(super) struct Pacing {
    data: Pacer,
    /// Packets to single receivers: 16,000 of the smallest a second may take a tenth of the rate, at most
    /// 10 Mbit/s.
    answers: Pacer,
    /// Bytes that are sent at once.
    quantum: usize,
    /// Frame bytes that repairs may take before new data does, the most of them that are saved, and those that a
    /// new packet earns.
    repair_credit: i64,
    max_credit: i64,
    earned_credit: i64,
}

/// Answers that may go at once, in bytes.
const ANSWERS_DEPTH: usize = 16 * 1024;

fn answer_rate(rate_bps: Option<u64>) -> u64 {
    rate_bps.map_or(10_000_000, |rate| (rate / 10).clamp(10_000, 10_000_000))
}

impl Pacing {
    pub(super) fn new(config: &SenderConfig, geometry: &Geometry, now: Instant) -> Self {
        let frame = (geometry.packet_len() + FRAME_OVERHEAD) as i64;
        let share = i64::from(config.repair.share_percent.clamp(1, 99));
        let mut pacing = Pacing {
            data: Pacer::new(None, 0, now),
            answers: Pacer::new(Some(answer_rate(config.rate_bps)), ANSWERS_DEPTH, now),
            quantum: 0,
            repair_credit: 0,
            max_credit: 64 * frame,
            earned_credit: frame * share / (100 - share),
        };
        pacing.set_rate(config, config.rate_bps, now);
        pacing
    }

    /// Sets the rate of data, and with it that of answers.
    pub(super) fn set_rate(&mut self, config: &SenderConfig, rate_bps: Option<u64>, now: Instant) {
        let bytes_in = |time: Duration| {
            let rate = rate_bps.unwrap_or(0) / 8;
            (u128::from(rate) * u128::from(time.total_micros()) / 1_000_000).min(1 << 32) as usize
        };
        let sync = SYNC_LEN + config.name.len() + MAC_LEN;
        let frame = usize::from(config.max_packet_len).max(sync) + FRAME_OVERHEAD;
        let depth = bytes_in(config.burst).max(2 * frame);
        let max = depth.min(1 << 16).max(frame);
        self.data.set_rate(rate_bps, depth, now);
        self.answers
            .set_rate(Some(answer_rate(rate_bps)), ANSWERS_DEPTH, now);
        self.quantum = bytes_in(Duration::from_micros(250)).clamp(frame, max);
    }

    /// Returns how many frame bytes may go now.
    pub(super) fn budget(&mut self, now: Instant) -> usize {
        self.data.budget(now)
    }

    pub(super) fn spend(&mut self, frame: usize) {
        self.data.spend(frame);
    }

    /// Returns when a frame may go.
    pub(super) fn ready_at(&self, frame: usize) -> Instant {
        self.data.ready_at(frame)
    }

    /// Returns when data may go: as much as is sent at once.
    pub(super) fn data_at(&self) -> Instant {
        self.data.ready_at(self.quantum)
    }

    /// Takes an answer from the share of answers. Returns false if that does not allow it now.
    pub(super) fn spend_answer(&mut self, now: Instant, frame: usize) -> bool {
        let is_allowed = self.answers.budget(now) >= frame;
        if is_allowed {
            self.answers.spend(frame);
        }
        is_allowed
    }

    /// Returns when an answer may go.
    pub(super) fn answer_at(&self, frame: usize) -> Instant {
        self.answers.ready_at(frame).max(self.data.ready_at(frame))
    }

    /// A new packet earns repairs their share beside it.
    pub(super) fn earn_credit(&mut self) {
        self.repair_credit = (self.repair_credit + self.earned_credit).min(self.max_credit);
    }

    pub(super) fn spend_credit(&mut self, frame: usize) {
        self.repair_credit -= frame as i64;
    }

    pub(super) fn has_credit(&self) -> bool {
        self.repair_credit > 0
    }

    /// Forgets what repairs took beyond their share.
    pub(super) fn forgive_debt(&mut self) {
        self.repair_credit = self.repair_credit.max(0);
    }
}

pub(super) fn check<S: Store>(
    config: &SenderConfig,
    store: &S,
    storage: &SenderStorage<'_>,
) -> Result<Geometry, ConfigError> {
    let geometry = config.geometry().ok_or(ConfigError::Geometry)?;
    if config.parity.is_some() && !(config.integrity && cfg!(feature = "alloc")) {
        return Err(ConfigError::Parity);
    }
    if storage.targets.is_empty() {
        return Err(ConfigError::Storage);
    }
    if let Some(capacity) = store.capacity() {
        let whole_blocks = capacity % geometry.block_len() as u64 == 0;
        if !whole_blocks || capacity <= geometry.block_len() as u64 {
            return Err(ConfigError::Store);
        }
        let window = storage.window.len() as u64;
        if window > capacity / geometry.block_len() as u64 + 1 {
            return Err(ConfigError::Store);
        }
    }
    if let Some(length) = config.length {
        geometry.packets(length).ok_or(ConfigError::Length)?;
    }
    Ok(geometry)
}
