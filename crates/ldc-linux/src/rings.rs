//! The receiving ends of one or several rings, as one: what a drain claims from.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ldc_ring::schedule::{MAX_CLASSES, Scheduler};
use ldc_ring::{AckQueueFull, Claimed, ConsumerStats, Corrupt, Ticket};
use linux_net::poll::Set;

use crate::error::InitError;
use crate::memory::Consumer;
use crate::{Receiver, Sender, Shape, Wake, ends};

/// One ring per class of messages, claimed in the order of a [`Scheduler`]; or a single ring, claimed in the order in
/// which it was filled: `Rings::from(receiver)`.
pub struct Rings {
    /// By class. The scheduler has as many.
    rings: Vec<Receiver>,
    scheduler: Scheduler,
    /// With more than one ring, the descriptors of those that have not ended.
    set: Option<Set>,
    /// By class: the descriptor of the ring is in `set`.
    watched: [bool; MAX_CLASSES],
}

/// A claimed message and the class of its ring.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) class: usize,
    pub(crate) message: Claimed,
}

/// Slots released since the senders were last told, by class.
#[derive(Debug, Default)]
pub(crate) struct Freed([u32; MAX_CLASSES]);

impl Rings {
    /// Joins several rings.
    ///
    /// # Errors
    /// There are more or fewer rings than the scheduler has classes, or no descriptor is left.
    pub fn new(rings: Vec<Receiver>, scheduler: Scheduler) -> Result<Rings, InitError> {
        if rings.len() != scheduler.classes() {
            return Err(InitError::Classes {
                rings: rings.len(),
                classes: scheduler.classes(),
            });
        }
        let set = (rings.len() > 1).then(|| {
            let set = Set::new()?;
            for (class, ring) in (0..).zip(&rings) {
                set.add(ring.as_fd(), class, true, false)?;
            }
            io::Result::Ok(set)
        });
        let set = set.transpose();
        Ok(Rings {
            rings,
            scheduler,
            set: set.map_err(InitError::io("cannot wait for several rings"))?,
            watched: [true; MAX_CLASSES],
        })
    }

    /// Creates a ring of this shape for each class of a scheduler, and returns the senders by class.
    ///
    /// # Errors
    /// The memory cannot be allocated, or no descriptor is left.
    pub fn create(shape: Shape, scheduler: Scheduler) -> Result<(Vec<Sender>, Rings), InitError> {
        let pairs = (0..scheduler.classes()).map(|_| ends::pair(shape));
        let pairs: Vec<(Sender, Receiver)> = pairs.collect::<Result<_, _>>()?;
        let (senders, receivers) = pairs.into_iter().unzip();
        Ok((senders, Rings::new(receivers, scheduler)?))
    }

    /// Claims the next message of all rings.
    pub(crate) fn claim(&mut self, now: crate::Instant) -> Result<Option<Taken>, Corrupt> {
        let rings = &mut self.rings;
        let taken = self
            .scheduler
            .claim(|class| rings[class].claim(Some(now)))?;
        Ok(taken.map(|(class, message)| Taken { class, message }))
    }

    /// Passes over the cancelled messages that are next in each ring, so that their slots become free although nothing
    /// can be sent.
    pub(crate) fn skip_cancelled(&mut self) -> Result<(), Corrupt> {
        self.rings.iter_mut().try_for_each(Receiver::skip_cancelled)
    }

    /// Reports to the sender of a class that a message was acknowledged.
    pub(crate) fn ack(&mut self, class: usize, ticket: Ticket) -> Result<(), AckQueueFull> {
        self.rings[class].ring().ack(ticket)
    }

    /// Returns the consumer that claimed a message.
    pub(crate) fn consumer(&self, taken: &Taken) -> &Consumer {
        self.rings[taken.class].consumer()
    }

    /// Releases a message; the sender learns of it by [`Rings::wake_senders`].
    pub(crate) fn complete(&mut self, taken: Taken, freed: &mut Freed) {
        freed.0[taken.class] += self.rings[taken.class].complete_silently(taken.message);
    }

    /// Wakes the senders that wait for the released slots.
    pub(crate) fn wake_senders(&mut self, freed: Freed) {
        for (ring, slots) in self.rings.iter_mut().zip(freed.0) {
            if slots > 0 {
                ring.freed(slots);
            }
        }
    }

    /// Returns the counters of all rings together.
    pub(crate) fn stats(&mut self) -> ConsumerStats {
        let mut sum = ConsumerStats::default();
        for ring in &mut self.rings {
            let stats = ring.ring().stats();
            sum.claimed += stats.claimed;
            sum.cancelled += stats.cancelled;
            sum.expired += stats.expired;
        }
        sum
    }

    /// Returns whether all senders have closed their rings. Messages may remain.
    pub(crate) fn is_closed(&self) -> bool {
        let mut rings = self.rings.iter();
        rings.all(|ring| ring.consumer().is_closed())
    }

    /// Returns whether all senders have closed their rings, and all messages were claimed.
    pub(crate) fn is_ended(&self) -> bool {
        self.rings.iter().all(Receiver::is_ended)
    }

    /// Asks the senders that have not closed their rings for a wake-up. Returns `false` if the receiver must not sleep:
    /// a message can be claimed.
    pub(crate) fn enter_idle(&mut self) -> bool {
        self.forget_ended();
        let mut idle = true;
        for ring in self.rings.iter_mut().filter(|ring| !ring.is_ended()) {
            idle &= ring.enter_idle();
        }
        idle
    }

    /// Stops waiting for rings that have ended: their descriptors stay readable.
    fn forget_ended(&mut self) {
        let Some(set) = &self.set else { return };
        for (ring, watched) in self.rings.iter().zip(&mut self.watched) {
            if *watched && ring.is_ended() {
                // It is in the set.
                let _ = set.remove(ring.as_fd());
                *watched = false;
            }
        }
    }

    /// Discards pending wake-ups. [`Wake::Gone`] if a sender died.
    pub(crate) fn clear_wakeup(&mut self) -> Wake {
        let open = self.rings.iter_mut().filter(|ring| !ring.is_ended());
        let wakes = open.map(Receiver::clear_wakeup);
        wakes.fold(Wake::Ready, |all, wake| match wake {
            Wake::Gone => Wake::Gone,
            _ => all,
        })
    }
}

impl From<Receiver> for Rings {
    fn from(receiver: Receiver) -> Rings {
        Rings {
            rings: vec![receiver],
            scheduler: Scheduler::ONE,
            set: None,
            watched: [true; MAX_CLASSES],
        }
    }
}

impl AsFd for Rings {
    /// Returns the descriptor that becomes readable when a sender wakes the receiver.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.set {
            Some(set) => set.as_fd(),
            None => self.rings[0].as_fd(),
        }
    }
}
