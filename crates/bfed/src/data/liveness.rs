//! Liveness of the data nodes at the other ends of edges.
//!
//! A data node is a neighbour while an edge leads to it or from it. The receiver of its flows sends it a PROBE once
//! an interval for all flows together; it answers with an ECHO, and takes the PROBE itself as a sign of life of the
//! receiver. So both know, whatever the sessions carry, and a TCP channel whose receiver is full does not look
//! dead.
//!
//! | state | received | next state |
//! | --- | --- | --- |
//! | unknown | nothing | unknown: a firewall may drop datagrams |
//! | unknown, silent | a correct ECHO or PROBE | alive |
//! | alive | neither, and no data of its flows, for six intervals | silent |
//!
//! A new receiver sends a PROBE with number 0 at once, to say that it is ready. Otherwise the sender, which learns
//! of the receiver before the receiver knows the label, would wait for a report on packets that were lost until
//! then.
//!
//! The limit is six intervals because the neighbour's own control node takes four to detect its failure and move
//! its sessions. The control node is told about peers, not about neighbours: a peer is alive while any of its data
//! nodes is, and silent when some were alive and none is any more.
//!
//! # Address proof
//!
//! A peer's control node names the addresses, and may lie: an address gets PROBEs and ECHOes and nothing else until
//! it has proved that it receives them.
//!
//! | address | proof |
//! | --- | --- |
//! | of a receiver | a PROBE with the cookie of this node's ECHO: 64 random bits for each neighbour |
//! | of a source | an ECHO with the number of this node's PROBE |
//!
//! A neighbour is an address named by one peer: a proof for one peer does not count for another, so that no peer
//! can direct data to another peer's data node. Until its address is proved, a neighbour is probed after 0.25 s,
//! 0.5 s and so on up to [`LONGEST_WAIT`]. PROBEs and ECHOes to all such neighbours stay within
//! [`SIGNS_PER_SECOND`], those of one peer within [`SIGNS_PER_PEER`].
//!
//! # One address named by several peers
//!
//! The state also belongs to one address *and* one peer. Each peer's neighbour has PROBE numbers and a cookie of
//! its own; an ECHO counts for the peer whose PROBE it answers, and a PROBE for the peer whose edge has its label.
//! A peer that names another peer's address changes only its own state. Forged ECHOes cannot silence a neighbour
//! whose address is proved: a correct ECHO counts however many wrong ones preceded it.
//!
//! # Memory
//!
//! A neighbour exists while an edge leads to it or from it, so there are at most as many as edges
//! (`DataConfig::max_edges`), however many peers name one address. Each takes about 250 bytes, and 60 bytes for
//! each of its edges. At most [`MAX_ECHOES`] ECHOes wait, and one PROBE for each neighbour and each new flow.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use core::ops::Bound::{Excluded, Unbounded};

use proto_core::time::{Duration, Instant};
use proto_core::{RateLimit, TokenBucket};

use super::EdgeId;
use crate::types::{FlowLabel, PeerId};
use crate::wire::liveness::{Repr as Liveness, State};

/// Intervals without a sign of life.
const MISSED: u32 = 6;
/// Intervals after which a neighbour's flows are checked for data.
const DOUBTFUL: u32 = 3;
/// Most ECHOes that wait; one more PROBE is not answered.
const MAX_ECHOES: usize = 256;

/// PROBEs and ECHOes a second to addresses that are not proved.
pub(super) const SIGNS_PER_SECOND: u32 = 1000;
/// Those to the addresses that one peer named.
pub(super) const SIGNS_PER_PEER: u32 = 100;
/// The burst is a quarter of a second at these rates.
const TOTAL_LIMIT: RateLimit = RateLimit::new(SIGNS_PER_SECOND, SIGNS_PER_SECOND / 4);
const PEER_LIMIT: RateLimit = RateLimit::new(SIGNS_PER_PEER, SIGNS_PER_PEER / 4);
/// Longest time between two PROBEs to an address that does not answer, in intervals.
const LONGEST_WAIT: u32 = 64;
/// ECHOes with a wrong number from an address that is not proved, until the next PROBE: further ECHOes are ignored,
/// so that guessing a number takes years.
const MAX_WRONG_ECHOES: u8 = 16;

/// A data node as one peer named it.
pub(super) type Key = (SocketAddr, PeerId);

/// Returns the keys of all peers that named an address.
fn named(address: SocketAddr) -> core::ops::RangeInclusive<Key> {
    (address, PeerId(0))..=(address, PeerId(u32::MAX))
}

