//! Wire formats, as drawn in `docs/wire.md`.
//!
//! Control messages (between gateways, between control and data nodes, between clients and
//! mediators) share one header; [`Header`] is the view of it, and each message is a `Repr` with
//! `parse`, `buffer_len` and `emit` over the whole message. [`Message`] is any of them. On byte
//! streams [`Frames`] cuts them apart. Data packets have a header of their own, in [`data`].
//!
//! ```text
//! +-------------------------------+---------------+---------------+
//! |  identifier 0x6266 "bf"       |  version 1    |  type         |
//! +-------------------------------+---------------+---------------+
//! |  length of the message, header included       |  0            |
//! |  (16 bits)                    |               |  (16 bits)    |
//! +-------------------------------+-------------------------------+
//! ```
//!
//! Parsers are total: any bytes give a value or an error, never a panic, and what they allocate is
//! bounded by the message, which is bounded by [`MAX_MESSAGE_LEN`].

use core::fmt;

macro_rules! numbered {
    ($(#[doc = $top:literal])+ $name:ident {
        $($(#[doc = $doc:literal])+ $variant:ident = $number:literal $text:literal,)+
    }) => {
        $(#[doc = $top])+
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[doc = $doc])+ $variant = $number,)+
        }

        impl $name {
            /// Every one of them.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// The one with that number.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some($name::$variant),)+
                    _ => None,
                }
            }

            /// A name for metrics: lower case, underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text),+
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub mod address;
pub mod allocate;
pub mod attributes;
pub mod client;
pub mod data;
pub mod fragment;
pub mod join;
pub mod leave;
pub mod liveness;
mod message;
pub mod no_route;
pub mod node;
pub mod notification;
pub mod open;
pub mod reader;
pub mod reclaim;
pub mod report;
pub mod sroute;
pub mod statistics;
pub mod subscribe;
pub mod translation;
pub mod update;

pub use message::Message;

use proto_core::frames::Framing;

use reader::{Reader, Writer};

/// Length of the header of a control message.
pub const HEADER_LEN: usize = 8;
/// Longest control message, header included.
pub const MAX_MESSAGE_LEN: usize = 16 * 1024;
/// The version this crate speaks.
pub const VERSION: u8 = 1;
/// What every control message begins with.
pub const IDENTIFIER: u16 = 0x6266;

numbered! {
    /// What a control message is.
    Type {
        /// Peers: who I am and what I can do.
        Open = 1 "open",
        /// Peers: still there.
        KeepAlive = 2 "keepalive",
        /// Peers: why this session ends.
        Notification = 3 "notification",
        /// Peers: routes (§5.1).
        Update = 4 "update",
        /// Peers: the full table was sent.
        EndOfTable = 5 "end_of_table",
        /// Peers: what do your gateways cost for this session (§5.2.2).
        SrouteRequest = 16 "sroute_request",
        /// Peers: that is what they cost.
        SrouteResponse = 17 "sroute_response",
        /// Peers: send me this session (§5.2.3).
        Join = 18 "join",
        /// Peers: no more of it.
        Leave = 19 "leave",
        /// Peers: that is how it will come (§5.3).
        Translation = 20 "translation",
        /// Peers: it will not.
        NoRoute = 21 "no_route",
        /// Data node: who I am.
        Register = 32 "register",
        /// Cluster: still there.
        Heartbeat = 33 "heartbeat",
        /// Control node: send the session to somebody (§5.3.1).
        SubscribeDown = 34 "subscribe_down",
        /// Control node: receive it from there.
        SubscribeUp = 35 "subscribe_up",
        /// Control node: make channels to receive it on.
        Allocate = 36 "allocate",
        /// Data node: those are the channels.
        AllocateResponse = 37 "allocate_response",
        /// Control node: the session lives.
        Refresh = 38 "refresh",
        /// Control node: the session, or one receiver of it, is gone.
        Reclaim = 39 "reclaim",
        /// Data node: how much went through.
        Statistics = 40 "statistics",
        /// Data node: whether a peer's data nodes are heard.
        Liveness = 41 "liveness",
        /// Client: a request to a mediator (§5.2.1).
        Request = 48 "request",
        /// Mediator: the answer to it.
        Answer = 49 "answer",
    }
}

/// Why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParseError {
    /// Shorter than its fields demand.
    Truncated,
    /// Another protocol.
    Identifier,
    /// Another version of this protocol.
    Version,
    /// An unknown type, or not the one that was to be read.
    Type,
    /// Longer than allowed, or longer than its fields.
    Length,
    /// Reserved bits are set.
    Reserved,
    /// A field is out of its bounds.
    Value,
    /// Not the name of a session in normal form.
    Name,
}

