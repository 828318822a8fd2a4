//! Repairs by multicast where several receivers lack the same data.

use core::net::IpAddr;

use proto_core::time::{Duration, Instant};

use super::Endpoint;
use crate::group::Turn;
use crate::pcb::{Plan, Timer};
use crate::ranges::Span;
use crate::store::Store;

/// Segments of one receiver that wait at once; what follows them waits until they have been sent.
const MAX_WAITING: usize = 64;

/// A repair that does not wait any more.
pub(super) enum SharedRepair {
    /// No other receiver lacked it in time.
    Unicast(Plan),
    Multicast(IpAddr, Span),
}

impl<S: Store> Endpoint<S> {
    /// Returns the next repair of a receiver that shares its group with others; `None` if there is none, or all have to
    /// wait.
    pub(super) fn shared_repair(&mut self, now: Instant, index: u32) -> Option<SharedRepair> {
        let (pcb, flow, _) = self.parts(index)?;
        let round_trip = pcb.send.rtt.smoothed().unwrap_or(Duration::ZERO);
        let member = pcb.slot.member;
        let (mut offset, mut waiting) = (0, 0);
        let mut wake: Option<Instant> = None;
        while waiting < MAX_WAITING
            && let Some((group, span)) = pcb.lost_to_share(flow, offset)
        {
            match flow.repairs.ask(now, span.start, member, round_trip) {
                Turn::Wait(at) => {
                    wake = Some(wake.map_or(at, |wake| wake.min(at)));
                    waiting += 1;
                }
                Turn::Sent(at) => pcb.was_repaired(at, flow, span),
                Turn::Unicast => return Some(SharedRepair::Unicast(pcb.repair(now, flow, span))),
                Turn::Multicast => {
                    pcb.repair_to_group(now, flow, span);
                    return Some(SharedRepair::Multicast(group, span));
                }
            }
            offset = span.end;
        }
        if let Some(wake) = wake {
            pcb.timers.set(Timer::Repair, wake);
        }
        None
    }
}
