//! The pool of groups that data nodes take addresses from (§5.4), a part of it for each.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most groups of a pool; the rest of its prefix is not used.
pub const MAX_GROUPS: u32 = 1 << 24;

/// The groups of a prefix, such as 239.255.0.0/16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Groups {
    first: IpAddr,
    count: u32,
}

impl Groups {
    /// Reads a prefix: all of its addresses must be groups.
    ///
    /// # Errors
    /// Why the text is not a prefix of groups.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a prefix of groups");
        let (first, len) = text.split_once('/').ok_or_else(wrong)?;
        let first: IpAddr = first.parse().map_err(|_| wrong())?;
        let len: u32 = len.parse().map_err(|_| wrong())?;
        let bits = if first.is_ipv4() { 32 } else { 128 };
        let least = if first.is_ipv4() { 4 } else { 8 };
        if !first.is_multicast() || !(least..=bits).contains(&len) {
            return Err(wrong());
        }
        let host = bits - len;
        let mask = 1u128.checked_shl(host).map_or(u128::MAX, |size| size - 1);
        if number(first) & mask != 0 {
            return Err(format!("{text:?} does not begin at a multiple of its size"));
        }
        let count = 1u32.checked_shl(host).unwrap_or(MAX_GROUPS).min(MAX_GROUPS);
        Ok(Groups { first, count })
    }

    /// Returns whether the groups are of IPv4.
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }

    /// Returns the first group.
    #[must_use]
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// Returns the number of groups.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether a group is in the pool.
    #[must_use]
    pub fn contains(&self, group: IpAddr) -> bool {
        group.is_ipv4() == self.is_ipv4()
            && number(group)
                .checked_sub(number(self.first))
                .is_some_and(|index| index < u128::from(self.count))
    }

    fn get(&self, index: u32) -> IpAddr {
        match self.first {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + index).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() + u128::from(index)).into(),
        }
    }
}

fn number(group: IpAddr) -> u128 {
    match group {
        IpAddr::V4(group) => group.to_bits().into(),
        IpAddr::V6(group) => group.to_bits(),
    }
}

/// One data node's part. A returned group is the last to be used again, so that a receiver that still listens to it gets
/// no other session for as long as possible.
#[derive(Debug)]
pub(super) struct Pool {
    groups: Groups,
    from: u32,
    size: u32,
    next: u32,
    used: BTreeSet<u32>,
}

impl Pool {
    /// Part `part` of `parts` equal ones; the last ones may be empty where there are fewer groups.
    pub(super) fn new(groups: Groups, part: usize, parts: usize) -> Self {
        let (part, parts) = (part as u64, parts.max(1) as u64);
        let bound = |part: u64| u64::from(groups.count) * part.min(parts) / parts;
        let (from, to) = (bound(part) as u32, bound(part + 1) as u32);
        Pool {
            groups,
            from,
            size: to - from,
            next: 0,
            used: BTreeSet::new(),
        }
    }

    /// Takes a group that is not in use.
    pub(super) fn take(&mut self) -> Option<IpAddr> {
        if self.used.len() >= self.size as usize {
            return None;
        }
        // Skips at most as many as are in use.
        while !self.used.insert(self.next) {
            self.next = (self.next + 1) % self.size;
        }
        let taken = self.next;
        self.next = (self.next + 1) % self.size;
        Some(self.groups.get(self.from + taken))
    }

    /// Returns a group to the pool.
    pub(super) fn give_back(&mut self, group: IpAddr) {
        if !self.groups.contains(group) {
            return;
        }
        let index = (number(group) - number(self.groups.first)) as u32;
        if let Some(index) = index.checked_sub(self.from) {
            self.used.remove(&index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_cover_the_pool() {
        for (prefix, count) in [("239.255.0.0/24", 256), ("ff3e::8000:0/120", 256)] {
            let groups = Groups::parse(prefix).unwrap();
            let mut all = BTreeSet::new();
            for part in 0..3 {
                let mut pool = Pool::new(groups, part, 3);
                while let Some(group) = pool.take() {
                    assert!(groups.contains(group) && all.insert(group), "{group} twice");
                }
            }
            assert_eq!(all.len(), count);
        }
    }

    #[test]
    fn a_group_given_back_is_the_last_to_come_again() {
        let groups = Groups::parse("239.255.0.0/30").unwrap();
        let mut pool = Pool::new(groups, 0, 1);
        let taken: Vec<_> = (0..4).filter_map(|_| pool.take()).collect();
        assert_eq!((taken.len(), pool.take()), (4, None));
        pool.give_back(taken[1]);
        pool.give_back("10.0.0.1".parse().unwrap());
        assert_eq!((pool.take(), pool.take()), (Some(taken[1]), None));
        let mut pool = Pool::new(groups, 0, 1);
        let first = pool.take().unwrap();
        pool.give_back(first);
        assert_ne!(pool.take(), Some(first));
    }

    #[test]
    fn a_pool_with_fewer_groups_than_parts() {
        let groups = Groups::parse("239.1.1.1/32").unwrap();
        let mut pools: Vec<_> = (0..3).map(|part| Pool::new(groups, part, 3)).collect();
        let given = pools.iter_mut().filter_map(Pool::take).count();
        assert_eq!(given, 1);
    }
}
