use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{Config, Fragmentation, Membership, Received, Transmit, configure, scoped, to};
use crate::error::{Capability, JoinError, OpenError, ReceiveError, SendError};
use crate::packet::checksum::{fold, sum};
use crate::sys::message::{BATCH, Control, IncomingBatch, Outgoing, from_bytes, send_batch};
use crate::{filter, sys};

const WHAT: &str = "raw socket for TCP segments";

/// TCP segments of our own (IP protocol 6), to and from one local port: their headers are the
/// caller's, the IP header is the kernel's.
#[derive(Debug)]
pub struct SegmentSocket {
    socket: OwnedFd,
    /// The kernel's listening socket, which reserves the port and never answers; `None` for a group.
    _hold: Option<OwnedFd>,
    local: SocketAddr,
    group: bool,
    fragmentation: Fragmentation,
    interface: u32,
}

impl SegmentSocket {
    /// Opens a socket and keeps the port. Needs CAP_NET_RAW, to open it only.
    ///
    /// # Errors
    /// The capability is missing, the port is in use, the address is none of this host's.
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let error = OpenError::from(WHAT, Capability::NetRaw);
        let version = config.bind.ip();
        let group = version.is_multicast();
        let family = sys::family(version);
        let socket = sys::socket(family, libc::SOCK_RAW, libc::IPPROTO_TCP).map_err(error)?;
        let (hold, local) = if group {
            (None, config.bind)
        } else {
            let (hold, local) = hold(scoped(config.bind, config.interface))?;
            (Some(hold), local)
        };
        // A raw socket receives all ports at once; packets from before the filter are
        // passed over when it is read.
        let program = filter::segments(local.port(), version.is_ipv4());
        sys::attach_filter(&socket, &program).map_err(error)?;
        configure(&socket, config, WHAT, error)?;
        let fragmentation = Fragmentation::path_mtu(&socket, version).map_err(error)?;
        if version.is_ipv6() {
            let option = libc::IPV6_RECVPKTINFO;
            sys::set_int(&socket, libc::IPPROTO_IPV6, option, 1).map_err(error)?;
        }
        let socket = socket2::Socket::from(socket);
        let address = SocketAddr::new(version, 0);
        socket
            .bind(&scoped(address, config.interface).into())
            .map_err(error)?;
        Ok(Self {
            socket: socket.into(),
            _hold: hold,
            local,
            group,
            fragmentation,
            interface: config.interface,
        })
    }

    /// The bound address, and the port that is kept.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Becomes a member.
    ///
    /// # Errors
    /// As [`JoinError`] says.
    pub fn join(&self, membership: &Membership) -> Result<(), JoinError> {
        membership.apply(&self.socket, true)
    }

    /// Ends a membership; closing the socket ends them all.
    ///
    /// # Errors
    /// It was no member.
    pub fn leave(&self, membership: &Membership) -> Result<(), JoinError> {
        membership.apply(&self.socket, false)
    }

    /// Sends as many whole segments as fit and returns the number of bytes accepted. An
    /// error means that none were.
    ///
    /// # Errors
    /// As [`SendError`] says; [`SendError::TooBig`] for segments above the path's MTU.
    pub fn send(&self, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        // A raw IPv6 socket takes a port for a protocol.
        let destination = SocketAddr::new(transmit.destination.ip(), 0);
        let prepared = self.fragmentation.prepare(&self.socket, destination.ip());
        prepared.map_err(SendError::classify)?;
        let address = to(destination, self.interface);
        let mut control = Control::<40>::new();
        let given = transmit.source.filter(|_| self.local.ip().is_unspecified());
        if let Some(source) = given.filter(|source| !source.is_unspecified()) {
            control.push_path(source, 0).ok_or(SendError::Malformed)?;
        }
        let control = (control.len() > 0).then_some(&control);
        let segment = transmit.segment_len.unwrap_or(transmit.bytes.len()).max(1);
        let mut taken = 0;
        while taken < transmit.bytes.len() {
            let mut messages = [Outgoing {
                address,
                control,
                bytes: &[],
            }; BATCH];
            let mut count = 0;
            let pieces = transmit.bytes[taken..].chunks(segment);
            for (message, piece) in messages.iter_mut().zip(pieces) {
                message.bytes = piece;
                count += 1;
            }
            match send_batch(&self.socket, &messages[..count]).map_err(SendError::classify) {
                Ok(sent) => {
                    taken += messages[..sent]
                        .iter()
                        .map(|m| m.bytes.len())
                        .sum::<usize>();
                }
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    /// Receives into `batch`, whose previous content is lost, and returns how many packets
    /// there were, 0 when nothing was there.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn receive(&self, batch: &mut SegmentBatch) -> Result<usize, ReceiveError> {
        batch.segments.clear();
        match batch.incoming.receive(&self.socket) {
            Ok(_) => {}
            Err(error) => return ReceiveError::classify(error).map_or(Ok(0), Err),
        }
        let mut arrived = 0;
        let SegmentBatch { incoming, segments } = batch;
        incoming.each(|number, source, control, packet| {
            arrived += 1;
            let segment = match source {
                SocketAddr::V4(_) => ipv4(packet),
                SocketAddr::V6(source) => {
                    let destination = destination(control);
                    destination.map(|to| ((*source.ip()).into(), to.into(), 0..packet.len()))
                }
            };
            let Some((source, to, range)) = segment else {
                return;
            };
            let ours = self.group == to.is_multicast();
            if !ours || port(&packet[range.clone()]) != Some(self.local.port()) {
                return;
            }
            complete_checksum(source, to, &mut packet[range.clone()]);
            segments.push((number, source, to, range));
        });
        Ok(arrived)
    }
}

impl AsFd for SegmentSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A listening socket that refuses all: the kernel's TCP knows the port, and says nothing.
fn hold(bind: SocketAddr) -> Result<(OwnedFd, SocketAddr), OpenError> {
    let error = OpenError::from("TCP port for segments", Capability::NetBindService);
    let socket = sys::socket(sys::family(bind.ip()), libc::SOCK_STREAM, 0).map_err(error)?;
    let socket = socket2::Socket::from(socket);
    if bind.is_ipv6() {
        socket.set_only_v6(true).map_err(error)?;
    }
    sys::attach_filter(&socket, &filter::nothing()).map_err(error)?;
    socket.bind(&bind.into()).map_err(error)?;
    socket.listen(1).map_err(error)?;
    let local = socket.local_addr().map_err(error)?;
    let local = local.as_socket().unwrap_or(bind);
    Ok((socket.into(), local))
}

/// Source, destination and payload of a whole IPv4 packet with protocol 6.
fn ipv4(packet: &[u8]) -> Option<(IpAddr, IpAddr, std::ops::Range<usize>)> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let fixed: &[u8; 20] = packet.first_chunk()?;
    if fixed[0] >> 4 != 4 || header < 20 || i32::from(fixed[9]) != libc::IPPROTO_TCP {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if total < header || total > packet.len() {
        return None;
    }
    let [source, destination] =
        [12, 16].map(|at| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]));
    Some((source.into(), destination.into(), header..total))
}

