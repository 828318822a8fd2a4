//! Three sessions from one host over links whose bandwidth changes (TCP-XM §4.1, Figures 9 and 10).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use netsim::{LinkConfig, Loss};
use tcpxm::{CongestionControl, Duration, GroupChoice, GroupConfig, Instant};

use crate::common::{Net, PORT, Plan, address, config, socket};
use crate::group::{group_net, start};

/// Hosts: PC-C is 0.
const A: u16 = 1;
const B: u16 = 2;
const X: u16 = 3;
const SESSIONS: [[u16; 2]; 3] = [[A, B], [A, X], [X, B]];
/// The paper's seconds and bytes divided by this.
const FASTER: f64 = if cfg!(debug_assertions) { 2.5 } else { 1.0 };
const FILE_BYTES: f64 = 256e6;
/// Session, and host: which of the host's connections that is, in the order of their opening.
const PLACES: [[usize; 2]; 3] = [[0, 0], [1, 0], [1, 1]];

/// Until when (seconds; 0: until the next session ends), links A, B and C in Mbit/s, and the fair
/// shares of the sessions, the paper's beside them.
type Phase = (f64, [u64; 3], [f64; 3], [f64; 3]);
const PHASES: [Phase; 6] = [
    (60.0, [15, 25, 35], [7.5, 7.5, 10.4], [7.5, 7.5, 10.4]),
    (160.0, [15, 5, 35], [2.5, 10.4, 2.5], [2.4, 10.4, 2.4]),
    (215.0, [20, 20, 20], [6.67, 6.67, 6.67], [6.4, 6.4, 6.4]),
    (0.0, [15, 25, 35], [7.5, 7.5, 10.4], [7.5, 7.5, 10.4]),
    (0.0, [15, 25, 35], [10.4, 0.0, 10.4], [10.4, 0.0, 10.4]),
    (0.0, [15, 25, 35], [10.4, 0.0, 0.0], [10.4, 0.0, 0.0]),
];

fn link(mbps: u64) -> LinkConfig {
    LinkConfig::new()
        .delay(Duration::from_millis(5))
        .rate_bps(mbps * 1_000_000)
        .queue_packets(50)
        .loss(Loss::Bernoulli(0.0001))
}

fn open_sessions(net: &mut Net) {
    for (session, receivers) in SESSIONS.iter().enumerate() {
        let group = Ipv4Addr::new(239, 192, 9, session as u8 + 1);
        let tree: BTreeSet<u16> = receivers.iter().copied().collect();
        net.switch(|switch| switch.trees.insert(group, tree));
        let addresses = receivers.iter();
        let addresses = addresses.map(|host| IpAddr::V4(address(usize::from(*host))));
        let mut wanted = GroupConfig::new(socket(0, 0), addresses.collect(), PORT);
        wanted.group = GroupChoice::Given(IpAddr::V4(group));
        wanted.max_rate_bps = Some(10_400_000);
        start(net, &wanted, (FILE_BYTES / FASTER) as u64);
        net.sim
            .run_until(net.sim.now() + Duration::from_millis(100));
    }
}

/// Bytes that both hosts of each session have, on average.
fn read(net: &Net) -> [u64; 3] {
    let of = |session: usize| {
        let hosts = SESSIONS[session].iter().zip(PLACES[session]);
        let bytes = hosts.map(|(host, place)| {
            let peers = &net.host(usize::from(*host)).peers;
            peers.values().nth(place).map_or(0, |peer| peer.read)
        });
        bytes.sum::<u64>() / 2
    };
    [of(0), of(1), of(2)]
}

fn ended(net: &Net) -> usize {
    let all = (FILE_BYTES / FASTER) as u64;
    read(net).iter().filter(|bytes| **bytes >= all).count()
}

/// Runs a phase; the rates behind its first part, as frames of Ethernet, in Mbit/s.
fn phase(net: &mut Net, until: f64, sessions_over: usize) -> [f64; 3] {
    let now = |net: &Net| net.sim.now().total_micros() as f64 / 1e6;
    let from = now(net);
    let settle = match sessions_over {
        _ if until > 0.0 => 0.25 * (until / FASTER - from),
        // The last session has nothing to share, and in a shortened run not much is left of it.
        3 => 1.0 / FASTER.sqrt(),
        _ => 3.0 / FASTER.sqrt(),
    };
    net.sim
        .run_until(Instant::from_micros(((from + settle) * 1e6) as i64));
    let (start, before) = (now(net), read(net));
    let end = if until > 0.0 { until / FASTER } else { 1e6 };
    while now(net) < end && ended(net) < sessions_over {
        net.sim.run_until(net.sim.now() + Duration::from_millis(20));
    }
    let (took, after) = (now(net) - start, read(net));
    let rate = |session: usize| (after[session] - before[session]) as f64 * 8.0 / took / 1e6;
    [0, 1, 2].map(|session| rate(session) * 1514.0 / 1440.0)
}

/// The rates of every phase, and when it ended.
fn play(control: CongestionControl, seed: u64) -> Vec<([f64; 3], Instant)> {
    let trusting = Plan {
        trusting: true,
        ..Plan::default()
    };
    let mut machine = config();
    machine.congestion_control = control;
    let hosts = vec![(machine.clone(), trusting, link(100)); 3];
    let mut net = group_net(seed, (machine, link(35)), hosts);
    open_sessions(&mut net);
    let mut over = 0;
    let phases = PHASES.into_iter().map(|(until, bandwidths, ..)| {
        for (host, mbps) in [A, B, 0].into_iter().zip(bandwidths) {
            let id = net.links[usize::from(host)];
            net.sim.set_link(id, link(mbps), link(mbps));
        }
        over += usize::from(until == 0.0);
        let rates = phase(&mut net, until, if until > 0.0 { 4 } else { over });
        (rates, net.sim.now())
    });
    phases.collect()
}

/// Averaged over several runs: drop-tail queues drop from one flow at a time.
#[test]
fn sessions_share_links_as_the_paper_says() {
    // Short phases see much of the queues' chance: more of them are needed.
    const RUNS: u64 = if cfg!(debug_assertions) { 8 } else { 4 };
    for control in [CongestionControl::Cubic, CongestionControl::NewReno] {
        let runs: Vec<_> = (0..RUNS).map(|seed| play(control, seed)).collect();
        let mut missed = Vec::new();
        for (number, (.., fair, paper)) in PHASES.into_iter().enumerate() {
            let mean = |session: usize| {
                // A phase that was over before its first part was has no rate.
                let rates = runs.iter().map(|run| run[number].0[session]);
                let rates: Vec<f64> = rates.filter(|rate| rate.is_finite()).collect();
                assert!(rates.len() as u64 >= RUNS / 2, "phase {}", number + 1);
                rates.iter().sum::<f64>() / rates.len() as f64
            };
            let mut rates = [0, 1, 2].map(mean);
            // In short phases the first session, which has the least by then, is not always the last.
            if fair.iter().filter(|fair| **fair > 0.0).count() == 1 {
                rates = [rates.iter().sum(), 0.0, 0.0];
            }
            let line = format!(
                "{control:?} {}: {rates:.2?}, fair {fair:.2?}, paper {paper:.1?}",
                number + 1
            );
            println!("{line}, the first run until {}", runs[0][number].1);
            let off = |(rate, fair): (&f64, &f64)| *fair > 0.0 && (rate - fair).abs() > 0.15 * fair;
            if rates.iter().zip(&fair).any(off) {
                missed.push(line);
            }
        }
        assert!(missed.is_empty(), "{missed:#?}");
    }
}
