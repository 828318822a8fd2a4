//! `ldc-modify`: data that is changed in place reaches the receiver; the thesis built it and never tested it
//! (§6.3). Positions of a game: an update overwrites the one that has not left yet.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use ldc_linux::tcp::{self, Config};
use ldc_linux::{Attributes, Shape};

use super::lanes::{Lanes, Limit};
use crate::prelude::*;

/// Positions of a game over a slow link: updates overwrite what has not left
#[derive(Debug, clap::Args)]
pub(crate) struct Modify {
    /// Length of a run (quick: 8)
    #[arg(long, default_value_t = 30, default_value_if("quick", "true", "8"))]
    #[arg(value_parser = within::<u64>(2..=600))]
    seconds: u64,
}

const PORT: u16 = 5_001;
/// Things that move.
const ENTITIES: usize = 32;
/// The time between updates of each of them.
const PERIOD: Duration = Duration::from_millis(50);
const MESSAGE: usize = 512;
const HEAD: usize = 24;
const LIMIT: Limit = Limit::lossy(256, 5);

/// The content of a message; all further bytes repeat the version, so that a torn message shows.
fn message(number: u64, entity: u32, version: u32, at_us: u64) -> [u8; MESSAGE] {
    let mut bytes = [version as u8; MESSAGE];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..12].copy_from_slice(&entity.to_be_bytes());
    bytes[12..16].copy_from_slice(&version.to_be_bytes());
    bytes[16..HEAD].copy_from_slice(&at_us.to_be_bytes());
    bytes
}

/// One message as it came.
#[derive(Clone, Copy, Debug)]
struct Came {
    number: u64,
    version: u32,
    age_us: u64,
    torn: bool,
}

/// What the sender remembers.
#[derive(Debug, Default)]
struct Sent {
    /// The last version written into each message, by number.
    versions: Vec<u32>,
    updates: u64,
    modified: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Figures {
    updates: u64,
    messages: u64,
    modified: u64,
    received: usize,
    wrong: usize,
    age_ms: [f64; 3],
}

impl Scenario for Modify {
    const NAME: &'static str = "ldc-modify";
    const FIGURE: &'static str = "LDC thesis, §6.3";

    fn run(&self, context: &Context) -> Result<Report> {
        let seconds: u64 = self.seconds;
        let length = Duration::from_secs(seconds);
        let stages = [Stage::build()?, Stage::build()?];
        context.note(format!("both senders at once, {seconds} s"));
        let (plain, late) = std::thread::scope(|scope| {
            let plain = scope.spawn(|| stages[0].play(length, by_send));
            let late = scope.spawn(|| stages[1].play(length, by_ring));
            (plain.join(), late.join())
        });
        let panicked = |_| anyhow!("a sender panicked");
        let (plain, late) = (plain.map_err(panicked)??, late.map_err(panicked)??);
        let mut report = Report::new(Self::NAME, "updates that overwrite what has not left");
        let mut table = Table::with_header(
            format!(
                "{ENTITIES} positions, each updated every 50 ms; {}",
                LIMIT.name()
            ),
            "sender | updates | messages | changed in place | received | age, median ms | age, 99 \
             % ms | most ms",
        );
        for (name, figures) in [
            ("every update by send", &plain),
            ("LDC, changed in place", &late),
        ] {
            table.row([
                name.into(),
                figures.updates.into(),
                figures.messages.into(),
                figures.modified.into(),
                figures.received.into(),
                Cell::number(figures.age_ms[0], 0),
                Cell::number(figures.age_ms[1], 0),
                Cell::number(figures.age_ms[2], 0),
            ]);
            report.datum(name, figures);
        }
        report.tables.push(table);
        report.check(
            "messages that are torn, or not what was last written",
            late.wrong as f64,
            "",
            Bound::Exactly(0.0),
        );
        report.timed(
            "updates that found their place in the ring",
            late.modified as f64 / late.updates as f64,
            "",
            Bound::AtLeast(0.5),
        );
        // At first the window grows, and with it the queue on the way: a short run sees little else.
        if !context.quick {
            report.timed(
                "median age, LDC / send",
                late.age_ms[0] / plain.age_ms[0],
                "",
                Bound::AtMost(0.5),
            );
        }
        report.note("age: from the update that a message carries until its arrival");
        Ok(report)
    }
}

/// One link and its two ends.
struct Stage {
    _lanes: Lanes,
    near: TcpStream,
    far: TcpStream,
}

impl Stage {
    fn build() -> Result<Stage> {
        let lanes = Lanes::build(&[LIMIT.shape()], 1)?;
        let (from, to) = lanes.pair(0);
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let listener = lanes.network.within(to, || Ok(TcpListener::bind(any)?))?;
        let target = SocketAddr::from((lanes.address(0), PORT));
        let near = lanes
            .network
            .within(from, || Ok(TcpStream::connect(target)?))?;
        let far = listener.accept()?.0;
        Ok(Stage {
            _lanes: lanes,
            near,
            far,
        })
    }

