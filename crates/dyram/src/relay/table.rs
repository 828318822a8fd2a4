//! The relay's tables: sessions, their children, their NACK states.

use managed::ManagedSlice;
use proto_core::time::Instant;

use super::answer::AnswerTime;
use crate::attach::Parent;
use crate::secret::Secrets;
use crate::storage::{Limits, Storage};
use crate::track::Track;
use crate::types::{Addr, RawKey};
use crate::wheel::{Wheel, tick_of};
use crate::{Seq, SessionKey};

/// No session, no child, no NACK state.
pub(crate) const NONE: u16 = 0xffff;

/// A time that does not come.
pub(crate) const NEVER: Instant = Instant::from_micros(i64::MAX);

/// What a relay knows of one session beside the tables.
#[derive(Clone, Debug)]
pub struct Session {
    /// Whether it is in use; else the key means nothing.
    open: bool,
    key: RawKey,
    /// Next in the index, or among the free ones.
    chain: u16,
    /// First of the free NACK states.
    free_state: u16,
    pub(crate) children: u16,
    /// The source registered here: it is what is above. And when it last did, in ticks.
    pub(crate) has_source: bool,
    pub(crate) source_heard: u32,
    pub(crate) parent: Option<Parent>,
    /// Where what goes down comes from: the source, or the parent once it took us in.
    pub(crate) above: Option<Addr>,
    /// Round trip to the source that registered here, as it measured it.
    pub(crate) source_us: u32,
    /// The running session identifier, and when something of it was last heard, in ticks.
    pub(crate) id: Option<u32>,
    pub(crate) id_heard: u32,
    pub(crate) track: Track,
    /// Round trip to the farthest receiver below.
    pub(crate) far_us: u32,
    /// Round trip to the farthest child, as children said since the last count, and between that and
    /// the one before.
    pub(crate) near_us: [u32; 2],
    pub(crate) answer: AnswerTime,
    /// Receivers below, by the last count.
    pub(crate) receivers: u32,
    /// Everything before it is held by all children that are waited for, by the last count.
    pub(crate) folded: Option<Seq>,
    /// Whether that was sent upward since the last refresh.
    pub(crate) ack_sent: bool,
    /// All children stalled, and data goes on: count again after the interval of acknowledgements.
    pub(crate) fold_again: bool,
    /// When to fold acknowledgements; [`NEVER`] when there is no news.
    pub(crate) ack_due: Instant,
    pub(crate) sweep_due: Instant,
    /// Where telling the children to move has come to.
    pub(crate) moving: Option<u16>,
    /// Another session identifier was seen beside the running one, and told.
    pub(crate) collided: bool,
}

impl Default for Session {
    fn default() -> Self {
        Session::new(None, Instant::ZERO)
    }
}

impl Session {
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Its source was started again, or another is here by now: the next identifier counts at once.
    pub(crate) fn expect_another_run(&mut self) {
        self.id_heard = self.id_heard.wrapping_sub(1 << 31);
    }

    /// Its name; `None`: not in use.
    pub(crate) fn name(&self) -> Option<SessionKey> {
        self.open.then(|| SessionKey::from(self.key))
    }

    fn new(key: Option<RawKey>, now: Instant) -> Self {
        Session {
            open: key.is_some(),
            key: key.unwrap_or(RawKey([0; 4])),
            chain: NONE,
            free_state: NONE,
            children: 0,
            has_source: false,
            source_heard: tick_of(now) as u32,
            parent: None,
            above: None,
            source_us: 0,
            id: None,
            id_heard: tick_of(now) as u32,
            track: Track::default(),
            far_us: 0,
            near_us: [0; 2],
            answer: AnswerTime::default(),
            receivers: 0,
            folded: None,
            ack_sent: false,
            fold_again: false,
            ack_due: NEVER,
            sweep_due: now,
            moving: None,
            collided: false,
        }
    }
}

