//! The receiver of one stream.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use cli::events::Events;
use cli::progress::Progress;
use cli::units::{BitRate, ByteSize, count};

use crate::accept::{Accepted, accept};
use crate::account::Account;
use crate::args::{ClockKind, RecvArgs, Transport};
use crate::clock::Clock;
use crate::events::{RecvEnd, RecvEvent};
use crate::quic;
use crate::wire::{self, Data, HEADER_LEN, Header, Hello};

/// Longest wait of a read before Ctrl-C and --duration are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Longest time window for which [`RecvArgs::idle_timeout`] is extended: the longest that a sender accepts.
const MAX_WINDOW: Duration = Duration::from_secs(600);

/// How a stream ended.
#[derive(Debug)]
enum Ending {
    /// The end message arrived, with the number of windows.
    Complete(u32),
    /// --duration has passed.
    Stopped,
    /// The connection ended without the end message.
    Cut,
    /// Nothing arrived for this time.
    Silent(Duration),
    Interrupted,
    Failed(anyhow::Error),
}

/// Windows within which messages may overtake each other over QUIC.
const QUIC_DEPTH: usize = 16;

/// Runs `ldc-stream recv` and returns the exit code.
pub(crate) fn run(args: &RecvArgs) -> Result<u8> {
    let events = Events::new(args.json, false);
    match args.transport {
        Transport::Tcp => run_tcp(args, &events),
        Transport::Quic => run_quic(args, &events),
    }
}

fn run_tcp(args: &RecvArgs, events: &Events) -> Result<u8> {
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    report_waiting(args, events, listener.local_addr()?);
    let accepted = accept(&listener, |peer, reason| {
        report_refused(args, events, peer, reason);
    })?;
    let Some(accepted) = accepted else {
        return Ok(cli::exit::INTERRUPTED);
    };
    drop(listener);
    let Accepted {
        mut stream,
        peer,
        hello,
        began,
    } = accepted;
    stream.set_read_timeout(Some(POLL_INTERVAL))?;
    let mut receiver = Receiver::new(args, peer, hello, began, events)?;
    let ending = receiver.receive(&mut stream);
    receiver.finish(ending)
}

fn run_quic(args: &RecvArgs, events: &Events) -> Result<u8> {
    let mut connection = quic::listen(args)?;
    report_waiting(args, events, connection.local_address()?);
    let accepted = quic::accept(&mut connection, |peer, reason| {
        report_refused(args, events, peer, reason);
    })?;
    let Some((peer, hello)) = accepted else {
        return Ok(cli::exit::INTERRUPTED);
    };
    let mut receiver = Receiver::new(args, peer, hello, Instant::now(), events)?;
    let ending = receiver.receive_messages(&mut connection);
    connection.close();
    receiver.finish(ending)
}

fn report_waiting(args: &RecvArgs, events: &Events, address: SocketAddr) {
    events.emit(&RecvEvent::Waiting {
        address: address.to_string(),
    });
    if !args.quiet && !args.json {
        cli::print_message!("waiting on {address}");
    }
}

fn report_refused(args: &RecvArgs, events: &Events, peer: SocketAddr, reason: &str) {
    events.emit(&RecvEvent::Refused {
        peer: peer.to_string(),
        reason,
    });
    if !args.json {
        cli::print_message!("refused {peer}: {reason}");
    }
}

/// Reads from the stream. Returns 0 at its end, `None` if nothing arrived within the read timeout.
fn read(stream: &mut TcpStream, bytes: &mut [u8]) -> Result<Option<usize>> {
    match stream.read(bytes) {
        Ok(count) => Ok(Some(count)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error).context("cannot read from the sender"),
    }
}

/// The file of a layer.
fn layer_path(folder: &Path, layer: u8) -> PathBuf {
    folder.join(format!("layer-{layer}"))
}

