//! What differs between IPv4 and IPv6 in the data thread.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lms_proto::{Iface, InterfaceConfig};

use super::interfaces::Interfaces;

const IGMP: u8 = 2;
const ICMPV6: u8 = 58;
const UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;
/// Where messages of LMS-HIER and turned datagrams go.
const GROUP: [u8; 4] = lms_proto::wire::hier::GROUP.octets();
const GROUP6: [u8; 16] = lms_proto::wire::hier::GROUP6.octets();

/// A family that the router forwards.
pub(crate) trait Family: lms_proto::Family + linux_net::Family {
    /// Its name in logs and in the status.
    const NAME: &'static str;

    /// Whether the fast path forwards this family.
    const HAS_FAST_PATH: bool;

    /// What the machine must know of an interface; `None` while it has no address of this family.
    fn config(interfaces: &Interfaces, iface: Iface) -> Option<InterfaceConfig<Self>>;

    /// Whether a packet is a message of IGMP, MLD or LMS-HIER.
    fn is_control(packet: &[u8]) -> bool;

    /// Source and destination of a UDP packet.
    fn udp_ends(packet: &[u8]) -> Option<(Self, Self)>;

    /// An address of the configuration, if it is of this family.
    fn of(address: IpAddr) -> Option<Self> {
        <Self as lms_proto::Address>::from_ip(address)
    }
}

impl Family for Ipv4Addr {
    const NAME: &'static str = "ipv4";
    const HAS_FAST_PATH: bool = true;

    fn config(interfaces: &Interfaces, iface: Iface) -> Option<InterfaceConfig> {
        let own = interfaces.get(iface)?.address?;
        Some(InterfaceConfig::ipv4(own.address, own.prefix_len))
    }

    #[inline]
    fn is_control(packet: &[u8]) -> bool {
        match packet.get(9) {
            Some(&IGMP) => true,
            Some(&UDP) => packet.get(16..20) == Some(&GROUP) && is_hier(packet, 20),
            _ => false,
        }
    }

    fn udp_ends(packet: &[u8]) -> Option<(Self, Self)> {
        let header = packet.first_chunk::<20>()?;
        let address = |at: usize| header[at..].first_chunk::<4>().map(|a| Ipv4Addr::from(*a));
        (header[9] == UDP).then_some((address(12)?, address(16)?))
    }
}

impl Family for Ipv6Addr {
    const NAME: &'static str = "ipv6";
    const HAS_FAST_PATH: bool = false;

    fn config(interfaces: &Interfaces, iface: Iface) -> Option<InterfaceConfig<Self>> {
        let slot = interfaces.get(iface)?;
        let link_local = slot.link_local?;
        let (address, prefix_len) = match (slot.ipv6, interfaces.any_ipv6()) {
            (Some(own), _) => (own.address, own.prefix_len),
            // An address of another interface is of no subnet here; without any only the link can answer.
            (None, Some(other)) => (other, 128),
            (None, None) => (link_local, 128),
        };
        Some(InterfaceConfig::ipv6(address, prefix_len, link_local))
    }

    #[inline]
    fn is_control(packet: &[u8]) -> bool {
        let (next, behind) = (packet.get(6), packet.get(40));
        match (next, behind) {
            (Some(&HOP_BY_HOP), Some(&ICMPV6)) | (Some(&ICMPV6), _) => true,
            (Some(&UDP), _) => packet.get(24..40) == Some(&GROUP6) && is_hier(packet, 40),
            _ => false,
        }
    }

    fn udp_ends(packet: &[u8]) -> Option<(Self, Self)> {
        let header = packet.first_chunk::<40>()?;
        let address = |at: usize| header[at..].first_chunk::<16>().map(|a| Ipv6Addr::from(*a));
        (header[6] == UDP).then_some((address(8)?, address(24)?))
    }
}

/// Whether the UDP header at `at` names the port of LMS-HIER.
fn is_hier(packet: &[u8], at: usize) -> bool {
    packet.get(at + 2..at + 4) == Some(&lms_proto::wire::hier::PORT.to_be_bytes())
}
