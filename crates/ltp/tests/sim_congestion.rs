//! A sender with congestion control, in virtual time: links of several rates and delays, receivers behind slower
//! ones, and many receivers.

mod common;

use common::{
    FRAME_OVERHEAD, Group, content, files, has_content, host, link, receiver_config, sender_config,
};
use ltp::{Assist, Duration, Failure, ReceiverEvent, ReceiverFailure, SenderConfig, SenderEvent};

const MBIT: u64 = 1_000_000;
/// Ethernet frame of a data packet.
const FRAME_BITS: u64 = 8 * (1_436 + 42);

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn config(length: usize, receivers: u32) -> SenderConfig {
    let mut config = sender_config(length);
    config.rate_bps = None;
    config.congestion = true;
    config.receivers = Some(receivers);
    config
}

/// Gives the link to a receiver a rate, a round-trip time, and a queue of as much as is on the way, at least
/// 20 packets.
fn set_link(net: &mut Group, receiver: usize, rate_bps: u64, round_trip: Duration) {
    let on_the_way = rate_bps / 8 * round_trip.total_micros() / 1_000_000;
    let up = link().delay(round_trip / 2);
    let down = up.rate_bps(rate_bps).overhead_bytes(FRAME_OVERHEAD);
    let down = down.queue_bytes(on_the_way.max(20 * 1_500));
    net.sim.set_link(net.links[receiver], up, down);
}

/// Bits of data that got through the link to a receiver.
fn delivered(net: &Group, receiver: usize) -> u64 {
    let [_, down] = net.sim.link_stats(net.links[receiver]);
    (down.sent - down.queue_full) * FRAME_BITS
}

/// Runs for that time. Returns the share of a link of that rate that it used.
fn used(net: &mut Group, receiver: usize, rate_bps: u64, time: Duration) -> f64 {
    let before = delivered(net, receiver);
    net.run_for(time);
    let bits = delivered(net, receiver) - before;
    bits as f64 * 1e6 / time.total_micros() as f64 / rate_bps as f64
}

#[test]
fn alone_it_fills_a_link() {
    for (rate, round_trip) in [(10, 2), (10, 20), (10, 100), (100, 20)] {
        let (rate_bps, round_trip) = (rate * MBIT, ms(round_trip));
        let bytes = content((rate_bps / 8 * 10) as usize, 1);
        let mut net = files(&bytes, 1, 1, config(bytes.len(), 1), &receiver_config());
        set_link(&mut net, 0, rate_bps, round_trip);
        net.run_for(round_trip * 20 + ms(1_000));
        let soon = used(&mut net, 0, rate_bps, ms(500));
        let later = used(&mut net, 0, rate_bps, ms(5_000));
        let name = format!("{rate} Mbit/s, {round_trip:?}: {soon:.2}, {later:.2}");
        assert!(soon > 0.6 && later > 0.75, "{name}");
        let [_, down] = net.sim.link_stats(net.links[0]);
        let lost = down.queue_full as f64 / down.sent as f64;
        assert!(lost < 0.06, "{name}, lost {lost:.3}");
    }
}

#[test]
fn the_slowest_receiver_limits_until_it_has_everything() {
    let bytes = content(20_000_000, 1);
    let mut net = files(&bytes, 3, 1, config(bytes.len(), 3), &receiver_config());
    for (receiver, rate) in [(0, 100), (1, 20), (2, 100)] {
        set_link(&mut net, receiver, rate * MBIT, ms(20));
    }
    net.run_for(ms(2_000));
    let limiting = net.sender().limiting().map(|limiting| limiting.address);
    assert_eq!(limiting, Some(host(1)));
    let share = used(&mut net, 1, 20 * MBIT, ms(3_000));
    assert!((0.75..1.1).contains(&share), "{share:.2}");
    net.run_until(ms(60_000), |net| net.is_confirmed());
    net.check_content(&bytes);
    assert_eq!(net.sender().limiting(), None);
}