struct Receiver<'a> {
    args: &'a RecvArgs,
    peer: SocketAddr,
    hello: Hello,
    began: Instant,
    clock: Clock,
    account: Account,
    /// With --output, one file per layer.
    files: Vec<File>,
    corrupt: u64,
    beyond_limit: u64,
    events: &'a Events,
    progress: Progress,
    reported: Instant,
}

impl<'a> Receiver<'a> {
    fn new(
        args: &'a RecvArgs,
        peer: SocketAddr,
        hello: Hello,
        began: Instant,
        events: &'a Events,
    ) -> Result<Receiver<'a>> {
        let mut files = Vec::new();
        if let Some(folder) = &args.output {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
            for layer in 0..hello.layers {
                let path = layer_path(folder, layer);
                let mut options = OpenOptions::new();
                let file = options.write(true).create(true).truncate(true).open(&path);
                files.push(file.with_context(|| format!("cannot create {}", path.display()))?);
            }
        }
        events.emit(&RecvEvent::Started {
            peer: peer.to_string(),
            layers: hello.layers,
            layer_rate_bps: hello.layer_rate_bps,
            window_s: f64::from(hello.window_us) / 1e6,
        });
        let shared = args.clock == ClockKind::Shared;
        let depth = match args.transport {
            Transport::Tcp => 1,
            Transport::Quic => QUIC_DEPTH,
        };
        Ok(Receiver {
            args,
            peer,
            hello,
            began,
            clock: Clock::new(),
            account: Account::new(&hello, args.playout, shared, depth),
            files,
            corrupt: 0,
            beyond_limit: 0,
            events,
            progress: Progress::new(!args.quiet && !args.json, "received", None),
            reported: began,
        })
    }

    /// Receives messages until the stream ends.
    fn receive(&mut self, stream: &mut TcpStream) -> Ending {
        // Two of the longest messages; the buffer never grows.
        let longest = HEADER_LEN + self.hello.max_payload as usize;
        let mut buffer = vec![0; (2 * longest).max(64 << 10)];
        let (mut from, mut to) = (0, 0);
        let idle_timeout = self.idle_timeout();
        let mut arrived = Instant::now();
        loop {
            if let Some(ending) = self.must_stop() {
                return ending;
            }
            if buffer.len() - to < buffer.len() / 2 {
                buffer.copy_within(from..to, 0);
                (from, to) = (0, to - from);
            }
            // Before the read: after this process was stopped for a while, it first reads what came meanwhile.
            let is_late = arrived.elapsed() >= idle_timeout;
            match read(stream, &mut buffer[to..]) {
                Ok(Some(0)) => return Ending::Cut,
                Ok(Some(count)) => to += count,
                Ok(None) if is_late => return Ending::Silent(idle_timeout),
                Ok(None) => continue,
                Err(error) => return Ending::Failed(error),
            }
            arrived = Instant::now();
            match self.messages(&buffer[from..to]) {
                Ok((used, None)) => from += used,
                Ok((_, Some(windows))) => return Ending::Complete(windows),
                Err(error) => return Ending::Failed(error),
            }
        }
    }

    /// Receives messages over QUIC until the sender closes the connection.
    fn receive_messages(&mut self, connection: &mut ldc_linux::quic::Receiver) -> Ending {
        use ldc_linux::quic::{Error, Event};
        let idle_timeout = self.idle_timeout();
        let (mut arrived, mut end) = (Instant::now(), None);
        loop {
            if let Some(ending) = self.must_stop() {
                return ending;
            }
            let is_late = arrived.elapsed() >= idle_timeout;
            match (connection.wait(POLL_INTERVAL), end) {
                (Ok(Some(Event::Message(bytes))), _) => match self.messages(&bytes) {
                    Ok((used, None)) if used == bytes.len() => {}
                    // Others may arrive after it.
                    Ok((used, Some(windows))) if used == bytes.len() => end = Some(windows),
                    Ok(_) => return Ending::Failed(anyhow!("a message has a wrong length")),
                    Err(error) => return Ending::Failed(error),
                },
                // All that was sent has arrived.
                (Ok(Some(Event::Done)), Some(windows)) => return Ending::Complete(windows),
                (Ok(Some(Event::Done)), None) => return Ending::Cut,
                (Ok(Some(Event::Failed(Error::TimedOut))), _) => {
                    return Ending::Silent(idle_timeout);
                }
                (Ok(Some(Event::Failed(error))), _) => return Ending::Failed(error.into()),
                (Ok(Some(Event::Connected(_))), _) => {}
                (Ok(None), _) if is_late => return Ending::Silent(idle_timeout),
                (Ok(None), _) => continue,
                (Err(error), _) => return Ending::Failed(error.into()),
            }
            arrived = Instant::now();
        }
    }

    /// Returns the time after which a silent stream ends.
    fn idle_timeout(&self) -> Duration {
        let window = Duration::from_micros(self.hello.window_us.into()).min(MAX_WINDOW);
        self.args.idle_timeout.max(2 * window)
    }

    /// Reports the progress, and returns whether the program must stop, and why.
    fn must_stop(&mut self) -> Option<Ending> {
        if cli::interrupt::raised() {
            return Some(Ending::Interrupted);
        }
        let limit = self.args.duration;
        if limit.is_some_and(|limit| self.began.elapsed() >= limit) {
            return Some(Ending::Stopped);
        }
        self.report();
        None
    }

    /// Takes the complete messages at the start of `bytes`. Returns their length, and the number of windows if the
    /// stream ended there.
    fn messages(&mut self, bytes: &[u8]) -> Result<(usize, Option<u32>)> {
        let now_us = self.clock.now_us();
        let mut used = 0;
        while let Some(header) = bytes[used..].first_chunk::<HEADER_LEN>() {
            let data = match Header::parse(header, &self.hello)? {
                Header::End { windows, .. } => return Ok((used + HEADER_LEN, Some(windows))),
                Header::Data(data) => data,
            };
            let begin = used + HEADER_LEN;
            let Some(payload) = bytes.get(begin..begin + data.len as usize) else {
                break;
            };
            self.account.add(&data, now_us);
            self.keep(&data, payload)?;
            used = begin + payload.len();
        }
        Ok((used, None))
    }

    /// Checks the bytes of a message and writes them to the layer's file.
    fn keep(&mut self, data: &Data, payload: &[u8]) -> Result<()> {
        let expected = (data.offset..).map(|at| wire::generated(data.layer, at));
        if self.hello.generated && !payload.iter().copied().eq(expected.take(payload.len())) {
            self.corrupt += 1;
        }
        let Some(file) = self.files.get(usize::from(data.layer)) else {
            return Ok(());
        };
        if data.offset + u64::from(data.len) > self.args.max_layer.0 {
            self.beyond_limit += 1;
            return Ok(());
        }
        let written = file.write_all_at(payload, data.offset);
        written.map_err(|error| {
            let folder = self.args.output.as_deref().unwrap_or(Path::new("."));
            let shown = layer_path(folder, data.layer);
            anyhow!("cannot write {}: {error}", shown.display())
        })
    }

    /// Reports the progress, once per second.
    fn report(&mut self) {
        if self.reported.elapsed() < Duration::from_secs(1) {
            return;
        }
        self.reported = Instant::now();
        let bytes = self.account.bytes();
        self.progress.set_position(bytes);
        self.events.emit(&RecvEvent::Progress {
            seconds: self.began.elapsed().as_secs_f64(),
            bytes,
            playable_s: self.account.playable_s(),
            layers: self
                .account
                .layers
                .iter()
                .map(|layer| layer.bytes)
                .collect(),
        });
    }

    /// Prints the result and returns the exit code.
    fn finish(&mut self, ending: Ending) -> Result<u8> {
        self.progress.finish();
        let seconds = self.began.elapsed().as_secs_f64();
        let windows = match ending {
            Ending::Complete(windows) => Some(windows),
            _ => None,
        };
        let summary = self.account.finish(windows, self.clock.now_us());
        let (result, code, message) = match &ending {
            Ending::Complete(_) => ("complete", cli::exit::OK, String::new()),
            Ending::Stopped => ("stopped", cli::exit::OK, String::new()),
            Ending::Cut => {
                let words = "the stream broke off: the sender died, or the connection";
                ("cut", cli::exit::FAILED, words.to_owned())
            }
            Ending::Silent(timeout) => (
                "silent",
                cli::exit::FAILED,
                format!(
                    "nothing arrived from {} for {:.1} s: its host or the path to it may be down; \
                     --idle-timeout allows longer pauses",
                    self.peer,
                    timeout.as_secs_f64()
                ),
            ),
            Ending::Interrupted => ("interrupted", cli::exit::INTERRUPTED, String::new()),
            Ending::Failed(error) => ("failed", cli::exit::FAILED, format!("{error:#}")),
        };
        let bytes = self.account.bytes();
        let on_time = self.account.layers.iter().map(|layer| layer.on_time_bytes);
        let end = RecvEnd {
            result,
            exit_code: code,
            message: &message,
            seconds,
            bytes,
            rate_bps: (bytes as f64 * 8.0 / seconds.max(1e-3)) as u64,
            on_time_bytes: on_time.sum(),
            windows: summary.windows,
            playable_s: summary.playable_s,
            usable_layers: summary.usable_layers,
            layers: self.account.layers.clone(),
            age_ms: summary.age_ms,
            base_age_ms: summary.base_age_ms,
            corrupt: self.corrupt,
            out_of_order: self.account.out_of_order,
            beyond_limit: self.beyond_limit,
        };
        if !self.args.json {
            show(&end, f64::from(self.hello.window_us) / 1e6);
        }
        self.events.emit(&RecvEvent::End(Box::new(end)));
        if !message.is_empty() {
            cli::print_message!("error: {message}");
        }
        Ok(code)
    }
}

