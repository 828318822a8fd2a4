//! A token bucket over Ethernet frame bytes.

use proto_core::time::{Duration, Instant};

/// Bytes that Ethernet (without its check sequence), IPv4 and UDP add to a UDP payload.
pub const FRAME_OVERHEAD: usize = 14 + 20 + 8;

/// Tokens are millionths of a bit: a rate in bit/s times a time in microseconds, exactly.
const UNIT: i64 = 8_000_000;

/// Bytes as tokens, 8 GiB at most.
fn units(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX).min(1 << 33) * UNIT
}

/// A token bucket. Over any time `t` it lets through at most `rate * t` plus its depth.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pacer {
    /// bit/s; 0: no limit.
    rate: u64,
    /// In [`UNIT`]s of a byte; never above `depth`.
    tokens: i64,
    depth: i64,
    updated: Instant,
}

impl Pacer {
    /// A full bucket of `depth_len` bytes; no rate is no limit. Rates above 1 Tbit/s count as
    /// that.
    pub fn new(rate_bps: Option<u64>, depth_len: usize, now: Instant) -> Self {
        let depth = units(depth_len);
        let rate = rate_bps.map_or(0, |rate| rate.clamp(1, 1_000_000_000_000));
        Pacer {
            rate,
            tokens: depth,
            depth,
            updated: now,
        }
    }

    /// Sets rate and depth. What may go now stays, up to the new depth; a bucket without a limit becomes a full one.
    pub fn set_rate(&mut self, rate_bps: Option<u64>, depth_len: usize, now: Instant) {
        if self.rate == 0 {
            *self = Pacer::new(rate_bps, depth_len, now);
            return;
        }
        self.refill(now);
        let next = Pacer::new(rate_bps, depth_len, now);
        self.tokens = self.tokens.min(next.depth);
        (self.rate, self.depth, self.updated) = (next.rate, next.depth, now);
    }

    /// Makes the bucket hold at least `depth_len` bytes. The added part is full.
    pub fn deepen(&mut self, depth_len: usize) {
        let added = (units(depth_len) - self.depth).max(0);
        self.depth += added;
        self.tokens += added;
    }

    fn refill(&mut self, now: Instant) {
        let elapsed_us = (now.total_micros() - self.updated.total_micros()).max(0);
        if elapsed_us == 0 {
            return;
        }
        self.updated = now;
        let room = i128::from(self.depth - self.tokens);
        let gain = (i128::from(self.rate) * i128::from(elapsed_us)).min(room);
        self.tokens += gain as i64;
    }

    /// Frame bytes that may go now.
    pub fn budget(&mut self, now: Instant) -> usize {
        if self.rate == 0 {
            return usize::MAX;
        }
        self.refill(now);
        usize::try_from(self.tokens / UNIT).unwrap_or(0)
    }

    /// Takes `frame_len` bytes out; may leave a debt.
    pub fn spend(&mut self, frame_len: usize) {
        if self.rate != 0 {
            self.tokens -= i64::try_from(frame_len).unwrap_or(i64::MAX / UNIT) * UNIT;
        }
    }

    /// When `frame_len` bytes (at most the depth) may go.
    pub fn ready_at(&self, frame_len: usize) -> Instant {
        let want = units(frame_len).min(self.depth);
        let lacking = want - self.tokens;
        if self.rate == 0 || lacking <= 0 {
            return self.updated;
        }
        let wait_us = (lacking as u64).div_ceil(self.rate);
        self.updated + Duration::from_micros(wait_us)
    }
}
