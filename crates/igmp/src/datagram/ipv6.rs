//! IPv6 headers with their hop-by-hop options, and what MLD has of its own.

use core::net::Ipv6Addr;

use super::Ip;
use crate::family::{Layout, Types};
use crate::{Address, InterfaceConfig};

const HOP_BY_HOP: u8 = 0;
const DESTINATION_OPTIONS: u8 = 60;
/// Traffic class of internetwork control, DSCP 48.
const TRAFFIC_CLASS: u32 = 0xc0;
const PAD1: u8 = 0;
const PADN: u8 = 1;
const ROUTER_ALERT: u8 = 5;
/// Hop-by-hop options after the number of the next header and the length: Router Alert of MLD (RFC 2711), PadN.
const ALERT_OPTIONS: [u8; 6] = [ROUTER_ALERT, 2, 0, 0, PADN, 0];

impl Layout for Ipv6Addr {
    const TYPES: Types = Types {
        query: 130,
        v1_report: None,
        v2_report: 131,
        v2_leave: 132,
        v3_report: 143,
    };
    const GROUP_AT: usize = 8;
    const HAS_VERSION_1: bool = false;
    const CHECKSUM_COVERS_ADDRESSES: bool = true;
    const UDP_CHECKSUM_IS_OPTIONAL: bool = false;
    const REQUIRES_ROUTER_ALERT: bool = true;
    const ADMITS_UNSPECIFIED: bool = false;
    const HEADER_LEN: usize = 40;
    const ALERT_LEN: usize = 2 + ALERT_OPTIONS.len();

    fn flatten(addresses: &[[u8; 16]]) -> &[u8] {
        addresses.as_flattened()
    }

    fn is_reported(self) -> bool {
        let scope = self.segments()[0] & 0xf;
        scope > 1 && self != Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)
    }

    fn is_sender(self, _: &InterfaceConfig<Self>) -> bool {
        self.is_link_local()
    }

    fn parse_ip(packet: &[u8], protocol: u8) -> Option<Ip<'_, Self>> {
        let (head, rest) = packet.split_first_chunk::<40>()?;
        if head[0] >> 4 != 6 {
            return None;
        }
        let mut rest = rest.get(..usize::from(u16::from_be_bytes([head[4], head[5]])))?;
        let mut next = head[6];
        let mut has_router_alert = false;
        // Hop-by-hop options come first (RFC 8200 §4.1).
        if next == HOP_BY_HOP {
            let header = Options::split(rest)?;
            has_router_alert = header.check()?;
            (next, rest) = (header.next, header.rest);
        }
        while next == DESTINATION_OPTIONS {
            let header = Options::split(rest)?;
            header.check()?;
            (next, rest) = (header.next, header.rest);
        }
        if next != protocol {
            return None;
        }
        Some(Ip {
            source: Self::read(&head[8..])?,
            destination: Self::read(&head[24..])?,
            ttl: head[7],
            has_router_alert,
            payload: rest,
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
        let alert_len = if with_alert { Self::ALERT_LEN } else { 0 };
        let after_header = alert_len + payload_len;
        let packet = buffer.get_mut(..Self::HEADER_LEN + after_header)?;
        packet[..4].copy_from_slice(&(6 << 28 | TRAFFIC_CLASS << 20).to_be_bytes());
        packet[4..6].copy_from_slice(&u16::try_from(after_header).ok()?.to_be_bytes());
        packet[6] = protocol;
        packet[7] = 1;
        packet[8..24].copy_from_slice(&source.octets());
        packet[24..40].copy_from_slice(&destination.octets());
        if with_alert {
            packet[6] = HOP_BY_HOP;
            packet[40..42].copy_from_slice(&[protocol, 0]);
            packet[42..48].copy_from_slice(&ALERT_OPTIONS);
        }
        Some(packet.len())
    }
}

/// An extension header of options.
struct Options<'a> {
    next: u8,
    options: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Options<'a> {
    fn split(bytes: &'a [u8]) -> Option<Self> {
        let [next, units, ..] = *bytes else {
            return None;
        };
        let (header, rest) = bytes.split_at_checked(8 * (usize::from(units) + 1))?;
        Some(Options {
            next,
            options: &header[2..],
            rest,
        })
    }

    /// Returns whether Router Alert is among the options; `None` when they do not fill their header, or when one is
    /// unrecognized and its type forbids skipping it (RFC 8200 §4.2: the two highest bits).
    fn check(&self) -> Option<bool> {
        let mut options = self.options;
        let mut has_router_alert = false;
        while let [kind, after @ ..] = options {
            if *kind == PAD1 {
                options = after;
                continue;
            }
            let (len, data) = after.split_first()?;
            let (data, rest) = data.split_at_checked(usize::from(*len))?;
            match *kind {
                PADN => {}
                ROUTER_ALERT if data.len() == 2 => has_router_alert = true,
                ROUTER_ALERT => return None,
                other if other >> 6 == 0 => {}
                _ => return None,
            }
            options = rest;
        }
        Some(has_router_alert)
    }
}
