//! The mediator of a network, opened for the control node: it has clients and no channels. What the kinds of
//! networks share is here; a [`Front`] receives requests and sends answers.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bfed::native::Upcall;
use bfed::wire::client::{Answer, AnswerRepr, Request};
use bfed::wire::no_route;
use bfed::wire::notification::{Reason, Repr as Notification};
use bfed::wire::sroute::{GatewayCost, Outcome};
use bfed::wire::{self, Type};
use bfed::{ClientId, Cost, Duration, GatewayId, Instant, NativeNet, Scope, SessionName, Sroutes};

use proto_core::{RateLimit, TokenBucket};

use super::announce::Learner;
use super::clients::{ClientKey, ClientLimits, Clients, JoinLatency, PendingRequest, Refused};
use super::{Access, AnnouncedSession, Counter, MulticastConfig, Network, Owner};

/// Takes a request of a client. Returns its number, if it will be answered.
pub(super) type TakeRequest<'a, K> =
    dyn FnMut(K, Request) -> Result<Option<ClientId>, Refused> + 'a;

/// The clients' side of a kind of network.
pub(super) trait Front: AsFd + Send {
    /// What identifies a client.
    type Client: ClientKey + Send;

    /// Reads requests that have arrived. Returns whether more may be left.
    fn receive(&mut self, take: &mut TakeRequest<'_, Self::Client>) -> bool;

    /// Sends the answer to a request. Returns the number of answers sent and of those that could not be sent.
    fn answer(
        &mut self,
        client: ClientId,
        pending: &PendingRequest<Self::Client>,
        answer: &AnswerRepr,
    ) -> Answered;

    /// Tells clients that have a session something new of it.
    fn announce(&mut self, clients: &[Self::Client], answer: &AnswerRepr) -> Answered;

    /// Whether the session is one of this network's own.
    fn knows(&self, session: &SessionName) -> bool;

    /// Releases what belongs to requests that expired.
    fn expire(&mut self) {}

    /// Handles the passing of time: called before requests are read, too.
    fn handle_timeout(&mut self, _now: Instant) {}

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Returns the sessions of this network that its hosts announce.
    fn announced(&self) -> Vec<AnnouncedSession> {
        Vec::new()
    }

    /// Returns the counters of this kind of network.
    fn counters(&self) -> Vec<Counter>;
}

/// Answers in a second to requests of another version, and to those without a token that counts, over all clients.
const REFUSALS_PER_SECOND: u32 = 10;

/// Returns why a request of another version is refused, for people; `None` for other bytes.
pub(super) fn version_mismatch(message: &[u8]) -> Option<String> {
    let is_request = message.get(3) == Some(&(Type::Request as u8));
    let version = wire::other_version(message).filter(|_| is_request)?;
    let versions = (version, version);
    Some(wire::describe_mismatch(
        "the gateway",
        "the client",
        versions,
    ))
}

/// Datagrams that are no requests of this version.
#[derive(Debug)]
pub(super) struct Unread {
    malformed: u64,
    other_version: u64,
    refusals: TokenBucket,
}

impl Unread {
    pub(super) fn new() -> Self {
        Unread {
            malformed: 0,
            other_version: 0,
            refusals: TokenBucket::FULL,
        }
    }

    /// Returns the answer to a request that was not admitted, within a rate: it is for the asker alone, so that a forged
    /// request ends no other client's session.
    pub(super) fn not_admitted(&mut self, session: SessionName, nonce: u32) -> Option<AnswerRepr> {
        let limit = RateLimit::new(REFUSALS_PER_SECOND, REFUSALS_PER_SECOND);
        let answer = AnswerRepr {
            nonce,
            lifetime_s: 0,
            answer: Answer::NoRoute(no_route::Reason::Policy),
            session,
        };
        self.refusals.take(Instant::now(), &limit).then_some(answer)
    }

    /// Counts a datagram. Returns the NOTIFICATION that answers a request of another version, within a rate; it is
    /// never an answer to an answer.
    pub(super) fn refuse(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        match wire::other_version(datagram) {
            Some(_) => self.other_version += 1,
            None => self.malformed += 1,
        }
        let text = version_mismatch(datagram)?;
        let limit = RateLimit::new(REFUSALS_PER_SECOND, REFUSALS_PER_SECOND);
        if !self.refusals.take(Instant::now(), &limit) {
            return None;
        }
        let why = Notification::new(Reason::Version, &text);
        let mut bytes = vec![0; why.buffer_len()];
        why.emit(&mut bytes);
        Some(bytes)
    }

    pub(super) fn counters(&self) -> [Counter; 2] {
        [
            ("requests_malformed", self.malformed),
            ("requests_other_version", self.other_version),
        ]
    }
}

/// Answers that were sent, and that could not be sent.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Answered {
    pub(super) sent: u64,
    pub(super) unsent: u64,
}

