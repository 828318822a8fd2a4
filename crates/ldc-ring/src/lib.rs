//! Late data choice (LDC): a packet ring whose producer can cancel or modify a message until the consumer claims it
//! (LDC §3.2.1, the DCCP ring, and §4.1, the TCP ring; `docs/papers.md`).
//!
//! One [`Producer`] and one [`Consumer`] share one contiguous block of memory, in one process or in two. The producer
//! sends without a system call, cancels by sequence number, modifies in place, or holds back all messages from one
//! message on. The consumer claims messages in order; a claimed message never changes.
//!
//! ```
//! use ldc_ring::{Attributes, Shape};
//!
//! let (mut producer, mut consumer) = ldc_ring::channel(Shape::new(8, 1500)?);
//! for layer in 0..4 {
//!     producer.send(layer, b"a frame's worth", Attributes::default())?;
//! }
//! let first = consumer.claim(None)?.unwrap(); // layer 0
//!
//! assert_eq!(producer.cancel(3).changed, 1); // the link is too slow for layer 3
//! assert_eq!(producer.cancel(0).too_late, 1);
//! producer.modify(2, |payload| payload.write(0, b"A")).unwrap();
//!
//! consumer.complete(first);
//! let mut sent = Vec::new();
//! while let Some(message) = consumer.claim(None)? {
//!     sent.push(message.user_seq());
//!     consumer.complete(message);
//! }
//! assert_eq!(sent, [1, 2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Driving the ring
//!
//! ```text
//! producer:  send ... send, then: if notify() { wake the consumer }
//!            or batch().send ... send, publish, then notify likewise
//!            cancel, modify, hold_back ... release, then notify likewise
//!            poll_ack until None
//! consumer:  loop { while let Some(message) = claim(now)? { use it; complete(message) }
//!                   if idle() { sleep until woken } }
//!            or, several at a time: claims(now).take(n), use them, complete_all
//! ```
//!
//! A [`Batch`] makes messages visible together. Where the consumer keeps up with the producer this is faster than sending
//! one by one: the two cores exchange the cache lines of the indexes once for the batch. The messages stay independent: the
//! consumer claims each by itself, and until then the producer can cancel or modify it, or hold it back.
//!
//! The caller chooses how one side wakes the other: a Unix socket in `ldc-linux`, an interrupt on a microcontroller,
//! `unpark` between threads.
//!
//! # Ownership
//!
//! The block holds the indexes of the paper:
//!
//! | index | written by | meaning |
//! | --- | --- | --- |
//! | `user_i` | producer | one past the newest message |
//! | `umod_i` | producer | oldest message held back, otherwise `user_i` (a hint) |
//! | `kern_i` | consumer | oldest message not claimed (a hint) |
//! | `dev_i` | consumer | oldest message claimed and not completed, otherwise `kern_i`; slots before it are free |
//!
//! For each message between `dev_i` and `user_i`, one atomic word decides its owner:
//!
//! | state | owner | transitions |
//! | --- | --- | --- |
//! | ready | the side that swaps first | producer: held, cancelled; consumer: claimed |
//! | held | producer | producer: ready, cancelled |
//! | cancelled, claimed, done | consumer | consumer: done; then `dev_i` passes over it, in the order of the ring |
//! | abandoned | consumer | as claimed: a claimed message that the producer no longer wants delivered |
//!
//! Figure 3.6 shows why indexes alone cannot decide: the consumer may move `kern_i` while the producer moves
//! `umod_i` back. Here the producer swaps the state of the first message that it holds back from "ready" to "held".
//! If the swap succeeds, the consumer, which takes messages in order, can claim neither this message nor any after
//! it. If the swap fails, the message was claimed, and the producer tries the next one.
//!
//! # Units and bounds
//!
//! | what | unit or bound |
//! | --- | --- |
//! | slots | 1 to 2^20, rounded up to a power of two |
//! | slot | 1 byte to 16 MiB, rounded up to 64 |
//! | message | 0 bytes up to the whole ring; it takes [`Shape::pieces`] slots |
//! | block | [`Shape::block_len`]: 512 bytes, 40 bytes per slot, and the payload; aligned to 128 |
//! | the producer's index | one [`Entry`] (40 bytes) per slot, in private memory |
//! | the consumer's map of completed slots | one bit per slot, in private memory: [`Shape::completed_words`] |
//! | sequence numbers | chosen by the user, any 64 bits, may repeat |
//! | deadlines | microseconds of a clock that both sides share |
//! | queue of acknowledgements | one per slot; then [`Consumer::ack`] returns [`AckQueueFull`] |
//! | lookup by sequence number | finds a message until its slots are reused |
//! | a [`Ticket`] | valid for 2^28 more slots; after that it may mark another message |
//!
//! `send`, `cancel`, `modify`, `claim`, `complete`, `ack` and publishing a batch take constant time for a message of one slot; `cancel`
//! and `modify` also take time in proportion to the messages that share the sequence number. `hold_back` visits each
//! message that it holds back, `retain` and `pending` visit each message in the ring.
//!
//! In a ring of 64 slots or more the consumer reports free slots to the producer in batches of an eighth of the ring
//! (at most 128 slots). It reports all free slots when it has completed every message that it has seen, finds nothing
//! to claim, goes idle or closes. Until then `send` may return [`SendError::Full`] although a few slots are free;
//! [`Producer::free_slots`] reads `dev_i` itself, and later calls of `send` use the result.
//!
//! # Edge cases
//!
//! | case | result |
//! | --- | --- |
//! | no slots, slots of no bytes, a block of 2 GiB | [`ShapeError`] |
//! | a ring of one slot | works with one message at a time |
//! | a message of no bytes | takes one slot and arrives |
//! | a message larger than a slot | takes several slots under one sequence number; claimed and cancelled as a whole |
//! | a message larger than the ring | [`SendError::TooLong`], permanently |
//! | too few free slots | [`SendError::Full`]; nothing was sent |
//! | a batch that is dropped, or a panic while it is filled | the messages sent before arrive |
//! | a batch that is leaked | its messages arrive with the next one sent |
//! | positions wrap at 2^32, sequence numbers at 2^64 | no effect |
//! | cancelling what was never sent, or has left the ring | zeros |
//! | cancelling a claimed message | `too_late` counts it, and it arrives |
//! | abandoning a claimed message | `too_late` counts it; whether it arrives is up to the consumer ([`Consumer::is_abandoned`]) |
//! | cancelling a cancelled message | zeros |
//! | modifying such messages | [`ModifyError`] names the case |
//! | holding back from a message that has left the ring but is still known | holds back all messages sent after it |
//! | the producer dies | its messages arrive, except those held back, and those from one on that it was modifying; it cannot be replaced ([`AttachError::InUse`]) |
//! | the consumer dies | its successor claims again what was claimed and not completed; until then these messages cannot change |
//!
//! # Priorities
//!
//! A ring is claimed in the order in which it was filled. Messages of different priorities go into rings of their own, one
//! per class, from which one consumer claims by a [`schedule::Scheduler`]: the most important class first, or all
//! classes in proportion to their weights.
//!
//! # Faulty and dead peers
//!
//! Each side keeps the state that it relies on (positions, lengths, the producer's index, the consumer's map of
//! completed slots) in private memory, and checks every number that it reads from the block. The consumer never reads
//! the record of a claimed message again. A faulty peer can make messages disappear or change their bytes, which it
//! could also do within the rules. It cannot make the other side access memory outside the block, loop or panic.
//!
//! The ring does not show that a peer has died. The caller learns it from the operating system, as `ldc-linux` does.
//!
//! # Without compare-and-swap
//!
//! Claim, cancel, modify and hold back need a 32-bit compare-and-swap; send, complete and the indexes need only
//! loads and stores. On a core without compare-and-swap (Cortex-M0), enable the feature `portable-atomic`, and in
//! your binary one of its features that select an implementation (`critical-section`, `unsafe-assume-single-core`).
//! Without it the crate does not compile; nor does it with the feature `alloc`, whose `Arc` needs a
//! compare-and-swap too.
//!
//! ```text
//! rustup target add thumbv6m-none-eabi thumbv7m-none-eabi
//! cargo build -p ldc-ring --no-default-features --target thumbv7m-none-eabi
//! RUSTFLAGS="--cfg portable_atomic_unsafe_assume_single_core" \
//!   cargo build -p ldc-ring --no-default-features --features portable-atomic --target thumbv6m-none-eabi
//! ```
//!
//! The flag stands for the choice of the binary. With Debian's compiler (`rustc-web cargo-web rust-web-src lld`) and
//! without rustup, use `RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc /usr/bin/cargo` and append `-Zbuild-std=core`.

