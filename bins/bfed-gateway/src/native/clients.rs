//! Clients of a mediator (§5.2.1): their requests, their sessions, and when the last client of a
//! session has gone. Without sockets.
//!
//! | a request | does |
//! | --- | --- |
//! | JOIN, the first of its client for the session | [`Upcall::Join`]; a TRANSLATION makes it a client of the session for the lifetime in it |
//! | JOIN while the client's last one is not answered | nothing: one answer serves both |
//! | COST | [`Upcall::Join`] with `cost_only` |
//! | LEAVE of a client that has the session | it is removed after the grace period; when no client is left, [`Upcall::Leave`] |
//! | any, faster than the configured rate, or past a bound | dropped, counted |
//! | JOIN, COST without the token that the network requires | refused, counted; the kind of network answers |
//!
//! The kind of network decides what a client is: in an IP multicast network all members of the mediator's group are
//! one, because one answer serves them all (damping).

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use bfed::authorise::{Right, Subject};
use bfed::native::Upcall;
use bfed::wire::client::{Answer, AnswerRepr, Request, Token, Want};
use bfed::{ClientId, ClientRequest, Duration, Instant, Scope, SessionName};
use proto_core::{RateLimit, TokenBucket};

use super::Access;

/// Time allowed for an answer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Bounds of a mediator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientLimits {
    /// Most sessions that clients have, and most clients of all sessions; about 300 bytes each beside
    /// the session's name.
    pub clients: usize,
    /// Most requests in a second, over all clients.
    pub requests_per_second: u32,
}

impl Default for ClientLimits {
    fn default() -> Self {
        ClientLimits {
            clients: 16_384,
            requests_per_second: 1000,
        }
    }
}

/// Why a request is not passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// Faster than [`ClientLimits::requests_per_second`].
    Rate,
    /// [`ClientLimits::clients`] is reached.
    Full,
    /// The client has sent a request with this number already, and its answer is pending.
    Pending(ClientId),
    /// The client's token does not grant it.
    NotAdmitted,
}

/// What identifies a client.
pub(super) trait ClientKey: Ord + Clone {
    /// Returns its address, where the network knows it.
    fn address(&self) -> Option<IpAddr>;
}

/// All clients of a network of groups are one.
impl ClientKey for () {
    fn address(&self) -> Option<IpAddr> {
        None
    }
}

/// Upper bounds of the buckets of [`JoinLatency`] in seconds, but for the last one.
pub const LATENCY_BOUNDS_S: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// How long clients waited from a JOIN to the addresses of the session.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JoinLatency {
    /// Joins in each bucket: up to each of [`LATENCY_BOUNDS_S`], and above.
    pub buckets: [u64; LATENCY_BOUNDS_S.len() + 1],
    /// The sum of all times in microseconds.
    pub sum_us: u64,
}

impl JoinLatency {
    fn record(&mut self, waited: Duration) {
        let seconds = waited.total_micros() as f64 / 1e6;
        let bucket = LATENCY_BOUNDS_S.iter().position(|bound| seconds <= *bound);
        self.buckets[bucket.unwrap_or(LATENCY_BOUNDS_S.len())] += 1;
        self.sum_us += waited.total_micros();
    }
}

/// A request that waits for its answer.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest<K> {
    /// The client.
    pub(super) key: K,
    /// The nonce of the request.
    pub(super) nonce: u32,
    /// Whether it asks for the cost only.
    pub(super) cost_only: bool,
    session: SessionName,
    at: Instant,
}

/// The clients of a mediator; `K` identifies one.
#[derive(Debug)]
pub(super) struct Clients<K> {
    limits: ClientLimits,
    access: Arc<Access>,
    scope: Scope,
    /// Time that a session stays after a LEAVE, in case another client objects.
    grace: Duration,
    /// The clients of each session, and when they expire.
    sessions: BTreeMap<SessionName, BTreeMap<K, Instant>>,
    count: usize,
    pending: BTreeMap<ClientId, PendingRequest<K>>,
    joining: BTreeMap<(SessionName, K), ClientId>,
    upcalls: VecDeque<Upcall>,
    next: u64,
    requests: TokenBucket,
    due: Option<Instant>,
    latency: JoinLatency,
}

