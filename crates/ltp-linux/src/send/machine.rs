//! The sender, alone or above a tree of DyRAM relays.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};

use ltp::tree::{AttachmentEvent, Root, Stalled};
use ltp::{Instant, Meta, Sender, Transmit};

use super::source::Content;
use crate::Error;

/// A machine that the loop drives.
pub(super) enum Machine {
    Alone(Box<Sender<'static, Content>>),
    Above(Box<Above>),
}

/// A sender whose packets go to a relay.
pub(super) struct Above {
    root: Root<'static, Content>,
    /// Packets of one length that the kernel takes at once.
    max_segments: usize,
    /// A packet that did not fit to those before it.
    held: Option<(SocketAddr, Vec<u8>)>,
    /// Room for one packet, so that none is cut.
    packet: usize,
}

impl Machine {
    /// A sender above relays; its socket has that address. `carrier`: the group, when IP multicast carries
    /// the data beside them.
    pub(super) fn above(
        sender: Sender<'static, Content>,
        socket: SocketAddrV4,
        group: IpAddr,
        carrier: Option<SocketAddrV4>,
        relays: &[SocketAddrV4],
        max_segments: usize,
        now: Instant,
    ) -> Result<Machine, Error> {
        let packet = usize::from(u16::MAX).min(sender.geometry().packet_len() + 256);
        let relays = relays.iter().copied().map(SocketAddr::V4).collect();
        let seed = linux_net::process::random().map_err(|source| Error::Io {
            what: "reading /dev/urandom",
            source,
        })?;
        let root = Root::new(sender, socket.into(), group, relays, seed, now).ok_or(
            Error::Config("source and group are of different address families"),
        )?;
        let root = match carrier {
            Some(group) => root.over_multicast(group.into()),
            None => root,
        };
        Ok(Machine::Above(Box::new(Above {
            root,
            max_segments,
            held: None,
            packet,
        })))
    }

    pub(super) fn sender(&self) -> &Sender<'static, Content> {
        match self {
            Machine::Alone(sender) => sender,
            Machine::Above(above) => above.root.sender(),
        }
    }

    pub(super) fn sender_mut(&mut self) -> &mut Sender<'static, Content> {
        match self {
            Machine::Alone(sender) => sender,
            Machine::Above(above) => above.root.sender_mut(),
        }
    }

    /// A packet arrived; what is dropped is counted by the machine under its reason.
    pub(super) fn handle_packet(&mut self, now: Instant, meta: &Meta, packet: &[u8]) {
        let _ = match self {
            Machine::Alone(sender) => sender.handle_packet(now, meta, packet),
            Machine::Above(above) => above.root.handle_packet(now, meta.source, packet),
        };
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        match self {
            Machine::Alone(sender) => sender.handle_timeout(now),
            Machine::Above(above) => above.root.handle_timeout(now),
        }
    }

    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        match self {
            Machine::Alone(sender) => sender.poll_timeout(),
            Machine::Above(above) if above.held.is_some() => Some(now),
            Machine::Above(above) => above.root.poll_timeout(),
        }
    }

    /// The next packets, as many of one length as the kernel takes at once.
    pub(super) fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Machine::Alone(sender) => sender.poll_transmit(now, buffer),
            Machine::Above(above) => above.gather(now, buffer),
        }
    }

    /// Whether relays serve it: `None` without relays.
    pub(super) fn is_attached(&self) -> Option<bool> {
        match self {
            Machine::Alone(_) => None,
            Machine::Above(above) => Some(above.root.relay().is_some()),
        }
    }

    /// Whether relays help, and no receiver below them has acknowledged or asked for anything.
    pub(super) fn is_unheard(&self) -> bool {
        match self {
            Machine::Alone(_) => false,
            Machine::Above(above) => !above.root.is_heard(),
        }
    }

    pub(super) fn poll_relay_event(&mut self) -> Option<AttachmentEvent> {
        match self {
            Machine::Alone(_) => None,
            Machine::Above(above) => above.root.poll_relay_event(),
        }
    }

    /// The next receiver or relay that the tree of relays has stopped waiting for.
    pub(super) fn poll_stalled(&mut self) -> Option<Stalled> {
        match self {
            Machine::Alone(_) => None,
            Machine::Above(above) => above.root.poll_stalled(),
        }
    }

    /// Says goodbye to the relay.
    pub(super) fn leave(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Machine::Alone(_) => None,
            Machine::Above(above) => above.root.leave(buffer).map(Transmit::from),
        }
    }
}

impl Above {
    fn gather(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let (destination, len) = match self.held.take() {
            Some((destination, bytes)) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                (destination, bytes.len())
            }
            None => {
                let first = self.root.poll_transmit(now, buffer)?;
                (first.destination, first.len)
            }
        };
        let (mut total, mut count, mut last) = (len, 1, len);
        // The last one may be shorter.
        while last == len && count < self.max_segments {
            let room = &mut buffer[total..];
            if room.len() < self.packet {
                break;
            }
            let Some(next) = self.root.poll_transmit(now, room) else {
                break;
            };
            if next.destination != destination || next.len > len {
                self.held = Some((next.destination, room[..next.len].to_vec()));
                break;
            }
            (total, count, last) = (total + next.len, count + 1, next.len);
        }
        Some(Transmit {
            destination: ltp::Destination::Unicast(destination),
            len: total,
            segment_len: (count > 1).then_some(len),
        })
    }
}