#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(any(feature = "std", loom, polycast_faults))]
extern crate std;

mod abandon;
mod batch;
mod block;
mod completed;
mod consumer;
mod error;
#[cfg(polycast_faults)]
#[doc(hidden)]
pub mod faults;
mod index;
mod message;
mod payload;
mod payload_mut;
mod producer;
pub mod schedule;
mod shape;
mod state;
mod sync;
pub mod window;

pub use batch::{Batch, Claims};
pub use block::AttachError;
pub use consumer::{Claimed, Consumer, ConsumerStats, Ticket};
pub use error::{AckQueueFull, Corrupt, ModifyError, SendError};
pub use index::Entry;
pub use message::{Attributes, Changed, Sent};
pub use payload_mut::PayloadMut;
pub use producer::Producer;
pub use proto_core::time::{Duration, Instant};
pub use shape::{Shape, ShapeError};

#[cfg(feature = "alloc")]
pub use heap::{Heap, channel};
#[cfg(not(loom))]
pub use lent::{Lent, Memory, split};

/// Rings in memory that two processes share, or at a fixed address.
#[cfg(not(loom))]
mod raw {
    use core::ptr::NonNull;

    use crate::block::{AttachError, Block};
    use crate::sync::Ordering;
    use crate::{Consumer, Entry, Producer, Shape};

