//! The sites of the paper's wide area network (TCP-XM Tables 1, 2 and 3).

use super::super::stage::Port;
use crate::prelude::*;

/// One site, as seen from Cambridge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) name: &'static str,
    /// Table 2: the average round trip, milliseconds.
    pub(super) round_trip_ms: f64,
    /// Table 2: what a single TCP connection carries, Mbit/s.
    pub(super) mbps: f64,
    /// Table 1: whether multicast reaches it.
    pub(super) multicast: bool,
}

const fn site(name: &'static str, round_trip_ms: f64, mbps: f64, multicast: bool) -> Site {
    Site {
        name,
        round_trip_ms,
        mbps,
        multicast,
    }
}

/// The ten sites in the order in which hosts are added: sites that multicast reaches before the
/// others, fast ones before slow ones ("faster hosts with multicast capability are added before slower
/// hosts without multicast", §4).
pub(super) const SITES: [Site; 10] = [
    site("Imperial", 17.1, 51.0, true),
    site("UCL", 4.9, 42.1, true),
    site("Southampton", 8.8, 39.3, true),
    site("Manchester", 9.9, 34.5, true),
    site("Daresbury", 21.3, 28.1, true),
    site("Cardiff", 13.5, 22.4, true),
    site("Oxford", 7.0, 4.0, true),
    site("Newcastle", 11.8, 1.5, true),
    site("Glasgow", 16.2, 33.9, false),
    site("Belfast", 18.6, 16.0, false),
];

impl Site {
    /// Its link: a single TCP connection finds its bandwidth there, in frames as they are on the wire.
    pub(super) fn port(&self) -> Port {
        /// Of a frame of 1514 bytes, what TCP with timestamps delivers.
        const PAYLOAD: f64 = 1448.0 / 1514.0;
        /// Queue at a router: round trips at the full rate, and a few packets at least.
        const QUEUE_ROUND_TRIPS: f64 = 1.0;
        const LEAST_QUEUE: usize = 32 * 1514;
        let rate_bps = (self.mbps * 1e6 / PAYLOAD) as u64;
        let round_trip = Duration::from_secs_f64(self.round_trip_ms / 1e3);
        let waits = rate_bps as f64 / 8.0 * round_trip.as_secs_f64() * QUEUE_ROUND_TRIPS;
        Port {
            name: self.name.to_lowercase(),
            shape: Shape {
                delay: round_trip / 2,
                rate_bps,
                queue_bytes: (waits as usize).max(LEAST_QUEUE),
                ..Shape::default()
            },
            unreachable: !self.multicast,
        }
    }
}

/// Table 3: time from its join until a site first received multicast, seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    pub(super) site: &'static str,
    /// Median, mean, least and most, as printed.
    pub(super) seconds: [u64; 4],
}

const fn latency(site: &'static str, seconds: [u64; 4]) -> Latency {
    Latency { site, seconds }
}

/// The sites of Table 3, in its order.
pub(super) const LATENCIES: [Latency; 7] = [
    latency("Oxford", [40, 25, 0, 57]),
    latency("Imperial", [59, 31, 4, 59]),
    latency("Cardiff", [49, 31, 2, 60]),
    latency("Newcastle", [1, 0, 0, 1]),
    latency("Southampton", [1, 0, 0, 1]),
    latency("Manchester", [0, 0, 0, 1]),
    latency("Daresbury", [0, 0, 0, 1]),
];
