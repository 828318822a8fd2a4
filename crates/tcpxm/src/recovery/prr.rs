//! How much is sent while losses are repaired (RFC 9937, proportional rate reduction).
//!
//! Where half a flight is lost, what is left in flight is far less than the reduced window: to fill
//! that at once would be a burst into the queue that has just overflowed.

/// State of one receiver's recovery, in bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Prr {
    /// What may be in flight.
    window: u64,
    /// In flight when the losses were found (RecoverFS).
    flight: u64,
    /// Known to have arrived since.
    delivered: u64,
    /// Sent again since.
    again: u64,
    /// Behind what had been sent first when the losses were found.
    nxt: u64,
}

/// What an acknowledgement in recovery tells.
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
    /// Behind what was sent first.
    pub(crate) nxt: u64,
    /// Bytes of a full segment.
    pub(crate) segment: u64,
}

impl Prr {
    /// Losses were found with so much in flight, and so much is now.
    pub(crate) fn begin(flight: u64, pipe: u64, nxt: u64) -> Self {
        Self {
            window: pipe,
            flight: flight.max(1),
            delivered: 0,
            again: 0,
            nxt,
        }
    }

    /// What may be in flight.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    pub(crate) fn sent_again(&mut self, len: u64) {
        self.again += len;
    }

    /// So much more is lost, and does not make room.
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
            let more = if progress.safe { progress.segment } else { 0 };
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
            segment: 1,
        }
    }

    #[test]
    fn a_flight_is_reduced_in_proportion() {
        // RFC 9937: 100 in flight, one lost, the window becomes 70: seven sent for ten that arrive.
        let (mut prr, mut pipe, mut nxt) = (Prr::begin(100, 99, 100), 99, 100);
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
    fn half_a_flight_lost_is_no_reason_for_a_burst() {
        let mut prr = Prr::begin(100, 40, 100);
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
}