    impl<K, I: AsRef<[Entry]> + AsMut<[Entry]>> Producer<K, I> {
        /// Creates a ring in memory to which the consumer will attach. Overwrites the contents.
        ///
        /// # Errors
        ///
        /// The memory is too short or misaligned, or `index` has fewer entries than the ring has slots.
        ///
        /// # Safety
        ///
        /// `memory` must be valid for reads and writes of `len` bytes for as long as `keep` lives. No reference may
        /// cover it in that time, and neither side may be attached to it yet.
        pub unsafe fn create(
            memory: NonNull<u8>,
            len: usize,
            shape: Shape,
            keep: K,
            index: I,
        ) -> Result<Self, AttachError> {
            // SAFETY: the caller's promises are the ones asked for.
            let block = unsafe { Block::create(memory, len, shape, keep)? };
            Producer::over(block, index).ok_or(AttachError::IndexTooShort)
        }

        /// Attaches as producer to a ring that the consumer created.
        ///
        /// # Errors
        ///
        /// The memory holds no ring of this version, a producer has used it, or `index` is too short.
        ///
        /// # Safety
        ///
        /// `memory` must be valid for reads and writes of `len` bytes for as long as `keep` lives. No reference may
        /// cover it in that time, and there must be no other producer.
        pub unsafe fn attach(
            memory: NonNull<u8>,
            len: usize,
            keep: K,
            index: I,
        ) -> Result<Self, AttachError> {
            // SAFETY: the caller's promises are the ones asked for.
            let block = unsafe { Block::attach(memory, len, keep)? };
            // The first message that is sent begins in the first slot.
            if block.record(0).state.load(Ordering::Relaxed) != 0 {
                return Err(AttachError::InUse);
            }
            Producer::over(block, index).ok_or(AttachError::IndexTooShort)
        }
    }

    impl<K, D: AsRef<[u32]> + AsMut<[u32]>> Consumer<K, D> {
        /// Creates a ring in memory to which the producer will attach. Overwrites the contents.
        ///
        /// # Errors
        ///
        /// The memory is too short or misaligned, or `completed` has fewer than [`Shape::completed_words`] words.
        ///
        /// # Safety
        ///
        /// As for [`Producer::create`].
        pub unsafe fn create(
            memory: NonNull<u8>,
            len: usize,
            shape: Shape,
            keep: K,
            completed: D,
        ) -> Result<Self, AttachError> {
            // SAFETY: the caller's promises are the ones asked for.
            let block = unsafe { Block::create(memory, len, shape, keep)? };
            Consumer::over(block, completed).ok_or(AttachError::CompletedTooShort)
        }