#[test]
fn a_near_receiver_does_not_drive_the_rate_beyond_a_slow_one() {
    let bytes = content(4_000_000, 1);
    let mut net = files(&bytes, 2, 1, config(bytes.len(), 2), &receiver_config());
    for (receiver, rate) in [(0, 80), (1, 2)] {
        set_link(&mut net, receiver, rate * MBIT, Duration::from_micros(200));
    }
    net.run_for(ms(3_000));
    let limiting = net.sender().limiting().map(|limiting| limiting.address);
    assert_eq!(limiting, Some(host(1)));
    let [_, down] = net.sim.link_stats(net.links[1]);
    let lost = down.queue_full as f64 / down.sent as f64;
    assert!(lost < 0.15, "lost {lost:.3} of {}", down.sent);
    // Every packet counts as one of data, and on a slow link one in five is a short PACE.
    let share = used(&mut net, 1, 2 * MBIT, ms(3_000));
    assert!((0.75..1.3).contains(&share), "{share:.2}");
}

#[test]
fn loss_counts_whoever_repairs_it() {
    let bytes = content(10_000_000, 1);
    let mut receiver = receiver_config();
    receiver.assist = Assist::Lms;
    let mut net = files(&bytes, 2, 1, config(bytes.len(), 2), &receiver);
    net.elect_replier();
    set_link(&mut net, 0, 100 * MBIT, ms(20));
    set_link(&mut net, 1, 10 * MBIT, ms(20));
    net.run_for(ms(3_000));
    let limiting = net.sender().limiting().map(|limiting| limiting.address);
    assert_eq!(limiting, Some(host(1)));
    let rate = net.sender().rate_bps().expect("a rate");
    assert!(rate < 12 * MBIT, "{rate}");
}

#[test]
fn a_receiver_below_the_lowest_rate_is_given_up_and_named() {
    let bytes = content(20_000_000, 1);
    let mut config = config(bytes.len(), 2);
    config.min_rate_bps = Some(5 * MBIT);
    let mut net = files(&bytes, 2, 1, config, &receiver_config());
    set_link(&mut net, 0, 50 * MBIT, ms(20));
    set_link(&mut net, 1, MBIT, ms(20));
    let is_given_up = |event: &SenderEvent| match event {
        SenderEvent::ReceiverFailed {
            address, failure, ..
        } => {
            assert_eq!((*address, *failure), (host(1), ReceiverFailure::TooSlow));
            true
        }
        _ => false,
    };
    net.run_until(ms(20_000), |net| {
        net.sender_events().iter().any(is_given_up)
    });
    net.run_until(ms(60_000), |net| has_content(net.receiver(0), &bytes));
    let failed = |event: &ReceiverEvent| match event {
        ReceiverEvent::Failed { failure, .. } => *failure == Failure::TooSlow,
        _ => false,
    };
    assert!(net.events(1).iter().any(failed), "{:?}", net.events(1));
    assert!(net.sender().stats().drops.get(ltp::Error::TooSlow) > 0);
}

#[test]
fn without_receivers_the_rate_falls_to_the_least() {
    let bytes = content(2_000_000, 1);
    let mut config = config(bytes.len(), 1);
    config.receivers = None;
    let mut net = files(&bytes, 1, 1, config, &receiver_config());
    net.set_deaf(0, true);
    net.run_for(ms(30_000));
    assert_eq!(net.sender().rate_bps(), Some(ltp::rate::FLOOR_BPS));
}

#[test]
fn feedback_of_many_receivers_is_a_few_packets_a_round() {
    let bytes = content(3_000_000, 1);
    let mut config = config(bytes.len(), 1);
    config.receivers = None;
    let mut net = files(&bytes, 100, 1, config, &receiver_config());
    for receiver in 0..100 {
        set_link(&mut net, receiver, 2 * MBIT, ms(20));
    }
    // Each receiver gets its token once.
    net.run_for(ms(3_000));
    let before = net.sender().stats().feedback;
    net.run_for(ms(8_000));
    let feedback = net.sender().stats().feedback - before;
    // The limiting receiver answers up to 50 times a second.
    assert!(feedback < 8 * 60, "{feedback} in 8 s");
}
