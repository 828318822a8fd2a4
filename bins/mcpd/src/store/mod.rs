//! Storage of a copy.
//!
//! Below the configured folder, files are written as `.NAME.mcp-part` beside their final places, and renamed
//! when they are verified. A partial file stays there when a copy fails, and the next copy reports its blocks
//! to the sender: it is its own journal.
//!
//! | step | what happens |
//! | --- | --- |
//! | [`Store::scan`] | the blocks that are there already, with their digests; nothing is changed |
//! | [`Store::prepare`] | creates folders and checks the free space |
//! | [`Store::begin`], [`Store::piece`], [`Store::end`] | one block of the data stream, written unless it is there |
//! | [`Store::insert`] | one whole block that a feeder has sent, in any order |
//! | [`Store::verdict`] | what the sender says a file is: it gets its name, or stays hidden |
//! | [`Store::finish`] | links; permissions and times of folders |

mod file;
mod folder;
pub(crate) mod reader;
mod trouble;

use std::path::Path;
use std::sync::Arc;

use mcp_control::digest::BlockHasher;
use mcp_control::limits::{BLOCK_LEN, MAX_HELD};
use mcp_control::wire::held::Held;
use mcp_control::wire::progress::{Done, FileVerdict, Progress};
use mcp_control::{BlockPlace, BlockSet, Digest, Kind, Layout, Manifest, Reason};

use file::{Found, Seen, Source, Writing};
use folder::Folder;
pub(crate) use trouble::Trouble;

/// Partial files of earlier copies that this one continues: as many as were being written when the copy failed.
/// Twice as many files are open at most, because verdicts follow soon.
const MAX_OPEN: usize = 64;

/// A copy that is being stored.
#[derive(Debug)]
pub(crate) struct Store {
    root: Folder,
    /// The folder that was opened last, by its path: most entries share it with their predecessor.
    parent: Option<(Box<[u8]>, Folder)>,
    /// Files are written to the disk before they are renamed.
    fsync: bool,
    manifest: Arc<Manifest>,
    /// Digest of each existing block, 0 for the others.
    digests: Vec<Digest>,
    there: BlockSet,
    /// What exists of each entry.
    found: Vec<Found>,
    /// Files with an open partial file, by the number of the entry, ascending.
    writing: Vec<(usize, Writing)>,
    /// Digest of each completed file.
    files: Vec<Digest>,
    verdicts: Vec<Option<FileVerdict>>,
    /// Files without a verdict.
    undecided: usize,
    /// The first file that failed, and why; the others are completed nevertheless.
    failed: Option<Trouble>,
    /// Entries before this one have received all of their data.
    passed: usize,
    /// Bytes received over the data stream, and bytes of existing blocks.
    received: u64,
    held: u64,
}

/// A block of the data stream that is being received.
#[derive(Debug)]
pub(crate) struct Arriving {
    block: u64,
    place: BlockPlace,
    hasher: BlockHasher,
    taken: u64,
    /// The data of a block that exists already: written if it differs.
    kept: Option<Vec<u8>>,
}

impl Arriving {
    /// Bytes still to come.
    pub(crate) fn left(&self) -> usize {
        (self.place.len - self.taken) as usize
    }
}

impl Store {
    /// Creates the store of one copy in the folder `root`.
    pub(crate) fn new(root: &Path, manifest: Arc<Manifest>, fsync: bool) -> Result<Store, Trouble> {
        let files = manifest.entries().iter();
        let is_file = |kind: &Kind| matches!(kind, Kind::File { .. });
        let undecided = files.filter(|entry| is_file(&entry.kind)).count();
        Ok(Store {
            root: Folder::open(root).map_err(Trouble::of)?,
            parent: None,
            fsync,
            digests: vec![[0; 32]; manifest.blocks() as usize],
            there: BlockSet::new(manifest.blocks()),
            found: vec![Found::Nothing; manifest.len()],
            writing: Vec::new(),
            files: vec![[0; 32]; manifest.len()],
            verdicts: vec![None; manifest.len()],
            undecided,
            failed: None,
            passed: 0,
            received: 0,
            held: 0,
            manifest,
        })
    }

    /// Opens the folder of an entry; `None` if it does not exist.
    fn parent(&mut self, index: usize) -> Result<Option<Folder>, Trouble> {
        let path = &self.manifest.entries()[index].path;
        let wanted = path.parent().unwrap_or_default();
        if let Some((known, folder)) = &self.parent
            && **known == *wanted
        {
            return Ok(Some(folder.clone()));
        }
        let found = self.root.parent(path).map_err(|e| e.at(index))?;
        self.parent = found.clone().map(|folder| (wanted.into(), folder));
        Ok(found)
    }

