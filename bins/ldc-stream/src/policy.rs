//! What the sender drops, and when (thesis §5.1.2, §5.3, §3.2.3).

use std::time::Duration;

use ldc_linux::{Attributes, Instant, SendError, Sender, WaitError, window};

use crate::args::Policy;
use crate::layers::{Layers, Piece};
use crate::wire::MAX_LAYERS;

/// Messages, by what became of them at the sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) offered: u64,
    pub(crate) offered_bytes: u64,
    /// Dropped by the policy.
    pub(crate) dropped: u64,
    /// A full ring did not take them.
    pub(crate) refused: u64,
    /// Late already when their turn came, without a ring.
    pub(crate) skipped: u64,
}

/// The number that all messages of one layer in one window share.
fn seq(window: u32, layer: usize) -> u64 {
    u64::from(window) * u64::from(MAX_LAYERS) + layer as u64
}

/// A window of a number.
fn window_of(seq: u64) -> u64 {
    seq / u64::from(MAX_LAYERS)
}

/// The ring, and what to do with it.
pub(crate) struct Choice<'a> {
    policy: Policy,
    layers: &'a Layers,
    /// The start by the clock of deadlines.
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

    /// When a layer of a window is due: with priority-progress all at once.
    pub(crate) fn due(&self, window: u32, layer: usize) -> Duration {
        if self.policy == Policy::PriorityProgress {
            self.layers.due(window, 0)
        } else {
            self.layers.due(window, layer)
        }
    }

    /// After this, a layer of a window is worth nothing: the window's end; the base layer has one more.
    fn deadline(&self, window: u32, layer: usize) -> Instant {
        let end = match layer {
            0 => self.layers.end(window) + self.layers.window,
            _ => self.layers.end(window),
        };
        let us = u64::try_from(end.as_micros()).unwrap_or(u64::MAX);
        self.start + ldc_linux::Duration::from_micros(us)
    }

    /// A layer of a window is due, and not in the ring yet: makes room for it by dropping what is stale.
    pub(crate) fn prepare(
        &self,
        ring: &mut Sender,
        window: u32,
        layer: usize,
        counts: &mut Counts,
    ) {
        match self.policy {
            Policy::LowestFirst if layer == 0 => {
                if let Some(last) = window.checked_sub(1) {
                    self.forget(ring, last, counts);
                }
            }
            Policy::Naive => counts.dropped += u64::from(ring.ring().retain(|_| false).changed),
            _ => {}
        }
    }

    /// A window is over (`lowest-first`): its layers are dropped, from the highest down, but for the base
    /// layer, which stays as long as there is room for a window beside it.
    fn forget(&self, ring: &mut Sender, window: u32, counts: &mut Counts) {
        for layer in (1..self.layers.count).rev() {
            counts.dropped += u64::from(ring.drop(seq(window, layer)).changed);
        }
        if u64::from(ring.ring().free_slots()) < self.layers.messages_per_window() {
            let keep = u64::from(window);
            let old = ring.ring().retain(|sent| window_of(sent.user_seq) >= keep);
            counts.dropped += u64::from(old.changed);
        }
    }

    /// The last window is over.
    pub(crate) fn end(&self, ring: &mut Sender, windows: u32, counts: &mut Counts) {
        if let (Policy::LowestFirst, Some(last)) = (self.policy, windows.checked_sub(1)) {
            self.forget(ring, last, counts);
        }
    }

    /// Puts a layer of a window into the ring.
    ///
    /// # Errors
    /// When nobody takes messages any more.
    pub(crate) fn send(
        &self,
        ring: &mut Sender,
        piece: &Piece,
        counts: &mut Counts,
    ) -> Result<(), SendError> {
        let attributes = Attributes {
            deadline: (self.policy == Policy::Deadline)
                .then(|| self.deadline(piece.window, piece.layer)),
            priority: 0,
        };
        let number = seq(piece.window, piece.layer);
        for message in &piece.messages {
            let sent = if self.policy == Policy::None {
                // Now and then to the caller, who may have been interrupted.
                let patience = Some(Duration::from_millis(200));
                loop {
                    match ring.send_wait(number, message, attributes, patience) {
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

    /// Puts all layers of a window into the ring, the base layer first, as far as there is room before its
    /// end (`priority-progress`).
    ///
    /// # Errors
    /// When nobody takes messages any more.
    pub(crate) fn send_window(
        &self,
        ring: &mut Sender,
        pieces: &[Piece],
        counts: &mut Counts,
    ) -> Result<(), SendError> {
        let Some(window) = pieces.first().map(|piece| piece.window) else {
            return Ok(());
        };
        let units = pieces.iter().flat_map(|piece| {
            piece.messages.iter().map(|message| window::Unit {
                user_seq: seq(window, piece.layer),
                priority: (self.layers.count - piece.layer) as u32,
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
            let look = Duration::from_millis(50);
            match ring.wait_room(1, Some(look)) {
                Ok(()) | Err(WaitError::TimedOut) if !cli::interrupt::raised() => {}
                Err(WaitError::Gone) => return Err(SendError::Gone),
                Err(WaitError::Closed) => return Err(SendError::Closed),
                _ => return Ok(()),
            }
        }
    }
}
