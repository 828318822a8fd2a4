//! Source-specific multicast (RFC 4607, §5.3.1): the mediator; channels are pairs of source and group, and
//! `groups` has the data side. Only its source can send to a group, so the mediator has a unicast UDP address, which
//! clients have from their administrator.
//!
//! A request is a datagram, padded with zeros: the answer goes to its source address and is never longer, so
//! that a forged address receives no more than was sent. A client is identified by its address and the nonce of its
//! first JOIN, which it keeps while it has the session: no other host can leave on its behalf.

use std::cmp::Ordering;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use bfed::wire::Header;
use bfed::wire::client::{AnswerRepr, Request};
use bfed::{ClientId, Duration, Scope, SessionName};
use linux_net::inet::{self, Transmit, UdpSocket};
use linux_net::udp::Batch;

use super::clients::{ClientKey, PendingRequest, Refused};
use super::groups::{GroupNet, MulticastConfig, own_group};
use super::mediator::{self, Answered, Front, TakeRequest, Unread};
use super::{Counter, Network, Owner, Role};

/// Opens the network.
pub(super) fn open(
    config: &MulticastConfig,
    role: Role,
    owner: Owner,
) -> Result<Box<dyn Network>, String> {
    Ok(match role {
        Role::Mediator => {
            let front = UnicastMediator::open(config)?;
            mediator::open(front, config, true, owner, (Scope::Chosen, Duration::ZERO))?
        }
        Role::Channels { .. } => Box::new(GroupNet::open(config, role, true, &owner)?),
    })
}

/// A client: its address and its nonce.
#[derive(Clone, Copy, Debug)]
struct Asker {
    address: SocketAddr,
    nonce: u32,
    /// Length of the request's datagram, the bound on the answer. Not part of the client's identity.
    room: u16,
}

impl Asker {
    fn identity(&self) -> (SocketAddr, u32) {
        (self.address, self.nonce)
    }
}

impl PartialEq for Asker {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Asker {}

impl ClientKey for Asker {
    fn address(&self) -> Option<IpAddr> {
        Some(self.address.ip())
    }
}

impl PartialOrd for Asker {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Asker {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

#[derive(Debug)]
struct UnicastMediator {
    config: MulticastConfig,
    socket: UdpSocket,
    batch: Batch,
    unread: Unread,
    unpadded: u64,
}

/// Parses a request with its padding.
fn parse(datagram: &[u8]) -> Option<Request> {
    let len = Header::new_checked(datagram).ok()?.message_len();
    let (message, padding) = datagram.split_at_checked(len)?;
    let zeros = padding.iter().all(|&byte| byte == 0);
    Request::parse(message).ok().filter(|_| zeros)
}

impl UnicastMediator {
    fn open(config: &MulticastConfig) -> Result<Self, String> {
        let socket = UdpSocket::open(&inet::Config {
            exclusive: true,
            receive_buffer_bytes: config.data.link.receive_buffer,
            send_buffer_bytes: 1 << 20,
            ..inet::Config::new(config.mediator)
        })
        .map_err(|error| format!("mediator at {}: {error}", config.mediator))?;
        Ok(UnicastMediator {
            config: config.clone(),
            socket,
            batch: Batch::new(2),
            unread: Unread::new(),
            unpadded: 0,
        })
    }

    fn send(&mut self, to: Asker, answer: &AnswerRepr) -> Answered {
        let len = answer.buffer_len();
        if len > to.room.into() {
            self.unpadded += 1;
            return Answered::default();
        }
        let mut bytes = vec![0; len];
        AnswerRepr {
            nonce: to.nonce,
            ..answer.clone()
        }
        .emit(&mut bytes);
        Answered::once(&self.socket.send(&Transmit {
            source: None,
            destination: to.address,
            bytes: &bytes,
            segment_len: None,
        }))
    }
}

impl AsFd for UnicastMediator {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Front for UnicastMediator {
    type Client = Asker;

    fn receive(&mut self, take: &mut TakeRequest<'_, Asker>) -> bool {
        // A failed read is repeated later.
        if self.socket.receive(&mut self.batch).unwrap_or(0) == 0 {
            return false;
        }
        let mut refused = Vec::new();
        for datagram in self.batch.received() {
            let Some(request) = parse(datagram.payload) else {
                let why = self.unread.refuse(datagram.payload);
                // No longer than the request, as any answer.
                if let Some(why) = why.filter(|why| why.len() <= datagram.payload.len()) {
                    let _ = self.socket.send(&Transmit {
                        source: None,
                        destination: datagram.source,
                        bytes: &why,
                        segment_len: None,
                    });
                }
                continue;
            };
            let asker = Asker {
                address: datagram.source,
                nonce: request.nonce,
                room: u16::try_from(datagram.payload.len()).unwrap_or(u16::MAX),
            };
            let session = request.session.clone();
            if take(asker, request) == Err(Refused::NotAdmitted) {
                let answer = self.unread.not_admitted(session, asker.nonce);
                refused.extend(answer.map(|answer| (asker, answer)));
            }
        }
        for (asker, answer) in refused {
            self.send(asker, &answer);
        }
        true
    }

    fn answer(
        &mut self,
        _: ClientId,
        pending: &PendingRequest<Asker>,
        answer: &AnswerRepr,
    ) -> Answered {
        self.send(pending.key, answer)
    }

    fn announce(&mut self, clients: &[Asker], answer: &AnswerRepr) -> Answered {
        let mut answered = Answered::default();
        for &client in clients {
            answered.add(self.send(client, answer));
        }
        answered
    }

    fn knows(&self, session: &SessionName) -> bool {
        let groups = &self.config.data;
        let mut flows = session.flows();
        flows.all(|flow| own_group(session, flow, true, groups, None).is_some())
    }

    fn counters(&self) -> Vec<Counter> {
        let [malformed, other_version] = self.unread.counters();
        let unpadded = ("answers_longer_than_request", self.unpadded);
        vec![malformed, other_version, unpadded]
    }
}
