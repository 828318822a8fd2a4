//! Acknowledgements that are deferred because more packets have arrived ([`tcpxm::Endpoint::defer_acks`]).

use tcpxm::wire::Options;
use tcpxm::{Config, Seq};

use crate::hand::Hand;

const LEN: u32 = 1000;

/// A connection whose receive buffer has this length.
fn with_buffer(receive_buffer: usize) -> Hand {
    let mut config = Config::default();
    config.receive_buffer = receive_buffer;
    let options = Options {
        mss: Some(LEN as u16),
        window_scale: Some(7),
        sack_permitted: true,
        ..Options::default()
    };
    let mut hand = Hand::establish(config, options);
    // The window of a SYN is not scaled: the first data that is read opens it.
    two_more(&mut hand);
    hand.sent();
    hand
}

/// Hands in two segments in order, which the application reads, and defers; returns what is acknowledged then.
fn two_more(hand: &mut Hand) -> Vec<Seq> {
    for _ in 0..2 {
        let (seq, ack) = (hand.seq, hand.ack);
        hand.give(seq, ack, "A", &[7; LEN as usize]).unwrap();
        hand.seq = seq.plus(LEN);
    }
    hand.endpoint.defer_acks(hand.now);
    let told = hand.sent().iter().map(|sent| sent.ack).collect();
    hand.read();
    told
}

#[test]
fn acknowledgements_wait_for_more_data_at_most_5_ms() {
    let mut hand = with_buffer(1 << 20);
    assert!(two_more(&mut hand).is_empty());
    hand.wait(4);
    // Deferred again, which does not begin the time anew.
    assert!(two_more(&mut hand).is_empty());
    assert!(hand.sent().is_empty());
    hand.wait(1);
    let told: Vec<Seq> = hand.sent().iter().map(|sent| sent.ack).collect();
    assert_eq!(told, [hand.seq]);
    // The time of the next one begins with its own data.
    hand.wait(4);
    assert!(two_more(&mut hand).is_empty());
    hand.wait(4);
    assert!(hand.sent().is_empty());
    hand.wait(1);
    assert_eq!(hand.sent()[0].ack, hand.seq);
}

/// The last data that had arrived: nothing is deferred after it.
#[test]
fn data_after_which_nothing_waits_is_acknowledged_with_all_before() {
    let mut hand = with_buffer(1 << 20);
    assert!(two_more(&mut hand).is_empty());
    for _ in 0..2 {
        let (seq, ack) = (hand.seq, hand.ack);
        hand.give(seq, ack, "A", &[7; LEN as usize]).unwrap();
        hand.seq = seq.plus(LEN);
    }
    let sent = hand.sent();
    assert_eq!((sent.len(), sent[0].ack), (1, hand.seq));
    hand.wait(100);
    assert!(hand.sent().is_empty(), "nothing is told twice");
}

#[test]
fn no_more_than_a_quarter_of_the_buffer_and_512_kib_wait() {
    for (buffer, most) in [(64 << 10, 16 << 10), (8 << 20, 512 << 10)] {
        let mut hand = with_buffer(buffer);
        let start = hand.seq;
        let mut told = Vec::new();
        while told.is_empty() {
            told = two_more(&mut hand);
        }
        let unacked = told[0].since(start) as u64;
        // The window also moves when a quarter of the buffer was read.
        let slack = 2 * u64::from(LEN);
        assert!(unacked.abs_diff(most) <= slack, "{unacked} of {most}");
    }
}

/// The sender waits for these.
#[test]
fn what_tells_of_a_loss_is_never_deferred() {
    let mut hand = with_buffer(1 << 20);
    let (seq, ack) = (hand.seq, hand.ack);
    hand.give(seq.plus(LEN), ack, "A", &[7; LEN as usize])
        .unwrap();
    hand.endpoint.defer_acks(hand.now);
    assert_eq!(hand.sent()[0].options.sack.len(), 1, "a hole");
    hand.give(seq, ack, "A", &[7; LEN as usize]).unwrap();
    hand.endpoint.defer_acks(hand.now);
    assert_eq!(hand.sent()[0].ack, seq.plus(2 * LEN), "it is filled");
    // The segments after a hole are acknowledged one by one.
    hand.seq = seq.plus(2 * LEN);
    assert_eq!(two_more(&mut hand), [hand.seq]);
    let again = hand.give(seq, ack, "A", &[7; LEN as usize]);
    again.unwrap_err();
    hand.endpoint.defer_acks(hand.now);
    assert_eq!(hand.sent().len(), 1, "a duplicate");
    let mut hand = with_buffer(1 << 20);
    assert!(two_more(&mut hand).is_empty());
    hand.give(hand.seq, hand.ack, "FA", b"end").unwrap();
    hand.endpoint.defer_acks(hand.now);
    assert_eq!(hand.sent()[0].ack, hand.seq.plus(4), "the end");
}

#[test]
fn data_to_send_is_not_deferred_and_carries_the_acknowledgement() {
    let mut hand = with_buffer(1 << 20);
    assert!(two_more(&mut hand).is_empty());
    hand.send(b"answer");
    hand.endpoint.defer_acks(hand.now);
    let sent = hand.sent();
    assert_eq!((sent.len(), sent[0].ack), (1, hand.seq));
    assert_eq!(sent[0].payload, b"answer");
}
