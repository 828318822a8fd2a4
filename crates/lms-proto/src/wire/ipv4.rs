//! IPv4 headers: what `smoltcp::wire` lacks. Options, and edits in place that update the header
//! checksum incrementally (RFC 1624).

use core::net::Ipv4Addr;

use crate::Iface;

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// Length of the longest header, in bytes.
pub const MAX_HEADER_LEN: usize = 60;
/// Protocol number of IPv4 in IPv4.
pub const PROTOCOL_IPIP: u8 = 4;

const CHECKSUM_AT: usize = 10;

/// Writes the turning point into an LMS option whose common part starts at `body_at`, and
/// updates the checksum. Does nothing where `body_at` lies outside the packet.
pub fn set_turning_point(packet: &mut [u8], body_at: usize, router: Ipv4Addr, iface: Iface) {
    let Some(body) = packet.get_mut(body_at..body_at + 6) else {
        return;
    };
    let new = [iface.0.to_be_bytes(), [0; 2], [0; 2]];
    let mut bytes = [0; 6];
    bytes[..2].copy_from_slice(&new[0]);
    bytes[2..].copy_from_slice(&router.octets());
    let mut delta = 0u32;
    for (old, new) in body.chunks_exact(2).zip(bytes.chunks_exact(2)) {
        delta += u32::from(!u16::from_be_bytes([old[0], old[1]]));
        delta += u32::from(u16::from_be_bytes([new[0], new[1]]));
    }
    body.copy_from_slice(&bytes);
    add_to_checksum(packet, delta);
}

/// RFC 1624 §3, equation 3: HC' = ~(~HC + ~m + m'), with `delta` the sum of all ~m + m'.
fn add_to_checksum(packet: &mut [u8], delta: u32) {
    let Some(field) = packet.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2) else {
        return;
    };
    let old = u16::from_be_bytes([field[0], field[1]]);
    let mut sum = u32::from(!old) + delta;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    field.copy_from_slice(&(!(sum as u16)).to_be_bytes());
}
