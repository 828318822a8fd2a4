//! What a peer's messages do to the session itself.

use proto_core::time::{Duration, Instant};

use super::{Agreed, OPEN_TIMEOUT, Session, State};
use crate::wire::Message;
use crate::wire::notification::{Reason, Repr as Notification};
use crate::wire::open::Repr as Open;

/// What a message means for the session.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Nothing more.
    Nothing,
    /// Routes and trees may flow from now on.
    Established,
    /// A message of an established session, for routing or trees.
    Message(Message),
    /// The session is over: we say why.
    End(Notification),
    /// The session is over: the peer said why.
    Over(Notification),
}

impl Session {
    /// A message of the peer that could be read.
    pub(crate) fn handle(&mut self, now: Instant, message: Message) -> Heard {
        self.heard(now);
        match (self.state, message) {
            (_, Message::Notification(why)) => Heard::Over(why),
            (State::OpenSent, Message::Open(open)) => self.opened(now, &open),
            (State::OpenConfirm, Message::KeepAlive) => {
                self.state = State::Established;
                self.established_at = Some(now);
                self.timer = None;
                Heard::Established
            }
            (State::Established, Message::KeepAlive) => Heard::Nothing,
            (State::Established, message) if of_a_peering(&message) => Heard::Message(message),
            _ => Heard::End(Notification::new(
                Reason::OutOfOrder,
                "message at the wrong time",
            )),
        }
    }

    /// Something came: the hold timer starts anew.
    pub(crate) fn heard(&mut self, now: Instant) {
        if let Some(agreed) = self.agreed
            && agreed.hold != Duration::ZERO
        {
            self.hold_at = Some(now + agreed.hold);
        }
    }

    fn opened(&mut self, now: Instant, open: &Open) -> Heard {
        let end = |reason, text| Heard::End(Notification::new(reason, text));
        if open.agreed_version().is_none() {
            return end(Reason::Version, "this side speaks version 1");
        }
        if open.gateway != self.peer {
            let text = alloc::format!("expected {}, not {}", self.peer, open.gateway);
            return end(Reason::BadPeer, &text);
        }
        let tables = self.own.tables.and(open.tables);
        if tables.is_empty() {
            return end(Reason::Tables, "no table in common");
        }
        // The smaller hold time holds; 0 is for ever.
        let hold = match (self.own.hold_time_s, open.hold_time_s) {
            (0, other) | (other, 0) => other,
            (one, other) => one.min(other),
        };
        let hold = Duration::from_secs(hold.into());
        let graceful = open.graceful.filter(|_| self.own.graceful.is_some());
        self.agreed = Some(Agreed {
            tables,
            hold,
            graceful,
            boot: open.boot,
        });
        self.state = State::OpenConfirm;
        self.timer = Some(now + OPEN_TIMEOUT);
        self.keepalive_at = self.keepalive_interval().map(|interval| now + interval);
        self.heard(now);
        self.queue.push_back(Message::KeepAlive);
        Heard::Nothing
    }
}

/// Whether established peers send such messages.
fn of_a_peering(message: &Message) -> bool {
    matches!(
        message,
        Message::Update(_)
            | Message::EndOfTable(_)
            | Message::SrouteRequest(_)
            | Message::SrouteResponse(_)
            | Message::Join(_)
            | Message::Leave(_)
            | Message::Translation(_)
            | Message::NoRoute(_)
    )
}
