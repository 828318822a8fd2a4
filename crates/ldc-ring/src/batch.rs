//! Batches: messages that become visible to the consumer together, and messages claimed or completed together.

use core::fmt;

use proto_core::time::Instant;

use crate::consumer::{Claimed, Consumer};
use crate::error::{Corrupt, SendError};
use crate::index::Entry;
use crate::message::Attributes;
use crate::payload_mut::PayloadMut;
use crate::producer::Producer;

impl<K, I: AsRef<[Entry]> + AsMut<[Entry]>> Producer<K, I> {
    /// Starts a batch: messages that become visible to the consumer together, when the batch is published or dropped.
    /// Where the consumer waits for messages this is cheaper than as many calls of [`Producer::send`]: the cache lines
    /// that it waits for move between the cores once for the whole batch.
    ///
    /// ```
    /// use ldc_ring::{Attributes, Shape};
    ///
    /// let (mut producer, mut consumer) = ldc_ring::channel(Shape::new(8, 1500)?);
    /// let mut batch = producer.batch();
    /// for layer in 0..3 {
    ///     batch.send(layer, b"a frame's worth", Attributes::default())?;
    /// }
    /// batch.publish();
    ///
    /// assert_eq!(producer.cancel(1).changed, 1); // each message can still be cancelled
    /// assert_eq!(consumer.claims(None).count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn batch(&mut self) -> Batch<'_, K, I> {
        Batch {
            producer: self,
            len: 0,
        }
    }
}

/// Messages that are in the ring and that the consumer does not see yet: see [`Producer::batch`].
///
/// Dropping a batch publishes it, also while a panic unwinds: then all messages become visible that were sent before the
/// panic. If it is leaked, its messages become visible with the next message that is sent.
#[must_use = "its messages become visible when it is dropped"]
pub struct Batch<'p, K, I: AsRef<[Entry]> + AsMut<[Entry]>> {
    producer: &'p mut Producer<K, I>,
    len: usize,
}

impl<K, I: AsRef<[Entry]> + AsMut<[Entry]>> Batch<'_, K, I> {
    /// As [`Producer::send`], but the consumer does not see the message before the batch is published.
    ///
    /// # Errors
    ///
    /// As [`Producer::send`]; the messages before this one stay in the batch. [`SendError::Full`]: the consumer cannot
    /// make room for a batch that it does not see, so publish it.
    #[inline(always)]
    pub fn send(
        &mut self,
        user_seq: u64,
        bytes: &[u8],
        attributes: Attributes,
    ) -> Result<(), SendError> {
        self.send_with(user_seq, bytes.len(), attributes, |payload| {
            payload.write(0, bytes);
        })
    }

    /// As [`Producer::send_with`], but the consumer does not see the message before the batch is published.
    ///
    /// # Errors
    ///
    /// As [`Batch::send`].
    #[inline(always)]
    pub fn send_with(
        &mut self,
        user_seq: u64,
        len: usize,
        attributes: Attributes,
        fill: impl FnOnce(&mut PayloadMut<'_, K>),
    ) -> Result<(), SendError> {
        let position = self.producer.append(user_seq, len, attributes, fill)?;
        let index = &mut self.producer.index;
        index.put(user_seq, position, len as u32, attributes);
        self.len += 1;
        Ok(())
    }

    /// Returns the number of messages in the batch.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the batch has no messages.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes the messages visible to the consumer, each of which it claims by itself: until then the producer can cancel or
    /// modify it, or hold it back. Call [`Producer::notify`] afterwards.
    pub fn publish(self) {}
}

impl<K, I: AsRef<[Entry]> + AsMut<[Entry]>> Drop for Batch<'_, K, I> {
    #[inline]
    fn drop(&mut self) {
        if self.len > 0 {
            self.producer.publish();
        }
    }
}

/// Shows the number of messages.
impl<K, I: AsRef<[Entry]> + AsMut<[Entry]>> fmt::Debug for Batch<'_, K, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl<K, D: AsRef<[u32]> + AsMut<[u32]>> Consumer<K, D> {
    /// Claims messages one after the other, as [`Consumer::claim`] does: each when the iterator is asked for it, so that
    /// the producer can change the rest. For consumers that pass several messages on at a time, for instance to a system
    /// call; to one that copies each message, [`Consumer::claim`] costs as much.
    ///
    /// The iterator ends when there is nothing to claim, and after a ring full of messages at the latest, because their
    /// slots become free only when they are completed. Dropping it early claims nothing more; what it has returned stays
    /// claimed.
    ///
    /// ```
    /// use ldc_ring::{Attributes, Shape};
    ///
    /// let (mut producer, mut consumer) = ldc_ring::channel(Shape::new(8, 1500)?);
    /// for seq in 0..5 {
    ///     producer.send(seq, b"payload", Attributes::default())?;
    /// }
    /// let claimed: Vec<_> = consumer.claims(None).take(4).collect::<Result<_, _>>()?;
    /// for message in &claimed {
    ///     let mut bytes = [0; 7];
    ///     consumer.read(message, 0, &mut bytes);
    ///     assert_eq!(&bytes, b"payload");
    /// }
    /// consumer.complete_all(claimed);
    /// assert_eq!(producer.cancel(4).changed, 1); // not claimed yet
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn claims(&mut self, now: Option<Instant>) -> Claims<'_, K, D> {
        Claims {
            consumer: self,
            now,
        }
    }

    /// Releases the slots of messages as [`Consumer::complete`] does, but writes `dev_i` once for all of them. If the
    /// consumer dies before that, its successor claims some or all of them again.
    ///
    /// # Panics
    ///
    /// If this consumer has not claimed one of the messages. Those before it are completed.
    pub fn complete_all(&mut self, messages: impl IntoIterator<Item = Claimed>) {
        /// Stores `dev_i` also if the iterator or a check panics.
        struct Release<'c, K, D: AsRef<[u32]> + AsMut<[u32]>>(&'c mut Consumer<K, D>);

        impl<K, D: AsRef<[u32]> + AsMut<[u32]>> Drop for Release<'_, K, D> {
            fn drop(&mut self) {
                self.0.release();
            }
        }

        let release = Release(self);
        for message in messages {
            release.0.complete_privately(&message);
        }
    }
}

/// Iterator over messages that it claims: see [`Consumer::claims`].
#[must_use = "nothing is claimed before the iterator is asked"]
pub struct Claims<'c, K, D> {
    consumer: &'c mut Consumer<K, D>,
    now: Option<Instant>,
}

impl<K, D: AsRef<[u32]> + AsMut<[u32]>> Iterator for Claims<'_, K, D> {
    type Item = Result<Claimed, Corrupt>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.consumer.claim(self.now).transpose()
    }
}

/// Shows the consumer.
impl<K, D> fmt::Debug for Claims<'_, K, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("consumer", &self.consumer)
            .field("now", &self.now)
            .finish()
    }
}
