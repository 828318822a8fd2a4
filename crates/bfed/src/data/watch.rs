//! Whether the data nodes at the other ends of edges live.
//!
//! A data node is a neighbour while an edge leads to it or from it. Who receives a flow from it asks it
//! by a PROBE, once an interval for all flows together; it answers with an ECHO, and takes the PROBE itself
//! for a sign of life of the other. So both know, whatever the sessions carry, and a TCP channel whose
//! receiver is full does not look dead.
//!
//! | neighbour | hears | becomes |
//! | --- | --- | --- |
//! | not heard yet | nothing | stays so: it may be behind something that lets no datagrams through |
//! | not heard yet, silent | an ECHO or a PROBE that is its own | alive |
//! | alive | none of them, and no data of its flows, for six intervals | silent |
//!
//! A new receiver says at once that it is ready, by a PROBE whose number is 0. A sender learns of it before
//! the receiver knows the label, and must not wait for a report on what was lost until then.
//!
//! Six, because the neighbour's own control node takes four to find out that it is dead and give its
//! sessions to another. The control node is told of peers, not of neighbours: a peer is alive while any of
//! its data nodes is, and silent when some were heard and none is any more.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Bound::{Excluded, Unbounded};

use smoltcp::time::{Duration, Instant};

use super::EdgeId;
use crate::types::{FlowLabel, PeerId};
use crate::wire::liveness::{Repr as Liveness, State};

/// Intervals without a sign of life.
const MISSED: u32 = 6;
/// Intervals after which data of a neighbour's flows is looked for.
const DOUBTFUL: u32 = 3;
/// ECHOes that wait; one more PROBE is not answered.
const MAX_ECHOES: usize = 256;

/// A data node of a peer.
#[derive(Debug)]
struct Neighbour {
    peer: PeerId,
    /// Flows that come from it.
    sources: BTreeSet<EdgeId>,
    /// Of those, the one that was asked about last: a data node that was started anew knows only some.
    asked: Option<EdgeId>,
    /// How many go to it.
    receivers: usize,
    state: State,
    heard_at: Instant,
    /// What the last PROBE said, which only its ECHO can repeat.
    nonce: Option<u32>,
    /// Packets of its flows, when it became doubtful.
    packets: Option<u64>,
}

impl Neighbour {
    /// The flow that it is asked about next: by turns.
    fn next(&self) -> Option<EdgeId> {
        let after = self.asked.map_or(Unbounded, Excluded);
        let next = self.sources.range((after, Unbounded)).next();
        next.or_else(|| self.sources.first()).copied()
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Watch {
    map: BTreeMap<SocketAddr, Neighbour>,
    told: BTreeMap<PeerId, State>,
    /// Peers of which something may have changed.
    changed: BTreeSet<PeerId>,
    at: Instant,
    probes: VecDeque<(SocketAddr, EdgeId, u32)>,
    echoes: VecDeque<(SocketAddr, EdgeId, FlowLabel, u32)>,
}

/// What a PROBE says that wants no ECHO: a receiver is ready.
pub(super) const READY: u32 = 0;

/// A packet to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said {
    Probe(u32),
    Echo(FlowLabel, u32),
}

impl Watch {
    pub(super) fn new(now: Instant) -> Self {
        Watch {
            map: BTreeMap::new(),
            told: BTreeMap::new(),
            changed: BTreeSet::new(),
            at: now,
            probes: VecDeque::new(),
            echoes: VecDeque::new(),
        }
    }

    /// An edge leads to that address, or from it (`source`).
    pub(super) fn add(
        &mut self,
        now: Instant,
        to: SocketAddr,
        peer: PeerId,
        source: Option<EdgeId>,
    ) {
        if self.map.is_empty() {
            self.at = now;
        }
        let neighbour = self.map.entry(to).or_insert_with(|| Neighbour {
            peer,
            sources: BTreeSet::new(),
            asked: None,
            receivers: 0,
            state: State::Unknown,
            heard_at: now,
            nonce: None,
            packets: None,
        });
        match source {
            Some(id) => {
                neighbour.sources.insert(id);
                self.probes.push_back((to, id, READY));
            }
            None => neighbour.receivers += 1,
        }
    }

    /// It does not any more.
    pub(super) fn remove(&mut self, to: SocketAddr, source: Option<EdgeId>) {
        let Some(neighbour) = self.map.get_mut(&to) else {
            return;
        };
        match source {
            Some(id) => drop(neighbour.sources.remove(&id)),
            None => neighbour.receivers = neighbour.receivers.saturating_sub(1),
        }
        if neighbour.sources.is_empty() && neighbour.receivers == 0 {
            self.changed.insert(neighbour.peer);
            self.map.remove(&to);
        }
    }