impl Answered {
    /// The result of one attempt. Clients whose answer is lost ask again.
    pub(super) fn once<T, E>(sent: &Result<T, E>) -> Self {
        Answered {
            sent: u64::from(sent.is_ok()),
            unsent: u64::from(sent.is_err()),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.unsent += other.unsent;
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    requests: u64,
    damped: u64,
    rate_limited: u64,
    full: u64,
    not_admitted: u64,
    answers: Answered,
}

/// Opens the mediator of a network of groups, which learns from announcements where that is configured.
pub(super) fn open<F: Front + 'static>(
    front: F,
    config: &MulticastConfig,
    specific: bool,
    owner: Owner,
    requests: (Scope, Duration),
) -> Result<Box<dyn Network>, String> {
    if config.sap.learn_from.is_empty() {
        let mediator = Mediator::new(front, owner, config.cost, config.limits, requests);
        return Ok(Box::new(mediator));
    }
    let (network, start) = (owner.gateway.network, (owner.seed, owner.now));
    let front = Learner::open(front, config, specific, network, start)?;
    let mediator = Mediator::new(front, owner, config.cost, config.limits, requests);
    Ok(Box::new(mediator))
}

/// A network's mediator. The administrator sets the cost of this gateway; without one, the network tells nothing
/// of its inside (§5.2.2, a null response).
pub(super) struct Mediator<F: Front> {
    front: F,
    clients: Clients<F::Client>,
    counts: Counts,
    gateway: GatewayId,
    cost: Option<u32>,
    access: Arc<Access>,
}

impl<F: Front> Mediator<F> {
    /// Creates a mediator whose requests have that `scope`. A session stays for `grace` after a LEAVE, in case
    /// another client objects.
    pub(super) fn new(
        front: F,
        owner: Owner,
        cost: Option<u32>,
        limits: ClientLimits,
        (scope, grace): (Scope, Duration),
    ) -> Self {
        let Owner {
            gateway, access, ..
        } = owner;
        Mediator {
            front,
            clients: Clients::new(limits, Arc::clone(&access), scope, grace),
            counts: Counts::default(),
            gateway,
            cost,
            access,
        }
    }
}

impl<F: Front> AsFd for Mediator<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.front.as_fd()
    }
}

impl<F: Front> NativeNet for Mediator<F> {
    fn get_sroutes(
        &mut self,
        _: Instant,
        _: u32,
        session: &SessionName,
        gateways: &[GatewayId],
    ) -> Option<Sroutes> {
        let (outcome, costs) = match self.cost {
            _ if !self.front.knows(session) => (Outcome::NoSession, Vec::new()),
            None => (Outcome::Null, Vec::new()),
            Some(cost) => {
                let (gateway, cost) = (self.gateway, Cost(cost));
                let own = gateways
                    .contains(&gateway)
                    .then_some(GatewayCost { gateway, cost });
                (Outcome::Costs, own.into_iter().collect())
            }
        };
        // Other gateways know their own costs: they are asked.
        let got_all = outcome != Outcome::Costs;
        Some(Sroutes {
            outcome,
            costs,
            got_all,
        })
    }

    fn answer(&mut self, now: Instant, client: Option<ClientId>, answer: &AnswerRepr) {
        let answered = match client {
            Some(client) => match self.clients.answer(now, client, answer) {
                Some(pending) => self.front.answer(client, &pending, answer),
                None => return,
            },
            None => match self.clients.take_or_list(answer) {
                clients if clients.is_empty() => return,
                clients => self.front.announce(&clients, answer),
            },
        };
        self.counts.answers.add(answered);
    }

    fn poll_upcall(&mut self, now: Instant, _: &mut [u8]) -> Option<Upcall> {
        self.front.handle_timeout(now);
        loop {
            if let Some(upcall) = self.clients.poll_upcall() {
                return Some(upcall);
            }
            let (clients, counts) = (&mut self.clients, &mut self.counts);
            let more = self.front.receive(&mut |client, request| {
                let taken = clients.request(now, client, request);
                counts.requests += 1;
                match taken {
                    Ok(_) => {}
                    Err(Refused::Pending(_)) => counts.damped += 1,
                    Err(Refused::Rate) => counts.rate_limited += 1,
                    Err(Refused::Full) => counts.full += 1,
                    Err(Refused::NotAdmitted) => counts.not_admitted += 1,
                }
                taken
            });
            if !more {
                return self.clients.poll_upcall();
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.clients.handle_timeout(now);
        self.front.handle_timeout(now);
        self.front.expire();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let front = self.front.poll_timeout();
        front.into_iter().chain(self.clients.poll_timeout()).min()
    }
}

impl<F: Front> Network for Mediator<F> {
    fn counters(&self) -> Vec<Counter> {
        let counts = &self.counts;
        let mut list = vec![
            ("requests", counts.requests),
            ("requests_damped", counts.damped),
            ("requests_rate_limited", counts.rate_limited),
            ("requests_no_room", counts.full),
            ("requests_not_admitted", counts.not_admitted),
            ("answers", counts.answers.sent),
            ("answers_unsent", counts.answers.unsent),
        ];
        list.extend(self.front.counters());
        list.extend(self.access.counters());
        list
    }

    fn gauges(&self) -> Vec<Counter> {
        vec![
            ("client_sessions", self.clients.session_count() as u64),
            ("members", self.clients.client_count() as u64),
        ]
    }

    fn announced(&self) -> Vec<AnnouncedSession> {
        self.front.announced()
    }

    fn join_latency(&self) -> Option<&JoinLatency> {
        Some(self.clients.join_latency())
    }
}
