//! Configuration and storage of a hierarchy.

use core::net::Ipv4Addr;

use managed::ManagedSlice;

use super::state::{Advert, Entry, Neighbour, Peer, Stream};
use crate::{Duration, Family};
use proto_core::slab::Slot;

/// Configuration of a [`Hierarchy`](super::Hierarchy).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Interval at which each entry is advertised to the parent and to the links below: 100 ms to 18 s,
    /// other values count as the nearest of these. Neighbours are believed for [`hold_time`] of
    /// it, so this bounds how long a silent replier stays elected. 10 s by default.
    pub refresh: Duration,
    /// Added to the cost of the best replier in adverts to the parent. 1.
    pub own_cost: u16,
    /// Shortest interval between two adverts of an entry on one link (damping). 100 ms, at most
    /// `refresh`.
    pub damping: Duration,
    /// How long a change waits for others to share its message. 2 ms, at most `damping`.
    pub gather: Duration,
    /// The most messages a second that are sent of one type on one link, 1 to 1,000,000. 500.
    pub messages_per_s: u32,
    /// Packets per second accepted from one neighbour, 1 to 1,000,000. 2,000.
    pub neighbour_packets_per_s: u32,
    /// Packets that a neighbour may send at once after a quiet time. 2,000.
    pub neighbour_burst: u32,
    /// The most neighbours of one entry. 4,096.
    pub neighbours_per_entry: u32,
    /// A neighbour may not restart more often than this: bounds what a forged boot number does.
    /// 1 s.
    pub restart_interval: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            refresh: Duration::from_secs(10),
            own_cost: 1,
            damping: Duration::from_millis(100),
            gather: Duration::from_millis(2),
            messages_per_s: 500,
            neighbour_packets_per_s: 2_000,
            neighbour_burst: 2_000,
            neighbours_per_entry: 4_096,
            restart_interval: Duration::from_secs(1),
        }
    }
}

impl Config {
    /// The configuration with every value inside its bounds.
    pub(super) fn clamped(mut self) -> Self {
        self.refresh = self.refresh.clamp(MIN_REFRESH, MAX_REFRESH);
        self.damping = self.damping.min(self.refresh);
        self.gather = self.gather.min(self.damping);
        self.messages_per_s = self.messages_per_s.clamp(1, 1_000_000);
        self.neighbour_packets_per_s = self.neighbour_packets_per_s.clamp(1, 1_000_000);
        self.neighbour_burst = self.neighbour_burst.max(1);
        self
    }
}

/// The shortest time between refreshes.
pub const MIN_REFRESH: Duration = Duration::from_millis(100);
/// The longest time between refreshes: its hold time still fits the message.
pub const MAX_REFRESH: Duration = Duration::from_secs(18);

/// How long soft state lives that is refreshed every `refresh`: three refreshes and half of one
/// as slack.
pub const fn hold_time(refresh: Duration) -> Duration {
    Duration::from_micros(refresh.total_micros().saturating_mul(7) / 2)
}

/// How often to refresh what a neighbour holds for `hold`: the inverse of [`hold_time`].
pub fn refresh_time(hold: Duration) -> Duration {
    Duration::from_micros(hold.total_micros() / 7 * 2).clamp(MIN_REFRESH, MAX_REFRESH)
}

/// Storage of a [`Hierarchy`](super::Hierarchy), borrowed or owned. Each part is a bound; what
/// does not fit is refused and counted.
#[derive(Debug)]
pub struct Storage<'a, A = Ipv4Addr> {
    /// Multicast forwarding entries.
    pub entries: ManagedSlice<'a, Slot<Entry<A>>>,
    /// Offers: one for each neighbour of each entry.
    pub neighbours: ManagedSlice<'a, Slot<Neighbour<A>>>,
    /// Hosts and routers that offers come from, each once whatever the number of its offers.
    pub peers: ManagedSlice<'a, Slot<Peer<A>>>,
    /// Adverts: one for each entry, and one for each downstream link of an entry that an
    /// offer came from.
    pub adverts: ManagedSlice<'a, Slot<Advert>>,
    /// Two for each interface.
    pub streams: ManagedSlice<'a, Slot<Stream<A>>>,
}

/// How many of each thing a [`Storage`] holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Capacity {
    /// Multicast forwarding entries.
    pub entries: usize,
    /// Offers in all entries together.
    pub neighbours: usize,
    /// Neighbouring hosts and routers.
    pub peers: usize,
    /// Downstream links in all entries together that offers come from.
    pub branches: usize,
    /// Interfaces.
    pub interfaces: usize,
}

impl<A: Family> Storage<'static, A> {
    /// Storage on the heap.
    #[cfg(feature = "alloc")]
    pub fn owned(capacity: Capacity) -> Self {
        fn slots<T: Default>(count: usize) -> ManagedSlice<'static, Slot<T>> {
            let slots: alloc::vec::Vec<Slot<T>> =
                core::iter::repeat_with(Slot::default).take(count).collect();
            ManagedSlice::Owned(slots)
        }
        Storage {
            entries: slots(capacity.entries),
            neighbours: slots(capacity.neighbours),
            peers: slots(capacity.peers),
            adverts: slots(capacity.entries.saturating_add(capacity.branches)),
            streams: slots(capacity.interfaces.saturating_mul(2)),
        }
    }
}

/// Storage in arrays, for a build with no heap: see the example of [`Hierarchy`].
///
/// [`Hierarchy`]: super::Hierarchy
#[derive(Debug)]
pub struct StaticStorage<
    const ENTRIES: usize,
    const NEIGHBOURS: usize,
    const PEERS: usize,
    const ADVERTS: usize,
    const STREAMS: usize,
    F = Ipv4Addr,
> {
    entries: [Slot<Entry<F>>; ENTRIES],
    neighbours: [Slot<Neighbour<F>>; NEIGHBOURS],
    peers: [Slot<Peer<F>>; PEERS],
    adverts: [Slot<Advert>; ADVERTS],
    streams: [Slot<Stream<F>>; STREAMS],
}

impl<const E: usize, const N: usize, const P: usize, const A: usize, const S: usize, F: Family>
    Default for StaticStorage<E, N, P, A, S, F>
{
    fn default() -> Self {
        use core::array::from_fn;
        StaticStorage {
            entries: from_fn(|_| Slot::default()),
            neighbours: from_fn(|_| Slot::default()),
            peers: from_fn(|_| Slot::default()),
            adverts: from_fn(|_| Slot::default()),
            streams: from_fn(|_| Slot::default()),
        }
    }
}

impl<const E: usize, const N: usize, const P: usize, const A: usize, const S: usize, F: Family>
    StaticStorage<E, N, P, A, S, F>
{
    /// Lends the arrays.
    pub fn lend(&mut self) -> Storage<'_, F> {
        Storage {
            entries: ManagedSlice::Borrowed(&mut self.entries),
            neighbours: ManagedSlice::Borrowed(&mut self.neighbours),
            peers: ManagedSlice::Borrowed(&mut self.peers),
            adverts: ManagedSlice::Borrowed(&mut self.adverts),
            streams: ManagedSlice::Borrowed(&mut self.streams),
        }
    }
}
