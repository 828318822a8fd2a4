//! BBR alone, with losses, and beside another flow, in virtual time.

use netsim::{LinkConfig, Loss};
use tcpxm::{Config, CongestionControl, Duration};

use crate::common::{Net, Plan, config, net};

fn machine(control: CongestionControl) -> Config {
    let mut machine = config();
    machine.congestion_control = control;
    machine.receive_buffer = 64 << 20;
    machine.send_buffer = 64 << 20;
    machine
}

fn endless() -> Plan {
    Plan {
        send: u64::MAX / 2,
        trusting: true,
        ..Plan::default()
    }
}

fn sink() -> Plan {
    Plan {
        trusting: true,
        ..Plan::default()
    }
}

/// Runs for some seconds; what each connection of a host has read then.
fn after(net: &mut Net, host: usize, seconds: u64) -> Vec<u64> {
    let until = net.sim.now() + Duration::from_secs(seconds);
    net.sim.run_until(until);
    let peers = net.host(host).peers.values();
    peers.map(|peer| peer.read).collect()
}

/// One connection over a link of this rate, with this round trip. Returns the percentage of the link that its data
/// filled in the second half of twice `seconds`, and the smoothed round trip at the end in milliseconds.
fn alone(mbps: u64, rtt_ms: u64, loss: f64, seconds: u64) -> (f64, f64) {
    let machine = machine(CongestionControl::Bbr);
    let far = LinkConfig::new()
        .delay(Duration::from_micros(rtt_ms * 500))
        .loss(Loss::Bernoulli(loss));
    let narrow = LinkConfig::new()
        .rate_bps(mbps * 1_000_000)
        .queue_packets(100_000);
    let hosts = vec![(machine.clone(), endless(), narrow), (machine, sink(), far)];
    let mut net = net(7, hosts);
    net.with(1, |host, now| host.listen(now));
    let id = net.with(0, |host, now| host.connect(now, 1));
    let before = after(&mut net, 1, seconds)[0];
    let read = after(&mut net, 1, seconds)[0] - before;
    let stats = net.host(0).endpoint.conn_stats(id).unwrap();
    let rtt = stats.smoothed_rtt.map_or(0, |rtt| rtt.total_micros());
    let share = read as f64 * 8.0 * 100.0 / (mbps * 1_000_000 * seconds) as f64;
    (share, rtt as f64 / 1e3)
}

/// The queue before the link takes 100,000 packets: slow start would fill it, and losses of 1 % would leave a window
/// of some 14 segments.
#[test]
fn it_fills_links_keeps_queues_short_and_sends_on_through_losses() {
    for mbps in [10, 100, 1000] {
        let seconds = match mbps {
            1000 if cfg!(debug_assertions) => continue,
            1000 => 4,
            _ => 20,
        };
        for (rtt_ms, loss) in [
            (2, 0.0),
            (2, 0.01),
            (20, 0.0),
            (20, 0.01),
            (100, 0.0),
            (100, 0.01),
        ] {
            let (share, rtt) = alone(mbps, rtt_ms, loss, seconds);
            let case =
                format!("{mbps} Mbit/s, {rtt_ms} ms, loss {loss}: {share:.1} %, {rtt:.1} ms");
            println!("{case}");
            assert!(share >= 85.0, "{case}");
            assert!(rtt <= 1.4 * rtt_ms as f64 + 8.0, "{case}");
        }
    }
}

/// A flow of BBR fills a link of 20 Mbit/s with a queue of twice its product, and five seconds later another flow
/// begins. Returns the percentage that the first one has in the time after another five seconds.
fn beside(second: CongestionControl) -> f64 {
    let bbr = machine(CongestionControl::Bbr);
    let near = LinkConfig::new().delay(Duration::from_millis(5));
    let narrow = near
        .rate_bps(20_000_000)
        .queue_packets(70)
        .jitter(Duration::from_micros(600));
    let hosts = vec![
        (bbr.clone(), sink(), narrow),
        (bbr, endless(), near),
        (machine(second), endless(), near),
    ];
    let mut net = net(3, hosts);
    net.with(0, |host, now| host.listen(now));
    net.with(1, |host, now| host.connect(now, 0));
    after(&mut net, 0, 5);
    net.with(2, |host, now| host.connect(now, 0));
    let before = after(&mut net, 0, 5);
    let then = after(&mut net, 0, 60);
    let [first, second] = [0, 1].map(|flow| (then[flow] - before[flow]) as f64);
    100.0 * first / (first + second)
}

#[test]
fn a_flow_of_bbr_gives_way_to_a_second_one() {
    let share = beside(CongestionControl::Bbr);
    println!("beside BBR: {share:.1} %");
    assert!((40.0..=60.0).contains(&share), "{share:.1} %");
}

/// BBR and CUBIC do not share evenly; neither may starve the other.
#[test]
fn a_flow_of_bbr_and_one_of_cubic_both_go_on() {
    let share = beside(CongestionControl::Cubic);
    println!("beside CUBIC: {share:.1} %");
    assert!((20.0..=80.0).contains(&share), "{share:.1} %");
}
