#![cfg(feature = "alloc")]

use alloc::vec;
use core::net::Ipv4Addr;

use super::*;
use crate::wire::Seq;

/// A DATA packet of 1,012 bytes and its headers.
const FRAME: usize = 1_024 + crate::wire::data::DATA_HEADER_LEN + FRAME_OVERHEAD;
const SMALL: usize = 100;

fn config(rate_bps: Option<u64>) -> SenderConfig {
    let mut config = SenderConfig::new((Ipv4Addr::new(239, 1, 2, 3), 5_000).into());
    config.block_exponent = 10;
    config.max_packet_len = (1_024 + crate::wire::data::DATA_HEADER_LEN) as u16;
    config.rate_bps = rate_bps;
    config
}

fn pacing(config: &SenderConfig) -> Pacing {
    let geometry = Geometry::for_packet_len(config.block_exponent, config.max_packet_len, Seq(0));
    Pacing::new(config, &geometry.expect("one packet"), Instant::ZERO)
}

fn at_us(micros: i64) -> Instant {
    Instant::from_micros(micros)
}

/// Repairs that go for each new packet while new data waits, and those at once after a long time without.
fn repairs(share_percent: u8) -> (usize, usize) {
    let mut config = config(None);
    config.repair.share_percent = share_percent;
    let mut pacing = pacing(&config);
    let repair = |pacing: &mut Pacing| {
        let mut count = 0;
        while pacing.has_credit() {
            pacing.spend_credit(FRAME);
            count += 1;
        }
        count
    };
    assert!(!pacing.has_credit());
    let mut count = 0;
    for _ in 0..1_000 {
        pacing.earn_credit();
        count += repair(&mut pacing);
    }
    for _ in 0..20_000 {
        pacing.earn_credit();
    }
    (count, repair(&mut pacing))
}

#[test]
fn repairs_get_their_share_beside_new_data() {
    let shares = [(75, 3_000), (50, 1_000), (20, 250), (98, 49_000), (1, 11)];
    for (percent, expected) in shares {
        let (count, saved) = repairs(percent);
        // The frame length is not a multiple of every share.
        let is_close = count.abs_diff(expected) <= expected / 100 + 1;
        assert!(is_close, "{count} repairs for 1,000 packets, {percent} %");
        assert_eq!(saved, 64, "{percent} %");
    }
    assert_eq!(repairs(0), repairs(1));
    assert_eq!(repairs(100), repairs(99));
}

#[test]
fn what_repairs_took_beyond_their_share_is_forgiven_and_what_they_saved_is_kept() {
    let mut pacing = pacing(&config(None));
    pacing.spend_credit(10 * FRAME);
    pacing.earn_credit();
    assert!(!pacing.has_credit());
    pacing.forgive_debt();
    assert!(!pacing.has_credit());
    pacing.earn_credit();
    assert!(pacing.has_credit());
    pacing.forgive_debt();
    assert!(pacing.has_credit());
}

#[test]
fn answers_take_a_tenth_of_the_rate_and_ten_megabits_at_most() {
    // 1 Mbit/s for answers is 125 bytes a millisecond, and so on.
    for (rate, bytes_per_second) in [
        (Some(10_000_000), 125_000),
        (Some(50_000), 1_250),
        (Some(1_000_000_000), 1_250_000),
        (None, 1_250_000),
    ] {
        let mut pacing = pacing(&config(rate));
        let mut sent = 0;
        while pacing.spend_answer(Instant::ZERO, SMALL) {
            sent += SMALL;
        }
        assert_eq!(sent, 16 * 1_024 / SMALL * SMALL, "{rate:?}");
        // 84 bytes are left.
        let wait_us = 16 * 1_000_000 / bytes_per_second;
        let ready = pacing.answer_at(SMALL);
        assert!((ready - at_us(wait_us)).total_micros() <= 1, "{ready}");
        assert!(!pacing.spend_answer(at_us(wait_us - 1), SMALL));
        assert!(pacing.spend_answer(ready, SMALL));
    }
}

#[test]
fn the_share_of_answers_follows_the_rate() {
    let config = config(Some(10_000_000));
    let mut pacing = pacing(&config);
    while pacing.spend_answer(Instant::ZERO, SMALL) {}
    pacing.set_rate(&config, Some(200_000), Instant::ZERO);
    // 20 kbit/s are 25 answers a second.
    let mut count = 0;
    for millis in 1..=10_000 {
        count += i32::from(pacing.spend_answer(Instant::from_millis(millis), SMALL));
    }
    assert_eq!(count, 250);
}

#[test]
fn an_answer_waits_for_the_rate_of_all_packets_too() {
    let mut pacing = pacing(&config(Some(8_000_000)));
    assert_eq!(pacing.answer_at(SMALL), Instant::ZERO);
    let burst = pacing.budget(Instant::ZERO);
    pacing.spend(burst);
    // A byte a microsecond.
    assert_eq!(pacing.answer_at(SMALL), at_us(100));
    assert_eq!(pacing.ready_at(40), at_us(40));
}

