//! What the program is doing and has done: for `status` and metrics.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::session::Outcome;

/// The copies that are running, and the totals of those that have ended.
#[derive(Debug, Default)]
pub(crate) struct Activity(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    running: BTreeMap<u64, Running>,
    totals: Totals,
}

/// A copy that is running.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) peer: SocketAddr,
    pub(crate) name: String,
    /// Bytes of the whole copy.
    pub(crate) bytes: u64,
    /// Bytes that came over the data connection.
    pub(crate) received: u64,
    /// Bytes that were already there.
    pub(crate) held: u64,
    pub(crate) since: Instant,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) copied: u64,
    pub(crate) failed: u64,
    /// Bytes that came over data connections, as far as progress was reported.
    pub(crate) received: u64,
    pub(crate) refused: u64,
    /// Blocks served to other hosts, and their bytes.
    pub(crate) relayed_blocks: u64,
    pub(crate) relayed: u64,
    /// Hosts that are served now.
    pub(crate) children: u64,
}

/// A running copy's entry; removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    activity: Arc<Activity>,
    number: u64,
    /// How the copy ended.
    pub(crate) outcome: Outcome,
}

impl Activity {
    /// Adds a copy.
    pub(crate) fn begin(self: &Arc<Self>, running: Running) -> Entry {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        state.running.insert(number, running);
        Entry {
            activity: Arc::clone(self),
            number,
            outcome: Outcome::Failed,
        }
    }

    /// Counts a connection that was refused.
    pub(crate) fn refused(&self) {
        self.lock().totals.refused += 1;
    }

    /// Counts a block that was served to another host.
    pub(crate) fn relayed(&self, len: u64) {
        let totals = &mut self.lock().totals;
        totals.relayed_blocks += 1;
        totals.relayed += len;
    }

    /// Counts a host that is served from now on.
    pub(crate) fn child_began(&self) {
        self.lock().totals.children += 1;
    }

    /// Counts a host that is served no more.
    pub(crate) fn child_ended(&self) {
        let totals = &mut self.lock().totals;
        totals.children = totals.children.saturating_sub(1);
    }

    /// Returns the running copies, oldest first.
    pub(crate) fn running(&self) -> Vec<Running> {
        self.lock().running.values().cloned().collect()
    }

    /// Returns the counters and the number of running copies.
    pub(crate) fn totals(&self) -> (Totals, usize) {
        let state = self.lock();
        (state.totals, state.running.len())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Records the bytes received over the data connection, and those that were already in place.
    pub(crate) fn progress(&self, received: u64, held: u64) {
        let mut state = self.activity.lock();
        let State {
            running, totals, ..
        } = &mut *state;
        if let Some(copy) = running.get_mut(&self.number) {
            totals.received += received.saturating_sub(copy.received);
            copy.received = copy.received.max(received);
            copy.held = held;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut state = self.activity.lock();
        state.running.remove(&self.number);
        match self.outcome {
            Outcome::Copied => state.totals.copied += 1,
            Outcome::Failed => state.totals.failed += 1,
        }
    }
}
