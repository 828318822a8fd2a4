//! Groups: modes and their changes, mixed receivers, failures, stragglers, in virtual time.

use std::net::IpAddr;

use crate::common::{Dice, Host, Named, Net, PORT, Plan, address, config, net, socket};
use netsim::{LinkConfig, Loss};
use tcpxm::store::{NullStore, Store};
use tcpxm::{Config, Duration, Failure, GroupConfig, GroupMode, GroupPolicy, Instant, Mode};

/// A sender (host 0) and receivers that each listen.
pub(crate) fn group_net(
    seed: u64,
    sender: (Config, LinkConfig),
    receivers: Vec<(Config, Plan, LinkConfig)>,
) -> Net {
    let mut hosts = vec![(sender.0, Plan::default(), sender.1)];
    let count = receivers.len();
    hosts.extend(receivers);
    let mut net = net(seed, hosts);
    for receiver in 1..=count {
        net.with(receiver, |host, now| host.listen(now));
    }
    net
}

pub(crate) fn receivers(count: usize, link: LinkConfig) -> Vec<(Config, Plan, LinkConfig)> {
    (0..count)
        .map(|_| (config(), Plan::default(), link))
        .collect()
}

pub(crate) fn group(count: usize) -> GroupConfig {
    let addresses = (1..=count).map(|host| IpAddr::V4(address(host))).collect();
    GroupConfig::new(socket(0, 0), addresses, PORT)
}

/// Sends `len` bytes and then the end.
pub(crate) fn start(net: &mut Net, group: &GroupConfig, len: u64) {
    let store: Box<dyn Store> = Box::new(NullStore::new(len));
    net.with(0, |host, now| {
        let id = host.open_group(now, group, store);
        host.endpoint.shutdown(now, id).unwrap();
    });
}

pub(crate) fn lan() -> LinkConfig {
    LinkConfig::new()
        .delay(Duration::from_millis(2))
        .rate_bps(100_000_000)
        .queue_packets(1000)
}

pub(crate) fn modes_of(host: &Host) -> Vec<Mode> {
    host.modes.iter().map(|(_, mode)| *mode).collect()
}

pub(crate) fn closed(net: &Net) -> bool {
    net.host(0).group_closed
}

/// Every receiver named has everything, and said so.
pub(crate) fn assert_delivered(
    net: &Net,
    receivers: impl Iterator<Item = usize>,
    len: u64,
    what: &str,
) {
    for number in receivers {
        let host = net.host(number);
        assert_eq!(host.total_read(), len, "{what}: receiver {number}");
        assert!(
            host.peers.values().all(|peer| peer.end),
            "{what}: receiver {number}"
        );
    }
}

#[test]
fn one_copy_serves_all_once_multicast_is_seen_to_work() {
    let len = 4_000_000;
    let mut net = group_net(1, (config(), lan()), receivers(8, lan()));
    start(&mut net, &group(8), len);
    assert!(net.run(60, closed), "{:?}", net.host(0).events);
    assert_delivered(&net, 1..=8, len, "one copy");
    for number in 1..=8 {
        assert_eq!(
            net.host(number).ends,
            [(socket(0, net.host(number).ends[0].0.port()), None)]
        );
    }
    assert_eq!(modes_of(net.host(0)), [Mode::Multicast; 8]);
    let stats = net.host(0).endpoint.stats();
    assert_eq!(stats.fall_forwards, 8);
    // The group got everything once; unicast only the start.
    let wire = stats.multicast_bytes_sent + stats.unicast_bytes_sent;
    assert!(wire < len * 120 / 100, "{stats:?}");
    let segments = len.div_ceil(1440);
    assert_eq!(net.switch(|switch| switch.from_sender.0), segments);
}

