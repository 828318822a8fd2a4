//! A group and a connection from elsewhere share a link (TCP-XM §4.1, Figure 11).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use netsim::LinkConfig;
use tcpxm::{CongestionControl, Duration, GroupChoice, GroupConfig};

use crate::common::{Net, Plan, config};
use crate::group::{group, group_net, start};

/// Hosts: PC-C is 0.
const A: u16 = 1;
const B: u16 = 2;
const X: u16 = 3;
const SECONDS: u64 = if cfg!(debug_assertions) { 120 } else { 240 };

/// As in the paper, with a jitter of one packet: without it the queue before A drops the packets of one
/// of the two alone, and chance decides of which.
fn link() -> LinkConfig {
    LinkConfig::new()
        .delay(Duration::from_millis(5))
        .jitter(Duration::from_micros(1500))
        .rate_bps(8_000_000)
        .queue_packets(50)
}

/// What A has read from PC-C's group, and from PC-X.
fn read(net: &Net) -> [u64; 2] {
    let host = net.host(usize::from(A));
    let mut peers = host.peers.values().map(|peer| peer.read);
    [0, 1].map(|_| peers.next().unwrap_or(0))
}

/// Per cent of what both get that the group gets.
fn share(control: CongestionControl, seed: u64) -> f64 {
    let trusting = Plan {
        trusting: true,
        ..Plan::default()
    };
    let pours = Plan {
        send: u64::MAX / 2,
        ..trusting.clone()
    };
    let mut machine = config();
    machine.congestion_control = control;
    let hosts = [trusting.clone(), trusting, pours];
    let hosts = hosts.map(|plan| (machine.clone(), plan, link()));
    let mut net = group_net(seed, (machine, link()), hosts.to_vec());
    let address = Ipv4Addr::new(239, 192, 11, 1);
    net.switch(|switch| switch.trees.insert(address, BTreeSet::from([A, B])));
    let wanted = GroupConfig {
        group: GroupChoice::Given(IpAddr::V4(address)),
        ..group(2)
    };
    start(&mut net, &wanted, 10_000_000_000);
    let after = |net: &mut Net, seconds| {
        let until = net.sim.now() + Duration::from_secs(seconds);
        net.sim.run_until(until);
        read(net)
    };
    after(&mut net, 1);
    let x = usize::from(X);
    net.with(x, |host, now| host.connect(now, usize::from(A)));
    let before = after(&mut net, 5);
    let then = after(&mut net, SECONDS);
    let [ours, other] = [0, 1].map(|flow| (then[flow] - before[flow]) as f64);
    100.0 * ours / (ours + other)
}

#[test]
fn a_group_and_a_connection_get_half_of_a_link_each() {
    for control in [CongestionControl::Cubic, CongestionControl::NewReno] {
        for seed in 1..=2 {
            let share = share(control, seed);
            println!("{control:?}, seed {seed}: {share:.1} %");
            assert!((42.0..=58.0).contains(&share), "{control:?}: {share:.1} %");
        }
    }
}

/// Cross traffic at a receiver that is not the narrowest: A's link takes 8 Mbit/s, and B's, which takes
/// 10, a connection from X as well. What B loses has to slow the group down, or else it keeps nearly 8
/// of the 10.
fn share_at_the_second_narrowest(control: CongestionControl, seed: u64) -> f64 {
    let trusting = Plan {
        trusting: true,
        ..Plan::default()
    };
    let pours = Plan {
        send: u64::MAX / 2,
        ..trusting.clone()
    };
    let mut machine = config();
    machine.congestion_control = control;
    let wide = link().rate_bps(100_000_000);
    let hosts = vec![
        (machine.clone(), trusting.clone(), link()),
        (machine.clone(), trusting, link().rate_bps(10_000_000)),
        (machine.clone(), pours, wide),
    ];
    let mut net = group_net(seed, (machine, wide), hosts);
    let address = Ipv4Addr::new(239, 192, 11, 1);
    net.switch(|switch| switch.trees.insert(address, BTreeSet::from([A, B])));
    let wanted = GroupConfig {
        group: GroupChoice::Given(IpAddr::V4(address)),
        ..group(2)
    };
    start(&mut net, &wanted, 10_000_000_000);
    let after = |net: &mut Net, seconds| {
        let until = net.sim.now() + Duration::from_secs(seconds);
        net.sim.run_until(until);
        let mut peers = net.host(usize::from(B)).peers.values();
        [0, 1].map(|_| peers.next().map_or(0, |peer| peer.read))
    };
    after(&mut net, 5);
    let x = usize::from(X);
    net.with(x, |host, now| host.connect(now, usize::from(B)));
    let before = after(&mut net, 5);
    let then = after(&mut net, 30);
    let [ours, other] = [0, 1].map(|flow| (then[flow] - before[flow]) as f64);
    100.0 * ours / (ours + other)
}

#[test]
fn a_group_gives_way_to_a_connection_at_its_second_narrowest_receiver() {
    for control in [CongestionControl::Cubic, CongestionControl::NewReno] {
        let share = share_at_the_second_narrowest(control, 1);
        println!("{control:?}: {share:.1} %");
        assert!((35.0..=60.0).contains(&share), "{control:?}: {share:.1} %");
    }
}
