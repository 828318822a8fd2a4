//! Losses on every link: each receiver ends with every packet, and few requests reach the source.

use dyram::{DefaultReplier, Duration};
use netsim::{LinkConfig, Loss, NodeId, Rng};

use super::nodes::World;

fn wire(ms: u64, loss: f64) -> LinkConfig {
    LinkConfig::new()
        .delay(Duration::from_millis(ms))
        .loss(Loss::Bernoulli(loss))
}

/// A root, `middle` relays below it, receivers below these.
fn two_levels(seed: u64, packets: u32, middle: u32, fan_out: u32, loss: f64) -> World {
    let root = NodeId(1);
    let mut world = World::new(seed, packets, &[root]);
    world.relay(&[], |_| {});
    world.link(NodeId(0), root, wire(10, loss));
    for _ in 0..middle {
        let relay = world.relay(&[root], |_| {});
        world.link(root, relay, wire(5, loss));
        for _ in 0..fan_out {
            let receiver = world.receiver(&[relay]);
            world.link(relay, receiver, wire(1, loss));
        }
    }
    world
}

#[test]
fn without_loss_nothing_is_requested() {
    let mut world = two_levels(1, 500, 3, 4, 0.0);
    world.run_to_end(5);
    assert_eq!(world.complete(), 12);
    assert!(world.source().asked.is_empty());
    let nacks: u32 = world
        .receivers
        .iter()
        .map(|&node| world.receiver_at(node).nacks)
        .sum();
    assert_eq!(nacks, 0);
}

#[test]
fn the_source_learns_the_slowest_receiver() {
    let mut world = two_levels(1, 500, 3, 4, 0.02);
    world.run_to_end(10);
    let end = super::nodes::FIRST.wrapping_add(500);
    assert_eq!(world.source().acknowledged.map(|ack| ack.0), Some(end));
    assert_eq!(world.complete(), 12);
}

#[test]
fn thousands_of_losses_are_repaired_and_the_source_repairs_those_of_its_own_link() {
    let mut world = two_levels(2, 2_000, 3, 4, 0.05);
    world.run_to_end(30);
    assert_eq!(world.complete(), 12);
    // 5 % of 2,000 are lost on the source's link, some of their repairs again. What is lost below
    // is repaired below, but where all repliers tried are silent too.
    let asked = world.source().asked.len();
    assert!(
        (60..260).contains(&asked),
        "{asked} packets asked of the source"
    );
    let repaired: u64 = world
        .relays
        .iter()
        .map(|&node| world.relay_at(node).relay.stats().repaired_below)
        .sum();
    assert!(repaired > 500, "{repaired} repairs from receivers");
}

#[test]
fn repairs_reach_receivers_that_lost_packets_and_few_others() {
    let mut world = two_levels(3, 2_000, 4, 8, 0.03);
    world.run_to_end(30);
    assert_eq!(world.complete(), 32);
    let unneeded: u32 = world
        .receivers
        .iter()
        .map(|&node| world.receiver_at(node).unneeded)
        .sum();
    let lost = 32.0 * 2_000.0 * 0.03 * 3.0;
    assert!(
        f64::from(unneeded) < lost * 0.1,
        "{unneeded} of about {lost}"
    );
}

#[test]
fn random_trees_and_losses_end_with_every_packet() {
    let seeds: u64 = if cfg!(debug_assertions) { 60 } else { 600 };
    for seed in 0..seeds {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&(seed + 1).to_le_bytes());
        let mut rng = Rng::new(bytes);
        let root = NodeId(1);
        let packets = 100 + rng.below(300) as u32;
        let mut world = World::new(seed, packets, &[root]);
        let early = rng.chance(0.8);
        let replier = if rng.chance(0.5) {
            DefaultReplier::First
        } else {
            DefaultReplier::Spread
        };
        let link = |rng: &mut Rng| {
            wire(rng.below(30), rng.below(20) as f64 / 100.0)
                .reorder(
                    rng.below(3) as f64 / 20.0,
                    Duration::from_millis(rng.below(20)),
                )
                .duplicate(rng.below(3) as f64 / 50.0)
        };
        let mut relays = Vec::new();
        for index in 0..1 + rng.below(5) {
            let above = match index {
                0 => None,
                _ => Some(relays[rng.below(index) as usize]),
            };
            let parents: Vec<NodeId> = above.into_iter().collect();
            let relay = world.relay(&parents, |config| {
                config.early_detection = early;
                config.default_replier = replier;
            });
            world.link(above.unwrap_or(NodeId(0)), relay, link(&mut rng));
            relays.push(relay);
        }
        for _ in 0..1 + rng.below(12) {
            let relay = relays[rng.below(relays.len() as u64) as usize];
            let receiver = world.receiver(&[relay]);
            let silent = rng.chance(0.2);
            world.link(relay, receiver, link(&mut rng));
            world
                .sim
                .with::<super::nodes::ReceiverNode, _>(receiver, |node, _, _| {
                    node.silent = silent;
                });
        }
        world.run_to_end(60);
        assert_eq!(
            world.complete(),
            world.receivers.len(),
            "seed {seed}: not all {packets} packets arrived"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut world = two_levels(9, 300, 2, 3, 0.1);
        world.sim.enable_trace_hash();
        world.run_to_end(10);
        world.sim.trace_hash()
    };
    assert_eq!(run(), run());
}
