//! A model of the coordinator: etcd, its client in each control node, and what the machine sees of it.
//!
//! The election is asynchronous code of `bfed-gateway` that alternates between requests and decisions. This model makes the
//! same decisions. What it assumes, and the file that fulfils it:
//!
//! | assumption | fulfilled by |
//! | --- | --- |
//! | a lease counts from before the request that extends it, so it ends here before it ends in etcd | `bins/bfed-gateway/src/control/etcd.rs`, `keep_lease` |
//! | a lease that was seen to have expired is not extended | `bins/bfed-gateway/src/control/lease.rs`, `Lease` |
//! | each output compares the lease with the clock | `lease.rs`, `Guarded`; `control/mod.rs`, `send_answer` |
//! | after each input the driver steps down if the lease has expired | `control/mod.rs`, `Driver::run` |
//! | a request without an answer fails when the lease of the term ends, and its answer is not read later | `etcd.rs`, `run` |
//! | the term's number is the revision at which `leader` was created, which grows; it is a condition of every write | `etcd.rs`, `campaign` and `write`; etcd |
//! | events reach the machine in order, but later than the client acts | `etcd.rs`, `notify` |
//! | changes of a term that has ended are not written in a later one | `etcd.rs`, `depose` |
//!
//! Simplified: extending the lease, standing for election, reading and writing are one request and not four; a lease is
//! extended twice in its lifetime and not four times.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use bfed::{Coordinator, Instant, NodeId, SessionName};

use crate::gateway::SECOND;

/// The lifetime of a lease.
pub(crate) const LEASE: bfed::Duration = bfed::Duration::from_secs(2);

/// Assignments, or changes of them.
pub(crate) type Assigned = BTreeMap<SessionName, NodeId>;
type Changed = BTreeMap<SessionName, Option<NodeId>>;

/// A request of a control node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    /// Grant a lease.
    Grant,
    /// Extend the lease, elect its owner if no control node is elected, and write changes if this term lasts.
    Round {
        lease: u64,
        changes: Option<(u64, Changed)>,
    },
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Granted(u64),
    /// The lease has expired.
    Expired,
    /// The lease is extended, and its owner is elected.
    Own {
        epoch: u64,
        succeeds: bool,
        assigned: Assigned,
        written: Changed,
    },
    /// The lease is extended. Another control node is elected.
    Other,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Leader {
    lease: u64,
    revision: u64,
}

/// etcd.
#[derive(Debug, Hash, Default)]
pub(crate) struct Etcd {
    revision: u64,
    /// When each lease expires.
    leases: BTreeMap<u64, Instant>,
    leader: Option<Leader>,
    /// Whether there was a leader.
    last: bool,
    pub(crate) assigned: Assigned,
    /// Control nodes that wait for the end of the leader.
    watchers: BTreeSet<usize>,
}

impl Etcd {
    pub(crate) fn answer(&mut self, now: Instant, from: usize, request: &Request) -> Answer {
        let (lease, changes) = match request {
            Request::Grant => {
                self.revision += 1;
                self.leases.insert(self.revision, now + LEASE);
                return Answer::Granted(self.revision);
            }
            Request::Round { lease, changes } => (*lease, changes),
        };
        let Some(expires) = self.leases.get_mut(&lease) else {
            return Answer::Expired;
        };
        *expires = now + LEASE;
        let mut succeeds = true;
        if self.leader.is_none() {
            self.revision += 1;
            let revision = self.revision;
            self.leader = Some(Leader { lease, revision });
            succeeds = std::mem::replace(&mut self.last, true);
        }
        let Some(leader) = self.leader.filter(|leader| leader.lease == lease) else {
            self.watchers.insert(from);
            return Answer::Other;
        };
        let mut written = Changed::new();
        if let Some((epoch, changes)) = changes
            && *epoch == leader.revision
        {
            for (session, node) in changes {
                match node {
                    Some(node) => self.assigned.insert(session.clone(), *node),
                    None => self.assigned.remove(session),
                };
            }
            written.clone_from(changes);
        }
        Answer::Own {
            epoch: leader.revision,
            succeeds,
            assigned: self.assigned.clone(),
            written,
        }
    }

    /// Ends expired leases. Returns the control nodes to notify that the leader is gone.
    pub(crate) fn expire(&mut self, now: Instant) -> BTreeSet<usize> {
        self.leases.retain(|_, expires| *expires > now);
        match self.leader {
            Some(leader) if !self.leases.contains_key(&leader.lease) => {
                self.leader = None;
                std::mem::take(&mut self.watchers)
            }
            _ => BTreeSet::new(),
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.leases.values().min().copied()
    }

    /// The lease of the elected control node.
    pub(crate) fn leader(&self) -> Option<u64> {
        Some(self.leader?.lease)
    }
}

/// The lease of one term; compare `bfed-gateway`'s.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    /// `None` once it was seen to have expired.
    end: Rc<Cell<Option<Instant>>>,
    /// The clock of this control node does not advance.
    is_blind: bool,
}

