//! Authorisation: which sessions peers and clients may publish, join and carry, and how many.
//!
//! | right | asked when | by |
//! | --- | --- | --- |
//! | [`Publish`](Right::Publish) | a peer joins a session of this network, or a host begins to be the source of one | the peer, or the host |
//! | [`Join`](Right::Join) | a client of this network requests a session, or its cost | the client |
//! | [`Carry`](Right::Carry) | a peer joins a session of another network through this gateway | the peer |
//!
//! The first rule that matches a request decides; without one, the default does. A rule that allows may bound how
//! many sessions it admits at once and in a second. A request beyond the bound is denied by that rule: later rules are
//! not tried. Each denial is counted under its rule.
//!
//! | quantity | bound |
//! | --- | --- |
//! | rules | [`MAX_RULES`]; one decision compares a request with each in turn |
//! | memory | the rules, and 64 bytes for each; nothing for each request |

mod pattern;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use proto_core::time::Instant;
use proto_core::{RateLimit, TokenBucket};

pub use pattern::NamePattern;

use crate::name::SessionName;
use crate::prefix::Prefix;
use crate::types::{BnNum, GatewayId};

/// Most rules.
pub const MAX_RULES: usize = 1024;
/// Name under which the default counts its denials.
pub const DEFAULT: &str = "default";

/// What a request needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Right {
    /// A session of this network leaves it, or gets a source.
    Publish,
    /// A client of this network receives a session.
    Join,
    /// A session of another network passes through this gateway.
    Carry,
}

impl Right {
    /// All rights.
    pub const ALL: [Right; 3] = [Right::Publish, Right::Join, Right::Carry];

    /// Returns the name in configurations, logs and tokens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Right::Publish => "publish",
            Right::Join => "join",
            Right::Carry => "carry",
        }
    }
}

/// Who makes a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A client or a source of this network, with its address where the network knows it.
    Client(Option<IpAddr>),
    /// Clients of this network that are decided about one by one elsewhere: by the server that asks for them, or when
    /// they refresh. They may have what any client may have.
    Clients,
    /// A peer.
    Peer(GatewayId),
}

/// A request to decide about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The right that it needs.
    pub right: Right,
    /// Who makes it.
    pub subject: Subject,
    /// The session.
    pub session: &'a SessionName,
    /// The network that owns the session, if known.
    pub network: Option<BnNum>,
}

/// A peer, or all of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerPattern {
    /// The network.
    pub network: BnNum,
    /// The gateway's number; `None` for every gateway of the network.
    pub number: Option<u32>,
}

impl PeerPattern {
    fn matches(self, peer: GatewayId) -> bool {
        self.network == peer.network && self.number.is_none_or(|number| number == peer.number)
    }
}

/// Whether a rule allows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Action {
    /// Allow, within the rule's bounds.
    #[default]
    Allow,
    /// Deny.
    Deny,
}

/// A rule. All conditions that are set must hold; of a list, one entry. An empty list is no condition.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rule {
    /// Its name: denials are counted under it.
    pub name: String,
    /// The action.
    pub action: Action,
    /// The rights that it is about.
    pub rights: Vec<Right>,
    /// Names of sessions.
    pub sessions: Vec<NamePattern>,
    /// Groups: the session's native name is a group, or a source and a group.
    pub groups: Vec<Prefix>,
    /// Addresses of clients. A client without a known address does not match.
    pub clients: Vec<Prefix>,
    /// Peers.
    pub peers: Vec<PeerPattern>,
    /// Most sessions that the rule admits at once: a session counts once for each peer, and once for all clients.
    pub max_sessions: Option<u32>,
    /// Most sessions that the rule admits in a second; the burst is twice as many.
    pub new_per_second: Option<u32>,
}

/// Rules in order, and the action for requests that match none.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rules {
    /// The rules.
    pub rules: Vec<Rule>,
    /// Action for requests that match no rule; to allow by default.
    pub otherwise: Action,
}

