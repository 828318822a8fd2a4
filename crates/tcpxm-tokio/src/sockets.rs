//! The sockets of an endpoint: one for unicast and for sending, and one for each group that is joined.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use linux_net::SendError;
use linux_net::inet::{self, Membership, Transmit};
use linux_net::poll::{self, Watch};
use linux_net::wake::Waker;
use tcpxm::Carrier;

use crate::Config;
pub(crate) use crate::socket::Taken;
use crate::socket::{Room, Socket};

/// Passes over all sockets before the driver sends again.
const LOOKS: usize = 4;
/// Limit of the data that waits in this host's own queue for a slow link, as the kernel counts it (it doubles
/// the number and adds half as much for itself). It is less than such queues hold: a full queue blocks the
/// sender instead of losing packets, which all receivers of a group would lose together.
const SEND_BYTES: usize = 256 << 10;
/// Groups joined at once. Any peer can open a connection with a group of its own, and each group costs a socket
/// with a receive buffer; later ones are served by unicast.
const MAX_GROUPS: usize = 64;
/// Smallest receive buffer of a group's socket.
const LEAST_ROOM: usize = 1 << 20;

/// The sockets.
pub(crate) struct Sockets {
    carrier: Carrier,
    unicast: Socket,
    /// The sources that each group is joined for, one for each connection that needs it.
    groups: BTreeMap<IpAddr, (Socket, Vec<IpAddr>)>,
    room: Room,
    local: SocketAddr,
    config: inet::Config,
    /// Whether the kernel gets several packets in one call.
    batches: bool,
    /// The result of the last wait, until the sockets are read.
    known: Option<Ready>,
}

/// The sockets that may have something to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ready {
    unicast: bool,
    /// One bit for each group, in their order.
    groups: u64,
}

impl Ready {
    const ALL: Ready = Ready {
        unicast: true,
        groups: u64::MAX,
    };
    const NONE: Ready = Ready {
        unicast: false,
        groups: 0,
    };
}

