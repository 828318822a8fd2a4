//! The loop: packets in, the machine's clock, packets out, events to the application.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration as StdDuration;

use linux_net::wake::Waker;
use ltp::relayed;
use ltp::{Assist, Duration, Failure, Instant, ReceiverConfig, ReceiverEvent, ReceiverStats};

use super::config::ReceiveConfig;
use super::destination::Destination;
use super::event::{ReceiveEvent, Received};
use super::sink::Content;
use super::{Sink, setup};
use crate::clock::span;
use crate::machine::{Gather, Peer};
use crate::net::Net;
use crate::transfer::{Core, Step, Transfer};
use crate::version::FirstOther;
use crate::{Cancel, Error, Incomplete, clock, output};

/// Default time that a replier stays after the last request.
const LINGER: Duration = Duration::from_secs(3);
/// Time for the last packets to leave.
const LEAVE_TIMEOUT: StdDuration = StdDuration::from_millis(300);
/// Ranges named in an error.
const MAX_RANGES: usize = 1000;

type Machine = relayed::Receiver<'static, Content>;

/// A transfer from a sender.
///
/// [`open`](Receiver::open) it, [`run`](Receiver::run) it to its end, [`close`](Receiver::close) it; its
/// counters can be read at any time. [`receive`](crate::receive) does all of this.
pub struct Receiver {
    given: ReceiveConfig,
    began: Instant,
    core: Core<Machine, ReceiveEvent>,
    config: ReceiverConfig,
    destination: Destination,
    /// Events of the machine that wait; and for each `Opened` among them the result of opening the destination.
    pending_events: VecDeque<relayed::ReceiverEvent>,
    openings: VecDeque<Result<String, Error>>,
    /// Wakes the loop when the writer's queue has space again.
    waker: Waker,
    /// When the session was found.
    opened: Option<Instant>,
    complete: Option<(u64, Option<[u8; 32]>)>,
    received: Option<Received>,
    /// Since when this receiver only repairs losses of other receivers, and when a request last came.
    serving: Option<(Instant, Instant)>,
    requests_taken: u64,
}

impl Receiver {
    /// Opens the sockets and joins the group.
    ///
    /// `observer` is called with [`ReceiveEvent::LmsUnprivileged`] alone.
    ///
    /// # Errors
    /// No interface leads to the group, a socket cannot be opened, the group cannot be joined, or the
    /// configuration contradicts itself.
    pub fn open(
        given: &ReceiveConfig,
        sink: Sink,
        cancel: Cancel,
        observer: &mut dyn FnMut(ReceiveEvent),
    ) -> Result<Receiver, Error> {
        setup::check(given)?;
        sink.check()?;
        let carrier = given.recovery.carrier();
        let local = given.group.local(carrier, given.source)?;
        let now = clock::now();
        let lms = setup::open_lms(given, &local, now, observer)?;
        let net = match carrier {
            None => Net::receiver(given, &local, lms)?,
            Some(_) => Net::relayed_receiver(given, &local)?,
        };
        let relays = given.recovery.relays();
        let assist = match (relays, &net.lms) {
            ([_, ..], _) => Assist::Dyram,
            ([], Some(_)) => Assist::Lms,
            ([], None) => Assist::None,
        };
        let config = setup::config(given, assist, sink.is_in_order());
        let waker = Waker::new().map_err(Error::io("eventfd"))?;
        let destination = Destination::new(sink, &waker).map_err(Error::io("starting a thread"))?;
        let receiver = setup::receiver(&config, now)?;
        let machine = match given.source.filter(|_| !relays.is_empty()) {
            Some(source) => {
                let group = given.group.address.ip();
                let names = relays.iter().copied().collect();
                let seed = clock::seed()?;
                let receiver = relayed::Receiver::new(receiver, source, group, names, seed, now)
                    .ok_or(Error::Config(
                        "source and group are of different address families",
                    ))?;
                Peer::Relayed(Box::new(receiver), Gather::new(1, 0))
            }
            None => Peer::Alone(Box::new(receiver)),
        };
        let interface = local.interface.name;
        let waiting = ReceiveEvent::Waiting { interface };
        Ok(Receiver {
            core: Core::new(net, machine, &given.recovery, cancel, waiting, now),
            given: given.clone(),
            began: now,
            config,
            destination,
            pending_events: VecDeque::new(),
            openings: VecDeque::new(),
            waker,
            opened: None,
            complete: None,
            received: None,
            serving: None,
            requests_taken: 0,
        })
    }