    /// Opens the folder of an entry, which was created before.
    fn made_parent(&mut self, index: usize) -> Result<Folder, Trouble> {
        let found = self.parent(index)?;
        found.ok_or_else(|| Trouble::new(Reason::Storage, "its folder is gone").at(index))
    }

    /// Examines what exists. Passes digests to `tell`, and stops when that returns `false`.
    pub(crate) fn scan(&mut self, mut tell: impl FnMut(Held) -> bool) -> Result<(), Trouble> {
        let manifest = Arc::clone(&self.manifest);
        let mut held: Option<Held> = None;
        let mut buffer = vec![0; BLOCK_LEN as usize];
        for (index, entry) in manifest.entries().iter().enumerate() {
            let Kind::File { len } = entry.kind else {
                continue;
            };
            let Some(parent) = self.parent(index)? else {
                continue;
            };
            let first = manifest.blocks_of(index).start;
            let place = file::Place {
                folder: &parent,
                name: entry.path.name(),
                len,
                modified: entry.modified,
            };
            let parts = self.writing.len() < MAX_OPEN;
            let (found, part) = file::find(&place, parts).map_err(|e| e.at(index))?;
            self.found[index] = found;
            let Some(source) = part else { continue };
            let mut wanted = true;
            file::digests(&source, len, &mut buffer, |block, digest| {
                let number = first + block;
                self.digests[number as usize] = digest;
                if self.there.insert(number) {
                    self.held += (len - block * BLOCK_LEN).min(BLOCK_LEN);
                }
                let follows = held.as_ref().is_some_and(|held| {
                    held.first + held.digests.len() as u64 == number
                        && held.digests.len() < MAX_HELD
                });
                if !follows && let Some(held) = held.take() {
                    wanted = tell(held);
                }
                held.get_or_insert_with(|| Held {
                    first: number,
                    digests: Vec::new(),
                })
                .digests
                .push(digest);
                wanted
            })
            .map_err(|e| Trouble::of(e).at(index))?;
            if let Source::Part(part) = source {
                self.writing.push((index, Writing::resume(parent, part)));
            }
            if !wanted {
                return Ok(());
            }
        }
        if let Some(held) = held {
            tell(held);
        }
        Ok(())
    }

    /// Creates the folders, and checks that there is enough space.
    pub(crate) fn prepare(&mut self, layout: &Layout) -> Result<(), Trouble> {
        let manifest = Arc::clone(&self.manifest);
        self.check_room(layout)?;
        for (index, entry) in manifest.entries().iter().enumerate() {
            let at = |trouble: Trouble| trouble.at(index);
            let parent = if index == 0 {
                self.root.make_parents(&entry.path).map_err(at)?
            } else {
                self.made_parent(index)?
            };
            if entry.kind == Kind::Folder {
                // Private until it is complete.
                let folder = parent.make(entry.path.name(), 0o700).map_err(at)?;
                folder.open_up();
            } else if parent.is_blocked(entry.path.name()) {
                return Err(at(Trouble::new(Reason::InTheWay, "")));
            }
        }
        Ok(())
    }

    /// Checks the space for all files that will be written, less what partial files occupy.
    fn check_room(&self, layout: &Layout) -> Result<(), Trouble> {
        let mut new = 0u64;
        let mut last = None;
        for (block, place) in layout.blocks(&self.manifest) {
            if last == Some(place.entry) || self.there.contains(block) {
                continue;
            }
            last = Some(place.entry);
            let part = self
                .writing
                .binary_search_by_key(&place.entry, |(at, _)| *at);
            let has = part.map_or(0, |at| self.writing[at].1.allocated());
            new = new.saturating_add(place.file_len.saturating_sub(has));
        }
        match self.root.free_bytes() {
            Some(free) if free < new => {
                let text = format!("ENOSPC: {new} bytes are needed, {free} are free");
                Err(Trouble::new(Reason::NoSpace, text))
            }
            _ => Ok(()),
        }
    }

    /// Starts a block of the data stream.
    pub(crate) fn begin(&self, block: u64, place: &BlockPlace) -> Arriving {
        Arriving {
            block,
            place: *place,
            hasher: BlockHasher::new(place.index, place.file_len),
            taken: 0,
            kept: self.there.contains(block).then(Vec::new),
        }
    }

