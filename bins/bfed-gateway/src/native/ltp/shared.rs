//! State that the data node's thread shares with the threads of LTP sessions: what receivers have received, and how
//! senders ended.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bfed::native::ChannelId;
use linux_net::wake::Waker;

use crate::native::Counter;

/// Bytes of one channel that wait for the data node before its receiver is held back.
const MAX_WAITING: usize = 512 << 10;

/// Counters of the threads.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) contents_sent: AtomicU64,
    pub(super) contents_unconfirmed: AtomicU64,
    pub(super) contents_aborted: AtomicU64,
    pub(super) contents_received: AtomicU64,
    pub(super) contents_incomplete: AtomicU64,
    pub(super) receivers_failed: AtomicU64,
    pub(super) sources_refused: AtomicU64,
    pub(super) blocks_rejected: AtomicU64,
}

/// Adds one to a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counts {
    pub(super) fn list(&self) -> Vec<Counter> {
        [
            ("contents_sent", &self.contents_sent),
            ("contents_unconfirmed", &self.contents_unconfirmed),
            ("contents_aborted", &self.contents_aborted),
            ("contents_received", &self.contents_received),
            ("contents_incomplete", &self.contents_incomplete),
            ("receivers_failed", &self.receivers_failed),
            ("sources_refused", &self.sources_refused),
            ("blocks_rejected", &self.blocks_rejected),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
        .into()
    }
}

/// What one channel has received.
#[derive(Debug, Default)]
struct Input {
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    is_paused: bool,
    /// It is in [`Inner::ready`].
    is_ready: bool,
}

#[derive(Debug, Default)]
struct Inner {
    inputs: BTreeMap<ChannelId, Input>,
    /// Channels with frames that are not paused, each once.
    ready: VecDeque<ChannelId>,
    /// Channels whose sender has ended.
    ended: VecDeque<ChannelId>,
    /// LTP sessions, and channels that may begin one.
    slots: usize,
    /// Threads that run.
    threads: usize,
}

impl Inner {
    fn set_ready(&mut self, channel: ChannelId) {
        if let Some(input) = self.inputs.get_mut(&channel)
            && !input.is_paused
            && !input.frames.is_empty()
            && !std::mem::replace(&mut input.is_ready, true)
        {
            self.ready.push_back(channel);
        }
    }
}

/// The shared state.
#[derive(Debug)]
pub(super) struct Shared {
    inner: Mutex<Inner>,
    /// Notified when a receiver may go on, is admitted or ends, and when a thread has ended.
    changed: Condvar,
    /// Wakes the data node's thread.
    pub(super) waker: Waker,
    pub(super) counts: Counts,
}

/// One of the places for LTP sessions; it is free when dropped.
#[derive(Debug)]
pub(super) struct Slot(Arc<Shared>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.lock().slots -= 1;
    }
}

/// A thread that runs, until this is dropped.
#[derive(Debug)]
pub(super) struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
        self.0.changed.notify_all();
    }
}

impl Shared {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Shared {
            inner: Mutex::default(),
            changed: Condvar::new(),
            waker: Waker::new()?,
            counts: Counts::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for an LTP session; `None` if `most` are taken.
    pub(super) fn slot(self: &Arc<Self>, most: usize) -> Option<Slot> {
        let mut inner = self.lock();
        if inner.slots >= most {
            return None;
        }
        inner.slots += 1;
        Some(Slot(Arc::clone(self)))
    }

    /// Returns how many places are taken.
    pub(super) fn slots(&self) -> usize {
        self.lock().slots
    }

    /// Counts a thread that is about to start.
    pub(super) fn running(self: &Arc<Self>) -> Running {
        self.lock().threads += 1;
        Running(Arc::clone(self))
    }

