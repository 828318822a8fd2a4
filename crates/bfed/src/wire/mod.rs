//! Wire formats, as drawn in `docs/wire.md`.
//!
//! Control messages (between gateways, between control and data nodes, between clients and
//! mediators) share one header; [`Header`] is the view of it. Each message is a struct with
//! `parse`, `buffer_len` and `emit` over the whole message, and [`Message`] is any of them. On byte
//! streams [`Frames`] separates them. Data packets have a header of their own, see [`data`].
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
//! OPEN and NOTIFICATION have version 1 in their header in all versions of the protocol: with them two sides agree on a
//! version, or learn that they have none in common.
//!
//! Parsers are total: any bytes give a value or an error, never a panic, and their allocations are
//! bounded by the message, which is bounded by [`MAX_MESSAGE_LEN`].

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
            /// All variants.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// Returns the variant with a number, `None` if there is none.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some($name::$variant),)+
                    _ => None,
                }
            }

            /// Returns the name for metrics: lower case, underscores.
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

        impl $crate::wire::reader::Field for $name {
            fn parse(
                reader: &mut $crate::wire::reader::Reader<'_>,
            ) -> Result<Self, $crate::wire::ParseError> {
                Self::from_number(reader.u8()?).ok_or($crate::wire::ParseError::Value)
            }

            fn emit(&self, writer: &mut $crate::wire::reader::Writer<'_>) {
                writer.u8(*self as u8);
            }
        }
    };
}

/// Defines a struct whose fields follow one another on the wire.
///
/// `=> reserved N` after a field stands for N bytes of 0 that follow it; `check` is a condition on the values.
macro_rules! fields {
    ($(#[$top:meta])* $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty $(=> reserved $zeros:literal)?,)*
    } $(check $check:expr)?) => {
        $(#[$top])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $crate::wire::reader::Field for $name {
            fn parse(
                reader: &mut $crate::wire::reader::Reader<'_>,
            ) -> Result<Self, $crate::wire::ParseError> {
                $(
                    let $field = $crate::wire::reader::Field::parse(reader)?;
                    $(reader.reserved($zeros)?;)?
                )*
                let value = $name { $($field),* };
                $(
                    let check: fn(&$name) -> bool = $check;
                    if !check(&value) {
                        return Err($crate::wire::ParseError::Value);
                    }
                )?
                Ok(value)
            }

            fn emit(&self, writer: &mut $crate::wire::reader::Writer<'_>) {
                $(
                    self.$field.emit(writer);
                    $(writer.bytes(&[0; $zeros]);)?
                )*
            }
        }
    };
}

