//! LTP through DyRAM relays, in virtual time.

#[path = "common/dice.rs"]
mod dice;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dice::{Dice, content, seed};
use dyram::storage::{Limits, Storage};
use dyram::{Relay, RelayId, Verdict};
use ltp::relayed::{self, AttachmentEvent, OVERHEAD};
use ltp::store::HeapRing;
use ltp::{
    Assist, Duration, Instant, Receiver, ReceiverConfig, ReceiverEvent, Sender, SenderConfig,
    SenderEvent,
};

const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3));

/// Where IP multicast carries the data.
fn group() -> SocketAddr {
    SocketAddr::new(GROUP, 5000)
}

fn source() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 4000))
}

fn relay(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from(0x0a01_0000 + index as u32), 4143))
}

fn leaf(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from(0x0a02_0000 + index as u32), 4000))
}

/// Where a packet of a sender or receiver goes.
fn address(transmit: &ltp::Transmit) -> SocketAddr {
    transmit.destination.unicast().unwrap_or_else(group)
}

type InFlight = Reverse<(i64, u64, SocketAddr, SocketAddr, Vec<u8>)>;

/// A source, relays in a tree, leaves below them. Unicast between source and leaves goes straight.
struct World {
    now: Instant,
    root: relayed::Sender<'static, HeapRing>,
    relays: Vec<Option<Relay<'static>>>,
    leaves: Vec<relayed::Receiver<'static, HeapRing>>,
    events: Vec<Vec<ReceiverEvent>>,
    sender_events: Vec<SenderEvent>,
    relay_events: Vec<AttachmentEvent>,
    stalled: Vec<relayed::Stalled>,
    /// One way of each link.
    delay_us: u64,
    loss: u64,
    /// The same for acknowledgements of leaves alone, in millionths.
    ack_loss: u64,
    dice: Dice,
    in_flight: BinaryHeap<InFlight>,
    count: u64,
    /// LTP requests that reached the source by unicast.
    plain_requests: u32,
    stuck: Option<Stuck>,
}

fn new_root(
    bytes: &[u8],
    number: u64,
    now: Instant,
    change: impl Fn(&mut SenderConfig),
) -> relayed::Sender<'static, HeapRing> {
    let mut config = SenderConfig::new(SocketAddr::new(GROUP, 5000));
    config.length = Some(bytes.len() as u64);
    config.max_packet_len = 500;
    config.rate_bps = Some(20_000_000);
    config.block_exponent = 13;
    change(&mut config);
    let store = HeapRing::whole(bytes.to_vec());
    let sender = Sender::new(config, store, seed(number), now).unwrap();
    let first = [relay(0)].into_iter().collect();
    relayed::Sender::new(sender, source(), GROUP, first, seed(number + 1), now).unwrap()
}

fn new_leaf(
    bytes: &[u8],
    relays: &[usize],
    number: u64,
    now: Instant,
) -> relayed::Receiver<'static, HeapRing> {
    let mut config = ReceiverConfig::new(SocketAddr::new(GROUP, 5000));
    config.assist = Assist::Dyram;
    config.source = Some(source().ip());
    let store = HeapRing::new(bytes.len().next_multiple_of(1 << 16));
    let receiver = Receiver::new(config, store, seed(number), now);
    let relays = relays.iter().copied().map(relay).collect();
    relayed::Receiver::new(receiver, source().ip(), GROUP, relays, seed(number), now).unwrap()
}

fn relay_config(index: usize, parent: Option<usize>) -> dyram::Config {
    let mut config = dyram::Config::new(RelayId(index as u32 + 1));
    config.parents = parent.map(relay).into_iter().collect();
    config
}

fn new_relay(index: usize, parent: Option<usize>, number: u64, now: Instant) -> Relay<'static> {
    let config = relay_config(index, parent);
    let storage = Storage::owned(Limits::default()).unwrap();
    Relay::new(config, storage, seed(number), now).unwrap()
}

