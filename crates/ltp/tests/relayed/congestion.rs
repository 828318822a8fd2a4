//! Congestion control through relays: the receiver with the slowest link below any of them sets the rate.

use ltp::{Duration, Error, Instant, SenderConfig};

use crate::common::content;
use crate::liar::feedback;
use crate::world::{Leaf, World, new_leaf_with, relay};

const MBIT: u64 = 1_000_000;
/// Ethernet frame of a data packet in DyRAM DATA.
const FRAME_BITS: u64 = 8 * (500 + 44 + 42);
const PARENTS: [Option<usize>; 3] = [None, Some(0), Some(0)];
const LEAVES: [&[usize]; 4] = [&[1], &[1], &[2], &[2]];
/// The receiver with the slow link, below the second relay.
const SLOW: usize = 3;

fn congestion(receivers: u32) -> impl Fn(&mut SenderConfig) {
    move |config| {
        config.rate_bps = None;
        config.congestion = true;
        config.receivers = Some(receivers);
        config.connect_timeout = Duration::from_secs(5);
    }
}

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// Bits of frames with data that came to a receiver.
fn received(world: &World, leaf: usize) -> u64 {
    let leaf = world.leaves().nth(leaf).unwrap();
    let stats = leaf.receiver().stats();
    let new = stats.data_packets + stats.repairs;
    let old = stats.duplicate_data + stats.duplicate_repairs + stats.unneeded_repairs;
    (new + old) * FRAME_BITS
}

/// Runs for that time. Returns the share of a link of that rate to a receiver that data used.
fn used(world: &mut World, leaf: usize, rate_bps: u64, milliseconds: i64) -> f64 {
    let before = received(world, leaf);
    world.run_for(milliseconds);
    let bits = received(world, leaf) - before;
    bits as f64 * 1e3 / milliseconds as f64 / rate_bps as f64
}

fn rate(world: &World) -> u64 {
    world.source().sender().rate_bps().unwrap()
}

/// A tree whose links carry 40 Mbit/s, one of them less.
fn tree(bytes: &[u8], slow_bps: u64, delay: Duration, is_multicast: bool) -> World {
    let mut world = World::new(bytes, &PARENTS, &LEAVES, 0, 1, congestion(4));
    if is_multicast {
        world.over_multicast(bytes, &PARENTS, 1, congestion(4));
    }
    for leaf in 0..4 {
        world.set_leaf_link(leaf, 40 * MBIT, ms(1));
    }
    world.set_leaf_link(SLOW, slow_bps, delay);
    world
}

#[test]
fn the_slowest_link_below_a_second_relay_is_filled() {
    for is_multicast in [false, true] {
        for (rate_mbit, delay) in [(10, 1), (10, 20), (2, 5)] {
            let slow_bps = rate_mbit * MBIT;
            let bytes = content((slow_bps / 8 * 12) as usize, 1);
            let mut world = tree(&bytes, slow_bps, ms(delay), is_multicast);
            world.run(3_000);
            let share = used(&mut world, SLOW, slow_bps, 6_000);
            let name =
                format!("{rate_mbit} Mbit/s, {delay} ms, multicast {is_multicast}: {share:.2}");
            println!("{name}, rate {}, {:?}", rate(&world), world.feedback());
            assert!((0.75..1.1).contains(&share), "{name}");
            let limiting = world.source().sender().limiting().unwrap();
            assert_eq!(limiting.address, relay(0), "{name}");
        }
    }
}

#[test]
fn the_rate_recovers_when_the_slow_receiver_leaves() {
    for is_multicast in [false, true] {
        let bytes = content(60_000_000, 2);
        let mut world = tree(&bytes, 5 * MBIT, ms(5), is_multicast);
        world.run(4_000);
        let before = rate(&world);
        assert!(before < 8 * MBIT, "{before}");
        world.end_leaf(SLOW);
        world.run_for(4_000);
        let share = used(&mut world, 0, 40 * MBIT, 2_000);
        println!(
            "multicast {is_multicast}: {before} bit/s, then {share:.2}, {}",
            rate(&world)
        );
        assert!(share > 0.6, "multicast {is_multicast}: {share:.2}");
    }
}

/// Feedback that the receivers sent.
fn told(world: &World) -> u64 {
    let of = |leaf: &Leaf| leaf.receiver().stats().feedback;
    world.leaves().map(of).sum()
}

#[test]
fn of_20_receivers_below_a_relay_the_source_hears_one() {
    let bytes = content(15_000_000, 3);
    let leaves = [&[0][..]; 20];
    let mut world = World::new(&bytes, &[None], &leaves, 0, 3, congestion(20));
    for leaf in 0..20 {
        world.set_leaf_link(leaf, 10 * MBIT + leaf as u64 * 100_000, ms(8));
    }
    world.run(3_000);
    let before = told(&world);
    world.feedback();
    let share = used(&mut world, 0, 10 * MBIT, 5_000);
    assert!(share > 0.75, "{share:.2}");
    let (heard, told) = (world.feedback(), told(&world) - before);
    println!("{heard:?} of {told}");
    // One that answers once in its round-trip time, 28 ms and a queue of that.
    assert!((60..200).contains(&heard.relayed), "{heard:?} of {told}");
    assert_eq!(heard.plain, 0);
}

