//! Data by TCP-XM: the data connection on the agreed port, from the sender of the control connection only, and the streams
//! of islands.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mcp_control::wire::island::Island;
use mcp_control::wire::plan::Carrier;
use tcpxm_tokio::seal::{Opener, Output, segment_key};
use tcpxm_tokio::{
    Config, GroupChoice, GroupConfig, GroupHandle, GroupMode, StreamHandle, XmEndpoint, XmGroup,
    XmListener, XmStream,
};

use crate::pieces::Pieces;

/// Received bytes that may wait for the disk.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Time allowed for the sender to open the data connection after all hosts are ready.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes that the head of an island keeps for its slowest member.
const ISLAND_SEND_BUFFER: usize = 2 << 20;
/// Time for the members of an island to answer, and for multicast to reach them: all are on one link.
const ISLAND_CONNECT_TIMEOUT: mcp_control::Duration = mcp_control::Duration::from_secs(2);
/// Time for the first answer: the queue of the head's link may be full, and drop the first packet.
const ISLAND_FIRST_TIMEOUT: mcp_control::Duration = mcp_control::Duration::from_millis(250);
const ISLAND_MULTICAST_TIMEOUT: mcp_control::Duration = mcp_control::Duration::from_secs(1);
/// Feedback from which on multicast counts as reaching a member.
const REACHED_PERCENT: u8 = 50;

/// Returns the configuration of an endpoint on this host's address of the control connection, which multicast uses the
/// interface of.
fn config(local: SocketAddr, port: u16) -> Config {
    let mut config = Config::new(SocketAddr::new(local.ip(), port));
    // For loopback addresses the kernel lists only the first.
    config.interface = match local {
        SocketAddr::V6(local) if local.scope_id() != 0 => local.scope_id(),
        local => {
            let listed = match local.ip() {
                IpAddr::V4(address) if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
                address => address,
            };
            linux_net::link::find(&listed.to_string()).map_or(0, |found| found.index)
        }
    };
    config
}

/// A port that is reserved for the data.
#[derive(Debug)]
pub(crate) struct Reservation(XmEndpoint);

impl Reservation {
    /// Reserves a port on this host's address of the control connection; 0: any free one.
    pub(crate) fn new(carrier: Carrier, local: SocketAddr, port: u16) -> io::Result<Reservation> {
        let mut config = config(local, port);
        config.machine.carrier = match carrier {
            Carrier::Udp => tcpxm_tokio::Carrier::Udp,
            Carrier::Ip => tcpxm_tokio::Carrier::Ip,
        };
        config.machine.receive_buffer = RECEIVE_BUFFER;
        // One connection is expected. Strangers may come first, and each connection could fill a buffer.
        config.machine.accept_backlog = 4;
        config.machine.max_half_open = 16;
        config.machine.max_connections = 32;
        XmEndpoint::open(&config).map(Reservation)
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_address().port()
    }
}

/// Aborts a thread that waits for data, or for its delivery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Abort(Arc<Mutex<(bool, Option<Handle>)>>);

#[derive(Debug)]
enum Handle {
    Stream(StreamHandle),
    /// A group and the number of its receivers.
    Group(GroupHandle, usize),
}

impl Handle {
    fn abort(&self) {
        match self {
            Handle::Stream(stream) => stream.abort(),
            Handle::Group(group, receivers) => (0..*receivers).for_each(|at| group.abort(at)),
        }
    }
}

impl Abort {
    pub(crate) fn abort(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        if let Some(handle) = state.1.take() {
            handle.abort();
        }
    }

