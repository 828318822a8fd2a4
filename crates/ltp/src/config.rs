//! Configuration, with defaults that suit a local network. Times of more than 35 years count as
//! 35 years: [`Duration::MAX`] means no limit.

use core::net::SocketAddr;

use proto_core::time::Duration;

use crate::digest::Digest;
use crate::parity::longest_data;
use crate::wire::Seq;
use crate::wire::sync::MAX_NAME_LEN;
use crate::{Geometry, SessionId};

/// The name of a content: any bytes. An application that turns it into a path must check it.
pub type Name = heapless::Vec<u8, MAX_NAME_LEN>;

/// How a sender chooses its session identifier.
///
/// An attacker who guesses the identifier can send into the session without receiving from it. A restarted
/// sender needs no identifier that receivers know: they follow it by the digest of the content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SessionChoice {
    /// A random one at every start.
    #[default]
    Random,
    /// A given one: for tests, and for applications that choose an unpredictable one themselves.
    Fixed(SessionId),
}

/// How much parity a source sends in advance, after each block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Parity {
    /// None: parity repairs what is requested.
    #[default]
    OnRequest,
    /// This share of each block, in percent, rounded up to packets; 100 at most.
    Percent(u8),
    /// What receivers with proven addresses request in most blocks, up to a fifth of each block.
    Auto,
}

/// How a source repairs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RepairConfig {
    /// Hold-down time: a packet is not repaired again within it. A source extends it to the longest
    /// round-trip time that requests name, up to ten times the value.
    pub hold_down: Duration,
    /// Time that a repair by unicast waits for a request of another receiver for the same packet.
    pub aggregate: Duration,
    /// Whether a packet that only one receiver lacks is sent to that receiver alone.
    pub unicast: bool,
    /// Share of the rate that repairs may take while new data waits, in percent (1 to 99).
    pub share_percent: u8,
}

impl Default for RepairConfig {
    fn default() -> Self {
        RepairConfig {
            hold_down: Duration::from_millis(20),
            aggregate: Duration::from_millis(4),
            unicast: true,
            share_percent: 75,
        }
    }
}

/// Sizes of a sender's tables on the heap (feature `alloc`).
#[derive(Clone, Copy, Debug)]
pub struct SenderLimits {
    /// Receivers that report. 72 bytes each. One host gets an eighth of the table, at least 2 and at most 16
    /// entries.
    pub receivers: usize,
    /// Digests stored; older ones are computed again from the store. 32 bytes each. With fewer than 16, those of a
    /// stream are announced as many at a time.
    pub digests: usize,
    /// Blocks with repairs waiting. 32 bytes each.
    pub repairs: usize,
    /// Repairs whose hold-down is tracked (a power of two). 24 bytes each.
    pub hold_down: usize,
    /// Receivers with repairs by unicast waiting. 96 bytes each.
    pub targets: usize,
}

impl Default for SenderLimits {
    fn default() -> Self {
        SenderLimits {
            receivers: 1024,
            digests: 4096,
            repairs: 512,
            hold_down: 8192,
            targets: 64,
        }
    }
}

