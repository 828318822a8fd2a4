//! One direction of an emulated link, as a machine: a frame arrives, and the pipe decides when (and
//! whether) it leaves. No clock, no socket; the same seed loses the same frames.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Shape;

/// Counters of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames received.
    pub arrived: u64,
    /// Bytes received, Ethernet headers included.
    pub arrived_bytes: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Dropped because the queue was full.
    pub overflowed: u64,
    /// Held back so that others overtake.
    pub reordered: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Frames handed on, copies included.
    pub delivered: u64,
    /// Frames that the other interface did not accept.
    pub refused: u64,
}

/// Departure times of a frame in nanoseconds, at most two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disposition {
    /// The frame itself; `None` when it is lost.
    pub first: Option<u64>,
    /// Its copy.
    pub second: Option<u64>,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Pipe {
    shape: Shape,
    random: u64,
    /// When the last accepted frame has left the transmitter.
    busy_until: u64,
    /// With jitter: departure time of the last frame.
    latest: u64,
    /// With bursts of losses: every frame is lost.
    bad: bool,
    pub(crate) counts: Counts,
}

const DEFAULT_QUEUE: usize = 256 * 1024;
/// Extra delay of a reordered frame, in addition to the time of four such frames.
const REORDER_NS: u64 = 300_000;

impl Pipe {
    /// A pipe with its own random sequence.
    pub fn new(shape: Shape, seed: u64) -> Pipe {
        Pipe {
            shape,
            random: seed,
            busy_until: 0,
            latest: 0,
            bad: false,
            counts: Counts::default(),
        }
    }

    /// Changes the shape from now on; frames in flight keep their times.
    pub fn reshape(&mut self, shape: Shape) {
        self.shape = shape;
    }

