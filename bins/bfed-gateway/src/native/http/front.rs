//! The mediator's server.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bfed::name::Owner as Whose;
use bfed::wire::client::{Answer as Mediated, AnswerRepr, Request as MediatorRequest, Want};
use bfed::wire::no_route::Reason;
use bfed::{BnNum, ClientId, Duration, Scope, SessionName};
use bfed_client::Url;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use linux_net::wake::Waker;
use tokio::sync::{Notify, oneshot};

use super::edge::{path_and_query, path_of, redirect_to, respond};
use super::presented::Presented;
use super::server::{Answer, Server, Site, TIMEOUT, bytes, piece, text};
use super::view;
use super::{HttpConfig, Network, Owner};
use crate::native::Counter;
use crate::native::clients::{ClientKey, PendingRequest, Refused};
use crate::native::mediator::{Answered, Front, Mediator, TakeRequest, version_mismatch};

/// Longest REQUEST.
const MAX_REQUEST: usize = 4096;

/// The address and the nonce of a request.
type Asker = (IpAddr, u32);

impl ClientKey for Asker {
    fn address(&self) -> Option<IpAddr> {
        Some(self.0)
    }
}

struct Waiting {
    from: Asker,
    ask: MediatorRequest,
    answer: oneshot::Sender<AnswerRepr>,
}

/// State shared by the server's thread and the control node's.
struct Shared {
    inbox: Mutex<Inbox>,
    waker: Waker,
}

#[derive(Default)]
struct Inbox {
    waiting: VecDeque<Waiting>,
    malformed: u64,
    other_version: u64,
    nonce: u32,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server.
struct MediatorSite {
    shared: Arc<Shared>,
    origin: Url,
}

impl MediatorSite {
    async fn ask(
        &self,
        from: IpAddr,
        ask: MediatorRequest,
    ) -> Result<AnswerRepr, Response<Answer>> {
        let (answer, answered) = oneshot::channel();
        let nonce = ask.nonce;
        self.shared.inbox().waiting.push_back(Waiting {
            from: (from, nonce),
            ask,
            answer,
        });
        self.shared.waker.wake();
        match tokio::time::timeout(TIMEOUT + TIMEOUT / 2, answered).await {
            Ok(Ok(answer)) => Ok(AnswerRepr { nonce, ..answer }),
            Ok(Err(_)) => Err(text(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many requests; try again later",
            )),
            Err(_) => Err(text(
                StatusCode::GATEWAY_TIMEOUT,
                "the gateway does not answer",
            )),
        }
    }

    async fn post(&self, from: SocketAddr, mut body: Incoming) -> Response<Answer> {
        let mut message = Vec::new();
        loop {
            match piece(&mut body, TIMEOUT).await {
                Ok(None) => break,
                Ok(Some(data)) => message.extend_from_slice(&data),
                Err(status) => return text(status, "no request came"),
            }
            if message.len() > MAX_REQUEST {
                return text(StatusCode::PAYLOAD_TOO_LARGE, "a REQUEST has 4 KiB at most");
            }
        }
        let Ok(ask) = MediatorRequest::parse(&message) else {
            return match version_mismatch(&message) {
                Some(why) => {
                    self.shared.inbox().other_version += 1;
                    text(StatusCode::BAD_REQUEST, &why)
                }
                None => {
                    self.shared.inbox().malformed += 1;
                    text(StatusCode::BAD_REQUEST, "the body is not a REQUEST")
                }
            };
        };
        match self.ask(from.ip(), ask).await {
            Ok(answer) => {
                let mut message = vec![0; answer.buffer_len()];
                answer.emit(&mut message);
                bytes(StatusCode::OK, message, "application/octet-stream")
            }
            Err(response) => response,
        }
    }