    /// Registers the handle to abort; fails if an abort was already requested.
    fn watch(&self, handle: Handle) -> io::Result<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 {
            handle.abort();
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        state.1 = Some(handle);
        Ok(())
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The incoming data.
pub(crate) struct Incoming {
    /// Dropped when the sender has connected: later connections would be stored but never read.
    listener: Option<XmListener>,
    /// Keeps the socket open.
    endpoint: XmEndpoint,
    /// The group of the plan.
    group: Option<IpAddr>,
    key: Option<[u8; 32]>,
    stream: Option<Stream>,
    abort: Abort,
}

enum Stream {
    Plain(Pieces<XmStream>),
    Sealed(Box<Opener<XmStream>>),
}

impl Incoming {
    /// Listens on the reserved port for a connection from this address and TCP port, without a group unless
    /// [`Incoming::expect_group`] names one.
    pub(crate) fn open(
        reservation: Reservation,
        from: SocketAddr,
        key: Option<[u8; 32]>,
        abort: Abort,
    ) -> io::Result<Incoming> {
        // With a key, only segments that the sender has signed reach the records.
        let listener = reservation
            .0
            .listen_to(from, key.as_ref().map(segment_key))?;
        Ok(Incoming {
            listener: Some(listener),
            endpoint: reservation.0,
            group: None,
            key,
            stream: None,
            abort,
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.endpoint.local_address().port()
    }

    /// Allows this group in the connection.
    pub(crate) fn expect_group(&mut self, group: Option<IpAddr>) {
        self.group = group;
    }

    /// Waits for the sender. A connection with another group than the agreed one is reset.
    pub(crate) fn accept(&mut self) -> io::Result<()> {
        let end = Instant::now() + CONNECT_TIMEOUT;
        loop {
            if self.abort.is_raised() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let listener = self.listener.as_ref();
            let listener = listener.ok_or(io::ErrorKind::AlreadyExists)?;
            let stream = match listener.wait(Some(Duration::from_millis(200))) {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::TimedOut && Instant::now() < end => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            // A sender may connect without a group, but not with another one.
            let group = stream.group();
            if !group.is_ok_and(|group| group.is_none() || group == self.group) {
                stream.abort();
                continue;
            }
            self.abort.watch(Handle::Stream(stream.handle()))?;
            self.listener = None;
            self.stream = Some(match &self.key {
                None => Stream::Plain(Pieces::new(stream)),
                Some(key) => Stream::Sealed(Box::new(Opener::new(stream, key))),
            });
            return Ok(());
        }
    }

    /// Returns the next bytes: at least one, at most `most`.
    pub(crate) fn piece(&mut self, most: usize) -> io::Result<&[u8]> {
        let bytes = self.next(most)?;
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }

    /// Checks that nothing follows the agreed data.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if self.next(1)?.is_empty() {
            return Ok(());
        }
        let kind = io::ErrorKind::InvalidData;
        Err(io::Error::new(kind, "more came than was agreed"))
    }

    /// Returns the next bytes; none at the end.
    fn next(&mut self, most: usize) -> io::Result<&[u8]> {
        match &mut self.stream {
            Some(Stream::Plain(pieces)) => pieces.next(most),
            Some(Stream::Sealed(opener)) => opener.piece(most).map(|bytes| &*bytes),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// The stream to the members of an island, by multicast only.
pub(crate) struct Outgoing {
    group: XmGroup,
    receivers: usize,
    output: Output,
}

/// How many members of an island multicast reaches.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    pub(crate) members: usize,
    /// It is not known yet.
    pub(crate) pending: usize,
}

impl Outgoing {
    /// Connects to the members from this host's address `local`.
    pub(crate) fn open(
        island: &Island,
        members: &[IpAddr],
        local: SocketAddr,
        abort: &Abort,
    ) -> io::Result<Outgoing> {
        let mut config = config(local, island.source);
        config.ttl = 1;
        config.machine.send_buffer = ISLAND_SEND_BUFFER;
        let endpoint = XmEndpoint::open(&config)?;
        let bound = endpoint.local_address();
        let key = island.key();
        let mut config = GroupConfig::new(bound, members.to_vec(), island.destination);
        config.mode = GroupMode::Multicast;
        config.group = GroupChoice::Given(island.group);
        config.connect_timeout = ISLAND_CONNECT_TIMEOUT;
        config.initial_rto = Some(ISLAND_FIRST_TIMEOUT);
        config.multicast_timeout = ISLAND_MULTICAST_TIMEOUT;
        config.key = key.as_ref().map(segment_key);
        let group = endpoint.open_group(config)?;
        abort.watch(Handle::Group(group.handle(), members.len()))?;
        Ok(Outgoing {
            group,
            receivers: members.len(),
            output: Output::new(key.as_ref()),
        })
    }

    /// Sends bytes. Blocks while the slowest member has the send buffer full.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(&mut self.group, bytes)
    }

    /// Returns how many members multicast reaches.
    pub(crate) fn reached(&self) -> Reached {
        let mut reached = Reached::default();
        for at in 0..self.receivers {
            match self.is_reached(at) {
                Some(true) => reached.members += 1,
                Some(false) => reached.pending += 1,
                None => {}
            }
        }
        reached
    }

    /// Ends the connections to the members that multicast does not reach yet.
    pub(crate) fn drop_pending(&self) {
        for at in (0..self.receivers).filter(|at| self.is_reached(*at) == Some(false)) {
            self.group.handle().abort(at);
        }
    }

    /// Returns whether multicast reaches a member; `None` when its connection is gone.
    fn is_reached(&self, member: usize) -> Option<bool> {
        let feedback = self.group.handle().stats(member)?.feedback;
        Some(feedback.is_some_and(|percent| percent >= REACHED_PERCENT))
    }

    /// Waits until each member has everything, or has failed.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.group.finish()?;
        self.group.wait_delivered().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use tcpxm_tokio::{Failure, GroupEvent};

    fn client() -> XmEndpoint {
        let mut config = Config::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        // Loopback's index is 1 in every network namespace.
        config.interface = 1;
        XmEndpoint::open(&config).expect("a port")
    }

    /// Listens for this sender and group; returns the address too.
    fn incoming(sender: &XmEndpoint, group: Option<IpAddr>) -> (Incoming, SocketAddr) {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let reservation = Reservation::new(Carrier::Udp, here, 0).expect("a port");
        let to = SocketAddr::new(here.ip(), reservation.port());
        let abort = Abort::default();
        let incoming = Incoming::open(reservation, sender.local_address(), None, abort);
        let mut incoming = incoming.expect("listening");
        incoming.expect_group(group);
        (incoming, to)
    }

    #[test]
    fn only_the_sender_of_the_plan_is_accepted() {
        let (sender, stranger) = (client(), client());
        let (mut incoming, to) = incoming(&sender, None);
        // A stranger's connection is refused and its data is not stored, before and after the sender connects.
        let refuse = || {
            let mut stream = stranger.connect(to).expect("opened");
            let _ = stream.write_all(&[0; 100_000]);
            let refused = stream.read(&mut [0]).expect_err("refused");
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        };
        refuse();
        let mut stream = sender.connect(to).expect("opened");
        incoming.accept().expect("the sender");
        refuse();
        stream.write_all(b"data").expect("written");
        assert_eq!(incoming.piece(4).expect("read"), b"data");
    }

    #[test]
    fn a_group_that_was_not_agreed_on_is_hung_up_on() {
        let agreed: IpAddr = [239, 192, 1, 1].into();
        for (named, is_heard) in [([239, 192, 1, 1], true), ([239, 192, 1, 2], false)] {
            let sender = client();
            let (mut incoming, to) = incoming(&sender, Some(agreed));
            let mut config = GroupConfig::new(sender.local_address(), vec![to.ip()], to.port());
            config.group = GroupChoice::Given(named.into());
            let mut group = sender.open_group(config).expect("a group");
            let handle = group.handle();
            group.write_all(b"data").expect("written");
            if is_heard {
                incoming.accept().expect("the sender");
                assert_eq!(incoming.piece(4).expect("read"), b"data");
                continue;
            }
            let abort = incoming.abort.clone();
            let waiting = std::thread::spawn(move || incoming.accept());
            assert_eq!(group.wait_delivered().expect("an answer"), 0);
            abort.abort();
            waiting.join().expect("the thread").expect_err("refused");
            let mut events = std::iter::from_fn(|| handle.poll_event());
            let reset = GroupEvent::Closed(0, Some(Failure::Reset));
            assert!(events.any(|event| event == reset));
        }
    }
}
