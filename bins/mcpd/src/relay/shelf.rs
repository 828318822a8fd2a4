//! The blocks of a copy that may be passed on: those whose digest is the one that the sender named.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcp_control::{BlockSet, Digest, Manifest};
use mcp_relay::feeder::{Availability, Source};

use crate::activity::Activity;
use crate::store::Trouble;
use crate::store::reader::BlockReader;

/// Blocks that are kept in memory after they have arrived: children usually request them soon.
const KEPT: usize = 16;
/// Blocks that the stream of an island may be behind: what its head sends over a link at the start puts it behind for good,
/// where the stream is as fast as what arrives.
const FOLLOWED: usize = 32;

/// Digests of the sender, and what has arrived.
#[derive(Debug)]
struct State {
    /// Digest of each block that the sender has named, 0 for the others.
    expected: Vec<Digest>,
    named: BlockSet,
    verified: BlockSet,
    /// Blocks that will never be verified: their file has failed on this host.
    gone: BlockSet,
    kept: VecDeque<(u64, Arc<Vec<u8>>)>,
    /// The last [`FOLLOWED`] blocks that were verified, and how many were in all.
    newest: VecDeque<u64>,
    added: u64,
    /// Nothing more arrives.
    over: bool,
}

/// What [`Shelf::next`] has found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Block(u64),
    /// No block was verified in time.
    Nothing,
    /// None will be.
    Over,
}

/// The verified blocks of one copy.
#[derive(Debug)]
pub(crate) struct Shelf {
    manifest: Arc<Manifest>,
    reader: BlockReader,
    state: Mutex<State>,
    changed: Condvar,
    activity: Arc<Activity>,
}

