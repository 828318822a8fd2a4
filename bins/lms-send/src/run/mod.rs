//! The loop: packets in, the machine's clock, packets out, news to the user.

mod news;
mod setup;

use std::os::fd::AsFd;
use std::time::Duration as StdDuration;

use anyhow::{Context, anyhow};
use cli::clock::Clock;
use cli::events::hex;
use cli::multicast::Local;
use cli::units::ByteSize;
use linux_net::poll::{self, Watch};
use linux_net::wake::Waker;
use ltp::store::HeapRing;
use ltp::{Duration, Instant, Sender, SenderEvent, SenderStats};

use self::news::News;

use crate::adapt::{Counts, RateControl};
use crate::args::Args;
use crate::events::{Event, reason, receiver};
use crate::net::Net;
use crate::outcome::Outcome;
use crate::source::{Content, FileStore, Source, Stream};

/// Batches sent before looking at what receivers say.
const BATCHES: usize = 4;
/// Longest sleep, so that nothing is overlooked for long.
const LONGEST_SLEEP: StdDuration = StdDuration::from_millis(500);
/// Farewells get so long to leave.
const FAREWELL: Duration = Duration::from_millis(300);

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
    let end = Event::end(&outcome, &SenderStats::default(), (0, 0), 0.0);
    News::new(args).end(&outcome, &end, "");
    Ok(outcome.code())
}

/// Everything that a transfer needs; `None`: interrupted.
fn open(args: &Args) -> anyhow::Result<Option<Session<'_>>> {
    let key = args.group.key().map_err(anyhow::Error::msg)?;
    let local = args.group.local(args.source).map_err(anyhow::Error::msg)?;
    if !local.interface.is_multicast && !local.interface.is_loopback {
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
    let net = Net::open(args, &local, digest)?;
    Session::new(args, &local, source, net, news, key, digest).map(Some)
}

struct Session<'a> {
    args: &'a Args,
    clock: Clock,
    started: Instant,
    net: Net,
    sender: Sender<'static, Content>,
    stream: Option<Stream>,
    control: RateControl,
    waker: Waker,
    news: News,
    next_progress: Instant,
    /// Receivers that will never confirm, and why.
    lost: Vec<String>,
    all_complete: bool,
    /// Since when it says good-bye, after Ctrl-C or because it failed.
    parting: Option<Instant>,
    failed: Option<String>,
}

impl<'a> Session<'a> {
    fn new(
        args: &'a Args,
        local: &Local,
        source: Source,
        net: Net,
        mut news: News,
        key: Option<[u8; 32]>,
        digest: Option<[u8; 32]>,
    ) -> anyhow::Result<Self> {
        let clock = Clock::new();
        let now = clock.now();
        let control = RateControl::new(args.rate.bits(), now);
        let length = source.length();
        let mut config = setup::config(args, local, length, key, digest)?;
        config.rate_bps = control.rate();
        config.max_segments = net.data.max_segments();
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
        let waker = Waker::new()?;
        let raised = waker.clone();
        cli::interrupt::on_raise(move || raised.wake());
        news.opened(
            length,
            &Event::Opened {
                session: sender.session().to_string(),
                name: &name,
                length,
                group: args.group.group.to_string(),
                source: net.data.local_address()?.to_string(),
                interface: &local.interface.name,
                rate_bps: control.rate(),
            },
        );
        Ok(Session {
            args,
            clock,
            started: now,
            net,
            sender,
            stream,
            control,
            waker,
            news,
            next_progress: now + Duration::from_secs(1),
            lost: Vec::new(),
            all_complete: false,
            parting: None,
            failed: None,
        })
    }