impl World {
    /// `parents[i]` is the relay above relay `i` (none: the source registers there), `leaves[i]`
    /// lists the relays of leaf `i`.
    fn new(
        bytes: &[u8],
        parents: &[Option<usize>],
        leaves: &[&[usize]],
        loss: u64,
        number: u64,
        change: impl Fn(&mut SenderConfig),
    ) -> World {
        let now = Instant::from_millis(1);
        let root = new_root(bytes, number, now, change);
        let relays = parents.iter().enumerate().map(|(index, &parent)| {
            let number = number + 2 + index as u64;
            Some(new_relay(index, parent, number, now))
        });
        let leaves: Vec<_> = leaves
            .iter()
            .enumerate()
            .map(|(index, relays)| new_leaf(bytes, relays, number + 1000 + index as u64, now))
            .collect();
        World {
            now,
            root,
            relays: relays.collect(),
            events: vec![Vec::new(); leaves.len()],
            leaves,
            sender_events: Vec::new(),
            relay_events: Vec::new(),
            stalled: Vec::new(),
            delay_us: 2000,
            loss,
            ack_loss: 0,
            dice: Dice::new(number),
            in_flight: BinaryHeap::new(),
            count: 0,
            plain_requests: 0,
            stuck: None,
        }
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if self.dice.chance(self.loss) {
            return;
        }
        let is_ack = dyram::wire::Packet::new_checked(bytes)
            .is_ok_and(|packet| packet.service() == dyram::wire::Service::Ack);
        if is_ack && self.dice.chance(self.ack_loss) {
            return;
        }
        self.count += 1;
        let at = self.now + Duration::from_micros(self.delay_us + self.dice.next() % 100);
        let packet = (at.total_micros(), self.count, from, to, bytes.to_vec());
        self.in_flight.push(Reverse(packet));
    }

    /// To the group: every relay and leaf gets it, or loses it, for itself.
    fn cast(&mut self, from: SocketAddr, bytes: &[u8]) {
        for index in 0..self.relays.len() {
            let meta = dyram::Meta {
                source: from,
                group: true,
            };
            if self.dice.chance(self.loss) {
                continue;
            }
            if let Some(machine) = &mut self.relays[index] {
                let verdict = machine.forward(self.now, &meta, &mut bytes.to_vec());
                assert!(!matches!(verdict, Verdict::Send(_)), "it passes nothing on");
            }
        }
        for leaf in &mut self.leaves {
            if !self.dice.chance(self.loss) {
                let _ = leaf.handle_packet(self.now, &ltp::Meta::group(from), bytes);
            }
        }
    }

    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, mut bytes: Vec<u8>) {
        let now = self.now;
        if to == group() {
            return self.cast(from, &bytes);
        }
        if to == source() {
            if bytes[0] == 0x15 {
                self.plain_requests += 1;
            }
            let _ = self
                .root
                .handle_packet(now, &ltp::Meta::unicast(from), &bytes);
        } else if to == stuck() {
            if let Some(stuck) = &mut self.stuck
                && let Some(index) = (0..self.relays.len()).find(|&index| relay(index) == from)
            {
                stuck.hear(now, index, &bytes);
            }
        } else if let Some(index) = (0..self.leaves.len()).find(|&index| leaf(index) == to) {
            let _ = self.leaves[index].handle_packet(now, &ltp::Meta::unicast(from), &bytes);
        } else if let Some(index) = (0..self.relays.len()).find(|&index| relay(index) == to) {
            let Some(machine) = &mut self.relays[index] else {
                return;
            };
            let verdict = machine.forward(now, &dyram::Meta::unicast(from), &mut bytes);
            if let Verdict::Send(fanout) = verdict {
                let targets: Vec<_> = machine.targets(&fanout).collect();
                for target in targets {
                    self.send(to, target, &bytes);
                }
            }
        }
    }

    fn drain(&mut self) {
        let now = self.now;
        let mut buffer = [0; 1000];
        while let Some(transmit) = self.root.poll_transmit(now, &mut buffer) {
            assert!(transmit.len <= 500 + OVERHEAD);
            self.send(source(), address(&transmit), &buffer[..transmit.len]);
        }
        while let Some(event) = self.root.poll_event() {
            match event {
                relayed::SenderEvent::Sender(event) => self.sender_events.push(event),
                relayed::SenderEvent::Relay(event) => self.relay_events.push(event),
                relayed::SenderEvent::Stalled(stalled) => self.stalled.push(stalled),
            }
        }
        for index in 0..self.leaves.len() {
            while let Some(transmit) = self.leaves[index].poll_transmit(now, &mut buffer) {
                self.send(leaf(index), address(&transmit), &buffer[..transmit.len]);
            }
            while let Some(event) = self.leaves[index].poll_event() {
                match event {
                    relayed::ReceiverEvent::Receiver(event) => self.events[index].push(event),
                    relayed::ReceiverEvent::Relay(event) => self.relay_events.push(event),
                }
            }
        }
        for index in 0..self.relays.len() {
            while let Some(transmit) = self.relays[index]
                .as_mut()
                .and_then(|machine| machine.poll_transmit(now, &mut buffer))
            {
                self.send(relay(index), transmit.destination, &buffer[..transmit.len]);
            }
        }
    }

    fn next_time(&self) -> Option<Instant> {
        let flight = self
            .in_flight
            .peek()
            .map(|Reverse(packet)| Instant::from_micros(packet.0));
        let relays = self.relays.iter().flatten().filter_map(Relay::poll_timeout);
        let leaves = self
            .leaves
            .iter()
            .filter_map(relayed::Receiver::poll_timeout);
        let root = self.root.poll_timeout();
        flight
            .into_iter()
            .chain(relays)
            .chain(leaves)
            .chain(root)
            .min()
    }

    fn run(&mut self, milliseconds: i64) {
        let end = Instant::from_millis(milliseconds);
        while self.now < end {
            self.drain();
            let Some(next) = self.next_time() else { return };
            self.now = next.max(self.now + Duration::from_micros(10)).min(end);
            while let Some(Reverse(packet)) = self.in_flight.peek()
                && packet.0 <= self.now.total_micros()
            {
                let Some(Reverse((_, _, from, to, bytes))) = self.in_flight.pop() else {
                    break;
                };
                self.deliver(from, to, bytes);
            }
            self.root.handle_timeout(self.now);
            for leaf in &mut self.leaves {
                leaf.handle_timeout(self.now);
            }
            for relay in self.relays.iter_mut().flatten() {
                relay.handle_timeout(self.now);
            }
            if let Some(mut stuck) = self.stuck.take() {
                stuck.step(self);
                self.stuck = Some(stuck);
            }
        }
    }

    fn complete(&self, bytes: &[u8]) -> usize {
        let same = |leaf: &&relayed::Receiver<'_, HeapRing>| {
            leaf.receiver().is_complete()
                && &leaf.receiver().store().as_bytes()[..bytes.len()] == bytes
        };
        self.leaves.iter().filter(same).count()
    }
}