    /// Receives until the content is where it belongs, then repairs losses of others for
    /// [`ReceiveConfig::linger`], and tells `observer` what happens.
    ///
    /// # Errors
    /// The content is not whole and will not be, it cannot be written, or the transfer was canceled before it
    /// was complete.
    pub fn run(&mut self, observer: &mut dyn FnMut(ReceiveEvent)) -> Result<Received, Error> {
        self.drive(observer)
    }

    fn receive(&mut self, now: Instant) -> Result<usize, Error> {
        let Receiver {
            core,
            destination,
            pending_events,
            openings,
            ..
        } = self;
        let (machine, other_version) = (&mut core.machine, &mut core.other_version);
        let pieces = core.net.receive(now, |meta, packet| {
            machine.handle_packet(now, meta, packet, other_version);
            while let Some(event) = machine.poll_event() {
                if let relayed::ReceiverEvent::Receiver(ReceiverEvent::Opened {
                    session,
                    start,
                    ..
                }) = event
                {
                    openings.push_back(destination.open(machine.inner_mut(), session, start));
                }
                pending_events.push_back(event);
            }
        })?;
        let router = core.net.lms.as_mut().map(|lms| lms.other_version());
        let others = [Some(other_version), router].into_iter().flatten();
        let new = others.filter_map(FirstOther::take_new);
        core.events.extend(new.map(ReceiveEvent::OtherVersion));
        Ok(pieces)
    }

    fn take_events(&mut self, now: Instant) -> Result<(), Error> {
        while let Some(event) = self
            .pending_events
            .pop_front()
            .or_else(|| self.core.machine.poll_event())
        {
            match event {
                relayed::ReceiverEvent::Receiver(event) => self.event(now, event)?,
                relayed::ReceiverEvent::Relay(event) => {
                    self.core.relay_event(event);
                    self.core.events.push_back(ReceiveEvent::Relay(event));
                }
            }
        }
        if self.core.failed.is_none() {
            self.core.failed = self
                .destination
                .reserve(self.core.machine.inner_mut())
                .err();
        }
        Ok(())
    }

    fn event(&mut self, now: Instant, event: ReceiverEvent) -> Result<(), Error> {
        match event {
            ReceiverEvent::Opened {
                session,
                source,
                length,
                start,
            } => {
                self.join_routers(now);
                self.opened = Some(now);
                let name = self.openings.pop_front();
                let name = name.ok_or(Error::Config("a session began twice"))??;
                tracing::info!(event = "session_opened", %session, peer = %source, name, "receiving");
                let path = self.destination.path().map(Into::into);
                self.core.events.push_back(ReceiveEvent::Opened {
                    session,
                    source,
                    name,
                    path,
                    length,
                    start,
                });
            }
            ReceiverEvent::Resumed { session } => {
                self.join_routers(now);
                self.core
                    .events
                    .push_back(ReceiveEvent::Resumed { session });
            }
            ReceiverEvent::BlockRejected { block } => {
                tracing::warn!(
                    event = "block_rejected",
                    block,
                    "the digest of a block was wrong; it is requested again"
                );
                self.core
                    .events
                    .push_back(ReceiveEvent::BlockRejected { block });
            }
            ReceiverEvent::Complete { length, digest } => self.complete = Some((length, digest)),
            ReceiverEvent::Failed { failure, .. } => self.fail(now, failure)?,
        }
        Ok(())
    }

    /// Offers to repair the source's data.
    fn join_routers(&mut self, now: Instant) {
        let receiver = self.core.machine.inner();
        let counters = receiver.loss_counters();
        if let (Some(lms), Some(source)) = (&mut self.core.net.lms, receiver.source()) {
            lms.join(now, source, counters);
        }
    }

