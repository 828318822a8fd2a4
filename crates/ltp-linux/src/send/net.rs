//! The sockets.

use std::net::{SocketAddr, SocketAddrV4};

use linux_net::SendError;
use linux_net::udp::{self, Batch, GroupSocket, Membership, OptionBuffer, OptionSocket};
use lms_proto::LmsOption;
use ltp::{Destination, Meta, Path, Transmit};

use super::config::SendConfig;
use crate::interface::Local;
use crate::{Error, Recovery};

/// Bytes handed to the kernel at once; a UDP datagram before segmentation is no longer.
const BATCH_BYTES: usize = 65_000;

/// A socket for data and for packets to this host; with LMS also one for requests to the group.
pub(super) struct Net {
    pub(super) data: GroupSocket,
    pub(super) requests: Option<OptionSocket>,
    group: SocketAddrV4,
    batch: Batch,
    request: OptionBuffer,
    buffer: Box<[u8]>,
    /// A batch that did not fit the kernel's buffer: from `.1` on.
    waiting: Option<(Transmit, usize)>,
    /// Packets that the network refused for good.
    pub(super) refused: u64,
}

impl Net {
    pub(super) fn open(given: &SendConfig, local: &Local) -> Result<Net, Error> {
        let group = given.group.address;
        let config = udp::Config {
            // The kernel chooses a random port, so that a host that has not heard the sender cannot guess it.
            bind: SocketAddrV4::new(local.address, 0),
            interface: local.interface.index,
            ttl: given.group.ttl,
            // Receivers on this host get packets too.
            loopback: true,
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 2 << 20,
            ..udp::Config::default()
        };
        let data = GroupSocket::open(&config)?;
        data.set_segmentation(given.segmentation);
        let requests = match given.recovery {
            Recovery::Source | Recovery::Dyram { .. } => None,
            Recovery::Lms => {
                let bind = SocketAddrV4::new(*group.ip(), group.port());
                let socket = OptionSocket::open(&udp::Config { bind, ..config })?;
                let interface = local.interface.index;
                socket
                    .join(&Membership {
                        group: *group.ip(),
                        source: None,
                        interface,
                    })
                    .map_err(|source| Error::Join {
                        purpose: "joining the group to hear requests",
                        source,
                    })?;
                Some(socket)
            }
        };
        Ok(Net {
            data,
            requests,
            group,
            batch: Batch::new(4),
            request: OptionBuffer::new(2048),
            buffer: vec![0; BATCH_BYTES].into(),
            waiting: None,
            refused: 0,
        })
    }

    /// Takes what has arrived, a few batches at most.
    pub(super) fn receive(&mut self, mut take: impl FnMut(Meta, &[u8])) -> Result<(), Error> {
        for _ in 0..8 {
            if self.data.receive(&mut self.batch)? == 0 {
                break;
            }
            for datagram in self.batch.iter() {
                take(
                    Meta::unicast(SocketAddr::V4(datagram.source)),
                    datagram.payload,
                );
            }
        }
        let Some(requests) = &self.requests else {
            return Ok(());
        };
        for _ in 0..64 {
            let Some(datagram) = requests.receive(&mut self.request)? else {
                break;
            };
            let option = LmsOption::parse(datagram.options)
                .ok()
                .map(|(_, option)| option);
            let source = SocketAddr::V4(datagram.source);
            let meta = Meta {
                source,
                path: Path::Group,
                option,
                elected: true,
            };
            take(meta, datagram.payload);
        }
        Ok(())
    }

    /// Whether the last packets did not fit the kernel's buffer.
    pub(super) fn is_blocked(&self) -> bool {
        self.waiting.is_some()
    }

    /// Sends one batch that `next` writes. Returns false when it has none, or the kernel's buffer is full.
    pub(super) fn send(
        &mut self,
        next: impl FnOnce(&mut [u8]) -> Option<Transmit>,
    ) -> Result<bool, Error> {
        let (transmit, from) = match self.waiting.take() {
            Some(waiting) => waiting,
            None => match next(&mut self.buffer) {
                Some(transmit) => (transmit, 0),
                None => return Ok(false),
            },
        };
        let destination = match transmit.destination {
            Destination::Unicast(SocketAddr::V4(address)) => address,
            // A source sends neither requests nor dmcasts, and IPv4 only.
            _ => self.group,
        };
        let mut from = from;
        while from < transmit.len {
            let bytes = &self.buffer[from..transmit.len];
            let piece = udp::Transmit {
                destination,
                bytes,
                segment_len: transmit.segment_len,
            };
            match self.data.send(&piece) {
                Ok(taken) => from += taken,
                Err(SendError::WouldBlock) => {
                    self.waiting = Some((transmit, from));
                    return Ok(false);
                }
                Err(error @ SendError::TooBig) => {
                    return Err(Error::PacketTooBig(error));
                }
                // A receiver that vanished, or a route that flaps: repairs follow.
                Err(error) => {
                    if self.refused == 0 {
                        tracing::warn!(event = "send_refused", %error, peer = %destination, "packets are refused");
                    }
                    self.refused += 1;
                    break;
                }
            }
        }
        Ok(true)
    }
}
