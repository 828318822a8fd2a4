//! The mediator's server.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bfed::name::Owner as Whose;
use bfed::native::Upcall;
use bfed::wire::client::{Answer as Mediated, AnswerRepr, Request as Ask, Want};
use bfed::wire::no_route::Reason;
use bfed::{BnNum, ChannelAddress, ClientId, Duration, Instant, Scope, SessionName};
use bfed_client::Url;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use linux_net::wake::Waker;
use tokio::sync::{Notify, oneshot};

use super::edge::{flow, no_route, path_of, redirect_to};
use super::server::{Answer, PATIENCE, Server, Site, bytes, piece, redirect, text};
use super::{HttpConfig, Network, Owner};
use crate::native::clients::{Clients, Refused};
use crate::native::ip::Counts;
use crate::native::mediator::{Front, Mediator};

/// Longest REQUEST.
const MAX_REQUEST: usize = 2048;

/// Where a request came from, and its nonce.
type Asker = (IpAddr, u32);

struct Waiting {
    from: Asker,
    ask: Ask,
    answer: oneshot::Sender<AnswerRepr>,
}

/// What the server's thread and the control node's share.
struct Shared {
    inbox: Mutex<Inbox>,
    waker: Waker,
}

#[derive(Default)]
struct Inbox {
    waiting: VecDeque<Waiting>,
    malformed: u64,
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
    async fn ask(&self, from: IpAddr, ask: Ask) -> Result<AnswerRepr, Response<Answer>> {
        let (answer, answered) = oneshot::channel();
        let nonce = ask.nonce;
        self.shared.inbox().waiting.push_back(Waiting {
            from: (from, nonce),
            ask,
            answer,
        });
        self.shared.waker.wake();
        match tokio::time::timeout(PATIENCE + PATIENCE / 2, answered).await {
            Ok(Ok(answer)) => Ok(AnswerRepr { nonce, ..answer }),
            Ok(Err(_)) => Err(text(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many requests; again later",
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
            match piece(&mut body, PATIENCE).await {
                Ok(None) => break,
                Ok(Some(data)) => message.extend_from_slice(&data),
                Err(status) => return text(status, "no request came"),
            }
            if message.len() > MAX_REQUEST {
                return text(StatusCode::PAYLOAD_TOO_LARGE, "a REQUEST has 2 KiB at most");
            }
        }
        let Ok(ask) = Ask::parse(&message) else {
            self.shared.inbox().malformed += 1;
            return text(StatusCode::BAD_REQUEST, "the body is not a REQUEST");
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

    /// A reader that knows the mediator alone.
    async fn get(&self, from: SocketAddr, path: &str) -> Response<Answer> {
        let Some((key, session)) = flow(path) else {
            return text(
                StatusCode::NOT_FOUND,
                "sessions are at /s/NAME, the name percent-encoded",
            );
        };
        let nonce = {
            let mut inbox = self.shared.inbox();
            inbox.nonce = inbox.nonce.wrapping_add(1).max(1);
            inbox.nonce
        };
        let ask = Ask {
            nonce,
            want: Want::Join,
            redirects: 0,
            session,
        };
        match self.ask(from.ip(), ask).await.map(|answer| answer.answer) {
            Ok(Mediated::Translation(addresses)) => match addresses.get(key.1) {
                Some(ChannelAddress::Native(url)) => redirect(&String::from_utf8_lossy(url)),
                _ => text(StatusCode::BAD_GATEWAY, "the gateway's answer is no URL"),
            },
            Ok(Mediated::NoRoute(Reason::Local)) => redirect_to(&self.origin, path),
            Ok(Mediated::NoRoute(reason)) => no_route(reason),
            Ok(Mediated::Redirect { mediator, .. }) => match mediator.parse::<Url>() {
                Ok(url) => redirect_to(&url, path),
                Err(error) => text(StatusCode::BAD_GATEWAY, error.to_string()),
            },
            Ok(Mediated::Cost(_)) => text(StatusCode::BAD_GATEWAY, "not an answer to a JOIN"),
            Err(response) => response,
        }
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
            (&Method::GET, path) => self.get(from, path).await,
            _ => text(
                StatusCode::METHOD_NOT_ALLOWED,
                "POST /mediator, or GET /s/NAME",
            ),
        }
    }
}

/// The mediator, for the control node.
struct HttpMediator {
    shared: Arc<Shared>,
    server: Server,
    network: BnNum,
    clients: Clients<Asker>,
    /// The requests that one answer serves: those of one client for one session.
    waiting: BTreeMap<ClientId, Vec<oneshot::Sender<AnswerRepr>>>,
    counts: Counts,
}

pub(super) fn open(config: &HttpConfig, owner: Owner) -> Result<Box<dyn Network>, String> {
    let waker = Waker::new().map_err(|error| error.to_string())?;
    let inbox = Inbox {
        nonce: u32::from_le_bytes([owner.seed[4], owner.seed[5], owner.seed[6], owner.seed[7]]),
        ..Inbox::default()
    };
    // The driver has a look, and that starts the server.
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
    let server = Server::open(config.mediator, config.max_connections, site)?;
    let front = HttpMediator {
        shared,
        server,
        network: owner.gateway.network,
        clients: Clients::new(config.limits, Scope::Chosen, Duration::ZERO),
        waiting: BTreeMap::new(),
        counts: Counts::default(),
    };
    Ok(Box::new(Mediator::new(front, owner.gateway, config.cost)))
}

impl AsFd for HttpMediator {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.waker.as_fd()
    }
}

impl Front for HttpMediator {
    fn answer(&mut self, now: Instant, client: Option<ClientId>, answer: &AnswerRepr) {
        let Some(client) = client else {
            // Readers notice that their stream ends, and ask again.
            self.clients.everybody(answer);
            return;
        };
        self.clients.answer(now, client, answer);
        for waiting in self.waiting.remove(&client).unwrap_or_default() {
            match waiting.send(answer.clone()) {
                Ok(()) => self.counts.answers += 1,
                Err(_) => self.counts.unanswered += 1,
            }
        }
    }

    fn poll_upcall(&mut self, now: Instant) -> Option<Upcall> {
        self.server.start();
        loop {
            if let Some(upcall) = self.clients.poll_upcall() {
                return Some(upcall);
            }
            let mut inbox = self.shared.inbox();
            let Some(Waiting { from, ask, answer }) = inbox.waiting.pop_front() else {
                self.shared.waker.reset();
                return None;
            };
            drop(inbox);
            let (want, session) = (ask.want, ask.session.clone());
            let outcome = self.clients.request(now, from, ask);
            self.counts.request(&outcome);
            match outcome {
                Ok(Some(client)) | Err(Refused::Pending(client)) => {
                    self.waiting.entry(client).or_default().push(answer);
                }
                // A LEAVE is answered too: HTTP knows no question without an answer.
                Ok(None) if want == Want::Leave => {
                    let gone = Mediated::NoRoute(Reason::NoSession);
                    let _ = answer.send(AnswerRepr {
                        nonce: 0,
                        lifetime_s: 0,
                        answer: gone,
                        session,
                    });
                }
                // What is dropped is answered by 503.
                Ok(None) | Err(_) => {}
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.clients.handle_timeout(now);
        self.waiting.retain(|_, answers| {
            answers.retain(|answer| !answer.is_closed());
            !answers.is_empty()
        });
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.clients.poll_timeout()
    }

    fn knows(&self, session: &SessionName) -> bool {
        match session.owner() {
            Whose::Number(network) => network == self.network,
            // The control node knows what the name stands for.
            Whose::Name(_) => true,
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let malformed = self.shared.inbox().malformed;
        let counts = Counts {
            malformed,
            ..self.counts
        };
        counts.list(self.clients.session_count())
    }
}
