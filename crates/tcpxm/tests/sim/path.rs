//! Paths that take less than the links at their ends, and say so or not.

use crate::common::{Net, Plan, config, net};
use crate::group::start;
use netsim::LinkConfig;
use tcpxm::{Duration, GroupConfig, Instant};

const SEND: u64 = 3_000_000;
/// Between 1280 and 1500: a tunnel.
const TUNNEL: usize = 1400;

/// A sender and its receivers.
fn group(receivers: usize) -> Net {
    let link = || {
        LinkConfig::new()
            .delay(Duration::from_millis(2))
            .rate_bps(10_000_000)
    };
    let plan = |send| Plan {
        send,
        ..Plan::default()
    };
    let mut hosts = vec![(config(), plan(SEND), link())];
    hosts.extend((0..receivers).map(|_| (config(), plan(0), link())));
    let mut net = net(7, hosts);
    for receiver in 1..=receivers {
        net.with(receiver, |host, now| host.listen(now));
    }
    net
}

/// Nothing longer gets to this host, or away from it, from then on.
fn narrow(net: &mut Net, host: u16, bytes: usize, from: Instant) {
    net.switch(|switch| {
        switch.drop = Some(Box::new(move |now, port, packet| {
            port == host && packet.len() > bytes && now >= from
        }));
    });
}

fn all_read(net: &Net, receivers: usize) -> bool {
    (1..=receivers).all(|host| net.host(host).total_read() == SEND)
}

fn payload(net: &Net) -> usize {
    let sender = net.host(0);
    let mut peers = sender.peers.keys();
    let id = *peers.next().expect("a connection");
    sender.endpoint.conn_stats(id).expect("known").payload
}

#[test]
fn a_silent_hole_is_found_and_costs_a_second() {
    let mut net = group(1);
    narrow(&mut net, 1, TUNNEL, Instant::ZERO);
    net.with(0, |host, now| host.connect(now, 1));
    // Before the end of the data, whose acknowledgements may take the connection away.
    assert!(net.run(3, |net| net.host(1).total_read() > SEND / 2));
    assert!(payload(&net) < 1280);
    assert!(net.run(10, |net| all_read(net, 1)));
    assert_eq!(net.host(0).endpoint.stats().black_holes, 1);
}

#[test]
fn a_hole_that_opens_later_needs_more_proof() {
    let mut net = group(1);
    let then = Instant::from_millis(1_200);
    narrow(&mut net, 1, TUNNEL, then);
    net.with(0, |host, now| host.connect(now, 1));
    assert!(net.run(20, |net| all_read(net, 1)));
    assert_eq!(net.host(0).endpoint.stats().black_holes, 1);
}

#[test]
fn a_path_that_was_dead_for_a_while_is_no_hole() {
    let mut net = group(1);
    let (from, to) = (Instant::from_millis(1_200), Instant::from_millis(3_000));
    net.switch(|switch| {
        switch.drop = Some(Box::new(move |now, _, _| from <= now && now < to));
    });
    net.with(0, |host, now| host.connect(now, 1));
    assert!(net.run(30, |net| all_read(net, 1)));
    assert!(net.host(0).endpoint.stats().timeouts >= 2);
    assert_eq!(net.host(0).endpoint.stats().black_holes, 0);
}

#[test]
fn one_member_s_hole_makes_the_segments_of_the_group_short() {
    let mut net = group(3);
    narrow(&mut net, 2, TUNNEL, Instant::ZERO);
    let receivers = (1..=3)
        .map(|host| crate::common::address(host).into())
        .collect();
    let local = crate::common::socket(0, 0);
    let group = GroupConfig::new(local, receivers, crate::common::PORT);
    start(&mut net, &group, SEND);
    assert!(net.run(20, |net| all_read(net, 3)));
    assert_eq!(net.host(0).endpoint.stats().black_holes, 1);
}

#[test]
fn a_member_that_dies_does_not_make_them_short() {
    let mut net = group(3);
    let from = Instant::from_millis(1_200);
    net.switch(|switch| {
        switch.drop = Some(Box::new(move |now, port, _| port == 2 && now >= from));
    });
    let receivers = (1..=3)
        .map(|host| crate::common::address(host).into())
        .collect();
    let local = crate::common::socket(0, 0);
    let mut group = GroupConfig::new(local, receivers, crate::common::PORT);
    group.receiver_timeout = Duration::from_secs(3);
    start(&mut net, &group, SEND);
    let others = |net: &Net| {
        [1, 3]
            .iter()
            .all(|&host| net.host(host).total_read() == SEND)
    };
    assert!(net.run(30, others));
    assert_eq!(net.host(0).endpoint.stats().black_holes, 0);
}

/// What the kernel has learnt from a router: what is outstanding goes again, at once and shorter, and
/// the congestion window stays as it was.
#[test]
fn news_of_the_path_are_acted_on_at_once() {
    let mut net = group(1);
    narrow(&mut net, 1, TUNNEL, Instant::ZERO);
    net.with(0, |host, now| host.connect(now, 1));
    let connected = |net: &Net| net.host(0).endpoint.stats().packets_sent > 5;
    assert!(net.run(1, connected));
    net.with(0, |host, now| {
        let to = crate::common::address(1).into();
        host.endpoint.set_path_mtu(now, to, TUNNEL as u16);
    });
    let began = net.sim.now();
    assert!(net.run(10, |net| all_read(net, 1)));
    let stats = net.host(0).endpoint.stats();
    assert_eq!((stats.timeouts, stats.black_holes), (0, 0));
    assert!(net.sim.now() - began < Duration::from_secs(3));
}
