//! A UDP socket, the endpoint on it and its connections: what both ends of a QUIC connection share.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use linux_net::SendError;
use linux_net::inet::{self, UdpSocket};
use linux_net::poll::{self, Watch};
use linux_net::udp::Batch;
use quinn_proto::{Connection, ConnectionHandle, DatagramEvent, Endpoint, Incoming, Transmit};

use super::Error;

/// Datagrams that leave together.
const MAX_SEGMENTS: usize = 8;
/// Reads of the socket in one call of [`Link::receive`], so that a flood does not keep it there.
const MAX_READS: usize = 8;

/// The socket, the endpoint and the connections.
pub(super) struct Link {
    socket: UdpSocket,
    batch: Batch,
    endpoint: Endpoint,
    /// By handle.
    connections: BTreeMap<usize, Connection>,
    buffer: Vec<u8>,
    /// What the socket had no room for.
    held: Option<Held>,
    /// Datagrams that the kernel refused, among them the probes of path MTU discovery.
    pub(super) refused: u64,
}

/// Datagrams that wait for room in the socket.
struct Held {
    destination: SocketAddr,
    source: Option<IpAddr>,
    bytes: Vec<u8>,
    segment_len: Option<usize>,
}

impl Link {
    pub(super) fn new(socket: UdpSocket, endpoint: Endpoint) -> Link {
        Link {
            socket,
            batch: Batch::new(4),
            endpoint,
            connections: BTreeMap::new(),
            buffer: Vec::new(),
            held: None,
            refused: 0,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_address()
    }

    /// Takes in a connection that the endpoint has created.
    pub(super) fn add(&mut self, handle: ConnectionHandle, connection: Connection) {
        self.connections.insert(handle.0, connection);
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns a connection, unless it has drained.
    pub(super) fn connection(&mut self, handle: usize) -> Option<&mut Connection> {
        self.connections.get_mut(&handle)
    }

    /// Returns the handles of all connections.
    pub(super) fn handles(&self) -> Vec<usize> {
        self.connections.keys().copied().collect()
    }

    /// Reads what has arrived, passes it to the connections, and handles their timers. `incoming` decides on new
    /// connections.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        mut incoming: impl FnMut(&mut Link, Incoming),
    ) -> Result<(), Error> {
        for _ in 0..MAX_READS {
            // An error concerns what was sent earlier; QUIC detects a dead path by itself.
            if !matches!(self.socket.receive(&mut self.batch), Ok(1..)) {
                break;
            }
            let received: Vec<(SocketAddr, IpAddr, BytesMut)> = self
                .batch
                .received()
                .map(|one| (one.source, one.destination, BytesMut::from(one.payload)))
                .collect();
            for (source, destination, bytes) in received {
                self.handle(now, source, destination, bytes, &mut incoming)?;
            }
        }
        for connection in self.connections.values_mut() {
            if connection.poll_timeout().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
            }
        }
        Ok(())
    }

