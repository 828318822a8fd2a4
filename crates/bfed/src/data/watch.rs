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
//!
//! # Address proof
//!
//! A peer's control node names the addresses, and may lie: an address gets PROBEs and ECHOes, and nothing
//! else, until it has shown that it receives them.
//!
//! | the address | proves itself by |
//! | --- | --- |
//! | of a receiver | a PROBE with the cookie of this node's ECHO: 64 random bits for each neighbour |
//! | of a source | an ECHO with the number of this node's PROBE |
//!
//! A neighbour is an address that one peer named: what an address proved for one peer counts for no other
//! peer, so that no peer can direct data to another peer's data node. Until its address is proved, a
//! neighbour is asked after 0.25 s, 0.5 s and so on up to [`LONGEST_WAIT`], and PROBEs and ECHOes to
//! such neighbours together stay within [`SIGNS_PER_SECOND`], those of one peer within
//! [`SIGNS_PER_PEER`].
//!
//! # Verdicts of several peers on one address
//!
//! The verdict is also of one address *and* one peer. Each peer's neighbour has PROBE numbers and a cookie
//! of its own; an ECHO counts for the peer whose PROBE it answers, and a PROBE for the peer whose edge has
//! its label. A peer that names another peer's address, truly or not, changes only what is known of itself.
//! Forged ECHOes do not make a neighbour silent once its address is proved: a correct ECHO counts however
//! many wrong ones came before it.
//!
//! # Memory
//!
//! A neighbour exists while an edge leads to it or from it, so there are at most as many as edges
//! (`DataConfig::max_edges`), however many peers name one address. Each is about 250 bytes, and 60 bytes
//! for each of its edges. At most [`MAX_ECHOES`] ECHOes wait, and one PROBE for each neighbour and each
//! new flow.

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
/// Intervals after which data of a neighbour's flows is looked for.
const DOUBTFUL: u32 = 3;
/// ECHOes that wait; one more PROBE is not answered.
const MAX_ECHOES: usize = 256;

/// PROBEs and ECHOes a second to addresses that have not proved themselves.
pub(super) const SIGNS_PER_SECOND: u32 = 1000;
/// Of those, to the addresses that one peer named.
pub(super) const SIGNS_PER_PEER: u32 = 100;
/// What the rates give in a quarter of a second may be sent at once.
const TOTAL_LIMIT: RateLimit = RateLimit::new(SIGNS_PER_SECOND, SIGNS_PER_SECOND / 4);
const PEER_LIMIT: RateLimit = RateLimit::new(SIGNS_PER_PEER, SIGNS_PER_PEER / 4);
/// Longest time between two PROBEs to an address that does not answer, in intervals.
const LONGEST_WAIT: u32 = 64;
/// ECHOes with a wrong number from an address that has not proved itself, until the next PROBE: further
/// ECHOes are ignored, so that guessing a number takes years.
const MAX_WRONG_ECHOES: u8 = 16;

/// A data node, as one peer named it.
pub(super) type Key = (SocketAddr, PeerId);

/// The range of keys of all peers that named an address.
fn named(address: SocketAddr) -> core::ops::RangeInclusive<Key> {
    (address, PeerId(0))..=(address, PeerId(u32::MAX))
}

/// A data node of a peer.
#[derive(Debug)]
struct Neighbour {
    /// Flows that come from it.
    sources: BTreeSet<EdgeId>,
    /// Of those, the one that was asked about last: a data node that was started anew knows only some.
    asked: Option<EdgeId>,
    /// Edges that go to it.
    receivers: BTreeSet<EdgeId>,
    state: State,
    heard_at: Instant,
    /// What the last PROBEs said, which only their ECHOes can repeat; 0 where it was. The way there and
    /// back may take longer than an interval.
    nonces: [u32; 8],
    /// ECHOes since then that did not.
    wrong: u8,
    /// Packets of its flows, when it became doubtful.
    packets: Option<u64>,
    /// Its address receives what is sent there.
    proved: bool,
    /// What this node's ECHOes say, which only a PROBE from that address can repeat.
    cookie: u64,
    /// What its own ECHOes said, and PROBEs to it repeat; 0 if nothing yet.
    theirs: u64,
    /// Sources that are to be told that their receiver is ready once `theirs` is known.
    unready: BTreeSet<EdgeId>,
    /// While it does not answer: when it is asked next, and how many intervals later once more.
    ask_at: Instant,
    wait: u32,
}

