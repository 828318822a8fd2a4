//! A file as the store.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ltp::store::{Store, StoreError};

use super::gather::Gather;
use crate::output::AtomicFile;

/// The file: under its temporary name, or finished.
enum Place {
    Nowhere,
    Temporary(AtomicFile),
    Final(File),
}

/// The block read last from the file, for repairs.
#[derive(Default)]
struct Recent {
    offset: u64,
    /// Empty: none.
    bytes: Box<[u8]>,
}

/// The store of a receiver that writes a file: each block once, when it is verified.
pub(in crate::recv) struct FileSink {
    place: Place,
    /// Where the file starts in the content: 0 unless started late.
    base: u64,
    gather: Gather,
    recent: Recent,
    /// Why the file system failed, for the user.
    pub(in crate::recv) error: Option<io::Error>,
}

impl FileSink {
    /// A store that holds `window` blocks in memory at most.
    pub(in crate::recv) fn new(window: usize) -> Self {
        FileSink {
            place: Place::Nowhere,
            base: 0,
            gather: Gather::new(window),
            recent: Recent::default(),
            error: None,
        }
    }

    /// Begins a session with blocks of this length, the first at `base`.
    pub(in crate::recv) fn begin(&mut self, block_len: usize, base: u64) {
        self.gather.begin(block_len);
        self.recent = Recent::default();
        self.base = base;
        self.place = Place::Nowhere;
    }

    /// Creates the temporary of `folder`/`name`.
    pub(in crate::recv) fn create(&mut self, folder: &Path, name: &str) -> io::Result<()> {
        self.place = Place::Temporary(AtomicFile::create(folder, name)?);
        Ok(())
    }

    /// The content is an existing file, whole.
    pub(in crate::recv) fn adopt(&mut self, file: File) {
        self.place = Place::Final(file);
    }

    /// Reserves space for a content of that length.
    pub(in crate::recv) fn reserve(&self, length: u64) -> io::Result<()> {
        match &self.place {
            Place::Temporary(file) => file.reserve(length.saturating_sub(self.base)),
            _ => Ok(()),
        }
    }

    /// Gives the file its name.
    pub(in crate::recv) fn finish(&mut self, sync: bool) -> io::Result<()> {
        if let Place::Temporary(file) = std::mem::replace(&mut self.place, Place::Nowhere) {
            self.place = Place::Final(file.commit(sync)?);
        }
        Ok(())
    }

    /// Removes the temporary.
    pub(in crate::recv) fn abandon(&mut self) {
        if matches!(self.place, Place::Temporary(_)) {
            self.place = Place::Nowhere;
        }
    }

    /// Reads a block, or what there is of it, at least `least` bytes; [`Self::recent`] has it then.
    fn load(&mut self, start: u64, least: usize) -> Result<(), StoreError> {
        if self.recent.offset == start && self.recent.bytes.len() >= least.max(1) {
            return Ok(());
        }
        let file = match &self.place {
            Place::Temporary(file) => file.file(),
            Place::Final(file) => file,
            Place::Nowhere => return Err(StoreError::NotStored),
        };
        let at = start.checked_sub(self.base).ok_or(StoreError::NotStored)?;
        // The last block may be shorter than the others.
        let held = file.metadata().map_or(0, |metadata| metadata.len());
        let len = held.saturating_sub(at).min(self.gather.block_len() as u64) as usize;
        if len < least {
            return Err(StoreError::NotStored);
        }
        self.recent.offset = start;
        self.recent.bytes = vec![0; len].into();
        if let Err(error) = file.read_exact_at(&mut self.recent.bytes, at) {
            self.recent = Recent::default();
            self.error = Some(error);
            return Err(StoreError::Failed);
        }
        Ok(())
    }
}

impl Store for FileSink {
    fn capacity(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.gather.write(offset, bytes)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let (_, at) = self.gather.place(offset)?;
        let (start, end) = (offset - at as u64, at + out.len());
        if self.gather.get(start).is_none() {
            self.load(start, end)?;
        }
        let bytes = self.gather.get(start).unwrap_or(&self.recent.bytes);
        out.copy_from_slice(bytes.get(at..end).ok_or(StoreError::NotStored)?);
        Ok(())
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        if self.gather.get(offset).is_none() {
            self.load(offset, len)?;
        }
        let bytes = self.gather.get(offset).unwrap_or(&self.recent.bytes);
        bytes.get(..len).ok_or(StoreError::NotStored)
    }