/// The rule that decided: its place in the list, or one past the last for the default.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RuleId(u16);

/// The state of a rule.
#[derive(Clone, Copy, Debug)]
struct Count {
    bucket: TokenBucket,
    sessions: usize,
    denied: u64,
}

impl Count {
    const NEW: Count = Count {
        bucket: TokenBucket::FULL,
        sessions: 0,
        denied: 0,
    };
}

/// A rule and its counters, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleStatus<'a> {
    /// The rule's name.
    pub name: &'a str,
    /// Its action.
    pub action: Action,
    /// Sessions that it admits now.
    pub sessions: usize,
    /// Requests that it denied.
    pub denied: u64,
}

/// Decides about requests, and counts what it admits and denies.
#[derive(Debug)]
pub struct Authoriser {
    rules: Rules,
    /// DNS names of networks.
    names: BTreeMap<String, BnNum>,
    /// One for each rule, and the last for the default.
    counts: Vec<Count>,
}

/// Returns the group that a native name stands for, if any: `239.1.2.3`, `10.0.0.1@232.1.2.3`, `[ff3e::1]`.
fn group(session: &SessionName) -> Option<IpAddr> {
    let native = session.native_bytes();
    let text = core::str::from_utf8(&native).ok()?;
    let group = text.split_once('@').map_or(text, |(_, group)| group);
    let inner = group
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    inner.unwrap_or(group).parse().ok()
}

impl Rule {
    fn decides(&self, request: &Request<'_>, names: &BTreeMap<String, BnNum>) -> bool {
        self.is_about(request, names) && self.is_from(request.subject)
    }

    /// Returns whether right and session match.
    fn is_about(&self, request: &Request<'_>, names: &BTreeMap<String, BnNum>) -> bool {
        let (session, network) = (request.session, request.network);
        let mut patterns = self.sessions.iter();
        (self.rights.is_empty() || self.rights.contains(&request.right))
            && (self.sessions.is_empty()
                || patterns.any(|one| one.matches(session, network, names)))
            && (self.groups.is_empty()
                || group(session)
                    .is_some_and(|group| self.groups.iter().any(|one| one.contains(group))))
    }

    fn is_from(&self, subject: Subject) -> bool {
        let peer = |peer| self.peers.iter().any(|pattern| pattern.matches(peer));
        let client = |address| self.clients.iter().any(|prefix| prefix.contains(address));
        match subject {
            Subject::Peer(id) => self.clients.is_empty() && (self.peers.is_empty() || peer(id)),
            _ if !self.peers.is_empty() => false,
            Subject::Client(address) => self.clients.is_empty() || address.is_some_and(client),
            // Some client may be none of those that the rule denies.
            Subject::Clients => self.clients.is_empty() || self.action == Action::Allow,
        }
    }
}

impl Authoriser {
    /// Creates it from rules, of which the first [`MAX_RULES`] count, and DNS names of networks.
    #[must_use]
    pub fn new(mut rules: Rules, names: BTreeMap<String, BnNum>) -> Self {
        rules.rules.truncate(MAX_RULES);
        let counts = alloc::vec![Count::NEW; rules.rules.len() + 1];
        Authoriser {
            rules,
            names,
            counts,
        }
    }

    /// Replaces the rules. Rules of the same name keep their denials; nothing counts as admitted until
    /// it is decided about again.
    pub fn reconfigure(&mut self, rules: Rules, names: BTreeMap<String, BnNum>) {
        let denied: BTreeMap<String, u64> = self
            .status()
            .map(|status| (status.name.into(), status.denied))
            .collect();
        *self = Authoriser::new(rules, names);
        for (at, count) in self.counts.iter_mut().enumerate() {
            let name = self.rules.rules.get(at).map_or(DEFAULT, |rule| &rule.name);
            count.denied = denied.get(name).copied().unwrap_or(0);
        }
    }