    /// Hashes and writes the next bytes of a block. The data of an existing block is kept until its digest is
    /// known.
    pub(crate) fn piece(&mut self, arriving: &mut Arriving, bytes: &[u8]) -> Result<(), Trouble> {
        self.received += bytes.len() as u64;
        arriving.hasher.update(bytes);
        let offset = arriving.place.offset + arriving.taken;
        arriving.taken += bytes.len() as u64;
        match &mut arriving.kept {
            Some(kept) => {
                kept.extend_from_slice(bytes);
                Ok(())
            }
            None => self.write(arriving.place.entry, bytes, offset),
        }
    }

    /// Ends a block: data of an existing block is written unless the digests match.
    pub(crate) fn end(&mut self, arriving: Arriving) -> Result<(), Trouble> {
        let entry = arriving.place.entry;
        let digest = arriving.hasher.finish();
        if let Some(kept) = &arriving.kept {
            if self.digests[arriving.block as usize] == digest {
                return Ok(());
            }
            self.write(entry, kept, arriving.place.offset)?;
        }
        if self.found[entry] == Found::Failed {
            return Ok(());
        }
        self.record(arriving.block, &arriving.place, digest);
        Ok(())
    }

    /// Records that a block is in place with this digest.
    fn record(&mut self, block: u64, place: &BlockPlace, digest: Digest) {
        self.digests[block as usize] = digest;
        if self.there.insert(block) {
            self.held += place.len;
        }
    }

    /// Returns the digest of a block that is there.
    pub(crate) fn digest(&self, block: u64) -> Option<Digest> {
        let there = self.there.contains(block);
        there.then(|| self.digests[block as usize])
    }

    /// Writes a whole block whose digest the caller has computed. Returns false when its file has failed.
    pub(crate) fn insert(
        &mut self,
        block: u64,
        place: &BlockPlace,
        bytes: &[u8],
        digest: Digest,
    ) -> Result<bool, Trouble> {
        self.write(place.entry, bytes, place.offset)?;
        if self.found[place.entry] == Found::Failed {
            return Ok(false);
        }
        self.record(block, place, digest);
        Ok(true)
    }

    /// Writes to the partial file, unless the file has failed.
    fn write(&mut self, entry: usize, bytes: &[u8], offset: u64) -> Result<(), Trouble> {
        if self.found[entry] == Found::Failed {
            return Ok(());
        }
        let writing = self.open(entry).map_err(|e| e.at(entry))?;
        let written = writing.write_all_at(bytes, offset);
        written.map_err(|error| Trouble::of(error).at(entry))
    }

    /// Returns the open partial file, created if necessary.
    fn open(&mut self, index: usize) -> Result<&mut Writing, Trouble> {
        let at = match self
            .writing
            .binary_search_by_key(&index, |(entry, _)| *entry)
        {
            Ok(at) => at,
            Err(at) => {
                let folder = self.made_parent(index)?;
                let entry = &self.manifest.entries()[index];
                let copy_of = match self.found[index] {
                    Found::Whole(seen) => Some(seen),
                    _ => None,
                };
                let writing = Writing::create(folder, entry.path.name(), entry.len(), copy_of)?;
                self.writing.insert(at, (index, writing));
                at
            }
        };
        let writing = &mut self.writing[at].1;
        writing.size(self.manifest.entries()[index].len())?;
        Ok(writing)
    }

    /// Records the sender's verdict on a file, which is decided as soon as all its blocks were received.
    pub(crate) fn verdict(&mut self, index: usize, verdict: FileVerdict) -> Result<(), Trouble> {
        let Some(known) = self.verdicts.get_mut(index) else {
            return Ok(());
        };
        // A decision is final.
        if known.is_some() {
            return Ok(());
        }
        *known = Some(verdict);
        self.undecided -= 1;
        if index < self.passed {
            self.decide(index)?;
        }
        Ok(())
    }

    /// Entries before `index` have received all of their data.
    pub(crate) fn pass(&mut self, index: usize) -> Result<(), Trouble> {
        for entry in self.passed..index {
            self.passed = entry + 1;
            self.decide(entry)?;
        }
        Ok(())
    }

    /// Whether too many files are open: verdicts must be waited for.
    pub(crate) fn is_crowded(&self) -> bool {
        self.writing.len() > 2 * MAX_OPEN
    }

