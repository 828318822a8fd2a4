//! The consumer of a ring that is compared with the oracle.

use ldc_ring::{Claimed, Consumer, Instant};

use super::priority;

/// The operations of the consumer, in this process or in another.
pub(crate) trait Takes {
    /// Sequence number and bytes of the next message, which stays claimed.
    fn claim(&mut self, now: i64) -> Option<(u64, Vec<u8>)>;
    /// The same for several messages.
    fn claim_batch(&mut self, now: i64, count: usize) -> Vec<(u64, Vec<u8>)> {
        std::iter::from_fn(|| self.claim(now)).take(count).collect()
    }
    /// Passes over cancelled messages. Returns how many slots it passed.
    fn skip(&mut self) -> u32;
    /// Completes the n-th of the messages that are claimed.
    fn complete(&mut self, nth: usize);
    /// Completes the oldest of the messages that are claimed.
    fn complete_all(&mut self, count: usize) {
        (0..count).for_each(|_| self.complete(0));
    }
    /// Acknowledges it. Returns whether the queue had room.
    fn ack(&mut self, nth: usize) -> bool;
    fn idle(&mut self) -> bool;
}

/// The consumer of this process.
pub(crate) struct Here<K, D> {
    pub(crate) consumer: Consumer<K, D>,
    pub(crate) claimed: Vec<Claimed>,
}

impl<K, D: AsRef<[u32]> + AsMut<[u32]>> Takes for Here<K, D> {
    fn claim(&mut self, now: i64) -> Option<(u64, Vec<u8>)> {
        self.claim_batch(now, 1).pop()
    }

    fn claim_batch(&mut self, now: i64, count: usize) -> Vec<(u64, Vec<u8>)> {
        let now = Some(Instant::from_micros(now));
        let from = self.claimed.len();
        let claims = self.consumer.claims(now).take(count);
        self.claimed.extend(claims.map(Result::unwrap));
        let read = |message: &Claimed| {
            let mut bytes = vec![0; message.len()];
            self.consumer.read(message, 0, &mut bytes);
            assert_eq!(message.priority(), priority(message.user_seq()));
            (message.user_seq(), bytes)
        };
        self.claimed[from..].iter().map(read).collect()
    }

    fn skip(&mut self) -> u32 {
        self.consumer.skip_cancelled().unwrap()
    }

    fn complete(&mut self, nth: usize) {
        self.consumer.complete(self.claimed.remove(nth));
    }

    fn complete_all(&mut self, count: usize) {
        self.consumer.complete_all(self.claimed.drain(..count));
    }

    fn ack(&mut self, nth: usize) -> bool {
        let ticket = self.claimed[nth].ticket();
        self.consumer.ack(ticket).is_ok()
    }

    fn idle(&mut self) -> bool {
        self.consumer.idle()
    }
}
