//! A data node's server: its readers and sources, and streams from other servers.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bfed::authorise::Right;
use bfed::name::Owner;
use bfed::native::ChannelId;
use bfed::wire::MAX_MESSAGE_LEN;
use bfed::wire::client::{Answer as Mediated, AnswerRepr, Request as MediatorRequest, Token, Want};
use bfed::wire::no_route::Reason;
use bfed::{BnNum, ChannelAddress, Content, Prefix, SessionName};
use bfed_client::http::{self, HttpError};
use bfed_client::{Url, parse_session_path};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::Notify;

use super::hub::{Key, NoSource, Shared, longest_frame};
use super::moq;
use super::origins::{Origins, host_of};
use super::presented::Presented;
use super::server::{Answer, Site, Stream, TIMEOUT, piece, redirect, text};
use super::tls::Tls;
use super::view::{self, View};
use crate::native::Access;

/// Time after which a silent source has ended.
pub(super) const SOURCE_SILENCE: Duration = Duration::from_secs(60);
/// Time after which a silent server has ended.
const SILENCE: Duration = Duration::from_secs(300);
/// Time between requests to the mediator for sessions that have readers.
const REFRESH: Duration = Duration::from_secs(30);
/// Time between checks for readers that take nothing.
const SWEEP: Duration = Duration::from_secs(5);

/// The server of a data node.
#[derive(Clone)]
pub(super) struct Edge {
    pub(super) shared: Arc<Shared>,
    pub(super) network: BnNum,
    /// URL of this server.
    pub(super) base: Url,
    /// The origin, unless this server is it.
    pub(super) origin: Option<Url>,
    /// Hosts that may be sources.
    pub(super) publish: Vec<Prefix>,
    /// Pages in browsers that may publish.
    pub(super) origins: Origins,
    /// Hosts that may list the sessions.
    pub(super) list: Vec<Prefix>,
    /// The certificate, which may change.
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) mediator: Url,
    /// Whether the mediator is in this process.
    pub(super) is_mediator_own: bool,
    /// What readers and sources must present.
    pub(super) access: Arc<Access>,
    /// The listener for MoQ.
    pub(super) moq: Option<Arc<moq::Handle>>,
    /// Identifies this edge to the mediator.
    pub(super) nonce: u32,
}

/// Returns the response for a session that is refused.
fn no_route(reason: Reason) -> Response<Answer> {
    let status = match reason {
        Reason::Unreachable | Reason::NoSession | Reason::UnknownOwner | Reason::Local => {
            StatusCode::NOT_FOUND
        }
        Reason::Policy => StatusCode::FORBIDDEN,
        Reason::Limit => StatusCode::SERVICE_UNAVAILABLE,
        Reason::Loop => StatusCode::BAD_GATEWAY,
        Reason::Timeout => StatusCode::GATEWAY_TIMEOUT,
    };
    text(status, format!("no route to the session: {reason}"))
}

/// Redirects to the same path at another server.
pub(super) fn redirect_to(server: &Url, path: &str) -> Response<Answer> {
    match server.with_path(path) {
        Ok(url) => redirect(&url.to_string()),
        Err(error) => text(StatusCode::BAD_GATEWAY, error.to_string()),
    }
}

/// Returns the response to a client's request for a flow, by the mediator's answer. Files beside the stream are where the
/// stream is.
pub(super) fn respond(answer: &Mediated, flow: usize, view: &View, path: &str) -> Response<Answer> {
    match answer {
        Mediated::Translation(addresses) => match addresses.get(flow) {
            Some(ChannelAddress::Native(url)) => {
                let url = String::from_utf8_lossy(url);
                match (view, url.parse::<Url>()) {
                    (View::Stream, _) => redirect(&url),
                    (_, Ok(server)) => redirect_to(&server, path),
                    (_, Err(error)) => text(StatusCode::BAD_GATEWAY, error.to_string()),
                }
            }
            _ => text(StatusCode::BAD_GATEWAY, "the gateway's answer is no URL"),
        },
        Mediated::Redirect { mediator, .. } => match mediator.parse::<Url>() {
            Ok(url) => redirect_to(&url, path),
            Err(error) => text(StatusCode::BAD_GATEWAY, error.to_string()),
        },
        Mediated::NoRoute(reason) => no_route(*reason),
        Mediated::Cost(_) => text(StatusCode::BAD_GATEWAY, "not an answer to a JOIN"),
    }
}

/// Returns the flow that a path names.
pub(super) fn flow(path: &str) -> Option<(Key, SessionName)> {
    let (name, at) = parse_session_path(path)?;
    let session = SessionName::parse(&name).ok()?;
    let key = (session.as_str().to_owned(), at);
    (at < session.flow_count()).then_some((key, session))
}

