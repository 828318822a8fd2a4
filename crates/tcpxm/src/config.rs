//! Configuration of an endpoint and of a group.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use proto_core::time::Duration;

use crate::cc::CongestionControl;
use crate::wire::SegmentKey;

/// The protocol that carries segments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Carrier {
    /// One segment in each UDP datagram (TCP-XM §2). UDP's checksum covers the segment, whose own checksum is
    /// 0, so that address translators may change addresses.
    #[default]
    Udp,
    /// IP protocol 6: the segment's checksum covers the addresses.
    Ip,
}

/// How a listener answers the group that a SYN offers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum GroupPolicy {
    /// Accepts it.
    #[default]
    Accept,
    /// Answers without the option: the sender serves this receiver by unicast.
    Refuse,
    /// Proposes this group instead.
    Propose(IpAddr),
}

/// Configuration of an [`Endpoint`](crate::Endpoint), one field for each setting. Start from [`Config::default`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The protocol that carries segments.
    pub carrier: Carrier,
    /// Largest IP packet to send, and to ask the other side for, 576 to 65535 bytes.
    pub mtu: u16,
    /// Whether to offer timestamps (RFC 7323).
    pub timestamps: bool,
    /// Whether to offer window scaling (RFC 7323). Without it a window is at most 65535 bytes.
    pub window_scaling: bool,
    /// Whether to offer selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Limit of received data stored for one connection, in bytes, rounded up to a power of two, at most 1 GiB.
    /// Memory is allocated as needed.
    pub receive_buffer: usize,
    /// Limit of sent data stored for a connection that is not in a group, in bytes, rounded likewise.
    pub send_buffer: usize,
    /// Whether small segments wait for the acknowledgement of what is in flight (RFC 9293 §3.7.4).
    pub nagle: bool,
    /// Longest delay of an acknowledgement, at most 500 ms (RFC 9293 MUST-40).
    pub delayed_ack: Duration,
    /// Full segments after which an acknowledgement is due at once; 2 by RFC 9293 SHLD-19.
    pub ack_every: u8,
    /// Longest expected delay of a peer's acknowledgements: a loss probe for a single segment waits this much
    /// longer (`TLP.max_ack_delay`, RFC 8985 §7.2), but no longer than the retransmission timeout. A peer with
    /// a longer delay occasionally gets a segment twice.
    pub peer_ack_delay: Duration,
    /// Least retransmission timeout. RFC 6298 asks for 1 s; tail loss probes (RFC 8985) and common
    /// practice go with 200 ms. Where it is above [`Config::max_rto`], that one counts.
    pub min_rto: Duration,
    /// Largest retransmission timeout, at least 60 s (RFC 6298 §2.5).
    pub max_rto: Duration,
    /// How long a connection attempt lasts at most.
    pub connect_timeout: Duration,
    /// How long data may stay unacknowledged, or a probe unanswered, before the connection fails
    /// (RFC 9293 §3.8.3, R2).
    pub user_timeout: Duration,
    /// Idle time before a keep-alive probe; `None`: no probes (RFC 9293 MUST-24).
    pub keep_alive: Option<Duration>,
    /// How long TIME-WAIT lasts: twice the maximum segment lifetime.
    pub time_wait: Duration,
    /// Congestion controller of new connections.
    pub congestion_control: CongestionControl,
    /// Whether new data is spread over the round trip instead of sent as fast as windows allow.
    pub pacing: bool,
    /// Most bits of IP packets a second that a connection or a group sends as new data, all copies
    /// counted; `None`: no bound.
    pub max_rate_bps: Option<u64>,
    /// Connections at once, half-open ones and those in TIME-WAIT included.
    pub max_connections: usize,
    /// Connections whose handshake a peer has begun and not completed. At the bound the oldest goes.
    pub max_half_open: usize,
    /// Connections complete and not yet accepted, for each listener. At the bound SYNs are dropped.
    pub accept_backlog: usize,
    /// Answers to segments out of the window, a second, for each connection (RFC 5961 §7).
    pub challenge_acks_per_second: u8,
    /// Resets for segments that belong to no connection, a second, for the endpoint.
    pub resets_per_second: u16,
    /// The answer to a group offered in a SYN.
    pub groups: GroupPolicy,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            carrier: Carrier::Udp,
            mtu: 1500,
            timestamps: true,
            window_scaling: true,
            sack: true,
            receive_buffer: 4 << 20,
            send_buffer: 4 << 20,
            nagle: true,
            delayed_ack: Duration::from_millis(40),
            ack_every: 2,
            peer_ack_delay: Duration::from_millis(40),
            min_rto: Duration::from_millis(200),
            max_rto: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(60),
            user_timeout: Duration::from_secs(100),
            keep_alive: None,
            time_wait: Duration::from_secs(60),
            congestion_control: CongestionControl::Cubic,
            pacing: false,
            max_rate_bps: None,
            max_connections: 4096,
            max_half_open: 256,
            accept_backlog: 128,
            challenge_acks_per_second: 10,
            resets_per_second: 100,
            groups: GroupPolicy::Accept,
        }
    }
}

