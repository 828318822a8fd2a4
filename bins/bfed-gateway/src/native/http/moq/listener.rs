//! Subscribers and publishers that connect here: WebTransport, and MoQ over QUIC.
//!
//! | bound | at the bound |
//! | --- | --- |
//! | an address proves itself by RETRY (RFC 9000 §8.1.2) | nothing is kept before it does |
//! | `moq-clients` connections, `moq-clients-per-address` of one address | refused and counted |
//! | handshakes of QUIC, HTTP/3 and MoQ: [`HANDSHAKE`] | the connection is closed |
//! | a silent client: [`super::IDLE`] | the connection is closed |
//! | [`super::MAX_STREAMS`] streams of requests of a client, and as many groups in transfer | further ones wait at the client |
//! | [`REQUESTS`] of a client for sessions, and [`super::MAX_STREAMS`] that wait for an answer | not found |
//! | [`super::WINDOW`] bytes that a client has not acknowledged | groups wait in the shared cache, and are lost when they are late |
//! | [`MAX_PUBLISHED`] sessions of a publisher | the connection is closed |

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bfed::authorise::Right;
use hyper::{Request, StatusCode};
use moq_net::{Error, origin};
use proto_core::{RateLimit, TokenBucket};
use tokio::task::JoinSet;
use web_transport_quinn as quic;
use web_transport_quinn::quinn;

use super::super::hub::Key;
use super::super::origins::Origins;
use super::super::presented::Presented;
use super::guard::Guarded;
use super::library::{Library, Watched, add, session_of};
use super::{ingest, versions};

/// Time for all handshakes of a client.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Most sessions of a publisher.
const MAX_PUBLISHED: usize = 16;
/// Requests for sessions that one client may make: each may ask the mediator, and keeps a session for some seconds.
const REQUESTS: RateLimit = RateLimit::new(16, 64);
/// Time between attempts to read a broadcast whose session has another source.
const AGAIN: Duration = Duration::from_secs(1);

/// How many clients there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) clients: usize,
    pub(super) per_address: usize,
}

/// The clients that are connected, by address; those of an IPv6 network of 64 bits count as one address.
#[derive(Default)]
struct Places(Mutex<BTreeMap<IpAddr, usize>>);

/// One client's place until it is dropped.
struct Place(Arc<Places>, IpAddr);

impl Places {
    fn take(places: &Arc<Places>, from: IpAddr, limits: Limits) -> Option<Place> {
        let mut taken = places.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = taken.values().sum();
        let of_address = taken.get(&from).copied().unwrap_or_default();
        if all >= limits.clients || of_address >= limits.per_address {
            return None;
        }
        *taken.entry(from).or_default() += 1;
        Some(Place(Arc::clone(places), from))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.1);
            }
        }
    }
}

/// Accepts clients until the endpoint is closed.
pub(super) async fn accept(endpoint: quinn::Endpoint, library: Arc<Library>, limits: Limits) {
    let places = Arc::new(Places::default());
    while let Some(incoming) = endpoint.accept().await {
        if !incoming.remote_address_validated() {
            // Where the token does not fit, the packet is dropped.
            let _ = incoming.retry();
            continue;
        }
        let from = incoming.remote_address().ip().to_canonical();
        let counted = crate::limiter::source(from);
        let Some(place) = Places::take(&places, counted, limits) else {
            add(&library.counts.refused);
            incoming.refuse();
            continue;
        };
        let library = Arc::clone(&library);
        tokio::spawn(async move {
            let (counts, _place) = (Arc::clone(&library.counts), place);
            add(&counts.clients);
            if let Err(why) = client(incoming, from, library).await {
                tracing::debug!(event = "moq_client_failed", %from, why, "MoQ client failed");
            }
            counts
                .clients
                .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        });
    }
}

