//! The receivers that report: which ones the session waits for, how far they are, and how they limit the sender.
//!
//! A member is one verified socket address; a host is its IP address. All members of a host
//! lie in one probe sequence of the table, so that a host's share of the table and its confirmations are
//! counted with one lookup.

#[cfg(test)]
mod tests;

use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use managed::ManagedSlice;
use proto_core::time::{Duration, Instant};
use siphasher::sip::SipHasher13;

use super::window::Window;
use crate::event::{ReceiverFailure, ReceiverInfo, ReceiverState};
use crate::wire::report::{Report, Status};

/// State of a table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
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
    id: u64,
    blocks: u64,
    address: SocketAddr,
    heard: Instant,
    /// When it last advanced, or last reported that it lacked nothing.
    advanced: Instant,
    state: State,
    /// Whether the window waits for it.
    counted: bool,
    /// It held something else than was sent, and was told so.
    mismatched: bool,
    /// Another receiver has joined from the same host since this one was last heard.
    doubted: bool,
    /// How often it failed or was started again.
    strikes: u8,
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
    fn info(&self) -> Option<ReceiverInfo> {
        let state = match self.state {
            State::Free => return None,
            State::Active => ReceiverState::Receiving,
            State::Complete => ReceiverState::Complete,
            State::Failed(failure) => ReceiverState::Failed(failure),
        };
        Some(ReceiverInfo {
            receiver: self.id,
            address: self.address,
            blocks: self.blocks,
            state,
        })
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
/// Members looked at in one go for those to give up.
const EXPIRE_BATCH: usize = 256;
/// A host of which receivers failed or were started again this often is not waited for any more.
const MAX_STRIKES: u32 = 3;

/// Result of a lookup by address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Known(usize),
    /// A free entry, or one of the same host that may be reused.
    New(usize),
    Full,
}

/// How far the sender is.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentBlocks {
    /// Blocks of which the first packet was sent.
    pub(super) begun: u64,
    /// Blocks that were sent whole: a member that has fewer lacks something.
    pub(super) whole: u64,
    /// Everything was sent: a member that is not complete lacks something.
    pub(super) all: bool,
}

/// A bounded table of receivers by address, and how they limit the sender.
#[derive(Debug)]
pub(super) struct Receivers<'a> {
    table: ManagedSlice<'a, Member>,
    key: [u8; 16],
    window: Window<'a>,
    /// Hosts that joined.
    joined: u32,
    /// Hosts of which a receiver is complete.
    complete: u32,
    /// Members that are waited for.
    active: u32,
    /// Members that failed and were not replaced.
    failed: u32,
    cursor: usize,
    /// Since when no receiver that joined is waited for, once everything was sent.
    settled: Option<Instant>,
    /// First block that one of the receivers lacks that joined before data began.
    slowest_joined: Option<u64>,
    /// Worst loss that a receiver has reported since the application asked, in thousandths.
    worst_loss: Option<u16>,
}

impl<'a> Receivers<'a> {
    pub(super) fn new(
        table: ManagedSlice<'a, Member>,
        key: [u8; 16],
        window: ManagedSlice<'a, u32>,
    ) -> Self {
        let mut receivers = Receivers {
            table,
            key,
            window: Window::new(window),
            joined: 0,
            complete: 0,
            active: 0,
            failed: 0,
            cursor: 0,
            settled: None,
            slowest_joined: None,
            worst_loss: None,
        };
        receivers.table.fill(Member::default());
        receivers
    }

    pub(super) fn joined(&self) -> u32 {
        self.joined
    }

    pub(super) fn complete(&self) -> u32 {
        self.complete
    }

    /// Whether a receiver is waited for.
    pub(super) fn are_waited_for(&self) -> bool {
        self.active > 0
    }

    /// Whether that many hosts have everything, and no receiver that joined lacks anything.
    pub(super) fn have_all(&self, expected: u32) -> bool {
        self.complete >= expected && self.active == 0 && self.failed == 0
    }

    /// Everything was sent. Returns since when no receiver is waited for; `None` if one is.
    pub(super) fn settle(&mut self, now: Instant) -> Option<Instant> {
        let since = (self.active == 0).then(|| self.settled.unwrap_or(now));
        self.settled = since;
        since
    }

