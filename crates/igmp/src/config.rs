//! Timers and bounds, and the memory it is given.

use core::net::Ipv4Addr;

use managed::ManagedSlice;

use super::member::{MemberGroup, MemberSource};
use super::querier::{Group, Source};
use crate::{Duration, Family, Iface, InterfaceConfig};
use proto_core::slab::Slot;

/// Configuration of a [`Querier`](super::Querier) or a [`Member`](super::Member); the timers are
/// those of RFC 3376 §8 and RFC 9777 §9, with their common defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config<A = Ipv4Addr> {
    /// The interface.
    pub iface: Iface,
    /// This system's addresses there, and its subnet. Packets from other subnets are refused; those of MLD, unless they
    /// come from a link-local address.
    pub interface: InterfaceConfig<A>,
    /// Robustness variable, 1 to 7: how many losses in a row are survived, plus one. 2.
    pub robustness: u8,
    /// Query interval, 1 s to 31,744 s. 125 s.
    pub query_interval: Duration,
    /// Query response interval: how long hosts may wait, 100 ms up to the query interval. 10 s.
    pub query_response: Duration,
    /// Last member query interval: how long hosts may wait after a leave, 100 ms up to the query
    /// interval. 1 s.
    pub last_member: Duration,
    /// Unsolicited report interval: a member's own changes are repeated within this, 100 ms up to
    /// the query interval. 1 s.
    pub unsolicited_report: Duration,
    /// The most sources of one group, 1 to 256. 64, with IPv6 32 ([`Family::DEFAULT_SOURCES`]).
    pub sources_per_group: u32,
    /// The most packets a second that are looked at; twice as many at once. 2,000.
    pub packets_per_s: u32,
}

impl<A: Family> Config<A> {
    /// The defaults, for one interface.
    pub const fn new(iface: Iface, interface: InterfaceConfig<A>) -> Self {
        Config {
            iface,
            interface,
            robustness: 2,
            query_interval: Duration::from_secs(125),
            query_response: Duration::from_secs(10),
            last_member: Duration::from_secs(1),
            unsolicited_report: Duration::from_secs(1),
            sources_per_group: A::DEFAULT_SOURCES,
            packets_per_s: 2_000,
        }
    }

    pub(super) fn clamped(mut self) -> Self {
        let tenth = Duration::from_millis(100);
        self.robustness = self.robustness.clamp(1, 7);
        self.query_interval = self
            .query_interval
            .clamp(Duration::from_secs(1), Duration::from_secs(31_744));
        self.query_response = self.query_response.clamp(tenth, self.query_interval);
        self.last_member = self.last_member.clamp(tenth, self.query_interval);
        self.unsolicited_report = self.unsolicited_report.clamp(tenth, self.query_interval);
        self.sources_per_group = self.sources_per_group.clamp(1, 256);
        self.packets_per_s = self.packets_per_s.clamp(1, 1_000_000);
        self
    }
}

/// Storage of a [`Querier`](super::Querier) or a [`Member`](super::Member), borrowed or owned:
/// see [`QuerierStorage`] and [`MemberStorage`].
#[derive(Debug)]
pub struct Storage<'a, G, S> {
    /// Groups.
    pub groups: ManagedSlice<'a, Slot<G>>,
    /// Sources of all groups together.
    pub sources: ManagedSlice<'a, Slot<S>>,
}

/// The memory of a [`Querier`](super::Querier).
pub type QuerierStorage<'a, A = Ipv4Addr> = Storage<'a, Group<A>, Source<A>>;

/// The memory of a [`Member`](super::Member).
pub type MemberStorage<'a, A = Ipv4Addr> = Storage<'a, MemberGroup<A>, MemberSource<A>>;

#[cfg(feature = "alloc")]
impl<G: Default, S: Default> Storage<'static, G, S> {
    /// Storage on the heap.
    pub fn owned(groups: usize, sources: usize) -> Self {
        fn slots<T: Default>(count: usize) -> ManagedSlice<'static, Slot<T>> {
            let slots: alloc::vec::Vec<Slot<T>> =
                core::iter::repeat_with(Slot::default).take(count).collect();
            ManagedSlice::Owned(slots)
        }
        Storage {
            groups: slots(groups),
            sources: slots(sources),
        }
    }
}

/// Storage in arrays, for a build with no heap.
#[derive(Debug)]
pub struct StaticStorage<G, S, const GROUPS: usize, const SOURCES: usize> {
    groups: [Slot<G>; GROUPS],
    sources: [Slot<S>; SOURCES],
}

impl<G: Default, S: Default, const N: usize, const M: usize> Default for StaticStorage<G, S, N, M> {
    fn default() -> Self {
        StaticStorage {
            groups: core::array::from_fn(|_| Slot::default()),
            sources: core::array::from_fn(|_| Slot::default()),
        }
    }
}

impl<G, S, const N: usize, const M: usize> StaticStorage<G, S, N, M> {
    /// Lends the arrays.
    pub fn lend(&mut self) -> Storage<'_, G, S> {
        Storage {
            groups: ManagedSlice::Borrowed(&mut self.groups),
            sources: ManagedSlice::Borrowed(&mut self.sources),
        }
    }
}
