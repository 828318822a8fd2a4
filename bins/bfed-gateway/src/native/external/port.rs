//! A listening Unix socket with one client at a time.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use bfed::{Duration, Instant};
use bfed_external::frame::{self, Type};
use bfed_external::{Closed, Link};
use daemon_kit::socket::{BindError, StatusSocket};
use linux_net::poll::Set;
use linux_net::wake::Waker;

use super::ExternalConfig;
use crate::native::Counter;

const LISTENER: u64 = 0;
const CLIENT: u64 = 1;
const WAKER: u64 = 2;
/// Connections accepted in a row.
const ACCEPTS: usize = 16;
/// Time without accepting after the process ran out of file descriptors.
const BACKOFF: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    accepted: u64,
    refused: u64,
    lost: u64,
}

/// The socket of one part of the gateway.
#[derive(Debug)]
pub(super) struct Port {
    listener: UnixListener,
    /// Owns the file.
    _socket: StatusSocket,
    name: String,
    set: Set,
    waker: Waker,
    stream: Option<UnixStream>,
    /// What the client's socket is watched for: input, room for output.
    watched: (bool, bool),
    /// No connection is accepted before.
    deaf_until: Option<Instant>,
    counts: Counts,
}

impl Port {
    /// Opens `NAME.sock` in the directory.
    pub(super) fn open(config: &ExternalConfig, name: &str) -> Result<Self, String> {
        let path = config.directory.join(format!("{name}.sock"));
        let shown = path.display();
        let socket = StatusSocket::bind(&path, config.mode, "bfed-gateway");
        let socket = socket.map_err(|error| match error {
            BindError::Taken(_, _) | BindError::InUse(_) => format!(
                "{shown}: another process listens there; give each gateway its own network.directory"
            ),
            BindError::NotASocket(_) => format!("{shown}: exists and is not a socket; remove it"),
            BindError::Io { what, source, .. } => {
                format!("{shown}: {what}: {source}; see network.directory")
            }
        })?;
        if let Some(gid) = config.gid()? {
            std::os::unix::fs::chown(&path, None, Some(gid.as_raw()))
                .map_err(|error| format!("{shown}: changing its group: {error}"))?;
        }
        let opened = || -> io::Result<Self> {
            let (listener, set, waker) = (socket.listener()?, Set::new()?, Waker::new()?);
            set.add(listener.as_fd(), LISTENER, true, false)?;
            set.add(waker.as_fd(), WAKER, true, false)?;
            Ok(Port {
                listener,
                _socket: socket,
                name: name.to_owned(),
                set,
                waker,
                stream: None,
                watched: (false, false),
                deaf_until: None,
                counts: Counts::default(),
            })
        };
        opened().map_err(|error| format!("{shown}: {error}"))
    }

    /// Accepts what has connected. Returns true if a client is new; others are told that they are too many.
    pub(super) fn accept(&mut self, now: Instant) -> bool {
        self.waker.reset();
        if self.deaf_until.is_some_and(|until| until > now) {
            return false;
        }
        self.deaf_until = None;
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok((stream, _)) if self.stream.is_some() => {
                    self.counts.refused += 1;
                    refuse(&stream);
                }
                Ok((stream, _)) => {
                    let watched = stream
                        .set_nonblocking(true)
                        .and_then(|()| self.set.add(stream.as_fd(), CLIENT, true, false));
                    if watched.is_ok() {
                        self.counts.accepted += 1;
                        self.watched = (true, false);
                        self.stream = Some(stream);
                        return true;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(event = "external_accept_failed", socket = self.name, %error, "cannot accept a client of the external network");
                    self.deaf_until = Some(now + BACKOFF);
                    // The listener is in the set, so this cannot fail.
                    let _ = self
                        .set
                        .change(self.listener.as_fd(), LISTENER, false, false);
                    return false;
                }
            }
        }
        false
    }

    /// Accepts again after a pause.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.deaf_until.is_some_and(|until| until <= now) {
            self.deaf_until = None;
            let _ = self
                .set
                .change(self.listener.as_fd(), LISTENER, true, false);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.deaf_until
    }

    /// Makes the descriptor readable, so that the driver polls again.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Reads what has come. Returns false if there is nothing for now.
    pub(super) fn read(&mut self, now: Instant, link: &mut Link) -> io::Result<bool> {
        let Some(stream) = self.stream.as_mut().filter(|_| link.wants_input()) else {
            return Ok(false);
        };
        let space = link.space();
        if space.is_empty() {
            return Ok(false);
        }
        loop {
            match stream.read(space) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    link.filled(now, len);
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes what the socket takes, and watches it for what is left.
    pub(super) fn write(&mut self, link: &mut Link) -> io::Result<()> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let mut blocked = false;
        while !blocked {
            let output = link.output();
            if output.is_empty() {
                break;
            }
            match stream.write(output) {
                Ok(len) => link.sent(len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let watched = (link.wants_input(), blocked);
        if watched != self.watched {
            self.watched = watched;
            self.set
                .change(stream.as_fd(), CLIENT, watched.0, watched.1)?;
        }
        Ok(())
    }

    /// Logs that a client has greeted.
    pub(super) fn log_greeted(&self, client: &str) {
        tracing::info!(
            event = "external_connected",
            socket = self.name,
            client,
            "client of the external network connected"
        );
    }

    /// Closes the connection after `why`, which the client is told.
    pub(super) fn close(&mut self, link: Option<&mut Link>, why: &Ended) {
        if let (Some(link), Ended::Closed(closed)) = (link, why) {
            link.refuse(&closed.to_string());
            // It is closed in any case.
            let _ = self.write(link);
        }
        self.counts.lost += 1;
        self.stream = None;
        let socket = &self.name;
        tracing::warn!(event = "external_lost", socket, reason = %why, "client of the external network lost; sessions wait for it");
    }

    pub(super) fn counters(&self) -> [Counter; 3] {
        [
            ("clients_accepted", self.counts.accepted),
            ("clients_refused", self.counts.refused),
            ("clients_lost", self.counts.lost),
        ]
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// Tells one client too many why it is refused; what its socket does not take at once is lost.
fn refuse(stream: &UnixStream) {
    let mut bytes = Vec::new();
    let text = br#"{"error": "another client is connected to this socket; stop it first"}"#;
    frame::emit(&mut bytes, Type::Error, 0, text);
    let mut stream = stream;
    // It fits the send buffer of a new socket.
    let _ = stream.set_nonblocking(true);
    let _ = stream.write_all(&bytes);
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The gateway closes it.
    Closed(Closed),
    /// The socket.
    Socket(io::Error),
}

impl From<Closed> for Ended {
    fn from(closed: Closed) -> Self {
        Ended::Closed(closed)
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Ended::Socket(error)
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Closed(closed) => closed.fmt(f),
            Ended::Socket(error) if error.kind() == ErrorKind::UnexpectedEof => {
                f.write_str("it closed the connection")
            }
            Ended::Socket(error) => error.fmt(f),
        }
    }
}
