//! LTP through DyRAM relays, in the simulator.

#[path = "../common/mod.rs"]
mod common;
mod congestion;
mod liar;
mod world;

use common::content;
use dyram::RelayId;
use ltp::relayed::AttachmentEvent;
use ltp::{Duration, Parity, SenderConfig, SenderEvent};
use world::{STUCK, World, new_leaf, new_relay, new_source, relay, relay_config};

/// A root, two relays below, three leaves below each.
const PARENTS: [Option<usize>; 3] = [None, Some(0), Some(0)];
const LEAVES: [&[usize]; 6] = [&[1], &[1], &[1], &[2], &[2], &[2]];

fn wait_for_six(config: &mut SenderConfig) {
    config.receivers = Some(6);
    config.connect_timeout = Duration::from_secs(5);
}

#[test]
fn everything_arrives_without_loss_and_without_requests() {
    let bytes = content(200_000, 1);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 0, 1, wait_for_six);
    world.run(3_000);
    assert_eq!(world.complete(&bytes), 6);
    let asked: u64 = world
        .leaves()
        .map(|leaf| leaf.receiver().stats().requests_group)
        .sum();
    assert_eq!((asked, world.plain_requests()), (0, 0));
}

#[test]
fn receivers_repair_losses_and_the_source_repairs_the_rest() {
    let bytes = content(400_000, 2);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 30_000, 2, wait_for_six);
    world.run(20_000);
    assert_eq!(world.complete(&bytes), 6);
    let from_leaves = world.repairs_from_leaves();
    let asked = world.source().sender().stats().requested_packets;
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
fn lost_digests_cause_few_requests_to_the_source() {
    let bytes = content(400_000, 3);
    let (mut asked, mut blocks) = (0, 0);
    for seed in 0..10 {
        let mut world = World::new(&bytes, &PARENTS, &LEAVES, 30_000, seed, |config| {
            wait_for_six(config);
            config.rate_bps = Some(4_000_000);
        });
        world.run(20_000);
        assert_eq!(world.complete(&bytes), 6, "seed {seed}");
        asked += world.plain_requests();
        blocks += world.source().sender().stats().digests;
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
fn when_a_relay_dies_its_receivers_continue_with_the_next_one() {
    let bytes = content(3_000_000, 3);
    let leaves: [&[usize]; 4] = [&[1, 2], &[1, 2], &[2], &[2]];
    let mut world = World::new(&bytes, &PARENTS, &leaves, 5_000, 3, |_| {});
    world.run(500);
    world.set_relay(1, None);
    world.run(30_000);
    assert_eq!(world.complete(&bytes), 4);
    assert_eq!(world.leaves().next().unwrap().relay(), Some(relay(2)));
}

/// Any relay of the tree, the source's own too; the source lingers for less time than the relay is down.
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
        world.set_relay(index, None);
        world.run_for(2_500);
        let config = relay_config(index, PARENTS[index]);
        world.set_relay(index, Some(new_relay(config, 800 + number, world.now())));
        world.run(60_000);
        assert_eq!(world.complete(&bytes), 6, "seed {number}");
        assert!(world.sender_events().contains(&SenderEvent::Complete));
    }
}

/// The only relay gets no LEAVE right after a new JOIN: it would stop serving.
#[test]
fn a_receiver_that_was_cut_off_from_its_only_relay_attaches_again_at_once() {
    for number in 0..6 {
        let bytes = content(600_000, number);
        let mut world = World::new(&bytes, &[None], &[&[0]], 0, 20 + number, |config| {
            config.rate_bps = Some(2_000_000);
        });
        // The refresh after two seconds and its repetitions are lost; the next JOIN is not.
        world.run(1_950);
        world.set_loss(1.0);
        world.run(2_740);
        world.set_loss(0.0);
        world.run(4_600);
        let lost = |event: &&AttachmentEvent| matches!(event, AttachmentEvent::Lost(_));
        assert_eq!(world.relay_events().iter().filter(lost).count(), 2);
        assert_eq!(world.complete(&bytes), 1, "seed {number}");
    }
}