#[test]
fn bursts_are_as_long_as_configured_and_two_packets_at_least() {
    let burst = |rate_bps, name: usize| {
        let mut config = config(Some(rate_bps));
        config.burst = Duration::from_millis(4);
        let _ = config.name.resize(name, 0);
        pacing(&config).budget(Instant::ZERO)
    };
    assert_eq!(burst(8_000_000_000, 0), 4_000_000);
    assert_eq!(burst(8_000_000, 0), 4_000);
    assert_eq!(burst(80_000, 0), 2 * FRAME);
    // A heartbeat with a long name may be the longest packet.
    let mut config = config(Some(80_000));
    config.max_packet_len = 256 + crate::wire::data::DATA_HEADER_LEN as u16;
    let _ = config.name.resize(200, 0);
    let sync = 96 + 200 + 16 + FRAME_OVERHEAD;
    assert_eq!(pacing(&config).budget(Instant::ZERO), 2 * sync);
    // More than 4 GiB at once is no limit.
    config.rate_bps = Some(1_000_000_000_000);
    config.burst = Duration::from_secs(60);
    assert_eq!(pacing(&config).budget(Instant::ZERO), 1 << 32);
}

#[test]
fn data_goes_a_quarter_of_a_millisecond_at_a_time() {
    // How long that many bytes take, where all that may be sent at once was sent.
    let gathers = |rate_bps: u64, burst: Duration, bytes: usize| {
        let mut config = config(Some(rate_bps));
        config.burst = burst;
        let mut pacing = pacing(&config);
        let all = pacing.budget(Instant::ZERO);
        pacing.spend(all);
        let expected = (bytes as u64 * 8_000_000).div_ceil(rate_bps);
        let wait = pacing.data_at() - Instant::ZERO;
        assert_eq!(wait.total_micros(), expected, "{bytes} bytes");
    };
    let burst = Duration::from_millis(4);
    gathers(800_000_000, burst, 25_000);
    gathers(8_000_000, burst, FRAME);
    gathers(8_000_000_000, burst, 1 << 16);
    gathers(800_000_000, Duration::from_micros(100), 10_000);
}

#[test]
fn another_rate_counts_from_then_on() {
    let config = config(None);
    let mut pacing = pacing(&config);
    pacing.spend(1 << 30);
    assert_eq!(pacing.budget(Instant::ZERO), usize::MAX);
    assert_eq!(pacing.data_at(), Instant::ZERO);
    pacing.set_rate(&config, Some(8_000_000), at_us(500));
    let burst = pacing.budget(at_us(500));
    pacing.spend(burst);
    assert_eq!(pacing.ready_at(1_000), at_us(1_500));
    // What may go does not change with the rate.
    pacing.set_rate(&config, Some(80_000_000), at_us(500));
    assert_eq!(pacing.budget(at_us(500)), 0);
    assert_eq!(pacing.ready_at(1_000), at_us(600));
}

fn checked(capacity: usize, window: usize, targets: usize) -> Result<Geometry, ConfigError> {
    let mut config = config(None);
    config.limits.targets = targets;
    let mut storage = SenderStorage::owned(&config.limits, 0);
    storage.window = vec![0; window].into();
    storage.targets = vec![Default::default(); targets].into();
    check(&config, &crate::store::HeapRing::new(capacity), &storage)
}

#[test]
fn a_ring_holds_whole_blocks_two_at_least_and_the_window() {
    assert!(checked(2 * 1_024, 0, 1).is_ok());
    for capacity in [0, 1_024, 2_047, 3 * 1_024 - 1] {
        assert_eq!(checked(capacity, 0, 1), Err(ConfigError::Store));
    }
    assert!(checked(4 * 1_024, 5, 1).is_ok());
    assert_eq!(checked(4 * 1_024, 6, 1), Err(ConfigError::Store));
    assert_eq!(checked(4 * 1_024, 5, 0), Err(ConfigError::Storage));
}

#[test]
fn a_content_has_as_many_blocks_as_a_session_at_most() {
    let mut config = config(None);
    let storage = SenderStorage::owned(&config.limits, 0);
    let store = crate::store::NullStore;
    let most = Geometry::MAX_BLOCKS << 10;
    config.length = Some(most);
    assert!(check(&config, &store, &storage).is_ok());
    config.length = Some(most + 1);
    let too_long = check(&config, &store, &storage);
    assert_eq!(too_long, Err(ConfigError::Length));
    config.max_packet_len = crate::wire::data::DATA_HEADER_LEN as u16;
    let no_payload = check(&config, &store, &storage);
    assert_eq!(no_payload, Err(ConfigError::Geometry));
}
