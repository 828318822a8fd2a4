//! The relay's tables: sessions, their children, their NACK states.
//!
//! Each file holds one kind of entry, with the operations on it.

mod bits;
mod children;
mod nack_states;
mod session;

use managed::ManagedSlice;
use proto_core::time::Instant;

pub(crate) use bits::{bits, has_bit};
pub use children::Child;
pub(crate) use children::{SETS, Set};
pub use nack_states::NackState;
pub(crate) use nack_states::Phase;
pub use session::Session;

use crate::Seq;
use crate::secret::Secrets;
use crate::storage::{Limits, Storage};
use crate::track::Track;
use crate::types::RawKey;
use crate::wheel::Wheel;

/// Stands for no session, no child or no NACK state.
pub(crate) const NONE: u16 = 0xffff;

/// A deadline that is never reached.
pub(crate) const NEVER: Instant = Instant::from_micros(i64::MAX);

/// All tables. NACK states are numbered across all sessions.
#[derive(Debug)]
pub(crate) struct Tables<'a> {
    pub(crate) limits: Limits,
    /// 64-bit words of a set of children.
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

/// The owner of an entry of the timer wheel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    State(u16),
    /// The session's timer.
    Timer(u16),
    /// The session's entry in the ready list.
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

    /// Returns the numbers of the open sessions.
    pub(crate) fn open_sessions(&self) -> impl Iterator<Item = u16> + '_ {
        (0..self.sessions.len() as u16).filter(|&number| self.session(number).is_open())
    }

    /// Returns the track list and its window.
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

    /// Returns the owner's entry in the wheel: NACK states come first, then two entries for each session.
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
}

#[cfg(all(test, feature = "alloc"))]
mod tests;
