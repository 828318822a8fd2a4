//! The receivers that a sender tracks, and the position of the slowest.
//!
//! A member is one verified socket address; a host is its IP address. All members of a host
//! lie in one probe sequence of the table, so that a host's share of the table and its confirmations are
//! counted with one lookup.

use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use managed::ManagedSlice;
use proto_core::time::{Duration, Instant};
use siphasher::sip::SipHasher13;

use crate::event::{ReceiverFailure, ReceiverState};

/// State of a table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum State {
    #[default]
    Free,
    /// The session waits for it.
    Active,
    Complete,
    Failed(ReceiverFailure),
}

/// One receiver: an entry of the caller's storage.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub(crate) id: u64,
    pub(crate) blocks: u64,
    pub(crate) address: SocketAddr,
    pub(crate) heard: Instant,
    /// When it last advanced, or last reported that it lacked nothing.
    pub(crate) advanced: Instant,
    pub(crate) state: State,
    /// Whether the window waits for it.
    pub(crate) counted: bool,
    /// It held something else than was sent, and was told so.
    pub(crate) mismatched: bool,
    /// Another receiver has joined from the same host since this one was last heard.
    pub(crate) doubted: bool,
    /// How often it failed or was started again.
    pub(crate) strikes: u8,
}

impl Default for Member {
    fn default() -> Self {
        Member {
            id: 0,
            blocks: 0,
            address: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
            heard: Instant::ZERO,
            advanced: Instant::ZERO,
            state: State::Free,
            counted: false,
            mismatched: false,
            doubted: false,
            strikes: 0,
        }
    }
}

impl Member {
    pub(crate) fn public_state(&self) -> Option<ReceiverState> {
        match self.state {
            State::Free => None,
            State::Active => Some(ReceiverState::Receiving),
            State::Complete => Some(ReceiverState::Complete),
            State::Failed(failure) => Some(ReceiverState::Failed(failure)),
        }
    }

    /// Failed, and no later receiver of its host took its place.
    fn is_lost(&self) -> bool {
        matches!(self.state, State::Failed(failure) if failure != ReceiverFailure::Replaced)
    }
}

/// Entries that a lookup tries.
const PROBES: usize = 32;
/// Entries of one host at most, in a large table.
const MAX_PER_HOST: usize = 16;
/// A host of which receivers failed or were started again this often is not waited for any more.
const MAX_STRIKES: u32 = 3;

/// Result of a lookup by address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Known(usize),
    /// A free entry, or one of the same host that may be reused.
    New(usize),
    Full,
}

/// When a member is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    pub(crate) silence: Duration,
    pub(crate) progress: Duration,
    /// Blocks that were sent whole: a member that has fewer lacks something.
    pub(crate) sent: u64,
    /// Everything was sent: a member that is not complete lacks something.
    pub(crate) all_sent: bool,
}