    /// Redirects a reader that knows only the mediator to an edge.
    async fn get(
        &self,
        from: SocketAddr,
        path: &str,
        whole: &str,
        token: Presented,
    ) -> Response<Answer> {
        let Some((view, key, session)) = view::parse(path) else {
            return text(StatusCode::NOT_FOUND, view::PATHS);
        };
        let nonce = {
            let mut inbox = self.shared.inbox();
            inbox.nonce = inbox.nonce.wrapping_add(1).max(1);
            inbox.nonce
        };
        let ask = MediatorRequest {
            nonce,
            want: Want::Join,
            redirects: 0,
            session,
            token: token.token(),
        };
        let response = match self.ask(from.ip(), ask).await.map(|answer| answer.answer) {
            Ok(Mediated::NoRoute(Reason::Local)) => redirect_to(&self.origin, whole),
            Ok(answer) => respond(&answer, key.1, &view, whole),
            Err(response) => response,
        };
        token.keep(response)
    }
}

impl Site for MediatorSite {
    async fn answer(
        self: Arc<Self>,
        from: SocketAddr,
        request: Request<Incoming>,
        _: Arc<Notify>,
    ) -> Response<Answer> {
        let path = path_of(&request);
        match (request.method(), path.as_str()) {
            (&Method::POST, "/mediator") => self.post(from, request.into_body()).await,
            (&Method::GET, path) => {
                let whole = path_and_query(&request);
                self.get(from, path, &whole, Presented::of(&request)).await
            }
            _ => text(
                StatusCode::METHOD_NOT_ALLOWED,
                "POST /mediator, or GET /s/NAME",
            ),
        }
    }
}

/// The side of the control node.
struct HttpMediator {
    shared: Arc<Shared>,
    server: Server,
    network: BnNum,
    /// The requests that one answer serves: those of one client for one session.
    waiting: BTreeMap<ClientId, Vec<oneshot::Sender<AnswerRepr>>>,
}

pub(super) fn open(config: &HttpConfig, owner: Owner) -> Result<Box<dyn Network>, String> {
    let waker = Waker::new().map_err(|error| error.to_string())?;
    let inbox = Inbox {
        nonce: u32::from_le_bytes([owner.seed[4], owner.seed[5], owner.seed[6], owner.seed[7]]),
        ..Inbox::default()
    };
    // The driver polls, and that starts the server.
    waker.wake();
    let shared = Arc::new(Shared {
        inbox: Mutex::new(inbox),
        waker,
    });
    let origin = match &config.origin {
        Some(origin) => origin.clone(),
        None => super::server(&config.authority(0)?)?,
    };
    let site = MediatorSite {
        shared: Arc::clone(&shared),
        origin,
    };
    let server = Server::open(config.mediator, None, config.server_bounds(), site)?;
    let front = HttpMediator {
        shared,
        server,
        network: owner.gateway.network,
        waiting: BTreeMap::new(),
    };
    let requests = (Scope::Chosen, Duration::ZERO);
    let (cost, limits) = (config.cost, config.limits);
    let mediator = Mediator::new(front, owner, cost, limits, requests);
    Ok(Box::new(mediator))
}

impl AsFd for HttpMediator {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.waker.as_fd()
    }
}

impl Front for HttpMediator {
    type Client = Asker;

    fn receive(&mut self, take: &mut TakeRequest<'_, Asker>) -> bool {
        self.server.start();
        let mut inbox = self.shared.inbox();
        let Some(Waiting { from, ask, answer }) = inbox.waiting.pop_front() else {
            self.shared.waker.reset();
            return false;
        };
        drop(inbox);
        let (want, session) = (ask.want, ask.session.clone());
        match take(from, ask) {
            Ok(Some(client)) | Err(Refused::Pending(client)) => {
                self.waiting.entry(client).or_default().push(answer);
            }
            Err(Refused::NotAdmitted) => {
                let no = Mediated::NoRoute(Reason::Policy);
                let _ = answer.send(AnswerRepr {
                    nonce: 0,
                    lifetime_s: 0,
                    answer: no,
                    session,
                });
            }
            // HTTP answers a LEAVE, too.
            Ok(None) if want == Want::Leave => {
                let gone = Mediated::NoRoute(Reason::NoSession);
                let _ = answer.send(AnswerRepr {
                    nonce: 0,
                    lifetime_s: 0,
                    answer: gone,
                    session,
                });
            }
            // Dropping `answer` makes the server answer 503.
            Ok(None) | Err(_) => {}
        }
        true
    }

    fn answer(
        &mut self,
        client: ClientId,
        _: &PendingRequest<Asker>,
        answer: &AnswerRepr,
    ) -> Answered {
        let mut answered = Answered::default();
        for waiting in self.waiting.remove(&client).unwrap_or_default() {
            answered.add(Answered::once(&waiting.send(answer.clone())));
        }
        answered
    }

    /// Readers notice the end of their stream and ask again.
    fn announce(&mut self, _: &[Asker], _: &AnswerRepr) -> Answered {
        Answered::default()
    }

    fn knows(&self, session: &SessionName) -> bool {
        match session.owner() {
            Whose::Number(network) => network == self.network,
            // The control node knows the network of the name.
            Whose::Name(_) => true,
        }
    }

    fn expire(&mut self) {
        self.waiting.retain(|_, answers| {
            answers.retain(|answer| !answer.is_closed());
            !answers.is_empty()
        });
    }

    fn counters(&self) -> Vec<Counter> {
        let inbox = self.shared.inbox();
        vec![
            ("requests_malformed", inbox.malformed),
            ("requests_other_version", inbox.other_version),
        ]
    }
}
