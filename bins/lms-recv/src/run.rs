//! The loop: packets in, the machine's clock, packets out, news to the user.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration as StdDuration;

use anyhow::{Context, anyhow};
use cli::clock::Clock;
use cli::events::Events;
use cli::multicast::{self, Local};
use cli::output::explain;
use cli::progress::Progress;
use cli::units::{BitRate, ByteSize};
use linux_net::OpenError;
use linux_net::poll::{self, Watch};
use linux_net::wake::Waker;
use ltp::store::HeapRing;
use ltp::{Delivery, Duration, Failure, Instant, Receiver, ReceiverConfig, ReceiverEvent, Start};

use crate::args::{self, Args, Assist};
use crate::events::{Counters, Event, hex};
use crate::existing::Existing;
use crate::lms::Lms;
use crate::net::Net;
use crate::outcome::{Outcome, name_ranges};
use crate::sink::{FileSink, Sink, StreamWriter};

/// Longest sleep, so that nothing is overlooked for long.
const LONGEST_SLEEP: StdDuration = StdDuration::from_millis(500);
/// A replier stays so long after the last request, unless told otherwise.
const LINGER: Duration = Duration::from_secs(3);
/// Farewells get so long to leave.
const FAREWELL: StdDuration = StdDuration::from_millis(300);
/// Ranges named in the last event.
const MOST_RANGES: usize = 1000;
/// Block length that the buffer is counted in.
const BLOCK_EXPONENT: u32 = 16;

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let key = args
        .group
        .key_file
        .as_deref()
        .map(multicast::read_key)
        .transpose();
    let key = key.map_err(|message| anyhow!(message))?;
    let local = multicast::local(args.group.group, args.group.interface.as_deref(), None);
    let local = local.map_err(|message| anyhow!(message))?;
    let clock = Clock::new();
    let events = Events::new(args.json, args.is_stream());
    let lms = open_lms(args, &local, clock.now(), &events)?;
    let net = Net::open(args, &local, lms)?;
    let mut session = Session::new(args, &local, clock, events, net, key)?;
    let outcome = session.transfer()?;
    Ok(session.end(&outcome))
}

/// The LMS endpoint, if wanted and permitted.
fn open_lms(
    args: &Args,
    local: &Local,
    now: Instant,
    events: &Events,
) -> anyhow::Result<Option<Lms>> {
    if args.assist == Assist::None {
        return Ok(None);
    }
    match Lms::open(args, local, now) {
        Ok(lms) => Ok(Some(lms)),
        Err(error @ OpenError::Privilege { .. }) => {
            let message =
                format!("--assist lms: {error}. Going on without: the sender is asked for repairs");
            cli::progress::suspend(|| eprintln!("warning: {message}"));
            events.emit(&Event::Warning { message: &message });
            Ok(None)
        }
        Err(error) => Err(error).context("--assist lms"),
    }
}

struct Session<'a> {
    args: &'a Args,
    clock: Clock,
    began: Instant,
    net: Net,
    config: ReceiverConfig,
    receiver: Receiver<'static, Sink>,
    writer: Option<StreamWriter>,
    /// The writer was offered all there is.
    drained: bool,
    waker: Waker,
    events: Events,
    bar: Progress,
    next_progress: Instant,
    /// When the session was found; the receiver's store knows its blocks from then on.
    opened: Option<Instant>,
    reserved: bool,
    path: Option<PathBuf>,
    existing: Option<Existing>,
    adopted: bool,
    complete: Option<(u64, Option<[u8; 32]>)>,
    /// Since when only others are served, and when a request last came.
    serving: Option<(Instant, Instant)>,
    requests_taken: u64,
    failed: Option<Outcome>,
}

