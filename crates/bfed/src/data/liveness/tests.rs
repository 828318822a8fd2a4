//! Neighbours without packets: what is sent to them when, and what is reported of them.

use alloc::vec;

use super::*;

mod silence;

const START: Instant = Instant::from_secs(100);
const INTERVAL: Duration = Duration::from_millis(250);
const PEER: PeerId = PeerId(1);

fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 4000).into()
}

/// The data node of the peer at the first address.
fn key() -> Key {
    (address(1), PEER)
}

fn edge(index: u32) -> EdgeId {
    EdgeId {
        index,
        generation: 0,
    }
}

fn label() -> FlowLabel {
    FlowLabel::new(7).expect("not 0")
}

/// A table, its clock and its random numbers: 1, 2, 3 and so on.
struct Table {
    table: LivenessTable,
    now: Instant,
    random: u32,
    /// Packets that arrived on each edge.
    packets: u64,
}

impl Table {
    fn new() -> Self {
        Table {
            table: LivenessTable::new(START),
            now: START,
            random: 0,
            packets: 0,
        }
    }

    fn add(&mut self, key: Key, id: u32, source: bool) -> bool {
        let random = || {
            self.random += 1;
            self.random
        };
        self.table.add(self.now, key, edge(id), source, random)
    }

    /// Lets intervals pass.
    fn intervals(&mut self, count: u32) {
        for _ in 0..count {
            self.now += INTERVAL;
            self.timeout();
        }
    }

    fn timeout(&mut self) {
        let (now, count) = (self.now, self.packets);
        let random = || {
            self.random += 1;
            self.random
        };
        let packets = |edges: &BTreeSet<EdgeId>| edges.len() as u64 * count;
        self.table.handle_timeout(now, INTERVAL, random, packets);
    }

    fn sent(&mut self) -> Vec<(SocketAddr, u32, SignContent)> {
        let next = || self.table.poll_transmit();
        let sent = core::iter::from_fn(next);
        sent.map(|(to, id, sign)| (to, id.index, sign)).collect()
    }

    /// The PROBEs sent: edge, number and cookie.
    fn probes(&mut self) -> Vec<(u32, u32, u64)> {
        let probes = self.sent().into_iter();
        let probes = probes.filter_map(|(_, id, sign)| match sign {
            SignContent::Probe(nonce, cookie) => Some((id, nonce, cookie)),
            SignContent::Echo(..) => None,
        });
        probes.collect()
    }

    fn probed(&mut self, key: Key, id: u32, nonce: u32, cookie: u64) -> ProbeResult {
        let probe = (edge(id), label(), nonce);
        self.table.probed(self.now, key, probe, cookie)
    }

    /// The ECHO of a neighbour with that cookie; the edges that it unlocks.
    fn echoed(&mut self, from: SocketAddr, nonce: u32, cookie: u64) -> Option<Vec<u32>> {
        let edges = self.table.echoed(self.now, from, nonce, cookie)?;
        Some(edges.into_iter().map(|id| id.index).collect())
    }

    fn changes(&mut self) -> Vec<(PeerId, State)> {
        let changes = self.table.poll_changes().into_iter();
        changes.map(|one| (one.peer, one.state)).collect()
    }

    /// A table with a source, edge 1, that has answered; `cookie` is its own.
    fn proved(cookie: u64) -> Self {
        let mut table = Table::new();
        table.add(key(), 1, true);
        table.timeout();
        let (_, nonce, _) = table.probes()[0];
        assert_eq!(table.echoed(address(1), nonce, cookie), Some(vec![1]));
        assert_eq!(table.changes(), [(PEER, State::Alive)]);
        table
    }

    /// Answers the PROBEs that wait.
    fn answer(&mut self) {
        for (_, nonce, _) in self.probes() {
            if nonce != READY {
                self.echoed(address(1), nonce, 9);
            }
        }
    }
}