/// Returns what a path with a query presents.
fn presented(path: &str) -> Presented {
    let request = Request::builder().uri(path).body(());
    request.map_or_else(|_| Presented::default(), |request| Presented::of(&request))
}

/// A client after the handshakes of QUIC and HTTP/3.
struct Connected {
    session: Guarded,
    /// The path that WebTransport names.
    path: Option<String>,
    /// Whether it is a program, or a page that may publish.
    may_publish: bool,
}

/// Completes the handshakes of QUIC and HTTP/3.
async fn connect(incoming: quinn::Incoming, origins: &Origins) -> Result<Connected, String> {
    let connection = incoming.await.map_err(|error| error.to_string())?;
    let data = connection.handshake_data();
    let data = data.and_then(|data| data.downcast::<quinn::crypto::rustls::HandshakeData>().ok());
    let protocol = data.and_then(|data| data.protocol);
    if protocol.as_deref() != Some(quic::ALPN.as_bytes()) {
        // Browsers speak WebTransport alone.
        return Ok(Connected {
            session: Guarded::new(quic::Session::raw(connection)),
            path: None,
            may_publish: true,
        });
    }
    let request = quic::Request::accept(connection).await;
    let request = request.map_err(|error| error.to_string())?;
    let known = versions().alpns();
    let chosen = known
        .iter()
        .find(|alpn| request.protocols.iter().any(|offered| offered == *alpn));
    let Some(chosen) = chosen else {
        let _ = request.reject(StatusCode::BAD_REQUEST).await;
        return Err("no version of moq-lite in common".to_owned());
    };
    let url = &request.url;
    let query = url.query().map(|query| format!("?{query}"));
    let path = format!("{}{}", url.path(), query.unwrap_or_default());
    let may_publish = origins.may_publish(&request.headers, url.host_str());
    let accepted = quic::proto::ConnectResponse::OK.with_protocol(*chosen);
    let session = request.respond(accepted).await;
    let session = session.map_err(|error| error.to_string())?;
    Ok(Connected {
        session: Guarded::new(session),
        path: Some(path),
        may_publish,
    })
}

/// Serves one client until it leaves.
async fn client(
    incoming: quinn::Incoming,
    from: IpAddr,
    library: Arc<Library>,
) -> Result<(), String> {
    let (publish, driver) = origin::Producer::new(super::origin(&library.pool));
    let (subscribe, other) = origin::Producer::new(super::origin(&library.pool));
    let handshakes = async {
        let connected = connect(incoming, &library.edge.origins).await?;
        let (session, path) = (connected.session, connected.path);
        let server = moq_net::Server::new()
            .with_versions(versions())
            .with_publisher(&publish)
            .with_subscriber(subscribe.clone());
        let now = std::time::Instant::now();
        let handshake = server.accept_request_lite(now, session).await;
        let handshake = handshake.map_err(|error| error.to_string())?;
        let path = path.unwrap_or_else(|| handshake.path().to_owned());
        let started = handshake.ok().await.map_err(|error| error.to_string())?;
        Ok::<_, String>((started, presented(&path), connected.may_publish))
    };
    let within = tokio::time::timeout(HANDSHAKE, handshakes).await;
    let ((session, protocol), presented, may_publish) =
        within.map_err(|_| "handshake timed out")??;
    add(&library.counts.accepted);
    let client = Client {
        library,
        from,
        presented,
        may_publish,
    };
    // Tasks of their own: a picture wakes the protocol alone, and not all that could be awaited here.
    let mut drivers = JoinSet::new();
    drivers.spawn(moq_net::time::run(protocol));
    drivers.spawn(moq_net::time::run(driver));
    drivers.spawn(moq_net::time::run(other));
    let ended = tokio::select! {
        Some(driver) = drivers.join_next() => match driver {
            Ok(error) => error.to_string(),
            Err(error) => error.to_string(),
        },
        error = client.subscribes(&publish) => error.to_string(),
        why = client.publishes(&subscribe) => {
            session.abort(Error::Unauthorized);
            why
        }
    };
    tracing::debug!(event = "moq_client_left", %from, ended, "MoQ client left");
    Ok(())
}

