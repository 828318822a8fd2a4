//! With a DyRAM relay's help: what it wants, and how far the slowest below it is.

use smoltcp::time::Instant;

use super::Sender;
use crate::error::Error;
use crate::replier::Target;
use crate::store::Store;
use crate::wire::Sequence;

impl<S: Store> Sender<'_, S> {
    /// The relay wants this packet (number as on the wire): it is queued as a repair to
    /// [`crate::Destination::Relay`]. Says whether it is still held.
    ///
    /// One that was repaired a moment ago counts as held, and is not sent again.
    ///
    /// # Errors
    /// [`Error::Ended`] when the sender has ended.
    pub fn wanted(&mut self, now: Instant, sequence: u32) -> Result<bool, Error> {
        self.advance_clock(now);
        if self.is_ended() {
            return Err(Error::Ended);
        }
        let geometry = self.geometry;
        let number = Sequence(sequence).number(geometry.first(), self.next);
        let Some(number) = number.filter(|&number| number < self.next) else {
            return Ok(false);
        };
        let (block, index) = geometry.locate(number);
        if block < self.oldest_block() {
            return Ok(false);
        }
        self.stats.requested_packets += 1;
        let target = self.repairs.target(self.now, Target::Relay);
        let target = target.ok_or(Error::TargetsFull)?;
        match self
            .repairs
            .ask(self.now, target, block as u32, 1 << index, 0)
        {
            Ok(_) | Err(Error::RequestHeldDown) => {
                self.stats.requests_group += 1;
                self.touch_linger();
                Ok(true)
            }
            // It will be asked for again.
            Err(_) => Ok(true),
        }
    }

    /// Everything before that packet (number as on the wire) is held by all below the relay. New
    /// data does not get further ahead of it than [`crate::SenderConfig::window_blocks`], and a
    /// stream overwrites nothing that is behind. What was said long ago
    /// ([`crate::SenderConfig::receiver_timeout`]) does not count any more.
    pub fn acknowledged(&mut self, now: Instant, sequence: u32) {
        self.advance_clock(now);
        let number = Sequence(sequence).number(self.geometry.first(), self.next);
        if let Some(number) = number.filter(|&number| number <= self.next) {
            let (block, _) = self.geometry.locate(number);
            let before = self.relay_ack.replace((block, self.now));
            // Relays repeat themselves for as long as somebody is below them, who may want nothing.
            if number < self.next || before.is_none_or(|(before, _)| before != block) {
                self.touch_linger();
            }
        }
    }

    /// Digests come with the next ones again: relays have DATA repaired, not what else a source says, and
    /// who lost a packet of digests would ask the source itself.
    pub(crate) fn say_digests_again(&mut self) {
        self.digests_again = true;
    }

    /// Whether new data has to wait, since nobody would carry it.
    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    pub(crate) fn has_relay_ack(&self) -> bool {
        self.relay_ack.is_some()
    }

    /// The number on the wire of the next packet to be sent for the first time.
    pub fn next_sequence(&self) -> u32 {
        Sequence::of(self.next, self.geometry.first()).0
    }

    /// First block that somebody below the relay may lack.
    pub(super) fn relay_slowest(&self) -> Option<u64> {
        let (block, at) = self.relay_ack?;
        (self.now < at + self.config.receiver_timeout).then_some(block)
    }

    /// New data must stay below this block.
    pub(super) fn limit(&self) -> u64 {
        let window = self.config.window_blocks;
        let behind = self.relay_slowest().zip(window);
        let relay = behind.map_or(u64::MAX, |(block, window)| block + u64::from(window));
        self.window.limit().min(relay)
    }
}