impl Config {
    /// Bytes of IP and carrier headers before a segment.
    pub(crate) fn carrier_overhead(&self, address: IpAddr) -> u16 {
        let ip = if address.is_ipv4() { 20 } else { 40 };
        match self.carrier {
            Carrier::Udp => ip + 8,
            Carrier::Ip => ip,
        }
    }

    /// The maximum segment size to announce: the MTU less the fixed headers (RFC 6691).
    pub(crate) fn mss(&self, address: IpAddr) -> u16 {
        self.mtu.max(576) - self.carrier_overhead(address) - 20
    }

    /// Shift of the window that the whole receive buffer can be announced with (RFC 7323 §2.3).
    pub(crate) fn window_shift(&self) -> u8 {
        let capacity = self.capacity();
        (0..14)
            .find(|&shift| capacity >> shift <= 0xffff)
            .unwrap_or(14)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.receive_buffer.clamp(2048, 1 << 30).next_power_of_two()
    }
}

/// Which multicast group a sender offers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum GroupChoice {
    /// A random one from 239.192.0.0/14 (RFC 2365, organisation-local); `ff18::/16` for IPv6.
    #[default]
    Random,
    /// A random one from 232.1.0.0 to 232.255.255.255 (RFC 4607); `ff3e::8000:0/97` for IPv6.
    RandomSourceSpecific,
    /// This one.
    Given(IpAddr),
}

/// The mode that the user requests (TCP-XM §2.1, the states that an explicit request leads to).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum GroupMode {
    /// Unicast first, multicast where it is seen to work.
    #[default]
    Auto,
    /// No group is offered, and receivers are not synchronised: `UnicastOnly`.
    Unicast,
    /// Multicast from the first byte, without falling back; a receiver that answers without the
    /// group option, or that multicast does not reach ([`GroupConfig::multicast_timeout`]), fails:
    /// `MulticastOnly`.
    Multicast,
}

