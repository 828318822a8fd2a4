//! With a DyRAM relay's help: what the relay is asked and told, and what it asks for.

use proto_core::time::{Duration, Instant};

use super::window::{COMPUTED, DISPUTED, VERIFIED};
use super::{Announced, Receiver, Timer};
use crate::config::Assist;
use crate::error::Error;
use crate::replier::Target;
use crate::store::Store;
use crate::wire::Seq;

/// The longest wait for digests that come again.
const DIGESTS_AGAIN: Duration = Duration::from_millis(1000);

/// Packets asked for at first; a relay has 64 NACK states for a session by default.
const START: u16 = 32;
/// Packets that may always be asked for.
const LEAST: u16 = 8;

/// How many packets may be asked of a relay at a time. A relay has NACK states for a few dozen packets, drops
/// NACKs beyond them and cannot say so: the window grows with each repair that answers a first request, and is
/// halved when packets must be asked for again, as TCP's congestion window is (RFC 5681).
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestWindow {
    packets: u16,
    threshold: u16,
    /// Repairs since the window last grew, beyond the threshold.
    repairs: u16,
    /// When it was last halved, in milliseconds; wraps.
    halved_ms: u32,
}

fn milliseconds(now: Instant) -> u32 {
    now.total_millis() as u32
}

impl RequestWindow {
    pub(super) fn new(now: Instant) -> Self {
        RequestWindow {
            packets: START,
            threshold: u16::MAX,
            repairs: 0,
            halved_ms: milliseconds(now),
        }
    }

    /// A repair came that was asked for once.
    fn repaired(&mut self, most: u32) {
        let most = u16::try_from(most).unwrap_or(u16::MAX);
        self.repairs = self.repairs.saturating_add(1);
        if self.packets < self.threshold || self.repairs >= self.packets {
            self.packets = self.packets.saturating_add(1).min(most);
            self.repairs = 0;
        }
    }

    /// Something must be asked for again; halved once in the time that an answer takes.
    fn repeated(&mut self, now: Instant, wait: Duration) {
        let since = milliseconds(now).wrapping_sub(self.halved_ms);
        if u64::from(since) >= wait.total_millis() {
            self.halved_ms = milliseconds(now);
            self.threshold = (self.packets / 2).max(LEAST);
            self.packets = self.threshold;
            self.repairs = 0;
        }
    }
}

impl<S: Store> Receiver<'_, S> {
    /// Packets that may be outstanding.
    pub(super) fn request_limit(&self) -> u32 {
        match self.config.assist {
            Assist::Dyram => u32::from(self.relay_window.packets).min(self.config.max_outstanding),
            _ => self.config.max_outstanding,
        }
    }

    /// A packet came that was asked for so often.
    pub(super) fn relay_repaired(&mut self, attempts: u8) {
        if attempts == 1 {
            self.relay_window.repaired(self.config.max_outstanding);
        }
    }

    /// Packets are asked for that were asked for before.
    pub(super) fn relay_repeats(&mut self) {
        let wait = self.relay_timeout(1);
        self.relay_window.repeated(self.now, wait);
    }

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
        let Some(number) = Seq(sequence).number(geometry.first(), near) else {
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
        Some(Seq::of(first, geometry.first()).0)
    }

    /// How long the relay may need for a repair: requests to it are not repeated sooner than after
    /// twice that.
    pub fn set_relay_delay(&mut self, delay: Duration) {
        self.relay_delay = delay;
    }

    /// How long blocks that are here wait for digests that are not, before the source is asked. Below a
    /// relay what was lost comes again with the next ones, and for two of these is waited: else all who
    /// are below a link that lost a packet would ask the source at once.
    pub(super) fn digest_patience(&self) -> Duration {
        let least = self.config.gap_delay * 2;
        if self.config.assist != Assist::Dyram || !self.digests_come_again() {
            return least;
        }
        (self.announced.gap * 5 / 2).clamp(least, DIGESTS_AGAIN.max(least))
    }

    /// Whether there will be more digests, and nothing waits here that they do not name any more.
    fn digests_come_again(&self) -> bool {
        let Some(session) = &self.session else {
            return false;
        };
        let end = session.length.map(|length| session.geometry.blocks(length));
        let more = end.is_none_or(|end| session.digested < end);
        let passed = self.slots.get(self.frontier).is_some_and(|slot| {
            slot.is(DISPUTED)
                || slot.is(COMPUTED) && !slot.is(VERIFIED) && self.frontier < self.announced.first
        });
        more && !passed && !self.wants_left() && !self.audit_wants_digests()
    }

    /// Digests for all have come, of the blocks from `first` on: the wait for what they lack begins anew.
    pub(super) fn digests_announced(&mut self, first: u64) {
        let before = self.announced;
        self.announced = Announced {
            at: Some(self.now),
            gap: before.at.map_or(Duration::ZERO, |at| self.now - at),
            first,
        };
        // Those that say nothing new put nothing off.
        let waits = self.config.assist == Assist::Dyram && self.digest_ask.is_none();
        if waits && first > before.first {
            self.timers.stop(Timer::Digests);
        }
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
