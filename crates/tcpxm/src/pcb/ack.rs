//! Acknowledgements: windows, round trips, losses, congestion.

use proto_core::time::{Duration, Instant};

use super::fin::Fin;
use super::{Pcb, Timer};
use crate::cc::{Ack, Delivery, Newest};
use crate::error::Error;
use crate::group::Flow;
use crate::ranges::Span;
use crate::recovery::Delivered;
use crate::recovery::scoreboard::AckView;
use crate::seq::SynNumber;
use crate::wire::Segment;

/// Time for which the amount in flight counts, at least; three round trips if those are longer (RFC 7661 §4.2).
const CARRIED: Duration = Duration::from_secs(1);

impl Pcb {
    /// RFC 9293 §3.10.7.4, fifth step, with RFC 5961 §5.
    pub(super) fn take_ack(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        start: i64,
        flow: &mut Flow,
    ) -> Result<(), Error> {
        let una = self.send.board.una();
        let fin_sent = matches!(self.send.fin, Fin::Sent | Fin::Lost);
        let fin_acked = self.send.fin == Fin::Acked;
        let highest = flow.reach() as i64 + i64::from(fin_sent || fin_acked);
        let ack = self.send.iss.offset_of(segment.ack, una);
        let oldest = una as i64 - self.send.window.largest().max(1 << 16) as i64;
        if ack > highest || ack < oldest {
            self.challenge(now);
            return Err(Error::AckChallenged);
        }
        if ack < una as i64 {
            return Ok(());
        }
        let ack = ack as u64;
        flow.skip_to(ack, now);
        let window_before = self.send.window.edge();
        self.update_window(segment, start, flow);
        let data_ack = ack.min(flow.nxt);
        if fin_sent && ack > flow.nxt {
            self.send.fin = Fin::Acked;
            self.send.progress = now;
        }
        let sacks = self.sack_spans(segment, data_ack, flow);
        if sacks.duplicate > 0 {
            self.reported_duplicate(data_ack, sacks.duplicate, flow);
        }
        let repeated = segment.payload.is_empty()
            && data_ack == una
            && self.send.window.edge() == window_before
            && !segment.flags.fin;
        let duplicate = repeated && una < flow.nxt;
        self.count_probed_loss(segment, data_ack, flow);
        self.acknowledge(now, segment, data_ack, sacks.as_slice(), duplicate, flow);
        // The duplicate of a probe may come when nothing is outstanding any more.
        let arrived_twice = sacks.duplicate > 0 || (repeated && segment.options.sack.is_empty());
        self.end_probe(data_ack, arrived_twice);
        self.judge_hole(now, self.send.board.una() - una, flow);
        if self.send.fin == Fin::Acked && fin_sent {
            self.fin_acknowledged(now);
        }
        self.arm_after_ack(now, flow);
        Ok(())
    }

    /// RFC 9293 §3.10.7.4: SND.WND, SND.WL1, SND.WL2.
    pub(super) fn update_window(&mut self, segment: &Segment<'_>, start: i64, flow: &Flow) {
        let una = self.send.board.una();
        let ack = self.send.iss.offset_of(segment.ack, una);
        if ack < una as i64 {
            return;
        }
        let (start, ack) = (start.max(0) as u64, ack as u64);
        let shift = if segment.flags.syn {
            0
        } else {
            self.handshake.agreed().send_shift
        };
        let window = u64::from(segment.window) << shift;
        if self.send.window.update((start, ack), window, flow.nxt) && window > 0 {
            self.timers.stop(Timer::Persist);
        }
    }

    /// The segment's SACK blocks as stream offsets; a report of a duplicate (RFC 2883 §4) is taken
    /// out.
    fn sack_spans(&mut self, segment: &Segment<'_>, ack: u64, flow: &Flow) -> Sacks {
        let mut spans = Sacks::default();
        if !self.handshake.agreed().sack {
            return spans;
        }
        let blocks = segment.options.sack.as_slice();
        for (index, (from, to)) in blocks.iter().enumerate() {
            let from = self.send.iss.offset_of(*from, ack);
            let to = self.send.iss.offset_of(*to, ack);
            if from >= to || to > flow.nxt as i64 || from < 0 {
                continue;
            }
            let span = Span::new(from as u64, to as u64);
            let within_second = blocks.get(1).is_some_and(|(a, b)| {
                let a = self.send.iss.offset_of(*a, ack);
                let b = self.send.iss.offset_of(*b, ack);
                a <= from && to <= b
            });
            if index == 0 && (span.end <= ack || within_second) {
                spans.duplicate = span.len();
            } else {
                spans.push(span);
            }
        }
        // The first block is the newest, wherever it is. Taken before the others, it would make them look as if they
        // had arrived late, on a path that reorders (RFC 8985 §6.2, step 3).
        spans.spans[..spans.len].sort_unstable_by_key(|span| span.start);
        spans
    }

