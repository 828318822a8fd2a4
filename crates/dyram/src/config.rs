//! Configuration of a relay.

use core::net::SocketAddr;

use proto_core::time::Duration;

use crate::RelayId;

/// Largest number of parents of a relay or an endpoint: the preferred one and its successors.
pub const MAX_PARENTS: usize = 4;
/// Parents in order of preference.
pub type Parents = heapless::Vec<SocketAddr, MAX_PARENTS>;

/// What carries the data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Carriage {
    /// Relays, from parent to children, over UDP.
    #[default]
    Relays,
    /// IP multicast; relays listen to it and serve recovery only (DyRAM §3.2.1).
    Multicast,
}

/// The receiver that is asked first for a lost packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DefaultReplier {
    /// The first in the list of receivers (DyRAM §3.2.3).
    #[default]
    First,
    /// A different one for each packet, which shares the work.
    Spread,
}

/// Configuration of a [`Relay`](crate::Relay).
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Identifier of this relay in its tree; not 0.
    pub id: RelayId,
    /// Relays to join, in order of preference. If empty, the relay serves only sources that register at it.
    pub parents: Parents,
    /// What carries the data.
    pub carriage: Carriage,
    /// The receiver that is asked first.
    pub default_replier: DefaultReplier,
    /// Whether the relay sends a NACK upward as soon as it detects a gap. If not, and always with
    /// [`Carriage::Multicast`], it does so only when a child asks.
    pub early_detection: bool,
    /// Bounds of the delay to decide, which is the propagation time to the farthest child.
    pub decide: (Duration, Duration),
    /// Shortest time for which repeated NACKs are ignored, and shortest wait for an answer.
    pub hold_min: Duration,
    /// Repliers asked for one packet before the parent is.
    pub replier_tries: u8,
    /// NACKs sent upward for one packet before it is given up; the wait doubles each time.
    pub parent_tries: u8,
    /// Refresh interval of children and sources; one that misses three refreshes is removed. 500 ms to 65 s.
    pub refresh: Duration,
    /// Interval of acknowledgements that go upward without a NACK. At least 1 ms.
    pub ack_interval: Duration,
    /// How long the relay waits for a receiver that lacks packets and whose acknowledgement does not advance. The
    /// receiver then no longer counts in the acknowledgement that goes upward. A child that is a relay gets more
    /// time, so that it can stop waiting for its own receivers first. From `refresh` to one hour.
    pub stall_timeout: Duration,
    /// Largest number of children of one session at one IP address.
    pub children_per_host: u16,
    /// How long a session identifier or a source must be silent before another one replaces it.
    pub takeover: Duration,
}

impl Config {
    /// Returns the default configuration of the relay with this identifier.
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
    /// The first field that is out of its bounds.
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

proto_core::errors! {
    /// Why a configuration is refused.
    pub enum ConfigError {
        /// The identifier is 0.
        Id = "the relay identifier must not be 0",
        /// The shortest delay to decide is above the longest.
        Decide = "the shortest delay to decide is above the longest",
        /// The refresh is not within 500 ms to 65 s.
        Refresh = "the refresh must be within 500 ms and 65 s",
        /// The acknowledgement interval is below one millisecond.
        AckInterval = "the acknowledgement interval must be at least 1 ms",
        /// The stall timeout is not within the refresh and one hour.
        StallTimeout = "the stall timeout must be within the refresh and one hour",
        /// `children_per_host` is 0.
        ChildrenPerHost = "children_per_host must be at least 1",
        /// A table is empty or too large for 16-bit indices, or the window or the number of NACK states is not a power
        /// of two, or a lent table has the wrong length.
        Storage = "the sizes of the tables do not fit",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_bounds() {
        type Change = fn(&mut Config);
        let with = |change: Change| {
            let mut config = Config::new(RelayId(1));
            change(&mut config);
            config.check()
        };
        let cases: [(Change, Result<(), ConfigError>); 13] = [
            (|_| {}, Ok(())),
            (|c| c.id = RelayId(0), Err(ConfigError::Id)),
            (|c| c.decide.1 = c.decide.0, Ok(())),
            (
                |c| c.decide.0 = c.decide.1 + Duration::from_micros(1),
                Err(ConfigError::Decide),
            ),
            (|c| c.refresh = Duration::from_millis(500), Ok(())),
            (
                |c| c.refresh = Duration::from_millis(499),
                Err(ConfigError::Refresh),
            ),
            (
                |c| c.refresh = Duration::from_millis(65_001),
                Err(ConfigError::Refresh),
            ),
            (|c| c.ack_interval = Duration::from_millis(1), Ok(())),
            (
                |c| c.ack_interval = Duration::from_micros(999),
                Err(ConfigError::AckInterval),
            ),
            (|c| c.stall_timeout = c.refresh, Ok(())),
            (
                |c| c.stall_timeout = c.refresh - Duration::from_micros(1),
                Err(ConfigError::StallTimeout),
            ),
            (
                |c| c.stall_timeout = Duration::from_secs(3601),
                Err(ConfigError::StallTimeout),
            ),
            (
                |c| c.children_per_host = 0,
                Err(ConfigError::ChildrenPerHost),
            ),
        ];
        for (at, (change, expected)) in cases.into_iter().enumerate() {
            assert_eq!(with(change), expected, "case {at}");
        }
    }
}
