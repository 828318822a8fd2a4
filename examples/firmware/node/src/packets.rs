//! Adds IPv4 and UDP headers to packets of the machines, and removes them from received packets.

use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::{Form, LmsOption, TurningPoint};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, Ipv4Packet, UdpPacket, UdpRepr};

/// Longest payload of a datagram here.
pub(crate) const PAYLOAD_LEN: usize = 512;
/// Longest packet: two IPv4 headers, both with options, UDP, payload.
pub(crate) const PACKET_LEN: usize = PAYLOAD_LEN + 2 * 60 + 8;

const HEADER_LEN: usize = 20;
const UDP_LEN: usize = 8;
const TTL: u8 = 16;

/// Writes a datagram with these IP options; its length.
fn datagram(
    from: SocketAddrV4,
    to: SocketAddrV4,
    options: &[u8],
    payload: &[u8],
    out: &mut [u8],
) -> usize {
    let header_len = HEADER_LEN + options.len();
    let len = header_len + UDP_LEN + payload.len();
    out[..header_len].fill(0);
    out[HEADER_LEN..header_len].copy_from_slice(options);
    let mut ip = Ipv4Packet::new_unchecked(&mut out[..len]);
    ip.set_version(4);
    ip.set_header_len(header_len as u8);
    ip.set_total_len(len as u16);
    ip.set_dont_frag(true);
    ip.set_hop_limit(TTL);
    ip.set_next_header(IpProtocol::Udp);
    ip.set_src_addr(*from.ip());
    ip.set_dst_addr(*to.ip());
    ip.fill_checksum();
    let udp = UdpRepr {
        src_port: from.port(),
        dst_port: to.port(),
    };
    let (source, destination) = (IpAddr::V4(*from.ip()), IpAddr::V4(*to.ip()));
    udp.emit(
        &mut UdpPacket::new_unchecked(ip.payload_mut()),
        &source.into(),
        &destination.into(),
        payload.len(),
        |room| room.copy_from_slice(payload),
        &ChecksumCapabilities::default(),
    );
    len
}

/// Writes the next packet of `me`. Returns its length, or 0 if this network does not carry it.
pub(crate) fn outgoing(
    me: SocketAddrV4,
    source: SocketAddrV4,
    group: SocketAddrV4,
    transmit: &ltp::Transmit,
    payload: &[u8],
    out: &mut [u8; PACKET_LEN],
) -> usize {
    match transmit.destination {
        ltp::Destination::Group => datagram(me, group, &[], payload, out),
        ltp::Destination::Request(option) => {
            let mut options = [0; 20];
            match option.emit(Form::Classic, &mut options) {
                Ok(len) => datagram(me, group, &options[..len], payload, out),
                Err(_) => 0,
            }
        }
        ltp::Destination::Unicast(SocketAddr::V4(to)) => datagram(me, to, &[], payload, out),
        ltp::Destination::Dmcast(point) => dmcast(me, source, group, point, payload, out),
        ltp::Destination::Unicast(SocketAddr::V6(_)) | ltp::Destination::Relay => 0,
    }
}

/// A repair, wrapped for the turning-point router.
fn dmcast(
    me: SocketAddrV4,
    source: SocketAddrV4,
    group: SocketAddrV4,
    point: TurningPoint,
    payload: &[u8],
    out: &mut [u8; PACKET_LEN],
) -> usize {
    let IpAddr::V4(router) = point.router else {
        return 0;
    };
    let wrap = DmcastRepr {
        replier: *me.ip(),
        router,
        iface: point.iface,
        cookie: point.cookie,
        form: Form::Classic,
        placement: Placement::Outer,
        ttl: TTL,
        identification: 0,
    };
    let mut inner = [0; PAYLOAD_LEN + HEADER_LEN + UDP_LEN];
    let len = datagram(source, group, &[], payload, &mut inner);
    wrap.emit(&inner[..len], out).unwrap_or(0)
}

/// Where a packet goes, and whether its header has no options.
pub(crate) fn destination(packet: &[u8]) -> Option<(Ipv4Addr, bool)> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    Some((ip.dst_addr(), usize::from(ip.header_len()) == HEADER_LEN))
}

/// Parses a datagram to a host. Returns its metadata for LTP and its payload.
pub(crate) fn incoming(packet: &[u8]) -> Option<(ltp::Meta, &[u8])> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let header_len = usize::from(ip.header_len());
    if !ip.verify_checksum() || ip.next_header() != IpProtocol::Udp {
        return None;
    }
    let udp = UdpPacket::new_checked(packet.get(header_len..)?).ok()?;
    let (source, destination) = (ip.src_addr(), ip.dst_addr());
    if !udp.verify_checksum(&source.into(), &destination.into()) {
        return None;
    }
    let from = SocketAddrV4::new(source, udp.src_port()).into();
    let mut meta = if destination.is_multicast() {
        ltp::Meta::group(from)
    } else {
        ltp::Meta::unicast(from)
    };
    if header_len > HEADER_LEN {
        meta.option = Some(
            LmsOption::parse::<Ipv4Addr>(&packet[HEADER_LEN..header_len])
                .ok()?
                .1,
        );
        // Each host is alone on its link.
        meta.elected = true;
    }
    Some((
        meta,
        &packet[header_len + UDP_LEN..header_len + usize::from(udp.len())],
    ))
}