    fn alive(&mut self, now: Instant, from: SocketAddr) {
        if let Some(neighbour) = self.map.get_mut(&from) {
            (neighbour.heard_at, neighbour.packets) = (now, None);
            if neighbour.state != State::Alive {
                neighbour.state = State::Alive;
                self.changed.insert(neighbour.peer);
            }
        }
    }

    /// A PROBE came that bears the label of an edge to that address; false if too many wait.
    pub(super) fn probed(
        &mut self,
        now: Instant,
        from: SocketAddr,
        (id, label, nonce): (EdgeId, FlowLabel, u32),
    ) -> bool {
        self.alive(now, from);
        if nonce == READY {
            return true;
        }
        let room = self.echoes.len() < MAX_ECHOES;
        if room {
            self.echoes.push_back((from, id, label, nonce));
        }
        room
    }

    /// An ECHO came; whether it answers the last PROBE.
    pub(super) fn echoed(&mut self, now: Instant, from: SocketAddr, nonce: u32) -> bool {
        let asked = self.map.get_mut(&from);
        let own = asked.is_some_and(|one| one.nonce.take_if(|sent| *sent == nonce).is_some());
        if own {
            self.alive(now, from);
        }
        own
    }

    /// An interval has passed: asks neighbours, and judges them. `packets` counts what came on edges.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        interval: Duration,
        mut nonce: impl FnMut() -> u32,
        packets: impl Fn(&BTreeSet<EdgeId>) -> u64,
    ) {
        if self.map.is_empty() || self.at > now {
            return;
        }
        // What this node itself did not run is nobody's silence.
        let late = now - self.at;
        let late = if late >= interval {
            late
        } else {
            Duration::ZERO
        };
        self.at = now + interval;
        // What was to be said is said first: no more wait than there are neighbours and new flows.
        let asks = self.probes.is_empty();
        for (&to, neighbour) in &mut self.map {
            neighbour.heard_at += late;
            let quiet = now - neighbour.heard_at;
            if neighbour.state == State::Alive && quiet >= interval * DOUBTFUL {
                let count = packets(&neighbour.sources);
                let before = *neighbour.packets.get_or_insert(count);
                if before != count {
                    (neighbour.heard_at, neighbour.packets) = (now, None);
                } else if quiet >= interval * MISSED {
                    neighbour.state = State::Silent;
                    self.changed.insert(neighbour.peer);
                }
            }
            if asks && let Some(id) = neighbour.next() {
                let nonce = nonce().max(READY + 1);
                (neighbour.asked, neighbour.nonce) = (Some(id), Some(nonce));
                self.probes.push_back((to, id, nonce));
            }
        }
    }

    /// What the control node has not been told yet.
    pub(super) fn news(&mut self) -> Vec<Liveness> {
        let mut news = Vec::new();
        while let Some(peer) = self.changed.pop_first() {
            let of_peer = || self.map.values().filter(|one| one.peer == peer);
            let any = |state| of_peer().any(|one| one.state == state);
            let state = match () {
                () if any(State::Alive) => State::Alive,
                () if any(State::Silent) => State::Silent,
                () => State::Unknown,
            };
            let before = match state {
                State::Unknown => self.told.remove(&peer),
                known => self.told.insert(peer, known),
            };
            if before.unwrap_or(State::Unknown) != state {
                news.push(Liveness { peer, state });
            }
        }
        news
    }

    /// Another control node, or the same again: it is to be told everything.
    pub(super) fn tell_again(&mut self) {
        self.changed
            .extend(core::mem::take(&mut self.told).into_keys());
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (!self.map.is_empty()).then_some(self.at)
    }

    pub(super) fn waits(&self) -> bool {
        !self.probes.is_empty() || !self.echoes.is_empty()
    }

    /// The next packet to send: where to, on account of which edge, and what.
    pub(super) fn poll_transmit(&mut self) -> Option<(SocketAddr, EdgeId, Said)> {
        let echo = self.echoes.pop_front();
        let echo = echo.map(|(to, id, label, nonce)| (to, id, Said::Echo(label, nonce)));
        echo.or_else(|| {
            let (to, id, nonce) = self.probes.pop_front()?;
            Some((to, id, Said::Probe(nonce)))
        })
    }
}
