//! What a configuration comes to: checks and rates.

use proto_core::time::{Duration, Instant};

use crate::config::SenderConfig;
use crate::pacing::{FRAME_OVERHEAD, Pacer};
use crate::storage::SenderStorage;
use crate::store::Store;
use crate::wire::sync::SYNC_LEN;
use crate::wire::{MAC_LEN, Seq};
use crate::{ConfigError, Geometry};

pub(super) fn pacer(config: &SenderConfig, now: Instant) -> (Pacer, usize) {
    let bytes_in = |time: Duration| {
        let rate = config.rate_bps.unwrap_or(0) / 8;
        (u128::from(rate) * u128::from(time.total_micros()) / 1_000_000).min(1 << 32) as usize
    };
    let sync = SYNC_LEN + config.name.len() + MAC_LEN;
    let frame = usize::from(config.max_packet_len).max(sync) + FRAME_OVERHEAD;
    let depth = bytes_in(config.burst).max(2 * frame);
    let quantum = bytes_in(Duration::from_micros(250)).clamp(frame, depth.min(1 << 16).max(frame));
    (Pacer::new(config.rate_bps, depth, now), quantum)
}

/// Answers (16,000 of the smallest a second) may take a tenth of the rate, at most 10 Mbit/s.
pub(super) fn answer_pacer(config: &SenderConfig, now: Instant) -> Pacer {
    let rate = config
        .rate_bps
        .map_or(10_000_000, |rate| (rate / 10).clamp(10_000, 10_000_000));
    Pacer::new(Some(rate), 16 * 1024, now)
}

pub(super) fn check<S: Store>(
    config: &SenderConfig,
    store: &S,
    storage: &SenderStorage<'_>,
) -> Result<Geometry, ConfigError> {
    let first = Seq(config.first_sequence);
    let geometry = Geometry::for_packet_len(config.block_exponent, config.max_packet_len, first)
        .ok_or(ConfigError::Geometry)?;
    if storage.targets.is_empty() {
        return Err(ConfigError::Storage);
    }
    if let Some(capacity) = store.capacity() {
        let whole_blocks = capacity % geometry.block_len() as u64 == 0;
        if !whole_blocks || capacity < 2 * geometry.block_len() as u64 {
            return Err(ConfigError::Store);
        }
        let window = storage.window.len() as u64;
        if window > capacity / geometry.block_len() as u64 + 1 {
            return Err(ConfigError::Store);
        }
    }
    if let Some(length) = config.length {
        geometry.packets(length).ok_or(ConfigError::Length)?;
        if config.resume_blocks > geometry.blocks(length) {
            return Err(ConfigError::Length);
        }
    }
    // Digests of blocks that are not read again cannot be folded into the digest of the whole.
    if config.resume_blocks > 0 && config.integrity && config.digest.is_none() {
        return Err(ConfigError::Digest);
    }
    if config.resume_blocks > 0 && config.length.is_none() {
        return Err(ConfigError::Length);
    }
    Ok(geometry)
}
