//! The loop that both ends of a transfer share: packets in, the machine's clock, packets out, events to the
//! application.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Duration as StdDuration;

use linux_net::poll::{self, Watch};
use ltp::relayed::AttachmentEvent;
use ltp::{Duration, Instant};

use crate::machine::{Peer, Relayed};
use crate::net::Net;
use crate::relays::{Absence, NoRelay};
use crate::version::FirstOther;
use crate::{Cancel, Error, Recovery, clock};

/// Longest sleep, which bounds the delay of everything that does not wake the loop.
const LONGEST_SLEEP: StdDuration = StdDuration::from_millis(500);
/// Time between two events about the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// What a step came to.
pub(crate) enum Step<T> {
    Ended(T),
    /// There may be more to do at once.
    Busy,
    Idle(Instant),
}

/// One end of a transfer.
pub(crate) trait Transfer {
    type Event;
    type Outcome;

    /// Handles packets that have arrived, and sends those that are due.
    fn step(&mut self) -> Result<Step<Self::Outcome>, Error>;
    /// Waits for a packet, a timeout or a command.
    fn sleep(&mut self, now: Instant) -> Result<(), Error>;
    /// Returns the events that wait for the application.
    fn events(&mut self) -> &mut VecDeque<Self::Event>;
    /// Tells the peers that this host leaves.
    fn leave(&mut self);

    /// Runs the transfer to its end, and tells `observer` what happens.
    fn drive(&mut self, observer: &mut dyn FnMut(Self::Event)) -> Result<Self::Outcome, Error> {
        loop {
            let result = self.step();
            self.events().drain(..).for_each(&mut *observer);
            match result? {
                Step::Ended(outcome) => return Ok(outcome),
                Step::Busy => {}
                Step::Idle(now) => self.sleep(now)?,
            }
        }
    }

    /// Runs the transfer to its end and leaves.
    fn complete(mut self, observer: &mut dyn FnMut(Self::Event)) -> Result<Self::Outcome, Error>
    where
        Self: Sized,
    {
        let outcome = self.drive(observer);
        self.leave();
        outcome
    }
}

/// What both ends have: sockets, a machine, and events for the application.
pub(crate) struct Core<R: Relayed, E> {
    pub(crate) net: Net,
    pub(crate) machine: Peer<R>,
    pub(crate) cancel: Cancel,
    /// Events that wait for the application.
    pub(crate) events: VecDeque<E>,
    pub(crate) failed: Option<Error>,
    pub(crate) other_version: FirstOther,
    /// The time without a relay, with [`Recovery::Dyram`].
    absence: Option<Absence>,
    /// The position of the last event about it.
    position: (u64, Option<u64>),
    next_progress: Instant,
}

impl<R: Relayed, E> Core<R, E> {
    pub(crate) fn new(
        net: Net,
        machine: Peer<R>,
        recovery: &Recovery,
        cancel: Cancel,
        first_event: E,
        now: Instant,
    ) -> Self {
        let relays = recovery.relays();
        Core {
            net,
            machine,
            cancel,
            events: VecDeque::from([first_event]),
            failed: None,
            other_version: FirstOther::default(),
            absence: (!relays.is_empty()).then(|| Absence::new(relays.to_vec())),
            position: (0, None),
            next_progress: now + PROGRESS_INTERVAL,
        }
    }

    /// Sends the packets that are due, one or several at once. Returns false when there is nothing more to send.
    pub(crate) fn transmit(&mut self, now: Instant) -> Result<bool, Error> {
        let machine = &mut self.machine;
        self.net.send(|buffer| machine.poll_transmit(now, buffer))
    }

    /// Leaves the relay, which otherwise notices by timeout.
    pub(crate) fn leave_relay(&mut self) {
        let machine = &mut self.machine;
        if let Err(error) = self.net.send(|buffer| machine.leave(buffer)) {
            tracing::debug!(%error, "leaving the relay failed");
        }
    }

    /// Handles an event of the attachment to a relay.
    pub(crate) fn relay_event(&mut self, event: AttachmentEvent) {
        if let Some(absence) = &mut self.absence {
            absence.handle_event(event);
        }
    }

    /// Updates the time without a relay. Returns the error once that is as long as `limit`.
    pub(crate) fn check_relays(&mut self, limit: StdDuration) -> Option<NoRelay> {
        let attached = self.machine.relayed()?.is_attached();
        self.absence.as_mut()?.update(attached);
        self.no_relay(limit)
    }

    /// Returns the error when no relay has served this host for that time.
    pub(crate) fn no_relay(&self, limit: StdDuration) -> Option<NoRelay> {
        self.absence.as_ref()?.error(limit)
    }

    /// Returns whether the position has changed since the last call.
    pub(crate) fn has_moved(&mut self, position: (u64, Option<u64>)) -> bool {
        std::mem::replace(&mut self.position, position) != position
    }

    /// Returns whether an event about the progress is due, once a second.
    pub(crate) fn is_progress_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next_progress;
        if is_due {
            self.next_progress = now + PROGRESS_INTERVAL;
        }
        is_due
    }

    /// Waits for a packet or one of `watches`, until the machine's timeout or `deadline`.
    pub(crate) fn wait(
        &self,
        now: Instant,
        deadline: Option<Instant>,
        watches: impl IntoIterator<Item = impl AsFd>,
    ) -> Result<(), Error> {
        // What did not fit the kernel's buffer goes first.
        let is_blocked = self.net.is_blocked();
        let machine = self.machine.poll_timeout(now).filter(|_| !is_blocked);
        let lms = self.net.lms.as_ref().and_then(|lms| lms.poll_timeout());
        let next = [machine, lms, deadline].into_iter().flatten().min();
        let timeout = clock::until(now, next, LONGEST_SLEEP);
        if timeout.is_zero() {
            return Ok(());
        }
        let watches: Vec<_> = watches.into_iter().collect();
        let mut set = self.net.watches();
        set.extend(watches.iter().map(|fd| Watch::readable(fd.as_fd())));
        poll::wait(&mut set, Some(timeout)).map_err(Error::io("waiting"))?;
        Ok(())
    }
}
