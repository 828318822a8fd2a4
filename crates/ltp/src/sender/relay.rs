//! Above a DyRAM relay: its requests, and its acknowledgement for the slowest receiver below it.

#[cfg(test)]
mod tests;

use proto_core::time::Instant;

use super::{Phase, Sender};
use crate::error::Error;
use crate::event::SenderEvent;
use crate::replier::{Target, Wanted};
use crate::store::Store;

/// The acknowledgement of a relay for all receivers below it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoldedAck {
    /// First packet that is not acknowledged.
    number: u64,
    /// The highest such number of this relay so far: only more than that is progress.
    highest: u64,
    /// When it last advanced, or lacked nothing.
    advanced: Instant,
    /// It stood still for too long, and the application was told.
    stalled: bool,
}

/// The relay above which this sender stands, if it does.
#[derive(Default, Debug)]
pub(super) struct RelayState {
    ack: Option<FoldedAck>,
    /// No relay serves this source: new data waits.
    is_awaited: bool,
}

impl<S: Store> Sender<'_, S> {
    /// Queues a packet that the relay requests (its number as on the wire) as a repair to
    /// [`crate::Destination::Relay`]. Returns whether it is still stored.
    ///
    /// One that is held down after a repair counts as stored, and is not sent again.
    ///
    /// # Errors
    /// [`Error::Ended`] when the sender has ended.
    pub fn wanted(&mut self, now: Instant, sequence: u32) -> Result<bool, Error> {
        self.advance_clock(now);
        if self.is_ended() {
            return Err(Error::Ended);
        }
        let number = self.content.number(sequence);
        let Some(number) = number.filter(|&number| number < self.content.next()) else {
            return Ok(false);
        };
        let (block, index) = self.content.geometry().locate(number);
        if block < self.content.oldest_block() {
            return Ok(false);
        }
        self.stats.requested_packets += 1;
        let target = self.repairs.target(self.now, Target::Relay);
        let target = target.ok_or(Error::TargetsFull)?;
        match self
            .repairs
            .queue(self.now, target, &Wanted::packet(block, index))
        {
            Ok(_) | Err(Error::RequestHeldDown) => {
                self.stats.requests_group += 1;
                self.touch_linger();
                Ok(true)
            }
            // It will be requested again.
            Err(_) => Ok(true),
        }
    }

    /// Everything before that packet (number as on the wire) is held by all below the relay. New
    /// data does not get further ahead of it than [`crate::SenderConfig::window_blocks`], and a
    /// stream overwrites nothing that is not acknowledged, until the acknowledgement has not advanced for
    /// [`crate::SenderConfig::receiver_timeout`] although it lacked something.
    pub fn acknowledged(&mut self, now: Instant, sequence: u32) {
        self.advance_clock(now);
        let number = self.content.number(sequence);
        let Some(number) = number.filter(|&number| number <= self.content.next()) else {
            return;
        };
        let before = self.relay.ack;
        let advanced = before.is_none_or(|before| number > before.highest);
        // One that lacks nothing cannot advance.
        let (block, _) = self.content.geometry().locate(number);
        let lacks_nothing = number >= self.content.next() || block >= self.content.blocks_sent();
        let (mut stalled, mut at) = before.map_or((false, now), |b| (b.stalled, b.advanced));
        if advanced || lacks_nothing {
            (stalled, at) = (false, self.now);
        }
        self.relay.ack = Some(FoldedAck {
            number,
            highest: before.map_or(number, |before| before.highest.max(number)),
            advanced: at,
            stalled,
        });
        // Relays repeat themselves for as long as they have children, which may lack nothing.
        if advanced {
            self.touch_linger();
        }
    }

    /// A relay answers for all receivers below it: none of those can be given up alone because it is too slow.
    pub(crate) fn follow_relays(&mut self) {
        self.config.min_rate_bps = None;
    }

    /// Another relay serves this source: its acknowledgements begin anew.
    pub(crate) fn relay_changed(&mut self, now: Instant) {
        self.advance_clock(now);
        if let Some(ack) = &mut self.relay.ack {
            ack.highest = 0;
            ack.advanced = self.now;
            ack.stalled = false;
        }
    }

    /// Whether something below the relay lacks packets that were sent, and has not stood still for too long.
    pub(super) fn relay_lacks(&self) -> bool {
        self.relay
            .ack
            .is_some_and(|ack| ack.number < self.content.next() && !self.is_expired(&ack))
    }

    /// Whether the relay's acknowledgement does not count, since it stood still for too long.
    pub fn is_relay_stalled(&self) -> bool {
        self.relay.ack.is_some_and(|ack| ack.stalled)
    }

    fn is_expired(&self, ack: &FoldedAck) -> bool {
        self.now >= ack.advanced + self.progress_timeout()
    }

    /// Tells the application when the relay's acknowledgement has stood still for too long.
    pub(super) fn check_relay(&mut self) {
        let Some(ack) = self.relay.ack else { return };
        let (block, _) = self.content.geometry().locate(ack.number);
        let open = matches!(self.phase, Phase::Sending | Phase::Sent);
        // Of a block that is being sent it may lack what is on its way.
        let lacks = block < self.content.blocks_sent() && ack.number < self.content.next();
        if open && lacks && !ack.stalled && self.is_expired(&ack) {
            self.relay.ack = Some(FoldedAck {
                stalled: true,
                ..ack
            });
            self.event(SenderEvent::RelayStalled { blocks: block });
        }
    }

    /// Sets whether new data waits for a relay to carry it.
    pub(crate) fn wait_for_relay(&mut self, waits: bool) {
        self.relay.is_awaited = waits;
    }

    pub(crate) fn has_relay_ack(&self) -> bool {
        self.relay.ack.is_some()
    }

    /// The number on the wire of the next packet to be sent for the first time.
    pub fn next_sequence(&self) -> u32 {
        self.content.sequence(self.content.next()).0
    }

    /// How long a receiver, or the relay, is waited for.
    pub(crate) fn receiver_timeout(&self) -> proto_core::time::Duration {
        self.config.receiver_timeout
    }

    /// Returns the first block that a receiver below the relay may lack.
    pub(super) fn relay_slowest(&self) -> Option<u64> {
        let ack = self.relay.ack.filter(|ack| !self.is_expired(ack))?;
        Some(self.content.geometry().locate(ack.number).0)
    }

    /// New data must stay below this block; 0 while a relay is awaited.
    pub(super) fn limit(&self) -> u64 {
        if self.relay.is_awaited {
            return 0;
        }
        let window = self.config.window_blocks;
        let behind = self.relay_slowest().zip(window);
        let relay = behind.map_or(u64::MAX, |(block, window)| block + u64::from(window));
        self.receivers.limit().min(relay)
    }
}
