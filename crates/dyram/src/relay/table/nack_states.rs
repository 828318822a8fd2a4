//! NACK states: one for each lost packet that is being recovered.

use super::{NONE, Set, Tables};
use crate::Seq;

/// The recovery of one packet (DyRAM §3.2.2: NS).
#[derive(Clone, Copy, Debug, Default)]
pub struct NackState {
    pub(crate) seq: Seq,
    /// Next state of the same bucket, or next free state.
    pub(super) chain: u16,
    /// The child to ask or asked; the next election begins after it.
    pub(crate) replier: u16,
    pub(crate) phase: Phase,
    /// Whether the parent has asked too.
    pub(crate) for_parent: bool,
    pub(crate) tries: u8,
    /// When the replier was asked, in [`units`](crate::relay::answer::units).
    pub(crate) asked: u8,
}

/// Phase of a recovery.
///
/// | phase | what happens | next |
/// | --- | --- | --- |
/// | `Deciding` | NACKs are collected until the delay to decide ends | `AskReplier`, or `AskParent` if all children lost it |
/// | `AskReplier` | a NACK waits to be sent down | `Asked` |
/// | `Asked` | a replier was asked | `Repaired`; after ABSENT or a timeout `AskReplier` (the next one) or `AskParent` |
/// | `AskParent` | a NACK waits to be sent up | `Upstream` |
/// | `Upstream` | the parent was asked | `Repaired`; after a timeout `AskParent`, finally given up |
/// | `Repaired` | repeated NACKs are ignored for the hold time | removed |
/// | `SayAbsent` | ABSENT waits to be sent to the parent, which asked | removed |
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

impl Tables<'_> {
    pub(crate) fn session_of(&self, state: u16) -> u16 {
        (usize::from(state) / self.limits.nack_states) as u16
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

    /// Adds a state for a packet that has none, with an empty subcast list.
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

    /// Removes all states of a session.
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

    /// Puts all children on the subcast list of a state.
    pub(crate) fn subcast_to_all(&mut self, state: u16) {
        let members = self.set_range(self.session_of(state), Set::Members);
        let first = usize::from(state) * members.len();
        let list = &mut self.subcast[first..first + members.len()];
        list.copy_from_slice(&self.members[members]);
    }

    /// Returns the first child at `from` or after it that did not lose the packet.
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
}