impl Neighbour {
    fn new(now: Instant, cookie: u64) -> Self {
        Neighbour {
            sources: BTreeSet::new(),
            asked: None,
            receivers: BTreeSet::new(),
            state: State::Unknown,
            heard_at: now,
            nonces: [0; 8],
            wrong: 0,
            packets: None,
            proved: false,
            cookie,
            theirs: 0,
            unready: BTreeSet::new(),
            ask_at: now,
            wait: 1,
        }
    }

    /// Whether a PROBE with this number waits for its ECHO. Only an address that has not proved itself
    /// stops listening after [`MAX_WRONG_ECHOES`]: otherwise forged ECHOes would make a neighbour silent.
    fn awaits(&self, nonce: u32) -> bool {
        let listens = self.proved || self.wrong < MAX_WRONG_ECHOES;
        listens && nonce != READY && self.nonces.contains(&nonce)
    }

    /// The flow that it is asked about next: by turns.
    fn next(&self) -> Option<EdgeId> {
        let after = self.asked.map_or(Unbounded, Excluded);
        let next = self.sources.range((after, Unbounded)).next();
        next.or_else(|| self.sources.first()).copied()
    }
}

/// What may be sent to addresses that have not proved themselves.
#[derive(Debug)]
struct Rates {
    all: TokenBucket,
    /// Of peers that have used some of theirs.
    peers: BTreeMap<PeerId, TokenBucket>,
}