#[test]
fn unicast_only_is_not_synchronised() {
    let len = 1_000_000;
    let mut list = receivers(3, lan());
    list[2].2 = LinkConfig::new()
        .delay(Duration::from_millis(2))
        .rate_bps(1_000_000)
        .queue_packets(50);
    let mut net = group_net(1, (config(), lan()), list);
    let mut wanted = group(3);
    wanted.mode = GroupMode::Unicast;
    start(&mut net, &wanted, len);
    assert!(net.run(60, closed));
    assert_delivered(&net, 1..=3, len, "unicast");
    assert_eq!(net.host(0).endpoint.stats().multicast_bytes_sent, 0);
    let at = |number: usize| net.host(number).finished_at.unwrap();
    assert!(
        at(1) < Instant::from_secs(2) && at(3) > Instant::from_secs(8),
        "{} {}",
        at(1),
        at(3)
    );
    assert!(net.host(1).joined.is_empty());
}

#[test]
fn a_receiver_that_refuses_the_group_gets_unicast_copies_in_step() {
    let len = 1_000_000;
    let mut list = receivers(3, lan());
    list[1].0.groups = GroupPolicy::Refuse;
    let mut net = group_net(1, (config(), lan()), list);
    start(&mut net, &group(3), len);
    assert!(net.run(60, closed));
    assert_delivered(&net, 1..=3, len, "refuse");
    let mut modes = modes_of(net.host(0));
    modes.sort_by_key(|mode| format!("{mode:?}"));
    assert_eq!(
        modes,
        [Mode::Multicast, Mode::Multicast, Mode::UnicastGroupOnly]
    );
}

#[test]
fn multicast_that_never_arrives_leaves_unicast_group() {
    let len = 1_000_000;
    let mut net = group_net(1, (config(), lan()), receivers(2, lan()));
    net.switch(|switch| {
        switch
            .deaf
            .insert(2, vec![(Instant::ZERO, Instant::from_secs(1000))])
    });
    start(&mut net, &group(2), len);
    assert!(net.run(60, closed));
    assert_delivered(&net, 1..=2, len, "deaf");
    assert_eq!(modes_of(net.host(0)), [Mode::Multicast]);
}

#[test]
fn fall_back_when_multicast_dies_and_forward_when_it_returns() {
    let len = 30_000_000;
    let mut net = group_net(1, (config(), lan()), receivers(3, lan()));
    net.switch(|switch| {
        let times = vec![(Instant::from_millis(500), Instant::from_millis(1500))];
        switch.deaf.insert(2, times)
    });
    start(&mut net, &group(3), len);
    assert!(net.run(60, closed), "{:?}", net.host(0).events);
    assert_delivered(&net, 1..=3, len, "fallback");
    let host = net.host(0);
    let moves: Vec<Mode> = host
        .modes
        .iter()
        .filter(|(id, _)| *id == *host.peers.keys().nth(1).unwrap())
        .map(|(_, mode)| *mode)
        .collect();
    assert_eq!(
        moves,
        [Mode::Multicast, Mode::UnicastGroup, Mode::Multicast]
    );
    assert_eq!(host.endpoint.stats().fall_backs, 1);
}

#[test]
fn multicast_only_never_falls_back_and_demands_the_group() {
    let len = 3_000_000;
    let mut list = receivers(3, lan());
    list[2].0.groups = GroupPolicy::Refuse;
    let mut net = group_net(1, (config(), lan()), list);
    net.switch(|switch| {
        let times = vec![(Instant::from_millis(50), Instant::from_millis(400))];
        switch.deaf.insert(2, times)
    });
    let mut wanted = group(3);
    wanted.mode = GroupMode::Multicast;
    start(&mut net, &wanted, len);
    assert!(net.run(600, closed), "{:?}", net.host(0).events);
    assert_delivered(&net, 1..=2, len, "multicast only");
    let host = net.host(0);
    assert_eq!(host.modes, []);
    assert_eq!(host.endpoint.stats().fall_backs, 0);
    assert_eq!(net.failed(), [(socket(3, PORT), Failure::NoMulticast)]);
}