impl<'a> Session<'a> {
    fn new(
        args: &'a Args,
        local: &Local,
        clock: Clock,
        events: Events,
        net: Net,
        key: Option<[u8; 32]>,
    ) -> anyhow::Result<Self> {
        let now = clock.now();
        let config = config(args, key, net.lms.is_some());
        let waker = Waker::new()?;
        let raised = waker.clone();
        cli::interrupt::on_raise(move || raised.wake());
        let writer = args
            .is_stream()
            .then(|| StreamWriter::start(waker.clone()))
            .transpose()?;
        let receiver = receiver(args, &config, now)?;
        let wanted = !args.quiet && !args.json;
        events.emit(&Event::Waiting {
            group: args.group.group.to_string(),
            source: args.source.map(|source| source.to_string()),
            interface: &local.interface.name,
        });
        let bar = Progress::new(wanted, "receiving", None);
        bar.set_message("waiting for a sender");
        Ok(Session {
            args,
            clock,
            began: now,
            net,
            config,
            receiver,
            writer,
            drained: true,
            waker,
            events,
            bar,
            next_progress: now + Duration::from_secs(1),
            opened: None,
            reserved: false,
            path: None,
            existing: None,
            adopted: false,
            complete: None,
            serving: None,
            requests_taken: 0,
            failed: None,
        })
    }

    fn transfer(&mut self) -> anyhow::Result<Outcome> {
        loop {
            let now = self.clock.now();
            let pieces = self.receive(now)?;
            self.receiver.handle_timeout(now);
            if let Some(lms) = &mut self.net.lms {
                lms.drive(now);
            }
            let receiver = &mut self.receiver;
            while self.net.send(|buffer| receiver.poll_transmit(now, buffer)) {}
            self.take_events(now)?;
            self.compare_existing(now);
            self.deliver(now)?;
            self.show_progress(now);
            if let Some(outcome) = self.outcome(now) {
                return Ok(outcome);
            }
            if pieces == 0 && !self.is_comparing() {
                self.sleep(now)?;
            }
        }
    }

    fn receive(&mut self, now: Instant) -> anyhow::Result<usize> {
        let receiver = &mut self.receiver;
        let opened = &mut self.opened;
        let mut take = |meta: &ltp::Meta, packet: &[u8]| {
            // Counted by the machine under its reason.
            let _ = receiver.handle_packet(now, meta, packet);
            if opened.is_none()
                && let Some(geometry) = receiver.geometry()
            {
                *opened = Some(now);
                let base = receiver.progress().0;
                if let Some(file) = receiver.store_mut().file() {
                    file.begin(geometry.block_len(), base);
                }
            }
        };
        let pieces = self.net.receive_data(&mut take)?;
        self.net.receive_rest(now, &mut take)?;
        Ok(pieces)
    }

    fn take_events(&mut self, now: Instant) -> anyhow::Result<()> {
        while let Some(event) = self.receiver.poll_event() {
            match event {
                ReceiverEvent::Opened {
                    session,
                    source,
                    length,
                    start,
                } => {
                    if let Some(lms) = &mut self.net.lms {
                        lms.join(now, source);
                    }
                    self.open(
                        now,
                        &session.to_string(),
                        &source.to_string(),
                        length,
                        start,
                    )?;
                }
                ReceiverEvent::Resumed { session } => {
                    if let (Some(lms), Some(source)) = (&mut self.net.lms, self.receiver.source()) {
                        lms.join(now, source);
                    }
                    self.events.emit(&Event::Resumed {
                        session: session.to_string(),
                    });
                }
                ReceiverEvent::BlockRejected { block } => {
                    tracing::warn!(block, "a block's digest was wrong; it is asked for again");
                    self.events.emit(&Event::Rejected { block });
                }
                ReceiverEvent::Complete { length, digest } => {
                    self.complete = Some((length, digest));
                }
                ReceiverEvent::Failed { failure, .. } => self.fail(now, failure)?,
            }
        }
        self.reserve();
        Ok(())
    }

