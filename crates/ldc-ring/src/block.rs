//! The block: one contiguous, position-independent piece of memory that both sides see.
//!
//! Nothing in it is an address. All words are atomics and all-zero is their initial value, so that any
//! content whatever can be read without harm; what is read is checked before it is used. The payload is
//! reached by copies through raw pointers alone (see [`crate::payload`]).

use core::fmt;
use core::ptr::NonNull;

use crate::message::Attributes;
use crate::payload::Payload;
use crate::shape::Shape;
use crate::sync::{AtomicU32, Ordering};

const MAGIC: u32 = u32::from_le_bytes(*b"LDCr");
const VERSION: u32 = 2;

/// Written once, by who makes the ring; checked by who attaches, and never read again.
#[repr(C, align(128))]
pub(crate) struct Geometry {
    magic: AtomicU32,
    version: AtomicU32,
    slots: AtomicU32,
    slot_bytes: AtomicU32,
}

/// Written by the producer alone.
#[repr(C, align(128))]
pub(crate) struct ProducerLine {
    /// Just above the newest position sent. Its release makes a message visible.
    pub(crate) user_i: AtomicU32,
    /// The oldest position the producer holds back; `user_i` when it holds none. A hint.
    pub(crate) umod_i: AtomicU32,
    /// Acknowledgements the producer has taken from the queue.
    pub(crate) ack_tail: AtomicU32,
    /// 1 once the producer has closed the ring.
    pub(crate) closed: AtomicU32,
}

/// What the producer looks at while all goes well. Written by the consumer, but for `kern_flag`, which the
/// producer clears.
#[repr(C, align(128))]
pub(crate) struct NewsLine {
    /// `dev_i` as the producer was last told of it: a producer that waits for room looks here, and not
    /// where the consumer writes with each message.
    pub(crate) told: AtomicU32,
    /// Acknowledgements put into the queue.
    pub(crate) ack_head: AtomicU32,
    /// 1 once the consumer has closed the ring.
    pub(crate) closed: AtomicU32,
    /// 1 while the consumer is idle and wants to be woken.
    pub(crate) kern_flag: AtomicU32,
}

/// Written by the consumer alone, with each message.
#[repr(C, align(128))]
pub(crate) struct ConsumerLine {
    /// The oldest position not yet claimed. A hint.
    pub(crate) kern_i: AtomicU32,
    /// The oldest position claimed and not yet given back; `kern_i` when there is none. Its release gives
    /// slots back, and a consumer that takes over from one that died goes on there.
    pub(crate) dev_i: AtomicU32,
}

#[repr(C)]
pub(crate) struct Head {
    pub(crate) geometry: Geometry,
    pub(crate) producer: ProducerLine,
    pub(crate) news: NewsLine,
    pub(crate) consumer: ConsumerLine,
}

/// What is known of the message that begins in a slot. All but `state` are the producer's while it owns
/// the message, and constant while the consumer does.
#[repr(C)]
pub(crate) struct Record {
    /// See [`crate::state`].
    pub(crate) state: AtomicU32,
    /// Bytes of the message, all its pieces together; with [`HAS_EXTRA`].
    pub(crate) len: AtomicU32,
    /// The user's sequence number.
    pub(crate) user_seq: Wide,
}

/// In a record's `len`: the message has attributes other than the defaults. Lengths are below 2^31.
pub(crate) const HAS_EXTRA: u32 = 1 << 31;

/// The attributes of a message, where they are not the defaults.
#[repr(C)]
pub(crate) struct Extra {
    /// Microseconds; `i64::MAX`: none.
    pub(crate) deadline: Wide,
    /// The user's, for the consumer's information.
    pub(crate) priority: AtomicU32,
    reserved: AtomicU32,
}

/// 64 bits in two words: there is no 64-bit atomic on a Cortex-M. Never shared while it changes.
#[repr(C)]
pub(crate) struct Wide {
    low: AtomicU32,
    high: AtomicU32,
}

impl Wide {
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        u64::from(self.low.load(Ordering::Relaxed))
            | u64::from(self.high.load(Ordering::Relaxed)) << 32
    }

    #[inline]
    pub(crate) fn store(&self, value: u64) {
        self.low.store(value as u32, Ordering::Relaxed);
        self.high.store((value >> 32) as u32, Ordering::Relaxed);
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Head>() == crate::shape::HEAD);
    assert!(size_of::<Record>() == crate::shape::RECORD);
    assert!(size_of::<Extra>() == crate::shape::EXTRA);
    assert!(size_of::<Wide>() == crate::shape::ACK);
};