/// From the start, and from the middle on: a receiver that gets nothing but repairs fails, and the others
/// have everything soon after that.
#[test]
fn multicast_only_fails_a_receiver_that_multicast_does_not_reach() {
    for deaf_from in [Instant::ZERO, Instant::from_millis(60)] {
        let len = 3_000_000;
        let mut net = group_net(1, (config(), lan()), receivers(3, lan()));
        net.switch(|switch| {
            let times = vec![(deaf_from, Instant::from_secs(1000))];
            switch.deaf.insert(2, times)
        });
        let mut group = group(3);
        group.mode = GroupMode::Multicast;
        start(&mut net, &group, len);
        assert!(net.run(600, closed), "{:?}", net.host(0).events);
        assert_eq!(net.failed(), [(socket(2, PORT), Failure::NoMulticast)]);
        assert_delivered(&net, [1, 3].into_iter(), len, "the others");
        for number in [1, 3] {
            let finished = net.host(number).finished_at.expect("finished");
            assert!(finished < Instant::from_secs(8), "{deaf_from}: {finished}");
        }
    }
}

/// Repairs alone for a while, in which nothing new was sent by multicast, or an outage that is shorter than
/// the limit: multicast still counts as reaching the receiver.
#[test]
fn multicast_only_takes_outages_that_end_in_time() {
    let len = 30_000_000;
    let mut net = group_net(1, (config(), lan()), receivers(3, lan()));
    net.switch(|switch| {
        let outage = |from, to| (Instant::from_millis(from), Instant::from_millis(to));
        switch
            .deaf
            .insert(2, vec![outage(0, 2000), outage(2500, 4500)])
    });
    let mut group = group(3);
    group.mode = GroupMode::Multicast;
    start(&mut net, &group, len);
    assert!(net.run(600, closed), "{:?}", net.host(0).events);
    assert_delivered(&net, 1..=3, len, "outages");
    assert!(net.host(0).ends.iter().all(|end| end.1.is_none()));
}

#[test]
fn those_who_do_not_answer_are_named_and_the_others_served() {
    let len = 500_000;
    let mut list = receivers(4, lan());
    list[2].2 = lan().loss(Loss::Bernoulli(1.0));
    let mut net = group_net(1, (config(), lan()), list);
    let mut wanted = group(4);
    wanted.connect_timeout = Duration::from_secs(3);
    start(&mut net, &wanted, len);
    assert!(net.run(60, closed));
    assert_delivered(&net, [1, 2, 4].into_iter(), len, "no answer");
    assert_eq!(net.failed(), [(socket(3, PORT), Failure::ConnectTimeout)]);
}

#[test]
fn too_few_receivers_end_the_group() {
    let mut list = receivers(2, lan());
    list[1].2 = lan().loss(Loss::Bernoulli(1.0));
    let mut net = group_net(1, (config(), lan()), list);
    let mut wanted = group(2);
    wanted.min_receivers = 2;
    wanted.connect_timeout = Duration::from_secs(2);
    start(&mut net, &wanted, 1000);
    assert!(net.run(60, closed));
    let mut ends: Vec<_> = net.host(0).ends.iter().map(|end| end.1).collect();
    ends.sort_by_key(|end| format!("{end:?}"));
    assert_eq!(ends, [Some(Failure::ConnectTimeout), Some(Failure::TooFew)]);
}

#[test]
fn a_receiver_that_dies_is_dropped_and_named() {
    let len = 20_000_000;
    let mut net = group_net(1, (config(), lan()), receivers(4, lan()));
    let mut wanted = group(4);
    wanted.receiver_timeout = Duration::from_secs(5);
    start(&mut net, &wanted, len);
    let dead = net.hosts[2];
    net.sim.fail_node(Instant::from_millis(700), dead);
    assert!(net.run(60, closed));
    assert_delivered(&net, [1, 3, 4].into_iter(), len, "dies");
    assert_eq!(net.failed(), [(socket(2, PORT), Failure::Timeout)]);
}

#[test]
fn a_lost_last_acknowledgement_hangs_nobody() {
    // All acknowledgements of one receiver are lost for a while after the last data.
    for seed in 0..30 {
        let mut net = group_net(seed, (config(), lan()), receivers(2, lan()));
        let mut dice = Dice(seed);
        let from = Instant::from_millis(10 + dice.below(120) as i64);
        let until = from + Duration::from_millis(300 + dice.below(700));
        net.switch(|switch| {
            switch.drop = Some(Box::new(move |now, port, packet| {
                port == 0 && from <= now && now < until && packet[15] == 1
            }));
        });
        start(&mut net, &group(2), 1_000_000);
        assert!(net.run(60, closed), "SEED={seed}");
        assert_delivered(&net, 1..=2, 1_000_000, "last ack");
    }
}

