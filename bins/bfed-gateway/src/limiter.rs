//! Bounds for TCP listeners: connections that have not proved their identity, and log lines about them.
//!
//! Every listener of the gateway accepts at once and counts each connection as *unproved* until its
//! first valid message. Unproved connections are bounded; one more closes another:
//!
//! | the new connection comes from | bound | closed instead |
//! | --- | --- | --- |
//! | any address | [`Limits::per_source`] of that source | the oldest unproved connection of that source |
//! | any address | [`Limits::total`] of all sources that are not named | the oldest of the source that has most; of equals, the oldest |
//! | an address that the configuration or the control node names | [`Limits::per_source`] places of its own, outside of the total | its own oldest |
//! | any address, and the process is out of file descriptors | the descriptors that are left | the oldest of the source that has most; of named ones only when there is no other |
//!
//! A source is an IPv4 address or an IPv6 prefix of 64 bits: a host can use every address of its
//! prefix. Memory: one entry of about 150 bytes for each unproved connection, so at most
//! `total + named sources * per_source` of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};

/// Bounds of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Unproved connections of all sources that are not named.
    pub(crate) total: usize,
    /// Unproved connections of one source.
    pub(crate) per_source: usize,
}

/// Descriptors of an unproved connection: its socket, and a second one to bound its hops later.
const DESCRIPTORS: u64 = 2;

impl Limits {
    /// Returns the bounds of one of the two ports of a process that may open `descriptors` file descriptors:
    /// unproved connections of sources that are not named use a quarter of them at most.
    fn within(self, descriptors: u64) -> Limits {
        let share = usize::try_from(descriptors / 4 / DESCRIPTORS).unwrap_or(usize::MAX);
        let total = self.total.min(share).max(1);
        Limits {
            total,
            per_source: self.per_source.min(total.div_ceil(2)),
        }
    }

    /// Returns these bounds, lowered to what the descriptors of this process permit.
    pub(crate) fn for_process(self) -> Limits {
        match getrlimit(Resource::RLIMIT_NOFILE) {
            Ok((descriptors, _)) => self.within(descriptors),
            Err(_) => self,
        }
    }
}

/// Identifies an unproved connection. Later connections have higher tickets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Ticket(u64);

/// Returns the address that connections are counted by: an IPv4 address, or the first 64 bits of an IPv6
/// address.
pub(crate) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(prefix))
        }
        v4 => v4,
    }
}

#[derive(Debug)]
struct Unproved<T> {
    source: IpAddr,
    handle: T,
}

/// The tickets of a source, the oldest first, and whether the source is named.
type Source = (bool, BTreeSet<Ticket>);

/// The oldest ticket of the source that has most; of equals, of the one whose oldest is older.
fn oldest_of_largest<'a>(sources: impl Iterator<Item = &'a Source>) -> Option<Ticket> {
    let oldest = |tickets: &BTreeSet<Ticket>| tickets.first().copied();
    let largest = sources.max_by_key(|(_, tickets)| (tickets.len(), Reverse(oldest(tickets))));
    largest.and_then(|(_, tickets)| oldest(tickets))
}

/// The unproved connections of one listener. `T` is what the listener needs to close one of them.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter<T> {
    limits: Limits,
    next: u64,
    unproved: BTreeMap<Ticket, Unproved<T>>,
    sources: BTreeMap<IpAddr, Source>,
    evicted: u64,
}

impl<T> ConnectionLimiter<T> {
    /// Creates an empty limiter. Each bound is at least 1.
    pub(crate) fn new(limits: Limits) -> Self {
        ConnectionLimiter {
            limits: Limits {
                total: limits.total.max(1),
                per_source: limits.per_source.max(1),
            },
            next: 0,
            unproved: BTreeMap::new(),
            sources: BTreeMap::new(),
            evicted: 0,
        }
    }