    /// Returns the rule that decides about a request.
    fn rule_for(&self, request: &Request<'_>) -> RuleId {
        let mut rules = self.rules.rules.iter();
        self.id(rules.position(|rule| rule.decides(request, &self.names)))
    }

    /// Returns the number of a rule, or of the default.
    fn id(&self, at: Option<usize>) -> RuleId {
        RuleId(at.unwrap_or(self.rules.rules.len()) as u16)
    }

    fn rule(&self, id: RuleId) -> Option<&Rule> {
        self.rules.rules.get(usize::from(id.0))
    }

    fn count(&mut self, id: RuleId) -> Option<&mut Count> {
        self.counts.get_mut(usize::from(id.0))
    }

    fn action(&self, id: RuleId) -> Action {
        self.rule(id)
            .map_or(self.rules.otherwise, |rule| rule.action)
    }

    /// Returns the rule's name.
    #[must_use]
    pub fn name(&self, id: RuleId) -> &str {
        self.rule(id).map_or(DEFAULT, |rule| &rule.name)
    }

    fn deny(&mut self, id: RuleId) -> Result<RuleId, RuleId> {
        if let Some(count) = self.count(id) {
            count.denied += 1;
        }
        Err(id)
    }

    /// Decides about a request that admits nothing new: a refresh, or a question for the cost.
    ///
    /// # Errors
    /// The request is denied, and counted.
    pub fn decide(&mut self, request: &Request<'_>) -> Result<RuleId, RuleId> {
        let id = self.rule_for(request);
        match self.action(id) {
            Action::Allow => Ok(id),
            Action::Deny => self.deny(id),
        }
    }

    /// Decides about a request that starts a session for its subject, within the bounds of the rule, and counts the
    /// session until [`release`](Self::release).
    ///
    /// # Errors
    /// The request is denied, and counted.
    pub fn admit(&mut self, now: Instant, request: &Request<'_>) -> Result<RuleId, RuleId> {
        let id = self.decide(request)?;
        let (most, rate) = self.rule(id).map_or((None, None), |rule| {
            (rule.max_sessions, rule.new_per_second)
        });
        let Some(count) = self.count(id) else {
            return Err(id);
        };
        let full = most.is_some_and(|most| count.sessions >= most as usize);
        let limit = rate.map(|rate| RateLimit::new(rate, rate.saturating_mul(2)));
        if full || limit.is_some_and(|limit| !count.bucket.take(now, &limit)) {
            return self.deny(id);
        }
        count.sessions += 1;
        Ok(id)
    }

    /// Decides again about a session that was admitted by earlier rules: the rate does not matter.
    ///
    /// # Errors
    /// The session must end; counted as a denial.
    pub(crate) fn admit_again(&mut self, request: &Request<'_>) -> Result<RuleId, RuleId> {
        let id = self.decide(request)?;
        let most = self.rule(id).and_then(|rule| rule.max_sessions);
        match self.count(id) {
            Some(count) if most.is_none_or(|most| count.sessions < most as usize) => {
                count.sessions += 1;
                Ok(id)
            }
            _ => self.deny(id),
        }
    }

    /// Ends a session that a rule admitted.
    pub fn release(&mut self, id: RuleId) {
        if let Some(count) = self.count(id) {
            count.sessions = count.sessions.saturating_sub(1);
        }
    }

    /// Forgets all admitted sessions: their trees are gone.
    pub(crate) fn release_all(&mut self) {
        for count in &mut self.counts {
            count.sessions = 0;
        }
    }

    /// Returns the rules and their counters, the default last.
    pub fn status(&self) -> impl Iterator<Item = RuleStatus<'_>> {
        self.counts
            .iter()
            .enumerate()
            .map(|(at, count)| RuleStatus {
                name: self.name(RuleId(at as u16)),
                action: self.action(RuleId(at as u16)),
                sessions: count.sessions,
                denied: count.denied,
            })
    }
}

#[cfg(test)]
mod tests;
