//! The socket of the control node. The client speaks for all members of its network, so they count as one.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};

use bfed::name::Owner as SessionOwner;
use bfed::wire::client::{Answer, AnswerRepr, Request, Token, Want};
use bfed::{BnNum, ClientId, Duration, Instant, Scope, SessionName};
use bfed_external::frame::Type;
use bfed_external::message::{Answered as AnswerBody, ClientMessage, Wanted};
use bfed_external::{Greeting, Link};

use super::ExternalConfig;
use super::port::{Ended, Port};
use crate::native::clients::{PendingRequest, Refused};
use crate::native::mediator::{Answered, Front, Mediator, TakeRequest};
use crate::native::{Counter, Owner};

/// Time that a session stays after a LEAVE, and after its client has disconnected: a client that starts again joins again.
const GRACE: Duration = Duration::from_secs(5);

pub(super) fn open(
    config: &ExternalConfig,
    greeting: Greeting,
    owner: Owner,
) -> Result<Mediator<ControlPort>, String> {
    let front = ControlPort {
        port: Port::open(config, "control")?,
        link: None,
        greeting,
        greeted: false,
        network: owner.gateway.network,
        now: owner.now,
        joined: BTreeSet::new(),
        most: config.limits.clients,
        leaving: VecDeque::new(),
        malformed: 0,
    };
    let requests = (Scope::Chosen, GRACE);
    Ok(Mediator::new(
        front,
        owner,
        config.cost,
        config.limits,
        requests,
    ))
}

/// The control socket.
pub(super) struct ControlPort {
    port: Port,
    link: Option<Link>,
    greeting: Greeting,
    greeted: bool,
    network: BnNum,
    now: Instant,
    /// Sessions that the client has asked for, [`ClientLimits::clients`](crate::native::ClientLimits) at most.
    joined: BTreeSet<SessionName>,
    most: usize,
    /// Sessions of a client that is gone.
    leaving: VecDeque<SessionName>,
    /// Names that are none.
    malformed: u64,
}

impl ControlPort {
    fn lose(&mut self, why: &Ended) {
        self.port.close(self.link.as_mut(), why);
        self.link = None;
        self.greeted = false;
        self.leaving.extend(std::mem::take(&mut self.joined));
        // They leave with the next poll.
        self.port.wake();
    }

    fn write(&mut self) {
        if let Some(link) = &mut self.link
            && let Err(error) = self.port.write(link)
        {
            self.lose(&error.into());
        }
    }

    /// Handles the messages that have come; returns whether there was anything.
    fn read(&mut self, take: &mut TakeRequest<'_, ()>) -> Result<bool, Ended> {
        let Some(link) = &mut self.link else {
            return Ok(false);
        };
        let any = self.port.read(self.now, link)?;
        loop {
            let Some(link) = &mut self.link else {
                return Ok(any);
            };
            let (want, wanted) = match link.next_message()? {
                Some(ClientMessage::Join(wanted)) => (Want::Join, wanted),
                Some(ClientMessage::Leave(wanted)) => (Want::Leave, wanted),
                Some(_) => continue,
                None => break,
            };
            self.request(want, &wanted, take);
        }
        if let Some(client) = self.link.as_ref().and_then(Link::client)
            && !std::mem::replace(&mut self.greeted, true)
        {
            self.port.log_greeted(client);
        }
        Ok(any)
    }

    fn request(&mut self, want: Want, wanted: &Wanted, take: &mut TakeRequest<'_, ()>) {
        let session = match SessionName::parse(&wanted.session) {
            Ok(session) => session,
            Err(error) => {
                self.malformed += 1;
                return self.refuse(&wanted.session, &error.to_string());
            }
        };
        if want == Want::Leave {
            self.joined.remove(&session);
        }
        let token = wanted.token.as_deref().and_then(Token::new);
        let request = Request {
            nonce: 1,
            want,
            redirects: 0,
            session: session.clone(),
            token,
        };
        let error = match take((), request) {
            Ok(_) | Err(Refused::Pending(_)) => {
                if want == Want::Join && self.joined.len() < self.most {
                    self.joined.insert(session);
                }
                return;
            }
            Err(Refused::NotAdmitted) => "a token is needed that permits the session",
            Err(Refused::Rate) => "too many requests in a second; ask again later",
            Err(Refused::Full) => "the gateway has no room for more sessions of clients",
        };
        self.refuse(session.as_str(), error);
    }

    fn refuse(&mut self, session: &str, error: &str) {
        // A name that is none may be as long as a frame.
        let session = session.chars().take(bfed::name::MAX_NAME_LEN).collect();
        let error = error.to_owned();
        self.send(&AnswerBody::Refused { session, error });
    }

    fn send(&mut self, body: &AnswerBody) -> Answered {
        let Some(link) = &mut self.link else {
            return Answered { sent: 0, unsent: 1 };
        };
        link.send(Type::Answer, 0, body);
        self.write();
        Answered { sent: 1, unsent: 0 }
    }

    fn tell(&mut self, answer: &AnswerRepr) -> Answered {
        let session = answer.session.as_str();
        let error = match &answer.answer {
            Answer::Translation(addresses) => {
                let lifetime_s = answer.lifetime_s;
                return self.send(&AnswerBody::addresses(session, addresses, lifetime_s));
            }
            Answer::NoRoute(reason) => reason.to_string(),
            Answer::Redirect { gateway, .. } => {
                format!("gateway {gateway} of this network is nearer; ask its client")
            }
            Answer::Cost(cost) => format!("the cost is {cost:?}, and was not asked for"),
        };
        self.joined.remove(&answer.session);
        let session = session.to_owned();
        self.send(&AnswerBody::Refused { session, error })
    }
}

impl AsFd for ControlPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

impl Front for ControlPort {
    type Client = ();

    fn receive(&mut self, take: &mut TakeRequest<'_, ()>) -> bool {
        while let Some(session) = self.leaving.pop_front() {
            // One that is refused expires with its lifetime.
            let _ = take(
                (),
                Request {
                    nonce: 1,
                    want: Want::Leave,
                    redirects: 0,
                    session,
                    token: None,
                },
            );
        }
        if self.port.accept(self.now) {
            self.link = Some(Link::new(self.now, &self.greeting));
        }
        let any = match self.read(take) {
            Ok(any) => any,
            Err(why) => {
                self.lose(&why);
                false
            }
        };
        self.write();
        any
    }

    fn answer(&mut self, _: ClientId, _: &PendingRequest<()>, answer: &AnswerRepr) -> Answered {
        self.tell(answer)
    }

    fn announce(&mut self, _: &[()], answer: &AnswerRepr) -> Answered {
        self.tell(answer)
    }

    /// Sessions of this network have any name.
    fn knows(&self, session: &SessionName) -> bool {
        match session.owner() {
            SessionOwner::Number(network) => network == self.network,
            // The control node knows the network of the name.
            SessionOwner::Name(_) => true,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.port.handle_timeout(now);
        let link = self.link.as_mut();
        if let Some(Err(closed)) = link.map(|link| link.handle_timeout(now)) {
            self.lose(&closed.into());
        }
        self.write();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let link = self.link.as_ref().and_then(Link::poll_timeout);
        link.into_iter().chain(self.port.poll_timeout()).min()
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.port.counters().to_vec();
        counters.push(("requests_malformed", self.malformed));
        counters
    }
}
