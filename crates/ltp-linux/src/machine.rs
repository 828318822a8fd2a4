//! A sender or a receiver, alone or with DyRAM relays.

use ltp::relayed;
use ltp::store::Store;
use ltp::{Destination, Error, Instant, Machine, Meta, Transmit};

use crate::version::{FirstOther, OtherVersion};

/// A machine with its attachment to a relay.
pub(crate) trait Relayed: Machine<Meta = Meta, Transmit = Transmit, Error = Error> {
    /// The machine that the relay helps.
    type Inner: Machine<Meta = Meta, Transmit = Transmit, Error = Error>;

    fn inner(&self) -> &Self::Inner;
    fn inner_mut(&mut self) -> &mut Self::Inner;
    /// Whether a relay serves it.
    fn is_attached(&self) -> bool;
    /// Writes the packet with which it leaves the relay.
    fn leave(&mut self, buffer: &mut [u8]) -> Option<Transmit>;
    fn event(event: <Self::Inner as Machine>::Event) -> Self::Event;
}

macro_rules! relayed {
    ($name:ident: $inner:ident, $inner_mut:ident, $event:path) => {
        impl<S: Store> Relayed for relayed::$name<'static, S> {
            type Inner = ltp::$name<'static, S>;

            fn inner(&self) -> &Self::Inner {
                self.$inner()
            }
            fn inner_mut(&mut self) -> &mut Self::Inner {
                self.$inner_mut()
            }
            fn is_attached(&self) -> bool {
                self.relay().is_some()
            }
            fn leave(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
                self.leave(buffer)
            }
            fn event(event: <Self::Inner as Machine>::Event) -> Self::Event {
                $event(event)
            }
        }
    };
}

relayed!(Sender: sender, sender_mut, relayed::SenderEvent::Sender);
relayed!(Receiver: receiver, receiver_mut, relayed::ReceiverEvent::Receiver);

/// The machine that the loop drives.
pub(crate) enum Peer<R: Relayed> {
    Alone(Box<R::Inner>),
    Relayed(Box<R>, Gather),
}

impl<R: Relayed> Peer<R> {
    pub(crate) fn inner(&self) -> &R::Inner {
        match self {
            Peer::Alone(machine) => machine,
            Peer::Relayed(machine, _) => machine.inner(),
        }
    }

    pub(crate) fn inner_mut(&mut self) -> &mut R::Inner {
        match self {
            Peer::Alone(machine) => machine,
            Peer::Relayed(machine, _) => machine.inner_mut(),
        }
    }

    /// Returns the machine with its attachment, if relays help.
    pub(crate) fn relayed(&self) -> Option<&R> {
        match self {
            Peer::Alone(_) => None,
            Peer::Relayed(machine, _) => Some(machine),
        }
    }

    /// Handles a packet, and notes the first sender of another version. The machine counts packets that it drops.
    #[inline]
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &[u8],
        other_version: &mut FirstOther,
    ) {
        let handled = match self {
            Peer::Alone(machine) => machine.handle_packet(now, meta, packet),
            Peer::Relayed(machine, gather) => {
                let handled = machine.handle_packet(now, meta, packet);
                let of_relay = matches!(handled, Err(Error::Relay | Error::RelayVersion));
                gather.dropped += u64::from(of_relay);
                handled
            }
        };
        if let Err(error @ (Error::Version | Error::RelayVersion)) = handled {
            other_version.note(OtherVersion::of(error, meta.source, packet));
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        match self {
            Peer::Alone(machine) => machine.handle_timeout(now),
            Peer::Relayed(machine, _) => machine.handle_timeout(now),
        }
    }

    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        match self {
            Peer::Alone(machine) => machine.poll_timeout(),
            Peer::Relayed(_, gather) if gather.pending.is_some() => Some(now),
            Peer::Relayed(machine, _) => machine.poll_timeout(),
        }
    }

    /// Writes the next packets, as many of one length as the kernel takes at once.
    pub(crate) fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Peer::Alone(machine) => machine.poll_transmit(now, buffer),
            Peer::Relayed(machine, gather) => gather.poll_transmit(&mut **machine, now, buffer),
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<R::Event> {
        match self {
            Peer::Alone(machine) => machine.poll_event().map(R::event),
            Peer::Relayed(machine, _) => machine.poll_event(),
        }
    }

    /// Returns how many packets of relays were dropped.
    pub(crate) fn relay_dropped(&self) -> u64 {
        match self {
            Peer::Alone(_) => 0,
            Peer::Relayed(_, gather) => gather.dropped,
        }
    }

    /// Leaves the relay.
    pub(crate) fn leave(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Peer::Alone(_) => None,
            Peer::Relayed(machine, _) => machine.leave(buffer),
        }
    }
}

/// Gathers packets to a relay into segmentation batches, and counts those of relays that were dropped.
pub(crate) struct Gather {
    /// Packets of one length that the kernel takes at once.
    max_segments: usize,
    /// A packet that did not fit the batch before it.
    pending: Option<(Destination, Vec<u8>)>,
    /// Room for one packet, so that none is cut.
    packet_len: usize,
    /// Packets of relays that were malformed, of another version or not expected.
    dropped: u64,
}

impl Gather {
    /// `packet_len` is the length of the longest packet.
    pub(crate) fn new(max_segments: usize, packet_len: usize) -> Self {
        Gather {
            max_segments,
            pending: None,
            packet_len: packet_len.min(usize::from(u16::MAX)),
            dropped: 0,
        }
    }

    fn poll_transmit(
        &mut self,
        machine: &mut impl Machine<Transmit = Transmit>,
        now: Instant,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let (destination, len) = match self.pending.take() {
            Some((destination, bytes)) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                (destination, bytes.len())
            }
            None => {
                let first = machine.poll_transmit(now, buffer)?;
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
            let Some(next) = machine.poll_transmit(now, room) else {
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