/// A root, two relays below, three leaves below each.
const PARENTS: [Option<usize>; 3] = [None, Some(0), Some(0)];
const LEAVES: [&[usize]; 6] = [&[1], &[1], &[1], &[2], &[2], &[2]];

fn wait_for_six(config: &mut SenderConfig) {
    config.receivers = Some(6);
    config.connect_timeout = Duration::from_secs(5);
}

#[test]
fn everything_arrives_without_loss_and_nobody_asks() {
    let bytes = content(200_000, 1);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 0, 1, wait_for_six);
    world.run(3_000);
    assert_eq!(world.complete(&bytes), 6);
    let asked: u64 = world
        .leaves
        .iter()
        .map(|leaf| leaf.receiver().stats().requests_group)
        .sum();
    assert_eq!((asked, world.plain_requests), (0, 0));
}

#[test]
fn losses_are_repaired_by_leaves_and_the_source_is_the_last_that_is_asked() {
    let bytes = content(400_000, 2);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 30_000, 2, wait_for_six);
    world.run(20_000);
    assert_eq!(world.complete(&bytes), 6);
    let from_leaves: u64 = world
        .leaves
        .iter()
        .map(|leaf| leaf.receiver().stats().repairs_sent)
        .sum();
    let asked = world.root.sender().stats().requested_packets;
    // 820 packets, 3 % lost on each of nine links: the source is asked for what its own link loses.
    assert!(
        (10..80).contains(&asked),
        "{asked} packets asked of the source"
    );
    assert!(from_leaves > 80, "{from_leaves} repairs from leaves");
}