struct Client {
    library: Arc<Library>,
    from: IpAddr,
    presented: Presented,
    /// Whether it is a program, or a page that may publish.
    may_publish: bool,
}

impl Client {
    fn may(&self, right: Right, session: &bfed::SessionName) -> bool {
        let token = self.presented.as_str();
        self.library.check(right, session, self.from, token)
    }

    /// Answers requests for broadcasts.
    async fn subscribes(&self, publish: &origin::Producer) -> Error {
        let every_path = match publish.dynamic("", moq_net::origin::Route::default()) {
            Ok(every_path) => every_path,
            Err(error) => return error,
        };
        let (mut answers, watched) = (JoinSet::new(), Watched::default());
        let (began, mut bucket) = (std::time::Instant::now(), TokenBucket::FULL);
        loop {
            let request = match every_path.requested_broadcast().await {
                Ok(request) => request,
                Err(error) => return error,
            };
            while answers.try_join_next().is_some() {}
            let micros = i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX);
            let is_in_time = bucket.take(bfed::Instant::from_micros(micros), &REQUESTS);
            if !is_in_time || answers.len() >= super::MAX_STREAMS as usize {
                add(&self.library.counts.denied);
                request.reject(Error::NotFound);
                continue;
            }
            let session = session_of(request.path().as_str());
            let Some(session) = session.filter(|session| self.may(Right::Join, session)) else {
                request.reject(Error::NotFound);
                continue;
            };
            let (library, presented) = (Arc::clone(&self.library), self.presented.clone());
            let watched = watched.clone();
            answers.spawn(async move {
                match library.find(&session, &presented).await {
                    Ok(broadcast) => {
                        watched.add(&library.counts, &session);
                        request.accept(broadcast);
                    }
                    Err(error) => request.reject(error),
                }
            });
        }
    }

    /// Reads what the client publishes. Returns why it may not.
    async fn publishes(&self, subscribe: &origin::Producer) -> String {
        let consumer = subscribe.consume();
        let mut announced = consumer.announced();
        let mut published: BTreeMap<String, tokio::task::AbortHandle> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        while let Some(update) = announced.next().await {
            while tasks.try_join_next().is_some() {}
            let path = update.prefix.as_str().to_owned();
            if !update.kind.is_active() {
                if let Some(task) = published.remove(&path) {
                    task.abort();
                }
                continue;
            }
            let Some(session) = session_of(&path) else {
                return format!("{path:?} names no session");
            };
            let key: Key = (session.as_str().to_owned(), 0);
            let edge = &self.library.edge;
            let is_allowed = self.may_publish
                && edge.may_publish(self.from)
                && edge.takes_source(&key, &session);
            if !is_allowed {
                add(&self.library.counts.denied);
            }
            if !is_allowed || !self.may(Right::Publish, &session) {
                return format!("may not publish {session}");
            }
            published.retain(|_, task| !task.is_finished());
            if !published.contains_key(&path) && published.len() >= MAX_PUBLISHED {
                return "too many sessions".to_owned();
            }
            let (library, broadcasts) = (Arc::clone(&self.library), consumer.clone());
            let name = path.clone();
            let read = tasks.spawn(async move {
                loop {
                    let broadcast = broadcasts.routed_broadcast(name.as_str()).await;
                    let Ok(broadcast) = broadcast else { return };
                    let done =
                        ingest::session(Arc::clone(&library), session.clone(), broadcast).await;
                    tracing::debug!(event = "moq_source_ended", %session, ?done, "source ended");
                    tokio::time::sleep(AGAIN).await;
                }
            });
            if let Some(before) = published.insert(path, read) {
                before.abort();
            }
        }
        "closed".to_owned()
    }
}
