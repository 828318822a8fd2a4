//! Receivers that hold their group below the rate asked for, in virtual time.

use crate::common::{Net, PORT, config, socket};
use crate::group::{assert_delivered, closed, group, group_net, lan, receivers, start};
use netsim::LinkConfig;
use tcpxm::store::{NullStore, Ring, Store};
use tcpxm::{Duration, Failure, GroupMode, Instant};

#[test]
fn a_straggler_is_detached_and_finishes_by_itself() {
    let len = 10_000_000;
    let slow = LinkConfig::new()
        .delay(Duration::from_millis(2))
        .rate_bps(5_000_000)
        .queue_packets(100);
    let run = |min_rate_bps| {
        let mut list = receivers(4, lan());
        list[3].2 = slow;
        let mut net = group_net(1, (config(), lan()), list);
        let mut wanted = group(4);
        wanted.min_rate_bps = min_rate_bps;
        start(&mut net, &wanted, len);
        assert!(net.run(120, closed));
        assert_delivered(&net, 1..=4, len, "straggler");
        let times = [1, 4].map(|number| net.host(number).finished_at.unwrap().total_millis());
        (times, net.host(0).endpoint.stats().detached)
    };
    let (together, detached) = run(None);
    assert_eq!(detached, 0);
    let (apart, detached) = run(Some(30_000_000));
    assert_eq!(detached, 1);
    assert!(together[0] > 15_000, "{together:?}");
    assert!(apart[0] < 5_000, "{apart:?}");
    assert!(apart[1] < together[1] * 12 / 10, "{apart:?} {together:?}");
}

/// Multicast copies still reach a receiver that is leaving, and its window is wide: those that arrive before it
/// has left close its gaps, and it acknowledges more than it was sent by unicast.
#[test]
fn a_detached_receiver_that_hears_the_group_goes_on() {
    let link = |rate_bps, queue| {
        LinkConfig::new()
            .delay(Duration::from_micros(100))
            .rate_bps(rate_bps)
            .queue_packets(queue)
    };
    for (rate_bps, queue) in [(10_000_000, 170), (20_000_000, 1_000)] {
        let len = 30_000_000;
        let fast = link(1_000_000_000, 1_000);
        let mut wide = config();
        wide.receive_buffer = 16 << 20;
        let mut list = receivers(3, fast);
        for receiver in &mut list {
            receiver.0 = wide.clone();
        }
        list[2].2 = link(rate_bps, queue);
        let mut net = group_net(1, (wide, fast), list);
        let min_rate_bps = Some(30_000_000);
        let mut wanted = group(3);
        wanted.min_rate_bps = min_rate_bps;
        start(&mut net, &wanted, len);
        let ended = net.run(200, closed);
        let stats = net.host(0).endpoint.stats();
        assert!(ended, "{rate_bps} {queue} {stats:?}");
        assert_delivered(&net, 1..=3, len, "straggler");
        assert_eq!(stats.detached, 1);
        let needed = len as i64 * 8 * 1000 / rate_bps as i64;
        let took = net.host(3).finished_at.unwrap().total_millis();
        assert!(
            took < needed * 13 / 10,
            "{took} of {needed} ms at {rate_bps}"
        );
    }
}

/// Writes to host 0's group while there is space, and waits until all connections have ended.
fn write_all(net: &mut Net, len: u64) {
    let mut written = 0;
    let done = net.sim.now() + Duration::from_secs(60);
    while !closed(net) && net.sim.now() < done {
        net.with(0, |host, now| {
            let id = host.group.unwrap();
            while written < len {
                let chunk: Vec<u8> = (written..(written + 65_536).min(len))
                    .map(NullStore::byte)
                    .collect();
                match host.endpoint.send(now, id, &chunk) {
                    Ok(some) if some > 0 => written += some as u64,
                    _ => break,
                }
            }
            if written == len {
                let _ = host.endpoint.shutdown(now, id);
            }
        });
        let next = net.sim.now() + Duration::from_millis(10);
        net.sim.run_until(next);
    }
}

