//! IP headers around membership messages, and around UDP datagrams that stay on their link.

mod ipv4;
mod ipv6;

use core::net::Ipv4Addr;

use crate::Family;
use crate::family::{Layout, membership_at as family_membership_at};
use crate::wire::checksum;

const UDP_HEADER_LEN: usize = 8;
const PROTOCOL_UDP: u8 = 17;

/// The parsed part of a packet's IP header.
#[derive(Clone, Copy, Debug)]
pub struct Ip<'a, A = Ipv4Addr> {
    /// The source address.
    pub source: A,
    /// The destination address.
    pub destination: A,
    /// The remaining time to live, or hop limit.
    pub ttl: u8,
    /// Whether the packet has the Router Alert option (RFC 2113, RFC 2711).
    pub has_router_alert: bool,
    /// What follows the headers.
    pub payload: &'a [u8],
}

/// Reads a whole, unfragmented packet of the given protocol: an IPv4 packet with a correct header checksum, or an IPv6
/// packet with no extension headers but hop-by-hop and destination options that a host may skip.
pub fn parse<A: Family>(packet: &[u8], protocol: u8) -> Option<Ip<'_, A>> {
    A::parse_ip(packet, protocol)
}

/// The payload of a UDP datagram to `port`, where lengths and checksum agree. IPv4 datagrams may have no checksum.
pub fn udp_payload<'a, A: Family>(ip: &Ip<'a, A>, port: u16) -> Option<&'a [u8]> {
    let (head, _) = ip.payload.split_first_chunk::<UDP_HEADER_LEN>()?;
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let datagram = ip.payload.get(..usize::from(half(4)))?;
    if half(2) != port || datagram.len() < UDP_HEADER_LEN {
        return None;
    }
    let sum_ok = match half(6) {
        _ if cfg!(fuzzing) => true,
        0 => A::UDP_CHECKSUM_IS_OPTIONAL,
        _ => {
            let pseudo = pseudo_header(ip.source, ip.destination, PROTOCOL_UDP, datagram.len());
            checksum(datagram, pseudo) == 0
        }
    };
    sum_ok.then_some(&datagram[UDP_HEADER_LEN..])
}

/// The sum of a pseudo header (RFC 9293 §3.1, RFC 8200 §8.1), not folded.
pub(crate) fn pseudo_header<A: Layout>(source: A, destination: A, protocol: u8, len: usize) -> u32 {
    let sum = |address: A| {
        let octets = address.octets();
        let pairs = octets.as_ref().chunks_exact(2);
        pairs
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum::<u32>()
    };
    sum(source) + sum(destination) + u32::from(protocol) + len as u32
}

/// Bytes before the payload of an IGMP packet.
pub const IGMP_AT: usize = membership_at::<Ipv4Addr>();
/// Bytes before the payload of a UDP datagram over IPv4.
pub const UDP_AT: usize = udp_at::<Ipv4Addr>();

/// Bytes before the message of a membership packet: 24 (IPv4), 48 (IPv6).
pub const fn membership_at<A: Family>() -> usize {
    family_membership_at::<A>()
}

/// Bytes before the payload of a UDP datagram: 28 (IPv4), 48 (IPv6).
pub const fn udp_at<A: Family>() -> usize {
    A::HEADER_LEN + UDP_HEADER_LEN
}

/// Writes the headers in front of a membership message of `len` bytes that lies at [`membership_at`]; TTL 1, Router
/// Alert, internetwork control (RFC 3376 §4, RFC 9777 §5). Fills in the checksum of an MLD message, which covers the
/// addresses. Returns the packet's length, or `None` where the buffer is too short.
pub fn finish_membership<A: Family>(
    buffer: &mut [u8],
    source: A,
    destination: A,
    len: usize,
) -> Option<usize> {
    if A::CHECKSUM_COVERS_ADDRESSES {
        let at = membership_at::<A>();
        let message = buffer.get_mut(at..at + len).filter(|m| m.len() >= 8)?;
        message[2..4].fill(0);
        let sum = checksum(
            message,
            pseudo_header(source, destination, A::PROTOCOL, len),
        );
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    A::emit_ip(buffer, source, destination, A::PROTOCOL, true, len)
}

/// Writes the headers in front of `len` bytes that lie at [`udp_at`], from `port` to the same port; TTL 1, internetwork
/// control. Returns the packet's length, or `None` where the buffer is too short.
pub fn finish_udp<A: Family>(
    buffer: &mut [u8],
    source: A,
    destination: A,
    port: u16,
    len: usize,
) -> Option<usize> {
    let datagram_len = UDP_HEADER_LEN + len;
    let datagram = buffer.get_mut(A::HEADER_LEN..A::HEADER_LEN + datagram_len)?;
    datagram[..2].copy_from_slice(&port.to_be_bytes());
    datagram[2..4].copy_from_slice(&port.to_be_bytes());
    datagram[4..6].copy_from_slice(&u16::try_from(datagram_len).ok()?.to_be_bytes());
    datagram[6..8].fill(0);
    let pseudo = pseudo_header(source, destination, PROTOCOL_UDP, datagram_len);
    let sum = match checksum(datagram, pseudo) {
        0 => 0xffff,
        sum => sum,
    };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    A::emit_ip(
        buffer,
        source,
        destination,
        PROTOCOL_UDP,
        false,
        datagram_len,
    )
}
