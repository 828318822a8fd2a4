//! Liveness of the data nodes at the other ends.

use std::net::SocketAddr;

use bfed::data::{DataError, Destination, Meta, Verdict};
use bfed::wire::Message;
use bfed::wire::data::{Kind, Packet, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::liveness::{Repr as Liveness, State};
use bfed::wire::node::Heartbeat;
use bfed::wire::subscribe::Edge;
use bfed::*;

use crate::fake::{OTHER, PEER, Sent, Station};

const LIVE: &str = "bfed://1/m/?content=real-time";
const FILE: &str = "bfed://1/m";
/// A heartbeat's time, in milliseconds.
const BEAT: u64 = 250;

/// Two data nodes: the second gets a session from the first.
struct Pair {
    stations: [Station; 2],
    /// Nothing passes.
    cut: bool,
}

impl Pair {
    fn new(name: &str) -> Pair {
        let mut pair = Pair {
            stations: [Station::new(1), Station::new(2)],
            cut: false,
        };
        pair.connect(name);
        pair
    }

    /// The session goes from the first to the second.
    fn connect(&mut self, name: &str) {
        let [above, below] = &mut self.stations;
        above.subscribe(true, name, Edge::Native, &[]).unwrap();
        let theirs = below.allocate(name, PEER);
        let ours = above.subscribe(false, name, PEER, &theirs).unwrap();
        below.subscribe(true, name, PEER, &ours).unwrap();
        below.subscribe(false, name, Edge::Native, &[]).unwrap();
    }

    /// Lets time pass, and delivers the packets of each to the other.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis / 50 {
            self.wait(50);
            for _ in 0..3 {
                for from in 0..2 {
                    for sent in self.stations[from].drain() {
                        self.carry(from, sent);
                    }
                }
            }
        }
    }

    /// Lets time pass at both, with heartbeats of their control nodes.
    fn wait(&mut self, millis: u64) {
        for station in &mut self.stations {
            let heartbeat = Heartbeat {
                epoch: 1,
                sequence: 1,
                draining: false,
                complete: false,
            };
            station.receive(&Message::Heartbeat(heartbeat)).unwrap();
            station.wait(millis);
        }
    }

    fn carry(&mut self, from: usize, (to, bytes): Sent) {
        let (source, target) = (self.stations[from].address, &mut self.stations[1 - from]);
        if self.cut || to != Destination::Datagram(target.address) {
            return;
        }
        let _ = target.packet(Meta::Datagram(source), bytes);
    }

    /// The state of the other that a data node reported to its control node.
    fn reported(&mut self, at: usize) -> Vec<State> {
        let reported = verdicts(&mut self.stations[at]).into_iter();
        reported
            .filter(|(peer, _)| *peer == PeerId(1))
            .map(|(_, state)| state)
            .collect()
    }
}

/// The states of peers that a data node reported to its control node.
fn verdicts(station: &mut Station) -> Vec<(PeerId, State)> {
    let news = |message| match message {
        Message::Liveness(Liveness { peer, state }) => Some((peer, state)),
        _ => None,
    };
    station.sent().into_iter().filter_map(news).collect()
}