/// A sender's group: its receivers, and how to reach them. Start from [`GroupConfig::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupConfig {
    /// Our address, as far as the carrier needs it ([`Carrier::Ip`]), and port; port 0: a random one.
    pub local: SocketAddr,
    /// The receivers' addresses.
    pub receivers: Vec<IpAddr>,
    /// Port of the receivers, the same for all, also on the group address.
    pub port: u16,
    /// The multicast group.
    pub group: GroupChoice,
    /// The requested mode.
    pub mode: GroupMode,
    /// Groups that receivers may propose instead of the one offered and be served in; 0, the default:
    /// only the group that this side chose gets data. A receiver that proposes another one is served as
    /// `UnicastGroupOnly` and counted in [`Stats::alternatives_refused`](crate::Stats::alternatives_refused).
    pub max_alternatives: usize,
    /// Ranges that a proposed group has to be in. The default of [`GroupConfig::new`] is the
    /// administratively scoped and the source-specific groups: 239.0.0.0/8 (RFC 2365) and 232.0.0.0/8
    /// (RFC 4607); of IPv6 those of admin-local, site-local and organization-local scope (RFC 7346) and
    /// `ff3x::/32`.
    pub alternative_ranges: Vec<Prefix>,
    /// Receivers that have not answered after this time are left out. Shorter than the receivers'
    /// [`Config::connect_timeout`]: data begins when all have answered or this time is over, and completes the
    /// handshake of a receiver to which the last acknowledgement of it was lost.
    pub connect_timeout: Duration,
    /// The retransmission timeout until a round trip was measured: a lost SYN delays all receivers by it. `None`: one
    /// second (RFC 6298 §2.1). Three times the longest round trip of other connections to the receivers is a good
    /// value (RFC 9040 §5); [`Config::min_rto`] is the least.
    pub initial_rto: Option<Duration>,
    /// The group fails when fewer than this have answered by then; at least 1.
    pub min_receivers: usize,
    /// A receiver that does not acknowledge anything for this long is dropped.
    pub receiver_timeout: Duration,
    /// With [`GroupMode::Multicast`], a receiver fails with
    /// [`Failure::NoMulticast`](crate::Failure::NoMulticast) when it has received only repairs for this long,
    /// although 16 segments more were sent by multicast, and its feedback is 0: none of its last 128 segments arrived by
    /// multicast. Joining a group can take seconds when a report is lost or routers set up a tree.
    pub multicast_timeout: Duration,
    /// Lower limit of the group's rate in bits of data per second. A receiver that holds the others below it
    /// for a second is detached: it leaves the multicast group and gets a stream of its own. At least 1.
    pub min_rate_bps: Option<u64>,
    /// As [`Config::max_rate_bps`], for this group.
    pub max_rate_bps: Option<u64>,
    /// With a key every segment to a receiver, except SYNs, has a tag, and receivers that listen with the same
    /// key ([`Endpoint::listen_keyed`](crate::Endpoint::listen_keyed)) accept no other segments.
    pub key: Option<SegmentKey>,
}

/// A range of addresses: those of which the first `len` bits are those of `address`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// An address in the range.
    pub address: IpAddr,
    /// Bits that count, at most 32 (IPv4) or 128; with more, no address is in the range.
    pub len: u8,
}

impl Prefix {
    /// Returns whether an address is in the range; one of the other family is not.
    pub fn contains(&self, address: IpAddr) -> bool {
        let common = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => return false,
        };
        common >= u32::from(self.len)
    }
}

impl GroupConfig {
    /// Returns a group of these receivers with defaults: a random group address that receivers cannot replace,
    /// automatic mode, 10 s to connect, no minimum number of receivers, 30 s without an acknowledgement until a
    /// receiver is dropped, and 3 s without multicast until a receiver fails that may only be reached by
    /// multicast.
    #[must_use]
    pub fn new(local: SocketAddr, receivers: Vec<IpAddr>, port: u16) -> Self {
        Self {
            local,
            receivers,
            port,
            group: GroupChoice::Random,
            mode: GroupMode::Auto,
            max_alternatives: 0,
            alternative_ranges: default_alternative_ranges(),
            connect_timeout: Duration::from_secs(10),
            initial_rto: None,
            min_receivers: 1,
            receiver_timeout: Duration::from_secs(30),
            multicast_timeout: Duration::from_secs(3),
            min_rate_bps: None,
            max_rate_bps: None,
            key: None,
        }
    }
}

/// The administratively scoped and the source-specific groups.
fn default_alternative_ranges() -> Vec<Prefix> {
    let v4 = [239, 232].map(|first| (IpAddr::from([first, 0, 0, 0]), 8));
    // Flags 0, 1 and 3 (RFC 4291 §2.7, RFC 3306); scopes 4, 5 and 8 (RFC 7346).
    let scoped = [0xff04, 0xff05, 0xff08, 0xff14, 0xff15, 0xff18].map(|first| (first, 16));
    let source_specific = [0xff34, 0xff35, 0xff38, 0xff3e].map(|first| (first, 32));
    let v6 = scoped.into_iter().chain(source_specific);
    let v6 = v6.map(|(first, len)| (IpAddr::from([first, 0, 0, 0, 0, 0, 0, 0]), len));
    v4.into_iter()
        .chain(v6)
        .map(|(address, len)| Prefix { address, len })
        .collect()
}
