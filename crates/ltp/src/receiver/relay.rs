//! With a DyRAM relay's help: what the relay is asked and told, and what it asks for.

use smoltcp::time::{Duration, Instant};

use super::Receiver;
use crate::error::Error;
use crate::replier::Target;
use crate::store::Store;
use crate::wire::Sequence;

impl<S: Store> Receiver<'_, S> {
    /// The relay wants these packets (numbers as on the wire): those that are here are queued as
    /// repairs to [`crate::Destination::Relay`]. Says whether the packet is here.
    ///
    /// One that was repaired a moment ago counts as here, and is not sent again.
    ///
    /// # Errors
    /// [`Error::Ended`] when this receiver answers nobody, [`Error::BeforeSync`] before it knows
    /// the session.
    pub fn wanted(&mut self, now: Instant, sequence: u32) -> Result<bool, Error> {
        self.advance_clock(now);
        let session = self.session.as_ref().ok_or(Error::BeforeSync)?;
        if matches!(self.phase, super::Phase::Failed | super::Phase::Ended)
            || !self.config.replier.enabled
        {
            return Err(Error::Ended);
        }
        let geometry = session.geometry;
        let near = geometry.first_packet(self.frontier);
        let Some(number) = Sequence(sequence).number(geometry.first(), near) else {
            return Ok(false);
        };
        let (block, index) = geometry.locate(number);
        let held = number < self.highest
            && block >= self.oldest_held()
            && self.held_packets(block) >> index & 1 == 1;
        if !held {
            return Ok(false);
        }
        let target = self.repairs.target(self.now, Target::Relay);
        let target = target.ok_or(Error::TargetsFull)?;
        match self
            .repairs
            .ask(self.now, target, block as u32, 1 << index, 0)
        {
            Ok(_) => {
                self.answers_wait = true;
                self.stats.requests_taken += 1;
                Ok(true)
            }
            Err(Error::RequestHeldDown) => Ok(true),
            // With no room for it another one is asked sooner when this one says so.
            Err(_) => Ok(false),
        }
    }

    /// The number on the wire of the first packet that may be missing here: everything before it
    /// is verified, or will not be asked for again. `None` before the session is known.
    pub fn acknowledged(&self) -> Option<u32> {
        let geometry = self.session.as_ref()?.geometry;
        let first = if self.is_complete() {
            self.highest
        } else {
            geometry.first_packet(self.frontier).min(self.highest)
        };
        Some(Sequence::of(first, geometry.first()).0)
    }

    /// How long the relay may need for a repair: requests to it are not repeated sooner than after
    /// twice that.
    pub fn set_relay_delay(&mut self, delay: Duration) {
        self.relay_delay = delay;
    }

    pub(super) fn relay_timeout(&self, number: u32) -> Duration {
        let (min, max) = (
            self.config.min_timeout,
            self.config.max_timeout.max(self.config.min_timeout),
        );
        let base = (self.relay_delay * 2).clamp(min, max);
        (base * (1 << number.saturating_sub(1).min(8))).min(max)
    }
}