/// What a client asks for.
struct Asked<'a> {
    view: &'a View,
    /// The path with its query.
    path: &'a str,
    query: &'a str,
    presented: &'a Presented,
    /// The client's address.
    from: IpAddr,
    /// The host that the client asks, as it knows it.
    host: Option<&'a str>,
}

impl Edge {
    /// Serves what belongs to a flow, or leads the client to the edge that has it.
    async fn get(
        &self,
        asked: &Asked<'_>,
        key: &Key,
        session: &SessionName,
        cut: Arc<Notify>,
    ) -> Response<Answer> {
        if let Err(response) = self.locate(asked, key, session).await {
            return response;
        }
        match asked.view {
            View::Stream => self.stream(key, session, cut),
            View::Hls(file) => {
                let client = (asked.from, asked.presented);
                view::hls(&self.shared, key, *file, asked.query, client).await
            }
            View::Page => view::page(self.moq.as_deref(), asked.host),
            View::Info => view::info(&self.shared, key, &self.base, self.moq.as_deref()),
        }
    }

    /// Makes sure that a flow is served here, or returns where it is.
    async fn locate(
        &self,
        asked: &Asked<'_>,
        key: &Key,
        session: &SessionName,
    ) -> Result<(), Response<Answer>> {
        let own = match session.owner() {
            Owner::Number(network) => network == self.network,
            Owner::Name(_) => false,
        };
        let (here, may_be_refused) = {
            let hub = self.shared.hub();
            (hub.is_here(key), hub.may_be_refused(key))
        };
        if here && (own || !may_be_refused) {
            return Ok(());
        }
        match &self.origin {
            Some(origin) if own => return Err(redirect_to(origin, asked.path)),
            // The reader waits for the source, and so does the player.
            None if own => return Ok(()),
            _ => {}
        }
        match self.join(session).await {
            Ok(Mediated::Translation(_)) if self.shared.hub().has_down(key) => Ok(()),
            Ok(Mediated::NoRoute(Reason::Local)) => match &self.origin {
                Some(origin) => Err(redirect_to(origin, asked.path)),
                None => Ok(()),
            },
            Ok(answer) => Err(respond(&answer, key.1, asked.view, asked.path)),
            // Data nodes serve their sessions while the control node is unreachable.
            Err(_) if here => Ok(()),
            Err(why) => Err(text(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("the mediator does not answer: {why}"),
            )),
        }
    }

    fn stream(&self, key: &Key, session: &SessionName, cut: Arc<Notify>) -> Response<Answer> {
        let id = self.shared.hub().add_reader(key, session, cut);
        let container = self
            .shared
            .hub()
            .viewed(key)
            .and_then(|viewed| viewed.container);
        let kind = container.map_or("application/octet-stream", media::Container::content_type);
        let mut response = Response::new(Answer::Stream(Stream::new(Arc::clone(&self.shared), id)));
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CONTENT_TYPE, kind),
            (header::CACHE_CONTROL, "no-store"),
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    pub(super) fn may_publish(&self, host: IpAddr) -> bool {
        self.publish.iter().any(|prefix| prefix.contains(host))
    }