impl Rates {
    fn take(&mut self, now: Instant, peer: PeerId) -> bool {
        let own = self.peers.entry(peer).or_insert(TokenBucket::FULL);
        own.take(now, &PEER_LIMIT) && self.all.take(now, &TOTAL_LIMIT)
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Watch {
    map: BTreeMap<Key, Neighbour>,
    told: BTreeMap<PeerId, State>,
    /// Peers of which something may have changed.
    changed: BTreeSet<PeerId>,
    at: Instant,
    probes: VecDeque<(Key, EdgeId, u32)>,
    echoes: VecDeque<(SocketAddr, EdgeId, Said)>,
    rates: Rates,
}

/// What a PROBE says that wants no ECHO: a receiver is ready.
pub(super) const READY: u32 = 0;

/// A packet to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said {
    /// The number, and the cookie that the neighbour gave; 0 if none yet.
    Probe(u32, u64),
    /// The label and number of the PROBE, and this node's cookie.
    Echo(FlowLabel, u32, u64),
}

/// What a PROBE brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Probed {
    /// It repeated the cookie: its sender receives at its address. Edges that may send from now on.
    Proved(BTreeSet<EdgeId>),
    /// It did not: the ECHO says what to repeat.
    Unproved,
    /// Too many wait, or too many were sent.
    Refused,
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
            rates: Rates {
                all: TokenBucket::FULL,
                peers: BTreeMap::new(),
            },
        }
    }

    /// An edge leads to that address, or from it (`source`); whether the address has proved itself.
    /// `random` gives the cookie of a new neighbour, and its first number.
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
            // The first is asked about at once: the ECHO says what the others repeat.
            if neighbour.asked.is_none() && self.rates.take(now, key.1) {
                self.ask(now, key, Duration::ZERO, &mut random);
            }
        }
        self.map.get(&key).is_some_and(|one| one.proved)
    }

    /// Asks a neighbour about the next of its flows.
    fn ask(
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
            neighbour.asked = Some(id);
            neighbour.nonces.rotate_right(1);
            neighbour.nonces[0] = nonce;
            (neighbour.wrong, neighbour.ask_at) = (0, now + interval * neighbour.wait);
            self.probes.push_back((key, id, nonce));
        }
    }

    /// It does not any more.
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
            (neighbour.heard_at, neighbour.packets) = (now, None);
            if neighbour.state != State::Alive {
                neighbour.state = State::Alive;
                self.changed.insert(key.1);
            }
        }
    }

    /// A PROBE came that bears the label of an edge to that address.
    pub(super) fn probed(
        &mut self,
        now: Instant,
        key: Key,
        (id, label, nonce): (EdgeId, FlowLabel, u32),
        cookie: u64,
    ) -> Probed {
        let Some(neighbour) = self.map.get_mut(&key) else {
            return Probed::Refused;
        };
        let right = cookie == neighbour.cookie;
        let own = neighbour.cookie;
        let proved = match right && !neighbour.proved {
            true => neighbour.receivers.clone(),
            false => BTreeSet::new(),
        };
        neighbour.proved |= right;
        if right {
            self.alive(now, key);
        }
        if nonce != READY {
            let room = self.echoes.len() < MAX_ECHOES;
            if !room || !right && !self.rates.take(now, key.1) {
                return Probed::Refused;
            }
            self.echoes
                .push_back((key.0, id, Said::Echo(label, nonce, own)));
        }
        match right {
            true => Probed::Proved(proved),
            false => Probed::Unproved,
        }
    }

    /// Handles an ECHO from an address. Returns the edges that may send from now on, or `None` if the ECHO
    /// answers no PROBE that was sent to that address. An ECHO answers the PROBE of one peer; it counts as
    /// wrong for the peers that named the address only if it answers none.
    pub(super) fn echoed(
        &mut self,
        now: Instant,
        from: SocketAddr,
        nonce: u32,
        cookie: u64,
    ) -> Option<BTreeSet<EdgeId>> {
        let mut named = self.map.range(named(from));
        let asked = named.find(|(_, neighbour)| neighbour.awaits(nonce));
        let Some(key) = asked.map(|(&key, _)| key) else {
            for (_, neighbour) in self.map.range_mut(self::named(from)) {
                neighbour.wrong = neighbour.wrong.saturating_add(1);
            }
            return None;
        };
        let neighbour = self.map.get_mut(&key)?;
        let sent = neighbour.nonces.iter_mut().find(|sent| **sent == nonce)?;
        *sent = READY;
        neighbour.wait = 1;
        let unlocked = match core::mem::replace(&mut neighbour.proved, true) {
            true => BTreeSet::new(),
            false => neighbour.sources.clone(),
        };
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

    /// Whether there are neighbours at that address, at any port.
    pub(super) fn is_neighbour(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let at = |port, peer| (SocketAddr::new(address, port), PeerId(peer));
        let named = at(0, 0)..=at(u16::MAX, u32::MAX);
        self.map.range(named).next().is_some()
    }

    /// Whether that address receives what is sent there.
    pub(super) fn is_proved(&self, key: &Key) -> bool {
        self.map.get(key).is_some_and(|one| one.proved)
    }

    /// An interval has passed: asks neighbours, and judges them. `packets` counts what came on edges.
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
        let mut due = Vec::new();
        for (&key, neighbour) in &mut self.map {
            neighbour.heard_at += late;
            let quiet = now - neighbour.heard_at;
            if neighbour.state == State::Alive && quiet >= interval * DOUBTFUL {
                let count = packets(&neighbour.sources);
                let before = *neighbour.packets.get_or_insert(count);
                if before != count {
                    (neighbour.heard_at, neighbour.packets) = (now, None);
                } else if quiet >= interval * MISSED {
                    neighbour.state = State::Silent;
                    self.changed.insert(key.1);
                }
            }
            if neighbour.proved {
                if asks {
                    due.push(key);
                }
            } else if asks && neighbour.ask_at <= now && self.rates.take(now, key.1) {
                neighbour.wait = (neighbour.wait * 2).min(LONGEST_WAIT);
                due.push(key);
            }
        }
        for key in due {
            self.ask(now, key, interval, &mut random);
        }
        self.rates.peers.retain(|_, bucket| !bucket.is_full(now));
    }

    /// What the control node has not been told yet.
    pub(super) fn news(&mut self) -> Vec<Liveness> {
        let mut news = Vec::new();
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
        echo.or_else(|| {
            let (key, id, nonce) = self.probes.pop_front()?;
            let theirs = self.map.get(&key).map_or(0, |one| one.theirs);
            Some((key.0, id, Said::Probe(nonce, theirs)))
        })
    }
}
