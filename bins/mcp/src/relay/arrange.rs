//! Which host feeds which.
//!
//! Hosts are put in one order: those of one subnet together, subnets and the hosts in them by round trip. The sender feeds
//! the first, and each feeds the next, so that every link carries the data once. Where there are more hosts than blocks,
//! each feeds two, because a chain of all hosts would take longer than the data.
//!
//! | a host that | is bypassed: its children are fed by | and the host itself |
//! | --- | --- | --- |
//! | dies | its feeder | is left out |
//! | serves nothing or wrong bytes, or is slow | its feeder, or a host that has more | feeds no others any more |

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Children of a host after others were bypassed.
const MAX_CHILDREN: usize = 4;

/// The host or the sender that feeds a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feeder {
    Sender,
    Host(usize),
}

/// What is known of a host before the data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) address: IpAddr,
    pub(crate) round_trip: Duration,
    /// It feeds others.
    pub(crate) feeds: bool,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    known: Known,
    /// `None`: it gets its data otherwise, by multicast.
    feeder: Option<Feeder>,
}

/// The arrangement of one round, by the numbers of hosts.
#[derive(Debug, Default)]
pub(crate) struct Arrangement {
    nodes: BTreeMap<usize, Node>,
}

/// The subnet that hosts behind one switch share: /24 or /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subnet {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