/// A data node of a peer.
#[derive(Debug)]
struct Neighbour {
    /// Flows that come from it.
    sources: BTreeSet<EdgeId>,
    /// The flow of the last PROBE: a data node that was restarted knows only some.
    probed: Option<EdgeId>,
    /// Edges that go to it.
    receivers: BTreeSet<EdgeId>,
    state: State,
    received_at: Instant,
    /// Numbers of the last PROBEs, which only their ECHOes can repeat; 0 where none is expected. A round trip may
    /// take longer than an interval.
    nonces: [u32; 8],
    /// Wrong ECHOes since the last PROBE.
    wrong: u8,
    /// Packets of its flows when it became doubtful.
    packets: Option<u64>,
    /// Its address is proved.
    proved: bool,
    /// Cookie of this node's ECHOes, which only a PROBE from that address can repeat.
    cookie: u64,
    /// Cookie of its own ECHOes, which PROBEs to it repeat; 0 if none yet.
    theirs: u64,
    /// Sources to which a PROBE with number 0 is sent once `theirs` is known.
    unready: BTreeSet<EdgeId>,
    /// While it does not answer: when it is probed next, and the intervals until the PROBE after that.
    probe_at: Instant,
    wait: u32,
}

impl Neighbour {
    fn new(now: Instant, cookie: u64) -> Self {
        Neighbour {
            sources: BTreeSet::new(),
            probed: None,
            receivers: BTreeSet::new(),
            state: State::Unknown,
            received_at: now,
            nonces: [0; 8],
            wrong: 0,
            packets: None,
            proved: false,
            cookie,
            theirs: 0,
            unready: BTreeSet::new(),
            probe_at: now,
            wait: 1,
        }
    }

    /// Returns whether an ECHO with this number is expected. Only an address that is not proved is ignored after
    /// [`MAX_WRONG_ECHOES`]: otherwise forged ECHOes would silence a neighbour.
    fn awaits(&self, nonce: u32) -> bool {
        let listens = self.proved || self.wrong < MAX_WRONG_ECHOES;
        listens && nonce != READY && self.nonces.contains(&nonce)
    }

    /// Notes that the address is proved. Returns the edges that may send from now on: all of them the first time, whatever
    /// proved it.
    fn prove(&mut self) -> BTreeSet<EdgeId> {
        match core::mem::replace(&mut self.proved, true) {
            true => BTreeSet::new(),
            false => &self.sources | &self.receivers,
        }
    }

    /// Returns the flow of the next PROBE, in turn.
    fn next(&self) -> Option<EdgeId> {
        let after = self.probed.map_or(Unbounded, Excluded);
        let next = self.sources.range((after, Unbounded)).next();
        next.or_else(|| self.sources.first()).copied()
    }
}

/// Rates of packets to addresses that are not proved.
#[derive(Debug)]
struct Rates {
    all: TokenBucket,
    /// Buckets of peers that are not full.
    peers: BTreeMap<PeerId, TokenBucket>,
}

impl Rates {
    fn take(&mut self, now: Instant, peer: PeerId) -> bool {
        let own = self.peers.entry(peer).or_insert(TokenBucket::FULL);
        own.take(now, &PEER_LIMIT) && self.all.take(now, &TOTAL_LIMIT)
    }
}

/// All neighbours.
#[derive(Debug)]
pub(super) struct LivenessTable {
    map: BTreeMap<Key, Neighbour>,
    reported: BTreeMap<PeerId, State>,
    /// Peers whose state may have changed.
    changed: BTreeSet<PeerId>,
    at: Instant,
    probes: VecDeque<(Key, EdgeId, u32)>,
    echoes: VecDeque<(SocketAddr, EdgeId, SignContent)>,
    rates: Rates,
}

/// Number of a PROBE that gets no ECHO: the receiver is ready.
pub(super) const READY: u32 = 0;

/// A packet to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SignContent {
    /// The number, and the neighbour's cookie; 0 if none yet.
    Probe(u32, u64),
    /// The label and number of the PROBE, and this node's cookie.
    Echo(FlowLabel, u32, u64),
}

/// Result of a PROBE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ProbeResult {
    /// It repeated the cookie, which proves the address: these edges may send.
    Proved(BTreeSet<EdgeId>),
    /// It did not: the ECHO contains the cookie to repeat.
    Unproved,
    /// Too many ECHOes wait, or too many were sent: it proves nothing either.
    Refused,
}

impl LivenessTable {
    pub(super) fn new(now: Instant) -> Self {
        LivenessTable {
            map: BTreeMap::new(),
            reported: BTreeMap::new(),
            changed: BTreeSet::new(),
            at: now,
            probes: VecDeque::new(),
            echoes: VecDeque::new(),
            rates: Rates {
                all: TokenBucket::FULL,
                peers: BTreeMap::new(),
            },
        }
    }

