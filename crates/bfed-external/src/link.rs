//! One connection of a client: handshake, liveness, and queues in both directions.

use bfed::{Duration, Instant};
use serde::Serialize;

use crate::VERSION;
use crate::frame::{Decoder, FrameError, Type};
use crate::message::{ClientMessage, Failure, Greeting, Part};
use crate::queue::Queue;

/// Time for a client's HELLO.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which a client from which nothing came is taken for dead.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bounds of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Most bytes of real-time data that wait for the client.
    pub queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { queue: 4 << 20 }
    }
}

/// Why a connection must be closed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Closed {
    /// The client broke the protocol.
    Broken(FrameError),
    /// No HELLO came within [`GREETING_TIMEOUT`].
    NoHello,
    /// Nothing came for [`SILENCE_TIMEOUT`].
    Silent,
    /// The client does not read: [`MAX_CONTROL`](crate::MAX_CONTROL) bytes of messages wait.
    Unread,
}

impl core::fmt::Display for Closed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Closed::Broken(why) => why.fmt(f),
            Closed::NoHello => f.write_str("no HELLO came in 5 s"),
            Closed::Silent => f.write_str("the client was silent for 10 s; it must answer PING"),
            Closed::Unread => f.write_str("the client does not read its socket"),
        }
    }
}

impl core::error::Error for Closed {}

/// A connection.
#[derive(Debug)]
pub struct Link {
    part: Part,
    input: Decoder,
    pub(crate) output: Queue,
    /// Name of the client, after its HELLO.
    client: Option<String>,
    opened: Instant,
    last_input: Instant,
    pinged: bool,
    /// The socket is not read, because data waits for paused channels.
    stalled: bool,
    /// The client does not read.
    unread: bool,
}

impl Link {
    /// Creates the machine of a connection that has just been accepted.
    #[must_use]
    pub fn new(now: Instant, greeting: &Greeting) -> Self {
        let mut output = Queue::default();
        output.push(Type::Hello, 0, greeting);
        Link {
            part: greeting.part(),
            input: Decoder::default(),
            output,
            client: None,
            opened: now,
            last_input: now,
            pinged: false,
            stalled: false,
            unread: false,
        }
    }

    /// Returns the client's name for itself, as soon as it has greeted.
    #[must_use]
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// Returns whether the socket should be read.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        !self.stalled
    }

    /// Returns room for input. Drain the messages before.
    pub fn space(&mut self) -> &mut [u8] {
        self.input.space()
    }

    /// Says that `len` bytes were read into [`space`](Self::space).
    pub fn filled(&mut self, now: Instant, len: usize) {
        self.input.filled(len);
        if len > 0 {
            self.last_input = now;
            self.pinged = false;
        }
    }

    /// Stops or continues to read. A client that is not read cannot be heard, so its silence does not count.
    pub(crate) fn set_stalled(&mut self, now: Instant, stalled: bool) {
        if self.stalled && !stalled {
            self.last_input = now;
        }
        self.stalled = stalled;
    }

    /// Returns the next message that came. HELLO, PING and PONG are handled here. `None` until more input is there, and
    /// while the client is not read.
    ///
    /// # Errors
    /// The connection must be closed.
    pub fn next_message(&mut self) -> Result<Option<ClientMessage<'_>>, Closed> {
        loop {
            if self.stalled {
                return Ok(None);
            }
            let Some((header, place)) = self.input.next_frame().map_err(Closed::Broken)? else {
                return Ok(None);
            };
            let (kind, channel) = (header.kind, header.channel);
            let expected = match (kind, self.part) {
                (Type::Hello, _) => self.client.is_none(),
                (_, _) if self.client.is_none() => return Err(Closed::Broken(FrameError::Order)),
                (Type::Lend | Type::Data, part) => part != Part::Control,
                (Type::Join | Type::Leave, part) => part == Part::Control,
                _ => true,
            };
            if !expected {
                return Err(Closed::Broken(match kind {
                    Type::Hello => FrameError::Order,
                    _ => FrameError::Unexpected,
                }));
            }
            match kind {
                Type::Hello => self.greeted(channel, place)?,
                Type::Ping if self.output.push_empty(Type::Pong, channel) => {}
                Type::Ping => return Err(Closed::Unread),
                Type::Pong => {}
                _ => {
                    let body = self.input.body(place);
                    let message = ClientMessage::parse(kind, channel, body);
                    return message.map(Some).map_err(Closed::Broken);
                }
            }
        }
    }

    fn greeted(&mut self, channel: u64, place: core::ops::Range<usize>) -> Result<(), Closed> {
        let parsed = ClientMessage::parse(Type::Hello, channel, self.input.body(place));
        let ClientMessage::Hello(hello) = parsed.map_err(Closed::Broken)? else {
            return Err(Closed::Broken(FrameError::Body));
        };
        if hello.version != VERSION {
            return Err(Closed::Broken(FrameError::Version));
        }
        let printable = hello.name.chars().filter(|char| !char.is_control());
        self.client = Some(printable.take(64).collect());
        Ok(())
    }

    /// Sends a message.
    pub fn send(&mut self, kind: Type, channel: u64, body: &impl Serialize) {
        self.unread |= !self.output.push(kind, channel, body);
    }

    /// Sends a message without a body.
    pub(crate) fn send_empty(&mut self, kind: Type, channel: u64) {
        self.unread |= !self.output.push_empty(kind, channel);
    }

    /// Says why the connection is closed; the driver writes what the socket takes of it.
    pub fn refuse(&mut self, why: &str) {
        self.output.push(Type::Error, 0, &Failure { error: why });
    }

    /// Returns the bytes to write next; empty if there are none.
    pub fn output(&mut self) -> &[u8] {
        self.output.output()
    }

    /// Says that the first `len` bytes of [`output`](Self::output) were written.
    pub fn sent(&mut self, len: usize) {
        self.output.sent(len);
    }

    /// Handles the passing of time.
    ///
    /// # Errors
    /// The connection must be closed.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Closed> {
        if self.unread {
            return Err(Closed::Unread);
        }
        if self.client.is_none() {
            return match self.opened + GREETING_TIMEOUT <= now {
                true => Err(Closed::NoHello),
                false => Ok(()),
            };
        }
        if self.stalled {
            return Ok(());
        }
        if self.last_input + SILENCE_TIMEOUT <= now {
            return Err(Closed::Silent);
        }
        if !self.pinged && self.last_input + SILENCE_TIMEOUT / 2 <= now {
            self.pinged = true;
            self.send_empty(Type::Ping, 0);
        }
        Ok(())
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.client {
            _ if self.unread => Some(self.opened),
            None => Some(self.opened + GREETING_TIMEOUT),
            Some(_) if self.stalled => None,
            Some(_) if self.pinged => Some(self.last_input + SILENCE_TIMEOUT),
            Some(_) => Some(self.last_input + SILENCE_TIMEOUT / 2),
        }
    }
}
