//! The block: one contiguous, position-independent piece of memory that both sides map.
//!
//! It holds no addresses. All words are atomics with the initial value zero, so any content can be read safely, and
//! each side checks what it reads before using it. The payload is only copied, through raw pointers (see
//! [`crate::payload`]).

use core::fmt;
use core::ptr::NonNull;

use crate::message::Attributes;
use crate::payload::Payload;
use crate::shape::Shape;
use crate::sync::{AtomicU32, Ordering};

const MAGIC: u32 = u32::from_le_bytes(*b"LDCr");
/// The version of the layout. One more in a build of the next version (`docs/wire.md`).
const VERSION: u32 = 3 + cfg!(polycast_next_version) as u32;

/// Written once by the side that creates the ring; checked once by the side that attaches.
#[repr(C, align(128))]
pub(crate) struct Geometry {
    magic: AtomicU32,
    version: AtomicU32,
    slots: AtomicU32,
    slot_bytes: AtomicU32,
}

/// Written by the producer only.
#[repr(C, align(128))]
pub(crate) struct ProducerLine {
    /// One past the newest position sent. The release store makes a message visible.
    pub(crate) user_i: AtomicU32,
    /// Oldest position held back, otherwise `user_i`. A hint.
    pub(crate) umod_i: AtomicU32,
    /// Number of acknowledgements taken from the queue.
    pub(crate) ack_tail: AtomicU32,
    /// 1 once the producer has closed the ring.
    pub(crate) closed: AtomicU32,
}

/// What the producer reads in regular operation. Written by the consumer, except that the producer clears
/// `kern_flag`.
#[repr(C, align(128))]
pub(crate) struct SignalLine {
    /// `dev_i` as last reported to the producer. A producer that waits for room reads it instead of `dev_i`, whose
    /// cache line the consumer writes with each message.
    pub(crate) free_until: AtomicU32,
    /// Number of acknowledgements put into the queue.
    pub(crate) ack_head: AtomicU32,
    /// 1 once the consumer has closed the ring.
    pub(crate) closed: AtomicU32,
    /// 1 while the consumer is idle and wants to be woken.
    pub(crate) kern_flag: AtomicU32,
}

/// Written by the consumer only, with each message.
#[repr(C, align(128))]
pub(crate) struct ConsumerLine {
    /// Oldest position not yet claimed. A hint.
    pub(crate) kern_i: AtomicU32,
    /// Oldest position claimed and not yet released, otherwise `kern_i`. The release store frees slots; a consumer
    /// that replaces a dead one continues there.
    pub(crate) dev_i: AtomicU32,
}

#[repr(C)]
pub(crate) struct Head {
    pub(crate) geometry: Geometry,
    pub(crate) producer: ProducerLine,
    pub(crate) signals: SignalLine,
    pub(crate) consumer: ConsumerLine,
}

/// The record of the message that begins in a slot. While the producer owns the message it may write all fields;
/// while the consumer owns it, all fields except `state` are constant.
#[repr(C)]
pub(crate) struct Record {
    /// See [`crate::state`].
    pub(crate) state: AtomicU32,
    /// Length of the message in bytes, all pieces together, with [`HAS_EXTRA`].
    pub(crate) len: AtomicU32,
    /// The user's sequence number.
    pub(crate) user_seq: Wide,
}

/// Bit of a record's `len`: the message has attributes other than the defaults. Lengths are below 2^31.
pub(crate) const HAS_EXTRA: u32 = 1 << 31;

/// The attributes of a message, where they are not the defaults.
#[repr(C)]
pub(crate) struct Extra {
    /// Microseconds; `i64::MAX` means none.
    pub(crate) deadline: Wide,
    /// Chosen by the user and passed to the consumer.
    pub(crate) priority: AtomicU32,
    reserved: AtomicU32,
}

/// 64 bits in two words, because a Cortex-M has no 64-bit atomic. Never shared while it changes.
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

/// Why memory cannot be attached to as a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// The memory is shorter than its ring: map all of it.
    TooShort,
    /// The memory is not aligned to 128 bytes.
    Misaligned,
    /// The memory holds no ring.
    NotARing,
    /// The ring has the layout of another version of this crate.
    Version(u32),
    /// The geometry is invalid.
    Geometry,
    /// A producer has already sent into this ring. Its private index is lost, so create a new ring.
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
            AttachError::NotARing => f.write_str("the memory holds no packet ring"),
            AttachError::Version(version) => {
                write!(f, "the ring has layout {version}, not {VERSION}")
            }
            AttachError::Geometry => f.write_str("the ring's geometry is invalid"),
            AttachError::InUse => f.write_str("a producer has already sent into this ring"),
            AttachError::IndexTooShort => f.write_str("the index needs one entry per slot"),
            AttachError::CompletedTooShort => {
                f.write_str("the consumer needs one bit per slot: Shape::completed_words()")
            }
        }
    }
}