    fn acknowledge(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        ack: u64,
        sacks: &[Span],
        duplicate: bool,
        flow: &Flow,
    ) {
        let echo = self.echo(segment).filter(|_| self.send.board.has_resent());
        let sent_before = echo.and_then(|echo| flow.sent_before(now, echo));
        let send = &mut self.send;
        let flight = send.board.pipe(flow.nxt);
        let (newest, arrived) = (send.board.newest(), send.board.arrived());
        let delivered = send.board.acknowledge(
            ack,
            sacks,
            &AckView {
                now,
                multicast_from: self.multicast.reception.multicast_from(),
                log: &flow.log,
                min_rtt: send.rtt.min(),
                sent_before,
            },
        );
        if delivered.newly > 0 {
            send.progress = now;
            send.probes.has_arrived();
        }
        let round_trips = send.rtt.smoothed().map_or(CARRIED, |rtt| rtt * 3);
        send.loss
            .record_flight(now, flight, round_trips.max(CARRIED));
        if self.is_spurious(segment, ack, &delivered) {
            self.undo(ack, flow);
        }
        if let Some(end) = delivered.first_try {
            self.multicast.reception.multicast_success(end);
        }
        if delivered.newly > 0 {
            let (una, first_try) = (self.send.board.una(), delivered.any_first_try);
            self.multicast
                .unreached
                .delivered(now, una, flow.nxt, first_try);
        }
        self.take_rtt(now, &delivered, segment, flow);
        if let Some(smoothed) = self.send.rtt.smoothed() {
            let longest = self.send.window_limit.round_trip.max(smoothed);
            self.send.window_limit.round_trip = longest;
        }
        if delivered.acked > 0 {
            self.send.rtt.reset_back_off();
        }
        let lost = self.revise_losses(now, ack, duplicate, &delivered, flow, flight);
        if self.send.cc.is_bbr() {
            let newest = self
                .send
                .board
                .newest()
                .filter(|_| self.send.board.newest() != newest);
            // Where more ranges arrive than the scoreboard takes, each report of them would count again.
            let newly = self.send.board.arrived().saturating_sub(arrived);
            let delivered = Delivered { newly, ..delivered };
            self.deliver(now, &delivered, newest, lost, flow);
        } else {
            self.grow(now, &delivered, flow, flight);
        }
        if let Some(smoothed) = self.send.rtt.smoothed() {
            self.send.cc.observe(now, smoothed);
        }
    }

    /// Passes what was delivered, and lost, to BBR.
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        delivered: &Delivered,
        newest: Option<(Instant, Option<u64>)>,
        lost: u64,
        flow: &Flow,
    ) {
        let una = self.send.board.una();
        let before = una.saturating_sub(delivered.acked);
        let window_limited = self.send.window.has_limited(before);
        self.send.cc.on_delivery(&Delivery {
            now,
            newly: delivered.newly,
            lost,
            newest: newest.map(|(sent, end)| Newest { sent, end }),
            in_flight: self.send.board.pipe(flow.nxt),
            nxt: flow.nxt,
            rtt: delivered.rtt,
            smoothed_rtt: self.send.rtt.smoothed(),
            starved: flow.starved.filter(|_| !window_limited),
            follows: self.send.follows && !window_limited,
            window_limited,
        });
    }

    /// The timestamp that a segment echoes, if timestamps were agreed on.
    fn echo(&self, segment: &Segment<'_>) -> Option<u32> {
        let echo = segment.options.timestamps.map(|(_, echo)| echo);
        echo.filter(|&echo| echo != 0 && self.handshake.agreed().timestamps)
    }

    /// RFC 6298 §3: never from retransmissions, unless a timestamp identifies them (RFC 7323 §4.1).
    fn take_rtt(
        &mut self,
        now: Instant,
        delivered: &Delivered,
        segment: &Segment<'_>,
        flow: &Flow,
    ) {
        if let Some(rtt) = delivered.rtt {
            self.send.rtt.sample(rtt);
        } else if delivered.acked > 0
            && let Some(echo) = self.echo(segment)
            && self.send.loss.is_current(echo)
        {
            // An echo from before the last retransmission would count the wait for it as well.
            let elapsed_ms = flow.stamp_at(now).wrapping_sub(echo);
            if elapsed_ms < 1 << 20 {
                self.send.rtt.sample_coarse(elapsed_ms);
            }
        }
    }

    fn grow(&mut self, now: Instant, delivered: &Delivered, flow: &Flow, flight: u64) {
        if delivered.newly == 0 || self.send.loss.in_fast_recovery() {
            return;
        }
        let una = self.send.board.una();
        let before = una.saturating_sub(delivered.acked);
        // Receivers that lose packets independently limit the group in turn: if only the narrowest window grew,
        // all would shrink to what the losses of all together allow one. The path has carried half of what the
        // window may become, which RFC 7661 §4.3 calls a validated window; a loss reduces what was carried, and
        // not this window (§4.4.1).
        let shared = before < flow.limited_at && self.send.cc.window() < 2 * flight;
        self.send.cc.on_ack(Ack {
            now,
            bytes: delivered.newly,
            limited: self.send.window.has_limited(before) || shared,
            smoothed_rtt: self.send.rtt.smoothed(),
            rtt: delivered.rtt,
            una,
            nxt: flow.nxt,
        });
    }

    /// Timers after an acknowledgement.
    fn arm_after_ack(&mut self, now: Instant, flow: &Flow) {
        if !self.state.sends() || !self.has_outstanding(flow) {
            self.timers.stop(Timer::Rto);
            self.timers.stop(Timer::Tail);
            self.timers.stop(Timer::Rack);
            return;
        }
        if self.send.progress == now || !self.timers.is_set(Timer::Rto) {
            self.arm_rto(now);
            self.arm_tail(now, flow);
        }
    }

    /// RFC 6298 §5, no later than the user timeout.
    pub(super) fn arm_rto(&mut self, now: Instant) {
        let at = now + self.send.rtt.rto();
        let end = self.send.progress + self.limits.user_timeout;
        self.timers.set(Timer::Rto, at.min(end.max(now)));
    }
}

/// The SACK blocks of one segment.
#[derive(Default)]
struct Sacks {
    spans: [Span; 4],
    len: usize,
    /// Bytes of a duplicate that it reports.
    duplicate: u64,
}

impl Sacks {
    fn push(&mut self, span: Span) {
        self.spans[self.len] = span;
        self.len += 1;
    }

    fn as_slice(&self) -> &[Span] {
        &self.spans[..self.len]
    }
}
