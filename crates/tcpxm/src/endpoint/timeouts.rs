//! Time.

use proto_core::time::Instant;

use super::{Endpoint, timer_key};
use crate::store::Store;

impl<S: Store> Endpoint<S> {
    /// Time has passed. Harmless when called early or twice.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        let key = timer_key(now);
        while self.timers.min() <= key {
            let Some(index) = self.timers.argmin() else {
                break;
            };
            self.timers.clear(index);
            let index = index as u32;
            let Some((pcb, flow, _)) = self.parts(index) else {
                continue;
            };
            if pcb.handle_timeout(now, flow) {
                flow.override_once = true;
            }
            self.sync(index);
        }
        while self.session_timers.min() <= key {
            let Some(index) = self.session_timers.argmin() else {
                break;
            };
            self.session_timers.clear(index);
            let index = index as u32;
            self.check_rate(index, now);
            self.resume_spread(index, now);
            self.give_turn(index);
        }
    }
}
