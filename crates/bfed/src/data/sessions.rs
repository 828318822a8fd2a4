//! The sessions of a data node: soft state that its control node refreshes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use proto_core::time::Instant;

use super::session::{Context, Session};
use super::{DataConfig, Plane};
use crate::name::SessionName;
use crate::native::NativeNet;
use crate::wire::allocate::Outcome;
use crate::wire::reclaim::{ReclaimTarget, Repr as Reclaim};
use crate::wire::statistics::{Entry, MAX_ENTRIES, Repr as Statistics};

/// Sessions examined for release in one call of `handle_timeout`.
const RELEASES_PER_TIMEOUT: usize = 256;

/// The release of sessions that the control node no longer wants: once for each stream to it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Release {
    /// The control node has not yet said that it knows all sessions.
    Waiting,
    /// Sessions after this one are still to be examined.
    After(Option<SessionName>),
    Done,
}

/// All sessions of a data node.
#[derive(Debug)]
pub(super) struct SessionTable {
    map: BTreeMap<SessionName, Session>,
    expire_at: Instant,
    /// Streams to the control node so far.
    stream: u32,
    release: Release,
    /// The session that the last STATISTICS ended with.
    last_reported: Option<SessionName>,
    statistics_at: Instant,
    /// Bytes sent until the last STATISTICS, and its time: there are none without a control node.
    reported: (u64, Instant),
}

impl SessionTable {
    pub(super) fn new(now: Instant, config: &DataConfig) -> Self {
        SessionTable {
            map: BTreeMap::new(),
            expire_at: now + config.soft_state_lifetime,
            stream: 0,
            release: Release::Waiting,
            last_reported: None,
            statistics_at: now,
            reported: (0, now),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Starts a new stream to the control node. Sessions get their full lifetime.
    pub(super) fn connected(&mut self, now: Instant, config: &DataConfig) {
        self.stream = self.stream.wrapping_add(1);
        self.release = Release::Waiting;
        self.statistics_at = now;
        self.last_reported = None;
        let expires = now + config.soft_state_lifetime;
        for session in self.map.values_mut() {
            session.expires = expires;
        }
        self.expire_at = expires;
    }

    pub(super) fn disconnected(&mut self) {
        self.release = Release::Waiting;
    }

    /// The control node knows all its sessions: the others are released.
    pub(super) fn complete(&mut self) {
        if self.release == Release::Waiting {
            self.release = Release::After(None);
        }
    }

    /// Applies `change` to a session, which is created unless the node is full.
    pub(super) fn update<N: NativeNet + ?Sized, T>(
        &mut self,
        cx: &mut Context<'_, N>,
        name: &SessionName,
        change: impl FnOnce(&mut Session, &mut Context<'_, N>) -> Result<T, Outcome>,
    ) -> Result<T, Outcome> {
        if !self.map.contains_key(name) {
            if self.map.len() >= cx.config.max_sessions as usize {
                return Err(Outcome::Full);
            }
            let session = Session::new(name, cx.plane);
            self.map.insert(name.clone(), session);
        }
        let session = self.map.get_mut(name).ok_or(Outcome::Full)?;
        session.expires = cx.now + cx.config.soft_state_lifetime;
        session.stream = self.stream;
        change(session, cx)
    }

    /// Handles a REFRESH or RECLAIM.
    pub(super) fn reclaim<N: NativeNet + ?Sized>(
        &mut self,
        cx: &mut Context<'_, N>,
        message: Reclaim,
    ) {
        let Some(session) = self.map.get_mut(&message.session) else {
            return;
        };
        match message.what {
            None => {
                session.expires = cx.now + cx.config.soft_state_lifetime;
                session.stream = self.stream;
                session.refresh(cx);
            }
            Some(ReclaimTarget::Receiver(link)) => session.remove_receiver(cx, link),
            Some(ReclaimTarget::Source(link)) => session.release_source(cx, link),
            Some(ReclaimTarget::All) => self.close(cx, &message.session),
        }
    }

    fn close<N: NativeNet + ?Sized>(&mut self, cx: &mut Context<'_, N>, name: &SessionName) {
        if let Some(session) = self.map.remove(name) {
            session.close(cx);
        }
    }

    /// Closes sessions that expired, and some that the control node neither requested nor refreshed since its stream
    /// began.
    pub(super) fn handle_timeout<N: NativeNet + ?Sized>(&mut self, cx: &mut Context<'_, N>) {
        if self.expire_at <= cx.now {
            let expired = self.map.iter().filter(|(_, one)| one.expires <= cx.now);
            let expired: Vec<_> = expired.map(|(name, _)| name.clone()).collect();
            for name in expired {
                self.close(cx, &name);
            }
            let next = self.map.values().map(|session| session.expires).min();
            self.expire_at = next.unwrap_or(cx.now + cx.config.soft_state_lifetime);
        }
        let Release::After(after) = &self.release else {
            return;
        };
        let examined = self.after(after.as_ref()).take(RELEASES_PER_TIMEOUT);
        let examined: Vec<_> = examined
            .map(|(name, session)| (name.clone(), session.stream == self.stream))
            .collect();
        self.release = match examined.last() {
            Some((last, _)) if examined.len() == RELEASES_PER_TIMEOUT => {
                Release::After(Some(last.clone()))
            }
            _ => Release::Done,
        };
        for (name, _) in examined.into_iter().filter(|(_, is_known)| !is_known) {
            self.close(cx, &name);
        }
    }

    /// Returns the sessions after a name, or all.
    fn after(&self, name: Option<&SessionName>) -> impl Iterator<Item = (&SessionName, &Session)> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.map.range::<SessionName, _>((from, Bound::Unbounded))
    }

    /// Returns the STATISTICS that are due: counters of some sessions each time, in turn.
    pub(super) fn poll_statistics(
        &mut self,
        now: Instant,
        config: &DataConfig,
        plane: &Plane,
    ) -> Option<Statistics> {
        if self.statistics_at > now {
            return None;
        }
        self.statistics_at = now + config.statistics_interval;
        let (before, since) =
            core::mem::replace(&mut self.reported, (plane.stats.copied_bytes, now));
        let millis = (now - since).total_millis().max(1);
        let rate_bps = (plane.stats.copied_bytes - before).saturating_mul(8000) / millis;
        let next = self.after(self.last_reported.as_ref()).take(MAX_ENTRIES);
        let entries: Vec<_> = next.map(|(name, one)| one.counts(name, plane)).collect();
        let is_full = entries.len() == MAX_ENTRIES;
        let last = entries.last().filter(|_| is_full);
        self.last_reported = last.map(|entry: &Entry| entry.session.clone());
        Some(Statistics {
            sessions: self.map.len() as u32,
            rate_bps,
            entries,
        })
    }

    /// Returns whether sessions are still being examined for release.
    pub(super) fn is_releasing(&self) -> bool {
        matches!(self.release, Release::After(_))
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.expire_at.min(self.statistics_at)
    }
}
