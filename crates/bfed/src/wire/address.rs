//! Addresses of channels inside other messages: what a TRANSLATION translates to (§5.3).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |  kind         |  0            |  length of what follows       |
//! +---------------+---------------+-------------------------------+
//! |  1 UDP over IPv4, 2 TCP over IPv4: address (4), port (2)      |
//! |  3 UDP over IPv6, 4 TCP over IPv6: address (16), port (2)     |
//! |  5 native: 1 to 512 bytes that the native network understands |
//! +---------------------------------------------------------------+
//! ```

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::ParseError;
use super::reader::{Reader, Writer};
use crate::types::ChannelAddress;

/// Longest address of a native network, in bytes: a URL fits.
pub const MAX_NATIVE_ADDRESS_LEN: usize = 512;

const HEAD: usize = 4;

/// Bytes that `address` takes.
#[must_use]
pub fn buffer_len(address: &ChannelAddress) -> usize {
    HEAD + match address {
        ChannelAddress::Datagram(socket) | ChannelAddress::Stream(socket) => {
            if socket.is_ipv4() {
                6
            } else {
                18
            }
        }
        ChannelAddress::Native(bytes) => bytes.len(),
    }
}

/// Writes `address`.
pub fn emit(address: &ChannelAddress, writer: &mut Writer<'_>) {
    let (kind, socket) = match address {
        ChannelAddress::Datagram(socket) => (1, socket),
        ChannelAddress::Stream(socket) => (2, socket),
        ChannelAddress::Native(bytes) => {
            writer.u8(5);
            writer.u8(0);
            writer.u16(bytes.len() as u16);
            writer.bytes(bytes);
            return;
        }
    };
    writer.u8(if socket.is_ipv4() { kind } else { kind + 2 });
    writer.u8(0);
    match socket.ip() {
        IpAddr::V4(ip) => {
            writer.u16(6);
            writer.bytes(&ip.octets());
        }
        IpAddr::V6(ip) => {
            writer.u16(18);
            writer.bytes(&ip.octets());
        }
    }
    writer.u16(socket.port());
}

/// Reads an address.
///
/// # Errors
/// Its kind is unknown, its length does not fit, or nothing can be sent there: port 0, an
/// unspecified, multicast or broadcast address.
pub fn parse(reader: &mut Reader<'_>) -> Result<ChannelAddress, ParseError> {
    let kind = reader.u8()?;
    reader.reserved(1)?;
    let len = usize::from(reader.u16()?);
    let mut value = Reader::new(reader.bytes(len)?);
    if kind == 5 {
        if !(1..=MAX_NATIVE_ADDRESS_LEN).contains(&len) {
            return Err(ParseError::Length);
        }
        return Ok(ChannelAddress::Native(value.bytes(len)?.into()));
    }
    let ip: IpAddr = match kind {
        1 | 2 => Ipv4Addr::from_bits(value.u32()?).into(),
        3 | 4 => {
            let high = value.u64()?;
            Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(value.u64()?)).into()
        }
        _ => return Err(ParseError::Value),
    };
    let port = value.u16()?;
    value.end()?;
    let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    if port == 0 || ip.is_unspecified() || ip.is_multicast() || broadcast {
        return Err(ParseError::Value);
    }
    let socket = SocketAddr::new(ip, port);
    Ok(if kind % 2 == 1 {
        ChannelAddress::Datagram(socket)
    } else {
        ChannelAddress::Stream(socket)
    })
}
