//! Any control message.

use super::{
    HEADER_LEN, Header, ParseError, Type, allocate, body, client, header, join, leave, liveness,
    no_route, node, notification, open, reclaim, sroute, statistics, subscribe, translation,
    update,
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
    /// UPDATE in which nothing is wrong.
    Update(update::Repr),
    /// END_OF_TABLE.
    EndOfTable(Table),
    /// SROUTE_REQUEST.
    SrouteRequest(sroute::Request),
    /// SROUTE_RESPONSE.
    SrouteResponse(sroute::Response),
    /// JOIN.
    Join(join::Repr),
    /// LEAVE.
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

impl Message {
    /// Reads a whole message.
    ///
    /// # Errors
    /// It is not one, or something in it is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        Ok(match Header::new_checked(bytes)?.message_type()? {
            Type::Open => Message::Open(open::Repr::parse(bytes)?),
            Type::KeepAlive => {
                body(bytes, Type::KeepAlive)?.end()?;
                Message::KeepAlive
            }
            Type::Notification => Message::Notification(notification::Repr::parse(bytes)?),
            Type::Update => Message::Update(update::Repr::parse(bytes)?),
            Type::EndOfTable => Message::EndOfTable(update::parse_end(bytes)?),
            Type::SrouteRequest => Message::SrouteRequest(sroute::Request::parse(bytes)?),
            Type::SrouteResponse => Message::SrouteResponse(sroute::Response::parse(bytes)?),
            Type::Join => Message::Join(join::Repr::parse(bytes)?),
            Type::Leave => Message::Leave(leave::parse(bytes)?),
            Type::Translation => Message::Translation(translation::Repr::parse(bytes)?),
            Type::NoRoute => Message::NoRoute(no_route::Repr::parse(bytes)?),
            Type::Register => Message::Register(node::Register::parse(bytes)?),
            Type::Heartbeat => Message::Heartbeat(node::Heartbeat::parse(bytes)?),
            Type::SubscribeDown | Type::SubscribeUp => {
                Message::Subscribe(subscribe::Repr::parse(bytes)?)
            }
            Type::Allocate => Message::Allocate(allocate::Request::parse(bytes)?),
            Type::AllocateResponse => Message::AllocateResponse(allocate::Response::parse(bytes)?),
            Type::Refresh | Type::Reclaim => Message::Reclaim(reclaim::Repr::parse(bytes)?),
            Type::Statistics => Message::Statistics(statistics::Repr::parse(bytes)?),
            Type::Liveness => Message::Liveness(liveness::Repr::parse(bytes)?),
            Type::Request => Message::Request(client::Request::parse(bytes)?),
            Type::Answer => Message::Answer(client::AnswerRepr::parse(bytes)?),
        })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        match self {
            Message::Open(repr) => repr.buffer_len(),
            Message::KeepAlive => HEADER_LEN,
            Message::Notification(repr) => repr.buffer_len(),
            Message::Update(repr) => repr.buffer_len(),
            Message::EndOfTable(_) => update::END_LEN,
            Message::SrouteRequest(repr) => repr.buffer_len(),
            Message::SrouteResponse(repr) => repr.buffer_len(),
            Message::Join(repr) => repr.buffer_len(),
            Message::Leave(session) => leave::buffer_len(session),
            Message::Translation(repr) => repr.buffer_len(),
            Message::NoRoute(repr) => repr.buffer_len(),
            Message::Register(_) => node::Register::LEN,
            Message::Heartbeat(_) => node::Heartbeat::LEN,
            Message::Subscribe(repr) => repr.buffer_len(),
            Message::Allocate(repr) => repr.buffer_len(),
            Message::AllocateResponse(repr) => repr.buffer_len(),
            Message::Reclaim(repr) => repr.buffer_len(),
            Message::Statistics(repr) => repr.buffer_len(),
            Message::Liveness(_) => liveness::Repr::LEN,
            Message::Request(repr) => repr.buffer_len(),
            Message::Answer(repr) => repr.buffer_len(),
        }
    }

    /// Writes the message; its length.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Message::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        match self {
            Message::Open(repr) => repr.emit(buffer),
            Message::KeepAlive => {
                header(buffer, Type::KeepAlive, HEADER_LEN);
            }
            Message::Notification(repr) => repr.emit(buffer),
            Message::Update(repr) => repr.emit(buffer),
            Message::EndOfTable(table) => update::emit_end(*table, buffer),
            Message::SrouteRequest(repr) => repr.emit(buffer),
            Message::SrouteResponse(repr) => repr.emit(buffer),
            Message::Join(repr) => repr.emit(buffer),
            Message::Leave(session) => leave::emit(session, buffer),
            Message::Translation(repr) => repr.emit(buffer),
            Message::NoRoute(repr) => repr.emit(buffer),
            Message::Register(repr) => repr.emit(buffer),
            Message::Heartbeat(repr) => repr.emit(buffer),
            Message::Subscribe(repr) => repr.emit(buffer),
            Message::Allocate(repr) => repr.emit(buffer),
            Message::AllocateResponse(repr) => repr.emit(buffer),
            Message::Reclaim(repr) => repr.emit(buffer),
            Message::Statistics(repr) => repr.emit(buffer),
            Message::Liveness(repr) => repr.emit(buffer),
            Message::Request(repr) => repr.emit(buffer),
            Message::Answer(repr) => repr.emit(buffer),
        }
        self.buffer_len()
    }
}