#[test]
fn receivers_that_are_not_in_step_share_a_bottleneck_and_nobody_is_dropped_for_it() {
    let shared = LinkConfig::new()
        .delay(Duration::from_millis(2))
        .rate_bps(4_000_000)
        .queue_packets(100);
    let mut net = group_net(1, (config(), shared), receivers(3, lan()));
    let mut wanted = group(3);
    wanted.mode = GroupMode::Unicast;
    wanted.min_rate_bps = Some(3_000_000);
    let store: Box<dyn Store> = Box::new(Ring::new(1 << 18));
    let len = 1_500_000;
    net.with(0, |host, now| host.open_group(now, &wanted, store));
    write_all(&mut net, len);
    assert_delivered(&net, 1..=3, len, "shared bottleneck");
}

#[test]
fn a_straggler_on_a_bounded_store_is_dropped_and_named() {
    let slow = LinkConfig::new()
        .delay(Duration::from_millis(2))
        .rate_bps(1_000_000)
        .queue_packets(100);
    let mut list = receivers(3, lan());
    list[2].2 = slow;
    let mut net = group_net(1, (config(), lan()), list);
    let mut wanted = group(3);
    wanted.min_rate_bps = Some(20_000_000);
    let store: Box<dyn Store> = Box::new(Ring::new(1 << 20));
    let len = 10_000_000u64;
    net.with(0, |host, now| host.open_group(now, &wanted, store));
    write_all(&mut net, len);
    assert_delivered(&net, 1..=2, len, "bounded store");
    assert_eq!(net.failed(), [(socket(3, PORT), Failure::TooSlow)]);
}

/// Three receivers at 100 Mbit/s and one at 20.
fn three_and_one(min_rate_bps: Option<u64>, count: usize, len: u64) -> Net {
    let link = |rate_bps| {
        LinkConfig::new()
            .delay(Duration::from_micros(200))
            .rate_bps(rate_bps)
            .queue_packets(200)
    };
    let mut list = receivers(count, link(100_000_000));
    if count == 4 {
        list[3].2 = link(20_000_000);
    }
    let mut net = group_net(1, (config(), link(1_000_000_000)), list);
    net.prunes = true;
    let mut wanted = group(count);
    wanted.min_rate_bps = min_rate_bps;
    start(&mut net, &wanted, len);
    assert!(net.run(120, closed));
    assert_delivered(&net, 1..=count, len, "three and one");
    net
}

#[test]
fn a_detached_receiver_leaves_the_group_at_once_and_takes_only_its_own_stream() {
    let len = 40_000_000;
    let without = three_and_one(None, 3, len);
    let net = three_and_one(Some(50_000_000), 4, len);
    let at = |net: &Net, number: usize| net.host(number).finished_at.unwrap().total_millis();
    let detached = net.host(0).detached_at.unwrap();
    let left = net.host(4).left_at.unwrap();
    // Within what the queue before it takes to empty, several times over.
    assert!(left - detached < Duration::from_millis(300), "{left}");
    assert!(left < net.host(1).finished_at.unwrap());
    let (alone, beside) = (at(&without, 1), at(&net, 1));
    assert!(beside < alone + 1100, "{beside} ms, without it {alone} ms");
    let own = len as i64 * 8 / 20_000;
    assert!(at(&net, 4) < own * 11 / 10, "{} of {own} ms", at(&net, 4));
    let stats = net.host(0).endpoint.stats();
    assert_eq!(stats.detached, 1);
    let wire = stats.multicast_bytes_sent + stats.unicast_bytes_sent;
    assert!(wire < len * 21 / 10, "{stats:?}");
}

