//! What links do to packets: exact times, loss in the long run, queues, the rest.

mod common;

use common::{Listener, Talker};
use netsim::{Duration, Instant, LinkConfig, LinkId, LinkStats, Loss, NodeId, Sim};

/// `packets` of `len` bytes, one each `gap`, over one link.
fn over(link: LinkConfig, packets: u64, len: usize, gap: Duration) -> (Sim, NodeId, LinkStats) {
    let mut sim: Sim = Sim::new([9; 32]);
    let talker = sim.add_node(Box::new(Talker::new(packets, len, gap)));
    let listener = sim.add_node(Box::new(Listener::default()));
    let link = sim.add_link(talker, listener, link);
    sim.run_to_rest();
    let stats = sim.link_stats(link)[0];
    (sim, listener, stats)
}

#[test]
fn a_packet_takes_its_transmission_time_and_the_delay() {
    // 1250 bytes at 10 Mbit/s take 1 ms; the delay is 5 ms.
    let link = LinkConfig::new()
        .rate_bps(10_000_000)
        .delay(Duration::from_millis(5));
    let (sim, listener, _) = over(link, 3, 1250, Duration::from_millis(10));
    let times: Vec<u64> = sim
        .get::<Listener>(listener)
        .heard
        .iter()
        .map(|h| h.0)
        .collect();
    assert_eq!(times, [6_000_000, 16_000_000, 26_000_000]);
}

#[test]
fn a_burst_leaves_at_the_rate_without_rounding_errors() {
    // 1000 bytes at 3 Mbit/s: 2666666 and 2/3 ns each; 300 of them take 0.8 s.
    let link = LinkConfig::new().rate_bps(3_000_000);
    let (sim, listener, _) = over(link, 300, 1000, Duration::ZERO);
    let heard = &sim.get::<Listener>(listener).heard;
    assert_eq!(heard.len(), 300);
    assert_eq!(heard[0].0, 2_666_666);
    assert_eq!(heard[2].0, 8_000_000);
    assert_eq!(heard[299].0, 800_000_000);
}

#[test]
fn overhead_counts_for_the_rate_only() {
    let link = LinkConfig::new().rate_bps(8_000_000).overhead_bytes(38);
    let (sim, listener, stats) = over(link, 1, 962, Duration::ZERO);
    assert_eq!(sim.get::<Listener>(listener).heard[0].0, 1_000_000);
    assert_eq!(stats.sent_bytes, 962);
}

#[test]
fn a_full_queue_drops_the_last() {
    // One packet is on the wire, two may wait.
    let link = LinkConfig::new().rate_bps(8_000_000).queue_packets(2);
    let (sim, listener, stats) = over(link, 10, 1000, Duration::ZERO);
    assert_eq!(sim.get::<Listener>(listener).numbers(), [0, 1, 2]);
    assert_eq!((stats.sent, stats.queue_full, stats.delivered), (10, 7, 3));

    let link = LinkConfig::new().rate_bps(8_000_000).queue_bytes(2999);
    let (sim, listener, _) = over(link, 10, 1000, Duration::ZERO);
    assert_eq!(sim.get::<Listener>(listener).numbers(), [0, 1, 2]);
}

#[test]
fn a_queue_drains_while_packets_leave() {
    // 1 ms each; one comes every 0.5 ms; two may wait: in the long run every second one passes.
    let link = LinkConfig::new().rate_bps(8_000_000).queue_packets(2);
    let (_, _, stats) = over(link, 1000, 1000, Duration::from_micros(500));
    assert!((500..=503).contains(&stats.delivered), "{stats:?}");
}

#[test]
fn long_packets_do_not_pass_the_mtu() {
    let (_, _, stats) = over(LinkConfig::new().mtu(1499), 2, 1500, Duration::ZERO);
    assert_eq!((stats.oversize, stats.delivered), (2, 0));
    let (_, _, stats) = over(LinkConfig::new().mtu(1500), 2, 1500, Duration::ZERO);
    assert_eq!((stats.oversize, stats.delivered), (0, 2));
}

fn share_lost(loss: Loss, extra: LinkConfig) -> f64 {
    let packets = 200_000;
    let (_, _, stats) = over(extra.loss(loss), packets, 8, Duration::from_micros(1));
    assert_eq!(stats.lost + stats.delivered, packets);
    stats.lost as f64 / packets as f64
}

#[test]
fn independent_loss_has_its_rate_with_and_without_other_limits() {
    for (loss, tolerance) in [(0.01, 0.001), (0.2, 0.004)] {
        for extra in [LinkConfig::new(), LinkConfig::new().mtu(1500)] {
            let share = share_lost(Loss::Bernoulli(loss), extra);
            assert!(
                (share - loss).abs() < tolerance,
                "{share} instead of {loss}"
            );
        }
    }
    assert_eq!(share_lost(Loss::Bernoulli(0.0), LinkConfig::new()), 0.0);
    assert_eq!(share_lost(Loss::Bernoulli(1.0), LinkConfig::new()), 1.0);
}

