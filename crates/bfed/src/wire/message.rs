//! Any control message.

use super::reader::{Field, Reader, Writer};
use super::{
    Body, ParseError, Type, allocate, client, join, liveness, no_route, node, notification, open,
    reclaim, sroute, statistics, subscribe, translation, update,
};
use crate::name::SessionName;
use crate::types::Table;

/// A control message of any type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// OPEN.
    Open(open::Repr),
    /// KEEPALIVE, which has no fields.
    KeepAlive,
    /// NOTIFICATION.
    Notification(notification::Repr),
    /// UPDATE without errors.
    Update(update::Repr),
    /// END_OF_TABLE: the sender has announced all its routes of the table (RFC 4724 §2).
    EndOfTable(Table),
    /// SROUTE_REQUEST.
    SrouteRequest(sroute::Request),
    /// SROUTE_RESPONSE.
    SrouteResponse(sroute::Response),
    /// JOIN.
    Join(join::Repr),
    /// LEAVE (§5.2.3): the sender no longer wants the session.
    Leave(SessionName),
    /// TRANSLATION.
    Translation(translation::Repr),
    /// NO_ROUTE.
    NoRoute(no_route::Repr),
    /// REGISTER.
    Register(node::Register),
    /// HEARTBEAT.
    Heartbeat(node::Heartbeat),
    /// SUBSCRIBE_DOWN or SUBSCRIBE_UP.
    Subscribe(subscribe::Repr),
    /// ALLOCATE.
    Allocate(allocate::Request),
    /// ALLOCATE_RESPONSE.
    AllocateResponse(allocate::Response),
    /// REFRESH or RECLAIM.
    Reclaim(reclaim::Repr),
    /// STATISTICS.
    Statistics(statistics::Repr),
    /// LIVENESS.
    Liveness(liveness::Repr),
    /// REQUEST of a client.
    Request(client::Request),
    /// ANSWER to a client.
    Answer(client::AnswerRepr),
}

impl Body for Message {
    fn parse_body(kind: Type, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(match kind {
            Type::Open => Message::Open(Body::parse_body(kind, reader)?),
            Type::KeepAlive => Message::KeepAlive,
            Type::Notification => Message::Notification(Body::parse_body(kind, reader)?),
            Type::Update => Message::Update(Body::parse_body(kind, reader)?),
            Type::EndOfTable => Message::EndOfTable(Field::parse(reader)?),
            Type::SrouteRequest => Message::SrouteRequest(Body::parse_body(kind, reader)?),
            Type::SrouteResponse => Message::SrouteResponse(Body::parse_body(kind, reader)?),
            Type::Join => Message::Join(Body::parse_body(kind, reader)?),
            Type::Leave => Message::Leave(Field::parse(reader)?),
            Type::Translation => Message::Translation(Body::parse_body(kind, reader)?),
            Type::NoRoute => Message::NoRoute(Body::parse_body(kind, reader)?),
            Type::Register => Message::Register(Body::parse_body(kind, reader)?),
            Type::Heartbeat => Message::Heartbeat(Body::parse_body(kind, reader)?),
            Type::SubscribeDown | Type::SubscribeUp => {
                Message::Subscribe(Body::parse_body(kind, reader)?)
            }
            Type::Allocate => Message::Allocate(Body::parse_body(kind, reader)?),
            Type::AllocateResponse => Message::AllocateResponse(Body::parse_body(kind, reader)?),
            Type::Refresh | Type::Reclaim => Message::Reclaim(Body::parse_body(kind, reader)?),
            Type::Statistics => Message::Statistics(Body::parse_body(kind, reader)?),
            Type::Liveness => Message::Liveness(Body::parse_body(kind, reader)?),
            Type::Request => Message::Request(Body::parse_body(kind, reader)?),
            Type::Answer => Message::Answer(Body::parse_body(kind, reader)?),
        })
    }

    fn emit_body(&self, writer: &mut Writer<'_>) -> Type {
        match self {
            Message::Open(repr) => repr.emit_body(writer),
            Message::KeepAlive => Type::KeepAlive,
            Message::Notification(repr) => repr.emit_body(writer),
            Message::Update(repr) => repr.emit_body(writer),
            Message::EndOfTable(table) => {
                table.emit(writer);
                Type::EndOfTable
            }
            Message::SrouteRequest(repr) => repr.emit_body(writer),
            Message::SrouteResponse(repr) => repr.emit_body(writer),
            Message::Join(repr) => repr.emit_body(writer),
            Message::Leave(session) => {
                session.emit(writer);
                Type::Leave
            }
            Message::Translation(repr) => repr.emit_body(writer),
            Message::NoRoute(repr) => repr.emit_body(writer),
            Message::Register(repr) => repr.emit_body(writer),
            Message::Heartbeat(repr) => repr.emit_body(writer),
            Message::Subscribe(repr) => repr.emit_body(writer),
            Message::Allocate(repr) => repr.emit_body(writer),
            Message::AllocateResponse(repr) => repr.emit_body(writer),
            Message::Reclaim(repr) => repr.emit_body(writer),
            Message::Statistics(repr) => repr.emit_body(writer),
            Message::Liveness(repr) => repr.emit_body(writer),
            Message::Request(repr) => repr.emit_body(writer),
            Message::Answer(repr) => repr.emit_body(writer),
        }
    }
}

whole_messages!(Message);