/// 1 to 32 receivers behind links of all kinds.
#[test]
fn every_byte_to_every_receiver_over_bad_links() {
    let only: Option<u64> = std::env::var("SEED").ok().map(|seed| seed.parse().unwrap());
    let runs = if cfg!(debug_assertions) { 60 } else { 1500 };
    for seed in only.map_or(0..runs, |seed| seed..seed + 1) {
        bad_group(seed);
    }
}

fn bad_group(seed: u64) {
    let _named = Named(seed);
    let mut dice = Dice(seed * 31 + 7);
    let count = [1, 2, 3, 5, 8, 32][dice.below(6) as usize];
    let mut list = Vec::new();
    for _ in 0..count {
        let delay =
            Duration::from_millis(1 + dice.below(if seed.is_multiple_of(5) { 250 } else { 20 }));
        let loss = [0.0, 0.0, 0.01, 0.1, 0.3][dice.below(5) as usize];
        let mut link = LinkConfig::new().delay(delay).loss(Loss::Bernoulli(loss));
        if dice.below(3) == 0 {
            link = link.reorder(0.1, Duration::from_millis(1 + dice.below(30)));
        }
        if dice.below(3) == 0 {
            link = link.duplicate(0.05).corrupt(0.02);
        }
        let mut side = config();
        side.sack = dice.below(5) != 0;
        side.timestamps = dice.below(5) != 0;
        side.window_scaling = dice.below(5) != 0;
        side.receive_buffer = 4096 << dice.below(7);
        side.mtu = 576 + dice.below(925) as u16;
        side.user_timeout = Duration::from_secs(3000);
        side.groups = match dice.below(6) {
            0 => GroupPolicy::Refuse,
            1 => GroupPolicy::Propose("239.194.1.9".parse().unwrap()),
            _ => GroupPolicy::Accept,
        };
        list.push((side, Plan::default(), link));
    }
    let len = dice.below(120_000);
    let mut net = group_net(seed, (config(), lan()), list);
    for port in 1..=count as u16 {
        if dice.below(4) == 0 {
            let from = Instant::from_millis(dice.below(500) as i64);
            let times = vec![(from, from + Duration::from_millis(dice.below(3000)))];
            net.switch(|switch| switch.deaf.insert(port, times));
        }
    }
    let mode = if dice.below(5) == 0 {
        GroupMode::Unicast
    } else {
        GroupMode::Auto
    };
    let mut wanted = group(count);
    wanted.mode = mode;
    wanted.max_alternatives = dice.below(2) as usize;
    wanted.connect_timeout = Duration::from_secs(300);
    wanted.receiver_timeout = Duration::from_secs(3000);
    start(&mut net, &wanted, len);
    let what = format!("SEED={seed}");
    if !net.run(4000, closed) {
        let host = net.host(0);
        let stuck: Vec<_> = host
            .peers
            .keys()
            .map(|id| host.endpoint.conn_stats(*id))
            .collect();
        panic!(
            "{what}: {count} receivers stuck\n{stuck:?}\n{:?}",
            host.ends
        );
    }
    assert_delivered(&net, 1..=count, len, &what);
    assert!(net.host(0).ends.iter().all(|end| end.1.is_none()), "{what}");
}

#[test]
fn a_group_keeps_to_its_rate() {
    let len = 5_000_000;
    let mut net = group_net(1, (config(), lan()), receivers(3, lan()));
    let mut wanted = group(3);
    wanted.max_rate_bps = Some(10_000_000);
    start(&mut net, &wanted, len);
    assert!(net.run(60, closed));
    assert_delivered(&net, 1..=3, len, "rate");
    // 5 MB in segments of 1440 bytes with 60 bytes of headers take 4.17 s; the start, where each
    // segment goes four times, a little more.
    let took = net.host(1).finished_at.unwrap().total_millis();
    assert!((4150..4800).contains(&took), "{took} ms");
}