    /// Returns why a request may not be a source's.
    fn check_source(
        &self,
        from: IpAddr,
        request: &Request<Incoming>,
        host: Option<&str>,
    ) -> Result<(), &'static str> {
        if !self.may_publish(from) {
            return Err("this host may not be a source: network.publish does not list it");
        }
        match self.origins.may_publish(request.headers(), host) {
            true => Ok(()),
            false => {
                Err("pages of this origin may not be sources: network.origins does not list it")
            }
        }
    }

    fn is_foreign(&self, key: &Key, session: &SessionName) -> bool {
        match session.owner() {
            Owner::Number(network) => network != self.network,
            Owner::Name(_) => !self.shared.hub().is_here(key),
        }
    }

    /// Returns whether sources of a session send to this server.
    pub(super) fn takes_source(&self, key: &Key, session: &SessionName) -> bool {
        match self.is_foreign(key, session) {
            true => session.multi_source() && self.shared.hub().has_down(key),
            false => self.origin.is_none(),
        }
    }

    /// Returns whether a flow is served here; joins its session if it is of another network.
    pub(super) async fn is_available(
        &self,
        key: &Key,
        session: &SessionName,
        presented: &Presented,
    ) -> bool {
        let asked = Asked {
            view: &View::Stream,
            path: "/",
            query: "",
            presented,
            from: Ipv4Addr::UNSPECIFIED.into(),
            host: None,
        };
        self.locate(&asked, key, session).await.is_ok()
    }

    fn may_list(&self, host: IpAddr) -> bool {
        self.list.iter().any(|prefix| prefix.contains(host))
    }

    async fn put(
        &self,
        key: Key,
        session: SessionName,
        deadline: Option<bfed::Duration>,
        mut body: Incoming,
    ) -> Response<Answer> {
        let foreign = self.is_foreign(&key, &session);
        if foreign && !(session.multi_source() && self.shared.hub().has_down(&key)) {
            return text(
                StatusCode::FORBIDDEN,
                "the session belongs to another network",
            );
        }
        if let Some(origin) = self.origin.as_ref().filter(|_| !foreign) {
            return text(
                StatusCode::MISDIRECTED_REQUEST,
                format!("sources send to {origin}"),
            );
        }
        let Ok(_source) = Source::new(&self.shared, &key, &session, deadline) else {
            return text(StatusCode::CONFLICT, "the session has a source");
        };
        let mut count = 0;
        loop {
            match piece(&mut body, SOURCE_SILENCE).await {
                Ok(None) => return text(StatusCode::OK, format!("{count} bytes")),
                Err(status) => return text(status, format!("ended after {count} bytes")),
                Ok(Some(data)) => {
                    count += data.len();
                    publish(&self.shared, &key, session.content(), data).await;
                }
            }
        }
    }

    /// Returns what this edge presents to the mediator.
    fn own_token(&self) -> Option<Token> {
        let own = self.access.own_token();
        own.or_else(|| self.is_mediator_own.then(|| self.access.pass()))
    }

    /// Asks the mediator for a session on behalf of readers.
    async fn join(&self, session: &SessionName) -> Result<Mediated, String> {
        let ask = MediatorRequest {
            nonce: self.nonce.max(1),
            want: Want::Join,
            redirects: 0,
            session: session.clone(),
            token: self.own_token(),
        };
        let mut body = vec![0; ask.buffer_len()];
        ask.emit(&mut body);
        let mut timeouts = http::Timeouts::default();
        timeouts.answer = TIMEOUT * 2;
        let asked = http::post(&self.mediator, body, MAX_MESSAGE_LEN, &timeouts);
        let bytes = asked.await.map_err(|error| error.to_string())?;
        AnswerRepr::parse(&bytes)
            .map(|answer| answer.answer)
            .map_err(|error| error.to_string())
    }
}

/// A source of a flow until it is dropped.
pub(super) struct Source<'a>(&'a Shared, &'a Key);

impl<'a> Source<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        key: &'a Key,
        session: &SessionName,
        deadline: Option<bfed::Duration>,
    ) -> Result<Self, NoSource> {
        shared.hub().add_source(key, session, deadline)?;
        Ok(Source(shared, key))
    }
}

impl Drop for Source<'_> {
    fn drop(&mut self) {
        self.0.hub().forget_source(self.1);
    }
}

impl Site for Edge {
    async fn answer(
        self: Arc<Self>,
        from: SocketAddr,
        request: Request<Incoming>,
        cut: Arc<Notify>,
    ) -> Response<Answer> {
        let path = path_of(&request);
        if path == "/sessions" && request.method() == Method::GET {
            return match self.may_list(from.ip()) {
                true => {
                    let kind = if self.moq.is_some() { "moq" } else { "http" };
                    let network = (self.network, kind);
                    view::sessions(&self.shared, network, &self.base, &self.mediator)
                }
                false => text(
                    StatusCode::FORBIDDEN,
                    "this host may not list the sessions: network.list does not name it",
                ),
            };
        }
        let short = path
            .strip_prefix("/c/")
            .and_then(|number| number.parse().ok());
        let found = match short {
            Some(number) => {
                let key = self.shared.hub().key_of(ChannelId(number));
                key.and_then(|key| {
                    SessionName::parse(&key.0)
                        .ok()
                        .map(|name| (View::Stream, key, name))
                })
            }
            None => view::parse(&path),
        };
        let Some((view, key, session)) = found else {
            return text(StatusCode::NOT_FOUND, view::PATHS);
        };
        let presented = Presented::of(&request);
        let right = match *request.method() {
            Method::GET => Right::Join,
            _ => Right::Publish,
        };
        let checked = self
            .access
            .check_client(right, &session, from.ip(), presented.as_str());
        if let Err(why) = checked {
            return text(StatusCode::FORBIDDEN, why);
        }
        let query = request.uri().query().unwrap_or_default().to_owned();
        let host = host(&request);
        let asked = Asked {
            view: &view,
            path: &path_and_query(&request),
            query: &query,
            presented: &presented,
            from: from.ip(),
            host: host.as_deref(),
        };
        match (request.method(), &view) {
            (&Method::GET, _) => presented.keep(self.get(&asked, &key, &session, cut).await),
            (&Method::PUT | &Method::POST, View::Stream) => {
                if let Err(why) = self.check_source(from.ip(), &request, host.as_deref()) {
                    return text(StatusCode::FORBIDDEN, why);
                }
                match deadline(&request) {
                    Ok(deadline) => self.put(key, session, deadline, request.into_body()).await,
                    Err(why) => text(StatusCode::BAD_REQUEST, why),
                }
            }
            _ => text(
                StatusCode::METHOD_NOT_ALLOWED,
                "GET reads a session, PUT is its source",
            ),
        }
    }

