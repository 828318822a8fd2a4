//! The sockets.

use std::net::{SocketAddr, SocketAddrV4};

use linux_net::SendError;
use linux_net::udp::{self, Batch, GroupSocket, Membership, Options};
use ltp::{Destination, Instant, Meta, Transmit};

use super::config::ReceiveConfig;
use super::lms::Lms;
use crate::Error;
use crate::interface::Local;

/// Size of the receive buffer: more than a sender's window (24 MiB), with the kernel's overhead.
const BUFFER_BYTES: usize = 32 << 20;
/// Pieces taken at once where the kernel joins packets to pieces of up to 64 KiB: few enough to
/// stay in the cache until they are gathered.
const LARGE_PIECES: usize = 2;
/// From this average on pieces count as large, bytes.
const LARGE: usize = 8 << 10;

/// A socket for the group's data, and one for unicast. Below a relay one socket serves both.
pub(super) struct Net {
    pub(super) data: GroupSocket,
    pub(super) unicast: Option<GroupSocket>,
    pub(super) lms: Option<Lms>,
    group: SocketAddrV4,
    /// For single packets: many, to save system calls.
    batch: Batch,
    large_batch: Batch,
    is_large: bool,
    buffer: Box<[u8]>,
}

impl Net {
    /// The one socket of a host below a relay.
    pub(super) fn relayed(local: &Local) -> Result<Net, Error> {
        let data = GroupSocket::open(&udp::Config {
            bind: SocketAddrV4::new(local.address, 0),
            interface: local.interface.index,
            receive_buffer_bytes: BUFFER_BYTES,
            send_buffer_bytes: 1 << 20,
            options: Options::Refuse,
            ..udp::Config::default()
        })?;
        let group = data
            .local_address()
            .map_err(Error::io("the socket's address"))?;
        Net::new(data, None, None, group)
    }

    pub(super) fn open(
        given: &ReceiveConfig,
        local: &Local,
        lms: Option<Lms>,
    ) -> Result<Net, Error> {
        let group = given.group.address;
        let interface = local.interface.index;
        let data = GroupSocket::open(&udp::Config {
            bind: group,
            interface,
            receive_buffer_bytes: BUFFER_BYTES,
            send_buffer_bytes: 1 << 16,
            // Requests of other receivers; those for this host come by another socket.
            options: Options::Refuse,
            ..udp::Config::default()
        })?;
        data.join(&Membership {
            group: *group.ip(),
            source: given.source,
            interface,
        })
        .map_err(|source| Error::Join {
            purpose: "joining the group",
            source,
        })?;
        let unicast = GroupSocket::open(&udp::Config {
            bind: SocketAddrV4::new(local.address, 0),
            interface,
            ttl: given.group.ttl,
            receive_buffer_bytes: BUFFER_BYTES / 8,
            send_buffer_bytes: 1 << 20,
            ..udp::Config::default()
        })?;
        Net::new(data, Some(unicast), lms, group)
    }

    fn new(
        data: GroupSocket,
        unicast: Option<GroupSocket>,
        lms: Option<Lms>,
        group: SocketAddrV4,
    ) -> Result<Net, Error> {
        let granted = data
            .receive_buffer_bytes()
            .map_err(Error::io("the receive buffer's size"))?;
        if granted < BUFFER_BYTES {
            tracing::info!(
                granted,
                "a small receive buffer: raise net.core.rmem_max to {BUFFER_BYTES} for high rates"
            );
        }
        let buffer = vec![0; 1 << 16].into();
        Ok(Net {
            data,
            unicast,
            lms,
            group,
            batch: Batch::new(Batch::MAX),
            large_batch: Batch::new(LARGE_PIECES),
            is_large: false,
            buffer,
        })
    }

    /// Takes one batch of the group's data; how many pieces came.
    pub(super) fn receive_data(
        &mut self,
        mut take: impl FnMut(&Meta, &[u8]),
    ) -> Result<usize, Error> {
        let batch = if self.is_large {
            &mut self.large_batch
        } else {
            &mut self.batch
        };
        let pieces = self.data.receive(batch)?;
        let mut bytes = 0;
        for piece in batch.pieces() {
            let source = SocketAddr::V4(piece.source);
            let meta = match self.unicast {
                Some(_) => Meta::group(source),
                None => Meta::unicast(source),
            };
            for payload in piece.payloads() {
                bytes += payload.len();
                take(&meta, payload);
            }
        }
        if let Some(average) = bytes.checked_div(pieces) {
            self.is_large = average >= LARGE;
        }
        Ok(pieces)
    }

    /// Takes packets to this host and, with LMS, requests of other receivers.
    pub(super) fn receive_rest(
        &mut self,
        now: Instant,
        mut take: impl FnMut(&Meta, &[u8]),
    ) -> Result<(), Error> {
        let Some(unicast) = &self.unicast else {
            return Ok(());
        };
        for _ in 0..8 {
            if unicast.receive(&mut self.batch)? == 0 {
                break;
            }
            for datagram in self.batch.iter() {
                take(
                    &Meta::unicast(SocketAddr::V4(datagram.source)),
                    datagram.payload,
                );
            }
        }
        if let Some(lms) = &mut self.lms {
            lms.receive(now, &mut take);
        }
        Ok(())
    }

    /// Sends one packet that `next` writes; false when it has none.
    pub(super) fn send(&mut self, next: impl FnOnce(&mut [u8]) -> Option<Transmit>) -> bool {
        let Some(transmit) = next(&mut self.buffer) else {
            return false;
        };
        let bytes = &self.buffer[..transmit.len];
        let unicast = self.unicast.as_ref().unwrap_or(&self.data);
        let result = match (transmit.destination, &mut self.lms) {
            (Destination::Unicast(SocketAddr::V4(destination)), _) => {
                let piece = udp::Transmit {
                    destination,
                    bytes,
                    segment_len: transmit.segment_len,
                };
                unicast.send(&piece).map(|_| ())
            }
            (Destination::Request(option), Some(lms)) => lms.send_request(&option, bytes),
            (Destination::Dmcast(turning_point), Some(lms)) => {
                lms.send_repair(turning_point, bytes)
            }
            // Without assistance nothing else is asked for, and IPv4 is all there is.
            (Destination::Group, _) => {
                let piece = udp::Transmit {
                    destination: self.group,
                    bytes,
                    segment_len: None,
                };
                unicast.send(&piece).map(|_| ())
            }
            _ => Ok(()),
        };
        // A packet that is not sent is repeated later.
        match result {
            Ok(()) | Err(SendError::WouldBlock) => {}
            Err(error) => tracing::debug!(%error, destination = ?transmit.destination, "not sent"),
        }
        true
    }
}
