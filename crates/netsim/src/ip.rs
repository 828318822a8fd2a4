//! IPv4 and UDP headers for nodes that carry payloads of their own.

use std::net::SocketAddrV4;

use smoltcp::phy::{Checksum, ChecksumCapabilities};
use smoltcp::wire::{IpProtocol, Ipv4Packet, UdpPacket, UdpRepr};

/// A UDP datagram in an IPv4 packet, with IP options as they stand in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Source address and port.
    pub source: SocketAddrV4,
    /// Destination address and port.
    pub destination: SocketAddrV4,
    /// Time to live.
    pub ttl: u8,
    /// IP options, at most 40 bytes; padded with zeros to a multiple of 4.
    pub options: &'a [u8],
    /// UDP payload.
    pub payload: &'a [u8],
}

const UDP_HEADER_BYTES: usize = 8;
const IP_HEADER_BYTES: usize = 20;

impl<'a> Datagram<'a> {
    /// The whole packet.
    ///
    /// # Panics
    ///
    /// When the options exceed 40 bytes, or the packet 65535.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        self.emit_with(&ChecksumCapabilities::default())
    }

    /// The whole packet without a UDP checksum: [`Datagram::parse`] also reads it with a changed payload.
    ///
    /// # Panics
    ///
    /// As [`Datagram::emit`].
    #[must_use]
    pub fn emit_without_checksum(&self) -> Vec<u8> {
        let mut checksums = ChecksumCapabilities::default();
        checksums.udp = Checksum::None;
        self.emit_with(&checksums)
    }

    fn emit_with(&self, checksums: &ChecksumCapabilities) -> Vec<u8> {
        assert!(
            self.options.len() <= 40,
            "IPv4 options take at most 40 bytes"
        );
        let header_len = IP_HEADER_BYTES + self.options.len().next_multiple_of(4);
        let total_len = header_len + UDP_HEADER_BYTES + self.payload.len();
        let mut bytes = vec![0; total_len];
        bytes[IP_HEADER_BYTES..][..self.options.len()].copy_from_slice(self.options);
        let mut ip = Ipv4Packet::new_unchecked(&mut bytes[..]);
        ip.set_version(4);
        ip.set_header_len(header_len as u8);
        ip.set_total_len(u16::try_from(total_len).expect("an IPv4 packet is below 64 KiB"));
        ip.set_dont_frag(true);
        ip.set_hop_limit(self.ttl);
        ip.set_next_header(IpProtocol::Udp);
        ip.set_src_addr(*self.source.ip());
        ip.set_dst_addr(*self.destination.ip());
        ip.fill_checksum();
        let udp = UdpRepr {
            src_port: self.source.port(),
            dst_port: self.destination.port(),
        };
        udp.emit(
            &mut UdpPacket::new_unchecked(ip.payload_mut()),
            &(*self.source.ip()).into(),
            &(*self.destination.ip()).into(),
            self.payload.len(),
            |buffer| buffer.copy_from_slice(self.payload),
            checksums,
        );
        bytes
    }

    /// Reads a packet; `None` unless it is a whole UDP datagram in IPv4 with right checksums.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let ip = Ipv4Packet::new_checked(bytes).ok()?;
        let header_len = usize::from(ip.header_len());
        if ip.version() != 4
            || !ip.verify_checksum()
            || ip.next_header() != IpProtocol::Udp
            || ip.more_frags()
            || ip.frag_offset() != 0
        {
            return None;
        }
        let body = bytes.get(header_len..usize::from(ip.total_len()))?;
        let udp = UdpPacket::new_checked(body).ok()?;
        if !udp.verify_checksum(&ip.src_addr().into(), &ip.dst_addr().into()) {
            return None;
        }
        Some(Self {
            source: SocketAddrV4::new(ip.src_addr(), udp.src_port()),
            destination: SocketAddrV4::new(ip.dst_addr(), udp.dst_port()),
            ttl: ip.hop_limit(),
            options: bytes.get(IP_HEADER_BYTES..header_len)?,
            payload: udp.payload(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let packet = Datagram {
            source: "10.0.0.1:7".parse().unwrap(),
            destination: "232.1.1.1:9".parse().unwrap(),
            ttl: 3,
            options: &[1, 1, 1, 0],
            payload: b"hello",
        };
        let bytes = packet.emit();
        assert_eq!(bytes.len(), 20 + 4 + 8 + 5);
        assert_eq!(Datagram::parse(&bytes), Some(packet));
        for len in 0..bytes.len() {
            assert_eq!(Datagram::parse(&bytes[..len]), None);
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Datagram::parse(&flipped), Some(packet), "bit {bit}");
        }
    }

    #[test]
    fn without_a_checksum_a_changed_payload_is_read() {
        let packet = Datagram {
            source: "10.0.0.1:7".parse().unwrap(),
            destination: "232.1.1.1:9".parse().unwrap(),
            ttl: 3,
            options: &[],
            payload: b"hello",
        };
        let mut bytes = packet.emit_without_checksum();
        assert_eq!(Datagram::parse(&bytes), Some(packet));
        bytes[28] ^= 1;
        let payload = &b"iello"[..];
        assert_eq!(
            Datagram::parse(&bytes),
            Some(Datagram { payload, ..packet })
        );
    }
}