/// An answer to a JOIN that takes longer than the wait for it counts.
#[test]
fn a_receiver_far_from_its_relay_stays_attached() {
    let bytes = content(200_000, 22);
    let mut world = World::new(&bytes, &[None], &[&[0], &[0]], 0, 22, wait_for_six);
    world.set_delay(Duration::from_millis(300));
    world.run(40_000);
    assert_eq!(world.complete(&bytes), 2);
    let attached = |event: &AttachmentEvent| matches!(event, AttachmentEvent::Attached(_));
    assert!(
        world.relay_events().iter().all(attached) && world.relay_events().len() == 3,
        "{:?}",
        world.relay_events()
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
    while !world.sender_events().iter().any(sent) {
        world.run_for(1);
    }
    // The last heartbeat is through, the repairs are not.
    world.run_for(16);
    assert_eq!(world.complete(&bytes), 0);
    world.set_relay(1, None);
    world.run(20_000);
    assert_eq!(world.complete(&bytes), 2);
    assert!(world.plain_requests() > 0);
}

#[test]
fn reports_and_completion_work_through_relays() {
    let bytes = content(100_000, 5);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 10_000, 5, wait_for_six);
    world.run(20_000);
    assert_eq!(world.complete(&bytes), 6);
    assert!(
        world.sender_events().contains(&SenderEvent::Complete),
        "{:?}",
        world.sender_events()
    );
}

/// Leaves that stay after they have everything, as repliers, do not hold the source.
#[test]
fn the_source_ends_while_complete_receivers_stay() {
    let bytes = content(100_000, 8);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 10_000, 8, |config| {
        config.linger = Duration::from_secs(3);
    });
    world.run(20_000);
    assert_eq!(world.complete(&bytes), 6);
    assert!(world.source().sender().is_ended());
}

#[test]
fn the_slowest_receiver_holds_the_window() {
    let bytes = content(800_000, 6);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 0, 6, |config| {
        config.window_blocks = Some(16);
        config.rate_bps = None;
    });
    world.run(30_000);
    assert_eq!(world.complete(&bytes), 6);
    assert!(world.source().sender().stats().stalls > 0);
}

/// While the source waits for an acknowledgement no new data causes another one: a lost one must be
/// repeated.
#[test]
fn an_acknowledgement_that_is_lost_while_the_window_is_full_is_repeated() {
    for number in 0..10 {
        let bytes = content(400_000, number);
        let mut world = World::new(&bytes, &[None], &[&[0], &[0]], 0, 40 + number, |config| {
            config.window_blocks = Some(2);
            config.rate_bps = None;
            config.receivers = Some(2);
            config.connect_timeout = Duration::from_secs(5);
        });
        world.ack_loss.set(0.5);
        world.run(120_000);
        assert!(world.source().sender().stats().stalls > 0);
        assert_eq!(world.complete(&bytes), 2, "seed {number}");
    }
}

/// The same content once more, with the same identifier of LTP's and the same numbers, while the relays still
/// have the last run's session and the children that never left.
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
    assert!(world.source().sender().is_ended());
    // Both receivers died, and were started again on the same addresses.
    world.set_source(new_source(&bytes, 70, world.now(), change));
    for index in 0..2 {
        let leaf = new_leaf(&bytes, &[1], None, 71 + index as u64, world.now());
        world.set_leaf(index, leaf);
    }
    world.run(40_000);
    assert_eq!(world.complete(&bytes), 2);
    assert!(world.sender_events().contains(&SenderEvent::Complete));
    // The relays carry both runs: none of the second is a duplicate to them.
    for relay in (0..2).map(|index| world.relay(index)) {
        let duplicates = relay.stats().drops.get(dyram::DropReason::Duplicate);
        assert_eq!(duplicates, 0, "{:?}", relay.stats());
    }
}

/// New packets go to the group, everything else as it does through relays.
#[test]
fn beside_ip_multicast_relays_serve_recovery() {
    let bytes = content(400_000, 12);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 20_000, 12, wait_for_six);
    world.over_multicast(&bytes, &PARENTS, 12, wait_for_six);
    world.run(20_000);
    assert_eq!(world.complete(&bytes), 6);
    assert!(world.sender_events().contains(&SenderEvent::Complete));
    let from_leaves = world.repairs_from_leaves();
    assert!(from_leaves > 80, "{from_leaves} repairs from leaves");
    assert!(world.source().is_heard());
}

/// Relays do not wait for a source that has left; nor do relays below, which only see another identifier.
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
    world.leave();
    world.set_source(new_source(&bytes, 70, world.now(), change));
    for index in 0..2 {
        let leaf = new_leaf(&bytes, &[2], None, 71 + index as u64, world.now());
        world.set_leaf(index, leaf);
    }
    world.run(3_500);
    assert_eq!(world.complete(&bytes), 2);
}

