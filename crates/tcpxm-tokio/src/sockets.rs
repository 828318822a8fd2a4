//! The sockets of an endpoint: one for unicast and what it sends, one for each group it hears.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;

use linux_net::poll::Watch;
use linux_net::udp::{self, Batch, GroupSocket, Membership};
use linux_net::{OpenError, ReceiveError, SendError};

use crate::Config;

/// Batches taken before something is sent again.
const BATCHES: usize = 4;
/// Pieces of up to 64 KiB in a batch.
const PIECES: usize = 4;

pub(crate) struct Sockets {
    unicast: GroupSocket,
    /// Who is heard on a group, and how many connections want it.
    groups: BTreeMap<Ipv4Addr, (GroupSocket, Vec<Ipv4Addr>)>,
    batch: Batch,
    local: SocketAddrV4,
    config: udp::Config,
}

fn refused(error: OpenError) -> io::Error {
    let kind = match error {
        OpenError::AddressInUse { .. } => io::ErrorKind::AddrInUse,
        OpenError::Privilege { .. } => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

impl Sockets {
    pub(crate) fn open(config: &Config) -> io::Result<Sockets> {
        let settings = udp::Config {
            bind: config.bind,
            interface: config.interface,
            ttl: config.ttl,
            // Receivers on this host hear it too.
            loopback: true,
            receive_buffer_bytes: config.receive_buffer_bytes,
            ..udp::Config::default()
        };
        // Sockets that allow an address to be used again share it in silence: one that does not
        // finds out whether it is in use.
        if config.bind.port() != 0 {
            drop(std::net::UdpSocket::bind(config.bind)?);
        }
        let unicast = GroupSocket::open(&settings).map_err(refused)?;
        let local = unicast.local_address()?;
        Ok(Sockets {
            unicast,
            groups: BTreeMap::new(),
            batch: Batch::new(PIECES),
            local,
            config: settings,
        })
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddrV4> {
        Ok(self.local)
    }

    /// Hears a group from one source.
    pub(crate) fn join(&mut self, group: Ipv4Addr, source: Ipv4Addr) -> io::Result<()> {
        if !self.groups.contains_key(&group) {
            let bind = SocketAddrV4::new(group, self.local.port());
            let config = udp::Config {
                bind,
                ..self.config.clone()
            };
            let socket = GroupSocket::open(&config).map_err(refused)?;
            self.groups.insert(group, (socket, Vec::new()));
        }
        let Some((socket, sources)) = self.groups.get_mut(&group) else {
            return Ok(());
        };
        if !sources.contains(&source) {
            let membership = Self::membership(&self.config, group, source);
            let joined = socket.join(&membership);
            joined.map_err(|error| io::Error::other(error.to_string()))?;
        }
        sources.push(source);
        Ok(())
    }

    fn membership(config: &udp::Config, group: Ipv4Addr, source: Ipv4Addr) -> Membership {
        Membership {
            group,
            source: Some(source),
            interface: config.interface,
        }
    }

    /// One connection less wants it.
    pub(crate) fn leave(&mut self, group: Ipv4Addr, source: Ipv4Addr) {
        let Some((socket, sources)) = self.groups.get_mut(&group) else {
            return;
        };
        if let Some(at) = sources.iter().position(|known| *known == source) {
            sources.swap_remove(at);
        }
        if sources.is_empty() {
            self.groups.remove(&group);
        } else if !sources.contains(&source) {
            // It ends with the socket at the latest.
            let _ = socket.leave(&Self::membership(&self.config, group, source));
        }
    }

    /// Takes what has arrived, batches of it: source, destination and payload.
    pub(crate) fn receive(
        &mut self,
        mut take: impl FnMut(SocketAddrV4, Ipv4Addr, &[u8]),
    ) -> Result<usize, ReceiveError> {
        let mut taken = 0;
        let local = *self.local.ip();
        let groups = self
            .groups
            .iter()
            .map(|(group, (socket, _))| (*group, socket));
        for (destination, socket) in groups.chain([(local, &self.unicast)]) {
            for _ in 0..BATCHES {
                if socket.receive(&mut self.batch)? == 0 {
                    break;
                }
                for datagram in self.batch.iter() {
                    // A socket that is bound to every address learns which one it was.
                    let to = if destination.is_unspecified() {
                        datagram.destination
                    } else {
                        destination
                    };
                    take(datagram.source, to, datagram.payload);
                    taken += 1;
                }
            }
        }
        Ok(taken)
    }

    /// Sends one run of datagrams; how many bytes the kernel took.
    pub(crate) fn send(
        &self,
        destination: SocketAddrV4,
        bytes: &[u8],
        segment_len: usize,
    ) -> Result<usize, SendError> {
        self.unicast.send(&udp::Transmit {
            destination,
            bytes,
            segment_len: (segment_len < bytes.len()).then_some(segment_len),
        })
    }

    /// What to wait for.
    pub(crate) fn watches(&self, writable: bool) -> Vec<Watch<'_>> {
        let unicast = self.unicast.as_fd();
        let own = if writable {
            Watch::both(unicast)
        } else {
            Watch::readable(unicast)
        };
        let groups = self.groups.values();
        let mut all: Vec<Watch<'_>> = groups
            .map(|(socket, _)| Watch::readable(socket.as_fd()))
            .collect();
        all.push(own);
        all
    }
}
