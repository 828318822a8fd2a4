//! What mediators have in common: a network opened for the control node, which has no channels.

use std::os::fd::{AsFd, BorrowedFd};

use bfed::native::{ChannelId, Upcall};
use bfed::wire::client::AnswerRepr;
use bfed::wire::sroute::{GatewayCost, Outcome};
use bfed::{ClientId, Cost, GatewayId, Instant, NativeNet, SessionName, Sroutes};

use super::Network;

/// What a kind of network does for its clients.
pub(super) trait Front: AsFd + Send {
    /// Tells a client, or all who have the session.
    fn answer(&mut self, now: Instant, client: Option<ClientId>, answer: &AnswerRepr);
    /// The next request.
    fn poll_upcall(&mut self, now: Instant) -> Option<Upcall>;
    /// Time has passed.
    fn handle_timeout(&mut self, now: Instant);
    /// When to call it.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Whether the session is one of this network's own.
    fn knows(&self, session: &SessionName) -> bool;
    /// What was counted.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// A network's mediator. Costs of this gateway are the administrator's: where none is configured, the
/// network tells nothing of its inside (§5.2.2, a null response).
#[derive(Debug)]
pub(super) struct Mediator<F> {
    front: F,
    gateway: GatewayId,
    cost: Option<u32>,
}

impl<F: Front> Mediator<F> {
    pub(super) fn new(front: F, gateway: GatewayId, cost: Option<u32>) -> Self {
        Mediator {
            front,
            gateway,
            cost,
        }
    }
}

impl<F: Front> AsFd for Mediator<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.front.as_fd()
    }
}

impl<F: Front> NativeNet for Mediator<F> {
    fn get_sroutes(
        &mut self,
        _: Instant,
        _: u32,
        session: &SessionName,
        gateways: &[GatewayId],
    ) -> Option<Sroutes> {
        let (outcome, costs) = match self.cost {
            _ if !self.front.knows(session) => (Outcome::NoSession, Vec::new()),
            None => (Outcome::Null, Vec::new()),
            Some(cost) => {
                let (gateway, cost) = (self.gateway, Cost(cost));
                let own = gateways
                    .contains(&gateway)
                    .then_some(GatewayCost { gateway, cost });
                (Outcome::Costs, own.into_iter().collect())
            }
        };
        // Other gateways know their own costs: they are asked.
        let got_all = outcome != Outcome::Costs;
        Some(Sroutes {
            outcome,
            costs,
            got_all,
        })
    }

    fn answer(&mut self, now: Instant, client: Option<ClientId>, answer: &AnswerRepr) {
        self.front.answer(now, client, answer);
    }

    fn poll_upcall(&mut self, now: Instant, _: &mut [u8]) -> Option<Upcall> {
        self.front.poll_upcall(now)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.front.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.front.poll_timeout()
    }
}

impl<F: Front> Network for Mediator<F> {
    fn pause(&mut self, _: ChannelId) {}

    fn resume(&mut self, _: ChannelId) {}

    fn poll_writable(&mut self) -> Option<ChannelId> {
        None
    }

    fn flush(&mut self, _: Instant) {}

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.front.counters()
    }
}