    fn transfer(&mut self) -> anyhow::Result<Outcome> {
        loop {
            let now = self.clock.now();
            self.receive(now)?;
            self.sender.handle_timeout(now);
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
        let (sender, control) = (&mut self.sender, &mut self.control);
        self.net.receive(|meta, packet| {
            control.heard(meta.source);
            // Counted by the machine under its reason.
            let _ = sender.handle_packet(now, &meta, packet);
        })
    }

    /// Sends a few batches; whether there may be more to send at once.
    fn transmit(&mut self) -> anyhow::Result<bool> {
        for _ in 0..BATCHES {
            let now = self.clock.now();
            let sender = &mut self.sender;
            if !self.net.send(|buffer| sender.poll_transmit(now, buffer))? {
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
        while self.sender.room() > 0 && !stream.ended {
            if !stream.has_bytes() {
                let mut watch = [Watch::readable(stream.file.as_fd())];
                poll::wait(&mut watch, Some(StdDuration::ZERO))?;
                if !watch[0].is_readable() {
                    break;
                }
            }
            let bytes = stream.fill().context("cannot read the stream")?;
            let taken = self
                .sender
                .send(now, bytes)
                .map_err(|error| anyhow!("{error}"))?;
            stream.take(taken);
        }
        if stream.ended && !stream.has_bytes() {
            self.sender.finish(now);
            self.news.length(self.sender.progress().1);
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
            self.sender.poll_timeout()
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
            && self.sender.room() > 0
        {
            set.push(Watch::readable(stream.file.as_fd()));
        }
        poll::wait(&mut set, Some(timeout)).context("waiting")?;
        Ok(())
    }

    fn adapt(&mut self, now: Instant) {
        let stats = self.sender.stats();
        let counts = Counts {
            sent: stats.data_packets,
            requested: stats.requested_packets,
            frame_bytes: stats.frame_bytes,
        };
        if self.control.update(now, counts) {
            let rate_bps = self.control.rate();
            tracing::debug!(?rate_bps, "the rate follows what receivers miss");
            self.sender.set_rate(now, rate_bps);
            self.news.emit(&Event::Rate { rate_bps });
        }
    }

    fn show_progress(&mut self, now: Instant) {
        let (bytes, length) = self.sender.progress();
        self.news.position(bytes);
        if now < self.next_progress {
            return;
        }
        self.next_progress = now + Duration::from_secs(1);
        let (joined, complete) = self.sender.receivers();
        self.news.progress(
            self.args.receivers,
            &Event::Progress {
                bytes,
                length,
                joined,
                complete,
                rate_bps: self.control.rate(),
            },
        );
    }

    fn interrupts(&mut self, now: Instant) {
        if cli::interrupt::raised() && self.parting.is_none() {
            self.parting = Some(now);
            self.sender.close(now);
        }
    }

    fn seconds(&self) -> f64 {
        (self.clock.now() - self.started).total_micros() as f64 / 1e6
    }

    fn take_events(&mut self) {
        while let Some(event) = self.sender.poll_event() {
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
                self.lost.push(format!("{address} {reason}"));
                let bytes = self.sender.geometry().block_offset(blocks);
                let id = receiver(id);
                self.news.emit(&Event::ReceiverFailed {
                    receiver: id,
                    address,
                    bytes,
                    reason,
                });
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
                self.sender.close(self.clock.now());
            }
            SenderEvent::Complete => {}
            SenderEvent::Finished => {}
            SenderEvent::StoreFailed => {
                let error = self.sender.store().error();
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
            && (self.sender.is_ended() || self.clock.now() - at > FAREWELL)
        {
            let failed = self.failed.clone().map(Outcome::Failed);
            return Some(failed.unwrap_or(Outcome::Interrupted));
        }
        if !self.sender.is_ended() || self.net.is_blocked() {
            return None;
        }
        if self.all_complete {
            return Some(Outcome::Complete);
        }
        Some(match self.args.receivers {
            None => Outcome::Sent,
            Some(expected) => Outcome::Unconfirmed(self.unconfirmed(expected)),
        })
    }

    fn unconfirmed(&self, expected: u32) -> String {
        let (joined, complete) = self.sender.receivers();
        let mut message = format!(
            "{} of {expected} receivers did not confirm",
            expected - complete.min(expected)
        );
        if joined < expected {
            message += &format!("; {} never joined", expected - joined);
        }
        for lost in &self.lost {
            message += &format!("; {lost}");
        }
        message
    }

    fn end(&mut self, outcome: &Outcome) -> u8 {
        let (_, complete) = self.sender.receivers();
        let seconds = self.seconds();
        let stats = self.sender.stats();
        let end = Event::end(outcome, stats, self.sender.receivers(), seconds);
        let size = ByteSize(self.sender.progress().0);
        let plural = if complete == 1 { "" } else { "s" };
        let words = format!("{size} in {seconds:.1} s, {complete} receiver{plural} confirmed");
        self.news.end(outcome, &end, &words);
        outcome.code()
    }
}
