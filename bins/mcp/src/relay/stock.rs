//! The blocks that the sender has read, for the hosts that it feeds over links.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mcp_control::Digest;
use mcp_relay::feeder::{Availability, Source};

use crate::tree::Tree;

/// Blocks that are kept in memory after they were read.
const KEPT: usize = 48;
/// Blocks that are read before a host has asked for them.
const AHEAD: usize = 32;
/// The longest pause of the reader for each block. Hosts that get a block from other hosts never request it here.
const PAUSE: Duration = Duration::from_millis(50);

struct State {
    /// Digests of the blocks that were read.
    digests: Vec<Option<Digest>>,
    kept: VecDeque<(u64, Arc<Vec<u8>>)>,
    /// Blocks that were read and not asked for, in order.
    ahead: VecDeque<u64>,
    /// The file that was read again last, by its entry.
    open: Option<(usize, Arc<File>)>,
    over: bool,
    /// Every block was read.
    complete: bool,
    /// When the next block may be sent, with `--rate`.
    free_at: Instant,
}

/// The blocks of one copy.
pub(crate) struct Stock {
    tree: Arc<Tree>,
    state: Mutex<State>,
    changed: Condvar,
    rate_bps: Option<u64>,
    sent: AtomicU64,
    /// A host has been fed: blocks are kept in memory.
    feeds: AtomicBool,
}