/// Relays repair data alone: digests come again with the next ones, so that a packet of them that was
/// lost near the source does not bring a request of each leaf to the source.
#[test]
fn lost_digests_do_not_bring_everybody_to_the_source() {
    let bytes = content(400_000, 3);
    let (mut asked, mut blocks) = (0, 0);
    for seed in 0..10 {
        let mut world = World::new(&bytes, &PARENTS, &LEAVES, 30_000, seed, |config| {
            wait_for_six(config);
            config.rate_bps = Some(4_000_000);
        });
        world.run(20_000);
        assert_eq!(world.complete(&bytes), 6, "seed {seed}");
        asked += world.plain_requests;
        blocks += world.root.sender().stats().digests;
    }
    // One of eleven packets of digests is lost on the way to a leaf.
    let lost = blocks * 6 / 11;
    assert!(
        u64::from(asked) * 2 < lost,
        "{asked} requests for {lost} losses"
    );
}

#[test]
fn random_losses_end_with_every_byte() {
    let seeds = if cfg!(debug_assertions) { 20 } else { 300 };
    for number in 0..seeds {
        let bytes = content(60_000 + number as usize * 997, number);
        let loss = number % 8 * 20_000;
        let mut world = World::new(&bytes, &PARENTS, &LEAVES, loss, 100 + number, |_| {});
        world.run(60_000);
        assert_eq!(world.complete(&bytes), 6, "seed {number}");
    }
}

#[test]
fn when_the_relay_dies_the_leaves_go_on_with_the_next_one() {
    let bytes = content(3_000_000, 3);
    let leaves: [&[usize]; 4] = [&[1, 2], &[1, 2], &[2], &[2]];
    let mut world = World::new(&bytes, &PARENTS, &leaves, 5_000, 3, |_| {});
    world.run(500);
    world.relays[1] = None;
    world.run(30_000);
    assert_eq!(world.complete(&bytes), 4);
    assert_eq!(world.leaves[0].relay(), Some(relay(2)));
}

/// Any relay of the tree, the source's own too; the source lingers for less time than it is away.
#[test]
fn a_relay_that_is_killed_and_started_again_costs_time_and_nothing_else() {
    for number in 0..6 {
        let bytes = content(500_000, number);
        let mut world = World::new(&bytes, &PARENTS, &LEAVES, 5_000, 80 + number, |config| {
            wait_for_six(config);
            config.linger = Duration::from_secs(1);
        });
        let index = number as usize % 3;
        world.run(60 + number as i64 * 30);
        world.relays[index] = None;
        world.run(world.now.total_millis() + 2_500);
        world.relays[index] = Some(new_relay(index, PARENTS[index], 800 + number, world.now));
        world.run(60_000);
        assert_eq!(world.complete(&bytes), 6, "seed {number}");
        assert!(world.sender_events.contains(&SenderEvent::Complete));
    }
}

/// The only relay there is, is not told goodbye right behind a new JOIN: it would stop serving.
#[test]
fn who_hears_nothing_of_its_only_relay_for_a_while_goes_on_with_it_at_once() {
    for number in 0..6 {
        let bytes = content(600_000, number);
        let mut world = World::new(&bytes, &[None], &[&[0]], 0, 20 + number, |config| {
            config.rate_bps = Some(2_000_000);
        });
        // The refresh after two seconds and its repetitions are lost; the next JOIN is not.
        world.run(1_950);
        world.loss = 1_000_000;
        world.run(2_740);
        world.loss = 0;
        world.run(4_600);
        let lost = |event: &&AttachmentEvent| matches!(event, AttachmentEvent::Lost(_));
        assert_eq!(world.relay_events.iter().filter(lost).count(), 2);
        assert_eq!(world.complete(&bytes), 1, "seed {number}");
    }
}

/// An answer to a JOIN that takes longer than the wait for it counts.
#[test]
fn who_is_far_from_its_relay_stays_attached() {
    let bytes = content(200_000, 22);
    let mut world = World::new(&bytes, &[None], &[&[0], &[0]], 0, 22, wait_for_six);
    world.delay_us = 300_000;
    world.run(40_000);
    assert_eq!(world.complete(&bytes), 2);
    let attached = |event: &AttachmentEvent| matches!(event, AttachmentEvent::Attached(_));
    assert!(
        world.relay_events.iter().all(attached) && world.relay_events.len() == 3,
        "{:?}",
        world.relay_events
    );
}

