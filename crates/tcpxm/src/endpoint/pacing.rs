//! The pace of a flow: that of the receiver that governs its rate.
//!
//! With BBR everything is paced, repairs before new data. Otherwise the repairs of an overflowing queue would be sent at
//! once, and overflow it again. Repairs by unicast to receivers that do not govern the rate have a pace of their own, as
//! high: their paths need not be the one that the rate fits.

use proto_core::time::{Duration, Instant};

use super::Endpoint;
use crate::group::{Flow, Pace};
use crate::pcb::{Pcb, Timer};
use crate::store::Store;

/// Repairs may be sent this much before their time: each of them alone would need a timer.
const AHEAD: Duration = Duration::from_millis(1);

impl<S: Store> Endpoint<S> {
    /// Sets the rate of what is sent next.
    pub(super) fn set_pace(&mut self, session: u32, number: u32) {
        let governing = self
            .representative(session, number)
            .or_else(|| self.narrowest(session, number));
        let Some(pcb) = governing.and_then(|index| self.pcbs.get(index)) else {
            return;
        };
        let replaced = self.replaced(session, number);
        let replaced = replaced.and_then(|index| self.pcbs.get(index)?.send.cc.pacing());
        let (rate, quantum) = match pcb.send.cc.pacing() {
            Some(pacing) => replaced.map_or(pacing, |bound| pacing.min(bound)),
            None if self.config.pacing => (Self::spread_rate(pcb), u64::MAX),
            None => return,
        };
        if let Some(flow) = self.flow(session, number) {
            flow.spread.rate_bps = rate;
            flow.aside.rate_bps = rate;
            flow.quantum_bytes = quantum;
        }
    }

    /// The repairs of a receiver wait until what was sent before has had its time, if they are paced.
    pub(super) fn hold_repairs(&mut self, now: Instant, index: u32) {
        let Some(pcb) = self.pcbs.get(index) else {
            return;
        };
        if !pcb.send.cc.is_bbr() || pcb.send.board.lost_bytes() == 0 {
            return;
        }
        self.set_pace(pcb.slot.session, pcb.slot.flow);
        if let Some((pcb, flow, _)) = self.parts(index)
            && let Some(at) = pace_of(pcb, flow).ahead_until(now, AHEAD)
        {
            pcb.timers.set(Timer::Repair, at);
        }
    }

    /// Bytes were sent again to a receiver.
    pub(super) fn pace_repair(&mut self, now: Instant, index: u32, bytes: u64) {
        if let Some((pcb, flow, _)) = self.parts(index)
            && pcb.send.cc.is_bbr()
        {
            pace_of(pcb, flow).spend(now, bytes);
        }
    }

    /// Bytes were sent again to a group for this receiver. They go to the path that the rate fits, whoever lacks them;
    /// and also to that of a receiver that does not govern it, whose next repairs wait for them.
    pub(super) fn pace_shared_repair(&mut self, now: Instant, index: u32, bytes: u64) {
        if let Some((pcb, flow, _)) = self.parts(index) {
            flow.spread.spend(now, bytes);
            if pcb.send.cc.is_bbr() && flow.is_governed_by_another(pcb.slot.member) {
                flow.aside.spend(now, bytes);
            }
        }
    }
}

/// The pace of a receiver's repairs.
fn pace_of<'a>(pcb: &Pcb, flow: &'a mut Flow) -> &'a mut Pace {
    if flow.is_governed_by_another(pcb.slot.member) {
        &mut flow.aside
    } else {
        &mut flow.spread
    }
}
