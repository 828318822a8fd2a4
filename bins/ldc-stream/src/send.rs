//! The sender: layers on schedule, through a ring or by plain `send`.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use cli::events::Events;
use cli::progress::Progress;
use cli::units::{BitRate, ByteSize, count};
use ldc_linux::tcp::{self, Unsent};
use ldc_linux::{Shape, schedule::Scheduler};
use socket2::SockRef;

use crate::args::{Order, Policy, SendArgs, Transport};
use crate::clock::Clock;
use crate::events::SendEvent;
use crate::layers::{Layers, Piece};
use crate::policy::{Choice, Counts};
use crate::quic;
use crate::ring::{Closed, Incomplete, Ring, Written};
use crate::wire::{Header, Hello, MAX_PAYLOAD};

/// The receiver left early, or did not confirm the end.
const UNCONFIRMED: u8 = cli::exit::UNCONFIRMED;
/// Longest duration of a write or a sleep before Ctrl-C is checked.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Size of a ring, unless two windows need more.
const RING_BYTES: u64 = 64 << 20;

/// How sending ended.
#[derive(Debug)]
enum Ending {
    Sent,
    /// All data was sent, but the receiver did not confirm the end.
    Unconfirmed,
    /// The receiver closed the connection before the end.
    Left,
    Interrupted,
    Failed(anyhow::Error),
}

/// Runs `ldc-stream send` and returns the exit code.
pub(crate) fn run(args: &SendArgs) -> Result<u8> {
    let layers = Layers::new(args)?;
    let slots = slots(args, &layers)?;
    match args.transport {
        Transport::Tcp => run_tcp(args, &layers, slots),
        Transport::Quic => run_quic(args, &layers, slots),
    }
}

fn run_tcp(args: &SendArgs, layers: &Layers, slots: u32) -> Result<u8> {
    let mut stream = connect(&args.to)?;
    stream.set_nodelay(args.nodelay)?;
    let socket = SockRef::from(&stream);
    if let Some(name) = &args.congestion {
        socket
            .set_tcp_congestion(name.as_bytes())
            .with_context(|| format!("cannot set congestion control {name}"))?;
    }
    if let (true, Some(ByteSize(bytes))) = (args.no_ldc, args.unsent) {
        socket
            .set_tcp_notsent_lowat(u32::try_from(bytes)?)
            .context("cannot limit unsent bytes")?;
    }
    let congestion = socket.tcp_congestion().unwrap_or_default();
    let congestion = String::from_utf8_lossy(&congestion);
    let congestion = congestion.trim_end_matches('\0').to_owned();
    let hello = hello(args, layers)?;
    let mut sender = Sender::new(args, layers);
    stream.set_write_timeout(Some(POLL_INTERVAL))?;
    stream
        .write_all(&hello.emit())
        .context("cannot write to the receiver")?;
    sender.report_start(stream.peer_addr()?, &congestion, slots);
    let ending = if args.no_ldc {
        sender.send_plain(stream)
    } else {
        sender
            .ring_over(stream, slots)
            .and_then(|ring| sender.send_late(ring))
    };
    Ok(sender.finish(ending.unwrap_or_else(Ending::Failed)))
}

fn run_quic(args: &SendArgs, layers: &Layers, slots: u32) -> Result<u8> {
    let (shape, scheduler) = rings(args, layers, slots)?;
    let Some(connected) = quic::connect(args, shape, &scheduler)? else {
        return Ok(cli::exit::INTERRUPTED);
    };
    let hello = hello(args, layers)?;
    let mut sender = Sender::new(args, layers);
    let congestion = args.congestion.as_deref().unwrap_or("cubic");
    sender.report_start(connected.peer, congestion, slots);
    let ring = connected.begin(&hello);
    let ending = ring.and_then(|ring| sender.send_late(ring));
    Ok(sender.finish(ending.unwrap_or_else(Ending::Failed)))
}

/// Returns the beginning of the stream, which is now.
fn hello(args: &SendArgs, layers: &Layers) -> Result<Hello> {
    Ok(Hello {
        layers: u8::try_from(layers.count)?,
        generated: layers.is_generated(),
        window_us: u32::try_from(layers.window_us())?,
        max_payload: u32::try_from(args.message.0)?.min(MAX_PAYLOAD),
        layer_rate_bps: args.layer_rate.0,
        start_us: u64::try_from(Clock::new().now_us())?,
    })
}