/// Why a piece of memory is not a ring that can be attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// The memory is shorter than the ring it should hold: map all of it.
    TooShort,
    /// The memory does not begin at a multiple of 128.
    Misaligned,
    /// No ring was ever made here.
    NotARing,
    /// A ring of another version of this crate.
    Version(u32),
    /// The geometry makes no sense.
    Geometry,
    /// A producer has sent into this ring already: what it knew was its own, and cannot be taken over.
    /// Make a new ring.
    InUse,
    /// Fewer [`crate::Entry`]s than slots.
    IndexTooShort,
    /// Fewer words than [`Shape::completed_words`] for the consumer.
    CompletedTooShort,
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::TooShort => f.write_str("the memory is shorter than its ring"),
            AttachError::Misaligned => f.write_str("the memory is not aligned to 128 bytes"),
            AttachError::NotARing => f.write_str("there is no packet ring in this memory"),
            AttachError::Version(version) => {
                write!(f, "the ring has layout {version}, not {VERSION}")
            }
            AttachError::Geometry => f.write_str("the ring's geometry makes no sense"),
            AttachError::InUse => f.write_str("a producer has sent into this ring already"),
            AttachError::IndexTooShort => f.write_str("the index needs an entry for each slot"),
            AttachError::CompletedTooShort => {
                f.write_str("the consumer needs a bit for each slot: Shape::completed_words()")
            }
        }
    }
}

impl core::error::Error for AttachError {}

/// One side's view of the block, and what keeps the memory alive (`K`).
pub(crate) struct Block<K> {
    head: NonNull<Head>,
    records: NonNull<Record>,
    extras: NonNull<Extra>,
    acks: NonNull<Wide>,
    pub(crate) payload: Payload,
    pub(crate) shape: Shape,
    _keep: K,
}

// SAFETY: all that the pointers lead to are atomics, and payload that `Payload` copies under the
// protocol of the state words; who may copy is decided by them, not by the thread it happens in.
unsafe impl<K: Send> Send for Block<K> {}

impl<K> Block<K> {
    /// The geometry and the indexes.
    #[inline]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: `head` points at a live `Head` for as long as `_keep` lives (who makes a block
        // promises it), and a `Head` holds nothing but atomics.
        unsafe { self.head.as_ref() }
    }

    /// The record of a position.
    #[inline]
    pub(crate) fn record(&self, position: u32) -> &Record {
        // SAFETY: `slot` is below the number of slots, and there are as many records, which live as
        // long as `_keep` and hold nothing but atomics.
        unsafe { &*self.records.as_ptr().add(self.shape.slot(position)) }
    }

    /// The attributes of the message at a position.
    #[inline]
    pub(crate) fn extra(&self, position: u32) -> &Extra {
        // SAFETY: as for `record`: one a slot.
        unsafe { &*self.extras.as_ptr().add(self.shape.slot(position)) }
    }

    /// Writes the attributes of the message at a position.
    #[inline(never)]
    pub(crate) fn set_extra(&self, position: u32, attributes: Attributes) {
        let extra = self.extra(position);
        extra.deadline.store(attributes.deadline_micros() as u64);
        extra.priority.store(attributes.priority, Ordering::Relaxed);
    }

    /// The entry of the queue of acknowledgements for a count.
    #[inline]
    pub(crate) fn ack(&self, count: u32) -> &Wide {
        // SAFETY: as for `record`: one entry a slot.
        unsafe { &*self.acks.as_ptr().add(self.shape.slot(count)) }
    }
}

#[cfg(not(loom))]
impl<K> Block<K> {
    /// Makes a ring in zeroed or used memory.
    ///
    /// # Safety
    ///
    /// `memory` must be valid for reads and writes of `len` bytes for as long as `keep` (or a clone of
    /// it) lives, must not be reached through references meanwhile, and nobody else may be
    /// attached to it yet.
    pub(crate) unsafe fn create(
        memory: NonNull<u8>,
        len: usize,
        shape: Shape,
        keep: K,
    ) -> Result<Self, AttachError> {
        if len < shape.block_len() {
            return Err(AttachError::TooShort);
        }
        if !memory.as_ptr().cast::<Head>().is_aligned() {
            return Err(AttachError::Misaligned);
        }
        // SAFETY: the caller gives us `len` bytes alone; the payload needs no initial value.
        unsafe { memory.write_bytes(0, shape.payload_at()) };
        // SAFETY: long enough, aligned, zeroed, and the caller vouches for its life.
        let block = unsafe { Self::over(memory, shape, keep) };
        let geometry = &block.head().geometry;
        geometry.version.store(VERSION, Ordering::Relaxed);
        geometry.slots.store(shape.slots(), Ordering::Relaxed);
        geometry
            .slot_bytes
            .store(shape.slot_bytes(), Ordering::Relaxed);
        // The thesis starts the same way: a consumer that nobody has woken yet is idle.
        block.head().news.kern_flag.store(1, Ordering::Relaxed);
        geometry.magic.store(MAGIC, Ordering::Release);
        Ok(block)
    }

