//! One stream of sent data and all its receivers.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::net::IpAddr;

use proto_core::time::{Duration, Instant};

use super::flow::{Flow, GroupAddress};
use super::mode::Mode;
use super::turns::{Pace, Turns};
use crate::config::Prefix;
use crate::event::Report;
use crate::mintree::MinTree;
use crate::pcb::Key;
use crate::seq::Seq;
use crate::store::{Ring, Store, StoreError};
use crate::wire::Signer;

/// The data: of a plain connection in a ring, of a group in its owner's store.
#[derive(Debug)]
pub(crate) enum Buffer<S> {
    Ring(Ring),
    Given(S),
}

impl<S: Store> Buffer<S> {
    fn store(&self) -> &dyn Store
    where
        S: Sized,
    {
        match self {
            Buffer::Ring(ring) => ring,
            Buffer::Given(store) => store,
        }
    }

    fn store_mut(&mut self) -> &mut dyn Store {
        match self {
            Buffer::Ring(ring) => ring,
            Buffer::Given(store) => store,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        self.store_mut().write(bytes)
    }

    pub(crate) fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.store_mut().read(offset, out)
    }

    pub(crate) fn end(&self) -> u64 {
        self.store().end()
    }

    pub(crate) fn room(&self) -> usize {
        self.store().room()
    }

    pub(crate) fn release(&mut self, before: u64) {
        self.store_mut().release(before);
    }

    pub(crate) fn is_rereadable(&self) -> bool {
        self.store().is_rereadable()
    }
}

/// A stream with one receiver, or a group of them.
#[derive(Debug)]
pub(crate) struct Session<S> {
    pub(crate) generation: u32,
    pub(crate) store: Buffer<S>,
    pub(crate) flows: Vec<Flow>,
    pub(crate) turns: Turns,
    /// Block of each member, by member number; nothing once it is gone.
    pub(crate) members: Vec<Option<u32>>,
    /// Members that are not gone.
    pub(crate) present: usize,
    /// By member: first unacknowledged byte. Data before the smallest may leave the store.
    pub(crate) unas: MinTree,
    pub(crate) closing: bool,
    /// A write did not fit, and no space was reported since.
    pub(crate) wants_room: bool,
    pub(crate) group: Option<GroupState>,
}

/// State that only a group has.
#[derive(Debug)]
pub(crate) struct GroupState {
    /// Mode in which members start.
    pub(crate) start: Mode,
    /// Ports, address and initial sequence number that all members share.
    pub(crate) sender: (Key, IpAddr, Seq),
    pub(crate) offered: Option<IpAddr>,
    /// What segments are signed with.
    pub(crate) signer: Option<Signer>,
    pub(crate) max_alternatives: usize,
    /// The range that alternative groups must be in.
    pub(crate) alternative_ranges: Vec<Prefix>,
    pub(crate) min_receivers: usize,
    /// Members that have not answered yet.
    pub(crate) waiting: usize,
    /// Members whose connection has not ended.
    pub(crate) open: usize,
    pub(crate) ready: bool,
    pub(crate) min_rate_bps: Option<u64>,
    /// The current check for stragglers.
    pub(crate) watch: Option<Watch>,
    pub(crate) ready_due: bool,
    pub(crate) writable_due: bool,
    /// The event of the end of all its connections.
    pub(crate) closed: Report,
}

/// How long a group is below its rate before receivers are detached for it.
pub(crate) const RATE_CHECK: Duration = Duration::from_secs(1);
/// Interval of the checks.
pub(crate) const RATE_SAMPLE: Duration = Duration::from_millis(25);

/// Observations since progress was last measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) since: Instant,
    /// End of the data sent by then.
    pub(crate) sent: u64,
    /// Time of the next check.
    pub(crate) next: Instant,
    /// Looks that found the group held back by windows.
    pub(crate) looks: u8,
}

impl GroupState {
    /// Whether data may be sent to a group because a receiver asks for it. `in_use`: the groups that
    /// data goes to already.
    pub(crate) fn may_serve(&self, group: IpAddr, in_use: &[GroupAddress]) -> bool {
        let Some(offered) = self.offered else {
            return false;
        };
        if group == offered || in_use.iter().any(|known| known.address == group) {
            return true;
        }
        let alternatives = in_use.iter().filter(|known| known.address != offered);
        let mut allowed = self.alternative_ranges.iter();
        alternatives.count() < self.max_alternatives && allowed.any(|range| range.contains(group))
    }
}

impl Watch {
    pub(crate) fn begin(now: Instant, sent: u64) -> Self {
        Self {
            since: now,
            sent,
            next: now + RATE_SAMPLE,
            looks: 0,
        }
    }
}

impl<S: Store> Session<S> {
    /// A session without flows and members.
    pub(crate) fn new(generation: u32, store: Buffer<S>, rate_bps: Option<u64>) -> Self {
        Self {
            generation,
            store,
            flows: Vec::new(),
            turns: Turns {
                cap: Pace::at(rate_bps.unwrap_or(0)),
                ..Turns::default()
            },
            members: Vec::new(),
            present: 0,
            unas: MinTree::new(),
            closing: false,
            wants_room: false,
            group: None,
        }
    }

    /// Adds a member; its number.
    pub(crate) fn add_member(&mut self, index: u32) -> u32 {
        self.members.push(Some(index));
        self.present += 1;
        self.members.len() as u32 - 1
    }

    /// Informs the flows of new data in the store.
    pub(crate) fn refresh_unsent(&mut self) {
        let end = self.store.end();
        for flow in &mut self.flows {
            flow.unsent = end.saturating_sub(flow.nxt);
            flow.closing = self.closing;
        }
    }

    /// Whether there is enough space to report: at most a quarter of the store.
    pub(crate) fn is_writable(&self) -> bool {
        let (room, end) = (self.store.room() as u64, self.store.end());
        let held = end - self.unas.min().min(end);
        room > 0 && room >= (room + held) / 4
    }

    /// Whether a flow that could send has to wait for the session's rate, or for others that wait
    /// longer.
    pub(crate) fn must_wait(&self, flow: u32, now: Instant) -> bool {
        let turns = &self.turns;
        !turns.cap.allows(now) || (!turns.waiting.is_empty() && turns.given != Some(flow))
    }

    /// Releases data that all receivers have, after one has everything before `una`. Where the store can read
    /// everything again, only receivers in step count, and those that are not in step when they are the first
    /// to have it.
    pub(crate) fn release(&mut self, una: u64) {
        let least = self.unas.min();
        let never_in_step = |group: &GroupState| group.start == Mode::UnicastOnly;
        let before = if least != MinTree::NONE {
            least
        } else if !self.store.is_rereadable() {
            return;
        } else if !self.group.as_ref().is_some_and(never_in_step) {
            self.store.end()
        } else if una != MinTree::NONE {
            una
        } else {
            return;
        };
        self.store.release(before);
    }
}
