//! The memory of a ring: a sealed memfd that both sides map.
//!
//! ```text
//! +------------------------------+-----------------------------+
//! | the ring (ldc-ring's block)  | requested: one line, 64 bytes |
//! +------------------------------+-----------------------------+
//! ```
//!
//! `requested` is the number of slots that the sender waits for, 0 while it does not wait.

use std::ffi::c_void;
use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use ldc_ring::{AttachError, Entry, Shape};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;

use crate::error::InitError;
use crate::sync::AtomicU32;

/// Bytes after the ring.
const LINE: usize = 64;

/// The producer of a ring in such memory.
pub(crate) type Producer = ldc_ring::Producer<Memory, Box<[Entry]>>;
/// The consumer of a ring in such memory.
pub(crate) type Consumer = ldc_ring::Consumer<Memory, Box<[u32]>>;

/// The memory of a ring. Clones share the mapping, which is removed with the last of them.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Mapping>);

#[derive(Debug)]
struct Mapping {
    at: NonNull<c_void>,
    len: usize,
    fd: OwnedFd,
}

// SAFETY: address and length never change; the protocol of the ring decides which thread may access the memory.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length by `Memory::map`. Every user of the address holds a clone of the `Arc`, and
        // this is the last one.
        let _ = unsafe { munmap(self.at, self.len) };
    }
}

/// Seals against any change of the file's length, so that a mapping never faults.
fn sealed() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW
}

impl Memory {
    /// Returns new memory with a ring of this shape, and the producer of the ring.
    pub(crate) fn create(shape: Shape) -> Result<(Memory, Producer), InitError> {
        let memory = Memory::zeroed(shape)?;
        let index = vec![Entry::EMPTY; shape.slots() as usize].into_boxed_slice();
        let (at, len) = (memory.at(), memory.ring_len());
        // SAFETY: new memory, aligned to a page and mapped for as long as the producer keeps its clone of `memory`.
        // Only the rings of this module access it, by copies.
        let made = unsafe { Producer::create(at, len, shape, memory.clone(), index) };
        Ok((memory, made.map_err(InitError::Ring)?))
    }

    /// Returns the consumer of the ring in this memory.
    pub(crate) fn attach(&self) -> Result<Consumer, InitError> {
        let words = Shape::completed_words_within(self.ring_len());
        let completed = vec![0; words].into_boxed_slice();
        // SAFETY: mapped for as long as the consumer keeps its clone of `self`, and sealed, so the mapping never faults.
        // The sender passes the memory to one consumer at a time; a second one could only take messages from the first.
        let made = unsafe { Consumer::attach(self.at(), self.ring_len(), self.clone(), completed) };
        made.map_err(InitError::Ring)
    }

    /// Returns zeroed memory for a ring of this shape.
    fn zeroed(shape: Shape) -> Result<Memory, InitError> {
        let len = shape.block_len() + LINE;
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd =
            memfd_create(c"ldc-ring", flags).map_err(InitError::io("cannot create a memfd"))?;
        nix::unistd::ftruncate(&fd, len as libc::off_t)
            .map_err(InitError::io("cannot set the size of the memfd"))?;
        let seals = FcntlArg::F_ADD_SEALS(sealed() | SealFlag::F_SEAL_SEAL);
        fcntl(&fd, seals).map_err(InitError::io("cannot seal the memfd"))?;
        Memory::map(fd, len)
    }

    /// Maps memory that a peer created, at most `max_len` bytes.
    pub(crate) fn adopt(fd: OwnedFd, max_len: usize) -> Result<Memory, InitError> {
        // Fails for anything but a memfd.
        let seals = fcntl(&fd, FcntlArg::F_GET_SEALS).map_err(|_| InitError::NotSealed)?;
        if !SealFlag::from_bits_truncate(seals).contains(sealed()) {
            return Err(InitError::NotSealed);
        }
        let size = fstat(&fd).map_err(InitError::io("cannot read the size of the memfd"))?;
        let len = u64::try_from(size.st_size).unwrap_or(0);
        let limit = max_len as u64;
        if len > limit {
            return Err(InitError::TooLarge { len, limit });
        }
        Memory::map(fd, len as usize)
    }

    fn map(fd: OwnedFd, len: usize) -> Result<Memory, InitError> {
        let Some(size) = NonZero::new(len) else {
            return Err(InitError::Ring(AttachError::TooShort));
        };
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an unused address that the kernel chooses.
        let mapped = unsafe { mmap(None, size, protection, MapFlags::MAP_SHARED, &fd, 0) };
        let at = mapped.map_err(InitError::io("cannot map the memfd"))?;
        Ok(Memory(Arc::new(Mapping { at, len, fd })))
    }

    /// Returns the address: aligned to a page, valid for reads and writes of [`Memory::ring_len`] bytes while a clone
    /// of this lives.
    fn at(&self) -> NonNull<u8> {
        self.0.at.cast()
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len
    }

    /// Returns the length of the part that holds the ring.
    fn ring_len(&self) -> usize {
        self.0.len.saturating_sub(LINE)
    }

    /// Returns the number of slots that the sender waits for.
    pub(crate) fn requested(&self, shape: Shape) -> &AtomicU32 {
        let offset = shape.block_len();
        assert!(offset <= self.ring_len(), "the shape of another ring");
        // SAFETY: within the mapping, which has `LINE` bytes after the ring, aligned to 64 like every `block_len`. All
        // bit patterns are valid atomics, and the mapping lives as long as `self`.
        unsafe { self.at().add(offset).cast().as_ref() }
    }

    /// Returns the descriptor to pass to a peer.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_cannot_be_resized() {
        let memory = Memory::zeroed(Shape::new(4, 64).unwrap()).unwrap();
        let fd = memory.fd();
        for len in [0, 1 << 20] {
            let error = nix::unistd::ftruncate(fd, len).unwrap_err();
            assert_eq!(error, nix::errno::Errno::EPERM);
        }
    }

    #[test]
    fn what_could_shrink_is_refused() {
        let file = memfd_create(c"open", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        nix::unistd::ftruncate(&file, 4096).unwrap();
        let grow = FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW);
        fcntl(&file, grow).unwrap();
        let refused = Memory::adopt(file, 1 << 20);
        assert!(matches!(refused, Err(InitError::NotSealed)));
        let pipe = nix::unistd::pipe().unwrap().0;
        let refused = Memory::adopt(pipe, 1 << 20);
        assert!(matches!(refused, Err(InitError::NotSealed)));
    }

    #[test]
    fn more_than_allowed_is_refused() {
        let memory = Memory::zeroed(Shape::new(4, 4096).unwrap()).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let refused = Memory::adopt(fd, 16_000);
        assert!(matches!(refused, Err(InitError::TooLarge { .. })));
    }
}
