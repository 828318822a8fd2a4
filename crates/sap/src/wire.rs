//! Packets of SAP (RFC 2974 §6).
//!
//! ```text
//!  0                   1                   2                   3
//! +-------+-+-+-+-+-+---------------+-------------------------------+
//! | V = 1 |A|R|T|E|C|   auth len    |         msg id hash           |
//! +-------+-+-+-+-+-+---------------+-------------------------------+
//! |  originating source: 4 bytes, 16 if A is set                    |
//! +-----------------------------------------------------------------+
//! |  authentication data: auth len words, skipped                   |
//! +-----------------------------------------------------------------+
//! |  payload type: text and a zero; may be left out before "v=0"    |
//! +-----------------------------------------------------------------+
//! |  payload                                                        |
//! +-----------------------------------------------------------------+
//! ```
//!
//! V is in the three high bits. A: IPv6. T: deletion. E: encrypted, C: compressed; neither is read here.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::sdp::MAX_SDP_LEN;

/// UDP port of announcements.
pub const PORT: u16 = 9875;
/// Longest packet that is sent: an IPv6 header, no authentication data, the payload type, a description.
pub const MAX_PACKET_LEN: usize = 20 + SDP_TYPE.len() + MAX_SDP_LEN;

/// The payload type of SDP, with its zero.
const SDP_TYPE: &[u8] = b"application/sdp\0";
const IPV6: u8 = 0x10;
const DELETION: u8 = 0x04;
const ENCRYPTED: u8 = 0x02;
const COMPRESSED: u8 = 0x01;

proto_core::errors! {
    /// Why bytes are not a packet that can be read.
    pub enum WireError {
        /// It ends within its header.
        Truncated = "the packet ends within its header",
        /// A version other than 1.
        Version = "the version of SAP is not 1",
        /// Encrypted or compressed.
        Encoding = "the payload is encrypted or compressed",
        /// A payload other than SDP.
        PayloadType = "the payload is not SDP",
    }
}

/// A packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Packet<'a> {
    /// Whether the session is deleted, not announced.
    pub deletion: bool,
    /// Message identifier hash: another one for another version of the description.
    pub hash: u16,
    /// The originating source.
    pub source: IpAddr,
    /// The description, or its origin line alone in a deletion.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses a packet.
    ///
    /// # Errors
    /// See [`WireError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (head, rest) = bytes.split_first_chunk::<4>().ok_or(WireError::Truncated)?;
        let [flags, auth_words, high, low] = *head;
        if flags >> 5 != 1 {
            return Err(WireError::Version);
        }
        let (source, rest) = if flags & IPV6 != 0 {
            let (source, rest) = rest.split_first_chunk::<16>().ok_or(WireError::Truncated)?;
            (IpAddr::from(Ipv6Addr::from(*source)), rest)
        } else {
            let (source, rest) = rest.split_first_chunk::<4>().ok_or(WireError::Truncated)?;
            (IpAddr::from(Ipv4Addr::from(*source)), rest)
        };
        let rest = rest
            .get(usize::from(auth_words) * 4..)
            .ok_or(WireError::Truncated)?;
        if flags & (ENCRYPTED | COMPRESSED) != 0 {
            return Err(WireError::Encoding);
        }
        let deletion = flags & DELETION != 0;
        let bare = rest.starts_with(b"v=0") || (deletion && rest.starts_with(b"o="));
        let payload = match rest.get(..SDP_TYPE.len()) {
            Some(kind) if kind.eq_ignore_ascii_case(SDP_TYPE) => &rest[SDP_TYPE.len()..],
            _ if bare => rest,
            _ => return Err(WireError::PayloadType),
        };
        Ok(Packet {
            deletion,
            hash: u16::from_be_bytes([high, low]),
            source,
            payload,
        })
    }

    /// Returns the bytes of the packet.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(20 + SDP_TYPE.len() + self.payload.len());
        let family = if self.source.is_ipv6() { IPV6 } else { 0 };
        let deletion = if self.deletion { DELETION } else { 0 };
        bytes.push(0x20 | family | deletion);
        bytes.push(0);
        bytes.extend_from_slice(&self.hash.to_be_bytes());
        match self.source {
            IpAddr::V4(source) => bytes.extend_from_slice(&source.octets()),
            IpAddr::V6(source) => bytes.extend_from_slice(&source.octets()),
        }
        bytes.extend_from_slice(SDP_TYPE);
        bytes.extend_from_slice(self.payload);
        bytes
    }
}

/// Returns the group that sessions of a group are announced on (RFC 2974 §3): the highest address of the administrative scope
/// zones of RFC 2365, 224.2.127.254 for all others; in IPv6 `ff0X::2:7ffe` of the same scope.
#[must_use]
pub fn group_of(group: IpAddr) -> SocketAddr {
    let address: IpAddr = match group {
        IpAddr::V4(group) => match group.octets() {
            [239, 255, _, _] => Ipv4Addr::new(239, 255, 255, 255),
            [239, 192..=195, _, _] => Ipv4Addr::new(239, 195, 255, 255),
            [224, 0, 0, _] => Ipv4Addr::new(224, 0, 0, 255),
            _ => Ipv4Addr::new(224, 2, 127, 254),
        }
        .into(),
        IpAddr::V6(group) => {
            let scope = group.segments()[0] & 0xf;
            Ipv6Addr::new(0xff00 | scope, 0, 0, 0, 0, 0, 2, 0x7ffe).into()
        }
    };
    SocketAddr::new(address, PORT)
}
