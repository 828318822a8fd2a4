//! Repairs that several receivers of a flow lack: one multicast copy instead of a unicast copy for each.
//!
//! A receiver's repair waits for a quarter of a round trip, 25 ms at most. If another receiver lacks the same data
//! meanwhile, one copy goes to the group at once, and it also counts for those that turn out to lack the data within
//! half a round trip. Otherwise the receiver gets the data by unicast.

use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};

/// Repairs known at once, 40 bytes each. Beyond it they go by unicast without a wait.
const MAX_REPAIRS: usize = 512;
const LONGEST_WAIT: Duration = Duration::from_millis(25);
/// A repair that nothing has asked for during this time is forgotten when there is no place for another one.
const FORGET: Duration = Duration::from_secs(1);

/// Data that a receiver lacks.
#[derive(Clone, Copy, Debug)]
struct Repair {
    start: u64,
    /// The member that lacked it first, and when that was found.
    first: u32,
    since: Instant,
    /// When a copy went to the group.
    sent: Option<Instant>,
}

/// How a receiver gets a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Not before this time, unless another receiver lacks it too.
    Wait(Instant),
    Unicast,
    Multicast,
    /// A copy went to the group at this time.
    Sent(Instant),
}

/// The repairs of a flow.
#[derive(Clone, Default, Debug)]
pub(crate) struct Repairs {
    /// By offset.
    list: Vec<Repair>,
}

impl Repairs {
    /// Returns how a member gets the data at this offset, which it lacks. `round_trip`: its smoothed one.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        start: u64,
        member: u32,
        round_trip: Duration,
    ) -> Turn {
        let wait = (round_trip / 4).min(LONGEST_WAIT);
        let Ok(at) = self.place(start) else {
            return self.begin(now, start, member, wait);
        };
        let repair = &mut self.list[at];
        match repair.sent {
            Some(sent) if now - sent <= round_trip / 2 => Turn::Sent(sent),
            Some(_) => {
                // It has lost the copy as well.
                self.list.remove(at);
                self.begin(now, start, member, wait)
            }
            None if repair.first != member => {
                repair.sent = Some(now);
                Turn::Multicast
            }
            None if now >= repair.since + wait => {
                self.list.remove(at);
                Turn::Unicast
            }
            None => Turn::Wait(repair.since + wait),
        }
    }

    fn place(&self, start: u64) -> Result<usize, usize> {
        self.list
            .binary_search_by_key(&start, |repair| repair.start)
    }

    fn begin(&mut self, now: Instant, start: u64, member: u32, wait: Duration) -> Turn {
        if self.list.len() >= MAX_REPAIRS {
            self.list
                .retain(|repair| now - repair.sent.unwrap_or(repair.since) < FORGET);
        }
        if self.list.len() >= MAX_REPAIRS {
            return Turn::Unicast;
        }
        let (Ok(at) | Err(at)) = self.place(start);
        let repair = Repair {
            start,
            first: member,
            since: now,
            sent: None,
        };
        self.list.insert(at, repair);
        Turn::Wait(now + wait)
    }

    /// All receivers have everything before this offset.
    pub(crate) fn release(&mut self, offset: u64) {
        let (Ok(at) | Err(at)) = self.place(offset);
        self.list.drain(..at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    fn at(millis: i64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn one_receiver_waits_for_a_quarter_of_a_round_trip() {
        let mut repairs = Repairs::default();
        assert_eq!(repairs.ask(at(0), 100, 1, RTT), Turn::Wait(at(10)));
        assert_eq!(repairs.ask(at(9), 100, 1, RTT), Turn::Wait(at(10)));
        assert_eq!(repairs.ask(at(10), 100, 1, RTT), Turn::Unicast);
        assert_eq!(
            repairs.ask(at(20), 100, 1, RTT),
            Turn::Wait(at(30)),
            "lost again"
        );
        let far = Duration::from_secs(2);
        assert_eq!(repairs.ask(at(0), 500, 1, far), Turn::Wait(at(25)));
    }

    #[test]
    fn several_share_one_copy() {
        let mut repairs = Repairs::default();
        repairs.ask(at(0), 100, 1, RTT);
        assert_eq!(repairs.ask(at(5), 100, 2, RTT), Turn::Multicast);
        assert_eq!(repairs.ask(at(10), 100, 1, RTT), Turn::Sent(at(5)));
        assert_eq!(repairs.ask(at(25), 100, 3, RTT), Turn::Sent(at(5)));
        assert_eq!(
            repairs.ask(at(26), 100, 3, RTT),
            Turn::Wait(at(36)),
            "lost again"
        );
    }

    #[test]
    fn their_number_is_bounded() {
        let mut repairs = Repairs::default();
        for start in 0..MAX_REPAIRS as u64 {
            assert_eq!(repairs.ask(at(0), start, 1, RTT), Turn::Wait(at(10)));
        }
        assert_eq!(repairs.ask(at(0), 1_000, 1, RTT), Turn::Unicast);
        repairs.release(10);
        assert_eq!(repairs.list.len(), MAX_REPAIRS - 10);
        assert_eq!(repairs.ask(at(0), 1_000, 1, RTT), Turn::Wait(at(10)));
        // The old ones are forgotten when there is no place for another one.
        for start in 2_000..2_100 {
            repairs.ask(at(2_000), start, 1, RTT);
        }
        assert_eq!(repairs.list.len(), 100);
    }

    #[test]
    fn who_fills_the_table_leaves_unicast_to_the_others_for_a_second() {
        let mut repairs = Repairs::default();
        for start in 0..MAX_REPAIRS as u64 {
            repairs.ask(at(0), start, 1, RTT);
        }
        for millis in [0, 500, 999] {
            for member in [2, 3] {
                assert_eq!(repairs.ask(at(millis), 1_000, member, RTT), Turn::Unicast);
            }
        }
        assert_eq!(
            repairs.ask(at(999), 7, 2, RTT),
            Turn::Multicast,
            "it said that it lacks this, too"
        );
        assert_eq!(repairs.ask(at(1_000), 1_000, 2, RTT), Turn::Wait(at(1_010)));
        assert_eq!(repairs.ask(at(1_001), 1_000, 3, RTT), Turn::Multicast);
        assert_eq!(repairs.list.len(), 2);
    }
}
