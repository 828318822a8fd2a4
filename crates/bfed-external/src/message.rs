//! Messages: the bodies of frames. Objects may have keys that this release does not know; they are ignored.

use bfed::native::NativeFlow;
use bfed::wire::address::MAX_NATIVE_ADDRESS_LEN;
use bfed::{ChannelAddress, Content, GatewayId};
use serde::{Deserialize, Serialize};

use crate::frame::{FrameError, Type};
use crate::{MAX_DATA_LEN, SILENCE_TIMEOUT, VERSION};

/// A message of a client, after its HELLO.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientMessage<'a> {
    /// LEND.
    Lend(Vec<String>),
    /// DATA.
    Data {
        /// The channel.
        channel: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// JOIN.
    Join(Wanted),
    /// LEAVE.
    Leave(Wanted),
    /// PING.
    Ping,
    /// PONG.
    Pong,
    /// HELLO.
    Hello(ClientHello),
}

/// The body of a client's HELLO.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientHello {
    /// Version of the protocol.
    pub version: u32,
    /// Name of the client, for the log.
    #[serde(default)]
    pub name: String,
}

/// The body of JOIN and LEAVE.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// Name of the session, as the client wrote it.
    pub session: String,
    /// Token, where the network requires one.
    #[serde(default)]
    pub token: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Lend {
    addresses: Vec<String>,
}

impl<'a> ClientMessage<'a> {
    /// Parses the body of a frame.
    ///
    /// # Errors
    /// [`FrameError::Body`], or [`FrameError::Unexpected`] for what only gateways send.
    pub fn parse(kind: Type, channel: u64, body: &'a [u8]) -> Result<Self, FrameError> {
        Ok(match kind {
            Type::Hello => ClientMessage::Hello(json(body)?),
            Type::Ping => ClientMessage::Ping,
            Type::Pong => ClientMessage::Pong,
            Type::Lend => ClientMessage::Lend(json::<Lend>(body)?.addresses),
            Type::Data => ClientMessage::Data {
                channel,
                bytes: body,
            },
            Type::Join => ClientMessage::Join(json(body)?),
            Type::Leave => ClientMessage::Leave(json(body)?),
            Type::Error
            | Type::Present
            | Type::Reclaim
            | Type::Subscribe
            | Type::Refresh
            | Type::Unsubscribe
            | Type::Pause
            | Type::Resume
            | Type::Answer => return Err(FrameError::Unexpected),
        })
    }
}

fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, FrameError> {
    // A list would pass for the fields of an object in their order.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(FrameError::Body);
    }
    serde_json::from_slice(body).map_err(|_| FrameError::Body)
}

/// Returns whether text can be an address: 1 to 512 bytes without control characters.
#[must_use]
pub fn is_address(text: &str) -> bool {
    (1..=MAX_NATIVE_ADDRESS_LEN).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// The part of a gateway that a socket belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// The control node: JOIN, LEAVE, ANSWER.
    Control,
    /// A data node: `part` of `parts` in its process, from 0.
    Data {
        /// Which one.
        part: usize,
        /// How many there are.
        parts: usize,
    },
}

/// The body of the gateway's HELLO.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Greeting {
    protocol: &'static str,
    version: u32,
    network: u32,
    gateway: u32,
    role: &'static str,
    part: usize,
    parts: usize,
    max_data: usize,
    silence_timeout_s: u64,
    #[serde(skip)]
    of: Part,
}

impl Greeting {
    /// Creates the greeting of a part of a gateway.
    #[must_use]
    pub fn new(gateway: GatewayId, of: Part) -> Self {
        let (role, part, parts) = match of {
            Part::Control => ("control", 0, 1),
            Part::Data { part, parts } => ("data", part, parts),
        };
        Greeting {
            protocol: "polycast-external",
            version: VERSION,
            network: gateway.network.get(),
            gateway: gateway.number,
            role,
            part,
            parts,
            max_data: MAX_DATA_LEN,
            silence_timeout_s: SILENCE_TIMEOUT.total_micros() / 1_000_000,
            of,
        }
    }

    /// Returns the part of the gateway.
    #[must_use]
    pub fn part(&self) -> Part {
        self.of
    }
}

/// The body of PRESENT and SUBSCRIBE.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Flow<'a> {
    session: &'a str,
    flow: &'a str,
    content: &'static str,
    multi_source: bool,
    address: Option<&'a str>,
    /// Whether the channel was there before this connection.
    resumed: bool,
}

impl<'a> Flow<'a> {
    /// Creates the body for a flow and its address.
    #[must_use]
    pub fn new(flow: NativeFlow<'a>, address: Option<&'a str>, resumed: bool) -> Self {
        Flow {
            session: flow.session.as_str(),
            flow: flow.name,
            content: match flow.session.content() {
                Content::Bulk => "bulk-data",
                Content::RealTime => "real-time",
            },
            multi_source: flow.session.multi_source(),
            address,
            resumed,
        }
    }
}

/// The body of RECLAIM.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reclaimed<'a> {
    /// The address, which the client may lend again.
    pub address: &'a str,
}

/// The body of ANSWER.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum Answered {
    /// The session is available.
    Addresses {
        /// Name of the session in normal form.
        session: String,
        /// Address of each flow.
        addresses: Vec<String>,
        /// Seconds within which the client joins again.
        lifetime_s: u16,
    },
    /// It is not.
    Refused {
        /// Name of the session; as the client wrote it, if it is none.
        session: String,
        /// Why, for people.
        error: String,
    },
}

impl Answered {
    /// Creates the answer of a session that is available.
    #[must_use]
    pub fn addresses(session: &str, addresses: &[ChannelAddress], lifetime_s: u16) -> Self {
        let text = |address: &ChannelAddress| match address {
            ChannelAddress::Native(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        };
        Answered::Addresses {
            session: session.to_owned(),
            addresses: addresses.iter().filter_map(text).collect(),
            lifetime_s,
        }
    }
}

/// The body of ERROR.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Failure<'a> {
    /// What is wrong, for people.
    pub error: &'a str,
}