    /// Counts a new connection. `named` says whether the configuration or the control node names its
    /// address. `start` gets the ticket and returns the handle to keep. Returns the ticket and the handle
    /// of the connection to close, if a bound was reached.
    pub(crate) fn admit(
        &mut self,
        from: IpAddr,
        named: bool,
        start: impl FnOnce(Ticket) -> T,
    ) -> (Ticket, Option<T>) {
        let source = source(from);
        let victim = self.victim(source, named);
        let evicted = victim.and_then(|ticket| self.remove(ticket));
        self.evicted += u64::from(evicted.is_some());
        let ticket = Ticket(self.next);
        self.next += 1;
        let handle = start(ticket);
        self.unproved.insert(ticket, Unproved { source, handle });
        let (is_named, tickets) = self.sources.entry(source).or_default();
        *is_named = named;
        tickets.insert(ticket);
        (ticket, evicted)
    }

    fn victim(&self, source: IpAddr, named: bool) -> Option<Ticket> {
        let own = self.sources.get(&source).map(|(_, tickets)| tickets);
        if let Some(tickets) = own.filter(|tickets| tickets.len() >= self.limits.per_source) {
            return tickets.first().copied();
        }
        let others = || self.sources.values().filter(|(named, _)| !named);
        let count: usize = others().map(|(_, tickets)| tickets.len()).sum();
        if named || count < self.limits.total {
            return None;
        }
        oldest_of_largest(others())
    }

    /// Returns the handle of a connection to close because the process is out of file descriptors, or
    /// `None` if no connection is unproved.
    pub(crate) fn shed(&mut self) -> Option<T> {
        let (named, others): (Vec<_>, Vec<_>) =
            self.sources.values().partition(|(named, _)| *named);
        let victim = oldest_of_largest(others.into_iter())
            .or_else(|| oldest_of_largest(named.into_iter()))?;
        self.evicted += 1;
        self.remove(victim)
    }

    /// Removes a connection that has proved its identity or has ended. Returns its handle, or `None` if
    /// it was closed by a later one.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let Unproved { source, handle } = self.unproved.remove(&ticket)?;
        if let Some((_, tickets)) = self.sources.get_mut(&source) {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.sources.remove(&source);
            }
        }
        Some(handle)
    }

    /// Returns the number of unproved connections.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.unproved.len()
    }

    /// Returns the number of connections that were closed because a bound was reached.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }
}

/// Lines of one kind that are logged in one interval.
const LOG_BURST: u32 = 5;
/// The interval.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Bounds log lines of one kind: [`LOG_BURST`] lines in [`LOG_INTERVAL`], then one line with the number of
/// those that were left out.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter {
    until: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

impl LogLimiter {
    /// Returns whether the next line is to be logged; otherwise it is counted. Call
    /// [`summary`](Self::summary) first.
    pub(crate) fn admit(&mut self, now: Instant) -> bool {
        if self.until.is_none_or(|until| until <= now) {
            self.until = Some(now + LOG_INTERVAL);
            self.logged = 0;
        }
        let admitted = self.logged < LOG_BURST;
        match admitted {
            true => self.logged += 1,
            false => self.suppressed += 1,
        }
        admitted
    }