    /// A session was found, or turned out to be cut otherwise than a forger said.
    fn open(
        &mut self,
        now: Instant,
        session: &str,
        source: &str,
        length: Option<u64>,
        start: u64,
    ) -> anyhow::Result<()> {
        self.opened = Some(now);
        self.reserved = false;
        let sent = self.receiver.name().to_vec();
        let name = self
            .args
            .name
            .clone()
            .or_else(|| cli::names::sanitise(&sent));
        let name = name.unwrap_or_else(|| format!("received-{session}"));
        let folder = &self.args.output;
        let block_len = self
            .receiver
            .geometry()
            .map_or(0, |geometry| geometry.block_len());
        if let Some(file) = self.receiver.store_mut().file() {
            let path = folder.join(&name);
            if path.is_dir() {
                let shown = path.display();
                return Err(anyhow!("{shown} is a folder: give the file another --name"));
            }
            // Written already when a late sender changed its mind about the blocks.
            if file.target().is_some() {
                file.begin(block_len, start);
            }
            file.create(folder, &name)
                .map_err(|error| anyhow!(explain(&error, folder)))?;
            self.existing = Existing::find(&path, start);
            self.path = Some(path);
        }
        tracing::info!(session, source, name, "receiving");
        self.bar.set_total(length);
        self.bar.set_message("");
        self.events.emit(&Event::Opened {
            session: session.to_owned(),
            source: source.to_owned(),
            name,
            path: self.shown_path(),
            length,
            start,
        });
        Ok(())
    }

    fn shown_path(&self) -> Option<String> {
        self.path.as_ref().map(|path| path.display().to_string())
    }

    /// Once the length is known: is there room for it?
    fn reserve(&mut self) {
        let (_, Some(length)) = self.receiver.progress() else {
            return;
        };
        if self.reserved || self.failed.is_some() {
            return;
        }
        self.reserved = true;
        self.bar.set_total(Some(length));
        let folder = &self.args.output;
        if let Some(file) = self.receiver.store_mut().file()
            && let Err(error) = file.reserve(length)
        {
            let message = format!("{} ({} wanted)", explain(&error, folder), ByteSize(length));
            self.failed = Some(Outcome::Failed(message, vec![(0, length)]));
        }
    }

    /// An older file of that name may be the announced content already.
    fn compare_existing(&mut self, now: Instant) {
        let Some(existing) = &mut self.existing else {
            return;
        };
        let (_, Some(length)) = self.receiver.progress() else {
            return;
        };
        let Some(announced) = self.receiver.announced() else {
            return;
        };
        match existing.compare(length, announced, self.config.key) {
            None => {}
            Some(false) => self.existing = None,
            Some(true) => {
                if let Some(file) = self.existing.take().and_then(Existing::into_file)
                    && self.receiver.adopt(now, announced)
                {
                    self.adopted = true;
                    if let Some(sink) = self.receiver.store_mut().file() {
                        sink.adopt(file);
                    }
                }
            }
        }
    }

    fn is_comparing(&self) -> bool {
        self.existing.is_some() && self.receiver.announced().is_some()
    }

