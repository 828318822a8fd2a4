//! Who may connect, and how many at a time.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cli::clock::Clock;
use cli::events::Events;
use cli::secure::{self, Credentials};
use mcp_control::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::events::Event;
use crate::session::{Outcome, Session};

/// Copies at a time; more are told to come later.
pub(crate) const MAX_COPIES: usize = 16;
/// Connections that have not offered anything yet, or not even proved that they may; more wait in
/// the kernel's queue. Each costs at most 300 KiB: buffers of TLS and of the conversation, one frame.
const MAX_WAITING: usize = 32;
/// A TLS handshake lasts no longer; then the offer has [`ServerConfig::setup`].
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What all sessions share.
pub(crate) struct Shared {
    pub(crate) folder: PathBuf,
    pub(crate) config: ServerConfig,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) clock: Clock,
    pub(crate) events: Events,
    pub(crate) quiet: bool,
    /// Places for copies.
    pub(crate) copies: Arc<Semaphore>,
}

impl Shared {
    /// A line for people.
    pub(crate) fn say(&self, line: std::fmt::Arguments<'_>) {
        if !self.quiet {
            eprintln!("{line}");
        }
    }
}

/// Takes connections until `stop`, or with `once` until one copy has ended; how that ended.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    once: bool,
    mut stop: watch::Receiver<bool>,
) -> Option<Outcome> {
    let waiting = Arc::new(Semaphore::new(MAX_WAITING));
    // Every session holds an end of this: it closes when the last one is over.
    let (running, mut all_over) = mpsc::channel::<Outcome>(MAX_COPIES);
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&waiting).acquire_owned().await else {
            break;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
            outcome = all_over.recv() => {
                if once {
                    return outcome;
                }
                continue;
            }
        };
        let Ok((stream, peer)) = accepted else {
            // No descriptors left, perhaps: sessions end and free some.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let visit = Visit {
            shared: Arc::clone(&shared),
            stop: stop.clone(),
            peer,
        };
        let running = running.clone();
        tokio::spawn(async move {
            let outcome = visit.run(stream, place).await;
            if let Some(outcome) = outcome {
                let _ = running.try_send(outcome);
            }
        });
    }
    drop(running);
    let mut last = None;
    while let Some(outcome) = all_over.recv().await {
        last = Some(outcome);
    }
    last
}

struct Visit {
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
    peer: SocketAddr,
}

impl Visit {
    /// One connection; `None` when it could not prove that it may be there, or offered nothing.
    async fn run(self, stream: TcpStream, place: OwnedSemaphorePermit) -> Option<Outcome> {
        let local = stream.local_addr().ok()?.ip();
        let _ = stream.set_nodelay(true);
        let Some(credentials) = &self.shared.credentials else {
            return self.converse(stream, local, place).await;
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&credentials.server));
        let secured = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
        let refused = match secured {
            Ok(Ok(stream)) => return self.converse(stream, local, place).await,
            Ok(Err(error)) => secure::explain(&error),
            Err(_) => "did not complete the handshake in time".to_owned(),
        };
        tracing::warn!(peer = %self.peer, reason = refused, "refused");
        self.shared.events.emit(&Event::Refused {
            peer: self.peer,
            reason: &refused,
        });
        None
    }

    async fn converse<S>(
        self,
        stream: S,
        local: IpAddr,
        place: OwnedSemaphorePermit,
    ) -> Option<Outcome>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite,
    {
        let shared = Arc::clone(&self.shared);
        let session = Session::new(shared, stream, self.peer, local, place);
        session.run(self.stop).await
    }
}

/// Opens the listening socket.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
