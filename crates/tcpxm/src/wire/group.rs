//! The group option: of SYN and SYN-ACK (TCP-XM §2.1, step 5), and of segments to a receiver that is
//! to leave its group.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{EXPERIMENT, KIND_GROUP};

/// The group option.
///
/// ```text
/// +---------------+---------------+-------------------------------+
/// |  kind 253     |  length       |  experiment identifier 0x584d |
/// +---------------+---------------+-------------------------------+
/// |  group address: none (length 4), IPv4 (8) or IPv6 (20)        |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupOption {
    /// The multicast group that a sender offers in its SYN, and that a receiver accepts, or proposes
    /// instead, in its SYN-ACK.
    Named(IpAddr),
    /// No group, in segments of a synchronised connection: the receiver leaves the one it is in,
    /// because all its data comes by unicast from now on (`docs/wire.md`). It answers by
    /// leaving out the feedback option.
    Leave,
}

impl GroupOption {
    /// Parses the option's value after kind and length. `None` if it belongs to another experiment, has another
    /// length, or names no group that data may be sent to.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (experiment, address) = value.split_first_chunk::<2>()?;
        if u16::from_be_bytes(*experiment) != EXPERIMENT {
            return None;
        }
        let group = match address.len() {
            0 => return Some(Self::Leave),
            4 => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
            16 => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
            _ => return None,
        };
        is_group(group).then_some(Self::Named(group))
    }

    /// The group it names.
    #[must_use]
    pub const fn address(self) -> Option<IpAddr> {
        match self {
            GroupOption::Named(address) => Some(address),
            GroupOption::Leave => None,
        }
    }

    /// Bytes of the whole option.
    #[must_use]
    pub const fn buffer_len(&self) -> usize {
        match self {
            GroupOption::Leave => 4,
            GroupOption::Named(IpAddr::V4(_)) => 8,
            GroupOption::Named(IpAddr::V6(_)) => 20,
        }
    }

    /// Writes the whole option and returns its length.
    ///
    /// # Panics
    ///
    /// When the buffer is shorter than [`GroupOption::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let len = self.buffer_len();
        buffer[0] = KIND_GROUP;
        buffer[1] = len as u8;
        buffer[2..4].copy_from_slice(&EXPERIMENT.to_be_bytes());
        match self {
            GroupOption::Leave => {}
            GroupOption::Named(IpAddr::V4(address)) => {
                buffer[4..len].copy_from_slice(&address.octets());
            }
            GroupOption::Named(IpAddr::V6(address)) => {
                buffer[4..len].copy_from_slice(&address.octets());
            }
        }
        len
    }
}

/// Whether data may be sent to this address as a group: multicast, and not one of the addresses
/// that never leave a link or belong to the network's own protocols (224.0.0.0/24, 224.0.1.0/24,
/// IPv6 scopes below site-local).
#[must_use]
pub fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_group_v4(address),
        IpAddr::V6(address) => is_group_v6(address),
    }
}

fn is_group_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_multicast() && !(a == 224 && b == 0 && c <= 1)
}

fn is_group_v6(address: Ipv6Addr) -> bool {
    let scope = address.segments()[0] & 0xf;
    address.is_multicast() && (4..0xf).contains(&scope)
}
