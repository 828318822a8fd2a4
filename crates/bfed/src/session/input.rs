//! Effects of a peer's messages on the session.

use proto_core::time::{Duration, Instant};

use super::{Agreed, OPEN_TIMEOUT, Session, State};
use crate::wire::Message;
use crate::wire::notification::{Reason, Repr as Notification};
use crate::wire::open::Repr as Open;

/// Effect of a message on the session.
#[derive(Debug)]
pub(crate) enum Effect {
    /// None.
    None,
    /// The session is established.
    Established,
    /// A message of an established session for routing or trees.
    Message(Message),
    /// The session ends with this reason.
    End(Notification),
    /// The peer ended the session with this reason.
    EndedByPeer(Notification),
}

impl Session {
    /// Handles a well-formed message of the peer.
    pub(crate) fn handle(&mut self, now: Instant, message: Message) -> Effect {
        self.restart_hold_timer(now);
        match (self.state, message) {
            (_, Message::Notification(why)) => Effect::EndedByPeer(why),
            (State::OpenSent, Message::Open(open)) => self.opened(now, &open),
            (State::OpenConfirm, Message::KeepAlive) => {
                self.state = State::Established;
                self.timer = None;
                Effect::Established
            }
            (State::Established, Message::KeepAlive) => Effect::None,
            (State::Established, message) if of_a_peering(&message) => Effect::Message(message),
            _ => Effect::End(Notification::new(
                Reason::OutOfOrder,
                "message at the wrong time",
            )),
        }
    }

    /// Restarts the hold timer.
    pub(crate) fn restart_hold_timer(&mut self, now: Instant) {
        if let Some(agreed) = self.agreed
            && agreed.hold != Duration::ZERO
        {
            self.hold_at = Some(now + agreed.hold);
        }
    }

    fn opened(&mut self, now: Instant, open: &Open) -> Effect {
        let end = |reason, text| Effect::End(Notification::new(reason, text));
        if open.agreed_version().is_none() {
            let text = self.describe_mismatch((open.version_low, open.version_high));
            return end(Reason::Version, &text);
        }
        if open.gateway != self.peer {
            let text = alloc::format!("expected {}, not {}", self.peer, open.gateway);
            return end(Reason::BadPeer, &text);
        }
        let tables = self.own.tables.and(open.tables);
        if tables.is_empty() {
            return end(Reason::Tables, "no table in common");
        }
        if open.transport != self.own.transport {
            let text = alloc::format!(
                "links: {} here, {} at the peer; set `transport` of both to one of them",
                self.own.transport,
                open.transport
            );
            return end(Reason::Transport, &text);
        }
        // The lower hold time applies; 0 is no limit.
        let hold = match (self.own.hold_time_s, open.hold_time_s) {
            (0, other) | (other, 0) => other,
            (one, other) => one.min(other),
        };
        let hold = Duration::from_secs(hold.into());
        let graceful = open.graceful.filter(|_| self.own.graceful.is_some());
        self.agreed = Some(Agreed {
            tables,
            offered: open.tables,
            hold,
            graceful,
            echo: open.echo,
        });
        self.state = State::OpenConfirm;
        self.timer = Some(now + OPEN_TIMEOUT);
        self.keepalive_at = self.keepalive_interval().map(|interval| now + interval);
        self.restart_hold_timer(now);
        self.queue.push_back(Message::KeepAlive);
        Effect::None
    }
}

/// Returns whether the message belongs to an established session.
fn of_a_peering(message: &Message) -> bool {
    matches!(
        message,
        Message::Update(_)
            | Message::EndOfTable(_)
            | Message::Echo(_)
            | Message::SrouteRequest(_)
            | Message::SrouteResponse(_)
            | Message::Join(_)
            | Message::Leave(_)
            | Message::Translation(_)
            | Message::NoRoute(_)
    )
}
