//! Packets below the sockets: a [`Capture`] shows a router the packets it must handle, from a [`Ring`] or, where the kernel
//! has none, from [`Channels`]; a [`Sender`]
//! sends frames on a link, a [`RequestTap`] receives requests that a source-specific membership excludes.

mod bpf;
mod capture;
mod channels;
pub(crate) mod checksum;
#[allow(unsafe_code, reason = "the ring is memory shared with the kernel")]
mod ring;
mod send;
mod tap;

use std::net::IpAddr;

pub use capture::{Backend, Capture, CaptureBatch};
pub use channels::{ChannelBatch, Channels};
pub use checksum::{ChecksumError, complete_checksum};
pub use ring::{Frame, Frames, Ring, RingBatch, RingConfig, RingStats};
pub use send::{SendBatch, Sender, Sent};
pub use tap::RequestTap;

/// The Ethernet address of a multicast group (RFC 1112 §6.4, RFC 2464 §7).
pub fn group_link_address(group: impl Into<IpAddr>) -> [u8; 6] {
    match group.into() {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            [0x33, 0x33, a, b, c, d]
        }
    }
}