impl core::error::Error for AttachError {}

/// One side's view of the block. `K` keeps the memory alive.
pub(crate) struct Block<K> {
    head: NonNull<Head>,
    records: NonNull<Record>,
    extras: NonNull<Extra>,
    acks: NonNull<Wide>,
    pub(crate) payload: Payload,
    pub(crate) shape: Shape,
    _keep: K,
}

// SAFETY: the pointers lead to atomics, and to payload that `Payload` copies under the protocol of the state words.
// That protocol, not the thread, decides which side may copy.
unsafe impl<K: Send> Send for Block<K> {}

impl<K> Block<K> {
    /// Returns the geometry and the indexes.
    #[inline]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: `head` points at a live `Head` for as long as `_keep` lives (the constructors of a block require
        // it), and a `Head` holds only atomics.
        unsafe { self.head.as_ref() }
    }

    /// Returns the record of a position.
    #[inline]
    pub(crate) fn record(&self, position: u32) -> &Record {
        // SAFETY: `slot` is below the number of slots, which is the number of records. They live as long as `_keep`
        // and hold only atomics.
        unsafe { &*self.records.as_ptr().add(self.shape.slot(position)) }
    }

    /// Returns the attributes of the message at a position.
    #[inline]
    pub(crate) fn extra(&self, position: u32) -> &Extra {
        // SAFETY: as for `record`, one per slot.
        unsafe { &*self.extras.as_ptr().add(self.shape.slot(position)) }
    }

    /// Writes the attributes of the message at a position.
    #[inline(never)]
    pub(crate) fn set_extra(&self, position: u32, attributes: Attributes) {
        let extra = self.extra(position);
        extra.deadline.store(attributes.deadline_micros() as u64);
        extra.priority.store(attributes.priority, Ordering::Relaxed);
    }

    /// Returns the entry with number `count` of the queue of acknowledgements.
    #[inline]
    pub(crate) fn ack(&self, count: u32) -> &Wide {
        // SAFETY: as for `record`, one entry per slot.
        unsafe { &*self.acks.as_ptr().add(self.shape.slot(count)) }
    }
}

#[cfg(not(loom))]
impl<K> Block<K> {
    /// Creates a ring in zeroed or used memory.
    ///
    /// # Safety
    ///
    /// `memory` must be valid for reads and writes of `len` bytes for as long as `keep` (or a clone of it) lives. No
    /// reference may cover it in that time, and neither side may be attached to it yet.
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
        // SAFETY: the caller grants exclusive access to `len` bytes; the payload needs no initial value.
        unsafe { memory.write_bytes(0, shape.payload_at()) };
        // SAFETY: long enough, aligned and zeroed; the caller guarantees the lifetime.
        let block = unsafe { Self::over(memory, shape, keep) };
        let geometry = &block.head().geometry;
        geometry.version.store(VERSION, Ordering::Relaxed);
        geometry.slots.store(shape.slots(), Ordering::Relaxed);
        geometry
            .slot_bytes
            .store(shape.slot_bytes(), Ordering::Relaxed);
        // As in the thesis, a consumer that was never woken is idle.
        block.head().signals.kern_flag.store(1, Ordering::Relaxed);
        geometry.magic.store(MAGIC, Ordering::Release);
        Ok(block)
    }

    /// Attaches to a ring that the other side created, possibly in another process.
    ///
    /// # Safety
    ///
    /// `memory` must be valid for reads and writes of `len` bytes for as long as `keep` lives, and no reference may
    /// cover it in that time.
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
        // Read once, so later changes by the peer have no effect.
        let slots = geometry.slots.load(Ordering::Relaxed);
        let slot_bytes = geometry.slot_bytes.load(Ordering::Relaxed);
        let shape = Shape::new(slots, slot_bytes).map_err(|_| AttachError::Geometry)?;
        if (shape.slots(), shape.slot_bytes()) != (slots, slot_bytes) {
            return Err(AttachError::Geometry);
        }
        if len < shape.block_len() {
            return Err(AttachError::TooShort);
        }
        // SAFETY: long enough for this shape and aligned; the caller guarantees the lifetime.
        Ok(unsafe { Self::over(memory, shape, keep) })
    }

    /// # Safety
    ///
    /// `memory` must hold `shape.block_len()` bytes, aligned to 128, valid while `keep` lives.
    unsafe fn over(memory: NonNull<u8>, shape: Shape, keep: K) -> Self {
        // SAFETY: all offsets lie within `block_len` and are aligned for the types that they are cast to.
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
    //! The block for loom, whose atomics have no fixed layout and therefore live in vectors.

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
                    signals: SignalLine {
                        free_until: word(),
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