/// The ECHO that answers a PROBE.
fn echo(probe: &[u8], sequence: impl Fn(u32) -> u32) -> Vec<u8> {
    let probe = Packet::new_checked(probe).unwrap();
    let repr = Repr {
        sequence: sequence(probe.sequence()),
        ..Repr::new(Kind::Echo, probe.label()).with_cookie(1)
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    bytes
}

/// A channel at an address, with a label that the caller made up.
fn channel_at(address: SocketAddr, label: u32) -> [FlowChannel; 1] {
    [FlowChannel {
        label: FlowLabel::new(label),
        address: ChannelAddress::Datagram(address),
    }]
}

#[test]
fn both_know_that_the_other_lives_whatever_the_session_carries() {
    for name in [LIVE, FILE] {
        let mut pair = Pair::new(name);
        pair.run(2 * BEAT);
        assert_eq!(pair.reported(1), [State::Alive], "the receiver asks");
        assert_eq!(pair.reported(0), [State::Alive], "the sender is asked");
        pair.run(100 * BEAT);
        assert!(pair.reported(0).is_empty() && pair.reported(1).is_empty());
        pair.cut = true;
        pair.run(5 * BEAT);
        assert!(
            pair.reported(0).is_empty() && pair.reported(1).is_empty(),
            "it may move"
        );
        pair.run(3 * BEAT);
        assert_eq!(
            (pair.reported(0), pair.reported(1)),
            (vec![State::Silent], vec![State::Silent])
        );
        pair.cut = false;
        pair.run(2 * BEAT);
        assert_eq!(
            (pair.reported(0), pair.reported(1)),
            (vec![State::Alive], vec![State::Alive])
        );
    }
}

#[test]
fn a_successor_of_control_is_told_again_and_one_that_is_not_watched_is_unknown() {
    let mut pair = Pair::new(LIVE);
    pair.run(2 * BEAT);
    pair.reported(1);
    let now = pair.stations[1].now;
    pair.stations[1].node.connected(now);
    pair.run(BEAT);
    assert_eq!(pair.reported(1), [State::Alive]);
    pair.stations[1].reclaim(LIVE, Some(bfed::wire::reclaim::ReclaimTarget::All));
    pair.run(BEAT);
    assert_eq!(pair.reported(1), [State::Unknown]);
}

#[test]
fn a_node_that_did_not_run_takes_nobody_for_silent() {
    let mut pair = Pair::new(LIVE);
    pair.run(2 * BEAT);
    pair.reported(1);
    pair.wait(20 * BEAT);
    // It has lost its control node meanwhile, and reports everything again.
    let now = pair.stations[1].now;
    pair.stations[1].node.connected(now);
    pair.run(2 * BEAT);
    assert_eq!(pair.reported(1), [State::Alive]);
}

#[test]
fn who_never_answers_is_never_judged() {
    let mut pair = Pair::new(LIVE);
    pair.cut = true;
    pair.run(100 * BEAT);
    assert!(pair.reported(0).is_empty() && pair.reported(1).is_empty());
}

#[test]
fn data_is_a_sign_of_life_where_probes_are_lost() {
    // To clients alone, and to a peer too.
    for receivers in 1..=2 {
        let mut pair = Pair::new(LIVE);
        if receivers == 2 {
            let to = channel_at(([10, 0, 0, 9], 4000).into(), 0);
            let below = &mut pair.stations[1];
            below.subscribe(false, LIVE, OTHER, &to).unwrap();
        }
        pair.run(2 * BEAT);
        assert_eq!(pair.reported(1), [State::Alive]);
        for _ in 0..50 {
            pair.wait(BEAT);
            pair.stations[1].drain();
            for sent in pair.stations[0].native_data(1, b"data").unwrap() {
                pair.carry(0, sent);
            }
            // Reports too, so that the sender continues.
            for sent in pair.stations[0].drain() {
                pair.carry(0, sent);
            }
        }
        assert!(pair.reported(1).is_empty(), "{receivers}");
    }
}

/// The packets that a data node sends after a PROBE from `from` with that label and number.
fn ask(
    station: &mut Station,
    from: SocketAddr,
    label: FlowLabel,
    kind: Kind,
) -> Result<(), Verdict> {
    let repr = bfed::wire::data::Repr {
        kind,
        label,
        sequence: 77,
        timestamp_us: 0,
        rtt_us: 0,
        payload_len: 0,
        class: bfed::wire::class::Class::NONE,
        age_ms: 0,
        is_again: false,
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    station.packet(Meta::Datagram(from), bytes).map(drop)
}

#[test]
fn forged_probes_and_echoes_do_nothing() {
    let mut pair = Pair::new(LIVE);
    pair.cut = true;
    // The receiver's own PROBE shows the label.
    let probe = pair.stations[1].drain().pop().unwrap().1;
    let label = Packet::new_checked(&probe[..]).unwrap().label();
    let (above, below) = (pair.stations[0].address, pair.stations[1].address);
    let stranger = ([10, 0, 0, 9], 4000).into();
    let wrong = FlowLabel::new(label.get() ^ 1).unwrap();
    for (from, label, why) in [
        (stranger, label, DataError::NotYours),
        (below, wrong, DataError::UnknownFlow),
    ] {
        let refused = ask(&mut pair.stations[0], from, label, Kind::Probe);
        assert!(matches!(refused, Err(Verdict::Drop(reason)) if reason == why));
        assert!(pair.stations[0].drain().is_empty(), "nothing to a stranger");
    }
    // An ECHO that repeats no number of a PROBE.
    let refused = ask(&mut pair.stations[1], above, label, Kind::Echo);
    assert!(matches!(refused, Err(Verdict::Drop(DataError::NotYours))));
    pair.run(100);
    assert!(pair.reported(1).is_empty());
    // The genuine PROBE is answered with as many bytes, to its own address.
    let taken = ask(&mut pair.stations[0], below, label, Kind::Probe);
    assert!(matches!(taken, Err(Verdict::Taken)));
    let sent = pair.stations[0].drain();
    assert_eq!(sent.len(), 1);
    assert_eq!(
        (sent[0].0, sent[0].1.len()),
        (Destination::Datagram(below), 20)
    );
}

#[test]
fn an_address_that_two_peers_name_has_a_verdict_for_each() {
    const FOREIGN: &str = "bfed://3/x?content=real-time";
    // The lying peer names the other peer's data node first.
    for first in [true, false] {
        let mut pair = Pair {
            stations: [Station::new(1), Station::new(2)],
            cut: false,
        };
        if !first {
            pair.connect(LIVE);
        }
        let honest = pair.stations[0].address;
        let below = &mut pair.stations[1];
        below.allocate(FOREIGN, OTHER);
        let lie = channel_at(honest, 12345);
        below.subscribe(true, FOREIGN, OTHER, &lie).unwrap();
        if first {
            pair.connect(LIVE);
        }
        pair.run(2 * BEAT);
        let reported = verdicts(&mut pair.stations[1]);
        assert_eq!(
            reported,
            [(PeerId(1), State::Alive)],
            "the liar is not heard"
        );
        // Whatever the hostile peer does with its session, nothing changes for the other peer.
        pair.stations[1].reclaim(FOREIGN, Some(bfed::wire::reclaim::ReclaimTarget::All));
        pair.run(10 * BEAT);
        assert!(verdicts(&mut pair.stations[1]).is_empty());
        let below = &mut pair.stations[1];
        below.allocate(FOREIGN, OTHER);
        below.subscribe(true, FOREIGN, OTHER, &lie).unwrap();
        pair.cut = true;
        pair.run(10 * BEAT);
        let reported = verdicts(&mut pair.stations[1]);
        assert_eq!(
            reported,
            [(PeerId(1), State::Silent)],
            "nothing keeps it alive"
        );
    }
}

#[test]
fn echoes_for_other_peers_that_name_the_address_are_no_wrong_ones() {
    let mut station = Station::new(2);
    let shared: SocketAddr = ([10, 0, 0, 1], 4000).into();
    for number in 1..=20 {
        let peer = Edge::Peer {
            peer: PeerId(number),
            rate_bps: 0,
        };
        let name = format!("bfed://{number}/m/?content=real-time");
        station.allocate(&name, peer);
        let theirs = channel_at(shared, 100 + number);
        station.subscribe(true, &name, peer, &theirs).unwrap();
    }
    let probes = station.drain();
    assert_eq!(probes.len(), 20, "each peer's is asked");
    // The answers overtake each other.
    for (_, probe) in probes.iter().rev() {
        let _ = station.packet(Meta::Datagram(shared), echo(probe, |number| number));
    }
    station.wait(BEAT);
    let reported = verdicts(&mut station);
    let alive: Vec<_> = (1..=20).map(|peer| (PeerId(peer), State::Alive)).collect();
    assert_eq!(reported, alive);
}

#[test]
fn forged_echoes_make_no_neighbour_silent() {
    let mut pair = Pair::new(LIVE);
    pair.run(2 * BEAT);
    assert_eq!(pair.reported(1), [State::Alive]);
    let above = pair.stations[0].address;
    for _ in 0..40 {
        pair.wait(BEAT);
        for (to, bytes) in pair.stations[1].drain() {
            let kind = Packet::new_checked(&bytes[..]).unwrap().kind();
            // The forged answers come before the true one.
            for wrong in 1..=32 * u32::from(kind == Kind::Probe) {
                let forged = echo(&bytes, |number| number.wrapping_add(wrong).max(1));
                let _ = pair.stations[1].packet(Meta::Datagram(above), forged);
            }
            pair.carry(1, (to, bytes));
        }
        for sent in pair.stations[0].drain() {
            pair.carry(0, sent);
        }
    }
    assert!(pair.reported(1).is_empty(), "it answered every PROBE");
}

#[test]
fn echoes_that_wait_are_bounded() {
    let mut pair = Pair::new(LIVE);
    pair.run(2 * BEAT);
    pair.wait(BEAT);
    pair.stations[0].drain();
    // The PROBE of a receiver that has the cookie.
    let probe = pair.stations[1].drain().pop().unwrap().1;
    let below = pair.stations[1].address;
    for _ in 0..1000 {
        let _ = pair.stations[0].packet(Meta::Datagram(below), probe.clone());
    }
    assert_eq!(pair.stations[0].drain().len(), 256);
    let drops = pair.stations[0]
        .node
        .plane()
        .stats()
        .drops
        .get(DataError::QueueFull);
    assert_eq!(drops, 1000 - 256);
}

#[test]
fn probes_that_nobody_takes_away_are_bounded() {
    let mut pair = Pair::new(LIVE);
    (0..100).for_each(|_| pair.wait(BEAT));
    let probe = |(_, bytes): &Sent| Packet::new_checked(&bytes[..]).unwrap().kind() == Kind::Probe;
    let waiting = pair.stations[1].drain();
    assert_eq!(waiting.iter().filter(|sent| probe(sent)).count(), 1);
}

#[test]
fn a_receiver_that_was_not_there_yet_gets_the_session_at_once() {
    let (mut above, mut below) = (Station::new(1), Station::new(2));
    above.subscribe(true, LIVE, Edge::Native, &[]).unwrap();
    let theirs = below.allocate(LIVE, PEER);
    let ours = above.subscribe(false, LIVE, PEER, &theirs).unwrap();
    // The receiver does not know the label yet, and its address has not proved itself.
    let early: usize = (0..10)
        .map(|_| above.native_data(1, &[0; 1000]).unwrap().len())
        .sum();
    assert_eq!(early, 0);
    assert!(above.drain().is_empty());
    below.subscribe(true, LIVE, PEER, &ours).unwrap();
    let mut sent = vec![];
    for _ in 0..2 {
        for (_, sent) in below.drain() {
            let taken = above.packet(Meta::Datagram(below.address), sent);
            assert!(matches!(taken, Err(Verdict::Taken)));
        }
        sent = above.drain();
        for (_, echo) in &sent {
            let _ = below.packet(Meta::Datagram(above.address), echo.clone());
        }
    }
    assert!(sent.len() >= 3, "not a packet a second: {}", sent.len());
    assert!(
        sent.iter()
            .all(|(to, _)| *to == Destination::Datagram(below.address))
    );
}
