//! The loop: packets in, the machine's clock, packets out, events to the application.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration as StdDuration;

use linux_net::batching::Fallback;
use linux_net::poll::{self, Watch};
use ltp::relayed::{self, Stalled};
use ltp::store::HeapRing;
use ltp::{Duration, Instant, SenderEvent, SenderStats};

use super::adapt::{Counts, RateControl};
use super::config::SendConfig;
use super::event::{LimitingStatus, ReceiverStatus, SendEvent, SendOutcome, Unconfirmed};
use super::notice::RateNotice;
use super::setup;
use super::source::{Content, FileStore, Kind, Source, Stream};
use crate::machine::{Gather, Peer};
use crate::net::Net;
use crate::transfer::{Core, Step, Transfer};
use crate::{Cancel, Error, clock};

/// Batches sent before looking at what receivers say.
const BATCHES: usize = 4;
/// Time for the last packets to leave.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(300);

type Machine = relayed::Sender<'static, Content>;

/// A transfer to the receivers of a group.
///
/// [`open`](Sender::open) it, [`run`](Sender::run) it to its end, [`close`](Sender::close) it; its counters
/// can be read at any time. [`send`](crate::send) does all of this.
pub struct Sender {
    config: SendConfig,
    /// What messages call the content.
    shown: String,
    started: Instant,
    core: Core<Machine, SendEvent>,
    stream: Option<Stream>,
    control: RateControl,
    notice: RateNotice,
    /// Whether batches reach the receivers; `None`: none are sent.
    fallback: Option<Fallback>,
    /// Receivers, or relays, that the tree of relays no longer waits for, and the relay that says so.
    stalled: BTreeMap<SocketAddr, String>,
    all_complete: bool,
    /// When it began to leave, after it was canceled or because it failed.
    leaving: Option<Instant>,
}

impl Sender {
    /// Opens the sockets and, unless [`SendConfig::digest_first`] is false, reads the content once for its
    /// digest, which takes as long as the medium does.
    ///
    /// `observer` is called with [`SendEvent::Reading`] alone.
    ///
    /// # Errors
    /// No interface leads to the group, the content cannot be read, a socket cannot be opened, the
    /// configuration is out of bounds, or the transfer was canceled.
    pub fn open(
        config: &SendConfig,
        source: Source,
        cancel: Cancel,
        observer: &mut dyn FnMut(SendEvent),
    ) -> Result<Sender, Error> {
        setup::check(config)?;
        let carrier = config.recovery.carrier();
        let local = config.group.local(carrier, None)?;
        if carrier.is_none() && !local.interface.is_multicast && !local.interface.is_loopback {
            tracing::warn!(
                interface = local.interface.name,
                "the interface carries no multicast"
            );
        }
        let digest = first_digest(config, &source, &cancel, observer)?;
        let net = Net::sender(config, &local)?;
        let now = clock::now();
        let control = RateControl::new(config.rate, now);
        let relays = config.recovery.relays();
        let relayed = !relays.is_empty();
        let mut machine_config = setup::config(config, &local, &source, digest)?;
        machine_config.rate_bps = control.rate();
        let max_segments = net.sending().max_segments();
        machine_config.max_segments = if relayed { 1 } else { max_segments };
        let block_len = 1u64 << machine_config.block_exponent;
        let (length, shown) = (source.length(), source.shown());
        let (content, stream) = content(source, config.buffer_bytes, block_len)?;
        let name = String::from_utf8_lossy(&machine_config.name).into_owned();
        let seed = clock::seed()?;
        let sender = ltp::Sender::new(machine_config, content, seed, now)?;
        let session = sender.session();
        let socket = net
            .sending()
            .local_address()
            .map_err(Error::io("the socket's address"))?;
        let machine = if relayed {
            let group = config.group.address.ip();
            let names = relays.iter().copied().collect();
            let seed = clock::seed()?;
            let sender = relayed::Sender::new(sender, socket, group, names, seed, now).ok_or(
                Error::Config("source and group are of different address families"),
            )?;
            let sender = match config.recovery.is_beside_multicast() {
                true => sender.over_multicast(),
                false => sender,
            };
            let packet_len = sender.sender().geometry().packet_len() + 256;
            Peer::Relayed(Box::new(sender), Gather::new(max_segments, packet_len))
        } else {
            Peer::Alone(Box::new(sender))
        };
        let rate_bps = machine.inner().rate_bps();
        let opened = SendEvent::Opened {
            session,
            name,
            length,
            source: socket,
            interface: local.interface.name,
            rate_bps,
        };
        let core = Core::new(net, machine, &config.recovery, cancel, opened, now);
        Ok(Sender {
            core,
            config: config.clone(),
            shown,
            started: now,
            stream,
            notice: RateNotice::new(now, rate_bps),
            control,
            fallback: (max_segments > 1).then(|| Fallback::new(StdDuration::ZERO)),
            stalled: BTreeMap::new(),
            all_complete: false,
            leaving: None,
        })
    }

