//! Requests and dmcasts: the option, and the packets around it (LMS §6.3).

use core::net::{IpAddr, Ipv4Addr};

use smoltcp::wire::{IpProtocol, Ipv4Packet, UdpPacket};

use super::Endpoint;
use crate::wire::encap::ComposeError;
use crate::wire::ipv4::HEADER_LEN;
use crate::wire::option::EmitError;
use crate::{Key, Kind, LmsOption, TurningPoint};

const UDP_HEADER_LEN: usize = 8;
const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;

/// The LMS option among the IPv4 options of a packet, as `recvmsg` gives them (`IP_RECVOPTS`).
/// `None` where there is none, or options that cannot be read.
pub fn find_option(options: &[u8]) -> Option<LmsOption> {
    let mut rest = options;
    loop {
        match *rest.first()? {
            OPTION_END => return None,
            OPTION_NOP => rest = &rest[1..],
            _ => {
                if let Ok((_, option)) = LmsOption::parse(rest) {
                    return Some(option);
                }
                let len = usize::from(*rest.get(1)?);
                rest = rest.get(len.max(2)..)?;
            }
        }
    }
}

/// The UDP ports of the data stream that a repair belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DmcastPorts {
    /// The source's port.
    pub source: u16,
    /// The group's port.
    pub destination: u16,
}

impl Endpoint<'_> {
    /// Writes the option of a request for data of `key`, not turned yet, to `buffer`: the
    /// ancillary data of `sendmsg` (`IP_RETOPTS`). Returns its length.
    ///
    /// # Errors
    /// [`EmitError::Space`] when `buffer` is shorter than the option.
    pub fn request_option(&self, key: Key, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let option = LmsOption {
            kind: Kind::Request,
            turning_point: None,
            source: key.source.into(),
            group: key.group.into(),
        };
        option.emit(self.config.form, buffer)
    }

    /// Bytes that a dmcast has before the payload of its inner UDP datagram.
    pub const fn dmcast_overhead(&self) -> usize {
        HEADER_LEN + LmsOption::buffer_len(self.config.form) + HEADER_LEN + UDP_HEADER_LEN
    }

    /// Writes a whole dmcast: a UDP datagram from the source of `key` to its group with this
    /// payload, around it the packet to the turning point. Send it raw. Returns its length.
    ///
    /// # Errors
    /// [`ComposeError::TooLong`] when the packet would be longer than 65,535 bytes,
    /// [`ComposeError::Space`] when `buffer` is shorter than the packet, and
    /// [`ComposeError::TurningPoint`] when the turning point is unset or not an IPv4 address.
    pub fn dmcast(
        &self,
        key: Key,
        turning_point: TurningPoint,
        ports: DmcastPorts,
        payload: &[u8],
        buffer: &mut [u8],
    ) -> Result<usize, ComposeError> {
        let outer_len = HEADER_LEN + LmsOption::buffer_len(self.config.form);
        let len = self.dmcast_overhead() + payload.len();
        let total_len = u16::try_from(len).map_err(|_| ComposeError::TooLong)?;
        let out = buffer.get_mut(..len).ok_or(ComposeError::Space)?;
        let IpAddr::V4(router) = turning_point.router else {
            return Err(ComposeError::TurningPoint);
        };
        let (outer, inner) = out.split_at_mut(outer_len);
        let option = LmsOption {
            kind: Kind::Dmcast,
            turning_point: Some(turning_point),
            source: key.source.into(),
            group: key.group.into(),
        };
        option
            .emit(self.config.form, &mut outer[HEADER_LEN..])
            .map_err(|why| match why {
                EmitError::TurningPoint => ComposeError::TurningPoint,
                EmitError::Space | EmitError::Family => ComposeError::Space,
            })?;
        let datagram = &mut inner[HEADER_LEN..];
        datagram[UDP_HEADER_LEN..].copy_from_slice(payload);
        let mut udp = UdpPacket::new_unchecked(datagram);
        udp.set_src_port(ports.source);
        udp.set_dst_port(ports.destination);
        udp.set_len(total_len - outer_len as u16 - HEADER_LEN as u16);
        udp.fill_checksum(&key.source.into(), &key.group.into());
        let inner_ends = (
            key.source,
            key.group,
            IpProtocol::Udp,
            self.config.repair_ttl,
        );
        header(inner, HEADER_LEN, total_len - outer_len as u16, inner_ends);
        let replier = self.config.interface.address;
        let outer_ends = (
            replier,
            router,
            IpProtocol::Unknown(4),
            self.config.dmcast_ttl,
        );
        header(outer, outer_len, total_len, outer_ends);
        Ok(len)
    }
}

fn header(
    out: &mut [u8],
    header_len: usize,
    total_len: u16,
    (source, destination, protocol, ttl): (Ipv4Addr, Ipv4Addr, IpProtocol, u8),
) {
    let mut ip = Ipv4Packet::new_unchecked(out);
    ip.set_version(4);
    ip.set_header_len(header_len as u8);
    ip.set_dscp(0);
    ip.set_ecn(0);
    ip.set_total_len(total_len);
    ip.set_ident(0);
    ip.clear_flags();
    ip.set_dont_frag(true);
    ip.set_frag_offset(0);
    ip.set_hop_limit(ttl);
    ip.set_next_header(protocol);
    ip.set_src_addr(source);
    ip.set_dst_addr(destination);
    ip.fill_checksum();
}
