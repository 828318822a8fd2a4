//! What the tests of the ring share.

use ldc_ring::{Consumer, Entry, Heap, Producer, Shape, channel};

pub(crate) type P = Producer<Heap, Box<[Entry]>>;
pub(crate) type C = Consumer<Heap, Box<[u32]>>;

pub(crate) fn ring(slots: u32, slot_bytes: u32) -> (P, C) {
    channel(Shape::new(slots, slot_bytes).unwrap())
}

/// Claims and completes all messages and returns their sequence numbers.
pub(crate) fn claim_all(consumer: &mut C) -> Vec<u64> {
    let mut seqs = Vec::new();
    while let Some(message) = consumer.claim(None).unwrap() {
        seqs.push(message.user_seq());
        consumer.complete(message);
    }
    seqs
}