        /// Attaches as consumer to a ring that the producer created, or whose consumer has died. Messages that a
        /// dead consumer had claimed and not completed are claimed again.
        ///
        /// # Errors
        ///
        /// The memory holds no ring of this version, or `completed` is too short.
        ///
        /// # Safety
        ///
        /// `memory` must be valid for reads and writes of `len` bytes for as long as `keep` lives. No reference may
        /// cover it in that time, and there must be no other consumer.
        pub unsafe fn attach(
            memory: NonNull<u8>,
            len: usize,
            keep: K,
            completed: D,
        ) -> Result<Self, AttachError> {
            // SAFETY: the caller's promises are the ones asked for.
            let block = unsafe { Block::attach(memory, len, keep)? };
            Consumer::over(block, completed).ok_or(AttachError::CompletedTooShort)
        }
    }
}

/// Rings in borrowed memory, without an allocator.
#[cfg(not(loom))]
mod lent {
    use core::marker::PhantomData;
    use core::ptr::NonNull;

    use crate::block::{AttachError, Block};
    use crate::{Consumer, Entry, Producer, Shape};

    /// The block's memory is borrowed for `'a`.
    #[derive(Clone, Copy, Debug)]
    pub struct Lent<'a>(PhantomData<&'a mut [u8]>);

    /// Memory with the alignment a ring needs: `Memory<{ SHAPE.block_len() }>`.
    #[repr(C, align(128))]
    pub struct Memory<const N: usize>(pub [u8; N]);

    impl<const N: usize> Memory<N> {
        /// Returns zeroed memory.
        pub const fn new() -> Self {
            Self([0; N])
        }
    }

    impl<const N: usize> Default for Memory<N> {
        fn default() -> Self {
            Self::new()
        }
    }

    /// Creates a ring in borrowed memory (see [`Memory`]) and returns both sides, with the producer's index in
    /// `index` and the consumer's map of completed slots in `completed`.
    ///
    /// # Errors
    ///
    /// The memory is too short or misaligned, or `index` or `completed` is too short.
    ///
    /// ```
    /// use ldc_ring::{Attributes, Entry, Memory, Shape};
    ///
    /// const SHAPE: Shape = match Shape::new(4, 64) {
    ///     Ok(shape) => shape,
    ///     Err(_) => panic!(),
    /// };
    /// let mut memory = Memory::<{ SHAPE.block_len() }>::new();
    /// let mut index = [Entry::EMPTY; SHAPE.slots() as usize];
    /// let mut completed = [0; SHAPE.completed_words()];
    /// let (mut producer, mut consumer) =
    ///     ldc_ring::split(&mut memory.0, SHAPE, &mut index, &mut completed).unwrap();
    /// producer.send(1, b"hello", Attributes::default()).unwrap();
    /// assert_eq!(consumer.claim(None).unwrap().unwrap().len(), 5);
    /// ```
    #[allow(clippy::type_complexity)] // two halves, each with its parameters
    pub fn split<'a>(
        memory: &'a mut [u8],
        shape: Shape,
        index: &'a mut [Entry],
        completed: &'a mut [u32],
    ) -> Result<
        (
            Producer<Lent<'a>, &'a mut [Entry]>,
            Consumer<Lent<'a>, &'a mut [u32]>,
        ),
        AttachError,
    > {
        let len = memory.len();
        let memory = NonNull::from(memory).cast();
        let keep = Lent(PhantomData);
        // SAFETY: the memory is borrowed mutably for 'a, which both halves carry in `Lent<'a>`, and the
        // slice itself is not used again.
        let (ours, theirs) = unsafe {
            (
                Block::create(memory, len, shape, keep)?,
                Block::attach(memory, len, keep)?,
            )
        };
        let producer = Producer::over(ours, index).ok_or(AttachError::IndexTooShort)?;
        let consumer = Consumer::over(theirs, completed).ok_or(AttachError::CompletedTooShort)?;
        Ok((producer, consumer))
    }
}

/// Rings on the heap, for two threads of one process.
#[cfg(feature = "alloc")]
mod heap {
    use alloc::boxed::Box;
    use alloc::vec;

    use crate::block::Block;
    use crate::{Consumer, Entry, Producer, Shape};

    #[cfg(not(loom))]
    mod memory {
        use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
        use alloc::sync::Arc;
        use core::ptr::NonNull;

        use crate::Shape;

        /// Keeps a block on the heap alive while either side lives.
        #[derive(Clone, Debug)]
        pub struct Heap(Arc<Memory>);