    /// Sends until the transfer has ended, and tells `observer` what happens.
    ///
    /// # Errors
    /// The content cannot be read, the network cannot be used, no relay answers, the transfer was canceled, or
    /// everything was sent but not confirmed ([`Error::Unconfirmed`]).
    pub fn run(&mut self, observer: &mut dyn FnMut(SendEvent)) -> Result<SendOutcome, Error> {
        self.drive(observer)
    }

    fn receive(&mut self, now: Instant) -> Result<(), Error> {
        let (core, control) = (&mut self.core, &mut self.control);
        let (machine, other_version) = (&mut core.machine, &mut core.other_version);
        core.net.receive(now, |meta, packet| {
            control.count_requester(meta.source);
            machine.handle_packet(now, meta, packet, other_version);
        })?;
        let other = other_version.take_new();
        core.events.extend(other.map(SendEvent::OtherVersion));
        Ok(())
    }

    /// Sends a few batches. Returns whether there may be more to send at once.
    fn transmit(&mut self) -> Result<bool, Error> {
        for _ in 0..BATCHES {
            if !self.core.transmit(clock::now())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves what the stream offers into the machine.
    fn feed(&mut self, now: Instant) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let sender = self.core.machine.inner_mut();
        while sender.room() > 0 && !stream.ended {
            if !stream.has_bytes() {
                let mut watch = [Watch::readable(stream.file.as_fd())];
                poll::wait(&mut watch, Some(StdDuration::ZERO)).map_err(Error::io("waiting"))?;
                if !watch[0].is_readable() {
                    break;
                }
            }
            let bytes = stream.fill().map_err(Error::io("cannot read the stream"))?;
            let taken = sender.send(now, bytes).map_err(|error| Error::Content {
                name: self.shown.clone(),
                reason: error.to_string(),
            })?;
            stream.take(taken);
        }
        if stream.ended && !stream.has_bytes() {
            sender.finish(now);
            self.stream = None;
        }
        Ok(())
    }

    fn adapt(&mut self, now: Instant) {
        let stats = self.core.machine.inner().stats();
        let counts = Counts {
            sent: stats.data_packets,
            requested: stats.requested_packets,
            frame_bytes: stats.frame_bytes,
        };
        let loss = self.core.machine.inner_mut().take_worst_loss();
        if self.control.update(now, counts, loss) {
            let rate_bps = self.control.rate();
            tracing::debug!(?rate_bps, "the rate follows what receivers miss");
            self.core.machine.inner_mut().set_rate(now, rate_bps);
        }
        self.try_single_datagrams(now, counts.sent);
        let rate_bps = self.core.machine.inner().rate_bps();
        if self.notice.is_due(now, rate_bps) {
            self.core.events.push_back(SendEvent::Rate { rate_bps });
        }
    }

    /// Sends single datagrams where segmentation batches are lost on the way.
    fn try_single_datagrams(&mut self, now: Instant, packets: u64) {
        let Some(fallback) = &mut self.fallback else {
            return;
        };
        let at = StdDuration::from_micros((now - self.started).total_micros());
        if !fallback.update(at, packets, self.control.loss()) {
            return;
        }
        self.core
            .net
            .sending()
            .set_segmentation(fallback.allows_batches());
        if fallback.is_off() {
            self.core.events.push_back(SendEvent::SegmentationOff);
        }
    }

    fn receiver_stalled(&mut self, stalled: Stalled) {
        let (address, relay) = (stalled.child, stalled.relay.to_string());
        tracing::warn!(
            event = "receiver_stalled",
            peer = %address,
            relay,
            "receiver does not advance; its relay no longer waits for it"
        );
        self.core.events.push_back(SendEvent::ReceiverStalled {
            address,
            relay: relay.clone(),
        });
        self.stalled.insert(address, relay);
    }

    /// Fails the transfer when no relay has served it for too long.
    fn check_relays(&mut self) {
        let missing = self.core.check_relays(self.config.timeout);
        if let Some(error) = missing.filter(|_| self.leaving.is_none()) {
            self.fail(error.into());
        }
    }

    /// Ends the transfer with an error, once the last packets have left.
    fn fail(&mut self, error: Error) {
        self.core.failed = Some(error);
        self.leaving = Some(clock::now());
    }

    fn show_progress(&mut self, now: Instant) {
        let (bytes, length) = self.progress();
        if self.core.has_moved((bytes, length)) {
            self.core
                .events
                .push_back(SendEvent::Position { bytes, length });
        }
        if !self.core.is_progress_due(now) {
            return;
        }
        let sender = self.core.machine.inner();
        let (joined, complete) = sender.receivers();
        let waiting_for = sender.waiting_for().map(|info| self.status(&info));
        self.core.events.push_back(SendEvent::Progress {
            bytes,
            length,
            joined,
            complete,
            rate_bps: sender.rate_bps(),
            waiting_for,
            limiting: sender.limiting().map(limiting_status),
        });
    }

    fn take_events(&mut self) {
        while let Some(event) = self.core.machine.poll_event() {
            match event {
                relayed::SenderEvent::Sender(event) => self.event(event),
                relayed::SenderEvent::Relay(event) => {
                    self.core.relay_event(event);
                    self.core.events.push_back(SendEvent::Relay(event));
                }
                relayed::SenderEvent::Stalled(stalled) => self.receiver_stalled(stalled),
            }
        }
    }

    fn event(&mut self, event: SenderEvent) {
        let bytes = |blocks| self.core.machine.inner().geometry().block_offset(blocks);
        let told = match event {
            SenderEvent::Started { joined } => {
                if let Some(expected) = self.config.receivers.filter(|expected| joined < *expected)
                {
                    tracing::warn!(
                        event = "started_early",
                        joined,
                        expected,
                        "started with {joined} of {expected} receivers"
                    );
                }
                SendEvent::Started { joined }
            }
            SenderEvent::Joined { receiver, address } => {
                tracing::info!(event = "receiver_joined", peer = %address, "receiver joined");
                SendEvent::Joined { receiver, address }
            }
            SenderEvent::ReceiverComplete { receiver, address } => {
                tracing::info!(event = "receiver_complete", peer = %address, "receiver complete");
                self.stalled.remove(&address);
                SendEvent::ReceiverComplete { receiver, address }
            }
            SenderEvent::ReceiverFailed {
                receiver,
                address,
                blocks,
                failure,
            } => SendEvent::ReceiverFailed {
                receiver,
                address,
                bytes: bytes(blocks),
                failure,
            },
            SenderEvent::RelayStalled { blocks } => {
                let bytes = bytes(blocks);
                tracing::warn!(
                    event = "relay_stalled",
                    bytes,
                    "the acknowledgement of the relay does not advance"
                );
                SendEvent::RelayStalled { bytes }
            }
            SenderEvent::Sent { length, digest } => SendEvent::Sent {
                length,
                digest,
                elapsed: self.elapsed(),
            },
            SenderEvent::Complete => {
                if self.config.receivers.is_some() {
                    self.all_complete = true;
                    self.core.machine.inner_mut().close(clock::now());
                }
                return;
            }
            SenderEvent::Finished => return,
            SenderEvent::StoreFailed => {
                self.content_failed();
                return;
            }
        };
        self.core.events.push_back(told);
    }

    fn content_failed(&mut self) {
        let error = self.core.machine.inner().store().error();
        let reason = match error {
            Some(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                "it became shorter while it was sent".to_owned()
            }
            Some(error) => error.to_string(),
            None => "it changed while it was sent".to_owned(),
        };
        let name = self.shown.clone();
        self.fail(Error::Content { name, reason });
    }

    /// The result, once nothing more will be sent.
    fn outcome(&mut self) -> Option<Result<SendOutcome, Error>> {
        let sender = self.core.machine.inner();
        if let Some(at) = self.leaving
            && (sender.is_ended() || clock::now() - at > LEAVE_TIMEOUT)
        {
            return Some(Err(self.core.failed.take().unwrap_or(Error::Canceled)));
        }
        if !sender.is_ended() || self.core.net.is_blocked() {
            return None;
        }
        if self.all_complete {
            return Some(Ok(SendOutcome::Complete));
        }
        let (joined, confirmed) = sender.receivers();
        let why = match self.config.receivers {
            Some(expected) => Unconfirmed::Receivers {
                expected,
                joined,
                confirmed,
            },
            None if self
                .core
                .machine
                .relayed()
                .is_some_and(|sender| !sender.is_heard()) =>
            {
                Unconfirmed::Unheard
            }
            None if !self.stalled.is_empty() => Unconfirmed::Stalled,
            None if sender.is_relay_stalled() => Unconfirmed::RelayStalled,
            None => return Some(Ok(SendOutcome::Sent)),
        };
        Some(Err(why.into()))
    }

    /// Leaves the relay, which otherwise notices by timeout. Sends nothing without relays.
    pub fn close(&mut self) {
        self.leave();
    }

    /// Returns the bytes sent once, and the length of the content, if known.
    #[must_use]
    pub fn progress(&self) -> (u64, Option<u64>) {
        self.core.machine.inner().progress()
    }

    /// Returns how many hosts have joined, and how many have confirmed everything.
    #[must_use]
    pub fn receivers(&self) -> (u32, u32) {
        self.core.machine.inner().receivers()
    }

    /// Returns each receiver that has joined.
    pub fn members(&self) -> impl Iterator<Item = ReceiverStatus> {
        let members = self.core.machine.inner().members();
        members.map(|info| self.status(&info))
    }

    /// Returns the receivers that relays no longer wait for, each with the identifier of its relay.
    pub fn stalled(&self) -> impl Iterator<Item = (SocketAddr, &str)> {
        let stalled = self.stalled.iter();
        stalled.map(|(address, relay)| (*address, relay.as_str()))
    }

    /// Returns the counters of the protocol.
    #[must_use]
    pub fn stats(&self) -> &SenderStats {
        self.core.machine.inner().stats()
    }

    /// Returns the time since the sender was opened.
    #[must_use]
    pub fn elapsed(&self) -> StdDuration {
        (clock::now() - self.started).into()
    }

    fn status(&self, info: &ltp::ReceiverInfo) -> ReceiverStatus {
        let sender = self.core.machine.inner();
        let held = sender.geometry().block_offset(info.blocks);
        ReceiverStatus {
            receiver: info.receiver,
            address: info.address,
            state: info.state,
            bytes: sender.progress().1.map_or(held, |length| held.min(length)),
        }
    }
}

impl Transfer for Sender {
    type Event = SendEvent;
    type Outcome = SendOutcome;

