//! Admission of connections, and their limits.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cli::events::Events;
use control_stream::tls;
use mcp_control::wire::link::{LINK_IDENTIFIER, PREFACE_LEN, Preface};
use proto_core::clock::Clock;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::activity::Activity;
use crate::config::Settings;
use crate::events::Event;
use crate::relay::links::Expected;
use crate::session::{Outcome, Session};
use crate::waiting::{Ticket, Waiting};

/// Simultaneous copies; more are refused as busy.
pub(crate) const MAX_COPIES: usize = 16;
/// Timeout of the TLS handshake. HELLO then has [`greeting`](mcp_control::ServerConfig::greeting), the offer
/// [`setup`](mcp_control::ServerConfig::setup).
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Refusals reported in one second; more are counted in the next report.
const MAX_REPORTED: u32 = 10;
/// Pause after an error of `accept`.
const AGAIN: Duration = Duration::from_millis(100);

/// What all sessions share.
pub(crate) struct Shared {
    settings: Mutex<Arc<Settings>>,
    pub(crate) clock: Clock,
    pub(crate) events: Events,
    /// Permits for copies.
    pub(crate) copies: Arc<Semaphore>,
    pub(crate) activity: Arc<Activity>,
    /// Feeders that the senders of running copies have announced.
    pub(crate) expected: Arc<Expected>,
    refusals: Mutex<Refusals>,
}

/// Refusals that were reported in this second, and those that were not.
#[derive(Debug, Default)]
struct Refusals {
    since: Option<Instant>,
    reported: u32,
    suppressed: u64,
}

impl Shared {
    pub(crate) fn new(settings: Settings, events: Events, copies: usize) -> Shared {
        Shared {
            settings: Mutex::new(Arc::new(settings)),
            clock: Clock::new(),
            events,
            copies: Arc::new(Semaphore::new(copies)),
            activity: Arc::default(),
            expected: Arc::default(),
            refusals: Mutex::default(),
        }
    }

    /// Returns the settings of new connections.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        let settings = self.settings.lock();
        Arc::clone(&settings.unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the settings of new connections.
    pub(crate) fn replace(&self, settings: Settings) {
        let mut current = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(settings);
    }

    /// Reports that connections are accepted at `address`.
    pub(crate) fn listening(&self, address: SocketAddr) {
        let settings = self.settings();
        let secure = settings.credentials.is_some();
        let folder = settings.folder.display().to_string();
        tracing::info!(event = "listening", %address, folder, secure, "listening");
        self.events.emit(&Event::Listening {
            address,
            folder,
            secure,
        });
    }

    /// Reports that a connection was refused; a flood of them is only counted.
    fn refused(&self, peer: SocketAddr, reason: &str) {
        self.activity.refused();
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals
            .since
            .is_none_or(|since| since.elapsed() >= Duration::from_secs(1))
        {
            refusals.since = Some(Instant::now());
            refusals.reported = 0;
        }
        if refusals.reported >= MAX_REPORTED {
            refusals.suppressed += 1;
            return;
        }
        refusals.reported += 1;
        let suppressed = std::mem::take(&mut refusals.suppressed);
        tracing::warn!(event = "refused", %peer, reason, suppressed, "refused");
        self.events.emit(&Event::Refused {
            peer,
            reason,
            suppressed,
        });
    }
}

/// Accepts connections until `stop`, or with `once` until one copy has ended. Returns the outcome of the last
/// copy.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    once: bool,
    stop: watch::Receiver<bool>,
) -> Option<Outcome> {
    // Every session holds a sender: the channel closes when the last session ends.
    admit(shared, listener, once, stop, mpsc::channel(MAX_COPIES)).await
}

async fn admit(
    shared: Arc<Shared>,
    listener: TcpListener,
    once: bool,
    mut stop: watch::Receiver<bool>,
    (running, mut all_over): (mpsc::Sender<Outcome>, mpsc::Receiver<Outcome>),
) -> Option<Outcome> {
    let waiting = Arc::new(Waiting::default());
    let stopped = stop.clone();
    let mut last = None;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
            outcome = all_over.recv() => {
                if once {
                    return outcome;
                }
                // A copy that the stop ends may be over before this task is woken.
                if *stopped.borrow() {
                    last = outcome;
                }
                continue;
            }
        };
        let (stream, peer) = match accepted {
            Ok((stream, peer)) => (stream, canonical(peer)),
            Err(error) => {
                // The process may be out of descriptors: connections that wait or end give some back.
                tracing::warn!(event = "accept_failed", %error, "cannot accept a connection");
                waiting.make_room();
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let connection = Connection {
            settings: shared.settings(),
            shared: Arc::clone(&shared),
            stop: stop.clone(),
            peer,
        };
        let running = running.clone();
        let ticket = waiting.ticket();
        let task = tokio::spawn(async move {
            if let Some(outcome) = connection.run(stream, ticket).await {
                let _ = running.try_send(outcome);
            }
        });
        if let Some(address) = waiting.enter(peer.ip(), task.abort_handle()) {
            let evicted = SocketAddr::new(address, 0);
            shared.refused(evicted, "too many connections wait: the oldest made room");
        }
    }
    drop(running);
    while let Some(outcome) = all_over.recv().await {
        last = Some(outcome);
    }
    last
}

