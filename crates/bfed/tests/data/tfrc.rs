//! TFRC: each rule of RFC 5348 that the sender of a UDP channel follows.

use bfed::data::tfrc::Sender;
use bfed::wire::report::Repr as Report;
use bfed::*;

pub(crate) const START: Instant = Instant::from_secs(100);
/// Bytes of a segment.
pub(crate) const SEGMENT: usize = 1000;

pub(crate) fn millis(time: u64) -> Duration {
    Duration::from_millis(time)
}

#[track_caller]
pub(crate) fn close(got: f64, want: f64) {
    assert!((got / want - 1.0).abs() < 0.01, "{got}, expected {want}");
}

/// The throughput equation of section 3.1, with `t_RTO` of four round trips.
pub(crate) fn equation(size: f64, rtt: f64, p: f64) -> f64 {
    let root = |x: f64| x.sqrt();
    let timeout = 4.0 * rtt * (3.0 * root(3.0 * p / 8.0) * p * (1.0 + 32.0 * p * p));
    size / (rtt * root(2.0 * p / 3.0) + timeout)
}

/// Packets of `len` bytes that a sender lets pass at that moment.
fn burst(sender: &mut Sender, now: Instant, len: usize) -> usize {
    (0..1000).take_while(|_| sender.send(now, len)).count()
}

/// A report on a packet sent `rtt` ago.
fn report(now: Instant, rtt: Duration, received_rate: u32, loss: f64) -> Report {
    Report {
        echo_us: (now - rtt).total_micros() as u32,
        delay_us: 0,
        received_rate,
        loss: (loss * 4_294_967_296.0) as u32,
    }
}

/// A sender whose round-trip time is 100 ms, and the time of its first report.
fn measured(received_rate: u32) -> (Sender, Instant) {
    let mut sender = Sender::new(START, SEGMENT);
    let now = START + millis(100);
    sender.report(now, &report(now, millis(100), received_rate, 0.0));
    (sender, now)
}

#[test]
fn the_initial_window_is_that_of_rfc_3390() {
    for (size, packets) in [(100, 4), (1000, 4), (1400, 4), (2000, 3), (3000, 2)] {
        let mut sender = Sender::new(START, size);
        // It does not get lost while the application is idle.
        let now = START + millis(1500);
        assert_eq!(burst(&mut sender, now, size), packets, "{size}");
    }
    // Two long segments are more than its least: 6,000 bytes, here in shorter ones.
    let mut sender = Sender::new(START, 3000);
    assert_eq!(burst(&mut sender, START, 500), 12);
}

#[test]
fn without_a_report_one_segment_a_second_is_sent() {
    let mut sender = Sender::new(START, SEGMENT);
    assert_eq!(sender.rate(), 1000);
    assert_eq!(sender.rtt_us(), 0, "unknown");
    burst(&mut sender, START, SEGMENT);
    let mut now = START;
    let mut sent = 0;
    while now < START + millis(900) {
        let next = sender.next_send(now);
        assert!(next > now);
        now = next;
        assert!(sender.send(now, SEGMENT), "the time was announced");
        sent += 1;
        assert!(!sender.send(now, SEGMENT));
    }
    // One at once after the window, the next a second later.
    let waited = (now - START).total_millis();
    assert!(
        sent == 2 && (1000..=1004).contains(&waited),
        "{sent}, {waited}"
    );
}

#[test]
fn the_first_report_allows_an_initial_window_a_round_trip() {
    let (sender, now) = measured(1_000_000);
    close(sender.rate() as f64, 40_000.0);
    assert_eq!(sender.rtt_us(), 100_000);
    // Four round trips without a report halve it.
    assert_eq!(sender.poll_timeout(), now + millis(400));
}

#[test]
fn the_rate_doubles_once_a_round_trip_up_to_twice_the_received_rate() {
    let (mut sender, first) = measured(50_000);
    let now = first + millis(60);
    sender.report(now, &report(now, millis(100), 50_000, 0.0));
    close(sender.rate() as f64, 40_000.0);
    let now = first + millis(110);
    sender.report(now, &report(now, millis(100), 50_000, 0.0));
    close(sender.rate() as f64, 80_000.0);
    let now = first + millis(170);
    sender.report(now, &report(now, millis(100), 50_000, 0.0));
    close(sender.rate() as f64, 80_000.0);
    let now = first + millis(220);
    sender.report(now, &report(now, millis(100), 50_000, 0.0));
    close(sender.rate() as f64, 100_000.0);
    // While the application sends little, the best rate that was received counts.
    let now = first + millis(330);
    sender.report(now, &report(now, millis(100), 10_000, 0.0));
    close(sender.rate() as f64, 100_000.0);
}

#[test]
fn the_rate_never_falls_below_the_initial_one_without_loss() {
    let (mut sender, first) = measured(1_000);
    let now = first + millis(110);
    sender.report(now, &report(now, millis(100), 1_000, 0.0));
    close(sender.rate() as f64, 40_000.0);
}