impl Lease {
    pub(crate) fn holds(&self, now: Instant) -> bool {
        let end = self.end.get();
        let end = end.filter(|end| self.is_blind || now < *end);
        self.end.set(end);
        end.is_some()
    }

    fn extend(&self, end: Instant) -> bool {
        let holds = self.end.get().is_some();
        self.end.set(holds.then_some(end));
        holds
    }

    fn end(&self) {
        self.end.set(None);
    }
}

/// What the client tells the driver.
#[derive(Clone, Debug)]
pub(crate) enum StoreEvent {
    Elected {
        epoch: u64,
        lease: Lease,
        succeeds: bool,
        assigned: Assigned,
    },
    Deposed,
}

/// Changes to write.
type Changes = Rc<RefCell<Changed>>;

/// The coordinator as the machine sees it.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) now: Instant,
    lease: Option<Lease>,
    epoch: u64,
    succeeds: bool,
    assigned: Assigned,
    changes: Changes,
}

impl View {
    pub(crate) fn handle_event(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Elected {
                epoch,
                lease,
                succeeds,
                assigned,
            } => {
                self.assigned = assigned;
                (self.lease, self.epoch, self.succeeds) = (Some(lease), epoch, succeeds);
            }
            StoreEvent::Deposed => self.step_down(),
        }
    }

    /// Whether its lease lasts.
    pub(crate) fn holds(&self, now: Instant) -> bool {
        let end = self.lease.as_ref().and_then(|lease| lease.end.get());
        end.is_some_and(|end| now < end)
    }

    fn step_down(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.end();
        }
        self.assigned.clear();
        self.changes.borrow_mut().clear();
    }

    /// Steps down if the lease has expired. Returns whether it had.
    pub(crate) fn step_down_in_time(&mut self) -> bool {
        let now = self.now;
        if self.lease.as_ref().is_none_or(|lease| lease.holds(now)) {
            return false;
        }
        self.step_down();
        true
    }
}

impl Coordinator for View {
    fn is_active(&self) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| lease.holds(self.now))
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn succeeds(&self) -> bool {
        self.succeeds
    }

    fn assigned(&self, session: &SessionName) -> Option<NodeId> {
        self.assigned.get(session).copied()
    }

    fn assign(&mut self, session: &SessionName, node: NodeId) {
        if self.assigned.insert(session.clone(), node) != Some(node) {
            let mut changes = self.changes.borrow_mut();
            changes.insert(session.clone(), Some(node));
        }
    }

    fn release(&mut self, session: &SessionName) {
        if self.assigned.remove(session).is_some() {
            self.changes.borrow_mut().insert(session.clone(), None);
        }
    }

    fn retain(&mut self, keep: &dyn Fn(&SessionName) -> bool) {
        let sessions: Vec<_> = self.assigned.keys().cloned().collect();
        for session in sessions.iter().filter(|session| !keep(session)) {
            self.release(session);
        }
    }
}

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
struct Turn {
    requested_at: Instant,
    deadline: Instant,
}

/// The client of etcd in a control node.
#[derive(Debug)]
pub(crate) struct Client {
    is_blind: bool,
    lease: Option<u64>,
    holds_until: Instant,
    term: Option<(u64, Lease)>,
    turn: Option<Turn>,
    next_at: Instant,
    /// There is a reason for a turn before that.
    is_woken: bool,
    /// The last turn had an answer.
    answers: bool,
    changes: Changes,
    /// For the driver, and how many of them are on the way.
    events: VecDeque<StoreEvent>,
    notified: usize,
    /// For etcd.
    pub(crate) request: Option<Request>,
}

impl Client {
    pub(crate) fn new(now: Instant, is_blind: bool) -> (Client, View) {
        let changes = Changes::default();
        let view = View {
            now,
            lease: None,
            epoch: 0,
            succeeds: false,
            assigned: Assigned::new(),
            changes: Rc::clone(&changes),
        };
        let client = Client {
            is_blind,
            lease: None,
            holds_until: now,
            term: None,
            turn: None,
            next_at: now,
            is_woken: false,
            answers: false,
            changes,
            events: VecDeque::new(),
            notified: 0,
            request: None,
        };
        (client, view)
    }

