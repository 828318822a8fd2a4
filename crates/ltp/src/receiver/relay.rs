//! Below a DyRAM relay: the packets that it requests, and acknowledgements.

use proto_core::time::{Duration, Instant};

use super::{Phase, Receiver};
use crate::error::Error;
use crate::store::Store;
use crate::wire::Seq;

impl<S: Store> Receiver<'_, S> {
    /// Queues a packet that the relay requests (its number as on the wire) as a repair to
    /// [`crate::Destination::Relay`]. Returns whether the packet is stored.
    ///
    /// One that is held down after a repair counts as stored, and is not sent again.
    ///
    /// # Errors
    /// [`Error::Ended`] when this receiver does not repair, [`Error::BeforeSync`] before it knows
    /// the session.
    pub fn wanted(&mut self, now: Instant, sequence: u32) -> Result<bool, Error> {
        self.advance_clock(now);
        let session = self.session.as_ref().ok_or(Error::BeforeSync)?;
        if matches!(self.phase, Phase::Failed | Phase::Ended) || !self.config.replier.enabled {
            return Err(Error::Ended);
        }
        let geometry = session.geometry();
        let near = geometry.first_packet(self.window.frontier());
        let Some(number) = Seq(sequence).number(geometry.first(), near) else {
            return Ok(false);
        };
        let (block, index) = geometry.locate(number);
        let is_stored = number < self.gaps.highest()
            && block >= self.oldest_stored()
            && self.stored_packets(block) >> index & 1 == 1;
        if !is_stored {
            return Ok(false);
        }
        match self.replies.queue_for_relay(self.now, block, index) {
            Ok(()) => {
                self.stats.requests_taken += 1;
                Ok(true)
            }
            Err(Error::RequestHeldDown) => Ok(true),
            Err(Error::TargetsFull) => Err(Error::TargetsFull),
            // Without room: the relay elects another replier sooner when this one says so.
            Err(_) => Ok(false),
        }
    }

    /// Returns the number on the wire of the first packet that may be missing: all packets before it are
    /// verified, or will not be requested again. `None` before the session is known.
    pub fn acknowledged(&self) -> Option<u32> {
        let geometry = self.session.as_ref()?.geometry();
        let first = if self.is_complete() {
            self.gaps.highest()
        } else {
            geometry
                .first_packet(self.window.frontier())
                .min(self.gaps.highest())
        };
        Some(Seq::of(first, geometry.first()).0)
    }

    /// Sets the time that the relay may need for a repair: requests to it are repeated after twice that.
    pub fn set_relay_delay(&mut self, delay: Duration) {
        self.recovery.set_relay_delay(delay);
    }
}