#[test]
fn a_source_is_probed_at_once_and_is_ready_with_its_cookie() {
    let mut table = Table::new();
    assert!(!table.add(key(), 1, true), "not proved yet");
    let probes = table.probes();
    let [(1, nonce, 0)] = probes[..] else {
        panic!("{probes:?}");
    };
    assert_ne!(nonce, READY);
    // Further flows of the same data node wait for the cookie.
    table.add(key(), 2, true);
    assert_eq!(table.probes(), []);
    assert!(!table.table.is_proved(&key()));
    assert_eq!(table.echoed(address(1), nonce, 99), Some(vec![1, 2]));
    assert!(table.table.is_proved(&key()));
    assert_eq!(table.probes(), [(1, READY, 99), (2, READY, 99)]);
    // The next one has the cookie already, and an address that is proved.
    assert!(table.add(key(), 3, true));
    assert_eq!(table.probes(), [(3, READY, 99)]);
    // The same cookie again says nothing new.
    table.intervals(1);
    let (_, nonce, _) = table.probes()[0];
    assert_eq!(table.echoed(address(1), nonce, 99), Some(vec![]));
    assert_eq!(table.probes(), []);
}

#[test]
fn the_new_cookie_of_a_neighbour_that_was_restarted_counts() {
    let mut table = Table::proved(5);
    table.probes();
    table.intervals(1);
    let (_, nonce, cookie) = table.probes()[0];
    assert_eq!(cookie, 5);
    // A flow that comes later repeats it.
    assert_eq!(table.echoed(address(1), nonce, 6), Some(vec![]));
    table.add(key(), 2, true);
    assert_eq!(table.probes(), [(2, READY, 6)]);
    // One without a cookie changes nothing.
    table.intervals(1);
    let (_, nonce, _) = table.probes()[0];
    assert!(table.echoed(address(1), nonce, 0).is_some());
    table.add(key(), 3, true);
    assert_eq!(table.probes(), [(3, READY, 6)]);
}

#[test]
fn an_echo_counts_once_and_from_its_own_address() {
    let mut table = Table::new();
    table.add(key(), 1, true);
    let (_, nonce, _) = table.probes()[0];
    assert_eq!(table.echoed(address(2), nonce, 1), None);
    assert_eq!(table.echoed(address(1), nonce + 1, 1), None);
    assert_eq!(table.echoed(address(1), READY, 1), None, "never sent");
    assert!(table.echoed(address(1), nonce, 1).is_some());
    assert_eq!(table.echoed(address(1), nonce, 1), None);
    // A round trip may take longer than an interval: the last eight numbers count.
    table.probes();
    let mut numbers = Vec::new();
    for _ in 0..9 {
        table.intervals(1);
        numbers.push(table.probes()[0].1);
    }
    assert_eq!(table.echoed(address(1), numbers[0], 1), None);
    assert!(table.echoed(address(1), numbers[1], 1).is_some());
    assert!(table.echoed(address(1), numbers[8], 1).is_some());
}

#[test]
fn flows_are_probed_in_turn() {
    let mut table = Table::proved(9);
    table.add(key(), 2, true);
    table.add(key(), 3, true);
    table.probes();
    let mut ids = Vec::new();
    for _ in 0..6 {
        table.intervals(1);
        ids.extend(table.probes().into_iter().map(|(id, ..)| id));
    }
    assert_eq!(ids, [2, 3, 1, 2, 3, 1]);
    // A neighbour that only receives is not probed.
    let mut table = Table::new();
    assert!(!table.add(key(), 1, false));
    table.intervals(10);
    assert_eq!(table.sent(), []);
}

#[test]
fn a_neighbour_that_never_answers_is_probed_less_and_less() {
    let mut table = Table::new();
    table.add(key(), 1, true);
    let mut at = Vec::new();
    for interval in 0..330 {
        if !table.probes().is_empty() {
            at.push(interval);
        }
        table.intervals(1);
    }
    let waits: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // 0.25 s, 0.5 s and so on up to 16 s.
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64, 64]);
    assert_eq!(table.changes(), [], "nothing is known of it");
    // Once it answers it is probed in each interval.
    while table.table.probes.is_empty() {
        table.intervals(1);
    }
    table.answer();
    for _ in 0..5 {
        table.intervals(1);
        assert_eq!(table.probes().len(), 1);
    }
}

