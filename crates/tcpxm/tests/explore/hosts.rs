//! The sender and the receivers: an endpoint each, with its application and a store that remembers what was released.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use netsim::explore::{Fingerprint, START};
use tcpxm::store::{NullStore, Store, StoreError};
use tcpxm::{
    Config, ConnId, Duration, Endpoint, Event, Failure, GroupChoice, GroupConfig, GroupId,
    GroupPolicy, Instant, Mode, Received,
};

use crate::group::Setup;

const LOCAL_PORT: u16 = 5000;
const PORT: u16 = 7000;
/// The smallest IP packet that an endpoint can be limited to.
const MTU: u16 = 576;
/// Bytes of a full segment: what UDP and a TCP header with timestamps leave.
pub(crate) const SEGMENT: u64 = 516;
/// The smallest receive buffer.
const BUFFER: usize = 2048;
/// Segments that fit its window.
pub(crate) const WINDOW: u64 = BUFFER as u64 / SEGMENT;

pub(crate) const MULTICAST: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 192, 0, 1));

/// How long a receiver of the group may be silent, and a peer of a receiver.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn address(node: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, node as u8 + 1).into()
}

pub(crate) fn node_at(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(ip) => usize::from(ip.octets()[3]) - 1,
        IpAddr::V6(ip) => panic!("no node has address {ip}"),
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.mtu = MTU;
    config.receive_buffer = BUFFER;
    config.connect_timeout = TIMEOUT;
    config.user_timeout = TIMEOUT;
    // A FIN whose acknowledgement is lost twice comes again within this time.
    config.time_wait = Duration::from_secs(5);
    config.max_connections = 4;
    config.max_half_open = 2;
    config
}

/// Bytes that are a function of their offset, until they are released.
#[derive(Debug)]
pub(crate) struct Window {
    released: Rc<Cell<u64>>,
    end: u64,
    capacity: u64,
}

impl Store for Window {
    fn write(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.room());
        self.end += len as u64;
        len
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        if offset < self.released.get() || offset + out.len() as u64 > self.end {
            return Err(StoreError::NotHeld);
        }
        for (byte, at) in out.iter_mut().zip(offset..) {
            *byte = NullStore::byte(at);
        }
        Ok(())
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn room(&self) -> usize {
        (self.released.get() + self.capacity - self.end) as usize
    }

    fn release(&mut self, before: u64) {
        self.released.set(self.released.get().max(before));
    }
}

/// How a connection ended: well, or for this reason.
pub(crate) type End = Option<Failure>;

/// The sender of the group, and what its application knows of each receiver.
pub(crate) struct Sender {
    pub(crate) endpoint: Endpoint<Window>,
    group: GroupId,
    members: Vec<ConnId>,
    /// Up to where the store has released its bytes.
    pub(crate) released: Rc<Cell<u64>>,
    /// Bytes to send, and those that the store has taken.
    pub(crate) len: u64,
    written: u64,
    is_shut: bool,
    is_closed: bool,
    pub(crate) is_over: bool,
    pub(crate) peers: Vec<Peer>,
}

/// A receiver as the sender's application knows it.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Peer {
    pub(crate) mode: Mode,
    pub(crate) is_delivered: bool,
    pub(crate) end: Option<End>,
}

impl Sender {
    /// Opens a group of the receivers 1 to `count`.
    pub(crate) fn new(setup: &Setup, count: usize) -> Self {
        let mut endpoint = Endpoint::new(config(), [1; 32], START);
        let receivers = (1..=count).map(address).collect();
        let local = SocketAddr::new(address(0), LOCAL_PORT);
        let mut group = GroupConfig::new(local, receivers, PORT);
        group.group = GroupChoice::Given(MULTICAST);
        group.mode = setup.mode;
        group.connect_timeout = TIMEOUT;
        group.receiver_timeout = TIMEOUT;
        let released = Rc::default();
        let store = Window {
            released: Rc::clone(&released),
            end: 0,
            capacity: setup.capacity,
        };
        let group = endpoint.open_group(START, &group, store);
        let group = group.expect("the configuration is right");
        let members = endpoint.members(group).expect("it is open").collect();
        let peer = Peer {
            mode: Mode::start(setup.mode),
            is_delivered: false,
            end: None,
        };
        Sender {
            endpoint,
            group,
            members,
            released,
            len: setup.first,
            written: 0,
            is_shut: false,
            is_closed: false,
            is_over: false,
            peers: vec![peer; count],
        }
    }

    /// Returns the connection to a receiver.
    pub(crate) fn member(&self, receiver: usize) -> ConnId {
        self.members[receiver - 1]
    }

    /// Returns what the application knows of a receiver.
    pub(crate) fn peer(&self, receiver: usize) -> &Peer {
        &self.peers[receiver - 1]
    }

