//! One rate for a whole group, however its receivers are sent to.

use crate::common::{Net, Plan, config};
use crate::group::{closed, group, group_net, lan, receivers, start};
use netsim::LinkConfig;
use tcpxm::{Duration, GroupMode, Instant};

fn wire_bytes(net: &Net) -> u64 {
    let stats = net.host(0).endpoint.stats();
    // Each packet has 28 bytes of IP and UDP headers besides what is counted.
    stats.multicast_bytes_sent + stats.unicast_bytes_sent + 28 * stats.packets_sent
}

fn set_rate(net: &mut Net, rate_bps: Option<u64>) {
    net.with(0, |host, now| {
        let group = host.group.unwrap();
        host.endpoint.set_max_rate(now, group, rate_bps).unwrap();
    });
}

/// Bits a second on the sender's wire from here on for so long.
fn measured(net: &mut Net, seconds: u64) -> u64 {
    let before = wire_bytes(net);
    let until = net.sim.now() + Duration::from_secs(seconds);
    net.sim.run_until(until);
    (wire_bytes(net) - before) * 8 / seconds
}

#[test]
fn a_rate_is_for_all_receivers_together_also_when_it_changes() {
    let mut net = group_net(1, (config(), lan()), receivers(8, lan()));
    let mut wanted = group(8);
    wanted.mode = GroupMode::Unicast;
    wanted.max_rate_bps = Some(8_000_000);
    start(&mut net, &wanted, 40_000_000);
    net.sim.run_until(Instant::from_secs(1));
    for rate in [8_000_000, 16_000_000, 4_000_000, 1_000_000, 16_000_000] {
        set_rate(&mut net, Some(rate));
        let got = measured(&mut net, 4);
        assert!(
            (rate * 95 / 100..rate * 105 / 100).contains(&got),
            "{got} of {rate}"
        );
    }
    // All get on at the same pace.
    let read: Vec<u64> = (1..=8).map(|host| net.host(host).total_read()).collect();
    let (least, most) = (read.iter().min().unwrap(), read.iter().max().unwrap());
    assert!(most - least <= 4 * 16 * 1440, "{read:?}");
    set_rate(&mut net, None);
    let got = measured(&mut net, 1);
    assert!(got > 90_000_000, "{got} without a bound");
}

#[test]
fn who_is_detached_shares_the_rate() {
    let slow = LinkConfig::new()
        .delay(Duration::from_millis(2))
        .rate_bps(4_000_000)
        .queue_packets(50);
    let mut list = receivers(4, lan());
    for receiver in &mut list[2..] {
        receiver.2 = slow;
    }
    let mut net = group_net(1, (config(), lan()), list);
    let mut wanted = group(4);
    wanted.min_rate_bps = Some(8_000_000);
    wanted.max_rate_bps = Some(12_000_000);
    start(&mut net, &wanted, 60_000_000);
    let detached = |net: &Net| net.host(0).endpoint.stats().detached == 2;
    assert!(net.run(30, detached), "{:?}", net.host(0).events);
    // What they lost before is repaired meanwhile.
    net.sim.run_until(net.sim.now() + Duration::from_secs(10));
    set_rate(&mut net, Some(3_000_000));
    let got = measured(&mut net, 8);
    assert!((2_800_000..3_300_000).contains(&got), "{got}");
}

#[test]
fn paced_receivers_that_are_not_in_step_all_finish() {
    let mut paced = config();
    paced.pacing = true;
    let list = receivers(6, lan())
        .into_iter()
        .map(|(_, _, link)| (config(), Plan::default(), link));
    let mut net = group_net(3, (paced, lan()), list.collect());
    let mut wanted = group(6);
    wanted.mode = GroupMode::Unicast;
    wanted.max_rate_bps = Some(40_000_000);
    start(&mut net, &wanted, 1_000_000);
    assert!(net.run(30, closed), "{:?}", net.host(0).events);
    // 6 MB in segments of 1440 bytes with 60 bytes of headers.
    let took = net.host(1).finished_at.unwrap().total_millis();
    assert!((1150..1400).contains(&took), "{took} ms");
}