impl Shelf {
    /// Creates the shelf of a copy that is stored below `root`.
    pub(crate) fn new(
        root: &Path,
        manifest: Arc<Manifest>,
        activity: Arc<Activity>,
    ) -> Result<Shelf, Trouble> {
        let blocks = manifest.blocks();
        Ok(Shelf {
            reader: BlockReader::new(root, Arc::clone(&manifest))?,
            state: Mutex::new(State {
                expected: vec![[0; 32]; blocks as usize],
                named: BlockSet::new(blocks),
                verified: BlockSet::new(blocks),
                gone: BlockSet::new(blocks),
                kept: VecDeque::new(),
                newest: VecDeque::new(),
                added: 0,
                over: false,
            }),
            changed: Condvar::new(),
            manifest,
            activity,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the digest that the sender names. The first one stands.
    pub(crate) fn expect(&self, block: u64, digest: Digest) {
        let mut state = self.lock();
        if state.named.insert(block) {
            state.expected[block as usize] = digest;
        }
    }

    /// Returns the digest that the sender has named.
    pub(crate) fn expected(&self, block: u64) -> Option<Digest> {
        let state = self.lock();
        let named = state.named.contains(block);
        named.then(|| state.expected[block as usize])
    }

    /// Records that a block is in place with the named digest; its bytes, if they are at hand, are kept for a while.
    pub(crate) fn add(&self, block: u64, bytes: Option<Vec<u8>>) {
        let mut state = self.lock();
        if !state.verified.insert(block) {
            return;
        }
        if state.newest.len() == FOLLOWED {
            state.newest.pop_front();
        }
        state.newest.push_back(block);
        state.added += 1;
        if let Some(bytes) = bytes {
            if state.kept.len() == KEPT {
                state.kept.pop_front();
            }
            state.kept.push_back((block, Arc::new(bytes)));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the position after the last block that was verified, for [`Shelf::next`].
    pub(crate) fn newest(&self) -> u64 {
        self.lock().added
    }

    /// Returns the first block that was verified at or after position `at`, and advances `at` past it. Leaves out all
    /// but the last one when [`FOLLOWED`] blocks were verified since.
    pub(crate) fn next(&self, at: &mut u64, timeout: Duration) -> Next {
        let state = self.lock();
        let waits = |state: &mut State| state.added == *at && !state.over;
        let waited = self.changed.wait_timeout_while(state, timeout, waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let first = state.added - state.newest.len() as u64;
        if *at < first {
            *at = state.added - 1;
        }
        match state.newest.get((*at - first) as usize) {
            Some(&block) => {
                *at += 1;
                Next::Block(block)
            }
            None if state.over => Next::Over,
            None => Next::Nothing,
        }
    }

    /// Records that a block cannot be stored here.
    pub(crate) fn give_up(&self, block: u64) {
        self.lock().gone.insert(block);
        self.changed.notify_all();
    }

    /// Records that nothing more arrives.
    pub(crate) fn close(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }
}

impl State {
    fn availability(&self, block: u64) -> Availability {
        if self.verified.contains(block) {
            Availability::Ready
        } else if self.over || self.gone.contains(block) {
            Availability::Gone
        } else {
            Availability::Pending
        }
    }
}

impl Source for Shelf {
    fn wait(&self, block: u64, timeout: Duration) -> Availability {
        let state = self.lock();
        let pending = |state: &mut State| state.availability(block) == Availability::Pending;
        let waited = self.changed.wait_timeout_while(state, timeout, pending);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.availability(block)
    }

    fn read(&self, block: u64) -> Option<Arc<Vec<u8>>> {
        let place = self.manifest.locate(block)?;
        let digest = {
            let state = self.lock();
            if let Some((_, bytes)) = state.kept.iter().find(|(kept, _)| *kept == block) {
                return Some(Arc::clone(bytes));
            }
            state.expected[block as usize]
        };
        // Another program may have changed the file: the child must not blame this host for that.
        let is_unchanged =
            |bytes: &[u8]| mcp_control::digest::block(bytes, place.index, place.file_len) == digest;
        self.reader.read(&place, is_unchanged).map(Arc::new)
    }

    fn served(&self, len: usize) {
        if len > 0 {
            self.activity.relayed(len as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use mcp_control::{Entry, Kind, RelPath, Timestamp};

    use super::*;

    const BLOCK_LEN: u64 = mcp_control::limits::BLOCK_LEN;
    /// A time that a test waits for what does not come.
    const MOMENT: Duration = Duration::from_millis(20);

    /// The shelf of a file of `blocks` blocks, and the folder that it is in.
    fn shelf(blocks: u64) -> (Shelf, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("folder");
        let entry = Entry {
            path: RelPath::new(b"f").expect("a path"),
            kind: Kind::File {
                len: blocks * BLOCK_LEN,
            },
            mode: 0o644,
            modified: Timestamp {
                seconds: 0,
                nanos: 0,
            },
        };
        let manifest = Arc::new(Manifest::new(vec![entry]).expect("a manifest"));
        let activity = Arc::new(Activity::default());
        let shelf = Shelf::new(folder.path(), manifest, activity).expect("a shelf");
        (shelf, folder)
    }

    fn digest(shelf: &Shelf, block: u64, bytes: &[u8]) -> Digest {
        let place = shelf.manifest.locate(block).expect("a block");
        mcp_control::digest::block(bytes, place.index, place.file_len)
    }

    #[test]
    fn blocks_are_ready_once_they_are_verified_and_gone_once_nothing_more_comes() {
        let (shelf, _folder) = shelf(3);
        shelf.expect(0, [7; 32]);
        assert_eq!(shelf.wait(0, MOMENT), Availability::Pending);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| shelf.wait(0, Duration::from_secs(60)));
            shelf.add(0, Some(vec![1, 2, 3]));
            assert_eq!(waiting.join().expect("ends"), Availability::Ready);
        });
        assert_eq!(shelf.read(0).as_deref(), Some(&vec![1, 2, 3]));
        shelf.give_up(1);
        assert_eq!(shelf.wait(1, MOMENT), Availability::Gone);
        assert_eq!(shelf.wait(2, MOMENT), Availability::Pending);
        shelf.close();
        assert_eq!(shelf.wait(0, MOMENT), Availability::Ready);
        assert_eq!(shelf.wait(2, MOMENT), Availability::Gone);
    }

    #[test]
    fn the_first_digest_stands_and_blocks_that_do_not_exist_are_ignored() {
        let (shelf, _folder) = shelf(1);
        assert_eq!(shelf.expected(0), None);
        shelf.expect(0, [1; 32]);
        shelf.expect(0, [2; 32]);
        shelf.expect(1, [3; 32]);
        assert_eq!(shelf.expected(0), Some([1; 32]));
        assert_eq!(shelf.expected(1), None);
        shelf.add(1, Some(vec![1]));
        assert_eq!(shelf.read(1), None);
    }

    #[test]
    fn the_stream_of_an_island_follows_and_leaves_out_what_it_is_too_late_for() {
        let (shelf, _folder) = shelf(50);
        shelf.add(7, None);
        let mut at = shelf.newest();
        assert_eq!(shelf.next(&mut at, MOMENT), Next::Nothing);
        shelf.add(3, None);
        shelf.add(3, None);
        assert_eq!(shelf.next(&mut at, MOMENT), Next::Block(3));
        for block in 8..8 + FOLLOWED as u64 {
            shelf.add(block, None);
        }
        assert_eq!(shelf.next(&mut at, MOMENT), Next::Block(8));
        for block in 40..42 {
            shelf.add(block, None);
        }
        shelf.close();
        assert_eq!(shelf.next(&mut at, MOMENT), Next::Block(41));
        assert_eq!(shelf.next(&mut at, MOMENT), Next::Over);
    }

    #[test]
    fn blocks_come_from_the_file_unless_another_program_has_changed_it() {
        let (shelf, folder) = shelf(KEPT as u64 + 2);
        let bytes = |block: u64| vec![block as u8; BLOCK_LEN as usize];
        let blocks = shelf.manifest.blocks();
        let file: Vec<u8> = (0..blocks).flat_map(bytes).collect();
        std::fs::write(folder.path().join("f"), &file).expect("written");
        for block in 0..blocks {
            shelf.expect(block, digest(&shelf, block, &bytes(block)));
            shelf.add(block, Some(bytes(block)));
            shelf.add(block, Some(Vec::new()));
        }
        assert_eq!(shelf.lock().kept.len(), KEPT);
        for block in 0..blocks {
            assert_eq!(shelf.read(block), Some(Arc::new(bytes(block))), "{block}");
        }
        std::fs::write(folder.path().join("f"), &file[1..]).expect("written");
        assert_eq!(shelf.read(0), None, "changed");
        assert!(shelf.read(blocks - 1).is_some(), "still in memory");
    }
}