/// All copies are counted, for any receiver.
#[test]
fn a_rate_is_for_all_receivers_together() {
    for rate_later in [false, true] {
        let len = 1_000_000;
        let mut net = group_net(1, (config(), lan()), receivers(5, lan()));
        let mut wanted = group(5);
        wanted.mode = GroupMode::Unicast;
        wanted.max_rate_bps = Some(if rate_later { 1_000_000 } else { 10_000_000 });
        start(&mut net, &wanted, len);
        net.with(0, |host, now| {
            let id = host.group.unwrap();
            host.endpoint
                .set_max_rate(now, id, Some(10_000_000))
                .unwrap();
        });
        assert!(net.run(60, closed));
        assert_delivered(&net, 1..=5, len, "rate of all");
        // 5 MB in segments of 1448 bytes with 52 bytes of headers take 4.17 s.
        let ends = (1..=5).map(|number| net.host(number).finished_at.unwrap().total_millis());
        let ends: Vec<i64> = ends.collect();
        assert!(
            ends.iter().all(|took| (3900..4500).contains(took)),
            "{ends:?} ms"
        );
    }
}

/// Groups that meet in one bottleneck share it (TCP-XM §4.1).
#[test]
fn two_groups_share_a_bottleneck() {
    let len = 12_000_000;
    let link = LinkConfig::new()
        .delay(Duration::from_millis(5))
        .rate_bps(20_000_000)
        .queue_packets(80);
    let mut net = group_net(1, (config(), link), receivers(4, lan()));
    let mut other = group(2);
    other.receivers = (3..=4).map(|host| IpAddr::V4(address(host))).collect();
    start(&mut net, &other, len);
    start(&mut net, &group(2), len);
    net.sim.run_until(Instant::from_secs(8));
    let shares = [1, 3].map(|receiver| net.host(receiver).total_read());
    let total: u64 = shares.iter().sum();
    assert!(total > 15_000_000, "{shares:?} in 8 s of 20 Mbit/s");
    let share = shares[0] * 100 / total;
    assert!((30..=70).contains(&share), "{shares:?}");
}

/// Receivers that join late are sent unicast copies until then: there are few.
#[test]
fn little_goes_to_everybody_by_unicast_before_the_group_is_heard() {
    let count = 40;
    let fast = LinkConfig::new()
        .delay(Duration::from_micros(500))
        .rate_bps(1_000_000_000)
        .queue_packets(10_000);
    let mut net = group_net(1, (config(), fast), receivers(count, fast));
    let late = Instant::from_millis(20);
    net.switch(|switch| {
        for port in 1..=count as u16 {
            switch.deaf.insert(port, vec![(Instant::ZERO, late)]);
        }
    });
    let len = 4_000_000;
    start(&mut net, &group(count), len);
    assert!(net.run(60, closed), "{:?}", net.host(0).events);
    assert_delivered(&net, 1..=count, len, "few copies");
    let stats = net.host(0).endpoint.stats();
    assert_eq!(stats.fall_forwards, count as u64);
    // Sixteen segments a round trip of 2 ms and more.
    let each = stats.unicast_bytes_sent / 1500 / count as u64;
    assert!(each < 180, "{each} segments each, {stats:?}");
}

/// Slow start ends where the queues at all ports overflow, and the end of a flight is lost.
#[test]
fn a_full_queue_is_no_reason_to_fall_back() {
    let mut wide = config();
    wide.receive_buffer = 4 << 20;
    let port = LinkConfig::new()
        .delay(Duration::from_micros(200))
        .rate_bps(100_000_000);
    for queue in [100, 200, 400] {
        let receiver = (wide.clone(), Plan::default(), port.queue_packets(queue));
        let own = port.rate_bps(1_000_000_000).queue_packets(10_000);
        let sender = (wide.clone(), own);
        let mut net = group_net(1, sender, vec![receiver; 3]);
        let len = 16_000_000;
        start(&mut net, &group(3), len);
        assert!(net.run(60, closed), "{:?}", net.host(0).events);
        assert_delivered(&net, 1..=3, len, "full queue");
        let stats = net.host(0).endpoint.stats();
        assert!(stats.retransmissions > 0, "{queue}");
        assert_eq!(stats.fall_backs, 0, "{queue} {stats:?}");
    }
}