/// Defines a message of one type as a struct of [fields](fields).
macro_rules! message {
    ($(#[$top:meta])* $name:ident = $kind:ident { $($fields:tt)* } $(check $check:expr)?) => {
        fields! { $(#[$top])* $name { $($fields)* } $(check $check)? }

        impl $crate::wire::Body for $name {
            fn parse_body(
                kind: $crate::wire::Type,
                reader: &mut $crate::wire::reader::Reader<'_>,
            ) -> Result<Self, $crate::wire::ParseError> {
                match kind {
                    $crate::wire::Type::$kind => $crate::wire::reader::Field::parse(reader),
                    _ => Err($crate::wire::ParseError::Type),
                }
            }

            fn emit_body(
                &self,
                writer: &mut $crate::wire::reader::Writer<'_>,
            ) -> $crate::wire::Type {
                $crate::wire::reader::Field::emit(self, writer);
                $crate::wire::Type::$kind
            }
        }

        whole_messages!($name);
    };
}

/// Gives a [`Body`] its methods over whole messages.
macro_rules! whole_messages {
    ($name:ident) => {
        impl $name {
            /// Parses a whole message, header included.
            ///
            /// # Errors
            /// It is not a whole message of this type, or a field is out of bounds.
            pub fn parse(bytes: &[u8]) -> Result<Self, $crate::wire::ParseError> {
                $crate::wire::parse_whole(bytes)
            }

            /// Returns the length of the message in bytes, header included.
            #[must_use]
            pub fn buffer_len(&self) -> usize {
                let mut writer = $crate::wire::reader::Writer::counting();
                $crate::wire::Body::emit_body(self, &mut writer);
                $crate::wire::HEADER_LEN + writer.len()
            }

            /// Writes the message to the front of `buffer` and returns its length in bytes.
            ///
            /// # Panics
            /// `buffer` is shorter than `buffer_len`, or the message is longer than
            /// [`MAX_MESSAGE_LEN`]($crate::wire::MAX_MESSAGE_LEN).
            pub fn emit(&self, buffer: &mut [u8]) -> usize {
                $crate::wire::emit_whole(self, buffer)
            }
        }
    };
}

pub mod address;
pub mod allocate;
pub mod attributes;
pub mod class;
pub mod client;
pub mod data;
pub mod echo;
pub mod fragment;
pub mod init;
pub mod join;
pub mod liveness;
mod message;
pub mod no_route;
pub mod node;
pub mod notification;
pub mod open;
pub mod parity;
pub mod reader;
pub mod reclaim;
pub mod repair;
pub mod report;
pub mod sroute;
pub mod statistics;
pub mod subscribe;
pub mod translation;
pub mod transport;
pub mod update;

pub use message::Message;

use alloc::string::String;
use core::fmt::Display;

use proto_core::frames::Framing;

use reader::{Reader, Writer};

/// Length of the header of a control message.
pub const HEADER_LEN: usize = 8;
/// Longest control message, header included.
pub const MAX_MESSAGE_LEN: usize = 16 * 1024;
/// Version of the protocol. One more in a build of the next version (`docs/wire.md`).
pub const VERSION: u8 = 1 + cfg!(polycast_next_version) as u8;
/// Version in the header of OPEN and NOTIFICATION, which never changes.
const GREETING_VERSION: u8 = 1;
/// First two bytes of every control message.
pub const IDENTIFIER: u16 = 0x6266;

numbered! {
    /// Type of a control message.
    Type {
        /// Peers: identity and capabilities of the sender.
        Open = 1 "open",
        /// Peers: the sender is alive.
        KeepAlive = 2 "keepalive",
        /// Peers: why the session ends.
        Notification = 3 "notification",
        /// Peers: routes (§5.1).
        Update = 4 "update",
        /// Peers: the full table has been sent.
        EndOfTable = 5 "end_of_table",
        /// Peers: asks for an ECHO_REPLY.
        EchoRequest = 6 "echo_request",
        /// Peers: the answer to an ECHO_REQUEST.
        EchoReply = 7 "echo_reply",
        /// Peers: asks for the costs of the owner's gateways for a session (§5.2.2).
        SrouteRequest = 16 "sroute_request",
        /// Peers: these costs.
        SrouteResponse = 17 "sroute_response",
        /// Peers: the sender wants the session (§5.2.3).
        Join = 18 "join",
        /// Peers: the sender no longer wants the session.
        Leave = 19 "leave",
        /// Peers: channels on which the session will arrive (§5.3).
        Translation = 20 "translation",
        /// Peers: the session will not arrive.
        NoRoute = 21 "no_route",
        /// Data node: registers with its control node.
        Register = 32 "register",
        /// Cluster: the sender is alive.
        Heartbeat = 33 "heartbeat",
        /// Control node: send the session to a peer or natively (§5.3.1).
        SubscribeDown = 34 "subscribe_down",
        /// Control node: receive the session from a peer or natively.
        SubscribeUp = 35 "subscribe_up",
        /// Control node: allocate channels on which to receive the session.
        Allocate = 36 "allocate",
        /// Data node: the allocated channels.
        AllocateResponse = 37 "allocate_response",
        /// Control node: the session is still wanted.
        Refresh = 38 "refresh",
        /// Control node: the session, or one edge of it, is gone.
        Reclaim = 39 "reclaim",
        /// Data node: traffic counters.
        Statistics = 40 "statistics",
        /// Data node: state of a peer's data nodes.
        Liveness = 41 "liveness",
        /// Client: a request to a mediator (§5.2.1).
        Request = 48 "request",
        /// Mediator: the answer to a request.
        Answer = 49 "answer",
    }
}

proto_core::errors! {
    /// Why bytes are not a message.
    pub enum ParseError {
        /// Shorter than its fields require.
        Truncated = "message is cut short",
        /// Another protocol.
        Identifier = "not a message of the federation",
        /// Another version of this protocol.
        Version = "another version of the protocol",
        /// An unknown type, or not the one that was to be read.
        Type = "unexpected message type",
        /// Longer than allowed, or longer than its fields.
        Length = "message length does not fit its fields",
        /// Reserved bits are set.
        Reserved = "reserved bits are set",
        /// A field is out of its bounds.
        Value = "a field is out of its bounds",
        /// Not the name of a session in normal form.
        Name = "not the name of a session in normal form",
    }
}

/// Returns the version in the header of messages of a type, known or not.
const fn version_of_type(number: u8) -> u8 {
    const OPEN: u8 = Type::Open as u8;
    const NOTIFICATION: u8 = Type::Notification as u8;
    match number {
        OPEN | NOTIFICATION => GREETING_VERSION,
        _ => VERSION,
    }
}

/// Returns the version of a control message of another version; `None` for other bytes. The first four bytes have the
/// same meaning in all versions.
#[must_use]
pub fn other_version(bytes: &[u8]) -> Option<u8> {
    let [high, low, version, kind] = *bytes.first_chunk()?;
    let is_other = [high, low] == IDENTIFIER.to_be_bytes() && version != version_of_type(kind);
    is_other.then_some(version)
}

/// Explains to people that two sides have no version in common: the text of a NOTIFICATION. `versions` are the peer's.
#[must_use]
pub fn describe_mismatch(own: impl Display, peer: impl Display, versions: (u8, u8)) -> String {
    let versions = match versions {
        (low, high) if low == high => alloc::format!("version {low}"),
        (low, high) => alloc::format!("versions {low} to {high}"),
    };
    alloc::format!(
        "{peer} speaks {versions} of the control protocol, {own} version {VERSION}: install one release of polycast on both"
    )
}

/// The header of a control message: a view.
#[derive(Clone, Copy, Debug)]
pub struct Header<T: AsRef<[u8]>> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Returns a view of `buffer`, which begins with a whole header; the rest of the message may be missing.
    ///
    /// # Errors
    /// The header is malformed.
    pub fn new_checked(buffer: T) -> Result<Self, ParseError> {
        let bytes = buffer.as_ref();
        if other_version(bytes).is_some() {
            return Err(ParseError::Version);
        }
        if bytes.len() < HEADER_LEN {
            return Err(ParseError::Truncated);
        }
        if bytes[..2] != IDENTIFIER.to_be_bytes() {
            return Err(ParseError::Identifier);
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

    /// Returns the number of the message's type, known or not.
    pub fn type_number(&self) -> u8 {
        self.buffer.as_ref()[3]
    }

    /// Returns the message's type.
    ///
    /// # Errors
    /// The type is unknown.
    pub fn message_type(&self) -> Result<Type, ParseError> {
        Type::from_number(self.type_number()).ok_or(ParseError::Type)
    }

    /// Returns the length of the whole message in bytes, header included.
    pub fn message_len(&self) -> usize {
        let bytes = self.buffer.as_ref();
        usize::from(u16::from_be_bytes([bytes[4], bytes[5]]))
    }
}

/// Framing of control messages for [`Frames`].
#[derive(Clone, Debug)]
pub enum ControlFraming {}

impl Framing for ControlFraming {
    const HEADER_LEN: usize = HEADER_LEN;
    type Error = ParseError;

    fn frame_len(header: &[u8]) -> Result<usize, ParseError> {
        Ok(Header::new_checked(header)?.message_len())
    }
}

/// Splits a byte stream into messages of at most [`MAX_MESSAGE_LEN`] bytes. After an error the machine takes what has
/// arrived of the message ([`Frames::partial`]), so that it can send the reason to the peer.
pub type Frames = proto_core::frames::Frames<ControlFraming>;

/// What follows the header of a control message.
pub(crate) trait Body: Sized {
    /// Parses the body of a message of type `kind`.
    fn parse_body(kind: Type, reader: &mut Reader<'_>) -> Result<Self, ParseError>;

    /// Writes the body and returns the type of the message.
    fn emit_body(&self, writer: &mut Writer<'_>) -> Type;
}

/// Returns the type and the body of a whole message.
fn split(bytes: &[u8]) -> Result<(Type, Reader<'_>), ParseError> {
    let header = Header::new_checked(bytes)?;
    let kind = header.message_type()?;
    match bytes.len().cmp(&header.message_len()) {
        core::cmp::Ordering::Less => Err(ParseError::Truncated),
        core::cmp::Ordering::Greater => Err(ParseError::Length),
        core::cmp::Ordering::Equal => Ok((kind, Reader::new(&bytes[HEADER_LEN..]))),
    }
}

fn parse_whole<T: Body>(bytes: &[u8]) -> Result<T, ParseError> {
    let (kind, mut reader) = split(bytes)?;
    let message = T::parse_body(kind, &mut reader)?;
    reader.end()?;
    Ok(message)
}

fn emit_whole(message: &impl Body, buffer: &mut [u8]) -> usize {
    let (front, body) = buffer.split_at_mut(HEADER_LEN);
    let mut writer = Writer::new(body);
    let kind = message.emit_body(&mut writer);
    let len = HEADER_LEN + writer.len();
    assert!(len <= MAX_MESSAGE_LEN, "a message is longer than allowed");
    let mut writer = Writer::new(front);
    writer.u16(IDENTIFIER);
    writer.u8(version_of_type(kind as u8));
    writer.u8(kind as u8);
    writer.u16(len as u16);
    writer.u16(0);
    len
}
