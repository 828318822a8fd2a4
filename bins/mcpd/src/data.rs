//! The data connection: TCP-XM on the agreed port, from the sender of the control connection alone.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mcp_control::wire::plan::Carrier;
use tcpxm_tokio::seal::{Opener, segment_key};
use tcpxm_tokio::{Config, StreamHandle, XmEndpoint, XmListener, XmStream};

use crate::pieces::Pieces;

/// Received bytes that wait for the disk.
const RECEIVE_BUFFER: usize = 8 << 20;
/// The sender opens the data connection as soon as all hosts are ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// A port that is kept for the data.
#[derive(Debug)]
pub(crate) struct Reservation(XmEndpoint);

impl Reservation {
    /// Keeps a port of a carrier, on this host's address of the control connection; 0: any that is
    /// free.
    pub(crate) fn new(carrier: Carrier, local: SocketAddr, port: u16) -> io::Result<Reservation> {
        let mut config = Config::new(SocketAddr::new(local.ip(), port));
        config.machine.carrier = match carrier {
            Carrier::Udp => tcpxm_tokio::Carrier::Udp,
            Carrier::Ip => tcpxm_tokio::Carrier::Ip,
        };
        config.machine.receive_buffer = RECEIVE_BUFFER;
        // One connection is wanted; strangers may be faster, and each could fill a buffer.
        config.machine.accept_backlog = 4;
        config.machine.max_half_open = 16;
        config.machine.max_connections = 32;
        // Multicast is expected where the control connection came in. Of loopback's addresses the
        // kernel lists the first only.
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
        XmEndpoint::open(&config).map(Reservation)
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_address().port()
    }
}

/// Stops a worker that waits for data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Abort(Arc<Mutex<(bool, Option<StreamHandle>)>>);

impl Abort {
    pub(crate) fn abort(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        if let Some(stream) = state.1.take() {
            stream.abort();
        }
    }

    /// Aborts this stream when the time comes; an error: it has come.
    fn watch(&self, stream: StreamHandle) -> io::Result<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        state.1 = Some(stream);
        Ok(())
    }

    fn is_raised(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The data, as it comes.
pub(crate) struct Incoming {
    /// Until the sender is there: what strangers open after that would only be kept, unread.
    listener: Option<XmListener>,
    /// Keeps the socket.
    _endpoint: XmEndpoint,
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
    /// Listens on the kept port for a connection from this address and TCP port, with this group or
    /// none.
    pub(crate) fn open(
        reservation: Reservation,
        from: SocketAddr,
        group: Option<IpAddr>,
        key: Option<[u8; 32]>,
        abort: Abort,
    ) -> io::Result<Incoming> {
        // With a key nothing but what the sender has signed gets as far as the records.
        let listener = reservation
            .0
            .listen_to(from, key.as_ref().map(segment_key))?;
        Ok(Incoming {
            listener: Some(listener),
            _endpoint: reservation.0,
            group,
            key,
            stream: None,
            abort,
        })
    }

    /// Waits for the sender. One that comes with another group than was agreed is hung up on.
    pub(crate) fn accept(&mut self) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
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
            // A sender may go without its group, but not with another one than was agreed.
            let group = stream.group();
            if !group.is_ok_and(|group| group.is_none() || group == self.group) {
                stream.abort();
                continue;
            }
            self.abort.watch(stream.handle())?;
            self.listener = None;
            self.stream = Some(match &self.key {
                None => Stream::Plain(Pieces::new(stream)),
                Some(key) => Stream::Sealed(Box::new(Opener::new(stream, key))),
            });
            return Ok(());
        }
    }

    /// The next bytes, at least one and at most `most` of them.
    pub(crate) fn piece(&mut self, most: usize) -> io::Result<&[u8]> {
        let bytes = self.next(most)?;
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }

    /// All that was agreed has come: nothing may follow.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if self.next(1)?.is_empty() {
            return Ok(());
        }
        let kind = io::ErrorKind::InvalidData;
        Err(io::Error::new(kind, "more came than was agreed"))
    }

    /// None at the end.
    fn next(&mut self, most: usize) -> io::Result<&[u8]> {
        match &mut self.stream {
            Some(Stream::Plain(pieces)) => pieces.next(most),
            Some(Stream::Sealed(opener)) => opener.piece(most).map(|bytes| &*bytes),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use tcpxm_tokio::{Failure, GroupChoice, GroupConfig, GroupEvent};

    fn client() -> XmEndpoint {
        let mut config = Config::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        // Loopback's index is 1 in every network namespace.
        config.interface = 1;
        XmEndpoint::open(&config).expect("a port")
    }

    /// Who listens for this sender and group, and where.
    fn incoming(sender: &XmEndpoint, group: Option<IpAddr>) -> (Incoming, SocketAddr) {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let reservation = Reservation::new(Carrier::Udp, here, 0).expect("a port");
        let to = SocketAddr::new(here.ip(), reservation.port());
        let abort = Abort::default();
        let incoming = Incoming::open(reservation, sender.local_address(), group, None, abort);
        (incoming.expect("listening"), to)
    }

    #[test]
    fn nobody_but_the_sender_of_the_plan_is_heard() {
        let (sender, stranger) = (client(), client());
        let (mut incoming, to) = incoming(&sender, None);
        // Refused: what it writes is not kept. Before the sender is there, and after.
        let refuse = || {
            let mut stream = stranger.connect(to).expect("opened");
            let _ = stream.write_all(&[0; 100_000]);
            let refused = stream.read(&mut [0]).expect_err("nobody");
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
            waiting.join().expect("the thread").expect_err("nobody");
            let mut events = std::iter::from_fn(|| handle.poll_event());
            let reset = GroupEvent::Closed(0, Some(Failure::Reset));
            assert!(events.any(|event| event == reset));
        }
    }
}
