//! Detects paths that drop segmentation batches, from the loss that receivers report.
//!
//! The kernel takes many datagrams in one piece and segments them late (`UDP_SEGMENT`). A device on the way
//! that sees the piece before that may drop it as too long: a user-space forwarder on packet sockets, a
//! policer or packet filter with a bound on the length. Single datagrams pass. The loss looks like
//! congestion, but it depends on the batches, and that can be tried:
//!
//! | phase | sent | ends when |
//! | --- | --- | --- |
//! | batches | batches | a receiver loses [`SUSPICIOUS_PER_MILLE`] or more, in three measures in a row: a rate that was too high for a moment starts no trial |
//! | trial | single datagrams | it loses a quarter of that at most; else back to batches, and the next trial later |
//! | check | batches again | at least half of the first loss returns; else the loss had another cause: as above |
//! | off | single datagrams | the end |
//!
//! Each phase lasts at least [`MEASURE`] and [`LEAST_PACKETS`], after a pause in which reports of
//! older packets still arrive; its loss is the average of the reports. A wrong verdict costs processor time, never data.

use std::time::Duration;

/// Loss that starts a trial, in thousandths.
pub const SUSPICIOUS_PER_MILLE: u16 = 50;
/// How long a phase is measured.
pub const MEASURE: Duration = Duration::from_secs(1);
/// How many packets must be sent meanwhile.
pub const LEAST_PACKETS: u64 = 512;
/// Measures in a row that start a trial.
const LEAST_SUSPICIOUS: u8 = 3;
/// Reports within this time after a change describe packets sent before it.
const SETTLE: Duration = Duration::from_millis(500);
/// The first pause after a trial in vain; each one is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Batches,
    Trial { before: u16 },
    Check { before: u16 },
    Off,
}

/// Tries single datagrams where batches may be lost: see the [module documentation](self).
///
/// ```
/// use std::time::Duration;
/// use linux_net::batching::Fallback;
///
/// let mut fallback = Fallback::new(Duration::ZERO);
/// // A path that drops a fifth of the batches, and nothing else.
/// let (mut now, mut packets) = (Duration::ZERO, 0);
/// while !fallback.is_off() {
///     now += Duration::from_millis(100);
///     packets += 100;
///     let loss = if fallback.allows_batches() { 200 } else { 0 };
///     fallback.update(now, packets, Some(loss));
///     assert!(now < Duration::from_secs(10));
/// }
/// assert!(!fallback.allows_batches());
/// ```
#[derive(Clone, Debug)]
pub struct Fallback {
    phase: Phase,
    /// When the phase is measured from, and the packets sent by then.
    since: Duration,
    packets: Option<u64>,
    /// Sum and number of the losses that were reported since.
    losses: (u64, u64),
    /// Measures in a row that showed enough loss for a trial.
    suspicious: u8,
    /// No trial before this.
    not_before: Duration,
    pause: Duration,
}

impl Fallback {
    /// Starts with batches. Times are counted from any fixed moment.
    pub fn new(now: Duration) -> Self {
        Self {
            phase: Phase::Batches,
            since: now,
            packets: None,
            losses: (0, 0),
            suspicious: 0,
            not_before: now,
            pause: FIRST_PAUSE,
        }
    }

    /// Whether batches are to be sent now.
    pub fn allows_batches(&self) -> bool {
        matches!(self.phase, Phase::Batches | Phase::Check { .. })
    }

    /// Whether batches were found to be lost: they are not tried again.
    pub fn is_off(&self) -> bool {
        self.phase == Phase::Off
    }

