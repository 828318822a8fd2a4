//! What differs between IGMP over IPv4 and MLD over IPv6; all else is generic over it.

use core::fmt;
use core::hash::Hash;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::wire::{Code, MldCode};
use crate::{Address, Duration};

pub(crate) use self::layout::{CodeField, Layout, Types};

/// Bytes of messages and packets. Private, so that no other crate can implement [`Family`].
pub(crate) mod layout {
    use crate::datagram::Ip;
    use crate::{Address, InterfaceConfig};

    /// Message types.
    #[derive(Clone, Copy, Debug)]
    pub struct Types {
        pub query: u8,
        pub v1_report: Option<u8>,
        pub v2_report: u8,
        pub v2_leave: u8,
        pub v3_report: u8,
    }

    pub trait Layout: Address {
        /// Message types of the versions of IGMP; MLD version 1 is like IGMPv2, version 2 like IGMPv3.
        const TYPES: Types;
        /// Offset of the group in a query, and in reports of older versions.
        const GROUP_AT: usize;
        /// Whether hosts and queriers of version 1 exist, whose queries have code 0.
        const HAS_VERSION_1: bool;
        /// Whether the checksum of messages covers addresses and length (a pseudo header).
        const CHECKSUM_COVERS_ADDRESSES: bool;
        /// Whether a UDP datagram may have no checksum.
        const UDP_CHECKSUM_IS_OPTIONAL: bool;
        /// Whether messages without Router Alert are refused.
        const REQUIRES_ROUTER_ALERT: bool;
        /// Whether messages from the unspecified address count: reports of hosts that have no address yet (RFC 3376
        /// §4.2.13), queries of a switch in a querier's stead (RFC 4541 §2.1.1). RFC 9777 §5.2.14 has a router discard
        /// both.
        const ADMITS_UNSPECIFIED: bool;
        /// Bytes of an IP header without options.
        const HEADER_LEN: usize;
        /// Bytes that Router Alert adds.
        const ALERT_LEN: usize;

        /// The addresses as one slice of bytes.
        fn flatten(addresses: &[Self::Octets]) -> &[u8];
        /// Whether hosts report the group: all but that of all systems, and groups that stay in the node.
        fn is_reported(self) -> bool;
        /// Whether a host or router of the link sends from this address.
        fn is_sender(self, interface: &InterfaceConfig<Self>) -> bool;
        /// Reads a whole, unfragmented packet of the given protocol.
        fn parse_ip(packet: &[u8], protocol: u8) -> Option<Ip<'_, Self>>;
        /// Writes an IP header of TTL 1 (and Router Alert) in front of `len` bytes; returns the packet's length.
        fn emit_ip(
            buffer: &mut [u8],
            source: Self,
            destination: Self,
            protocol: u8,
            with_alert: bool,
            len: usize,
        ) -> Option<usize>;
    }

    /// Where a query has its maximum response code.
    pub trait CodeField: Sized {
        /// The code of a query, of which these are the first 8 bytes.
        fn read(head: &[u8; 8]) -> Self;
        /// Writes it into a query's first 8 bytes.
        fn write(self, head: &mut [u8; 8]);
    }
}

/// An address family with its membership protocol: IPv4 with IGMP, or IPv6 with MLD.
///
/// MLD version 1 (RFC 2710) corresponds to IGMPv2, MLD version 2 (RFC 9777) to IGMPv3: versions are named and counted
/// as those of IGMP.
pub trait Family: Layout {
    /// Maximum response code of queries.
    type ResponseCode: ResponseCode;

    /// IP protocol number of the messages: 2 (IGMP), 58 (ICMPv6).
    const PROTOCOL: u8;
    /// General queries go to all systems.
    const QUERY_DESTINATION: Self;
    /// Version 3 reports go to all routers that speak version 3.
    const REPORT_DESTINATION: Self;
    /// Version 2 leaves go to all routers.
    const LEAVE_DESTINATION: Self;
    /// Default of [`Config::sources_per_group`](crate::Config::sources_per_group): every report fits the least MTU
    /// that links of the family usually have, 1,500 or 1,280 bytes.
    const DEFAULT_SOURCES: u32;
}

/// How long hosts may wait with their answers, as a query says it.
pub trait ResponseCode: CodeField + Copy + Eq + Hash + fmt::Debug {
    /// The longest time of a code that is at most `time`.
    fn from_time(time: Duration) -> Self;

    /// The time that the code means in version 3 ([`Family`]).
    fn time(self) -> Duration;

    /// The time that the code means in version 2, where it is linear.
    fn time_v2(self) -> Duration;

    /// Whether the code is 0.
    fn is_zero(self) -> bool;
}

impl Family for Ipv4Addr {
    type ResponseCode = Code;

    const PROTOCOL: u8 = 2;
    const QUERY_DESTINATION: Self = Ipv4Addr::new(224, 0, 0, 1);
    const REPORT_DESTINATION: Self = Ipv4Addr::new(224, 0, 0, 22);
    const LEAVE_DESTINATION: Self = Ipv4Addr::new(224, 0, 0, 2);
    const DEFAULT_SOURCES: u32 = 64;
}

impl Family for Ipv6Addr {
    type ResponseCode = MldCode;

    const PROTOCOL: u8 = 58;
    const QUERY_DESTINATION: Self = link_local_group(0x01);
    const REPORT_DESTINATION: Self = link_local_group(0x16);
    const LEAVE_DESTINATION: Self = link_local_group(0x02);
    const DEFAULT_SOURCES: u32 = 32;
}

const fn link_local_group(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, last)
}

/// Offset of a membership message in a packet that this crate writes: 24 (IPv4), 48 (IPv6).
pub(crate) const fn membership_at<A: Layout>() -> usize {
    A::HEADER_LEN + A::ALERT_LEN
}

/// Length of a message of one group: 8 (IGMP), 24 (MLD).
pub(crate) const fn short_len<A: Layout>() -> usize {
    A::GROUP_AT + <A as Address>::LEN
}