    /// SplitMix64: small, fast, and good enough to lose packets by.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn happens(&mut self, probability: f64) -> bool {
        // 53 random bits make a number in [0, 1).
        probability > 0.0 && ((self.next() >> 11) as f64) < probability * 9_007_199_254_740_992.0
    }

    /// Whether the next frame is lost.
    fn loses(&mut self) -> bool {
        let Shape {
            loss, loss_burst, ..
        } = self.shape;
        if loss_burst <= 1.0 {
            return self.happens(loss);
        }
        // The mean length of a burst and the share of bad frames give both transitions.
        let change = match self.bad {
            true => 1.0 / loss_burst,
            false => loss / (loss_burst * (1.0 - loss).max(f64::EPSILON)),
        };
        self.bad ^= self.happens(change);
        self.bad
    }

    /// Nanoseconds that a frame of this length takes on the link.
    fn serialize_ns(&self, len: usize) -> u64 {
        match self.shape.rate_bps {
            0 => 0,
            rate => {
                u64::try_from(len as u128 * 8_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX)
            }
        }
    }

    /// A frame of `len` bytes arrives at `now` (nanoseconds). `spared` frames are never lost on purpose.
    pub fn arrive(&mut self, now: u64, len: usize, spared: bool) -> Disposition {
        self.counts.arrived += 1;
        self.counts.arrived_bytes += len as u64;
        let takes = self.serialize_ns(len);
        let limit = if self.shape.queue_bytes == 0 {
            DEFAULT_QUEUE
        } else {
            self.shape.queue_bytes
        };
        let start = self.busy_until.max(now);
        if takes > 0 && start - now > self.serialize_ns(limit) {
            self.counts.overflowed += 1;
            return Disposition::default();
        }
        self.busy_until = start + takes;
        // A lost frame has used the transmitter: it is lost on the wire.
        if !spared && self.loses() {
            self.counts.lost += 1;
            return Disposition::default();
        }
        let delay = nanoseconds(self.shape.delay);
        let mut due = self.busy_until.saturating_add(delay);
        if !self.shape.jitter.is_zero() {
            let jitter = nanoseconds(self.shape.jitter).saturating_add(1);
            due = due.saturating_add(self.next() % jitter).max(self.latest);
            self.latest = due;
        }
        if self.happens(self.shape.reorder) {
            self.counts.reordered += 1;
            due += REORDER_NS + 4 * takes;
        }
        let mut disposition = Disposition {
            first: Some(due),
            second: None,
        };
        if self.happens(self.shape.duplicate) {
            self.counts.duplicated += 1;
            disposition.second = Some(due);
        }
        disposition
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_spaces_frames_and_a_full_queue_drops() {
        let shape = Shape {
            rate_bps: 8_000_000,
            queue_bytes: 2_000,
            delay: Duration::from_millis(1),
            ..Shape::default()
        };
        let mut pipe = Pipe::new(shape, 1);
        let out: Vec<_> = (0..5).map(|_| pipe.arrive(0, 1_000, false).first).collect();
        let ms = |n: u64| Some(n * 1_000_000);
        assert_eq!(out, [ms(2), ms(3), ms(4), None, None]);
        assert_eq!(pipe.counts.overflowed, 2);
        assert_eq!(pipe.arrive(10_000_000, 1_000, false).first, ms(12));
    }

    #[test]
    fn a_new_shape_holds_from_the_next_frame_on() {
        let slow = Shape {
            rate_bps: 8_000_000,
            ..Shape::default()
        };
        let mut pipe = Pipe::new(slow, 1);
        assert_eq!(pipe.arrive(0, 1_000, false).first, Some(1_000_000));
        pipe.reshape(Shape {
            rate_bps: 80_000_000,
            ..slow
        });
        assert_eq!(pipe.arrive(0, 1_000, false).first, Some(1_100_000));
    }

    #[test]
    fn losses_follow_the_seed_and_the_probability() {
        let lose = |seed| {
            let mut pipe = Pipe::new(Shape::lossy(0.02), seed);
            (0..100_000)
                .map(|_| pipe.arrive(0, 100, false).first.is_none())
                .collect::<Vec<_>>()
        };
        assert_eq!(lose(7), lose(7));
        assert_ne!(lose(7), lose(8));
        let lost = lose(7).iter().filter(|lost| **lost).count();
        assert!((1_850..2_150).contains(&lost), "{lost}");
    }

    #[test]
    fn bursts_have_their_mean_and_their_length() {
        let shape = Shape {
            loss_burst: 8.0,
            ..Shape::lossy(0.01)
        };
        let mut pipe = Pipe::new(shape, 3);
        let (mut lost, mut bursts, mut bad) = (0, 0, false);
        for _ in 0..1_000_000 {
            let is_lost = pipe.arrive(0, 100, false).first.is_none();
            bursts += u32::from(is_lost && !bad);
            lost += u32::from(is_lost);
            bad = is_lost;
        }
        assert!((9_000..11_000).contains(&lost), "{lost}");
        let length = f64::from(lost) / f64::from(bursts);
        assert!((7.5..8.5).contains(&length), "{length}");
    }

    #[test]
    fn jitter_delays_and_does_not_reorder() {
        let shape = Shape {
            delay: Duration::from_millis(5),
            jitter: Duration::from_millis(2),
            ..Shape::default()
        };
        let mut pipe = Pipe::new(shape, 1);
        let mut last = 0;
        let mut lateness = Vec::new();
        for at in 0..1_000 {
            let now = at * 500_000;
            let due = pipe.arrive(now, 1_000, false).first.unwrap();
            assert!(due >= last && due <= now + 7_000_000);
            lateness.push(due - now - 5_000_000);
            last = due;
        }
        assert!(lateness.iter().any(|late| *late < 200_000));
        assert!(lateness.iter().any(|late| *late > 1_800_000));
    }

    #[test]
    fn spared_frames_are_not_lost() {
        let mut pipe = Pipe::new(Shape::lossy(1.0), 1);
        assert!(pipe.arrive(0, 60, true).first.is_some());
        assert!(pipe.arrive(0, 60, false).first.is_none());
    }
}