/// Configuration of a sender, one field for each setting. Start from [`SenderConfig::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SenderConfig {
    /// The group, as receivers name it in the option of their requests.
    pub group: SocketAddr,
    /// The session identifier.
    pub session: SessionChoice,
    /// Name of the content.
    pub name: Name,
    /// Length of the content if it is all in the store already; `None`: a stream that
    /// [`crate::Sender::send`] and [`crate::Sender::finish`] bring.
    pub length: Option<u64>,
    /// Digest of the whole, if known beforehand: joining receivers then learn it at once. With `receivers` and
    /// `length`, a restarted sender also starts at the first block that a receiver lacks that has joined by then.
    pub digest: Option<Digest>,
    /// Key of the group: digests are keyed, control packets authenticated.
    pub key: Option<[u8; 32]>,
    /// Send digests of blocks.
    pub integrity: bool,
    /// Repair with parity, of which any packet serves any receiver that lacks one of the block, and send some in
    /// advance. Only with `integrity` and the feature `alloc`. Memory: 1 MiB and a few blocks.
    pub parity: Option<Parity>,
    /// log2 of the block length, 10 to 22.
    pub block_exponent: u8,
    /// Longest UDP payload. The default leaves 36 bytes of an MTU of 1500 free, so that a dmcast
    /// is never fragmented.
    pub max_packet_len: u16,
    /// Sequence number of packet 0.
    pub first_sequence: u32,
    /// Ethernet frame bits (UDP payload + 42 bytes) a second; `None`: as fast as the driver polls. With
    /// `congestion` the highest rate.
    pub rate_bps: Option<u64>,
    /// Congestion control ([`crate::tfmcc`]). Without it a sender belongs in networks that carry nothing else.
    pub congestion: bool,
    /// With `congestion`: a receiver that holds the rate below this (bit/s) for [`crate::tfmcc::TOO_SLOW`] is given up
    /// and no longer served. Ignored by [`crate::relayed::Sender`]: a relay answers for all receivers below it.
    pub min_rate_bps: Option<u64>,
    /// Depth of the token bucket, as time: a driver that is late by less loses no rate.
    pub burst: Duration,
    /// Most packets in one [`crate::Transmit`] (1: no segmentation offload).
    pub max_segments: usize,
    /// Heartbeat interval while data flows (stretched where it would exceed 1 % of the rate).
    pub heartbeat: Duration,
    /// Longest heartbeat interval while nothing is sent; they grow fourfold from 2 ms on. In
    /// pauses shorter than [`SenderConfig::heartbeat`], one after another, they become as rare as
    /// while data flows.
    pub heartbeat_idle: Duration,
    /// Number of hosts that are expected to receive. Receivers then report joining, progress and completion, and
    /// the sender waits for each one that joined, expected or not, until it is complete or given up: it sets
    /// the pace (`window_blocks`) and delays the end. The number decides when data begins (`connect_timeout`), and
    /// how many hosts must have confirmed for [`crate::SenderEvent::Complete`]. A receiver is an address that
    /// returned its token; receivers of one IP address count as one host.
    pub receivers: Option<u32>,
    /// With `receivers`: longest wait for all of them to join before the first data packet.
    pub connect_timeout: Duration,
    /// With `receivers`: most blocks that new data may be ahead of the slowest receiver. The ring of a stream
    /// is such a window already: no packet that a known receiver lacks is overwritten.
    pub window_blocks: Option<u32>,
    /// With `receivers`: a receiver that is silent for this time is given up, and one that lacks something and
    /// does not advance for this time, or for the time that four blocks and the spread of reports take at the
    /// rate. Likewise new data no longer waits for a relay whose acknowledgement does not advance.
    pub receiver_timeout: Duration,
    /// With `receivers`: most reports a second; receivers spread them.
    pub reports_per_second: u32,
    /// Time without a request, after everything was sent, until the sender ends. With `receivers` it also waits
    /// for each one that has joined, until that is complete or given up; requests of other hosts then delay the
    /// end by this time or `receiver_timeout` in all, whichever is longer.
    pub linger: Duration,
    /// How repairs are made.
    pub repair: RepairConfig,
    /// Sizes of the tables.
    pub limits: SenderLimits,
}

/// Longer times count as this (35 years), so that sums of a few of them do not overflow.
const LONGEST: Duration = Duration::from_micros(1 << 50);

fn bound<const N: usize>(times: [&mut Duration; N]) {
    for time in times {
        *time = (*time).min(LONGEST);
    }
}

impl SenderConfig {
    pub(crate) fn bound_times(&mut self) {
        bound([
            &mut self.burst,
            &mut self.heartbeat,
            &mut self.heartbeat_idle,
            &mut self.connect_timeout,
            &mut self.receiver_timeout,
            &mut self.linger,
            &mut self.repair.hold_down,
            &mut self.repair.aggregate,
        ]);
    }

    /// Returns how the content is cut: packets no longer than `max_packet_len`, those of parity included. `None` unless a
    /// block of `block_exponent` is 1 to 64 of them.
    pub fn geometry(&self) -> Option<Geometry> {
        let longest = match self.parity {
            Some(_) => longest_data(self.max_packet_len),
            None => self.max_packet_len,
        };
        Geometry::for_packet_len(self.block_exponent, longest, Seq(self.first_sequence))
    }

    /// Creates a configuration with defaults, for a stream to that group.
    pub fn new(group: SocketAddr) -> Self {
        SenderConfig {
            group,
            session: SessionChoice::Random,
            name: Name::new(),
            length: None,
            digest: None,
            key: None,
            integrity: true,
            parity: None,
            block_exponent: 16,
            max_packet_len: 1500 - 36 - 28,
            first_sequence: 0,
            rate_bps: None,
            congestion: false,
            min_rate_bps: None,
            burst: Duration::from_millis(4),
            max_segments: 1,
            heartbeat: Duration::from_millis(50),
            heartbeat_idle: Duration::from_millis(500),
            receivers: None,
            connect_timeout: Duration::from_millis(1000),
            window_blocks: None,
            receiver_timeout: Duration::from_secs(10),
            reports_per_second: 20_000,
            linger: Duration::from_secs(3),
            repair: RepairConfig::default(),
            limits: SenderLimits::default(),
        }
    }
}

/// Help with repairs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Assist {
    /// None: requests go to the source by unicast.
    #[default]
    None,
    /// LMS routers: requests go to the group with the option.
    Lms,
    /// A DyRAM relay: requests go to it, through [`crate::relayed`].
    Dyram,
}

/// Where a late receiver starts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Start {
    /// At the first byte; if it is no longer held, that is an error.
    #[default]
    Beginning,
    /// At the oldest block the source still holds.
    Oldest,
    /// At the next block to be sent.
    Now,
}