#[test]
fn without_any_relay_left_the_source_repairs_what_was_lost() {
    let bytes = content(100_000, 4);
    let leaves: [&[usize]; 2] = [&[1], &[1]];
    let mut world = World::new(&bytes, &[None, Some(0)], &leaves, 100_000, 4, |config| {
        config.receivers = Some(2);
        config.connect_timeout = Duration::from_secs(5);
        config.linger = Duration::from_secs(20);
    });
    let sent = |event: &SenderEvent| matches!(event, SenderEvent::Sent { .. });
    while !world.sender_events.iter().any(sent) {
        let next = world.now.total_millis() + 1;
        world.run(next);
    }
    // The last heartbeat is through, the repairs are not.
    world.run(world.now.total_millis() + 12);
    assert_eq!(world.complete(&bytes), 0);
    world.relays[1] = None;
    world.run(20_000);
    assert_eq!(world.complete(&bytes), 2);
    assert!(world.plain_requests > 0);
}

#[test]
fn reports_and_completion_work_through_relays() {
    let bytes = content(100_000, 5);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 10_000, 5, wait_for_six);
    world.run(20_000);
    assert_eq!(world.complete(&bytes), 6);
    assert!(
        world.sender_events.contains(&SenderEvent::Complete),
        "{:?}",
        world.sender_events
    );
}

/// Leaves that stay after they have everything, as repliers, do not hold the source.
#[test]
fn the_source_ends_while_complete_leaves_stay() {
    let bytes = content(100_000, 8);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 10_000, 8, |config| {
        config.linger = Duration::from_secs(3);
    });
    world.run(20_000);
    assert_eq!(world.complete(&bytes), 6);
    assert!(world.root.sender().is_ended());
}

#[test]
fn the_slowest_leaf_holds_the_window() {
    let bytes = content(800_000, 6);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 0, 6, |config| {
        config.window_blocks = Some(16);
        config.rate_bps = None;
    });
    world.run(30_000);
    assert_eq!(world.complete(&bytes), 6);
    assert!(world.root.sender().stats().stalls > 0);
}

/// While the source waits for an acknowledgement nothing new makes another one: what was lost must be
/// said again.
#[test]
fn an_acknowledgement_that_is_lost_while_the_window_is_full_is_said_again() {
    for number in 0..10 {
        let bytes = content(400_000, number);
        let mut world = World::new(&bytes, &[None], &[&[0], &[0]], 0, 40 + number, |config| {
            config.window_blocks = Some(2);
            config.rate_bps = None;
            config.receivers = Some(2);
            config.connect_timeout = Duration::from_secs(5);
        });
        world.ack_loss = 500_000;
        world.run(120_000);
        assert!(world.root.sender().stats().stalls > 0);
        assert_eq!(world.complete(&bytes), 2, "seed {number}");
    }
}

/// The same content once more, with the same identifier of LTP's and the same numbers, while the relays still
/// have the last run's session and the children that never said goodbye.
#[test]
fn the_same_file_goes_through_the_same_relays_again_at_once() {
    let bytes = content(100_000, 9);
    let change = |config: &mut SenderConfig| {
        config.session = ltp::SessionChoice::Fixed(ltp::SessionId(77));
        config.receivers = Some(2);
        config.connect_timeout = Duration::from_secs(5);
        config.linger = Duration::from_secs(1);
    };
    let mut world = World::new(&bytes, &[None, Some(0)], &[&[1], &[1]], 1_000, 60, change);
    world.run(10_000);
    assert_eq!(world.complete(&bytes), 2);
    assert!(world.root.sender().is_ended());
    // Both receivers died, and were started again on the same addresses.
    world.sender_events.clear();
    world.root = new_root(&bytes, 70, world.now, change);
    world.leaves = vec![
        new_leaf(&bytes, &[1], 71, world.now),
        new_leaf(&bytes, &[1], 72, world.now),
    ];
    world.run(40_000);
    assert_eq!(world.complete(&bytes), 2);
    assert!(world.sender_events.contains(&SenderEvent::Complete));
    // The relays carry both runs: none of the second is a duplicate to them.
    for relay in world.relays.iter().flatten() {
        let duplicates = relay.stats().drops.get(dyram::DropReason::Duplicate);
        assert_eq!(duplicates, 0, "{:?}", relay.stats());
    }
}