    fn step(&mut self) -> Result<Step<SendOutcome>, Error> {
        let now = clock::now();
        self.receive(now)?;
        self.core.machine.handle_timeout(now);
        self.check_relays();
        // The end of a stream after a cancel is not the end of the content.
        if !self.core.cancel.is_canceled() {
            self.feed(now)?;
        }
        let busy = self.transmit()?;
        self.take_events();
        if let Some(outcome) = self.outcome() {
            return outcome.map(Step::Ended);
        }
        self.adapt(now);
        self.show_progress(now);
        if self.core.cancel.is_canceled() && self.leaving.is_none() {
            self.leaving = Some(now);
            self.core.machine.inner_mut().close(now);
        }
        Ok(if busy { Step::Busy } else { Step::Idle(now) })
    }

    fn sleep(&mut self, _: Instant) -> Result<(), Error> {
        // A cancel that was noticed stays readable.
        let cancel = self.leaving.is_none().then(|| self.core.cancel.as_fd());
        let has_room = self.core.machine.inner().room() > 0;
        let is_read = has_room && !self.core.cancel.is_canceled();
        let stream = self.stream.as_ref().filter(|_| is_read);
        let watches: [Option<BorrowedFd<'_>>; 2] =
            [cancel, stream.map(|stream| stream.file.as_fd())];
        // Sending has taken a while.
        self.core
            .wait(clock::now(), None, watches.into_iter().flatten())
    }

    fn events(&mut self) -> &mut VecDeque<SendEvent> {
        &mut self.core.events
    }

    fn leave(&mut self) {
        self.core.leave_relay();
    }
}

fn limiting_status(limiting: &ltp::tfmcc::Limiting) -> LimitingStatus {
    LimitingStatus {
        receiver: limiting.receiver,
        address: limiting.address,
        rate_bps: (limiting.rate_bps != u64::MAX).then_some(limiting.rate_bps),
        loss: limiting.loss,
        round_trip: limiting.round_trip.into(),
    }
}

/// Computes the digest of the whole before the start, if configured.
fn first_digest(
    config: &SendConfig,
    source: &Source,
    cancel: &Cancel,
    observer: &mut dyn FnMut(SendEvent),
) -> Result<Option<[u8; 32]>, Error> {
    let Some(length) = source.length().filter(|_| config.digest_first) else {
        return Ok(None);
    };
    observer(SendEvent::Reading { bytes: 0, length });
    let digest = source.digest(config.group.key, |bytes| {
        observer(SendEvent::Reading { bytes, length });
        !cancel.is_canceled()
    });
    let digest = digest.map_err(|error| Error::Source {
        name: source.shown(),
        source: error,
    })?;
    digest.ok_or(Error::Canceled).map(Some)
}

/// Makes the store of a content, and the stream that fills it.
fn content(
    source: Source,
    buffer_bytes: u64,
    block_len: u64,
) -> Result<(Content, Option<Stream>), Error> {
    Ok(match source.kind {
        Kind::File { file, length, .. } => {
            (Content::File(FileStore::new(file, length, block_len)), None)
        }
        Kind::Buffer(bytes) => (Content::Ring(HeapRing::whole(bytes)), None),
        Kind::Stream(file) => {
            let capacity = buffer_bytes
                .checked_next_multiple_of(block_len)
                .and_then(|capacity| usize::try_from(capacity).ok())
                .ok_or(Error::Config("the buffer is too large"))?;
            (
                Content::Ring(HeapRing::new(capacity)),
                Some(Stream::new(file)),
            )
        }
    })
}