/// A bounded table of receivers by address.
#[derive(Debug)]
pub(crate) struct Members<'a> {
    table: ManagedSlice<'a, Member>,
    key: [u8; 16],
    /// Hosts that joined.
    pub(crate) joined: u32,
    /// Hosts of which a receiver is complete.
    pub(crate) complete: u32,
    /// Members that are waited for.
    pub(crate) active: u32,
    /// Members that failed and were not replaced.
    pub(crate) failed: u32,
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
            failed: 0,
            cursor: 0,
        };
        members.table.fill(Member::default());
        members
    }

    pub(crate) fn capacity(&self) -> usize {
        self.table.len()
    }

    /// Entries that one host may have: an eighth of the table, 2 at least and 16 at most.
    fn per_host(&self) -> usize {
        (self.table.len() / 8).clamp(2, MAX_PER_HOST)
    }

    /// The entries where members of a host can lie.
    fn probes(&self, host: IpAddr) -> impl Iterator<Item = usize> + use<> {
        let len = self.table.len();
        let mut hasher = SipHasher13::new_with_key(&self.key);
        match host {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        let start = (hasher.finish() % len.max(1) as u64) as usize;
        (0..PROBES.min(len)).map(move |step| (start + step) % len)
    }

    /// Indices of the members of a host.
    fn of_host(&self, host: IpAddr) -> impl Iterator<Item = usize> {
        self.probes(host).filter(move |&at| {
            let member = &self.table[at];
            member.state != State::Free && member.address.ip() == host
        })
    }

    /// The entry of an address, or one for it.
    pub(crate) fn place(&self, address: SocketAddr) -> Place {
        let (mut free, mut of_host, mut reusable) = (None, 0, None);
        for at in self.probes(address.ip()) {
            let member = &self.table[at];
            if member.state == State::Free {
                free = free.or(Some(at));
            } else if member.address == address {
                return Place::Known(at);
            } else if member.address.ip() == address.ip() {
                of_host += 1;
                if matches!(member.state, State::Failed(_)) {
                    reusable = reusable.or(Some(at));
                }
            }
        }
        let free = free.filter(|_| of_host < self.per_host());
        free.or(reusable).map_or(Place::Full, Place::New)
    }

    pub(crate) fn get(&self, at: usize) -> &Member {
        &self.table[at]
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> &mut Member {
        &mut self.table[at]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.table
            .iter()
            .filter(|member| member.state != State::Free)
    }

    /// Adds a member in an entry that [`Members::place`] named. It takes the place of members of its host
    /// that failed. It is not waited for if receivers of its host failed too often.
    pub(crate) fn join(&mut self, at: usize, member: Member) {
        let host = member.address.ip();
        let is_new = self.of_host(host).next().is_none();
        self.joined += u32::from(is_new);
        let strikes_of_host = self.strikes(host);
        if self.table[at].is_lost() {
            self.failed -= 1;
        }
        // The strikes of a reused entry count for its host.
        let strikes = self.table[at].strikes;
        self.table[at].state = State::Free;
        for other in self.probes(host) {
            let other = &mut self.table[other];
            if other.state == State::Free || other.address.ip() != host {
                continue;
            }
            other.doubted = true;
            if other.is_lost() {
                other.state = State::Failed(ReceiverFailure::Replaced);
                self.failed -= 1;
            }
        }
        self.table[at] = Member { strikes, ..member };
        if strikes_of_host >= MAX_STRIKES {
            self.table[at].state = State::Failed(ReceiverFailure::NotWaitedFor);
            self.failed += 1;
        } else {
            self.table[at].state = State::Active;
            self.active += 1;
        }
    }

    /// The address of the receiver on a host that is waited for; `None` if it is not exactly one.
    pub(crate) fn only_active(&self, host: IpAddr) -> Option<SocketAddr> {
        let mut active = self
            .of_host(host)
            .map(|at| &self.table[at])
            .filter(|member| member.state == State::Active);
        let only = active.next()?;
        active.next().is_none().then_some(only.address)
    }

    /// How often receivers of a host failed or were started again.
    fn strikes(&self, host: IpAddr) -> u32 {
        self.of_host(host)
            .map(|at| u32::from(self.table[at].strikes))
            .sum()
    }

    /// An active member is not waited for any more.
    pub(crate) fn fail(&mut self, at: usize, failure: ReceiverFailure) {
        let member = &mut self.table[at];
        member.strikes = member.strikes.saturating_add(1);
        member.state = State::Failed(failure);
        self.active -= 1;
        self.failed += u32::from(failure != ReceiverFailure::Replaced);
    }

    /// A member has everything.
    pub(crate) fn complete(&mut self, at: usize) {
        let host = self.table[at].address.ip();
        let is_first = !self.is_host_complete(host);
        self.complete += u32::from(is_first);
        self.active -= u32::from(self.table[at].state == State::Active);
        self.failed -= u32::from(self.table[at].is_lost());
        self.table[at].state = State::Complete;
    }

    /// The member at an address started again from nothing.
    pub(crate) fn restart(&mut self, at: usize, id: u64) {
        let was = self.table[at].state;
        let member = &mut self.table[at];
        member.id = id;
        member.blocks = 0;
        member.mismatched = false;
        member.strikes = member.strikes.saturating_add(1);
        let host = member.address.ip();
        if self.strikes(host) >= MAX_STRIKES {
            if was == State::Active {
                self.fail(at, ReceiverFailure::NotWaitedFor);
            }
            return;
        }
        self.failed -= u32::from(self.table[at].is_lost());
        self.active += u32::from(was != State::Active);
        self.table[at].state = State::Active;
        if was == State::Complete && !self.is_host_complete(host) {
            self.complete -= 1;
        }
    }

    fn is_host_complete(&self, host: IpAddr) -> bool {
        self.of_host(host)
            .any(|at| self.table[at].state == State::Complete)
    }

    /// Looks at the next few members in turn; the index of one that is to be given up, and why. `left` is
    /// how many are still to be looked at.
    pub(crate) fn next_expired(
        &mut self,
        now: Instant,
        deadlines: &Deadlines,
        left: &mut usize,
    ) -> Option<(usize, ReceiverFailure)> {
        while *left > 0 && !self.table.is_empty() {
            *left -= 1;
            let at = self.cursor;
            self.cursor = (self.cursor + 1) % self.table.len();
            let member = &self.table[at];
            if member.state != State::Active {
                continue;
            }
            if member.heard + deadlines.silence <= now {
                let failure = if member.doubted {
                    ReceiverFailure::Replaced
                } else {
                    ReceiverFailure::Silent
                };
                return Some((at, failure));
            }
            let lacks = deadlines.all_sent || member.blocks < deadlines.sent;
            if lacks && member.advanced + deadlines.progress <= now {
                return Some((at, ReceiverFailure::NoProgress));
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

    /// Returns the first block that a counted receiver may lack; `None` without any.
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
            // No receiver is counted: the window starts at this one, unless that is too far back.
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

    /// Forgets all receivers, and begins at this block.
    pub(crate) fn restart(&mut self, base: u64) {
        self.counts.fill(0);
        self.counted = 0;
        self.base = base;
    }

    /// Counts a receiver that stands at this block, if that lies within the window; whether it is counted.
    pub(crate) fn enter(&mut self, block: u64) -> bool {
        let inside = block >= self.base && block <= self.base + self.blocks();
        if !self.is_used() || !inside {
            return false;
        }
        let index = self.index(block);
        self.counts[index] += 1;
        self.counted += 1;
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
        // Some entry is not zero while a receiver is counted, so that this ends.
        while self.counted > 0 && self.counts[self.index(self.base)] == 0 {
            self.base += 1;
        }
    }
}
