//! Late data choice (LDC): a packet ring whose sender can change its mind about what it has sent, until the
//! moment the other side takes it (LDC, `docs/papers.md`, chapters 3 and 4; the DCCP ring of
//! §3.2.1 and the TCP ring of §4.1).
//!
//! One [`Producer`], one [`Consumer`], one contiguous block of memory that may be shared by two processes. The producer
//! sends without a system call, drops by sequence number, modifies in place, or holds back everything
//! from a point on; the consumer claims messages in order, and what it has claimed is never touched.
//!
//! ```
//! use ldc_ring::{Attributes, Shape};
//!
//! let (mut producer, mut consumer) = ldc_ring::channel(Shape::new(8, 1500)?);
//! for layer in 0..4 {
//!     producer.send(layer, b"a frame's worth", Attributes::default())?;
//! }
//! let first = consumer.claim(None)?.unwrap(); // layer 0 is on its way
//!
//! assert_eq!(producer.drop(3).changed, 1); // the link is slow: not that one
//! assert_eq!(producer.drop(0).too_late, 1);
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
//! # How to drive it
//!
//! ```text
//! producer:  send ... send, then: if notify() { wake the consumer }
//!            drop, modify, hold_back ... release, then notify likewise
//!            poll_ack until None
//! consumer:  loop { while let Some(message) = claim(now)? { use it; complete(message) }
//!                   if idle() { sleep until woken } }
//! ```
//!
//! How one side wakes the other is the caller's: a futex or an eventfd in `ldc-linux`, an interrupt
//! on a microcontroller, a thread's `unpark`.
//!
//! # Who owns what
//!
//! The indexes of the paper stand in the block:
//!
//! | index | written by | says |
//! | --- | --- | --- |
//! | `user_i` | producer | just above the newest message: what is below was sent |
//! | `umod_i` | producer | the oldest message it holds back, else `user_i` (a hint) |
//! | `kern_i` | consumer | the oldest message not claimed (a hint) |
//! | `dev_i` | consumer | the oldest message claimed and not completed, else `kern_i`: what is below is free again |
//!
//! Between `dev_i` and `user_i` one atomic word a message decides, and it alone:
//!
//! | state | owner | leaves it by |
//! | --- | --- | --- |
//! | ready | whoever swaps first | producer: held, dead; consumer: claimed |
//! | held | producer | producer: ready, dead |
//! | dead, claimed, done | consumer | consumer: done; then `dev_i` passes over it, in the order of the ring |
//!
//! Figure 3.6 shows why indexes alone cannot decide: the consumer may move `kern_i` while the producer moves
//! `umod_i` back. Here the producer swaps the state of the first message it wants back from "ready" to
//! "held". If that succeeds the consumer, which takes messages in order, gets none from there on; if it
//! does not, the message was claimed, and the next one is tried.
//!
//! # Units and bounds
//!
//! | what | unit or bound |
//! | --- | --- |
//! | slots | 1 to 2^20, rounded up to a power of two |
//! | slot | 1 byte to 16 MiB, rounded up to 64 |
//! | message | 0 bytes to the whole ring; it takes [`Shape::pieces`] slots |
//! | block | [`Shape::block_len`]: 512 bytes, 40 bytes a slot, and the payload; aligned to 128 |
//! | the producer's index | one [`Entry`] (40 bytes) a slot, in memory of its own |
//! | the consumer's map of completed slots | one bit a slot, in memory of its own: [`Shape::completed_words`] |
//! | sequence numbers | the user's, any 64 bits, may repeat |
//! | deadlines | microseconds of a clock that both sides share |
//! | queue of acknowledgements | one a slot; beyond that [`Consumer::ack`] says so |
//! | a message is known | until its slots are used again; then [`Producer`] has never heard of it |
//! | a [`Ticket`] | for 2^28 slots more; after that it may mark another message |
//!
//! `send`, `drop`, `modify`, `claim`, `complete` and `ack` take constant time for a message of one slot,
//! `drop` and `modify` as long as few messages share a sequence number. `hold_back` looks at each message that
//! it holds back, `retain` and `pending` at each in the ring.
//!
//! In a ring of 64 slots or more the consumer tells a producer that waits for room of an eighth of the ring
//! at a time (at most 128 slots), and of all that is free when it has completed all it knows of, finds
//! nothing to claim, goes idle or closes. Until then `send` may say [`SendError::Full`] although a few slots
//! are free; [`Producer::free_slots`] looks at `dev_i` itself, and from then on `send` knows.
//!
//! # The edges
//!
//! | what | what happens |
//! | --- | --- |
//! | no slots, slots of no bytes, a block of 2 GiB | [`ShapeError`] |
//! | a ring of one slot | works: one message at a time |
//! | a message of no bytes | takes a slot, arrives |
//! | a message larger than a slot | takes several, one sequence number, claimed and dropped as a whole |
//! | a message larger than the ring | [`SendError::TooLong`], for good |
//! | no room at the moment | [`SendError::Full`], nothing was sent |
//! | positions wrap at 2^32, sequence numbers at 2^64 | nothing happens |
//! | drop of what was never sent, or has left the ring | zeros |
//! | drop of what is claimed | `too_late` counts it, it arrives |
//! | drop of what is dropped | zeros |
//! | modify of such messages | [`ModifyError`] says which of these it was |
//! | hold-back of what is gone but known | holds all that was sent after it |
//! | the producer dies | what it sent arrives, but for what it held back; it cannot be taken over ([`AttachError::InUse`]) |
//! | the consumer dies | the next one goes on: what was claimed and not completed is claimed again, and cannot be changed meanwhile |
//!
//! # When the other side misbehaves, or dies
//!
//! Each side keeps what it relies on (its positions, lengths, the producer's index, the consumer's map of completed
//! slots) in memory of its own, and checks every number that it reads from the block. What the consumer has claimed it never
//! looks up in the block again. A peer that writes nonsense there can make messages
//! disappear, or their bytes change: what it could do by following the rules, too. It cannot make
//! the other side read or write outside the block, loop or panic.
//!
//! Neither death shows in the ring: whoever shares it learns of it from the system (`ldc-linux` does).
//!
//! # Without compare-and-swap
//!
//! Claim, drop, modify and hold back need a 32-bit compare-and-swap; send, complete and the indexes need
//! loads and stores alone. Where the core has none (Cortex-M0), enable the feature `portable-atomic`, and in
//! your binary one of its features that say how to make one up (`critical-section`,
//! `unsafe-assume-single-core`). Without it the crate says so at compile time; so does the feature `alloc`,
//! whose `Arc` needs one, too.
//!
//! ```text
//! rustup target add thumbv6m-none-eabi thumbv7m-none-eabi
//! cargo build -p ldc-ring --no-default-features --target thumbv7m-none-eabi
//! RUSTFLAGS="--cfg portable_atomic_unsafe_assume_single_core" \
//!   cargo build -p ldc-ring --no-default-features --features portable-atomic --target thumbv6m-none-eabi
//! ```
//!
//! (The flag stands in for the binary's choice.) With Debian's compiler (`rustc-web cargo-web rust-web-src lld`) and no rustup, put
//! `RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc /usr/bin/cargo` before it and `-Zbuild-std=core` behind.

