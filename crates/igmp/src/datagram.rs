//! IPv4 headers around IGMP messages, and around UDP datagrams that stay on their link.

use core::net::Ipv4Addr;

use smoltcp::wire::{IpProtocol, Ipv4Packet};

use crate::wire::checksum;

/// Router Alert (RFC 2113), as IGMP packets carry it.
const ROUTER_ALERT: [u8; 4] = [0x94, 0x04, 0, 0];
const HEADER_LEN: usize = 20;
const UDP_HEADER_LEN: usize = 8;

/// The parsed part of a packet's IPv4 header.
#[derive(Clone, Copy, Debug)]
pub struct Ip<'a> {
    /// The source address.
    pub source: Ipv4Addr,
    /// The destination address.
    pub destination: Ipv4Addr,
    /// The remaining time to live.
    pub ttl: u8,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// Reads a whole, unfragmented packet of the given protocol with a correct header checksum.
pub fn parse(packet: &[u8], protocol: u8) -> Option<Ip<'_>> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let whole = !ip.more_frags() && ip.frag_offset() == 0;
    let checksum_ok = cfg!(fuzzing) || ip.verify_checksum();
    let header_ok = ip.version() == 4 && usize::from(ip.header_len()) >= HEADER_LEN;
    if !header_ok || !whole || !checksum_ok || u8::from(ip.next_header()) != protocol {
        return None;
    }
    Some(Ip {
        source: ip.src_addr(),
        destination: ip.dst_addr(),
        ttl: ip.hop_limit(),
        payload: ip.payload(),
    })
}

/// The payload of a UDP datagram to `port`, where lengths and checksum (if there is one) agree.
pub fn udp_payload<'a>(ip: &Ip<'a>, port: u16) -> Option<&'a [u8]> {
    let (head, _) = ip.payload.split_first_chunk::<UDP_HEADER_LEN>()?;
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let datagram = ip.payload.get(..usize::from(half(4)))?;
    if half(2) != port || datagram.len() < UDP_HEADER_LEN {
        return None;
    }
    let sum_ok = cfg!(fuzzing)
        || half(6) == 0
        || checksum(
            datagram,
            pseudo_header(ip.source, ip.destination, 17, datagram.len()),
        ) == 0;
    sum_ok.then_some(&datagram[UDP_HEADER_LEN..])
}

fn pseudo_header(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len: usize) -> u32 {
    let halves = |a: Ipv4Addr| (a.to_bits() >> 16) + (a.to_bits() & 0xffff);
    halves(source) + halves(destination) + u32::from(protocol) + len as u32
}

/// Bytes before the payload of an IGMP packet.
pub const IGMP_AT: usize = HEADER_LEN + ROUTER_ALERT.len();
/// Bytes before the payload of a UDP datagram.
pub const UDP_AT: usize = HEADER_LEN + UDP_HEADER_LEN;

/// Writes the header in front of an IGMP message of `len` bytes that lies at [`IGMP_AT`]; TTL 1,
/// Router Alert, internetwork control (RFC 3376 §4). Returns the packet's length, or `None` where
/// the buffer is too short.
pub fn finish_igmp(
    buffer: &mut [u8],
    source: Ipv4Addr,
    destination: Ipv4Addr,
    len: usize,
) -> Option<usize> {
    buffer
        .get_mut(HEADER_LEN..IGMP_AT)?
        .copy_from_slice(&ROUTER_ALERT);
    emit_header(buffer, source, destination, IpProtocol::Igmp, IGMP_AT, len)
}

/// Writes the headers in front of `len` bytes that lie at [`UDP_AT`], from `port` to the same port; TTL 1, internetwork
/// control. Returns the packet's length, or `None` where the buffer is too short.
pub fn finish_udp(
    buffer: &mut [u8],
    source: Ipv4Addr,
    destination: Ipv4Addr,
    port: u16,
    len: usize,
) -> Option<usize> {
    let datagram_len = UDP_HEADER_LEN + len;
    let datagram = buffer.get_mut(HEADER_LEN..HEADER_LEN + datagram_len)?;
    datagram[..2].copy_from_slice(&port.to_be_bytes());
    datagram[2..4].copy_from_slice(&port.to_be_bytes());
    datagram[4..6].copy_from_slice(&(datagram_len as u16).to_be_bytes());
    datagram[6..8].fill(0);
    let sum = match checksum(
        datagram,
        pseudo_header(source, destination, 17, datagram_len),
    ) {
        0 => 0xffff,
        sum => sum,
    };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    emit_header(
        buffer,
        source,
        destination,
        IpProtocol::Udp,
        HEADER_LEN,
        datagram_len,
    )
}

fn emit_header(
    buffer: &mut [u8],
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: IpProtocol,
    header_len: usize,
    payload_len: usize,
) -> Option<usize> {
    let len = header_len + payload_len;
    let total_len = u16::try_from(len).ok()?;
    let mut ip = Ipv4Packet::new_unchecked(buffer.get_mut(..len)?);
    ip.set_version(4);
    ip.set_header_len(header_len as u8);
    ip.set_dscp(48);
    ip.set_ecn(0);
    ip.set_total_len(total_len);
    ip.set_ident(0);
    ip.clear_flags();
    ip.set_dont_frag(true);
    ip.set_frag_offset(0);
    ip.set_hop_limit(1);
    ip.set_next_header(protocol);
    ip.set_src_addr(source);
    ip.set_dst_addr(destination);
    ip.fill_checksum();
    Some(len)
}
