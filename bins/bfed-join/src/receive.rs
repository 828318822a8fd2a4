//! Joins and writes.

use std::os::fd::AsFd;
use std::time::Duration;

use bfed::Instant;
use cli::clock::{Clock, seed};
use cli::events::{Events, hex};
use cli::{exit, interrupt};
use linux_net::poll::{self, Watch};
use linux_net::wake::Waker;

use crate::args::Args;
use crate::events::{End, Event};
use crate::input::{Input, Outcome};
use crate::output::Output;
use crate::session::{Failure, News, Session};

/// No route, said the mediator.
pub(crate) const REFUSED: u8 = 3;
/// Nobody answered.
pub(crate) const NO_ANSWER: u8 = 4;
/// Reads of the data before the others get a look.
const READS: usize = 64;
/// How long until a stream that broke is asked for again.
const REPAIR: u64 = 500;

/// How it ended.
#[derive(Debug)]
struct Verdict {
    result: &'static str,
    code: u8,
    message: String,
}

fn ended(result: &'static str, code: u8, message: impl Into<String>) -> Verdict {
    Verdict {
        result,
        code,
        message: message.into(),
    }
}

fn failed(failure: Failure) -> Verdict {
    match failure {
        Failure::Refused(reason) => ended(
            "refused",
            REFUSED,
            format!("no way to the session: {reason}"),
        ),
        Failure::NoAnswer(why) => ended("no_answer", NO_ANSWER, why),
        Failure::Other(why) => ended("failed", exit::FAILED, why),
    }
}

struct Receiver<'a> {
    args: &'a Args,
    events: &'a Events,
    clock: Clock,
    waker: Waker,
    output: Output,
    input: Option<Input>,
    started: Instant,
    last_data: Option<Instant>,
    progress_at: Instant,
    /// When to ask for the session again: its stream broke.
    repair_at: Option<Instant>,
    broken: String,
}

/// Runs; the exit code.
pub(crate) fn run(args: &Args) -> Result<u8, String> {
    let events = Events::new(args.json, args.to_stdout());
    let clock = Clock::new();
    let waker = Waker::new().map_err(|error| error.to_string())?;
    let ring = waker.clone();
    interrupt::on_raise(move || ring.wake());
    let most = args.length.map(|length| length.0);
    let shown = args.output.display();
    let output = Output::open(&args.output, args.numbered(), most);
    let mut receiver = Receiver {
        args,
        events: &events,
        clock,
        waker,
        output: output.map_err(|error| format!("--output {shown}: {error}"))?,
        input: None,
        started: clock.now(),
        last_data: None,
        progress_at: clock.now(),
        repair_at: None,
        broken: String::new(),
    };
    let seed = seed().map_err(|error| error.to_string())?;
    let mut session = Session::open(args, &events, seed, clock);
    let end = match &mut session {
        Ok(session) => {
            let end = receiver.run(session);
            session.leave();
            end
        }
        Err(_) if interrupt::raised() => ended("interrupted", exit::INTERRUPTED, ""),
        Err(failure) => failed(failure.clone()),
    };
    let end = receiver.judge(end);
    receiver.report(&end, session.as_ref().ok());
    if end.code != exit::OK && end.code != exit::INTERRUPTED && !end.message.is_empty() {
        cli::print_message!("error: {}", end.message);
    }
    Ok(end.code)
}