/// Prints the result as text on standard output.
fn show(end: &RecvEnd<'_>, window_s: f64) {
    cli::print_result!("layer       bytes     in time  messages  windows whole  in time");
    for (at, layer) in end.layers.iter().enumerate() {
        cli::print_result!(
            "{at:5}  {:>10}  {:>10}  {:>8}  {:>13}  {:>7}",
            layer.bytes,
            layer.on_time_bytes,
            layer.messages,
            layer.windows_complete,
            layer.windows_on_time,
        );
    }
    cli::print_result!(
        "{} in {} received in {:.1} s, {}; {} of it in time",
        ByteSize(end.bytes),
        count(end.layers.len() as u64, "layer"),
        end.seconds,
        BitRate(end.rate_bps),
        ByteSize(end.on_time_bytes),
    );
    cli::print_result!(
        "playable: {:.1} of {:.1} s, {:.2} of {} layers on average",
        end.playable_s,
        end.windows as f64 * window_s,
        end.usable_layers,
        end.layers.len(),
    );
    let ages = [("all layers", end.age_ms), ("base layer", end.base_age_ms)];
    for (name, ages) in ages {
        if let Some(age) = ages {
            cli::print_result!(
                "age on arrival, {name}: median {:.1} ms, 90 % {:.1} ms, 99 % {:.1} ms, maximum {:.1} ms",
                age.p50,
                age.p90,
                age.p99,
                age.max
            );
        }
    }
    for (messages, what) in [
        (end.corrupt, "with wrong bytes"),
        (end.out_of_order, "out of order"),
        (end.beyond_limit, "beyond --max-layer, not written"),
    ] {
        if messages > 0 {
            cli::print_result!("{} {what}", count(messages, "message"));
        }
    }
}
