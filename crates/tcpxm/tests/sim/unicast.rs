//! One connection over links that lose, reorder, duplicate and corrupt: every byte or a named error.

use crate::common::{Dice, Named, Net, Plan, config, net};
use netsim::{LinkConfig, Loss};
use tcpxm::{Config, CongestionControl, Duration, Event, Failure, Instant};

/// Only one link flips bits: a second flip can undo what the first did to the checksum.
fn two(seed: u64, a: (Config, Plan), b: (Config, Plan), link: LinkConfig) -> Net {
    let mut net = net(seed, vec![(a.0, a.1, link), (b.0, b.1, link.corrupt(0.0))]);
    net.with(1, |host, now| host.listen(now));
    net
}

fn plan(send: u64) -> Plan {
    Plan {
        send,
        ..Plan::default()
    }
}

fn all_closed(net: &Net) -> bool {
    (0..2).all(|host| !net.host(host).ends.is_empty())
}

/// Both sides read all that the other sent, and both connections ended well.
fn assert_complete(net: &Net, to_b: u64, to_a: u64, what: &str) {
    let (a, b) = (net.host(0), net.host(1));
    let all = || format!("{what}: {:?} {:?}", a.summary(), b.summary());
    assert_eq!(b.total_read(), to_b, "{}", all());
    assert_eq!(a.total_read(), to_a, "{}", all());
    for host in [a, b] {
        assert!(host.ends.iter().all(|end| end.1.is_none()), "{}", all());
    }
}

#[test]
fn a_clean_link_carries_everything_without_a_retransmission() {
    let link = LinkConfig::new().delay(Duration::from_millis(10));
    let mut net = two(1, (config(), plan(1_000_000)), (config(), plan(0)), link);
    net.with(0, |host, now| host.connect(now, 1));
    assert!(
        net.run(60, all_closed),
        "{:?} {:?}",
        net.host(0).events,
        net.host(1).events
    );
    assert_complete(&net, 1_000_000, 0, "clean");
    assert_eq!(net.host(0).endpoint.stats().retransmissions, 0);
    assert_eq!(net.host(0).endpoint.stats().drops.total(), 0);
    assert_eq!(net.host(1).endpoint.stats().drops.total(), 0);
}

#[test]
fn both_directions_at_once() {
    let link = LinkConfig::new().delay(Duration::from_millis(5));
    let mut net = two(
        1,
        (config(), plan(300_000)),
        (config(), plan(500_000)),
        link,
    );
    net.with(0, |host, now| host.connect(now, 1));
    assert!(net.run(60, all_closed));
    assert_complete(&net, 300_000, 500_000, "both");
}

#[test]
fn half_close_leaves_the_other_direction_open() {
    let link = LinkConfig::new().delay(Duration::from_millis(5));
    let last = Plan {
        close_last: true,
        ..plan(200_000)
    };
    let mut net = two(1, (config(), plan(1000)), (config(), last), link);
    net.with(0, |host, now| host.connect(now, 1));
    assert!(net.run(60, all_closed));
    assert_complete(&net, 1000, 200_000, "half");
}

/// Thousands of cheap runs: whatever the link does, every byte arrives or the end has a name.
#[test]
fn every_byte_over_bad_links() {
    let only: Option<u64> = std::env::var("SEED").ok().map(|seed| seed.parse().unwrap());
    let runs = if cfg!(debug_assertions) { 300 } else { 3000 };
    for seed in only.map_or(0..runs, |seed| seed..seed + 1) {
        bad_link(seed);
    }
}

fn bad_link(seed: u64) {
    let _named = Named(seed);
    let mut dice = Dice(seed * 977 + 5);
    let delay =
        Duration::from_millis(1 + dice.below(if seed.is_multiple_of(4) { 250 } else { 30 }));
    let loss = [0.0, 0.005, 0.025, 0.08, 0.16][dice.below(5) as usize];
    let mut link = LinkConfig::new().delay(delay).loss(Loss::Bernoulli(loss));
    if dice.below(2) == 0 {
        link = link.reorder(0.1, Duration::from_millis(1 + dice.below(40)));
    }
    if dice.below(2) == 0 {
        link = link.duplicate(0.05).corrupt(0.02);
    }
    if dice.below(3) == 0 {
        link = link
            .rate_bps(2_000_000 + dice.below(50_000_000))
            .queue_packets(5 + dice.below(60) as u32);
    }
    let mut configs = [config(), config()];
    for side in &mut configs {
        side.sack = dice.below(4) != 0;
        side.timestamps = dice.below(4) != 0;
        side.window_scaling = dice.below(4) != 0;
        side.nagle = dice.below(2) == 0;
        side.pacing = dice.below(3) == 0;
        side.receive_buffer = 2048 << dice.below(8);
        side.mtu = 576 + dice.below(925) as u16;
        side.user_timeout = Duration::from_secs(600);
        side.connect_timeout = Duration::from_secs(200);
        side.congestion_control = match dice.below(3) {
            0 => CongestionControl::NewReno,
            1 => CongestionControl::Bbr,
            _ => CongestionControl::Cubic,
        };
    }
    let [a, b] = configs;
    let (to_b, to_a) = (
        dice.below(150_000),
        if dice.below(2) == 0 {
            0
        } else {
            dice.below(50_000)
        },
    );
    let close_last = dice.below(2) == 0;
    let mut net = two(
        seed,
        (a, plan(to_b)),
        (
            b,
            Plan {
                close_last,
                ..plan(to_a)
            },
        ),
        link,
    );
    net.with(0, |host, now| host.connect(now, 1));
    let what = format!("SEED={seed}");
    let done = net.run(4000, all_closed);
    if !done {
        let (a, b) = (net.host(0), net.host(1));
        let id = *a.peers.keys().next().unwrap();
        let id_b = b.peers.keys().next();
        panic!(
            "{what}: stuck\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
            a.endpoint.conn_stats(id),
            id_b.map(|id| b.endpoint.conn_stats(*id)),
            a.peers,
            b.peers,
            a.events,
            b.events
        );
    }
    assert_complete(&net, to_b, to_a, &what);
}