#[test]
fn the_round_trip_time_is_a_moving_average_without_the_receivers_delay() {
    let mut sender = Sender::new(START, SEGMENT);
    let now = START + millis(100);
    let late = Report {
        delay_us: 40_000,
        ..report(now, millis(100), 1_000_000, 0.0)
    };
    sender.report(now, &late);
    assert_eq!(sender.rtt_us(), 60_000);
    let now = now + millis(200);
    sender.report(now, &report(now, millis(160), 1_000_000, 0.0));
    close(f64::from(sender.rtt_us()), 70_000.0);
    // The clock has a resolution: an answer in no time is no division by zero.
    let mut sender = Sender::new(START, SEGMENT);
    sender.report(START, &report(START, Duration::ZERO, 1_000_000, 0.0));
    assert_eq!(sender.rtt_us(), 100);
}

#[test]
fn samples_that_cannot_be_are_ignored() {
    let now = START + Duration::from_secs(90);
    let before = Sender::new(START, SEGMENT);
    for (age, delay_us) in [(60_000, 0), (70_000, 0), (10, 11_000)] {
        let mut sender = before.clone();
        let forged = Report {
            delay_us,
            ..report(now, millis(age), 1_000_000, 0.5)
        };
        sender.report(now, &forged);
        assert_eq!((sender.rtt_us(), sender.rate()), (0, before.rate()));
    }
    let mut sender = before.clone();
    sender.report(now, &report(now, millis(59_990), 1_000_000, 0.0));
    assert_eq!(sender.rtt_us(), 59_990_000);
}

#[test]
fn with_loss_the_equation_holds() {
    for p in [0.0001, 0.01, 0.3] {
        let (mut sender, first) = measured(4_000_000);
        let now = first + millis(110);
        sender.report(now, &report(now, millis(100), 4_000_000, p));
        close(sender.rate() as f64, equation(1000.0, 0.1, p).floor());
    }
    // Never less than a segment in 64 seconds.
    let mut sender = Sender::new(START, SEGMENT);
    let now = START + Duration::from_secs(50);
    sender.report(now, &report(now, Duration::from_secs(50), 4_000_000, 0.999));
    assert_eq!(sender.rate(), 15);
}

#[test]
fn with_loss_a_sender_with_little_data_keeps_near_the_received_rate() {
    // Section 4.3, step 4: data-limited, and the loss event rate has risen.
    let (mut sender, first) = measured(100_000);
    let now = first + millis(110);
    sender.report(now, &report(now, millis(100), 20_000, 0.001));
    close(sender.rate() as f64, 50_000.0);
    // It has not risen further: twice the most that was received.
    let now = now + millis(110);
    sender.report(now, &report(now, millis(100), 30_000, 0.001));
    close(sender.rate() as f64, 100_000.0);
    // The received rate counts with 85 % if that is more than half of those before.
    let (mut sender, first) = measured(100_000);
    let now = first + millis(110);
    sender.report(now, &report(now, millis(100), 90_000, 0.001));
    close(sender.rate() as f64, 76_500.0);
}

#[test]
fn with_loss_a_sender_with_much_data_has_twice_the_rate_of_the_last_two_round_trips() {
    let limited = |sender: &mut Sender, now| {
        while sender.send(now, SEGMENT) {}
    };
    let (mut sender, first) = measured(100_000);
    let mut now = first;
    for (wait, received, want) in [
        (110, 60_000, 200_000.0),
        (110, 50_000, 120_000.0),
        (110, 70_000, 140_000.0),
        // The rate before is too old to count.
        (210, 30_000, 60_000.0),
    ] {
        limited(&mut sender, now);
        now += millis(wait);
        limited(&mut sender, now);
        sender.report(now, &report(now, millis(100), received, 0.000_01));
        close(sender.rate() as f64, want);
    }
}

#[test]
fn without_reports_the_rate_halves_again_and_again() {
    let (mut sender, now) = measured(1_000_000);
    let mut now = now + millis(399);
    sender.handle_timeout(now);
    close(sender.rate() as f64, 40_000.0);
    now += millis(1);
    sender.handle_timeout(now);
    close(sender.rate() as f64, 20_000.0);
    assert_eq!(sender.poll_timeout(), now + millis(400));
    for rate in [10_000.0, 5_000.0] {
        now += millis(400);
        sender.handle_timeout(now);
        close(sender.rate() as f64, rate);
    }
    // Two segments take longer than four round trips now.
    now += millis(400);
    sender.handle_timeout(now);
    assert_eq!(sender.rate(), 2500);
    assert_eq!(sender.poll_timeout(), now + millis(800));
    for _ in 0..20 {
        now = sender.poll_timeout();
        sender.handle_timeout(now);
    }
    assert_eq!(sender.rate(), 15, "a segment in 64 seconds");
    assert_eq!(sender.poll_timeout(), now + Duration::from_secs(128));
}

#[test]
fn before_the_first_report_the_rate_halves_after_two_seconds() {
    let mut sender = Sender::new(START, SEGMENT);
    assert_eq!(sender.poll_timeout(), START + millis(2000));
    burst(&mut sender, START, SEGMENT);
    // Sending is enough to notice it.
    sender.send(START + millis(2000), SEGMENT);
    assert_eq!(sender.rate(), 500);
    assert_eq!(sender.poll_timeout(), START + millis(6000));
}

