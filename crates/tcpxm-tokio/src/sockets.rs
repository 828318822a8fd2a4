//! The sockets of an endpoint: one for unicast and what it sends, one for each group it hears; of UDP,
//! or of IP with protocol 6.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use linux_net::inet::{
    self, Gathered, Joined, Membership, SegmentBatch, SegmentSocket, Transmit, UdpSocket,
};
use linux_net::poll::{self, Watch};
use linux_net::udp::Batch;
use linux_net::{OpenError, ReceiveError, SendError};
use tcpxm::Carrier;

use crate::Config;

/// Batches taken from one socket before the next one's turn.
const BATCHES: usize = 16;
/// Looks at all sockets before something is sent again.
const LOOKS: usize = 4;
/// What may wait in this host's own queue for a slow link, in the kernel's count (it doubles the number
/// and takes half as much again for itself): less than such queues hold, so that a full one makes us
/// wait instead of losing packets, which all receivers of a group would lose together.
const SEND_BYTES: usize = 256 << 10;
/// Groups that are heard at once. Anybody can open a connection with a group of its own, and each costs
/// a socket with room of its own; who comes later is served by unicast.
const MAX_GROUPS: usize = 64;
/// Least room of a group's socket.
const LEAST_ROOM: usize = 1 << 20;
/// Packets in a batch of segments.
const PACKETS: usize = 16;

/// One socket.
enum Socket {
    Udp(UdpSocket),
    Ip(SegmentSocket),
}

/// Room for what arrives.
enum Room {
    Udp(Datagrams),
    Ip(SegmentBatch),
}

/// Room for datagrams: a few pieces of up to 64 KiB where the kernel joins them, many single ones
/// where it does not.
struct Datagrams {
    joined: Batch,
    single: Batch,
    is_joined: bool,
}

/// Pieces of each kind; the few fit a processor's cache.
const JOINED: usize = 1;
const SINGLE: usize = Batch::MAX;
/// Pieces that are longer than this on average are joined ones.
const JOINED_BYTES: usize = 4096;

impl Datagrams {
    fn new() -> Datagrams {
        Datagrams {
            joined: Batch::new(JOINED),
            single: Batch::new(SINGLE),
            is_joined: true,
        }
    }