    /// Takes the events; returns receivers whose mode has changed.
    pub(crate) fn poll_events(&mut self) -> Vec<(usize, Mode)> {
        let mut changes = Vec::new();
        while let Some(event) = self.endpoint.poll_event() {
            let receiver = |connection| {
                let mut members = self.members.iter();
                let at = members.position(|&member| member == connection);
                at.expect("it is a member")
            };
            match event {
                Event::ModeChanged { connection, mode } => {
                    let at = receiver(connection);
                    self.peers[at].mode = mode;
                    changes.push((at + 1, mode));
                }
                Event::Delivered { connection } => {
                    self.peers[receiver(connection)].is_delivered = true;
                }
                Event::Closed {
                    connection,
                    failure,
                    ..
                } => self.peers[receiver(connection)].end = Some(failure),
                Event::GroupClosed { .. } => self.is_over = true,
                _ => {}
            }
        }
        changes
    }

    /// Writes what there is space for, then ends the stream; lets go of the group once each receiver has everything or
    /// has failed. `is_last`: nothing will be added to what there is to send.
    pub(crate) fn act(&mut self, now: Instant, is_last: bool) {
        while self.written < self.len {
            let bytes = vec![0; (self.len - self.written) as usize];
            match self.endpoint.send(now, self.group, &bytes) {
                Ok(0) | Err(_) => return,
                Ok(len) => self.written += len as u64,
            }
        }
        if is_last && !self.is_shut {
            self.is_shut = true;
            // Refused when the group is gone.
            let _ = self.endpoint.shutdown(now, self.group);
        }
        let is_settled = |peer: &Peer| peer.is_delivered || peer.end.is_some();
        if !self.is_closed && self.peers.iter().all(is_settled) {
            self.is_closed = true;
            let _ = self.endpoint.close(now, self.group);
        }
    }

    pub(crate) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        debug(&self.endpoint, fingerprint);
        fingerprint.hash(&(self.len, self.written, self.is_shut, self.is_closed));
        fingerprint.hash(&(self.is_over, &self.peers));
    }
}

/// A receiver.
pub(crate) struct Receiver {
    pub(crate) endpoint: Endpoint<Window>,
    connection: Option<ConnId>,
    /// Bytes read so far: those of the stream, from its start.
    pub(crate) read: u64,
    pub(crate) has_end: bool,
    pub(crate) ends: Vec<End>,
    /// The group that its host has joined.
    pub(crate) joined: Option<IpAddr>,
}

impl Receiver {
    /// Starts a host that listens; with another `seed` it is one that has lost its memory.
    pub(crate) fn new(now: Instant, setup: &Setup, node: usize, seed: u8) -> Self {
        let mut config = config();
        config.keep_alive = setup.keep_alive;
        if setup.refusing == Some(node) {
            config.groups = GroupPolicy::Refuse;
        }
        let mut endpoint = Endpoint::new(config, [seed; 32], now);
        endpoint.listen(now, PORT).expect("the port is free");
        Receiver {
            endpoint,
            connection: None,
            read: 0,
            has_end: false,
            ends: Vec::new(),
            joined: None,
        }
    }

    /// Takes the events and reads what is there; at the end of the stream it closes.
    ///
    /// # Errors
    ///
    /// What the application reads is not the stream.
    pub(crate) fn act(&mut self, now: Instant) -> Result<(), String> {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Incoming { port } => {
                    self.connection = self.endpoint.accept(now, port);
                    // One sender comes.
                    let _ = self.endpoint.unlisten(now, port);
                }
                Event::Join { group, .. } => self.joined = Some(group),
                Event::Leave { .. } => self.joined = None,
                Event::Closed { failure, .. } => self.ends.push(failure),
                _ => {}
            }
            self.read(now)?;
        }
        self.read(now)
    }

    fn read(&mut self, now: Instant) -> Result<(), String> {
        let Some(connection) = self.connection.filter(|_| !self.has_end) else {
            return Ok(());
        };
        let mut buffer = [0; BUFFER];
        loop {
            match self.endpoint.recv(now, connection, &mut buffer) {
                Ok(Received::Data(len)) => {
                    for &byte in &buffer[..len] {
                        if byte != NullStore::byte(self.read) {
                            return Err(format!("byte {} is another one", self.read));
                        }
                        self.read += 1;
                    }
                }
                Ok(Received::End) => {
                    self.has_end = true;
                    let closed = self.endpoint.close(now, connection);
                    return closed.map_err(|error| format!("close: {error}"));
                }
                Ok(Received::Nothing) | Err(_) => return Ok(()),
            }
        }
    }

    pub(crate) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        debug(&self.endpoint, fingerprint);
        fingerprint.hash(&(self.connection, self.read, self.has_end));
        fingerprint.hash(&(&self.ends, self.joined));
    }
}

/// Adds an endpoint without counters and constants, and without the time of its last call, which the driver's is never
/// before.
fn debug(endpoint: &Endpoint<Window>, fingerprint: &mut Fingerprint) {
    let skipped = ["stats", "config", "limits", "retransmissions", "now"];
    fingerprint.debug_without(endpoint, &skipped);
}