    /// Returns the number of lines that were left out, once, when their interval has passed. Call it from
    /// time to time, at least once a second.
    pub(crate) fn summary(&mut self, now: Instant) -> Option<u64> {
        let over = self.until.is_some_and(|until| until <= now);
        let suppressed = if over { self.suppressed } else { 0 };
        (suppressed > 0).then(|| std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        total: 8,
        per_source: 3,
    };

    fn v4(host: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, host])
    }

    fn admit(limiter: &mut ConnectionLimiter<u64>, from: IpAddr, named: bool) -> Option<u64> {
        limiter.admit(from, named, |ticket| ticket.0).1
    }

    #[test]
    fn a_source_at_its_bound_loses_its_own_oldest() {
        let mut limiter = ConnectionLimiter::new(LIMITS);
        assert_eq!(admit(&mut limiter, v4(9), false), None);
        for _ in 0..3 {
            assert_eq!(admit(&mut limiter, v4(1), false), None);
        }
        assert_eq!(admit(&mut limiter, v4(1), false), Some(1));
        assert_eq!(admit(&mut limiter, v4(1), false), Some(2));
        assert_eq!((limiter.len(), limiter.evicted()), (4, 2));
    }

    #[test]
    fn at_the_total_the_source_with_most_connections_gives_way() {
        let mut limiter = ConnectionLimiter::new(LIMITS);
        let hosts = [1, 2, 2, 3, 3, 3, 4, 4];
        for host in hosts {
            assert_eq!(admit(&mut limiter, v4(host), false), None);
        }
        // Host 3 has three, the oldest of them is the fourth.
        assert_eq!(admit(&mut limiter, v4(5), false), Some(3));
        // Hosts 2, 3 and 4 have two each; host 2 has the oldest.
        assert_eq!(admit(&mut limiter, v4(6), false), Some(1));
        assert_eq!(limiter.len(), 8);
    }

    #[test]
    fn named_addresses_have_places_of_their_own() {
        let mut limiter = ConnectionLimiter::new(LIMITS);
        for host in 10..18 {
            admit(&mut limiter, v4(host), false);
        }
        for _ in 0..3 {
            assert_eq!(admit(&mut limiter, v4(1), true), None);
        }
        assert_eq!(admit(&mut limiter, v4(1), true), Some(8));
        for host in 20..200 {
            let evicted = admit(&mut limiter, v4(host), false);
            assert!(evicted.is_some_and(|ticket| !(8..12).contains(&ticket)));
        }
        assert_eq!(limiter.len(), 11);
    }

    #[test]
    fn without_descriptors_the_source_with_most_connections_gives_way_named_ones_last() {
        let mut limiter = ConnectionLimiter::new(LIMITS);
        for (host, named) in [(1, true), (2, false), (2, false), (1, true), (1, true)] {
            admit(&mut limiter, v4(host), named);
        }
        let shed: Vec<_> = std::iter::from_fn(|| limiter.shed()).collect();
        assert_eq!(shed, [1, 2, 0, 3, 4]);
        assert_eq!((limiter.len(), limiter.evicted()), (0, 5));
    }

    #[test]
    fn few_descriptors_lower_the_bounds() {
        let bounds = |descriptors| {
            let limits = Limits {
                total: 256,
                per_source: 64,
            };
            let limits = limits.within(descriptors);
            (limits.total, limits.per_source)
        };
        assert_eq!(bounds(u64::MAX), (256, 64));
        assert_eq!(bounds(1024), (128, 64));
        assert_eq!(bounds(200), (25, 13));
        assert_eq!(bounds(0), (1, 1));
    }

    #[test]
    fn connections_that_proved_themselves_or_ended_are_not_counted() {
        let mut limiter = ConnectionLimiter::new(LIMITS);
        for _ in 0..100 {
            let (ticket, evicted) = limiter.admit(v4(1), false, |_| 7);
            assert_eq!(evicted, None);
            assert_eq!(limiter.remove(ticket), Some(7));
            assert_eq!(limiter.remove(ticket), None);
        }
        assert_eq!(limiter.len(), 0);
        assert!(limiter.sources.is_empty());
    }

    #[test]
    fn a_prefix_of_64_bits_is_one_source() {
        let mut limiter = ConnectionLimiter::new(LIMITS);
        let at = |text: &str| -> IpAddr { text.parse().unwrap() };
        for host in ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:0:3"] {
            assert_eq!(admit(&mut limiter, at(host), false), None);
        }
        assert_eq!(admit(&mut limiter, at("2001:db8::4"), false), Some(0));
        assert_eq!(admit(&mut limiter, at("2001:db8:0:1::4"), false), None);
        assert_eq!(source(at("::ffff:192.0.2.7")), v4(7));
    }

    #[test]
    fn repeated_lines_are_summed_up() {
        let mut log = LogLimiter::default();
        let start = Instant::now();
        let logged = (0..5_000).filter(|_| log.admit(start)).count();
        assert_eq!(logged, LOG_BURST as usize);
        assert_eq!(log.summary(start + LOG_INTERVAL / 2), None);
        let end = start + LOG_INTERVAL;
        assert_eq!(log.summary(end), Some(5_000 - u64::from(LOG_BURST)));
        assert_eq!(log.summary(end), None);
        assert!(log.admit(end));
    }
}