    /// Finds the ring in memory that another made, perhaps in another process.
    ///
    /// # Safety
    ///
    /// `memory` must be valid for reads and writes of `len` bytes for as long as `keep` lives, and must
    /// not be reached through references meanwhile.
    pub(crate) unsafe fn attach(
        memory: NonNull<u8>,
        len: usize,
        keep: K,
    ) -> Result<Self, AttachError> {
        if len < crate::shape::HEAD {
            return Err(AttachError::TooShort);
        }
        if !memory.as_ptr().cast::<Head>().is_aligned() {
            return Err(AttachError::Misaligned);
        }
        // SAFETY: long enough for a `Head` and aligned; any bits are valid atomics.
        let geometry = unsafe { &memory.cast::<Head>().as_ref().geometry };
        if geometry.magic.load(Ordering::Acquire) != MAGIC {
            return Err(AttachError::NotARing);
        }
        let version = geometry.version.load(Ordering::Relaxed);
        if version != VERSION {
            return Err(AttachError::Version(version));
        }
        // Read once: a peer that changes them later changes nothing for us.
        let slots = geometry.slots.load(Ordering::Relaxed);
        let slot_bytes = geometry.slot_bytes.load(Ordering::Relaxed);
        let shape = Shape::new(slots, slot_bytes).map_err(|_| AttachError::Geometry)?;
        if (shape.slots(), shape.slot_bytes()) != (slots, slot_bytes) {
            return Err(AttachError::Geometry);
        }
        if len < shape.block_len() {
            return Err(AttachError::TooShort);
        }
        // SAFETY: long enough for this shape, aligned, and the caller vouches for its life.
        Ok(unsafe { Self::over(memory, shape, keep) })
    }

    /// # Safety
    ///
    /// `memory` must hold `shape.block_len()` bytes, aligned to 128, valid while `keep` lives.
    unsafe fn over(memory: NonNull<u8>, shape: Shape, keep: K) -> Self {
        // SAFETY: all offsets lie within `block_len`, and are multiples of what they are cast to.
        unsafe {
            Self {
                head: memory.cast(),
                records: memory.add(shape.records_at()).cast(),
                extras: memory.add(shape.extras_at()).cast(),
                acks: memory.add(shape.acks_at()).cast(),
                payload: Payload::new(memory.add(shape.payload_at())),
                shape,
                _keep: keep,
            }
        }
    }
}

#[cfg(loom)]
pub(crate) mod model {
    //! The block as loom can follow it: its atomics have no layout, so they live in vectors.

    use std::vec::Vec;

    use loom::sync::Arc;

    use super::*;

    /// The parts of a block in the model's memory.
    pub struct Model {
        head: Head,
        records: Vec<Record>,
        extras: Vec<Extra>,
        acks: Vec<Wide>,
        payload: Vec<crate::payload::Cell>,
    }

    // SAFETY: as for `Block`.
    unsafe impl Send for Model {}
    // SAFETY: as for `Block`.
    unsafe impl Sync for Model {}

    fn wide() -> Wide {
        Wide {
            low: AtomicU32::new(0),
            high: AtomicU32::new(0),
        }
    }

    impl Model {
        pub(crate) fn new(shape: Shape) -> Arc<Model> {
            let word = || AtomicU32::new(0);
            Arc::new(Model {
                head: Head {
                    geometry: Geometry {
                        magic: AtomicU32::new(MAGIC),
                        version: AtomicU32::new(VERSION),
                        slots: AtomicU32::new(shape.slots()),
                        slot_bytes: AtomicU32::new(shape.slot_bytes()),
                    },
                    producer: ProducerLine {
                        user_i: word(),
                        umod_i: word(),
                        ack_tail: word(),
                        closed: word(),
                    },
                    news: NewsLine {
                        told: word(),
                        ack_head: word(),
                        closed: word(),
                        kern_flag: AtomicU32::new(1),
                    },
                    consumer: ConsumerLine {
                        kern_i: word(),
                        dev_i: word(),
                    },
                },
                records: (0..shape.slots())
                    .map(|_| Record {
                        state: word(),
                        len: word(),
                        user_seq: wide(),
                    })
                    .collect(),
                extras: (0..shape.slots())
                    .map(|_| Extra {
                        deadline: wide(),
                        priority: word(),
                        reserved: word(),
                    })
                    .collect(),
                acks: (0..shape.slots()).map(|_| wide()).collect(),
                payload: (0..shape.slots())
                    .map(|_| crate::payload::Cell::new(Vec::new()))
                    .collect(),
            })
        }
    }

    impl Block<Arc<Model>> {
        pub(crate) fn model(shape: Shape, model: &Arc<Model>) -> Self {
            Self {
                head: NonNull::from(&model.head),
                records: NonNull::from(&model.records[0]),
                extras: NonNull::from(&model.extras[0]),
                acks: NonNull::from(&model.acks[0]),
                payload: Payload::new(NonNull::from(&model.payload[0])),
                shape,
                _keep: model.clone(),
            }
        }
    }
}