#[test]
fn a_window_that_stays_closed_is_probed_until_it_opens() {
    let link = LinkConfig::new()
        .delay(Duration::from_millis(5))
        .loss(Loss::Bernoulli(0.1));
    let reader = Plan {
        read_from: Instant::from_secs(120),
        ..plan(0)
    };
    let mut small = config();
    small.receive_buffer = 4096;
    small.user_timeout = Duration::from_secs(300);
    for seed in 0..20 {
        let mut net = two(
            seed,
            (small.clone(), plan(20_000)),
            (small.clone(), reader.clone()),
            link,
        );
        net.with(0, |host, now| host.connect(now, 1));
        assert!(net.run(400, all_closed), "SEED={seed}");
        assert_complete(&net, 20_000, 0, "zero window");
    }
}

#[test]
fn a_peer_that_dies_is_named() {
    let link = LinkConfig::new().delay(Duration::from_millis(5));
    let mut quick = config();
    quick.user_timeout = Duration::from_secs(10);
    let mut net = two(
        1,
        (quick.clone(), plan(100_000_000)),
        (quick, plan(0)),
        link,
    );
    net.with(0, |host, now| host.connect(now, 1));
    assert!(!net.run(1, all_closed));
    let dead = net.hosts[1];
    let now = net.sim.now();
    net.sim.fail_node(now, dead);
    assert!(net.run(30, |net| !net.host(0).ends.is_empty()));
    assert_eq!(net.host(0).ends[0].1, Some(Failure::Timeout));
}

#[test]
fn nobody_there_and_nobody_listening() {
    let link = LinkConfig::new().delay(Duration::from_millis(5));
    let mut quick = config();
    quick.connect_timeout = Duration::from_secs(7);
    let mut net = net(
        1,
        vec![
            (quick.clone(), plan(0), link),
            (quick.clone(), plan(0), link),
            (quick, plan(0), link.loss(Loss::Bernoulli(1.0))),
        ],
    );
    net.with(0, |host, now| {
        host.connect(now, 1);
        host.connect(now, 2);
    });
    assert!(net.run(30, |net| net.host(0).ends.len() == 2));
    let ends: Vec<_> = net.host(0).ends.iter().map(|end| end.1).collect();
    assert_eq!(
        ends,
        [Some(Failure::Refused), Some(Failure::ConnectTimeout)]
    );
    assert_eq!(net.host(0).endpoint.connections(), 0);
}

#[test]
fn an_abort_is_a_reset_for_the_other_side() {
    let link = LinkConfig::new().delay(Duration::from_millis(5));
    let abort = Plan {
        abort_after: Some(50_000),
        ..plan(0)
    };
    let mut net = two(1, (config(), plan(10_000_000)), (config(), abort), link);
    net.with(0, |host, now| host.connect(now, 1));
    assert!(net.run(30, all_closed));
    assert_eq!(net.host(0).ends[0].1, Some(Failure::Reset));
    assert_eq!(net.host(1).ends[0].1, Some(Failure::Aborted));
}

#[test]
fn data_flows_at_the_rate_of_the_link() {
    // 20 Mbit/s, 20 ms round trip, a queue of one bandwidth-delay product.
    for kind in [
        CongestionControl::Cubic,
        CongestionControl::NewReno,
        CongestionControl::Bbr,
    ] {
        let link = LinkConfig::new()
            .delay(Duration::from_millis(5))
            .rate_bps(20_000_000)
            .queue_packets(40);
        let mut side = config();
        side.congestion_control = kind;
        let mut net = two(1, (side.clone(), plan(20_000_000)), (side, plan(0)), link);
        net.with(0, |host, now| host.connect(now, 1));
        assert!(net.run(60, all_closed));
        assert_complete(&net, 20_000_000, 0, "rate");
        let finished = net.host(1).finished_at.unwrap().total_millis();
        // 8.3 s is what the link itself takes, headers included.
        assert!(finished < 9500, "{kind:?}: {finished} ms");
    }
}

