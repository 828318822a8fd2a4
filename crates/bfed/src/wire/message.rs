//! Any control message.

use super::reader::{Field, Reader, Writer};
use super::{
    Body, ParseError, Type, allocate, client, echo, join, liveness, no_route, node, notification,
    open, reclaim, sroute, statistics, subscribe, translation, update,
};
use crate::name::SessionName;
use crate::types::Table;

/// Defines [`Message`] from its variants, the types of message that each stands for, and how the content is read and
/// written: as a [`Body`] or a [`Field`].
macro_rules! messages {
    ($($(#[doc = $doc:literal])+ $name:ident($of:ty) = $($kind:ident)|+ $(as $field:ident)?,)+) => {
        /// A control message of any type.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Message {
            /// KEEPALIVE, which has no fields.
            KeepAlive,
            $($(#[doc = $doc])+ $name($of),)+
        }

        impl Body for Message {
            fn parse_body(kind: Type, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
                Ok(match kind {
                    Type::KeepAlive => Message::KeepAlive,
                    $($(Type::$kind)|+ => Message::$name(messages!(parse kind, reader $(, $field)?)),)+
                })
            }

            fn emit_body(&self, writer: &mut Writer<'_>) -> Type {
                match self {
                    Message::KeepAlive => Type::KeepAlive,
                    $(Message::$name(content) => messages!(emit $name, content, writer $(, $field)?),)+
                }
            }
        }
    };
    (parse $kind:ident, $reader:ident) => { Body::parse_body($kind, $reader)? };
    (parse $kind:ident, $reader:ident, Field) => { Field::parse($reader)? };
    (emit $name:ident, $content:ident, $writer:ident) => { $content.emit_body($writer) };
    (emit $name:ident, $content:ident, $writer:ident, Field) => {{
        $content.emit($writer);
        Type::$name
    }};
}

messages! {
    /// OPEN.
    Open(open::Repr) = Open,
    /// NOTIFICATION.
    Notification(notification::Repr) = Notification,
    /// UPDATE without errors.
    Update(update::Repr) = Update,
    /// END_OF_TABLE: the sender has announced all its routes of the table (RFC 4724 §2).
    EndOfTable(Table) = EndOfTable as Field,
    /// ECHO_REQUEST or ECHO_REPLY.
    Echo(echo::Repr) = EchoRequest | EchoReply,
    /// SROUTE_REQUEST.
    SrouteRequest(sroute::Request) = SrouteRequest,
    /// SROUTE_RESPONSE.
    SrouteResponse(sroute::Response) = SrouteResponse,
    /// JOIN.
    Join(join::Repr) = Join,
    /// LEAVE (§5.2.3): the sender no longer wants the session.
    Leave(SessionName) = Leave as Field,
    /// TRANSLATION.
    Translation(translation::Repr) = Translation,
    /// NO_ROUTE.
    NoRoute(no_route::Repr) = NoRoute,
    /// REGISTER.
    Register(node::Register) = Register,
    /// HEARTBEAT.
    Heartbeat(node::Heartbeat) = Heartbeat,
    /// SUBSCRIBE_DOWN or SUBSCRIBE_UP.
    Subscribe(subscribe::Repr) = SubscribeDown | SubscribeUp,
    /// ALLOCATE.
    Allocate(allocate::Request) = Allocate,
    /// ALLOCATE_RESPONSE.
    AllocateResponse(allocate::Response) = AllocateResponse,
    /// REFRESH or RECLAIM.
    Reclaim(reclaim::Repr) = Refresh | Reclaim,
    /// STATISTICS.
    Statistics(statistics::Repr) = Statistics,
    /// LIVENESS.
    Liveness(liveness::Repr) = Liveness,
    /// REQUEST of a client.
    Request(client::Request) = Request,
    /// ANSWER to a client.
    Answer(client::AnswerRepr) = Answer,
}

whole_messages!(Message);
