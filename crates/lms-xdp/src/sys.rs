//! Values and memory of BPF maps.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::Pod;
use lms_proto::Iface;
use lms_proto::fast_path::{Port, PortCounters, Record, Settings, Words};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// A value of a BPF map.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Value<T>(pub(crate) T);

macro_rules! values {
    ($($record:ty: $len:literal),*) => {$(
        // Its layout is fixed, and the program was compiled with the same; no padding.
        const _: () = assert!(size_of::<$record>() == $len);
        // SAFETY: integers and arrays of integers, without padding: all bytes are initialised, and all values valid.
        unsafe impl Pod for Value<$record> {}
    )*};
}

values!(
    Settings: 1136,
    Record: 80,
    Words: 24,
    Port: 16,
    PortCounters: 72
);

/// Memory of an array map whose values are words.
#[derive(Debug)]
struct Mapped {
    start: NonNull<AtomicU64>,
    words: usize,
    bytes: NonZeroUsize,
}

// SAFETY: it owns the mapping; the words are atomic.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(map: impl AsFd, words: usize) -> io::Result<Mapped> {
        let bytes = NonZeroUsize::new(words * 8).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, of a map of at least that many bytes: the kernel refuses more.
        let start = unsafe { mmap(None, bytes, protection, MapFlags::MAP_SHARED, map, 0) }?;
        Ok(Mapped {
            start: start.cast(),
            words,
            bytes,
        })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has that many words, aligned to a page, until it is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; nothing refers to it any more. It cannot fail.
        let _ = unsafe { munmap(self.start.cast(), self.bytes.get()) };
    }
}

/// The words that program and router share: buckets and credit.
#[derive(Debug)]
pub struct Shared {
    entries: Mapped,
    wrong_numbers: Mapped,
    totals: Mapped,
}

/// Words of an entry.
const ENTRY: usize = 3;

impl Shared {
    pub(crate) fn new(
        (entries, groups): (impl AsFd, usize),
        (wrong_numbers, interfaces): (impl AsFd, usize),
        totals: impl AsFd,
    ) -> io::Result<Shared> {
        Ok(Shared {
            entries: Mapped::new(entries, groups * ENTRY)?,
            wrong_numbers: Mapped::new(wrong_numbers, interfaces)?,
            totals: Mapped::new(totals, 2)?,
        })
    }

    fn entry(&self, slot: u32) -> Option<&[AtomicU64; ENTRY]> {
        let at = slot as usize * ENTRY;
        self.entries.words().get(at..)?.first_chunk()
    }

    /// The words of an entry, by its handle's index.
    pub fn words(&self, slot: u32) -> Option<Words> {
        let [requests, dmcasts, credit] = self.entry(slot)?.each_ref().map(load);
        Some(Words {
            requests,
            dmcasts,
            credit,
        })
    }

    /// Sets the words of an entry.
    pub fn set_words(&self, slot: u32, words: Words) {
        if let Some(entry) = self.entry(slot) {
            for (place, word) in entry.iter().zip(in_order(words)) {
                place.store(word, Ordering::Relaxed);
            }
        }
    }

    /// Sets the words of an entry that the router has changed, where the program has not changed them too; false where it
    /// has.
    #[must_use]
    pub fn replace_words(&self, slot: u32, before: Words, after: Words) -> bool {
        let Some(entry) = self.entry(slot) else {
            return true;
        };
        let changes = in_order(before).into_iter().zip(in_order(after));
        entry
            .iter()
            .zip(changes)
            .all(|(place, (before, after))| replace(place, before, after))
    }

    /// The word of the wrong numbers that arrived on an interface.
    pub fn wrong_numbers(&self, iface: Iface) -> Option<u64> {
        let word = self.wrong_numbers.words().get(usize::from(iface.0))?;
        Some(load(word))
    }

    /// Sets the word of the wrong numbers of an interface that the router has changed, where the program has not changed it
    /// too; false where it has.
    #[must_use]
    pub fn replace_wrong_numbers(&self, iface: Iface, before: u64, after: u64) -> bool {
        let word = self.wrong_numbers.words().get(usize::from(iface.0));
        word.is_none_or(|word| replace(word, before, after))
    }

    /// Sets the word of the wrong numbers of an interface.
    pub fn set_wrong_numbers(&self, iface: Iface, after: u64) {
        if let Some(word) = self.wrong_numbers.words().get(usize::from(iface.0)) {
            word.store(after, Ordering::Relaxed);
        }
    }

    /// The bucket of the requests of all groups.
    pub fn all_requests(&self) -> &AtomicU64 {
        &self.totals.words()[0]
    }

    /// The bucket of the dmcasts of all groups.
    pub fn all_dmcasts(&self) -> &AtomicU64 {
        &self.totals.words()[1]
    }
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

fn in_order(words: Words) -> [u64; ENTRY] {
    [words.requests, words.dmcasts, words.credit]
}

fn replace(place: &AtomicU64, before: u64, after: u64) -> bool {
    let order = Ordering::Relaxed;
    before == after || place.compare_exchange(before, after, order, order).is_ok()
}