/// No receiver is detached for a bottleneck that all share.
#[test]
fn nobody_is_detached_for_a_link_that_all_share() {
    for (seed, delays) in [[1, 1, 1, 1], [1, 2, 3, 4], [1, 1, 2, 2]]
        .into_iter()
        .enumerate()
    {
        let shared = LinkConfig::new()
            .delay(Duration::from_millis(1))
            .rate_bps(20_000_000)
            .queue_packets(100);
        let mut list = receivers(4, lan());
        for (receiver, delay) in list.iter_mut().zip(delays) {
            receiver.2 = lan().delay(Duration::from_millis(delay));
        }
        let mut net = group_net(seed as u64, (config(), shared), list);
        let len = 20_000_000;
        let mut wanted = group(4);
        wanted.min_rate_bps = Some(50_000_000);
        start(&mut net, &wanted, len);
        assert!(net.run(120, closed));
        assert_delivered(&net, 1..=4, len, "shared");
        let stats = net.host(0).endpoint.stats();
        assert_eq!(stats.detached, 0, "{delays:?} {stats:?}");
    }
}

#[test]
fn several_stragglers_are_detached_one_after_the_other() {
    let len = 30_000_000;
    let mut list = receivers(6, lan());
    for (number, rate_bps) in [(1, 10_000_000), (3, 10_000_000), (4, 25_000_000)] {
        list[number].2 = lan().rate_bps(rate_bps).queue_packets(100);
    }
    let mut net = group_net(3, (config(), lan().rate_bps(1_000_000_000)), list);
    net.prunes = true;
    let mut wanted = group(6);
    wanted.min_rate_bps = Some(50_000_000);
    start(&mut net, &wanted, len);
    assert!(net.run(120, closed));
    assert_delivered(&net, 1..=6, len, "several");
    assert_eq!(net.host(0).endpoint.stats().detached, 3);
    for number in [2, 5] {
        assert!(net.host(number).left_at.unwrap() < net.host(1).finished_at.unwrap());
    }
    let fast = net.host(1).finished_at.unwrap();
    assert!(fast < Instant::from_secs(7), "{fast}");
}

/// The owner of a group may decide which receiver continues alone.
#[test]
fn a_receiver_is_detached_on_command_but_never_the_last_in_step() {
    let len = 10_000_000;
    let mut net = group_net(
        1,
        (config(), lan()),
        receivers(3, lan().rate_bps(50_000_000)),
    );
    start(&mut net, &group(3), len);
    assert!(net.run(10, |net| net.host(0).ready
        && net.sim.now() > Instant::from_millis(300)));
    net.with(0, |host, now| {
        let group = host.group.unwrap();
        let members: Vec<_> = host.endpoint.members(group).unwrap().collect();
        assert_eq!(host.endpoint.detach(now, members[0]), Ok(true));
        assert_eq!(host.endpoint.detach(now, members[0]), Ok(false), "again");
        assert_eq!(host.endpoint.detach(now, members[1]), Ok(true));
        assert_eq!(host.endpoint.detach(now, members[2]), Ok(false), "the last");
    });
    assert!(net.run(60, closed));
    assert_delivered(&net, 1..=3, len, "on command");
    assert_eq!(net.host(0).endpoint.stats().detached, 2);
    let gone = net.with(0, |host, now| {
        let group = host.group.unwrap();
        let members: Option<Vec<_>> = host.endpoint.members(group).ok().map(Iterator::collect);
        members.map(|members| host.endpoint.detach(now, members[0]))
    });
    assert!(gone.is_none_or(|detached| detached != Ok(true)));
}

/// Its data would stay in the ring until it has it, and the others would wait for space.
#[test]
fn a_receiver_of_a_bounded_store_is_not_detached_on_command() {
    let mut net = group_net(1, (config(), lan()), receivers(3, lan()));
    let store: Box<dyn Store> = Box::new(Ring::new(1 << 18));
    net.with(0, |host, now| host.open_group(now, &group(3), store));
    assert!(net.run(10, |net| net.host(0).ready));
    net.with(0, |host, now| {
        let id = host.group.unwrap();
        let members: Vec<_> = host.endpoint.members(id).unwrap().collect();
        assert_eq!(host.endpoint.detach(now, members[0]), Ok(false));
    });
    write_all(&mut net, 1_000_000);
    assert_delivered(&net, 1..=3, 1_000_000, "bounded store");
}
