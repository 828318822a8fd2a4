//! The forwarding rule for requests, a pure function over one entry (LMS §6.4.3).
//!
//! A request arrives on interface `i` and is looked up as `(S, G)`, else `(*, G)`. `parent` leads
//! to the source; the replier is an interface (and a neighbour on it) below.
//!
//! | `i` is | turning point | verdict |
//! | --- | --- | --- |
//! | any downstream interface | set | drop: what has turned may not come up again |
//! | the replier's interface | unset | to `parent`, option untouched |
//! | the replier's interface, from another neighbour on that link | unset | as from another downstream interface |
//! | another downstream interface | unset | set turning point to (this router, `i`), to the replier; no replier: to `parent`, untouched |
//! | the parent | set | to the replier, option untouched; no replier: drop |
//! | the parent | unset | drop: it came from S's own link or a sibling router |
//! | not in the entry | | drop |
//!
//! The paper's rule knows links between two nodes. On a link with several hosts the router sends the
//! replier from its neighbours ([`Meta::link_source`](crate::Meta::link_source)), so that the elected
//! host answers for losses on its link and no such request reaches the source.

use crate::Iface;

/// What an interface is to an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// The replier, on its downstream interface.
    Replier,
    /// Another downstream interface, or another neighbour on the replier's.
    Downstream,
    /// The interface that leads to the source.
    Parent,
    /// None of these.
    Outside,
}

/// What the rule needs to know of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tree {
    /// The interface that leads to the source, [`Iface::UNSET`] for none.
    pub parent: Iface,
    /// The replier's interface, [`Iface::UNSET`] for none.
    pub replier: Iface,
}

impl Tree {
    /// The role of interface `i`, of which the entry's set says whether it is `downstream`.
    #[inline]
    pub fn role(&self, i: Iface, downstream: bool) -> Role {
        match downstream {
            true if i == self.replier => Role::Replier,
            true => Role::Downstream,
            false if i == self.parent && i.is_set() => Role::Parent,
            false => Role::Outside,
        }
    }
}

/// What the rule says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Send to the parent, option untouched.
    ToParent,
    /// Set the turning point to this router and the arrival interface, send to the replier.
    Turn,
    /// Send to the replier, option untouched.
    ToReplier,
    /// Drop.
    Drop(Reason),
}

/// Why the rule drops a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// It comes from below and has turned already.
    TurnedFromBelow,
    /// It comes from the parent and there is no replier below.
    NoReplier,
    /// It comes from the parent and has not turned.
    UnturnedFromParent,
    /// Its interface is not in the entry.
    NotInEntry,
}

/// The verdict on a request that arrived on an interface with this role; `turned`: its turning
/// point is set; `has_replier`: the entry has one.
///
/// ```
/// use lms_proto::rule::{Action, Role, decide};
///
/// assert_eq!(decide(Role::Downstream, false, true), Action::Turn);
/// assert_eq!(decide(Role::Replier, false, true), Action::ToParent);
/// ```
#[inline]
pub fn decide(role: Role, turned: bool, has_replier: bool) -> Action {
    match (role, turned) {
        (Role::Replier | Role::Downstream, true) => Action::Drop(Reason::TurnedFromBelow),
        (Role::Replier, false) => Action::ToParent,
        (Role::Downstream, false) if has_replier => Action::Turn,
        (Role::Downstream, false) => Action::ToParent,
        (Role::Parent, true) if has_replier => Action::ToReplier,
        (Role::Parent, true) => Action::Drop(Reason::NoReplier),
        (Role::Parent, false) => Action::Drop(Reason::UnturnedFromParent),
        (Role::Outside, _) => Action::Drop(Reason::NotInEntry),
    }
}
