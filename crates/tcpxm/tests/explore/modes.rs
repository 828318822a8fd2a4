//! What is true of multicast to one receiver, and what the sender may conclude from it (TCP-XM §2.3, §2.5).

use std::collections::{BTreeSet, VecDeque};

use netsim::explore::Fingerprint;
use tcpxm::{ConnStats, FALL_BACK_LOSSES, FALL_FORWARD_PERCENT, FALL_FORWARD_SEGMENTS, Mode};

use crate::hosts::SEGMENT;

/// Segments that a receiver's feedback is about.
const REMEMBERED: usize = 128;

/// Bytes of the stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Segments with data that the sender sent in one call.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) multicast: Vec<Span>,
    /// By receiver.
    pub(crate) unicast: [Vec<Span>; 2],
}

/// Multicast to one receiver.
#[derive(Default)]
pub(crate) struct Reception {
    /// Whether each of the last segments came by multicast.
    arrivals: VecDeque<bool>,
    /// The sender's last fall-back: the end of what it had sent.
    fell_back_at: Option<u64>,
    /// Data from this offset on went by multicast alone.
    alone_from: u64,
    /// Those of these segments that were sent again, by number.
    again: BTreeSet<u64>,
    /// Those that were sent again since one arrived that was not.
    suspects: BTreeSet<u64>,
    /// Copies sent in multicast mode since one arrived.
    missed: u64,
}

impl Reception {
    /// A segment with data has arrived and counts.
    pub(crate) fn arrived(&mut self, multicast: bool) {
        if self.arrivals.len() == REMEMBERED {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(multicast);
        if multicast {
            self.missed = 0;
        }
    }

    /// The receiver has lost its memory.
    pub(crate) fn forget(&mut self) {
        self.arrivals.clear();
    }

    /// Checks the feedback of the receiver.
    pub(crate) fn check_feedback(&self, percent: u8) -> Result<(), String> {
        let count = self.arrivals.len().max(1) as f64;
        let multicast = self.arrivals.iter().filter(|&&multicast| multicast).count() as f64;
        let is_right = (100.0 * multicast / count - f64::from(percent)).abs() <= 0.5;
        match is_right {
            true => Ok(()),
            false => Err(format!("feedback {percent} %: {multicast} of {count}")),
        }
    }

    /// The receiver gets data again by unicast, in this mode.
    pub(crate) fn sent_again(&mut self, mode: Mode, span: Span) {
        if mode == Mode::Multicast && span.start >= self.alone_from {
            self.again.insert(span.start / SEGMENT);
            self.suspects.insert(span.start / SEGMENT);
        }
    }

    /// A copy to the group has left.
    pub(crate) fn sent_by_multicast(&mut self, mode: Mode) {
        self.missed += u64::from(mode == Mode::Multicast);
    }

    /// The receiver has acknowledged more.
    pub(crate) fn acknowledged(&mut self, before: u64, now: u64) {
        let mut segments = before.max(self.alone_from) / SEGMENT..now / SEGMENT;
        if segments.any(|segment| !self.again.contains(&segment)) {
            self.suspects.clear();
        }
    }

    /// Whether an acknowledgement with this feedback makes a receiver fall forward; `acknowledged`: its offset.
    pub(crate) fn falls_forward(&self, percent: u8, acknowledged: u64) -> bool {
        let (since, least) = match self.fell_back_at {
            None => (0, FALL_FORWARD_SEGMENTS),
            Some(offset) => (offset, REMEMBERED as u64),
        };
        let segments = acknowledged.saturating_sub(since) / SEGMENT;
        percent >= FALL_FORWARD_PERCENT && segments >= least
    }

    /// The mode of the receiver has changed.
    pub(crate) fn changed(
        &mut self,
        from: Mode,
        to: Mode,
        stats: &ConnStats,
    ) -> Result<(), String> {
        let sent = stats.acknowledged + stats.outstanding;
        match (from, to) {
            (Mode::UnicastGroup, Mode::UnicastGroupOnly) => {}
            (Mode::UnicastGroup, Mode::Multicast) => {
                self.alone_from = sent;
                self.missed = 0;
            }
            (Mode::Multicast, Mode::UnicastGroup) => {
                let first = stats.acknowledged.max(self.alone_from);
                self.suspects.extend(first / SEGMENT..sent / SEGMENT);
                let losses = self.suspects.len();
                if losses < FALL_BACK_LOSSES as usize {
                    return Err(format!("fell back after {losses} losses"));
                }
                self.fell_back_at = Some(sent);
                self.again.clear();
                self.suspects.clear();
            }
            _ => return Err(format!("changed from {from:?} to {to:?}")),
        }
        Ok(())
    }

    /// Checks that a receiver that missed two flights of this many segments, and three at least, has fallen back.
    pub(crate) fn check_end(&self, mode: Mode, flight: u64) -> Result<(), String> {
        let most = u64::from(FALL_BACK_LOSSES).max(2 * flight);
        if mode == Mode::Multicast && self.missed > most {
            return Err(format!("by multicast after {} losses", self.missed));
        }
        Ok(())
    }

    /// Adds what differs between states that are equal otherwise.
    pub(crate) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.hash(&(self.fell_back_at, self.alone_from, self.missed));
        fingerprint.hash(&(&self.again, &self.suspects));
    }
}

/// Checks that new data, from `from` on, went where the receiver's mode says. `unicast`: what went to it alone.
pub(crate) fn check_copies(
    mode: Mode,
    from: u64,
    multicast: &[Span],
    unicast: &[Span],
) -> Result<(), String> {
    let new = |span: &&Span| span.start >= from;
    let by_multicast: BTreeSet<Span> = multicast.iter().filter(new).copied().collect();
    let by_unicast: BTreeSet<Span> = unicast.iter().filter(new).copied().collect();
    let is_right = match mode {
        Mode::UnicastOnly => by_multicast.is_empty(),
        Mode::UnicastGroup => by_multicast == by_unicast,
        Mode::UnicastGroupOnly => by_multicast.is_subset(&by_unicast),
        Mode::Multicast | Mode::MulticastOnly => by_unicast.is_empty(),
    };
    match is_right {
        true => Ok(()),
        false => Err(format!(
            "{mode:?}: {by_multicast:?} by multicast, {by_unicast:?} by unicast"
        )),
    }
}