    fn commit(&mut self, offset: u64, len: usize) -> Result<(), StoreError> {
        let Place::Temporary(file) = &self.place else {
            return Err(StoreError::Failed);
        };
        let bytes = self.gather.get(offset).ok_or(StoreError::NotStored)?;
        let bytes = bytes.get(..len).ok_or(StoreError::NotStored)?;
        let at = offset.checked_sub(self.base).ok_or(StoreError::NotStored)?;
        if let Err(error) = file.write_all_at(bytes, at) {
            self.error = Some(error);
            return Err(StoreError::Failed);
        }
        self.gather.discard(offset, 0);
        if self.recent.offset == offset {
            // What was read before is no longer what the file has.
            self.recent = Recent::default();
        }
        Ok(())
    }

    fn discard(&mut self, offset: u64, _len: usize) {
        self.gather.discard(offset, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 1024;

    fn sink(folder: &Path) -> FileSink {
        let mut sink = FileSink::new(4);
        sink.begin(BLOCK, 0);
        sink.create(folder, "x").expect("a temporary");
        sink
    }

    #[test]
    fn blocks_come_in_any_order_and_are_read_back() {
        let folder = tempfile::tempdir().expect("folder");
        let mut sink = sink(folder.path());
        sink.write(1024, &[2; 700]).expect("block 1");
        sink.write(512, &[1; 512]).expect("block 0");
        sink.write(0, &[1; 512]).expect("block 0");
        assert_eq!(sink.block(0, BLOCK), Ok(&[1; BLOCK][..]));
        sink.commit(0, BLOCK).expect("written");
        sink.commit(1024, 700).expect("written");
        let mut out = [0; 500];
        sink.read(1024 + 200, &mut out).expect("from the file");
        assert_eq!(out, [2; 500]);
        assert_eq!(sink.block(0, BLOCK), Ok(&[1; BLOCK][..]));
        sink.finish(false).expect("renamed");
        sink.read(0, &mut out).expect("still readable");
        assert_eq!(out, [1; 500]);
        assert_eq!(
            std::fs::read(folder.path().join("x")).expect("file").len(),
            1724
        );
    }

    #[test]
    fn a_discarded_block_is_written_again() {
        let folder = tempfile::tempdir().expect("folder");
        let mut sink = sink(folder.path());
        sink.write(0, &[9; BLOCK]).expect("wrong bytes");
        sink.discard(0, BLOCK);
        assert_eq!(sink.commit(0, BLOCK), Err(StoreError::NotStored));
        sink.write(0, &[1; BLOCK]).expect("right bytes");
        sink.commit(0, BLOCK).expect("written");
        assert_eq!(sink.block(0, BLOCK), Ok(&[1; BLOCK][..]));
    }

    #[test]
    fn a_written_block_is_discarded_and_written_again() {
        let folder = tempfile::tempdir().expect("folder");
        let mut sink = sink(folder.path());
        sink.write(0, &[9; BLOCK]).expect("wrong bytes");
        sink.commit(0, BLOCK).expect("written");
        assert_eq!(sink.block(0, BLOCK), Ok(&[9; BLOCK][..]));
        sink.discard(0, BLOCK);
        sink.write(0, &[1; BLOCK]).expect("right bytes");
        sink.commit(0, BLOCK).expect("written");
        assert_eq!(sink.block(0, BLOCK), Ok(&[1; BLOCK][..]));
    }

    #[test]
    fn a_late_start_begins_the_file_at_its_first_byte() {
        let folder = tempfile::tempdir().expect("folder");
        let mut sink = FileSink::new(4);
        sink.begin(BLOCK, 3 * BLOCK as u64);
        sink.create(folder.path(), "x").expect("a temporary");
        sink.write(3 * BLOCK as u64, &[3; BLOCK]).expect("block 3");
        sink.commit(3 * BLOCK as u64, BLOCK).expect("written");
        sink.finish(false).expect("renamed");
        assert_eq!(
            std::fs::read(folder.path().join("x")).expect("file"),
            [3; BLOCK]
        );
    }

    #[test]
    fn nothing_is_held_before_the_session_began() {
        let mut sink = FileSink::new(4);
        assert!(sink.write(0, &[1]).is_err());
        assert!(sink.read(0, &mut [0]).is_err());
    }
}
