//! REQUEST and ANSWER: messages between clients and mediators (§5.2.1). The native network
//! decides how they travel: to a multicast group, or as bodies of HTTP requests.
//!
//! ```text
//!  REQUEST                               ANSWER
//! +-------------------------------+     +-------------------------------+
//! |  nonce, repeated in the answer |     |  nonce, 0: to all clients     |
//! +-------+-------+---------------+     +-------+-------+---------------+
//! | kind  | redir.|  0            |     | kind  |  0    |  lifetime, s  |
//! +-------+-------+---------------+     +-------+-------+---------------+
//! |  session's name               |     |  depends on the kind          |
//! +-------------------------------+     +-------------------------------+
//! |  token: length (2), text;     |     |  session's name               |
//! |  left out if there is none    |     +-------------------------------+
//! +-------------------------------+
//! ```
//!
//! Kinds of REQUEST: 1 JOIN, 2 LEAVE, 3 COST, which asks what the session would cost through this gateway. `redir.`:
//! how often the client was redirected. Kinds of ANSWER: 1 TRANSLATION: a list of native addresses, one for each
//! flow (see `wire::address`); the client asks again within the lifetime; 2 NO_ROUTE: reason (4); 3 REDIRECT:
//! gateway (8), the address of its mediator as text after its length (1); 4 COST: cost (4).

use alloc::string::String;
use alloc::vec::Vec;

use super::no_route::Reason;
use super::reader::{Field, Reader, Writer};
use super::{Body, ParseError, Type};
use crate::name::SessionName;
use crate::types::{ChannelAddress, Cost, GatewayId};

numbered! {
    /// What a client wants.
    Want {
        /// To receive the session.
        Join = 1 "join",
        /// No longer to receive the session.
        Leave = 2 "leave",
        /// To know the cost of the session through this gateway (§7, access selection).
        Cost = 3 "cost",
    }
}

/// Longest token in bytes.
pub const MAX_TOKEN_LEN: usize = 1024;

/// A client's proof that it may have a session: printable ASCII without spaces, opaque here, at least 1 byte and at
/// most [`MAX_TOKEN_LEN`]. It is secret, and not shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(String);

impl Token {
    /// Creates a token; `None` if the text is empty, too long, or has other characters.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let fits = (1..=MAX_TOKEN_LEN).contains(&text.len());
        (fits && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Token(text.into()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl core::fmt::Debug for Token {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Token({} bytes)", self.0.len())
    }
}

impl core::str::FromStr for Token {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Token::new(text).ok_or(ParseError::Value)
    }
}

/// The last field of a message: nothing, or the length in 16 bits and the text.
impl Field for Option<Token> {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        if reader.is_empty() {
            return Ok(None);
        }
        let len = usize::from(reader.u16()?);
        if len > MAX_TOKEN_LEN {
            return Err(ParseError::Length);
        }
        let text = core::str::from_utf8(reader.bytes(len)?).map_err(|_| ParseError::Value)?;
        Token::new(text).map(Some).ok_or(ParseError::Value)
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        if let Some(token) = self {
            writer.u16(token.0.len() as u16);
            writer.bytes(token.0.as_bytes());
        }
    }
}

message! {
    /// A REQUEST.
    Request = Request {
        /// Random, repeated in the answer. Not 0.
        nonce: u32,
        /// What is wanted.
        want: Want,
        /// How often the client was redirected for this request.
        redirects: u8 => reserved 2,
        /// The session.
        session: SessionName,
        /// The client's token, where the network requires one.
        token: Option<Token>,
    }
    check |message| message.nonce != 0
}

/// A mediator's answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// The native addresses of the session's flows.
    Translation(Vec<ChannelAddress>),
    /// The session is not available here.
    NoRoute(Reason),
    /// Another gateway of this network is nearer.
    Redirect {
        /// The other gateway.
        gateway: GatewayId,
        /// Address of its mediator in the native network's form, at most
        /// [`MAX_TEXT_LEN`](super::reader::MAX_TEXT_LEN) bytes.
        mediator: String,
    },
    /// The cost of the session.
    Cost(Cost),
}

/// An ANSWER.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AnswerRepr {
    /// The request's nonce; 0 if the answer is for all clients.
    pub nonce: u32,
    /// How long a TRANSLATION is valid unless the client asks again, in seconds.
    pub lifetime_s: u16,
    /// The answer.
    pub answer: Answer,
    /// The session.
    pub session: SessionName,
}

impl Body for AnswerRepr {
    fn parse_body(kind: Type, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        if kind != Type::Answer {
            return Err(ParseError::Type);
        }
        let nonce = reader.u32()?;
        let kind = reader.u8()?;
        reader.reserved(1)?;
        let lifetime_s = reader.u16()?;
        let answer = match kind {
            1 => Answer::Translation(reader.get()?),
            2 => {
                reader.reserved(3)?;
                Answer::NoRoute(reader.get()?)
            }
            3 => Answer::Redirect {
                gateway: reader.get()?,
                mediator: reader.get()?,
            },
            4 => Answer::Cost(reader.get()?),
            _ => return Err(ParseError::Value),
        };
        let session: SessionName = reader.get()?;
        match &answer {
            Answer::Translation(addresses) if addresses.len() != session.flow_count() => {
                Err(ParseError::Value)
            }
            _ => Ok(AnswerRepr {
                nonce,
                lifetime_s,
                answer,
                session,
            }),
        }
    }

    fn emit_body(&self, writer: &mut Writer<'_>) -> Type {
        writer.u32(self.nonce);
        writer.u8(match &self.answer {
            Answer::Translation(_) => 1,
            Answer::NoRoute(_) => 2,
            Answer::Redirect { .. } => 3,
            Answer::Cost(_) => 4,
        });
        writer.u8(0);
        writer.u16(self.lifetime_s);
        match &self.answer {
            Answer::Translation(addresses) => addresses.emit(writer),
            Answer::NoRoute(reason) => writer.u32(*reason as u32),
            Answer::Redirect { gateway, mediator } => {
                gateway.emit(writer);
                mediator.emit(writer);
            }
            Answer::Cost(cost) => cost.emit(writer),
        }
        self.session.emit(writer);
        Type::Answer
    }
}

whole_messages!(AnswerRepr);
