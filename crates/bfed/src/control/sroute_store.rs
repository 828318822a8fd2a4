//! Known session-specific routes, and pending requests for them: bounded, with expiry.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use proto_core::time::Instant;

use crate::config::Limits;
use crate::name::SessionName;
use crate::tree::Slot;
use crate::types::{GatewayId, PeerId};
use crate::wire::sroute::GatewayCost;

/// Costs of one session; empty after a null response.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) costs: Vec<GatewayCost>,
    pub(super) expires: Instant,
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
        missing: Vec<(PeerId, u32)>,
    },
}

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) session: SessionName,
    pub(super) open: Open,
    pub(super) deadline: Instant,
}

/// Known costs and pending requests.
#[derive(Debug)]
pub(super) struct Store {
    max_known: usize,
    max_asked: usize,
    pub(super) known: BTreeMap<SessionName, Known>,
    pub(super) expiry: BTreeSet<(Instant, SessionName)>,
    pub(super) asked: BTreeMap<u32, Asked>,
    pub(super) deadlines: BTreeSet<(Instant, u32)>,
}

impl Store {
    pub(super) fn new(limits: &Limits) -> Self {
        Store {
            max_known: limits.max_sroutes,
            max_asked: limits.max_requests,
            known: BTreeMap::new(),
            expiry: BTreeSet::new(),
            asked: BTreeMap::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// Returns the fresh costs of a session; empty after a null response.
    pub(super) fn get(&self, session: &SessionName) -> Option<&[GatewayCost]> {
        self.known.get(session).map(|known| &known.costs[..])
    }

    /// Returns whether costs of a session can be kept without evicting others.
    pub(super) fn has_room(&self, session: &SessionName) -> bool {
        self.known.len() < self.max_known || self.known.contains_key(session)
    }

    /// Keeps costs. Returns whether they have changed.
    pub(super) fn put(
        &mut self,
        now: Instant,
        session: &SessionName,
        costs: Vec<GatewayCost>,
        until: Instant,
    ) -> bool {
        if let Some(old) = self.known.remove(session) {
            self.expiry.remove(&(old.expires, session.clone()));
            let changed = old.costs != costs;
            self.insert(now, session, costs, until);
            return changed;
        }
        if self.known.len() >= self.max_known
            && let Some((_, first)) = self.expiry.pop_first()
        {
            self.known.remove(&first);
        }
        self.insert(now, session, costs, until);
        true
    }

    fn insert(
        &mut self,
        now: Instant,
        session: &SessionName,
        costs: Vec<GatewayCost>,
        until: Instant,
    ) {
        self.expiry.insert((until, session.clone()));
        self.known.insert(
            session.clone(),
            Known {
                costs,
                expires: until,
                at: now,
            },
        );
    }

    pub(super) fn ask(
        &mut self,
        number: u32,
        session: &SessionName,
        open: Open,
        deadline: Instant,
    ) -> bool {
        if self.asked.len() >= self.max_asked {
            return false;
        }
        self.deadlines.insert((deadline, number));
        self.asked.insert(
            number,
            Asked {
                session: session.clone(),
                open,
                deadline,
            },
        );
        true
    }

    pub(super) fn take(&mut self, number: u32) -> Option<Asked> {
        let asked = self.asked.remove(&number)?;
        self.deadlines.remove(&(asked.deadline, number));
        Some(asked)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let expiry = self.expiry.first().map(|(at, _)| *at);
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        expiry.into_iter().chain(deadline).min()
    }
}