    /// Hands verified bytes of a stream to its writer.
    fn deliver(&mut self, now: Instant) -> anyhow::Result<()> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        if let Some(error) = writer.error() {
            self.receiver.close(now);
            return Err(error).context("cannot write to standard output");
        }
        loop {
            let bytes = self.receiver.peek().map_err(|error| anyhow!("{error}"))?;
            let len = bytes.len();
            self.drained = len == 0;
            if self.drained || !writer.offer(bytes) {
                return Ok(());
            }
            self.receiver.consume(now, len);
        }
    }

    fn fail(&mut self, now: Instant, failure: Failure) -> anyhow::Result<()> {
        if failure == Failure::NoSource {
            let waited = now - self.began;
            let patience = self
                .args
                .wait
                .map(|wait| Duration::from_micros(wait.as_micros() as u64));
            if patience.is_none_or(|patience| waited < patience) {
                self.receiver = receiver(self.args, &self.config, now)?;
                return Ok(());
            }
            let message = format!(
                "no sender was heard on {} for {:.0} s: is it running, is the interface the right one, \
                 is the --ttl of the sender large enough, is the key the same?",
                self.args.group.group,
                waited.total_micros() as f64 / 1e6
            );
            self.failed = Some(Outcome::Failed(message, Vec::new()));
            return Ok(());
        }
        let (_, length) = self.receiver.progress();
        let missing: Vec<(u64, u64)> = self
            .receiver
            .missing()
            .take(MOST_RANGES)
            .map(|range| (range.start, range.end))
            .collect();
        let mut message = match (failure, self.receiver.store().error()) {
            (Failure::Store, Some(error)) => explain(error, &self.args.output),
            _ => failure.to_string(),
        };
        if let Some(ranges) = name_ranges(&missing) {
            let of = length.map_or(String::new(), |length| format!(" of {length}"));
            message = format!("{message}; missing {ranges}{of}");
        }
        self.failed = Some(Outcome::Failed(message, missing));
        Ok(())
    }

    fn show_progress(&mut self, now: Instant) {
        let (bytes, length) = self.receiver.progress();
        if self.opened.is_some() {
            self.bar.set_position(bytes);
        }
        if now < self.next_progress {
            return;
        }
        self.next_progress = now + Duration::from_secs(1);
        if self.opened.is_some() && self.serving.is_none() {
            let lost_packets = self.receiver.stats().lost_packets;
            self.events.emit(&Event::Progress {
                bytes,
                length,
                lost_packets,
            });
        }
    }

    /// The result, once there is one.
    fn outcome(&mut self, now: Instant) -> Option<Outcome> {
        if let Some(failed) = self.failed.take() {
            return Some(failed);
        }
        if cli::interrupt::raised() {
            // Who serves others may leave at any time.
            return Some(if self.serving.is_some() {
                Outcome::Complete
            } else {
                Outcome::Interrupted
            });
        }
        if self.serving.is_none() {
            let (length, digest) = self.complete.filter(|_| self.drained)?;
            if let Err(outcome) = self.finish(now, length, digest) {
                return Some(outcome);
            }
            self.serving = Some((now, now));
        }
        self.has_served(now).then_some(Outcome::Complete)
    }

    /// Everything is verified: it becomes visible.
    fn finish(
        &mut self,
        now: Instant,
        length: u64,
        digest: Option<[u8; 32]>,
    ) -> Result<(), Outcome> {
        let failed = |message: String| Outcome::Failed(message, Vec::new());
        if let Some(mut writer) = self.writer.take() {
            let result = writer.finish();
            result.map_err(|error| failed(format!("cannot write to standard output: {error}")))?;
        }
        if let Some(file) = self.receiver.store_mut().file() {
            let result = file.finish(self.args.sync);
            result.map_err(|error| failed(explain(&error, &self.args.output)))?;
        }
        let seconds = self
            .opened
            .map_or(0.0, |opened| (now - opened).total_micros() as f64 / 1e6);
        let goodput_bps = if seconds > 0.0 {
            8.0 * length as f64 / seconds
        } else {
            0.0
        };
        self.events.emit(&Event::Complete {
            length,
            digest: digest.map(|digest| hex(&digest)),
            path: self.shown_path(),
            seconds,
            goodput_bps,
            existing: self.adopted,
        });
        self.bar.finish();
        if !self.args.quiet && !self.args.json {
            let what = self.shown_path().unwrap_or_else(|| "stream".to_owned());
            let size = ByteSize(length);
            if self.adopted {
                eprintln!("{what}: already here ({size}), same digest");
            } else {
                eprintln!(
                    "{what}: {size} in {seconds:.1} s, {}",
                    BitRate(goodput_bps as u64)
                );
            }
        }
        if self.stays() {
            let seconds = self.args.linger.map(|linger| linger.as_secs_f64());
            self.events.emit(&Event::Serving { seconds });
        }
        Ok(())
    }

    /// Whether it serves others after it has everything.
    fn stays(&self) -> bool {
        self.args
            .linger
            .map_or(self.net.lms.is_some(), |linger| !linger.is_zero())
    }

    /// Whether others have been served long enough.
    fn has_served(&mut self, now: Instant) -> bool {
        let taken = self.receiver.stats().requests_taken;
        let Some((since, last)) = &mut self.serving else {
            return false;
        };
        if taken > self.requests_taken {
            self.requests_taken = taken;
            *last = now;
        }
        match self.args.linger {
            Some(linger) => now - *since >= Duration::from_micros(linger.as_micros() as u64),
            None if self.net.lms.is_none() => true,
            None => self.receiver.is_source_leaving() || now - *last >= LINGER,
        }
    }

    fn sleep(&mut self, now: Instant) -> anyhow::Result<()> {
        let lms = self.net.lms.as_ref();
        let next = [
            self.receiver.poll_timeout(),
            lms.and_then(Lms::poll_timeout),
        ];
        let timeout = Clock::until(now, next.into_iter().flatten().min(), LONGEST_SLEEP);
        if timeout.is_zero() {
            return Ok(());
        }
        let mut set = [
            Watch::readable(self.net.data.as_fd()),
            Watch::readable(self.net.unicast.as_fd()),
            Watch::readable(self.waker.as_fd()),
            Watch::readable(lms.map_or(self.waker.as_fd(), Lms::fd)),
        ];
        poll::wait(&mut set, Some(timeout)).context("waiting")?;
        if set[2].is_readable() {
            self.waker.reset();
        }
        Ok(())
    }

    /// Says good-bye to the source and to the routers.
    fn leave(&mut self) {
        let until = std::time::Instant::now() + FAREWELL;
        let now = self.clock.now();
        self.receiver.close(now);
        let receiver = &mut self.receiver;
        while self.net.send(|buffer| receiver.poll_transmit(now, buffer)) {}
        let Some(lms) = &mut self.net.lms else { return };
        lms.leave(now);
        while lms.is_leaving() && std::time::Instant::now() < until {
            std::thread::sleep(StdDuration::from_millis(5));
            lms.drive(self.clock.now());
        }
    }

    fn counters(&self) -> Counters {
        let stats = self.receiver.stats();
        Counters {
            data_packets: stats.data_packets,
            repairs: stats.repairs,
            duplicates: stats.duplicate_data + stats.duplicate_repairs,
            unneeded_repairs: stats.unneeded_repairs,
            lost_packets: stats.lost_packets,
            requests_group: stats.requests_group,
            requests_source: stats.requests_source,
            requests_taken: stats.requests_taken,
            repairs_sent: stats.repairs_sent,
            blocks_rejected: stats.blocks_rejected,
            kernel_drops: u64::from(self.net.data.dropped().unwrap_or(0)),
            dropped: stats.dropped.total(),
        }
    }

    fn end(&mut self, outcome: &Outcome) -> u8 {
        self.bar.finish();
        if let Some(file) = self.receiver.store_mut().file() {
            file.abandon();
        }
        self.leave();
        let counters = self.counters();
        if counters.kernel_drops > 0 && self.net.lms.is_none() {
            let drops = counters.kernel_drops;
            tracing::info!(drops, "packets came faster than they were taken");
        }
        self.events.emit(&Event::End {
            result: outcome.name(),
            exit_code: outcome.code(),
            message: outcome.message(),
            missing: outcome.missing(),
            counters,
        });
        if *outcome != Outcome::Complete {
            eprintln!("error: {}", outcome.message());
        }
        outcome.code()
    }
}