impl Sockets {
    pub(crate) fn open(config: &Config) -> io::Result<Sockets> {
        let settings = inet::Config {
            interface: config.interface,
            ttl: config.ttl,
            // Receivers on this host get it too.
            loopback: true,
            receive_buffer_bytes: config.receive_buffer_bytes,
            send_buffer_bytes: SEND_BYTES,
            ..inet::Config::new(config.bind)
        };
        let carrier = config.machine.carrier;
        // Sockets with address reuse share an address silently; one without finds out whether it is in use.
        if carrier == Carrier::Udp && config.bind.port() != 0 {
            let bind = inet::scoped(config.bind, config.interface);
            drop(std::net::UdpSocket::bind(bind)?);
        }
        let unicast = Socket::open(carrier, &settings)?;
        let local = unicast.local_address()?;
        Ok(Sockets {
            carrier,
            unicast,
            groups: BTreeMap::new(),
            room: Room::new(carrier),
            local,
            config: settings,
            batches: config.segmentation_offload,
            known: None,
        })
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Joins a group for one source; fails if [`MAX_GROUPS`] others are joined.
    pub(crate) fn join(&mut self, group: IpAddr, source: IpAddr) -> io::Result<()> {
        if !self.groups.contains_key(&group) {
            if self.groups.len() >= MAX_GROUPS {
                return Err(io::Error::other("as many groups as may be"));
            }
            let bind = SocketAddr::new(group, self.local.port());
            // Bounds the memory of all groups together: the n-th gets an n-th of the buffer.
            let room = self.config.receive_buffer_bytes;
            let least = room.min(LEAST_ROOM);
            let config = inet::Config {
                bind,
                receive_buffer_bytes: (room / (1 + self.groups.len())).max(least),
                ..self.config.clone()
            };
            let socket = Socket::open(self.carrier, &config)?;
            self.groups.insert(group, (socket, Vec::new()));
            self.known = None;
        }
        let Some((socket, sources)) = self.groups.get_mut(&group) else {
            return Ok(());
        };
        if !sources.contains(&source) {
            socket.change(&Self::membership(&self.config, group, source), true)?;
        }
        sources.push(source);
        Ok(())
    }

    fn membership(config: &inet::Config, group: IpAddr, source: IpAddr) -> Membership {
        Membership {
            group,
            source: Some(source),
            interface: config.interface,
        }
    }

    /// Leaves a group for one connection.
    pub(crate) fn leave(&mut self, group: IpAddr, source: IpAddr) {
        let Some((socket, sources)) = self.groups.get_mut(&group) else {
            return;
        };
        if let Some(at) = sources.iter().position(|known| *known == source) {
            sources.swap_remove(at);
        }
        if sources.is_empty() {
            self.groups.remove(&group);
            self.known = None;
        } else if !sources.contains(&source) {
            // The membership ends with the socket at the latest.
            let _ = socket.change(&Self::membership(&self.config, group, source), false);
        }
    }

    /// Receives what has arrived, in batches: source, destination, and payloads with the length of each. A
    /// group whose socket fails is left.
    ///
    /// The kernel does not tell the order of packets from two sockets. All sockets are therefore read until
    /// none has anything left: then no earlier packet is missing. Acknowledging a repair before data that
    /// preceded it would report that data as lost. Where this takes too long, or yields more than `enough`
    /// bytes, reading unicast first has the same effect.
    ///
    /// # Errors
    /// The socket for unicast failed.
    pub(crate) fn receive(
        &mut self,
        enough: usize,
        mut take: impl FnMut(SocketAddr, IpAddr, &[u8], usize),
    ) -> io::Result<Taken> {
        let mut all = Taken::default();
        for _ in 0..LOOKS {
            let ready = self.known.take().unwrap_or_else(|| self.ready());
            if ready == Ready::NONE {
                break;
            }
            let mut taken = Taken::default();
            if ready.unicast {
                self.receive_unicast(&mut taken, enough, &mut take)?;
            }
            if ready.groups != 0 {
                self.receive_groups(ready.groups, &mut taken, enough, &mut take);
            }
            all.packets += taken.packets;
            all.bytes += taken.bytes;
            all.errors += taken.errors;
            if all.bytes >= enough {
                let ready = self.ready();
                all.has_more = ready != Ready::NONE;
                self.known = Some(ready);
                break;
            }
        }
        Ok(all)
    }

    fn receive_unicast(
        &mut self,
        taken: &mut Taken,
        enough: usize,
        take: &mut impl FnMut(SocketAddr, IpAddr, &[u8], usize),
    ) -> io::Result<()> {
        let local = self.local.ip();
        let drained = self.unicast.drain(&mut self.room, taken, enough, |joined| {
            // A socket that is bound to all addresses learns which one a packet was sent to.
            let to = if local.is_unspecified() {
                joined.destination
            } else {
                local
            };
            take(joined.source, to, joined.payloads, joined.stride);
        });
        drained.map_err(|error| io::Error::other(error.to_string()))
    }

    fn receive_groups(
        &mut self,
        ready: u64,
        taken: &mut Taken,
        enough: usize,
        take: &mut impl FnMut(SocketAddr, IpAddr, &[u8], usize),
    ) {
        let mut failed = Vec::new();
        for (number, (group, (socket, _))) in self.groups.iter().enumerate() {
            if ready & 1 << number == 0 {
                continue;
            }
            let drained = socket.drain(&mut self.room, taken, enough, |joined| {
                take(joined.source, *group, joined.payloads, joined.stride);
            });
            if drained.is_err() {
                failed.push(*group);
            }
        }
        for group in failed {
            taken.errors += 1;
            self.groups.remove(&group);
        }
    }

    /// Asks which sockets have something to read: one call instead of one for each.
    fn ready(&self) -> Ready {
        let mut set = self.watches(false);
        match poll::wait(&mut set, Some(Duration::ZERO)) {
            Ok(_) => Self::found(&set),
            Err(_) => Ready::ALL,
        }
    }

    /// Returns the sockets that the watches found readable.
    fn found(set: &[Watch<'_>]) -> Ready {
        const { assert!(MAX_GROUPS <= u64::BITS as usize) };
        let (own, groups) = set.split_last().expect("there is one socket at least");
        let bits = groups.iter().enumerate();
        Ready {
            unicast: own.is_readable(),
            groups: bits
                .filter(|(_, watch)| watch.is_readable())
                .fold(0, |bits, (number, _)| bits | 1 << number),
        }
    }

    /// Waits until something arrives, the socket is writable if `writable`, `waker` is woken, or `limit` has passed.
    /// Returns whether `waker` is woken.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn wait(
        &mut self,
        writable: bool,
        waker: &Waker,
        limit: Option<Duration>,
    ) -> io::Result<bool> {
        let mut set = self.watches(writable);
        let own = set.len();
        set.push(Watch::readable(waker.as_fd()));
        poll::wait(&mut set, limit)?;
        let woken = set[own].is_readable();
        let ready = Self::found(&set[..own]);
        drop(set);
        self.known = Some(ready);
        Ok(woken)
    }

    /// Sends a batch; returns how many bytes the kernel took.
    pub(crate) fn send(
        &self,
        source: IpAddr,
        destination: SocketAddr,
        bytes: &[u8],
        segment_len: usize,
    ) -> Result<usize, SendError> {
        // The checksum was computed for this source address.
        let chosen = self.carrier == Carrier::Ip && self.local.ip().is_unspecified();
        let send = |bytes, segment_len| {
            let transmit = Transmit {
                source: chosen.then_some(source),
                destination,
                bytes,
                segment_len,
            };
            match &self.unicast {
                Socket::Udp(socket) => socket.send(&transmit),
                Socket::Ip(socket) => socket.send(&transmit),
            }
        };
        let is_batch = segment_len < bytes.len();
        if self.batches || !is_batch {
            return send(bytes, is_batch.then_some(segment_len));
        }
        let mut sent = 0;
        for packet in bytes.chunks(segment_len) {
            match send(packet, None) {
                Ok(len) => sent += len,
                Err(error) if sent == 0 => return Err(error),
                // The rest is offered again later.
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// Returns the route to a destination.
    pub(crate) fn route(&self, destination: IpAddr) -> io::Result<inet::Route> {
        inet::route(destination, self.config.interface)
    }

    /// Returns the watches: the groups in their order, then the socket for unicast.
    fn watches(&self, writable: bool) -> Vec<Watch<'_>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn strangers_cannot_have_any_number_of_groups_joined() {
        let here = Ipv4Addr::LOCALHOST;
        let mut config = Config::new(SocketAddr::new(here.into(), 0));
        config.interface = 1;
        let mut sockets = Sockets::open(&config).expect("a socket");
        let group = |number: usize| IpAddr::from([239, 192, 7, number as u8]);
        for number in 0..MAX_GROUPS {
            sockets.join(group(number), here.into()).expect("joined");
        }
        assert!(sockets.join(group(MAX_GROUPS), here.into()).is_err());
        assert_eq!(sockets.groups.len(), MAX_GROUPS);
        // Another connection in a joined group costs nothing; leaving a group makes space.
        sockets.join(group(0), here.into()).expect("joined");
        sockets.leave(group(1), here.into());
        sockets
            .join(group(MAX_GROUPS), here.into())
            .expect("joined");
    }

    /// A datagram to a closed port is reported as an error of the socket, once.
    #[test]
    fn an_error_that_passes_is_counted_and_ends_nothing() {
        let here = Ipv4Addr::LOCALHOST;
        let mut sockets =
            Sockets::open(&Config::new(SocketAddr::new(here.into(), 0))).expect("a socket");
        let peer = std::net::UdpSocket::bind((here, 0)).expect("a peer");
        let peer_address = peer.local_addr().expect("known");
        let same = sockets
            .unicast
            .as_fd()
            .try_clone_to_owned()
            .expect("the same socket");
        let same = std::net::UdpSocket::from(same);
        same.connect(peer_address).expect("connected");
        drop(peer);
        same.send(b"to a closed port").expect("sent");
        let mut errors = 0;
        for _ in 0..100 {
            let taken = sockets.receive(1 << 20, |_, _, _, _| {}).expect("goes on");
            errors += taken.errors;
            if errors > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(errors, 1);
        let peer = std::net::UdpSocket::bind(peer_address).expect("the peer again");
        peer.send_to(b"to an open port", sockets.local_address())
            .expect("sent");
        let mut received = Vec::new();
        let taken = sockets.receive(1 << 20, |_, _, bytes, _| received.extend_from_slice(bytes));
        let taken = taken.expect("goes on");
        assert_eq!((taken.packets, taken.errors), (1, 0));
        assert_eq!(received, b"to an open port");
    }

    #[test]
    fn of_many_groups_those_with_something_are_read() {
        let here = Ipv4Addr::LOCALHOST;
        let mut config = Config::new(SocketAddr::new(here.into(), 0));
        config.interface = 1;
        let mut sockets = Sockets::open(&config).expect("a socket");
        let group = |number: u8| IpAddr::from([239, 192, 8, number]);
        for number in 0..5 {
            sockets.join(group(number), here.into()).expect("joined");
        }
        assert_eq!(sockets.ready(), Ready::NONE);
        let port = sockets.local_address().port();
        for number in [1, 4] {
            let to = SocketAddr::new(group(number), port);
            let transmit = Transmit {
                source: None,
                destination: to,
                bytes: &[number],
                segment_len: None,
            };
            let Socket::Udp(socket) = &sockets.unicast else {
                panic!("UDP is the default");
            };
            socket.send(&transmit).expect("sent");
        }
        assert_eq!(sockets.ready().groups, 0b10010);
        let mut received = Vec::new();
        let taken = sockets.receive(1 << 20, |_, to, bytes, _| {
            received.push((to, bytes.to_vec()));
        });
        assert_eq!(taken.expect("goes on").packets, 2);
        assert_eq!(received, [(group(1), vec![1]), (group(4), vec![4])]);
        assert_eq!(sockets.ready(), Ready::NONE);
    }
}
