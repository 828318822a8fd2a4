//! The receiver that governs the rate of a group: the one with the lowest rate in the long run, as in pgmcc (Rizzo,
//! "pgmcc: a TCP-friendly single-rate multicast congestion control scheme", SIGCOMM 2000;
//! `docs/decisions/0026-representative.md`).
//!
//! | receiver | limits the group by |
//! | --- | --- |
//! | the representative | its congestion window, and with BBR its pacing rate |
//! | another one, CUBIC and NewReno | its window, or what that is on average if that is more |
//! | another one, BBR | twice its product of bandwidth and delay |
//!
//! Each receiver has a controller of its own, which counts the losses of that receiver and grows as far as it would
//! alone. If the group sends more than a path can carry for long, the controller of that receiver falls below that of
//! the representative, and it takes over.
//!
//! One that takes over since it holds the group back may have a high rate: all that it has acknowledged before. Until it
//! has a lower one than the receiver that it replaced, that one's pace counts.

use proto_core::time::{Duration, Instant};

use super::Endpoint;
use crate::store::Store;

/// A receiver takes over if its rate is below this share of the representative's, in eighths.
const TAKE_OVER_EIGHTHS: u64 = 7;
/// With BBR it has to be for this long.
const TAKE_OVER_ROUND_TRIPS: u32 = 2;

impl<S: Store> Endpoint<S> {
    /// A receiver has acknowledged something: it may govern the rate from now on.
    pub(super) fn choose_representative(&mut self, index: u32) {
        let Some(pcb) = self.pcbs.get(index) else {
            return;
        };
        let (session, number, member) = (pcb.slot.session, pcb.slot.flow, pcb.slot.member);
        let rate = pcb.send.long_run_rate().filter(|_| pcb.state().sends());
        let leading = self.representative(session, number);
        let leading = leading.and_then(|leading| self.pcbs.get(leading));
        let (slower, first) = match (rate, leading) {
            (Some(_), None) => (true, true),
            (Some(rate), Some(leading)) => {
                let most = leading.send.long_run_rate().unwrap_or(u64::MAX);
                let other = leading.slot.member != member;
                (other && rate < most / 8 * TAKE_OVER_EIGHTHS, false)
            }
            (None, _) => (false, false),
        };
        let bound = self.replaced(session, number);
        let bound = bound.and_then(|index| self.pcbs.get(index)?.send.long_run_rate());
        let now = self.now;
        let Some((pcb, flow, _)) = self.parts(index) else {
            return;
        };
        // A bandwidth that the representative has found, the others find within a round trip.
        let round_trips = if pcb.send.cc.is_bbr() {
            pcb.send.rtt.smoothed().unwrap_or_default() * TAKE_OVER_ROUND_TRIPS
        } else {
            Duration::ZERO
        };
        let since = *pcb.send.slower_since.get_or_insert(now);
        let takes_over = first || (slower && now - since >= round_trips);
        if !slower || takes_over {
            pcb.send.slower_since = None;
        }
        if flow.members < 2 {
            flow.representative = None;
            flow.replaced = None;
        } else if takes_over {
            flow.representative = Some(member);
            flow.holder = None;
        }
        let governs = flow.representative == Some(member);
        if governs && rate.is_some_and(|rate| bound.is_none_or(|bound| rate <= bound)) {
            flow.replaced = None;
        }
        pcb.send.follows = flow.is_governed_by_another(member);
    }

    /// The congestion window of a receiver holds the flow back. With BBR windows are twice what a path needs: if it
    /// does so for a round trip, its path is narrower than that of the representative.
    pub(super) fn held_back_by(&mut self, index: u32, now: Instant) {
        let Some(slot) = self.pcbs.get(index).map(|pcb| pcb.slot) else {
            return;
        };
        let replaced = self.slowest_before(slot.session, slot.flow);
        let Some((pcb, flow, _)) = self.parts(index) else {
            return;
        };
        let member = pcb.slot.member;
        if !pcb.send.cc.is_bbr() || !flow.is_governed_by_another(member) {
            flow.holder = None;
            return;
        }
        flow.starved = Some((now, flow.nxt));
        let round_trip = pcb.send.rtt.smoothed();
        match flow.holder {
            Some((holder, since)) if holder == member => {
                if round_trip.is_some_and(|rtt| now - since >= rtt) {
                    flow.representative = Some(member);
                    flow.replaced = replaced.filter(|&other| other != member);
                    flow.holder = None;
                    pcb.send.follows = false;
                }
            }
            _ => flow.holder = Some((member, now)),
        }
    }

    /// Returns the control block that governs the rate of several.
    pub(super) fn representative(&self, session: u32, flow: u32) -> Option<u32> {
        let session = self.sessions.get(session)?;
        let flow = session.flows.get(flow as usize)?;
        let member = flow.representative? as usize;
        session.members.get(member).copied().flatten()
    }

    /// Returns the control block of the receiver that the representative has replaced by holding the group back.
    pub(super) fn replaced(&self, session: u32, flow: u32) -> Option<u32> {
        let session = self.sessions.get(session)?;
        let flow = session.flows.get(flow as usize)?;
        let member = flow.replaced? as usize;
        session.members.get(member).copied().flatten()
    }

    /// The member whose pace counts, of the representative and of the one it has replaced.
    fn slowest_before(&self, session: u32, flow: u32) -> Option<u32> {
        let both = [
            self.representative(session, flow),
            self.replaced(session, flow),
        ];
        let both = both.into_iter().flatten();
        let both = both.filter_map(|index| self.pcbs.get(index));
        let slowest = both.min_by_key(|pcb| pcb.send.cc.pacing());
        slowest.map(|pcb| pcb.slot.member)
    }
}
