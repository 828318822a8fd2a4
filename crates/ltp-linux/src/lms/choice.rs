//! Which carrier requests leave by.

/// How a request or a repair travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    /// By the option of IP headers.
    Option,
    /// By a datagram to a port of its own.
    Datagram,
}

impl Carrier {
    fn other(self) -> Carrier {
        match self {
            Carrier::Option => Carrier::Datagram,
            Carrier::Datagram => Carrier::Option,
        }
    }
}

/// Requests that had to go to the source before the other carrier is tried; doubled with each change.
const MIN_FAILURES: u64 = 3;
/// The largest such number.
const MAX_FAILURES: u64 = 192;
/// A carrier works when less than one in so many requests to the group has to be repeated to the source.
const SHARE: u64 = 6;

/// The carrier of requests: where both can be sent, the other one is tried when too many requests stay without an answer
/// and go to the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    carrier: Carrier,
    is_fixed: bool,
    failure_limit: u64,
    /// Requests to the group and to the source when the carrier was chosen, or last seen to work.
    since: (u64, u64),
}

impl Choice {
    /// Starts with a carrier; `is_fixed`: and keeps it.
    pub(super) fn new(carrier: Carrier, is_fixed: bool) -> Choice {
        Choice {
            carrier,
            is_fixed,
            failure_limit: MIN_FAILURES,
            since: (0, 0),
        }
    }

    pub(super) fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Looks at how many requests went to the group so far, and to the source. Returns the carrier if it is another one
    /// now.
    pub(super) fn follow(&mut self, group: u64, source: u64) -> Option<Carrier> {
        let asked = group.saturating_sub(self.since.0);
        let failed = source.saturating_sub(self.since.1);
        if self.is_fixed || failed < self.failure_limit {
            return None;
        }
        self.since = (group, source);
        if failed * SHARE < asked {
            // Most are answered: some repliers miss what others miss.
            return None;
        }
        self.failure_limit = (self.failure_limit * 2).min(MAX_FAILURES);
        self.carrier = self.carrier.other();
        Some(self.carrier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carrier_without_answers_gives_way_to_the_other() {
        let mut choice = Choice::new(Carrier::Option, false);
        assert_eq!(choice.follow(6, 2), None);
        assert_eq!(choice.follow(9, 3), Some(Carrier::Datagram));
        // The other one is given twice the time.
        assert_eq!(choice.follow(24, 8), None);
        assert_eq!(choice.follow(27, 9), Some(Carrier::Option));
        assert_eq!(choice.carrier(), Carrier::Option);
    }

    #[test]
    fn a_carrier_that_works_stays() {
        let mut choice = Choice::new(Carrier::Option, false);
        for n in 1..1_000 {
            assert_eq!(choice.follow(10 * n, n), None);
        }
    }

    #[test]
    fn a_fixed_carrier_stays() {
        let mut choice = Choice::new(Carrier::Datagram, true);
        assert_eq!(choice.follow(1_000, 1_000), None);
    }

    #[test]
    fn the_failure_limit_has_a_bound() {
        let mut choice = Choice::new(Carrier::Option, false);
        let changes = (1..10_000).filter(|&n| choice.follow(n, n).is_some());
        assert!(changes.count() > 10_000 / MAX_FAILURES as usize);
    }
}