#[test]
fn sealed_sessions_go_through_relays_too() {
    let bytes = content(100_000, 7);
    let key = Some([9; 32]);
    let leaves: [&[usize]; 3] = [&[1], &[1], &[1]];
    let mut world = World::new(&bytes, &PARENTS, &leaves, 20_000, 7, |config| {
        config.key = key;
    });
    world.run(20_000);
    assert_eq!(world.complete(&bytes), 3);
}

/// One child stops the window for all for a while; then the session continues, and the source knows its address.
#[test]
fn a_receiver_that_never_advances_is_named_and_the_others_get_everything() {
    let bytes = content(4_000_000, 31);
    let mut world = World::new(&bytes, &PARENTS, &LEAVES, 0, 31, |config| {
        config.window_blocks = Some(16);
    });
    world.add_stuck(2);
    world.run(60_000);
    assert_eq!(world.complete(&bytes), 6);
    let named: Vec<_> = world
        .stalled()
        .iter()
        .map(|one| (one.child, one.relay))
        .collect();
    assert_eq!(named, [(STUCK.into(), RelayId(3))], "once, and no other");
    assert_eq!(world.relay(0).stats().stalled, 0);
}

/// The relay has children that are waited for, and repeats one acknowledgement: the source continues without it, and
/// does not linger for it.
#[test]
fn a_relay_that_repeats_one_acknowledgement_does_not_hold_the_source() {
    let bytes = content(400_000, 32);
    let change = |config: &mut SenderConfig| {
        config.window_blocks = Some(2);
        config.linger = Duration::from_secs(1);
    };
    let mut world = World::new(&bytes, &[None], &[], 0, 32, change);
    world.add_stuck(0);
    // The relay itself is stuck here: it never stops waiting for its child.
    let mut config = relay_config(0, None);
    config.stall_timeout = Duration::from_secs(3600);
    world.reconfigure(0, config);
    world.run(9_000);
    assert!(world.source().sender().progress().0 < bytes.len() as u64);
    world.run(60_000);
    assert_eq!(world.source().sender().progress().0, bytes.len() as u64);
    assert!(world.source().sender().is_ended());
}

/// Eight leaves of two relays; one relay is killed, and its leaves have missed what the source sent until they
/// moved: thousands of packets, where a relay has NACK states for 64. They request no more than it can handle, and the
/// source repairs next to nothing by unicast.
#[test]
fn receivers_that_move_with_much_missing_do_not_overload_the_relay() {
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
    world.set_relay(1, None);
    world.run(60_000);
    assert_eq!(world.complete(&bytes), 8);
    let lost: u64 = world
        .leaves()
        .take(4)
        .map(|leaf| leaf.receiver().stats().lost_packets)
        .sum();
    let by_source = world.source().sender().stats().repairs_unicast;
    assert!(lost > 8_000, "{lost} packets were missed");
    assert!(
        by_source * 50 < lost,
        "{by_source} repairs by unicast for {lost} losses"
    );
}

#[test]
fn parity_in_advance_goes_down_the_tree_and_the_rest_is_repaired_by_relays() {
    let bytes = content(400_000, 21);
    let run = |parity| {
        let mut world = World::new(&bytes, &PARENTS, &LEAVES, 20_000, 21, |config| {
            wait_for_six(config);
            config.parity = parity;
        });
        world.run(30_000);
        assert_eq!(world.complete(&bytes), 6);
        let stats = |leaf: &ltp::relayed::Receiver<'_, _>| leaf.receiver().stats().clone();
        let leaves: Vec<_> = world.leaves().map(stats).collect();
        let restored: u64 = leaves.iter().map(|stats| stats.restored_packets).sum();
        let asked: u64 = leaves.iter().map(|stats| stats.requested_packets).sum();
        (restored, asked)
    };
    let (none, asked_without) = run(None);
    let (restored, asked) = run(Some(Parity::Percent(20)));
    assert_eq!(none, 0);
    assert!(restored > 100, "{restored}");
    assert!(
        asked * 2 < asked_without,
        "{asked}, {asked_without} without"
    );
    // On request relays repair with packets.
    assert_eq!(run(Some(Parity::OnRequest)).0, 0);
}
