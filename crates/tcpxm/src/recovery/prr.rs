//! How much is sent while losses are repaired (RFC 9937, proportional rate reduction).
//!
//! When half a flight is lost, the amount in flight is far less than the reduced window: filling it at once
//! would be a burst into the queue that has just overflowed.
//!
//! RFC 9937 §6.1 begins with the acknowledgement that shows the losses, whose bytes count as delivered.
//! Where the reordering timer finds them (RFC 8985 §6.2, step 5), possibly with nothing in flight any more, that
//! is the acknowledgement after which the timer was set: see [`Disorder`]. (Linux counts one segment,
//! `tcp_rack_reo_timeout`; RFC 6937 and RFC 9937 do not speak of a timer, and let one segment go.)

/// What has happened since an acknowledgement first made a loss likely (TCP_CA_Disorder of Linux).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disorder {
    /// In flight before that acknowledgement.
    pub(crate) flight: u64,
    /// End of the data sent first by then.
    pub(crate) nxt: u64,
    /// Bytes known to have arrived since, with that acknowledgement.
    pub(crate) delivered: u64,
}

/// State of one receiver's recovery, in bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Prr {
    /// The amount that may be in flight.
    window: u64,
    /// In flight when the losses were found (RecoverFS).
    flight: u64,
    /// Known to have arrived since.
    delivered: u64,
    /// Sent again since.
    again: u64,
    /// End of the data sent first when the losses were detected.
    nxt: u64,
    /// Bytes of a full segment.
    segment: u64,
}

/// An acknowledgement during recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Bytes newly known to have arrived.
    pub(crate) newly: u64,
    /// The left edge moved, and nothing was found lost (SafeACK).
    pub(crate) safe: bool,
    /// In flight now.
    pub(crate) pipe: u64,
    /// The window after the reduction.
    pub(crate) threshold: u64,
    /// End of the data sent first.
    pub(crate) nxt: u64,
}

impl Prr {
    /// Starts when losses were detected, with this much in flight.
    pub(crate) fn begin(since: &Disorder, pipe: u64, segment: u64) -> Self {
        Self {
            window: pipe,
            flight: since.flight.max(1),
            delivered: since.delivered,
            again: 0,
            nxt: since.nxt,
            segment,
        }
    }

    /// Returns the amount that may be in flight: at least a segment, as after a timeout. RFC 9937 §6.2 forces
    /// the first retransmission of a recovery for the same reason: with nothing in flight no acknowledgement
    /// would ever allow more.
    pub(crate) fn window(&self) -> u64 {
        self.window.max(self.segment)
    }

    pub(crate) fn sent_again(&mut self, len: u64) {
        self.again += len;
    }

    /// This much more is lost, and does not allow more to be sent.
    pub(crate) fn lost(&mut self, len: u64) {
        self.window = self.window.saturating_sub(len);
    }

    /// New data of a group counts for each of its receivers.
    pub(crate) fn acknowledged(&mut self, progress: &Progress) {
        self.delivered += progress.newly;
        let out = self.again + (progress.nxt - self.nxt);
        let (pipe, threshold) = (progress.pipe, progress.threshold);
        let count = if pipe > threshold {
            let share = u128::from(self.delivered) * u128::from(threshold);
            let share = share.div_ceil(u128::from(self.flight));
            u64::try_from(share).unwrap_or(u64::MAX).saturating_sub(out)
        } else {
            let conserved = self.delivered.saturating_sub(out).max(progress.newly);
            let more = if progress.safe { self.segment } else { 0 };
            (conserved + more).min(threshold - pipe)
        };
        self.window = pipe + count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(newly: u64, pipe: u64, nxt: u64) -> Progress {
        Progress {
            newly,
            safe: false,
            pipe,
            threshold: 70,
            nxt,
        }
    }

    fn begin(flight: u64, pipe: u64) -> Prr {
        let since = Disorder {
            flight,
            nxt: 100,
            delivered: 0,
        };
        Prr::begin(&since, pipe, 1)
    }

    #[test]
    fn a_flight_is_reduced_in_proportion() {
        // RFC 9937: 100 in flight, one lost, the window becomes 70: seven sent for ten that arrive.
        let (mut prr, mut pipe, mut nxt) = (begin(100, 99), 99, 100);
        for _ in 0..90 {
            pipe -= 1;
            prr.acknowledged(&ack(1, pipe, nxt));
            let room = prr.window() - pipe;
            nxt += room;
            pipe += room;
        }
        assert!((69..=72).contains(&pipe), "{pipe}");
        assert!((60..=65).contains(&(nxt - 100)), "{nxt}");
    }

    #[test]
    fn above_the_threshold_the_share_of_what_arrived_is_sent() {
        let (mut prr, mut pipe, mut nxt) = (begin(100, 99), 99, 100);
        for arrived in 1..=20 {
            pipe -= 1;
            prr.acknowledged(&ack(1, pipe, nxt));
            let room = prr.window() - pipe;
            // Every other one is a repair.
            if arrived % 2 == 0 {
                prr.sent_again(room);
            } else {
                nxt += room;
            }
            pipe += room;
        }
        assert_eq!(pipe, 79 + 14, "seven for ten");
    }

    #[test]
    fn the_threshold_is_reached_and_not_passed() {
        let mut prr = begin(100, 99);
        prr.acknowledged(&ack(40, 70, 100));
        assert_eq!(prr.window(), 70);
        let mut prr = begin(100, 99);
        prr.acknowledged(&ack(10, 69, 100));
        assert_eq!(prr.window(), 70);
    }

    #[test]
    fn half_a_flight_lost_is_no_reason_for_a_burst() {
        let mut prr = begin(100, 40);
        assert_eq!(prr.window(), 40);
        prr.acknowledged(&ack(2, 38, 100));
        assert_eq!(prr.window(), 40, "as much as arrived");
        let safe = Progress {
            safe: true,
            ..ack(2, 38, 102)
        };
        prr.acknowledged(&safe);
        assert_eq!(prr.window(), 41, "one segment more");
        prr.lost(5);
        assert_eq!(prr.window(), 36);
    }

    #[test]
    fn what_arrived_before_a_timer_found_the_loss_counts() {
        let since = Disorder {
            flight: 20,
            nxt: 100,
            delivered: 19,
        };
        let mut prr = Prr::begin(&since, 0, 1);
        assert_eq!(prr.window(), 1, "never nothing");
        prr.acknowledged(&ack(0, 0, 104));
        assert_eq!(prr.window(), 15, "four were sent since");
    }
}