impl Receiver<'_> {
    fn run(&mut self, session: &mut Session<'_>) -> Verdict {
        loop {
            let now = self.clock.now();
            if let Some(end) = self.over(now) {
                return end;
            }
            if self.repair_at.is_some_and(|at| at <= now) {
                self.repair_at = None;
                session.begin(now);
            }
            let mut news = session.receive(now);
            news.extend(session.handle_timeout(now, self.last_data));
            for one in news {
                match one {
                    News::Place(place) => match Input::open(&place, self.args.interface.as_deref())
                    {
                        Ok(input) => self.input = Some(input),
                        Err(why) => self.broke(now, why),
                    },
                    News::Failed(Failure::NoAnswer(why)) if !self.broken.is_empty() => {
                        return failed(Failure::NoAnswer(format!("{}; {why}", self.broken)));
                    }
                    News::Failed(failure) => return failed(failure),
                }
            }
            match self.read(now) {
                Ok(Outcome::Open) => {}
                Ok(Outcome::Ended) if session.is_served() && !self.output.is_done() => {
                    self.broke(now, "the gateway ended the stream".into());
                }
                Ok(Outcome::Ended) => return ended("complete", exit::OK, ""),
                Ok(Outcome::Broken(why)) => self.broke(now, why),
                Err(error) => return self.unwritten(&error),
            }
            if self.output.is_done() {
                return ended("complete", exit::OK, "");
            }
            if let Err(error) = self.wait(session) {
                return ended("failed", exit::FAILED, error.to_string());
            }
        }
    }

    /// The data cannot be written. A reader that has closed standard output is told nothing.
    fn unwritten(&self, error: &std::io::Error) -> Verdict {
        let message = format!("--output: {error}");
        match (self.args.to_stdout(), error.kind()) {
            (false, _) => ended("failed", exit::FAILED, message),
            (true, std::io::ErrorKind::BrokenPipe) => ended("failed", exit::UNWRITTEN, ""),
            (true, _) => ended("failed", exit::UNWRITTEN, message),
        }
    }

    /// The data came to an end that nobody wanted: ask again, the gateway may have moved.
    fn broke(&mut self, now: Instant, why: String) {
        tracing::warn!(why, "the stream broke");
        self.input = None;
        self.broken = why;
        self.repair_at = Some(now + bfed::Duration::from_millis(REPAIR));
    }

    fn read(&mut self, now: Instant) -> std::io::Result<Outcome> {
        let Some(input) = &mut self.input else {
            return Ok(Outcome::Open);
        };
        let (mut outcome, mut written) = (Outcome::Open, Ok(()));
        for _ in 0..READS {
            let (before, output) = (self.output.pieces, &mut self.output);
            outcome = input.read(|bytes| {
                if written.is_ok() {
                    written = output.take(bytes);
                }
            });
            let more = self.output.pieces > before;
            if more {
                self.last_data = Some(now);
            }
            if !more || outcome != Outcome::Open || self.output.is_done() || written.is_err() {
                break;
            }
        }
        written?;
        self.output.flush()?;
        Ok(outcome)
    }

    /// It is time to end.
    fn over(&mut self, now: Instant) -> Option<Verdict> {
        if interrupt::raised() {
            return Some(ended("interrupted", exit::INTERRUPTED, "interrupted"));
        }
        if self.progress_at <= now {
            self.progress_at = now + bfed::Duration::from_secs(1);
            self.events.emit(&Event::Progress {
                seconds: self.seconds(),
                bytes: self.output.bytes,
                frames: self.output.frames,
                lost: self.output.lost,
            });
        }
        let passed = |since: Instant, limit: Option<Duration>| {
            limit.is_some_and(|limit| (now - since).total_micros() as u128 >= limit.as_micros())
        };
        if passed(self.started, self.args.duration) {
            return Some(ended("duration", exit::OK, ""));
        }
        let idle = self
            .last_data
            .is_some_and(|last| passed(last, self.args.idle));
        idle.then(|| ended("idle", exit::OK, ""))
    }

    fn wait(&mut self, session: &Session<'_>) -> std::io::Result<()> {
        let now = self.clock.now();
        let span = |limit: Duration| bfed::Duration::from_micros(limit.as_micros() as u64);
        let due = [
            session.poll_timeout(),
            Some(self.progress_at),
            self.repair_at,
            self.args.duration.map(|limit| self.started + span(limit)),
            self.last_data
                .and_then(|last| self.args.idle.map(|limit| last + span(limit))),
        ];
        let due = due.into_iter().flatten().min();
        let wait = Clock::until(now, due, Duration::from_secs(1));
        let mut watches = vec![
            Watch::readable(self.waker.as_fd()),
            Watch::readable(session.line.as_fd()),
        ];
        watches.extend(
            self.input
                .as_ref()
                .map(|input| Watch::readable(input.as_fd())),
        );
        poll::wait(&mut watches, Some(wait)).map(|_| ())
    }

    fn seconds(&self) -> f64 {
        (self.clock.now() - self.started).total_micros() as f64 / 1e6
    }

    /// A session of numbered frames of which parts are missing is no success.
    fn judge(&self, end: Verdict) -> Verdict {
        match self.output.complaint(self.args.late) {
            Some(complaint) if end.code == exit::OK => ended("incomplete", exit::FAILED, complaint),
            _ => end,
        }
    }

    fn report(&self, end: &Verdict, session: Option<&Session<'_>>) {
        let count = |what: fn(&Session<'_>) -> u64| session.map_or(0, what);
        self.events.emit(&Event::End(Box::new(End {
            result: end.result,
            exit_code: end.code,
            message: &end.message,
            seconds: self.seconds(),
            bytes: self.output.bytes,
            digest: hex(&self.output.digest()),
            frames: self.output.frames,
            lost: self.output.lost,
            late: self.output.late,
            skipped_bytes: self.output.skipped_bytes(),
            datagrams: self.output.pieces,
            requests: count(|session| session.requests),
            damped: count(|session| session.damped),
            moved: count(|session| session.moved),
        })));
    }
}