#[test]
fn probes_wait_while_the_driver_takes_none() {
    let mut table = Table::proved(9);
    table.probes();
    table.intervals(20);
    assert_eq!(table.probes().len(), 1);
}

#[test]
fn a_receiver_proves_its_address_with_the_cookie() {
    let mut table = Table::new();
    assert!(!table.add(key(), 1, false));
    assert!(!table.add(key(), 2, false));
    assert_eq!(table.probed(key(), 1, 33, 0), ProbeResult::Unproved);
    let sent = table.sent();
    let [(to, 1, SignContent::Echo(echoed, 33, cookie))] = sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!((to, echoed), (address(1), label()));
    assert_ne!(cookie >> 32, 0, "64 random bits");
    assert_ne!(cookie & u64::from(u32::MAX), 0);
    assert_eq!(
        table.probed(key(), 1, 34, cookie ^ 1),
        ProbeResult::Unproved
    );
    assert!(!table.table.is_proved(&key()));
    assert_eq!(table.changes(), []);
    let both = BTreeSet::from([edge(1), edge(2)]);
    assert_eq!(
        table.probed(key(), 2, 35, cookie),
        ProbeResult::Proved(both)
    );
    assert_eq!(table.changes(), [(PEER, State::Alive)]);
    assert!(table.add(key(), 3, false), "the next edge may send at once");
    // Edges that may send are not told again.
    let none = BTreeSet::new();
    assert_eq!(
        table.probed(key(), 1, 36, cookie),
        ProbeResult::Proved(none.clone())
    );
    // That it is ready gets no ECHO.
    table.sent();
    assert_eq!(
        table.probed(key(), 1, READY, cookie),
        ProbeResult::Proved(none)
    );
    assert_eq!(table.probed(key(), 1, READY, 0), ProbeResult::Unproved);
    assert_eq!(table.sent(), []);
    // A data node that no edge leads to.
    let stranger = (address(1), PeerId(2));
    assert_eq!(table.probed(stranger, 1, 37, cookie), ProbeResult::Refused);
}

#[test]
fn echoes_to_addresses_that_are_not_proved_have_a_rate() {
    let mut table = Table::new();
    let other = (address(2), PEER);
    let foreign = (address(3), PeerId(2));
    for key in [key(), other, foreign] {
        table.add(key, 1, false);
    }
    let echoes = |table: &mut Table, key: Key| {
        let refused = ProbeResult::Refused;
        let count = (1..200).take_while(|nonce| table.probed(key, 1, *nonce, 0) != refused);
        let count = count.count();
        table.sent();
        count
    };
    // A quarter of a second at a hundred a second, for all addresses of the peer.
    assert_eq!(echoes(&mut table, key()), 25);
    assert_eq!(echoes(&mut table, other), 0);
    assert_eq!(echoes(&mut table, foreign), 25, "another peer");
    table.now += Duration::from_millis(100);
    assert_eq!(echoes(&mut table, other), 10);
    // 1,000 a second for all peers together.
    let mut table = Table::new();
    let keys: Vec<Key> = (0..20).map(|peer| (address(1), PeerId(peer))).collect();
    for &key in &keys {
        table.add(key, 1, false);
    }
    let all: usize = keys.iter().map(|&key| echoes(&mut table, key)).sum();
    assert_eq!(all, 250);
}

#[test]
fn receivers_that_are_not_probed_cost_their_peer_nothing() {
    let mut table = Table::new();
    for last in 1..=60 {
        table.add((address(last), PEER), u32::from(last), false);
    }
    table.intervals(8);
    for last in 1..=25 {
        let asked = table.probed((address(last), PEER), u32::from(last), 1, 0);
        assert_eq!(asked, ProbeResult::Unproved, "{last}");
    }
}

#[test]
fn what_peers_spent_is_forgotten_once_it_does_not_matter() {
    let mut table = Table::new();
    table.add(key(), 1, false);
    table.probed(key(), 1, 1, 0);
    table.intervals(4);
    assert!(table.table.rates.peers.is_empty());
    table.probed(key(), 1, 2, 0);
    assert_eq!(table.table.rates.peers.len(), 1);
}

