//! IPv4 headers, and what IGMP has of its own.

use core::net::Ipv4Addr;

use smoltcp::wire::{IpProtocol, Ipv4Packet};

use super::Ip;
use crate::InterfaceConfig;
use crate::family::{Layout, Types};

/// Router Alert (RFC 2113), as IGMP packets carry it.
const ROUTER_ALERT: [u8; 4] = [0x94, 0x04, 0, 0];

impl Layout for Ipv4Addr {
    const TYPES: Types = Types {
        query: 0x11,
        v1_report: Some(0x12),
        v2_report: 0x16,
        v2_leave: 0x17,
        v3_report: 0x22,
    };
    const GROUP_AT: usize = 4;
    const HAS_VERSION_1: bool = true;
    const CHECKSUM_COVERS_ADDRESSES: bool = false;
    const UDP_CHECKSUM_IS_OPTIONAL: bool = true;
    const REQUIRES_ROUTER_ALERT: bool = false;
    const ADMITS_UNSPECIFIED: bool = true;
    const HEADER_LEN: usize = 20;
    const ALERT_LEN: usize = ROUTER_ALERT.len();

    fn flatten(addresses: &[[u8; 4]]) -> &[u8] {
        addresses.as_flattened()
    }

    fn is_reported(self) -> bool {
        self != Ipv4Addr::new(224, 0, 0, 1)
    }

    fn is_sender(self, interface: &InterfaceConfig) -> bool {
        interface.on_link(self)
    }

    fn parse_ip(packet: &[u8], protocol: u8) -> Option<Ip<'_>> {
        let ip = Ipv4Packet::new_checked(packet).ok()?;
        let whole = !ip.more_frags() && ip.frag_offset() == 0;
        let checksum_ok = cfg!(fuzzing) || ip.verify_checksum();
        let header_ok = ip.version() == 4 && usize::from(ip.header_len()) >= Self::HEADER_LEN;
        if !header_ok || !whole || !checksum_ok || u8::from(ip.next_header()) != protocol {
            return None;
        }
        let options = packet.get(Self::HEADER_LEN..usize::from(ip.header_len()))?;
        Some(Ip {
            source: ip.src_addr(),
            destination: ip.dst_addr(),
            ttl: ip.hop_limit(),
            has_router_alert: has_router_alert(options),
            payload: ip.payload(),
        })
    }

    fn emit_ip(
        buffer: &mut [u8],
        source: Self,
        destination: Self,
        protocol: u8,
        with_alert: bool,
        payload_len: usize,
    ) -> Option<usize> {
        let mut header_len = Self::HEADER_LEN;
        if with_alert {
            let options = header_len..header_len + Self::ALERT_LEN;
            header_len = options.end;
            buffer.get_mut(options)?.copy_from_slice(&ROUTER_ALERT);
        }
        let len = header_len + payload_len;
        let total_len = u16::try_from(len).ok()?;
        let mut ip = Ipv4Packet::new_unchecked(buffer.get_mut(..len)?);
        ip.set_version(4);
        ip.set_header_len(header_len as u8);
        ip.set_dscp(48);
        ip.set_ecn(0);
        ip.set_total_len(total_len);
        ip.set_ident(0);
        ip.clear_flags();
        ip.set_dont_frag(true);
        ip.set_frag_offset(0);
        ip.set_hop_limit(1);
        ip.set_next_header(IpProtocol::from(protocol));
        ip.set_src_addr(source);
        ip.set_dst_addr(destination);
        ip.fill_checksum();
        Some(len)
    }
}

/// Whether the options of a header include Router Alert; options after one of invalid length do not count.
fn has_router_alert(mut options: &[u8]) -> bool {
    loop {
        match *options {
            [0, ..] | [] => return false,
            [1, ref rest @ ..] => options = rest,
            [0x94, 4, _, _, ..] => return true,
            [_, len, ..] if len >= 2 && usize::from(len) <= options.len() => {
                options = &options[usize::from(len)..];
            }
            _ => return false,
        }
    }
}