    async fn beside(self: Arc<Self>) {
        let (mut refresh, mut sweep) =
            (tokio::time::interval(REFRESH), tokio::time::interval(SWEEP));
        loop {
            tokio::select! {
                _ = refresh.tick() => {
                    let names = self.shared.hub().read_sessions();
                    for session in names.iter().filter_map(|name| SessionName::parse(name).ok()) {
                        if let Err(error) = self.join(&session).await {
                            tracing::warn!(event = "mediator_unreachable", %session, error, "cannot refresh the session at the mediator");
                        }
                    }
                }
                _ = sweep.tick() => {
                    self.shared.hub().sweep();
                    if let Some(tls) = &self.tls {
                        tls.refresh();
                    }
                }
            }
        }
    }
}

/// Header of a source's request: how long its frames are worth sending, in milliseconds.
const DEADLINE: &str = "polycast-deadline";

/// Returns what the source's request says of the lifetime of its frames.
fn deadline<B>(request: &Request<B>) -> Result<Option<bfed::Duration>, &'static str> {
    let Some(value) = request.headers().get(DEADLINE) else {
        return Ok(None);
    };
    let millis = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse().ok());
    match millis.filter(|millis| (1..=60_000).contains(millis)) {
        Some(millis) => Ok(Some(bfed::Duration::from_millis(millis))),
        None => Err("polycast-deadline is a number of milliseconds from 1 to 60000"),
    }
}

/// Returns the host that a request is for, as the client knows it.
fn host(request: &Request<Incoming>) -> Option<String> {
    let field = request.headers().get(header::HOST);
    let field = field.and_then(|value| value.to_str().ok());
    let whole = request
        .uri()
        .authority()
        .map(|authority| authority.as_str());
    host_of(whole.or(field)?)
}

/// Returns the path of a request, also of the whole URL that a proxy sends.
pub(super) fn path_of(request: &Request<Incoming>) -> String {
    request.uri().path().to_owned()
}

/// Returns the path of a request with its query.
pub(super) fn path_and_query(request: &Request<Incoming>) -> String {
    let whole = request.uri().path_and_query();
    whole.map_or("/", |whole| whole.as_str()).to_owned()
}

/// Reads a stream piece by piece until `take` returns false.
async fn read<F: Future<Output = bool>>(
    from: &Url,
    token: Option<&Token>,
    mut take: impl FnMut(Bytes) -> F,
) -> Result<(), HttpError> {
    let mut answer = http::get(from, token, &http::Timeouts::default()).await?;
    if answer.status != 200 {
        return Err(answer.into_error().await);
    }
    while let Ok(data) = tokio::time::timeout(SILENCE, answer.next()).await {
        let Some(data) = data? else { return Ok(()) };
        if !take(data).await {
            return Ok(());
        }
    }
    Err(HttpError::TimedOut(SILENCE))
}

/// Reads a flow from another server while the data node is subscribed: from the origin, or from another gateway of
/// this network.
pub(super) async fn fetch(
    shared: Arc<Shared>,
    channel: ChannelId,
    from: Url,
    token: Option<Token>,
) {
    let Some(key) = shared.hub().key_of(channel) else {
        return;
    };
    let Ok(session) = SessionName::parse(&key.0) else {
        return;
    };
    while shared.hub().listens(channel) {
        if let Ok(_source) = Source::new(&shared, &key, &session, None) {
            let (shared, key) = (&*shared, &key);
            let read = read(&from, token.as_ref(), |data| async {
                publish(shared, key, session.content(), data).await;
                shared.hub().listens(channel)
            });
            tokio::select! {
                done = read => tracing::debug!(%from, ?done, "the session's server"),
                () = unwanted(shared, channel) => return,
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until the data node unsubscribes.
pub(super) async fn unwanted(shared: &Shared, channel: ChannelId) {
    while shared.hub().listens(channel) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Publishes a source's data in frames.
pub(super) async fn publish(shared: &Shared, key: &Key, content: Content, mut data: Bytes) {
    let longest = longest_frame(content);
    while !data.is_empty() {
        let frame = data.split_to(data.len().min(longest));
        shared.publish(key, frame).await;
    }
}
