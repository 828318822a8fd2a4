//! How much parity is sent in advance.

use super::Advance;
use crate::config::Parity;

#[test]
fn a_share_is_rounded_up_and_is_no_more_than_the_block() {
    let mut advance = Advance::new(Parity::Percent(5));
    assert_eq!(
        [1, 20, 21, 64].map(|packets| advance.next(packets)),
        [1, 1, 2, 4]
    );
    let mut advance = Advance::new(Parity::Percent(255));
    assert_eq!(advance.next(10), 10);
    assert_eq!(Advance::new(Parity::OnRequest).next(64), 0);
}

/// Sends blocks of which receivers lack `lacking` packets; returns how much parity they get in advance in the end.
fn settle(lacking: impl Fn(u64) -> u32, blocks: u64) -> (u32, u64) {
    let mut advance = Advance::new(Parity::Auto);
    let (mut sent, mut requested) = (0, 0);
    for block in 0..blocks {
        sent = advance.next(47);
        let more = lacking(block).saturating_sub(sent);
        if more > 0 {
            advance.requested(47);
            requested += 1;
        }
    }
    (sent, requested)
}

#[test]
fn what_receivers_lack_in_most_blocks_is_sent_in_advance() {
    assert_eq!(settle(|_| 0, 1000).0, 0);
    let (sent, requested) = settle(|_| 3, 1000);
    assert!((2..=4).contains(&sent), "{sent}");
    assert!(requested < 250, "{requested} of 1000 blocks were requested");
    // One block of ten lacks a packet: that is repaired on request.
    assert_eq!(settle(|block| u32::from(block % 10 == 0), 1000).0, 0);
}

#[test]
fn receivers_that_request_without_need_cost_a_fifth() {
    let (sent, _) = settle(|_| 47, 1000);
    assert_eq!(sent, 9, "of 47");
    let mut advance = Advance::new(Parity::Auto);
    for _ in 0..1000 {
        advance.requested(47);
    }
    assert_eq!(advance.next(47), 9);
}