/// A receiver or a relay below.
#[derive(Clone, Copy, Debug, Default)]
pub struct Child {
    pub(crate) address: Addr,
    /// When it last announced itself, in sixteenths of the refresh.
    pub(crate) heard: u8,
    /// When its acknowledgement last advanced, or it lacked nothing, in sixteenths of the stall timeout.
    pub(crate) advanced: u8,
    pub(crate) ack: Seq,
    /// Round trip to the farthest receiver below it, in units of 64 µs.
    pub(crate) far: u16,
    /// Receivers below it.
    pub(crate) receivers: u16,
}

/// What is being done about a packet that somebody below lost (DyRAM §3.2.2: NS).
#[derive(Clone, Copy, Debug, Default)]
pub struct NackState {
    pub(crate) seq: Seq,
    /// Next with the same place, or among the free ones.
    chain: u16,
    /// Who is (to be) asked, and behind whom the election goes on.
    pub(crate) replier: u16,
    pub(crate) phase: Phase,
    /// Whether the parent asked too.
    pub(crate) for_parent: bool,
    pub(crate) tries: u8,
    /// When the replier was asked, as [`units`](super::answer::units) counts.
    pub(crate) asked: u8,
}

/// How far it is.
///
/// | phase | what happens | next |
/// | --- | --- | --- |
/// | `Deciding` | NACKs are gathered until the delay to decide is over | `AskReplier`, or `AskParent` when everybody lost it |
/// | `AskReplier` | a NACK waits to be sent down | `Asked` |
/// | `Asked` | a replier was asked | `Repaired`; on ABSENT or silence `AskReplier` (the next one), or `AskParent` |
/// | `AskParent` | a NACK waits to be sent up | `Upstream` |
/// | `Upstream` | the parent was asked | `Repaired`; on silence `AskParent`, in the end given up |
/// | `Repaired` | like NACKs are ignored for a while | gone |
/// | `SayAbsent` | ABSENT waits to be sent to the parent, who asked | gone |
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Phase {
    #[default]
    Free,
    Deciding,
    AskReplier,
    Asked,
    AskParent,
    Upstream,
    Repaired,
    SayAbsent,
}

/// The sets of a session's children, a bit for each child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Set {
    /// Children there are.
    Members,
    /// Those that acknowledged something.
    Acked,
    /// Those that are no longer waited for. The address of one that left is kept until its number is needed.
    Stalled,
    /// Those that are relays.
    Relays,
}

/// How many sets there are.
pub(crate) const SETS: usize = 4;

/// All tables; a NACK state's number counts over all sessions.
#[derive(Debug)]
pub(crate) struct Tables<'a> {
    pub(crate) limits: Limits,
    /// Of 64 bits, one for each child.
    words: usize,
    pub(crate) wheel: Wheel<'a>,
    sessions: ManagedSlice<'a, Session>,
    index: ManagedSlice<'a, u16>,
    free_session: u16,
    children: ManagedSlice<'a, Child>,
    members: ManagedSlice<'a, u64>,
    lost: ManagedSlice<'a, u64>,
    nacks: ManagedSlice<'a, NackState>,
    heads: ManagedSlice<'a, u16>,
    subcast: ManagedSlice<'a, u64>,
}

/// What an entry of the wheel belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    State(u16),
    /// The session's timer.
    Timer(u16),
    /// The session's place among those who wait to send.
    Output(u16),
}

impl<'a> Tables<'a> {
    pub(crate) fn new(storage: Storage<'a>, now: Instant) -> Self {
        let mut tables = Tables {
            words: storage.limits.words(),
            limits: storage.limits,
            wheel: Wheel::new(storage.links, now),
            sessions: storage.sessions,
            index: storage.index,
            free_session: NONE,
            children: storage.children,
            members: storage.members,
            lost: storage.lost,
            nacks: storage.nacks,
            heads: storage.heads,
            subcast: storage.subcast,
        };
        tables.index.fill(NONE);
        for session in (0..tables.sessions.len() as u16).rev() {
            tables.sessions[usize::from(session)] = Session::default();
            tables.sessions[usize::from(session)].chain = tables.free_session;
            tables.free_session = session;
        }
        tables
    }