impl<K: ClientKey> Clients<K> {
    pub(super) fn new(
        limits: ClientLimits,
        access: Arc<Access>,
        scope: Scope,
        grace: Duration,
    ) -> Self {
        Clients {
            limits,
            access,
            scope,
            grace,
            sessions: BTreeMap::new(),
            count: 0,
            pending: BTreeMap::new(),
            joining: BTreeMap::new(),
            upcalls: VecDeque::new(),
            next: 0,
            requests: TokenBucket::FULL,
            due: None,
            latency: JoinLatency::default(),
        }
    }

    /// Returns how long clients waited.
    pub(super) fn join_latency(&self) -> &JoinLatency {
        &self.latency
    }

    /// Returns the number of sessions that clients have.
    pub(super) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the number of clients, over all sessions.
    pub(super) fn client_count(&self) -> usize {
        self.count
    }

    /// Returns whether the client has the session.
    pub(super) fn has(&self, key: &K, session: &SessionName) -> bool {
        self.sessions
            .get(session)
            .is_some_and(|clients| clients.contains_key(key))
    }

    /// Handles a request; returns its number if it will be answered.
    pub(super) fn request(
        &mut self,
        now: Instant,
        key: K,
        request: Request,
    ) -> Result<Option<ClientId>, Refused> {
        let rate = self.limits.requests_per_second;
        if !self.requests.take(now, &RateLimit::new(rate, rate)) {
            return Err(Refused::Rate);
        }
        let token = request.token.as_ref().map(Token::as_str);
        let checked = match request.want {
            Want::Leave => Ok(()),
            Want::Join | Want::Cost => {
                let (session, from) = (&request.session, key.address());
                self.access.check(Right::Join, session, from, token)
            }
        };
        if checked.is_err() {
            return Err(Refused::NotAdmitted);
        }
        match request.want {
            Want::Leave => {
                self.leave(now, &key, &request.session);
                Ok(None)
            }
            Want::Join => {
                let joining = (request.session.clone(), key.clone());
                if let Some(&client) = self.joining.get(&joining) {
                    return Err(Refused::Pending(client));
                }
                if self.count >= self.limits.clients && !self.has(&key, &request.session) {
                    return Err(Refused::Full);
                }
                let client = self.add(now, key, request, false)?;
                self.joining.insert(joining, client);
                Ok(Some(client))
            }
            Want::Cost => self.add(now, key, request, true).map(Some),
        }
    }

    fn add(
        &mut self,
        now: Instant,
        key: K,
        request: Request,
        cost_only: bool,
    ) -> Result<ClientId, Refused> {
        if self.pending.len() >= self.limits.clients {
            return Err(Refused::Full);
        }
        self.next += 1;
        let client = ClientId(self.next);
        let token = request.token.as_ref().map(Token::as_str);
        let subject = match token.is_some_and(|token| self.access.is_pass(token)) {
            true => Subject::Clients,
            false => Subject::Client(key.address()),
        };
        self.pending.insert(
            client,
            PendingRequest {
                key,
                nonce: request.nonce,
                cost_only,
                session: request.session.clone(),
                at: now,
            },
        );
        self.schedule(now + TIMEOUT);
        self.upcalls.push_back(Upcall::Join(ClientRequest {
            client,
            subject,
            session: request.session,
            redirects: request.redirects,
            scope: self.scope,
            cost_only,
        }));
        Ok(client)
    }

    fn leave(&mut self, now: Instant, key: &K, session: &SessionName) {
        let Some(until) = self
            .sessions
            .get_mut(session)
            .and_then(|clients| clients.get_mut(key))
        else {
            return;
        };
        *until = (*until).min(now + self.grace);
        let until = *until;
        self.schedule(until);
        self.handle_timeout(now);
    }

    fn forget_pending(&mut self, client: ClientId) -> Option<PendingRequest<K>> {
        let pending = self.pending.remove(&client)?;
        if !pending.cost_only {
            self.joining
                .remove(&(pending.session.clone(), pending.key.clone()));
        }
        Some(pending)
    }

