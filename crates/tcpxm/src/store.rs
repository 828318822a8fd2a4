//! Storage of sent data until all receivers have it: once for a whole group.

use alloc::vec::Vec;
use core::fmt;

/// The store could not read the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StoreError {
    /// The bytes are no longer, or not yet, there.
    NotHeld,
    /// The medium failed: the transfer ends with [`crate::Failure::Store`].
    Failed,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreError::NotHeld => "bytes are not in the store",
            StoreError::Failed => "the store's medium failed",
        })
    }
}

impl core::error::Error for StoreError {}

/// The bytes of one stream that is being sent, addressed by their offset in it.
///
/// All protocol control blocks of a group read from the same store. The machine releases data that it no longer
/// needs ([`Store::release`]); a store that can read everything again may ignore that, and a detached receiver
/// then never holds the others back ([`Store::is_rereadable`]).
pub trait Store {
    /// Appends as many of the bytes as there is space for, and returns how many those were.
    fn write(&mut self, bytes: &[u8]) -> usize;

    /// Reads bytes that were written and not released.
    ///
    /// # Errors
    ///
    /// Whether they are not held, or the medium failed.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError>;

    /// Returns the offset after the last byte written. It never decreases.
    fn end(&self) -> u64;

    /// Returns how many bytes [`Store::write`] would accept now.
    fn room(&self) -> usize;

    /// Releases the bytes before this offset: they are not read again.
    fn release(&mut self, before: u64);

    /// Whether every byte can be read again, however long ago it was released.
    fn is_rereadable(&self) -> bool {
        false
    }
}

/// A ring of bounded length on the heap. It grows to its bound as it is used, by doubling.
#[derive(Clone)]
pub struct Ring {
    bytes: Vec<u8>,
    start: u64,
    end: u64,
    /// The offset of the first byte of memory.
    base: u64,
    capacity: usize,
}

/// Rings start with this many bytes.
const FIRST_BYTES: usize = 4096;

impl Ring {
    /// Creates an empty ring for at most `capacity` bytes, rounded up to a power of two.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            end: 0,
            base: 0,
            capacity: capacity.max(1).next_power_of_two(),
        }
    }

    /// Bytes of memory in use now.
    #[must_use]
    pub fn allocated(&self) -> usize {
        self.bytes.len()
    }

    /// Makes the ring at least `len` bytes long, up to its bound.
    fn grow(&mut self, len: usize) {
        if len <= self.bytes.len() {
            return;
        }
        let new_len = len.next_power_of_two().max(FIRST_BYTES).min(self.capacity);
        let mut bytes = alloc::vec![0; new_len];
        let mut at = self.start;
        while at < self.end {
            let (from, to) = (self.place(at), place(new_len, at - self.base));
            let len = (self.bytes.len() - from)
                .min(new_len - to)
                .min((self.end - at) as usize);
            bytes[to..to + len].copy_from_slice(&self.bytes[from..from + len]);
            at += len as u64;
        }
        self.bytes = bytes;
    }

    /// Stores bytes at an offset within the ring's bound; they need not follow the others.
    pub(crate) fn put(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        debug_assert!(end - self.start <= self.capacity as u64);
        if self.start == self.end {
            // Nothing is held: memory that was used last is the quickest.
            self.base = self.start;
        }
        self.grow((end - self.start) as usize);
        let at = self.place(offset);
        let first = bytes.len().min(self.bytes.len() - at);
        self.bytes[at..at + first].copy_from_slice(&bytes[..first]);
        self.bytes[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        self.end = self.end.max(end);
    }

    /// Returns two slices that hold the bytes of a range, one after the other.
    pub(crate) fn slices(&self, start: u64, end: u64) -> (&[u8], &[u8]) {
        let len = (end - start) as usize;
        if len == 0 {
            return (&[], &[]);
        }
        let at = self.place(start);
        let first = len.min(self.bytes.len() - at);
        (&self.bytes[at..at + first], &self.bytes[..len - first])
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the position of the byte at an offset.
    fn place(&self, offset: u64) -> usize {
        place(self.bytes.len(), offset - self.base)
    }
}

/// What is held; not where it lies in memory.
impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end) = self.slices(self.start, self.end);
        f.debug_struct("Ring")
            .field("start", &self.start)
            .field("capacity", &self.capacity)
            .field("bytes", &Held(start, end))
            .finish()
    }
}

