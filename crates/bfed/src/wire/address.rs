//! Addresses of channels (§5.3).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |  kind         |  0            |  length of what follows       |
//! +---------------+---------------+-------------------------------+
//! |  1 UDP over IPv4, 2 TCP over IPv4: address (4), port (2)      |
//! |  3 UDP over IPv6, 4 TCP over IPv6: address (16), port (2)     |
//! |  5 native: 1 to 512 bytes in the native network's own form     |
//! |  6 QUIC over IPv4: address (4), port (2), certificate (32)    |
//! |  7 QUIC over IPv6: address (16), port (2), certificate (32)   |
//! +---------------------------------------------------------------+
//! ```
//!
//! The certificate of a QUIC endpoint is the SHA-256 of what the data node shows in the TLS handshake. It is named in
//! messages of the authenticated peering, so that only the data node that the peer's control node meant can prove it
//! (compare RFC 8122).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::ParseError;
use super::reader::{Field, Reader, Writer};
use crate::types::{ChannelAddress, KeyDigest};

/// Longest address of a native network in bytes, enough for a URL.
pub const MAX_NATIVE_ADDRESS_LEN: usize = 512;

const NATIVE: u8 = 5;
const QUIC_IPV4: u8 = 6;
const QUIC_IPV6: u8 = 7;
/// Length of a digest in bytes.
const DIGEST_LEN: usize = 32;

impl Field for ChannelAddress {
    /// Refuses an unknown kind, a wrong length, and addresses to which nothing can be sent: port 0, an unspecified,
    /// multicast or broadcast address.
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let kind = reader.u8()?;
        reader.reserved(1)?;
        let len = usize::from(reader.u16()?);
        let mut value = Reader::new(reader.bytes(len)?);
        let ip: IpAddr = match kind {
            1 | 2 | QUIC_IPV4 => Ipv4Addr::from_bits(value.u32()?).into(),
            3 | 4 | QUIC_IPV6 => Ipv6Addr::from_bits(value.get()?).into(),
            NATIVE if (1..=MAX_NATIVE_ADDRESS_LEN).contains(&len) => {
                return Ok(ChannelAddress::Native(value.bytes(len)?.into()));
            }
            NATIVE => return Err(ParseError::Length),
            _ => return Err(ParseError::Value),
        };
        let port = value.u16()?;
        let digest = match kind {
            QUIC_IPV4 | QUIC_IPV6 => Some(KeyDigest(digest(value.bytes(DIGEST_LEN)?)?)),
            _ => None,
        };
        value.end()?;
        let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        if port == 0 || ip.is_unspecified() || ip.is_multicast() || broadcast {
            return Err(ParseError::Value);
        }
        let socket = SocketAddr::new(ip, port);
        Ok(match (digest, kind % 2) {
            (Some(digest), _) => ChannelAddress::Quic(socket, digest),
            (None, 1) => ChannelAddress::Datagram(socket),
            (None, _) => ChannelAddress::Stream(socket),
        })
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        let head = |writer: &mut Writer<'_>, kind: u8, len: usize| {
            writer.u8(kind);
            writer.u8(0);
            writer.u16(len as u16);
        };
        let (kinds, socket, digest): (_, _, &[u8]) = match self {
            ChannelAddress::Datagram(socket) => ([1, 3], socket, &[][..]),
            ChannelAddress::Stream(socket) => ([2, 4], socket, &[][..]),
            ChannelAddress::Quic(socket, digest) => ([QUIC_IPV4, QUIC_IPV6], socket, &digest.0[..]),
            ChannelAddress::Native(bytes) => {
                head(writer, NATIVE, bytes.len());
                writer.bytes(bytes);
                return;
            }
        };
        match socket.ip() {
            IpAddr::V4(ip) => {
                head(writer, kinds[0], 6 + digest.len());
                writer.u32(ip.to_bits());
            }
            IpAddr::V6(ip) => {
                head(writer, kinds[1], 18 + digest.len());
                ip.to_bits().emit(writer);
            }
        }
        writer.u16(socket.port());
        writer.bytes(digest);
    }
}

fn digest(bytes: &[u8]) -> Result<[u8; DIGEST_LEN], ParseError> {
    bytes.try_into().map_err(|_| ParseError::Length)
}
