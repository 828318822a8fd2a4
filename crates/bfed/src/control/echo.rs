//! Echoes between control nodes, by which the delay of links is measured ([`PeerConfig::measure_latency`]).
//!
//! One request of this side and one reply to the peer are pending at most. A reply overtakes everything that waits for
//! the peer. A request waits until messages other than routes have been written, and is timed from then on.
//!
//! [`PeerConfig::measure_latency`]: crate::PeerConfig::measure_latency

use proto_core::time::Instant;
use rand_core::Rng;

use super::ControlNode;
use crate::coordination::Coordinator;
use crate::delay::{Estimator, INTERVAL, MAX_ROUND_TRIP};
use crate::error::Error;
use crate::event::Event;
use crate::types::{Cost, PeerId};
use crate::wire::Message;
use crate::wire::echo::Repr;

/// The request of this side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Request {
    /// None, or it was answered.
    #[default]
    None,
    /// It is to be written.
    Ready,
    /// It was written.
    Sent { token: u64, at: Instant },
}

/// Echoes of one peering.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    /// Token of the peer's request that is to be answered. A newer one replaces it.
    reply: Option<u64>,
    request: Request,
    /// When to send the next request; `None` while the link is not measured.
    next_at: Option<Instant>,
    pub(super) estimator: Estimator,
}

impl Echoes {
    /// Starts the exchange of a session.
    fn start(&mut self, now: Instant) {
        self.estimator.restart();
        self.request = Request::None;
        self.next_at = Some(now);
    }

    /// Ends the exchange of a session.
    pub(super) fn stop(&mut self) {
        (self.reply, self.request, self.next_at) = (None, Request::None, None);
    }

    /// Returns whether there is something to send.
    pub(super) fn is_ready(&self) -> bool {
        self.reply.is_some() || self.request == Request::Ready
    }

    /// Returns the reply that is due.
    pub(super) fn poll_reply(&mut self) -> Option<Message> {
        let token = self.reply.take()?;
        Some(Message::Echo(Repr { reply: true, token }))
    }

    /// Returns the request that is due.
    pub(super) fn poll_request(&mut self, now: Instant, rng: &mut impl Rng) -> Option<Message> {
        if self.request != Request::Ready {
            return None;
        }
        let token = rng.next_u64();
        self.request = Request::Sent { token, at: now };
        Some(Message::Echo(Repr {
            reply: false,
            token,
        }))
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next_at
    }
}

impl<C: Coordinator> ControlNode<C> {
    /// Starts or stops measuring a link after its session or its configuration has changed.
    pub(super) fn update_echoes(&mut self, now: Instant, id: PeerId) {
        let Some(state) = self.peers.get_mut(&id) else {
            return;
        };
        let answers = state.session.agreed.is_some_and(|agreed| agreed.echo);
        let measures = state.config.measure_latency && answers && state.session.is_established();
        if !measures {
            state.echoes.request = Request::None;
            state.echoes.next_at = None;
        } else if state.echoes.next_at.is_none() {
            state.echoes.start(now);
        }
    }

    /// Handles an ECHO_REQUEST or an ECHO_REPLY.
    pub(super) fn echo(&mut self, now: Instant, id: PeerId, echo: Repr) -> Result<(), Error> {
        let state = self.peers.get_mut(&id).ok_or(Error::UnknownStream)?;
        if !echo.reply {
            state.echoes.reply = Some(echo.token);
            self.wake(id);
            return Ok(());
        }
        let Request::Sent { token, at } = state.echoes.request else {
            return Err(Error::EchoUnasked);
        };
        if token != echo.token {
            return Err(Error::EchoUnasked);
        }
        state.echoes.request = Request::None;
        let cost = state.echoes.estimator.take(now, now - at);
        if state.echoes.estimator.is_starting() {
            state.echoes.next_at = Some(now);
        }
        self.set_link_cost(id, cost);
        Ok(())
    }

    /// Sends the request that is due. One that the peer has not answered counts as a slow one.
    pub(super) fn expire_echo(&mut self, now: Instant, id: PeerId) {
        let Some(state) = self.peers.get_mut(&id) else {
            return;
        };
        let echoes = &mut state.echoes;
        if echoes.next_at.is_none_or(|at| at > now) {
            return;
        }
        echoes.next_at = Some(now + INTERVAL);
        let mut cost = None;
        if core::mem::replace(&mut echoes.request, Request::Ready) != Request::None {
            self.stats.echoes_unanswered += 1;
            cost = echoes.estimator.take(now, MAX_ROUND_TRIP);
        }
        self.stats.echoes += 1;
        self.set_link_cost(id, cost);
        self.wake(id);
    }

    /// Applies a measured cost that has changed.
    fn set_link_cost(&mut self, id: PeerId, cost: Option<Cost>) {
        if let Some(cost) = cost {
            self.stats.delay_changes += 1;
            self.rib.set_link_cost(id, cost);
            self.events
                .push_back(Event::DelayChanged { peer: id, cost });
        }
    }
}