    /// Takes a batch; whether there may be more.
    fn receive(
        &mut self,
        socket: &UdpSocket,
        mut take: impl FnMut(Joined<'_>),
    ) -> Result<bool, ReceiveError> {
        let (batch, most) = if self.is_joined {
            (&mut self.joined, JOINED)
        } else {
            (&mut self.single, SINGLE)
        };
        let pieces = socket.receive(batch)?;
        let mut bytes = 0;
        batch.joined().for_each(|joined| {
            bytes += joined.payloads.len();
            take(joined);
        });
        let is_joined = bytes > pieces * JOINED_BYTES;
        // A few lone datagrams say nothing about those that come in a stream.
        if is_joined || pieces == most {
            self.is_joined = is_joined;
        }
        Ok(pieces == most)
    }
}

pub(crate) struct Sockets {
    carrier: Carrier,
    unicast: Socket,
    /// Who is heard on a group, and how many connections want it.
    groups: BTreeMap<IpAddr, (Socket, Vec<IpAddr>)>,
    room: Room,
    local: SocketAddr,
    config: inet::Config,
    /// Whether the kernel gets several packets at once.
    batches: bool,
    /// What the last look found, while nothing has happened since.
    known: Option<Ready>,
}

/// Which sockets may have something to read.
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

fn refused(error: OpenError) -> io::Error {
    let kind = match error {
        OpenError::AddressInUse { .. } => io::ErrorKind::AddrInUse,
        OpenError::Privilege { .. } => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

impl Socket {
    fn open(carrier: Carrier, config: &inet::Config) -> io::Result<Socket> {
        match carrier {
            Carrier::Udp => UdpSocket::open(config).map(Socket::Udp),
            Carrier::Ip => SegmentSocket::open(config).map(Socket::Ip),
        }
        .map_err(refused)
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        match self {
            Socket::Udp(socket) => socket.local_address(),
            Socket::Ip(socket) => Ok(socket.local_address()),
        }
    }

    fn change(&self, membership: &Membership, join: bool) -> io::Result<()> {
        match (self, join) {
            (Socket::Udp(socket), true) => socket.join(membership),
            (Socket::Udp(socket), false) => socket.leave(membership),
            (Socket::Ip(socket), true) => socket.join(membership),
            (Socket::Ip(socket), false) => socket.leave(membership),
        }
        .map_err(|error| io::Error::other(error.to_string()))
    }

    /// Takes a batch; whether there may be more.
    fn receive(
        &self,
        room: &mut Room,
        mut take: impl FnMut(Joined<'_>),
    ) -> Result<bool, ReceiveError> {
        match (self, room) {
            (Socket::Udp(socket), Room::Udp(datagrams)) => datagrams.receive(socket, take),
            (Socket::Ip(socket), Room::Ip(batch)) => {
                let packets = socket.receive(batch)?;
                // What the kernel has put into one segment is one.
                batch.iter().for_each(|received| {
                    take(Joined {
                        source: received.source,
                        destination: received.destination,
                        payloads: received.payload,
                        stride: received.payload.len(),
                    });
                });
                Ok(packets == PACKETS)
            }
            _ => Ok(false), // All are of one kind.
        }
    }
}

impl Socket {
    /// Takes batches until there is nothing for now, or that was enough. What passes is counted.
    ///
    /// # Errors
    /// The socket is of no use any more.
    fn drain(
        &self,
        room: &mut Room,
        taken: &mut Taken,
        enough: usize,
        mut take: impl FnMut(Joined<'_>),
    ) -> Result<(), ReceiveError> {
        for _ in 0..BATCHES {
            let more = self.receive(room, |joined| {
                taken.packets += 1;
                taken.bytes += joined.payloads.len();
                take(joined);
            });
            match more {
                Ok(true) if taken.bytes < enough => {}
                Ok(_) => break,
                Err(error) if error.is_lasting() => return Err(error),
                Err(_) => {
                    taken.errors += 1;
                    break;
                }
            }
        }
        Ok(())
    }
}

/// What a look at the sockets gave.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub(crate) packets: usize,
    pub(crate) bytes: usize,
    /// Times that the kernel had something else to say.
    pub(crate) errors: u64,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Udp(socket) => socket.as_fd(),
            Socket::Ip(socket) => socket.as_fd(),
        }
    }
}

impl Sockets {
    pub(crate) fn open(config: &Config) -> io::Result<Sockets> {
        let settings = inet::Config {
            interface: config.interface,
            ttl: config.ttl,
            // Receivers on this host hear it too.
            loopback: true,
            receive_buffer_bytes: config.receive_buffer_bytes,
            send_buffer_bytes: SEND_BYTES,
            ..inet::Config::new(config.bind)
        };
        let carrier = config.machine.carrier;
        // Sockets that allow an address to be used again share it in silence: one that does not
        // finds out whether it is in use.
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
            room: match carrier {
                Carrier::Udp => Room::Udp(Datagrams::new()),
                Carrier::Ip => Room::Ip(SegmentBatch::new(PACKETS)),
            },
            local,
            config: settings,
            batches: config.segmentation_offload,
            known: None,
        })
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Hears a group from one source; an error where there are [`MAX_GROUPS`] others.
    pub(crate) fn join(&mut self, group: IpAddr, source: IpAddr) -> io::Result<()> {
        if !self.groups.contains_key(&group) {
            if self.groups.len() >= MAX_GROUPS {
                return Err(io::Error::other("as many groups as may be"));
            }
            let bind = SocketAddr::new(group, self.local.port());
            // All together may not keep any amount of memory waiting: the n-th has an n-th of the room.
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

    /// One connection less wants it.
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
            // It ends with the socket at the latest.
            let _ = socket.change(&Self::membership(&self.config, group, source), false);
        }
    }

    /// Takes what has arrived, batches of it: source, destination, and payloads of so many bytes each.
    /// A group whose socket is of no use any more is not heard any more.
    ///
    /// What came by two sockets came in some order, which the kernel does not tell; so all are looked
    /// at until nobody has anything more. Of what was taken then nothing is missing that came before:
    /// a repair that is acknowledged before the data that it followed would show that data as lost.
    /// Where that takes too long, or is more than `enough` bytes, unicast was looked at first, for that
    /// reason.
    ///
    /// # Errors
    /// The socket for unicast is of no use any more.
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
            // A socket that is bound to every address learns which one it was.
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

    /// Which sockets have something to read now: asking costs less than trying each.
    fn ready(&self) -> Ready {
        let mut set = self.watches(false);
        match poll::wait(&mut set, Some(Duration::ZERO)) {
            Ok(_) => Self::found(&set),
            Err(_) => Ready::ALL,
        }
    }

    /// What those watches have found.
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

    /// Waits until something arrives, there is room to write where somebody waits for that, or the time
    /// is over; whether `other` is readable.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn wait(
        &mut self,
        writable: bool,
        other: BorrowedFd<'_>,
        limit: Option<Duration>,
    ) -> io::Result<bool> {
        let mut set = self.watches(writable);
        let own = set.len();
        set.push(Watch::readable(other));
        poll::wait(&mut set, limit)?;
        let woken = set[own].is_readable();
        let ready = Self::found(&set[..own]);
        drop(set);
        self.known = Some(ready);
        Ok(woken)
    }

