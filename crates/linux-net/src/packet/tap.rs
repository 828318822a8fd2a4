use std::marker::PhantomData;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::checksum::{header_holds, udp_holds, well_formed};
use crate::error::{Capability, OpenError, ReceiveError};
use crate::family::{Endpoint, Family};
use crate::sys::message::{from_bytes, receive};
use crate::udp::{MAX_OPTIONS, OptionBuffer, OptionDatagram};
use crate::{filter, sys};

/// Receives the LMS requests to one group and port on one interface, from any sender: what a
/// socket that joined (S, G) never receives, since requests come from other receivers.
///
/// The membership itself must be held by a socket (so that the hardware and the routers pass
/// the group). Requests from this host itself are not received. By IPv6 a request is every datagram behind a hop-by-hop
/// header of up to 256 bytes.
#[derive(Debug)]
pub struct RequestTap<A: Family = Ipv4Addr> {
    socket: OwnedFd,
    buffer: Vec<u8>,
    family: PhantomData<A>,
}

const TP_STATUS_CSUM_NOT_READY: u32 = 8;

impl<A: Family> RequestTap<A> {
    /// Opens a tap. Needs CAP_NET_RAW. `interface` by index; 0 for all.
    ///
    /// # Errors
    /// [`OpenError`]: CAP_NET_RAW is missing, there is no such interface, or the kernel refuses the filter.
    pub fn open(interface: u32, group: A, port: u16) -> Result<Self, OpenError> {
        let error = OpenError::from("packet socket for LMS requests", Capability::NetRaw);
        // Protocol 0: nothing arrives before the filter is in place.
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0).map_err(error)?;
        sys::attach_filter(&socket, &filter::tap(group.into(), port)).map_err(error)?;
        sys::set_int(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1).map_err(error)?;
        let _ = sys::set_int(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        sys::bind_packet(&socket, A::ETHERTYPE, interface).map_err(error)?;
        Ok(Self {
            socket,
            buffer: vec![0; 1 << 16],
            family: PhantomData,
        })
    }

    /// Takes the next request; `None` when nothing is there. Packets with wrong lengths or
    /// checksums are passed over.
    ///
    /// # Errors
    /// [`ReceiveError`] when the interface is down or the socket fails.
    pub fn receive<'b>(
        &mut self,
        buffer: &'b mut OptionBuffer,
    ) -> Result<Option<OptionDatagram<'b, A>>, ReceiveError> {
        loop {
            let incoming = match receive::<64>(&self.socket, &mut self.buffer) {
                Ok(incoming) => incoming,
                Err(error) => return ReceiveError::classify(error).map_or(Ok(None), Err),
            };
            let Some(link) = incoming.link.filter(|_| !incoming.truncated) else {
                continue;
            };
            let status = incoming
                .control()
                .find(|(level, kind, _)| {
                    (*level, *kind) == (libc::SOL_PACKET, libc::PACKET_AUXDATA)
                })
                .and_then(|(_, _, data)| from_bytes::<libc::tpacket_auxdata>(data))
                .map_or(0, |auxdata| auxdata.tp_status);
            let complete = status & TP_STATUS_CSUM_NOT_READY == 0;
            let interface = link.sll_ifindex.unsigned_abs();
            let packet = &mut self.buffer[..incoming.len];
            let Some(parsed) = parse::<A>(packet, complete, interface) else {
                continue;
            };
            let Some(room) = buffer.payload.get_mut(..parsed.payload.len()) else {
                continue;
            };
            room.copy_from_slice(parsed.payload);
            buffer.options[..parsed.options.len()].copy_from_slice(parsed.options);
            return Ok(Some(OptionDatagram {
                source: parsed.source,
                destination: parsed.destination,
                interface,
                options: &buffer.options[..parsed.options.len()],
                payload: &buffer.payload[..parsed.payload.len()],
            }));
        }
    }
}

struct Parsed<'a, A: Family> {
    source: A::Socket,
    destination: A,
    options: &'a [u8],
    payload: &'a [u8],
}

