//! What a relay is told.

use core::fmt;
use core::net::SocketAddr;

use proto_core::time::Duration;

use crate::RelayId;

/// Most parents of a relay or an endpoint: the first, and those to turn to when it dies.
pub const MAX_PARENTS: usize = 4;
/// Parents in the order in which they are tried.
pub type Parents = heapless::Vec<SocketAddr, MAX_PARENTS>;

/// Who carries the data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Carriage {
    /// Relays do, from parent to children, over UDP.
    #[default]
    Relays,
    /// IP multicast does: relays listen to it, and serve recovery beside it (DyRAM §3.2.1).
    Multicast,
}

/// Which receiver is the default replier for a lost packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DefaultReplier {
    /// The first in the list of receivers (DyRAM §3.2.3).
    #[default]
    First,
    /// Another one for each packet in turn, so that the work is shared.
    Spread,
}

/// Configuration of a [`Relay`](crate::Relay).
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Who this relay is to the others of its tree; not 0.
    pub id: RelayId,
    /// Relays (or sources) to join, in order of preference. Empty: only sources that register here
    /// are served.
    pub parents: Parents,
    /// Who carries the data.
    pub carriage: Carriage,
    /// Which receiver is asked first.
    pub default_replier: DefaultReplier,
    /// Whether gaps are NACKed as soon as they are seen; otherwise only when a child asks, as always where
    /// IP multicast carries the data.
    pub early_detection: bool,
    /// Bounds of the delay to decide; between them it is the propagation time to the farthest
    /// receiver below.
    pub decide: (Duration, Duration),
    /// Shortest time for which like NACKs are ignored, and for which an answer is waited for.
    pub hold_min: Duration,
    /// Repliers asked for one packet before the parent is.
    pub replier_tries: u8,
    /// NACKs sent upward for one packet before its state is given up; the wait doubles each time.
    pub parent_tries: u8,
    /// Children and sources announce themselves this often; who misses three is removed. From
    /// 500 ms to 65 s.
    pub refresh: Duration,
    /// How often acknowledgements go upward on their own, when none rode on a NACK.
    pub ack_interval: Duration,
    /// Time for which the relay waits for a receiver whose acknowledgement does not advance although it
    /// lacks packets. After it the receiver no longer counts in the acknowledgement that goes upward.
    /// A child that is a relay gets more time, so that it can detach its own receivers first. From the
    /// refresh to one hour.
    pub stall_timeout: Duration,
    /// Most children of one session at one IP address.
    pub children_per_host: u16,
    /// A session identifier is believed, and a source at one address served, until nothing was heard of it
    /// for so long; only then may another one take its place.
    pub takeover: Duration,
}

impl Config {
    /// The defaults, for the relay of that identifier.
    #[must_use]
    pub fn new(id: RelayId) -> Self {
        Config {
            id,
            parents: Parents::new(),
            carriage: Carriage::default(),
            default_replier: DefaultReplier::default(),
            early_detection: true,
            decide: (Duration::from_millis(1), Duration::from_millis(250)),
            hold_min: Duration::from_millis(5),
            replier_tries: 2,
            parent_tries: 6,
            refresh: Duration::from_secs(2),
            ack_interval: Duration::from_millis(100),
            stall_timeout: Duration::from_secs(10),
            children_per_host: 16,
            takeover: Duration::from_secs(3),
        }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// The first field that makes no sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.id.0 == 0 {
            return Err(ConfigError::Id);
        }
        if self.decide.0 > self.decide.1 {
            return Err(ConfigError::Decide);
        }
        let (min, max) = (Duration::from_millis(500), Duration::from_millis(65_000));
        if !(min..=max).contains(&self.refresh) {
            return Err(ConfigError::Refresh);
        }
        if self.ack_interval < Duration::from_millis(1) {
            return Err(ConfigError::AckInterval);
        }
        let most = Duration::from_secs(3600);
        if !(self.refresh..=most).contains(&self.stall_timeout) {
            return Err(ConfigError::StallTimeout);
        }
        if self.children_per_host == 0 {
            return Err(ConfigError::ChildrenPerHost);
        }
        Ok(())
    }
}

/// Why a configuration is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConfigError {
    /// The identifier is 0.
    Id,
    /// The least delay to decide is above the most.
    Decide,
    /// The refresh is not within 500 ms to 65 s.
    Refresh,
    /// Acknowledgements more often than every millisecond.
    AckInterval,
    /// The stall timeout is not within the refresh and one hour.
    StallTimeout,
    /// No child is allowed at an IP address.
    ChildrenPerHost,
    /// A table is empty, or larger than 16-bit numbers reach; or a window or a number of NACK
    /// states is not a power of two.
    Storage,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfigError::Id => "the relay identifier must not be 0",
            ConfigError::Decide => "the least delay to decide is above the most",
            ConfigError::Refresh => "the refresh must be within 500 ms and 65 s",
            ConfigError::AckInterval => "the interval of acknowledgements must be 1 ms or more",
            ConfigError::StallTimeout => {
                "the stall timeout must be within the refresh and one hour"
            }
            ConfigError::ChildrenPerHost => "at least one child at an IP address must be allowed",
            ConfigError::Storage => "the sizes of the tables do not fit",
        })
    }
}

impl core::error::Error for ConfigError {}