#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(any(feature = "std", loom))]
extern crate std;

mod block;
mod completed;
mod consumer;
mod index;
mod message;
mod payload;
mod place;
mod producer;
mod shape;
mod state;
mod sync;
pub mod window;

pub use block::AttachError;
pub use consumer::{AckQueueFull, Claimed, Consumer, ConsumerStats, Corrupt, Ticket};
pub use index::Entry;
pub use message::{Attributes, Changed, Sent};
pub use place::PayloadMut;
pub use producer::{ModifyError, Producer, SendError};
pub use proto_core::time::{Duration, Instant};
pub use shape::{Shape, ShapeError};

#[cfg(feature = "alloc")]
pub use heap::{Heap, channel};
#[cfg(not(loom))]
pub use lent::{Lent, Memory, split};

/// Rings in memory that is shared by two processes, or lies at a fixed place.
#[cfg(not(loom))]
mod raw {
    use core::ptr::NonNull;

    use crate::block::{AttachError, Block};
    use crate::sync::Ordering;
    use crate::{Consumer, Entry, Producer, Shape};

    impl<K, I: AsRef<[Entry]> + AsMut<[Entry]>> Producer<K, I> {
        /// Makes a ring in memory that others will attach to. Nothing that is there is kept.
        ///
        /// # Safety
        ///
        /// `memory` must be valid for reads and writes of `len` bytes for as long as `keep` lives, must
        /// not be reached through references meanwhile, and nobody may be attached to it yet.
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

        /// Becomes the producer of a ring that the other side made.
        ///
        /// # Safety
        ///
        /// `memory` must be valid for reads and writes of `len` bytes for as long as `keep` lives, and
        /// must not be reached through references meanwhile. There must be no other producer.
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
        /// Makes a ring in memory that others will attach to. Nothing that is there is kept.
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

        /// Becomes the consumer of a ring that the other side made, or of one whose consumer has died: then what
        /// that one had claimed and not completed is claimed again.
        ///
        /// # Safety
        ///
        /// `memory` must be valid for reads and writes of `len` bytes for as long as `keep` lives, and
        /// must not be reached through references meanwhile. There must be no other consumer.
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

/// Rings in memory that is lent: no allocator needed.
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
        /// Zeros.
        pub const fn new() -> Self {
            Self([0; N])
        }
    }

    impl<const N: usize> Default for Memory<N> {
        fn default() -> Self {
            Self::new()
        }
    }

    /// The two sides of a ring in borrowed memory (see [`Memory`]), with the producer's index in `index` and the
    /// consumer's map of completed slots in `completed`.
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
        // slice itself is not used any more.
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

        /// Keeps a block on the heap alive while one of its sides lives.
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

    /// The two sides of a ring on the heap.
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
    //! Positions wrap at 2^32: more than a test can send, so it starts just below.

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
            let mut dropped = Vec::new();
            for step in 0..60u64 {
                let len = (step % 3) as usize * 60;
                if producer
                    .send(step, &[step as u8; 180][..len], Attributes::default())
                    .is_ok()
                {
                    sent += 1;
                    if step % 5 == 0 && producer.drop(step).changed == 1 {
                        dropped.push(step);
                    }
                    if step % 7 == 0 {
                        producer.hold_back(step);
                        assert_eq!(
                            producer.modify(step, |_| ()).is_ok(),
                            !dropped.contains(&step)
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
            assert_eq!(seen.len() + dropped.len(), sent);
            assert!(seen.is_sorted() && seen.iter().all(|seq| !dropped.contains(seq)));
            assert!(sent > 30 || slots == 1, "{sent} of {slots}");
        }
    }
}
