//! IP multicast of any source (§5.4): the mediator on its well-known group, which clients and
//! gateways have joined (§5.2.1). `groups` has the data side.
//!
//! Clients send REQUESTs to the group, each in a datagram of its own. All of the network's gateways receive
//! them. The nearest answers to the group: nothing is sent to an address from a request. A client that receives
//! another client's JOIN for the same session suppresses its own (damping), because the answer serves both. So all
//! clients of a session count as one here. A client that receives the LEAVE of another for its own session sends JOIN
//! again; the session ends when no client did within [`GRACE`].
//!
//! | answer | nonce |
//! | --- | --- |
//! | TRANSLATION, NO_ROUTE | 0: for all clients of the session |
//! | COST, and NO_ROUTE for the lack of a token | the request's |
//!
//! Every host that can send to the group can ask and answer; the network's administrator limits these hosts.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use bfed::wire::client::{AnswerRepr, Request};
use bfed::wire::notification::Repr as Notification;
use bfed::{ClientId, Duration, Scope, SessionName};
use linux_net::inet::{Membership, Transmit, UdpSocket};
use linux_net::udp::Batch;

use super::clients::{PendingRequest, Refused};
use super::groups::{GroupNet, MulticastConfig, own_group};
use super::ltp::names_source;
use super::mediator::{self, Answered, Front, TakeRequest, Unread};
use super::{Counter, Network, Owner, Role};

/// Time that a session stays after a LEAVE, in case another client objects.
pub const GRACE: Duration = Duration::from_secs(3);

/// Opens the network.
pub(super) fn open(
    config: &MulticastConfig,
    role: Role,
    owner: Owner,
) -> Result<Box<dyn Network>, String> {
    Ok(match role {
        Role::Mediator => mediator(config, false, owner)?,
        Role::Channels { .. } => Box::new(GroupNet::open(config, role, false, &owner)?),
    })
}

/// Opens the mediator. Sessions of the network may name their source where `names_sources`.
pub(super) fn mediator(
    config: &MulticastConfig,
    names_sources: bool,
    owner: Owner,
) -> Result<Box<dyn Network>, String> {
    let front = GroupMediator::open(config, names_sources)?;
    mediator::open(front, config, false, owner, (Scope::Heard, GRACE))
}

/// The mediator on its group.
struct GroupMediator {
    config: MulticastConfig,
    names_sources: bool,
    socket: UdpSocket,
    batch: Batch,
    unread: Unread,
}

impl GroupMediator {
    fn open(config: &MulticastConfig, names_sources: bool) -> Result<Self, String> {
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
            names_sources,
            socket,
            batch: Batch::new(2),
            unread: Unread::new(),
        })
    }

    fn send(&self, nonce: u32, answer: &AnswerRepr) -> Answered {
        let answer = AnswerRepr {
            nonce,
            ..answer.clone()
        };
        let mut bytes = vec![0; answer.buffer_len()];
        answer.emit(&mut bytes);
        multicast(&self.socket, self.config.mediator, &bytes)
    }
}

fn multicast(socket: &UdpSocket, group: SocketAddr, bytes: &[u8]) -> Answered {
    Answered::once(&socket.send(&Transmit {
        source: None,
        destination: group,
        bytes,
        segment_len: None,
    }))
}

impl AsFd for GroupMediator {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Front for GroupMediator {
    /// All clients receive the group, so they are one.
    type Client = ();

    fn receive(&mut self, take: &mut TakeRequest<'_, ()>) -> bool {
        // A failed read is repeated later.
        if self.socket.receive(&mut self.batch).unwrap_or(0) == 0 {
            return false;
        }
        for datagram in self.batch.received() {
            match Request::parse(datagram.payload) {
                Ok(request) => {
                    let (session, nonce) = (request.session.clone(), request.nonce);
                    if take((), request) == Err(Refused::NotAdmitted)
                        && let Some(answer) = self.unread.not_admitted(session, nonce)
                    {
                        let mut bytes = vec![0; answer.buffer_len()];
                        answer.emit(&mut bytes);
                        multicast(&self.socket, self.config.mediator, &bytes);
                    }
                }
                // The group returns answers too, those of other gateways and of this one.
                Err(_) if AnswerRepr::parse(datagram.payload).is_ok() => {}
                // And what they and this one refuse.
                Err(_) if Notification::parse(datagram.payload).is_ok() => {}
                Err(_) => {
                    if let Some(why) = self.unread.refuse(datagram.payload) {
                        multicast(&self.socket, self.config.mediator, &why);
                    }
                }
            }
        }
        true
    }

    fn answer(
        &mut self,
        _: ClientId,
        pending: &PendingRequest<()>,
        answer: &AnswerRepr,
    ) -> Answered {
        self.send(if pending.cost_only { pending.nonce } else { 0 }, answer)
    }

    fn announce(&mut self, _: &[()], answer: &AnswerRepr) -> Answered {
        self.send(0, answer)
    }

    fn knows(&self, session: &SessionName) -> bool {
        let (groups, mediator) = (&self.config.data, Some(self.config.mediator));
        let names_source = self.names_sources && names_source(session);
        let mut flows = session.flows();
        flows.all(|flow| own_group(session, flow, names_source, groups, mediator).is_some())
    }

    fn counters(&self) -> Vec<Counter> {
        self.unread.counters().into()
    }
}