impl Stock {
    pub(crate) fn new(tree: Arc<Tree>, rate_bps: Option<u64>) -> Stock {
        let state = State {
            digests: vec![None; tree.manifest.blocks() as usize],
            kept: VecDeque::new(),
            ahead: VecDeque::new(),
            open: None,
            over: false,
            complete: false,
            free_at: Instant::now(),
        };
        Stock {
            tree,
            state: Mutex::new(state),
            changed: Condvar::new(),
            rate_bps,
            sent: AtomicU64::new(0),
            feeds: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a host is fed from now on.
    pub(crate) fn feed(&self) {
        self.feeds.store(true, Ordering::Relaxed);
    }

    /// Whether blocks are to be kept in memory. Until a host is fed they can be read again from the file.
    pub(crate) fn feeds(&self) -> bool {
        self.feeds.load(Ordering::Relaxed)
    }

    /// Adds a block that was read, with its bytes if they are to be kept. With `pauses`, waits a moment while the hosts
    /// are far behind.
    pub(crate) fn put(&self, block: u64, bytes: Option<Vec<u8>>, digest: Digest, pauses: bool) {
        let mut state = self.lock();
        if pauses {
            let is_ahead = |state: &mut State| state.ahead.len() >= AHEAD && !state.over;
            let waited = self.changed.wait_timeout_while(state, PAUSE, is_ahead);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.digests[block as usize] = Some(digest);
        if let Some(bytes) = bytes {
            if state.kept.len() == KEPT {
                state.kept.pop_front();
            }
            state.kept.push_back((block, Arc::new(bytes)));
        }
        if state.ahead.len() == KEPT {
            state.ahead.pop_front();
        }
        state.ahead.push_back(block);
        drop(state);
        self.changed.notify_all();
    }

    /// Records that every block was read.
    pub(crate) fn complete(&self) {
        self.lock().complete = true;
    }

    /// Whether there are blocks that hosts could be asking for.
    pub(crate) fn has_more(&self) -> bool {
        let state = self.lock();
        state.complete || !state.ahead.is_empty()
    }

    /// Ends every wait.
    pub(crate) fn close(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }

    /// Returns the bytes of blocks that were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Waits until the rate allows a block of this length.
    fn pace(&self, len: usize) {
        let Some(rate) = self.rate_bps else { return };
        let now = Instant::now();
        let until = {
            let mut state = self.lock();
            let start = state.free_at.max(now);
            let takes = len as f64 * 8.0 / rate.max(1) as f64;
            state.free_at = start + Duration::from_secs_f64(takes);
            start
        };
        std::thread::sleep(until.saturating_duration_since(now));
    }

    /// Opens the file of an entry, and keeps it open for the next blocks.
    fn open(&self, entry: usize) -> Option<Arc<File>> {
        let file = Arc::new(self.tree.open(entry).ok().flatten()?);
        self.lock().open = Some((entry, Arc::clone(&file)));
        Some(file)
    }

    /// Reads a block again; the same bytes as the first time, or none.
    fn again(&self, block: u64) -> Option<Arc<Vec<u8>>> {
        let place = self.tree.manifest.locate(block)?;
        let (digest, file) = {
            let state = self.lock();
            let open = state
                .open
                .as_ref()
                .filter(|(entry, _)| *entry == place.entry);
            (
                state.digests[block as usize]?,
                open.map(|(_, file)| Arc::clone(file)),
            )
        };
        // The state stays free meanwhile: the reader and the other links do not wait for the disk.
        let file = file.or_else(|| self.open(place.entry));
        let mut bytes = vec![0; place.len as usize];
        let read = file.is_some_and(|file| file.read_exact_at(&mut bytes, place.offset).is_ok());
        if !read {
            // Data that could not be read the first time was announced as zeros.
            bytes.fill(0);
        }
        let found = mcp_control::digest::block(&bytes, place.index, place.file_len);
        (found == digest).then(|| Arc::new(bytes))
    }
}

impl Source for Stock {
    fn wait(&self, block: u64, timeout: Duration) -> Availability {
        let mut state = self.lock();
        while state.ahead.front().is_some_and(|&ahead| ahead <= block) {
            state.ahead.pop_front();
        }
        self.changed.notify_all();
        let pending = |state: &mut State| state.digests[block as usize].is_none() && !state.over;
        let waited = self.changed.wait_timeout_while(state, timeout, pending);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.digests[block as usize] {
            Some(_) => Availability::Ready,
            None if state.over => Availability::Gone,
            None => Availability::Pending,
        }
    }

    fn read(&self, block: u64) -> Option<Arc<Vec<u8>>> {
        let kept = {
            let state = self.lock();
            let found = state.kept.iter().find(|(kept, _)| *kept == block);
            found.map(|(_, bytes)| Arc::clone(bytes))
        };
        let bytes = kept.or_else(|| self.again(block))?;
        self.pace(bytes.len());
        Some(bytes)
    }

    fn served(&self, len: usize) {
        self.sent.fetch_add(len as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK_LEN: usize = mcp_control::limits::BLOCK_LEN as usize;
    /// A time that a test waits for what does not come.
    const MOMENT: Duration = Duration::from_millis(20);

    /// The stock of a file of two and a half blocks, the folder that it is in, and its blocks.
    fn stock() -> (Stock, tempfile::TempDir, [Vec<u8>; 3]) {
        let folder = tempfile::tempdir().expect("folder");
        let blocks = [
            vec![1; BLOCK_LEN],
            vec![2; BLOCK_LEN],
            vec![3; BLOCK_LEN / 2],
        ];
        let file = folder.path().join("f");
        std::fs::write(&file, blocks.concat()).expect("written");
        let tree = Tree::read(&file, None).expect("a tree");
        (Stock::new(Arc::new(tree), None), folder, blocks)
    }

    fn put(stock: &Stock, block: u64, bytes: &[u8]) {
        let place = stock.tree.manifest.locate(block).expect("a block");
        let digest = mcp_control::digest::block(bytes, place.index, place.file_len);
        stock.put(block, Some(bytes.to_vec()), digest, false);
    }

    #[test]
    fn hosts_wait_for_blocks_and_get_them() {
        let (stock, _folder, blocks) = stock();
        assert_eq!(stock.wait(0, MOMENT), Availability::Pending);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| stock.wait(0, Duration::from_secs(60)));
            put(&stock, 0, &blocks[0]);
            assert_eq!(waiting.join().expect("ends"), Availability::Ready);
        });
        assert_eq!(stock.read(0).as_deref(), Some(&blocks[0]));
        assert_eq!(
            stock.read(1),
            None,
            "not read yet: no digest to check it by"
        );
        assert_eq!(stock.wait(0, MOMENT), Availability::Ready);
        assert!(!stock.has_more(), "all that was read was asked for");
        put(&stock, 1, &blocks[1]);
        assert!(stock.has_more());
        stock.close();
        assert_eq!(stock.wait(1, MOMENT), Availability::Ready);
        assert_eq!(stock.wait(2, MOMENT), Availability::Gone);
        stock.served(7);
        stock.served(8);
        assert_eq!(stock.sent(), 15);
    }

    #[test]
    fn blocks_that_are_no_longer_in_memory_come_from_the_file_unless_it_has_changed() {
        let (stock, folder, blocks) = stock();
        for (block, bytes) in blocks.iter().enumerate() {
            put(&stock, block as u64, bytes);
        }
        stock.lock().kept.clear();
        let digest = stock.lock().digests[0].expect("known");
        stock.put(0, None, digest, false);
        assert!(stock.lock().kept.is_empty(), "no host is fed yet");
        for (block, bytes) in blocks.iter().enumerate() {
            assert_eq!(
                stock.read(block as u64).as_ref(),
                Some(&Arc::new(bytes.clone()))
            );
        }
        let file = folder.path().join("f");
        let file = File::options().write(true).open(file).expect("opened");
        file.write_all_at(b"x", BLOCK_LEN as u64).expect("written");
        assert!(stock.read(0).is_some());
        assert_eq!(stock.read(1), None, "other bytes than the announced ones");
        file.set_len(1).expect("cut");
        assert_eq!(stock.read(0), None, "the file is shorter than it was");
    }

    #[test]
    fn memory_is_bounded_and_the_reader_waits_a_moment_for_hosts_that_are_behind() {
        let (stock, _folder, blocks) = stock();
        let place = stock.tree.manifest.locate(0).expect("a block");
        let digest = mcp_control::digest::block(&blocks[0], place.index, place.file_len);
        for _ in 0..2 * KEPT {
            stock.put(0, Some(Vec::new()), digest, false);
        }
        let state = stock.lock();
        assert_eq!((state.kept.len(), state.ahead.len()), (KEPT, KEPT));
        drop(state);
        let began = Instant::now();
        stock.put(0, Some(Vec::new()), digest, true);
        assert!(began.elapsed() >= PAUSE, "nobody has asked");
        stock.wait(0, MOMENT);
        assert!(!stock.has_more(), "a host is past these blocks");
    }
}
