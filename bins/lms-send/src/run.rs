//! The loop: packets in, the machine's clock, packets out, news to the user.

use std::os::fd::AsFd;
use std::time::Duration as StdDuration;

use anyhow::{Context, anyhow};
use cli::clock::Clock;
use cli::events::Events;
use cli::multicast::{self, Local};
use cli::progress::Progress;
use cli::units::{ByteSize, Rate};
use linux_net::poll::{self, Watch};
use linux_net::wake::Waker;
use ltp::store::HeapRing;
use ltp::{
    Duration, Geometry, Instant, Name, ReceiverFailure, Sender, SenderConfig, SenderEvent,
    SessionChoice,
};

use crate::adapt::{Counts, RateControl};
use crate::args::Args;
use crate::events::{Event, hex, receiver};
use crate::net::Net;
use crate::outcome::Outcome;
use crate::source::{self, Content, FileStore, Source, Stream};

/// How far new data may run ahead of the slowest receiver, in bytes: less than the socket buffer of
/// a receiver, so that at any rate nothing is lost there.
const WINDOW_BYTES: u64 = 24 << 20;
/// At an unlimited rate those that report set the pace, however many there are: the machine is told
/// that there are so many (more may join) and not waited for.
const UNCOUNTED: u32 = 64;
/// Those that are there already have so long to say so.
const UNCOUNTED_WAIT: Duration = Duration::from_millis(200);
/// Batches sent before looking at what receivers say.
const BATCHES: usize = 4;
/// Longest sleep, so that nothing is overlooked for long.
const LONGEST_SLEEP: StdDuration = StdDuration::from_millis(500);
/// Farewells get so long to leave after Ctrl-C.
const FAREWELL: Duration = Duration::from_millis(300);
/// Headers that IP and UDP add, and what a dmcast adds on top (LMS option and outer header).
const HEADERS: u16 = 20 + 8 + 36;

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let key = args
        .group
        .key_file
        .as_deref()
        .map(multicast::read_key)
        .transpose();
    let key = key.map_err(|message| anyhow!(message))?;
    let local = multicast::local(
        args.group.group,
        args.group.interface.as_deref(),
        args.source,
    );
    let local = local.map_err(|message| anyhow!(message))?;
    if !local.interface.is_multicast && !local.interface.is_loopback {
        tracing::warn!(
            interface = local.interface.name,
            "the interface carries no multicast"
        );
    }
    let source = Source::open(&args.file)?;
    let wanted = !args.quiet && !args.json;
    let Some(digest) = first_digest(args, &source, key, wanted)? else {
        return Ok(cli::exit::INTERRUPTED);
    };
    let net = Net::open(args, &local, digest)?;
    let mut session = Session::new(args, &local, source, net, key, digest)?;
    let outcome = session.transfer();
    Ok(session.end(outcome?))
}

/// The digest of the whole, where it is wanted before the start; the outer `None`: interrupted.
fn first_digest(
    args: &Args,
    source: &Source,
    key: Option<[u8; 32]>,
    wanted: bool,
) -> anyhow::Result<Option<Option<[u8; 32]>>> {
    let Source::File { file, path, length } = source else {
        return Ok(Some(None));
    };
    if args.start_at_once {
        return Ok(Some(None));
    }
    let bar = Progress::new(wanted, "reading", Some(*length));
    let digest = source::digest(file, *length, key, |done| {
        bar.set_position(done);
        !cli::interrupt::raised()
    });
    let digest = digest.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(digest.map(Some))
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
    events: Events,
    bar: Progress,
    next_progress: Instant,
    /// Receivers that will never confirm, and why.
    lost: Vec<String>,
    all_complete: bool,
    interrupted: Option<Instant>,
    failed: Option<String>,
}

impl<'a> Session<'a> {
    fn new(
        args: &'a Args,
        local: &Local,
        source: Source,
        net: Net,
        key: Option<[u8; 32]>,
        digest: Option<[u8; 32]>,
    ) -> anyhow::Result<Self> {
        let clock = Clock::new();
        let now = clock.now();
        let control = RateControl::new(args.rate.bits(), now);
        let length = source.length();
        let mut config = config(args, local, length, key, digest)?;
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
        let wanted = !args.quiet && !args.json;
        let session = Session {
            args,
            clock,
            started: now,
            net,
            sender,
            stream,
            control,
            waker,
            events: Events::new(args.json, false),
            bar: Progress::new(wanted, "sending", length),
            next_progress: now + Duration::from_secs(1),
            lost: Vec::new(),
            all_complete: false,
            interrupted: None,
            failed: None,
        };
        session.opened(local, &name, length)?;
        Ok(session)
    }

