//! The blocks that the sender has read, for the hosts that it feeds over links.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mcp_control::Digest;
use mcp_relay::feeder::{Availability, Source};

use crate::tree::Tree;

/// Blocks that are kept in memory after they were read.
const KEPT: usize = 48;
/// Blocks that are read before a host has asked for them.
const AHEAD: usize = 32;
/// The longest pause of the reader for each block: no host may ask the sender for what other hosts have.
const PAUSE: Duration = Duration::from_millis(50);

struct State {
    /// Digests of the blocks that were read.
    digests: Vec<Option<Digest>>,
    kept: VecDeque<(u64, Arc<Vec<u8>>)>,
    /// Blocks that were read and not asked for, in order.
    ahead: VecDeque<u64>,
    open: Option<(usize, File)>,
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
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a block that was read. With `pauses`, waits a moment while the hosts are far behind.
    pub(crate) fn put(&self, block: u64, bytes: Vec<u8>, digest: Digest, pauses: bool) {
        let mut state = self.lock();
        if pauses {
            let is_ahead = |state: &mut State| state.ahead.len() >= AHEAD && !state.over;
            let waited = self.changed.wait_timeout_while(state, PAUSE, is_ahead);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.digests[block as usize] = Some(digest);
        if state.kept.len() == KEPT {
            state.kept.pop_front();
        }
        if state.ahead.len() == KEPT {
            state.ahead.pop_front();
        }
        state.kept.push_back((block, Arc::new(bytes)));
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

    /// Reads a block again; the same bytes as the first time, or none.
    fn again(&self, block: u64) -> Option<Arc<Vec<u8>>> {
        let place = self.tree.manifest.locate(block)?;
        let mut bytes = vec![0; place.len as usize];
        let mut state = self.lock();
        let digest = state.digests[block as usize]?;
        if state
            .open
            .as_ref()
            .is_none_or(|(open, _)| *open != place.entry)
        {
            let file = self.tree.open(place.entry).ok().flatten();
            state.open = file.map(|file| (place.entry, file));
        }
        let read = match &state.open {
            Some((_, file)) => file.read_exact_at(&mut bytes, place.offset).is_ok(),
            None => false,
        };
        drop(state);
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