    /// Decides a file that has its verdict and all its blocks.
    fn decide(&mut self, index: usize) -> Result<(), Trouble> {
        let Some(verdict) = self.verdicts[index] else {
            return Ok(());
        };
        let blocks = self.manifest.blocks_of(index);
        let entry = &self.manifest.entries()[index];
        let (mode, modified) = (entry.mode, entry.modified);
        let name = entry.path.name().to_vec();
        let wanted = match verdict {
            FileVerdict::Digest(digest) => digest,
            FileVerdict::Changed => return self.spoil(index, Trouble::new(Reason::Changed, "")),
            FileVerdict::Unreadable => {
                let text = "the sender could not read it to its end";
                return self.spoil(index, Trouble::new(Reason::Changed, text));
            }
        };
        let slice = &self.digests[blocks.start as usize..blocks.end as usize];
        let there = blocks.clone().all(|block| self.there.contains(block));
        if !there || mcp_control::digest::fold(slice) != wanted {
            return self.spoil(index, Trouble::new(Reason::Mismatch, ""));
        }
        let found = self
            .writing
            .binary_search_by_key(&index, |(entry, _)| *entry);
        if let Found::Whole(seen) = self.found[index]
            && found.is_err()
        {
            if !self.keep(index, seen).map_err(|e| e.at(index))? {
                return self.spoil(index, file::changed());
            }
        } else {
            self.open(index).map_err(|e| e.at(index))?;
            let at = self.writing.partition_point(|(entry, _)| *entry < index);
            let (_, writing) = self.writing.remove(at);
            let committed = writing.commit(&name, mode, modified, self.fsync);
            committed.map_err(|e| e.at(index))?;
        }
        self.files[index] = wanted;
        Ok(())
    }

    /// Completes an existing file: sets its permissions and time only. Returns false if the file has changed.
    fn keep(&mut self, index: usize, seen: Seen) -> Result<bool, Trouble> {
        let Some(parent) = self.parent(index)? else {
            return Ok(false);
        };
        let entry = &self.manifest.entries()[index];
        let name = entry.path.name();
        let Some(file) = parent.file(name)? else {
            return Ok(false);
        };
        if Seen::of(&file)? != seen {
            return Ok(false);
        }
        folder::stamp(&file, entry.mode, entry.modified).map_err(Trouble::of)?;
        if self.fsync {
            file.sync_all().map_err(Trouble::of)?;
        }
        // The partial file of an interrupted copy is obsolete.
        let part = mcp_control::path::part_name(name);
        if let Ok(Some(_locked)) = parent.part(&part, false) {
            parent.remove(&part);
        }
        Ok(true)
    }

    /// Marks a file as failed; the others continue.
    fn spoil(&mut self, index: usize, trouble: Trouble) -> Result<(), Trouble> {
        self.found[index] = Found::Failed;
        self.writing.retain(|(entry, _)| *entry != index);
        self.failed.get_or_insert_with(|| trouble.at(index));
        Ok(())
    }

    /// Returns the number of files without a verdict.
    pub(crate) fn undecided(&self) -> usize {
        self.undecided
    }

    /// Returns the bytes received over the data stream, and those of all existing blocks.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            received: self.received,
            held: self.held,
        }
    }

    /// Completes the copy after all files are decided: links, then folders from the inside out.
    pub(crate) fn finish(&mut self) -> Result<Done, Trouble> {
        if let Some(trouble) = self.failed.take() {
            return Err(trouble);
        }
        let manifest = Arc::clone(&self.manifest);
        for (index, entry) in manifest.entries().iter().enumerate().rev() {
            let at = |trouble: Trouble| trouble.at(index);
            let gone = || at(Trouble::new(Reason::Storage, "its folder is gone"));
            match &entry.kind {
                Kind::File { .. } => {}
                Kind::Link { target } => {
                    let parent = self.made_parent(index)?;
                    let name = entry.path.name();
                    parent.link(name, target, entry.modified).map_err(at)?;
                }
                Kind::Folder => {
                    let folder = self.root.find(entry.path.as_bytes()).map_err(at)?;
                    let folder = folder.ok_or_else(gone)?;
                    folder.finish(entry.mode, entry.modified).map_err(at)?;
                    if self.fsync {
                        folder.sync().map_err(at)?;
                    }
                }
            }
        }
        if self.fsync {
            self.sync_parents()?;
        }
        Ok(Done {
            received: self.received,
            bytes: manifest.bytes(),
            whole: manifest.digest(&self.files),
        })
    }

    /// Folders above the top may have been created.
    fn sync_parents(&self) -> Result<(), Trouble> {
        let top = &self.manifest.entries()[0].path;
        let mut path = top.parent();
        while let Some(above) = path {
            if let Some(folder) = self.root.find(above)? {
                folder.sync()?;
            }
            let slash = above.iter().rposition(|&byte| byte == b'/');
            path = slash.map(|slash| &above[..slash]);
        }
        self.root.sync()
    }
}
