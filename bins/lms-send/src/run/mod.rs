//! The loop: packets in, the machine's clock, packets out, news to the user.

mod news;
mod setup;

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::time::Duration as StdDuration;

use anyhow::{Context, anyhow};
use cli::assist::Absence;
use cli::clock::Clock;
use cli::events::hex;
use cli::multicast::Local;
use cli::units::ByteSize;
use linux_net::batching::Fallback;
use linux_net::poll::{self, Watch};
use linux_net::wake::Waker;
use ltp::store::HeapRing;
use ltp::tree::AttachmentEvent;
use ltp::{Duration, Instant, Sender, SenderEvent, SenderStats};

use self::news::{News, RateNews};

use crate::adapt::{Counts, RateControl};
use crate::args::Args;
use crate::events::{Event, reason, receiver};
use crate::machine::Machine;
use crate::net::Net;
use crate::outcome::Outcome;
use crate::receivers::{Fate, Waiting};
use crate::source::{Content, FileStore, Source, Stream};

/// Batches sent before looking at what receivers say.
const BATCHES: usize = 4;
/// Longest sleep, so that nothing is overlooked for long.
const LONGEST_SLEEP: StdDuration = StdDuration::from_millis(500);
/// Farewells get so long to leave.
const FAREWELL: Duration = Duration::from_millis(300);
/// Receivers that the message of an incomplete transfer names.
const MOST_NAMED: usize = 16;

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let failed = |error| Outcome::Failed(format!("{error:#}"));
    let outcome = match open(args) {
        Ok(Some(mut session)) => {
            let outcome = session.transfer();
            return Ok(session.end(&outcome.unwrap_or_else(failed)));
        }
        Ok(None) => Outcome::Interrupted,
        Err(error) => failed(error),
    };
    let end = Event::end(&outcome, &SenderStats::default(), (0, 0), &[], 0.0);
    News::new(args).end(&outcome, &end, "", &[]);
    Ok(outcome.code())
}

/// Everything that a transfer needs; `None`: interrupted.
fn open(args: &Args) -> anyhow::Result<Option<Session<'_>>> {
    let key = args.group.key().map_err(anyhow::Error::msg)?;
    let assist = args.assist().map_err(anyhow::Error::msg)?;
    let relays = assist.relays().map_err(anyhow::Error::msg)?;
    let beside = assist.is_beside_multicast();
    let first = relays.first().filter(|_| !beside);
    let way = first.copied().unwrap_or(args.group.group);
    let local = cli::multicast::local(way, args.group.interface.as_deref(), args.source)
        .map_err(anyhow::Error::msg)?;
    if first.is_none() && !local.interface.is_multicast && !local.interface.is_loopback {
        tracing::warn!(
            interface = local.interface.name,
            "the interface carries no multicast"
        );
    }
    let source = Source::open(&args.file)?;
    let news = News::new(args);
    let Some(digest) = setup::first_digest(args, &source, key, news.speaks)? else {
        return Ok(None);
    };
    let net = Net::open(args, &assist, &local)?;
    let opened = Opened {
        local,
        relays,
        beside,
        source,
        key,
        digest,
    };
    Session::new(args, opened, net, news).map(Some)
}

/// What was looked up and opened before the sender is made.
struct Opened {
    local: Local,
    relays: Vec<SocketAddrV4>,
    /// IP multicast carries the data, and relays serve recovery beside it.
    beside: bool,
    source: Source,
    key: Option<[u8; 32]>,
    digest: Option<[u8; 32]>,
}

struct Session<'a> {
    args: &'a Args,
    clock: Clock,
    started: Instant,
    net: Net,
    machine: Machine,
    /// How long there has been no relay, where there should be one.
    absence: Option<Absence>,
    stream: Option<Stream>,
    control: RateControl,
    waker: Waker,
    news: News,
    next_progress: Instant,
    rate_news: RateNews,
    /// Whether batches reach the receivers; `None`: none are sent.
    fallback: Option<Fallback>,
    /// Receivers, or relays, that the tree of relays no longer waits for, and the relay that says so.
    stalled: BTreeMap<SocketAddr, String>,
    all_complete: bool,
    /// Since when it says good-bye, after Ctrl-C or because it failed.
    parting: Option<Instant>,
    failed: Option<String>,
}