    // Sessions.

    #[inline]
    pub(crate) fn find(&self, secrets: &Secrets, key: &RawKey) -> Option<u16> {
        let mut at = self.index[self.place(secrets, key)];
        while at != NONE {
            let session = &self.sessions[usize::from(at)];
            if session.open && session.key.is(key) {
                return Some(at);
            }
            at = session.chain;
        }
        None
    }

    #[inline]
    fn place(&self, secrets: &Secrets, key: &RawKey) -> usize {
        secrets.place(key) as usize & (self.index.len() - 1)
    }

    pub(crate) fn open(&mut self, secrets: &Secrets, key: RawKey, now: Instant) -> Option<u16> {
        let number = self.free_session;
        if number == NONE {
            return None;
        }
        let place = self.place(secrets, &key);
        let states = self.limits.nack_states;
        let first = usize::from(number) * states;
        self.heads[first / 2..(first + states) / 2].fill(NONE);
        for state in (0..states).rev() {
            self.nacks[first + state] = NackState {
                chain: if state + 1 < states {
                    (first + state + 1) as u16
                } else {
                    NONE
                },
                ..NackState::default()
            };
        }
        let words = self.words;
        let members = usize::from(number) * SETS * words;
        self.members[members..members + SETS * words].fill(0);
        self.lost_mut(number).fill(0);
        let session = &mut self.sessions[usize::from(number)];
        self.free_session = session.chain;
        *session = Session {
            chain: self.index[place],
            free_state: first as u16,
            ..Session::new(Some(key), now)
        };
        self.index[place] = number;
        Some(number)
    }

    pub(crate) fn close(&mut self, secrets: &Secrets, number: u16) {
        let Session { open, key, .. } = self.sessions[usize::from(number)];
        if !open {
            return;
        }
        self.forget_states(number);
        self.wheel.remove(self.entry(Owner::Timer(number)));
        self.wheel.remove(self.entry(Owner::Output(number)));
        let place = self.place(secrets, &key);
        let next = self.sessions[usize::from(number)].chain;
        if self.index[place] == number {
            self.index[place] = next;
        } else {
            let mut at = usize::from(self.index[place]);
            while self.sessions[at].chain != number {
                at = usize::from(self.sessions[at].chain);
            }
            self.sessions[at].chain = next;
        }
        self.sessions[usize::from(number)] = Session {
            chain: self.free_session,
            ..Session::default()
        };
        self.free_session = number;
    }

    #[inline]
    pub(crate) fn session(&self, number: u16) -> &Session {
        &self.sessions[usize::from(number)]
    }

    #[inline]
    pub(crate) fn session_mut(&mut self, number: u16) -> &mut Session {
        &mut self.sessions[usize::from(number)]
    }

