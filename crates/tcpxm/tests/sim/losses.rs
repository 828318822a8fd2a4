//! What losses that have nothing to do with each other cost a group, in virtual time.

use netsim::{LinkConfig, Loss};
use tcpxm::{CongestionControl, Duration, Instant};

use crate::common::{Plan, config};
use crate::group::{assert_delivered, closed, group, group_net, lan, receivers, start};

/// The rate in Mbit/s at which `count` receivers get `len` bytes, until the last one has everything. The sender's
/// link takes 100 Mbit/s, with a queue of 1000 packets; each receiver loses 1 % independently, and the first one
/// `worst` if that is given.
fn mbps(
    control: CongestionControl,
    count: usize,
    rtt_ms: u64,
    len: u64,
    worst: Option<f64>,
) -> f64 {
    let mut machine = config();
    machine.congestion_control = control;
    machine.receive_buffer = 4 << 20;
    let narrow = LinkConfig::new().rate_bps(100_000_000).queue_packets(1000);
    let far = LinkConfig::new()
        .delay(Duration::from_micros(500 * rtt_ms))
        .loss(Loss::Bernoulli(0.01));
    let trusting = Plan {
        trusting: true,
        ..Plan::default()
    };
    let mut receivers = vec![(machine.clone(), trusting, far); count];
    if let Some(loss) = worst {
        receivers[0].2 = far.loss(Loss::Bernoulli(loss));
    }
    let mut net = group_net(3, (machine, narrow), receivers);
    // One lost SYN in forty would hide what losses cost later.
    let mut group = group(count);
    group.initial_rto = Some(Duration::from_millis(200));
    start(&mut net, &group, len);
    assert!(net.run(600, closed), "{:?}", net.host(0).events);
    assert_delivered(&net, 1..=count, len, "losses");
    let finished = (1..=count).filter_map(|host| net.host(host).finished_at);
    let last = finished.max().unwrap();
    len as f64 * 8.0 / last.total_micros() as f64
}

/// What repairs leave of the link: each costs one of its packets. With the smallest of all windows it is 53 Mbit/s for
/// 16 receivers and CUBIC, and 35 for BBR.
#[test]
fn receivers_that_lose_independently_do_not_slow_the_group_down() {
    let least = [
        (CongestionControl::Cubic, [80.0, 74.0]),
        (CongestionControl::Bbr, [80.0, 70.0]),
    ];
    for (control, least) in least {
        for (count, least) in [8, 16].into_iter().zip(least) {
            let mbps = mbps(control, count, 1, 32 << 20, None);
            println!("{control:?}, {count} receivers: {mbps:.1} Mbit/s");
            assert!(
                mbps >= least,
                "{control:?}, {count} receivers: {mbps:.1} Mbit/s"
            );
        }
    }
}

/// A window for 20 ms and 1 % is far from filling the link; that of eight receivers is still that of one.
#[test]
fn eight_receivers_have_the_window_of_one() {
    let [one, eight] =
        [1, 8].map(|count| mbps(CongestionControl::Cubic, count, 20, 32 << 20, None));
    println!("{one:.1} and {eight:.1} Mbit/s");
    assert!(eight > one * 0.6, "{one:.1} and {eight:.1} Mbit/s");
    let [one, eight] = [1, 8].map(|count| mbps(CongestionControl::Bbr, count, 20, 32 << 20, None));
    println!("{one:.1} and {eight:.1} Mbit/s");
    assert!(eight > one * 0.85, "{one:.1} and {eight:.1} Mbit/s");
}

/// The sender's own link loses 1 %: what is lost there, all eight receivers lack.
#[test]
fn what_all_receivers_lack_is_repaired_by_multicast() {
    let len = 8 << 20;
    let lossy: LinkConfig = lan().loss(Loss::Bernoulli(0.01));
    let mut net = group_net(5, (config(), lossy), receivers(8, lan()));
    start(&mut net, &group(8), len);
    assert!(net.run(600, closed), "{:?}", net.host(0).events);
    assert_delivered(&net, 1..=8, len, "shared losses");
    let stats = net.host(0).endpoint.stats();
    assert!(stats.shared_repairs > 20, "{stats:?}");
    assert!(
        stats.shared_repairs >= stats.retransmissions * 9 / 10,
        "{stats:?}"
    );
}

/// Seven receivers that lose 1 % do not make it worse for one that loses 8 %, nor does that one stop them.
#[test]
fn the_worst_receiver_alone_governs_the_rate() {
    let worst = |count| mbps(CongestionControl::Cubic, count, 20, 2 << 20, Some(0.08));
    let [one, eight] = [1, 8].map(worst);
    println!("{one:.2} and {eight:.2} Mbit/s");
    assert!(eight > one * 0.7, "{one:.2} and {eight:.2} Mbit/s");
    assert!(eight < one * 1.3, "{one:.2} and {eight:.2} Mbit/s");
}

/// Slow start fills the queue of a long path, and hundreds of segments between others are lost: several times what one
/// acknowledgement can report.
#[test]
fn an_overflow_on_a_long_path_is_repaired_within_a_few_round_trips() {
    for count in [1, 8] {
        let mut machine = config();
        machine.receive_buffer = 4 << 20;
        let narrow = LinkConfig::new().rate_bps(100_000_000).queue_packets(833);
        let far = LinkConfig::new().delay(Duration::from_millis(50));
        let trusting = Plan {
            trusting: true,
            ..Plan::default()
        };
        let receivers = vec![(machine.clone(), trusting, far); count];
        let mut net = group_net(3, (machine, narrow), receivers);
        let len = 8 << 20;
        start(&mut net, &group(count), len);
        assert!(net.run(600, closed), "{:?}", net.host(0).events);
        assert_delivered(&net, 1..=count, len, "overflow");
        let stats = net.host(0).endpoint.stats();
        assert!(stats.retransmissions > 500, "{stats:?}");
        let finished = (1..=count).filter_map(|host| net.host(host).finished_at);
        let last = finished.max().unwrap();
        println!("{count} receivers: {last}");
        // Slow start takes seven round trips, and the link 0.7 s for the data.
        assert!(last < Instant::from_millis(2_000), "{count}: {last}");
    }
}
