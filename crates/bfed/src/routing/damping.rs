//! Damping of routes that flap (RFC 2439, with the limits of RIPE-580): a route that comes and goes
//! gathers a penalty, which halves with time; above one limit the route is not used, below another it
//! is again.

use alloc::collections::{BTreeMap, BTreeSet};

use proto_core::time::{Duration, Instant};

use crate::types::{GatewayId, PeerId, Table};

/// How routes are damped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damping {
    /// Penalty of a withdrawal.
    pub withdrawal: u32,
    /// Penalty of a change of attributes.
    pub change: u32,
    /// From this penalty on a route is not used.
    pub suppress: u32,
    /// Below this penalty it is used again.
    pub reuse: u32,
    /// How long a penalty takes to halve.
    pub half_life: Duration,
    /// No route is unused for longer after its last flap.
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
    /// When it is used again, if it is not now.
    reuse_at: Option<Instant>,
}

/// The routes that flapped lately.
#[derive(Debug)]
pub(super) struct Flaps {
    config: Damping,
    max: usize,
    records: BTreeMap<Key, Record>,
    reuse: BTreeSet<(Instant, Key)>,
    /// Where the look for records to forget goes on.
    sweep: Option<Key>,
}

/// What a flap is.
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

    /// Takes other limits: for penalties from now on.
    pub(super) fn reconfigure(&mut self, config: Damping, max: usize) {
        (self.config, self.max) = (config, max);
    }

    /// A peer is no longer configured: another may get its number.
    pub(super) fn forget_peer(&mut self, id: PeerId) {
        self.records.retain(|(peer, ..), _| *peer != id);
        self.reuse.retain(|(_, (peer, ..))| *peer != id);
    }

    fn decayed(&self, record: &Record, now: Instant) -> f64 {
        let lives = (now - record.at).total_micros() as f64
            / self.config.half_life.total_micros().max(1) as f64;
        record.penalty * libm::exp2(-lives)
    }

    /// Whether the route is not to be used.
    pub(super) fn is_suppressed(&self, key: &Key) -> bool {
        self.records
            .get(key)
            .is_some_and(|record| record.reuse_at.is_some())
    }

    /// The route flapped. A route that is not known yet is not remembered at the limit.
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
        // Never more than what takes the longest time to fall to the reuse limit (RFC 2439 §4.2).
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

    /// A route that may be used again by now.
    pub(super) fn released(&mut self, now: Instant) -> Option<Key> {
        let &(at, key) = self.reuse.first().filter(|(at, _)| *at <= now)?;
        self.reuse.remove(&(at, key));
        if let Some(record) = self.records.get_mut(&key) {
            record.reuse_at = None;
        }
        Some(key)
    }

    /// Looks at one record, and forgets it if its penalty has become small.
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

    /// How many routes are remembered.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}