#[test]
fn keep_alive_finds_a_dead_peer_and_spares_a_live_one() {
    let link = LinkConfig::new().delay(Duration::from_millis(5));
    let mut side = config();
    side.keep_alive = Some(Duration::from_secs(5));
    let quiet = Plan {
        close_last: true,
        ..plan(0)
    };
    let mut net = two(1, (side, quiet.clone()), (config(), quiet), link);
    net.with(0, |host, now| host.connect(now, 1));
    assert!(!net.run(200, |net| !net.host(0).ends.is_empty()));
    let dead = net.hosts[1];
    let now = net.sim.now();
    net.sim.fail_node(now, dead);
    assert!(net.run(300, |net| !net.host(0).ends.is_empty()));
    assert_eq!(net.host(0).ends[0].1, Some(Failure::Timeout));
}

#[test]
fn simultaneous_open() {
    let link = LinkConfig::new().delay(Duration::from_millis(20));
    let mut net = net(
        1,
        vec![(config(), plan(5000), link), (config(), plan(7000), link)],
    );
    // Each connects from the port that the other connects to.
    for (host, other) in [(0, 1), (1, 0)] {
        net.with(host, |host, now| {
            let local = crate::common::socket(host.number, crate::common::PORT);
            let id = host
                .endpoint
                .connect(
                    now,
                    local,
                    crate::common::socket(other, crate::common::PORT),
                )
                .unwrap();
            host.peers.insert(id, crate::common::Peer::default());
        });
    }
    assert!(
        net.run(60, all_closed),
        "{:?} {:?}",
        net.host(0).events,
        net.host(1).events
    );
    assert_complete(&net, 5000, 7000, "simultaneous");
    for host in 0..2 {
        let connected = |event: &&Event| matches!(event, Event::Connected { .. });
        assert_eq!(net.host(host).events.iter().filter(connected).count(), 1);
    }
}

#[test]
fn sequence_numbers_wrap_in_the_middle_of_a_stream() {
    use std::sync::{Arc, Mutex};
    let link = LinkConfig::new()
        .delay(Duration::from_millis(3))
        .loss(Loss::Bernoulli(0.02));
    let run = |start: Instant| {
        let mut net = two(
            3,
            (config(), plan(400_000)),
            (config(), plan(300_000)),
            link,
        );
        let seen = Arc::new(Mutex::new(Vec::new()));
        let heard = seen.clone();
        net.switch(|switch| {
            switch.drop = Some(Box::new(move |_, port, packet| {
                if port == 1 {
                    let seq = packet[32..36].try_into().unwrap();
                    heard.lock().unwrap().push(u32::from_be_bytes(seq));
                }
                false
            }));
        });
        net.sim.run_until(start);
        net.with(0, |host, now| host.connect(now, 1));
        assert!(net.run(start.secs() + 600, all_closed));
        assert_complete(&net, 400_000, 300_000, "wrap");
        let seen = seen.lock().unwrap();
        seen.clone()
    };
    // The number at the start is a hash plus a clock of 4 microseconds (RFC 6528): wait for it to
    // come close to the end.
    let first = run(Instant::ZERO)[0];
    let wait = i64::from(u32::MAX - 100_000 - first) * 4;
    let seen = run(Instant::from_micros(wait));
    assert!(seen[0] > u32::MAX - 200_000, "{}", seen[0]);
    assert!(seen.iter().any(|&seq| seq < 400_000), "it wrapped");
}

/// Segments that overtake others are not losses: what was cut for them is given back (RFC 3522, RFC
/// 3708, RFC 4015), with timestamps or with reports of duplicates.
#[test]
fn reordering_costs_little() {
    for timestamps in [true, false] {
        let took = |link: LinkConfig| {
            let mut side = config();
            side.timestamps = timestamps;
            let wire = LinkConfig::new();
            let sender = (side.clone(), plan(4_000_000), wire);
            let mut net = net(3, vec![sender, (side, Plan::default(), link)]);
            net.with(1, |host, now| host.listen(now));
            net.with(0, |host, now| host.connect(now, 1));
            assert!(net.run(60, |net| net.host(1).total_read() == 4_000_000));
            let undone = net.host(0).endpoint.stats().undone;
            (net.sim.now().total_millis(), undone)
        };
        let link = LinkConfig::new()
            .delay(Duration::from_millis(10))
            .rate_bps(100_000_000)
            .queue_packets(1000);
        let (straight, undone) = took(link);
        assert_eq!(undone, 0);
        let (mixed, undone) = took(link.reorder(0.1, Duration::from_millis(10)));
        assert!(undone > 0);
        assert!(mixed < 3 * straight, "{mixed} ms, without {straight} ms");
    }
}
