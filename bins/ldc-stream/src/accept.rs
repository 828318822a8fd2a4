//! Waiting for the sender: the first connection that begins with a valid hello is the stream.
//!
//! Other connections (a port scan, a browser, a host that connects and stays silent) are closed and reported; they
//! neither end the program nor delay a sender that connects after them.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::wire::{HELLO_LEN, Hello};

/// Connections that may wait for their hello at once; one more closes the oldest.
const MAX_PENDING: usize = 16;
/// Time allowed for the hello of a connection.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Polling interval of the listener and the pending connections.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The connection of a sender, its hello, and when that arrived.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) hello: Hello,
    pub(crate) began: Instant,
}

/// A connection whose hello is incomplete.
struct Pending {
    stream: TcpStream,
    peer: SocketAddr,
    since: Instant,
    bytes: [u8; HELLO_LEN],
    have: usize,
}

/// The state of a pending connection.
enum State {
    Incomplete,
    Hello(Hello),
    Refused(String),
}

impl Pending {
    /// Reads the bytes of the hello that have arrived; never blocks.
    fn read(&mut self) -> State {
        while self.have < HELLO_LEN {
            match self.stream.read(&mut self.bytes[self.have..]) {
                Ok(0) => return State::Refused("closed the connection before its hello".into()),
                Ok(count) => {
                    self.have += count;
                    // The hello of another version may be shorter.
                    if let Err(error) = Hello::check_start(&self.bytes[..self.have]) {
                        return State::Refused(error.to_string());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return if self.since.elapsed() < HELLO_TIMEOUT {
                        State::Incomplete
                    } else {
                        let limit = HELLO_TIMEOUT.as_secs();
                        State::Refused(format!("sent no hello within {limit} s"))
                    };
                }
                Err(error) => return State::Refused(error.to_string()),
            }
        }
        match Hello::parse(&self.bytes) {
            Ok(hello) => State::Hello(hello),
            Err(error) => State::Refused(error.to_string()),
        }
    }
}

/// Accepts connections until one of them begins with a valid hello. Calls `refused` for each that does not. Returns
/// `None` when interrupted.
///
/// # Errors
/// The listener fails.
pub(crate) fn accept(
    listener: &TcpListener,
    mut refused: impl FnMut(SocketAddr, &str),
) -> Result<Option<Accepted>> {
    listener.set_nonblocking(true)?;
    let mut pending: VecDeque<Pending> = VecDeque::new();
    while !cli::interrupt::raised() {
        while let Some((stream, peer)) = next(listener)? {
            stream.set_nonblocking(true)?;
            if pending.len() == MAX_PENDING
                && let Some(oldest) = pending.pop_front()
            {
                refused(oldest.peer, "gave way to a newer connection");
            }
            pending.push_back(Pending {
                stream,
                peer,
                since: Instant::now(),
                bytes: [0; HELLO_LEN],
                have: 0,
            });
        }
        for _ in 0..pending.len() {
            let Some(mut connection) = pending.pop_front() else {
                break;
            };
            match connection.read() {
                State::Incomplete => pending.push_back(connection),
                State::Refused(reason) => refused(connection.peer, &reason),
                State::Hello(hello) => {
                    let Pending { stream, peer, .. } = connection;
                    stream.set_nonblocking(false)?;
                    return Ok(Some(Accepted {
                        stream,
                        peer,
                        hello,
                        began: Instant::now(),
                    }));
                }
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(None)
}

/// Returns the next connection that has arrived, if any.
fn next(listener: &TcpListener) -> Result<Option<(TcpStream, SocketAddr)>> {
    loop {
        match listener.accept() {
            Ok(accepted) => return Ok(Some(accepted)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            // The peer disconnected between its handshake and this call.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) => {}
            Err(error) => return Err(error).context("cannot accept a connection"),
        }
    }
}