    fn opened(&self, local: &Local, name: &str, length: Option<u64>) -> anyhow::Result<()> {
        let source = self.net.data.local_address()?.to_string();
        tracing::info!(session = %self.sender.session(), name, %source, "sending");
        self.events.emit(&Event::Opened {
            session: self.sender.session().to_string(),
            name,
            length,
            group: self.args.group.group.to_string(),
            source,
            interface: &local.interface.name,
            rate_bps: self.control.rate(),
        });
        Ok(())
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
            self.bar.set_total(self.sender.progress().1);
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
            self.events.emit(&Event::Rate { rate_bps });
        }
    }

    fn show_progress(&mut self, now: Instant) {
        let (bytes, length) = self.sender.progress();
        self.bar.set_position(bytes);
        if now < self.next_progress {
            return;
        }
        self.next_progress = now + Duration::from_secs(1);
        let (joined, complete) = self.sender.receivers();
        if let Some(expected) = self.args.receivers {
            self.bar.set_message(format!(
                "{complete}/{expected} receivers have it, {joined} joined"
            ));
        }
        let rate_bps = self.control.rate();
        self.events.emit(&Event::Progress {
            bytes,
            length,
            joined,
            complete,
            rate_bps,
        });
    }

    fn interrupts(&mut self, now: Instant) {
        if cli::interrupt::raised() && self.interrupted.is_none() {
            self.interrupted = Some(now);
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
                self.events.emit(&Event::Started { receivers: joined });
            }
            SenderEvent::Joined {
                receiver: id,
                address,
            } => {
                tracing::info!(%address, "a receiver joined");
                self.events.emit(&Event::Joined {
                    receiver: receiver(id),
                    address,
                });
            }
            SenderEvent::ReceiverComplete {
                receiver: id,
                address,
            } => {
                tracing::info!(%address, "a receiver has everything");
                self.events.emit(&Event::ReceiverComplete {
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
                self.events.emit(&Event::ReceiverFailed {
                    receiver: id,
                    address,
                    bytes,
                    reason,
                });
            }
            SenderEvent::Sent { length, digest } => {
                let digest = digest.map(|digest| hex(&digest));
                self.events.emit(&Event::Sent {
                    length,
                    digest,
                    seconds: self.seconds(),
                });
                self.bar.set_message("sent; repairs go on");
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
                    None => "its bytes are gone".to_owned(),
                };
                self.failed = Some(format!("cannot read {}: {why}", self.args.file.display()));
            }
        }
    }

    /// The result, once nothing more will be sent.
    fn outcome(&self) -> Option<Outcome> {
        if let Some(message) = &self.failed {
            return Some(Outcome::Failed(message.clone()));
        }
        if let Some(at) = self.interrupted
            && (self.sender.is_ended() || self.clock.now() - at > FAREWELL)
        {
            return Some(Outcome::Interrupted);
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

    fn end(&mut self, outcome: Outcome) -> u8 {
        self.bar.finish();
        let stats = self.sender.stats();
        let (joined, complete) = self.sender.receivers();
        let seconds = self.seconds();
        self.events.emit(&Event::End {
            result: outcome.name(),
            exit_code: outcome.code(),
            message: outcome.message(),
            joined,
            complete,
            seconds,
            data_packets: stats.data_packets,
            repairs_group: stats.repairs_group,
            repairs_unicast: stats.repairs_unicast,
            requests_group: stats.requests_group,
            requests_unicast: stats.requests_unicast,
            requested_packets: stats.requested_packets,
            frame_bytes: stats.frame_bytes,
            dropped: stats.dropped.total(),
        });
        match &outcome {
            Outcome::Complete | Outcome::Sent if self.args.quiet || self.args.json => {}
            Outcome::Complete | Outcome::Sent => {
                let bytes = ByteSize(self.sender.progress().0);
                eprintln!(
                    "{}: {bytes} in {seconds:.1} s, {complete} receivers confirmed",
                    outcome.message()
                );
            }
            other => eprintln!("error: {}", other.message()),
        }
        outcome.code()
    }
}

fn reason(failure: ReceiverFailure) -> &'static str {
    match failure {
        ReceiverFailure::GaveUp => "gave up",
        ReceiverFailure::Left => "left before it had everything",
        ReceiverFailure::Silent => "went silent",
        ReceiverFailure::Mismatch => "has something else than was sent",
    }
}

fn config(
    args: &Args,
    local: &Local,
    length: Option<u64>,
    key: Option<[u8; 32]>,
    digest: Option<[u8; 32]>,
) -> anyhow::Result<SenderConfig> {
    let millis = |time: StdDuration| Duration::from_millis(time.as_millis().min(1 << 40) as u64);
    let mtu = args
        .mtu
        .unwrap_or_else(|| u16::try_from(local.interface.mtu).unwrap_or(1500).min(1500));
    let max_packet_len = mtu - HEADERS;
    let mut config = SenderConfig::new(args.group.group.into());
    config.name = name(args)?;
    config.length = length;
    config.digest = digest;
    if let Some(digest) = digest {
        config.session = SessionChoice::Content(digest);
    }
    config.key = key;
    config.max_packet_len = max_packet_len;
    config.block_exponent = block_exponent(max_packet_len);
    config.receivers = args.receivers;
    config.start_wait = millis(args.start_wait);
    if args.receivers.is_none() && args.rate == Rate::Unlimited {
        config.receivers = Some(UNCOUNTED);
        config.start_wait = UNCOUNTED_WAIT;
    }
    let window = (WINDOW_BYTES >> config.block_exponent) as u32;
    config.window_blocks = config.receivers.map(|_| window);
    config.receiver_timeout = millis(args.timeout);
    config.linger = millis(args.linger);
    // Room for twice as many as expected: a guess at a stranger's identifier costs nothing.
    let receivers = args.receivers.unwrap_or(0) as usize;
    config.limits.receivers = config.limits.receivers.max(2 * receivers);
    Ok(config)
}

/// The largest block, 64 KiB at most, that packets of this length cut into 64 or fewer.
fn block_exponent(max_packet_len: u16) -> u8 {
    let fits = |exponent: &u8| {
        Geometry::for_packet_len(*exponent, max_packet_len, ltp::wire::Sequence(0)).is_some()
    };
    (Geometry::MIN_EXPONENT..=16)
        .rev()
        .find(fits)
        .unwrap_or(Geometry::MIN_EXPONENT)
}

/// The name receivers store the content under; empty for a stream without one.
fn name(args: &Args) -> anyhow::Result<Name> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None if args.is_stream() => String::new(),
        None => args
            .file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    };
    Name::from_slice(name.as_bytes()).map_err(|_| {
        anyhow!("the name is too long for the protocol: give a shorter one with --name")
    })
}
