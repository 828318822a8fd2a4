//! Groups with a key: everything arrives as without one, and a receiver with another key gets nothing.

use crate::common::{Net, PORT, config};
use crate::group::{assert_delivered, closed, group, group_net, lan, receivers, start};
use netsim::{LinkConfig, Loss};
use tcpxm::wire::SegmentKey;
use tcpxm::{Duration, Error, Failure, GroupMode, Instant};

const KEY: SegmentKey = SegmentKey([5; 16]);

/// These receivers listen anew, with a key.
fn listen_keyed(net: &mut Net, receivers: impl Iterator<Item = usize>, key: SegmentKey) {
    for receiver in receivers {
        net.with(receiver, |host, now| {
            host.endpoint.unlisten(now, PORT).unwrap();
            host.endpoint.listen_keyed(now, PORT, key).unwrap();
        });
    }
}

fn forged(net: &Net, host: usize) -> u64 {
    net.host(host).endpoint.stats().drops.get(Error::Forged)
}

#[test]
fn in_every_mode_and_with_losses_all_is_signed() {
    let len = 1_000_000;
    for mode in [GroupMode::Auto, GroupMode::Unicast, GroupMode::Multicast] {
        for (seed, timestamps) in [(1, true), (2, true), (3, false)] {
            let mut config = config();
            config.timestamps = timestamps;
            let link = lan().loss(Loss::Bernoulli(0.02));
            let list = receivers(4, link)
                .into_iter()
                .map(|(_, plan, link)| (config.clone(), plan, link));
            let mut net = group_net(seed, (config.clone(), lan()), list.collect());
            listen_keyed(&mut net, 1..=4, KEY);
            let mut group = group(4);
            group.mode = mode;
            group.key = Some(KEY);
            start(&mut net, &group, len);
            let what = format!("{mode:?}, seed {seed}");
            assert!(net.run(120, closed), "{what}: {:?}", net.host(0).events);
            assert_delivered(&net, 1..=4, len, &what);
            // A reset that answers what comes for a connection which is over cannot be signed.
            let refused: u64 = (1..=4).map(|receiver| forged(&net, receiver)).sum();
            let resets = net.host(0).endpoint.stats().resets_sent;
            assert!(refused <= resets, "{what}: {refused}, {resets}");
        }
    }
}

#[test]
fn a_detached_straggler_is_told_so_by_the_key() {
    let len = 3_000_000;
    let mut list = receivers(3, lan());
    list[2].2 = LinkConfig::new()
        .delay(Duration::from_millis(2))
        .rate_bps(1_000_000)
        .queue_packets(50);
    let mut net = group_net(1, (config(), lan()), list);
    listen_keyed(&mut net, 1..=3, KEY);
    let mut group = group(3);
    group.key = Some(KEY);
    group.min_rate_bps = Some(10_000_000);
    start(&mut net, &group, len);
    assert!(net.run(120, closed), "{:?}", net.host(0).events);
    assert_delivered(&net, 1..=3, len, "detached");
    assert_eq!(net.host(0).endpoint.stats().detached, 1);
    assert_eq!((forged(&net, 1), forged(&net, 3)), (0, 0));
}

#[test]
fn another_key_is_nobody() {
    let len = 200_000;
    let mut net = group_net(1, (config(), lan()), receivers(2, lan()));
    listen_keyed(&mut net, 1..=1, KEY);
    listen_keyed(&mut net, 2..=2, SegmentKey([6; 16]));
    let mut group = group(2);
    group.key = Some(KEY);
    group.receiver_timeout = Duration::from_secs(5);
    start(&mut net, &group, len);
    assert!(net.run(120, closed), "{:?}", net.host(0).events);
    assert_delivered(&net, 1..=1, len, "the right key");
    assert_eq!(net.host(2).total_read(), 0);
    assert!(forged(&net, 2) > 0);
    let ends = &net.host(0).ends;
    assert!(
        ends.iter()
            .any(|(_, failure)| *failure == Some(Failure::Timeout))
    );
}

#[test]
fn a_rate_counts_the_tags_as_well() {
    let mut net = group_net(1, (config(), lan()), receivers(3, lan()));
    listen_keyed(&mut net, 1..=3, KEY);
    let rate = 20_000_000;
    let mut group = group(3);
    group.key = Some(KEY);
    group.mode = GroupMode::Multicast;
    group.max_rate_bps = Some(rate);
    start(&mut net, &group, 40_000_000);
    let sent = |net: &mut Net| {
        let packets = net.switch(|switch| switch.from_sender.0);
        // IP and UDP headers.
        (net.host(0).endpoint.stats().multicast_bytes_sent + 28 * packets) * 8
    };
    net.sim.run_until(Instant::from_secs(1));
    let before = sent(&mut net);
    net.sim.run_until(Instant::from_secs(6));
    let got = (sent(&mut net) - before) / 5;
    // Without the tags it would be 0.8 % more.
    assert!(
        (rate * 997 / 1000..=rate * 1003 / 1000).contains(&got),
        "{got}"
    );
}