/// What the source gets is sealed to the end.
#[test]
fn sealed_feedback_is_followed() {
    let bytes = content(8_000_000, 4);
    let sealed = |config: &mut SenderConfig| {
        congestion(4)(config);
        config.key = Some([9; 32]);
    };
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 0, 4, sealed);
    world.set_leaf_link(SLOW, 5 * MBIT, ms(5));
    world.run(4_000);
    let rate = rate(&world);
    assert!((3 * MBIT..8 * MBIT).contains(&rate), "{rate}");
}

/// A repair goes to those that lost the packet, from a receiver or from the source: it is no loss of the others.
#[test]
fn repairs_are_no_loss_of_other_receivers() {
    for has_repliers in [true, false] {
        let bytes = content(2_000_000, 5);
        // More than a relay asks for a repair: those that say that they lack it get it, too.
        let leaves: [&[usize]; 5] = [&[1], &[1], &[1], &[1], &[2]];
        let mut world = World::new(&bytes, &PARENTS, &leaves, 0, 5, |config| {
            congestion(5)(config);
            config.rate_bps = Some(4 * MBIT);
        });
        for (leaf, relays) in leaves.iter().enumerate() {
            let number = 70 + leaf as u64;
            let leaf_of = |change: fn(&mut ltp::ReceiverConfig)| {
                new_leaf_with(&bytes, relays, None, number, Instant::ZERO, change)
            };
            world.set_leaf(
                leaf,
                match has_repliers {
                    true => leaf_of(|_| {}),
                    false => leaf_of(|config| config.replier.enabled = false),
                },
            );
        }
        world.set_leaf_loss(0, 0.02);
        world.run(30_000);
        assert_eq!(world.complete(&bytes), 5);
        let repaired = world.repairs_from_leaves();
        let requested = world.source().sender().stats().requested_packets;
        match has_repliers {
            true => assert!(repaired > 20, "{repaired}"),
            false => assert!(repaired == 0 && requested > 20, "{requested}"),
        }
        let loss = |leaf: &Leaf| leaf.receiver().loss_event_rate();
        let losses: Vec<f64> = world.leaves().map(loss).collect();
        assert!(losses[0] > 0.005 && losses[0] < 0.05, "{losses:?}");
        assert_eq!(losses[1..], [0.0; 4]);
    }
}

/// Without a relay that serves them receivers answer the source themselves.
#[test]
fn without_a_relay_feedback_goes_by_unicast() {
    let bytes = content(4_000_000, 6);
    let mut world = tree(&bytes, 4 * MBIT, ms(5), true);
    for index in 0..3 {
        world.set_relay(index, None);
    }
    world.run(4_000);
    let feedback = world.feedback();
    assert!(feedback.relayed == 0 && feedback.plain > 20, "{feedback:?}");
    let rate = rate(&world);
    assert!((2 * MBIT..7 * MBIT).contains(&rate), "{rate}");
}

/// Runs with a liar below the second relay; returns the highest rate after the first seconds, and the world.
fn lied_to(lie: crate::liar::Lie) -> (u64, World) {
    let bytes = content(20_000_000, 7);
    let mut world = tree(&bytes, 5 * MBIT, ms(5), false);
    world.run(3_000);
    world.add_liar(2, lie);
    world.feedback();
    let mut highest = 0;
    for _ in 0..500 {
        world.run_for(10);
        highest = highest.max(rate(&world));
    }
    (highest, world)
}

/// It is the lowest for a while, then tells much, in the name of the receiver that limits.
#[test]
fn a_liar_does_not_raise_the_rate_while_others_are_lower() {
    let (highest, world) = lied_to(|now, pace| {
        let is_low = now.total_millis() % 500 < 20;
        let rate = if is_low { 3 * MBIT } else { 1_000 * MBIT };
        (rate, feedback(now, pace, rate))
    });
    println!("{highest}, {:?}", world.feedback());
    assert!(highest < 9 * MBIT, "{highest}");
}

/// The rank silences the others, and what the message tells does not count above it.
#[test]
fn a_message_counts_no_more_than_its_rank() {
    for rate in [1_000 * MBIT, u64::MAX] {
        let lie: crate::liar::Lie = match rate {
            u64::MAX => |now, pace| (1, feedback(now, pace, u64::MAX)),
            _ => |now, pace| (1, feedback(now, pace, 1_000 * MBIT)),
        };
        let (_, world) = lied_to(lie);
        assert_eq!(super::congestion::rate(&world), ltp::rate::FLOOR_BPS);
        let heard = world.feedback().relayed;
        assert!(heard <= 1_000, "{heard} in 5 s");
    }
}

/// As where no receiver answers.
#[test]
fn messages_that_are_no_feedback_are_dropped_and_the_rate_falls() {
    let (highest, world) = lied_to(|_, _| (1, vec![0x15; 12]));
    assert!(highest < 8 * MBIT, "{highest}");
    let drops = &world.source().sender().stats().drops;
    assert!(
        drops.get(Error::Unexpected) + drops.get(Error::Type) > 100,
        "{drops:?}"
    );
    assert!(rate(&world) < MBIT, "{}", rate(&world));
}
