//! Known session-specific routes, and pending requests for them: bounded, with expiry.

use alloc::vec::Vec;

use proto_core::time::Instant;

use crate::config::Limits;
use crate::expiring::Expiring;
use crate::name::SessionName;
use crate::tree::Slot;
use crate::types::{GatewayId, PeerId};
use crate::wire::sroute::GatewayCost;

/// Costs of one session; empty after a null response.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) costs: Vec<GatewayCost>,
    pub(super) at: Instant,
}

/// A pending request.
#[derive(Debug)]
pub(super) enum Open {
    /// Forwarded for a peer, with the peer's number.
    Passed {
        from: PeerId,
        number: u32,
        to: PeerId,
    },
    /// This gateway's own, for one of its trees.
    Own { slot: Slot, to: PeerId },
    /// To the native network, for a peer.
    Native {
        from: PeerId,
        number: u32,
        wanted: Vec<GatewayId>,
        internal: bool,
    },
    /// To other gateways of this network: the costs so far, and the gateways that have not answered.
    Gather {
        from: PeerId,
        number: u32,
        costs: Vec<GatewayCost>,
        missing: Vec<PeerId>,
    },
}

#[derive(Debug)]
pub(super) struct PendingSroute {
    pub(super) session: SessionName,
    pub(super) open: Open,
    pub(super) deadline: Instant,
}

/// Known costs and pending requests.
#[derive(Debug)]
pub(super) struct Store {
    max_known: usize,
    max_pending: usize,
    pub(super) known: Expiring<SessionName, Known>,
    pub(super) pending: Expiring<u32, PendingSroute>,
}

impl Store {
    pub(super) fn new(limits: &Limits) -> Self {
        Store {
            max_known: limits.max_sroutes,
            max_pending: limits.max_requests,
            known: Expiring::default(),
            pending: Expiring::default(),
        }
    }

    /// Returns the fresh costs of a session; empty after a null response.
    pub(super) fn get(&self, session: &SessionName) -> Option<&[GatewayCost]> {
        self.known.get(session).map(|known| &known.costs[..])
    }

    /// Returns whether costs of a session can be kept without evicting others.
    pub(super) fn has_room(&self, session: &SessionName) -> bool {
        self.known.len() < self.max_known || self.known.get(session).is_some()
    }

    /// Keeps costs. Returns whether they have changed.
    pub(super) fn put(
        &mut self,
        now: Instant,
        session: &SessionName,
        costs: Vec<GatewayCost>,
        until: Instant,
    ) -> bool {
        let before = self.get(session);
        let changed = before.is_none_or(|before| before != costs);
        if before.is_none() && self.known.len() >= self.max_known {
            self.known.pop_first();
        }
        let known = Known { costs, at: now };
        self.known.insert(session.clone(), known, until);
        changed
    }

    pub(super) fn add(
        &mut self,
        number: u32,
        session: &SessionName,
        open: Open,
        deadline: Instant,
    ) -> bool {
        if self.pending.len() >= self.max_pending {
            return false;
        }
        let session = session.clone();
        let pending = PendingSroute {
            session,
            open,
            deadline,
        };
        self.pending.insert(number, pending, deadline);
        true
    }

    pub(super) fn take(&mut self, number: u32) -> Option<PendingSroute> {
        self.pending.remove(&number).map(|(_, pending)| pending)
    }

    /// Removes a pending request that a peer answers, if it was sent to that peer for that session.
    pub(super) fn take_from(
        &mut self,
        number: u32,
        from: PeerId,
        session: &SessionName,
    ) -> Option<PendingSroute> {
        let pending = self.pending.get(&number)?;
        let sent = match &pending.open {
            Open::Passed { to, .. } | Open::Own { to, .. } => *to == from,
            Open::Gather { missing, .. } => missing.contains(&from),
            Open::Native { .. } => false,
        };
        (sent && pending.session == *session).then(|| self.take(number))?
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = [self.known.poll_timeout(), self.pending.poll_timeout()];
        timeouts.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