/// New packets go to the group, everything else as it does through relays.
#[test]
fn beside_ip_multicast_relays_serve_recovery() {
    let bytes = content(400_000, 12);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 20_000, 12, wait_for_six);
    let now = world.now;
    world.relays = (0..3)
        .map(|index| {
            let mut config = relay_config(index, PARENTS[index]);
            config.carriage = dyram::Carriage::Multicast;
            let storage = Storage::owned(Limits::default()).unwrap();
            Some(Relay::new(config, storage, seed(500 + index as u64), now).unwrap())
        })
        .collect();
    world.root = new_root(&bytes, 12, now, wait_for_six).over_multicast();
    world.run(20_000);
    assert_eq!(world.complete(&bytes), 6);
    assert!(world.sender_events.contains(&SenderEvent::Complete));
    let from_leaves: u64 = world
        .leaves
        .iter()
        .map(|leaf| leaf.receiver().stats().repairs_sent)
        .sum();
    assert!(from_leaves > 80, "{from_leaves} repairs from leaves");
    assert!(world.root.is_heard());
}

/// Relays wait for none that has said goodbye: nor do those below that only see another identifier.
#[test]
fn after_a_source_that_left_the_next_is_served_at_once() {
    let bytes = content(100_000, 11);
    let change = |config: &mut SenderConfig| {
        config.session = ltp::SessionChoice::Fixed(ltp::SessionId(78));
        config.linger = Duration::from_millis(500);
    };
    let relays = [None, Some(0), Some(1)];
    let mut world = World::new(&bytes, &relays, &[&[2], &[2]], 0, 60, change);
    world.run(2_000);
    assert_eq!(world.complete(&bytes), 2);
    let mut buffer = [0; 1000];
    let goodbye = world.root.leave(&mut buffer).unwrap();
    world.send(source(), address(&goodbye), &buffer[..goodbye.len]);
    world.root = new_root(&bytes, 70, world.now, change);
    world.leaves = vec![
        new_leaf(&bytes, &[2], 71, world.now),
        new_leaf(&bytes, &[2], 72, world.now),
    ];
    world.run(3_500);
    assert_eq!(world.complete(&bytes), 2);
}

#[test]
fn sealed_sessions_go_through_relays_too() {
    let bytes = content(100_000, 7);
    let key = Some([9; 32]);
    let mut world = World::new(&bytes, &PARENTS, &[], 20_000, 7, |config| config.key = key);
    for index in 0..3 {
        let mut config = ReceiverConfig::new(SocketAddr::new(GROUP, 5000));
        config.assist = Assist::Dyram;
        config.key = key;
        let store = HeapRing::new(1 << 17);
        let receiver = Receiver::new(config, store, seed(index), world.now);
        let relays = [relay(1)].into_iter().collect();
        let leaf = relayed::Receiver::new(
            receiver,
            source().ip(),
            GROUP,
            relays,
            seed(index),
            world.now,
        );
        world.leaves.push(leaf.unwrap());
        world.events.push(Vec::new());
    }
    world.run(20_000);
    assert_eq!(world.complete(&bytes), 3);
}

/// A child of relay `index` that refreshes its JOIN and acknowledges the first packet again and again.
struct Stuck {
    attachment: dyram::Attachment,
    relay: usize,
    run: u32,
    ack: u32,
    next: Instant,
}

fn stuck() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 3, 0, 1), 4000))
}

impl Stuck {
    fn new(index: usize) -> Stuck {
        let config = dyram::AttachmentConfig {
            key: dyram::SessionKey::new(source().ip(), GROUP).unwrap(),
            role: dyram::wire::Role::Receiver,
            relays: [relay(index)].into_iter().collect(),
        };
        Stuck {
            attachment: dyram::Attachment::new(config, seed(4711), Instant::ZERO),
            relay: index,
            run: 0,
            ack: 0,
            next: Instant::ZERO,
        }
    }

