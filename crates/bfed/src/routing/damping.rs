//! Damping of flapping routes (RFC 2439, with the limits of RIPE-580). A route gains a penalty with each flap; the
//! penalty halves with time. Above one limit the route is suppressed, below another it is used again.

use alloc::collections::{BTreeMap, BTreeSet};

use proto_core::time::{Duration, Instant};

use crate::types::{GatewayId, PeerId, Table};

/// Parameters of damping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damping {
    /// Penalty of a withdrawal.
    pub withdrawal: u32,
    /// Penalty of a change of attributes.
    pub change: u32,
    /// Penalty at which a route is suppressed.
    pub suppress: u32,
    /// Penalty below which it is used again.
    pub reuse: u32,
    /// Time in which a penalty halves.
    pub half_life: Duration,
    /// Longest suppression after the last flap.
    pub max_suppress: Duration,
}

impl Default for Damping {
    fn default() -> Self {
        Damping {
            withdrawal: 1000,
            change: 500,
            suppress: 6000,
            reuse: 750,
            half_life: Duration::from_secs(15 * 60),
            max_suppress: Duration::from_secs(60 * 60),
        }
    }
}

/// A route of one peer.
pub(super) type Key = (PeerId, Table, GatewayId);

#[derive(Clone, Copy, Debug)]
struct Record {
    penalty: f64,
    at: Instant,
    /// When it is used again, if it is suppressed.
    reuse_at: Option<Instant>,
}

/// Routes that flapped lately.
#[derive(Debug)]
pub(super) struct Flaps {
    config: Damping,
    max: usize,
    records: BTreeMap<Key, Record>,
    reuse: BTreeSet<(Instant, Key)>,
    /// The record examined last.
    sweep: Option<Key>,
}

/// Kind of a flap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flap {
    Withdrawn,
    Changed,
}

impl Flaps {
    pub(super) fn new(config: Damping, max: usize) -> Self {
        Flaps {
            config,
            max,
            records: BTreeMap::new(),
            reuse: BTreeSet::new(),
            sweep: None,
        }
    }

    /// Changes the limits for later flaps.
    pub(super) fn reconfigure(&mut self, config: Damping, max: usize) {
        (self.config, self.max) = (config, max);
    }

    /// Removes a peer: another may get its number.
    pub(super) fn forget_peer(&mut self, id: PeerId) {
        self.records.retain(|(peer, ..), _| *peer != id);
        self.reuse.retain(|(_, (peer, ..))| *peer != id);
    }

    fn decayed(&self, record: &Record, now: Instant) -> f64 {
        let lives = (now - record.at).total_micros() as f64
            / self.config.half_life.total_micros().max(1) as f64;
        record.penalty * libm::exp2(-lives)
    }

    /// Returns whether the route is suppressed.
    pub(super) fn is_suppressed(&self, key: &Key) -> bool {
        self.records
            .get(key)
            .is_some_and(|record| record.reuse_at.is_some())
    }

    /// Counts a flap. At the limit, a new route is not remembered.
    pub(super) fn flap(&mut self, now: Instant, key: Key, flap: Flap) {
        self.forget_one(now);
        let fresh = Record {
            penalty: 0.0,
            at: now,
            reuse_at: None,
        };
        let mut record = match self.records.get(&key) {
            Some(record) => *record,
            None if self.records.len() < self.max => fresh,
            None => return,
        };
        let (config, half_life) = (
            self.config,
            self.config.half_life.total_micros().max(1) as f64,
        );
        let add = match flap {
            Flap::Withdrawn => config.withdrawal,
            Flap::Changed => config.change,
        };
        // At most the penalty that decays to the reuse limit in the longest suppression (RFC 2439 §4.2).
        let lives = config.max_suppress.total_micros() as f64 / half_life;
        let ceiling = f64::from(config.reuse) * libm::exp2(lives);
        record.penalty = (self.decayed(&record, now) + f64::from(add)).min(ceiling);
        record.at = now;
        if let Some(at) = record.reuse_at.take() {
            self.reuse.remove(&(at, key));
        }
        let was = self
            .records
            .insert(key, record)
            .is_some_and(|old| old.reuse_at.is_some());
        if record.penalty >= f64::from(config.suppress) || was {
            let lives = libm::log2(record.penalty / f64::from(config.reuse.max(1))).max(0.0);
            let at = now + Duration::from_micros((lives * half_life) as u64);
            self.reuse.insert((at, key));
            record.reuse_at = Some(at);
            self.records.insert(key, record);
        }
    }

    /// Returns a route whose suppression has ended.
    pub(super) fn released(&mut self, now: Instant) -> Option<Key> {
        let &(at, key) = self.reuse.first().filter(|(at, _)| *at <= now)?;
        self.reuse.remove(&(at, key));
        if let Some(record) = self.records.get_mut(&key) {
            record.reuse_at = None;
        }
        Some(key)
    }

    /// Examines one record, and removes it if its penalty is small.
    fn forget_one(&mut self, now: Instant) {
        let next = match self.sweep {
            Some(key) => self
                .records
                .range((core::ops::Bound::Excluded(key), core::ops::Bound::Unbounded))
                .next(),
            None => self.records.first_key_value(),
        };
        let Some((&key, record)) = next else {
            self.sweep = None;
            return;
        };
        self.sweep = Some(key);
        let small = self.decayed(record, now) < f64::from(self.config.reuse) / 2.0;
        if record.reuse_at.is_none() && small {
            self.records.remove(&key);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.reuse.first().map(|(at, _)| *at)
    }

    /// Returns the number of routes remembered.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}