/// Where an IPv6 packet went to.
fn destination(control: &Control<40>) -> Option<Ipv6Addr> {
    let is_info = |level: i32, kind: i32| (level, kind) == (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO);
    let (.., data) = control
        .messages()
        .find(|(level, kind, _)| is_info(*level, *kind))?;
    from_bytes::<libc::in6_pktinfo>(data).map(|info| Ipv6Addr::from(info.ipi6_addr.s6_addr))
}

/// The destination port of a segment with a whole header.
fn port(segment: &[u8]) -> Option<u16> {
    let header: &[u8; 20] = segment.first_chunk()?;
    Some(u16::from_be_bytes([header[2], header[3]]))
}

/// Writes the checksum of a segment that arrived without: on virtual links, and where the kernel
/// has put several into one, only the sum of the addresses stands there. A damaged segment passes
/// for one of these as often as it passes the checksum itself: once in 65,536 times.
fn complete_checksum(source: IpAddr, destination: IpAddr, segment: &mut [u8]) {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    };
    let protocol = libc::IPPROTO_TCP.unsigned_abs();
    let length = segment.len() as u64;
    let pseudo = octets(source) + octets(destination) + u64::from(protocol) + length;
    if segment[16..18] == fold(pseudo).to_be_bytes() {
        segment[16..18].fill(0);
        let checksum = !fold(pseudo + sum(segment));
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Buffers for [`SegmentSocket::receive`]: 64 KiB each, since the kernel may put several segments of
/// one connection into one.
#[derive(Debug)]
pub struct SegmentBatch {
    incoming: IncomingBatch,
    /// Number of the packet, source, destination, and where the segment lies in it.
    segments: Vec<(usize, IpAddr, IpAddr, std::ops::Range<usize>)>,
}

impl SegmentBatch {
    /// Room for `packets`, 1 to 64.
    pub fn new(packets: usize) -> Self {
        let packets = packets.clamp(1, BATCH);
        Self {
            incoming: IncomingBatch::new(packets, 1 << 16),
            segments: Vec::with_capacity(packets),
        }
    }

    /// The segments of the last call, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Received<'_>> {
        self.segments
            .iter()
            .map(|(number, source, destination, range)| Received {
                source: SocketAddr::new(*source, 0),
                destination: *destination,
                interface: 0,
                payload: &self.incoming.buffer(*number)[range.clone()],
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_half_done_checksums_are_completed() {
        let (from, to) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut segment = vec![7; 33];
        let pseudo = sum(&from.octets()) + sum(&to.octets()) + 6 + segment.len() as u64;
        segment[16..18].copy_from_slice(&fold(pseudo).to_be_bytes());
        let mut completed = segment.clone();
        complete_checksum(from.into(), to.into(), &mut completed);
        assert_eq!(fold(pseudo + sum(&completed)), 0xffff);
        segment[16] ^= 1;
        let mut other = segment.clone();
        complete_checksum(from.into(), to.into(), &mut other);
        assert_eq!(other, segment);
    }

    #[test]
    fn no_packet_is_too_odd() {
        let mut packet = vec![0; 60];
        (packet[0], packet[3], packet[9]) = (0x46, 60, 6);
        assert_eq!(ipv4(&packet).map(|found| found.2), Some(24..60));
        for len in 0..60 {
            assert!(ipv4(&packet[..len]).is_none(), "{len}");
        }
        for (at, value) in [(0, 0x66), (0, 0x44), (3, 19), (9, 17)] {
            let mut odd = packet.clone();
            odd[at] = value;
            assert!(ipv4(&odd).is_none(), "{at}");
        }
    }
}