    /// Takes in the packets sent so far, and the loss of the receiver that lost most since the last call, in
    /// thousandths, if it was measured. Returns whether [`allows_batches`](Self::allows_batches) has changed.
    pub fn update(&mut self, now: Duration, packets: u64, loss: Option<u16>) -> bool {
        if now < self.since {
            return false;
        }
        let first = *self.packets.get_or_insert(packets);
        if let Some(loss) = loss {
            self.losses = (self.losses.0 + u64::from(loss), self.losses.1 + 1);
        }
        if now < self.since + MEASURE || packets - first < LEAST_PACKETS {
            return false;
        }
        let (sum, count) = self.losses;
        let average = (sum / count.max(1)) as u16;
        match self.phase {
            Phase::Off => false,
            Phase::Batches => {
                if average < SUSPICIOUS_PER_MILLE || now < self.not_before {
                    self.suspicious = 0;
                } else {
                    self.suspicious += 1;
                }
                let next = if self.suspicious == LEAST_SUSPICIOUS {
                    self.suspicious = 0;
                    Phase::Trial { before: average }
                } else {
                    Phase::Batches
                };
                self.enter(now, next)
            }
            Phase::Trial { before } if average <= before / 4 => {
                self.enter(now, Phase::Check { before })
            }
            Phase::Check { before } if average >= before / 2 => self.enter(now, Phase::Off),
            Phase::Trial { .. } | Phase::Check { .. } => {
                self.not_before = now + self.pause;
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                self.enter(now, Phase::Batches)
            }
        }
    }

    /// Measures anew; whether batches are sent in another way now.
    fn enter(&mut self, now: Duration, phase: Phase) -> bool {
        let was = self.allows_batches();
        self.phase = phase;
        let is_changed = self.allows_batches() != was;
        self.since = if is_changed { now + SETTLE } else { now };
        self.packets = None;
        self.losses = (0, 0);
        is_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs until `end` on a path with this loss; returns the number of changes.
    fn run(fallback: &mut Fallback, until: u64, loss: impl Fn(Duration, bool) -> u16) -> u32 {
        let (mut changes, mut packets) = (0, 0);
        for step in 0..until * 10 {
            let now = Duration::from_millis(100 * step);
            packets += 200;
            let loss = loss(now, fallback.allows_batches());
            changes += u32::from(fallback.update(now, packets, Some(loss)));
        }
        changes
    }

    #[test]
    fn batches_that_are_lost_are_given_up_for_good() {
        let mut fallback = Fallback::new(Duration::ZERO);
        let changes = run(
            &mut fallback,
            100,
            |_, batches| if batches { 240 } else { 10 },
        );
        assert!(fallback.is_off());
        assert_eq!(changes, 3, "off, on for the check, off");
    }

    #[test]
    fn loss_that_has_nothing_to_do_with_batches_changes_little() {
        let mut fallback = Fallback::new(Duration::ZERO);
        let changes = run(&mut fallback, 100, |_, _| 100);
        assert!(fallback.allows_batches());
        // Trials are 10, 20, 40 ... seconds apart.
        assert!((2..=10).contains(&changes), "{changes}");
    }

    #[test]
    fn congestion_that_ends_during_the_trial_does_not_count_against_batches() {
        let mut fallback = Fallback::new(Duration::ZERO);
        run(&mut fallback, 100, |now, _| {
            if now < Duration::from_millis(3_400) {
                900
            } else {
                0
            }
        });
        assert!(fallback.allows_batches() && !fallback.is_off());
    }

    #[test]
    fn a_rate_that_was_too_high_for_a_moment_starts_no_trial() {
        let mut fallback = Fallback::new(Duration::ZERO);
        let changes = run(&mut fallback, 100, |now, _| {
            if now.as_secs() % 5 == 0 { 900 } else { 20 }
        });
        assert_eq!(changes, 0);
    }

    #[test]
    fn ordinary_loss_starts_no_trial() {
        let mut fallback = Fallback::new(Duration::ZERO);
        assert_eq!(run(&mut fallback, 100, |_, _| SUSPICIOUS_PER_MILLE - 1), 0);
    }

    #[test]
    fn few_packets_show_nothing() {
        let mut fallback = Fallback::new(Duration::ZERO);
        for step in 0..100 {
            let now = Duration::from_secs(step);
            assert!(!fallback.update(now, step, Some(1000)));
        }
    }
}