    /// Adds an edge to that address, or from it (`source`). Returns whether the address is proved. `random` gives
    /// the cookie and the first number of a new neighbour.
    pub(super) fn add(
        &mut self,
        now: Instant,
        key: Key,
        id: EdgeId,
        source: bool,
        mut random: impl FnMut() -> u32,
    ) -> bool {
        if self.map.is_empty() {
            self.at = now;
        }
        let mut cookie = || u64::from(random().max(1)) << 32 | u64::from(random());
        let neighbour = self
            .map
            .entry(key)
            .or_insert_with(|| Neighbour::new(now, cookie()));
        if !source {
            neighbour.receivers.insert(id);
            return neighbour.proved;
        }
        neighbour.sources.insert(id);
        if neighbour.theirs != 0 {
            self.probes.push_back((key, id, READY));
        } else {
            neighbour.unready.insert(id);
            // The first flow is probed at once: the others repeat the cookie of its ECHO.
            if neighbour.probed.is_none() && self.rates.take(now, key.1) {
                self.probe(now, key, Duration::ZERO, &mut random);
            }
        }
        self.map.get(&key).is_some_and(|one| one.proved)
    }

    /// Sends a PROBE for the next flow of a neighbour.
    fn probe(
        &mut self,
        now: Instant,
        key: Key,
        interval: Duration,
        random: &mut impl FnMut() -> u32,
    ) {
        let Some(neighbour) = self.map.get_mut(&key) else {
            return;
        };
        if let Some(id) = neighbour.next() {
            let nonce = random().max(READY + 1);
            neighbour.probed = Some(id);
            neighbour.nonces.rotate_right(1);
            neighbour.nonces[0] = nonce;
            (neighbour.wrong, neighbour.probe_at) = (0, now + interval * neighbour.wait);
            self.probes.push_back((key, id, nonce));
        }
    }

    /// Removes an edge.
    pub(super) fn remove(&mut self, key: Key, id: EdgeId) {
        let Some(neighbour) = self.map.get_mut(&key) else {
            return;
        };
        neighbour.sources.remove(&id);
        neighbour.receivers.remove(&id);
        neighbour.unready.remove(&id);
        if neighbour.sources.is_empty() && neighbour.receivers.is_empty() {
            self.changed.insert(key.1);
            self.map.remove(&key);
        }
    }

    fn alive(&mut self, now: Instant, key: Key) {
        if let Some(neighbour) = self.map.get_mut(&key) {
            (neighbour.received_at, neighbour.packets) = (now, None);
            if neighbour.state != State::Alive {
                neighbour.state = State::Alive;
                self.changed.insert(key.1);
            }
        }
    }

    /// Handles a PROBE with the label of an edge to that address.
    pub(super) fn probed(
        &mut self,
        now: Instant,
        key: Key,
        (id, label, nonce): (EdgeId, FlowLabel, u32),
        cookie: u64,
    ) -> ProbeResult {
        let Some(neighbour) = self.map.get(&key) else {
            return ProbeResult::Refused;
        };
        let right = cookie == neighbour.cookie;
        let own = neighbour.cookie;
        if right {
            self.alive(now, key);
        }
        if nonce != READY {
            let room = self.echoes.len() < MAX_ECHOES;
            if !room || !right && !self.rates.take(now, key.1) {
                return ProbeResult::Refused;
            }
            self.echoes
                .push_back((key.0, id, SignContent::Echo(label, nonce, own)));
        }
        let neighbour = self.map.get_mut(&key).filter(|_| right);
        neighbour.map_or(ProbeResult::Unproved, |neighbour| {
            ProbeResult::Proved(neighbour.prove())
        })
    }

    /// Handles an ECHO from an address. Returns the edges that may send from now on, or `None` if it answers no
    /// PROBE to that address. An ECHO answers the PROBE of one peer; it counts as wrong for the peers that named
    /// the address only if it answers none.
    pub(super) fn echoed(
        &mut self,
        now: Instant,
        from: SocketAddr,
        nonce: u32,
        cookie: u64,
    ) -> Option<BTreeSet<EdgeId>> {
        let mut named = self.map.range(named(from));
        let awaiting = named.find(|(_, neighbour)| neighbour.awaits(nonce));
        let Some(key) = awaiting.map(|(&key, _)| key) else {
            for (_, neighbour) in self.map.range_mut(self::named(from)) {
                neighbour.wrong = neighbour.wrong.saturating_add(1);
            }
            return None;
        };
        let neighbour = self.map.get_mut(&key)?;
        let sent = neighbour.nonces.iter_mut().find(|sent| **sent == nonce)?;
        *sent = READY;
        neighbour.wait = 1;
        let unlocked = neighbour.prove();
        let new = cookie != 0 && neighbour.theirs != cookie;
        if new {
            neighbour.theirs = cookie;
            let ready = core::mem::take(&mut neighbour.unready);
            let ready = ready.into_iter().map(|id| (key, id, READY));
            self.probes.extend(ready);
        }
        self.alive(now, key);
        Some(unlocked)
    }