fn config(args: &Args, key: Option<[u8; 32]>, lms: bool) -> ReceiverConfig {
    let mut config = ReceiverConfig::new(args.group.group.into());
    config.source = args.source.map(Into::into);
    config.key = key;
    config.assist = if lms {
        ltp::Assist::Lms
    } else {
        ltp::Assist::None
    };
    config.start = match args.start {
        args::Start::Beginning => Start::Beginning,
        args::Start::Now => Start::Now,
    };
    config.delivery = if args.is_stream() {
        Delivery::Read
    } else {
        Delivery::Store
    };
    config.source_timeout = Duration::from_micros(args.timeout.as_micros() as u64);
    config.replier.enabled = lms && !args.no_replier;
    config.limits.window_blocks = window_blocks(args);
    config
}

fn window_blocks(args: &Args) -> usize {
    let blocks = usize::try_from(args.buffer.0 >> BLOCK_EXPONENT)
        .unwrap_or(1 << 20)
        .min(1 << 20);
    1 << blocks.max(2).ilog2()
}

fn receiver(
    args: &Args,
    config: &ReceiverConfig,
    now: Instant,
) -> anyhow::Result<Receiver<'static, Sink>> {
    let window = window_blocks(args);
    let sink = if args.is_stream() {
        Sink::Ring(HeapRing::new(window << BLOCK_EXPONENT))
    } else {
        Sink::File(Box::new(FileSink::new(window)))
    };
    Ok(Receiver::new(
        config.clone(),
        sink,
        cli::clock::seed()?,
        now,
    ))
}