    /// Whether no receiver is waited for since an earlier [`Receivers::settle`].
    pub(super) fn are_settled(&self) -> bool {
        self.active == 0 && self.settled.is_some()
    }

    pub(super) fn take_worst_loss(&mut self) -> Option<u16> {
        self.worst_loss.take()
    }

    /// Returns the blocks of the window; `None` without one.
    pub(super) fn window_blocks(&self) -> Option<u64> {
        self.window.is_used().then(|| self.window.blocks())
    }

    /// New data must stay below this block.
    pub(super) fn limit(&self) -> u64 {
        self.window.limit()
    }

    /// Returns the first block that a receiver may lack; `None` if none counts.
    pub(super) fn slowest(&self) -> Option<u64> {
        self.window.slowest()
    }

    /// Returns the first block that one of the receivers lacks that joined before data began.
    pub(super) fn slowest_joined(&self) -> Option<u64> {
        self.slowest_joined.filter(|_| self.active > 0)
    }

    /// Data begins at this block: receivers that had more of the content when they joined count from now on.
    pub(super) fn begin_at(&mut self, block: u64) {
        self.window.restart(block);
        for member in self.table.iter_mut() {
            if member.state == State::Active {
                member.counted = self.window.enter(member.blocks);
            }
        }
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
    pub(super) fn place(&self, address: SocketAddr) -> Place {
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

    /// The receivers that joined, in the order of the table.
    pub(super) fn iter(&self) -> impl Iterator<Item = ReceiverInfo> {
        self.table.iter().filter_map(Member::info)
    }

    /// Returns the receiver that is furthest behind, of those that the window waits for, or of `all` that are
    /// waited for. Looks at every receiver.
    pub(super) fn furthest_behind(&self, all: bool) -> Option<ReceiverInfo> {
        let waited = |member: &&Member| member.state == State::Active && (all || member.counted);
        let members = self.table.iter().filter(waited);
        members.min_by_key(|member| member.blocks)?.info()
    }

    /// Adds a receiver in an entry that [`Receivers::place`] named. It takes the place of members of its host
    /// that failed. It is not waited for if receivers of its host failed too often.
    pub(super) fn join(
        &mut self,
        at: usize,
        address: SocketAddr,
        report: &Report,
        now: Instant,
        sent: &SentBlocks,
    ) {
        if report.status != Status::Complete {
            let slowest = self.slowest_joined.unwrap_or(report.blocks);
            self.slowest_joined = Some(slowest.min(report.blocks));
        }
        let host = address.ip();
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
        let state = if strikes_of_host >= MAX_STRIKES {
            self.failed += 1;
            State::Failed(ReceiverFailure::NotWaitedFor)
        } else {
            self.active += 1;
            State::Active
        };
        self.table[at] = Member {
            id: report.receiver,
            blocks: report.blocks,
            address,
            heard: now,
            advanced: now,
            state,
            strikes,
            ..Member::default()
        };
        self.count(at, sent);
    }

    /// The window waits for a member that is waited for, from its position on.
    fn count(&mut self, at: usize, sent: &SentBlocks) {
        let member = &mut self.table[at];
        if member.state == State::Active && member.blocks <= sent.begun {
            member.counted = self.window.moved(None, member.blocks, sent.begun);
        }
    }

    fn uncount(&mut self, at: usize) {
        let member = &mut self.table[at];
        if core::mem::take(&mut member.counted) {
            self.window.left(member.blocks);
        }
    }

    /// Takes in how far a known member is.
    pub(super) fn advance(&mut self, at: usize, report: &Report, now: Instant, sent: &SentBlocks) {
        if self.table[at].id != report.receiver && report.status == Status::Joined {
            // Another run of the receiver, at the same port.
            self.uncount(at);
            self.restart(at, report.receiver, now);
            self.count(at, sent);
        }
        let member = &mut self.table[at];
        member.heard = now;
        member.doubted = false;
        if member.state == State::Active {
            self.worst_loss = self.worst_loss.max(report.loss.per_mille());
        }
        // Reports may overtake each other, so only growth counts.
        let old = member.blocks;
        if report.blocks > old && member.state == State::Active {
            let was = member.counted.then_some(old);
            member.blocks = report.blocks;
            member.advanced = now;
            member.counted = if report.blocks <= sent.begun {
                self.window.moved(was, report.blocks, sent.begun)
            } else {
                // It has more than was sent in this session: nothing waits for it.
                was.inspect(|&was| self.window.left(was));
                false
            };
        } else if old >= sent.whole && !sent.all {
            // It lacks nothing, so that it cannot advance.
            member.advanced = now;
        }
    }

    /// The address of the receiver on a host that is waited for; `None` if it is not exactly one.
    pub(super) fn only_active(&self, host: IpAddr) -> Option<SocketAddr> {
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

    /// Gives up a member. Returns it and why, if it was waited for.
    pub(super) fn give_up(
        &mut self,
        at: usize,
        failure: ReceiverFailure,
    ) -> Option<(ReceiverInfo, ReceiverFailure)> {
        let member = &self.table[at];
        if member.state != State::Active {
            return None;
        }
        let failure = match failure {
            ReceiverFailure::GaveUp if member.mismatched => ReceiverFailure::Mismatch,
            failure => failure,
        };
        self.uncount(at);
        self.fail(at, failure);
        Some((self.table[at].info()?, failure))
    }

    /// An active member is not waited for any more.
    fn fail(&mut self, at: usize, failure: ReceiverFailure) {
        let member = &mut self.table[at];
        member.strikes = member.strikes.saturating_add(1);
        member.state = State::Failed(failure);
        self.active -= 1;
        self.failed += u32::from(failure != ReceiverFailure::Replaced);
    }

    /// A member reports another digest of the whole. Returns false if it was complete before.
    pub(super) fn mismatched(&mut self, at: usize, now: Instant) -> bool {
        let member = &mut self.table[at];
        if member.state == State::Complete {
            return false;
        }
        // It audits its blocks, and then reports that it is complete or has failed. It gets time for that once.
        if !core::mem::replace(&mut member.mismatched, true) {
            member.advanced = now;
        }
        true
    }

    /// A member has everything. Returns it, unless that was known; one that was given up may come back.
    pub(super) fn completed(&mut self, at: usize) -> Option<ReceiverInfo> {
        if self.table[at].state == State::Complete {
            return None;
        }
        self.uncount(at);
        let host = self.table[at].address.ip();
        let is_first = !self.is_host_complete(host);
        self.complete += u32::from(is_first);
        self.active -= u32::from(self.table[at].state == State::Active);
        self.failed -= u32::from(self.table[at].is_lost());
        self.table[at].state = State::Complete;
        self.table[at].info()
    }

    /// The member at an address started again from nothing.
    fn restart(&mut self, at: usize, id: u64, now: Instant) {
        self.slowest_joined = Some(0);
        let was = self.table[at].state;
        let member = &mut self.table[at];
        member.id = id;
        member.blocks = 0;
        member.advanced = now;
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

    /// Returns how many members one search for those to give up looks at.
    pub(super) fn expire_batch(&self) -> usize {
        EXPIRE_BATCH.min(self.table.len())
    }

    /// Returns how many searches look at every member once, at least 1.
    pub(super) fn expire_rounds(&self) -> u32 {
        self.table.len().div_ceil(EXPIRE_BATCH).max(1) as u32
    }

    /// Looks at the next member in turn. Returns its index if it is to be given up, and why: it is silent for
    /// longer than `silence`, or lacks something without progress for longer than `progress`.
    pub(super) fn next_expired(
        &mut self,
        now: Instant,
        (silence, progress): (Duration, Duration),
        sent: &SentBlocks,
    ) -> Option<(usize, ReceiverFailure)> {
        let at = self.cursor;
        self.cursor = (at + 1) % self.table.len();
        let member = &self.table[at];
        if member.state != State::Active {
            return None;
        }
        if member.heard + silence <= now {
            let failure = if member.doubted {
                ReceiverFailure::Replaced
            } else {
                ReceiverFailure::Silent
            };
            return Some((at, failure));
        }
        let lacks = sent.all || member.blocks < sent.whole;
        let is_expired = lacks && member.advanced + progress <= now;
        is_expired.then_some((at, ReceiverFailure::NoProgress))
    }
}