        #[derive(Debug)]
        struct Memory {
            memory: NonNull<u8>,
            layout: Layout,
        }

        // SAFETY: it only frees the memory, which any thread may.
        unsafe impl Send for Memory {}
        // SAFETY: it has no methods.
        unsafe impl Sync for Memory {}

        impl Heap {
            pub(super) fn new(shape: Shape) -> Heap {
                let layout = Layout::from_size_align(shape.block_len(), 128)
                    .expect("less than 2 GiB, and 128 is a power of two");
                // SAFETY: a block is never empty.
                let memory = unsafe { alloc_zeroed(layout) };
                let memory = NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout));
                Heap(Arc::new(Memory { memory, layout }))
            }

            pub(super) fn memory(&self) -> NonNull<u8> {
                self.0.memory
            }
        }

        impl Drop for Memory {
            fn drop(&mut self) {
                // SAFETY: allocated with this layout; both sides are gone.
                unsafe { dealloc(self.memory.as_ptr(), self.layout) };
            }
        }
    }

    #[cfg(not(loom))]
    pub use memory::Heap;

    /// Keeps a block of the model alive.
    #[cfg(loom)]
    pub type Heap = loom::sync::Arc<crate::block::model::Model>;

    /// Creates a ring on the heap and returns both sides.
    #[allow(clippy::type_complexity)] // two halves, each with its parameters
    pub fn channel(shape: Shape) -> (Producer<Heap, Box<[Entry]>>, Consumer<Heap, Box<[u32]>>) {
        #[cfg(not(loom))]
        let (ours, theirs) = {
            let heap = Heap::new(shape);
            let (memory, len) = (heap.memory(), shape.block_len());
            // SAFETY: the memory is of this size and alignment, new, and lives as long as `heap`'s clones.
            unsafe {
                (
                    Block::create(memory, len, shape, heap.clone()).expect("made for it"),
                    Block::attach(memory, len, heap).expect("just made"),
                )
            }
        };
        #[cfg(loom)]
        let (ours, theirs) = {
            let model = crate::block::model::Model::new(shape);
            (Block::model(shape, &model), Block::model(shape, &model))
        };
        let index = vec![Entry::EMPTY; shape.slots() as usize].into_boxed_slice();
        let producer = Producer::over(ours, index).expect("an entry for each slot");
        let completed = vec![0; shape.completed_words()].into_boxed_slice();
        let consumer = Consumer::over(theirs, completed).expect("a bit for each slot");
        (producer, consumer)
    }
}

#[cfg(all(test, feature = "alloc", not(loom)))]
mod tests {
    //! Positions wrap at 2^32. A test cannot send that many messages, so it starts just before the wrap.

    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn positions_and_rounds_wrap() {
        for (slots, before) in [(1, 5), (8, 20), (16, 3)] {
            let (mut producer, mut consumer) = channel(Shape::new(slots, 64).unwrap());
            let start = 0u32.wrapping_sub(before);
            producer.start_at(start);
            consumer.start_at(start);
            let mut sent = 0;
            let mut seen = Vec::new();
            let mut cancelled = Vec::new();
            for step in 0..60u64 {
                let len = (step % 3) as usize * 60;
                if producer
                    .send(step, &[step as u8; 180][..len], Attributes::default())
                    .is_ok()
                {
                    sent += 1;
                    if step % 5 == 0 && producer.cancel(step).changed == 1 {
                        cancelled.push(step);
                    }
                    if step % 7 == 0 {
                        producer.hold_back(step);
                        assert_eq!(
                            producer.modify(step, |_| ()).is_ok(),
                            !cancelled.contains(&step)
                        );
                        producer.release();
                    }
                }
                if step % 4 != 1 {
                    while let Some(message) = consumer.claim(None).unwrap() {
                        let mut bytes = [0; 180];
                        consumer.read(&message, 0, &mut bytes[..message.len()]);
                        let seq = message.user_seq();
                        assert!(bytes[..message.len()].iter().all(|byte| *byte == seq as u8));
                        seen.push(seq);
                        consumer.complete(message);
                    }
                }
            }
            assert_eq!(seen.len() + cancelled.len(), sent);
            assert!(seen.is_sorted() && seen.iter().all(|seq| !cancelled.contains(seq)));
            assert!(sent > 30 || slots == 1, "{sent} of {slots}");
        }
    }
}
