//! ECHO_REQUEST and ECHO_REPLY: the round trip between two control nodes (compare RFC 4443 §4).
//!
//! ```text
//! +---------------------------------------------------------------+
//! |  token (8): random in a request, copied into its reply        |
//! +---------------------------------------------------------------+
//! ```

use super::reader::{Field, Reader, Writer};
use super::{Body, ParseError, Type};

/// An ECHO_REQUEST or an ECHO_REPLY.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// Whether it answers a request.
    pub reply: bool,
    /// Random, so that a reply cannot be sent before the request has arrived.
    pub token: u64,
}

impl Body for Repr {
    fn parse_body(kind: Type, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let reply = match kind {
            Type::EchoRequest => false,
            Type::EchoReply => true,
            _ => return Err(ParseError::Type),
        };
        let token = reader.get()?;
        Ok(Repr { reply, token })
    }

    fn emit_body(&self, writer: &mut Writer<'_>) -> Type {
        self.token.emit(writer);
        match self.reply {
            true => Type::EchoReply,
            false => Type::EchoRequest,
        }
    }
}

whole_messages!(Repr);
