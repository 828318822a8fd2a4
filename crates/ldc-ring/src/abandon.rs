//! Giving up a message that the consumer has claimed: for consumers that take a while to deliver it, such as a QUIC
//! connection, which can reset the stream of a message until the peer has acknowledged it.

use crate::index::Entry;
use crate::message::Changed;
use crate::producer::Producer;
use crate::state::{ABANDONED, CLAIMED};

impl<K, I: AsRef<[Entry]> + AsMut<[Entry]>> Producer<K, I> {
    /// Cancels the messages with this sequence number that the consumer has not claimed, and asks the consumer to stop
    /// delivering those that it has claimed and not completed. Call [`Producer::notify`] afterwards.
    ///
    /// In the result, `changed` counts the cancelled messages and `too_late` the claimed ones. Whether these still arrive
    /// is up to the consumer: one that has handed a message to a device or to TCP cannot take it back, and ignores the
    /// request (see [`crate::Consumer::is_abandoned`]).
    ///
    /// ```
    /// use ldc_ring::{Attributes, Shape};
    ///
    /// let (mut producer, mut consumer) = ldc_ring::channel(Shape::new(8, 1500)?);
    /// producer.send(1, b"in flight", Attributes::default())?;
    /// producer.send(1, b"waiting", Attributes::default())?;
    /// let in_flight = consumer.claim(None)?.unwrap();
    ///
    /// let outcome = producer.abandon(1);
    /// assert_eq!((outcome.changed, outcome.too_late), (1, 1));
    /// assert!(consumer.is_abandoned(&in_flight));
    /// consumer.complete(in_flight);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abandon(&mut self, user_seq: u64) -> Changed {
        self.cancel_or(user_seq, |producer, position| {
            // If this fails, the message was acknowledged or completed, or is abandoned already.
            producer.swap(position, CLAIMED, ABANDONED);
        })
    }
}
