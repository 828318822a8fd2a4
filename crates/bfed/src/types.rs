//! Identifiers, costs and tables.

use core::fmt;
use core::net::SocketAddr;
use core::num::NonZeroU32;

/// The number of a broadcast network: globally unique, 32 bits, never 0 (§3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BnNum(u32);

impl BnNum {
    pub(crate) const FIRST: BnNum = BnNum(1);
    pub(crate) const LAST: BnNum = BnNum(u32::MAX);

    /// Creates a network number; `None` for 0.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number == 0 {
            None
        } else {
            Some(BnNum(number))
        }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for BnNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The authenticated identity of a data node. Streams with equal identities belong to one data node process, or to
/// processes that the driver cannot distinguish. The number of a data node is refused to a stream with another
/// identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeIdentity(pub u32);

/// A gateway, the destination of routes (§5.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GatewayId {
    /// Its network.
    pub network: BnNum,
    /// Its number in the network, assigned by the network's administrator.
    pub number: u32,
}

impl GatewayId {
    /// Creates the identifier of gateway `number` of `network`; `None` if the network's number is 0.
    #[must_use]
    pub const fn new(network: u32, number: u32) -> Option<Self> {
        match BnNum::new(network) {
            Some(network) => Some(GatewayId { network, number }),
            None => None,
        }
    }
}

impl fmt::Display for GatewayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.network, self.number)
    }
}

/// A configured peer of this gateway. The number is assigned by the administrator or the driver and is local to the
/// gateway.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u32);

/// A data node of this gateway's cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

/// One byte stream that the driver opened or accepted. The number is not reused while the machine knows the stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// Label in the packets of one flow, by which the receiver finds the flow (§5.3.2). Unique at the sender, random,
/// never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowLabel(NonZeroU32);

impl FlowLabel {
    /// Creates a label; `None` for 0.
    #[inline]
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(FlowLabel(number)),
            None => None,
        }
    }

    /// Returns the number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

/// Cost of a route or a link, in the unit of its [`Metric`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cost(pub u32);

impl Cost {
    /// No cost.
    pub const ZERO: Cost = Cost(0);
    /// Unusable (§5.1: a network that advertises infinite cost carries no transit).
    pub const INFINITE: Cost = Cost(u32::MAX);

    /// Returns whether the cost is finite.
    #[must_use]
    pub const fn is_finite(self) -> bool {
        self.0 != u32::MAX
    }
}

/// What a routing table minimises (§5.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Metric {
    /// Hops, or the administrator's weights. Costs add up.
    #[default]
    Hops = 0,
    /// Delay in microseconds. Costs add up.
    Latency = 1,
    /// Microseconds to carry a megabit. The cost of a path is that of its narrowest link.
    Bandwidth = 2,
}

impl Metric {
    /// Returns the cost of a path of two parts. Infinite if either is.
    #[must_use]
    pub fn join(self, a: Cost, b: Cost) -> Cost {
        if !a.is_finite() || !b.is_finite() {
            return Cost::INFINITE;
        }
        match self {
            Metric::Hops | Metric::Latency => Cost(a.0.saturating_add(b.0)),
            Metric::Bandwidth => a.max(b),
        }
    }
}

/// Kind of content, which decides the transport between gateways (§5.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Content {
    /// Complete and in order: TCP between gateways.
    #[default]
    Bulk = 0,
    /// In time or not at all: UDP between gateways, with congestion control.
    RealTime = 1,
}

/// One routing table: a metric and the capabilities that its routes have (§5.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Table(u8);

impl Table {
    /// Number of tables.
    pub const COUNT: usize = 12;

    /// Returns the table for a kind of session.
    #[must_use]
    pub const fn new(metric: Metric, content: Content, multi_source: bool) -> Self {
        Table(metric as u8 * 4 + content as u8 * 2 + multi_source as u8)
    }

    /// Returns the table with a number; `None` from [`Table::COUNT`] on.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        if number < Table::COUNT as u8 {
            Some(Table(number))
        } else {
            None
        }
    }

    /// Returns its number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns all tables.
    pub fn all() -> impl Iterator<Item = Table> {
        (0..Table::COUNT as u8).map(Table)
    }

    /// Returns the metric that it minimises.
    #[must_use]
    pub const fn metric(self) -> Metric {
        match self.0 / 4 {
            0 => Metric::Hops,
            1 => Metric::Latency,
            _ => Metric::Bandwidth,
        }
    }

    /// Returns whether its routes carry real-time or bulk sessions.
    #[must_use]
    pub const fn content(self) -> Content {
        if self.0 & 2 == 0 {
            Content::Bulk
        } else {
            Content::RealTime
        }
    }

    /// Returns whether its routes carry sessions with many sources.
    #[must_use]
    pub const fn multi_source(self) -> bool {
        self.0 & 1 != 0
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metric = match self.metric() {
            Metric::Hops => "hops",
            Metric::Latency => "latency",
            Metric::Bandwidth => "bandwidth",
        };
        let content = match self.content() {
            Content::Bulk => "bulk-data",
            Content::RealTime => "real-time",
        };
        let sources = if self.multi_source() {
            "multi-source"
        } else {
            "single-source"
        };
        write!(f, "{metric}/{content}/{sources}")
    }
}

/// A set of tables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tables(u16);

impl Tables {
    /// All tables.
    pub const ALL: Tables = Tables((1 << Table::COUNT) - 1);
    /// No table.
    pub const NONE: Tables = Tables(0);

    /// Creates a set from bits, bit n for table n; `None` if a bit stands for no table.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Option<Self> {
        if bits & !Tables::ALL.0 == 0 {
            Some(Tables(bits))
        } else {
            None
        }
    }

    /// Returns the bits.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns whether the set contains `table`.
    #[must_use]
    pub const fn contains(self, table: Table) -> bool {
        self.0 >> table.0 & 1 != 0
    }

    /// Returns the set with `table`.
    #[must_use]
    pub const fn with(self, table: Table) -> Self {
        Tables(self.0 | 1 << table.0)
    }

    /// Returns the set without `table`.
    #[must_use]
    pub const fn without(self, table: Table) -> Self {
        Tables(self.0 & !(1 << table.0))
    }

    /// Returns the intersection of two sets.
    #[must_use]
    pub const fn and(self, other: Tables) -> Self {
        Tables(self.0 & other.0)
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the tables in order.
    pub fn iter(self) -> impl Iterator<Item = Table> {
        Table::all().filter(move |&table| self.contains(table))
    }
}

/// SHA-256 of the certificate of a data node, as it is shown in the TLS handshake (of its public key in DER where the
/// peering has a secret instead of certificates).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyDigest(pub [u8; 32]);

/// Address at which a flow is received or sent (§5.3.2).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ChannelAddress {
    /// A UDP socket of a data node.
    Datagram(SocketAddr),
    /// A TCP listener of a data node. The receiver of the flow connects.
    Stream(SocketAddr),
    /// A QUIC endpoint of a data node, and the certificate that it must show there.
    Quic(SocketAddr, KeyDigest),
    /// An address of the native network, in the form of its [`NativeNet`](crate::NativeNet): at most
    /// [`MAX_NATIVE_ADDRESS_LEN`](crate::wire::address::MAX_NATIVE_ADDRESS_LEN) bytes.
    Native(alloc::vec::Vec<u8>),
}
