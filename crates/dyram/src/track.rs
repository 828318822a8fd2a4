//! The track list: which packets of a session a relay has seen (DyRAM §3.2.2).

use crate::Seq;
use crate::wheel::next_bit;

/// The paper's `lastOrdered` and `lastReceived`. Its `lostList` is a separate window of bits, one for each of the last
/// packets, set while that packet is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Track {
    started: bool,
    /// A packet far ahead was seen; the next packet decides whether the source continues there.
    probing: bool,
    probe: Seq,
    /// Every packet up to this one was received or given up.
    last_ordered: Seq,
    /// The newest packet received.
    last_received: Seq,
}

/// How a packet relates to the track list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// The first packet, or the next one: it reveals no loss.
    InOrder,
    /// It reveals losses: the first missing packet, and how many.
    Gap(Seq, u32),
    /// It was missing.
    Recovered,
    /// It was received before, or is older than the window.
    Duplicate,
    /// It is ahead by more than the window: accepted when the next packet follows it.
    Ahead,
}

impl Track {
    /// Returns the newest packet; `None` before the first.
    #[inline]
    pub(crate) fn newest(&self) -> Option<Seq> {
        self.started.then_some(self.last_received)
    }

    /// Returns the last packet up to which all were received or given up.
    pub(crate) fn ordered(&self) -> Option<Seq> {
        self.started.then_some(self.last_ordered)
    }

