//! The receiver, alone or below a tree of DyRAM relays.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};

use ltp::tree::{AttachmentEvent, Leaf};
use ltp::{Error, Instant, Meta, Path, Receiver, Transmit};

use super::sink::Content;
use crate::Error as TransferError;

/// A machine that the loop drives.
pub(super) enum Machine {
    Alone(Box<Receiver<'static, Content>>),
    Below(Box<Below>),
}

/// A receiver whose packets come from a relay.
pub(super) struct Below {
    leaf: Leaf<'static, Content>,
    /// Packets of relays that did not fit.
    dropped: u64,
}

impl Machine {
    /// A receiver below one of these relays.
    pub(super) fn below(
        receiver: Receiver<'static, Content>,
        source: IpAddr,
        group: IpAddr,
        relays: &[SocketAddrV4],
        now: Instant,
    ) -> Result<Machine, TransferError> {
        let relays = relays.iter().copied().map(SocketAddr::V4).collect();
        let seed = linux_net::process::random().map_err(|source| TransferError::Io {
            what: "reading /dev/urandom",
            source,
        })?;
        let leaf = Leaf::new(receiver, source, group, relays, seed, now).ok_or(
            TransferError::Config("source and group are of different address families"),
        )?;
        Ok(Machine::Below(Box::new(Below { leaf, dropped: 0 })))
    }

    pub(super) fn receiver(&self) -> &Receiver<'static, Content> {
        match self {
            Machine::Alone(receiver) => receiver,
            Machine::Below(below) => below.leaf.receiver(),
        }
    }

    pub(super) fn receiver_mut(&mut self) -> &mut Receiver<'static, Content> {
        match self {
            Machine::Alone(receiver) => receiver,
            Machine::Below(below) => below.leaf.receiver_mut(),
        }
    }

    /// A packet arrived; what is dropped is counted.
    #[inline]
    pub(super) fn handle_packet(&mut self, now: Instant, meta: &Meta, packet: &[u8]) {
        match self {
            Machine::Alone(receiver) => {
                // Counted by the machine under its reason.
                let _ = receiver.handle_packet(now, meta, packet);
            }
            Machine::Below(below) => {
                let result = match meta.path {
                    Path::Group => below.leaf.handle_group_packet(now, meta.source, packet),
                    Path::Unicast => below.leaf.handle_packet(now, meta.source, packet),
                };
                below.dropped += u64::from(result == Err(Error::Relay));
            }
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        match self {
            Machine::Alone(receiver) => receiver.handle_timeout(now),
            Machine::Below(below) => below.leaf.handle_timeout(now),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Machine::Alone(receiver) => receiver.poll_timeout(),
            Machine::Below(below) => below.leaf.poll_timeout(),
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Machine::Alone(receiver) => receiver.poll_transmit(now, buffer),
            Machine::Below(below) => below.leaf.poll_transmit(now, buffer).map(Transmit::from),
        }
    }

    /// Whether a relay serves it: `None` without relays.
    pub(super) fn is_attached(&self) -> Option<bool> {
        match self {
            Machine::Alone(_) => None,
            Machine::Below(below) => Some(below.leaf.relay().is_some()),
        }
    }

    pub(super) fn poll_relay_event(&mut self) -> Option<AttachmentEvent> {
        match self {
            Machine::Alone(_) => None,
            Machine::Below(below) => below.leaf.poll_relay_event(),
        }
    }

    /// Packets of relays that did not fit.
    pub(super) fn relay_dropped(&self) -> u64 {
        match self {
            Machine::Alone(_) => 0,
            Machine::Below(below) => below.dropped,
        }
    }

    /// Says goodbye to the relay.
    pub(super) fn leave(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Machine::Alone(_) => None,
            Machine::Below(below) => below.leaf.leave(buffer).map(Transmit::from),
        }
    }
}