    /// Sends one run of packets; how many bytes the kernel took.
    pub(crate) fn send(
        &self,
        source: IpAddr,
        destination: SocketAddr,
        bytes: &[u8],
        segment_len: usize,
    ) -> Result<usize, SendError> {
        // A checksum that covers addresses was made for this one.
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
                // What is left is offered again, and fails again if it must.
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// Whether the kernel takes a run in parts.
    pub(crate) fn takes_parts(&self) -> bool {
        match &self.unicast {
            Socket::Udp(socket) => self.batches && socket.max_segments() > 1,
            Socket::Ip(_) => false,
        }
    }

    /// Sends one run of packets, of so many bytes, from where its parts lie.
    pub(crate) fn send_parts(
        &self,
        destination: SocketAddr,
        (parts, len): (&[IoSlice<'_>], usize),
        segment_len: usize,
    ) -> Result<(), SendError> {
        let Socket::Udp(socket) = &self.unicast else {
            return Err(SendError::Malformed);
        };
        socket.send_gathered(&Gathered {
            source: None,
            destination,
            parts,
            segment_len: (segment_len < len).then_some(segment_len),
        })
    }

    /// How packets to a destination leave.
    pub(crate) fn route(&self, destination: IpAddr) -> io::Result<inet::Route> {
        inet::route(destination, self.config.interface)
    }

    /// What to wait for: the groups in their order, then the socket for unicast.
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
        // Those that are heard already cost nothing more; one that is left makes room.
        sockets.join(group(0), here.into()).expect("joined");
        sockets.leave(group(1), here.into());
        sockets
            .join(group(MAX_GROUPS), here.into())
            .expect("joined");
    }

    /// What a datagram to a port where nobody is comes back as: an error of the socket, once.
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
        same.send(b"nobody is there").expect("sent");
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
        peer.send_to(b"somebody is", sockets.local_address())
            .expect("sent");
        let mut heard = Vec::new();
        let taken = sockets.receive(1 << 20, |_, _, bytes, _| heard.extend_from_slice(bytes));
        let taken = taken.expect("goes on");
        assert_eq!((taken.packets, taken.errors), (1, 0));
        assert_eq!(heard, b"somebody is");
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
        let mut heard = Vec::new();
        let taken = sockets.receive(1 << 20, |_, to, bytes, _| heard.push((to, bytes.to_vec())));
        assert_eq!(taken.expect("goes on").packets, 2);
        assert_eq!(heard, [(group(1), vec![1]), (group(4), vec![4])]);
        assert_eq!(sockets.ready(), Ready::NONE);
    }
}