#[test]
fn gilbert_elliott_loss_is_stationary_and_comes_in_bursts() {
    let loss = Loss::GilbertElliott {
        good_to_bad: 0.01,
        bad_to_good: 0.2,
        loss_good: 0.001,
        loss_bad: 0.5,
    };
    let bad = 0.01 / 0.21;
    let expected = bad * 0.5 + (1.0 - bad) * 0.001;
    let share = share_lost(loss, LinkConfig::new());
    assert!(
        (share - expected).abs() < 0.002,
        "{share} instead of {expected}"
    );

    // Half of the losses in a bad run (mean length 5) are followed by another; independent losses
    // of the same rate would be in 2.5 % of the cases.
    let (sim, listener, stats) = over(LinkConfig::new().loss(loss), 200_000, 8, Duration::ZERO);
    let numbers = sim.get::<Listener>(listener).numbers();
    let gaps = numbers
        .windows(2)
        .filter(|pair| pair[1] > pair[0] + 1)
        .count();
    let mean_run = stats.lost as f64 / gaps as f64;
    assert!(
        (1.4..2.0).contains(&mean_run),
        "mean run of losses {mean_run}"
    );
}

#[test]
fn a_reordered_packet_is_overtaken() {
    let link = LinkConfig::new().reorder(0.1, Duration::from_millis(10));
    let (sim, listener, stats) = over(link, 10_000, 8, Duration::from_millis(1));
    let numbers = sim.get::<Listener>(listener).numbers();
    assert_eq!(numbers.len(), 10_000);
    assert!((800..1200).contains(&stats.reordered), "{stats:?}");
    let overtaken = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!((500..1200).contains(&overtaken), "{overtaken}");
    assert!(
        numbers
            .iter()
            .zip(0i64..)
            .all(|(n, i)| (*n as i64 - i).abs() <= 10)
    );
}

#[test]
fn jitter_delays_and_does_not_reorder() {
    let (delay, jitter) = (Duration::from_millis(5), Duration::from_millis(3));
    let link = LinkConfig::new().delay(delay).jitter(jitter);
    let (sim, listener, _) = over(link, 1000, 8, Duration::from_millis(1));
    let listener = sim.get::<Listener>(listener);
    assert!(listener.numbers().is_sorted());
    let late: Vec<u64> = (0..)
        .zip(&listener.heard)
        .map(|(number, heard)| heard.0 - number * 1_000_000)
        .collect();
    assert_eq!(late.len(), 1000);
    assert!(
        late.iter()
            .all(|late| (5_000_000..=8_000_000).contains(late))
    );
    assert!(late.iter().any(|late| *late < 5_300_000));
    assert!(late.iter().any(|late| *late > 7_700_000));
}

#[test]
fn duplicates_arrive_twice() {
    let (sim, listener, stats) = over(
        LinkConfig::new().duplicate(0.5),
        1000,
        8,
        Duration::from_millis(1),
    );
    let heard = sim.get::<Listener>(listener).heard.len() as u64;
    assert_eq!(heard, 1000 + stats.duplicated);
    assert!((400..600).contains(&stats.duplicated));
}

#[test]
fn corruption_flips_one_bit_of_one_copy() {
    let link = LinkConfig::new().corrupt(0.5);
    let (sim, listener, stats) = over(link, 1000, 40, Duration::from_millis(1));
    let heard = &sim.get::<Listener>(listener).heard;
    let mut corrupted = 0;
    for ((_, packet), number) in heard.iter().zip(0u64..) {
        let mut sent = [0; 40];
        sent[..8].copy_from_slice(&number.to_be_bytes());
        let bits: u32 = sent
            .iter()
            .zip(packet)
            .map(|(a, b)| (a ^ b).count_ones())
            .sum();
        assert!(bits <= 1);
        corrupted += u64::from(bits);
    }
    assert_eq!(corrupted, stats.corrupted);
    assert!((400..600).contains(&corrupted));
}

#[test]
fn a_link_can_change_while_it_runs() {
    let mut sim: Sim = Sim::new([9; 32]);
    let talker = sim.add_node(Box::new(Talker::new(10, 8, Duration::from_millis(10))));
    let listener = sim.add_node(Box::new(Listener::default()));
    sim.add_link(talker, listener, LinkConfig::new());
    sim.run_until(Instant::from_millis(45));
    let worse = LinkConfig::new().loss(Loss::Bernoulli(1.0));
    sim.set_link(LinkId(0), worse, worse);
    sim.run_to_rest();
    assert_eq!(sim.get::<Listener>(listener).numbers(), [0, 1, 2, 3, 4]);
}
