//! The policies of the sender: what it drops, and when (LDC §5.1.2, §5.3, §3.2.3).

use std::time::Duration;

use ldc_linux::{Attributes, Instant, SendError, Sender, WaitError, window};

use crate::args::Policy;
use crate::layers::{Layers, Piece};
use crate::wire::MAX_LAYERS;

/// Messages by their outcome at the sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) offered: u64,
    pub(crate) offered_bytes: u64,
    /// Dropped by the policy.
    pub(crate) dropped: u64,
    /// Refused by a full ring.
    pub(crate) refused: u64,
    /// Without a ring: already late when they would have been written.
    pub(crate) skipped: u64,
}

/// Returns the sequence number of all messages of one layer in one window.
fn seq(window: u32, layer: usize) -> u64 {
    u64::from(window) * u64::from(MAX_LAYERS) + layer as u64
}

/// Returns the window of a sequence number.
fn window_of(seq: u64) -> u64 {
    seq / u64::from(MAX_LAYERS)
}

/// Returns the ring of a layer: with several rings each layer has its own, the base layer the most important one.
pub(crate) fn ring_of(rings: &mut [Sender], layer: usize) -> &mut Sender {
    let last = rings.len() - 1;
    &mut rings[layer.min(last)]
}

/// A policy, applied to the rings of a stream.
pub(crate) struct Choice<'a> {
    policy: Policy,
    layers: &'a Layers,
    /// Start of the stream by the clock of deadlines.
    start: Instant,
}

impl<'a> Choice<'a> {
    pub(crate) fn new(policy: Policy, layers: &'a Layers, start: Instant) -> Choice<'a> {
        Choice {
            policy,
            layers,
            start,
        }
    }

    /// Returns when a layer of a window is due; with priority-progress, all layers at the start of the window.
    pub(crate) fn due(&self, window: u32, layer: usize) -> Duration {
        if self.policy == Policy::PriorityProgress {
            self.layers.due(window, 0)
        } else {
            self.layers.due(window, layer)
        }
    }

    /// Returns when a layer of a window becomes stale: at the end of the window, the base layer one window later.
    fn deadline(&self, window: u32, layer: usize) -> Instant {
        let end = match layer {
            0 => self.layers.end(window) + self.layers.window,
            _ => self.layers.end(window),
        };
        let us = u64::try_from(end.as_micros()).unwrap_or(u64::MAX);
        self.start + ldc_linux::Duration::from_micros(us)
    }

    /// Returns the priority of a layer's messages: that of the base layer is the largest, so that it never leaves as
    /// datagrams.
    fn priority(&self, layer: usize) -> u32 {
        match layer {
            0 => u32::MAX,
            _ => (self.layers.count - layer) as u32,
        }
    }

    /// Drops stale data before a layer of a window is sent.
    pub(crate) fn prepare(
        &self,
        rings: &mut [Sender],
        window: u32,
        layer: usize,
        counts: &mut Counts,
    ) {
        match self.policy {
            Policy::LowestFirst if layer == 0 => {
                if let Some(last) = window.checked_sub(1) {
                    self.drop_window(rings, last, counts);
                }
            }
            Policy::Naive => {
                for ring in rings {
                    counts.dropped += u64::from(ring.ring().retain(|_| false).changed);
                }
            }
            _ => {}
        }
    }

    /// Drops the layers of a window that has ended (`lowest-first`), the highest first. What has left already is given up
    /// too, where the transport can do that. Keeps the base layer while its ring has room for one more window.
    fn drop_window(&self, rings: &mut [Sender], window: u32, counts: &mut Counts) {
        for layer in (1..self.layers.count).rev() {
            let ring = ring_of(rings, layer);
            counts.dropped += u64::from(ring.abandon(seq(window, layer)).changed);
            ring.notify();
        }
        let needed = self.layers.messages_per_window() / rings.len() as u64;
        for ring in rings {
            if u64::from(ring.ring().free_slots()) < needed {
                let keep = u64::from(window);
                let old = ring.ring().retain(|sent| window_of(sent.user_seq) >= keep);
                counts.dropped += u64::from(old.changed);
            }
        }
    }

    /// Drops stale data after the last window.
    pub(crate) fn end(&self, rings: &mut [Sender], windows: u32, counts: &mut Counts) {
        if let (Policy::LowestFirst, Some(last)) = (self.policy, windows.checked_sub(1)) {
            self.drop_window(rings, last, counts);
        }
    }

    /// Puts a layer of a window into its ring.
    ///
    /// # Errors
    /// The ring is closed.
    pub(crate) fn send(
        &self,
        rings: &mut [Sender],
        piece: &Piece,
        counts: &mut Counts,
    ) -> Result<(), SendError> {
        let ring = ring_of(rings, piece.layer);
        let attributes = Attributes {
            deadline: (self.policy == Policy::Deadline)
                .then(|| self.deadline(piece.window, piece.layer)),
            priority: self.priority(piece.layer),
        };
        let number = seq(piece.window, piece.layer);
        for message in &piece.messages {
            let sent = if self.policy == Policy::None {
                // Returns regularly to check for an interrupt.
                let timeout = Some(Duration::from_millis(200));
                loop {
                    match ring.send_wait(number, message, attributes, timeout) {
                        Err(SendError::Full) if !cli::interrupt::raised() => {}
                        sent => break sent,
                    }
                }
            } else {
                ring.send(number, message, attributes)
            };
            match sent {
                Ok(()) => {}
                Err(SendError::Full | SendError::TooLong) => counts.refused += 1,
                Err(error) => return Err(error),
            }
        }
        ring.notify();
        Ok(())
    }

    /// Puts all layers of a window into the ring (`priority-progress`), the base layer first, as far as there is room
    /// before the window ends.
    ///
    /// # Errors
    /// The ring is closed.
    pub(crate) fn send_window(
        &self,
        rings: &mut [Sender],
        pieces: &[Piece],
        counts: &mut Counts,
    ) -> Result<(), SendError> {
        let Some(window) = pieces.first().map(|piece| piece.window) else {
            return Ok(());
        };
        let ring = ring_of(rings, 0);
        let units = pieces.iter().flat_map(|piece| {
            piece.messages.iter().map(|message| window::Unit {
                user_seq: seq(window, piece.layer),
                priority: self.priority(piece.layer),
                bytes: message,
            })
        });
        let mut units: Vec<window::Unit<'_>> = units.collect();
        let end = self.deadline(window, 1);
        let mut progress = window::Window::new(&mut units, end);
        loop {
            let outcome = progress.progress(ldc_linux::now(), ring.ring());
            ring.notify();
            if let Some(outcome) = outcome {
                counts.refused += (outcome.late + outcome.too_long) as u64;
                return Ok(());
            }
            let timeout = Duration::from_millis(50);
            match ring.wait_room(1, Some(timeout)) {
                Ok(()) | Err(WaitError::TimedOut) if !cli::interrupt::raised() => {}
                Err(WaitError::Gone) => return Err(SendError::Gone),
                Err(WaitError::Closed) => return Err(SendError::Closed),
                _ => return Ok(()),
            }
        }
    }
}