    /// Waits until no thread runs, but no longer than `limit`.
    pub(super) fn wait_for_threads(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut inner = self.lock();
        while inner.threads > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns whether a thread runs.
    pub(super) fn has_threads(&self) -> bool {
        self.lock().threads > 0
    }

    /// Takes frames of that channel from now on.
    pub(super) fn open(&self, channel: ChannelId) {
        self.lock().inputs.insert(channel, Input::default());
    }

    /// Drops what the channel has received, and takes no more.
    pub(super) fn close(&self, channel: ChannelId) {
        let mut inner = self.lock();
        inner.inputs.remove(&channel);
        inner.ready.retain(|ready| *ready != channel);
        drop(inner);
        self.changed.notify_all();
    }

    pub(super) fn set_paused(&self, channel: ChannelId, is_paused: bool) {
        let mut inner = self.lock();
        if let Some(input) = inner.inputs.get_mut(&channel) {
            input.is_paused = is_paused;
            inner.set_ready(channel);
        }
        drop(inner);
        self.waker.wake();
    }

    /// Passes a frame to the data node. Waits while [`MAX_WAITING`] bytes of the channel wait, unless the flag is raised
    /// or the channel closed: then it returns false.
    pub(super) fn push(&self, channel: ChannelId, frame: Vec<u8>, closed: &AtomicBool) -> bool {
        let mut inner = self.lock();
        loop {
            let Some(input) = inner.inputs.get_mut(&channel) else {
                return false;
            };
            if closed.load(Ordering::SeqCst) {
                return false;
            }
            if input.bytes < MAX_WAITING {
                input.bytes += frame.len();
                input.frames.push_back(frame);
                break;
            }
            let waited = self.changed.wait(inner);
            inner = waited.unwrap_or_else(PoisonError::into_inner);
        }
        inner.set_ready(channel);
        drop(inner);
        self.waker.wake();
        true
    }

    /// Returns the next frame for the data node, of each channel in turn.
    pub(super) fn pop(&self) -> Option<(ChannelId, Vec<u8>)> {
        let mut inner = self.lock();
        while let Some(channel) = inner.ready.pop_front() {
            let Some(input) = inner.inputs.get_mut(&channel) else {
                continue;
            };
            input.is_ready = false;
            if input.is_paused {
                continue;
            }
            let Some(frame) = input.frames.pop_front() else {
                continue;
            };
            let was_full = input.bytes >= MAX_WAITING;
            input.bytes -= frame.len();
            let has_room = was_full && input.bytes < MAX_WAITING;
            inner.set_ready(channel);
            drop(inner);
            if has_room {
                self.changed.notify_all();
            }
            return Some((channel, frame));
        }
        None
    }

    /// Reports that the sender of a channel has ended.
    pub(super) fn sender_ended(&self, channel: ChannelId) {
        self.lock().ended.push_back(channel);
        self.waker.wake();
    }

    /// Returns a channel whose sender has ended.
    pub(super) fn next_ended(&self) -> Option<ChannelId> {
        self.lock().ended.pop_front()
    }

    /// Lets the descriptor be readable for new events alone, if none are left.
    pub(super) fn reset(&self) {
        let inner = self.lock();
        if inner.ready.is_empty() && inner.ended.is_empty() {
            self.waker.reset();
        }
    }

    /// Raises a flag that threads wait for.
    pub(super) fn raise(&self, flag: &AtomicBool) {
        // Under the lock, so that no thread misses it between its look and its wait.
        let inner = self.lock();
        flag.store(true, Ordering::SeqCst);
        drop(inner);
        self.changed.notify_all();
    }

    /// Waits until one of the flags is raised, or for that time.
    pub(super) fn wait_for(&self, flags: &[&AtomicBool], limit: Option<Duration>) {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut inner = self.lock();
        while !flags.iter().any(|flag| flag.load(Ordering::SeqCst)) {
            inner = match until {
                None => {
                    let waited = self.changed.wait(inner);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return;
                    }
                    let waited = self.changed.wait_timeout(inner, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_waits_while_the_data_node_does_not_read() {
        let shared = Shared::new().expect("an eventfd");
        let (one, two) = (ChannelId(1), ChannelId(2));
        let closed = Arc::new(AtomicBool::new(false));
        shared.open(one);
        shared.open(two);
        let pushed = Arc::new(AtomicU64::new(0));
        let thread = std::thread::spawn({
            let (shared, closed, pushed) = (shared.clone(), closed.clone(), pushed.clone());
            move || {
                while shared.push(one, vec![0; 64 << 10], &closed) {
                    count(&pushed);
                }
            }
        });
        let full = (MAX_WAITING >> 16) as u64;
        while pushed.load(Ordering::SeqCst) < full {
            std::thread::yield_now();
        }
        // Others have their turn.
        assert!(shared.push(two, vec![7], &closed));
        let mut taken = [0, 0];
        for _ in 0..4 {
            let (channel, _) = shared.pop().expect("a frame");
            taken[usize::from(channel == two)] += 1;
        }
        assert_eq!(taken, [3, 1]);
        shared.set_paused(one, true);
        assert_eq!(shared.pop(), None);
        shared.set_paused(one, false);
        assert!(shared.pop().is_some());
        shared.raise(&closed);
        thread.join().expect("the thread ends");
        let waiting = std::iter::from_fn(|| shared.pop()).count() as u64;
        assert!(waiting <= full, "{waiting}");
        shared.close(two);
        assert!(!shared.push(two, vec![7], &AtomicBool::new(false)));
    }

    #[test]
    fn slots_are_bounded_and_come_back() {
        let shared = Shared::new().expect("an eventfd");
        let slots: Vec<_> = (0..2).filter_map(|_| shared.slot(2)).collect();
        assert_eq!(slots.len(), 2);
        assert!(shared.slot(2).is_none());
        drop(slots);
        assert_eq!(shared.slots(), 0);
        assert!(shared.slot(2).is_some());
        let running = shared.running();
        std::thread::spawn(move || drop(running));
        shared.wait_for_threads(Duration::from_secs(60));
        assert_eq!(shared.lock().threads, 0);
    }
}
