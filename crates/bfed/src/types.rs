//! The numbers of the federation, a type for each.

use core::fmt;
use core::net::SocketAddr;
use core::num::NonZeroU32;

/// The number of a broadcast network: globally unique, 32 bits, never 0 (§3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BnNum(u32);

impl BnNum {
    /// The network with that number; `None` for 0.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number == 0 {
            None
        } else {
            Some(BnNum(number))
        }
    }

    /// The number.
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

/// Who a data node has proved to be. Streams with equal identities belong to one data node process, or
/// to processes that the driver cannot tell apart. A number that a data node has is not given to a stream
/// of another identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeIdentity(pub u32);

/// A gateway: what routes lead to (§5.1, routes go to gateways rather than to networks).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GatewayId {
    /// The network that it is a gateway of.
    pub network: BnNum,
    /// Which of the network's gateways; given by the network's administrator.
    pub number: u32,
}

impl GatewayId {
    /// Gateway `number` of `network`; `None` if the network's number is 0.
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

/// A configured peer of this gateway. The number is the administrator's (or the driver's) and means
/// nothing elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u32);

/// A data node of this gateway's cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

/// One byte stream that the driver opened or accepted. Never reused while the machine knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// What a sender puts before the packets of one flow, so that the receiver finds the flow by it
/// (§5.3.2). Unique at the sender, random, never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowLabel(NonZeroU32);

impl FlowLabel {
    /// The label with that number; `None` for 0.
    #[inline]
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(FlowLabel(number)),
            None => None,
        }
    }

    /// The number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

/// What a route or a link costs, in the unit of its [`Metric`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cost(pub u32);

impl Cost {
    /// Nothing at all.
    pub const ZERO: Cost = Cost(0);
    /// Not to be used (§5.1: a network that advertises infinite cost is no transit).
    pub const INFINITE: Cost = Cost(u32::MAX);

    /// Whether this is a cost that somebody would pay.
    #[must_use]
    pub const fn is_finite(self) -> bool {
        self.0 != u32::MAX
    }
}

/// What a routing table minimises (§5.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Metric {
    /// Hops, or what the administrator weighs them with. Costs add up.
    #[default]
    Hops = 0,
    /// Delay in microseconds. Costs add up.
    Latency = 1,
    /// Microseconds to carry a megabit. The cost of a path is that of its narrowest link.
    Bandwidth = 2,
}

impl Metric {
    /// The cost of a path of two parts. Infinite if either is.
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

/// What a session carries; it decides the transport between gateways (§5.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Content {
    /// Everything, in order: TCP between gateways.
    #[default]
    Bulk = 0,
    /// In time, or not at all: UDP between gateways, with congestion control.
    RealTime = 1,
}

/// One routing table: a metric and the capabilities that its routes have (§5.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Table(u8);

impl Table {
    /// How many tables there are.
    pub const COUNT: usize = 12;

    /// The table for sessions of that kind.
    #[must_use]
    pub const fn new(metric: Metric, content: Content, multi_source: bool) -> Self {
        Table(metric as u8 * 4 + content as u8 * 2 + multi_source as u8)
    }

    /// The table with that number; `None` from [`Table::COUNT`] on.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        if number < Table::COUNT as u8 {
            Some(Table(number))
        } else {
            None
        }
    }

    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// All tables.
    pub fn all() -> impl Iterator<Item = Table> {
        (0..Table::COUNT as u8).map(Table)
    }

    /// What it minimises.
    #[must_use]
    pub const fn metric(self) -> Metric {
        match self.0 / 4 {
            0 => Metric::Hops,
            1 => Metric::Latency,
            _ => Metric::Bandwidth,
        }
    }

    /// Whether its routes carry real-time or bulk sessions.
    #[must_use]
    pub const fn content(self) -> Content {
        if self.0 & 2 == 0 {
            Content::Bulk
        } else {
            Content::RealTime
        }
    }

    /// Whether its routes carry sessions of many sources.
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
    /// Every table.
    pub const ALL: Tables = Tables((1 << Table::COUNT) - 1);
    /// No table.
    pub const NONE: Tables = Tables(0);

    /// The set of these bits, bit n for table n; `None` if a bit stands for no table.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Option<Self> {
        if bits & !Tables::ALL.0 == 0 {
            Some(Tables(bits))
        } else {
            None
        }
    }

    /// Its bits.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether `table` is one of them.
    #[must_use]
    pub const fn contains(self, table: Table) -> bool {
        self.0 >> table.0 & 1 != 0
    }

    /// These and `table`.
    #[must_use]
    pub const fn with(self, table: Table) -> Self {
        Tables(self.0 | 1 << table.0)
    }

    /// Those without `table`.
    #[must_use]
    pub const fn without(self, table: Table) -> Self {
        Tables(self.0 & !(1 << table.0))
    }

    /// Those in both.
    #[must_use]
    pub const fn and(self, other: Tables) -> Self {
        Tables(self.0 & other.0)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each of them, in order.
    pub fn iter(self) -> impl Iterator<Item = Table> {
        Table::all().filter(move |&table| self.contains(table))
    }
}

/// Where a flow can be reached: what a TRANSLATION translates to (§5.3.2).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ChannelAddress {
    /// A UDP socket of a data node.
    Datagram(SocketAddr),
    /// A TCP listener of a data node. Who receives the flow connects.
    Stream(SocketAddr),
    /// An address of the native network, as its [`NativeNet`](crate::NativeNet) writes it:
    /// at most [`MAX_NATIVE_ADDRESS_LEN`](crate::wire::address::MAX_NATIVE_ADDRESS_LEN) bytes.
    Native(alloc::vec::Vec<u8>),
}
