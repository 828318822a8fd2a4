//! A bounded HTTP/1.1 client (RFC 9112) over hyper: one connection for each request.
//!
//! The functions are asynchronous and run on any tokio runtime with I/O and time enabled.
//! [`Session`](crate::Session) and [`Publisher`](crate::Publisher) run them on threads of their own.
//!
//! | bound | value |
//! | --- | --- |
//! | head of an answer; trailers; extensions of chunks | [`MAX_HEAD`] bytes each |
//! | header fields | 100 |
//! | time | [`Timeouts`] |

use std::error::Error as _;
use std::io;
use std::time::Duration;

use bfed::wire::client::Token;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Url;

/// Longest head of an answer in bytes.
pub const MAX_HEAD: usize = 16 << 10;
/// Time allowed for the text of an error.
const ERROR_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest text of an error that is quoted, in bytes.
const MAX_QUOTED: usize = 200;

/// Time limits of HTTP connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Timeouts {
    /// To resolve a server's name and to connect to it; 5 s by default.
    pub connect: Duration,
    /// To the head of the answer that a stream begins with; 30 s by default. A gateway asks its mediator
    /// meanwhile.
    pub head: Duration,
    /// For a request to a mediator and its whole answer once the connection is open; 10 s by default. A server may
    /// take twice as long to answer a published stream after its end.
    pub answer: Duration,
    /// For a server to read more of a published stream while data is queued; 10 s by default. The stream is given up
    /// one to two times this long after the server stopped reading.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(5),
            head: Duration::from_secs(30),
            answer: Duration::from_secs(10),
            stall: Duration::from_secs(10),
        }
    }
}

/// A request that was not answered as it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The answer is not valid HTTP/1, or has a transfer coding other than chunked.
    #[error("not an answer in HTTP/1")]
    Malformed,
    /// The head of the answer is longer than [`MAX_HEAD`], or has too many fields.
    #[error("the head of the answer is too long")]
    TooLong,
    /// The connection ended before the answer did.
    #[error("the connection ended in the middle of the answer")]
    Truncated,
    /// The body is longer than the caller permits.
    #[error("the answer is too long")]
    BodyTooLong,
    /// The server took too long.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The server answered with an error.
    #[error("{status} {text}")]
    Status {
        /// The status, such as 404.
        status: u16,
        /// The beginning of the answer's body.
        text: String,
    },
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<hyper::Error> for HttpError {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse_too_large() {
            return HttpError::TooLong;
        }
        if error.is_parse() {
            return HttpError::Malformed;
        }
        if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
            return HttpError::Truncated;
        }
        let io = error
            .source()
            .and_then(|source| source.downcast_ref::<io::Error>());
        match io.map(|io| (io.kind(), io.raw_os_error())) {
            Some((_, Some(code))) => HttpError::Io(io::Error::from_raw_os_error(code)),
            Some((io::ErrorKind::UnexpectedEof, _)) => HttpError::Truncated,
            Some((io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput, _)) => {
                HttpError::Malformed
            }
            _ => HttpError::Io(io::Error::other(error)),
        }
    }
}

/// The answer to a request: its head, and its body as it arrives. Dropping it closes the connection.
#[derive(Debug)]
pub struct Answer {
    /// The status, such as 200.
    pub status: u16,
    /// Target of a redirection.
    pub location: Option<String>,
    body: Incoming,
    /// Drives the connection; aborts it when dropped.
    connection: JoinSet<()>,
}

