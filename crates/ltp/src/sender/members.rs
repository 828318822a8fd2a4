//! The receivers a sender keeps account of, and how far the slowest is.

use core::hash::Hasher;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use managed::ManagedSlice;
use siphasher::sip::SipHasher13;
use smoltcp::time::{Duration, Instant};

/// Where a receiver stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum State {
    #[default]
    Free,
    Active,
    Complete,
    Failed,
}

/// One receiver: an entry of the caller's storage.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub(crate) id: u64,
    pub(crate) blocks: u64,
    pub(crate) address: SocketAddr,
    pub(crate) heard: Instant,
    pub(crate) state: State,
    /// Whether the window waits for it.
    pub(crate) counted: bool,
    /// It held something else than was sent, and was told so.
    pub(crate) mismatched: bool,
}

impl Default for Member {
    fn default() -> Self {
        Member {
            id: 0,
            blocks: 0,
            address: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
            heard: Instant::ZERO,
            state: State::Free,
            counted: false,
            mismatched: false,
        }
    }
}

/// How many places a lookup tries.
const PROBES: usize = 32;

/// A bounded table of receivers by identifier.
#[derive(Debug)]
pub(crate) struct Members<'a> {
    table: ManagedSlice<'a, Member>,
    key: [u8; 16],
    pub(crate) joined: u32,
    pub(crate) complete: u32,
    /// Those that are waited for.
    pub(crate) active: u32,
    cursor: usize,
}

impl<'a> Members<'a> {
    pub(crate) fn new(table: ManagedSlice<'a, Member>, key: [u8; 16]) -> Self {
        let mut members = Members {
            table,
            key,
            joined: 0,
            complete: 0,
            active: 0,
            cursor: 0,
        };
        members.table.fill(Member::default());
        members
    }

    pub(crate) fn capacity(&self) -> usize {
        self.table.len()
    }

    /// The place of a receiver, or a free one for it; `None`: full.
    pub(crate) fn find(&self, id: u64) -> Option<usize> {
        let len = self.table.len();
        if len == 0 {
            return None;
        }
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write_u64(id);
        let start = (hasher.finish() % len as u64) as usize;
        (0..PROBES.min(len))
            .map(|step| (start + step) % len)
            .find(|&at| self.table[at].state == State::Free || self.table[at].id == id)
    }

    pub(crate) fn get(&self, at: usize) -> &Member {
        &self.table[at]
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> &mut Member {
        &mut self.table[at]
    }

    /// Looks at the next few receivers in turn for one that went silent.
    pub(crate) fn next_silent(&mut self, now: Instant, timeout: Duration) -> Option<usize> {
        for _ in 0..self.table.len().min(256) {
            let at = self.cursor;
            self.cursor = (self.cursor + 1) % self.table.len();
            let member = &self.table[at];
            if member.state == State::Active && member.heard + timeout <= now {
                return Some(at);
            }
        }
        None
    }
}

/// How many receivers stand at each block of the window: the slowest is known at once, without
/// walking the receivers.
#[derive(Debug)]
pub(crate) struct Window<'a> {
    /// Entry `b % len` counts receivers whose first missing block is `b`, base <= b < base + len.
    counts: ManagedSlice<'a, u32>,
    base: u64,
    counted: u32,
}

impl<'a> Window<'a> {
    pub(crate) fn new(counts: ManagedSlice<'a, u32>, base: u64) -> Self {
        let mut window = Window {
            counts,
            base,
            counted: 0,
        };
        window.counts.fill(0);
        window
    }

    pub(crate) fn is_used(&self) -> bool {
        self.counts.len() > 1
    }

    /// Blocks it spans.
    pub(crate) fn blocks(&self) -> u64 {
        self.counts.len().saturating_sub(1) as u64
    }

    /// First block that a counted receiver may lack; `None`: nobody is counted.
    pub(crate) fn slowest(&self) -> Option<u64> {
        (self.counted > 0).then_some(self.base)
    }

    /// New data must stay below this block.
    pub(crate) fn limit(&self) -> u64 {
        match self.slowest() {
            Some(base) if self.is_used() => base + self.blocks(),
            _ => u64::MAX,
        }
    }

    fn index(&self, block: u64) -> usize {
        (block % self.counts.len() as u64) as usize
    }

    /// A receiver moved on, or is new (`old` is `None`); whether it is counted now. `sent` is the
    /// number of blocks begun.
    pub(crate) fn moved(&mut self, old: Option<u64>, new: u64, sent: u64) -> bool {
        if !self.is_used() {
            return false;
        }
        if self.counted == 0 {
            // Nobody holds the window: it stands where this one does, if that is not too far
            // behind.
            self.base = new.max(sent.saturating_sub(self.blocks()));
        }
        if let Some(old) = old {
            self.leave(old);
        }
        if new < self.base || new > self.base + self.blocks() {
            self.advance();
            return false;
        }
        let index = self.index(new);
        self.counts[index] += 1;
        self.counted += 1;
        self.advance();
        true
    }

    /// A counted receiver that stood at `old` is no longer waited for.
    pub(crate) fn left(&mut self, old: u64) {
        if self.is_used() {
            self.leave(old);
            self.advance();
        }
    }

    fn leave(&mut self, old: u64) {
        let index = self.index(old);
        self.counts[index] -= 1;
        self.counted -= 1;
    }

    fn advance(&mut self) {
        // Some entry is not zero while anybody is counted, so this ends.
        while self.counted > 0 && self.counts[self.index(self.base)] == 0 {
            self.base += 1;
        }
    }
}