/// Returns the shape of a ring, and the order in which the rings are claimed.
fn rings(args: &SendArgs, layers: &Layers, slots: u32) -> Result<(Shape, Scheduler)> {
    let scheduler = match args.order {
        Order::Sent => Scheduler::ONE,
        Order::Strict => Scheduler::strict(layers.count)?,
        Order::Weighted => {
            let weights: Vec<u32> = (1..=u32::try_from(layers.count)?).rev().collect();
            Scheduler::weighted(&weights)?
        }
    };
    let each = slots.div_ceil(u32::try_from(scheduler.classes())?).max(2);
    let shape = Shape::new(each, u32::try_from(layers.longest())?)
        .context("cannot create the ring: decrease --message or --slots")?;
    Ok((shape, scheduler))
}

/// Returns the slots of the ring: eight windows within 64 MiB, but at least two windows. A cancelled message keeps its
/// slots until all older messages have left, so the base layer survives a stall of that many windows.
fn slots(args: &SendArgs, layers: &Layers) -> Result<u32> {
    let window = layers.messages_per_window();
    let slots = match args.slots {
        Some(slots) => u64::from(slots),
        None => (8 * window)
            .min(RING_BYTES / layers.longest() as u64)
            .max(2 * window),
    };
    let max = u64::from(Shape::MAX_SLOTS);
    if slots > max && !args.no_ldc {
        return Err(anyhow!(
            "two windows need {slots} slots, but a ring has at most {max}: increase --message or decrease --window"
        ));
    }
    Ok(slots.min(max) as u32)
}

/// Connects to the first address that accepts.
fn connect(to: &str) -> Result<TcpStream> {
    let addresses = to
        .to_socket_addrs()
        .with_context(|| format!("{to}: write HOST:PORT, as in receiver:5000"))?;
    let mut last = anyhow!("{to}: no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = anyhow!("cannot connect to {address}: {error}"),
        }
    }
    Err(last)
}

/// Sleeps until `time` and calls `poll` regularly. Returns `false` if interrupted, or once `poll` does.
fn sleep_until(time: Instant, mut poll: impl FnMut() -> bool) -> bool {
    loop {
        if cli::interrupt::raised() || !poll() {
            return false;
        }
        let left = time.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(POLL_INTERVAL));
    }
}

struct Sender<'a> {
    args: &'a SendArgs,
    layers: &'a Layers,
    began: Instant,
    counts: Counts,
    events: Events,
    progress: Progress,
    reported: Instant,
    windows: u32,
    written: Written,
}