    /// Returns whether there are neighbours at that address, at any port.
    pub(super) fn is_neighbour(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let at = |port, peer| (SocketAddr::new(address, port), PeerId(peer));
        let named = at(0, 0)..=at(u16::MAX, u32::MAX);
        self.map.range(named).next().is_some()
    }

    /// Returns whether a neighbour's address is proved.
    pub(super) fn is_proved(&self, key: &Key) -> bool {
        self.map.get(key).is_some_and(|one| one.proved)
    }

    /// Sends PROBEs and updates states once an interval. `packets` counts the packets received on edges.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        interval: Duration,
        mut random: impl FnMut() -> u32,
        packets: impl Fn(&BTreeSet<EdgeId>) -> u64,
    ) {
        if self.map.is_empty() || self.at > now {
            return;
        }
        // Time in which this node itself did not run is not counted.
        let late = now - self.at;
        let late = if late >= interval {
            late
        } else {
            Duration::ZERO
        };
        self.at = now + interval;
        // Waiting PROBEs are sent first, so that no more wait than there are neighbours and new flows.
        let probes_now = self.probes.is_empty();
        let mut due = Vec::new();
        for (&key, neighbour) in &mut self.map {
            neighbour.received_at += late;
            let quiet = now - neighbour.received_at;
            if neighbour.state == State::Alive && quiet >= interval * DOUBTFUL {
                let count = packets(&neighbour.sources);
                let before = *neighbour.packets.get_or_insert(count);
                if before != count {
                    (neighbour.received_at, neighbour.packets) = (now, None);
                } else if quiet >= interval * MISSED {
                    neighbour.state = State::Silent;
                    self.changed.insert(key.1);
                }
            }
            if neighbour.proved {
                if probes_now {
                    due.push(key);
                }
            } else if probes_now
                && !neighbour.sources.is_empty()
                && neighbour.probe_at <= now
                && self.rates.take(now, key.1)
            {
                neighbour.wait = (neighbour.wait * 2).min(LONGEST_WAIT);
                due.push(key);
            }
        }
        for key in due {
            self.probe(now, key, interval, &mut random);
        }
        self.rates.peers.retain(|_, bucket| !bucket.is_full(now));
    }

    /// Returns the changes that the control node has not been told.
    pub(super) fn poll_changes(&mut self) -> Vec<Liveness> {
        let mut changes = Vec::new();
        while let Some(peer) = self.changed.pop_first() {
            let all = || self.map.iter();
            let of_peer = || all().filter(|(key, _)| key.1 == peer).map(|(_, one)| one);
            let any = |state| of_peer().any(|one| one.state == state);
            let state = match () {
                () if any(State::Alive) => State::Alive,
                () if any(State::Silent) => State::Silent,
                () => State::Unknown,
            };
            let before = match state {
                State::Unknown => self.reported.remove(&peer),
                known => self.reported.insert(peer, known),
            };
            if before.unwrap_or(State::Unknown) != state {
                changes.push(Liveness { peer, state });
            }
        }
        changes
    }

    /// Reports everything again, to a new stream to a control node.
    pub(super) fn report_all(&mut self) {
        self.changed
            .extend(core::mem::take(&mut self.reported).into_keys());
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (!self.map.is_empty()).then_some(self.at)
    }

    pub(super) fn waits(&self) -> bool {
        !self.probes.is_empty() || !self.echoes.is_empty()
    }

    /// Returns the next packet to send: destination, edge and content.
    pub(super) fn poll_transmit(&mut self) -> Option<(SocketAddr, EdgeId, SignContent)> {
        let echo = self.echoes.pop_front();
        echo.or_else(|| {
            let (key, id, nonce) = self.probes.pop_front()?;
            let theirs = self.map.get(&key).map_or(0, |one| one.theirs);
            Some((key.0, id, SignContent::Probe(nonce, theirs)))
        })
    }
}

#[cfg(test)]
mod tests;