impl<'a> Session<'a> {
    fn new(args: &'a Args, opened: Opened, net: Net, mut news: News) -> anyhow::Result<Self> {
        let Opened {
            local,
            relays,
            beside,
            source,
            key,
            digest,
        } = opened;
        let relayed = !relays.is_empty();
        let clock = Clock::new();
        let now = clock.now();
        let control = RateControl::new(args.rate.bits(), now);
        let length = source.length();
        let mut config = setup::config(args, &local, length, key, digest, relayed)?;
        config.rate_bps = control.rate();
        let max_segments = net.data.max_segments();
        config.max_segments = if relayed { 1 } else { max_segments };
        let block_len = 1u64 << config.block_exponent;
        let (content, stream) = match source {
            Source::File { file, length, .. } => {
                (Content::File(FileStore::new(file, length, block_len)), None)
            }
            Source::Stream { file } => {
                let capacity = args.buffer.0.next_multiple_of(block_len);
                let capacity = usize::try_from(capacity).context("--buffer is too large")?;
                (
                    Content::Ring(HeapRing::new(capacity)),
                    Some(Stream::new(file)),
                )
            }
        };
        let name = String::from_utf8_lossy(&config.name).into_owned();
        let sender = Sender::new(config, content, cli::clock::seed()?, now)?;
        let session = sender.session().to_string();
        let socket = net.data.local_address()?;
        let machine = if relayed {
            let group = args.group.group;
            let carrier = beside.then_some(group);
            let ip = group.ip().to_owned().into();
            Machine::above(sender, socket, ip, carrier, &relays, max_segments, now)?
        } else {
            Machine::Alone(Box::new(sender))
        };
        let rate_news = RateNews::new(now, control.rate());
        let waker = Waker::new()?;
        let raised = waker.clone();
        cli::interrupt::on_raise(move || raised.wake());
        news.opened(
            length,
            &Event::Opened {
                session,
                name: &name,
                length,
                group: args.group.group.to_string(),
                source: socket.to_string(),
                interface: &local.interface.name,
                rate_bps: control.rate(),
            },
        );
        Ok(Session {
            args,
            clock,
            started: now,
            net,
            machine,
            absence: relayed.then(|| Absence::new(relays)),
            stream,
            control,
            waker,
            news,
            next_progress: now + Duration::from_secs(1),
            rate_news,
            fallback: (max_segments > 1).then(|| Fallback::new(StdDuration::ZERO)),
            stalled: BTreeMap::new(),
            all_complete: false,
            parting: None,
            failed: None,
        })
    }

    fn transfer(&mut self) -> anyhow::Result<Outcome> {
        loop {
            let now = self.clock.now();
            self.receive(now)?;
            self.machine.handle_timeout(now);
            self.look_after_relays();
            self.feed(now)?;
            let busy = self.transmit()?;
            self.take_events();
            if let Some(outcome) = self.outcome() {
                return Ok(outcome);
            }
            self.adapt(now);
            self.show_progress(now);
            self.interrupts(now);
            if !busy {
                self.sleep()?;
            }
        }
    }

    fn receive(&mut self, now: Instant) -> anyhow::Result<()> {
        let (machine, control) = (&mut self.machine, &mut self.control);
        self.net.receive(|meta, packet| {
            control.heard(meta.source);
            machine.handle_packet(now, &meta, packet);
        })
    }

