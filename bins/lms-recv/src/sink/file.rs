//! A file as the store: blocks are gathered in memory and written once, when they are verified.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cli::output::AtomicFile;
use ltp::store::{Store, StoreError};

/// A block that is coming in.
#[derive(Default)]
struct Gathered {
    /// Its offset in the content; `u64::MAX`: none.
    offset: u64,
    bytes: Box<[u8]>,
}

/// The file: under its temporary name, or finished.
enum Place {
    Nowhere,
    Temporary(AtomicFile),
    Final(File),
}

/// The store of a receiver that writes a file.
///
/// Memory: the blocks between the first incomplete one and the newest, at most `window` of them; buffers
/// are used again.
pub(crate) struct FileSink {
    place: Place,
    block_len: usize,
    /// Where the file starts in the content: 0 unless started late.
    base: u64,
    gathered: Vec<Gathered>,
    spare: Vec<Box<[u8]>>,
    /// The block read last, for repairs.
    recent: Gathered,
    /// Why the file system failed, for the user.
    pub(crate) error: Option<io::Error>,
}

impl FileSink {
    /// A store that holds `window` blocks in memory at most.
    pub(crate) fn new(window: usize) -> Self {
        let none = || Gathered {
            offset: u64::MAX,
            bytes: Box::default(),
        };
        FileSink {
            place: Place::Nowhere,
            block_len: 0,
            base: 0,
            gathered: (0..window).map(|_| none()).collect(),
            spare: Vec::new(),
            recent: none(),
            error: None,
        }
    }

    /// Blocks of this length follow, the first at `base`; what was gathered is forgotten.
    pub(crate) fn begin(&mut self, block_len: usize, base: u64) {
        for gathered in self.gathered.iter_mut().chain([&mut self.recent]) {
            *gathered = Gathered {
                offset: u64::MAX,
                bytes: Box::default(),
            };
        }
        self.spare.clear();
        self.block_len = block_len;
        self.base = base;
        self.place = Place::Nowhere;
    }

    /// Creates the temporary of `folder`/`name`.
    pub(crate) fn create(&mut self, folder: &Path, name: &str) -> io::Result<()> {
        self.place = Place::Temporary(AtomicFile::create(folder, name)?);
        Ok(())
    }

    /// The content is an existing file, whole.
    pub(crate) fn adopt(&mut self, file: File) {
        self.place = Place::Final(file);
    }

    /// Where the file will stand; `None` before it was created and after it was finished.
    pub(crate) fn target(&self) -> Option<PathBuf> {
        match &self.place {
            Place::Temporary(file) => Some(file.target().to_owned()),
            _ => None,
        }
    }

    /// Makes room for a content of that length, or says at once that there is none.
    pub(crate) fn reserve(&self, length: u64) -> io::Result<()> {
        match &self.place {
            Place::Temporary(file) => file.reserve(length.saturating_sub(self.base)),
            _ => Ok(()),
        }
    }

    /// Gives the file its name.
    pub(crate) fn finish(&mut self, sync: bool) -> io::Result<()> {
        if let Place::Temporary(file) = std::mem::replace(&mut self.place, Place::Nowhere) {
            self.place = Place::Final(file.commit(sync)?);
        }
        Ok(())
    }

    /// Removes the temporary.
    pub(crate) fn abandon(&mut self) {
        if matches!(self.place, Place::Temporary(_)) {
            self.place = Place::Nowhere;
        }
    }

    #[inline]
    fn slot(&self, offset: u64) -> Result<(usize, usize), StoreError> {
        if self.block_len == 0 {
            return Err(StoreError::Failed);
        }
        // Block lengths are powers of two.
        let block = offset >> self.block_len.trailing_zeros();
        let slot = (block % self.gathered.len() as u64) as usize;
        Ok((slot, (offset as usize) & (self.block_len - 1)))
    }