/// Two slices as one list.
struct Held<'a>(&'a [u8], &'a [u8]);

impl fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().chain(self.1)).finish()
    }
}

fn place(len: usize, offset: u64) -> usize {
    debug_assert!(len.is_power_of_two());
    offset as usize & (len - 1)
}

impl Store for Ring {
    fn write(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.room());
        if len > 0 {
            self.put(self.end, &bytes[..len]);
        }
        len
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let end = offset + out.len() as u64;
        if offset < self.start || end > self.end {
            return Err(StoreError::NotHeld);
        }
        let (a, b) = self.slices(offset, end);
        out[..a.len()].copy_from_slice(a);
        out[a.len()..].copy_from_slice(b);
        Ok(())
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn room(&self) -> usize {
        self.capacity - (self.end - self.start) as usize
    }

    fn release(&mut self, before: u64) {
        self.start = self.start.max(before);
        self.end = self.end.max(self.start);
    }
}

/// Content that is complete and stays readable: a detached receiver reads it at its own pace.
#[derive(Clone, Debug)]
pub struct SliceStore<B>(B);

impl<B: AsRef<[u8]>> SliceStore<B> {
    /// A store of this content.
    pub const fn new(content: B) -> Self {
        Self(content)
    }
}

impl<B: AsRef<[u8]>> Store for SliceStore<B> {
    fn write(&mut self, _bytes: &[u8]) -> usize {
        0
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let start = usize::try_from(offset).map_err(|_| StoreError::NotHeld)?;
        let held = self.0.as_ref().get(start..).unwrap_or(&[]);
        out.copy_from_slice(held.get(..out.len()).ok_or(StoreError::NotHeld)?);
        Ok(())
    }

    fn end(&self) -> u64 {
        self.0.as_ref().len() as u64
    }

    fn room(&self) -> usize {
        0
    }

    fn release(&mut self, _before: u64) {}

    fn is_rereadable(&self) -> bool {
        true
    }
}

/// Only lengths: every byte is a function of its offset. For simulations and benches.
#[derive(Clone, Copy, Debug)]
pub struct NullStore {
    len: u64,
}

impl NullStore {
    /// A stream of `len` bytes.
    #[must_use]
    pub const fn new(len: u64) -> Self {
        Self { len }
    }

    /// The byte at an offset.
    #[must_use]
    pub const fn byte(offset: u64) -> u8 {
        (offset ^ (offset >> 8) ^ (offset >> 16).wrapping_mul(151)) as u8
    }
}

impl Store for NullStore {
    fn write(&mut self, _bytes: &[u8]) -> usize {
        0
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        if offset + out.len() as u64 > self.len {
            return Err(StoreError::NotHeld);
        }
        for (byte, at) in out.iter_mut().zip(offset..) {
            *byte = Self::byte(at);
        }
        Ok(())
    }

    fn end(&self) -> u64 {
        self.len
    }

    fn room(&self) -> usize {
        0
    }

    fn release(&mut self, _before: u64) {}

    fn is_rereadable(&self) -> bool {
        true
    }
}

impl<S: Store + ?Sized> Store for alloc::boxed::Box<S> {
    fn write(&mut self, bytes: &[u8]) -> usize {
        (**self).write(bytes)
    }
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        (**self).read(offset, out)
    }
    fn end(&self) -> u64 {
        (**self).end()
    }
    fn room(&self) -> usize {
        (**self).room()
    }
    fn release(&mut self, before: u64) {
        (**self).release(before);
    }
    fn is_rereadable(&self) -> bool {
        (**self).is_rereadable()
    }
}
