//! The sender, alone or above a tree of DyRAM relays.

use ltp::relayed::{self, SenderEvent as Event};
use ltp::{Destination, Instant, Meta, Sender, Transmit};

use super::source::Content;

/// A machine that the loop drives.
pub(super) enum Machine {
    Alone(Box<Sender<'static, Content>>),
    Relayed(Box<Relayed>),
}

/// A sender whose packets go to a relay, gathered into segmentation batches.
pub(super) struct Relayed {
    sender: relayed::Sender<'static, Content>,
    /// Packets of one length that the kernel takes at once.
    max_segments: usize,
    /// A packet that did not fit the batch before it.
    pending: Option<(Destination, Vec<u8>)>,
    /// Room for one packet, so that none is cut.
    packet_len: usize,
}

impl Machine {
    pub(super) fn relayed(
        sender: relayed::Sender<'static, Content>,
        max_segments: usize,
    ) -> Machine {
        let packet_len = sender.sender().geometry().packet_len() + 256;
        Machine::Relayed(Box::new(Relayed {
            sender,
            max_segments,
            pending: None,
            packet_len: packet_len.min(usize::from(u16::MAX)),
        }))
    }

    pub(super) fn sender(&self) -> &Sender<'static, Content> {
        match self {
            Machine::Alone(sender) => sender,
            Machine::Relayed(relayed) => relayed.sender.sender(),
        }
    }

    pub(super) fn sender_mut(&mut self) -> &mut Sender<'static, Content> {
        match self {
            Machine::Alone(sender) => sender,
            Machine::Relayed(relayed) => relayed.sender.sender_mut(),
        }
    }

    /// Handles a packet. The machine counts those that it drops.
    pub(super) fn handle_packet(&mut self, now: Instant, meta: &Meta, packet: &[u8]) {
        let _ = match self {
            Machine::Alone(sender) => sender.handle_packet(now, meta, packet),
            Machine::Relayed(relayed) => relayed.sender.handle_packet(now, meta, packet),
        };
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        match self {
            Machine::Alone(sender) => sender.handle_timeout(now),
            Machine::Relayed(relayed) => relayed.sender.handle_timeout(now),
        }
    }

    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        match self {
            Machine::Alone(sender) => sender.poll_timeout(),
            Machine::Relayed(relayed) if relayed.pending.is_some() => Some(now),
            Machine::Relayed(relayed) => relayed.sender.poll_timeout(),
        }
    }

    /// Writes the next packets, as many of one length as the kernel takes at once.
    pub(super) fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Machine::Alone(sender) => sender.poll_transmit(now, buffer),
            Machine::Relayed(relayed) => relayed.gather(now, buffer),
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        match self {
            Machine::Alone(sender) => sender.poll_event().map(Event::Sender),
            Machine::Relayed(relayed) => relayed.sender.poll_event(),
        }
    }

    /// Whether a relay serves it: `None` without relays.
    pub(super) fn is_attached(&self) -> Option<bool> {
        match self {
            Machine::Alone(_) => None,
            Machine::Relayed(relayed) => Some(relayed.sender.relay().is_some()),
        }
    }

    /// Whether relays help, and no receiver below them has acknowledged or requested anything.
    pub(super) fn is_unheard(&self) -> bool {
        match self {
            Machine::Alone(_) => false,
            Machine::Relayed(relayed) => !relayed.sender.is_heard(),
        }
    }

    /// Leaves the relay.
    pub(super) fn leave(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Machine::Alone(_) => None,
            Machine::Relayed(relayed) => relayed.sender.leave(buffer),
        }
    }
}

impl Relayed {
    fn gather(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let (destination, len) = match self.pending.take() {
            Some((destination, bytes)) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                (destination, bytes.len())
            }
            None => {
                let first = self.sender.poll_transmit(now, buffer)?;
                (first.destination, first.len)
            }
        };
        let (mut total, mut count, mut last) = (len, 1, len);
        // The last one may be shorter.
        while last == len && count < self.max_segments {
            let room = &mut buffer[total..];
            if room.len() < self.packet_len {
                break;
            }
            let Some(next) = self.sender.poll_transmit(now, room) else {
                break;
            };
            if next.destination != destination || next.len > len {
                self.pending = Some((next.destination, room[..next.len].to_vec()));
                break;
            }
            (total, count, last) = (total + next.len, count + 1, next.len);
        }
        Some(Transmit {
            destination,
            len: total,
            segment_len: (count > 1).then_some(len),
        })
    }
}
