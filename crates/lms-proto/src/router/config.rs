//! Configuration.

use core::num::NonZeroU16;

use proto_core::RateLimit;

use crate::wire::udp;
use crate::{Duration, hier};

/// A rate with a burst, for one token bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Packets a second in the long run; 0 lets nothing through. At most 1,000,000,000.
    pub per_second: u32,
    /// Packets that may come at once after a quiet time; 0 counts as 1.
    pub burst: u32,
}

impl From<Rate> for RateLimit {
    fn from(rate: Rate) -> RateLimit {
        RateLimit::new(rate.per_second, rate.burst)
    }
}

/// How a router chooses the replier of a turned request (LMS §6.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The best replier that LMS-HIER knows (LMS §6.7.1). The default.
    Hierarchy,
    /// A downstream interface drawn at random for each group, and drawn again after `redraw`,
    /// so that a silent replier is left behind. No feedback from receivers.
    Random {
        /// How long a draw holds, rounded up to whole seconds.
        redraw: Duration,
    },
    /// Only what [`Router::set_replier`](super::Router::set_replier) says.
    Static,
    /// Search Party (LMS §6.7): copies of a request go up or to random children.
    SearchParty {
        /// Copies of one request, 1 or 2; other values count as the nearest of these. Copies
        /// drawn to the same place are sent once.
        copies: u8,
        /// Average number of copies that go up, of 256 copies of an unturned request.
        up: u8,
    },
}

/// Configuration of a [`Router`](super::Router).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// How repliers are chosen.
    pub policy: Policy,
    /// Limit on the requests sent for one group, copies included.
    pub request_rate: Rate,
    /// Limit on the dmcasts multicast for one group.
    pub dmcast_rate: Rate,
    /// Repairs that one request turned here lets pass. Requests add up, to 65,535 repairs a group.
    pub repairs_per_request: u16,
    /// How long after the last turned request repairs may come, rounded up to quarters of a
    /// second; an hour at most.
    pub repair_time: Duration,
    /// Port of the UDP carrier, [`PORT`](crate::wire::udp::PORT) unless configured otherwise; `None`: this router does
    /// not speak it.
    pub udp_port: Option<NonZeroU16>,
    /// LMS-HIER, for [`Policy::Hierarchy`].
    pub hierarchy: hier::Config,
}

impl Default for Config {
    /// Hierarchy; 1,000 requests a second (burst 100) and 10,000 dmcasts a second (burst 1,000)
    /// for each group; 2,048 repairs for each request (LTP's replier sends as many at most), within
    /// 10 seconds.
    fn default() -> Self {
        Config {
            policy: Policy::Hierarchy,
            udp_port: NonZeroU16::new(udp::PORT),
            request_rate: Rate {
                per_second: 1_000,
                burst: 100,
            },
            hierarchy: hier::Config::default(),
            dmcast_rate: Rate {
                per_second: 10_000,
                burst: 1_000,
            },
            repairs_per_request: 2_048,
            repair_time: Duration::from_secs(10),
        }
    }
}
