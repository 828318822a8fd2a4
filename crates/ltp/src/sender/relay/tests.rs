#![cfg(feature = "alloc")]

use alloc::vec;
use core::net::Ipv4Addr;

use proto_core::time::Duration;

use super::*;
use crate::SenderConfig;
use crate::store::HeapRing;

/// A content of 16 blocks of four packets that was sent whole.
fn sent() -> Sender<'static, HeapRing> {
    let mut config = SenderConfig::new((Ipv4Addr::new(239, 1, 2, 3), 5_000).into());
    config.block_exponent = 10;
    config.max_packet_len = 272;
    config.length = Some(16 << 10);
    config.receiver_timeout = Duration::from_secs(4);
    let store = HeapRing::whole(vec![7; 16 << 10]);
    let mut sender = Sender::new(config, store, [9; 32], Instant::ZERO).expect("a configuration");
    let mut buffer = [0; 2_048];
    for milli in 0..50 {
        let now = Instant::from_millis(milli);
        sender.handle_timeout(now);
        while sender.poll_transmit(now, &mut buffer).is_some() {}
    }
    assert_eq!(sender.next_sequence(), 64);
    sender
}

/// What is below a relay that takes the place of another may have less than what was below that one.
#[test]
fn what_another_relay_acknowledges_is_progress_of_its_own() {
    let stalls = |is_new: bool| {
        let mut sender = sent();
        sender.acknowledged(Instant::from_secs(1), 40);
        if is_new {
            sender.relay_changed(Instant::from_secs(2));
        }
        for step in 0..10 {
            let now = Instant::from_secs(3 + i64::from(step));
            sender.acknowledged(now, 12 + step);
            sender.handle_timeout(now);
        }
        sender.is_relay_stalled()
    };
    assert!(!stalls(true));
    assert!(stalls(false), "it has acknowledged more before");
}
