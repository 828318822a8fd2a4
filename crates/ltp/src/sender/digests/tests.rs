#![cfg(feature = "alloc")]

use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use proto_core::time::Instant;

use super::*;
use crate::store::HeapRing;

#[test]
fn the_latest_digests_are_remembered() {
    let hashing = Hashing::new(None);
    let config = SenderConfig::new((Ipv4Addr::new(239, 1, 2, 3), 5_000).into());
    let mut digests = Digests::new(&config, vec![[0; 32]; 3].into());
    assert_eq!(digests.kept(0), None);
    for block in 0..5 {
        digests.push(&hashing, [block; 32], &[block]);
    }
    assert_eq!(digests.waiting(), 5);
    let kept = [0, 1, 2, 3, 4, 5].map(|block| digests.kept(block).map(|digest| digest[0]));
    assert_eq!(kept, [None, None, Some(2), Some(3), Some(4), None]);
    // After a restart, none of before.
    digests.skip_to(7);
    digests.push(&hashing, [7; 32], &[7]);
    assert_eq!((digests.kept(6), digests.kept(7)), (None, Some([7; 32])));
    let mut digests = Digests::new(&config, vec![].into());
    digests.push(&hashing, [0; 32], &[0]);
    assert_eq!(digests.kept(0), None);
}

/// The first block and the number of the digests in each packet of a stream above a relay: so many blocks are added
/// at a time. Packets have room for ten.
fn above_a_relay(added: &[usize], kept: usize) -> Vec<(u32, usize)> {
    let mut config = SenderConfig::new((Ipv4Addr::new(239, 1, 2, 3), 5_000).into());
    config.block_exponent = 10;
    config.max_packet_len = 340;
    config.limits.digests = kept;
    let store = HeapRing::new(64 << 10);
    let mut sender = Sender::new(config, store, [9; 32], Instant::ZERO).expect("a configuration");
    sender.repeat_digests();
    let mut told = Vec::new();
    let mut buffer = [0; 2_048];
    for milli in 0..100 * (added.len() as i64 + 1) {
        let now = Instant::from_millis(milli);
        sender.handle_timeout(now);
        while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
            if buffer[0] & 0xf == 4 {
                let (repr, _) = digests::Repr::parse(&buffer[..transmit.len]).expect("digests");
                told.push((repr.first_block, repr.count));
            }
        }
        if milli % 100 == 99
            && let Some(&blocks) = added.get(milli as usize / 100)
        {
            assert_eq!(sender.send(now, &vec![1; blocks << 10]), Ok(blocks << 10));
        }
    }
    told
}

#[test]
fn above_a_relay_the_last_digests_are_repeated_with_the_next() {
    // Three at least, and those of two such packets, as far as there is room.
    let each = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 4)];
    assert_eq!(above_a_relay(&[1; 5], 64), each);
    assert_eq!(above_a_relay(&[2; 4], 64), [(0, 2), (0, 4), (0, 6), (2, 6)]);
    assert_eq!(above_a_relay(&[3; 4], 64), [(0, 3), (0, 6), (0, 9), (3, 9)]);
    assert_eq!(above_a_relay(&[5, 6], 64), [(0, 5), (1, 10)]);
    // And as far as they are remembered.
    assert_eq!(above_a_relay(&[2; 3], 3), [(0, 2), (1, 3), (3, 3)]);
}
