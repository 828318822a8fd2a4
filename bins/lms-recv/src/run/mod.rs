//! The loop: packets in, the machine's clock, packets out, news to the user.

mod destination;
mod news;
mod setup;

use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::os::fd::AsFd;
use std::time::Duration as StdDuration;

use anyhow::Context;
use cli::assist::Absence;
use cli::clock::Clock;
use cli::multicast::Local;
use cli::output::explain;
use linux_net::poll::{self, Watch};
use linux_net::wake::Waker;
use ltp::tree::AttachmentEvent;
use ltp::{Assist, Duration, Failure, Instant, ReceiverConfig, ReceiverEvent};

use self::destination::Destination;
use self::news::{Complete, News};
use crate::args::Args;
use crate::events::{Counters, Event};
use crate::lms::Lms;
use crate::machine::Machine;
use crate::net::Net;
use crate::outcome::{Outcome, name_ranges};

/// Longest sleep, so that nothing is overlooked for long.
const LONGEST_SLEEP: StdDuration = StdDuration::from_millis(500);
/// A replier stays so long after the last request, unless told otherwise.
const LINGER: Duration = Duration::from_secs(3);
/// Farewells get so long to leave.
const FAREWELL: StdDuration = StdDuration::from_millis(300);
/// Ranges named in the last event.
const MOST_RANGES: usize = 1000;

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let failed = |error| Outcome::Failed(format!("{error:#}"), Vec::new());
    let mut session = match open(args) {
        Ok(session) => session,
        Err(error) => {
            let outcome = failed(error);
            News::new(args).end(&outcome, Counters::default());
            return Ok(outcome.code());
        }
    };
    let outcome = session.transfer();
    Ok(session.end(&outcome.unwrap_or_else(failed)))
}

fn open(args: &Args) -> anyhow::Result<Session<'_>> {
    let key = args.group.key().map_err(anyhow::Error::msg)?;
    let assist = args.assist().map_err(anyhow::Error::msg)?;
    let relays = assist.relays().map_err(anyhow::Error::msg)?;
    let beside = assist.is_beside_multicast();
    let first = relays.first().filter(|_| !beside);
    let way = first.copied().unwrap_or(args.group.group);
    let local = cli::multicast::local(way, args.group.interface.as_deref(), args.address)
        .map_err(anyhow::Error::msg)?;
    let clock = Clock::new();
    let news = News::new(args);
    let lms = setup::open_lms(args, &assist, &local, clock.now(), &news)?;
    let net = match first {
        None => Net::open(args, &local, lms)?,
        Some(_) => Net::relayed(&local)?,
    };
    let help = match (&relays[..], &net.lms) {
        ([_, ..], _) => Assist::Dyram,
        ([], Some(_)) => Assist::Lms,
        ([], None) => Assist::None,
    };
    let config = setup::config(args, key, help);
    Session::new(args, &local, clock, news, net, config, relays)
}