#[test]
fn at_most_256_echoes_wait() {
    let mut table = Table::new();
    table.add(key(), 1, false);
    table.probed(key(), 1, 1, 0);
    let SignContent::Echo(_, _, cookie) = table.sent()[0].2 else {
        panic!();
    };
    let none = BTreeSet::new();
    table.probed(key(), 1, READY, cookie);
    for nonce in 1..=256 {
        assert_eq!(
            table.probed(key(), 1, nonce, cookie),
            ProbeResult::Proved(none.clone())
        );
    }
    assert_eq!(table.probed(key(), 1, 999, cookie), ProbeResult::Refused);
    assert!(table.table.waits());
    assert_eq!(table.sent().len(), 256);
    assert!(!table.table.waits());
}

#[test]
fn a_proof_that_is_refused_can_be_repeated() {
    let mut table = Table::new();
    let busy = (address(2), PEER);
    table.add(key(), 1, false);
    table.add(busy, 2, false);
    let mut cookies = Vec::new();
    for (key, id) in [(key(), 1), (busy, 2)] {
        table.probed(key, id, 1, 0);
        let SignContent::Echo(_, _, cookie) = table.sent()[0].2 else {
            panic!();
        };
        cookies.push(cookie);
    }
    for nonce in 1..=256 {
        table.probed(busy, 2, nonce, cookies[1]);
    }
    assert_eq!(table.probed(key(), 1, 7, cookies[0]), ProbeResult::Refused);
    assert!(!table.table.is_proved(&key()));
    table.sent();
    let edges = BTreeSet::from([edge(1)]);
    assert_eq!(
        table.probed(key(), 1, 8, cookies[0]),
        ProbeResult::Proved(edges)
    );
}

#[test]
fn guesses_are_ignored_until_the_next_probe() {
    let mut table = Table::new();
    table.add(key(), 1, true);
    let (_, nonce, _) = table.probes()[0];
    for wrong in 0..15 {
        assert_eq!(table.echoed(address(1), nonce + 100 + wrong, 1), None);
    }
    let mut guessed = Table::new();
    guessed.add(key(), 1, true);
    let (_, number, _) = guessed.probes()[0];
    for wrong in 0..16 {
        guessed.echoed(address(1), number + 100 + wrong, 1);
    }
    assert!(
        table.echoed(address(1), nonce, 1).is_some(),
        "fifteen are few"
    );
    assert_eq!(guessed.echoed(address(1), number, 1), None);
    guessed.intervals(1);
    let (_, number, _) = guessed.probes()[0];
    assert!(guessed.echoed(address(1), number, 1).is_some());
    // More than a byte counts.
    for wrong in 0..600 {
        assert_eq!(table.echoed(address(1), nonce + 1000 + wrong, 1), None);
    }
}

/// In a session of many sources a data node is a source and a receiver. Its address is proved once, for both.
#[test]
fn whatever_proves_an_address_proves_it_for_all_edges() {
    let mut table = Table::new();
    assert!(!table.add(key(), 1, true));
    assert!(!table.add(key(), 2, false));
    let (_, nonce, _) = table.probes()[0];
    assert_eq!(table.echoed(address(1), nonce, 9), Some(vec![1, 2]));

    let mut table = Table::new();
    table.add(key(), 1, true);
    table.add(key(), 2, false);
    table.sent();
    table.probed(key(), 2, 5, 0);
    let [(_, _, SignContent::Echo(_, _, cookie))] = table.sent()[..] else {
        panic!("an ECHO with the cookie");
    };
    let proved = table.probed(key(), 2, 6, cookie);
    assert_eq!(proved, ProbeResult::Proved([edge(1), edge(2)].into()));
}

#[test]
fn a_probe_never_has_the_number_of_one_that_gets_no_echo() {
    let mut table = LivenessTable::new(START);
    table.add(START, key(), edge(1), true, || READY);
    let Some((_, _, SignContent::Probe(nonce, _))) = table.poll_transmit() else {
        panic!("a PROBE");
    };
    assert_ne!(nonce, READY);
    assert!(table.echoed(START, address(1), nonce, 9).is_some());
}