impl Answer {
    /// Returns the next piece of the body, `None` at its end.
    ///
    /// # Errors
    /// The body is malformed, or the connection ended before it did.
    pub async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        while let Some(frame) = self.body.frame().await {
            // Trailers are ignored.
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Returns the whole body.
    ///
    /// # Errors
    /// As [`next`](Self::next); or the body is longer than `max_len` bytes.
    pub async fn whole(self, max_len: usize) -> Result<Bytes, HttpError> {
        let Answer {
            body, connection, ..
        } = self;
        let read = Limited::new(body, max_len).collect().await;
        drop(connection);
        match read {
            Ok(whole) => Ok(whole.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(HttpError::BodyTooLong),
            Err(error) => Err(match error.downcast::<hyper::Error>() {
                Ok(error) => (*error).into(),
                Err(error) => HttpError::Io(io::Error::other(error)),
            }),
        }
    }

    /// Returns the error that an answer other than 2xx is, with the beginning of its text.
    pub async fn into_error(self) -> HttpError {
        let status = self.status;
        let body = timeout(ERROR_TIMEOUT, self.whole(MAX_HEAD)).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        let text = String::from_utf8_lossy(&body[..body.len().min(MAX_QUOTED)]);
        let text = text.trim().to_owned();
        HttpError::Status { status, text }
    }
}

/// Connects to the server of a URL within [`Timeouts::connect`].
///
/// # Errors
/// The name cannot be resolved, or no connection comes about.
pub async fn connect(url: &Url, timeouts: &Timeouts) -> Result<TcpStream, HttpError> {
    let connected = timeout(timeouts.connect, TcpStream::connect(url.server())).await;
    let stream = match connected {
        Ok(connected) => connected?,
        Err(_) => {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "connection timed out").into());
        }
    };
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Sends a request over a connection and returns its answer once the head is there. A body of unknown length
/// is sent in chunks. A token goes in the header `Authorization`. No time limit: use [`tokio::time::timeout`].
///
/// # Errors
/// The answer is not valid HTTP/1 or exceeds a bound, or the connection ended.
pub async fn send<I, B>(
    io: I,
    method: Method,
    url: &Url,
    token: Option<&Token>,
    body: B,
) -> Result<Answer, HttpError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = url.path().parse().map_err(|_| HttpError::Malformed)?;
    let headers: [(HeaderName, &str); 4] = [
        (header::HOST, url.authority()),
        (header::USER_AGENT, "bfed-client"),
        (header::ACCEPT, "*/*"),
        (header::CONNECTION, "close"),
    ];
    for (name, value) in headers {
        let value = HeaderValue::from_str(value).map_err(|_| HttpError::Malformed)?;
        request.headers_mut().insert(name, value);
    }
    if let Some(token) = token {
        let bearer = format!("Bearer {}", token.as_str());
        let mut value = HeaderValue::from_str(&bearer).map_err(|_| HttpError::Malformed)?;
        value.set_sensitive(true);
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true).max_buf_size(MAX_HEAD);
    let (mut sender, connection) = builder.handshake(TokioIo::new(io)).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        // The request or the body reports the error.
        let _ = connection.await;
    });
    let (head, body) = sender.send_request(request).await?.into_parts();
    let mut codings = head.headers.get_all(header::TRANSFER_ENCODING).iter();
    if !codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        return Err(HttpError::Malformed);
    }
    let location = head.headers.get(header::LOCATION);
    Ok(Answer {
        status: head.status.as_u16(),
        location: location.and_then(|to| to.to_str().ok()).map(str::to_owned),
        body,
        connection: tasks,
    })
}

/// Requests a URL; the head of the answer arrives within [`Timeouts::head`].
///
/// # Errors
/// As [`connect`] and [`send`], or the head takes too long.
pub async fn get(
    url: &Url,
    token: Option<&Token>,
    timeouts: &Timeouts,
) -> Result<Answer, HttpError> {
    let stream = connect(url, timeouts).await?;
    let asked = send(stream, Method::GET, url, token, Full::<Bytes>::default());
    let answered = timeout(timeouts.head, asked).await;
    answered.map_err(|_| HttpError::TimedOut(timeouts.head))?
}

/// Posts a body and returns that of the answer, at most `max_len` bytes, within [`Timeouts::answer`] after
/// the connection is open.
///
/// # Errors
/// As [`connect`], [`send`] and [`Answer::whole`]; a status other than 200; no answer in time.
pub async fn post(
    url: &Url,
    body: Vec<u8>,
    max_len: usize,
    timeouts: &Timeouts,
) -> Result<Bytes, HttpError> {
    let stream = connect(url, timeouts).await?;
    let asked = async {
        let answer = send(
            stream,
            Method::POST,
            url,
            None,
            Full::new(Bytes::from(body)),
        )
        .await?;
        match answer.status {
            200 => answer.whole(max_len).await,
            _ => Err(answer.into_error().await),
        }
    };
    let answered = timeout(timeouts.answer, asked).await;
    answered.map_err(|_| HttpError::TimedOut(timeouts.answer))?
}
