#![cfg(feature = "alloc")]

use alloc::vec;
use core::net::Ipv4Addr;

use super::*;

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
