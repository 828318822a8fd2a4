//! Queries that a member answers (RFC 3376 §5.2, §7.2).

use proto_core::RateLimit;

use super::{DropReason, FilterMode, Member};
use crate::datagram;
use crate::wire::{Message, Query};
use crate::{Duration, Family, Instant, Meta, Numbered};

impl<A: Family> Member<'_, A> {
    /// Handles a membership packet, a whole IP packet. Messages other than queries are ignored.
    ///
    /// # Errors
    /// The packet was dropped and counted: it is malformed, from another interface, above the rate limit, or
    /// a query whose TTL or sender is not allowed.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        self.take(now, meta, packet)
            .map_err(|reason| self.stats.drop(reason))
    }

    fn take(&mut self, now: Instant, meta: &Meta, packet: &[u8]) -> Result<(), DropReason> {
        if meta.iface != self.config.iface {
            return Err(DropReason::WrongInterface);
        }
        let ip = datagram::parse::<A>(packet, A::PROTOCOL).ok_or(DropReason::Malformed)?;
        let message = Message::of(&ip).map_err(|_| DropReason::Malformed)?;
        let Message::Query(query) = message else {
            return Ok(());
        };
        if ip.ttl != 1 {
            return Err(DropReason::Ttl);
        }
        if A::REQUIRES_ROUTER_ALERT && !ip.has_router_alert {
            return Err(DropReason::RouterAlert);
        }
        if self.config.interface.is_own(ip.source) {
            return Err(DropReason::OwnAddress);
        }
        let is_anonymous = A::ADMITS_UNSPECIFIED && ip.source == A::UNSPECIFIED;
        if !is_anonymous && !ip.source.is_sender(&self.config.interface) {
            return Err(DropReason::WrongSubnet);
        }
        let rate = self.config.packets_per_s;
        let limit = RateLimit::new(rate, rate.saturating_mul(2));
        if !self.bucket.take(now, &limit) {
            return Err(DropReason::Rate);
        }
        self.stats.queries_received += 1;
        self.learn(now, &query);
        self.schedule_answer(now, &query);
        Ok(())
    }

    fn learn(&mut self, now: Instant, query: &Query<'_, A>) {
        if let Some(v3) = query.v3 {
            self.robustness = match v3.robustness {
                0 => self.config.robustness,
                robustness => robustness,
            };
            self.query_interval = match v3.interval.value() {
                0 => self.config.query_interval,
                _ => v3.interval.seconds(),
            };
            return;
        }
        // §8.12: older version querier present.
        let time = self.query_interval * u32::from(self.robustness) + query.max_response_time();
        match query.version() {
            1 => self.v1_until = Some(now + time),
            _ => self.v2_until = Some(now + time),
        }
    }

    /// §5.2: rules 1 to 5, in that order.
    fn schedule_answer(&mut self, now: Instant, query: &Query<'_, A>) {
        let delay = self.random(query.max_response_time().max(Duration::from_millis(1)));
        let at = now + delay;
        if self.general_at.is_some_and(|general| general <= at) {
            return;
        }
        if query.is_general() {
            self.general_at = Some(at);
            self.general_from = 0;
            return;
        }
        let Some(g) = self.groups.find(Numbered::new(0, query.group)) else {
            return;
        };
        let pending = self.groups[g].answer_at;
        let asks_all = query.v3.is_none_or(|v3| v3.sources.is_empty());
        let group = &mut self.groups[g];
        if asks_all || pending.is_some() && !group.answers_sources {
            group.answers_sources = false;
        } else {
            group.answers_sources = true;
            for source in query.v3.iter().flat_map(|v3| v3.sources.iter()) {
                self.ask(g, source);
            }
        }
        self.groups[g].answer_at = Some(pending.map_or(at, |pending| pending.min(at)));
        self.retime(g);
    }

    /// Remembers that a source was asked about. One of an EXCLUDE list, or one that is wanted
    /// without being named, needs a slot for that; with none left the whole group is answered
    /// for, which says as much.
    fn ask(&mut self, g: u32, source: A) {
        if let Some(s) = self.sources.find(Numbered::new(g, source)) {
            self.sources[s].is_asked = true;
        } else if self.groups[g].mode == FilterMode::Exclude {
            self.groups[g].answers_sources = false;
        }
    }
}