    /// When it has waited long enough for a sender, unless one was heard.
    fn gives_up_at(&self) -> Option<Instant> {
        let wait = self.given.connect_timeout?;
        let is_waiting = self.core.machine.inner().source().is_none();
        is_waiting.then(|| self.began + span(wait))
    }

    fn fail(&mut self, now: Instant, failure: Failure) -> Result<(), Error> {
        if failure == Failure::NoSource {
            if self.gives_up_at().is_none_or(|at| now < at) {
                *self.core.machine.inner_mut() = setup::receiver(&self.config, now)?;
                return Ok(());
            }
            self.core.failed = Some(Error::NoSender {
                group: self.given.group.address,
                waited: (now - self.began).into(),
                other_version: self.core.other_version.get(),
            });
            return Ok(());
        }
        let receiver = self.core.machine.inner();
        let missing = receiver.missing().take(MAX_RANGES);
        let storage = receiver
            .store()
            .error()
            .filter(|_| failure == Failure::Store);
        self.core.failed = Some(Error::Incomplete(Box::new(Incomplete {
            failure,
            storage: storage.map(|error| output::explain(error, self.destination.folder())),
            no_relay: self.core.no_relay(StdDuration::ZERO),
            missing: missing.map(|range| (range.start, range.end)).collect(),
            length: receiver.progress().1,
        })));
        Ok(())
    }

    /// Fails the transfer when no relay has served it for too long.
    fn check_relays(&mut self) {
        let connect_timeout = self.given.connect_timeout.unwrap_or_default();
        let missing = self
            .core
            .check_relays(self.given.timeout.max(connect_timeout));
        if let Some(error) = missing.filter(|_| self.opened.is_none()) {
            self.core.failed = Some(error.into());
        }
    }

    fn show_progress(&mut self, now: Instant) {
        let (bytes, length) = self.progress();
        if self.opened.is_some() && self.core.has_moved((bytes, length)) {
            let position = ReceiveEvent::Position { bytes, length };
            self.core.events.push_back(position);
        }
        if self.core.is_progress_due(now) && self.opened.is_some() && self.serving.is_none() {
            let lost_packets = self.stats().lost_packets;
            self.core.events.push_back(ReceiveEvent::Progress {
                bytes,
                length,
                lost_packets,
            });
        }
    }

    /// The result, once there is one.
    fn outcome(&mut self, now: Instant) -> Result<Option<Received>, Error> {
        if let Some(failed) = self.core.failed.take() {
            return Err(failed);
        }
        if self.core.cancel.is_canceled() {
            // A receiver that serves others may leave at any time.
            return self.take_received().map(Some).ok_or(Error::Canceled);
        }
        if self.serving.is_none() {
            let is_drained = self
                .destination
                .is_drained(self.complete.map(|all| all.0))?;
            let Some((length, digest)) = self.complete.filter(|_| is_drained) else {
                return Ok(None);
            };
            self.finish(now, length, digest)?;
            self.serving = Some((now, now));
        }
        Ok(match self.has_served(now) {
            true => self.take_received(),
            false => None,
        })
    }

    /// The result for the caller, with the bytes of a buffer.
    fn take_received(&mut self) -> Option<Received> {
        let received = self.received.clone()?;
        let bytes = self.destination.take_bytes();
        Some(Received { bytes, ..received })
    }

    /// Everything is verified: gives the file its name.
    fn finish(&mut self, now: Instant, length: u64, digest: Option<[u8; 32]>) -> Result<(), Error> {
        self.destination.finish(self.core.machine.inner_mut())?;
        let opened = self.opened.unwrap_or(now);
        let received = Received {
            length,
            digest,
            path: self.destination.path().map(Into::into),
            elapsed: (now - opened).into(),
            existing: self.destination.is_adopted,
            bytes: Vec::new(),
        };
        self.received = Some(received.clone());
        self.core.events.push_back(ReceiveEvent::Complete(received));
        let stays = match self.given.linger {
            Some(linger) => !linger.is_zero(),
            None => self.config.assist != Assist::None,
        };
        if stays {
            let limit = self.given.linger;
            self.core.events.push_back(ReceiveEvent::Serving { limit });
        }
        Ok(())
    }

