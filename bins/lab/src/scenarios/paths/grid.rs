//! The paths: what shapes them, round trip, loss, receivers, queue.

use std::fmt;

use crate::prelude::*;

/// The sender's link.
pub(super) const RATE_BPS: u64 = 100_000_000;
/// A full Ethernet frame.
const FRAME: usize = 1_514;
/// The mean length of a burst of losses, in frames.
const BURST: f64 = 8.0;

/// What `--shaper` takes.
pub(super) const SHAPERS: [&str; 3] = ["all", "emulator", "htb"];
/// What `--loss` takes.
pub(super) const LOSSES: [&str; 5] = ["all", "0", "0.1", "1", "bursts"];
/// What `--queue` takes.
pub(super) const QUEUES: [&str; 4] = ["all", "short", "bdp", "deep"];

/// What shapes a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Shaping {
    /// The lab's link emulator.
    Emulator,
    /// HTB on the sender's interface, nftables at the receivers.
    Htb,
}

/// The loss at each receiver.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Loss {
    /// As `--loss` names it.
    pub(super) name: &'static str,
    /// The share of packets.
    pub(super) share: f64,
    /// The mean number of packets lost in a row; 0 where each is lost independently.
    pub(super) burst: f64,
}

/// One path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Path {
    pub(super) shaping: Shaping,
    /// Added by the emulator.
    pub(super) rtt_ms: u64,
    pub(super) loss: Loss,
    pub(super) receivers: usize,
    /// As `--queue` names it.
    pub(super) queue: &'static str,
}

/// The ways of shaping that an option selects.
pub(super) fn shapings(asked: &[String]) -> impl Iterator<Item = Shaping> {
    chosen(asked, &SHAPERS).into_iter().map(|name| match name {
        "htb" => Shaping::Htb,
        _ => Shaping::Emulator,
    })
}

/// The losses that an option selects and that this way of shaping has.
pub(super) fn losses(asked: &[String], shaping: Shaping) -> Vec<Loss> {
    let all = chosen(asked, &LOSSES).into_iter().map(|name| Loss {
        name,
        share: match name {
            "0" => 0.0,
            "0.1" => 0.001,
            _ => 0.01,
        },
        burst: if name == "bursts" { BURST } else { 0.0 },
    });
    all.filter(|loss| shaping == Shaping::Emulator || loss.burst == 0.0)
        .collect()
}

/// The queues that an option selects.
pub(super) fn queues(asked: &[String]) -> Vec<&'static str> {
    chosen(asked, &QUEUES)
}

impl Path {
    /// Bytes that wait for the sender's link.
    pub(super) fn queue_bytes(&self) -> usize {
        let round_trip = usize::try_from(RATE_BPS / 8 * self.rtt_ms / 1_000).unwrap_or(usize::MAX);
        let (bytes, frames) = match self.queue {
            "short" => (round_trip / 8, 10),
            "bdp" => (round_trip, 20),
            _ => (round_trip.saturating_mul(4), 200),
        };
        bytes.max(frames * FRAME)
    }

    /// The same in full frames.
    pub(super) fn queue_packets(&self) -> u32 {
        u32::try_from(self.queue_bytes() / FRAME).unwrap_or(u32::MAX)
    }

    /// The sender's link; a plain wire where the system shapes it.
    pub(super) fn sender_link(&self) -> Shape {
        match self.shaping {
            Shaping::Htb => Shape::default(),
            Shaping::Emulator => Shape {
                delay: Duration::from_micros(self.rtt_ms * 500),
                rate_bps: RATE_BPS,
                queue_bytes: self.queue_bytes(),
                ..Shape::default()
            },
        }
    }

    /// Each receiver's link, with the receiver as its first node.
    pub(super) fn receiver_link(&self) -> Shape {
        if self.shaping == Shaping::Htb || self.loss.share == 0.0 {
            return Shape::default();
        }
        Shape {
            loss_burst: self.loss.burst,
            inbound_only: true,
            ..Shape::lossy(self.loss.share)
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shaping {
            Shaping::Emulator => write!(f, "{} ms", self.rtt_ms)?,
            Shaping::Htb => write!(f, "HTB")?,
        }
        let Loss { name, .. } = self.loss;
        let unit = if name == "bursts" { "" } else { " %" };
        write!(
            f,
            ", loss {name}{unit}, {} receivers, queue {}",
            self.receivers, self.queue
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(queue: &'static str, rtt_ms: u64) -> Path {
        let losses = losses(&["bursts".to_owned()], Shaping::Emulator);
        Path {
            shaping: Shaping::Emulator,
            rtt_ms,
            loss: losses[0],
            receivers: 1,
            queue,
        }
    }

    #[test]
    fn queues_grow_with_the_round_trip_and_hold_some_frames() {
        let bytes = |queue| [1, 20, 100].map(|rtt_ms| path(queue, rtt_ms).queue_bytes());
        assert_eq!(bytes("short"), [15_140, 31_250, 156_250]);
        assert_eq!(bytes("bdp"), [30_280, 250_000, 1_250_000]);
        assert_eq!(bytes("deep"), [302_800, 1_000_000, 5_000_000]);
    }

    #[test]
    fn the_system_has_no_bursts_and_no_emulated_links() {
        let all = ["all".to_owned()];
        assert_eq!(losses(&all, Shaping::Emulator).len(), 4);
        assert_eq!(losses(&all, Shaping::Htb).len(), 3);
        let path = Path {
            shaping: Shaping::Htb,
            ..path("bdp", 0)
        };
        assert!(path.sender_link().is_wire() && path.receiver_link().is_wire());
    }
}