    /// Sends and receives for this long, and compares.
    fn play(
        &self,
        length: Duration,
        send: impl FnOnce(TcpStream, Instant) -> Result<Sent> + Send,
    ) -> Result<Figures> {
        let end = Instant::now() + length;
        let (near, far) = (self.near.try_clone()?, self.far.try_clone()?);
        let (sent, came) = std::thread::scope(|scope| {
            let sender = scope.spawn(move || send(near, end));
            let came = receive(far, end);
            // The sender may still wait for room in its socket.
            let _ = self.far.shutdown(std::net::Shutdown::Both);
            (sender.join(), came)
        });
        let (sent, came) = (sent.map_err(|_| anyhow!("the sender panicked"))??, came?);
        ensure!(!came.is_empty(), "nothing arrived");
        Ok(figures(&sent, &came))
    }
}

fn figures(sent: &Sent, came: &[Came]) -> Figures {
    let right = |one: &Came| {
        let last = usize::try_from(one.number)
            .ok()
            .and_then(|at| sent.versions.get(at));
        !one.torn && last == Some(&one.version)
    };
    let mut ages: Vec<u64> = came.iter().map(|one| one.age_us).collect();
    ages.sort_unstable();
    let at = |part: f64| {
        let rank = (part * ages.len() as f64).ceil() as usize;
        ages[rank.saturating_sub(1).min(ages.len() - 1)] as f64 / 1e3
    };
    Figures {
        updates: sent.updates,
        messages: sent.versions.len() as u64,
        modified: sent.modified,
        received: came.len(),
        wrong: came.iter().filter(|one| !right(one)).count(),
        age_ms: [at(0.5), at(0.99), at(1.0)],
    }
}

fn now_us() -> u64 {
    u64::try_from(ldc_linux::now().total_micros()).unwrap_or(0)
}

/// Takes messages until the time is over or the stream ends.
fn receive(mut stream: TcpStream, end: Instant) -> Result<Vec<Came>> {
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    let mut came = Vec::new();
    let (mut bytes, mut have) = ([0; MESSAGE], 0);
    while Instant::now() < end {
        match stream.read(&mut bytes[have..]) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error).context("receiving"),
        }
        if have == MESSAGE {
            have = 0;
            let word = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_be_bytes);
            let long = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_be_bytes);
            let version = word(12);
            came.push(Came {
                number: long(0),
                version,
                age_us: now_us().saturating_sub(long(16)),
                torn: bytes[HEAD..].iter().any(|byte| *byte != version as u8),
            });
        }
    }
    Ok(came)
}

/// Calls `update` with an entity and its new version, evenly in time, until the end or `false`.
fn updates(end: Instant, mut update: impl FnMut(usize, u32) -> Result<bool>) -> Result<()> {
    let mut next = Instant::now();
    let mut count = 0;
    while next < end {
        let left = next.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            std::thread::sleep(left);
        }
        let (entity, version) = (count % ENTITIES, count / ENTITIES);
        if !update(entity, u32::try_from(version)?)? {
            break;
        }
        count += 1;
        next += PERIOD / ENTITIES as u32;
    }
    Ok(())
}

/// Each update is a message.
fn by_send(mut stream: TcpStream, end: Instant) -> Result<Sent> {
    let mut sent = Sent::default();
    // A stamp is taken when the update happens, not when the socket has room for it.
    let begin_us = now_us();
    let step = PERIOD / ENTITIES as u32;
    updates(end, |entity, version| {
        let due = step * u32::try_from(sent.updates)?;
        let at_us = begin_us + u64::try_from(due.as_micros())?;
        sent.updates += 1;
        let number = sent.versions.len() as u64;
        sent.versions.push(version);
        let bytes = message(number, u32::try_from(entity)?, version, at_us);
        match stream.write_all(&bytes) {
            Ok(()) => Ok(true),
            // The receiver has seen enough.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    })?;
    Ok(sent)
}

/// An update overwrites the last one of the same entity, if that has not left.
fn by_ring(stream: TcpStream, end: Instant) -> Result<Sent> {
    let mut sent = Sent::default();
    let shape = Shape::new(4 * ENTITIES as u32, MESSAGE as u32)?;
    let mut ldc = tcp::init(stream, shape, Config::default())?;
    let mut last = [u64::MAX; ENTITIES];
    updates(end, |entity, version| {
        sent.updates += 1;
        let number = last[entity];
        let bytes = message(number, u32::try_from(entity)?, version, now_us());
        if ldc
            .ring()
            .modify(number, |payload| payload.write(0, &bytes))
            .is_ok()
        {
            sent.modified += 1;
            sent.versions[usize::try_from(number)?] = version;
        } else {
            let number = sent.versions.len() as u64;
            let bytes = message(number, u32::try_from(entity)?, version, now_us());
            if ldc.send(number, &bytes, Attributes::default()).is_err() {
                return Ok(!ldc.is_closed());
            }
            last[entity] = number;
            sent.versions.push(version);
        }
        ldc.notify();
        Ok(true)
    })?;
    // The receiver has seen enough: remaining data may stay.
    drop(ldc);
    Ok(sent)
}
