//! REQUEST and ANSWER: what clients and mediators say to each other (§5.2.1). The native networks
//! decide how it travels: to a multicast group, or as the body of HTTP requests.
//!
//! ```text
//!  REQUEST                               ANSWER
//! +-------------------------------+     +-------------------------------+
//! |  nonce: the answer has it too |     |  nonce, 0: to all who listen  |
//! +-------+-------+---------------+     +-------+-------+---------------+
//! | kind  | redir.|  0            |     | kind  |  0    |  lifetime, s  |
//! +-------+-------+---------------+     +-------+-------+---------------+
//! |  session's name               |     |  what the kind demands        |
//! +-------------------------------+     +-------------------------------+
//!                                       |  session's name               |
//!                                       +-------------------------------+
//! ```
//!
//! Kinds of REQUEST: 1 JOIN, 2 LEAVE, 3 COST: what would it cost you? `redir.`: how often the client
//! was redirected. Kinds of ANSWER: 1 TRANSLATION: a list of native addresses, one a flow (see
//! `wire::address`), to be asked for again within the lifetime; 2 NO_ROUTE: reason (4); 3 REDIRECT:
//! gateway (8), its mediator's address as text, length before it; 4 COST: cost (4).

use alloc::string::String;
use alloc::vec::Vec;

use super::no_route::Reason;
use super::reader::{Reader, name_len};
use super::{HEADER_LEN, ParseError, Type, address, body, header};
use crate::name::{MAX_FLOWS, SessionName};
use crate::types::{ChannelAddress, Cost, GatewayId};

numbered! {
    /// What a client wants.
    Want {
        /// The session.
        Join = 1 "join",
        /// No more of it.
        Leave = 2 "leave",
        /// To know what it would cost through this gateway (§7, access selection).
        Cost = 3 "cost",
    }
}

/// A REQUEST.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// Random; the answer bears the same. Not 0.
    pub nonce: u32,
    /// What is wanted.
    pub want: Want,
    /// How often the client was redirected for this.
    pub redirects: u8,
    /// The session.
    pub session: SessionName,
}

impl Request {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not a REQUEST, or a field is out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::Request)?;
        let nonce = reader.u32()?;
        let want = Want::from_number(reader.u8()?).ok_or(ParseError::Value)?;
        let redirects = reader.u8()?;
        reader.reserved(2)?;
        let session = reader.name()?;
        reader.end()?;
        if nonce == 0 {
            return Err(ParseError::Value);
        }
        Ok(Request {
            nonce,
            want,
            redirects,
            session,
        })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + 8 + name_len(&self.session)
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Request::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::Request, self.buffer_len());
        writer.u32(self.nonce);
        writer.u8(self.want as u8);
        writer.u8(self.redirects);
        writer.u16(0);
        writer.name(&self.session);
    }
}

/// What a mediator answers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// The native addresses of the session's flows.
    Translation(Vec<ChannelAddress>),
    /// It cannot be had here.
    NoRoute(Reason),
    /// Another gateway of this network is nearer.
    Redirect {
        /// Which.
        gateway: GatewayId,
        /// Where its mediator is: as the native network's clients understand it, at most
        /// [`MAX_TEXT_LEN`](super::reader::MAX_TEXT_LEN) bytes.
        mediator: String,
    },
    /// What it would cost.
    Cost(Cost),
}

/// An ANSWER.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AnswerRepr {
    /// The request's nonce; 0 if it is meant for all who listen.
    pub nonce: u32,
    /// How long a TRANSLATION holds unless the client asks again, in seconds.
    pub lifetime_s: u16,
    /// The answer.
    pub answer: Answer,
    /// The session.
    pub session: SessionName,
}

impl AnswerRepr {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not an ANSWER, or a field is out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::Answer)?;
        let nonce = reader.u32()?;
        let kind = reader.u8()?;
        reader.reserved(1)?;
        let lifetime_s = reader.u16()?;
        let answer = parse_answer(kind, &mut reader)?;
        let session = reader.name()?;
        reader.end()?;
        if let Answer::Translation(addresses) = &answer
            && addresses.len() != session.flow_count()
        {
            return Err(ParseError::Value);
        }
        Ok(AnswerRepr {
            nonce,
            lifetime_s,
            answer,
            session,
        })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        let answer = match &self.answer {
            Answer::Translation(addresses) => {
                2 + addresses.iter().map(address::buffer_len).sum::<usize>()
            }
            Answer::NoRoute(_) | Answer::Cost(_) => 4,
            Answer::Redirect { mediator, .. } => 9 + mediator.len(),
        };
        HEADER_LEN + 8 + answer + name_len(&self.session)
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`AnswerRepr::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::Answer, self.buffer_len());
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
            Answer::Translation(addresses) => {
                writer.list(addresses, |writer, one| address::emit(one, writer));
            }
            Answer::NoRoute(reason) => writer.u32(*reason as u32),
            Answer::Redirect { gateway, mediator } => {
                writer.gateway(*gateway);
                writer.text(mediator);
            }
            Answer::Cost(cost) => writer.u32(cost.0),
        }
        writer.name(&self.session);
    }
}

fn parse_answer(kind: u8, reader: &mut Reader<'_>) -> Result<Answer, ParseError> {
    Ok(match kind {
        1 => Answer::Translation(reader.list(MAX_FLOWS, address::parse)?),
        2 => {
            let number = u8::try_from(reader.u32()?).ok();
            Answer::NoRoute(
                number
                    .and_then(Reason::from_number)
                    .ok_or(ParseError::Value)?,
            )
        }
        3 => Answer::Redirect {
            gateway: reader.gateway()?,
            mediator: reader.text()?,
        },
        4 => Answer::Cost(reader.cost()?),
        _ => return Err(ParseError::Value),
    })
}