    /// Handles the answer to a request; returns the request, or `None` if it has expired.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        client: ClientId,
        answer: &AnswerRepr,
    ) -> Option<PendingRequest<K>> {
        let pending = self.forget_pending(client)?;
        if matches!(answer.answer, Answer::Translation(_)) && !pending.cost_only {
            self.latency.record(now - pending.at);
            self.remember(now, &pending, answer.lifetime_s);
        }
        Some(pending)
    }

    fn remember(&mut self, now: Instant, pending: &PendingRequest<K>, lifetime_s: u16) {
        let until = now + Duration::from_secs(lifetime_s.into());
        let clients = self.sessions.entry(pending.session.clone()).or_default();
        if clients.insert(pending.key.clone(), until).is_none() {
            self.count += 1;
        }
        self.schedule(until);
    }

    /// Returns the clients that have a session, to tell them the answer. An answer that ends the session also
    /// removes them.
    pub(super) fn take_or_list(&mut self, answer: &AnswerRepr) -> Vec<K> {
        if matches!(answer.answer, Answer::NoRoute(_)) {
            let gone = self.sessions.remove(&answer.session).unwrap_or_default();
            self.count -= gone.len();
            return gone.into_keys().collect();
        }
        self.sessions
            .get(&answer.session)
            .map_or_else(Vec::new, |clients| clients.keys().cloned().collect())
    }

    pub(super) fn poll_upcall(&mut self) -> Option<Upcall> {
        self.upcalls.pop_front()
    }

    fn schedule(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Removes requests without an answer, and clients that did not refresh.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let late = |pending: &PendingRequest<K>| pending.at + TIMEOUT <= now;
        let given_up: Vec<_> = self
            .pending
            .iter()
            .filter(|(_, pending)| late(pending))
            .map(|(&id, _)| id)
            .collect();
        for client in given_up {
            self.forget_pending(client);
        }
        let (mut gone, upcalls) = (0, &mut self.upcalls);
        self.sessions.retain(|session, clients| {
            let before = clients.len();
            clients.retain(|_, until| *until > now);
            gone += before - clients.len();
            if clients.is_empty() {
                upcalls.push_back(Upcall::Leave(session.clone()));
            }
            !clients.is_empty()
        });
        self.count -= gone;
        let have = self.sessions.values().flat_map(BTreeMap::values).copied();
        self.due = have
            .chain(self.pending.values().map(|pending| pending.at + TIMEOUT))
            .min();
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::AccessConfig;
    use bfed::ChannelAddress;
    use bfed::wire::no_route::Reason;

    fn name(number: u32) -> SessionName {
        SessionName::parse(&format!("bfed://7/239.1.2.3/{number}")).unwrap()
    }

    fn request(want: Want, number: u32) -> Request {
        Request {
            nonce: 5,
            want,
            redirects: 0,
            session: name(number),
            token: None,
        }
    }

    fn translation(number: u32) -> AnswerRepr {
        let answer = Answer::Translation(vec![ChannelAddress::Native(b"x".to_vec())]);
        AnswerRepr {
            nonce: 0,
            lifetime_s: 100,
            answer,
            session: name(number),
        }
    }

    impl ClientKey for u8 {
        fn address(&self) -> Option<IpAddr> {
            Some([10, 0, 0, *self].into())
        }
    }

    fn access() -> Arc<Access> {
        let (tokens, rules, names) = Default::default();
        let config = AccessConfig {
            tokens: &tokens,
            rules: &rules,
            names: &names,
        };
        Access::new(bfed::BnNum::new(7).unwrap(), config, [1; 32]).unwrap()
    }

    fn clients(limits: ClientLimits) -> Clients<u8> {
        Clients::new(limits, access(), Scope::Chosen, Duration::ZERO)
    }

    fn requests(clients: &mut Clients<u8>) -> Vec<ClientId> {
        let joins = std::iter::from_fn(|| clients.poll_upcall()).map(|upcall| match upcall {
            Upcall::Join(request) => request.client,
            other => panic!("{other:?}"),
        });
        joins.collect()
    }

    #[test]
    fn one_answer_serves_equal_requests() {
        let mut all = clients(ClientLimits::default());
        let now = Instant::from_secs(1);
        assert!(all.request(now, 1, request(Want::Join, 1)).is_ok());
        assert_eq!(
            all.request(now, 1, request(Want::Join, 1)),
            Err(Refused::Pending(ClientId(1)))
        );
        assert!(all.request(now, 2, request(Want::Join, 1)).is_ok());
        assert_eq!(requests(&mut all).len(), 2);
        let later = now + Duration::from_millis(30);
        assert!(all.answer(later, ClientId(1), &translation(1)).is_some());
        let latency = all.join_latency();
        assert_eq!((latency.buckets[3], latency.sum_us), (1, 30_000));
        assert!(
            all.answer(now, ClientId(1), &translation(1)).is_none(),
            "answered once"
        );
        // A refresh is passed on: the control node's state is soft too.
        assert!(all.request(now, 1, request(Want::Join, 1)).is_ok());
    }

    #[test]
    fn the_last_client_that_leaves_or_falls_silent_takes_the_session_with_it() {
        let mut all = clients(ClientLimits::default());
        let mut now = Instant::from_secs(1);
        for key in [1, 2] {
            all.request(now, key, request(Want::Join, 1)).unwrap();
        }
        for client in requests(&mut all) {
            all.answer(now, client, &translation(1));
        }
        all.request(now, 1, request(Want::Leave, 1)).unwrap();
        all.request(now, 3, request(Want::Leave, 1)).unwrap();
        assert_eq!(all.poll_upcall(), None, "2 has it still, 3 never had it");
        now += Duration::from_secs(99);
        all.handle_timeout(now);
        assert_eq!(all.poll_upcall(), None);
        now += Duration::from_secs(1);
        assert_eq!(all.poll_timeout(), Some(now));
        all.handle_timeout(now);
        assert_eq!(all.poll_upcall(), Some(Upcall::Leave(name(1))));
        assert_eq!((all.session_count(), all.poll_timeout()), (0, None));
    }

    #[test]
    fn who_hears_a_leave_has_time_to_object() {
        let mut all: Clients<()> = Clients::new(
            ClientLimits::default(),
            access(),
            Scope::Heard,
            Duration::from_secs(3),
        );
        let now = Instant::from_secs(1);
        let join = |all: &mut Clients<()>, now| {
            all.request(now, (), request(Want::Join, 1)).unwrap();
            match all.poll_upcall() {
                Some(Upcall::Join(request)) => {
                    assert_eq!(request.scope, Scope::Heard);
                    all.answer(now, request.client, &translation(1));
                }
                other => panic!("{other:?}"),
            }
        };
        join(&mut all, now);
        all.request(now, (), request(Want::Leave, 1)).unwrap();
        join(&mut all, now + Duration::from_secs(1));
        all.handle_timeout(now + Duration::from_secs(4));
        assert_eq!(all.poll_upcall(), None);
        all.request(now + Duration::from_secs(5), (), request(Want::Leave, 1))
            .unwrap();
        all.handle_timeout(now + Duration::from_secs(8));
        assert_eq!(all.poll_upcall(), Some(Upcall::Leave(name(1))));
    }

    #[test]
    fn floods_end_at_the_bounds_and_pass() {
        let limits = ClientLimits {
            clients: 10,
            requests_per_second: 50,
        };
        let mut all = clients(limits);
        let now = Instant::from_secs(1);
        let results: Vec<_> = (0..1000)
            .map(|n| all.request(now, 1, request(Want::Join, n)))
            .collect();
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 10);
        assert_eq!(
            results
                .iter()
                .filter(|result| **result == Err(Refused::Rate))
                .count(),
            950
        );
        assert_eq!(requests(&mut all).len(), 10);
        // Without an answer the requests expire, and there is room again.
        let later = now + TIMEOUT;
        all.handle_timeout(later);
        assert!(all.request(later, 1, request(Want::Join, 1)).is_ok());
        assert_eq!((all.pending.len(), all.joining.len()), (1, 1));
    }

    #[test]
    fn an_end_is_told_to_all_and_forgets_them() {
        let mut all = clients(ClientLimits::default());
        let now = Instant::from_secs(1);
        for key in [1, 2] {
            all.request(now, key, request(Want::Join, 1)).unwrap();
        }
        for client in requests(&mut all) {
            all.answer(now, client, &translation(1));
        }
        assert_eq!(all.take_or_list(&translation(1)), [1, 2]);
        let end = AnswerRepr {
            answer: Answer::NoRoute(Reason::Unreachable),
            ..translation(1)
        };
        assert_eq!(all.take_or_list(&end), [1, 2]);
        assert!(all.take_or_list(&end).is_empty());
        assert_eq!(all.count, 0);
    }
}