    /// Whether the time to repair losses of other receivers has passed.
    fn has_served(&mut self, now: Instant) -> bool {
        let taken = self.core.machine.inner().stats().requests_taken;
        let Some((since, last)) = &mut self.serving else {
            return false;
        };
        if taken > self.requests_taken {
            self.requests_taken = taken;
            *last = now;
        }
        match self.given.linger {
            Some(linger) => now - *since >= span(linger),
            None if self.config.assist == Assist::None => true,
            None => self.core.machine.inner().is_source_leaving() || now - *last >= LINGER,
        }
    }

    /// Removes an incomplete file, and tells the source, the relay and the routers that this host leaves; takes
    /// up to 0.3 s. Call it after [`run`](Receiver::run).
    pub fn close(&mut self) {
        self.leave();
    }

    /// Returns the bytes verified from the start on, and the length of the content, if known.
    #[must_use]
    pub fn progress(&self) -> (u64, Option<u64>) {
        self.core.machine.inner().progress()
    }

    /// Returns the counters of the protocol.
    #[must_use]
    pub fn stats(&self) -> &ReceiverStats {
        self.core.machine.inner().stats()
    }

    /// Returns how many packets from relays were dropped.
    #[must_use]
    pub fn relay_dropped(&self) -> u64 {
        self.core.machine.relay_dropped()
    }

    /// Returns how many packets the kernel dropped, because its buffer was full or, with LMS, because they
    /// were requests, which the socket of the data refuses.
    #[must_use]
    pub fn kernel_drops(&self) -> u64 {
        u64::from(self.core.net.dropped())
    }
}

impl Transfer for Receiver {
    type Event = ReceiveEvent;
    type Outcome = Received;

    fn step(&mut self) -> Result<Step<Received>, Error> {
        let now = clock::now();
        let pieces = self.receive(now)?;
        self.core.machine.handle_timeout(now);
        self.check_relays();
        if let Some(lms) = &mut self.core.net.lms {
            let receiver = self.core.machine.inner();
            lms.follow_loss(now, receiver.loss_counters());
            let stats = receiver.stats();
            lms.follow_answers(stats.requests_group, stats.requests_source);
            lms.drive(now);
        }
        while self.core.transmit(now)? {}
        self.take_events(now)?;
        let key = self.config.key;
        let receiver = self.core.machine.inner_mut();
        self.destination.compare_existing(now, receiver, key);
        let is_idle = pieces == 0;
        let all = is_idle || self.complete.is_some();
        self.destination.deliver(now, receiver, all)?;
        self.show_progress(now);
        if self.gives_up_at().is_some_and(|at| now >= at) {
            self.fail(now, Failure::NoSource)?;
        }
        if let Some(received) = self.outcome(now)? {
            return Ok(Step::Ended(received));
        }
        let is_comparing = self.destination.is_comparing(self.core.machine.inner());
        Ok(match is_idle && !is_comparing {
            true => Step::Idle(now),
            false => Step::Busy,
        })
    }

    fn sleep(&mut self, now: Instant) -> Result<(), Error> {
        let is_stream = self.destination.is_stream();
        let writer = is_stream.then(|| self.waker.as_fd());
        let watches: [Option<BorrowedFd<'_>>; 2] = [Some(self.core.cancel.as_fd()), writer];
        let watches = watches.into_iter().flatten();
        self.core.wait(now, self.gives_up_at(), watches)?;
        if is_stream {
            self.waker.reset();
        }
        Ok(())
    }

    fn events(&mut self) -> &mut VecDeque<ReceiveEvent> {
        &mut self.core.events
    }

    fn leave(&mut self) {
        if let Some(file) = self.core.machine.inner_mut().store_mut().file() {
            file.abandon();
        }
        let until = std::time::Instant::now() + LEAVE_TIMEOUT;
        let now = clock::now();
        self.core.machine.inner_mut().close(now);
        while self.core.transmit(now).is_ok_and(|sent| sent) {}
        self.core.leave_relay();
        let Some(lms) = &mut self.core.net.lms else {
            return;
        };
        lms.leave(now);
        while lms.is_leaving() && std::time::Instant::now() < until {
            std::thread::sleep(StdDuration::from_millis(5));
            lms.drive(clock::now());
        }
    }
}
