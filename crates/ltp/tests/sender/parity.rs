//! When a request is answered with parity, and what parity in advance counts.

use ltp::wire::request::{Kind, Repr};
use ltp::{Duration, Meta, Parity};

use super::{BLOCK, Sent, Solo, at, content, host, request};

/// Packets of a block: parity must fit, so that they are shorter.
const PER_BLOCK: u32 = 5;

/// A sender that has sent some blocks, and the token of host 1.
fn busy(parity: Parity) -> (Solo, u64) {
    let mut solo = Solo::whole(&content(400 * BLOCK), |config| {
        config.parity = Some(parity);
        config.rate_bps = Some(1_000_000);
    });
    solo.run_to(at(100));
    assert_eq!(solo.sender.geometry().packets_per_block(), PER_BLOCK);
    let from = Meta::unicast(host(1));
    assert_eq!(solo.ask(&from, &request(Kind::Data, 0, 0)), Ok(()));
    let sent = solo.run_to(solo.now + Duration::from_millis(50));
    let token = sent.iter().find_map(Sent::ack).expect("a token").token;
    (solo, token)
}

/// Requests packets of a block, from an address that has shown its token.
fn ask(solo: &mut Solo, token: u64, block: u64, count: u32) {
    let first = block as u32 * PER_BLOCK;
    let lost = Repr {
        token,
        ..request(Kind::DataOrParity, first, first + count - 1)
    };
    assert_eq!(solo.ask(&Meta::unicast(host(1)), &lost), Ok(()));
}

fn answers(solo: &mut Solo) -> (usize, usize) {
    let sent = solo.run_to(solo.now + Duration::from_millis(30));
    let count = |kind| sent.iter().filter(|sent: &&Sent| sent.is(kind)).count();
    (count(2), count(10))
}

#[test]
fn a_block_that_is_not_sent_whole_is_repaired_with_its_packets() {
    let (mut solo, token) = busy(Parity::OnRequest);
    // One packet more than whole blocks have been sent.
    while solo.sender.stats().data_packets % u64::from(PER_BLOCK) != 1 {
        solo.run_to(solo.now + Duration::from_millis(1));
    }
    let block = solo.sender.stats().data_packets / u64::from(PER_BLOCK);
    ask(&mut solo, token, block, 1);
    assert_eq!(answers(&mut solo), (1, 0));
    ask(&mut solo, token, block - 1, 2);
    assert_eq!(answers(&mut solo), (0, 2));
}

#[test]
fn requests_for_much_of_a_block_bring_no_parity_in_advance() {
    for (count, brings) in [(1, true), (2, false)] {
        let (mut solo, token) = busy(Parity::Auto);
        for _ in 0..20 {
            let block = solo.sender.stats().data_packets / u64::from(PER_BLOCK) - 1;
            ask(&mut solo, token, block, count);
            answers(&mut solo);
        }
        let in_advance = solo.sender.stats().parity_in_advance;
        assert_eq!(in_advance > 0, brings, "{count}: {in_advance}");
    }
}
