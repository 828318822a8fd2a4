//! Storage of a relay: tables lent by the caller, or owned (feature `alloc`).
//!
//! Every session has the same share of every table, so that no session can starve another. `words` is the number of
//! 64-bit words with a bit for each child: `children / 64`, rounded up.
//!
//! | table | entries | bytes each |
//! | --- | --- | --- |
//! | sessions | sessions | at most [`SESSION_LEN`] |
//! | index | sessions, rounded up to a power of two | 2 |
//! | children | sessions x children | 28 |
//! | members | sessions x 4 x words | 8 |
//! | lost | sessions x window / 64 | 8 |
//! | nacks | sessions x nack_states | 12 |
//! | heads | sessions x nack_states / 2 | 2 |
//! | subcast | sessions x nack_states x words | 8 |
//! | links | sessions x (nack_states + 2) | 8 |
//!
//! A session with 64 children, a window of 1,024 packets and 64 NACK states takes less than 4.25 KiB. A NACK state takes
//! 21 bytes, and one bit for each child.

use managed::ManagedSlice;

use crate::config::ConfigError;
use crate::relay::SETS;
pub use crate::relay::{Child, NackState, Session};
pub use crate::wheel::{Link, MAX_ENTRIES};

/// Upper bound of the size of a [`Session`], in bytes.
pub const SESSION_LEN: usize = 480;

/// Sizes of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Sessions served at the same time.
    pub sessions: usize,
    /// Children of a session; 1 to 65,534.
    pub children: usize,
    /// NACK states of a session; a power of two, at least 2.
    pub nack_states: usize,
    /// Packets in the window of the track list; a power of two, 64 to 1,048,576.
    pub window: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            sessions: 64,
            children: 64,
            nack_states: 64,
            window: 1024,
        }
    }
}

impl Limits {
    pub(crate) fn words(&self) -> usize {
        self.children.div_ceil(64)
    }

    /// Entries of the timer wheel: one for each NACK state, two for each session.
    pub(crate) fn links(&self) -> usize {
        self.sessions * (self.nack_states + 2)
    }

    /// Checks that tables of these sizes can be used.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let fits = self.sessions > 0
            && (1..=65_534).contains(&self.children)
            && self.nack_states > 1
            && self.nack_states.is_power_of_two()
            && self.window.is_power_of_two()
            && (64..=1 << 20).contains(&self.window)
            && self.links() <= MAX_ENTRIES;
        fits.then_some(()).ok_or(ConfigError::Storage)
    }
}

/// The tables of a relay. Their initial content does not matter.
#[derive(Debug)]
pub struct Storage<'a> {
    /// Their sizes.
    pub limits: Limits,
    /// Sessions.
    pub sessions: ManagedSlice<'a, Session>,
    /// Buckets of the hash table of sessions.
    pub index: ManagedSlice<'a, u16>,
    /// Receivers and relays below.
    pub children: ManagedSlice<'a, Child>,
    /// Sets of children: those that exist, have acknowledged, have stalled, are relays.
    pub members: ManagedSlice<'a, u64>,
    /// Lost lists.
    pub lost: ManagedSlice<'a, u64>,
    /// NACK states.
    pub nacks: ManagedSlice<'a, NackState>,
    /// Buckets of the hash tables of NACK states.
    pub heads: ManagedSlice<'a, u16>,
    /// Subcast lists.
    pub subcast: ManagedSlice<'a, u64>,
    /// The timer wheel.
    pub links: ManagedSlice<'a, Link>,
}

impl Storage<'_> {
    /// Checks that the tables have the sizes that `limits` names.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.limits.check()?;
        let Limits {
            sessions,
            children,
            nack_states,
            window,
        } = self.limits;
        let words = self.limits.words();
        let fits = self.sessions.len() == sessions
            && self.index.len() == sessions.next_power_of_two()
            && self.children.len() == sessions * children
            && self.members.len() == sessions * SETS * words
            && self.lost.len() == sessions * window / 64
            && self.nacks.len() == sessions * nack_states
            && self.heads.len() == sessions * nack_states / 2
            && self.subcast.len() == sessions * nack_states * words
            && self.links.len() == self.limits.links();
        fits.then_some(()).ok_or(ConfigError::Storage)
    }
}

#[cfg(feature = "alloc")]
impl Storage<'static> {
    /// Allocates tables of these sizes.
    ///
    /// # Errors
    /// [`ConfigError::Storage`]: a size is out of bounds.
    pub fn owned(limits: Limits) -> Result<Self, ConfigError> {
        use alloc::vec;

        limits.check()?;
        let words = limits.words();
        let states = limits.sessions * limits.nack_states;
        Ok(Storage {
            limits,
            sessions: vec![Session::default(); limits.sessions].into(),
            index: vec![0; limits.sessions.next_power_of_two()].into(),
            children: vec![Child::default(); limits.sessions * limits.children].into(),
            members: vec![0; limits.sessions * SETS * words].into(),
            lost: vec![0; limits.sessions * limits.window / 64].into(),
            nacks: vec![NackState::default(); states].into(),
            heads: vec![0; states / 2].into(),
            subcast: vec![0; states * words].into(),
            links: vec![Link::default(); limits.links()].into(),
        })
    }
}