#[test]
fn bursts_are_ten_milliseconds_or_two_packets() {
    let (mut sender, now) = measured(1_000_000);
    burst(&mut sender, now, SEGMENT);
    // 40 kB/s: a packet in 25 ms.
    let now = now + millis(26);
    assert_eq!(burst(&mut sender, now, SEGMENT), 2, "the debt was little");
    let now = now + millis(390);
    sender.report(now, &report(now, millis(100), 1_000_000, 0.0));
    let now = now + millis(300);
    assert_eq!(burst(&mut sender, now, SEGMENT), 2);
    let now = now + millis(300);
    assert_eq!(burst(&mut sender, now, SEGMENT / 2), 4, "as many bytes");
    // 1 MB/s.
    let mut sender = Sender::new(START, SEGMENT);
    burst(&mut sender, START, SEGMENT);
    let now = START + millis(4);
    sender.report(now, &report(now, millis(4), 4_000_000, 0.0));
    close(sender.rate() as f64, 1_000_000.0);
    let now = now + millis(12);
    assert_eq!(burst(&mut sender, now, SEGMENT), 10);
}

#[test]
fn a_packet_that_is_longer_than_what_is_left_is_paid_off_before_the_next() {
    let (mut sender, now) = measured(1_000_000);
    burst(&mut sender, now, SEGMENT);
    let now = now + millis(1);
    assert!(sender.send(now, 8000), "something is left");
    assert!(!sender.send(now, 1));
    // 40 kB/s: 8,000 bytes take 200 ms.
    let next = sender.next_send(now);
    let wait = (next - now).total_millis();
    assert!((198..=201).contains(&wait), "{wait}");
    assert!(!sender.send(next - Duration::from_millis(1), 1));
    assert!(sender.send(next, 1));
}

#[test]
fn the_segment_size_follows_what_is_sent() {
    let mut sender = Sender::new(START, SEGMENT);
    let mut now = START;
    // Each halving without reports ends at a segment in 64 seconds.
    for _ in 0..60 {
        now = sender.next_send(now) + Duration::from_secs(1);
        sender.send(now, 6400);
    }
    now += Duration::from_secs(10_000);
    sender.handle_timeout(now);
    let rate = sender.rate();
    assert!((98..=100).contains(&rate), "{rate}");
}

#[test]
fn a_receiver_that_was_late_gets_the_initial_window_once_more() {
    let mut sender = Sender::new(START, SEGMENT);
    assert_eq!(burst(&mut sender, START, SEGMENT), 4);
    sender.handle_timeout(START + millis(2000));
    assert_eq!(sender.rate(), 500);
    let now = START + millis(2001);
    sender.ready(now);
    assert_eq!(
        (sender.rate(), sender.poll_timeout()),
        (1000, now + millis(2000))
    );
    assert_eq!(burst(&mut sender, now, SEGMENT), 4);
    sender.ready(now);
    assert_eq!(burst(&mut sender, now, SEGMENT), 0, "once");
    // One that has reported was ready before.
    let (mut sender, now) = measured(1_000_000);
    burst(&mut sender, now, SEGMENT);
    sender.ready(now);
    close(sender.rate() as f64, 40_000.0);
    assert_eq!(burst(&mut sender, now, SEGMENT), 0);
}

#[test]
fn packets_are_numbered_through_the_wrap() {
    let mut sender = Sender::new(START, SEGMENT);
    assert_eq!((sender.next_sequence(), sender.next_sequence()), (1, 2));
}

/// Sends until the rate allows no more.
fn exhaust(sender: &mut Sender, now: Instant) {
    while sender.send(now, SEGMENT) {}
}

#[test]
fn with_more_loss_the_greatest_of_the_last_received_rates_counts_by_half() {
    for [older, newer] in [[100_000, 40_000], [40_000, 100_000]] {
        let (mut sender, mut now) = measured(10_000);
        for rate in [older, newer] {
            exhaust(&mut sender, now);
            now += millis(110);
            sender.report(now, &report(now, millis(100), rate, 0.0));
        }
        // The sender had little data since.
        now += millis(50);
        sender.report(now, &report(now, millis(100), 20_000, 0.000_1));
        close(sender.rate() as f64, 50_000.0);
    }
}

#[test]
fn a_received_rate_counts_for_two_round_trips() {
    // The numbers have no rounding errors: a sixteenth of a second, and twice as much.
    let rtt = Duration::from_micros(62_500);
    for (later, want) in [(0, 400_000.0), (1, 100_000.0)] {
        let mut sender = Sender::new(START, SEGMENT);
        let mut now = START + rtt;
        sender.report(now, &report(now, rtt, 200_000, 0.0));
        exhaust(&mut sender, now);
        now += rtt * 2 + Duration::from_micros(later);
        exhaust(&mut sender, now);
        sender.report(now, &report(now, rtt, 50_000, 0.000_001));
        close(sender.rate() as f64, want);
    }
}
