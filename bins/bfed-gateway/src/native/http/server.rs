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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use super::hub::Shared;
use super::tls::Tls;

/// Time for the head of a request, and for an idle connection.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
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
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, location);
    // As the answer at the other server: the player of a status page follows.
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        HeaderValue::from_static("*"),
    );
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
    /// Opens the listeners: `tls` beside the plain one.
    pub(super) fn open<S: Site>(
        address: SocketAddr,
        tls: Option<(SocketAddr, Arc<Tls>)>,
        bounds: Bounds,
        site: S,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("HTTP server at {address}: {error}");
        let secure = match tls {
            Some((at, tls)) => {
                let listener = std::net::TcpListener::bind(at);
                let listener = listener.map_err(|e| format!("HTTPS server at {at}: {e}"))?;
                listener.set_nonblocking(true).map_err(failed)?;
                Some((listener, tls))
            }
            None => None,
        };
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
                let places = Arc::new(Semaphore::new(bounds.max_connections));
                let plain = Listener {
                    site: Arc::new(site),
                    places,
                    take: bounds.take,
                    tls: None,
                };
                let site = Arc::clone(&plain.site);
                let secure = async {
                    match secure.map(|(at, tls)| (TcpListener::from_std(at), tls)) {
                        Some((Ok(at), tls)) => plain.clone().with(tls).accept(at).await,
                        _ => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = plain.clone().accept(listener) => {}
                    () = secure => {}
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

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Connections, plain and with TLS.
    pub(super) max_connections: usize,
    /// Time within which a client takes an answer of a known length: a segment's memory waits for it.
    pub(super) take: Duration,
}

/// What the connections of a listener share.
struct Listener<S> {
    site: Arc<S>,
    places: Arc<Semaphore>,
    take: Duration,
    tls: Option<Arc<Tls>>,
}

impl<S> Clone for Listener<S> {
    fn clone(&self) -> Self {
        Listener {
            site: Arc::clone(&self.site),
            places: Arc::clone(&self.places),
            take: self.take,
            tls: self.tls.clone(),
        }
    }
}

impl<S: Site> Listener<S> {
    fn with(self, tls: Arc<Tls>) -> Self {
        Listener {
            tls: Some(tls),
            ..self
        }
    }

    async fn accept(self, listener: TcpListener) {
        loop {
            // The semaphore is never closed.
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, from)) => {
                    let listener = self.clone();
                    tokio::spawn(async move {
                        listener.connected(stream, from).await;
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

    async fn connected(self, stream: TcpStream, from: SocketAddr) {
        let _ = stream.set_nodelay(true);
        let Some(tls) = self.tls.clone() else {
            return self.serve(stream, from).await;
        };
        let handshake = tls.acceptor().accept(stream);
        match tokio::time::timeout(TIMEOUT, handshake).await {
            Ok(Ok(stream)) => self.serve(stream, from).await,
            Ok(Err(error)) => tracing::debug!(%from, %error, "TLS handshake"),
            Err(_) => tracing::debug!(%from, "TLS handshake timed out"),
        }
    }

    async fn serve<T>(self, stream: T, from: SocketAddr)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let cut = Arc::new(Notify::new());
        let of_requests = Arc::clone(&cut);
        let (due, dues) = watch::channel(None);
        let due = Arc::new(due);
        let service = service_fn(move |request| {
            let (listener, cut) = (self.clone(), Arc::clone(&of_requests));
            let due = Arc::clone(&due);
            async move {
                due.send_replace(None);
                let mut response = listener.site.answer(from, request, cut).await;
                if !matches!(response.body(), Answer::Stream(_)) {
                    due.send_replace(Some(Instant::now() + listener.take));
                }
                if let Some(tls) = &listener.tls {
                    stay_with_tls(&mut response, tls);
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
}

/// Changes a redirection to a plain server of this network to the one with TLS beside it.
fn stay_with_tls(response: &mut Response<Answer>, tls: &Tls) {
    let location = response.headers().get(header::LOCATION);
    let secure = location.and_then(|location| tls.secure(location.to_str().ok()?));
    if let Some(Ok(secure)) = secure.map(|to| HeaderValue::from_str(&to)) {
        response.headers_mut().insert(header::LOCATION, secure);
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

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// Answers with much more than sockets hold.
    struct Large;

    impl Site for Large {
        async fn answer(
            self: Arc<Self>,
            _: SocketAddr,
            _: Request<Incoming>,
            _: Arc<Notify>,
        ) -> Response<Answer> {
            let piece = Bytes::from(vec![0; 1 << 20]);
            pieces(vec![piece; 256], "video/mp2t")
        }
    }

    #[test]
    fn a_client_that_does_not_take_its_answer_is_cut_off() {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = {
            let at = address.local_addr().unwrap();
            drop(address);
            at
        };
        let bounds = Bounds {
            max_connections: 1,
            take: Duration::from_millis(300),
        };
        let mut server = Server::open(address, None, bounds, Large).unwrap();
        server.start();
        let ask = || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            stream
        };
        let mut silent = ask();
        // The only place becomes free.
        let mut next = ask();
        assert_eq!(next.read(&mut [0; 12]).unwrap(), 12);
        let mut rest = vec![];
        let _ = silent.read_to_end(&mut rest);
        assert!(rest.len() < 256 << 20, "it was cut off");
    }
}