/// How bytes reach the application.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Delivery {
    /// The store is the destination: a file.
    #[default]
    Store,
    /// The application calls [`crate::Receiver::peek`] and [`crate::Receiver::consume`]; bytes that it
    /// has not consumed are not overwritten. What was consumed cannot be taken back: see "Trust" in the
    /// [crate documentation](crate).
    Read,
}

/// How a receiver repairs losses of other receivers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplierConfig {
    /// Whether to repair at all.
    pub enabled: bool,
    /// Frame bits a second in total.
    pub rate_bps: u64,
    /// Frame bits a second to one turning point.
    pub turning_point_rate_bps: u64,
    /// Depth of these buckets, as time; two packets at least.
    pub burst: Duration,
    /// Hold-down time: a packet repaired to a turning point is not sent there again within it.
    pub hold_down: Duration,
}

impl Default for ReplierConfig {
    fn default() -> Self {
        ReplierConfig {
            enabled: true,
            rate_bps: 100_000_000,
            turning_point_rate_bps: 50_000_000,
            burst: Duration::from_millis(20),
            hold_down: Duration::from_millis(20),
        }
    }
}

/// Sizes of a receiver's tables on the heap (feature `alloc`).
#[derive(Clone, Copy, Debug)]
pub struct ReceiverLimits {
    /// Blocks between the first incomplete one and the newest that can be taken (a power of
    /// two, else rounded down). 64 bytes each.
    pub window_blocks: usize,
    /// Blocks of which packets are requested at a time. 48 bytes each.
    pub requests: usize,
    /// Blocks with repairs waiting, as replier. 32 bytes each.
    pub repairs: usize,
    /// Repairs whose hold-down is tracked (a power of two), as replier. 24 bytes each.
    pub hold_down: usize,
    /// Turning points served at a time, as replier. 96 bytes each.
    pub targets: usize,
    /// Parity packets held until their blocks are whole; 0: packets are requested, not parity. One packet each.
    pub parity: usize,
}

impl Default for ReceiverLimits {
    fn default() -> Self {
        ReceiverLimits {
            window_blocks: 1024,
            requests: 64,
            repairs: 64,
            hold_down: 1024,
            targets: 16,
            parity: 512,
        }
    }
}

/// Configuration of a receiver. Start from [`ReceiverConfig::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReceiverConfig {
    /// The group.
    pub group: SocketAddr,
    /// The source; `None`: the one whose heartbeat comes first.
    pub source: Option<core::net::IpAddr>,
    /// Take only this session.
    pub session: Option<SessionId>,
    /// Never begin with this session: one that the application has already, and whose source may still send heartbeats.
    pub skip: Option<SessionId>,
    /// Key of the group.
    pub key: Option<[u8; 32]>,
    /// Refuse sessions without digests.
    pub require_integrity: bool,
    /// Help with repairs.
    pub assist: Assist,
    /// Where to start when late.
    pub start: Start,
    /// How bytes reach the application.
    pub delivery: Delivery,
    /// Unanswered requests to the group or the relay after which the source is asked by unicast.
    pub attempts_before_source: u8,
    /// Time from a gap to its request, in which reordered packets may come and further gaps join the request;
    /// without help up to twice as long, at random.
    pub gap_delay: Duration,
    /// Timeout of a request before a round trip was measured.
    pub initial_timeout: Duration,
    /// Bounds of that timeout.
    pub min_timeout: Duration,
    /// Bounds of that timeout.
    pub max_timeout: Duration,
    /// Most requests a second.
    pub requests_per_second: u32,
    /// Most packets requested that have not come. From a relay fewer are requested at first, and more as repairs
    /// come.
    pub max_outstanding: u32,
    /// Give up after this time without a heartbeat, at the start or later; later not before three times the
    /// longest silence that the source has announced.
    pub source_timeout: Duration,
    /// How to repair losses of other receivers.
    pub replier: ReplierConfig,
    /// Sizes of the tables.
    pub limits: ReceiverLimits,
}

impl ReceiverConfig {
    pub(crate) fn bound_times(&mut self) {
        bound([
            &mut self.gap_delay,
            &mut self.source_timeout,
            &mut self.replier.burst,
            &mut self.replier.hold_down,
        ]);
    }

    /// Creates a configuration with defaults, for that group.
    pub fn new(group: SocketAddr) -> Self {
        ReceiverConfig {
            group,
            source: None,
            session: None,
            skip: None,
            key: None,
            require_integrity: true,
            assist: Assist::None,
            start: Start::Beginning,
            delivery: Delivery::Store,
            attempts_before_source: 3,
            gap_delay: Duration::from_millis(1),
            initial_timeout: Duration::from_millis(200),
            min_timeout: Duration::from_millis(30),
            max_timeout: Duration::from_secs(2),
            requests_per_second: 500,
            max_outstanding: 2048,
            source_timeout: Duration::from_secs(10),
            replier: ReplierConfig::default(),
            limits: ReceiverLimits::default(),
        }
    }
}
