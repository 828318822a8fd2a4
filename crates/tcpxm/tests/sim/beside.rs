//! A group and a connection from elsewhere share a link (TCP-XM §4.1, Figure 11).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use netsim::LinkConfig;
use tcpxm::{CongestionControl, Duration, GroupChoice};

use crate::common::{Net, Plan, config};
use crate::group::{group, group_net, start};

/// Hosts: PC-C is 0.
const A: u16 = 1;
const B: u16 = 2;
const X: u16 = 3;
const CONTROLS: [CongestionControl; 3] = [
    CongestionControl::Cubic,
    CongestionControl::NewReno,
    CongestionControl::Bbr,
];
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

/// A group of A and B over these links, of the sender, A, B and X, and after `lead` seconds a connection from X to one
/// receiver. Returns the percentage of the group in what that receiver reads of both in `seconds`.
fn share(
    control: CongestionControl,
    seed: u64,
    links: [LinkConfig; 4],
    receiver: u16,
    (lead, seconds): (u64, u64),
) -> f64 {
    let trusting = Plan {
        trusting: true,
        ..Plan::default()
    };
    let endless = Plan {
        send: u64::MAX / 2,
        ..trusting.clone()
    };
    let mut machine = config();
    machine.congestion_control = control;
    let [sender, a, b, x] = links;
    let hosts = vec![
        (machine.clone(), trusting.clone(), a),
        (machine.clone(), trusting, b),
        (machine.clone(), endless, x),
    ];
    let mut net = group_net(seed, (machine, sender), hosts);
    let address = Ipv4Addr::new(239, 192, 11, 1);
    net.switch(|switch| switch.trees.insert(address, BTreeSet::from([A, B])));
    let mut wanted = group(2);
    wanted.group = GroupChoice::Given(IpAddr::V4(address));
    start(&mut net, &wanted, 10_000_000_000);
    let receiver = usize::from(receiver);
    let after = |net: &mut Net, seconds| {
        let until = net.sim.now() + Duration::from_secs(seconds);
        net.sim.run_until(until);
        let mut peers = net.host(receiver).peers.values();
        [0, 1].map(|_| peers.next().map_or(0, |peer| peer.read))
    };
    after(&mut net, lead);
    net.with(usize::from(X), |host, now| host.connect(now, receiver));
    let before = after(&mut net, 5);
    let then = after(&mut net, seconds);
    let [ours, other] = [0, 1].map(|flow| (then[flow] - before[flow]) as f64);
    100.0 * ours / (ours + other)
}

#[test]
fn a_group_and_a_connection_get_half_of_a_link_each() {
    for control in CONTROLS {
        for seed in 1..=2 {
            let share = share(control, seed, [link(); 4], A, (1, SECONDS));
            println!("{control:?}, seed {seed}: {share:.1} %");
            assert!((42.0..=58.0).contains(&share), "{control:?}: {share:.1} %");
        }
    }
}

/// Cross traffic at a receiver that is not the narrowest: A's link takes 8 Mbit/s, and B's, which takes
/// 10, a connection from X as well. What B loses has to slow the group down, or else it keeps nearly 8
/// of the 10.
#[test]
fn a_group_gives_way_to_a_connection_at_its_second_narrowest_receiver() {
    for control in CONTROLS {
        let wide = link().rate_bps(100_000_000);
        let links = [wide, link(), link().rate_bps(10_000_000), wide];
        let share = share(control, 1, links, B, (5, 30));
        println!("{control:?}: {share:.1} %");
        assert!((35.0..=60.0).contains(&share), "{control:?}: {share:.1} %");
    }
}
