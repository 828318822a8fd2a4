//! Requests and dmcasts as whole packets, in each carrier of LMS.

use std::net::Ipv6Addr;

use linux_net::packet::{complete_checksum, group_link_address};
use lms_proto::wire::udp::{self, Header, Ports};
use lms_proto::wire::{ipv4, ipv6};
use lms_proto::{Family, Form, Kind, LmsOption, TurningPoint};

use crate::packets;
use crate::prelude::*;

/// How LMS's messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Carrier {
    /// The paper's IPv4 option.
    Option,
    /// The option of IPv6's hop-by-hop header.
    HopByHop,
    /// UDP over IPv4.
    Datagram,
}

pub(super) const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 6, 1, 6), 6_016);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0x6, 0x16);
const UDP: u8 = 17;
const HOP_LIMIT: u8 = 16;
const PORTS: Ports = Ports {
    source: GROUP.port(),
    group: GROUP.port(),
};

/// Hosts of the network, by their IPv4 addresses.
#[derive(Clone, Copy)]
pub(super) struct Hosts {
    pub(super) source: Ipv4Addr,
    pub(super) requester: Ipv4Addr,
    pub(super) replier: Ipv4Addr,
}

impl Carrier {
    pub(super) const ALL: [Carrier; 3] = [Carrier::Option, Carrier::HopByHop, Carrier::Datagram];

    pub(super) fn label(self) -> &'static str {
        match self {
            Carrier::Option => "IPv4 option",
            Carrier::HopByHop => "IPv6 option",
            Carrier::Datagram => "UDP",
        }
    }

    /// An address in the version of IP of this carrier.
    pub(super) fn address(self, address: Ipv4Addr) -> IpAddr {
        match self {
            Carrier::HopByHop => netlab::ipv6(address).into(),
            Carrier::Option | Carrier::Datagram => address.into(),
        }
    }

    /// The group in that version.
    pub(super) fn group(self) -> IpAddr {
        match self {
            Carrier::HopByHop => GROUP6.into(),
            Carrier::Option | Carrier::Datagram => (*GROUP.ip()).into(),
        }
    }

    /// The Ethernet address that requests go to; `router` is the router's on that link.
    pub(super) fn request_to(self, router: [u8; 6]) -> [u8; 6] {
        match self {
            Carrier::Option => group_link_address(*GROUP.ip()),
            Carrier::HopByHop => group_link_address(GROUP6),
            Carrier::Datagram => router,
        }
    }

    /// A request that has not turned.
    pub(super) fn request(self, hosts: &Hosts, payload: &[u8]) -> Result<Vec<u8>> {
        let option = self.option(hosts, Kind::Request, None);
        match self {
            Carrier::Option => {
                let host = SocketAddrV4::new(hosts.requester, GROUP.port());
                packets::request(host, hosts.source, GROUP, payload)
            }
            Carrier::HopByHop => {
                let mut options = [0; ipv6::OPTIONS_LEN];
                ipv6::emit_options(&option, UDP, &mut options)?;
                let udp = udp_bytes(GROUP.port(), &[payload]);
                let from = netlab::ipv6(hosts.requester);
                let next = ipv6::HOP_BY_HOP;
                let mut packet = ip(from, GROUP6, next, &[&options, &udp])?;
                complete_checksum(&mut packet)?;
                Ok(packet)
            }
            Carrier::Datagram => datagram(&option, hosts.requester, hosts.source, payload),
        }
    }

    /// The repair that answers it, for the interface that the request turned at.
    pub(super) fn dmcast(
        self,
        hosts: &Hosts,
        point: TurningPoint,
        payload: &[u8],
    ) -> Result<Vec<u8>> {
        let option = self.option(hosts, Kind::Dmcast, Some(point));
        match (self, point.router) {
            (Carrier::Option, IpAddr::V4(router)) => {
                let source = SocketAddrV4::new(hosts.source, GROUP.port());
                let data = packets::data(source, GROUP, payload)?;
                packets::dmcast(hosts.replier, router, point.iface, &data)
            }
            (Carrier::HopByHop, IpAddr::V6(router)) => {
                let udp = udp_bytes(GROUP.port(), &[payload]);
                let mut inner = ip(netlab::ipv6(hosts.source), GROUP6, UDP, &[&udp])?;
                complete_checksum(&mut inner)?;
                let mut packet = vec![0; Ipv6Addr::outer_len(Form::Own)];
                let ends = (netlab::ipv6(hosts.replier), router);
                let form = Form::Own;
                Ipv6Addr::emit_outer(&mut packet, inner.len(), HOP_LIMIT, ends, &option, form)?;
                packet.extend(inner);
                Ok(packet)
            }
            (Carrier::Datagram, IpAddr::V4(router)) => {
                datagram(&option, hosts.replier, router, payload)
            }
            _ => bail!("a turning point of the other version of IP"),
        }
    }

    fn option(self, hosts: &Hosts, kind: Kind, turning_point: Option<TurningPoint>) -> LmsOption {
        LmsOption {
            kind,
            turning_point,
            source: self.address(hosts.source),
            group: self.group(),
        }
    }

    /// The turning point in a request.
    pub(super) fn turning_point(self, packet: &[u8]) -> Option<TurningPoint> {
        let option = match self {
            Carrier::Option => {
                let layout = ipv4::Layout::check(packet).ok()?;
                Ipv4Addr::find_option(packet.get(20..layout.header_len)?)?
            }
            Carrier::HopByHop => {
                let layout = ipv6::Layout::check(packet).ok()?;
                Ipv6Addr::find_option(packet.get(ipv6::HEADER_LEN..layout.header_len)?)?
            }
            Carrier::Datagram => Header::<Ipv4Addr>::parse(packet.get(28..)?).ok()?.option(),
        };
        option.turning_point
    }
}

/// A message of the UDP carrier.
fn datagram(option: &LmsOption, from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Result<Vec<u8>> {
    let header = Header::<Ipv4Addr>::of(option, HOP_LIMIT, PORTS)?;
    let mut bytes = vec![0; header.buffer_len()];
    header.emit(&mut bytes)?;
    let udp = udp_bytes(udp::PORT, &[&bytes, payload]);
    let mut packet = ip(from, to, UDP, &[&udp])?;
    complete_checksum(&mut packet)?;
    Ok(packet)
}

/// A UDP datagram from the group's port, its checksum not yet computed.
fn udp_bytes(to: u16, parts: &[&[u8]]) -> Vec<u8> {
    let payload = parts.concat();
    let len = (8 + payload.len()) as u16;
    let header = [GROUP.port(), to, len, 0].map(u16::to_be_bytes);
    [header.as_flattened(), &payload].concat()
}

/// An IP packet with a header and these parts.
fn ip<A: Family>(from: A, to: A, protocol: u8, parts: &[&[u8]]) -> Result<Vec<u8>> {
    let payload = parts.concat();
    let mut packet = vec![0; A::IP_HEADER_LEN];
    A::write_ip(&mut packet, payload.len(), protocol, HOP_LIMIT, from, to)
        .context("a packet that is too long")?;
    packet.extend(payload);
    Ok(packet)
}
