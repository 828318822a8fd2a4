//! Data that is sent again, from the files, to a host that was too slow for the others and needs bytes that
//! have left the group's memory. It is verified against the digests of what was sent first, and encrypted into
//! the same records.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use mcp_control::{BlockPlace, Digest, Layout};
use tcpxm_tokio::Archive;
use tcpxm_tokio::seal::{self, Records};

use crate::tree::Tree;

/// Blocks of 1 MiB that are cached: this many hosts can be served from different places of the stream without
/// reading each block repeatedly.
const KEPT: usize = 8;

/// The digests of the blocks that were sent, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent(Arc<Mutex<Vec<Digest>>>);

impl Sent {
    /// Records the digest of the next block that was sent.
    pub(crate) fn push(&self, digest: Digest) {
        self.list().push(digest);
    }

    fn get(&self, number: usize) -> Option<Digest> {
        self.list().get(number).copied()
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Digest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A block on the data connection.
struct Placed {
    /// Its first byte on the data connection, including framing.
    start: u64,
    /// Its first record.
    record: u64,
    place: BlockPlace,
}

/// Reads the stream of a layout.
pub(crate) struct Resend {
    tree: Arc<Tree>,
    layout: Arc<Layout>,
    sent: Sent,
    records: Option<Records>,
    /// Created when first needed: most copies do not use it.
    blocks: Vec<Placed>,
    /// The blocks read last, newest first: number, and bytes as on the data connection.
    kept: VecDeque<(usize, Vec<u8>)>,
    open: Option<(usize, File)>,
    plain: Vec<u8>,
}

impl Resend {
    /// `key`: the key that the records are encrypted with, if they are.
    pub(crate) fn new(
        tree: Arc<Tree>,
        layout: Arc<Layout>,
        sent: Sent,
        key: Option<&[u8; 32]>,
    ) -> Resend {
        Resend {
            tree,
            layout,
            sent,
            records: key.map(Records::new),
            blocks: Vec::new(),
            kept: VecDeque::new(),
            open: None,
            plain: Vec::new(),
        }
    }

    fn place(&mut self) {
        let (mut start, mut record) = (0, 0);
        for (_, place) in self.layout.blocks(&self.tree.manifest) {
            let records = place.len.div_ceil(seal::MAX_RECORD as u64);
            self.blocks.push(Placed {
                start,
                record,
                place,
            });
            start += place.len;
            if self.records.is_some() {
                start += records * seal::OVERHEAD as u64;
                record += records;
            }
        }
    }

    /// Returns the bytes of a block as they were sent.
    fn block(&mut self, number: usize) -> io::Result<&[u8]> {
        match self.kept.iter().position(|(kept, _)| *kept == number) {
            Some(0) => {}
            Some(at) => {
                let kept = self.kept.remove(at);
                self.kept.extend(kept);
                self.kept.rotate_right(1);
            }
            None => {
                let mut bytes = if self.kept.len() < KEPT {
                    Vec::new()
                } else {
                    self.kept.pop_back().map_or(Vec::new(), |(_, bytes)| bytes)
                };
                self.load(number, &mut bytes)?;
                self.kept.push_front((number, bytes));
            }
        }
        Ok(self.kept.front().map_or(&[], |(_, bytes)| bytes))
    }

    fn load(&mut self, number: usize, bytes: &mut Vec<u8>) -> io::Result<()> {
        let Some(&Placed { record, place, .. }) = self.blocks.get(number) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        self.plain.resize(place.len as usize, 0);
        if self.read_file(&place).is_err() {
            // Data that could not be read the first time was sent as zeros.
            self.plain.fill(0);
        }
        let digest = mcp_control::digest::block(&self.plain, place.index, place.file_len);
        if self.sent.get(number) != Some(digest) {
            return Err(io::Error::other("the file has changed since it was sent"));
        }
        bytes.clear();
        match &self.records {
            // The digest proves that the plaintext is the one of these records.
            Some(records) => {
                for (record, piece) in (record..).zip(self.plain.chunks(seal::MAX_RECORD)) {
                    records.seal(record, piece, bytes)?;
                }
            }
            None => bytes.extend_from_slice(&self.plain),
        }
        Ok(())
    }

    fn read_file(&mut self, place: &BlockPlace) -> io::Result<()> {
        if self
            .open
            .as_ref()
            .is_none_or(|(open, _)| *open != place.entry)
        {
            self.open = None;
            let file = self.tree.open(place.entry)?;
            let file = file.ok_or(io::ErrorKind::UnexpectedEof)?;
            self.open = Some((place.entry, file));
        }
        match &self.open {
            Some((_, file)) => file.read_exact_at(&mut self.plain, place.offset),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Archive for Resend {
    fn end(&mut self) -> u64 {
        if self.blocks.is_empty() {
            self.place();
        }
        let sent = self.sent.list().len();
        self.blocks.get(sent).map_or(u64::MAX, |block| block.start)
    }

    fn read(&mut self, mut offset: u64, mut out: &mut [u8]) -> io::Result<()> {
        if self.blocks.is_empty() {
            self.place();
        }
        while !out.is_empty() {
            let after = self.blocks.partition_point(|block| block.start <= offset);
            let number = after.checked_sub(1).ok_or(io::ErrorKind::UnexpectedEof)?;
            let from = (offset - self.blocks[number].start) as usize;
            let bytes = self.block(number)?;
            let held = bytes.get(from..).filter(|held| !held.is_empty());
            let held = held.ok_or(io::ErrorKind::UnexpectedEof)?;
            let len = held.len().min(out.len());
            let (now, rest) = out.split_at_mut(len);
            now.copy_from_slice(&held[..len]);
            (offset, out) = (offset + len as u64, rest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use mcp_control::BlockSet;
    use tcpxm_tokio::seal::{MAX_RECORD, Sealer};

    use super::*;

    /// A folder of files, all sent in one stream: the stream, and its second reader.
    fn sent(folder: &std::path::Path, key: Option<[u8; 32]>) -> (Vec<u8>, Resend) {
        for (name, len) in [("a", 2_500_000), ("b", 0), ("c", 70_000), ("d", 1 << 20)] {
            let bytes: Vec<u8> = (0..len).map(|at: u32| (at * 7 % 251) as u8).collect();
            fs::write(folder.join(name), bytes).unwrap();
        }
        let tree = Tree::read(folder, None).unwrap();
        let mut missing = BlockSet::new(tree.manifest.blocks());
        missing.insert_missing(&BlockSet::new(tree.manifest.blocks()));
        let layout = Layout::new(&tree.manifest, missing.plan()).unwrap();
        let (list, mut stream) = (Sent::default(), Vec::new());
        let mut sealer = key.map(|key| Sealer::new(&key));
        for (_, place) in layout.blocks(&tree.manifest) {
            let file = fs::read(tree.source(place.entry)).unwrap();
            let bytes = &file[place.offset as usize..][..place.len as usize];
            list.push(mcp_control::digest::block(
                bytes,
                place.index,
                place.file_len,
            ));
            match &mut sealer {
                Some(sealer) => {
                    for piece in bytes.chunks(MAX_RECORD) {
                        sealer.seal(piece, &mut stream).unwrap();
                    }
                }
                None => stream.extend_from_slice(bytes),
            }
        }
        let again = Resend::new(Arc::new(tree), Arc::new(layout), list, key.as_ref());
        (stream, again)
    }

    #[test]
    fn every_byte_is_what_it_was() {
        for key in [None, Some([3; 32])] {
            let folder = tempfile::tempdir().unwrap();
            let (stream, mut again) = sent(folder.path(), key);
            let mut out = vec![0; 1440];
            for from in (0..stream.len() - out.len()).step_by(77_777) {
                again.read(from as u64, &mut out).unwrap();
                assert!(out == stream[from..][..out.len()], "{from} {key:?}");
            }
            let mut all = vec![0; stream.len()];
            again.read(0, &mut all).unwrap();
            assert!(all == stream);
            let error = again.read(stream.len() as u64 - 1, &mut out).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    /// Encrypted, it would use a nonce that was used for another plaintext.
    #[test]
    fn a_file_that_has_changed_is_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let (stream, mut again) = sent(folder.path(), Some([3; 32]));
        let mut out = [0; 100];
        again.read(0, &mut out).unwrap();
        let path = folder.path().join("a");
        let mut bytes = fs::read(&path).unwrap();
        bytes[1_100_000] ^= 1;
        fs::write(&path, bytes).unwrap();
        again.read(0, &mut out).unwrap();
        assert!(out == stream[..100], "the first block is what it was");
        assert!(again.read(1_200_000, &mut out).is_err());
        fs::remove_file(&path).unwrap();
        again.open = None;
        assert!(again.read(1_200_000, &mut out).is_err());
    }

    #[test]
    fn as_many_blocks_are_kept_as_that() {
        let folder = tempfile::tempdir().unwrap();
        let (_, mut again) = sent(folder.path(), None);
        let mut out = [0; 1];
        for from in (0..4_000_000)
            .step_by(100_000)
            .chain((0..4_000_000).step_by(300_000))
        {
            let _ = again.read(from, &mut out);
            assert!(again.kept.len() <= KEPT);
        }
        let numbers: Vec<usize> = again.kept.iter().map(|(number, _)| *number).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), numbers.len(), "each once");
    }
}