impl ParseError {
    /// Every error.
    pub const ALL: &[ParseError] = &[
        ParseError::Truncated,
        ParseError::Identifier,
        ParseError::Version,
        ParseError::Type,
        ParseError::Length,
        ParseError::Reserved,
        ParseError::Value,
        ParseError::Name,
    ];
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParseError::Truncated => "message is cut short",
            ParseError::Identifier => "not a message of the federation",
            ParseError::Version => "another version of the protocol",
            ParseError::Type => "unexpected message type",
            ParseError::Length => "message length does not fit its fields",
            ParseError::Reserved => "reserved bits are set",
            ParseError::Value => "a field is out of its bounds",
            ParseError::Name => "not the name of a session in normal form",
        })
    }
}

impl core::error::Error for ParseError {}

/// The header of a control message: a view.
#[derive(Clone, Copy, Debug)]
pub struct Header<T: AsRef<[u8]>> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// A view of `buffer`, which begins with a whole header; the rest of the message may be missing.
    ///
    /// # Errors
    /// The header is not one of ours.
    pub fn new_checked(buffer: T) -> Result<Self, ParseError> {
        let bytes = buffer.as_ref();
        if bytes.len() < HEADER_LEN {
            return Err(ParseError::Truncated);
        }
        if bytes[..2] != IDENTIFIER.to_be_bytes() {
            return Err(ParseError::Identifier);
        }
        if bytes[2] != VERSION {
            return Err(ParseError::Version);
        }
        let len = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        if !(HEADER_LEN..=MAX_MESSAGE_LEN).contains(&len) {
            return Err(ParseError::Length);
        }
        if bytes[6..8] != [0, 0] {
            return Err(ParseError::Reserved);
        }
        Ok(Header { buffer })
    }

    /// The number of the message's type, known or not.
    pub fn type_number(&self) -> u8 {
        self.buffer.as_ref()[3]
    }

    /// The message's type.
    ///
    /// # Errors
    /// It is unknown.
    pub fn message_type(&self) -> Result<Type, ParseError> {
        Type::from_number(self.type_number()).ok_or(ParseError::Type)
    }

    /// Length of the whole message in bytes, header included.
    pub fn message_len(&self) -> usize {
        let bytes = self.buffer.as_ref();
        usize::from(u16::from_be_bytes([bytes[4], bytes[5]]))
    }
}

/// The header of [`Frames`].
#[derive(Clone, Debug)]
pub enum ControlFraming {}

impl Framing for ControlFraming {
    const HEADER_LEN: usize = HEADER_LEN;
    type Error = ParseError;

    fn frame_len(header: &[u8]) -> Result<usize, ParseError> {
        Ok(Header::new_checked(header)?.message_len())
    }
}

/// Cuts a byte stream into messages of at most [`MAX_MESSAGE_LEN`] bytes. After an error the machine takes what has
/// arrived of the message ([`Frames::partial`]), so that it can tell the peer why.
pub type Frames = proto_core::frames::Frames<ControlFraming>;

/// The body of a whole message of that type.
fn body(bytes: &[u8], expected: Type) -> Result<Reader<'_>, ParseError> {
    let header = Header::new_checked(bytes)?;
    if header.message_type()? != expected {
        return Err(ParseError::Type);
    }
    match bytes.len().cmp(&header.message_len()) {
        core::cmp::Ordering::Less => Err(ParseError::Truncated),
        core::cmp::Ordering::Greater => Err(ParseError::Length),
        core::cmp::Ordering::Equal => Ok(Reader::new(&bytes[HEADER_LEN..])),
    }
}

/// Writes a header for a message that fills `buffer` up to `len`; a writer for its body.
///
/// # Panics
/// `buffer` is shorter than `len`, or `len` is beyond [`MAX_MESSAGE_LEN`].
fn header(buffer: &mut [u8], kind: Type, len: usize) -> Writer<'_> {
    assert!(len <= MAX_MESSAGE_LEN, "a message is longer than allowed");
    let mut writer = Writer::new(&mut buffer[..len]);
    writer.u16(IDENTIFIER);
    writer.u8(VERSION);
    writer.u8(kind as u8);
    writer.u16(len as u16);
    writer.u16(0);
    writer
}
