//! Addresses of channels (§5.3).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |  kind         |  0            |  length of what follows       |
//! +---------------+---------------+-------------------------------+
//! |  1 UDP over IPv4, 2 TCP over IPv4: address (4), port (2)      |
//! |  3 UDP over IPv6, 4 TCP over IPv6: address (16), port (2)     |
//! |  5 native: 1 to 512 bytes in the native network's own form     |
//! +---------------------------------------------------------------+
//! ```

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::ParseError;
use super::reader::{Field, Reader, Writer};
use crate::types::ChannelAddress;

/// Longest address of a native network in bytes, enough for a URL.
pub const MAX_NATIVE_ADDRESS_LEN: usize = 512;

const NATIVE: u8 = 5;

impl Field for ChannelAddress {
    /// Refuses an unknown kind, a wrong length, and addresses to which nothing can be sent: port 0, an unspecified,
    /// multicast or broadcast address.
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let kind = reader.u8()?;
        reader.reserved(1)?;
        let len = usize::from(reader.u16()?);
        let mut value = Reader::new(reader.bytes(len)?);
        let ip: IpAddr = match kind {
            1 | 2 => Ipv4Addr::from_bits(value.u32()?).into(),
            3 | 4 => Ipv6Addr::from_bits(value.get()?).into(),
            NATIVE if (1..=MAX_NATIVE_ADDRESS_LEN).contains(&len) => {
                return Ok(ChannelAddress::Native(value.bytes(len)?.into()));
            }
            NATIVE => return Err(ParseError::Length),
            _ => return Err(ParseError::Value),
        };
        let port = value.u16()?;
        value.end()?;
        let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        if port == 0 || ip.is_unspecified() || ip.is_multicast() || broadcast {
            return Err(ParseError::Value);
        }
        let socket = SocketAddr::new(ip, port);
        Ok(match kind % 2 {
            1 => ChannelAddress::Datagram(socket),
            _ => ChannelAddress::Stream(socket),
        })
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        let head = |writer: &mut Writer<'_>, kind: u8, len: usize| {
            writer.u8(kind);
            writer.u8(0);
            writer.u16(len as u16);
        };
        let (kind, socket) = match self {
            ChannelAddress::Datagram(socket) => (1, socket),
            ChannelAddress::Stream(socket) => (2, socket),
            ChannelAddress::Native(bytes) => {
                head(writer, NATIVE, bytes.len());
                writer.bytes(bytes);
                return;
            }
        };
        match socket.ip() {
            IpAddr::V4(ip) => {
                head(writer, kind, 6);
                writer.u32(ip.to_bits());
            }
            IpAddr::V6(ip) => {
                head(writer, kind + 2, 18);
                ip.to_bits().emit(writer);
            }
        }
        writer.u16(socket.port());
    }
}
