//! An HTTP server on a thread of its own, with bounds.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use super::hub::Shared;

/// Time for the head of a request, and for an idle connection.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// Time within which a client takes an answer of a known length: a segment's memory waits for it.
const TAKE: Duration = Duration::from_secs(60);
/// Time without data after which a reader's response ends.
const SILENCE: Duration = Duration::from_secs(120);

/// The body of a response.
pub(super) enum Answer {
    /// A whole text.
    Text(Option<Bytes>),
    /// Pieces of a stream, of a known length.
    Pieces(VecDeque<Bytes>),
    /// A stream.
    Stream(Stream),
}

/// A reader's stream.
pub(super) struct Stream {
    shared: Arc<Shared>,
    id: u64,
    silence: Pin<Box<tokio::time::Sleep>>,
}

impl Stream {
    pub(super) fn new(shared: Arc<Shared>, id: u64) -> Self {
        let silence = Box::pin(tokio::time::sleep(SILENCE));
        Stream {
            shared,
            id,
            silence,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.forget_reader(self.id);
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Answer::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Answer::Pieces(pieces) => {
                Poll::Ready(pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
            }
            Answer::Stream(stream) => match stream.shared.poll_reader(stream.id, context) {
                Poll::Ready(data) => {
                    let next = Instant::now() + SILENCE;
                    stream.silence.as_mut().reset(next);
                    Poll::Ready(data.map(|data| Ok(Frame::data(data))))
                }
                Poll::Pending => match stream.silence.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                },
            },
        }
    }
}

/// Returns a response with a line of text.
pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Response<Answer> {
    let mut text = text.into();
    text.push('\n');
    bytes(status, text.into_bytes(), "text/plain; charset=utf-8")
}

/// Returns a response with a body of that content type.
pub(super) fn bytes(status: StatusCode, bytes: Vec<u8>, kind: &'static str) -> Response<Answer> {
    let length = HeaderValue::from(bytes.len());
    let mut response = Response::new(Answer::Text(Some(bytes.into())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_LENGTH, length);
    response
}

/// Returns a response with these pieces of a stream, which other sites' pages may read.
pub(super) fn pieces(pieces: Vec<Bytes>, kind: &'static str) -> Response<Answer> {
    let length: usize = pieces.iter().map(Bytes::len).sum();
    let mut response = Response::new(Answer::Pieces(pieces.into()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns a redirection to another server.
pub(super) fn redirect(to: &str) -> Response<Answer> {
    let Ok(location) = HeaderValue::from_str(to) else {
        return text(
            StatusCode::BAD_GATEWAY,
            "the address of the session is no URL",
        );
    };
    let mut response = text(StatusCode::TEMPORARY_REDIRECT, to);
    response.headers_mut().insert(header::LOCATION, location);
    response
}

/// Returns the next piece of a request's body within the time; `Ok(None)` at the end.
pub(super) async fn piece(
    body: &mut Incoming,
    within: Duration,
) -> Result<Option<Bytes>, StatusCode> {
    loop {
        let next = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
        match tokio::time::timeout(within, next).await {
            Err(_) => return Err(StatusCode::REQUEST_TIMEOUT),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => return Err(StatusCode::BAD_REQUEST),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Answers the requests of a server.
pub(super) trait Site: Send + Sync + 'static {
    /// Answers a request. `cut` ends its connection at once.
    fn answer(
        self: Arc<Self>,
        from: SocketAddr,
        request: Request<Incoming>,
        cut: Arc<Notify>,
    ) -> impl Future<Output = Response<Answer>> + Send;

    /// Runs beside the server until it ends.
    fn beside(self: Arc<Self>) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// A server, which ends when dropped. It listens at once and serves once it is started: in between, while it has one
/// thread, the process drops its privileges.
pub(super) struct Server {
    handle: Handle,
    stop: Arc<Notify>,
    serve: Option<Box<dyn FnOnce() + Send>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Opens the listener.
    pub(super) fn open<S: Site>(
        address: SocketAddr,
        max_connections: usize,
        site: S,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("HTTP server at {address}: {error}");
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let (handle, stop) = (runtime.handle().clone(), Arc::new(Notify::new()));
        let stopped = Arc::clone(&stop);
        let serve = move || {
            runtime.block_on(async {
                let Ok(listener) = TcpListener::from_std(listener) else {
                    return;
                };
                let site = Arc::new(site);
                tokio::select! {
                    () = accept(listener, max_connections, Arc::clone(&site)) => {}
                    () = site.beside() => {}
                    () = stopped.notified() => {}
                }
            });
            runtime.shutdown_background();
        };
        Ok(Server {
            handle,
            stop,
            serve: Some(Box::new(serve)),
            thread: None,
        })
    }

    /// Starts to serve at the first call.
    pub(super) fn start(&mut self) {
        if let Some(serve) = self.serve.take() {
            let named = std::thread::Builder::new().name("http".into());
            match named.spawn(serve) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => {
                    tracing::error!(event = "http_server_failed", %error, "cannot spawn the HTTP server's thread");
                }
            }
        }
    }

    /// Runs a task on the server's thread.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the thread.
            let _ = thread.join();
        }
    }
}

async fn accept<S: Site>(listener: TcpListener, most: usize, site: Arc<S>) {
    let places = Arc::new(Semaphore::new(most));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, from)) => {
                let site = Arc::clone(&site);
                tokio::spawn(async move {
                    serve(stream, from, site).await;
                    drop(place);
                });
            }
            Err(error) => {
                // Out of file descriptors, most likely.
                tracing::warn!(event = "http_accept_failed", %error, "the HTTP server cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve<S: Site>(stream: TcpStream, from: SocketAddr, site: Arc<S>) {
    let _ = stream.set_nodelay(true);
    let cut = Arc::new(Notify::new());
    let of_requests = Arc::clone(&cut);
    let (due, dues) = watch::channel(None);
    let due = Arc::new(due);
    let service = service_fn(move |request| {
        let (site, cut) = (Arc::clone(&site), Arc::clone(&of_requests));
        let due = Arc::clone(&due);
        async move {
            due.send_replace(None);
            let response = site.answer(from, request, cut).await;
            if !matches!(response.body(), Answer::Stream(_)) {
                due.send_replace(Some(Instant::now() + TAKE));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIMEOUT)
        .max_headers(64)
        .max_buf_size(64 << 10)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%from, %error, "HTTP connection");
            }
        }
        () = cut.notified() => tracing::debug!(%from, "cut off a reader that takes nothing"),
        () = overdue(dues) => tracing::debug!(%from, "cut off a client that does not take its answer"),
    }
}

/// Waits until an answer is due and was followed by no further request.
async fn overdue(mut dues: watch::Receiver<Option<Instant>>) {
    loop {
        let due = *dues.borrow_and_update();
        let changed = match due {
            None => dues.changed().await,
            Some(at) => match tokio::time::timeout_at(at, dues.changed()).await {
                Ok(changed) => changed,
                Err(_) => return,
            },
        };
        // The connection has ended, and the other branch with it.
        if changed.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