    /// Whether that packet is in the lost list.
    #[inline]
    pub(crate) fn is_lost(&self, lost: &[u64], seq: Seq) -> bool {
        let behind = self.last_received.since(seq);
        let bit = seq.0 as usize % (lost.len() * 64);
        self.started
            && (0..lost.len() as i32 * 64).contains(&behind)
            && lost[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// Whether a packet is the one after the newest.
    #[inline]
    pub(crate) fn is_next(&self, seq: Seq) -> bool {
        self.started && seq.since(self.last_received) == 1
    }

    /// Records a packet. `lost` is the window; its number of bits is a power of two.
    #[inline]
    pub(crate) fn arrive(&mut self, lost: &mut [u64], seq: Seq) -> Arrival {
        if self.is_next(seq) {
            let in_order = self.last_ordered == self.last_received;
            self.last_received = seq;
            self.probing = false;
            if in_order {
                self.last_ordered = seq;
            } else {
                self.pass(lost, seq, 1);
            }
            return Arrival::InOrder;
        }
        self.arrive_out_of_order(lost, seq)
    }

    fn arrive_out_of_order(&mut self, lost: &mut [u64], seq: Seq) -> Arrival {
        let window = lost.len() as i32 * 64;
        if !self.started {
            self.restart(lost, seq);
            return Arrival::InOrder;
        }
        let ahead = seq.since(self.last_received);
        if ahead > 0 && ahead < window {
            self.probing = false;
            let (first, count) = (self.last_received.plus(1), ahead as u32 - 1);
            self.last_received = seq;
            self.pass(lost, first, count + 1);
            self.miss(lost, first, count);
            return Arrival::Gap(first, count);
        }
        if self.is_lost(lost, seq) {
            let bit = seq.0 as usize % (lost.len() * 64);
            lost[bit / 64] &= !(1 << (bit % 64));
            self.advance(lost);
            return Arrival::Recovered;
        }
        if ahead <= 0 && ahead > -window {
            return Arrival::Duplicate;
        }
        // As in RFC 3550 appendix A.1, two packets in sequence move the window, one does not.
        if self.probing && seq == self.probe {
            self.restart(lost, seq);
            return Arrival::InOrder;
        }
        self.probing = true;
        self.probe = seq.plus(1);
        Arrival::Ahead
    }

    /// The source has sent every packet before `next`: those not received are missing. Returns the first of them and
    /// their number, if any.
    pub(crate) fn expect(&mut self, lost: &mut [u64], next: Seq) -> Option<(Seq, u32)> {
        let newest = next.minus(1);
        if !self.started {
            self.restart(lost, newest);
            return None;
        }
        let ahead = newest.since(self.last_received);
        if ahead <= 0 || ahead >= lost.len() as i32 * 64 {
            return None;
        }
        let first = self.last_received.plus(1);
        self.last_received = newest;
        self.pass(lost, first, ahead as u32);
        self.miss(lost, first, ahead as u32);
        Some((first, ahead as u32))
    }

    fn miss(&mut self, lost: &mut [u64], first: Seq, count: u32) {
        for index in 0..count {
            let bit = first.plus(index).0 as usize % (lost.len() * 64);
            lost[bit / 64] |= 1 << (bit % 64);
        }
    }

    fn restart(&mut self, lost: &mut [u64], seq: Seq) {
        lost.fill(0);
        *self = Track {
            started: true,
            last_ordered: seq,
            last_received: seq,
            ..Track::default()
        };
    }

    /// Moves the window over `count` packets from `first` on. Packets that leave the window are given up.
    fn pass(&mut self, lost: &mut [u64], first: Seq, count: u32) {
        let bits = lost.len() * 64;
        for index in 0..count {
            let bit = first.plus(index).0 as usize % bits;
            lost[bit / 64] &= !(1 << (bit % 64));
        }
        let oldest = self.last_received.minus(bits as u32 - 1);
        if self.last_ordered.before(oldest.minus(1)) {
            self.last_ordered = oldest.minus(1);
            self.advance(lost);
        }
    }

    /// Moves `last_ordered` up to the next packet that is missing.
    fn advance(&mut self, lost: &[u64]) {
        let bits = lost.len() * 64;
        let from = self.last_ordered.plus(1).0 as usize % bits;
        let ahead = next_bit(lost, from)
            .map(|bit| bit - from)
            .or_else(|| next_bit(lost, 0).map(|bit| bit + bits - from));
        let left = self.last_received.since(self.last_ordered) as u32;
        let steps = ahead.map_or(left, |ahead| left.min(ahead as u32));
        self.last_ordered = self.last_ordered.plus(steps);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn one_packet_after_the_other() {
        let (mut track, mut lost) = (Track::default(), [0u64; 2]);
        for seq in [u32::MAX - 1, u32::MAX, 0, 1] {
            assert_eq!(track.arrive(&mut lost, Seq(seq)), Arrival::InOrder);
        }
        assert_eq!(track.arrive(&mut lost, Seq(4)), Arrival::Gap(Seq(2), 2));
        assert!(track.is_lost(&lost, Seq(2)) && !track.is_lost(&lost, Seq(4)));
        assert_eq!(track.ordered(), Some(Seq(1)));
        assert_eq!(track.arrive(&mut lost, Seq(3)), Arrival::Recovered);
        assert_eq!(track.arrive(&mut lost, Seq(3)), Arrival::Duplicate);
        assert_eq!(track.ordered(), Some(Seq(1)));
        assert_eq!(track.arrive(&mut lost, Seq(2)), Arrival::Recovered);
        assert_eq!(track.ordered(), Some(Seq(4)));
    }

    #[test]
    fn packets_that_the_source_has_sent_are_missing_until_they_come() {
        let (mut track, mut lost) = (Track::default(), [0u64; 1]);
        assert_eq!(
            track.expect(&mut lost, Seq(10)),
            None,
            "earlier packets are not lost here"
        );
        assert_eq!(track.newest(), Some(Seq(9)));
        assert_eq!(track.expect(&mut lost, Seq(10)), None);
        assert_eq!(track.expect(&mut lost, Seq(12)), Some((Seq(10), 2)));
        assert_eq!(track.ordered(), Some(Seq(9)));
        assert_eq!(track.arrive(&mut lost, Seq(10)), Arrival::Recovered);
        assert_eq!(track.arrive(&mut lost, Seq(12)), Arrival::InOrder);
        assert_eq!(track.ordered(), Some(Seq(10)));
        assert_eq!(
            track.expect(&mut lost, Seq(12 + 65)),
            None,
            "too far ahead to be believed"
        );
    }

    #[test]
    fn a_stray_packet_far_ahead_moves_nothing_and_two_in_a_row_do() {
        let (mut track, mut lost) = (Track::default(), [0u64; 1]);
        track.arrive(&mut lost, Seq(10));
        assert_eq!(track.arrive(&mut lost, Seq(1000)), Arrival::Ahead);
        assert_eq!(track.arrive(&mut lost, Seq(11)), Arrival::InOrder);
        assert_eq!(track.arrive(&mut lost, Seq(1001)), Arrival::Ahead);
        assert_eq!(track.arrive(&mut lost, Seq(1002)), Arrival::InOrder);
        assert_eq!(track.newest(), Some(Seq(1002)));
        assert_eq!(track.arrive(&mut lost, Seq(12)), Arrival::Ahead);
    }

    /// Against a set: random losses, reordering within the window, wrap-around.
    #[test]
    fn agrees_with_a_set() {
        for seed in 1..100u64 {
            let mut random = seed;
            let mut next = move |bound: u64| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(99);
                (random >> 33) % bound
            };
            let (mut track, mut lost) = (Track::default(), [0u64; 2]);
            let origin = Seq(u32::MAX - 200);
            let mut seen = BTreeSet::from([0i32]);
            track.arrive(&mut lost, origin);
            let mut newest = 0i32;
            for _ in 0..2_000 {
                let at = match next(4) {
                    0 => newest - next(100) as i32,
                    1 => newest + 1 + next(20) as i32,
                    _ => newest + 1,
                };
                if at < 1 {
                    continue;
                }
                let known = seen.contains(&at) || at <= newest - 128;
                let expected = if at == newest + 1 {
                    Arrival::InOrder
                } else if at > newest {
                    Arrival::Gap(origin.plus(newest as u32 + 1), (at - newest - 1) as u32)
                } else if known {
                    Arrival::Duplicate
                } else {
                    Arrival::Recovered
                };
                let got = track.arrive(&mut lost, origin.plus(at as u32));
                assert_eq!(got, expected, "seed {seed} at {at}");
                seen.insert(at);
                newest = newest.max(at);
                let ordered = (newest - 127..=newest + 1)
                    .find(|at| *at > 0 && !seen.contains(at))
                    .unwrap_or(newest + 1);
                let ordered = origin.plus((ordered.max(newest - 127) - 1) as u32);
                assert_eq!(track.ordered(), Some(ordered), "seed {seed} at {at}");
            }
        }
    }
}