    /// The sessions that are open.
    pub(crate) fn open_sessions(&self) -> impl Iterator<Item = u16> + '_ {
        (0..self.sessions.len() as u16).filter(|&number| self.session(number).is_open())
    }

    /// The track list and its window.
    #[inline]
    pub(crate) fn track(&mut self, number: u16) -> (&mut Track, &mut [u64]) {
        let words = self.limits.window / 64;
        let first = usize::from(number) * words;
        (
            &mut self.sessions[usize::from(number)].track,
            &mut self.lost[first..first + words],
        )
    }

    fn lost_mut(&mut self, number: u16) -> &mut [u64] {
        self.track(number).1
    }

    pub(crate) fn is_lost(&self, number: u16, seq: Seq) -> bool {
        let words = self.limits.window / 64;
        let first = usize::from(number) * words;
        self.session(number)
            .track
            .is_lost(&self.lost[first..first + words], seq)
    }

    // Children.

    fn set_range(&self, number: u16, set: Set) -> core::ops::Range<usize> {
        let words = self.words;
        let first = (usize::from(number) * SETS + set as usize) * words;
        first..first + words
    }

    /// A bit for each child in that set.
    #[inline]
    pub(crate) fn set(&self, number: u16, set: Set) -> &[u64] {
        &self.members[self.set_range(number, set)]
    }

    fn mark(&mut self, number: u16, set: Set, child: u16, value: bool) {
        let at = self.set_range(number, set).start + usize::from(child) / 64;
        let bit = 1 << (child % 64);
        if value {
            self.members[at] |= bit;
        } else {
            self.members[at] &= !bit;
        }
    }

    /// A bit for each child there is.
    #[inline]
    pub(crate) fn members(&self, number: u16) -> &[u64] {
        self.set(number, Set::Members)
    }

    pub(crate) fn set_acked(&mut self, number: u16, child: u16) {
        self.mark(number, Set::Acked, child, true);
    }

    pub(crate) fn set_relay(&mut self, number: u16, child: u16, relay: bool) {
        self.mark(number, Set::Relays, child, relay);
    }

    pub(crate) fn set_stalled(&mut self, number: u16, child: u16) {
        self.mark(number, Set::Stalled, child, true);
    }

    /// What the children acknowledged, or failed to, was of another run of the source.
    pub(crate) fn forget_acks(&mut self, number: u16) {
        for set in [Set::Acked, Set::Stalled] {
            let range = self.set_range(number, set);
            self.members[range].fill(0);
        }
    }

    #[inline]
    pub(crate) fn is_member(&self, number: u16, child: u16) -> bool {
        usize::from(child) < self.limits.children && has_bit(self.members(number), child)
    }

    #[inline]
    pub(crate) fn child(&self, number: u16, child: u16) -> &Child {
        &self.children[usize::from(number) * self.limits.children + usize::from(child)]
    }

    #[inline]
    pub(crate) fn child_mut(&mut self, number: u16, child: u16) -> &mut Child {
        &mut self.children[usize::from(number) * self.limits.children + usize::from(child)]
    }

    /// The child of that number, if it is there and has that address.
    #[inline]
    pub(crate) fn child_at(&self, number: u16, child: u16, address: Addr) -> bool {
        self.is_member(number, child) && self.child(number, child).address.is(&address)
    }

    /// Looks through all children: only where one joins without knowing its number.
    pub(crate) fn child_by_address(&self, number: u16, address: Addr) -> Option<u16> {
        bits(self.members(number)).find(|&child| self.child(number, child).address == address)
    }

    /// The number that a child at this address had when it stalled and then left.
    fn left_stalled(&self, number: u16, address: Addr) -> Option<u16> {
        bits(self.set(number, Set::Stalled)).find(|&child| {
            !self.is_member(number, child) && self.child(number, child).address == address
        })
    }

    /// Whether a child at this address stalled and then left, and is remembered.
    pub(crate) fn has_left_stalled(&self, number: u16, address: Addr) -> bool {
        self.left_stalled(number, address).is_some()
    }

    /// The lowest number that `taken` says is free.
    fn lowest_free(&self, number: u16, taken: impl Fn(usize) -> u64) -> Option<u16> {
        let words = self.members(number).len();
        let word = (0..words).find(|&word| taken(word) != u64::MAX)?;
        let free = word * 64 + (!taken(word)).trailing_zeros() as usize;
        (free < self.limits.children).then_some(free as u16)
    }

    /// The lowest free number becomes a child. A child that stalled and left gets its number back. The
    /// numbers of other such children are given away only when all others are taken.
    pub(crate) fn add_child(&mut self, number: u16, child: Child) -> Option<u16> {
        let members = self.members(number);
        let stalled = self.set(number, Set::Stalled);
        let again = self.left_stalled(number, child.address);
        let free = again
            .or_else(|| self.lowest_free(number, |word| members[word] | stalled[word]))
            .or_else(|| self.lowest_free(number, |word| members[word]))?;
        self.mark(number, Set::Members, free, true);
        self.mark(number, Set::Acked, free, false);
        self.mark(number, Set::Stalled, free, again.is_some());
        *self.child_mut(number, free) = child;
        self.session_mut(number).children += 1;
        Some(free)
    }

    /// Children in any of the sets whose IP address is that of `address`.
    pub(crate) fn at_host(&self, number: u16, sets: &[Set], address: Addr) -> usize {
        let word = |word| {
            sets.iter()
                .fold(0, |all, &set| all | self.set(number, set)[word])
        };
        let words = (0..self.words).map(word);
        words
            .enumerate()
            .flat_map(|(word, set)| one_word(set).map(move |bit| (word * 64) as u16 + bit))
            .filter(|&child| self.child(number, child).address.same_host(&address))
            .count()
    }

    /// The child is gone; it gets no more repairs. One that stalled is remembered as long as its number is
    /// not needed.
    pub(crate) fn remove_child(&mut self, number: u16, child: u16) {
        self.mark(number, Set::Members, child, false);
        self.mark(number, Set::Acked, child, false);
        let word = usize::from(child) / 64;
        self.session_mut(number).children -= 1;
        let states = self.limits.nack_states;
        for state in usize::from(number) * states..(usize::from(number) + 1) * states {
            if self.nacks[state].phase != Phase::Free {
                let at = state * self.words + word;
                self.subcast[at] &= !(1 << (child % 64));
            }
        }
    }

    // NACK states.

    pub(crate) fn session_of(&self, state: u16) -> u16 {
        (usize::from(state) / self.limits.nack_states) as u16
    }

    /// Entries of the wheel: NACK states first, then two for each session.
    pub(crate) fn entry(&self, owner: Owner) -> u16 {
        let states = self.nacks.len() as u16;
        match owner {
            Owner::State(state) => state,
            Owner::Timer(session) => states + 2 * session,
            Owner::Output(session) => states + 2 * session + 1,
        }
    }

    pub(crate) fn owner(&self, entry: u16) -> Owner {
        let states = self.nacks.len() as u16;
        if entry < states {
            return Owner::State(entry);
        }
        let session = (entry - states) / 2;
        if (entry - states).is_multiple_of(2) {
            Owner::Timer(session)
        } else {
            Owner::Output(session)
        }
    }

    fn head(&self, number: u16, seq: Seq) -> usize {
        let heads = self.limits.nack_states / 2;
        usize::from(number) * heads + (seq.0 as usize & (heads - 1))
    }

    #[inline]
    pub(crate) fn find_state(&self, number: u16, seq: Seq) -> Option<u16> {
        let mut at = self.heads[self.head(number, seq)];
        while at != NONE {
            let state = &self.nacks[usize::from(at)];
            if state.seq == seq {
                return Some(at);
            }
            at = state.chain;
        }
        None
    }

    /// A state for a packet that has none, with an empty subcast list.
    pub(crate) fn new_state(&mut self, number: u16, seq: Seq) -> Option<u16> {
        let free = self.session(number).free_state;
        if free == NONE {
            return None;
        }
        let head = self.head(number, seq);
        self.session_mut(number).free_state = self.nacks[usize::from(free)].chain;
        self.nacks[usize::from(free)] = NackState {
            seq,
            chain: self.heads[head],
            replier: NONE,
            ..NackState::default()
        };
        self.heads[head] = free;
        self.subcast_mut(free).fill(0);
        Some(free)
    }

    pub(crate) fn free_state(&mut self, state: u16) {
        self.wheel.remove(state);
        let number = self.session_of(state);
        let NackState { seq, chain, .. } = self.nacks[usize::from(state)];
        let head = self.head(number, seq);
        if self.heads[head] == state {
            self.heads[head] = chain;
        } else {
            let mut at = usize::from(self.heads[head]);
            while self.nacks[at].chain != state {
                at = usize::from(self.nacks[at].chain);
            }
            self.nacks[at].chain = chain;
        }
        self.nacks[usize::from(state)] = NackState {
            chain: self.session(number).free_state,
            ..NackState::default()
        };
        self.session_mut(number).free_state = state;
    }

    /// Forgets all that is being done for a session.
    pub(crate) fn forget_states(&mut self, number: u16) {
        let states = self.limits.nack_states;
        let first = usize::from(number) * states;
        for state in first..first + states {
            if self.nacks[state].phase != Phase::Free {
                self.free_state(state as u16);
            }
        }
    }

    #[inline]
    pub(crate) fn state(&self, state: u16) -> &NackState {
        &self.nacks[usize::from(state)]
    }

    #[inline]
    pub(crate) fn state_mut(&mut self, state: u16) -> &mut NackState {
        &mut self.nacks[usize::from(state)]
    }

    #[inline]
    pub(crate) fn subcast(&self, state: u16) -> &[u64] {
        let words = self.words;
        let first = usize::from(state) * words;
        &self.subcast[first..first + words]
    }

    #[inline]
    pub(crate) fn subcast_mut(&mut self, state: u16) -> &mut [u64] {
        let words = self.words;
        let first = usize::from(state) * words;
        &mut self.subcast[first..first + words]
    }

    /// Everybody is in the subcast list of that state.
    pub(crate) fn subcast_to_all(&mut self, state: u16) {
        let members = self.set_range(self.session_of(state), Set::Members);
        let first = usize::from(state) * members.len();
        let list = &mut self.subcast[first..first + members.len()];
        list.copy_from_slice(&self.members[members]);
    }

    /// The first child at `from` or behind that did not lose the packet of that state.
    #[inline]
    pub(crate) fn candidate(&self, state: u16, from: u16) -> u16 {
        let (members, lost) = (self.members(self.session_of(state)), self.subcast(state));
        let mut word = usize::from(from) / 64;
        let mut mask = u64::MAX << (from % 64);
        while word < members.len() {
            let bits = members[word] & !lost[word] & mask;
            if bits != 0 {
                return (word * 64) as u16 + bits.trailing_zeros() as u16;
            }
            (word, mask) = (word + 1, u64::MAX);
        }
        NONE
    }

    /// All places for children of a session.
    #[inline]
    pub(crate) fn places(&self, number: u16) -> &[Child] {
        let first = usize::from(number) * self.limits.children;
        &self.children[first..first + self.limits.children]
    }
}

/// The bits of one word that are set, in order.
fn one_word(word: u64) -> impl Iterator<Item = u16> {
    let mut rest = word;
    core::iter::from_fn(move || {
        let bit = rest.checked_sub(1).map(|_| rest.trailing_zeros())?;
        rest &= rest - 1;
        Some(bit as u16)
    })
}

/// Whether the bit is set.
#[inline]
pub(crate) fn has_bit(words: &[u64], bit: u16) -> bool {
    words[usize::from(bit) / 64] >> (bit % 64) & 1 == 1
}

/// The bits that are set, in order.
#[inline]
pub(crate) fn bits(words: &[u64]) -> impl Iterator<Item = u16> + '_ {
    let (mut rest, mut word, mut first) = (words, 0u64, 0u16);
    core::iter::from_fn(move || {
        while word == 0 {
            let (&next, behind) = rest.split_first()?;
            first = (words.len() - rest.len()) as u16 * 64;
            (word, rest) = (next, behind);
        }
        let bit = word.trailing_zeros() as u16;
        word &= word - 1;
        Some(first + bit)
    })
}