    /// What it says now; it gets what the relay answers at once, and data through [`Stuck::hear`].
    fn step(&mut self, world: &mut World) {
        let now = world.now;
        let mut buffer = [0; 1000];
        let mut packets = Vec::new();
        while let Some(transmit) = self.attachment.poll_transmit(now, &mut buffer) {
            packets.push(buffer[..transmit.len].to_vec());
        }
        let info = world.relays[self.relay].as_ref().unwrap();
        if let Some(session) = info.sessions().next()
            && let (Some(id), Some(newest)) = (session.id, session.newest)
        {
            if self.run != id {
                (self.run, self.ack) = (id, newest.0);
            }
            if self.next <= now {
                self.next = now + Duration::from_millis(100);
                let ack = dyram::Seq(self.ack);
                let transmit = self
                    .attachment
                    .send(id, ack, dyram::wire::Body::Ack, &mut buffer);
                packets.extend(transmit.map(|transmit| buffer[..transmit.len].to_vec()));
            }
        }
        let machine = world.relays[self.relay].as_mut().unwrap();
        for mut packet in packets {
            let _ = machine.forward(now, &dyram::Meta::unicast(stuck()), &mut packet);
        }
    }

    fn hear(&mut self, now: Instant, index: usize, bytes: &[u8]) {
        let meta = dyram::Meta::unicast(relay(index));
        let _ = self.attachment.handle_packet(now, &meta, bytes);
    }
}

/// One child stops the window for all for a while; then the session goes on, and the source knows who it was.
#[test]
fn a_leaf_that_never_advances_is_named_and_the_others_get_everything() {
    let bytes = content(4_000_000, 31);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 0, 31, |config| {
        config.window_blocks = Some(16);
    });
    world.stuck = Some(Stuck::new(2));
    world.run(60_000);
    assert_eq!(world.complete(&bytes), 6);
    let named: Vec<_> = world
        .stalled
        .iter()
        .map(|one| (one.child, one.relay))
        .collect();
    assert_eq!(named, [(stuck(), RelayId(3))], "once, and no other");
    assert_eq!(world.relays[0].as_ref().unwrap().stats().stalled, 0);
}

/// The relay has children that are waited for, and says the same for ever: the source goes on without it, and
/// does not linger for it.
#[test]
fn a_relay_that_repeats_one_acknowledgement_does_not_hold_the_source() {
    let bytes = content(400_000, 32);
    let change = |config: &mut SenderConfig| {
        config.window_blocks = Some(2);
        config.linger = Duration::from_secs(1);
    };
    let mut world = World::new(&bytes, &[None], &[], 0, 32, change);
    world.stuck = Some(Stuck::new(0));
    // The relay itself is what is stuck here: it never stops waiting for its child.
    let mut config = relay_config(0, None);
    config.stall_timeout = Duration::from_secs(3600);
    let now = world.now;
    world.relays[0]
        .as_mut()
        .unwrap()
        .reconfigure(now, config)
        .unwrap();
    world.run(9_000);
    assert!(world.root.sender().progress().0 < bytes.len() as u64);
    world.run(60_000);
    assert_eq!(world.root.sender().progress().0, bytes.len() as u64);
    assert!(world.root.sender().is_ended());
}

/// Eight leaves of two relays; one relay is killed, and its leaves have missed what the source sent until they
/// moved: thousands of packets, where a relay has NACK states for 64. They ask for what it can deal with, and the
/// source repairs next to nothing by unicast.
#[test]
fn leaves_that_move_with_much_missing_ask_the_relay_for_what_it_can_deal_with() {
    let bytes = content(8_000_000, 41);
    let first: &[usize] = &[1, 2];
    let second: &[usize] = &[2, 1];
    let leaves = [first, first, first, first, second, second, second, second];
    let mut world = World::new(&bytes, &PARENTS, &leaves, 1_000, 41, |config| {
        config.receivers = Some(8);
        config.connect_timeout = Duration::from_secs(5);
        config.rate_bps = Some(11_000_000);
        config.window_blocks = Some(24 << 20 >> 13);
    });
    world.run(3_000);
    world.relays[1] = None;
    world.run(60_000);
    assert_eq!(world.complete(&bytes), 8);
    let lost: u64 = world.leaves[..4]
        .iter()
        .map(|leaf| leaf.receiver().stats().lost_packets)
        .sum();
    let by_source = world.root.sender().stats().repairs_unicast;
    assert!(lost > 8_000, "{lost} packets were missed");
    assert!(
        by_source * 50 < lost,
        "{by_source} repairs by unicast for {lost} losses"
    );
}
