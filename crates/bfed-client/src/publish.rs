//! Publishing a session: being its source in the network that owns it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use bfed::SessionName;
use bfed::wire::client::Token;
use linux_net::SendError;
use linux_net::inet::{Transmit, UdpSocket};
use linux_net::poll::{self, Watch};

use crate::http::Timeouts;
use crate::mediator;
use crate::stream::Upload;
use crate::{Cancel, Error, GroupAddress, Url, frames, is_numbered, session_path};

/// How often the end of a numbered session is sent to a group, and the time between copies.
const ENDS: usize = 5;
const BETWEEN_ENDS: Duration = Duration::from_millis(100);
/// Shortest pause that is slept.
const MIN_PAUSE: Duration = Duration::from_micros(200);

/// Which session to publish, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PublishOptions {
    /// The session.
    pub session: SessionName,
    /// Which of the session's flows, from 0.
    pub flow: usize,
    /// The server of an HTTP network; without one, the session's native name is a group.
    pub server: Option<Url>,
    /// Interface of the group, by name or address; by default the routes decide.
    pub interface: Option<String>,
    /// Routers that datagrams may pass, plus one; 16 by default.
    pub ttl: u8,
    /// Bits of payload a second; by default as fast as the network takes them.
    pub rate: Option<NonZeroU64>,
    /// The token for the server, if it requires one.
    pub token: Option<Token>,
    /// Time limits of the connection to the server.
    pub timeouts: Timeouts,
}

impl PublishOptions {
    /// Options with the defaults above.
    #[must_use]
    pub fn new(session: SessionName) -> Self {
        PublishOptions {
            session,
            flow: 0,
            server: None,
            interface: None,
            ttl: 16,
            rate: None,
            token: None,
            timeouts: Timeouts::default(),
        }
    }

    fn sink(&self) -> Result<Sink, Error> {
        if let Some(server) = &self.server {
            let url = server.with_path(&session_path(self.session.as_str(), self.flow))?;
            return match Upload::open(url.clone(), self.token.clone(), self.timeouts) {
                Ok(upload) => Ok(Sink::Http(upload)),
                Err(error) => Err(Error::Server {
                    url: url.to_string(),
                    error,
                }),
            };
        }
        let to = GroupAddress::of_flow(&self.session, self.flow).map_err(|_| Error::NotAGroup)?;
        let any: IpAddr = match to.group {
            SocketAddr::V4(_) => [0u8; 4].into(),
            SocketAddr::V6(_) => [0u16; 8].into(),
        };
        // Of a source-specific group this host must be the source.
        let bind = SocketAddr::new(to.source.unwrap_or(any), 0);
        let (socket, _) = mediator::group_socket(bind, self.interface.as_deref(), self.ttl)?;
        Ok(Sink::Group(socket, to.group))
    }
}

/// Where frames are sent.
#[derive(Debug)]
enum Sink {
    Group(UdpSocket, SocketAddr),
    Http(Upload),
}

impl Sink {
    fn send(&mut self, frame: &[u8], cancel: &Cancel) -> Result<(), Error> {
        match self {
            Sink::Group(socket, to) => {
                let transmit = Transmit {
                    source: None,
                    destination: *to,
                    bytes: frame,
                    segment_len: None,
                };
                loop {
                    match socket.send(&transmit) {
                        Ok(_) => return Ok(()),
                        Err(SendError::WouldBlock) => {
                            let writable = Watch::writable(socket.as_fd());
                            let mut watches = [writable, Watch::readable(cancel.as_fd())];
                            poll::wait(&mut watches, None)?;
                        }
                        Err(error) => return Err(io::Error::other(error).into()),
                    }
                    if cancel.is_cancelled() {
                        return Err(Error::Cancelled);
                    }
                }
            }
            Sink::Http(upload) => upload.send(frame).map_err(Error::Http),
        }
    }
}

/// What was published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Published {
    /// Frames sent.
    pub frames: u64,
    /// Bytes of payload sent.
    pub bytes: u64,
    /// Their BLAKE3 digest.
    pub digest: [u8; 32],
}

/// The source of a session. It blocks, and must not run on a thread of a tokio runtime.
#[derive(Debug)]
pub struct Publisher {
    sink: Sink,
    cancel: Cancel,
    numbered: bool,
    rate: Option<NonZeroU64>,
    started: Option<Instant>,
    frame: Vec<u8>,
    frames: u64,
    bytes: u64,
    hasher: blake3::Hasher,
}

impl Publisher {
    /// Opens the socket, or connects to the server.
    ///
    /// # Errors
    /// The session is not of a network that can be published to, or the socket or the server fails.
    pub fn open(options: &PublishOptions, cancel: &Cancel) -> Result<Self, Error> {
        Ok(Publisher {
            sink: options.sink()?,
            cancel: cancel.clone(),
            numbered: is_numbered(&options.session),
            rate: options.rate,
            started: None,
            frame: Vec::new(),
            frames: 0,
            bytes: 0,
            hasher: blake3::Hasher::new(),
        })
    }

    /// Sends a frame with that payload, at most [`frames::MAX_PAYLOAD`] bytes, when the rate permits it.
    /// Blocks meanwhile, and while the network does not take it.
    ///
    /// # Errors
    /// The network or the server does not take it, or the session was cancelled.
    pub fn send(&mut self, payload: &[u8]) -> Result<(), Error> {
        if self.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        self.pace();
        let payload_frame = match self.numbered {
            true => {
                frames::emit_data(self.frames, payload, &mut self.frame);
                &self.frame[..]
            }
            false => payload,
        };
        self.sink.send(payload_frame, &self.cancel)?;
        self.hasher.update(payload);
        self.frames += 1;
        self.bytes += payload.len() as u64;
        Ok(())
    }

    /// Sleeps until the frames before this one have left at the rate.
    fn pace(&mut self) {
        let elapsed = self.started.get_or_insert_with(Instant::now).elapsed();
        let Some(rate) = self.rate else { return };
        let micros = u128::from(self.bytes) * 8_000_000 / u128::from(rate.get());
        let due = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        if due > elapsed + MIN_PAUSE {
            std::thread::sleep(due - elapsed);
        }
    }

    /// Returns the counts of frames sent so far.
    #[must_use]
    pub fn published(&self) -> Published {
        Published {
            frames: self.frames,
            bytes: self.bytes,
            digest: *self.hasher.finalize().as_bytes(),
        }
    }

    /// Ends the session: sends the end of a numbered one, several times to a group, and waits for the answer
    /// of a server.
    ///
    /// # Errors
    /// As [`send`](Self::send); or the server refused the stream.
    pub fn finish(mut self) -> Result<Published, Error> {
        let published = self.published();
        if self.numbered {
            let Published {
                frames,
                bytes,
                digest,
            } = published;
            frames::emit_end(frames, bytes, &digest, &mut self.frame);
            let times = match self.sink {
                Sink::Group(..) => ENDS,
                Sink::Http(_) => 1,
            };
            for time in 0..times {
                if time > 0 {
                    std::thread::sleep(BETWEEN_ENDS);
                }
                self.sink.send(&self.frame, &self.cancel)?;
            }
        }
        match self.sink {
            Sink::Group(..) => Ok(published),
            Sink::Http(upload) => match upload.finish() {
                Ok(()) => Ok(published),
                Err(error) => Err(Error::Http(error)),
            },
        }
    }
}
