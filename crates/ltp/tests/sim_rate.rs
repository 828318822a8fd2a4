//! The rate of a sender without a configured one, in virtual time: links that carry less than it sends,
//! and receivers that are repaired by others.

mod common;

use common::{FRAME_OVERHEAD, Group, content, files, link, receiver_config, sender_config};
use ltp::rate::{FLOOR_BPS, RateSearch, Sent, TOLERATED_PER_MILLE};
use ltp::{Assist, Duration};

const LIMIT: Duration = Duration::from_secs(600);

/// An unlimited sender and two receivers, the second one behind a link of that rate; the first one repairs
/// what it loses, where `lms`.
fn unlimited(bytes: &[u8], bits_per_second: u64, lms: bool) -> Group {
    let mut sender = sender_config(bytes.len());
    sender.rate_bps = Some(ltp::rate::START_BPS);
    sender.receivers = Some(2);
    sender.receiver_timeout = Duration::from_secs(60);
    let mut receiver = receiver_config();
    receiver.assist = if lms { Assist::Lms } else { Assist::None };
    // Repairs leave capacity for data on the same link.
    receiver.replier.turning_point_rate_bps = bits_per_second / 4;
    let mut net = files(bytes, 2, 1, sender, &receiver);
    if lms {
        net.elect_replier();
    }
    slow_down(&mut net, bits_per_second);
    net
}

/// Gives the link to receiver 1 that rate, a delay of 1 ms, and a queue of 64 KiB.
fn slow_down(net: &mut Group, rate_bps: u64) {
    let up = link().delay(Duration::from_millis(1));
    let down = up.rate_bps(rate_bps).overhead_bytes(FRAME_OVERHEAD);
    net.sim
        .set_link(net.links[1], up, down.queue_bytes(64 << 10));
}

/// Drives the transfer for that time with the rate that `search` finds.
fn run(net: &mut Group, search: &mut RateSearch, time: Duration) {
    let end = net.now() + time;
    net.run_until(LIMIT, |net| {
        let stats = net.sender().stats();
        let sent = Sent {
            packets: stats.data_packets,
            frame_bytes: stats.frame_bytes,
        };
        net.with_sender(|sender, now| {
            let loss = sender.take_worst_loss();
            if search.update(now, sent, loss) {
                sender.set_rate(now, search.rate_bps());
            }
        });
        net.now() >= end || net.all_complete()
    });
}

/// The rate of the source, bit/s, and the share of the packets that the link dropped.
fn measured(net: &mut Group, search: &mut RateSearch, time: Duration) -> (u64, f64) {
    let state = |net: &Group| {
        let [_, down] = net.sim.link_stats(net.links[1]);
        (net.now(), net.source_bytes(), down)
    };
    let (began, bytes_before, before) = state(net);
    run(net, search, time);
    let (now, bytes, link) = state(net);
    let micros = (now - began).total_micros();
    let dropped = link.queue_full - before.queue_full;
    let share = dropped as f64 / (link.sent - before.sent) as f64;
    ((bytes - bytes_before) * 8_000_000 / micros, share)
}

/// With LMS this is the time in which the replier still repairs what the search lost. Later its repairs come in bursts
/// with the losses, and the link drops up to a tenth of all packets.
#[test]
fn without_a_rate_it_settles_where_a_receiver_loses_little() {
    for lms in [false, true] {
        let bytes = content(60_000_000, 1);
        let mut net = unlimited(&bytes, 20_000_000, lms);
        let mut search = RateSearch::new(net.now());
        run(&mut net, &mut search, Duration::from_secs(4));
        assert!(!net.all_complete());
        let (rate, share) = measured(&mut net, &mut search, Duration::from_secs(8));
        assert!(!net.all_complete(), "still sending");
        assert!((10_000_000..24_000_000).contains(&rate), "{rate} bit/s");
        assert!(share < 0.05, "{share}: it sends into a full link");
    }
}

/// A link of that rate without a queue, of which the receivers report every 100 ms: the rates of the
/// last half.
fn settles(link_bps: u64) -> Vec<u64> {
    let mut search = RateSearch::new(ltp::Instant::ZERO);
    let (mut now, mut sent) = (ltp::Instant::ZERO, Sent::default());
    let mut rates = Vec::new();
    for _ in 0..6000 {
        now += Duration::from_millis(100);
        let rate = search.rate_bps().expect("a rate");
        sent.packets += rate / 8 / 1500 / 10;
        sent.frame_bytes += rate / 80;
        let lost = 1000 - 1000 * link_bps.min(rate) / rate;
        search.update(now, sent, Some(lost as u16));
        rates.push(search.rate_bps().expect("a rate"));
    }
    rates.split_off(3000)
}

#[test]
fn it_goes_as_slow_as_the_slowest_link_needs_and_no_slower_than_its_floor() {
    for link in [1_000_000, 10_000_000, 1_000_000_000] {
        let rates = settles(link);
        let most = rates.iter().max().expect("rates");
        let least = rates.iter().min().expect("rates");
        assert!(*most <= link * 3 / 2, "{most} bit/s into {link}");
        assert!(*least >= link / 2, "{least} bit/s into {link}");
    }
    assert_eq!(settles(1_000).first(), Some(&FLOOR_BPS));
}

#[test]
fn receivers_report_their_own_loss_repaired_or_not() {
    let bytes = content(6_000_000, 3);
    let mut sender = sender_config(bytes.len());
    sender.receivers = Some(2);
    let mut receiver = receiver_config();
    receiver.assist = Assist::Lms;
    receiver.replier.turning_point_rate_bps = 5_000_000;
    let mut net = files(&bytes, 2, 3, sender, &receiver);
    net.elect_replier();
    // The link drops a part of the data that exceeds its rate.
    slow_down(&mut net, 90_000_000);
    let mut worst = None;
    net.run_until(LIMIT, |net| {
        worst = worst.max(net.with_sender(|sender, _| sender.take_worst_loss()));
        net.all_complete()
    });
    net.check_content(&bytes);
    let stats = net.sender().stats();
    let asked = stats.requests_group + stats.requests_unicast;
    let lost = net.receiver(1).stats().lost_packets;
    assert!(asked * 4 < lost, "{asked} requests for {lost} packets");
    let worst = worst.expect("a report");
    assert!(
        (TOLERATED_PER_MILLE..400).contains(&worst),
        "{worst} of 1000"
    );
}

#[test]
fn without_loss_it_doubles_and_stops_where_the_host_does() {
    let start = ltp::Instant::from_secs(1);
    let mut search = RateSearch::new(start);
    let mut sent = Sent::default();
    let mut now = start;
    for _ in 0..100 {
        now += Duration::from_millis(30);
        // A host that reaches 4 Gbit/s.
        let rate = search.rate_bps().unwrap_or(u64::MAX).min(4_000_000_000);
        sent.packets += rate / 8 / 1500 * 30 / 1000;
        sent.frame_bytes += rate / 8 * 30 / 1000;
        search.update(now, sent, Some(0));
    }
    let rate = search.rate_bps().expect("a rate");
    assert!((4_000_000_000..=16_000_000_000).contains(&rate), "{rate}");
    // Then a receiver loses a tenth.
    now += Duration::from_millis(30);
    sent.packets += 10_000;
    sent.frame_bytes += 15_000_000;
    assert!(search.update(now, sent, Some(100)));
    assert!(search.rate_bps().expect("a rate") <= rate / 8);
    // What is reported of older packets does not slow it down twice.
    now += Duration::from_millis(100);
    assert!(!search.update(now, sent, Some(100)));
}