/// A connection to serve.
struct Connection {
    settings: Arc<Settings>,
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
    peer: SocketAddr,
}

impl Connection {
    /// Serves one connection; `None` when it was not authenticated or offered nothing.
    async fn run(self, stream: TcpStream, ticket: Ticket) -> Option<Outcome> {
        let local = canonical(stream.local_addr().ok()?);
        let _ = stream.set_nodelay(true);
        if is_link(&stream).await {
            if let Err(error) = self.link(stream).await {
                self.shared.refused(self.peer, &error.to_string());
            }
            return None;
        }
        let Some(credentials) = &self.settings.credentials else {
            return self.converse(stream, local, ticket).await;
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&credentials.server));
        let secured = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
        let refused = match secured {
            Ok(Ok(stream)) => {
                ticket.proved();
                return self.converse(stream, local, ticket).await;
            }
            Ok(Err(error)) => tls::explain(&error),
            Err(_) => "did not complete the handshake in time".to_owned(),
        };
        self.shared.refused(self.peer, &refused);
        None
    }

    /// Hands the connection of a feeder to the copy that expects it.
    async fn link(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut preface = [0; PREFACE_LEN];
        let read = tokio::time::timeout(HANDSHAKE, stream.read_exact(&mut preface)).await;
        read.map_err(|_| io::ErrorKind::TimedOut)??;
        let unknown = || io::Error::other("a link that no sender has announced");
        let preface = Preface::parse(&preface).map_err(|_| unknown())?;
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        match self.shared.expected.take(stream, preface)? {
            true => Ok(()),
            false => Err(unknown()),
        }
    }

    async fn converse<S>(self, stream: S, local: SocketAddr, ticket: Ticket) -> Option<Outcome>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite,
    {
        let Connection {
            shared, settings, ..
        } = self;
        let session = Session::new((shared, settings), stream, self.peer, local, ticket);
        session.run(self.stop).await
    }
}

/// Whether the connection begins as that of a feeder, and not as TLS or a control message.
async fn is_link(stream: &TcpStream) -> bool {
    let mut first = [0];
    let peeked = tokio::time::timeout(HANDSHAKE, stream.peek(&mut first)).await;
    matches!(peeked, Ok(Ok(1))) && first == LINK_IDENTIFIER.to_be_bytes()[..1]
}

/// Converts IPv4-mapped addresses, which a socket on all addresses reports.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Opens the listening socket. Without IPv6 on the host, all addresses means all IPv4 addresses.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address).or_else(|error| match address {
        SocketAddr::V6(all) if all.ip().is_unspecified() => {
            let all = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), all.port());
            std::net::TcpListener::bind(all).map_err(|_| error)
        }
        _ => Err(error),
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use mcp_control::ServerConfig;
    use mcp_control::wire::hello::Capabilities;

    use super::*;

    /// A thread that raises the stop may pause between waking a session and waking the task that accepts.
    #[tokio::test]
    async fn a_copy_that_the_stop_ends_counts_also_when_it_is_over_first() {
        let settings = Settings {
            folder: PathBuf::new(),
            server: ServerConfig::new(Capabilities::UDP),
            credentials: None,
            fsync: false,
        };
        let shared = Arc::new(Shared::new(settings, Events::new(false, false), 1));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let (stop, stopped) = watch::channel(false);
        let (running, all_over) = mpsc::channel(1);
        let channel = (running.clone(), all_over);
        let serving = tokio::spawn(admit(shared, listener, false, stopped, channel));
        tokio::task::yield_now().await;
        stop.send_if_modified(|stop| {
            *stop = true;
            false // Wakes nothing yet.
        });
        running.send(Outcome::Failed).await.expect("taken");
        drop(running);
        let outcome = serving.await.expect("served");
        assert!(matches!(outcome, Some(Outcome::Failed)));
    }
}