    /// Sends a few batches; whether there may be more to send at once.
    fn transmit(&mut self) -> anyhow::Result<bool> {
        for _ in 0..BATCHES {
            let now = self.clock.now();
            let machine = &mut self.machine;
            if !self.net.send(|buffer| machine.poll_transmit(now, buffer))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves what the stream offers into the machine.
    fn feed(&mut self, now: Instant) -> anyhow::Result<()> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let sender = self.machine.sender_mut();
        while sender.room() > 0 && !stream.ended {
            if !stream.has_bytes() {
                let mut watch = [Watch::readable(stream.file.as_fd())];
                poll::wait(&mut watch, Some(StdDuration::ZERO))?;
                if !watch[0].is_readable() {
                    break;
                }
            }
            let bytes = stream.fill().context("cannot read the stream")?;
            let taken = sender
                .send(now, bytes)
                .map_err(|error| anyhow!("{error}"))?;
            stream.take(taken);
        }
        if stream.ended && !stream.has_bytes() {
            sender.finish(now);
            self.news.length(sender.progress().1);
            self.stream = None;
        }
        Ok(())
    }

    fn sleep(&mut self) -> anyhow::Result<()> {
        let now = self.clock.now();
        let blocked = self.net.is_blocked();
        let next = if blocked {
            None
        } else {
            self.machine.poll_timeout(now)
        };
        let timeout = Clock::until(now, next, LONGEST_SLEEP);
        if timeout.is_zero() {
            return Ok(());
        }
        let data = self.net.data.as_fd();
        let mut set = vec![
            if blocked {
                Watch::both(data)
            } else {
                Watch::readable(data)
            },
            Watch::readable(self.waker.as_fd()),
        ];
        if let Some(requests) = &self.net.requests {
            set.push(Watch::readable(requests.as_fd()));
        }
        if let Some(stream) = &self.stream
            && self.machine.sender().room() > 0
        {
            set.push(Watch::readable(stream.file.as_fd()));
        }
        poll::wait(&mut set, Some(timeout)).context("waiting")?;
        Ok(())
    }

    fn adapt(&mut self, now: Instant) {
        let stats = self.machine.sender().stats();
        let counts = Counts {
            sent: stats.data_packets,
            requested: stats.requested_packets,
            frame_bytes: stats.frame_bytes,
        };
        let loss = self.machine.sender_mut().take_worst_loss();
        if self.control.update(now, counts, loss) {
            let rate_bps = self.control.rate();
            tracing::debug!(?rate_bps, "the rate follows what receivers miss");
            self.machine.sender_mut().set_rate(now, rate_bps);
        }
        self.try_single_datagrams(now, counts.sent);
        let rate_bps = self.control.rate();
        if self.rate_news.is_due(now, rate_bps) {
            self.news.emit(&Event::Rate { rate_bps });
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
        self.net.data.set_segmentation(fallback.allows_batches());
        if fallback.is_off() {
            tracing::warn!(
                "segmentation batches are lost on the way to a receiver; sending single datagrams from now \
                 on, as --no-gso does"
            );
        }
    }

    /// What the relays did, and whether any is left.
    fn look_after_relays(&mut self) {
        while let Some(event) = self.machine.poll_relay_event() {
            let (state, address) = match event {
                AttachmentEvent::Attached(relay) => ("attached", relay),
                AttachmentEvent::Lost(relay) => ("lost", relay),
                AttachmentEvent::Refused(relay) => ("refused", relay),
            };
            match state {
                "attached" => tracing::info!(relay = %address, "the relay serves this source"),
                _ => tracing::warn!(relay = %address, "relay {state}, trying the next one"),
            }
            if let (Some(absence), "refused") = (&mut self.absence, state) {
                absence.refused(address);
            }
            self.news.emit(&Event::Relay { address, state });
        }
        while let Some(stalled) = self.machine.poll_stalled() {
            let (address, relay) = (stalled.child, stalled.relay.to_string());
            tracing::warn!(%address, relay, "a receiver does not advance; its relay no longer waits for it");
            self.news.emit(&Event::ReceiverStalled {
                address,
                relay: relay.clone(),
            });
            self.stalled.insert(address, relay);
        }
        let (Some(absence), Some(attached)) = (&mut self.absence, self.machine.is_attached())
        else {
            return;
        };
        absence.update(attached);
        if self.parting.is_none()
            && let Some(complaint) = absence.complaint(self.args.timeout)
        {
            self.failed = Some(complaint);
            self.parting = Some(self.clock.now());
        }
    }

    fn show_progress(&mut self, now: Instant) {
        let (bytes, length) = self.machine.sender().progress();
        self.news.position(bytes);
        if now < self.next_progress {
            return;
        }
        self.next_progress = now + Duration::from_secs(1);
        let (joined, complete) = self.machine.sender().receivers();
        let waiting = Waiting::of(self.machine.sender());
        self.news.progress(
            self.args.receivers,
            &Event::Progress {
                bytes,
                length,
                joined,
                complete,
                rate_bps: self.control.rate(),
                waiting_for: waiting.as_ref(),
            },
        );
    }

    fn interrupts(&mut self, now: Instant) {
        if cli::interrupt::raised() && self.parting.is_none() {
            self.parting = Some(now);
            self.machine.sender_mut().close(now);
        }
    }

    fn seconds(&self) -> f64 {
        (self.clock.now() - self.started).total_micros() as f64 / 1e6
    }

    fn take_events(&mut self) {
        while let Some(event) = self.machine.sender_mut().poll_event() {
            self.event(event);
        }
    }

    fn event(&mut self, event: SenderEvent) {
        match event {
            SenderEvent::Started { joined } => {
                if let Some(expected) = self.args.receivers.filter(|expected| joined < *expected) {
                    tracing::warn!("started with {joined} of {expected} receivers");
                }
                self.news.emit(&Event::Started { receivers: joined });
            }
            SenderEvent::Joined {
                receiver: id,
                address,
            } => {
                tracing::info!(%address, "a receiver joined");
                self.news.emit(&Event::Joined {
                    receiver: receiver(id),
                    address,
                });
            }
            SenderEvent::ReceiverComplete {
                receiver: id,
                address,
            } => {
                tracing::info!(%address, "a receiver has everything");
                self.stalled.remove(&address);
                self.news.emit(&Event::ReceiverComplete {
                    receiver: receiver(id),
                    address,
                });
            }
            SenderEvent::ReceiverFailed {
                receiver: id,
                address,
                blocks,
                failure,
            } => {
                let reason = reason(failure);
                tracing::warn!(%address, reason, "a receiver failed");
                let bytes = self.machine.sender().geometry().block_offset(blocks);
                let id = receiver(id);
                self.news.emit(&Event::ReceiverFailed {
                    receiver: id,
                    address,
                    bytes,
                    reason,
                });
            }
            SenderEvent::RelayStalled { blocks } => {
                let bytes = self.machine.sender().geometry().block_offset(blocks);
                tracing::warn!(bytes, "the relay's acknowledgement makes no progress");
                self.news.emit(&Event::RelayStalled { bytes });
            }
            SenderEvent::Sent { length, digest } => {
                let digest = digest.map(|digest| hex(&digest));
                self.news.emit(&Event::Sent {
                    length,
                    digest,
                    seconds: self.seconds(),
                });
                self.news.say("sent; repairs go on");
            }
            SenderEvent::Complete if self.args.receivers.is_some() => {
                self.all_complete = true;
                self.machine.sender_mut().close(self.clock.now());
            }
            SenderEvent::Complete => {}
            SenderEvent::Finished => {}
            SenderEvent::StoreFailed => {
                let error = self.machine.sender().store().error();
                let why = match error {
                    Some(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                        "it became shorter while it was sent".to_owned()
                    }
                    Some(error) => error.to_string(),
                    None => "it changed while it was sent".to_owned(),
                };
                self.failed = Some(format!("cannot send {}: {why}", self.args.file.display()));
                self.parting = Some(self.clock.now());
            }
        }
    }

    /// The result, once nothing more will be sent.
    fn outcome(&self) -> Option<Outcome> {
        if let Some(at) = self.parting
            && (self.machine.sender().is_ended() || self.clock.now() - at > FAREWELL)
        {
            let failed = self.failed.clone().map(Outcome::Failed);
            return Some(failed.unwrap_or(Outcome::Interrupted));
        }
        if !self.machine.sender().is_ended() || self.net.is_blocked() {
            return None;
        }
        if self.all_complete {
            return Some(Outcome::Complete);
        }
        Some(match self.args.receivers {
            None if self.machine.is_unheard() => Outcome::Unconfirmed(
                "sent, but nobody below the relay acknowledged any of it: is lms-recv running, with \
                 the same --group, this host as --source, and a relay of the same tree?"
                    .to_owned(),
            ),
            None if !self.stalled.is_empty() => {
                Outcome::Unconfirmed(format!("sent{}", self.stalled_names()))
            }
            None if self.machine.sender().is_relay_stalled() => Outcome::Unconfirmed(
                "sent, but something below the relay stood still and lacks part of it".to_owned(),
            ),
            None => Outcome::Sent,
            Some(expected) => Outcome::Unconfirmed(self.unconfirmed(expected)),
        })
    }

    fn unconfirmed(&self, expected: u32) -> String {
        let (joined, complete) = self.machine.sender().receivers();
        let mut message = if complete < expected {
            let lacking = expected - complete;
            format!("{lacking} of {expected} receivers did not confirm")
        } else {
            format!("{complete} receivers confirmed, but not every one that joined")
        };
        if joined < expected {
            message += &format!("; {} never joined", expected - joined);
        }
        let all = Fate::all(self.machine.sender());
        if all.len() > joined as usize && complete < expected {
            message += "; receivers at one address count as one";
        }
        let lacking: Vec<&Fate> = all.iter().filter(|fate| fate.is_lacking()).collect();
        for fate in lacking.iter().take(MOST_NAMED) {
            let reason = fate.reason.unwrap_or("did not confirm");
            message += &format!("; {} {reason}", fate.address);
        }
        let more = lacking.len().saturating_sub(MOST_NAMED);
        if more > 0 {
            message += &format!("; and {more} more");
        }
        message + &self.stalled_names()
    }

    /// The receivers that relays no longer wait for, for a message.
    fn stalled_names(&self) -> String {
        let name = |(address, relay): (&SocketAddr, &String)| {
            format!("; {address} did not advance (relay {relay} stopped waiting for it)")
        };
        self.stalled.iter().map(name).collect()
    }

    fn end(&mut self, outcome: &Outcome) -> u8 {
        let machine = &mut self.machine;
        // Without it the relay finds out by silence.
        let _ = self.net.send(|buffer| machine.leave(buffer));
        let (_, complete) = self.machine.sender().receivers();
        let seconds = self.seconds();
        let stats = self.machine.sender().stats();
        let all = Fate::all(self.machine.sender());
        let hosts = self.machine.sender().receivers();
        let end = Event::end(outcome, stats, hosts, &all, seconds);
        let size = ByteSize(self.machine.sender().progress().0);
        let plural = if complete == 1 { "" } else { "s" };
        let words = format!("{size} in {seconds:.1} s, {complete} receiver{plural} confirmed");
        self.news.end(outcome, &end, &words, &all);
        outcome.code()
    }
}
