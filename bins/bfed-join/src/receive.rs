//! Receives a session.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use bfed_client::{Cancel, Error, JoinOptions, Session, Sink, Stats, Status};
use cli::events::{Events, hex};
use cli::{exit, interrupt};

use crate::args::Recv;
use crate::events::{End, Event, emit};

/// Exit code: the mediator has no route to the session.
pub(crate) const REFUSED: u8 = 3;
/// Exit code: no mediator answered.
pub(crate) const NO_ANSWER: u8 = 4;
/// Time between reports of progress.
const PROGRESS: Duration = Duration::from_secs(1);
/// Bytes of data written at once.
const BUFFER: usize = 256 << 10;

/// How the session ended.
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

/// Where the data and the events go.
struct Output<'a> {
    writer: BufWriter<Box<dyn Write>>,
    events: &'a Events,
    path: &'a Path,
    to_stdout: bool,
    /// Why the data could not be written.
    unwritten: Option<io::Error>,
}

impl Output<'_> {
    fn open<'a>(args: &'a Recv, events: &'a Events) -> io::Result<Output<'a>> {
        let to_stdout = args.to_stdout();
        let writer: Box<dyn Write> = match to_stdout {
            true => Box::new(io::stdout()),
            false => Box::new(File::create(&args.output)?),
        };
        Ok(Output {
            writer: BufWriter::with_capacity(BUFFER, writer),
            events,
            path: &args.output,
            to_stdout,
            unwritten: None,
        })
    }

    /// Returns the verdict for data that cannot be written; without a message if the reader has closed standard output.
    fn unwritten(&self, error: &io::Error) -> Verdict {
        let message = format!("--output {}: {error}", self.path.display());
        match (self.to_stdout, error.kind()) {
            (false, _) => ended("failed", exit::FAILED, message),
            (true, ErrorKind::BrokenPipe) => ended("failed", exit::UNWRITTEN, ""),
            (true, _) => ended("failed", exit::UNWRITTEN, message),
        }
    }

    fn failed(&self, error: &Error) -> Verdict {
        match (error, &self.unwritten) {
            (_, Some(unwritten)) => self.unwritten(unwritten),
            (Error::Cancelled, _) => ended("interrupted", exit::INTERRUPTED, "interrupted"),
            (Error::Refused(_), _) => ended("refused", REFUSED, error.to_string()),
            (Error::NoAnswer(_), _) => ended("no_answer", NO_ANSWER, error.to_string()),
            _ => ended("failed", exit::FAILED, error.to_string()),
        }
    }
}

impl Sink for Output<'_> {
    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes).map_err(|error| {
            let kind = error.kind();
            self.unwritten = Some(error);
            kind.into()
        })
    }

    fn event(&mut self, event: bfed_client::Event) {
        emit(self.events, event);
    }
}

fn options(args: &Recv) -> Result<JoinOptions, String> {
    let mut options = args.joining.options(&args.common)?;
    options.max_bytes = args.length.map(|length| length.0);
    Ok(options)
}

/// Runs `recv`; returns the exit code.
pub(crate) fn run(args: &Recv) -> Result<u8, String> {
    let events = Events::new(args.common.json, args.to_stdout());
    let cancel = Cancel::new().map_err(|error| error.to_string())?;
    let raise = cancel.clone();
    interrupt::on_raise(move || raise.cancel());
    if interrupt::raised() {
        cancel.cancel();
    }
    let shown = args.output.display();
    let output = Output::open(args, &events);
    let mut output = output.map_err(|error| format!("--output {shown}: {error}"))?;
    let started = Instant::now();
    let nothing = || (Stats::default(), *blake3::hash(b"").as_bytes());
    let (end, (stats, digest)) = match Session::join(options(args)?, &cancel, &mut output) {
        Ok(mut session) => {
            let end = receive(args, &mut session, &mut output, started);
            let received = (session.stats(), session.digest());
            let end = judge(args, end, &session);
            session.leave();
            (end, received)
        }
        Err(Error::Cancelled) => (ended("interrupted", exit::INTERRUPTED, ""), nothing()),
        Err(error) => (output.failed(&error), nothing()),
    };
    report(&events, &end, &stats, digest, started);
    if end.code != exit::OK && end.code != exit::INTERRUPTED && !end.message.is_empty() {
        cli::print_message!("error: {}", end.message);
    }
    Ok(end.code)
}

/// Receives until the session is complete, fails, or one of the limits ends it.
fn receive(
    args: &Recv,
    session: &mut Session,
    output: &mut Output<'_>,
    started: Instant,
) -> Verdict {
    let (mut progress_at, mut last_data, mut datagrams) = (started, None, 0);
    loop {
        let now = Instant::now();
        if interrupt::raised() {
            return ended("interrupted", exit::INTERRUPTED, "interrupted");
        }
        let stats = session.stats();
        if stats.datagrams > datagrams {
            (datagrams, last_data) = (stats.datagrams, Some(now));
        }
        if progress_at <= now {
            progress_at = now + PROGRESS;
            output.events.emit(&Event::Progress {
                seconds: (now - started).as_secs_f64(),
                bytes: stats.bytes,
                frames: stats.frames,
                lost: stats.lost,
            });
        }
        let left = |since: Option<Instant>, limit: Option<Duration>| {
            let passed = since.map(|since| now - since);
            Some(limit?.saturating_sub(passed?))
        };
        let duration = left(Some(started), args.duration);
        let idle = left(last_data, args.idle);
        match (duration, idle) {
            (Some(Duration::ZERO), _) => return ended("duration", exit::OK, ""),
            (_, Some(Duration::ZERO)) => return ended("idle", exit::OK, ""),
            _ => {}
        }
        let limits = [Some(progress_at - now), duration, idle];
        let limit = limits.into_iter().flatten().min().unwrap_or(PROGRESS);
        let status = session.step(limit, output);
        let flushed = output.writer.flush();
        match (status, flushed) {
            (Err(error), _) => return output.failed(&error),
            (_, Err(error)) => return output.unwritten(&error),
            (Ok(Status::Complete), _) => return ended("complete", exit::OK, ""),
            (Ok(Status::Open), _) => {}
        }
    }
}

/// Turns success into failure if frames of a numbered session are missing, unless `--late` accepts that.
fn judge(args: &Recv, end: Verdict, session: &Session) -> Verdict {
    match session.incomplete().filter(|_| !args.late) {
        Some(incomplete) if end.code == exit::OK => {
            ended("incomplete", exit::FAILED, incomplete.to_string())
        }
        _ => end,
    }
}

fn report(events: &Events, end: &Verdict, stats: &Stats, digest: [u8; 32], started: Instant) {
    events.emit(&Event::End(Box::new(End {
        result: end.result,
        exit_code: end.code,
        message: &end.message,
        seconds: started.elapsed().as_secs_f64(),
        bytes: stats.bytes,
        digest: hex(&digest),
        frames: stats.frames,
        lost: stats.lost,
        late: stats.late,
        skipped_bytes: stats.skipped_bytes,
        datagrams: stats.datagrams,
        requests: stats.requests,
        damped: stats.damped,
        moved: stats.moved,
    })));
}
