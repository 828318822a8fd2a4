//! The data connection: TCP-XM on the agreed port, from the sender of the control connection alone.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mcp_control::wire::plan::Carrier;
use tcpxm_tokio::seal::{Opener, segment_key};
use tcpxm_tokio::{Config, StreamHandle, XmEndpoint, XmListener, XmStream};

/// Received bytes that wait for the disk.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Data is taken in pieces that the processor's cache holds until they are hashed and written.
const PIECE: usize = 64 << 10;
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
    from: IpAddr,
    key: Option<[u8; 32]>,
    stream: Option<Stream>,
    /// Room for [`Incoming::piece`].
    piece: Vec<u8>,
    abort: Abort,
}

enum Stream {
    Plain(XmStream),
    Sealed(Box<Opener<XmStream>>),
}

impl Incoming {
    /// Listens on the kept port for a connection from `from`.
    pub(crate) fn open(
        reservation: Reservation,
        from: IpAddr,
        key: Option<[u8; 32]>,
        abort: Abort,
    ) -> io::Result<Incoming> {
        // With a key nothing but what the sender has signed gets as far as the records.
        let listener = match &key {
            Some(key) => reservation.0.listen_keyed(segment_key(key)),
            None => reservation.0.listen(),
        };
        Ok(Incoming {
            listener: Some(listener?),
            _endpoint: reservation.0,
            from,
            key,
            stream: None,
            piece: vec![0; PIECE],
            abort,
        })
    }

    /// Waits for the sender. Others that connect are hung up on.
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
            let peer = stream.peer_address();
            if !peer.is_ok_and(|peer| peer.ip() == self.from) {
                stream.abort();
                continue;
            }
            self.abort.watch(stream.handle())?;
            self.listener = None;
            self.stream = Some(match &self.key {
                None => Stream::Plain(stream),
                Some(key) => Stream::Sealed(Box::new(Opener::new(stream, key))),
            });
            return Ok(());
        }
    }

    /// The next bytes, at least one and at most `most` of them.
    pub(crate) fn piece(&mut self, most: usize) -> io::Result<&[u8]> {
        let bytes = match &mut self.stream {
            Some(Stream::Plain(stream)) => {
                let bytes = &mut self.piece[..most.min(PIECE)];
                stream.read_exact(bytes)?;
                bytes
            }
            Some(Stream::Sealed(opener)) => opener.piece(most)?,
            None => return Err(io::ErrorKind::NotConnected.into()),
        };
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }

    /// All that was agreed has come: nothing may follow.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let end = match &mut self.stream {
            Some(Stream::Plain(stream)) => stream.read(&mut [0])? == 0,
            Some(Stream::Sealed(opener)) => opener.piece(1)?.is_empty(),
            None => return Err(io::ErrorKind::NotConnected.into()),
        };
        match end {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "more came than was agreed",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn nobody_else_is_heard_once_the_sender_is_there() {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let reservation = Reservation::new(Carrier::Udp, here, 0).expect("a port");
        let to = SocketAddr::new(here.ip(), reservation.port());
        let abort = Abort::default();
        let mut incoming = Incoming::open(reservation, here.ip(), None, abort).expect("listening");
        let client = || XmEndpoint::open(&Config::new(here)).expect("a port");
        let (sender, stranger) = (client(), client());
        let mut sender = sender.connect(to).expect("opened");
        incoming.accept().expect("the sender");
        // Refused, or reset: what it writes is not kept.
        let mut stranger = stranger.connect(to).expect("opened");
        let _ = stranger.write_all(&[0; 100_000]);
        let refused = stranger.read(&mut [0]).expect_err("nobody");
        assert!(
            matches!(
                refused.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
            ),
            "{refused:?}"
        );
        sender.write_all(b"data").expect("written");
        assert_eq!(incoming.piece(4).expect("read"), b"data");
    }
}
