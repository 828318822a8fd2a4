//! The receiver, alone or below a tree of DyRAM relays.

use ltp::relayed::{self, ReceiverEvent as Event};
use ltp::{Error, Instant, Meta, Receiver, Transmit};

use super::sink::Content;

/// A machine that the loop drives.
pub(super) enum Machine {
    Alone(Box<Receiver<'static, Content>>),
    Relayed {
        receiver: Box<relayed::Receiver<'static, Content>>,
        /// Packets of relays that were malformed or not expected.
        dropped: u64,
    },
}

impl Machine {
    pub(super) fn receiver(&self) -> &Receiver<'static, Content> {
        match self {
            Machine::Alone(receiver) => receiver,
            Machine::Relayed { receiver, .. } => receiver.receiver(),
        }
    }

    pub(super) fn receiver_mut(&mut self) -> &mut Receiver<'static, Content> {
        match self {
            Machine::Alone(receiver) => receiver,
            Machine::Relayed { receiver, .. } => receiver.receiver_mut(),
        }
    }

    /// Handles a packet. The machine counts those that it drops.
    #[inline]
    pub(super) fn handle_packet(&mut self, now: Instant, meta: &Meta, packet: &[u8]) {
        match self {
            Machine::Alone(receiver) => {
                let _ = receiver.handle_packet(now, meta, packet);
            }
            Machine::Relayed { receiver, dropped } => {
                let result = receiver.handle_packet(now, meta, packet);
                *dropped += u64::from(result == Err(Error::Relay));
            }
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        match self {
            Machine::Alone(receiver) => receiver.handle_timeout(now),
            Machine::Relayed { receiver, .. } => receiver.handle_timeout(now),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Machine::Alone(receiver) => receiver.poll_timeout(),
            Machine::Relayed { receiver, .. } => receiver.poll_timeout(),
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Machine::Alone(receiver) => receiver.poll_transmit(now, buffer),
            Machine::Relayed { receiver, .. } => receiver.poll_transmit(now, buffer),
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        match self {
            Machine::Alone(receiver) => receiver.poll_event().map(Event::Receiver),
            Machine::Relayed { receiver, .. } => receiver.poll_event(),
        }
    }

    /// Whether a relay serves it: `None` without relays.
    pub(super) fn is_attached(&self) -> Option<bool> {
        match self {
            Machine::Alone(_) => None,
            Machine::Relayed { receiver, .. } => Some(receiver.relay().is_some()),
        }
    }

    /// Returns how many packets of relays were dropped.
    pub(super) fn relay_dropped(&self) -> u64 {
        match self {
            Machine::Alone(_) => 0,
            Machine::Relayed { dropped, .. } => *dropped,
        }
    }

    /// Leaves the relay.
    pub(super) fn leave(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Machine::Alone(_) => None,
            Machine::Relayed { receiver, .. } => receiver.leave(buffer),
        }
    }
}