impl<'a> Sender<'a> {
    fn new(args: &'a SendArgs, layers: &'a Layers) -> Sender<'a> {
        let began = Instant::now();
        Sender {
            args,
            layers,
            began,
            counts: Counts::default(),
            events: Events::new(args.json, false),
            progress: Progress::new(!args.quiet && !args.json, "sent", None),
            reported: began,
            windows: 0,
            written: Written::default(),
        }
    }

    fn report_start(&self, peer: SocketAddr, congestion: &str, slots: u32) {
        self.events.emit(&SendEvent::Started {
            address: peer.to_string(),
            layers: self.layers.count,
            layer_rate_bps: self.args.layer_rate.0,
            window_s: self.args.window.as_secs_f64(),
            policy: self.args.policy().name(),
            ldc: !self.args.no_ldc,
            transport: self.args.transport.name(),
            congestion,
            slots: if self.args.no_ldc { 0 } else { slots },
        });
    }

    /// Returns whether another window begins.
    fn has_next_window(&self) -> bool {
        let default = self
            .args
            .files
            .is_empty()
            .then_some(Duration::from_secs(60));
        let end = self.args.duration.or(default);
        self.windows < u32::MAX && end.is_none_or(|end| self.layers.due(self.windows, 0) < end)
    }

    /// Returns a layer of the next window.
    fn piece(&mut self, layer: usize, due: Duration) -> Result<Piece> {
        let piece = self.layers.piece(self.windows, layer, due)?;
        self.counts.offered += piece.messages.len() as u64;
        self.counts.offered_bytes += piece.bytes;
        Ok(piece)
    }

    fn end_message(&self) -> [u8; crate::wire::HEADER_LEN] {
        Header::End {
            windows: self.windows,
            offered: self.counts.offered_bytes,
        }
        .emit()
    }

    /// Returns rings that are drained into a TCP connection.
    fn ring_over(&self, stream: TcpStream, slots: u32) -> Result<Ring> {
        let control = stream.try_clone()?;
        let (shape, scheduler) = rings(self.args, self.layers, slots)?;
        let unsent = match self.args.unsent {
            Some(ByteSize(bytes)) => Unsent::fixed(u32::try_from(bytes)?),
            None => Unsent::default(),
        };
        let config = tcp::Config {
            unsent,
            acks: false,
        };
        stream.set_write_timeout(None)?;
        let rings = tcp::init_classes(stream, shape, scheduler, config)?;
        Ok(Ring::Tcp { rings, control })
    }

    /// Sends through rings.
    fn send_late(&mut self, mut ring: Ring) -> Result<Ending> {
        let choice = Choice::new(self.args.policy(), self.layers, ldc_linux::now());
        if self.send_windows(&mut ring, &choice)? {
            choice.end(ring.rings(), self.windows, &mut self.counts);
            ring.send_end(&self.end_message(), Instant::now() + self.args.linger);
        }
        let incomplete = ring.drain(Instant::now() + self.args.linger);
        let (written, closed) = ring.finish(incomplete)?;
        self.written = written;
        Ok(match (incomplete, closed) {
            (Some(Incomplete::Interrupted), _) => Ending::Interrupted,
            (Some(Incomplete::TooSlow), _) | (None, Closed::TooSlow) => Ending::Unconfirmed,
            (None, Closed::Left) => Ending::Left,
            (None, Closed::Acknowledged) => Ending::Sent,
            (None, Closed::Tcp(stream)) => self.await_close(&stream),
        })
    }

    /// Sends all windows. Returns `false` if interrupted or the ring is closed.
    fn send_windows(&mut self, ring: &mut Ring, choice: &Choice<'_>) -> Result<bool> {
        while self.has_next_window() {
            let window = self.windows;
            let mut pieces = Vec::new();
            let mut any = false;
            for layer in 0..self.layers.count {
                let due = choice.due(window, layer);
                let at = self.began + due;
                if !sleep_until(at, || self.report_ring(ring)) {
                    return Ok(false);
                }
                choice.prepare(ring.rings(), window, layer, &mut self.counts);
                let piece = self.piece(layer, due)?;
                any |= !piece.messages.is_empty();
                if self.args.policy() == Policy::PriorityProgress {
                    pieces.push(piece);
                } else if choice.send(ring.rings(), &piece, &mut self.counts).is_err() {
                    return Ok(false);
                }
            }
            let sent = choice.send_window(ring.rings(), &pieces, &mut self.counts);
            if sent.is_err() {
                return Ok(false);
            }
            if !any {
                // All files have ended.
                return Ok(true);
            }
            self.windows += 1;
        }
        let end = self.began + self.layers.due(self.windows, 0);
        Ok(sleep_until(end, || self.report_ring(ring)))
    }

    /// Shuts down the sending side, and waits until the receiver closes the connection.
    fn await_close(&self, mut stream: &TcpStream) -> Ending {
        let end = Instant::now() + self.args.linger;
        if stream.shutdown(Shutdown::Write).is_err() {
            return Ending::Left;
        }
        let _ = stream.set_read_timeout(Some(POLL_INTERVAL));
        let mut bytes = [0; 64];
        while Instant::now() < end {
            match stream.read(&mut bytes) {
                Ok(0) => return Ending::Sent,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ending::Left,
                Err(_) if cli::interrupt::raised() => return Ending::Interrupted,
                Err(_) => {}
            }
        }
        Ending::Unconfirmed
    }

    /// Sends without a ring.
    fn send_plain(&mut self, mut stream: TcpStream) -> Result<Ending> {
        let skip = self.args.policy() == Policy::Deadline;
        while self.has_next_window() {
            let mut any = false;
            for layer in 0..self.layers.count {
                let due = self.layers.due(self.windows, layer);
                if !sleep_until(self.began + due, || self.report(0)) {
                    return Ok(Ending::Interrupted);
                }
                let piece = self.piece(layer, due)?;
                any |= !piece.messages.is_empty();
                let end = self.began + self.layers.end(self.windows);
                for message in &piece.messages {
                    if skip && Instant::now() >= end {
                        self.counts.skipped += 1;
                    } else if let Some(ending) = self.write(&mut stream, message)? {
                        return Ok(ending);
                    } else {
                        self.written.messages += 1;
                    }
                }
            }
            if !any {
                break;
            }
            self.windows += 1;
        }
        let end = self.began + self.layers.due(self.windows, 0);
        if !sleep_until(end, || self.report(0)) {
            return Ok(Ending::Interrupted);
        }
        let message = self.end_message();
        Ok(match self.write(&mut stream, &message)? {
            Some(ending) => ending,
            None => self.await_close(&stream),
        })
    }

    /// Writes a whole message, without a time limit. Returns the ending if it fails.
    fn write(&mut self, stream: &mut TcpStream, mut bytes: &[u8]) -> Result<Option<Ending>> {
        while !bytes.is_empty() {
            match stream.write(bytes) {
                Ok(count) => {
                    bytes = &bytes[count..];
                    self.written.bytes += count as u64;
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                        if cli::interrupt::raised() {
                            return Ok(Some(Ending::Interrupted));
                        }
                        self.report(0);
                    }
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                        return Ok(Some(Ending::Left));
                    }
                    _ => return Err(error).context("cannot write to the receiver"),
                },
            }
        }
        Ok(None)
    }

    /// Reports the progress with a ring. Returns `false` once the ring is closed.
    fn report_ring(&mut self, ring: &mut Ring) -> bool {
        let pending = if self.reported.elapsed() >= Duration::from_secs(1) {
            ring.pending()
        } else {
            0
        };
        self.report(pending);
        !ring.is_closed()
    }

    /// Reports the progress, once per second. Returns `true`.
    fn report(&mut self, pending: usize) -> bool {
        if self.reported.elapsed() < Duration::from_secs(1) {
            return true;
        }
        self.reported = Instant::now();
        self.progress.set_position(self.counts.offered_bytes);
        self.progress
            .set_message(format!("{} dropped", count(self.counts.dropped, "message")));
        self.events.emit(&SendEvent::Progress {
            seconds: self.began.elapsed().as_secs_f64(),
            offered_bytes: self.counts.offered_bytes,
            pending,
            dropped: self.counts.dropped,
            refused: self.counts.refused,
        });
        true
    }

    /// Prints the result and returns the exit code.
    fn finish(&mut self, ending: Ending) -> u8 {
        self.progress.finish();
        let (result, code, message) = match &ending {
            Ending::Sent => ("sent", cli::exit::OK, String::new()),
            Ending::Unconfirmed => {
                let words = "the receiver did not confirm the end within --linger";
                ("unconfirmed", UNCONFIRMED, words.to_owned())
            }
            Ending::Left => {
                let words = "the receiver left before the end: its own messages say why";
                ("receiver_left", UNCONFIRMED, words.to_owned())
            }
            Ending::Interrupted => ("interrupted", cli::exit::INTERRUPTED, String::new()),
            Ending::Failed(error) => ("failed", cli::exit::FAILED, format!("{error:#}")),
        };
        let (counts, written) = (self.counts, self.written);
        let expired = written.expired + counts.skipped;
        let seconds = self.began.elapsed().as_secs_f64();
        self.events.emit(&SendEvent::End {
            result,
            exit_code: code,
            message: &message,
            seconds,
            windows: self.windows,
            offered_bytes: counts.offered_bytes,
            written_bytes: written.bytes,
            offered: counts.offered,
            written: written.messages,
            dropped: counts.dropped,
            expired,
            refused: counts.refused,
            reset: written.reset,
        });
        if !message.is_empty() {
            cli::print_message!("error: {message}");
        }
        if !self.args.quiet && !self.args.json {
            cli::print_message!(
                "{} of {} in {} sent in {seconds:.1} s, {}; {} offered: {} dropped, {expired} late, {} refused by a \
                 full ring",
                ByteSize(written.bytes),
                ByteSize(counts.offered_bytes),
                count(self.layers.count as u64, "layer"),
                BitRate((written.bytes as f64 * 8.0 / seconds.max(1e-3)) as u64),
                count(counts.offered, "message"),
                counts.dropped,
                counts.refused,
            );
        }
        code
    }
}