/// Returns the subnet of a host, as far as its address tells.
pub(crate) fn subnet(address: IpAddr) -> Subnet {
    match address {
        IpAddr::V4(address) => Subnet::V4(Ipv4Addr::from_bits(address.to_bits() & !0xff)),
        IpAddr::V6(address) => Subnet::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

impl Arrangement {
    /// Adds a host that gets its data otherwise, and may feed others.
    pub(crate) fn provide(&mut self, host: usize, known: Known) {
        let feeder = None;
        self.nodes.insert(host, Node { known, feeder });
    }

    /// Arranges these hosts, which are to receive `blocks` blocks. Returns each with its feeder.
    pub(crate) fn arrange(
        &mut self,
        hosts: &[(usize, Known)],
        blocks: u64,
    ) -> Vec<(usize, Feeder)> {
        let order = in_order(hosts);
        let feeding: Vec<usize> = order
            .iter()
            .filter(|(_, known)| known.feeds)
            .map(|(host, _)| *host)
            .collect();
        let fan_out = if hosts.len() as u64 > blocks { 2 } else { 1 };
        let first = order
            .first()
            .map_or(Feeder::Sender, |(_, known)| self.provider(known));
        let mut arranged = Vec::new();
        for (at, &host) in feeding.iter().enumerate() {
            let above = at.checked_sub(1).map(|at| feeding[at / fan_out]);
            arranged.push((host, above.map_or(first, Feeder::Host)));
        }
        // Hosts that feed none are fed by those at the end, which have least to do.
        let leaves = order.iter().filter(|(_, known)| !known.feeds);
        for (at, (host, _)) in leaves.enumerate() {
            let feeder = match feeding.len() {
                0 => first,
                count => Feeder::Host(feeding[count - 1 - at % count]),
            };
            arranged.push((*host, feeder));
        }
        for &(host, known) in hosts {
            let feeder = arranged.iter().find(|(at, _)| *at == host);
            let feeder = feeder.map(|(_, feeder)| *feeder);
            self.nodes.insert(host, Node { known, feeder });
        }
        arranged
    }

    /// Returns the feeder of the first host: the nearest that gets its data otherwise, or the sender.
    fn provider(&self, first: &Known) -> Feeder {
        let is_near = |node: &Node| subnet(node.known.address) == subnet(first.address);
        let providers = self.nodes.iter().filter(|(_, node)| node.known.feeds);
        let nearest = providers.min_by_key(|(_, node)| (!is_near(node), node.known.round_trip));
        nearest.map_or(Feeder::Sender, |(host, _)| Feeder::Host(*host))
    }

    /// Returns the feeder of a host.
    pub(crate) fn feeder(&self, host: usize) -> Option<Feeder> {
        self.nodes.get(&host).and_then(|node| node.feeder)
    }

    /// Returns the hosts that a host feeds.
    pub(crate) fn children(&self, host: usize) -> Vec<usize> {
        let is_child = |node: &Node| node.feeder == Some(Feeder::Host(host));
        let children = self.nodes.iter().filter(|(_, node)| is_child(node));
        children.map(|(child, _)| *child).collect()
    }

    /// Whether `host` is fed by `above`, directly or through others.
    fn is_below(&self, host: usize, above: usize) -> bool {
        let mut at = host;
        // A chain has no more members than there are hosts.
        for _ in 0..self.nodes.len() {
            match self.feeder(at) {
                Some(Feeder::Host(feeder)) if feeder == above => return true,
                Some(Feeder::Host(feeder)) => at = feeder,
                _ => return false,
            }
        }
        true
    }

    /// Marks a host as one that feeds no others.
    pub(crate) fn bypass(&mut self, host: usize) {
        if let Some(node) = self.nodes.get_mut(&host) {
            node.known.feeds = false;
        }
    }

    /// Removes a host. Returns the hosts that it fed; they have no feeder.
    pub(crate) fn remove(&mut self, host: usize) -> Vec<usize> {
        let children = self.children(host);
        self.bypass(host);
        children
    }

    /// Forgets a host that has ended, once its children have other feeders.
    pub(crate) fn forget(&mut self, host: usize) {
        self.nodes.remove(&host);
    }

    /// Gives a host another feeder than the one it has: the feeder of that one, or else a host that has more (`held`
    /// tells the bytes that hosts have) and few children, of its own subnet first; or else the sender.
    pub(crate) fn replace(&mut self, host: usize, held: impl Fn(usize) -> u64) -> Feeder {
        let before = self.feeder(host);
        let above = match before {
            Some(Feeder::Host(feeder)) => self.feeder(feeder),
            _ => None,
        };
        let chosen = match above {
            Some(Feeder::Host(above)) if self.may_feed(above, host, before) => Feeder::Host(above),
            Some(Feeder::Sender) => Feeder::Sender,
            _ => self
                .furthest(host, before, held)
                .map_or(Feeder::Sender, Feeder::Host),
        };
        self.set(host, chosen);
        chosen
    }

    /// Moves a host that holds others up to the end. Returns its new feeder, if one has room for it.
    pub(crate) fn move_to_end(&mut self, host: usize) -> Option<Feeder> {
        let before = self.feeder(host);
        let ends = self
            .nodes
            .keys()
            .filter(|&&other| self.may_feed(other, host, before));
        let end = ends.min_by_key(|&&other| (self.children(other).len(), other == host))?;
        let chosen = Feeder::Host(*end);
        self.set(host, chosen);
        Some(chosen)
    }

    /// Has a host be fed by this one again. Returns false where it no longer can.
    pub(crate) fn feed_again(&mut self, host: usize, feeder: usize) -> bool {
        let may = self.may_feed(feeder, host, None);
        if may {
            self.set(host, Feeder::Host(feeder));
        }
        may
    }

    /// Whether a host feeds others, or would.
    pub(crate) fn feeds(&self, host: usize) -> bool {
        self.nodes.get(&host).is_some_and(|node| node.known.feeds)
    }

    /// Has a host be fed by the sender, or by a host that is not below it.
    pub(crate) fn set(&mut self, host: usize, feeder: Feeder) {
        if let Some(node) = self.nodes.get_mut(&host) {
            node.feeder = Some(feeder);
        }
    }

    fn may_feed(&self, feeder: usize, host: usize, before: Option<Feeder>) -> bool {
        feeder != host
            && before != Some(Feeder::Host(feeder))
            && self.feeds(feeder)
            && self.children(feeder).len() < MAX_CHILDREN
            && !self.is_below(feeder, host)
    }

    fn furthest(
        &self,
        host: usize,
        before: Option<Feeder>,
        held: impl Fn(usize) -> u64,
    ) -> Option<usize> {
        let own = self.nodes.get(&host)?.known.address;
        let has = held(host);
        let others = self
            .nodes
            .iter()
            .filter(|&(&other, _)| self.may_feed(other, host, before) && held(other) > has);
        let best = others.min_by_key(|(other, node)| {
            let is_far = subnet(node.known.address) != subnet(own);
            (
                self.children(**other).len(),
                is_far,
                u64::MAX - held(**other),
            )
        });
        best.map(|(other, _)| *other)
    }
}

/// Returns the hosts in the order of the data.
fn in_order(hosts: &[(usize, Known)]) -> Vec<(usize, Known)> {
    let mut nearest: BTreeMap<Subnet, Duration> = BTreeMap::new();
    for (_, known) in hosts {
        let near = nearest
            .entry(subnet(known.address))
            .or_insert(known.round_trip);
        *near = (*near).min(known.round_trip);
    }
    let mut order = hosts.to_vec();
    order.sort_by_key(|(host, known)| {
        let net = subnet(known.address);
        (nearest[&net], net, known.round_trip, *host)
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(address: &str, millis: u64) -> Known {
        Known {
            address: address.parse().expect("an address"),
            round_trip: Duration::from_millis(millis),
            feeds: true,
        }
    }

    fn chain(count: usize) -> (Arrangement, Vec<(usize, Feeder)>) {
        let hosts: Vec<(usize, Known)> = (0..count)
            .map(|host| (host, known(&format!("10.0.0.{}", host + 1), host as u64)))
            .collect();
        let mut arrangement = Arrangement::default();
        let arranged = arrangement.arrange(&hosts, 256);
        (arrangement, arranged)
    }

    #[test]
    fn hosts_of_one_subnet_stand_together_and_the_nearest_come_first() {
        let hosts = [
            (0, known("10.0.1.1", 40)),
            (1, known("10.0.0.1", 2)),
            (2, known("10.0.1.2", 30)),
            (3, known("10.0.0.2", 1)),
        ];
        let mut arrangement = Arrangement::default();
        let arranged = arrangement.arrange(&hosts, 256);
        use Feeder::{Host, Sender};
        assert_eq!(
            arranged,
            [(3, Sender), (1, Host(3)), (2, Host(1)), (0, Host(2))]
        );
    }

    #[test]
    fn more_hosts_than_blocks_stand_in_a_tree() {
        let hosts: Vec<(usize, Known)> = (0..7).map(|host| (host, known("10.0.0.1", 1))).collect();
        let mut arrangement = Arrangement::default();
        let arranged = arrangement.arrange(&hosts, 3);
        let feeders: Vec<Feeder> = arranged.iter().map(|(_, feeder)| *feeder).collect();
        use Feeder::{Host, Sender};
        assert_eq!(
            feeders,
            [Sender, Host(0), Host(0), Host(1), Host(1), Host(2), Host(2)]
        );
    }

    #[test]
    fn hosts_that_feed_none_stand_at_the_end_and_a_host_with_multicast_feeds_the_first() {
        let mut hosts = vec![(0, known("10.0.0.1", 1)), (1, known("10.0.0.2", 2))];
        hosts[0].1.feeds = false;
        let mut arrangement = Arrangement::default();
        arrangement.provide(7, known("10.9.0.1", 1));
        arrangement.provide(8, known("10.0.0.9", 5));
        use Feeder::Host;
        assert_eq!(arrangement.arrange(&hosts, 9), [(1, Host(8)), (0, Host(1))]);
    }

    #[test]
    fn a_host_that_dies_is_bypassed() {
        let (mut arrangement, _) = chain(4);
        let held = |host| 100 - host as u64;
        for child in arrangement.remove(1) {
            assert_eq!(child, 2);
            assert_eq!(arrangement.replace(child, held), Feeder::Host(0));
        }
        arrangement.forget(1);
        for child in arrangement.remove(0) {
            assert_eq!(arrangement.replace(child, held), Feeder::Sender);
        }
        arrangement.forget(0);
        assert_eq!(arrangement.feeder(3), Some(Feeder::Host(2)));
    }

    #[test]
    fn no_host_is_fed_by_one_that_it_feeds() {
        let (mut arrangement, _) = chain(5);
        // Host 0 is fed by the sender alone; all others are below it.
        assert_eq!(arrangement.replace(0, |_| 9), Feeder::Sender);
        arrangement.bypass(1);
        assert_eq!(arrangement.replace(2, |_| 9), Feeder::Host(0));
        // The host that was bypassed goes to the end.
        let end = arrangement.move_to_end(1).expect("a place");
        assert_eq!(end, Feeder::Host(4));
        assert!(arrangement.is_below(1, 2));
        // No place is left for the one that all others are below.
        assert_eq!(arrangement.move_to_end(0), None);
    }
}