    /// The lease with which this control node stands for election.
    pub(crate) fn lease(&self) -> Option<u64> {
        self.lease
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.turn.is_some()
    }

    /// Whether there is one more event that the driver has not been notified of.
    pub(crate) fn has_more_events(&mut self) -> bool {
        let more = self.notified < self.events.len();
        self.notified += usize::from(more);
        more
    }

    /// The driver takes an event.
    pub(crate) fn take_event(&mut self) -> Option<StoreEvent> {
        self.notified -= 1;
        self.events.pop_front()
    }

    fn depose(&mut self) {
        if let Some((_, lease)) = self.term.take() {
            lease.end();
            self.changes.borrow_mut().clear();
            self.events.push_back(StoreEvent::Deposed);
        }
    }

    fn step_down_in_time(&mut self, now: Instant) {
        let term = self.term.as_ref();
        if term.is_some_and(|(_, lease)| !lease.holds(now)) {
            self.depose();
        }
    }

    /// The leader is gone.
    pub(crate) fn leader_gone(&mut self) {
        self.is_woken |= self.term.is_none();
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.step_down_in_time(now);
        if self.turn.take_if(|turn| turn.deadline <= now).is_some() {
            self.answers = false;
        }
        let has_changes = self.answers && !self.changes.borrow().is_empty();
        let is_due = self.next_at <= now || self.is_woken || has_changes && self.term.is_some();
        if self.turn.is_some() || !is_due {
            return;
        }
        self.is_woken = false;
        if self.next_at <= now {
            self.next_at = now + SECOND;
        }
        let limit = now + LEASE;
        let deadline = match self.term {
            Some(_) if !self.is_blind => limit.min(self.holds_until),
            _ => limit,
        };
        self.turn = Some(Turn {
            requested_at: now,
            deadline,
        });
        self.ask();
    }

    fn ask(&mut self) {
        self.request = Some(match self.lease {
            None => Request::Grant,
            Some(lease) => {
                let changes = self.changes.borrow();
                let epoch = self.term.as_ref().map(|(epoch, _)| *epoch);
                let changes = epoch
                    .filter(|_| !changes.is_empty())
                    .map(|epoch| (epoch, changes.clone()));
                Request::Round { lease, changes }
            }
        });
    }

    pub(crate) fn handle_answer(&mut self, now: Instant, answer: &Answer) {
        let Some(turn) = self.turn else {
            return;
        };
        let extended = turn.requested_at + LEASE;
        match answer {
            Answer::Granted(lease) => {
                (self.lease, self.holds_until) = (Some(*lease), extended);
                self.ask();
                return;
            }
            Answer::Expired => {
                // Another control node may have been elected and have ended since.
                (self.lease, self.holds_until) = (None, turn.requested_at);
                self.depose();
                self.ask();
                return;
            }
            Answer::Own {
                epoch,
                succeeds,
                assigned,
                written,
            } => {
                self.extend(extended);
                let mut changes = self.changes.borrow_mut();
                changes.retain(|session, node| written.get(session) != Some(node));
                drop(changes);
                if self.term.as_ref().is_none_or(|term| term.0 != *epoch) {
                    self.elected(now, *epoch, *succeeds, assigned);
                }
            }
            Answer::Other => {
                self.extend(extended);
                self.depose();
            }
        }
        (self.turn, self.answers) = (None, true);
    }

    fn extend(&mut self, until: Instant) {
        self.holds_until = until;
        let term = self.term.as_ref();
        if term.is_some_and(|(_, lease)| !lease.extend(until)) {
            // The driver saw the lease expire and has stepped down.
            self.depose();
        }
    }

    fn elected(&mut self, now: Instant, epoch: u64, succeeds: bool, assigned: &Assigned) {
        let lease = Lease {
            end: Rc::new(Cell::new(Some(self.holds_until))),
            is_blind: self.is_blind,
        };
        if !lease.holds(now) {
            return;
        }
        self.term = Some((epoch, lease.clone()));
        self.events.push_back(StoreEvent::Elected {
            epoch,
            lease,
            succeeds,
            assigned: assigned.clone(),
        });
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let has_changes = self.answers && !self.changes.borrow().is_empty();
        if let Some(turn) = self.turn {
            return Some(turn.deadline);
        }
        let at = match self.is_woken || has_changes && self.term.is_some() {
            true => Instant::ZERO,
            false => self.next_at,
        };
        let ends = self.term.as_ref().filter(|_| !self.is_blind);
        let ends = ends.map(|_| self.holds_until);
        Some(ends.map_or(at, |ends| ends.min(at)))
    }
}
