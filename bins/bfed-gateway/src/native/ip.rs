//! IP multicast of any source (§5.4): the pool of groups is in `groups`, here is the
//! mediator: a well-known group that clients and gateways belong to (§5.2.1).
//!
//! Clients send REQUESTs to the group, each in a datagram of its own. All of the network's gateways hear
//! them; the nearest answers, to the group: nothing is ever sent to an address that a request bears.
//! Clients hear each other, and hold their own JOIN back when another asks for the same session
//! (damping): the answer serves all. So all who want a session are one client here. Who hears the LEAVE of
//! another for a session that it has itself says JOIN again; the session ends when nobody did within
//! [`GRACE`].
//!
//! | answer | nonce |
//! | --- | --- |
//! | TRANSLATION, NO_ROUTE | 0: to all who want the session |
//! | COST | the request's |
//!
//! Whoever can send to the group can ask and answer: the network's administrator decides who that is.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use bfed::native::Upcall;
use bfed::wire::client::{AnswerRepr, Request};
use bfed::{ClientId, Duration, GatewayId, Instant, Scope, SessionName};
use linux_net::inet::{Membership, Transmit, UdpSocket};
use linux_net::udp::Batch;

use super::clients::{ClientLimits, Clients, Refused};
use super::groups::{GroupNet, GroupsConfig, own_group};
use super::mediator::{Front, Mediator};
use super::{Network, Role};

/// How long a session stays after a LEAVE, in case another client objects.
pub const GRACE: Duration = Duration::from_secs(3);

/// IP multicast of any source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IpConfig {
    /// The data side.
    pub data: GroupsConfig,
    /// The mediator's group.
    pub mediator: SocketAddr,
    /// Bounds of the mediator.
    pub limits: ClientLimits,
    /// What this gateway costs for sessions of this network, from their root on; `None` tells nothing.
    pub cost: Option<u32>,
}

/// Opens it.
pub(super) fn open(
    config: &IpConfig,
    role: Role,
    gateway: GatewayId,
) -> Result<Box<dyn Network>, String> {
    Ok(match role {
        Role::Mediator => {
            let front = GroupMediator::open(config)?;
            Box::new(Mediator::new(front, gateway, config.cost))
        }
        Role::Channels { .. } => {
            let mediator = Some(config.mediator);
            Box::new(GroupNet::open(&config.data, role, false, mediator)?)
        }
    })
}

/// The mediator on its group.
#[derive(Debug)]
struct GroupMediator {
    config: IpConfig,
    socket: UdpSocket,
    batch: Batch,
    clients: Clients<()>,
    counts: Counts,
}

/// What a mediator counts.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) answers: u64,
    pub(super) malformed: u64,
    pub(super) damped: u64,
    pub(super) rate_limited: u64,
    pub(super) full: u64,
    pub(super) unanswered: u64,
}

impl Counts {
    /// What became of a request.
    pub(super) fn request<T>(&mut self, outcome: &Result<T, Refused>) {
        self.requests += 1;
        match outcome {
            Ok(_) => {}
            Err(Refused::Pending(_)) => self.damped += 1,
            Err(Refused::Rate) => self.rate_limited += 1,
            Err(Refused::Full) => self.full += 1,
        }
    }

    pub(super) fn list(&self, sessions: usize) -> Vec<(&'static str, u64)> {
        vec![
            ("requests", self.requests),
            ("answers", self.answers),
            ("requests_malformed", self.malformed),
            ("requests_damped", self.damped),
            ("requests_rate_limited", self.rate_limited),
            ("requests_no_room", self.full),
            ("answers_unsent", self.unanswered),
            ("client_sessions", sessions as u64),
        ]
    }
}

impl GroupMediator {
    fn open(config: &IpConfig) -> Result<Self, String> {
        let (link, group) = (&config.data.link, config.mediator);
        let local = link.local(group.ip())?;
        let failed = |error: String| format!("mediator's group {group}: {error}");
        let socket = link.open(local, group, true).map_err(failed)?;
        let (group, source, interface) = (group.ip(), None, local.index);
        let joined = socket.join(&Membership {
            group,
            source,
            interface,
        });
        joined.map_err(|error| failed(error.to_string()))?;
        Ok(GroupMediator {
            config: config.clone(),
            socket,
            batch: Batch::new(2),
            clients: Clients::new(config.limits, Scope::Heard, GRACE),
            counts: Counts::default(),
        })
    }

    fn send(&mut self, answer: &AnswerRepr) {
        let mut bytes = vec![0; answer.buffer_len()];
        answer.emit(&mut bytes);
        let sent = self.socket.send(&Transmit {
            source: None,
            destination: self.config.mediator,
            bytes: &bytes,
            segment_len: None,
        });
        match sent {
            Ok(_) => self.counts.answers += 1,
            // Clients ask again.
            Err(_) => self.counts.unanswered += 1,
        }
    }
}

impl AsFd for GroupMediator {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Front for GroupMediator {
    fn answer(&mut self, now: Instant, client: Option<ClientId>, answer: &AnswerRepr) {
        let nonce = match client {
            Some(client) => match self.clients.answer(now, client, answer) {
                Some(asked) if asked.cost_only => asked.nonce,
                Some(_) => 0,
                None => return,
            },
            None if self.clients.everybody(answer).is_empty() => return,
            None => 0,
        };
        self.send(&AnswerRepr {
            nonce,
            ..answer.clone()
        });
    }

    fn poll_upcall(&mut self, now: Instant) -> Option<Upcall> {
        loop {
            if let Some(upcall) = self.clients.poll_upcall() {
                return Some(upcall);
            }
            // What cannot be read now is still there later.
            if self.socket.receive(&mut self.batch).unwrap_or(0) == 0 {
                return None;
            }
            for datagram in self.batch.received() {
                match Request::parse(datagram.payload) {
                    Ok(request) => {
                        let outcome = self.clients.request(now, (), request);
                        self.counts.request(&outcome);
                    }
                    // Answers come back from the group too, other gateways' and this one's.
                    Err(_) if AnswerRepr::parse(datagram.payload).is_ok() => {}
                    Err(_) => self.counts.malformed += 1,
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.clients.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.clients.poll_timeout()
    }

    fn knows(&self, session: &SessionName) -> bool {
        let (groups, mediator) = (&self.config.data, Some(self.config.mediator));
        let mut flows = session.flows();
        flows.all(|flow| own_group(session, flow, false, groups, mediator).is_some())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counts.list(self.clients.session_count())
    }
}