struct Session<'a> {
    args: &'a Args,
    clock: Clock,
    began: Instant,
    net: Net,
    config: ReceiverConfig,
    machine: Machine,
    /// How long there has been no relay, where there should be one.
    absence: Option<Absence>,
    destination: Destination<'a>,
    /// What the machine has told and was not looked at; and for each `Opened` among it, how that
    /// went.
    told: VecDeque<ReceiverEvent>,
    openings: VecDeque<anyhow::Result<String>>,
    waker: Waker,
    news: News,
    next_progress: Instant,
    /// When the session was found.
    opened: Option<Instant>,
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
        news: News,
        net: Net,
        config: ReceiverConfig,
        relays: Vec<SocketAddrV4>,
    ) -> anyhow::Result<Self> {
        let now = clock.now();
        let waker = Waker::new()?;
        let raised = waker.clone();
        cli::interrupt::on_raise(move || raised.wake());
        let destination = Destination::new(args, &waker)?;
        let receiver = setup::receiver(args, &config, now)?;
        let machine = match args.source.filter(|_| !relays.is_empty()) {
            Some(source) => {
                let group = args.group.group.ip().to_owned().into();
                Machine::below(receiver, source.into(), group, &relays, now)?
            }
            None => Machine::Alone(Box::new(receiver)),
        };
        news.waiting(args, local);
        Ok(Session {
            args,
            clock,
            began: now,
            net,
            config,
            machine,
            absence: (!relays.is_empty()).then(|| Absence::new(relays)),
            destination,
            told: VecDeque::new(),
            openings: VecDeque::new(),
            waker,
            news,
            next_progress: now + Duration::from_secs(1),
            opened: None,
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
            self.machine.handle_timeout(now);
            self.look_after_relays();
            if let Some(lms) = &mut self.net.lms {
                lms.follow_loss(now, self.machine.receiver().loss_counters());
                lms.drive(now);
            }
            let machine = &mut self.machine;
            while self.net.send(|buffer| machine.poll_transmit(now, buffer)) {}
            self.take_events(now)?;
            let key = self.config.key;
            self.destination
                .compare_existing(now, self.machine.receiver_mut(), key);
            let is_idle = pieces == 0;
            let all = is_idle || self.complete.is_some();
            self.destination
                .deliver(now, self.machine.receiver_mut(), all)?;
            self.show_progress(now);
            if self.gives_up_at().is_some_and(|at| now >= at) {
                self.fail(now, Failure::NoSource)?;
            }
            if let Some(outcome) = self.outcome(now) {
                return Ok(outcome);
            }
            if is_idle && !self.destination.is_comparing(self.machine.receiver()) {
                self.sleep(now)?;
            }
        }
    }

    fn receive(&mut self, now: Instant) -> anyhow::Result<usize> {
        let Session {
            machine,
            destination,
            told,
            openings,
            net,
            ..
        } = self;
        let mut take = |meta: &ltp::Meta, packet: &[u8]| {
            machine.handle_packet(now, meta, packet);
            let receiver = machine.receiver_mut();
            while let Some(event) = receiver.poll_event() {
                if let ReceiverEvent::Opened { session, start, .. } = event {
                    openings.push_back(destination.open(receiver, session, start));
                }
                told.push_back(event);
            }
        };
        let pieces = net.receive_data(&mut take)?;
        net.receive_rest(now, &mut take)?;
        Ok(pieces)
    }

    fn take_events(&mut self, now: Instant) -> anyhow::Result<()> {
        while let Some(event) = self
            .told
            .pop_front()
            .or_else(|| self.machine.receiver_mut().poll_event())
        {
            self.event(now, event)?;
        }
        if self.failed.is_none() {
            self.failed = self.destination.reserve(self.machine.receiver_mut()).err();
        }
        Ok(())
    }

    fn event(&mut self, now: Instant, event: ReceiverEvent) -> anyhow::Result<()> {
        match event {
            ReceiverEvent::Opened {
                session,
                source,
                length,
                start,
            } => {
                self.join_routers(now);
                self.opened = Some(now);
                let name = self
                    .openings
                    .pop_front()
                    .context("a session began twice")??;
                let session = session.to_string();
                tracing::info!(session, %source, name, "receiving");
                let opened = Event::Opened {
                    session,
                    source: source.to_string(),
                    name,
                    path: self.destination.shown(),
                    length,
                    start,
                };
                self.news.opened(&opened, length);
            }
            ReceiverEvent::Resumed { session } => {
                self.join_routers(now);
                self.news.emit(&Event::Resumed {
                    session: session.to_string(),
                });
            }
            ReceiverEvent::BlockRejected { block } => {
                tracing::warn!(block, "a block's digest was wrong; it is asked for again");
                self.news.emit(&Event::Rejected { block });
            }
            ReceiverEvent::Complete { length, digest } => self.complete = Some((length, digest)),
            ReceiverEvent::Failed { failure, .. } => self.fail(now, failure)?,
        }
        Ok(())
    }

    /// Offers to repair the source's data.
    fn join_routers(&mut self, now: Instant) {
        let receiver = self.machine.receiver();
        let counters = receiver.loss_counters();
        if let (Some(lms), Some(source)) = (&mut self.net.lms, receiver.source()) {
            lms.join(now, source, counters);
        }
    }

    /// When it has waited long enough for a sender, unless one was heard.
    fn gives_up_at(&self) -> Option<Instant> {
        let wait = self
            .args
            .wait
            .filter(|_| self.machine.receiver().source().is_none())?;
        Some(self.began + Duration::from_micros(wait.as_micros() as u64))
    }

    fn fail(&mut self, now: Instant, failure: Failure) -> anyhow::Result<()> {
        if failure == Failure::NoSource {
            let waited = now - self.began;
            if self.gives_up_at().is_none_or(|at| now < at) {
                *self.machine.receiver_mut() = setup::receiver(self.args, &self.config, now)?;
                return Ok(());
            }
            let message = format!(
                "no sender was heard on {} for {:.1} s: is it running, is the interface the right one, \
                 is the --ttl of the sender large enough, is the key the same?",
                self.args.group.group,
                waited.total_micros() as f64 / 1e6
            );
            self.failed = Some(Outcome::Failed(message, Vec::new()));
            return Ok(());
        }
        let (_, length) = self.machine.receiver().progress();
        let missing: Vec<(u64, u64)> = self
            .machine
            .receiver()
            .missing()
            .take(MOST_RANGES)
            .map(|range| (range.start, range.end))
            .collect();
        let mut message = match (failure, self.machine.receiver().store().error()) {
            (Failure::Store, Some(error)) => explain(error, &self.args.output),
            _ => failure.to_string(),
        };
        let absence = self.absence.as_ref();
        if let Some(complaint) = absence.and_then(|a| a.complaint(StdDuration::ZERO)) {
            message = format!("{message}; {complaint}");
        }
        if let Some(ranges) = name_ranges(&missing) {
            let of = length.map_or(String::new(), |length| format!(" of {length}"));
            message = format!("{message}; missing {ranges}{of}");
        }
        self.failed = Some(Outcome::Failed(message, missing));
        Ok(())
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
                "attached" => tracing::info!(relay = %address, "the relay serves this receiver"),
                _ => tracing::warn!(relay = %address, "relay {state}, trying the next one"),
            }
            if let (Some(absence), "refused") = (&mut self.absence, state) {
                absence.refused(address);
            }
            let address = address.to_string();
            self.news.emit(&Event::Relay { address, state });
        }
        let (Some(absence), Some(attached)) = (&mut self.absence, self.machine.is_attached())
        else {
            return;
        };
        absence.update(attached);
        let limit = self.args.timeout.max(self.args.wait.unwrap_or_default());
        if self.opened.is_none()
            && let Some(complaint) = absence.complaint(limit)
        {
            self.failed = Some(Outcome::Failed(complaint, Vec::new()));
        }
    }

    fn show_progress(&mut self, now: Instant) {
        let (bytes, length) = self.machine.receiver().progress();
        if self.opened.is_some() {
            self.news.position(bytes, length);
        }
        if now < self.next_progress {
            return;
        }
        self.next_progress = now + Duration::from_secs(1);
        if self.opened.is_some() && self.serving.is_none() {
            let lost_packets = self.machine.receiver().stats().lost_packets;
            self.news.emit(&Event::Progress {
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
            let drained = self.destination.is_drained(self.complete.map(|all| all.0));
            match (drained, self.complete) {
                (Err(outcome), _) => return Some(outcome),
                (Ok(true), Some((length, digest))) => {
                    if let Err(outcome) = self.finish(now, length, digest) {
                        return Some(outcome);
                    }
                }
                _ => return None,
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
        self.destination.finish(self.machine.receiver_mut())?;
        let opened = self.opened.unwrap_or(now);
        self.news.complete(&Complete {
            length,
            digest,
            path: self.destination.shown().as_deref(),
            seconds: (now - opened).total_micros() as f64 / 1e6,
            existing: self.destination.is_adopted,
        });
        if self.stays() {
            let seconds = self.args.linger.map(|linger| linger.as_secs_f64());
            self.news.emit(&Event::Serving { seconds });
        }
        Ok(())
    }

    /// Whether it serves others after it has everything.
    fn stays(&self) -> bool {
        self.args
            .linger
            .map_or(self.config.assist != Assist::None, |linger| {
                !linger.is_zero()
            })
    }

    /// Whether others have been served long enough.
    fn has_served(&mut self, now: Instant) -> bool {
        let taken = self.machine.receiver().stats().requests_taken;
        let Some((since, last)) = &mut self.serving else {
            return false;
        };
        if taken > self.requests_taken {
            self.requests_taken = taken;
            *last = now;
        }
        match self.args.linger {
            Some(linger) => now - *since >= Duration::from_micros(linger.as_micros() as u64),
            None if self.config.assist == Assist::None => true,
            None => self.machine.receiver().is_source_leaving() || now - *last >= LINGER,
        }
    }

    fn sleep(&mut self, now: Instant) -> anyhow::Result<()> {
        let lms = self.net.lms.as_ref();
        let next = [
            self.machine.poll_timeout(),
            lms.and_then(Lms::poll_timeout),
            self.gives_up_at(),
        ];
        let timeout = Clock::until(now, next.into_iter().flatten().min(), LONGEST_SLEEP);
        if timeout.is_zero() {
            return Ok(());
        }
        let unicast = self.net.unicast.as_ref().unwrap_or(&self.net.data);
        let mut set = [
            Watch::readable(self.net.data.as_fd()),
            Watch::readable(unicast.as_fd()),
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
        self.machine.receiver_mut().close(now);
        let machine = &mut self.machine;
        while self.net.send(|buffer| machine.poll_transmit(now, buffer)) {}
        self.net.send(|buffer| machine.leave(buffer));
        let Some(lms) = &mut self.net.lms else { return };
        lms.leave(now);
        while lms.is_leaving() && std::time::Instant::now() < until {
            std::thread::sleep(StdDuration::from_millis(5));
            lms.drive(self.clock.now());
        }
    }

    fn end(&mut self, outcome: &Outcome) -> u8 {
        if let Some(file) = self.machine.receiver_mut().store_mut().file() {
            file.abandon();
        }
        self.leave();
        let kernel_drops = u64::from(self.net.data.dropped().unwrap_or(0));
        if kernel_drops > 0 && self.net.lms.is_none() {
            tracing::info!(kernel_drops, "packets came faster than they were taken");
        }
        let mut counters = Counters::new(self.machine.receiver().stats(), kernel_drops);
        counters.dropped += self.machine.relay_dropped();
        self.news.end(outcome, counters);
        outcome.code()
    }
}
