//! The payload area: contiguous slots, copied through raw pointers.
//!
//! It is never exposed as a slice: the peer may be another process, and one that violates the protocol may write at any
//! time. Such a peer can only change the values of payload bytes, which this crate does not interpret.

use core::ptr::NonNull;

use crate::shape::Shape;

#[cfg(not(loom))]
mod real {
    use super::*;

    /// Copies `len` bytes.
    ///
    /// # Safety
    ///
    /// As for [`NonNull::copy_to_nonoverlapping`].
    #[inline(always)]
    unsafe fn copy(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
        #[cfg(polycast_faults)]
        let (from, to, len) = {
            let half = len / 2;
            // SAFETY: the first half of the same memory.
            unsafe { from.copy_to_nonoverlapping(to, half) };
            crate::faults::step();
            // SAFETY: `half` is at most `len`.
            unsafe { (from.add(half), to.add(half), len - half) }
        };
        // SAFETY: the caller's promise.
        unsafe { from.copy_to_nonoverlapping(to, len) };
    }

    /// The payload area of a block.
    pub(crate) struct Payload(NonNull<u8>);

    impl Payload {
        pub(crate) fn new(memory: NonNull<u8>) -> Self {
            Self(memory)
        }

        /// Returns the offset in the payload area of byte `offset` of the message at `position`. A message that reaches
        /// the end of the ring continues at its start.
        #[inline]
        fn start(shape: Shape, position: u32, offset: usize) -> usize {
            let start = shape.slot(position) * shape.slot_bytes() as usize + offset;
            if start >= shape.max_message() {
                start - shape.max_message()
            } else {
                start
            }
        }

        /// Returns the parts that hold the bytes `offset..offset + len` of the message at `position`.
        fn parts(
            &self,
            shape: Shape,
            position: u32,
            offset: usize,
            len: usize,
        ) -> [(NonNull<u8>, usize); 2] {
            let ring = shape.max_message();
            assert!(len <= ring && offset <= ring - len);
            let start = Self::start(shape, position, offset);
            let first = len.min(ring - start);
            // SAFETY: `start` is below the size of the payload area.
            [(unsafe { self.0.add(start) }, first), (self.0, len - first)]
        }

        /// Returns the address of these bytes if they lie in the first slot of the message.
        #[inline]
        fn first_slot(
            &self,
            shape: Shape,
            position: u32,
            offset: usize,
            len: usize,
        ) -> Option<NonNull<u8>> {
            let slot_bytes = shape.slot_bytes() as usize;
            if len > slot_bytes || offset > slot_bytes - len {
                return None;
            }
            let start = shape.slot(position) * slot_bytes + offset;
            // SAFETY: the slot lies in the payload area, and the bytes lie within the slot.
            Some(unsafe { self.0.add(start) })
        }

        /// Copies `bytes` into the message at `position`.
        ///
        /// # Safety
        ///
        /// The caller must own the slots of the message according to its state word.
        #[inline]
        pub(crate) unsafe fn write(
            &self,
            shape: Shape,
            position: u32,
            offset: usize,
            bytes: &[u8],
        ) {
            let from = NonNull::from(bytes).cast();
            match self.first_slot(shape, position, offset, bytes.len()) {
                // SAFETY: the slot lies in the payload area, which no reference covers; `bytes` is memory of the
                // caller.
                Some(to) => unsafe { copy(from, to, bytes.len()) },
                // SAFETY: same contract as this function.
                None => unsafe { self.write_parts(shape, position, offset, bytes) },
            }
        }

        #[inline(never)]
        unsafe fn write_parts(&self, shape: Shape, position: u32, offset: usize, bytes: &[u8]) {
            let [(to, first), (rest_to, rest)] = self.parts(shape, position, offset, bytes.len());
            let (start, end) = bytes.split_at(first);
            // SAFETY: as for `write`.
            unsafe {
                copy(NonNull::from(start).cast(), to, first);
                copy(NonNull::from(end).cast(), rest_to, rest);
            }
        }

        /// Copies from the message at `position` into `bytes`.
        ///
        /// # Safety
        ///
        /// The caller must own the slots of the message according to its state word.
        #[inline]
        pub(crate) unsafe fn read(
            &self,
            shape: Shape,
            position: u32,
            offset: usize,
            bytes: &mut [u8],
        ) {
            let len = bytes.len();
            match self.first_slot(shape, position, offset, len) {
                // SAFETY: as for `write`.
                Some(from) => unsafe { copy(from, NonNull::from(bytes).cast(), len) },
                // SAFETY: same contract as this function.
                None => unsafe { self.read_parts(shape, position, offset, bytes) },
            }
        }

        #[inline(never)]
        unsafe fn read_parts(&self, shape: Shape, position: u32, offset: usize, bytes: &mut [u8]) {
            let [(from, first), (rest_from, rest)] =
                self.parts(shape, position, offset, bytes.len());
            let (start, end) = bytes.split_at_mut(first);
            // SAFETY: as for `write`.
            unsafe {
                copy(from, NonNull::from(start).cast(), first);
                copy(rest_from, NonNull::from(end).cast(), rest);
            }
        }

        /// Returns the address and length of each part of a message.
        #[inline]
        pub(crate) fn chunks(
            &self,
            shape: Shape,
            position: u32,
            offset: usize,
            len: usize,
        ) -> [(NonNull<u8>, usize); 2] {
            self.parts(shape, position, offset, len)
        }
    }
}

#[cfg(not(loom))]
pub(crate) use real::Payload;

#[cfg(loom)]
mod model {
    use std::vec::Vec;

    use super::*;

    /// The payload of one slot. Loom reports concurrent access.
    pub(crate) type Cell = loom::cell::UnsafeCell<Vec<u8>>;

    pub(crate) struct Payload(NonNull<Cell>);

    impl Payload {
        pub(crate) fn new(cells: NonNull<Cell>) -> Self {
            Self(cells)
        }

        fn each(
            &self,
            shape: Shape,
            position: u32,
            offset: usize,
            len: usize,
            mut part: impl FnMut(&Cell, usize, core::ops::Range<usize>),
        ) {
            let size = shape.slot_bytes() as usize;
            let mut done = 0;
            while done < len {
                let at = offset + done;
                let count = (size - at % size).min(len - done);
                let slot = shape.slot(position.wrapping_add((at / size) as u32));
                // SAFETY: one cell per slot.
                let cell = unsafe { &*self.0.as_ptr().add(slot) };
                part(cell, at % size, done..done + count);
                done += count;
            }
        }

        pub(crate) unsafe fn write(
            &self,
            shape: Shape,
            position: u32,
            offset: usize,
            bytes: &[u8],
        ) {
            self.each(shape, position, offset, bytes.len(), |cell, at, range| {
                cell.with_mut(|to| {
                    // SAFETY: loom checks that the other side does not access the cell.
                    let to = unsafe { &mut *to };
                    to.resize(to.len().max(at + range.len()), 0);
                    to[at..at + range.len()].copy_from_slice(&bytes[range]);
                });
            });
        }

        pub(crate) unsafe fn read(
            &self,
            shape: Shape,
            position: u32,
            offset: usize,
            bytes: &mut [u8],
        ) {
            self.each(shape, position, offset, bytes.len(), |cell, at, range| {
                cell.with(|from| {
                    // SAFETY: loom checks that the other side does not write the cell.
                    let from = unsafe { &*from };
                    bytes[range.clone()].copy_from_slice(&from[at..at + range.len()]);
                });
            });
        }
    }
}

#[cfg(loom)]
pub(crate) use model::{Cell, Payload};