/// Takes an IP and UDP packet apart. `complete`: the sender computed the UDP checksum.
fn parse<A: Family>(packet: &mut [u8], complete: bool, interface: u32) -> Option<Parsed<'_, A>> {
    let (layout, packet) = well_formed(packet)?;
    let packet = &*packet;
    let header = layout.header;
    if !header_holds(packet, header) || (complete && !udp_holds(packet, &layout)) {
        return None;
    }
    let udp = packet.get(header..)?;
    let (udp_header, _) = udp.split_first_chunk::<8>()?;
    let len = usize::from(u16::from_be_bytes([udp_header[4], udp_header[5]]));
    let to = A::DESTINATION;
    let address = |range| packet.get(range).and_then(A::from_octets);
    let source = address(to.start - to.len()..to.start)?;
    let port = u16::from_be_bytes([udp_header[0], udp_header[1]]);
    // What follows the fixed header, of which the destination is the last field.
    let options = packet.get(to.end..header)?;
    Some(Parsed {
        source: A::Socket::with_port(source, port, interface),
        destination: address(to)?,
        options: Some(options).filter(|options| options.len() <= MAX_OPTIONS)?,
        payload: udp.get(8..len)?,
    })
}

impl<A: Family> AsFd for RequestTap<A> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddrV4, SocketAddrV6};

    use super::*;
    use crate::packet::complete_checksum;

    /// A request with 16 bytes of options and 3 of payload.
    fn request() -> Vec<u8> {
        let mut packet = vec![0x49, 0, 0, 47, 0, 0, 0x40, 0, 1, 17, 0, 0];
        packet.extend([10, 0, 0, 1, 239, 1, 2, 3]);
        packet.extend([138, 16, 255, 255, 0, 0, 0, 0, 10, 0, 0, 9, 239, 1, 2, 3]);
        packet.extend([0x10, 0x00, 0x20, 0x00, 0, 11, 0, 0, b'n', b'a', b'k']);
        let sum = !crate::packet::checksum::fold(crate::packet::checksum::sum(&packet[..36]));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        complete_checksum(&mut packet).unwrap();
        packet
    }

    /// A request with a hop-by-hop header of 8 bytes and 3 bytes of payload.
    fn request6() -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 19, 0, 1];
        packet.extend("fe80::1".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend("ff3e::1234".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend([17, 0, 0x1e, 4, 1, 2, 3, 4]);
        packet.extend([0x10, 0x00, 0x20, 0x00, 0, 11, 0, 0, b'n', b'a', b'k']);
        complete_checksum(&mut packet).unwrap();
        packet
    }

    #[test]
    fn a_request_is_taken_apart() {
        let mut packet = request();
        let parsed = parse::<Ipv4Addr>(&mut packet, true, 7).unwrap();
        let from = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 0x1000);
        assert_eq!(parsed.source, from);
        assert_eq!(parsed.destination, Ipv4Addr::new(239, 1, 2, 3));
        assert_eq!(parsed.options.len(), 16);
        assert_eq!(parsed.payload, b"nak");
        let mut packet = request6();
        let parsed = parse::<Ipv6Addr>(&mut packet, true, 7).unwrap();
        let from = SocketAddrV6::new("fe80::1".parse().unwrap(), 0x1000, 0, 7);
        assert_eq!(parsed.source, from);
        assert_eq!(parsed.destination.to_string(), "ff3e::1234");
        assert_eq!(parsed.options, [17, 0, 0x1e, 4, 1, 2, 3, 4]);
        assert_eq!(parsed.payload, b"nak");
    }

    #[test]
    fn no_truncation_and_no_flipped_bit_gets_through() {
        let whole = request();
        for len in 0..whole.len() {
            let parsed = parse::<Ipv4Addr>(&mut whole[..len].to_vec(), true, 0).is_some();
            assert!(!parsed, "{len}");
        }
        for bit in 0..whole.len() * 8 {
            let mut broken = whole.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(parse::<Ipv4Addr>(&mut broken, true, 0).is_none(), "{bit}");
        }
        let whole = request6();
        for len in 0..whole.len() {
            let parsed = parse::<Ipv6Addr>(&mut whole[..len].to_vec(), true, 0).is_some();
            assert!(!parsed, "{len}");
        }
        // No checksum covers the traffic class, the flow label, the hop limit and the options.
        for bit in (8 * 8..40 * 8).chain(48 * 8..whole.len() * 8) {
            let mut broken = whole.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(parse::<Ipv6Addr>(&mut broken, true, 0).is_none(), "{bit}");
        }
    }

    #[test]
    fn every_length_of_udp_is_survived_without_a_checksum() {
        for len in 0..=u16::MAX {
            let mut packet = request();
            packet[40..42].copy_from_slice(&len.to_be_bytes());
            let parsed = parse::<Ipv4Addr>(&mut packet, false, 0);
            assert_eq!(parsed.is_some(), (8..=11).contains(&len), "{len}");
        }
    }
}
