//! Streams over HTTP, each on a thread of its own, for callers that block.

use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Poll};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::time::Duration;

use bfed::wire::client::Token;
use hyper::Method;
use hyper::body::{Body, Bytes, Frame};
use linux_net::wake::Waker;
use tokio::sync::mpsc::{self, Receiver, Sender, WeakSender};

use crate::Url;
use crate::credential::Credential;
use crate::http::{self, HttpError, Timeouts};

/// Most redirections from server to server.
const MAX_REDIRECTS: usize = 5;
/// Pieces of a stream that wait between its thread and the caller.
const QUEUE: usize = 16;

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(future);
    // A name that is still being resolved is not waited for.
    runtime.shutdown_background();
    Ok(done)
}

/// Runs a future on a thread of its own.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("http".into());
    thread.spawn(move || drop(block_on(future))).map(drop)
}

/// A piece of a download.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Bytes),
    /// The stream has come to its end.
    End,
    /// The stream broke.
    Broken(String),
}

/// A stream that is read; the descriptor is readable while pieces wait. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Download {
    pieces: Receiver<Piece>,
    waker: Waker,
}

impl Download {
    pub(crate) fn open(url: Url, credential: Credential, timeouts: Timeouts) -> io::Result<Self> {
        let (sender, pieces) = mpsc::channel(QUEUE);
        let waker = Waker::new()?;
        let wake = waker.clone();
        spawn(async move {
            tokio::select! {
                () = sender.closed() => {}
                () = download(url, credential, &timeouts, &sender, &wake) => {}
            }
        })?;
        Ok(Download { pieces, waker })
    }

    /// Clears the wake-up; then [`next`](Self::next) until `None`.
    pub(crate) fn clear_wakeup(&self) {
        self.waker.reset();
    }

    /// Makes the descriptor readable: pieces may be left.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    pub(crate) fn next(&mut self) -> Option<Piece> {
        self.pieces.try_recv().ok()
    }
}

impl AsFd for Download {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

/// Reads a stream, following redirections, until it ends or the caller has dropped it.
async fn download(
    mut url: Url,
    credential: Credential,
    timeouts: &Timeouts,
    pieces: &Sender<Piece>,
    waker: &Waker,
) {
    for redirects in 0.. {
        // Each server of a redirection is judged anew.
        let token = credential.for_server(&url);
        let asked = (&url, token.as_ref());
        let last = match read(asked, timeouts, pieces, waker, redirects).await {
            Ok(Some(to)) => {
                url = to;
                continue;
            }
            Ok(None) => Piece::End,
            Err(why) => Piece::Broken(format!("{url}: {why}")),
        };
        let _ = pieces.send(last).await;
        waker.wake();
        return;
    }
}

/// Reads one answer; the target if it is a redirection.
async fn read(
    (url, token): (&Url, Option<&Token>),
    timeouts: &Timeouts,
    pieces: &Sender<Piece>,
    waker: &Waker,
    redirects: usize,
) -> Result<Option<Url>, String> {
    let text = |error: HttpError| error.to_string();
    let mut answer = http::get(url, token, timeouts).await.map_err(text)?;
    match (answer.status, &answer.location) {
        (200, _) => {}
        (301..=308, Some(_)) if redirects >= MAX_REDIRECTS => {
            return Err(format!("more than {MAX_REDIRECTS} redirections"));
        }
        (301..=308, Some(to)) => {
            return url.follow(to).map(Some).map_err(|error| error.to_string());
        }
        (status, _) => return Err(format!("status {status}")),
    }
    while let Some(data) = answer.next().await.map_err(text)? {
        if pieces.send(Piece::Data(data)).await.is_err() {
            return Ok(None);
        }
        waker.wake();
    }
    Ok(None)
}

/// The body of a request, as the caller provides it: an empty piece is its end.
struct Outgoing {
    pieces: Receiver<Bytes>,
    taken: Arc<AtomicU64>,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.pieces.poll_recv(cx).map(|piece| {
            self.taken.fetch_add(1, Ordering::Relaxed);
            match piece {
                Some(piece) if piece.is_empty() => None,
                Some(piece) => Some(Ok(Frame::data(piece))),
                // Without the last chunk the server knows that the stream is cut off.
                None => Some(Err(io::ErrorKind::ConnectionAborted.into())),
            }
        })
    }
}

/// A stream that is written. Dropping it before [`finish`](Self::finish) cuts it off.
#[derive(Debug)]
pub(crate) struct Upload {
    pieces: Sender<Bytes>,
    outcome: blocking::Receiver<Result<(), HttpError>>,
    timeouts: Timeouts,
}

impl Upload {
    /// Connects and begins a PUT.
    pub(crate) fn open(
        url: Url,
        token: Option<Token>,
        timeouts: Timeouts,
    ) -> Result<Self, HttpError> {
        let (pieces, outgoing) = mpsc::channel(QUEUE);
        let (sender, outcome) = blocking::channel();
        let taken = Arc::new(AtomicU64::new(0));
        let body = Outgoing {
            pieces: outgoing,
            taken: Arc::clone(&taken),
        };
        let queue = pieces.downgrade();
        spawn(async move {
            let stream = match http::connect(&url, &timeouts).await {
                Ok(stream) => stream,
                Err(error) => return drop(sender.send(Err(error))),
            };
            let _ = sender.send(Ok(()));
            let put = async {
                let answer = http::send(stream, Method::PUT, &url, token.as_ref(), body).await?;
                match answer.status {
                    200..=299 => Ok(()),
                    _ => Err(answer.into_error().await),
                }
            };
            let done = tokio::select! {
                done = put => done,
                () = stalled(&queue, &taken, timeouts.stall) => Err(HttpError::TimedOut(timeouts.stall)),
            };
            let _ = sender.send(done);
        })?;
        outcome.recv().unwrap_or(Err(HttpError::Truncated))?;
        Ok(Upload {
            pieces,
            outcome,
            timeouts,
        })
    }

    /// Sends a piece; blocks while the server does not read.
    pub(crate) fn send(&mut self, piece: &[u8]) -> Result<(), HttpError> {
        if piece.is_empty() {
            return Ok(());
        }
        match self.pieces.blocking_send(Bytes::copy_from_slice(piece)) {
            Ok(()) => Ok(()),
            Err(_) => match self.outcome.recv_timeout(self.timeouts.answer) {
                Ok(Err(error)) => Err(error),
                _ => Err(HttpError::Truncated),
            },
        }
    }

    /// Ends the stream and waits for the server's answer.
    pub(crate) fn finish(self) -> Result<(), HttpError> {
        let _ = self.pieces.blocking_send(Bytes::new());
        let limit = 2 * self.timeouts.answer;
        let answered = self.outcome.recv_timeout(limit);
        answered.unwrap_or(Err(HttpError::TimedOut(limit)))
    }
}

/// Returns once the server has taken nothing for `limit` although pieces wait.
async fn stalled(queue: &WeakSender<Bytes>, taken: &AtomicU64, limit: Duration) {
    loop {
        let before = taken.load(Ordering::Relaxed);
        tokio::time::sleep(limit).await;
        let full = queue.upgrade().is_some_and(|queue| queue.capacity() == 0);
        if full && taken.load(Ordering::Relaxed) == before {
            return;
        }
    }
}
