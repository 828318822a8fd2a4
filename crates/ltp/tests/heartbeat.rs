//! Heartbeats are sparse, and yet the end of a burst is told soon.

use std::net::SocketAddr;

use ltp::store::NullStore;
use ltp::{Duration, Instant, Sender, SenderConfig};

/// When heartbeats went while an application wrote a packet every `gap` for `time`, and when data.
fn run(gap: Duration, time: Duration) -> (Vec<Instant>, Vec<Instant>) {
    let mut config = SenderConfig::new(SocketAddr::from(([239, 1, 2, 3], 5000)));
    config.integrity = false;
    config.block_exponent = 10;
    config.max_packet_len = 1024 + ltp::wire::data::DATA_HEADER_LEN as u16;
    let mut sender = Sender::new(config, NullStore, [1; 32], Instant::ZERO).unwrap();
    let (mut syncs, mut data) = (Vec::new(), Vec::new());
    let mut buffer = [0; 2048];
    let mut now = Instant::ZERO;
    let start = Instant::from_millis(100);
    let mut next = start;
    while now < start + time {
        if now >= next {
            assert_eq!(sender.send(now, &[0; 1024]), Ok(1024));
            next += gap;
        }
        sender.handle_timeout(now);
        while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
            let sent = &buffer[..transmit.len];
            if sent[0] & 0xf == 3 {
                syncs.push(now);
            } else {
                data.push(now);
            }
        }
        now = sender.poll_timeout().unwrap().max(now).min(next);
    }
    syncs.retain(|&at| at >= start);
    (syncs, data)
}

#[test]
fn an_application_that_sends_again_and_again_needs_few() {
    for gap_us in [500, 1_000, 3_000, 7_000, 20_000] {
        let (syncs, data) = run(Duration::from_micros(gap_us), Duration::from_secs(2));
        assert!(
            data.len() as u64 >= 2_000_000 / gap_us - 1,
            "{}",
            data.len()
        );
        // One every 50 ms, and a few until that is found.
        assert!(
            syncs.len() <= 40 + 6,
            "every {gap_us} us: {} heartbeats",
            syncs.len()
        );
        assert!(
            syncs.len() >= 39,
            "every {gap_us} us: {} heartbeats",
            syncs.len()
        );
    }
}

#[test]
fn a_pause_is_announced_soon_and_then_rarely() {
    let (syncs, data) = run(Duration::from_millis(400), Duration::from_secs(4));
    for (index, &at) in data.iter().enumerate().skip(1) {
        let end = data
            .get(index + 1)
            .copied()
            .unwrap_or(at + Duration::from_millis(400));
        let told: Vec<_> = syncs
            .iter()
            .filter(|&&sync| sync > at && sync < end)
            .collect();
        assert!(
            *told[0] - at <= Duration::from_millis(2),
            "{told:?} after {at}"
        );
        assert!((2..=5).contains(&told.len()), "{told:?} after {at}");
    }
}