    fn handle(
        &mut self,
        now: Instant,
        source: SocketAddr,
        destination: IpAddr,
        bytes: BytesMut,
        incoming: &mut impl FnMut(&mut Link, Incoming),
    ) -> Result<(), Error> {
        self.buffer.clear();
        let local = (!destination.is_unspecified()).then_some(destination);
        let event = self
            .endpoint
            .handle(now, source, local, None, bytes, &mut self.buffer);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.connections.get_mut(&handle.0) {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(new)) => incoming(self, new),
            Some(DatagramEvent::Response(transmit)) => self.respond(&transmit)?,
            None => {}
        }
        Ok(())
    }

    /// Sends an answer of the endpoint itself, which lies in the buffer; dropped if the socket has no room.
    pub(super) fn respond(&mut self, transmit: &Transmit) -> Result<(), Error> {
        let bytes = &self.buffer[..transmit.size];
        let transmit = inet::Transmit {
            source: transmit.src_ip,
            destination: transmit.destination,
            bytes,
            segment_len: transmit.segment_size,
        };
        match self.socket.send(&transmit) {
            Err(error) => permanent(error).map_or(Ok(()), Err),
            Ok(_) => Ok(()),
        }
    }

    /// Runs `work` with the endpoint and its buffer, which is empty.
    pub(super) fn with_buffer<T>(
        &mut self,
        work: impl FnOnce(&mut Endpoint, &mut Vec<u8>) -> T,
    ) -> T {
        self.buffer.clear();
        work(&mut self.endpoint, &mut self.buffer)
    }

    /// Sends what the connections have to send, until they or the socket stop. Returns the bytes sent.
    pub(super) fn transmit(&mut self, now: Instant) -> Result<u64, Error> {
        let mut sent = 0;
        if !self.send_held()? {
            return Ok(0);
        }
        for handle in self.handles() {
            while self.held.is_none() {
                self.pass_events(handle);
                let Some(connection) = self.connections.get_mut(&handle) else {
                    break;
                };
                self.buffer.clear();
                let transmit = connection.poll_transmit(now, MAX_SEGMENTS, &mut self.buffer);
                let Some(transmit) = transmit else { break };
                sent += transmit.size as u64;
                self.held = Some(Held {
                    destination: transmit.destination,
                    source: transmit.src_ip,
                    bytes: std::mem::take(&mut self.buffer),
                    segment_len: transmit.segment_size,
                });
                self.send_held()?;
            }
            self.pass_events(handle);
        }
        Ok(sent)
    }

    /// Returns whether nothing waits for room in the socket.
    fn send_held(&mut self) -> Result<bool, Error> {
        while let Some(held) = &mut self.held {
            let transmit = inet::Transmit {
                source: held.source,
                destination: held.destination,
                bytes: &held.bytes,
                segment_len: held.segment_len,
            };
            match self.socket.send(&transmit) {
                Ok(sent) if sent < held.bytes.len() => {
                    held.bytes.drain(..sent);
                    continue;
                }
                Ok(_) => {}
                Err(SendError::WouldBlock) => return Ok(false),
                Err(error) => {
                    self.refused += 1;
                    if let Some(error) = permanent(error) {
                        return Err(error);
                    }
                }
            }
            // The memory serves the next datagrams.
            if let Some(held) = self.held.take() {
                self.buffer = held.bytes;
            }
        }
        Ok(true)
    }

    /// Passes the events of a connection to the endpoint, and forgets the connection once it has drained.
    fn pass_events(&mut self, handle: usize) {
        let Some(connection) = self.connections.get_mut(&handle) else {
            return;
        };
        while let Some(event) = connection.poll_endpoint_events() {
            let answer = self.endpoint.handle_event(ConnectionHandle(handle), event);
            if let Some(answer) = answer {
                connection.handle_event(answer);
            }
        }
        if connection.is_drained() {
            self.connections.remove(&handle);
        }
    }

    /// Returns the time until the next timer of a connection, from `now` on.
    pub(super) fn timeout(&mut self, now: Instant) -> Option<Duration> {
        let timers = self
            .connections
            .values_mut()
            .filter_map(Connection::poll_timeout);
        timers.min().map(|at| at.saturating_duration_since(now))
    }

    /// Returns whether datagrams wait for room in the socket.
    pub(super) fn is_blocked(&self) -> bool {
        self.held.is_some()
    }

    /// Waits for the socket, and for another descriptor if there is one, at most `timeout`. Returns whether the other one
    /// is ready.
    pub(super) fn wait(
        &self,
        other: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
    ) -> Result<bool, Error> {
        let socket = if self.is_blocked() {
            Watch::both(self.socket())
        } else {
            Watch::readable(self.socket())
        };
        let mut set = [socket, Watch::readable(other.unwrap_or(self.socket()))];
        let watched = if other.is_some() { 2 } else { 1 };
        poll::wait(&mut set[..watched], timeout)
            .map_err(Error::io("cannot wait for the socket"))?;
        Ok(other.is_some() && set[1].is_readable())
    }
}

/// Returns the error if it will not go away. Others are losses, which QUIC repairs, or for which it times out.
fn permanent(error: SendError) -> Option<Error> {
    match error {
        SendError::Refused => Some(Error::Refused),
        SendError::Privilege(_) | SendError::Malformed => Some(Error::Io {
            what: "cannot send",
            source: io::Error::other(error.to_string()),
        }),
        _ => None,
    }
}
