//! Configuration and storage of an endpoint.

use core::net::Ipv4Addr;

use managed::ManagedSlice;

use super::{Announcement, Session};
use crate::hier::{MAX_REFRESH, MIN_REFRESH, Slot};
use crate::{Duration, Family, Form, Iface, InterfaceConfig};

/// How an endpoint tells the link's router what it would cost as a replier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Offers {
    /// By membership reports with auxiliary data (LMS §6.7.1), which a host sends raw.
    Reports,
    /// By messages of LMS-HIER, as routers do: a plain UDP socket can send them.
    Updates,
}

/// Configuration of an [`Endpoint`](super::Endpoint).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config<A = Ipv4Addr> {
    /// The interface that packets arrive on and leave by.
    pub iface: Iface,
    /// This host's address there, and its subnet: only routers on it are believed.
    pub interface: InterfaceConfig<A>,
    /// Form of the option of requests, and with it that of the dmcasts that answer them; IPv6 has the own form alone.
    /// The own form.
    pub form: Form,
    /// How offers are sent. Reports.
    pub offers: Offers,
    /// How often an offer is repeated while no router announces an interval, 100 ms to 18 s.
    /// 10 s.
    pub refresh: Duration,
    /// The most reports a second, 1 to 1,000,000. Several offers share a report. 50.
    pub reports_per_s: u32,
    /// The most LMS-HIER messages and IGMP queries a second that are taken from one router;
    /// twice as many at once. 2,000.
    pub router_packets_per_s: u32,
    /// Up to this many groups announced on the link, elected repliers answer queries at once. 64.
    pub immediate_groups: u32,
    /// Times that a withdrawal is sent, 1 to 7. 2.
    pub withdrawals: u8,
    /// A router may not restart more often than this: bounds what a forged boot number does. 1 s.
    pub restart_interval: Duration,
    /// Answer turned requests also where no router announces the elected replier: for routers that choose
    /// repliers by chance ([`Policy::Random`](crate::router::Policy::Random),
    /// [`Policy::SearchParty`](crate::router::Policy::SearchParty)). Several hosts of one link then
    /// answer the same request. No.
    pub answer_unelected: bool,
    /// Time to live of a dmcast's outer packet, hops. 64.
    pub dmcast_ttl: u8,
    /// Time to live of a dmcast's inner packet, hops: as the source's own packets. 64.
    pub repair_ttl: u8,
}

impl<A: Family> Config<A> {
    /// The defaults, for one interface.
    pub const fn new(iface: Iface, interface: InterfaceConfig<A>) -> Self {
        Config {
            iface,
            interface,
            form: Form::Own,
            offers: Offers::Reports,
            refresh: Duration::from_secs(10),
            reports_per_s: 50,
            router_packets_per_s: 2_000,
            immediate_groups: 64,
            withdrawals: 2,
            restart_interval: Duration::from_secs(1),
            answer_unelected: false,
            dmcast_ttl: 64,
            repair_ttl: 64,
        }
    }

    pub(super) fn clamped(mut self) -> Self {
        self.refresh = self.refresh.clamp(MIN_REFRESH, MAX_REFRESH);
        self.reports_per_s = self.reports_per_s.clamp(1, 1_000_000);
        self.router_packets_per_s = self.router_packets_per_s.clamp(1, 1_000_000);
        self.withdrawals = self.withdrawals.clamp(1, 7);
        self
    }
}

/// Storage of an [`Endpoint`](super::Endpoint), borrowed or owned.
#[derive(Debug)]
pub struct Storage<'a, A = Ipv4Addr> {
    /// One for each key joined.
    pub sessions: ManagedSlice<'a, Slot<Session<A>>>,
    /// Two for each session, one where all are `(*, G)`.
    pub announcements: ManagedSlice<'a, Slot<Announcement<A>>>,
}

impl<A: Family> Storage<'static, A> {
    /// Storage on the heap for this many sessions.
    #[cfg(feature = "alloc")]
    pub fn owned(sessions: usize) -> Self {
        fn slots<T: Default>(count: usize) -> ManagedSlice<'static, Slot<T>> {
            let slots: alloc::vec::Vec<Slot<T>> =
                core::iter::repeat_with(Slot::default).take(count).collect();
            ManagedSlice::Owned(slots)
        }
        Storage {
            sessions: slots(sessions),
            announcements: slots(sessions.saturating_mul(2)),
        }
    }
}

/// Storage in arrays, for a build with no heap.
#[derive(Debug)]
pub struct StaticStorage<const SESSIONS: usize, const ANNOUNCEMENTS: usize, A = Ipv4Addr> {
    sessions: [Slot<Session<A>>; SESSIONS],
    announcements: [Slot<Announcement<A>>; ANNOUNCEMENTS],
}

impl<const S: usize, const N: usize, A: Family> Default for StaticStorage<S, N, A> {
    fn default() -> Self {
        StaticStorage {
            sessions: core::array::from_fn(|_| Slot::default()),
            announcements: core::array::from_fn(|_| Slot::default()),
        }
    }
}

impl<const S: usize, const N: usize, A: Family> StaticStorage<S, N, A> {
    /// Lends the arrays.
    pub fn lend(&mut self) -> Storage<'_, A> {
        Storage {
            sessions: ManagedSlice::Borrowed(&mut self.sessions),
            announcements: ManagedSlice::Borrowed(&mut self.announcements),
        }
    }
}