    /// Reads from the file into the block used last.
    fn load(&mut self, start: u64, len: usize) -> Result<(), StoreError> {
        if self.recent.offset == start && self.recent.bytes.len() >= len {
            return Ok(());
        }
        let file = match &self.place {
            Place::Temporary(file) => file.file(),
            Place::Final(file) => file,
            Place::Nowhere => return Err(StoreError::NotHeld),
        };
        self.recent.offset = u64::MAX;
        self.recent.bytes = vec![0; len].into();
        let at = start.checked_sub(self.base).ok_or(StoreError::NotHeld)?;
        if let Err(error) = file.read_exact_at(&mut self.recent.bytes, at) {
            self.error = Some(error);
            return Err(StoreError::Failed);
        }
        self.recent.offset = start;
        Ok(())
    }
}

impl Store for FileSink {
    fn capacity(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let (slot, at) = self.slot(offset)?;
        let start = offset - at as u64;
        let gathered = &mut self.gathered[slot];
        if gathered.offset != start {
            gathered.offset = start;
            if gathered.bytes.is_empty() {
                let fresh = || vec![0; self.block_len].into();
                gathered.bytes = self.spare.pop().unwrap_or_else(fresh);
            }
        }
        let piece = gathered
            .bytes
            .get_mut(at..at + bytes.len())
            .ok_or(StoreError::NotHeld)?;
        piece.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let (slot, at) = self.slot(offset)?;
        let start = offset - at as u64;
        if self.gathered[slot].offset != start {
            let end = at + out.len();
            // The last block may be shorter than the others: read what the file has of it.
            if self.recent.offset != start || self.recent.bytes.len() < end {
                self.load_most(start, end)?;
            }
            out.copy_from_slice(&self.recent.bytes[at..end]);
            return Ok(());
        }
        out.copy_from_slice(&self.gathered[slot].bytes[at..at + out.len()]);
        Ok(())
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        let (slot, _) = self.slot(offset)?;
        if self.gathered[slot].offset == offset {
            return Ok(&self.gathered[slot].bytes[..len]);
        }
        self.load(offset, len)?;
        Ok(&self.recent.bytes[..len])
    }

    fn commit(&mut self, offset: u64, len: usize) -> Result<(), StoreError> {
        let (slot, _) = self.slot(offset)?;
        let gathered = &mut self.gathered[slot];
        let Place::Temporary(file) = &self.place else {
            return Err(StoreError::Failed);
        };
        if gathered.offset != offset {
            return Err(StoreError::NotHeld);
        }
        if let Err(error) = file.write_all_at(&gathered.bytes[..len], offset - self.base) {
            self.error = Some(error);
            return Err(StoreError::Failed);
        }
        gathered.offset = u64::MAX;
        self.spare.push(std::mem::take(&mut gathered.bytes));
        if self.recent.offset == offset {
            // What was read before is no longer what the file has.
            self.recent.offset = u64::MAX;
        }
        Ok(())
    }

    fn discard(&mut self, offset: u64, _len: usize) {
        if let Ok((slot, _)) = self.slot(offset)
            && self.gathered[slot].offset == offset
        {
            let gathered = &mut self.gathered[slot];
            gathered.offset = u64::MAX;
            self.spare.push(std::mem::take(&mut gathered.bytes));
        }
    }
}

impl FileSink {
    /// Reads a block from the file, or what there is of it, at least `least` bytes.
    fn load_most(&mut self, start: u64, least: usize) -> Result<(), StoreError> {
        let file = match &self.place {
            Place::Temporary(file) => file.file(),
            Place::Final(file) => file,
            Place::Nowhere => return Err(StoreError::NotHeld),
        };
        let at = start.checked_sub(self.base).ok_or(StoreError::NotHeld)?;
        let held = file.metadata().map_or(0, |metadata| metadata.len());
        let len = held.saturating_sub(at).min(self.block_len as u64) as usize;
        if len < least {
            return Err(StoreError::NotHeld);
        }
        self.load(start, len)
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
        assert_eq!(sink.commit(0, BLOCK), Err(StoreError::NotHeld));
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
